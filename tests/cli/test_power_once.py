"""``tacit power solve`` reads the loads once: interrupted, paid, and refused."""

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import repeat
from test_power_cli import HEARING, TACIT, run  # noqa: F401 (a fixture)

import tacit
from tacit.errors import SolverFailure

BUDGET = "--total-epsilon 1 --total-delta 1e-5"


def test_stops_at_a_tolerance_and_says_so(tmp_path, run):  # noqa: F811
    command = f"power solve case14 {BUDGET} --seed 5 --tolerance 1e-3 --json --out r"
    document = json.loads(run(command))
    assert document["converged"] and document["summary"]["round"] <= 60
    assert document["privacy"]["once"] and document["privacy"]["certified"]
    assert document["summary"]["not_covered"] == []
    assert "p_demand" in document["tables"]["bus"] and "tables.bus" in document["not_covered"]
    assert not (tmp_path / "r" / "checkpoint.npz").exists()
    said = run("show r")
    assert "one reading of its data" in said and "read once" in said
    few = run(f"power solve case14 {BUDGET} --rounds 2 --out f")
    assert "NOT reached" in few and "Laplace noise adds least" in few


def test_an_interrupted_run_continues_from_its_release(tmp_path, command, refused):
    words = f"power solve case14 {BUDGET} --seed 1 --tolerance 1e-12 --rounds {repeat(120, 400)}"
    words += " --mechanism gaussian"  # the least noise of both is looked for in a second and more
    process = subprocess.Popen(
        [*HEARING, TACIT, *words.split(), "--out", "r"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    file, deadline = tmp_path / "r" / "checkpoint.npz", time.time() + 120
    while time.time() < deadline and not file.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    said = "tacit: interrupted; continue with: tacit power solve --resume r\n"
    assert process.returncode == 130 and errors.endswith(said), errors
    assert "tacit power solve --resume r" in refused(f"{words} --out r")
    command(*["power", "solve", "--resume"], tmp_path / "r")
    command(*words.split(), "--out", tmp_path / "w")
    a, b = (np.load(tmp_path / name / "arrays.npz") for name in "rw")
    assert all(np.array_equal(a[name], b[name]) for name in a.files)


def test_zones_pay_once(tmp_path, command, refused):
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    books = [tacit.Ledger.create(ledgers / f"zone {i}.db", 1.0, 1e-5) for i in (1, 2, 3)]
    words = f"power solve case14 {BUDGET} --tolerance 1e-3".split()
    for name in ("a", "b"):
        command(*words, "--ledgers", ledgers, "--out", tmp_path / name)
    a, b = (np.load(tmp_path / name / "arrays.npz") for name in "ab")
    assert all(np.array_equal(a[name], b[name]) for name in a.files)
    for book in books:
        assert sum(r["rounds_charged"] for r in book.runs()) == 1
        assert 0.99 < book.spent.epsilon <= 1.0
    more = ["power", "solve", "case14", "--total-epsilon", "0.5", "--total-delta", "1e-5"]
    assert "beyond the budget" in refused(" ".join([*more, "--ledgers", str(ledgers), "--out c"]))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"{BUDGET} --local-updates 5", "local_updates beside noise_every_round"),
        (f"{BUDGET} --noise-on gradient", "noise_on beside noise_every_round"),
        (
            f"{BUDGET} --noise-every-round --tolerance 1e-3",
            "tolerance where",
        ),
        (
            f"{BUDGET} --noise-every-round --objective cost",
            "objective where",
        ),
        ("--no-noise --publish", "publish"),
        ("--epsilon 1 --delta 1e-5 --tolerance 1e-3", "tolerance where"),
        (f"{BUDGET} --tolerance 0", "tolerance"),
        (f"{BUDGET} --tolerance nan", "tolerance"),
    ],
)
def test_what_does_not_apply_is_refused(options, words, tmp_path, refused):
    assert words in refused(f"power solve case14 {options} --out r")
    assert not (tmp_path / "r").exists()


def test_what_is_not_certified_is_not_published(tmp_path, refused):
    words = f"power solve case14 {BUDGET} --publish --out r --beta"
    assert "certified beside --publish" in refused(words, "1% of bus")
    assert not (tmp_path / "r").exists()


def test_a_failure_after_the_payment_leaves_the_release(tmp_path, refused, monkeypatch):
    """It is paid for: its folder is not that of a start that was refused."""
    (tmp_path / "ledgers").mkdir()
    for i in (1, 2, 3):
        tacit.Ledger.create(tmp_path / "ledgers" / f"zone {i}.db", 1.0, 1e-5)

    def fails(*_):
        raise SolverFailure("planted")

    monkeypatch.setattr("tacit.protocol.public_agent.PublicAgent.respond", fails)
    said = refused(f"power solve case14 {BUDGET} --ledgers ledgers --out r")
    assert "Continue with: tacit power solve --resume r" in said
    assert (tmp_path / "r" / "checkpoint.npz").exists()


def test_released_numbers_of_a_job_are_published(tmp_path, command, refused):
    example = Path(__file__).parents[2] / "examples" / "hospitals.toml"
    command("solve", example, "--publish", "--out", tmp_path / "p")
    path = tmp_path / "p" / "release.npz"
    assert path.stat().st_mode & 0o777 == 0o644
    with np.load(path) as released:
        assert set(released.files) == {f"{n} hospital" for n in ("North", "South", "West")}
        assert released["North hospital"].shape == (20,)  # X'X of 5 columns, and X'y
    wine = example.with_name("wine.toml")
    assert "reads its data once beside --publish" in refused(f"solve {wine} --publish --out w")
    assert not (tmp_path / "w").exists()


def test_least_cost_beside_one_solver(tmp_path, command):
    words = f"power solve case14_ieee {BUDGET} --seed 1 --objective cost --central --json"
    found = json.loads(command(*words.split(), "--out", tmp_path / "c"))
    zones, one = found["answer"], found["central"]
    assert zones["cost"] == pytest.approx(one["cost"], rel=1e-3)
    assert one["published"] == 2178.1 and one["bound"] == pytest.approx(2175.7, abs=0.1)
    assert found["shed_price"] > 0 and "answer" in found["not_covered"]
