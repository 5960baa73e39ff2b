"""A ledger has one name: SQLite finds by name what is not in the file yet."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from test_ledger import terms

from tacit.cli.main import main
from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, TacitError
from tacit.privacy.ledger import INSERT, Entry, Ledger
from tacit.privacy.mechanisms import Gaussian

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


def truncated(path):
    content = Ledger.create(path, 1.0, 1e-5).path.read_bytes()
    for rest in ("-wal", "-shm"):
        path.with_name(path.name + rest).unlink(missing_ok=True)
    path.write_bytes(content[:5000])
    return path


def text(path):
    path.write_text("not a ledger, but longer than a header" * 90)
    return path


def folder(path):
    path.mkdir()
    return path


NO_LEDGERS = {
    "folder": folder,
    "missing": lambda path: path,
    "missing folder": lambda path: path / "none" / "a.db",
    "below a file": lambda path: text(path) / "a.db",
    "long": lambda path: path.with_name("x" * 5000),
    "zero": lambda path: path.with_name("a\0b.db"),
    "text": text,
    "empty": lambda path: path.touch() or path,
    "truncated": truncated,
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
