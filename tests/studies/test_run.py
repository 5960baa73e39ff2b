"""A study over a line: the bits of one process, pauses that lose nothing, and what leaves."""

import dataclasses
import json
from functools import cache

import numpy as np
import pytest
from conftest import repeat
from small_study import NAMES, Here, in_one_process, party, run, write_grid, write_study

import tacit
import tacit.power
from tacit.errors import InvalidInput
from tacit.privacy.ledger import Ledger
from tacit.protocol.coordinator import Paused
from tacit.protocol.journal import Journal
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Curvature,
    Facts,
    Finish,
    Masked,
    Reply,
    answer_from,
    request_from,
)
from tacit.protocol.result import Result
from tacit.studies import conduct as module
from tacit.studies.conduct import conduct
from tacit.studies.study import Study


def same(one, other):
    np.testing.assert_array_equal(one.solution, other.solution)
    np.testing.assert_array_equal(one.ergodic, other.ergodic)
    assert one.trace["round"][-1] == other.trace["round"][-1]
    np.testing.assert_array_equal(one.trace["residual"][-1], other.trace["residual"][-1])


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Runs that nobody disturbs, each made once, by kind: folder, study, result and line."""

    @cache
    def made(kind):
        folder = tmp_path_factory.mktemp(kind)
        study = write_study(folder, kind)
        return folder, study, *run(study, folder)

    return made


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_the_bits_of_one_process(calm, kind):
    tmp_path, study, found, _ = calm(kind)
    expected = in_one_process(study, tmp_path)
    same(found, expected)
    assert found.converged == expected.converged and found.plan == expected.plan
    assert found.settings == expected.settings
    assert found.privacy.epsilon == expected.privacy.epsilon and found.privacy.seeded
    assert str(found.privacy).startswith("Not certified: this is a rehearsal")
    assert "objective" not in found.trace and "noise" not in found.trace
    again = Result.load(tmp_path / "out")
    same(again, found)
    assert json.loads((tmp_path / "out" / "status.json").read_text())["stage"] == "finished"
    for name in NAMES:  # what stays with a party
        with np.load(tmp_path / f"own-{name}" / "solution.npz") as own:
            np.testing.assert_array_equal(own["solution"], found.solution)
        said = json.loads((tmp_path / f"own-{name}" / "statement.json").read_text())
        assert said["epsilon"] == found.privacy.epsilon and "rehearsal" in said["uncertified"]
        assert said["assumed"] == found.privacy.assumed != ""  # what both take for public
        charged = [r["rounds_charged"] for r in Ledger(tmp_path / f"{name}.db").runs()]
        assert charged == [6 if kind == "logistic" else 1]


def test_a_given_penalty_is_that_of_one_process(calm, tmp_path):
    once = 'rounds = 3\ntolerance = 1e-9\npenalty = { kind = "constant", value = 30.0 }'
    study = write_study(tmp_path, "least-squares", algorithm=once)
    found, _ = run(study, tmp_path)
    same(found, in_one_process(study, tmp_path))
    assert found.privacy.once and not np.array_equal(
        found.solution, calm("least-squares")[2].solution
    )


def test_a_coordinator_goes_on_from_its_own_state(calm, tmp_path, monkeypatch):
    """It asks for no round that it has, and its end is that of no pause."""
    *_, expected, _ = calm("logistic")
    monkeypatch.setattr(module, "KEPT", -1.0)  # seconds between states: every round
    study = write_study(tmp_path)
    asked = []

    def silent_once(name, request):
        message = request_from(request)
        if isinstance(message, Broadcast):
            asked.append(message.round)
            return None if asked.count(4) == 1 else request
        return request

    with pytest.raises(Paused):
        run(study, tmp_path, meddle=silent_once)
    assert set(asked) == {1, 2, 3, 4}
    asked[:] = [4]
    found, _ = run(study, tmp_path, meddle=silent_once)
    assert set(asked) == {4, 5, 6}
    same(found, expected)
    assert list(found.trace["round"]) == [1, 2, 3, 4, 5, 6]


def test_a_real_run_has_secure_noise(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    found, _ = run(study, tmp_path)
    assert found.privacy.secure and not found.privacy.seeded and found.seed is None
    assert found.privacy.certified and "rehearsal" not in str(found.privacy)
    other, _ = run(study, tmp_path, "other")
    assert not np.array_equal(found.solution, other.solution)


@pytest.mark.parametrize(
    ("kind", "colluding"), [("logistic", None), ("least-squares", None), ("logistic", 1)]
)
def test_a_pause_loses_nothing(tmp_path, monkeypatch, kind, colluding):
    """A party falls silent in round 3; all processes begin anew, a sum with other keys at round 1;
    the end is that of no pause."""
    monkeypatch.setattr(module, "KEPT", 1e9)  # however long a round takes here
    calm, storm = tmp_path / "calm", tmp_path / "storm"
    expected, _ = run(write_study(calm, kind, colluding=colluding), calm)
    study = write_study(storm, kind, colluding=colluding)

    def silent(name, request):
        message = request_from(request)
        late = name == "south" and isinstance(message, Broadcast) and message.round == 3
        return None if late else request

    for _ in range(2):  # twice the same
        with pytest.raises(Paused, match="'south' gave no answer in 5 seconds") as pause:
            run(study, storm, meddle=silent)
        assert list(pause.value.parties) == ["south"]
        status = json.loads((storm / "out" / "status.json").read_text())
        assert status["stage"] == "paused" and status["waiting"] == ["south"]
    found, line = run(study, storm)
    same(found, expected)
    for name in NAMES:
        before, after = (
            [r["rounds_charged"] for r in Ledger(where / f"{name}.db").runs()]
            for where in (calm, storm)
        )
        assert before == after
    sent = [m.values for m in map(answer_from, line.answers) if isinstance(m, Masked)]
    assert len({values.tobytes() for values in sent}) == len(sent) == 18 * (colluding is not None)


def test_the_result_of_another_study_is_refused(calm, tmp_path):
    folder, study, expected, _ = calm("logistic")
    line = Here([])  # nobody is asked
    assert conduct(study, folder / "out", line).names == expected.names == NAMES
    other = write_study(tmp_path, names=("north", "east"))
    with pytest.raises(InvalidInput, match="Expected the result of study 'clinics'"):
        conduct(other, folder / "out", line)


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_a_state_goes_on_only_with_all_that_was_agreed(tmp_path, kind):
    """Also what every party said of itself."""
    study, place = write_study(tmp_path, kind), tmp_path / "out" / module.STATE

    def gone(name, request):
        return None if isinstance(request_from(request), Broadcast) else request

    with pytest.raises(Paused):
        run(study, tmp_path, meddle=gone)
    saved, facts = Journal.load(place), {f"facts of {name}" for name in NAMES}
    assert saved.agreed.keys() == {"study", "settings", "release", "run"} | facts
    if kind == "least-squares":
        law, delta = saved.agreed["release"]
        assert law["kind"] in ("gaussian", "laplace") and delta == 1e-5
    for name in saved.agreed.keys() - {"run"}:
        other = saved.agreed | {name: "another"}
        dataclasses.replace(saved, agreed=other).save()
        with pytest.raises(InvalidInput, match=f"the .*{name}.* changed"):
            run(study, tmp_path)


def test_how_long_a_party_is_waited_for_and_how_often_a_row_is_written(tmp_path):
    """The last word is waited for a minute at most."""
    write_study(tmp_path)
    path = tmp_path / "study.toml"
    text = path.read_text().replace("deadline = 5", "deadline = 600\nevaluate_every = 4")
    path.write_text(text)
    study, waited = Study.load(tmp_path), {}
    line = Here([party(study, tmp_path, name) for name in study.agents])
    ask = line.ask

    def asked(requests, deadline, heard):
        waited[type(request_from(next(iter(requests.values()))))] = deadline
        return ask(requests, deadline, heard)

    line.ask = asked
    found = conduct(study, tmp_path / "out", line)
    assert waited.pop(Finish) == 60 and set(waited.values()) == {600}
    assert found.trace["round"].tolist() == [4, 6]


def test_all_that_leaves_a_party(calm):
    for kind in ("logistic", "least-squares"):
        *_, line = calm(kind)
        kinds = {type(answer_from(data)) for data in line.answers}
        assert kinds == {Facts, Agreed, Reply} | ({Curvature} if kind == "least-squares" else set())
        for data in line.answers:
            message = answer_from(data)
            if isinstance(message, Reply):
                assert set(vars(message)) == {"run", "round", "primal", "settled"}
                assert message.primal.shape == (3,)


@pytest.mark.parametrize("kind", repeat(["every round", "cost"], ["shed", "every round", "cost"]))
def test_a_grid_in_three_zones(tmp_path, kind):
    """Each zone brings a table of its loads; the bits are those of one process."""
    every_round, objective = kind == "every round", "cost" if kind == "cost" else "shed"
    study, loads = write_grid(tmp_path, every_round, objective)
    found, _ = run(study, tmp_path)
    whole = tacit.power.load_case("case14")
    whole = dataclasses.replace(whole, bus=whole.bus.assign(**loads))
    case = tacit.power.build(whole, tmp_path / "zones.csv", beta=0.01, objective=objective)
    ledgers = {n: Ledger.create(tmp_path / f"{n}-alone.db", 4.0, 1e-4) for n in study.agents}
    about = {"seed": study.rehearsal, "run": study.name, "ledgers": ledgers, "noise": "seeded"}
    plan = study.plan(case.problem)
    assert (plan.release is None) == every_round
    expected = tacit.solve(case.problem, plan, **about)
    same(found, expected)
    generator = (tmp_path / "own-zone a" / "generator.csv").read_text()
    table = case.tables(expected.local)["generator"]
    mine = [g for g in table.index if f"\n{g}," in f"\n{generator}"]
    assert mine and all(repr(float(table.loc[g, "p"])) in generator for g in mine)
