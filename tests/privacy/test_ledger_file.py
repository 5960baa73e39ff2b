"""A ledger's file: durable, never half written, never started afresh, whoever else has it open."""

import multiprocessing
import os
import sqlite3
from unittest.mock import Mock

import pytest
from charging import CHARGES, charge_many, wait_for
from conftest import repeat
from test_ledger import terms

from tacit.cli.main import main
from tacit.errors import CorruptFile, InvalidInput, LedgerFailure
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "agent.db", 2.0, 1e-5)


def filled(path):
    ledger = Ledger.create(path, 2.0, 1e-5)
    ledger.begin("r", terms())
    for t in range(1, 6):
        payment = ledger.charge("r", t, t)
        ledger.store(payment, t, f"request {t}", os.urandom(3000), os.urandom(3000))
    ledger.close()
    return path


def tampered(statement):
    def change(path):
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()

    return change


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def scribbled(path):
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = os.urandom(200)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        scribbled,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(4000)),
        lambda path: path.write_text("not a ledger"),
        tampered("DELETE FROM entries WHERE serial = 4"),
        tampered("DELETE FROM entries"),
        tampered("UPDATE entries SET last = 1 WHERE serial = 5"),
        tampered('UPDATE entries SET event = \'{"epsilon":9.0,"delta":0.1}\' WHERE serial = 1'),
        tampered("UPDATE entries SET reply = x'00' WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET state = x'00' WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET state = NULL WHERE kind = 'answer' AND first = 5"),
        tampered("UPDATE entries SET owner = '' WHERE kind = 'charge' AND first = 2"),
        tampered("UPDATE entries SET payment = 99 WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET serial = 99 WHERE serial = 5"),
        tampered("UPDATE entries SET time = '2020' WHERE serial = 3"),
        tampered("PRAGMA user_version = 1"),
        tampered("PRAGMA application_id = 7"),
    ],
)
def test_a_damaged_ledger_is_refused_and_left_alone(tmp_path, damage):
    path = filled(tmp_path / "a.db")
    damage(path)
    before = path.read_bytes()
    with pytest.raises((CorruptFile, LedgerFailure), match=r"Nothing was released|found none"):
        Ledger(path)
    with pytest.raises(InvalidInput, match="there is one"):
        Ledger.create(path, 1.0, 1e-5)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER t AFTER INSERT ON entries WHEN new.kind = 'charge' "
        "BEGIN DELETE FROM entries WHERE serial = new.serial; END",
        "CREATE VIEW v AS SELECT * FROM entries",
        "CREATE TABLE more (x)",
        "DROP INDEX one_use",
    ],
)
def test_a_ledger_of_another_schema_is_refused(ledger, change):
    ledger.begin("r", terms())
    tampered(change)(ledger.path)
    with pytest.raises((CorruptFile, LedgerFailure), match="schema"):
        ledger.charge("r", 1, 1)
    with pytest.raises(CorruptFile, match="schema"):
        Ledger(ledger.path)


@pytest.mark.parametrize("how", ["replaced", "removed", "moved behind a link"])
def test_a_ledger_that_is_replaced_while_in_use_is_noticed(ledger, tmp_path, how):
    ledger.begin("r", terms())
    ledger.backup(tmp_path / "copy.db")
    payment = ledger.charge("r", 1, 1)
    if how == "moved behind a link":  # what is paid is in a ``-wal`` that nobody else looks at
        ledger.path.rename(tmp_path / "moved.db")
        ledger.path.symlink_to(tmp_path / "moved.db")
    else:
        for rest in ("", "-wal", "-shm"):
            (tmp_path / f"agent.db{rest}").unlink(missing_ok=True)
    if how == "replaced":
        os.replace(tmp_path / "copy.db", ledger.path)
    for act in (
        lambda: ledger.store(payment, 1, "request", b"reply", b"state"),
        lambda: ledger.fail(payment, 1),
        lambda: ledger.charge("r", 2, 2),
    ):
        with pytest.raises(CorruptFile, match="replaced, moved or removed"):
            act()


def test_a_remembered_hash_shows_removed_entries(ledger, tmp_path, capsys):
    ledger.begin("r", terms())
    ledger.backup(tmp_path / "old.db")
    ledger.charge("r", 1, 1)
    remembered = ledger.head
    ledger.charge("r", 2, 2)
    assert ledger.holds(remembered) and ledger.holds(remembered[:16])
    assert not Ledger(tmp_path / "old.db").holds(remembered) and not ledger.holds("")
    assert main(["ledger", "show", str(ledger.path), "--expect", remembered[:16]]) == 0
    assert main(["ledger", "show", str(tmp_path / "old.db"), "--expect", remembered[:16]]) == 1
    assert "old copy" in capsys.readouterr().err


def test_no_ledger_is_made_beside_what_is_left_of_another(tmp_path):
    for rest in ("-wal", "-shm"):
        (tmp_path / f"a.db{rest}").write_bytes(b"old")
        with pytest.raises(InvalidInput, match="left of another ledger"):
            Ledger.create(tmp_path / "a.db", 1.0, 1e-5)
        (tmp_path / f"a.db{rest}").unlink()


def test_only_text_and_whole_numbers_get_into_a_ledger(ledger):
    with pytest.raises(InvalidInput, match="name as text"):
        ledger.begin(5, terms())
    ledger.begin("r", terms())
    with pytest.raises(InvalidInput, match="whole numbers"):
        ledger.charge("r", True, True)
    assert Ledger(ledger.path).spent.epsilon == 0


def test_memory_follows_the_disk_when_a_commit_fails(ledger):
    ledger.begin("r", terms())
    before, real = (ledger.head, ledger.spent), ledger._db

    def execute(statement, *arguments):
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return real.execute(statement, *arguments)

    ledger._db = Mock(wraps=real, execute=execute)
    with pytest.raises(LedgerFailure, match="disk I/O"):
        ledger.charge("r", 1, 5)
    ledger._db = real
    assert (ledger.head, ledger.spent) == before
    ledger.charge("r", 1, 1)
    assert ledger.spent == exact(Gaussian(40.0), 2, 1e-5)


def test_a_full_or_read_only_disk_refuses(ledger):
    ledger.begin("r", terms())
    payment = ledger.charge("r", 1, 1)
    head, spent = ledger.head, ledger.spent
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerFailure, match=r"full.* Nothing was released"):
        ledger.store(payment, 1, "request", bytes(100_000), bytes(100_000))
    ledger._db.execute("PRAGMA max_page_count = 1000000")
    ledger._db.execute("PRAGMA query_only = ON")
    with pytest.raises(LedgerFailure, match=r"readonly.* Nothing was released"):
        ledger.charge("r", 2, 2)
    ledger._db.execute("PRAGMA query_only = OFF")
    assert (ledger.head, ledger.spent) == (head, spent)
    ledger.charge("r", 2, 2)
    assert Ledger(ledger.path).spent == exact(Gaussian(40.0), 4, 1e-5)


RUNS = repeat("ab", "abcd")


def test_concurrent_processes_lose_no_charge(tmp_path):
    mechanism = Gaussian(30.0)
    fitting = len(RUNS) * CHARGES * 3 // 4  # the budget ends before all have charged everything
    epsilon = exact(mechanism, fitting, 1e-5).epsilon * (1 + 1e-9)
    path = tmp_path / "a.db"
    ledger = Ledger.create(path, epsilon, 1e-5)
    for run in RUNS:
        ledger.begin(run, terms(mechanism, rounds=CHARGES, local_updates=1))
    spawned = multiprocessing.get_context("spawn")
    together = spawned.Barrier(len(RUNS))
    with spawned.Pool(len(RUNS), wait_for, [together]) as pool:
        done = pool.starmap(charge_many, [(path, run) for run in RUNS])
    assert sum(done) == fitting
    assert sum(len(ledger.charged(run)) for run in RUNS) == fitting
    assert ledger.spent.epsilon <= epsilon
    assert Ledger(path).head == ledger.head
