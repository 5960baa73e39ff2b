"""Coordinators and parties that do what they should not: limits hold, and who lies is named."""

import dataclasses
import json

import numpy as np
import pytest
from small_study import Here, party, run, write_party, write_study

import tacit
from tacit.admm.problem import Problem
from tacit.errors import CorruptFile, InvalidInput, Refused
from tacit.privacy.accounting import calibrate, exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol.coordinator import Ended, Paused
from tacit.protocol.facts import facts_of
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Curvature,
    Facts,
    Finish,
    Invite,
    ProposalInWords,
    Refusal,
    ReleaseOnce,
    Reply,
    Start,
    answer_from,
)
from tacit.protocol.participant import WORDS, answer_bytes, refusal
from tacit.studies.conduct import conduct
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Study
from tacit.transports.solving import read


def proposal(of, settings, run="r", **changes):
    about = {"study": of.digest, "run": run, "size": 3, "delta": 1e-5}
    about |= {"settings": json.dumps(settings.to_dict())} | changes
    return ProposalInWords(**about).to_bytes()


def released(study, mechanism):
    """To release, and to solve what was released."""
    reading = json.dumps(mechanism.to_dict())
    return proposal(study, tacit.Settings(50, tolerance=1e-3), reading=reading)


def rounds(mechanism, T=4, E=1, **others):
    return tacit.Settings(T, E, mechanism, 1e-5, **{"penalty": 1.0, "step_size": 0.1, **others})


def asked(one, request):
    return answer_from(answer_bytes(one, request))


def refused(one, request, code):
    message = asked(one, request)
    assert isinstance(message, Refusal) and message.words == f"Party 'north' {WORDS[code][1]}"


CALM = rounds(Gaussian(30.0))


def test_limits_of_a_party(tmp_path):
    """Each point is named, and nothing is agreed to or charged."""
    study = write_study(tmp_path, rehearsal=None)
    write_party(tmp_path, "north", rehearsal=False, more="rounds = 4")
    north = party(study, tmp_path, "north")
    for settings, code in (
        (rounds(Gaussian(30.0), 5), "rounds"),
        (rounds(Gaussian(0.5)), "budget"),
        (rounds(tacit.Noiseless()), "noise"),
        (rounds(Gaussian(30.0), perturbation="output"), "refused"),
        (rounds(Gaussian(30.0), penalty=None), "refused"),
    ):
        refused(north, proposal(study, settings), code)
    refused(north, proposal(study, CALM, study="0" * 64), "study")
    refused(north, proposal(study, CALM, size=2), "refused")
    for text in ("{}", "[]", "{", "[[[", '{"rounds": 1e400}', '"x"'):
        refused(north, proposal(study, CALM, reading=text), "refused")
    assert north.ledger.runs() == []
    assert asked(north, proposal(study, CALM)) == Agreed("r")
    assert north.ledger.runs()[0]["rounds_charged"] == 0
    # the same run on other terms
    refused(north, proposal(study, rounds(Gaussian(30.0), step_size=0.2)), "terms")


def test_why_a_party_refused_is_told_where_it_lets_it_be(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    write_party(tmp_path, "north", rehearsal=False, more="rounds = 4")
    file = tmp_path / "north.toml"
    file.write_text("tell_why = true\n" + file.read_text())
    north = party(study, tmp_path, "north")
    answer = asked(north, proposal(study, rounds(Gaussian(30.0), 5)))
    assert answer.words.startswith(
        f"Party 'north' {WORDS['rounds'][1]} It says: Expected at most 4"
    )
    assert "got 5" in answer.words and answer.words.isprintable()
    answer = asked(north, proposal(study, rounds(Gaussian(0.5))))
    assert "total epsilon of at most 2" in answer.words
    assert refusal("x", "", 0, "failed", "a\n" * 999).words.isprintable()
    assert len(refusal("x", "", 0, "failed", "a" * 9999).words) < 1000
    file.write_text(file.read_text().replace("tell_why = true", "tell_why = 1"))
    with pytest.raises(tacit.InvalidInput, match="tell_why = true or false"):
        PartyFile.load(file)


def test_a_hostile_coordinator_gets_refusals(tmp_path):
    """Out of order, of other runs, nonsense: fixed sentences, no charge."""
    study = write_study(tmp_path, "least-squares", rehearsal=None)
    north = party(study, tmp_path, "north")
    w, groups = np.zeros(3), np.zeros(3, "<i8")
    first, start = Broadcast("r", 1, w).to_bytes(), Start("r", np.ones(3), groups).to_bytes()
    for early in (first, ReleaseOnce("r").to_bytes(), start, Finish("r", 1, w).to_bytes()):
        refused(north, early, "not agreed")
    told = facts_of(north.problem, "x").to_bytes(), Reply("r", 1, w).to_bytes()
    for nonsense in (b"", b"\xff", *told):
        refused(north, nonsense, "invalid")
    assert asked(north, released(study, Gaussian(4.0))) == Agreed("r")
    refused(north, first, "refused")
    refused(north, start, "refused")
    assert isinstance(asked(north, ReleaseOnce("r").to_bytes()), Curvature)
    for wrong in (
        Start("r", np.ones(2), groups[:2]),
        *(Start("r", np.full(3, x), groups) for x in (np.nan, np.inf, 0.0, -1.0)),
        *(Start("r", np.ones(3), groups + k) for k in (10**9, -1)),
    ):
        assert isinstance(asked(north, wrong.to_bytes()), Refusal)
    for penalty in (1e-300, 1e300):
        assert asked(north, Start("r", np.full(3, penalty), groups).to_bytes()) == Agreed("r")
        assert isinstance(asked(north, first), Refusal)
    assert [r["rounds_charged"] for r in north.ledger.runs()] == [1]
    refused(north, Invite("0" * 64).to_bytes(), "study")


def test_a_release_on_wider_limits_is_not_given_on_narrower_ones(tmp_path):
    """The party has released its data for itself, at an epsilon of 3. It has not said so to a
    coordinator to whom it allows 0.1."""
    study = write_study(tmp_path, "least-squares", rehearsal=None)
    write_party(tmp_path, "north", rehearsal=False, epsilon=0.1)
    file = PartyFile.load(tmp_path / "north.toml")
    wide = Gaussian.analytic(3.0, 1e-5)
    read(Problem([study.problem_of("north", file)]), wide, 1e-5, ledgers={"north": file.ledger})
    north = party(study, tmp_path, "north")
    answer = asked(north, released(study, wide))
    assert isinstance(answer, Refusal) and "epsilon or delta is above its limit" in answer.words
    assert "not agreed" in asked(north, ReleaseOnce("r").to_bytes()).words
    write_party(tmp_path, "north", rehearsal=False, epsilon=3.0)  # whom it allows it
    north = party(study, tmp_path, "north")
    assert asked(north, released(study, wide)) == Agreed("r")


def test_a_run_has_one_release(tmp_path):
    """A record changes while the study is paused: a second release would be in no statement, and
    beyond the limits with the first."""
    study = write_study(tmp_path, "least-squares", rehearsal=None)
    with pytest.raises(Paused):
        run(
            study,
            tmp_path,
            meddle=lambda name, request: b"" if b"broadcast" in request else request,
        )
    table = (tmp_path / "north.csv").read_text().splitlines()
    (tmp_path / "north.csv").write_text("\n".join([*table[:-1], table[1], ""]))
    with pytest.raises(Paused, match="'north' does not agree"):
        run(study, tmp_path)
    paid = [r["rounds_charged"] for r in Ledger(tmp_path / "north.db").runs()]
    assert paid == [1]
    (tmp_path / "north.csv").write_text("\n".join([*table, ""]))
    file = tmp_path / "north.toml"
    kept = file.read_text()
    Ledger.create(tmp_path / "other.db", 4.0, 1e-4)  # it knows of no release
    file.write_text(kept.replace("north.db", "other.db"))
    with pytest.raises(Paused, match="'north' does not agree"):
        run(study, tmp_path)
    file.write_text(kept)
    assert run(study, tmp_path)[0].privacy.once


@pytest.mark.parametrize(
    ("T", "E", "within"), [(6, 1, True), (3, 2, True), (1, 6, True), (7, 1, False), (4, 2, False)]
)
def test_limits_count_every_local_update(tmp_path, T, E, within):
    """Noise of which six updates cost the limit; a run has rounds times local updates of them."""
    north = party(write_study(tmp_path, rehearsal=None), tmp_path, "north")
    settings = rounds(calibrate("gaussian", 1.999, 1e-5, 6), T, E)
    answer = asked(north, proposal(north.rules.study, settings))
    assert (answer == Agreed("r")) is within
    assert within or "epsilon or delta is above its limit" in answer.words


def test_a_refused_proposal_ends_the_run_before_it(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    north, first = party(study, tmp_path, "north"), Broadcast("r", 1, np.zeros(3)).to_bytes()
    assert asked(north, proposal(study, rounds(Gaussian(50.0)))) == Agreed("r")
    assert "above its limit" in asked(north, proposal(study, rounds(Gaussian(1.0)), "s")).words
    assert "not agreed" in asked(north, first).words
    assert asked(north, proposal(study, rounds(Gaussian(50.0)))) == Agreed("r")
    assert isinstance(asked(north, first), Reply)


@pytest.mark.parametrize("restarted", [False, True])
def test_rounds_that_fail_are_paid_within_the_limits(tmp_path, restarted):
    """Penalties and a consensus of these sizes let any dual overflow: the round fails, is paid, and
    may be asked for again."""
    study = write_study(tmp_path, rehearsal=None)
    north = party(study, tmp_path, "north")
    mechanism = calibrate("gaussian", 1.5, 1e-5, 4)  # of the 2.0 in [limits], and 4.0 in the ledger
    settings = rounds(mechanism, penalty=1e100, step_size=1e-5)
    assert asked(north, proposal(study, settings)) == Agreed("r")
    far, words = Broadcast("r", 1, np.full(3, 1e300)).to_bytes(), []
    for _ in range(9):
        words.append(asked(north, far).words)
        if restarted:
            north = party(study, tmp_path, "north")
            assert asked(north, proposal(study, settings)) == Agreed("r")
    paid = len(north.ledger.charged("r"))
    assert 4 < paid < 9
    assert all("failed" in said for said in words[:paid])
    assert all("above its limit" in said for said in words[paid:])
    assert exact(mechanism, paid, 1e-5).epsilon <= 2.0 < exact(mechanism, paid + 1, 1e-5).epsilon


class Leaving(Here):
    """A line that comes to its end in the first round that a party says to have failed in."""

    def ask(self, requests, deadline, heard):
        end = Ended("The site of 'west' is gone.")
        end.answers = super().ask(requests, deadline, heard)
        if any(b"failed" in answer for answer in end.answers.values()):
            raise end
        return end.answers


@pytest.mark.parametrize(("E", "Line"), [(1, Here), (3, Here), (1, Leaving)])
def test_a_statement_counts_rounds_that_failed(tmp_path, monkeypatch, E, Line):
    """Each of them with all its local updates, and whatever else ends the round."""
    study = write_study(tmp_path, rehearsal=None, algorithm=f"local_updates = {E}")
    write_party(tmp_path, "south", rehearsal=False, epsilon=3.0)
    line = Line([party(study, tmp_path, name) for name in study.agents])
    agent_round, fails = tacit.protocol.agent.agent_round, [3, 3]

    def broken(t, *about):
        if line.asked == "south" and fails and fails[0] == t:
            fails.pop()
            raise tacit.errors.SolverFailure("no.")
        return agent_round(t, *about)

    monkeypatch.setattr(tacit.protocol.agent, "agent_round", broken)
    line.meddle = lambda name, request: setattr(line, "asked", name) or request
    for _ in range(2):
        with pytest.raises(Refused, match=r"round 3 of 6: Party 'south' failed|'west' is gone"):
            conduct(study, tmp_path / "out", line)
    found = conduct(study, tmp_path / "out", line)
    charged = {n: len(p.ledger.charged(p.run.name)) for n, p in line.parties.items()}
    assert charged == {"north": 6, "south": 8, "west": 6}
    assert found.privacy.updates == 8 * E
    plain = exact(found.settings.mechanism, 8 * E, 1e-5).epsilon  # without secure noise's distance
    assert 2.0 < plain <= found.privacy.epsilon <= plain * (1 + 1e-6)
    for name, rounds in charged.items():  # and each party's own
        said = json.loads((tmp_path / f"own-{name}" / "statement.json").read_text())
        assert said["updates"] == rounds * E
        assert said["epsilon"] <= found.privacy.epsilon
    assert said["epsilon"] < found.privacy.epsilon  # of west, where no round failed
    said = json.loads((tmp_path / "own-south" / "statement.json").read_text())
    assert said["epsilon"] == found.privacy.epsilon > plain  # with it


def test_an_outcome_that_is_not_of_the_last_round(tmp_path):
    """A party keeps as its own result what it has computed itself, or nothing."""
    north = party(write_study(tmp_path, rehearsal=None), tmp_path, "north")
    assert asked(north, proposal(north.rules.study, CALM)) == Agreed("r")
    assert isinstance(asked(north, Broadcast("r", 1, np.zeros(3)).to_bytes()), Reply)
    for told in (0, 2, 4):
        assert asked(north, Finish("r", told, np.zeros(3)).to_bytes()).reason == "refused"
    assert not (tmp_path / "own-north" / "solution.npz").exists()
    assert asked(north, Finish("r", 1, np.zeros(3)).to_bytes()) == Agreed("r")
    assert (tmp_path / "own-north" / "solution.npz").exists()


@pytest.mark.parametrize("run", ["", "x" * 201, "a\nb", "\x1b[2J", "release-0123456789ab-1"])
def test_names_that_no_run_has(tmp_path, run):
    """A run of rounds with the name of a release would be in the way of that release for good."""
    north = party(write_study(tmp_path, rehearsal=None), tmp_path, "north")
    assert asked(north, proposal(north.rules.study, CALM, run)).reason == "refused"
    assert north.ledger.runs() == []


def test_a_solver_that_panics(tmp_path, monkeypatch):
    """Errors of code in Rust are no ``Exception``. It is one more failure, and paid like one."""
    study = write_study(tmp_path, rehearsal=None)
    north = party(study, tmp_path, "north")
    asked(north, proposal(study, CALM))

    class Panic(BaseException):
        pass

    def panic(*_):
        raise Panic("a private number")

    first = Broadcast("r", 1, np.zeros(3)).to_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(tacit.protocol.agent, "agent_round", panic)
        answer = asked(north, first)
    assert answer.reason == "failed" and "private" not in answer.words
    assert isinstance(asked(north, first), Reply)
    assert north.ledger.charged("r") == [(1, 1), (1, 1)]


def lying(change):
    """A line on which the answers of the party south are changed."""

    class Lying(Here):
        def ask(self, requests, deadline, heard):
            found = super().ask(requests, deadline, heard)
            told = change(answer_from(found["south"]))
            return found | {"south": told if isinstance(told, bytes) else told.to_bytes()}

    return Lying


def facts(**changes):
    return lambda told: dataclasses.replace(told, **changes) if type(told) is Facts else told


@pytest.mark.parametrize(
    "change, words",
    [
        (facts(start=np.full(3, np.nan)), "'south' sent something that is no answer"),
        (facts(coupling=np.array([2, 1, 0])), "'south' sent something that is no answer"),
        (facts(everything=False, coupling=np.array([0, 1, 10**11])), "nobody holds 3"),
        (facts(everything=False, coupling=np.array([0, 1, 2**62])), "nobody holds 3"),
        (facts(neighbours="\x1b[31mnothing"), "'south' sent 12 characters that are no plain"),
        (facts(agent="north"), "facts of party 'south'"),
        (lambda _: b"\x00garbage", "'south' sent something that is no answer"),
        (lambda _: Refusal("", 0, "refused", "\x1b[2J"), "'south' sent 4 characters that are no"),
        (lambda _: Refusal("", 0, "refused", "x" * 10**6), "'south' sent 1000000 characters"),
    ],
)
def test_a_party_that_lies_is_named(tmp_path, change, words):
    study = write_study(tmp_path)
    line = lying(change)([party(study, tmp_path, name) for name in study.agents])
    with pytest.raises((Paused, InvalidInput), match=words):
        conduct(study, tmp_path / "out", line)


def test_the_matrix_of_a_residual_is_in_the_study(tmp_path):
    """What travels before any noise, such as its largest singular value, depends on it."""
    (tmp_path / "study.toml").write_text(
        '[objective]\nkind = "residual"\nbeta = 0.1\n[set]\nkind = "box"\nlower = -1.0\n'
        "upper = 1.0\n[privacy]\ntotal_epsilon = 1.0\ntotal_delta = 1e-5\n"
        '[[agents]]\nname = "a"\n[[agents]]\nname = "b"\n'
    )
    with pytest.raises(InvalidInput, match="Expected the matrix of a residual in the study"):
        Study.load(tmp_path)


@pytest.mark.parametrize("curvature", [-1.0, float("nan"), float("inf")])
def test_a_curvature_that_is_none_is_no_answer(curvature):
    """A coordinator would start all penalties from it."""
    assert answer_from(Curvature("r", 0.0).to_bytes()) == Curvature("r", 0.0)
    with pytest.raises(CorruptFile):
        answer_from(Curvature("r", curvature).to_bytes())
