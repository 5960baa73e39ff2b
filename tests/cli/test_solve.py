"""``tacit solve`` and ``tacit show``, and commands in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import EXHAUSTIVE, repeat

import tacit
from tacit.studies.job import load_job

TACIT = Path(sys.executable).parent / "tacit"
# SIGINT as a terminal's child has it, also where the tests run in the background
HEARING = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


@pytest.mark.parametrize(
    "words",
    ["account", "solve", "show", "demo", "power solve", "learn", "learn attack", "learn download"],
)
def test_every_command_has_help_with_an_example(words, command):
    text = command(*words.split(), "--help")
    assert f"tacit {words}" in text.split("example:")[1] and "--json" in text
    if words == "learn":  # beside DATA, which they are not
        assert "tacit learn attack --help" in text and "tacit learn download --help" in text


def test_solve_and_show(job, tmp_path, command):
    out = tmp_path / "result"
    document = json.loads(command("solve", job, "--out", out, "--json"))
    assert document["summary"]["round"] == 20
    assert 1.998 <= document["summary"]["epsilon"] <= 2.0
    assert document["agents"] == ["north", "south"]
    result = tacit.Result.load(out)
    assert document["solution"] == result.solution.tolist()
    assert list(result.trace["round"]) == list(range(2, 21, 2))
    assert not (out / "checkpoint.npz").exists()
    (out / "plot.png").unlink()
    again = command("show", out)
    assert "(2, 1e-05)-DP" in again and "total epsilon" in again
    assert (out / "plot.png").exists()
    assert json.loads(command("show", out, "--json")) == document


@pytest.mark.exhaustive  # test_solve_and_show has one of this kind, in one process
def test_solve_and_show_in_processes_of_their_own(job, tmp_path):
    out = tmp_path / "result"
    done = subprocess.run(
        [TACIT, "solve", job, "--out", out, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["solution"] == tacit.Result.load(out).solution.tolist()
    again = subprocess.run([TACIT, "show", out], capture_output=True, text=True, check=True).stdout
    assert "(2, 1e-05)-DP" in again


def test_the_job_is_the_library_call(job, tmp_path, command):
    """The same problem written in Python gives the same numbers."""
    loaded = load_job(job)
    out = tmp_path / "result"
    command("solve", job, "--out", out)
    direct = tacit.solve(loaded.problem, loaded.settings, seed=3, run="job", evaluate_every=2)
    np.testing.assert_array_equal(tacit.Result.load(out).solution, direct.solution)


def test_an_option_comes_before_the_job_s_key(job, tmp_path, command):
    """And the folder notes which it was."""
    loaded = load_job(job)
    options = ("--seed", 8, "--evaluate-every", 5, "--workers", 1)
    command("solve", job, "--out", tmp_path / "r", *options)
    result = tacit.Result.load(tmp_path / "r")
    direct = tacit.solve(loaded.problem, loaded.settings, seed=8, run="job", evaluate_every=5)
    np.testing.assert_array_equal(result.solution, direct.solution)
    assert result.seed == 8 and list(result.trace["round"]) == [5, 10, 15, 20]
    noted = json.loads((tmp_path / "r" / "run.json").read_text())["options"]
    assert (noted["seed"], noted["evaluate_every"], noted["workers"]) == (8, 5, 1)
    command("solve", job, "--out", tmp_path / "own")
    noted = json.loads((tmp_path / "own" / "run.json").read_text())["options"]
    assert (noted["seed"], noted["evaluate_every"], noted["workers"]) == (3, 2, None)


# test_ledger_cli.py has one of this kind, transports/test_resume.py and test_run_folder.py the bits
@pytest.mark.exhaustive
def test_resume_after_a_kill_gives_the_same_result(job, tmp_path, command, refused):
    slow = job.read_text().replace("rounds = 20", "rounds = 1500")
    job.write_text(slow.replace("= 2\n[obj", "= 1\n[obj"))
    out, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen([TACIT, "solve", job, "--out", out], stderr=subprocess.DEVNULL)
    deadline = time.time() + 120
    while not (out / "checkpoint.npz").exists() and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (out / "checkpoint.npz").exists() and not (out / "result.json").exists()
    assert "tacit solve --resume" in refused("solve job.toml --out killed")
    command("solve", "--resume", out)
    command("solve", job, "--out", whole)
    a, b = tacit.Result.load(out), tacit.Result.load(whole)
    np.testing.assert_array_equal(a.solution, b.solution)
    for name in a.trace:
        np.testing.assert_array_equal(a.trace[name], b.trace[name])


def test_solve_needs_a_job_or_a_folder(refused):
    assert "--resume DIR" in refused("solve")
    assert "run.json" in refused("solve --resume .")
    assert "result.json" in refused("show none")


@pytest.mark.exhaustive  # test_an_interrupted_run_continues_from_its_release
def test_an_interrupted_command_says_how_to_continue(job, tmp_path):
    job.write_text(job.read_text().replace("rounds = 20", "rounds = 1000000"))
    out = tmp_path / "r"
    process = subprocess.Popen(
        [*HEARING, TACIT, "solve", job, "--out", out], stderr=subprocess.PIPE, text=True
    )
    file, seen, deadline = out / "checkpoint.npz", set(), time.time() + 120
    while time.time() < deadline and len(seen) < 3:  # well inside the loop
        if file.exists():
            seen.add(file.stat().st_mtime_ns)
        time.sleep(0.01)
    for _ in range(30):  # a library may swallow one interrupt
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=2)
            break
        except subprocess.TimeoutExpired:
            continue
    process.kill()  # where interrupts are ignored, as in some background jobs
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == 130 and f"continue with: tacit solve --resume {out}" in errors


def test_demo(tmp_path, capsys, monkeypatch, drawn):
    from tacit.cli.main import main
    from tacit.lab import demo_problems

    if not EXHAUSTIVE:  # curves of one point
        monkeypatch.setattr(demo_problems, "EPSILONS", (2.0,))
        monkeypatch.setattr(demo_problems, "SEEDS", range(1))
    assert main(["demo", "--out", str(tmp_path / "demo"), "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    digits, diabetes = document["problems"]
    for row in (digits, diabetes):
        assert row["violation"] <= 1e-8 and 1.99 <= row["epsilon"] <= 2.0
        # near the non-private answer: at most a tenth of the way to none at all
        way = row["without_data"] - row["non_private"]
        assert row["private"] <= row["non_private"] + 0.1 * way, row
        assert list(row["by_epsilon"]) == repeat(["2.0"], ["0.5", "1.0", "2.0", "4.0"])
    assert digits["non_private"] < 0.04 and digits["without_data"] == 0.9
    assert diabetes["non_private"] == pytest.approx(0.0715, abs=1e-3)  # SciPy, by hand
    assert "budgets" in said.err  # the progress bar
    assert Path(document["plot"]).stat().st_size > 10_000
    assert os.path.exists(tmp_path / "demo" / "digits" / "result.json")
