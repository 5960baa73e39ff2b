"""``tacit sheet`` in the hands of those who hold data: parties, old files, locks, full disks."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sheets import Page, noted, paid, read_pdf, solved
from small_study import party, run, write_study

import tacit
from tacit.cli.main import main
from tacit.cli.sheet import _file_name
from tacit.privacy.accounting import rounded_up
from tacit.report.subject import Subject

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def result():
    return solved()


@pytest.fixture
def folder(result, tmp_path):
    return noted(result.save(tmp_path / "result"))


def refused(capsys, *words):
    """The one line of a command that wrote no sheet."""
    status = main(["sheet", *map(str, words)])
    said = capsys.readouterr()
    assert status in (1, 2) and not said.out
    assert said.err.startswith("tacit: ") and said.err.count("\n") == 1
    return said.err


def told(capsys, *words):
    assert main(["sheet", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def facts(document):
    return dict(document["sheet"]["facts"])


# --- files ------------------------------------------------------------------------------------


def test_both_files_by_default_and_one_by_name(folder, tmp_path, capsys):
    assert main(["sheet", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Certified: ") and f"{folder}/sheet.html, {folder}/sheet.pdf" in said
    read_pdf((folder / "sheet.pdf").read_bytes())
    assert all((folder / f"sheet.{kind}").stat().st_mode & 0o077 == 0 for kind in ("html", "pdf"))
    assert told(capsys, folder, "--out", tmp_path / "x.PDF")["files"] == [str(tmp_path / "x.PDF")]
    assert not (tmp_path / "x.html").exists()
    read_pdf((tmp_path / "x.PDF").read_bytes())
    before = Page((folder / "sheet.html").read_text()).words.split("Made")[0]
    told(capsys, folder)  # a sheet that is there is replaced, and is no part of what it lists
    assert Page((folder / "sheet.html").read_text()).words.split("Made")[0] == before
    for name in ("agent 1", "agent 2"):
        files = told(capsys, folder, "--agent", name)["files"]
        assert files == [f"{folder}/sheet-{name}.html", f"{folder}/sheet-{name}.pdf"]
        assert f"Privacy sheet: {name}" in Path(files[0]).read_text()


def test_names_of_agents_as_names_of_files(tmp_path):
    names = ["Zug", "../x", "..", "a/b", "a_b", "a\\b", "n" * 400, "n" * 401, "\ud800", "\x00", ""]
    files = [_file_name(name) for name in names]
    assert files[0] == "Zug" and len(set(files)) == len(names)
    for file in files:
        place = tmp_path / f"sheet-{file}.html"
        place.write_text("")
        assert place.parent == tmp_path and place.resolve().parent == tmp_path.resolve()


def test_places_that_cannot_be_written(folder, tmp_path, capsys):
    (tmp_path / "d.pdf").mkdir()
    for out, why in (
        (tmp_path / "no" / "x.pdf", "its folder is not there"),
        (folder / "result.json", "FILE.html or FILE.pdf"),
        (tmp_path / "d.pdf", "it is a folder"),
    ):
        assert why in refused(capsys, folder, "--out", out)


def test_only_a_sheet_is_replaced(folder, tmp_path, capsys):
    told(capsys, folder)
    sheets = [(folder / f"sheet.{kind}").read_bytes() for kind in ("html", "pdf")]
    others = [b"", b"%PDF-1.7 a thesis /Creator (LaTeX)", b'<!doctype html>\n<html lang="en">']
    others += [b" " + sheets[0], sheets[0] + b" " * 2**22, b"a" + sheets[1]]
    for kind in ("html", "pdf"):
        out = tmp_path / f"thesis.{kind}"
        for content in others:
            out.write_bytes(content)
            assert "It was not replaced" in refused(capsys, folder, "--out", out)
            assert out.read_bytes() == content
        for content in sheets:  # a control
            out.write_bytes(content)
            told(capsys, folder, "--out", out)
    os.mkfifo(tmp_path / "pipe.pdf")
    (tmp_path / "link.pdf").symlink_to(tmp_path / "nowhere")
    for name in ("pipe.pdf", "link.pdf"):
        assert "It was not replaced" in refused(capsys, folder, "--out", tmp_path / name)
    assert (tmp_path / "pipe.pdf").is_fifo() and (tmp_path / "link.pdf").is_symlink()
    (folder / "sheet.pdf").write_bytes(b"mine")  # the second of two: neither is written
    (folder / "sheet.html").unlink()
    assert "It was not replaced" in refused(capsys, folder)
    assert not (folder / "sheet.html").exists()


def test_folders_that_hold_no_finished_run(tmp_path, result, capsys):
    """Nor a statement that leaves an agent out; other damages are in test_damaged_files."""
    assert "No sheet was written" in refused(capsys, tmp_path / "none")
    assert "it has no result.json" in refused(capsys, tmp_path)
    assert "not finished" in refused(capsys, noted(tmp_path))
    folder = result.save(tmp_path / "r")
    assert "Expected one of the agents agent 1" in refused(capsys, folder, "--agent", "nobody")
    saved = json.loads((folder / "result.json").read_text())
    damaged = {**saved, "privacy": {**saved["privacy"], "neighbours": []}}
    (folder / "result.json").write_text(json.dumps(damaged))
    assert "No sheet was written" in refused(capsys, folder)


@pytest.mark.parametrize("kind", ["result", "power", "model", "paid"])
def test_old_results(kind, tmp_path, capsys):
    shutil.copytree(FIXTURES / "0.2.0" / kind, tmp_path / "old")
    page = told(capsys, tmp_path / "old")["sheet"]
    certified = tacit.Result.load(tmp_path / "old").privacy.certified
    assert page["promised"] == certified and (page["odds"] is not None) == certified


# --- ledgers ----------------------------------------------------------------------------------


def test_ledgers_that_are_not_the_agents_or_not_sound(folder, tmp_path, capsys):
    paid(tmp_path / "other.db", "agent 2")
    line = refused(capsys, folder, "--agent", "agent 1", "--ledger", tmp_path / "other.db")
    assert "Expected the ledger of agent 'agent 1'" in line and "agent 2" in line
    line = refused(capsys, folder, "--agent", "agent 1", "--ledger", tmp_path / "none.db")
    assert "found none. No sheet" in line and not (tmp_path / "none.db").exists()
    stranger = paid(tmp_path / "stranger.db", "somebody else")
    assert "Expected --agent NAME" in refused(capsys, folder, "--ledger", stranger)
    for name, content in (("text.db", b"no ledger at all"), ("empty.db", b"")):
        (tmp_path / name).write_bytes(content)
        line = refused(capsys, folder, "--agent", "agent 1", "--ledger", tmp_path / name)
        assert "No sheet was written" in line and (tmp_path / name).read_bytes() == content
    path = paid(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE entries SET last = 1 WHERE kind = 'charge'")
        db.commit()
    line = refused(capsys, folder, "--agent", "agent 1", "--ledger", path)
    assert "was changed" in line and "No sheet was written" in line


def test_the_ledger_that_the_run_noted_is_found(folder, tmp_path, capsys):
    (tmp_path / "ledgers").mkdir()
    paid(tmp_path / "ledgers" / "agent 1.db")
    noted(folder, ledgers=str(tmp_path / "ledgers"))
    assert "agent 1.db" in facts(told(capsys, folder, "--agent", "agent 1"))["Ledger"]
    missing = facts(told(capsys, folder, "--agent", "agent 2"))["Ledger"]
    assert "the one that paid for this run was not found" in missing
    assert "choose one with --agent" in facts(told(capsys, folder))["Ledger"]
    paid(tmp_path / "ledgers" / "agent 3.db", "agent 1")  # somebody gave it another name
    line = refused(capsys, folder, "--agent", "agent 3")
    assert "which is that of agent 'agent 1'" in line


# a process in the middle of a payment, until its input ends
HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
db.close()
"""


def test_a_ledger_that_is_in_use_is_not_written(folder, tmp_path, capsys):
    path = paid(tmp_path / "a.db")
    with tacit.Ledger(path) as ledger:
        head = ledger.head
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, path], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        found = told(capsys, folder, "--agent", "agent 1", "--ledger", path)
        assert "all consistent" in facts(found)["Ledger"] and other.poll() is None
    assert other.returncode == 0
    with tacit.Ledger(path) as ledger:
        assert ledger.head == head


# --- parties ----------------------------------------------------------------------------------


def test_a_party_makes_its_own_sheet(tmp_path, capsys):
    study = write_study(tmp_path, rehearsal=None)
    result, _ = run(study, tmp_path)
    kit, own = tmp_path / "kit", ("--party", tmp_path / "north.toml")
    kit.mkdir()
    (tmp_path / "own-north").rename(kit / "own")
    found = facts(told(capsys, kit, *own))
    assert found["Data used"].startswith("As the run's own")  # no study lies beside it
    (kit / "study").mkdir()
    shutil.copy(tmp_path / "study.toml", kit / "study")
    document = told(capsys, kit, *own, "--purpose", "to learn")
    page, found = document["sheet"], facts(document)
    assert found["Data used"] == "The columns age, dose, weight; 90 records of all parties"
    assert found["Purpose"] == "to learn" and found["When"].endswith("(by the ledger)")
    assert page["promised"] and page["title"] == "Privacy sheet: north"
    assert found["Limit of one run"].startswith("ε = 2, δ = 0.00001, in")
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        spent = rounded_up(ledger.spent.epsilon, 4)
    assert found["Spent in all runs"].startswith(f"ε ≤ {spent} of")
    shared = " ".join(page["sections"][0]["lines"])
    assert "6 messages of at most 3 numbers each" in shared and "TLS" in shared
    statement = json.loads((kit / "own" / "statement.json").read_text())
    assert found["Budget of this run"].startswith(f"ε ≤ {rounded_up(statement['epsilon'], 3)}")
    published = {s["title"]: s["lines"][0] for s in page["sections"]}["May be published"]
    assert published.startswith("solution.npz, and what")
    for place in (kit, kit / "own", kit / "own" / "statement.json"):  # the same without the kit
        again = facts(told(capsys, place, "--ledger", tmp_path / "north.db"))
        assert again["Spent in all runs"] == found["Spent in all runs"]
    line = refused(capsys, kit, "--party", tmp_path / "south.toml")
    assert "Expected one of the agents north" in line
    line = refused(capsys, kit, "--ledger", tmp_path / "south.db")
    assert "which is that of agent 'south'" in line
    result.save(tmp_path / "coordinator")  # which has no ledgers
    coordinator = told(capsys, tmp_path / "coordinator", "--agent", "south")
    assert "TLS" in " ".join(coordinator["sheet"]["sections"][0]["lines"])


def test_a_rehearsal_promises_nothing(tmp_path, capsys):
    study = write_study(tmp_path)
    run(study, tmp_path)
    page = told(capsys, tmp_path / "own-north", "--party", tmp_path / "north.toml")["sheet"]
    assert page["verdict"].startswith("NOTHING IS PROMISED") and page["odds"] is None


def test_a_party_that_has_answered_nothing(tmp_path):
    study = write_study(tmp_path, rehearsal=None)
    assert party(study, tmp_path, "north").ledger.agent is None
    with pytest.raises(tacit.CorruptFile, match="No sheet was written"):
        Subject.read(tmp_path, None, None, tmp_path / "north.toml")
