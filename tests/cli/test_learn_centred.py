"""``tacit learn`` with a private mean: released once, kept, paid for, and the same after a stop."""

import numpy as np
import pytest

import tacit
from tacit.cli import run_folder
from tacit.errors import SolverFailure

FIT = "learn t.csv --target y --agent-column who --range *=0:1 --rounds 6 --evaluate-every 2"


@pytest.fixture
def folder(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = rng.uniform(0.5, 1, size=(60, 3))
    label = np.where(x @ [1, -1, 0.5] > 0.3, "yes", "no")
    rows = [f"{a:.3f},{b:.3f},{c:.3f},{y},{'ab'[i % 2]}" for i, ((a, b, c), y) in
            enumerate(zip(x, label, strict=True))]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["u,v,w,y,who", *rows]))
    return tmp_path


@pytest.fixture
def stops(monkeypatch):
    """A fit that fails after two evaluated rounds, as often as it is asked for."""
    right = run_folder.run_with_progress

    def broken(label, problem, settings, told, **options):
        heard = []

        def tell():
            told()
            heard.append(1)
            if len(heard) == 2:
                raise SolverFailure("no answer.")

        return right(label, problem, settings, told=tell, **options)

    def stop(active):
        monkeypatch.setattr(run_folder, "run_with_progress", broken if active else right)

    return stop


@pytest.fixture
def books(folder):
    """Makes ledgers of both agents: the second may have a budget of its own. Their runs so far."""

    def make(budget=2.0):
        (folder / "books").mkdir()
        for name, own in zip("ab", (max(2.0, budget), budget), strict=True):
            tacit.Ledger.create(folder / "books" / f"{name}.db", own, 1e-5).close()
        return lambda name="a": tacit.Ledger(folder / "books" / f"{name}.db").runs()

    return make


@pytest.mark.parametrize("budget", [0.5, 1.95])
def test_a_ledger_that_cannot_pay_for_all_pays_for_nothing(folder, books, refused, budget):
    """Not even for the mean, which it could pay."""
    runs = books(budget)
    said = refused(f"{FIT} --total-epsilon 2 --ledgers books --out r")
    assert "Agent 'b'" in said and "Nothing was charged" in said
    assert not (folder / "r").exists() and runs("a") == runs("b") == []


@pytest.mark.parametrize(
    "what", ["other data", "no noise"]
)  # the rest: tests/learn/test_centring.py
def test_a_mean_of_something_else_ends_in_no_answer(folder, books, refused, stops, what):
    """Whatever was in the file ended in the answer, under the statement of the run's own mean."""
    runs = books()
    stops(True)
    refused(f"{FIT} --total-epsilon 2 --ledgers books --out r")
    (folder / "r" / "checkpoint.npz").unlink()  # ledgers know where the run is
    kept = folder / "r" / "mean.npz"
    if what == "no noise":
        with np.load(kept) as arrays:
            found = dict(arrays)
        for i in range(2):  # under the very seals
            found[f"values_{i}"] = found[f"values_{i}"] - 0.01
        np.savez(kept, **found)
    else:
        whole = (folder / "t.csv").read_text()
        header, _, *rows = whole.splitlines()
        (folder / "t.csv").write_text("\n".join([header, "0,0,0,yes,a", *rows]))
        refused(f"{FIT} --total-epsilon 2 --out other")
        (folder / "t.csv").write_text(whole)
        kept.write_bytes((folder / "other" / "mean.npz").read_bytes())
    stops(False)
    said = refused("learn --resume r")
    assert "of the release" in said or "was released in" in said
    assert not (folder / "r" / "model.json").exists() and len(runs()) == 2
