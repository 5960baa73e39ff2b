"""Studies of text, gaps and numbers, from study to a published evaluation."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_study import Here, identity, party, write_party

import tacit
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.learn import PrivateEvaluation, load_model
from tacit.privacy import Gaussian
from tacit.protocol.coordinator import Paused
from tacit.protocol.messages import Agreed, Broadcast, Finish, Propose, Refusal, request_from
from tacit.report.subject import Subject
from tacit.studies.conduct import conduct
from tacit.studies.party import party as join
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Study

SIZES = {"north": 300, "south": 500, "west": 200}
STUDY = """
name = "stays"
{top}
[learn]
columns = "columns.toml"
{learn}
[evaluation]
epsilon = {own}
share = 0.2
[algorithm]
{rounds}
[privacy]
total_epsilon = {epsilon}
total_delta = 1e-5
{more}
"""
COLUMNS = """
target = "y"
{target}
[ranges]
age = [18, 90]
dose = [0, 10]
[categories]
ward = ["a", "b", "surgery"]
[fill]
dose = 5
"""


def write(folder, target, epsilon=40.0, own=10.0, colluding=None, learn="", sizes=SIZES):
    rng, frames = np.random.default_rng(3), {}
    for name, n in SIZES.items():
        made = pd.DataFrame({"ward": rng.choice(["a", "b", "surgery"], n)})
        made["age"], made["dose"] = rng.uniform(18, 90, n), rng.uniform(0, 10, n)
        score = (made["age"] - 54) / 36 + (made["ward"] == "surgery") + rng.normal(0, 0.1, n)
        made["y"] = np.where(score > 0.3, "yes", "no") if "classes" in target else score
        made.loc[::5, "dose"] = np.nan
        made.to_csv(folder / f"{name}.csv", index=False)
        frames[name] = made
        tacit.Ledger.create(folder / f"{name}.db", 2 * epsilon, 1e-5)
    keys = {} if colluding is None else {name: identity(folder, name) for name in SIZES}
    more = [f'[[agents]]\nname = "{n}"\nrecords = {k}' for n, k in sizes.items()]
    more += ["[identities]"] * bool(keys) + [f'{n} = "{k}"' for n, k in keys.items()]
    top = f'aggregation = "sum"\ncolluding = {colluding}' if keys else ""
    if "classes" in target and "centring_share" not in learn:
        learn += '\ncentring_share = "none"'
    about = {
        "top": top,
        "epsilon": epsilon,
        "own": own,
        "learn": learn,
        "rounds": "" if "ridge" in learn else "rounds = 10",
        "more": "\n".join(more),
    }
    (folder / "study.toml").write_text(STUDY.format(**about))
    (folder / "columns.toml").write_text(COLUMNS.format(target=target))
    for name in SIZES:
        write_party(folder, name, rehearsal=False, epsilon=epsilon)
    return Study.load(folder), frames


def run(study, folder, meddle=lambda name, request: request):
    line = Here([party(study, folder, name) for name in study.agents], meddle)
    return conduct(study, folder / "out", line)


CLASSES, NUMBER = 'classes = ["no", "yes"]', "target_range = [-2, 3]"


@pytest.mark.parametrize(
    ("target", "colluding", "learn"),
    [
        (CLASSES, None, 'feature_map = "fourier"'),
        (NUMBER, None, 'model = "ridge"'),
        (NUMBER, 1, ""),
    ],
    ids=["classes", "number", "sum"],
)
def test_a_study_ends_with_an_evaluation_that_may_be_published(
    tmp_path, capsys, target, colluding, learn
):
    study, frames = write(tmp_path, target, colluding=colluding, learn=learn)
    result = run(study, tmp_path)
    model, found = load_model(tmp_path / "out"), PrivateEvaluation.load(tmp_path / "out")
    # the records that were held out, and nobody has learnt from
    tested = pd.concat(f[study.kind.evaluation.held_out(n)] for n, f in frames.items())
    assert len(tested) == found.records_ == 200
    truth = PrivateEvaluation(1e6, 0.5, model=model, random_state=0)
    truth.fit(tested[["age", "dose", "ward"]], tested["y"])
    np.testing.assert_allclose(found.table, truth.table, atol=6 * found.deviation_)
    assert np.abs(found.table - truth.table).max() > found.deviation_ / 10
    for name in SIZES:  # every party has it too
        own = PrivateEvaluation.load(tmp_path / f"own-{name}")
        np.testing.assert_allclose(own.table, found.table)
        said = json.loads((tmp_path / f"own-{name}" / "statement.json").read_text())
        assert said["epsilon"] == pytest.approx(result.privacy.epsilon, rel=1e-3)
        party_file = tmp_path / f"{name}.toml"
        assert Subject.read(tmp_path / f"own-{name}", party=party_file).counted
        # and has paid for all of it, no more than the study asked for
        spent = tacit.Ledger(tmp_path / f"{name}.db").spent.epsilon
        assert 0.95 * 40 < spent <= 40 and spent <= result.privacy.epsilon * (1 + 1e-6) <= 40.001
    assert "histogram" in result.privacy.after and result.privacy.parties == (3 if colluding else 1)
    assert main(["report", str(tmp_path / "out"), "--public"]) == 0
    page = (tmp_path / "out" / "report-public.html").read_text()
    assert found.cells()[0][2] in page and "held out" in page
    assert main(["show", str(tmp_path / "out")]) == 0
    assert found.cells()[0][2] in capsys.readouterr().out
    before = model[-1].privacy_.epsilon
    assert found.privacy_.epsilon == pytest.approx(10, rel=1e-3)
    assert before < result.privacy.epsilon < before + found.privacy_.epsilon


def test_a_study_that_stops_before_its_evaluation_goes_on_and_pays_once(tmp_path):
    study, _ = write(tmp_path, CLASSES)

    def until_asked(name, request):
        is_there = (tmp_path / "out" / "model.json").exists()
        return None if is_there and name == "west" else request

    with pytest.raises(Paused):
        run(study, tmp_path, until_asked)
    assert not (tmp_path / "out" / "result.json").exists()
    result = run(study, tmp_path)
    again = run(study, tmp_path)
    assert again.privacy == result.privacy
    for name in SIZES:
        assert len(tacit.Ledger(tmp_path / f"{name}.db").runs()) == 2


def test_one_record_moves_one_count_by_one(tmp_path):
    study, frames = write(tmp_path, CLASSES)
    table = frames["west"]
    z = study.kind.public_part().feasible_set.project(np.linspace(-1, 1, 6))
    tested = study.after(np.asarray(z))
    held = study.kind.evaluation.held_out("west")

    def counted():
        file = PartyFile.load(tmp_path / "west.toml")
        return tested.problem_of("west", file).objective.statistics().values

    before = counted()
    assert before.sum() == held.sum() == 40
    file = PartyFile.load(tmp_path / "west.toml")
    assert study.problem_of("west", file).objective.sample_count == 160
    other = study.after(np.asarray(z) / 2)
    assert tested.digest != other.digest and tested.question != other.question
    for i, row in ((int(np.argmax(held)), 1), (int(np.argmin(held)), 0)):
        changed = table.copy()
        changed.loc[i, ["age", "dose", "ward", "y"]] = [18.0, 0.0, "b", "no"]
        other = [18.0, 0.0, "b", "yes"] if np.abs(before).sum() else None
        changed.to_csv(tmp_path / "west.csv", index=False)
        first = counted()
        changed.loc[i, ["age", "dose", "ward", "y"]] = other
        changed.to_csv(tmp_path / "west.csv", index=False)
        moved = counted() - first
        assert np.abs(moved).sum() == 2 * row and np.abs(moved).max() == row


def told_north(study, tmp_path):
    """What north is asked in an honest run."""
    said = []

    def heard(name, request):
        said.extend([request_from(request)] * (name == "north"))
        return request

    run(study, tmp_path, heard)
    return said


def test_of_one_run_a_party_evaluates_one_model_in_its_set(tmp_path):
    """Whoever has the coordinator's key says that other solutions are the model."""
    study, _ = write(tmp_path, CLASSES)
    said = told_north(study, tmp_path)
    stop = next(i for i, one in enumerate(said) if isinstance(one, Finish))
    proposal = next(one for one in said[stop:] if isinstance(one, Propose))
    spent = tacit.Ledger(tmp_path / "north.db").spent.epsilon
    own = said[stop].solution
    for z, known in ((own, True), (own / 2, True), (np.full(6, 1e9), False)):
        north = party(study, tmp_path, "north")
        for request in said[:stop]:
            assert not isinstance(north.handle(request), Refusal)
        done = north.handle(replace(said[stop], solution=z))
        assert isinstance(done, Refusal) != known
        if known:
            asked = replace(proposal, study=study.after(z).digest)
            same = z is own
            assert isinstance(north.handle(asked), Agreed if same else Refusal)
        else:
            assert "in the feasible set" not in done.words
    assert tacit.Ledger(tmp_path / "north.db").spent.epsilon == spent
    stated = json.loads((tmp_path / "own-north" / "statement.json").read_text())["epsilon"]
    assert stated == pytest.approx(spent)  # not of the fit alone, which was finished again


def by(*orders):
    """What a coordinator makes of the requests of an honest run (``fit``, then ``tested``)."""
    return pytest.param(orders, id=" ".join(orders))


@pytest.mark.parametrize(
    "orders",
    [
        # no rounds, an evaluation for all of the limit; then the rounds after all
        by("propose", "finish", "test", "propose", "rounds", "finish"),
        # after "finish", which has noted that nothing was charged
        by("propose", "finish", "rounds", "test"),
        by("propose", "finish", "propose", "rounds", "test"),
        # one evaluation as rounds, and one as a release, under one name
        by("propose", "rounds", "finish", "test rounds", "propose", "finish", "test honest"),
        by("propose", "rounds", "finish", "test honest", "test rounds"),
        # rounds that fail are paid again, with what another proposal's run may cost
        by("propose", "finish", "test", "propose", "outside"),
        by("propose", "finish", "test", "restart", "propose", "outside"),
    ],
)
def test_a_study_in_another_order_costs_no_more_than_a_party_allows(tmp_path, orders):
    """Limits are of all runs of a study together, however a coordinator orders them."""
    study, _ = write(tmp_path, CLASSES)
    said = told_north(study, tmp_path)
    shutil.rmtree(tmp_path / "own-north")
    (tmp_path / "north.db").unlink()
    ledger = tacit.Ledger.create(tmp_path / "north.db", 200.0, 1e-5)
    stop = next(i for i, one in enumerate(said) if isinstance(one, Finish))
    fit, tested = said[: stop + 1], said[stop + 1 :]
    proposal, release = (next(o for o in part if isinstance(o, Propose)) for part in (fit, tested))
    rounds = [one for one in fit if isinstance(one, Broadcast)]
    size, most, few = 20, Gaussian.analytic(39.9, 1e-5), Gaussian.analytic(9.0, 1e-5)
    once = [replace(release, release=most), *tested[tested.index(release) + 1 :]]
    settings = replace(proposal.settings, rounds=1, mechanism=few)
    about = {"study": release.study, "run": release.run, "size": size, "settings": settings}
    in_rounds = replace(proposal, **about)
    outside = replace(rounds[0], consensus=np.full_like(rounds[0].consensus, 1e9))
    asked = {
        "propose": [proposal],
        "rounds": rounds,
        "finish": [fit[-1]],
        "test": once,
        "test honest": tested,
        "test rounds": [in_rounds, Broadcast(release.run, 1, np.zeros(size))],
        "outside": [outside] * 40,
    }
    north, refused = party(study, tmp_path, "north"), 0
    for order in orders:
        if order == "restart":
            north = party(study, tmp_path, "north")
        for request in asked.get(order, ()):
            if isinstance(request, Finish) and request.run == proposal.run:
                request = replace(request, round=len(ledger.charged(proposal.run)))
            if isinstance(request, Broadcast) and hasattr(
                getattr(north.run, "rounds", None), "last_digest"
            ):
                request = replace(request, last={"north": north.run.rounds.last_digest})
            answer = north.handle(request)
            refused += isinstance(answer, Refusal)
    assert refused
    assert ledger.spent.epsilon <= 40.0
    north.handle(proposal)  # limits were compared for one run: a refused one ends it
    assert isinstance(north.handle(replace(proposal, run="release-0123456789ab-1")), Refusal)
    assert north.run is None


def test_a_party_states_what_first_steps_have_cost_it(tmp_path):
    """The coordinator asks for the first with half the noise that the study plans."""
    write(tmp_path, CLASSES, 38.0, 8.0, learn='centring_share = "auto"')
    text = (tmp_path / "columns.toml").read_text().replace("[18, 90]", '["auto", -500, 500]')
    (tmp_path / "columns.toml").write_text(text)
    for name in SIZES:
        write_party(tmp_path, name, rehearsal=False, epsilon=70.0)
    ledger, stated = tacit.Ledger(tmp_path / "north.db"), []
    path = tmp_path / "own-north" / "statement.json"

    def less(name, request):
        asked = request_from(request)
        if name == "north" and path.exists():
            stated.append(json.loads(path.read_text())["epsilon"])
        if isinstance(asked, Propose) and "first-1" in asked.run:
            half = Gaussian(asked.release.noise_multiplier / 2)
            return replace(asked, release=half).to_bytes()
        return request

    run(Study.load(tmp_path), tmp_path, less)
    last = json.loads(path.read_text())["epsilon"]
    assert last == pytest.approx(ledger.spent.epsilon) and last > 39.0
    assert stated == sorted(stated) and len({*stated}) == 5 and stated[0] > 9.0  # all till then


def test_a_party_that_would_not_pay_for_the_evaluation_does_not_begin(tmp_path):
    study, _ = write(tmp_path, CLASSES)
    write_party(tmp_path, "west", rehearsal=False, epsilon=39.0)
    with pytest.raises(Paused, match="its limit"):
        run(study, tmp_path)
    assert not tacit.Ledger(tmp_path / "north.db").spent.epsilon


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("epsilon = 10.0", "epsilon = 40.0", "total_epsilon"),
        ("epsilon = 10.0\n", "", "epsilon"),
        ("share = 0.2", "share = 0.001", "share"),
        ("records = 200", "", "records"),
        ("[learn]", "[learn]\nnormaliser = 800", "normaliser"),
        ("[learn]", '[learn]\nfeature_map = "orientations"', "feature_map"),
        ("[learn]", '[learn]\nfeature_map = "../map.npz"', "feature_map"),
    ],
)
def test_evaluations_that_are_refused(tmp_path, old, new, named):
    write(tmp_path, CLASSES)
    path = tmp_path / "study.toml"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InvalidInput, match=named):
        Study.load(tmp_path)


def test_the_example_of_wards(tmp_path):
    """Text, missing values and a regression at three sites, with errors that may be published."""
    examples = Path(__file__).parents[2] / "examples"
    shutil.copytree(examples / "data", tmp_path / "data")
    folder = Path(shutil.copytree(examples / "federation/wards", tmp_path / "a/wards"))
    study, there = Study.load(folder), []
    for name in ("north", "south", "west"):
        tacit.Ledger.create(folder / f"{name}.db", 4.0, 1e-5)
        file = PartyFile.load(folder / f"{name}.toml")
        there.append(join(study, file, folder / f"own-{name}"))
    result = conduct(study, folder / "out", Here(there))
    assert result.privacy.certified and 3.9 < result.privacy.epsilon <= 4.0
    assert PrivateEvaluation.load(folder / "out").records_ == 88


WIDE = 'target_range = ["auto", -200, 300]'


@pytest.mark.parametrize(("target", "colluding"), [(CLASSES, None), (CLASSES, 1), (WIDE, None)])
def test_ranges_a_mean_and_lengths_are_first_steps(tmp_path, target, colluding):
    learn = 'centring_share = "auto"' if target == CLASSES else ""
    write(tmp_path, target, 38.0, 8.0, colluding, learn)
    text = (tmp_path / "columns.toml").read_text().replace("[18, 90]", '["auto", -500, 500]')
    (tmp_path / "columns.toml").write_text(text)
    study = Study.load(tmp_path)
    assert study.kind.STAGE == "first-1"
    result = run(study, tmp_path)
    model = load_model(tmp_path / "out")[-1]
    low, high = model.ranges_[0]
    assert -0.6 < low < 18 / 500 < 90 / 500 < high < 0.6
    if target == CLASSES:
        assert model.length_ > 0 and np.abs(model.mean_).max() > 0
        assert "sum of its rows" in result.privacy.before
    else:
        assert -100 < model._range[0] < -1 and 2 < model._range[1] < 100
    assert "histogram" in result.privacy.before and "histogram" in result.privacy.after
    assert result.privacy.epsilon <= 38.0
    for name in SIZES:
        own = load_model(tmp_path / f"own-{name}")[-1]
        assert own.get_params() == model.get_params() and own.privacy_.epsilon > 30
        np.testing.assert_array_equal(own.coef_, model.coef_)
        said = json.loads((tmp_path / f"own-{name}" / "statement.json").read_text())
        assert said["epsilon"] == pytest.approx(result.privacy.epsilon, rel=1e-3)
        party_file = tmp_path / f"{name}.toml"
        assert Subject.read(tmp_path / f"own-{name}", party=party_file).counted
        spent = tacit.Ledger(tmp_path / f"{name}.db").spent.epsilon
        assert 0.95 * 38 < spent <= 38
