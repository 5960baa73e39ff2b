"""One folder for a run of every kind: tried and locked before it spends, continued when it failed.

What is kept and paid is tried with ``tacit solve``, ``tacit power solve`` and ``tacit learn``, in
``make test-all`` all else too.
"""

import errno
import fcntl
import json
import os
import resource
import shutil

import pytest
from conftest import repeat
from grids import EVERYTHING

import tacit
from tacit.protocol.checkpoint import Checkpoint

ROUNDS = 6
# what to run and its agents
RUNS = {
    "solve": ("job.toml", ("north", "south")),
    "power solve": (
        f"g.m --zones z.csv --noise-every-round --rounds {ROUNDS} "
        "--total-epsilon 1 --total-delta 1e-5",
        ("zone a", "zone b"),
    ),
    "learn": (
        f"t.csv --target y --agents 2 --total-epsilon 1 --range *=-1:1 --rounds {ROUNDS}",
        ("0", "1"),
    ),
}
every = pytest.mark.parametrize("kind", RUNS)


def one(kind):
    """Of what is one code for all; all kinds in ``make test-all``."""
    return pytest.mark.parametrize("kind", repeat([kind], [*RUNS]))


@pytest.fixture
def folder(job, tmp_path, monkeypatch):
    """Where job, grid, table and ledgers lie."""
    monkeypatch.chdir(tmp_path)
    job.write_text(job.read_text().replace("rounds = 20", f"rounds = {ROUNDS}"))
    job.write_text(job.read_text().replace("seed = 3\nevaluate_every = 2", ""))
    rows = [f"{a / 10},{a / 20},{a % 2}" for a in range(-10, 10)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "g.m").write_text(EVERYTHING)
    (tmp_path / "z.csv").write_text("bus,zone\n10,a\n25,b\n3,b\n")
    (tmp_path / "ledgers").mkdir()
    for _, agents in RUNS.values():
        for name in agents:
            tacit.Ledger.create(tmp_path / "ledgers" / f"{name}.db", 3.0, 1e-5)
    return tmp_path


def words_of(kind, *more):
    return [*kind.split(), *RUNS[kind][0].split(), *map(str, more)]


def spent(folder, kind):
    return [tacit.Ledger(folder / "ledgers" / f"{n}.db").spent.epsilon for n in RUNS[kind][1]]


def contents(folder):
    """All files but the picture, and the note, whose paths may differ."""
    names = {"arrays.npz", "trace.csv", "result.json", "model.json", "bus.csv", "line.csv"}
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name in names}


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full when a run wants to keep its state for the ``at``-th time."""
    save = Checkpoint.save

    def full(at):
        calls = []

        def sometimes(self, path):
            calls.append(path)
            if len(calls) == at:
                raise OSError(errno.ENOSPC, "No space left on device")
            save(self, path)

        monkeypatch.setattr(Checkpoint, "save", sometimes)

    return full


@every
def test_a_run_that_failed_is_continued_bit_for_bit(kind, folder, disk, command, refused):
    command(*words_of(kind, "--seed", 5, "--evaluate-every", 1, "--out", "whole"))
    disk(4)
    said = refused(" ".join(words_of(kind, "--seed 5 --evaluate-every 1 --out r")))
    assert said.endswith(f"No space left on device. To continue: tacit {kind} --resume r\n"), said
    assert not (folder / "r" / "result.json").exists()
    assert Checkpoint.load(folder / "r" / "checkpoint.npz").round == 2
    assert f"continue with tacit {kind} --resume r or" in refused(
        " ".join(words_of(kind, "--seed 5 --out r"))
    )
    os.chdir("/")  # what the run was told does not depend on where it is continued
    command(*kind.split(), "--resume", folder / "r")
    assert contents(folder / "r") == contents(folder / "whole")
    assert not (folder / "r" / "checkpoint.npz").exists()


@every
def test_a_run_with_ledgers_is_continued_and_paid_once(kind, folder, disk, command, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--ledgers ledgers --evaluate-every 1 --out r")))
    assert min(spent(folder, kind)) > 0
    document = json.loads(command(*kind.split(), "--resume", "r", "--json"))
    assert kind == "learn" or document["noise_source"] == "operating system, exact (secure)"
    for name in RUNS[kind][1]:
        *mean, run = tacit.Ledger(folder / "ledgers" / f"{name}.db").runs()
        assert len(mean) == (kind == "learn")  # before the run
        assert (run["rounds_charged"], run["rounds_answered"]) == (ROUNDS, ROUNDS)
        assert run["run"] == json.loads((folder / "r" / "run.json").read_text())["run"]
    assert tacit.Result.load(folder / "r").privacy.secure


@one("learn")
def test_blocks_workers_and_evaluations_are_options_of_all(kind, folder, command):
    options = ("--ledgers", "ledgers", "--block", 4, "--workers", 1, "--evaluate-every", 3)
    command(*words_of(kind, *options, "--out", "r"))
    assert tacit.Result.load(folder / "r").trace["round"].tolist() == [3, 6]
    for name in RUNS[kind][1]:
        ledger = tacit.Ledger(folder / "ledgers" / f"{name}.db")
        assert ledger.charged(ledger.runs()[-1]["run"]) == [(1, 4), (5, 6)]


@every
def test_a_refused_start_leaves_nothing(kind, folder, refused):
    (folder / "poor").mkdir()
    for name in RUNS[kind][1]:  # the first could pay, the last could not
        budget = 0.1 if name == RUNS[kind][1][-1] else 3.0
        tacit.Ledger.create(folder / "poor" / f"{name}.db", budget, 1e-5)
    (folder / "empty").mkdir()
    before = sorted(p.name for p in folder.iterdir())
    for out, wrong, words in (
        ("deep/er/r", "--seed -1", "got seed=-1"),
        ("empty", "--seed 1 --noise secure", "no seed for secure noise"),
        ("deep/er/r", "--block 2", "--ledgers beside --block"),
        ("empty", "--block 0 --ledgers ledgers", "block"),
        ("deep/er/r", "--workers 0", "workers >= 1"),
        ("empty", "--evaluate-every 0", "evaluate_every >= 1"),
        ("deep/er/r", "--ledgers absent", "absent"),
        ("empty", "--ledgers poor", "beyond the budget"),
        ("deep/er/r", "--ledgers poor", "beyond the budget"),
        ("empty", "--resume r", "one of the two"),
    ):
        said = refused(" ".join(words_of(kind, wrong, "--out", out)))
        assert words in said, said
        assert sorted(p.name for p in folder.iterdir()) == before
        assert not any((folder / "empty").iterdir())
    assert max(spent(folder, kind)) == 0


@every
def test_a_folder_that_cannot_be_written_costs_nothing(kind, folder, refused):
    """The budget was spent first, and a model that could not be written was lost."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, hard))  # root may write anything else
    try:
        said = refused(" ".join(words_of(kind, "--ledgers ledgers --out r")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "Expected to write 1.1 MB to r: File too large. Nothing was started." in said
    (folder / "file").write_text("")
    for out in ("file", "file/r"):
        said = refused(" ".join(words_of(kind, "--ledgers ledgers --out", out)))
        assert "folder" in said and out in said and "Nothing was started." in said
    assert max(spent(folder, kind)) == 0
    assert not (folder / "r").exists()


@one("solve")
def test_two_runs_do_not_share_a_folder(kind, folder, command, refused):
    command(*words_of(kind, "--out", "r", "--seed", 1))
    before = contents(folder / "r")
    (folder / "new").mkdir()
    for name in ("r", "new"):
        held = os.open(folder / name, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)  # as another process would
        writing = folder / name / "checkpoint.npz.0123456789ab.tmp"
        writing.write_bytes(b"what it is about to rename")
        for words in (words_of(kind, "--out", name), [*kind.split(), "--resume", name]):
            assert f"Another run is writing to {name}" in refused(" ".join(words))
        os.close(held)
        assert writing.read_bytes() == b"what it is about to rename"
        writing.unlink()
    assert contents(folder / "r") == before and not any((folder / "new").iterdir())
    command(*words_of(kind, "--out", "new"))  # the lock is gone with its holder


@one("power solve")
def test_a_run_that_was_faster_keeps_its_files(kind, folder, refused, monkeypatch):
    """Both found no folder; the other one locked the one that this one made."""
    from tacit.cli.run_folder import RunFolder

    right = RunFolder._keep_others_out

    def slower(self):
        (self.path / "checkpoint.npz").write_bytes(b"of the other")
        held = os.open(self.path, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            right(self)
        finally:
            os.close(held)

    monkeypatch.setattr(RunFolder, "_keep_others_out", slower)
    assert "Another run is writing to new/r" in refused(" ".join(words_of(kind, "--out new/r")))
    assert (folder / "new" / "r" / "checkpoint.npz").read_bytes() == b"of the other"


@one("learn")
def test_what_a_run_left_is_not_used_again(kind, folder, command, refused):
    command(*words_of(kind, "--seed", 2, "--out", "whole"))
    for left in ("result.json", "checkpoint.npz", "arrays.npz", "model.json", "bus.csv"):
        (folder / left[:3]).mkdir()
        (folder / left[:3] / left).write_bytes(b"what a failed run left")
        said = refused(" ".join(words_of(kind, "--out", left[:3])))
        assert "choose another --out" in said and "Nothing was started" in said
        assert [p.name for p in (folder / left[:3]).iterdir()] == [left]
        assert "--resume" not in said  # that is said only where it works
    (folder / "r").mkdir()
    shutil.copy(folder / "whole" / "run.json", folder / "r")  # killed before its first checkpoint
    for words in (words_of(kind, "--seed 2 --out r"), [*kind.split(), "--resume r"]):
        said = refused(" ".join(words))
        assert "found no checkpoint there" in said and "choose another --out" in said
        assert "Nothing was started" in said and "continue with" not in said
        assert [p.name for p in (folder / "r").iterdir()] == ["run.json"]


def test_an_interrupted_run_is_not_started_over(folder, refused):
    (folder / "r").mkdir()
    (folder / "r" / "checkpoint.npz").write_bytes(b"what an interrupted run left")
    said = refused("solve job.toml --out r")
    assert "An interrupted run is in r (run.json is missing)" in said
    assert "no run.json there" in refused("solve --resume r")
    assert [p.name for p in (folder / "r").iterdir()] == ["checkpoint.npz"]


def test_the_job_may_lie_in_the_folder_and_no_other(folder, command, refused):
    job = (folder / "job.toml").read_text()
    (folder / "other.toml").write_text(job)
    assert "got job.toml in ." in refused("solve other.toml --out .")
    command("solve", "job.toml", "--out", ".")
    assert (folder / "job.toml").read_text() == job and (folder / "result.json").exists()


@every
def test_what_was_paid_for_is_written_before_anything_is_drawn(
    kind, folder, command, refused, monkeypatch
):
    def fail(*given):
        raise OSError("no fonts")

    names = {"solve": "tacit.Result.plot", "learn": "tacit.Result.plot"}
    monkeypatch.setattr(names.get(kind, "tacit.power.plot_grid"), fail)
    said = refused(" ".join(words_of(kind, "--ledgers ledgers --out r")))
    assert f"no fonts. To continue: tacit {kind} --resume r" in said
    arrays = (folder / "r" / "arrays.npz").read_bytes()
    if kind == "learn":
        model = json.loads((folder / "r" / "model.json").read_text())
        assert model["privacy"]["secure"]
    before = spent(folder, kind)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    command(*kind.split(), "--resume", "r")
    assert (folder / "r" / "arrays.npz").read_bytes() == arrays
    assert spent(folder, kind) == before


@one("power solve")
def test_secure_noise_without_ledgers_is_not_continued(kind, folder, refused, monkeypatch):
    from tacit.cli.run_folder import RunFolder

    def fail(self):
        self._rounds = True
        raise OSError("power failure")

    monkeypatch.setattr(RunFolder, "has_paid", fail)
    said = refused(" ".join(words_of(kind, "--noise secure --evaluate-every 2 --out r")))
    assert "power failure. Secure noise without ledgers cannot be continued" in said
    for words in (words_of(kind, "--out", "r"), [*kind.split(), "--resume", "r"]):
        again = refused(" ".join(words))
        assert "secure noise without ledgers cannot be continued" in again
        assert "continue with" not in again


@every
def test_other_data_are_not_continued(kind, folder, disk, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--seed 5 --evaluate-every 1 --out r")))
    kept = (folder / "r" / "checkpoint.npz").read_bytes()
    name, old, new = {
        "solve": ("north.csv", "0.", "0.5"),
        "power solve": ("g.m", "25\t1\t60\t20", "25\t1\t61\t20"),
        "learn": ("t.csv", "0.9,", "0.8,"),
    }[kind]
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    said = refused(f"{kind} --resume r")
    # of a classifier the release that comes first tells
    why = "mean.npz; its data" if kind == "learn" else "they differ. Nothing was resumed."
    assert why in said and "To continue" not in said
    assert (folder / "r" / "checkpoint.npz").read_bytes() == kept


@one("solve")
def test_resume_refuses_what_it_cannot_continue(kind, folder, disk, command, refused):
    disk(4)
    refused(" ".join(words_of(kind, "--seed 5 --evaluate-every 1 --out r")))
    others = [other for other in RUNS if other != kind]
    for other in others:
        assert f"use tacit {kind} --resume r" in refused(f"{other} --resume r")
    assert "--resume without other options" in refused(f"{kind} --resume r --workers 2")
    note = (folder / "r" / "run.json").read_text()
    for broken in (note[:-9], "[]", '{"command": 1, "run": "a", "options": {}}', "{}"):
        (folder / "r" / "run.json").write_text(broken)
        assert "the options of a run in r/run.json" in refused(f"{kind} --resume r")
    (folder / "r" / "run.json").write_text(note)
    left = folder / "r" / "checkpoint.npz.0123456789ab.tmp"  # of a process that was killed
    left.write_bytes(b"a noise key")
    command(*kind.split(), "--resume", "r")
    assert not left.exists()
    assert "is finished: tacit show r" in refused(f"{kind} --resume r")


@pytest.mark.parametrize("kind", repeat(["solve"], ["solve", "power solve"]))
def test_a_run_of_the_first_version_is_continued(kind, folder, disk, command, refused):
    """It noted its options in job.json or power.json."""
    command(*words_of(kind, "--seed", 5, "--evaluate-every", 1, "--out", "whole"))
    if kind == "solve":
        job = folder / "job.toml"
        job.write_text("seed = 5\nevaluate_every = 1\n" + job.read_text())
    disk(4)
    refused(" ".join(words_of(kind, "--seed 5 --evaluate-every 1 --out r")))
    note = json.loads((folder / "r" / "run.json").read_text())
    (folder / "r" / "run.json").unlink()
    if kind == "solve":
        old = {"job": note["options"]["job"], "run": note["run"]}
        (folder / "r" / "job.json").write_text(json.dumps(old))
    else:
        newer = ("block", "evaluate_every", "noise_every_round", "tolerance")
        old = {k: v for k, v in note["options"].items() if k not in newer}
        (folder / "r" / "power.json").write_text(json.dumps({**old, "out": "r"}))
    assert f"tacit {kind} --resume r" in refused(" ".join(words_of(kind, "--out r")))
    command(*kind.split(), "--resume", "r")
    assert contents(folder / "r") == contents(folder / "whole")


def test_room_is_asked_for_as_the_run_will_need(folder, monkeypatch, command):
    """Two checkpoints and the result fit into what was tried."""
    from tacit.cli.run_folder import RunFolder

    asked, largest, save = [], [], Checkpoint.save
    right = RunFolder._try_to_write
    monkeypatch.setattr(
        RunFolder, "_try_to_write", lambda self, room: (asked.append(room), right(self, room))
    )

    def spy(self, path):
        save(self, path)
        largest.append(os.path.getsize(path))

    monkeypatch.setattr(Checkpoint, "save", spy)
    command("learn", "digits", "--total-epsilon", 1, "--rounds", 3, "--out", "r")
    files = sum(p.stat().st_size for p in (folder / "r").iterdir())
    assert 2 * max(largest) + files < asked[0] < 10 * (2 * max(largest) + files)
