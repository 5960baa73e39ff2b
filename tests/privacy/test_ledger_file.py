"""A ledger's file: durable, never half written, never started afresh, whoever else has it open.

It has one name: SQLite finds by name what is not in the file yet.
"""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from unittest.mock import Mock

import pytest
from charging import CHARGES, charge_many, wait_for
from conftest import repeat
from test_ledger import terms

from tacit.cli.main import main
from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, TacitError
from tacit.privacy import ledger as ledgers
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import INSERT, Entry, Ledger
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


def test_a_ledger_that_was_made_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    monkeypatch.setattr(ledgers, "sync_file", lambda _: (monkeypatch.undo(), filled(path)))
    with pytest.raises(LedgerFailure, match="Expected to write"):
        Ledger.create(path, 9.0, 1e-5)
    with Ledger(path) as ledger:
        assert ledger.budget.epsilon == 2.0 and ledger.spent.epsilon > 0


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


DEAR = Gaussian.analytic(0.9, 1e-5)  # of a budget of 1, nothing can follow


@pytest.fixture
def path(tmp_path):
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "agent.db"
    Ledger.create(path, 1.0, 1e-5).close()
    return path


def dear(run, rounds=1):
    return terms(DEAR, rounds, local_updates=1)


def pays(ledger, run):
    ledger.begin(run, dear(run))
    return ledger.charge(run, 1, 1)


@pytest.mark.parametrize("rest", ["", "-wal", "-shm"])
def test_a_hard_link_gives_no_second_budget(path, tmp_path, rest):
    """It was answered 0.9 + 0.9 on a budget of 1, and afterwards one charge was gone for good."""
    other = tmp_path / f"other.db{rest}"
    first = Ledger(path)
    first.begin("one", dear("one"))
    os.link(f"{path}{rest}", other)
    acts = [lambda: Ledger(path), lambda: first.charge("one", 1, 1)]
    for act in [*acts, lambda: Ledger(other)][: 2 if rest else 3]:
        with pytest.raises(CorruptFile, match=r"hard links.*Nothing was released"):
            act()
    assert not first.charged("one")
    other.unlink()
    assert first.charge("one", 1, 1) and first.spent.epsilon <= 0.9


def test_links_to_the_file_and_to_its_folder_are_the_same_ledger(path, tmp_path):
    """Charges under one are seen under the other, also while both are open."""
    (tmp_path / "there").symlink_to(path.parent)
    (tmp_path / "link.db").symlink_to(path)
    ledgers = [Ledger(p) for p in (path, tmp_path / "there" / "agent.db", tmp_path / "link.db")]
    pays(ledgers[0], "one")
    for ledger in ledgers[1:]:
        with pytest.raises(TacitError, match="beyond the budget"):
            pays(ledger, "another")
        assert ledger.spent.epsilon == ledgers[0].spent.epsilon > 0.8


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
@pytest.mark.parametrize("name", ["other.db", "a b\\c.db"])
def test_a_file_that_is_mounted_by_itself_is_refused(path, tmp_path, name, monkeypatch):
    """As of a container that is given the file and not its folder."""
    other = tmp_path / name
    other.write_bytes(path.read_bytes())
    told = str(other).replace("\\", "\\134").replace(" ", "\\040")
    line = f"41 27 254:0 {path} {told} rw,relatime - ext4 /dev/vda rw\n"
    table = tmp_path / "mountinfo"
    table.write_text(line)
    opened = open
    monkeypatch.setattr(
        "builtins.open",
        lambda name, *a, **k: opened(table if name == "/proc/self/mountinfo" else name, *a, **k),
    )
    with pytest.raises(CorruptFile, match=r"mounted by itself.*Nothing was released"):
        Ledger(other)
    assert pays(Ledger(path), "one")


MAKER = """
import os, signal, sys
unlink = os.unlink
import pathlib
pathlib.Path.unlink = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL) if (
    os.path.exists(sys.argv[1])) else None
from tacit.privacy.ledger import Ledger
Ledger.create(sys.argv[1], 1.0, 1e-5)
"""


def test_a_ledger_whose_making_was_killed_may_be_used_under_one_name(tmp_path):
    path = tmp_path / "a[1].db"
    killed = subprocess.run([sys.executable, "-c", MAKER, path], check=False)
    assert killed.returncode == -signal.SIGKILL and os.stat(path).st_nlink == 2
    with pytest.raises(CorruptFile, match="hard links"):
        Ledger(path)
    [left] = tmp_path.glob("*.new")
    left.unlink()
    assert pays(Ledger(path), "one")


# --- paths and files that are no ledger ----------------------------------------------------------


def other_tables(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE users (name)")
        db.commit()
    return path


def folder(path):
    path.mkdir()
    return path


NO_LEDGERS = {
    "folder": folder,
    "missing": lambda path: path,
    "missing folder": lambda path: path / "none" / "a.db",
    "below a file": lambda path: other_tables(path) / "a.db",
    "long": lambda path: path.with_name("x" * 5000),
    "zero": lambda path: path.with_name("a\0b.db"),
    "other tables": other_tables,
}


@pytest.mark.parametrize("kind", NO_LEDGERS)
def test_what_is_no_ledger_is_one_error(tmp_path, kind, capsys):
    path = NO_LEDGERS[kind](tmp_path / "a.db")
    with pytest.raises(TacitError):
        Ledger(path)
    assert main(["ledger", "show", str(path)]) in (1, 2)
    out, error = capsys.readouterr()
    assert out == "" and len(error.splitlines()) == 1 and error.startswith("tacit: ")
    assert ("got a folder" in error) == (kind == "folder")
    if kind not in ("missing", "missing folder"):
        with pytest.raises((InvalidInput, LedgerFailure)):
            Ledger.create(path, 1.0, 1e-5)


EVENTS = {
    "budget": [
        *("[]", "{", "3", "{}", "[" * 9999, '{"epsilon":"1","delta":0}'),
        *('{"epsilon":-1.0,"delta":0.0}', '{"epsilon":NaN,"delta":1e-5}'),
        '{"epsilon":1' + "0" * 5000 + ',"delta":1e-5}',
    ],
    "run": ["[]", "{}", '"x"', "changed rounds", "changed mechanism", "changed agent"],
}


@pytest.mark.parametrize(("kind", "event"), [(k, e) for k, v in EVENTS.items() for e in v])
def test_rows_of_other_types_with_hashes_that_fit_are_one_error(path, kind, event):
    said = json.loads(terms().to_json())
    change = {"rounds": "many", "mechanism": {"kind": 3}, "agent": ["a"]}
    if event.startswith("changed"):
        name = event.split()[1]
        event = json.dumps({**said, name: change[name]})
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        [[head]] = db.execute("SELECT chain FROM entries").fetchall()
        run = "r" if kind == "run" else ""
        db.execute(INSERT, Entry(2, "2026", kind, run, event=event[:20000]).sealed(head))
    with pytest.raises(CorruptFile, match=path.name):
        Ledger(path)
