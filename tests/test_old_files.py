"""What older versions left behind still opens.

0.1.0: ledgers, of a finished run and of one that was stopped after its third answer. 0.2.0 (made
at its commit, 7949b22, by the commands that stand in said.json): results, models, notes of runs,
ledgers, of which one holds a release, and one a run that was stopped. Checkpoints are not among
them: one of another version is refused.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import problem_of

import tacit
from tacit.cli.main import main
from tacit.learn import load_model
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import SCHEMA_1, Entry, Terms, upgrade
from tacit.protocol import journal
from tacit.studies.job import load_job

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def old(request, tmp_path, monkeypatch):
    """What a version left, copied to where we are, and what it said about it."""
    shutil.copytree(FIXTURES / request.param, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return json.loads(Path("said.json").read_text())


every_version = pytest.mark.parametrize("old", ["0.1.0", "0.2.0"], indirect=True)
first_version = pytest.mark.parametrize("old", ["0.1.0"], indirect=True)
second_version = pytest.mark.parametrize("old", ["0.2.0"], indirect=True)


def said_by(capsys, line):
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def holds(now, then, *apart):
    """All that was said then is said now."""
    names = then.keys() - {*apart}
    assert {name: now[name] for name in names} == {name: then[name] for name in names}


# --- results and models -----------------------------------------------------------------------


@second_version
def test_results_load_and_models_predict_what_they_did(old, capsys):
    for folder in ("result", "power", "model", "ridge", "paid", "once"):
        result, before = tacit.Result.load(folder), old[folder]
        assert result.solution.tolist() == before["solution"]
        holds(result.privacy.to_dict(), before["privacy"], "statement")
        assert said_by(capsys, f"show {folder}")["solution"] == before["solution"]
        assert Path(folder, "plot.png").is_file()
    for folder, said in (("model", "predictions"), ("ridge", "ridge predictions")):
        before = old[said]
        now = said_by(capsys, f"predict {folder} table.csv")
        holds(now, before, "probabilities")
        if folder == "model":
            np.testing.assert_allclose(now["probabilities"], before["probabilities"], rtol=1e-12)
        assert load_model(folder)[-1].privacy_.epsilon == old[folder]["privacy"]["epsilon"]


# --- ledgers ----------------------------------------------------------------------------------


@every_version
def test_a_ledger_opens_with_the_same_totals(old, capsys):
    for name, before in old["ledgers"].items():
        path = before["ledger"]
        for _ in range(2):  # the first opening may write the file anew
            now = said_by(capsys, f"ledger show {path} --expect {before['head']}")
            for run, then in zip(now["runs"], before["runs"], strict=True):
                holds(run, then)
            holds(now, before, "runs")
        copy = f"{name}-copy.db"
        said_by(capsys, f"ledger backup {path} {copy}")
        assert tacit.Ledger(copy).spent == tacit.Ledger(path).spent


@every_version
def test_a_ledger_pays_for_further_runs(old, capsys):
    """Together with what was spent before, exactly as in one ledger from the start."""
    path = Path(old["ledgers"]["paid"]["ledger"])
    words = f"solve paid.toml --ledgers {path.parent}"
    said_by(capsys, f"{words} --out again")
    with tacit.Ledger(path) as ledger:
        first, second = ledger.runs()
        multiplier = first["mechanism"]["noise_multiplier"]
        assert [r["rounds_charged"] for r in (first, second)] == [6, 6]
        assert second["mechanism"]["noise_multiplier"] == pytest.approx(multiplier, rel=1e-9)
        both = exact(tacit.Gaussian(multiplier), 24, 1e-5).epsilon
        assert ledger.spent.epsilon == pytest.approx(both, rel=1e-6)
    said_by(capsys, f"ledger budget {path} --total-epsilon 1.5 --total-delta 1e-5")
    assert main([*words.split(), "--out", "more"]) == 1


@second_version
def test_a_kept_release_is_not_charged_again_and_a_stopped_run_goes_on(old, capsys):
    before = old["ledgers"]["once"]
    now = said_by(capsys, "solve once.toml --out again --ledgers once/ledgers")
    assert now["solution"] == pytest.approx(old["once"]["solution"], rel=1e-12)  # processors differ
    assert tacit.Ledger(before["ledger"]).head == before["head"]
    assert said_by(capsys, "solve --resume stopped")["summary"]["round"] == 6
    (run,) = tacit.Ledger("stopped/ledgers/north.db").runs()
    assert (run["rounds_charged"], run["rounds_answered"]) == (6, 6)


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    path, problem, settings = tmp_path / "c.npz", problem_of("logistic", "box"), tacit.Settings(3)
    with monkeypatch.context() as before:
        before.setattr(journal, "FORMAT", -1)
        tacit.solve(problem, settings, seed=1, checkpoint=path)
    kept = path.read_bytes()
    with pytest.raises(tacit.InvalidInput, match="version"):
        tacit.solve(problem, settings, seed=1, checkpoint=path)
    assert path.read_bytes() == kept


@first_version
def test_a_run_of_the_first_version_does_not_go_on_with_other_bounds(old):
    """Sensitivities hold rounding since: what was agreed was another run."""
    before = old["ledgers"]["stopped"]
    job, run = load_job("paid.toml"), before["runs"][0]["run"]
    with pytest.raises(tacit.Refused, match=run):
        tacit.solve(job.problem, job.settings, run=run, ledgers={"north": before["ledger"]})
    assert tacit.Ledger(before["ledger"]).head == before["head"]


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


def entry(kind, first, last=None, **more):
    return Entry(kind=kind, run="r", first=first, last=last or first, **more)


ANSWER = entry("answer", 1, reply=b"a", state=b"s")


def test_what_the_first_version_paid_is_counted_and_used_by_nobody(tmp_path):
    """Who made a payment, and what was shown out of it, was not written down then."""
    entries = entry("charge", 1), ANSWER, entry("charge", 2), entry("failed", 2)
    path = first_ledger(tmp_path / "l.db", *entries, entry("charge", 3), entry("charge", 4, 5))
    with tacit.Ledger(path) as ledger:
        assert ledger.charged("r") == [(1, 1), (2, 2), (3, 3), (4, 5)]
        spent = ledger.spent.epsilon
        assert spent == pytest.approx(exact(TERMS.mechanism, 5, 1e-5).epsilon)
        assert ledger.answer("r").reply == b"a" and ledger.failures("r", 2) == 1
        for t in range(1, 6):
            assert ledger.open_payment("r", t) is None and ledger.take_over("r", t) is None
        payment = ledger.charge("r", 3, 3)
        assert ledger.store(payment, 3, "request", b"reply", b"state")
        forged = payment._replace(serial=7, owner="")
        with pytest.raises(tacit.Refused, match="payment"):
            ledger.fail(forged, 4)
        with pytest.raises(tacit.Refused, match="seed"):
            ledger.fail(ledger.charge("r", 2, 2), 2)
        assert ledger.spent.epsilon > spent
    tacit.Ledger(path)


CHANGES = {
    "UPDATE entries SET last = 1 WHERE serial = 3": "Entry 3 .* was changed",
    "DELETE FROM entries WHERE serial = 2": "Entry 3 .* or one before it removed",
    "UPDATE entries SET reply = x'00' WHERE serial = 4": "Entry 4 .* was changed",
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END": "schema",
    "DROP INDEX one_answer": "schema",
    "PRAGMA user_version = 3": "ledger of schema 2",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_ledger_of_the_first_version_is_refused_and_left_alone(change, tmp_path):
    path = first_ledger(tmp_path / "l.db", entry("charge", 1, 2), ANSWER)
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
        db.commit()
    before = path.read_bytes()
    with pytest.raises(tacit.CorruptFile, match=CHANGES[change]):
        tacit.Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", ["owner = 'me'", "payment = 1", "payment = 0"])
def test_owners_cannot_be_added_to_what_the_first_version_paid(change, tmp_path):
    path = first_ledger(tmp_path / "l.db", entry("charge", 1))
    tacit.Ledger(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE entries SET {change} WHERE serial = 3")
        db.commit()
    with pytest.raises(tacit.CorruptFile, match=r"Entry 3 .* was changed"):
        tacit.Ledger(path)


def test_an_upgrade_happens_once_and_whole(tmp_path):
    path = first_ledger(tmp_path / "l.db", entry("charge", 1))

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
