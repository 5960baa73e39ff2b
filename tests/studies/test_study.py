"""Studies: public, whole, the same for all; and each party's problem from its own data alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.errors import TacitError
from tacit.protocol.facts import described, facts_of
from tacit.protocol.journal import Digest
from tacit.protocol.messages import answer_from
from tacit.studies import Limits, PartyFile, Study
from tacit.studies.job import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSPITALS = EXAMPLES / "federation" / "hospitals"
PARTIES = ("north", "south", "west")
STUDY = (HOSPITALS / "study.toml").read_text()
PARTY = """
agent = "North hospital"
data = "north.csv"
target = "progression"
ledger = "north.db"
[limits]
total_epsilon = 1.0
total_delta = 1e-5
"""


def told(problem, study):
    """The problem as a coordinator knows it, after every agent told its facts over a line."""
    facts = [facts_of(a, n) for n, a in zip(problem.names, problem.agents, strict=True)]
    return described([answer_from(f.to_bytes()) for f in facts], study.kind.penalties)


def same(one, other):
    """Whether two agents' problems are the same, bit for bit."""
    digests = [
        Digest(b"key").of([p.name, p.objective, p.feasible_set, p.coupling, p.holds_everything])
        for p in (one, other)
    ]
    return digests[0] == digests[1]


def refused(call):
    with pytest.raises(TacitError) as caught:
        call()
    said = str(caught.value)
    assert said.startswith("Expected") and said.endswith("Nothing was sent."), said
    return said


@pytest.fixture
def kit(tmp_path):
    """What one hospital has: the study, its own data and its own file, and nothing of others."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "party.toml").write_text(PARTY)
    shutil.copy(EXAMPLES / "data" / "hospital_1.csv", tmp_path / "north.csv")
    return tmp_path


def north(kit, **changes):
    study = Study.load(kit)
    return study.problem_of("North hospital", PartyFile.load(kit / "party.toml"))


# --- the same numbers as one process -------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    ["", "[algorithm]\nrounds = 30\n", "[algorithm]\ntolerance = 1e-3\nrounds = 50\n"],
    ids=["chosen", "rounds", "tolerance"],
)
def test_a_study_is_the_job_that_one_process_would_run(tmp_path, algorithm):
    shutil.copytree(EXAMPLES / "data", tmp_path / "data")
    text = (EXAMPLES / "hospitals.toml").read_text()
    (tmp_path / "job.toml").write_text(text.replace("[[agents]]", algorithm + "[[agents]]", 1))
    (tmp_path / "study.toml").write_text(STUDY.replace("[[agents]]", algorithm + "[[agents]]", 1))
    job, study = load_job(tmp_path / "job.toml"), Study.load(tmp_path)
    parties = [PartyFile.load(HOSPITALS / f"{name}.toml") for name in PARTIES]
    assert study.agents == job.problem.names == tuple(p.agent for p in parties)
    problem = tacit.Problem(study.problem_of(p.agent, p) for p in parties)
    assert all(map(same, problem.agents, job.problem.agents))
    known = told(problem, study)
    assert study.plan(known) == study.plan(problem) == job.settings
    plan = job.settings.settings
    if plan.tolerance is None:
        assert plan.complete(known) == plan.complete(job.problem)


def test_columns_are_found_by_name(kit):
    before = north(kit)
    header, *rows = [line.split(",") for line in (kit / "north.csv").read_text().splitlines()]
    turned = [[*reversed(header), "note"], *([*reversed(row), "x"] for row in rows)]
    (kit / "north.csv").write_text("\n".join(map(",".join, turned)))
    assert same(north(kit), before)


# --- the same study everywhere -------------------------------------------------------------------


def test_the_digest_is_of_values_and_not_of_their_order(tmp_path):
    digest = Study.load(HOSPITALS).digest
    head, privacy, rest = STUDY.partition("[privacy]")
    budget, agents, names = rest.partition("[[agents]]")
    moved = f"# moved\n{head}{agents}{names}\n{privacy}{budget}"
    (tmp_path / "study.toml").write_text(moved)
    assert moved != STUDY and Study.load(tmp_path).digest == digest
    for old, new in (
        ('"North hospital"', '"Nord hospital"'),
        ('"hdl", "log_triglycerides"', '"log_triglycerides", "hdl"'),
        ("[privacy]", "[rehearsal]\nseed = 1\n[privacy]"),
    ):
        assert STUDY.count(old) == 1
        (tmp_path / "study.toml").write_text(STUDY.replace(old, new))
        assert Study.load(tmp_path).digest != digest, new


def with_file(folder):
    """A study whose set is in a file that travels."""
    start, end = STUDY.index("lower ="), STUDY.index("[privacy]")
    (folder / "sets").mkdir(parents=True)
    bounds = np.array([[0, 0, -1, 0, -1], [1, 1, 0, 1, 1.0]])
    matrix = np.array([[-1, 1, 0, 0, 0], [1, 1, 0, 1, 0.0]])
    np.savez(
        folder / "sets" / "known.npz",
        lower=bounds[0],
        upper=bounds[1],
        matrix=matrix,
        offset=np.array([0.0, 1.0]),
    )
    text = STUDY[:start] + 'file = "sets/known.npz"\n' + STUDY[end:]
    (folder / "study.toml").write_text(text)
    return text


def test_files_travel_and_are_part_of_the_digest(tmp_path):
    with_file(tmp_path / "a")
    study = Study.load(tmp_path / "a" / "study.toml")
    assert study.kind.files == ("sets/known.npz",)
    copied = Study.load(study.copy_to(tmp_path / "kit"))
    assert copied.digest == study.digest and copied.contents == study.contents
    party = PartyFile.load(HOSPITALS / "north.toml")
    assert same(
        copied.problem_of(party.agent, party), Study.load(HOSPITALS).problem_of(party.agent, party)
    )
    with np.load(tmp_path / "kit" / "sets" / "known.npz") as known:
        arrays = dict(known)
    arrays["offset"][1] = 1.5
    np.savez(tmp_path / "kit" / "sets" / "known.npz", **arrays)
    assert Study.load(tmp_path / "kit").digest != study.digest
    (tmp_path / "kit" / "sets" / "known.npz").unlink()
    assert "sets/known.npz" in refused(lambda: Study.load(tmp_path / "kit"))


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret.npz", "a/../../secret.npz", "C:\\x.npz", "", "a//b.npz"]
)
def test_a_study_cannot_name_a_party_s_own_files(tmp_path, name):
    text = with_file(tmp_path / "a").replace("sets/known.npz", name.replace("\\", "\\\\"))
    np.savez(tmp_path / "secret.npz", offset=np.zeros(2))
    (tmp_path / "a" / "study.toml").write_text(text)
    assert "file" in refused(lambda: Study.load(tmp_path / "a"))


def test_a_link_out_of_the_study_is_not_followed(tmp_path):
    with_file(tmp_path / "a")
    (tmp_path / "a" / "sets" / "known.npz").rename(tmp_path / "known.npz")
    (tmp_path / "a" / "sets" / "known.npz").symlink_to(tmp_path / "known.npz")
    assert "link" in refused(lambda: Study.load(tmp_path / "a"))


@pytest.mark.parametrize("key", ["data", "ledger"])
@pytest.mark.parametrize("way", ["north.npz", "a/../north.npz", "link.npz"])
def test_a_party_s_own_file_is_not_public(tmp_path, kit, key, way):
    """A coordinator that guesses the name of a party's data gets nothing out of its digest."""
    text = with_file(tmp_path / "a").replace("sets/known.npz", "north.npz")
    shutil.copy(tmp_path / "a" / "sets" / "known.npz", kit / "north.npz")
    (kit / "link.npz").symlink_to(kit / "north.npz")
    (kit / "study.toml").write_text(text)
    own = {"data": "north.csv", "ledger": "north.db"}[key]
    (kit / "party.toml").write_text(PARTY.replace(own, way))
    said = refused(lambda: north(kit))
    assert f"{Path(way).name}, which the study names as public" in said


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("deadline = 600", "seed = 3", "seed"),
        ("feature_norm = 1.0", "feature_norm = 1.0\ntargets = [1.0]", "no data"),
        ("offset = [0.0, 1.0]", "offset = [0.0, -9.0]", "empty"),
        (
            'mechanism = "gaussian"\ntotal_epsilon = 1.0\ntotal_delta = 1e-5',
            'mechanism = "none"',
            "noise",
        ),
        ("total_delta = 1e-5", 'total_delta = 1e-5\ncalibration = "paper"', "calibration"),
        ("total_delta = 1e-5", 'total_delta = 1e-5\nperturbation = "output"', "perturbation"),
        ('name = "West hospital"', 'name = "West hospital"\ndata = "w.csv"', "got data"),
        ('name = "West hospital"', 'name = "South hospital"', "twice"),
        ('name = "West hospital"', 'name = "West hospital"\ncoupling = ["a"]', "coupling"),
        ('name = "West hospital"', 'name = "W"\nobjective = { normaliser = 99 }', "normaliser"),
        ("[privacy]", "[rehearsal]\nseed = -1\n[privacy]", "seed"),
        ("[privacy]", '[power]\ncase = "case14"\n[privacy]', "[objective] and [power]"),
        ("deadline = 600", f"deadline = {'9' * 5000}", "ordinary size"),
        ("deadline = 600", f"columnss = {'[' * 3000}{']' * 3000}", "ordinary size"),
    ],
)
def test_what_a_study_may_not_say(tmp_path, old, new, words):
    assert STUDY.count(old) == 1
    (tmp_path / "study.toml").write_text(STUDY.replace(old, new))
    said = refused(lambda: Study.load(tmp_path))
    assert any(word in said for word in words.split("|")), said


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text("ab/. %é\t", max_size=8)
    | st.sampled_from(["gaussian", "laplace", "none", "box", "softmax", "paper", "replace"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value) if "e" not in repr(value) or "." in repr(value) else f"{value:.17e}"
    return json.dumps(value)


def test_what_a_party_does_not_agree_to(kit):
    party = kit / "party.toml"
    party.write_text(PARTY + 'hides = "replacing one record"\n')
    said = refused(lambda: north(kit))
    assert "'replacing one record'" in said and "'adding or removing one record'" in said
    party.write_text(PARTY + 'hides = "adding or removing one record"\n')
    assert north(kit).objective.sample_count == 148
    party.write_text(PARTY.replace("North", "South"))
    assert "'South hospital'" in refused(lambda: north(kit))
    (kit / "study.toml").write_text(STUDY.replace("[privacy]", "[rehearsal]\nseed = 4\n[privacy]"))
    party.write_text(PARTY)
    assert Study.load(kit).rehearsal == 4
    assert "rehearsal = true" in refused(lambda: north(kit))
    party.write_text("rehearsal = true\n" + PARTY)
    assert north(kit).objective.sample_count == 148


def test_data_that_do_not_fit(kit):
    party = kit / "party.toml"
    party.write_text(PARTY.replace('target = "progression"', 'target = "hdl"'))
    assert "'hdl'" in refused(lambda: north(kit))
    party.write_text(PARTY.replace('target = "progression"', 'unit = "MW"'))
    assert "unit" in refused(lambda: north(kit))
    party.write_text(PARTY)
    (kit / "study.toml").write_text(STUDY.replace('"intercept"]', '"age"]'))
    assert "'age'" in refused(lambda: north(kit))
    (kit / "study.toml").write_text(STUDY.replace("columns =", "#"))
    assert "columns" in refused(lambda: north(kit))
    (kit / "study.toml").write_text(STUDY)
    (kit / "north.csv").unlink()
    assert "north.csv" in refused(lambda: north(kit))


@pytest.mark.parametrize("cell", ["7193", "Xq7193", "7193,7193", "nan,7193"])
def test_no_private_number_is_in_an_error(kit, cell):
    (kit / "study.toml").write_text(STUDY.replace("record_bound = 200", "record_bound = 2"))
    lines = (kit / "north.csv").read_text().splitlines()[:2]
    lines.append(",".join(["7193"] * 4 + [cell, "7193"]))
    (kit / "north.csv").write_text("\n".join([*lines, "7193,0,0,0,0,0"]))
    assert "7193" not in refused(lambda: north(kit))


# --- a party's own file --------------------------------------------------------------------------

WHOLE = PARTY.replace("[limits]", 'rehearsal = true\ncoordinator = "k"\n[limits]')
WHOLE += 'rounds = 7\nhides = "replacing one record"\n'


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "party.toml").write_text(WHOLE)
    monkeypatch.chdir(tmp_path)
    party = PartyFile.load("here/party.toml")
    assert party.data == (tmp_path / "here" / "north.csv").resolve()
    assert party.ledger == (tmp_path / "here" / "north.db").resolve()
    assert party.agent == "North hospital" and party.target == "progression"
    assert party.rehearsal and party.coordinator == "k" and party.unit is None
    assert party.limits == Limits(1.0, 1e-5, 7, "replacing one record")
    (tmp_path / "party.toml").write_text(PARTY.replace("total_delta = 1e-5", "total_delta = 0"))
    party = PartyFile.load("party.toml")  # nothing is allowed that is not said
    assert not party.rehearsal and party.limits == Limits(1.0, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('ledger = "north.db"', "", "ledger"),
        ('target = "progression"', 'unit = "kW"', "'kW'"),
        ('target = "progression"', "rehearsal = 1", "true or false"),
        ("total_epsilon = 1.0", "total_epsilon = inf", "total_epsilon=inf"),
        ("total_delta = 1e-5", "total_delta = false", "total_delta"),
        ("total_delta = 1e-5", 'total_delta = 1e-5\nhides = ""', "hides"),
        ("[limits]\ntotal_epsilon = 1.0\ntotal_delta = 1e-5", "", "[limits]"),
    ],
)
def test_what_a_party_file_may_not_say(tmp_path, old, new, words):
    assert PARTY.count(old) == 1
    (tmp_path / "party.toml").write_text(PARTY.replace(old, new))
    assert words in refused(lambda: PartyFile.load(tmp_path / "party.toml"))


LINES = [
    (text, load, k)
    for text, load in ((STUDY, Study.load), (WHOLE, PartyFile.load))
    for k, line in enumerate(text.splitlines())
    if " = " in line and line[0] != "#"
]


@settings(max_examples=repeat(60, 120))
@given(st.sampled_from(LINES), VALUES)
def test_a_hostile_file_is_refused_in_one_manner(tmp_path_factory, line, value):
    text, load, k = line
    lines = text.splitlines()
    lines[k] = f"{lines[k].split(' = ')[0]} = {toml(value)}"
    path = tmp_path_factory.mktemp("hostile") / "file.toml"
    path.write_text("\n".join(lines))
    try:
        limits = getattr(load(path), "limits", None)
        assert limits is None or (0 < limits.total_epsilon < 1e7 and 0 <= limits.total_delta < 1)
    except TacitError as error:
        assert str(error).startswith("Expected") and str(error).endswith("Nothing was sent.")


# --- [limits] hides: one relation between neighbouring data, and no other ------------------------

MOVES = """
[objective]
kind = "residual"
matrix = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
beta = BETA
[set]
kind = "box"
lower = -5.0
upper = 5.0
size = 2
[privacy]
total_epsilon = 1.0
total_delta = 1e-5
[[agents]]
name = "North hospital"
"""


def moving(folder, beta, hides=None):
    """What a party is asked to hide by a study in which its data move by ``beta``."""
    (folder / "study.toml").write_text(MOVES.replace("BETA", beta))
    np.savez(folder / "d.npz", data=np.zeros(3))
    text = PARTY.replace("north.csv", "d.npz")
    (folder / "party.toml").write_text(text + (f'hides = "{hides}"\n' if hides else ""))
    party = PartyFile.load(folder / "party.toml")
    return Study.load(folder).problem_of("North hospital", party).objective


@pytest.mark.parametrize(
    ("agreed", "asked"),
    [
        ("5", "5e-05"),  # words that only begin alike
        ("0.12345651", "0.1234565"),  # alike in six digits
        ("[0.1, 0.2, 0.3]", "[1e-9, 1e-9, 0.3]"),  # alike in words: "its own bound, 0.3 or less"
        ("0.1\ngroups = [0, 0, 1]", "0.1\ngroups = [0, 1, 2]"),  # "the data of one group"
        ("0.1\nmoved = 2", "0.1"),
    ],
)
def test_a_party_agrees_to_one_relation_and_no_other(tmp_path, agreed, asked):
    """Words alone do not tell whose data move together, nor each by how much."""
    hides = moving(tmp_path, agreed).agreed
    assert moving(tmp_path, agreed, hides).agreed == hides
    said = refused(lambda: moving(tmp_path, asked, hides))
    assert hides in said and moving(tmp_path, asked).agreed in said
