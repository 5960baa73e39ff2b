"""Ctrl-C and termination at several moments: one line, status 128 + signal. Pipes that close."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import repeat

# what the installed script does
TACIT = [sys.executable, "-c", "import sys; from tacit.__main__ import main; sys.exit(main())"]
JOB = Path(__file__).parents[2] / "examples" / "wine.toml"
COMMANDS = {
    "solve": f"solve {JOB}",
    "power": "power solve case14 --total-epsilon 1 --total-delta 1e-5 --rounds 30 "
    "--noise-every-round",
    "learn": "learn digits --agents 5 --total-epsilon 1 --total-delta 1e-5",
}
WORDS = {signal.SIGTERM: ("terminated", 143), signal.SIGINT: ("interrupted", 130)}


def start(arguments, **options):
    # a background job may ignore interrupts, and its children then do as well
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*TACIT, *arguments], **pipes, **options)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        *[("solve", 0.3), ("solve", 0.6), ("learn", 2.7)],  # imports, compilation, rounds
        *repeat([], [("solve", 1.7), ("power", 0.9), ("power", 2.2), ("learn", 1.3)]),
    ],
)
def test_one_line_and_status_130_at_any_moment(tmp_path, command, moment):
    process, errors = None, ""
    while process is None or (process.returncode in (-2, 1) and "/tacit/" not in errors):
        process = start([*COMMANDS[command].split(), "--out", str(tmp_path / "r")], cwd=tmp_path)
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        errors = process.communicate(timeout=20)[1]
        moment *= 2  # on a loaded machine Python itself was starting
    if process.returncode == 0:  # on a fast one the run was over
        return
    said = [line for line in errors.splitlines() if line.startswith("tacit: interrupted")]
    assert process.returncode == 130 and len(said) == 1 and errors.endswith(said[0] + "\n")
    assert "Traceback" not in errors and time.monotonic() - sent < 5


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
    # test_power_once.py interrupts one such
    for sent in repeat([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]):
        process = start(["power", "solve", *words], cwd=tmp_path)
        wait_for_checkpoint(out, other_than=found)
        process.send_signal(sent)
        errors = process.communicate(timeout=20)[1]
        how, status = WORDS[sent]
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
    code += "import tacit.__main__; tacit.__main__.watch()\n"
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
