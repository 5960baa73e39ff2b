"""Ctrl-C at a few moments, and pipes that close."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import repeat
from interrupts import TACIT, interrupt, start


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("solve", 0.12),  # imports
        ("solve", 0.6),
        ("learn", 2.7),
        *repeat([], [("solve", 1.7), ("power", 0.9), ("power", 2.2)]),
        *repeat([], [("learn", 1.3), ("learn", 3.9)]),
    ],
)
def test_one_line_and_status_130_at_any_moment(tmp_path, command, moment):
    ending = interrupt(command, moment, tmp_path)
    while ending.kind == "before Tacit" and moment < 4:  # a loaded machine: Python itself starts
        moment *= 2
        ending = interrupt(command, moment, tmp_path)
    assert ending.kind in ("stopped", "done before"), ending


def wait_for_checkpoint(out, other_than):
    """Until the rounds have written a checkpoint of their own."""
    deadline, path = time.time() + 120, out / "checkpoint.npz"
    while not path.exists() or path.stat().st_mtime_ns == other_than:
        assert time.time() < deadline, "no checkpoint within two minutes"
        time.sleep(0.01)


def test_how_to_continue_is_said_where_it_works(tmp_path):
    """Inside the rounds: the checkpoint is there."""
    out, found = tmp_path / "out", None
    words = ["case14", "--no-noise", "--rounds", "2000", "--out", str(out)]
    endings = {signal.SIGTERM: ("terminated", 143), signal.SIGINT: ("interrupted", 130)}
    # test_power_once.py interrupts one such
    for sent in repeat([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]):
        process = start(["power", "solve", *words], cwd=tmp_path)
        wait_for_checkpoint(out, other_than=found)
        process.send_signal(sent)
        errors = process.communicate(timeout=20)[1]
        how, status = endings[sent]
        said = f"tacit: {how}; continue with: tacit power solve --resume {out}\n"
        assert process.returncode == status and errors.endswith(said), errors
        found = (out / "checkpoint.npz").stat().st_mtime_ns
        words = ["--resume", str(out)]


def test_a_run_that_was_interrupted_after_its_result_is_made_whole(
    tmp_path, monkeypatch, command, refused
):
    out, kept = tmp_path / "r", None
    remove = Path.unlink

    def stop(path, **options):
        nonlocal kept
        if path.name == "checkpoint.npz":
            kept = path.read_bytes()
        remove(path, **options)

    monkeypatch.setattr(Path, "unlink", stop)
    words = ["power", "solve", "case9", "--no-noise", "--rounds", "2", "--out", out]
    before = command(*words, "--json")
    monkeypatch.undo()
    (out / "checkpoint.npz").write_bytes(kept)  # as if killed just before that
    (out / "bus.csv").unlink()
    assert command("power", "solve", "--resume", out, "--json") == before
    assert not (out / "checkpoint.npz").exists() and (out / "bus.csv").exists()
    assert "is finished: tacit show r" in refused("power solve --resume r")


def test_ignored_interrupts_stay_ignored():
    """As for a job in the background of a script."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from tacit.cli import interrupts; interrupts.watch()\n"
    code += "import os; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


@pytest.mark.parametrize("arguments", ["--help", "account --total-epsilon 1 --total-delta 1e-5"])
def test_a_closed_pipe_is_quiet(arguments):
    more = ["--updates", "10"] if arguments != "--help" else []
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*TACIT, *arguments.split(), *more], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    # argparse itself passes over a closed pipe if output is not buffered
    assert done.returncode == 141 or (arguments == "--help" and done.returncode == 0)
    assert done.stderr == b""


# conftest.py imports Tacit first
@pytest.mark.parametrize("order", ["import jax, tacit", *repeat([], ["import tacit, jax"])])
def test_importing_tacit_switches_to_64_bits(order):
    """Whichever is first; solve is a function."""
    code = (
        f"{order}; import tacit.transports; print(jax.config.jax_enable_x64, callable(tacit.solve))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
