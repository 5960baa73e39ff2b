"""Every key of a study and of a job arrives where it is meant to, and is in its digest.

Two files of each kind, in which no value is the same, and what each must then be; a key that is in
neither is an error.
"""

import math
import re

import numpy as np
import pytest
from test_study import refused

import tacit
from tacit.learn import PublicColumns
from tacit.learn.classifiers import Planned, planned_clip
from tacit.objectives.objective import RELATIONS
from tacit.privacy.accounting import calibrate
from tacit.protocol.facts import described, facts_of
from tacit.studies import Study, classifier, grid, job
from tacit.studies.study import COMMON, KINDS

ELSEWHERE = {"aggregation", "colluding", "identities", "moments"}  # they have tests of their own
LEARN = """
name = "one"
deadline = 7.5
evaluate_every = 3
[rehearsal]
seed = 9
[learn]
centring_share = "none"
features = ["age", "sex", "fee"]
target = "churn"
classes = ["a", "b", "c"]
normaliser = 91
record_bound = 41
neighbours = "replace"
feature_norm = 2.5
bound = 0.5
ranges = { age = [18, 90], fee = [0, 4] }
categories = { sex = ["f", "m"] }
fill = { age = 50 }
[privacy]
total_epsilon = 3.0
total_delta = 1e-4
mechanism = "laplace"
perturbation = "output"
calibration = "certified"
[algorithm]
rounds = 7
local_updates = 2
penalty = { kind = "constant", value = 2.5 }
step_size = { kind = "constant", value = 0.25 }
[[agents]]
name = "A"
[[agents]]
name = "B"
"""
PLAIN = """
[learn]
centring_share = "none"
features = ["age", "fee"]
target = "left"
classes = [0, 1]
normaliser = 90
record_bound = 40
ranges = { "*" = [0, 10] }
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[[agents]]
name = "A"
[[agents]]
name = "B"
"""
NUMBER = PLAIN.replace("classes = [0, 1]", "target_range = [-1.0, 3.0]").replace(
    '[learn]\ncentring_share = "none"',
    '[learn]\nmodel = "quantile"\nlevel = 0.9\ndrop = ["note"]\nlog = ["fee"]',
)
POWER = """
[power]
case = "case9"
zones = 2
beta = "2% of largest"
noise_on = "gradient"
nominal = "case9"
[privacy]
epsilon = 0.5
delta = 1e-4
mechanism = "gaussian"
perturbation = "objective"
calibration = "certified"
[algorithm]
noise_every_round = true
rounds = 7
local_updates = 2
penalty = { kind = "constant", value = 2.5 }
step_size = { kind = "constant", value = 0.25 }
"""
COST = """
[power]
case = "case9"
objective = "cost"
shed_price = 50.0
nominal = "case9"
nominal_spread = 0.25
[privacy]
total_epsilon = 3.0
total_delta = 0.0
[algorithm]
rounds = 9
tolerance = 0.003
penalty = { kind = "constant", value = 2.5 }
"""
TESTED = """
[learn]
target = "churn"
classes = ["no", "yes"]
feature_map = "fourier"
centring_share = 0.05
[learn.ranges]
age = [18, 90]
[evaluation]
epsilon = 0.5
share = 0.25
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[[agents]]
name = "A"
records = 40
[[agents]]
name = "B"
records = 80
"""
JOB = """
columns = ["x", "y"]
[objective]
kind = "huber"
feature_norm = 2.5
target_bound = 3.0
threshold = 0.7
normaliser = 77
record_bound = 33
ridge = 0.125
neighbours = "replace"
[set]
kind = "ball"
center = [0.5, 0.0]
radius = 2.5
[privacy]
epsilon = 0.5
mechanism = "laplace"
[algorithm]
rounds = 7
local_updates = 2
penalty = { kind = "constant", value = 2.5 }
step_size = { kind = "constant", value = 0.25 }
[[agents]]
name = "A"
[[agents]]
name = "B"
coupling = [1, 0]
objective = { record_bound = 22 }
set = { radius = 1.5 }
"""


REACH = JOB.replace('penalty = { kind = "constant", value = 2.5 }', "reach = 0.125")
REACH = REACH.replace('step_size = { kind = "constant", value = 0.25 }\n', "")
REACH = REACH.replace("local_updates = 2\n", "")


def loaded(folder, text):
    (folder / "study.toml").write_text(text)
    return Study.load(folder)


def settings_of(study, parts):
    facts = [facts_of(part, part.name) for part in parts]
    return study.plan(described(facts, study.kind.penalties))


HIDDEN = RELATIONS["replace"]
OF_ROUNDS = (7, 2, 2.5, 0.25)


def of_rounds(s):
    return s.rounds, s.local_updates, s.penalty.value, s.step_size.value


def test_keys_of_a_classifier(tmp_path):
    study = loaded(tmp_path, LEARN)
    about = study.name, study.deadline, study.evaluate_every, study.rehearsal, study.agents
    assert about == ("one", 7.5, 3, 9, ("A", "B"))
    problem = study.kind._without_records()
    f, W = problem.agents[1].objective, problem.agents[1].feasible_set
    assert (f.classes, f.normaliser, f.record_bound, f.relation) == (3, 91, 41, HIDDEN)
    assert f.feature_norm == 2.5 and f.dimension == 3 * (4 + 1)
    assert np.abs(W.project(np.full(15, 9e9))[:12]).max() == 0.5
    plan = study.plan(problem)
    assert of_rounds(plan.settings) == OF_ROUNDS and plan.settings.perturbation == "output"
    assert plan.settings.mechanism == calibrate("laplace", 3.0, 1e-4, 14)
    assert plan.settings.delta == plan.delta == 1e-4
    [mapping] = study.kind.steps
    assert isinstance(mapping, PublicColumns)
    import pandas as pd

    table = {"age": [np.nan, 90.0], "sex": ["m", "f"], "fee": [1.0, 9.0]}
    rows = mapping.transform(pd.DataFrame(table))
    unknown = 2 * (50 - 18) / 72 - 1
    np.testing.assert_allclose(rows, [[unknown, 0, 1, -0.5], [1, 1, 0, 1]])
    assert (study.kind.rules.target, study.kind.rules.features) == ("churn", ("age", "sex", "fee"))
    plain = loaded(tmp_path, PLAIN)
    about = plain.name, plain.deadline, plain.evaluate_every, plain.rehearsal
    assert about == ("study", 600.0, 1, None)
    problem = plain.kind._without_records()
    f = problem.agents[0].objective
    assert (f.normaliser, f.record_bound, f.feature_norm) == (90, 40, 1.0)
    limit = planned_clip(2, Planned(3, 2, 90, 2.0, 1e-5))  # with the intercept; agents of one size
    assert f.clip == pytest.approx(limit / math.sqrt(2)) and f.dimension == 3
    assert f.relation == RELATIONS["zero-out"]
    s = plain.plan(problem).settings
    assert s.mechanism == calibrate("gaussian", 2.0, 1e-5, s.updates) and s.delta == 1e-5
    number = loaded(tmp_path, NUMBER)
    f = number.kind._without_records().agents[0].objective
    assert (type(f).__name__, f.level, number.kind.rules.drop) == ("Quantile", 0.9, ("note",))
    assert number.kind.unfitted().target_range == (-1.0, 3.0) and number.kind.rules.log == ("fee",)
    tested = loaded(tmp_path, TESTED)
    assert tested.kind.STAGE == "first-1" and tested.kind.fit.unfitted().centring_share == 0.05
    fit = tested.kind.fit
    about = fit.evaluation
    assert (about.epsilon, about.share, fit.steps[1].columns) == (0.5, 0.25, 256)
    assert [about.held_out(n).sum() for n in "AB"] == [10, 20]
    assert (fit.normaliser, fit.record_bound) == (90, 60)
    assert about.noise.noise_multiplier == pytest.approx(
        calibrate("gaussian", 0.5, 1e-5, 1).noise_multiplier, rel=1e-5
    )


def test_keys_of_a_grid(tmp_path):
    study = loaded(tmp_path, POWER)
    model, largest = study.kind.model, 1.25  # per unit, of case9
    assert len(study.agents) == 2 and model.noise_on == "gradient"
    assert model.bounds == pytest.approx(0.02 * largest) and model.nominal.name == "case9"
    net = model.network(study.agents[0])
    part = model.agent(study.agents[0], net, np.zeros(2 * len(net.buses)))
    assert (part.objective.noise_on, part.objective.spread) == ("gradient", None)
    s = study.kind.asked
    assert (s.epsilon, s.delta, s.mechanism, s.rounds, s.way) == (
        0.5,
        1e-4,
        "gaussian",
        7,
        "rounds",
    )
    assert s.others["local_updates"] == 2 and s.others["perturbation"] == "objective"
    assert (s.others["penalty"].value, s.others["step_size"].value) == (2.5, 0.25)
    cost = loaded(tmp_path, COST)
    asked, model = cost.kind.asked, cost.kind.model
    assert len(cost.agents) == 3 and (model.objective, model.shed_price) == ("cost", 50.0)
    assert (asked.total_epsilon, asked.total_delta, asked.rounds, asked.way) == (3, 0, 9, "release")
    assert asked.others.keys() == {"tolerance", "penalty"}
    assert asked.others["tolerance"] == 0.003 and model.bounds == 0.01
    assert (model.spread, model.nominal.name) == (0.25, "case9")


def test_keys_of_losses(tmp_path):
    study = loaded(tmp_path, JOB)
    X = np.array([[0.5, 0.25], [-0.5, 1.0]])
    parts = [
        study.kind._part(name, {"features": X, "targets": np.array([0.5, -1.0])}) for name in "AB"
    ]
    for part, bound, radius, coupling in zip(
        parts, (33, 22), (2.5, 1.5), ([0, 1], [1, 0]), strict=True
    ):
        f, W = part.objective, part.feasible_set
        assert (f.feature_norm, f.target_bound, f.threshold, f.ridge) == (2.5, 3.0, 0.7, 0.125)
        assert (f.normaliser, f.record_bound, f.relation) == (77, bound, HIDDEN)
        far = np.asarray(W.project(np.array([9e9, 0.0])))
        np.testing.assert_allclose(far, [0.5 + radius, 0.0], rtol=1e-6)
        assert np.asarray(part.coupling).tolist() == coupling
    s = settings_of(study, parts).settings
    assert of_rounds(s) == OF_ROUNDS and (s.mechanism, s.delta) == (tacit.Laplace(2.0), 0.0)
    assert settings_of(loaded(tmp_path, REACH), parts).settings.reach == 0.125


@pytest.mark.parametrize(
    "text",
    [LEARN, PLAIN, POWER, COST, JOB, TESTED],
    ids=["learn", "plain", "power", "cost", "job", "tested"],
)
def test_every_line_of_a_study_is_in_its_digest(tmp_path, text):
    """Whatever value is another one, parties do not hold the same study any more."""
    known, changed = loaded(tmp_path, text).digest, 0
    for line in text.splitlines():
        key, _, value = line.partition(" = ")
        for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.%])", value):
            other = value.replace(number, str(type(eval(number))(eval(number) + 1)), 1)
            try:
                digest = loaded(tmp_path, text.replace(line, f"{key} = {other}", 1)).digest
            except tacit.InvalidInput:
                continue  # such a study there is none
            assert digest != known, line
            changed += 1
    assert changed >= 4


def keys_of(text):
    return set(re.findall(r"(\w+) = ", text)) | set(re.findall(r"\[(\w+)\]", text))


@pytest.mark.parametrize(
    ("texts", "keys"),
    [
        ((LEARN, NUMBER, TESTED), classifier.SECTION - {"columns"}),
        ((POWER, COST), grid.SECTION | grid.PRIVACY | grid.ALGORITHM),
        ((JOB, LEARN, COST, POWER, REACH), job.ALGORITHM | job.PRIVACY),
        ((LEARN, POWER, JOB), (COMMON | {*KINDS}) - ELSEWHERE),
    ],
)
def test_every_key_is_in_a_study_here(texts, keys):
    assert keys - set.union(*map(keys_of, texts)) == set()


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (LEARN, "deadline = 7.5", "deadline = 0.5", "deadline"),
        (LEARN, "deadline = 7.5", "deadline = 1e9", "deadline"),
        (LEARN, "evaluate_every = 3", "evaluate_every = 0", "evaluate_every"),
        (LEARN, "seed = 9", "seed = true", "seed"),
        (LEARN, "feature_norm = 2.5", "feature_norm = 0", "feature_norm"),
        (LEARN, "bound = 0.5", "bound = -1", "bound"),
        (LEARN, "normaliser = 91", "normaliser = 9.5", "normaliser"),
        (LEARN, "rounds = 7", "rounds = 0", "rounds"),
        (LEARN, "local_updates = 2", "local_updates = 2.5", "local_updates"),
        (LEARN, 'mechanism = "laplace"', 'mechanism = "cauchy"', "mechanism"),
        (LEARN, "total_epsilon = 3.0", "", "total_epsilon"),
        (LEARN, 'name = "A"', 'name = "A\\u001b[31m"', "name of an agent|a name in"),
        (LEARN, 'name = "one"', 'name = "o\\u001bne"', "name"),
        (LEARN.replace("[rehearsal]\nseed = 9\n", ""), "", "", "perturbation"),
        (POWER, "zones = 2", "zones = true", "zones"),
        (POWER, 'nominal = "case9"', "", "nominal"),
        (POWER, "noise_every_round = true", "noise_every_round = 1", "noise_every_round"),
        (POWER, 'noise_on = "gradient"', 'noise_on = "loads"', "noise_on"),
        (COST, 'objective = "cost"', "", "shed_price"),
        (COST, "tolerance = 0.003", "step_size = 0.1", "step_size"),
        (JOB, "[[agents]]\nname = \"A\"", "[[agents]]\nname = \"A\"\nset = { size = 3 }", "size"),
        (JOB, 'columns = ["x", "y"]', 'columns = ["x", "x"]', "columns"),
        (JOB, "coupling = [1, 0]", "coupling = [1.0, 0]", "coupling"),
        (JOB, "objective = { record_bound = 22 }", "objective = { targets = [1.0] }", "targets"),
        (JOB, 'kind = "huber"', 'kind = "huber"\nunit = "MW"', "unit"),
    ],
)  # fmt: skip
def test_what_no_study_may_say(tmp_path, text, old, new, words):
    assert text.count(old) >= 1
    said = refused(lambda: loaded(tmp_path, text.replace(old, new, 1)))
    assert re.search(words, said), said
