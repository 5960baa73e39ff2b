"""The command line, end to end, in real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.jobs.job import load_job

TACIT = Path(sys.executable).parent / "tacit"


def run(*arguments, cwd=None, check=True):
    done = subprocess.run(
        [TACIT, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def account(*arguments):
    return json.loads(run("account", *arguments, "--json").stdout)


def test_account_of_the_papers_largest_run():
    totals = account("--mechanism", "gaussian", "--epsilon", 1, "--delta", 1e-6, "--updates", 50000)
    assert totals["paper"]["epsilon"] == pytest.approx(221.8, abs=0.1)
    assert totals["exact"]["epsilon"] == pytest.approx(1090.0, abs=0.1)
    assert totals["basic"] == {"epsilon": 50000.0, "delta": pytest.approx(0.05)}
    assert totals["exact"]["delta"] == 1e-6


def test_account_where_the_paper_overstates():
    totals = account("--epsilon", 0.1, "--delta", 1e-2, "--updates", 500)
    assert totals["exact"]["epsilon"] == pytest.approx(1.493, abs=0.002)


def test_account_laplace():
    totals = account("--mechanism", "laplace", "--epsilon", 0.1, "--updates", 500)
    assert totals["exact"]["epsilon"] == pytest.approx(50) and totals["paper"] is None
    smaller = account("--mechanism", "laplace", "--epsilon", 0.1, "--delta", 1e-6, "--updates", 500)
    assert 12 < smaller["exact"]["epsilon"] < 13


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_account_for_a_total_budget(mechanism):
    found = account(
        *("--total-epsilon", 1, "--total-delta", 1e-5, "--updates", 1500, "--mechanism", mechanism)
    )
    kind = {"gaussian": tacit.Gaussian, "laplace": tacit.Laplace}[mechanism]
    from tacit.privacy.accounting import exact

    spent = exact(kind(found["noise_multiplier"]), 1500, 1e-5).epsilon
    assert 0.999 <= spent <= 1.0


def test_account_table_labels_the_papers_theorem():
    text = run("account", "--epsilon", 1, "--delta", 1e-6, "--updates", 50000).stdout
    assert "understates" in text and "1090.0" in text and "221.8" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "-1", "--delta", "1e-6"], "epsilon=-1.0"),
        (["--epsilon", "nan", "--delta", "1e-6"], "epsilon=nan"),
        (["--epsilon", "1", "--delta", "2"], "delta=2.0"),
        (["--epsilon", "1"], "delta"),
        ([], "either --epsilon"),
        (["--epsilon", "1", "--delta", "1e-5", "--total-epsilon", "1"], "either --epsilon"),
        (["--total-epsilon", "1"], "--total-delta"),
        (["--total-epsilon", "1", "--delta", "0.1"], "got --delta"),
    ],
)
def test_account_names_what_is_wrong(arguments, words):
    done = run("account", "--updates", 10, *arguments, check=False)
    assert done.returncode == 2 and words in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["account", "solve", "show", "demo"])
def test_every_command_has_help_with_an_example(command):
    text = run(command, "--help").stdout
    assert f"tacit {command}" in text.split("example:")[1] and "--json" in text


JOB = """
seed = 3
evaluate_every = 2
[objective]
kind = "least-squares"
feature_norm = 2.0
target_bound = 1.5
normaliser = 60
[set]
kind = "polyhedron"
matrix = [[1.0, 1.0]]
offset = [1.0]
lower = -1.0
upper = 1.0
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[algorithm]
rounds = 20
local_updates = 2
[[agents]]
name = "north"
data = "north.csv"
target = "y"
[[agents]]
name = "south"
data = "south.npz"
"""


@pytest.fixture
def job(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        X = rng.normal(size=(30, 2))
        y = X @ [0.5, -0.2] + 0.1 * rng.normal(size=30)
        if name == "north":
            rows = ["a,y,b", *(f"{x[0]},{v},{x[1]}" for x, v in zip(X, y, strict=True))]
            (tmp_path / "north.csv").write_text("\n".join(rows) + "\n")
        else:
            np.savez(tmp_path / "south.npz", features=X, targets=y)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_solve_and_show(job, tmp_path):
    out = tmp_path / "result"
    document = json.loads(run("solve", job, "--out", out, "--json").stdout)
    assert document["summary"]["round"] == 20
    assert 1.998 <= document["summary"]["epsilon"] <= 2.0
    assert document["agents"] == ["north", "south"]
    result = tacit.Result.load(out)
    assert document["solution"] == result.solution.tolist()
    assert list(result.trace["round"]) == list(range(2, 21, 2))
    assert not (out / "checkpoint.npz").exists()
    (out / "plot.png").unlink()
    text = run("show", out).stdout
    assert "(2, 1e-05)-DP" in text and "total epsilon" in text
    assert (out / "plot.png").exists()
    assert json.loads(run("show", out, "--json").stdout)["privacy"] == document["privacy"]


def test_the_job_is_the_library_call(job, tmp_path):
    """The same problem written in Python gives the same numbers."""
    loaded = load_job(job)
    out = tmp_path / "result"
    run("solve", job, "--out", out)
    direct = tacit.solve(loaded.problem, loaded.settings, seed=3, run="job", evaluate_every=2)
    np.testing.assert_array_equal(tacit.Result.load(out).solution, direct.solution)


def test_resume_after_a_kill_gives_the_same_result(job, tmp_path):
    slow = job.read_text().replace("rounds = 20", "rounds = 1500").replace("= 2\n[obj", "= 1\n[obj")
    job.write_text(slow)
    out, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen([TACIT, "solve", job, "--out", out], stderr=subprocess.DEVNULL)
    deadline = time.time() + 120
    while not (out / "checkpoint.npz").exists() and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (out / "checkpoint.npz").exists() and not (out / "result.json").exists()
    refused = run("solve", job, "--out", out, check=False)
    assert refused.returncode == 2 and "--resume" in refused.stderr
    run("solve", "--resume", out)
    run("solve", job, "--out", whole)
    a, b = tacit.Result.load(out), tacit.Result.load(whole)
    np.testing.assert_array_equal(a.solution, b.solution)
    for name in a.trace:
        np.testing.assert_array_equal(a.trace[name], b.trace[name])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "least-squares"', 'kind = "cubic"', "'cubic'"),
        ('kind = "polyhedron"', 'kind = "torus"', "'torus'"),
        ("feature_norm = 2.0", "feature_norm = -2.0", "feature_norm=-2.0"),
        ("feature_norm = 2.0", "colour = 2.0", "colour"),
        ("feature_norm = 2.0\n", "", "feature_norm"),
        ("total_epsilon = 2.0", "total_epsilon = 0.0", "total_epsilon=0.0"),
        ("total_delta = 1e-5", "total_delta = 1.5", "delta=1.5"),
        ("total_delta = 1e-5", "delta = 1e-5", "delta"),
        ("rounds = 20", "rounds = 0", "rounds=0"),
        ("rounds = 20", "turns = 20", "turns"),
        ('target = "y"', 'target = "z"', "column 'z'"),
        ("north.csv", "gone.csv", "gone.csv"),
        ("south.npz", "job.toml", "job.toml"),
        ("offset = [1.0]", "offset = [-9.0]", "empty"),
        ("offset = [1.0]", "offset = [1.0, 2.0]", "offset"),
        ('name = "south"', 'name = "north"', "'north' twice"),
        ("[privacy]", "[secrecy]", "secrecy"),
        ("seed = 3", "seed = -3", "seed=-3"),
        ("seed = 3", "seed = ", "TOML"),
        ("matrix = [[1.0, 1.0]]", "matrix = [[1.0, 1.0], [1.0]]", "equal length"),
        ("total_epsilon = 2.0\n", "", "total_epsilon"),
        ("total_delta = 1e-5", 'mechanism = "none"', "no total_epsilon"),
        ("local_updates = 2", "penalty = 5", "penalty"),
        (
            "local_updates = 2",
            'step_size = { kind = "geometric", initial = 1, ratio = "a" }',
            "ratio",
        ),
        ('data = "north.csv"', "data = 5", "data file as text"),
        ('kind = "polyhedron"', 'kind = ["box"]', "kind"),
        ("total_delta = 1e-5\n", "", "total_delta"),
        ("total_epsilon = 2.0", 'total_epsilon = "2"', "total_epsilon='2'"),
        ('target = "y"', 'target = "y"\nobjective = "x"', "table objective"),
    ],
)
def test_bad_jobs_are_refused_with_one_clear_line(old, new, words, job, tmp_path):
    assert old in JOB
    job.write_text(JOB.replace(old, new, 1))
    out = tmp_path / "result"
    done = run("solve", job, "--out", out, check=False)
    assert done.returncode in (1, 2) and words in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert not (out / "result.json").exists()


def test_bad_data_are_refused(job, tmp_path):
    lines = (tmp_path / "north.csv").read_text().splitlines()
    for broken, words in (
        (["1,nan,2"], "finite numbers in targets"),
        (["1,x,2"], "north.csv"),
        (["1,2"], "north.csv"),
    ):
        (tmp_path / "north.csv").write_text("\n".join(lines[:5] + broken))
        done = run("solve", job, "--out", tmp_path / "r", check=False)
        assert done.returncode in (1, 2) and words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    (tmp_path / "south.npz").write_bytes(b"PK not a zip")
    assert "north.csv" in run("solve", job, "--out", tmp_path / "r", check=False).stderr


def test_a_data_file_cannot_set_public_bounds(job, tmp_path):
    with np.load(tmp_path / "south.npz") as data:
        np.savez(tmp_path / "south.npz", feature_norm=np.array(0.001), **data)
    done = run("solve", job, "--out", tmp_path / "r", check=False)
    assert done.returncode == 2 and "feature_norm" in done.stderr
    assert "Public bounds belong in the job file" in done.stderr


def test_labels_may_come_from_a_csv(job, tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n0.5,1\n-0.3,0\n0.2,1\n")
    text = JOB.replace('"least-squares"', '"logistic"').replace("target_bound = 1.5\n", "")
    text = text.replace('"polyhedron"', '"box"').replace(
        "matrix = [[1.0, 1.0]]\noffset = [1.0]\n", ""
    )
    text = text[: text.index("[[agents]]")] + '[[agents]]\ndata = "a.csv"\ntarget = "label"\n'
    (tmp_path / "labels.toml").write_text(text)
    assert load_job(tmp_path / "labels.toml").problem.agents[0].objective.sample_count == 3


def test_an_unusable_folder_is_one_clear_line(job, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("solve", job, "--out", tmp_path / "file", check=False)
    assert done.returncode == 2 and "Expected a folder" in done.stderr and "file" in done.stderr


def test_solve_needs_a_job_or_a_folder(tmp_path):
    assert run("solve", check=False).returncode == 2
    done = run("solve", "--resume", tmp_path, check=False)
    assert done.returncode == 2 and "no checkpoint" in done.stderr
    assert run("show", tmp_path / "none", check=False).returncode == 1


def test_demo(tmp_path):
    done = run("demo", "--out", tmp_path / "demo", "--json")
    document = json.loads(done.stdout)
    digits, diabetes = document["problems"]
    for row in (digits, diabetes):
        assert row["optimum"] <= row["objective"] + 1e-9
        assert row["violation"] <= 1e-8 and 1.99 <= row["epsilon"] <= 2.0
    assert digits["objective"] < 0.8 * np.log(10)  # better than guessing
    assert "rounds" in done.stderr  # the progress bar
    assert Path(document["plot"]).stat().st_size > 10_000
    assert os.path.exists(tmp_path / "demo" / "digits" / "result.json")


COUPLED = """
[objective]
kind = "residual"
beta = 0.01
[set]
kind = "box"
lower = -1.0
upper = 1.0
[privacy]
mechanism = "laplace"
epsilon = 0.5
perturbation = "projected-output"
[algorithm]
rounds = 6
local_updates = 2
penalty = { kind = "constant", value = 2.0 }
step_size = { kind = "nonsmooth", scale = 0.1 }
[[agents]]
name = "left"
data = "left.npz"
coupling = [0, 1, -1]
[[agents]]
name = "right"
data = "right.npz"
coupling = [-1, 1, 0]
set = { upper = 0.5 }
"""


def test_a_job_with_coupling_schedules_and_a_budget_per_update(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        np.savez(tmp_path / f"{name}.npz", matrix=rng.normal(size=(4, 3)), data=rng.normal(size=4))
    (tmp_path / "grid.toml").write_text(COUPLED)
    job = load_job(tmp_path / "grid.toml")
    assert job.problem.size == 2 and not job.problem.is_global
    assert job.problem.agents[1].feasible_set.project(np.ones(3)).max() == 0.5
    assert job.settings.mechanism == tacit.Laplace.of_epsilon(0.5)
    assert job.settings.perturbation == "projected-output"
    assert job.settings.penalty == tacit.ConstantPenalty(2.0)
    out = tmp_path / "out"
    document = json.loads(run("solve", tmp_path / "grid.toml", "--out", out, "--json").stdout)
    assert document["privacy"]["epsilon"] == pytest.approx(6)  # 12 updates of 0.5, delta 0
    assert document["noise_source"] == "operating system key, Threefry"
    assert "0.01" in document["privacy"]["statement"]
    words = COUPLED.replace("beta = 0.01", 'beta = 0.01\nchange = "all data"')
    (tmp_path / "words.toml").write_text(words)
    with pytest.raises(InvalidInput, match="change"):  # a statement is not the job's to word
        load_job(tmp_path / "words.toml")


def test_feature_columns_must_agree(job, tmp_path):
    text = job.read_text().replace('data = "south.npz"', 'data = "south.csv"\ntarget = "y"')
    job.write_text(text)
    for header, words in (
        ("b,y,a", "in this order"),
        ("a,y,a", "one twice"),
        ("1,y,2", "found numbers"),
    ):
        (tmp_path / "south.csv").write_text(f"{header}\n0.1,0.2,0.3\n")
        done = run("solve", job, "--out", tmp_path / "r", check=False)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    (tmp_path / "south.csv").write_text("a,y,b\n0.1,0.2,0.3\n0.1,,0.3\n")
    assert "line 3 of" in run("solve", job, "--out", tmp_path / "r", check=False).stderr


def test_a_finished_result_is_not_overwritten(job, tmp_path):
    out = tmp_path / "result"
    run("solve", job, "--out", out)
    before = (out / "arrays.npz").read_bytes()
    done = run("solve", job, "--out", out, check=False)
    assert done.returncode == 2 and "budget is spent" in done.stderr
    assert (out / "arrays.npz").read_bytes() == before


# SIGINT as a terminal's child has it, also where the tests run in the background
HEARING = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


def test_an_interrupted_command_says_how_to_go_on(job, tmp_path):
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
    assert process.returncode == 130 and f"tacit solve --resume {out}" in errors


def test_price_of_a_noise_multiplier_and_version():
    totals = account("--noise-multiplier", 144.487, "--delta", 1e-5, "--updates", "1.5e3")
    assert totals["exact"]["epsilon"] == pytest.approx(1.0, abs=1e-4)
    assert run("--version").stdout.strip() == "tacit 0.1.0"


def test_the_command_pays_in_blocks(job, tmp_path, capsys):
    folder = tmp_path / "ledgers"
    folder.mkdir()
    for name in ("north", "south"):
        tacit.Ledger.create(folder / f"{name}.db", 9.0, 1e-5)
    words = ["solve", str(job), "--ledgers", str(folder), "--block", "8", "--json"]
    job.write_text(job.read_text().replace("seed =", "# seed ="))  # the noise is secure
    assert main([*words, "--out", str(tmp_path / "r")]) == 0, capsys.readouterr().err
    for name in ("north", "south"):
        ledger = tacit.Ledger(folder / f"{name}.db")
        (paid,) = ledger.runs()
        assert ledger.charged(paid["run"]) == [(1, 8), (9, 16), (17, 20)]


def test_an_interrupted_run_is_not_started_over(job, tmp_path, capsys):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "checkpoint.npz").write_bytes(b"what an interrupted run left")
    assert main(["solve", str(job), "--out", str(folder)]) == 2
    assert "An interrupted run is in" in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["checkpoint.npz"]
