"""The command ``tacit ledger``, and runs that pay from ledgers."""

import json
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from test_ledger import terms

import tacit
from tacit import Box, LocalProblem, Residual
from tacit.cli.console import spent_rows
from tacit.privacy.accounting import Guarantee
from tacit.privacy.ledger import Ledger, amounts

ROUNDS = 60
EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals.toml"


@pytest.fixture
def shown(command):
    """What ``tacit ledger show`` says of a ledger: in words, and as a document."""
    return lambda path: (
        command("ledger", "show", path),
        json.loads(command("ledger", "show", path, "--json")),
    )


@pytest.fixture
def budget(command, tmp_path):
    """Sets the budget of agent one."""

    def run(epsilon, delta=1e-5):
        path = tmp_path / "agent one.db"
        words = ("--total-epsilon", epsilon, "--total-delta", delta)
        return command("ledger", "budget", path, *words)

    return run


def test_commands(tmp_path, command, budget, shown):
    path = tmp_path / "agent one.db"
    budget(4)
    ledger = Ledger(path)
    ledger.begin("winter", terms())
    ledger.charge("winter", 1, 5)
    text, document = shown(path)
    assert document["budget"] == {"epsilon": 4.0, "delta": 1e-5}
    assert document["spent"]["epsilon"] == ledger.spent.epsilon
    assert document["runs"][0]["run"] == "winter" and document["head"] == ledger.head
    assert "winter" in text and "budget" in text and ledger.head[:16] in text
    budget(3)
    assert ledger.budget.epsilon == 3.0
    command("ledger", "backup", path, tmp_path / "copy.db", "--json")
    assert Ledger(tmp_path / "copy.db").head == ledger.head


def test_releases_are_listed(tmp_path, shown):
    ledger = Ledger.create(tmp_path / "north.db", 4.0, 1e-5)
    agents = [
        LocalProblem(Residual(np.eye(2), [0.1, 0.2], beta=0.1), Box(-1, 1, size=2), name="north")
    ]
    tacit.release(agents, 1.0, 1e-5, ledgers={"north": ledger})
    settings = tacit.Settings.for_budget(1.0, 1e-5, 1, penalty=1.0, step_size=0.1)
    tacit.solve(agents, settings, ledgers={"north": ledger})  # one round is no release
    text, document = shown(ledger.path)
    first, second = document["runs"]
    assert first["read_once"] and first["run"].startswith("release-")
    assert first["rounds_charged"] == first["rounds_answered"] == 1
    assert not second["read_once"] and second["rounds_agreed"] == 1
    assert "one release" in text and "kept" in text and "1 of 1" in text


def test_commands_refuse(tmp_path, refused):
    budget = "--total-epsilon 0 --total-delta 1e-5"
    (tmp_path / "text.db").write_text("hello")
    for words, said in (
        ("show none.db", "found none"),
        (f"budget none.db {budget}", "total_epsilon > 0"),
        ("show text.db", "Do not start afresh"),
    ):
        assert said in refused(f"ledger {words}")
    assert not (tmp_path / "none.db").exists()


def test_solve_with_ledgers_pays_resumes_and_refuses(tmp_path, command, refused):
    """End to end: each hospital's ledger, a killed run that goes on, and the end of the budget."""
    folder = tmp_path / "ledgers"
    folder.mkdir()
    job = tmp_path / "rounds.toml"  # the example with noise in every round
    text = EXAMPLE.read_text().replace('"data/', f'"{EXAMPLE.parent}/data/')
    job.write_text(text.replace("[[agents]]", f"[algorithm]\nrounds = {ROUNDS}\n\n[[agents]]", 1))
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith("name = ")]
    for name in names:
        Ledger.create(folder / f"{name}.db", 1.2, 1e-5)
    out = tmp_path / "first"
    words = [sys.executable, "-m", "tacit", "solve", job, "--ledgers", folder, "--out", out]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    watch = folder / f"{names[0]}.db"
    deadline = time.monotonic() + 120
    while not (runs := Ledger(watch).runs()) or runs[0]["rounds_answered"] < ROUNDS // 12:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    spent = Ledger(watch).runs()[0]
    assert ROUNDS // 12 <= spent["rounds_answered"] <= spent["rounds_charged"] < ROUNDS
    result = json.loads(command("solve", "--resume", out, "--json"))
    assert result["noise_source"] == "operating system, exact (secure)"
    for name in names:
        (run,) = Ledger(folder / f"{name}.db").runs()
        assert (run["rounds_charged"], run["rounds_answered"]) == (ROUNDS, ROUNDS)
        assert Ledger(folder / f"{name}.db").spent.epsilon <= 1.0
    assert "beyond the budget of 1.2" in refused(f"solve {job} --ledgers {folder} --out b")
    assert "--noise secure" in refused(f"solve --resume {out} --noise secure")


def test_a_raised_budget_shows(tmp_path, budget, shown):
    assert "raised from" not in (first := budget(3)) and "limits:" not in first
    assert budget(3).startswith("as it was: 3\n")
    assert budget(30).startswith("raised from 3 to 30\n")
    assert budget(2).startswith("lowered from 30 to 2\n")
    path = tmp_path / "agent one.db"
    today = Ledger(path).budgets[0].when[:10]
    text, document = shown(path)
    assert f"limits: 3 since {today}, 30 since {today}, 2 since {today}" in text
    limits = document["limits"]
    assert [limit["epsilon"] for limit in limits] == [3.0, 30.0, 2.0]
    assert [limit["delta"] for limit in limits] == [1e-5] * 3 and limits[0]["since"][:10] == today
    assert "changed from 2 to 1, delta from 1e-05 to 0.01" in budget(1, 1e-2)


def test_what_is_left_always_shows(tmp_path, shown):
    path = tmp_path / "north.db"
    with Ledger.create(path, 4.0, 1e-5) as ledger:
        ledger.begin("winter", terms(tacit.Laplace(100.0)))
        ledger.charge("winter", 1, 5)
        assert ledger.left is None
        less = 4.0 - ledger.spent.epsilon
        row = next(row for row in shown(path)[0].splitlines() if "budget less spent" in row)
        assert less - 0.001 <= float(row.split("│")[2]) <= less
        ledger.set_budget(0.001, 1e-5)
    assert shown(path)[1]["budget_less_spent"] == 0.0


def test_what_is_spent_is_never_told_as_less():
    spent = Guarantee(1.000001, 1e-5)
    told = amounts(Mock(budget=Guarantee(9.0, 1e-5), spent=spent, spent_alone=spent, left=7.99999))
    assert [number for _, number in told] == ["9", "1.001", "7.999"]
    [(_, total), *_] = spent_rows(Mock(privacy=Mock(parties=1)), spent.epsilon, spent.delta)
    assert total == "1.001"
