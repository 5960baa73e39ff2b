"""Secure sums between organisations: the bits of one process, and what a party refuses."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import repeat
from killed_party import HEAD
from small_study import NAMES, Here, identity, in_one_process, party, run, write_party, write_study
from sums_attacked import FOUR, SETTINGS, Attack, asked, meet, proposal

from tacit.errors import InvalidInput
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol import masks
from tacit.protocol.coordinator import Paused
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Keys,
    Masked,
    Refusal,
    answer_from,
)
from tacit.protocol.participant import WORDS
from tacit.studies.conduct import conduct
from tacit.studies.study import Study


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_the_bits_of_one_process(tmp_path, kind):
    study = write_study(tmp_path, kind, colluding=1)
    found, line = run(study, tmp_path)
    alone = in_one_process(study, tmp_path, aggregation="sum", colluding=1)
    np.testing.assert_array_equal(found.solution, alone.solution)
    assert found.privacy.alone == alone.privacy.alone > found.privacy.epsilon
    assert (found.privacy.parties, found.privacy.colluding, found.names) == (3, 1, NAMES)
    for name in NAMES:
        said = json.loads((tmp_path / f"own-{name}" / "statement.json").read_text())
        assert (said["epsilon"], said["alone"]) == (found.privacy.epsilon, found.privacy.alone)
        assert said["neighbours"][0]["agents"] == [name]
        ledger = Ledger(tmp_path / f"{name}.db")
        assert ledger.spent_alone.epsilon > ledger.spent.epsilon
        assert [r["rounds_charged"] for r in ledger.runs()] == [6 if kind == "logistic" else 1]
        assert not line.parties[name].run.rounds.epoch.ready  # keys go with the run
    assert not [p for p in tmp_path.rglob("*-parts/**/*") if p.is_file()]
    sent = [answer_from(data) for data in line.answers]
    assert {type(m).__name__ for m in sent} == {"Facts", "Agreed", "Masked"}


def test_a_classifier(tmp_path):
    """Its clipping is planned for the noise of the sum."""
    write_study(tmp_path, rehearsal=None, colluding=1)
    text = (tmp_path / "study.toml").read_text()
    about = (
        'aggregation = "sum"\ncolluding = 1\n[learn]\nfeatures = ["age", "dose", "weight"]\n'
        'target = "y"\nclasses = [0, 1]\nnormaliser = 90\nrecord_bound = 40\nbound = 4.0\n'
        'centring_share = "none"\n'
        '[learn.ranges]\n"*" = [-1, 1]\n[privacy]\ntotal_epsilon = 2.0\ntotal_delta = 1e-5\n'
        "[algorithm]\nrounds = 4\n"
    )
    people = text[text.index("[identities]") :]
    (tmp_path / "study.toml").write_text(about + people)
    study = Study.load(tmp_path)
    found, _ = run(study, tmp_path)
    assert found.privacy.certified and found.privacy.epsilon <= 2.0 < found.privacy.alone
    assert (tmp_path / "out" / "model.json").exists()
    assert (tmp_path / "own-north" / "model.json").exists()
    assert study.kind.unfitted()._noises(3) == 1.5 < 3


@pytest.mark.parametrize("many", [1, 3])
def test_data_of_another_format_are_refused(tmp_path, many):
    """Points would be rounded to it, requests would differ, and sums be noise."""
    study = write_study(tmp_path, colluding=1)
    for name in NAMES[:many]:
        rows = np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1)
        arrays = {"features": rows[:, :3].astype(np.float32), "labels": rows[:, 3].astype(int)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
        file = tmp_path / f"{name}.toml"
        text = file.read_text().replace(f"{name}.csv", f"{name}.npz")
        file.write_text(text.replace('target = "y"', ""))
    with pytest.raises(InvalidInput, match="Nothing was computed"):
        run(study, tmp_path)


# --- refused before anything is paid ------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new",
    [
        ('aggregation = "sum"\n', ""),
        ('aggregation = "sum"', 'aggregation = "mean"'),
        ("colluding = 1", "colluding = 0"),
        ("colluding = 1", "colluding = 2"),  # c > P − 2
        ("colluding = 1", "colluding = true"),
        ('north = "', 'north = "0'),
        ('north = "', 'nord = "'),
        ('[[agents]]\nname = "west"', ""),  # P = 2, and an identity of nobody
        ('columns = ["age", "dose", "weight"]', ""),
    ],
)
def test_studies_that_are_none(tmp_path, old, new):
    write_study(tmp_path, colluding=1)
    path = tmp_path / "study.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InvalidInput, match="Nothing was sent"):
        Study.load(tmp_path)


def test_one_identity_for_two(tmp_path):
    write_study(tmp_path, colluding=1)
    path = tmp_path / "study.toml"
    north, south = (identity(tmp_path, name) for name in ("north", "south"))
    path.write_text(path.read_text().replace(south, north))
    with pytest.raises(InvalidInput, match="got one twice"):
        Study.load(tmp_path)


def test_a_party_without_its_own_identity_takes_no_part(tmp_path):
    study = write_study(tmp_path, colluding=1)
    (tmp_path / "north.pem").write_bytes((tmp_path / "south.pem").read_bytes())
    with pytest.raises(InvalidInput, match="got another"):
        party(study, tmp_path, "north")
    (tmp_path / "north.toml").write_text(
        (tmp_path / "north.toml").read_text().replace('identity = "north.pem"', "")
    )
    with pytest.raises(InvalidInput, match="Expected identity in"):
        party(study, tmp_path, "north")


@pytest.mark.parametrize(
    "limits, changes, code",
    [
        ("", {"summed": None}, "sum"),  # noise of its own, that nobody adds to: not what was agreed
        ("", {"names": NAMES[::-1]}, "sum"),
        ("", {"names": (*NAMES, "sybil")}, "sum"),  # a share of less noise
        ("", {"names": ("north", "x", "y")}, "sum"),
        ("", {"colluding": 0}, "sum"),
        ("", {"colluding": 2}, "sum"),
        ("colluding = 2", {}, "sum"),  # the least that it accepts
        ("total_epsilon_alone = 0.4", {}, "budget"),
        ("", {"sensitivity": 1e-9}, "terms"),
        ("", {"sensitivity": 1e300}, "refused"),
        ("", {"settings": dataclasses.replace(SETTINGS, local_updates=2)}, "terms"),
        ("", {"settings": dataclasses.replace(SETTINGS, mechanism=Gaussian(1.0))}, "budget"),
        ("", {"size": 2}, "refused"),
        ("", {"study": "0" * 64}, "study"),
    ],
)
def test_proposals_that_a_party_refuses(tmp_path, limits, changes, code):
    study = write_study(tmp_path, rehearsal=None, colluding=1)
    write_party(tmp_path, "north", rehearsal=False, more=limits)
    north = party(study, tmp_path, "north")
    answer = asked(north, proposal(study, **changes))
    assert isinstance(answer, Refusal) and answer.words == f"Party 'north' {WORDS[code][1]}"
    assert north.ledger.runs() == []
    assert limits or isinstance(asked(north, proposal(study)), Agreed)


def test_all_runs_together_stay_within_what_others_can_make_of_them(tmp_path):
    """A coordinator may start as many as it likes, each within the limit."""
    study = write_study(tmp_path, rehearsal=None, colluding=1)
    write_party(tmp_path, "north", rehearsal=False, more="total_epsilon_alone = 0.5")
    north = party(study, tmp_path, "north")
    assert isinstance(asked(north, proposal(study)), Agreed)
    north.ledger.charge("r", 1, 4)
    answer = asked(north, proposal(study, run="another"))
    assert isinstance(answer, Refusal) and answer.words.endswith(WORDS["budget"][1])


def test_a_part_enters_sums_of_one_study(tmp_path):
    """Another one has others behind the same names: two sums of one part and of other shares have
    less noise than one, for one charge."""
    study = write_study(tmp_path, rehearsal=None, colluding=1)
    assert isinstance(asked(party(study, tmp_path, "north"), proposal(study)), Agreed)
    path = tmp_path / "study.toml"
    south, another = (identity(tmp_path, name) for name in ("south", "another"))
    path.write_text(path.read_text().replace(south, another))
    other = Study.load(tmp_path)
    answer = asked(party(other, tmp_path, "north"), proposal(other))
    assert isinstance(answer, Refusal) and answer.words.endswith(WORDS["terms"][1])


def test_a_sum_that_the_study_does_not_have(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    answer = asked(party(study, tmp_path, "north"), proposal(study, colluding=1))
    assert answer.words.endswith(WORDS["sum"][1])


# --- keys ---------------------------------------------------------------------------------------


@pytest.fixture
def four(tmp_path):
    study = write_study(tmp_path, rehearsal=None, colluding=1, names=FOUR)
    return [party(study, tmp_path, name) for name in FOUR]


def changed(name, change):
    return lambda told: told | {name: change(told)}


@pytest.mark.parametrize(
    "twist",
    [
        changed("south", lambda told: told["south"][:-2] + "ff"),  # no signature ends so
        changed("south", lambda told: "00" * 32 + told["south"][64:]),  # another key
        changed("south", lambda told: told["west"]),  # a repeated key
        changed("north", lambda told: told["south"]),  # not its own
        changed("south", lambda told: told["south"][: 2 * 32]),  # unsigned
        changed("south", lambda told: ""),
        changed("south", lambda told: "no digits"),
        changed("sybil", lambda told: told["south"]),
        lambda told: {name: key for name, key in told.items() if name != "east"},
        lambda told: {},
    ],
)
def test_keys_that_a_party_refuses(four, twist):
    study = four[0].rules.study
    met = meet(four, study, twist=twist)
    assert isinstance(met["north"], Refusal)
    point = Broadcast("r", 1, np.zeros(3))
    assert asked(four[0], point).reason == "refused"
    assert asked(four[0], Keys("r", 1, {}, True)).reason == "refused"
    assert four[0].ledger.runs()[0]["rounds_charged"] == 0  # without keys nothing is computed


def test_keys_of_another_epoch_study_or_start_are_refused(four):
    study, said = four[0].rules.study, {}
    for epoch in (1, 2):
        meet(four, study, epoch, twist=lambda told, e=epoch: said.setdefault(e, told))
    assert isinstance(asked(four[0], Keys("r", 1, said[1])), Refusal)  # not the one it is in
    assert isinstance(asked(four[0], Keys("r", 2, said[1] | {"north": said[2]["north"]})), Refusal)
    met = meet(four, study, 2, twist=lambda told: said[2])  # of an earlier start of this epoch
    assert all(isinstance(answer, Refusal) for answer in met.values())


def test_a_sealed_secret_is_signed(four):
    """Whoever changes it, with a quantum computer later, would know the masks of the receiver."""
    study = four[0].rules.study
    told = {p.name: asked(p, proposal(study)).told[p.name] for p in four}
    north, south = four[:2]
    sealed = asked(north, Keys("r", 1, told)).told["south"]
    asked(south, Keys("r", 1, told))
    other = ("0" if sealed[0] != "0" else "1") + sealed[1:]
    assert asked(south, Keys("r", 1, {"north": other}, True)).reason == "refused"
    assert asked(south, Keys("r", 1, {"north": sealed}, True)) == Agreed("r")


# --- masks --------------------------------------------------------------------------------------


def uniform(numbers):
    """χ² of the bytes of whole numbers of 64 bits: is a sum of all masks left on them?"""
    seen = np.frombuffer(np.asarray(numbers, "<i8").tobytes(), np.uint8)
    found = np.bincount(seen, minlength=256)
    expected = found.sum() / 256
    return ((found - expected) ** 2 / expected).sum() < 255 + 5 * np.sqrt(2 * 255)


def test_one_bit_that_differs_leaves_uniform_numbers(tmp_path):
    """Of w, the round, the roster, c, the grid or the epoch, at one party."""
    names, n = tuple("abcd"), 4000
    about = {"epoch": 7, "roster": names, "round": 1, "c": 1, "grid": 2.0**-30, "w": np.zeros(3)}

    def total(**of_one):
        found = []
        for name in names:
            own = about | (of_one if name == "c" else {})
            epochs[name] = masks.Epoch("", "r", own["epoch"], masks.Roster(own["roster"]), name)
            epochs[name].said = own
        told = {name: epoch.public for name, epoch in epochs.items()}
        sealed = {name: epoch.meet(told) for name, epoch in epochs.items()}
        for name, epoch in epochs.items():
            epoch.finish({p: s[name] for p, s in sealed.items() if name in s})
            own = epoch.said
            request = Broadcast("r", own["round"], own["w"]).digest
            y = np.arange(n)
            found.append(epoch.mask(y, own["round"], own["c"], own["grid"], "1e9", request))
        return masks.added_up(found)

    epochs = {}
    assert np.array_equal(total(), 4 * np.arange(n)) and not uniform(total())  # the control
    w = np.array([0.0, np.nextafter(0.0, 1.0), 0.0])
    roster = ("a", "b", "c", "e")
    for other in ({"w": w}, {"round": 2}, {"c": 2}, {"grid": 2.0**-31}, {"epoch": 8}):
        assert uniform(total(**other)), other
    epochs = {}
    with pytest.raises(ValueError):  # not even a place in it
        masks.Epoch("", "r", 7, masks.Roster(roster), "d")


# --- killed -------------------------------------------------------------------------------------


class Killed(Here):
    """A line to parties of which the first is a process that is killed at given steps."""

    def __init__(self, folder, parties, *kills):
        super().__init__(parties[1:])
        self.victim, self.folder, self.number, self.lost = parties[0].name, folder, 0, 0
        self.parts, self.sums = {}, {}
        command = [sys.executable, Path(__file__).with_name("killed_party.py"), folder, self.victim]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*command, *kills], **pipes)

    def ask(self, requests, deadline, heard):
        own = requests[self.victim]
        self.number += 1
        self.process.stdin.write(HEAD.pack(self.number, len(own)) + own)
        self.process.stdin.flush()
        others = {name: data for name, data in requests.items() if name != self.victim}
        found = super().ask(others, deadline, heard)
        while True:
            number, size = HEAD.unpack(self.process.stdout.read(HEAD.size))
            answer = self.process.stdout.read(size)
            if number in (0, self.number):
                break
        if number:
            found[self.victim] = answer
        else:
            self.lost += 1
        for path in self.folder.glob("*-parts/*/*"):
            self.parts[path.name] = np.fromfile(path, "<i8")
        told = [answer_from(data) for data in found.values()]
        if len(told) == len(requests) and all(isinstance(one, Masked) for one in told):
            self.sums[told[0].round] = masks.added_up([one.values for one in told])
        return found

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


@pytest.mark.parametrize("rehearsal", [pytest.param(7, marks=pytest.mark.exhaustive), None])
def test_a_party_killed_at_each_step(tmp_path, rehearsal):
    """One part for one charge, and (of a rehearsal, whose noise is known) the bits of no kill."""
    kills = [f"{step}:{t}" for t, step in enumerate(["pay", "part", "store", "mask", "send"], 1)]
    study = write_study(tmp_path / "storm", rehearsal=rehearsal, colluding=1)
    others = [party(study, tmp_path / "storm", name) for name in NAMES]
    line = Killed(tmp_path / "storm", others, *kills)
    for _ in range(9):
        try:
            found = conduct(study, tmp_path / "storm" / "out", line)
            break
        except Paused as pause:
            assert [*pause.parties] == ["north"]
    line.end()
    assert line.lost == len(kills)
    for name in NAMES:
        ledger = Ledger(tmp_path / "storm" / f"{name}.db")
        (about,) = ledger.runs()
        assert about["rounds_charged"] == about["rounds_answered"] == 6
    for t, total in line.sums.items():  # of the parts that are in the ledgers, and of no others
        ledgers = [Ledger(tmp_path / "storm" / f"{name}.db") for name in NAMES]
        kept = [line.parts[one.answer(about["run"], t).reply.hex()] for one in ledgers]
        assert np.array_equal(total, sum(kept))
    assert len(line.sums) == 6
    if rehearsal is not None:
        calm, _ = run(write_study(tmp_path / "calm", colluding=1), tmp_path / "calm")
        np.testing.assert_array_equal(found.solution, calm.solution)


class Kill(BaseException):
    pass


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_a_coordinator_stopped_anywhere(tmp_path, kind):
    """After any of its questions, answered or not: the same parts, charged once."""
    calm, line = run(write_study(tmp_path / "calm", kind, colluding=1), tmp_path / "calm")
    study = write_study(tmp_path / "storm", kind, colluding=1)
    questions = len(line.answers)

    def stop(at):
        seen = [0]

        def meddle(name, request):
            seen[0] += 1
            if seen[0] == at:
                raise Kill
            return request

        return meddle

    found, at = None, 2
    while found is None:
        try:
            found, _ = run(study, tmp_path / "storm", meddle=stop(at))
        except Kill:
            at += 3  # in the middle of some question to all, later each time
    assert at > questions / 2
    np.testing.assert_array_equal(found.solution, calm.solution)
    for name in NAMES:
        (about,) = Ledger(tmp_path / "storm" / f"{name}.db").runs()
        assert about["rounds_charged"] == (6 if kind == "logistic" else 1)


# --- attacked: a server and two parties against the other two -------------------------------------


@pytest.mark.parametrize("seed", range(repeat(2, 8)))
def test_a_server_with_two_parties_gets_sums_or_uniform_numbers(tmp_path, monkeypatch, seed):
    """Whatever it asks and says again: one part for each charge and round, always under masks, and
    between the two honest parties no mask twice on different parts."""
    attack = Attack(tmp_path, seed)
    attack.watch(monkeypatch)
    for _ in range(repeat(150, 1000)):
        attack.step()
    assert attack.sums > 0 and attack.count["ask", "Masked"] > 10 and attack.restarts > 0
    for name, shown in attack.parts.items():
        ledger = Ledger(tmp_path / f"{name}.db")
        for about in ledger.runs():
            parts = [t for r, t, _ in shown if r == about["run"]]
            assert len(parts) == len(set(parts)) == about["rounds_answered"]
            assert len(parts) <= about["rounds_charged"] <= 4  # the rounds of the run
            terms = ledger.terms(about["run"])
            assert (terms.parties, terms.colluding, terms.noise) == (4, 2, "secure")
        assert all(ledger.answer(r, t).reply == digest for r, t, digest in shown)
