"""tacit audit: what it prints, its exit status, and bad input in one line."""

import json
import math

import numpy as np
import pytest
from conftest import EXHAUSTIVE, repeat
from test_learn_data import idx

from tacit.cli.main import main
from tacit.lab.audit.trials import run_trials


def made_up(monkeypatch, shift=0.0):
    """Scores in place of trials, as test_audit.py has these; and the worlds they are asked for."""
    rng, seen = np.random.default_rng(0), []

    def trials(worlds, settings, count, *others):
        seen.append(worlds)
        scores = rng.normal(size=(2, 8, count))
        scores[1, 0] += shift
        return scores

    if not EXHAUSTIVE:
        monkeypatch.setattr("tacit.lab.audit.trials.run_trials", trials)
    return seen


def test_the_command_on_digits(capsys, monkeypatch):
    made_up(monkeypatch, 0.9)
    words = "audit digits --total-epsilons 4 --trials 500 --rounds 2 --seed 1 --json"
    assert main(words.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["violated"] is False and "never prove" in document["note"]
    (one,) = document["audits"]
    assert one["claim"]["epsilon"] == pytest.approx(4, rel=1e-3)
    assert [b["bound"] for b in one["bounds"]] == [
        "white box, distribution-free",
        "white box, gaussian curve",
        "black box, distribution-free",
        "black box, gaussian curve",
    ]
    assert all(0 <= b["epsilon"] <= 4 for b in one["bounds"])
    assert one["bounds"][1]["epsilon"] > 0.5 and one["bounds"][1]["attack"] == "likelihood"
    assert one["bounds"][0]["confirming_trials"] == [400, 400]
    assert one["settings"]["local_updates"] == 2 and one["verdict"].startswith("consistent")


def test_a_violation_is_an_exit_status_and_words(capsys, monkeypatch):
    """Of the paper's sensitivity; said twice, of the same trials."""
    kept = []

    def once(*given):
        if not kept:
            kept.append(run_trials(*given))
        return kept[0]

    monkeypatch.setattr("tacit.lab.audit.trials.run_trials", once)
    words = (
        "audit digits --calibration paper --mechanism laplace --total-epsilons 1 30 --trials 300"
    )
    words += " --rounds 1 --seed 1"
    assert main([*words.split(), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["violated"]
    assert [one["violated"] for one in document["audits"]] == [True, False]
    assert main(words.split()) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "VIOLATED: epsilon is at least" in out and "at 99 % confidence" in out
    assert " ".join(document["audits"][0]["verdict"].split()) in out
    assert "An audit can refute a claim. It can never prove one." in out


def test_the_command_on_mnist_files(tmp_path, capsys, monkeypatch):
    rng, seen = np.random.default_rng(0), made_up(monkeypatch)
    images = rng.integers(0, 256, (12, 28, 28))
    for name, data in (("images-idx3", images), ("labels-idx1", np.arange(12) % 10)):
        (tmp_path / f"train-{name}-ubyte").write_bytes(idx(data))
    words = f"audit mnist --data {tmp_path} --total-epsilons 1 --trials 100 --rounds 1 --json"
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["audits"][0]["name"] == "mnist"
    assert [worlds.without.dimension for worlds in seen] == repeat([784 * 10], [])


# docs/audit.md has one with --agents
READINGS = ["case14", "least-squares --float32", *repeat([], ["least-squares --agents"])]


@pytest.mark.parametrize("words", READINGS)
def test_the_command_on_one_reading(words, capsys):
    words = f"audit {words} --once --total-epsilons 10 --trials 100"
    words += "" if "--agents" in words else " --seed 1"  # few trials: by chance they show little
    assert main(words.split()) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "one release of sufficient" in out and "sees every release" in out
    assert ("kept in a ledger" in out) == ("--agents" in words)
    assert main([*words.split(), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["audits"]
    assert one["through"] == ("releases" if "--agents" in words else "readings")
    assert one["settings"]["rounds"] == one["settings"]["local_updates"] == 1
    assert one["bounds"][1]["epsilon"] > 1.0
    if "--agents" not in words:  # the same seed twice: the same audit, rounded down
        assert all(f"{math.floor(1000 * b['epsilon']) / 1000:.3f}" in out for b in one["bounds"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("audit digits --once", "other objectives have no sufficient statistics"),
        ("audit case14 --once --rounds 2", "Expected no --rounds"),
        ("audit case14 --once --agents --hostile", "Expected no --rounds"),
        ("audit case14 --once --calibration paper", "certified calibration"),
        ("audit case14 --once --agents --seed 1", "no --seed with --agents"),
        ("audit simplex --agents --seed 1", "no --seed"),
        ("audit digits --agents --perturbation output", "objective"),
        ("audit case14 --float32", "float64"),
        ("audit moon", "invalid choice: 'moon'"),
        ("audit mnist", "Expected --data"),
        ("audit mnist --data nowhere", "nowhere"),
        ("audit digits --trials 99", "at least 100 trials"),
        ("audit digits --total-epsilons", "expected at least one argument"),
    ],
)
def test_bad_input_gets_one_line(words, said, refused):
    message = refused(words)
    lines = [line for line in message.strip().splitlines() if "trials 0:" not in line]
    assert said in lines[-1] and lines[-1].startswith("tacit: ")
    assert sum(line.startswith("tacit:") for line in lines) == 1
