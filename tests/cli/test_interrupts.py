"""Ctrl-C and termination at several moments: one line, status 128 + signal. Pipes that close."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import repeat

# what the installed script does
TACIT = [sys.executable, "-c", "import sys; from tacit.__main__ import main; sys.exit(main())"]
JOB = Path(__file__).parents[2] / "examples" / "wine.toml"
BUDGET = "--total-epsilon 1 --total-delta 1e-5"
COMMANDS = {
    "solve": f"solve {JOB}",
    "power": f"power solve case14 {BUDGET} --rounds 30 --noise-every-round",
    "learn": f"learn digits --agents 5 {BUDGET}",
}


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
        *[("solve", 0.6), ("learn", 2.7)],  # imports, rounds
        *repeat(
            [], [("solve", 0.3), ("solve", 1.7), ("power", 0.9), ("power", 2.2), ("learn", 1.3)]
        ),
    ],
)
def test_one_line_and_status_130_at_any_moment(tmp_path, command, moment):
    process, errors, out = None, "", tmp_path / "r"
    while process is None or (process.returncode in (-2, 1) and "/tacit/" not in errors):
        process = start([*COMMANDS[command].split(), "--out", str(out)], cwd=tmp_path)
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        errors = process.communicate(timeout=20)[1]
        if (out / "result.json").exists():  # on a fast machine the run was over
            return
        moment *= 2  # on a loaded one Python itself was starting
    said = [line for line in errors.splitlines() if line.startswith("tacit: interrupted")]
    assert process.returncode == 130 and len(said) == 1 and errors.endswith(said[0] + "\n")
    assert "Traceback" not in errors and time.monotonic() - sent < 5


def test_an_interrupted_run_continues_from_its_release(tmp_path, command, refused):
    """Inside the rounds, where the checkpoint is there, and to the same bits."""
    run = f"power solve case14 {BUDGET} --seed 1 --tolerance 1e-12 --rounds 120"
    run += " --mechanism gaussian"  # the least noise of both is looked for in a second and more
    process, deadline = start([*run.split(), "--out", "r"], cwd=tmp_path), time.time() + 120
    while not (tmp_path / "r" / "checkpoint.npz").exists():
        assert time.time() < deadline, "no checkpoint within two minutes"
        time.sleep(0.01)
    process.terminate()
    errors = process.communicate(timeout=60)[1]
    said = "tacit: terminated; continue with: tacit power solve --resume r\n"
    assert process.returncode == 143 and errors.endswith(said), errors
    assert "tacit power solve --resume r" in refused(f"{run} --out r")
    command("power", "solve", "--resume", tmp_path / "r")
    command(*run.split(), "--out", tmp_path / "w")
    a, b = (np.load(tmp_path / name / "arrays.npz") for name in "rw")
    assert all(np.array_equal(a[name], b[name]) for name in a.files)


def test_ignored_interrupts_stay_ignored():
    """As for a job in the background of a script."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "import tacit.__main__; tacit.__main__.watch()\n"
    code += "import os; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    words = ["account", "--total-epsilon", "1", "--total-delta", "1e-5", "--updates", "10"]
    done = subprocess.run([*TACIT, *words], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""


# conftest.py imports Tacit first
@pytest.mark.parametrize("order", ["import jax, tacit", *repeat([], ["import tacit, jax"])])
def test_importing_tacit_switches_to_64_bits(order):
    """Whichever is first; solve is a function."""
    code = (
        f"{order}; import tacit.transports; print(jax.config.jax_enable_x64, callable(tacit.solve))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
