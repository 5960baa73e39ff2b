"""``tacit learn`` with a private mean: released once, kept, paid for, and the same after a stop."""

import json
import stat

import numpy as np
import pytest

import tacit
from tacit.cli import run_folder
from tacit.errors import SolverFailure
from tacit.protocol.released import SavedReleases

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


def mean_in(path):
    return list(json.loads((path / "model.json").read_text())["mean"].values())


def test_a_killed_fit_continues_with_its_mean(folder, command, refused, stops):
    """Without a seed a second mean would be another one."""
    stops(True)
    said = refused(f"{FIT} --total-epsilon 2 --out r")
    assert "tacit learn --resume r" in said
    kept = folder / "r" / "mean.npz"
    sums = [release.values for release in SavedReleases.load(kept).releases]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stops(False)
    command("learn", "--resume", "r")
    mean = mean_in(folder / "r")
    np.testing.assert_allclose(mean / np.linalg.norm(mean), sum(sums) / np.linalg.norm(sum(sums)))
    assert not kept.exists()  # it has what the data can be known by
    privacy = tacit.Result.load(folder / "r").privacy
    assert privacy.certified and privacy.epsilon <= 2.0
    assert "one noisy sum of its rows" in privacy.words and "was given" not in privacy.words


def test_the_same_bits_as_an_undisturbed_fit(folder, command, refused, stops):
    command(*f"{FIT} --total-epsilon 2 --seed 5 --out a".split())
    stops(True)
    refused(f"{FIT} --total-epsilon 2 --seed 5 --out b")
    stops(False)
    command("learn", "--resume", "b")
    one, two = (tacit.Result.load(folder / name) for name in "ab")
    np.testing.assert_array_equal(one.solution, two.solution)
    assert one.privacy == two.privacy and mean_in(folder / "a") == mean_in(folder / "b")
    command(*f"{FIT} --total-epsilon 2 --seed 6 --out c".split())
    assert mean_in(folder / "c") != mean_in(folder / "a")


def test_ledgers_pay_for_the_mean_too(folder, command, refused, stops):
    """As much as the total, and no more after a stop."""
    (folder / "books").mkdir()
    for name in "ab":
        tacit.Ledger.create(folder / "books" / f"{name}.db", 2.0, 1e-5).close()
    stops(True)
    refused(f"{FIT} --total-epsilon 2 --ledgers books --out r")
    stops(False)
    command("learn", "--resume", "r")
    with tacit.Ledger(folder / "books" / "a.db") as ledger:
        first, second = ledger.runs()
        assert first["run"].startswith("release-")
        assert (first["rounds_charged"], second["rounds_charged"]) == (1, 6)
        assert 1.99 <= ledger.spent.epsilon <= 2.0
    assert tacit.Result.load(folder / "r").privacy.secure


@pytest.mark.parametrize("budget", [0.5, 1.95])
def test_a_ledger_that_cannot_pay_for_all_pays_for_nothing(folder, refused, budget):
    """Not even for the mean, which it could pay."""
    (folder / "books").mkdir()
    for name, own in zip("ab", (9.0, budget), strict=True):
        tacit.Ledger.create(folder / "books" / f"{name}.db", own, 1e-5).close()
    said = refused(f"{FIT} --total-epsilon 2 --ledgers books --out r")
    assert "Agent 'b'" in said and "Nothing was charged" in said
    assert not (folder / "r").exists()
    for name in "ab":
        with tacit.Ledger(folder / "books" / f"{name}.db") as ledger:
            assert ledger.runs() == []


def of_another_fit(folder, refused, stops):
    """The mean.npz of a fit of its own, on records of which one is another."""
    whole = (folder / "t.csv").read_text()
    rows = whole.splitlines()
    (folder / "t.csv").write_text("\n".join([rows[0], "0,0,0,yes,a", *rows[2:]]))
    stops(True)
    refused(f"{FIT} --total-epsilon 2 --out other")
    stops(False)
    (folder / "t.csv").write_text(whole)
    return (folder / "other" / "mean.npz").read_bytes()


@pytest.mark.parametrize("what", ["other data", "other budget", "other law", "a seed", "no noise"])
def test_a_mean_of_something_else_ends_in_no_answer(folder, refused, stops, what):
    """Whatever was in the file ended in the answer, under the statement of the run's own mean."""
    (folder / "books").mkdir()
    for name in "ab":
        tacit.Ledger.create(folder / "books" / f"{name}.db", 2.0, 1e-5).close()
    stops(True)
    refused(f"{FIT} --total-epsilon 2 --ledgers books --out r")
    (folder / "r" / "checkpoint.npz").unlink()  # ledgers know where the run is
    kept = folder / "r" / "mean.npz"
    if what == "other data":
        kept.write_bytes(of_another_fit(folder, refused, stops))
    elif what == "no noise":
        with np.load(kept) as arrays:
            found = dict(arrays)
        for i in range(2):  # under the very seals
            found[f"values_{i}"] = found[f"values_{i}"] - 0.01
        np.savez(kept, **found)
    else:
        stops(True)
        words = {"other budget": "", "other law": "--mechanism laplace", "a seed": "--seed 3"}[what]
        total = 9 if what == "other budget" else 2
        refused(f"{FIT} --total-epsilon {total} {words} --out other")
        kept.write_bytes((folder / "other" / "mean.npz").read_bytes())
    stops(False)
    said = refused("learn --resume r")
    assert "of the release in" in said or "was released in" in said
    assert not (folder / "r" / "model.json").exists()
    with tacit.Ledger(folder / "books" / "a.db") as ledger:
        assert len(ledger.runs()) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        "--slope-limit x",
        "--slope-limit 0",
        "--slope-limit 1e-9",
        "--centring-share x",
        "--centring-share 2",
        "--centring-share 0",
        "--model ridge",
        "--model svm --slope-limit 1",
        "--level 0.3",
        "--features orientations",
        "--target-range 0:1 --centring-share 0.1",
    ],
)
def test_a_refused_start_leaves_nothing_and_spends_nothing(folder, refused, wrong):
    (folder / "books").mkdir()
    for name in "ab":
        tacit.Ledger.create(folder / "books" / f"{name}.db", 2.0, 1e-5).close()
    said = refused(f"{FIT} {wrong} --total-epsilon 2 --ledgers books --out r")
    assert "Expected" in said and len(said.strip().splitlines()) == 1
    assert not (folder / "r").exists()
    with tacit.Ledger(folder / "books" / "a.db") as ledger:
        assert ledger.runs() == []
