"""What older versions left behind still opens: results, models, ledgers, interrupted runs.

``old_files.py`` made them. 0.1.0: results, models and ledgers open; its checkpoints are refused, as
its numbers were rounded differently. flat, the last before there were rooms: all goes on.
"""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import pytest
from old_files import machine

import tacit
from tacit.cli.main import main
from tacit.learn import load_model
from tacit.privacy.ledger_entries import Entry
from tacit.privacy.ledger_upgrade import SCHEMA_1, upgrade
from tacit.privacy.spending import Terms
from tacit.protocol.checkpoint import Checkpoint
from tacit.studies.job import load_job

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("0.1.0", "flat")
HERE = machine()


@pytest.fixture
def old(request, tmp_path, monkeypatch):
    """What a version left, copied to where we are, and what it said about it."""
    shutil.copytree(FIXTURES / request.param, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return json.loads(Path("said.json").read_text())


every_version = pytest.mark.parametrize("old", VERSIONS, indirect=True)
first_version = pytest.mark.parametrize("old", ["0.1.0"], indirect=True)
before_rooms = pytest.mark.parametrize("old", ["flat"], indirect=True)


def said_by(capsys, line):
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_files_are_small_and_name_no_place():
    files = [path for path in FIXTURES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 400_000
    assert not any(path.name.endswith(("-wal", "-shm")) for path in files)
    assert not any(b'"/' in path.read_bytes() for path in files if path.suffix == ".json")


# --- results and models -----------------------------------------------------------------------


@every_version
@pytest.mark.parametrize("folder", ["result", "power", "model", "paid"])
def test_a_result_loads(folder, old):
    result, before = tacit.Result.load(folder), old[folder]
    assert result.solution.tolist() == before["solution"]
    now, then = result.privacy.to_dict(), before["privacy"]
    words, past = now.pop("statement"), then.pop("statement")
    assert {key: now[key] for key in then} == then
    assert words.partition(". ")[0] == past.partition(". ")[0]  # the claim; hints have changed


@pytest.mark.parametrize(
    ("old", "folder"),
    [("0.1.0", "model"), ("0.1.0", "power"), ("flat", "result")],
    indirect=["old"],
)
def test_a_result_is_shown(folder, old, capsys):
    assert said_by(capsys, f"show {folder}")["solution"] == old[folder]["solution"]
    assert Path(folder, "plot.png").is_file()


@every_version
def test_a_model_predicts_what_it_did(old, capsys):
    before = old["predictions"]
    now = said_by(capsys, "predict model table.csv")
    assert (now["classes"], now["predictions"]) == (before["classes"], before["predictions"])
    np.testing.assert_allclose(now["probabilities"], before["probabilities"], rtol=1e-12)
    model = load_model("model")
    assert model[-1].privacy_.epsilon == old["model"]["privacy"]["epsilon"]


# --- ledgers ----------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize("folder", ["paid", "stopped-paid"])
def test_a_ledger_opens_with_the_same_totals(folder, old, capsys):
    before = old["ledgers"][folder]
    for _ in range(2):  # the first opening may write the file anew
        now = said_by(capsys, f"ledger show {before['ledger']} --expect {before['head']}")
        assert not any(run.pop("read_once") for run in now["runs"])  # newer words
        assert now.pop("budget_less_spent") == pytest.approx(4.0 - before["spent"]["epsilon"])
        assert [limit["epsilon"] for limit in now.pop("limits")] == [4.0]
        assert now == before
    said_by(capsys, f"ledger backup {before['ledger']} copy.db")
    assert tacit.Ledger("copy.db").spent == tacit.Ledger(before["ledger"]).spent


@every_version
def test_a_ledger_pays_for_further_runs(old, capsys):
    """Together with what was spent before, exactly as in one ledger from the start."""
    said_by(capsys, "solve paid.toml --out again --ledgers paid/ledgers")
    with tacit.Ledger("paid/ledgers/north.db") as ledger:
        first, second = ledger.runs()
        multiplier = first["mechanism"]["noise_multiplier"]
        both = tacit.Settings(12, 2, tacit.Gaussian(multiplier), delta=1e-5)
        assert [r["rounds_charged"] for r in (first, second)] == [6, 6]
        assert second["mechanism"]["noise_multiplier"] == pytest.approx(multiplier, rel=1e-9)
        assert ledger.spent.epsilon == pytest.approx(total(both), rel=1e-6)
    said_by(capsys, "ledger budget paid/ledgers/north.db --total-epsilon 1.5 --total-delta 1e-5")
    assert main(["solve", "paid.toml", "--out", "more", "--ledgers", "paid/ledgers"]) == 1
    assert "beyond the budget" in capsys.readouterr().err


def total(settings):
    from tacit.privacy.accounting import exact

    return exact(settings.mechanism, settings.updates, settings.delta).epsilon


@first_version
def test_a_run_of_the_first_version_does_not_go_on_with_other_bounds(old):
    """Sensitivities hold rounding since: what was agreed was another run."""
    run = json.loads(Path("stopped-paid/job.json").read_text())["run"]
    job, ledger = load_job("paid.toml"), "stopped-paid/ledgers/north.db"
    with pytest.raises(
        tacit.Refused, match=f"{run!r} was agreed on other terms; nothing was charged"
    ):
        tacit.solve(job.problem, job.settings, run=run, ledgers={"north": ledger})
    assert tacit.Ledger(ledger).head == old["ledgers"]["stopped-paid"]["head"]


TERMS = Terms("north", tacit.Gaussian(2.0), 9, 1, 0.0, "seeded", "one record", "digest")


def first_ledger(path, *entries):
    """A ledger as version 0.1.0 wrote it."""
    budget = Entry(kind="budget", event='{"delta":1e-05,"epsilon":8.0}')
    run = Entry(kind="run", run="r", event=TERMS.to_json())
    head = bytes(32)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(f"{SCHEMA_1} PRAGMA application_id = {0x7AC17}; PRAGMA user_version = 1;")
        for serial, entry in enumerate([budget, run, *entries], 1):
            row = entry._replace(serial=serial, payment=-serial).sealed(head)
            head = row.chain
            db.execute("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?,?,?)", [*row[:8], *row[10:]])
        db.execute("PRAGMA journal_mode = WAL")
    return path


def charge(first, last=None):
    return Entry(kind="charge", run="r", first=first, last=last or first)


def answer(round):
    return Entry(kind="answer", run="r", first=round, last=round, reply=b"a", state=b"s")


def failed(round):
    return Entry(kind="failed", run="r", first=round, last=round)


def test_what_the_first_version_paid_is_counted_and_used_by_nobody(tmp_path):
    """Who made a payment, and what was shown out of it, was not written down then."""
    path = first_ledger(
        tmp_path / "l.db", charge(1), answer(1), charge(2), failed(2), charge(3), charge(4, 5)
    )
    with tacit.Ledger(path) as ledger:
        assert ledger.charged("r") == [(1, 1), (2, 2), (3, 3), (4, 5)]
        spent = ledger.spent.epsilon
        assert spent == pytest.approx(total(tacit.Settings(5, 1, TERMS.mechanism, delta=1e-5)))
        assert ledger.answer("r").reply == b"a" and ledger.failures("r", 2) == 1
        for t in range(1, 6):
            assert ledger.open_payment("r", t) is None and ledger.take_over("r", t) is None
        payment = ledger.charge("r", 3, 3)
        assert ledger.store(payment, 3, "request", b"reply", b"state")
        forged = payment._replace(serial=7, owner="")
        with pytest.raises(tacit.Refused, match="taken the payment over or used it"):
            ledger.fail(forged, 4)
        with pytest.raises(tacit.Refused, match="its seed would repeat the noise"):
            ledger.fail(ledger.charge("r", 2, 2), 2)
        assert ledger.spent.epsilon > spent
    tacit.Ledger(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE entries SET last = 1 WHERE serial = 3", "Entry 3 .* was changed"),
        (
            "DELETE FROM entries WHERE serial = 2",
            "Entry 3 .* or one before it removed",
        ),
        ("UPDATE entries SET reply = x'00' WHERE serial = 4", "Entry 4 .* was changed"),
        ("CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END", "schema"),
        ("DROP INDEX one_answer", "schema"),
        ("PRAGMA user_version = 3", "ledger of schema 2"),
    ],
)
def test_a_changed_ledger_of_the_first_version_is_refused_and_left_alone(change, message, tmp_path):
    path = first_ledger(tmp_path / "l.db", charge(1, 2), answer(1))
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
        db.commit()
    before = path.read_bytes()
    with pytest.raises(tacit.CorruptFile, match=message):
        tacit.Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", ["owner = 'me'", "payment = 1", "payment = 0"])
def test_owners_cannot_be_added_to_what_the_first_version_paid(change, tmp_path):
    path = first_ledger(tmp_path / "l.db", charge(1))
    tacit.Ledger(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE entries SET {change} WHERE serial = 3")
        db.commit()
    with pytest.raises(tacit.CorruptFile, match=r"Entry 3 .* was changed"):
        tacit.Ledger(path)


def test_the_first_version_cannot_write_to_an_upgraded_ledger(tmp_path):
    path = first_ledger(tmp_path / "l.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as still_open:
        tacit.Ledger(path).close()
        with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
            still_open.execute(
                "INSERT INTO entries (serial, time, kind, run, first, last, digest, event, reply, "
                "state, chain) VALUES (3, '', 'charge', 'r', 1, 1, '', '{}', NULL, NULL, x'00')"
            )


def test_an_upgrade_happens_once_and_whole(tmp_path):
    path = first_ledger(tmp_path / "l.db", charge(1))

    def version(db):
        return db.execute("PRAGMA user_version").fetchone()[0]

    def interrupt():
        assert db.execute("SELECT payment FROM entries WHERE serial = 3").fetchone() == (-3,)
        raise KeyboardInterrupt

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        with pytest.raises(KeyboardInterrupt):
            upgrade(db, interrupt)
        assert not db.in_transaction and version(db) == 1
        upgrade(db, lambda: None)
        assert version(db) == 2
        upgrade(db, interrupt)  # another process was faster: nothing is done or checked
        assert not db.in_transaction and version(db) == 2
    assert tacit.Ledger(path).charged("r") == [(1, 1)]


# --- interrupted runs -------------------------------------------------------------------------

RESUMED = {
    "stopped": "solve --resume stopped",
    "stopped-paid": "solve --resume stopped-paid",
    "stopped-power": "power solve --resume stopped-power",
}


@first_version
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_of_the_first_version_is_refused_in_one_line(folder, old, capsys):
    before = Path(folder, "checkpoint.npz").read_bytes()
    assert main(RESUMED[folder].split()) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert "got one of another version, which rounds differently" in line
    assert "Nothing was resumed. Start anew in another folder, with another seed" in line
    assert Path(folder, "checkpoint.npz").read_bytes() == before
    assert not Path(folder, "result.json").exists()


@before_rooms
@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_from_before_the_rooms_goes_on(folder, old, capsys, monkeypatch):
    """Classes have moved since; the digest of a problem names them as it did."""
    saved = Checkpoint.load(Path(folder, "checkpoint.npz"))
    monkeypatch.setattr(jax, "__version__", saved.settings["generator"][1])  # else it is refused
    assert said_by(capsys, RESUMED[folder])["summary"]["round"] == 6
    assert not Path(folder, "checkpoint.npz").exists()
    if folder == "stopped-paid":  # its noise is the operating system's; round 3 was repeated
        assert saved.round == 2
        runs = tacit.Ledger("stopped-paid/ledgers/north.db").runs()
        assert [(r["rounds_charged"], r["rounds_answered"]) for r in runs] == [(6, 6)]
        return
    whole = {"stopped": "result", "stopped-power": "power"}[folder]
    resumed = tacit.Result.load(folder).solution
    if old["machine"] == HERE and not os.environ.get("XLA_FLAGS"):  # else last bits may differ
        assert resumed.tolist() == old[whole]["solution"]
    np.testing.assert_allclose(resumed, old[whole]["solution"], rtol=1e-7, atol=1e-9)


@before_rooms
def test_a_run_from_before_the_rooms_with_other_data_is_refused(old, capsys, monkeypatch):
    saved = Checkpoint.load("stopped/checkpoint.npz")
    monkeypatch.setattr(jax, "__version__", saved.settings["generator"][1])
    table = Path("north.csv")
    table.write_text(table.read_text().replace("0.", "0.1", 1))
    assert main(RESUMED["stopped"].split()) == 2
    assert "they differ. Nothing was resumed" in capsys.readouterr().err
