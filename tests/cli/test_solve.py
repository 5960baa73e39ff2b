"""``tacit solve`` and ``tacit show``, and commands in processes of their own."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import EXHAUSTIVE, repeat

import tacit
from tacit.studies.job import load_job

TACIT = Path(sys.executable).parent / "tacit"


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
