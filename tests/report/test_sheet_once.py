"""Sheets of runs that read their data once: which ledger has the reading, what ends the rounds."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sheets import said, solved

import tacit
from tacit.cli.main import main
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import Terms
from tacit.privacy.mechanisms import Gaussian
from tacit.report.account import Account
from tacit.report.sheet import sheet
from tacit.report.subject import Subject

JOB = Path(__file__).parents[2] / "examples" / "hospitals.toml"
NORTH = "North hospital"
UNKNOWN, MISSING = "Whether this run is in it is not known", "THIS RUN IS NOT IN IT"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs of the same job: A from ledgers, B and C from none, with either noise."""
    place = tmp_path_factory.mktemp("runs")
    ledgers = place / "ledgers"
    ledgers.mkdir()
    for name in ("North", "South", "West"):
        tacit.Ledger.create(ledgers / f"{name} hospital.db", 3.0, 1e-5).close()
    options = {"A": ["--ledgers", str(ledgers)], "B": [], "C": ["--noise", "secure"]}
    for name, more in options.items():
        assert main(["solve", str(JOB), "--out", str(place / name), *more]) == 0
    return place


def about(folder, ledger=None, agent=NORTH):
    """What a sheet says of its ledger, and the columns of its odds."""
    page = sheet(Subject.read(folder, agent, ledger))
    return dict(page.facts)["Ledger"], page.odds.header[1:]


def test_a_run_that_paid_is_in_its_ledger(place):
    for ledger in (None, place / "ledgers" / f"{NORTH}.db"):
        words, columns = about(place / "A", ledger)
        assert UNKNOWN not in words and MISSING not in words
        assert columns == ("this run", "all runs so far", "all of the limit")


@pytest.mark.parametrize("run", ["B", "C"])
def test_a_run_that_paid_nothing_is_in_no_ledger(place, run):
    words, columns = about(place / run, place / "ledgers" / f"{NORTH}.db")
    assert MISSING in words and columns == ("this run",)


def test_a_ledger_elsewhere_may_hold_another_reading(place, tmp_path):
    """A reading has no name in a result: another of the same cost would look the same."""
    shutil.copy(place / "ledgers" / f"{NORTH}.db", tmp_path / f"{NORTH}.db")
    words, columns = about(place / "A", tmp_path / f"{NORTH}.db")
    assert UNKNOWN in words and columns == ("this run",)
    for run, options in (("A", None), ("C", {})):  # without a note, or one that says nothing
        shutil.copytree(place / run, tmp_path / run)
        note = tmp_path / run / "run.json"
        if options is None:
            note.unlink()
        else:
            note.write_text(json.dumps({"command": "solve", "run": "x", "options": options}))
        words, columns = about(tmp_path / run, place / "ledgers" / f"{NORTH}.db")
        assert UNKNOWN in words and columns == ("this run",)
    (tmp_path / "A" / "run.json").write_text(
        json.dumps({"command": "solve", "run": "x", "options": {"ledgers": "/\0"}})
    )
    assert UNKNOWN in about(tmp_path / "A", place / "ledgers" / f"{NORTH}.db")[0]


READING = Terms(NORTH, Gaussian(3.7303), 1, 1, 0.0, "secure", "adding one", "d" * 64)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"noise": "seeded"}, False),
        ({"mechanism": Gaussian(3.5)}, False),  # more was spent, but not on this
        ({"mechanism": Gaussian(4.2)}, False),
        ({"mechanism": tacit.Laplace(1.0)}, False),
        ({"neighbours": "moving one"}, False),
        ({"rounds": 2}, False),  # no reading
    ],
    ids=str,
)
def test_only_a_reading_of_the_same_cost_counts(tmp_path, changes, found):
    terms = dataclasses.replace(READING, **changes)
    with tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5) as ledger:
        ledger.begin(terms.release(1), terms)
        ledger.charge(terms.release(1), 1, 1)
    account = Account.read(tmp_path / "a.db")
    epsilon = exact(READING.mechanism, 1, 1e-5).epsilon
    statement = said(solved(), epsilon=epsilon).privacy
    hides = (("adding one", (NORTH,)),)
    once = dataclasses.replace(statement, once=True, secure=True, neighbours=hides)
    assert account.counts(once, "x", True) is found
    assert account.counts(once, "x", None) is (None if found else False)
    assert account.counts(once, "x", False) is False


def test_a_run_in_every_round_has_the_noise_of_its_entry(tmp_path):
    terms = Terms("agent 1", Gaussian(12.0), 50, 2, 0.0, "secure", "adding one", "d")
    with tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5) as ledger:
        ledger.begin("winter", terms)
        ledger.charge("winter", 1, 6)
    account = Account.read(tmp_path / "a.db")
    statement = said(solved(), neighbours=(("adding one", ("agent 1",)),)).privacy
    assert account.counts(dataclasses.replace(statement, secure=True), "winter") is True
    assert account.counts(statement, "winter") is False


def test_a_total_is_compared_at_the_same_delta(tmp_path):
    """At a larger delta an epsilon is smaller: neither hides a run, nor makes one of less."""
    terms = Terms("agent 1", Gaussian(12.0), 50, 2, 0.0, "seeded", "adding one", "d")
    with tacit.Ledger.create(tmp_path / "a.db", 9.0, 0.01) as ledger:
        ledger.begin("winter", terms)
        ledger.charge("winter", 1, 6)
        assert ledger.spent.epsilon < 0.5
    account = Account.read(tmp_path / "a.db")
    statement = said(solved(), neighbours=(("adding one", ("agent 1",)),)).privacy
    assert account.counts(statement, "winter") is True
    assert account.counts(dataclasses.replace(statement, epsilon=1.2), "winter") is False


# --- what ends the rounds ---------------------------------------------------------------------


def ended(tmp_path, **changes):
    """A result whose 44 rounds a tolerance ended, at most 1000."""
    result = said(solved(), **changes)
    trace = {name: np.ones(44) for name in result.trace} | {"round": np.arange(1.0, 45)}
    settings = tacit.Settings(1000, tolerance=1e-4)
    folder = dataclasses.replace(result, trace=trace, settings=settings).save(tmp_path / "r")
    return " ".join(sheet(Subject.read(folder)).sections[0].lines)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("changes", [{"uncertified": "beta is a share."}, {"epsilon": np.inf}])
def test_rounds_until_a_tolerance_are_told_only_if_covered(tmp_path, once, changes):
    shared = ended(tmp_path, once=once, seeded=False, **changes)
    assert "44" not in shared and "1000" not in shared and "essages of" in shared
    assert "2^64" not in shared and "promise" not in shared and "nothing more" not in shared


def test_a_control_with_a_promise_tells_them(tmp_path):
    shared = ended(tmp_path, once=True, seeded=False)
    assert "44 messages" in shared and "2^64" in shared


# --- words ------------------------------------------------------------------------------------


def test_messages_have_the_numbers_that_are_shared(tmp_path):
    """Points of 7 and 9 numbers, of which 2 and 4 are shared."""
    result = solved()
    names, hidden = ("a", "b"), (("adding one", ("a", "b")),)
    few = dataclasses.replace(
        said(result, once=True, neighbours=hidden),
        names=names,
        local=(np.zeros(7), np.zeros(9)),
        solution=np.zeros(5),
        duals=(np.zeros(2), np.zeros(4)),
    )
    bare = dataclasses.replace(few, duals=())
    for name, saved, agent, words in (
        ("both", few, None, "of at most 4 numbers each"),
        ("one", few, "a", "of 2 numbers each"),
        ("bare", bare, None, "of at most 5 numbers each"),
    ):
        lines = sheet(Subject.read(saved.save(tmp_path / name), agent)).sections[0].lines
        assert words in lines[0]
        assert "that share a number, as the mean over those that share it" in " ".join(lines)


@pytest.mark.parametrize("once", [True, False])
def test_what_is_not_covered(tmp_path, once):
    page = sheet(Subject.read(said(solved(), once=once).save(tmp_path / "r")))
    lines = {s.title: " ".join(s.lines) for s in page.sections}
    assert ("whether the data changed between two runs" in lines["Not covered"]) == once
    assert "ε counts once for each, and δ grows by more" in lines["What is hidden"]
