"""What a sheet says of the agent's ledger: whether the run is in it, and what that cost."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from sheets import about, noted, paid, said, solved

import tacit
from tacit.cli.main import main
from tacit.objectives.objective import RELATIONS
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import Terms
from tacit.report.account import Account
from tacit.report.subject import Subject

JOB = Path(__file__).parents[2] / "examples" / "hospitals.toml"
NORTH = "North hospital"
UNKNOWN, MISSING = "Whether this run is in it is not known", "THIS RUN IS NOT IN IT"
LOUD = "THE LEDGER PAID MORE FOR THIS RUN THAN ITS RESULT SAYS"
ALONE = ("this run",)
ALL = ("this run", "all runs so far", "all of the limit")


@pytest.fixture(scope="module")
def result():
    return solved()


@pytest.fixture
def folder(result, tmp_path):
    return noted(result.save(tmp_path / "result"))


def ledger_of(path, terms, rounds, delta=1e-5):
    """With one run, or one release."""
    run = terms.release(1) if terms.rounds == 1 else "winter"
    with tacit.Ledger.create(path, 9.0, delta) as ledger:
        ledger.begin(run, terms)
        ledger.charge(run, 1, rounds)
    return path


# --- which run of a ledger is this one --------------------------------------------------------


RELEASE = Terms("agent 1", tacit.Gaussian(3.7303), 1, 1, 0.0, "secure", "adding one", "d" * 64)


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, True),
        ({"mechanism": tacit.Gaussian(4.2)}, False),
        ({"rounds": 2}, False),  # no release
    ],
    ids=str,
)
def test_only_a_release_of_the_same_cost_counts(result, tmp_path, changes, counted):
    terms = dataclasses.replace(RELEASE, **changes)
    account = Account.read(ledger_of(tmp_path / "a.db", terms, 1))
    changes = {"once": True, "secure": True, "neighbours": (("adding one", ("agent 1",)),)}
    epsilon = exact(RELEASE.mechanism, 1, 1e-5).epsilon
    statement = said(result, epsilon=epsilon, **changes).privacy
    for own, found in ((True, counted), (None, None if counted else False), (False, False)):
        subject = Subject(("agent 1",), 0, statement, "", "x", account=account, own=own)
        assert subject.counted is found and not subject.disputed


def test_the_ledger_says_whose_sheet_it_is(folder, tmp_path):
    page = about(folder, None, paid(tmp_path / "a.db", "agent 2"))[2]
    assert page.title == "Privacy sheet: agent 2"


# --- runs that released once ------------------------------------------------------------------


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


def told(folder, ledger=None):
    """What a sheet says of its ledger, and the columns of its odds."""
    facts, _, page = about(folder, NORTH, ledger)
    return facts["Ledger"], page.odds.header[1:]


def test_a_run_is_in_the_ledger_that_it_noted(place):
    ledger = place / "ledgers" / f"{NORTH}.db"
    for path in (None, ledger):
        words, columns = told(place / "A", path)
        assert UNKNOWN not in words and MISSING not in words and columns == ALL
    for run in "BC":
        words, columns = told(place / run, ledger)
        assert MISSING in words and columns == ALONE


def test_a_ledger_elsewhere_may_hold_another_release(place, tmp_path):
    """A release has no name in a result: another of the same cost would look the same."""
    ledger = place / "ledgers" / f"{NORTH}.db"
    with tacit.Ledger(ledger) as paid_from:
        paid_from.backup(copy := tmp_path / f"{NORTH}.db")
    cases = [(place / "A", copy)]
    for i, (run, options) in enumerate((("A", None), ("C", {}), ("A", {"ledgers": "/\0"}))):
        folder = shutil.copytree(place / run, tmp_path / str(i))
        note = {"command": "solve", "run": "x", "options": options}
        (folder / "run.json").write_text(json.dumps(note))
        if options is None:
            (folder / "run.json").unlink()
        cases.append((folder, ledger))
    for folder, path in cases:
        words, columns = told(folder, path)
        assert UNKNOWN in words and columns == ALONE


# --- what the ledger contradicts --------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A classifier of two agents, whose rows were centred by a private mean: two entries."""
    place = tmp_path_factory.mktemp("learned")
    rows = [f"{'Zug' if i % 2 else 'Bern'},{i % 7 / 7},{i % 5 / 5},{i % 2}" for i in range(80)]
    (place / "t.csv").write_text("\n".join(["who,a,b,y", *rows]))
    (place / "ledgers").mkdir()
    for name in ("Zug", "Bern"):
        tacit.Ledger.create(place / "ledgers" / f"{name}.db", 3.0, 1e-5).close()
    words = "--target y --classes 0,1 --agent-column who --range *=0:1 --total-epsilon 1.5 "
    words += "--total-delta 1e-5 --rounds 4 --centring-share 0.1 --ledgers"
    command = ["learn", str(place / "t.csv"), *words.split(), str(place / "ledgers")]
    assert main([*command, "--out", str(place / "r")]) == 0
    return place / "r"


def forge(folder, out, **changes):
    shutil.copytree(folder, out)
    document = json.loads((out / "result.json").read_text())
    document["privacy"].update(changes)
    (out / "result.json").write_text(json.dumps(document))
    return out


def test_a_mean_and_its_rounds_are_one_run(learned, tmp_path):
    facts, _, page = about(learned, "Zug")
    assert page.promised and page.verdict.startswith("Certified: ")
    assert facts["Spent in all runs"].endswith("in one run (2 entries: the mean, and the rounds)")
    with tacit.Ledger(learned.parent / "ledgers" / "Zug.db") as ledger:
        rounds = ledger.runs()[-1]["epsilon"]  # without the mean
    forged = forge(learned, tmp_path / "forged", before="", epsilon=rounds)
    alone, _, _ = about(forged, "Zug")  # another release
    assert "in one release of the data and one run of rounds" in alone["Spent in all runs"]
    for i, epsilon in enumerate((1.495, 1.6)):  # within a hundredth, and more than was paid
        page = about(forge(learned, tmp_path / str(i), epsilon=epsilon), "Zug")[2]
        assert page.verdict.startswith("Certified: ")


def test_no_delta_at_which_nothing_is_bounded(learned, tmp_path):
    facts, _, page = about(forge(learned, tmp_path / "r", delta=0.0), "Zug")
    assert page.verdict.startswith(f"{LOUD} (no bound against 1.5)") and page.odds is None
    assert facts["Budget of this run"].startswith("no bound by the ledger")


def test_a_release_that_cost_more(tmp_path, result):
    """Only in the ledger that the run noted; of any other it is not known."""
    terms = dataclasses.replace(RELEASE, neighbours=RELATIONS["add-remove"])
    path = ledger_of(tmp_path / "agent 1.db", terms, 1)
    claim = {"once": True, "seeded": False, "epsilon": 0.1}
    for name, secure in (("l", False), ("r", True)):  # whatever noise the result claims
        folder = said(result, **claim, secure=secure).save(tmp_path / name)
        facts, _, page = about(noted(folder, ledgers=str(tmp_path)), "agent 1")
        assert page.verdict.startswith(LOUD)
    assert page.verdict.startswith(f"{LOUD} (1.01 against 0.1)")
    assert MISSING not in facts["Ledger"] and page.odds.header[2:] == ALL[1:]
    with tacit.Ledger(path) as ledger:  # a release that cost less: no longer sure
        small = dataclasses.replace(terms, mechanism=tacit.Gaussian(60.0), settings="e" * 64)
        ledger.begin(small.release(1), small)
        ledger.charge(small.release(1), 1, 1)
    facts, _, page = about(folder, "agent 1")
    assert LOUD not in page.verdict and MISSING in facts["Ledger"]
    assert facts["Spent in all runs"].endswith("in 2 releases of the data")
    noted(folder)
    assert LOUD not in about(folder, "agent 1", path)[2].verdict


# --- the limit --------------------------------------------------------------------------------


def test_a_limit_that_was_raised_or_overspent(tmp_path, folder):
    path = paid(tmp_path / "a.db")
    assert "limit of 4, at" in about(folder, "agent 1", path)[0]["Spent in all runs"]
    with tacit.Ledger(path) as ledger:
        ledger.set_budget(30.0, 1e-5)
        today, spent = ledger.budgets[-1].when[:10], ledger.spent.epsilon
    words = f"of a limit of 30 (raised from 4 on {today}), at δ"
    assert words in about(folder, "agent 1", path)[0]["Spent in all runs"]
    with tacit.Ledger(path) as ledger:
        ledger.set_budget(29.0, 1e-5)
        ledger.set_budget(29.0, 1e-4)
    words = f"lowered from 30 on {today}, raised from 29 at δ = 0.00001 on {today}"
    words = f"of a limit of 29 (one earlier change, {words})"
    assert words in about(folder, "agent 1", path)[0]["Spent in all runs"]
    for share, beyond in ((1.0, False), (0.999, True), (0.01, True)):
        with tacit.Ledger(path) as ledger:
            ledger.set_budget(share * spent, 1e-5)
        told = about(folder, "agent 1", path)[0]["Spent in all runs"]
        assert ("MORE IS SPENT THAN THE LIMIT" in told) is beyond
