"""Files with secrets: never readable by others, never half written, and on the disk."""

import ast
import builtins
import csv
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import problem_of

import tacit
from tacit.cli.main import main
from tacit.files import open_private, write_atomically
from tacit.privacy.ledger import Ledger

SOURCE = Path(tacit.__file__).parent
COVERED = {"arrays.npz"}  # what may be published
SETTINGS = tacit.Settings.for_budget(1.0, 1e-5, rounds=4)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def created(monkeypatch):
    """Name and mode of every file at the moment Python creates it."""
    seen = []
    low, high = os.open, builtins.open

    def spy_low(path, flags, *arguments, **others):
        opened = low(path, flags, *arguments, **others)
        if flags & os.O_CREAT:
            seen.append((Path(os.fspath(path)).name, stat.S_IMODE(os.fstat(opened).st_mode)))
        return opened

    def spy_high(file, mode="r", *arguments, **others):
        opened = high(file, mode, *arguments, **others)
        if not isinstance(file, int) and set(mode) & set("wxa"):
            seen.append((Path(file).name, stat.S_IMODE(os.fstat(opened.fileno()).st_mode)))
        return opened

    monkeypatch.setattr(os, "open", spy_low)
    monkeypatch.setattr(builtins, "open", spy_high)
    return seen


@pytest.fixture(scope="module")
def result():
    return tacit.solve(problem_of("logistic", "box"), SETTINGS, seed=0)


def assert_private(folder, created=()):
    found = {path.name: mode(path) for path in folder.rglob("*") if path.is_file()}
    assert found
    for name, bits in [*found.items(), *created]:
        assert name in COVERED or bits == 0o600, f"{name} has mode {bits:o}"


@pytest.mark.parametrize("there", ["wide", "link"])
def test_what_is_in_the_way_is_replaced_not_written_to(result, tmp_path, open_umask, there):
    folder, elsewhere = tmp_path / "r", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text("as it was")
    for name in ("trace.csv", "plot.png"):
        path = folder / name
        if "link" in there:
            path.symlink_to(elsewhere)
        else:
            path.write_text("old")
            path.chmod(0o666)
    result.save(folder)
    assert_private(folder)
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert elsewhere.read_text() == "as it was"
    assert len(list(folder.iterdir())) == 4


def test_a_plot_that_fails_leaves_nothing_open(result, tmp_path, open_umask, created, monkeypatch):
    def fail(self):
        raise RuntimeError("no fonts")

    monkeypatch.setattr(tacit.Result, "plot", fail)
    with pytest.raises(RuntimeError, match="no fonts"):
        result.save(tmp_path / "r")
    assert (tmp_path / "r" / "trace.csv").exists()
    assert not (tmp_path / "r" / "result.json").exists()
    assert_private(tmp_path / "r", created)
    monkeypatch.undo()
    result.save(tmp_path / "r")  # what is left of it is no result
    assert tacit.Result.load(tmp_path / "r").names == result.names


def test_a_result_is_not_overwritten(result, tmp_path):
    folder = result.save(tmp_path / "r")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(tacit.InvalidInput, match=r"another"):
        tacit.solve(problem_of("logistic", "box"), SETTINGS, seed=1).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert result.save(folder) == folder  # the same again changes nothing


def test_folders_of_the_command_are_private(job, tmp_path, open_umask, created, capsys):
    out = tmp_path / "result"
    assert "seed" in job.read_text()
    assert main(["solve", str(job), "--out", str(out)]) == 0
    assert {p.name for p in out.iterdir()} >= {"job.toml", "run.json", "trace.csv", "plot.png"}
    assert_private(out, created)
    assert any(re.match(r"checkpoint.npz\.[0-9a-f]{12}\.tmp$", name) for name, _ in created)
    (out / "plot.png").chmod(0o644)
    assert main(["show", str(out)]) == 0
    assert_private(out, created)


def test_results_and_checkpoints_are_private_from_their_creation(
    result, tmp_path, open_umask, created
):
    """Only what a certified statement covers is for everybody."""
    plain = tacit.solve(
        problem_of("logistic", "box"), tacit.Settings(2), seed=0, checkpoint=tmp_path / "c.npz"
    )
    result.save(tmp_path / "r")
    assert_private(tmp_path, created)
    names = {re.sub(r"\.[0-9a-f]{12}\.tmp$", "", name) for name, _ in created}
    assert names >= {"trace.csv", "plot.png", "result.json", "c.npz"}
    assert mode(tmp_path / "r" / "arrays.npz") == 0o644
    assert mode(plain.save(tmp_path / "p") / "arrays.npz") == 0o600


def test_a_ledger_is_private_with_all_its_files(tmp_path, open_umask, created, monkeypatch):
    """Looked at before every statement: the file, its journal, the log and the index of the log."""
    seen, connect = {}, sqlite3.connect

    def watched(*arguments, **others):
        db = connect(*arguments, **others)
        look = lambda _=None: seen.update({p.name: mode(p) for p in tmp_path.iterdir()})  # noqa: E731
        db.set_trace_callback(look)
        look()
        return db

    monkeypatch.setattr(sqlite3, "connect", watched)
    ledger = Ledger.create(tmp_path / "a.db", 1.0, 1e-5)
    ledger.set_budget(2.0, 1e-5)
    ledger.backup(tmp_path / "copy.db")
    copy = Ledger(tmp_path / "copy.db")
    copy.set_budget(3.0, 1e-5)
    found = {path.name for path in tmp_path.iterdir()}
    both = {f"{name}.db{end}" for name in ("a", "copy") for end in ("", "-wal", "-shm")}
    assert found == both and set(seen) >= both
    assert any(name.endswith(".new-journal") for name in seen)
    assert set(seen.values()) == {0o600}
    assert_private(tmp_path, created)
    assert len([name for name, _ in created if name.endswith(".new")]) == 2


def test_folders_are_synchronised(tmp_path, monkeypatch):
    """After a rename or a link, so that the name is there after a failure of power."""
    steps = []
    sync, replace, link = os.fsync, os.replace, os.link

    def spy(opened):
        steps.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else "file")
        sync(opened)

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.setattr(os, "replace", lambda *a: (steps.append("rename"), replace(*a)))
    monkeypatch.setattr(os, "link", lambda *a: (steps.append("link"), link(*a)))
    write_atomically(tmp_path / "a", b"content")
    assert steps == ["file", "rename", "folder"]
    steps.clear()
    ledger = Ledger.create(tmp_path / "a.db", 1.0, 1e-5)
    assert steps == ["file", "link", "folder"]
    steps.clear()
    ledger.backup(tmp_path / "b.db")
    assert steps == ["file", "link", "folder"]


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    write_atomically(tmp_path / "a", b"old")

    def fail(opened):
        raise OSError("disk failure")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk failure"):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_open_private_does_not_open_what_is_there(tmp_path, monkeypatch):
    """Someone who is faster, between removing and creating, is noticed."""
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    (tmp_path / "a").write_text("put here meanwhile")
    with pytest.raises(FileExistsError):
        open_private(tmp_path / "a")


# Calls that create files with the default mode, and why they may
ALLOWED = {
    "protocol/result.py open",  # arrays.npz, which the statement covers
    "files.py open",  # the helper itself
    "files.py savefig",  # into memory
    "learn/data.py open",  # public data sets
    "lab/reproduce/__init__.py open",  # appends to traces.csv, which is there and private
    "cli/predict.py open",  # predictions for a table of the user, where the user says
    "cli/audit.py savefig",  # bounds on epsilon, where the user says
    "transports/nvflare/provisioning.py write_bytes",  # the job, which is the same for everyone
    "transports/nvflare/provisioning.py copyfile",  # the coordinator's public key
    "transports/nvflare/provisioning.py write_text",  # in a folder for its owner only
    "transports/nvflare/signing.py write_bytes",  # a public key
}
WRITERS = ("savefig", "write_text", "write_bytes", "copyfile", "copy2", "touch")


def test_nothing_else_creates_files():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                text = [value.value for value in values if isinstance(value, ast.Constant)]
                mode = any(isinstance(t, str) and set(t) & set("wxa") and len(t) < 4 for t in text)
                to_csv = name == "to_csv" and (node.args or "path_or_buf" in ast.dump(node))
                if name in WRITERS or to_csv or (name in ("open", "fdopen") and mode):
                    found.add(f"{path.relative_to(SOURCE)} {name}")
    assert found <= ALLOWED, "write it with tacit.files, or say here why not"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="of Linux")
def test_a_full_disk_behind_standard_output(tmp_path):
    words = [sys.executable, "-m", "tacit", "--version"]
    with open("/dev/full", "w") as full:
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr == "tacit: No space left on device: standard output was not all written\n"


def test_cells_of_predictions_are_no_formulas(tmp_path, capsys):
    """A spreadsheet computes text that begins like a formula; a number is a number."""
    shutil.copytree(Path(__file__).parent / "fixtures" / "0.2.0" / "model", tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    path.write_text(path.read_text().replace('"yes"', '"@SUM(A1)"').replace('"no"', '"-1+2"'))
    names = ["=1+1", "+1", "-2.5", "@x", "\tx", "-x", "a=b", "-1e400", "＝1+1", " =1+1", "-0", "+0"]
    rows = [f'"{name}",1,1' for name in names]
    (tmp_path / "t.csv").write_text("\n".join(["=id,age,fee", *rows]) + "\n")
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "t.csv"), "--id", "=id"]) == 0
    header, *found = csv.reader(capsys.readouterr().out.splitlines())
    assert header[:2] == ["'=id", "prediction"]
    assert [row[0] for row in found] == [
        *("'=1+1", "+1", "-2.5", "'@x", "'\tx", "'-x", "a=b", "-1e400", "'＝1+1", "' =1+1", "-0"),
        "+0",
    ]
    assert {row[1] for row in found} <= {"'@SUM(A1)", "'-1+2"}
