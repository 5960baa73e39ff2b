"""Figures 5 to 7 on small data of MNIST's and LEAF's format."""

import csv
from contextlib import nullcontext
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from conftest import DRAW, drawing, repeat
from test_learn_data import idx, leaf

from tacit.errors import CorruptFile, InvalidInput
from tacit.lab.reproduce.learning import COLUMNS, Experiment, claims, draw, final_errors, load
from tacit.lab.reproduce.learning_runs import run_experiment
from tacit.learn.data import load_mnist
from tacit.transports.solving import solve

ROUNDS = repeat(2, 4)
SMALL = {"rounds": ROUNDS, "seeds": 2, "epsilons": [0.1, 1.0], "local_updates": [1, 2]}
MNIST = {**SMALL, "agents": repeat(3, 10)}
ALL = ROUNDS * 3 * (1 + 2)  # local updates of three algorithms


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    for part, n in (("train", 60), ("t10k", 20)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (n, 28, 28))))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(n) % 10))
    return folder


@pytest.fixture(scope="module")
def made(mnist, tmp_path_factory):
    experiment, folder = Experiment.named("mnist", **MNIST), tmp_path_factory.mktemp("out") / "m"
    seen = []
    with repeat(nullcontext, drawing)():
        run_experiment(experiment, mnist, folder, progress=lambda *what: seen.append(what))
    assert seen[0] == (0, ALL) and seen[-1] == (ALL, ALL)
    return experiment, folder


def test_the_paper_s_settings():
    for name, u, data in (
        ("mnist", 0.1, "mnist"),
        ("femnist", 1.0, "femnist"),
        ("hyper", 0.1, "mnist"),
    ):
        e = Experiment.named(name)
        assert (e.bound, e.data, e.rounds, e.delta) == (u, data, 5000, 1e-6)
    settings = Experiment.named("mnist").settings("ObjG", "adaptive", 0.5, 10)
    assert settings.penalty(1) == 2 + 5 / 0.5 and settings.step_size(4) == 0.5
    assert settings.calibration == "paper" and settings.local_updates == 10
    hyper = Experiment.named("hyper")
    assert hyper.settings("OutG", "adaptive/100", 0.05, 1).penalty(1) == pytest.approx(1.02)
    assert hyper.settings("OutG", "10", 0.05, 1).penalty(99) == 10


def test_traces_figure_and_claims(made):
    experiment, folder = made
    _, table = load(folder)
    assert len(table) == 3 * 2 * 2 * 2 * ROUNDS  # algorithms, E, epsilons, seeds, rounds
    assert table["test_error"].between(0, 1).all()
    obj = table[table["algorithm"] == "ObjG"]
    assert (obj["violation"] <= 1e-6).all()
    noise = obj[obj["round"] == ROUNDS].groupby("epsilon")["noise"].mean()
    assert noise[0.1] / noise[1.0] == pytest.approx(10, rel=0.1)
    with open(folder / "claims.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and {r["verdict"] for r in rows} <= {
        "holds",
        "does not hold",
        "undecided",
    }
    assert (folder / "figure.pdf").exists() and (folder / "figure.png").exists()
    figure, picture = draw(experiment, table), BytesIO()
    figure.set_layout_engine("none")  # half of the time
    DRAW(figure, picture, format="pdf")
    assert len(picture.getvalue()) > 5_000
    assert (folder / "errors.csv").read_text().count("\n") == 13


def test_huang_s_reading_has_twice_the_noise_of_the_tight_one(made):
    _, table = load(made[1])
    first = table[(table["round"] == 1) & (table["local_updates"] == 1)]
    mean = first.groupby("algorithm")["noise"].mean()
    assert mean["OutG"] / mean["OutG, tight"] == pytest.approx(2, rel=0.05)  # (N + 1)/N besides


def test_claims_follow_the_traces(made):
    experiment, table = made[0], load(made[1])[1]
    claim = "The objective of ObjG is lower than that of OutG."
    turned = table.copy()
    turned.loc[turned["algorithm"] == "ObjG", "objective"] += 1e6
    found = {row["claim"]: row["verdict"] for row in claims(experiment, turned)}
    assert found[claim] == "does not hold"


def test_finished_groups_are_not_run_again(made, mnist):
    experiment, folder = made
    seen = []
    before = (folder / "traces.csv").read_bytes()
    run_experiment(experiment, mnist, folder, progress=lambda *what: seen.append(what))
    assert seen == [(ALL, ALL)] and (folder / "traces.csv").read_bytes() == before
    with pytest.raises(InvalidInput, match="another experiment"):
        run_experiment(Experiment.named("mnist", **{**MNIST, "seeds": 1}), mnist, folder)


def test_penalties(mnist, tmp_path):
    fewer = repeat({"seeds": 1, "penalties": ["10", "adaptive/100"]}, {})  # a program of ``made``
    experiment = Experiment.named("hyper", **{**MNIST, "local_updates": [1], **fewer})
    run_experiment(experiment, mnist, tmp_path / "h")
    _, table = load(tmp_path / "h")
    assert set(table["penalty"]) == set(experiment.penalties)
    (row,) = claims(experiment, table)
    assert (
        row["verdict"] in ("holds", "does not hold") and "spread over penalties" in row["numbers"]
    )


@pytest.fixture
def writers(tmp_path):
    rng = np.random.default_rng(1)
    for part, names in (("train", {"a": 7, "b": 3, "c": 5}), ("test", {"a": 4, "z": 4})):
        (tmp_path / part).mkdir()
        users = {
            n: (rng.random((k, 784)).round(3), rng.integers(0, 62, k)) for n, k in names.items()
        }
        leaf(tmp_path / part / "1.json.gz", users)
    return tmp_path


FEMNIST = Experiment.named("femnist", **SMALL, algorithms=["ObjG"])


def test_writers_are_agents(writers):
    train, test = FEMNIST.load(writers)
    problem = FEMNIST.problem(train)
    assert [a.objective.sample_count for a in problem.agents] == [7, 3, 5]
    assert problem.size == 784 * 62 and len(test) == 8


@pytest.mark.exhaustive  # test_traces_figure_and_claims has one of this kind
def test_figure_of_writers(writers):
    run_experiment(FEMNIST, writers, writers / "f")
    assert (writers / "f" / "figure.png").exists()


def test_bad_experiments(tmp_path):
    for wrong in ({"seeds": 0}, {"rounds": 0}, {"data": "cifar"}):
        with pytest.raises(InvalidInput):
            Experiment.named("mnist", **wrong)
    with pytest.raises(CorruptFile):
        run_experiment(Experiment.named("mnist"), tmp_path, tmp_path / "o")
    assert not (tmp_path / "o").exists()
    with pytest.raises(CorruptFile):
        load(tmp_path)


def test_noise_is_the_mean_over_the_coordinates(made, mnist):
    """The paper's Σ_p Σ_e of the mean |ξ_i|: what ``solve`` sums, by the number of weights."""
    experiment, folder = made
    problem = experiment.problem(load_mnist(mnist))
    settings = experiment.settings("ObjG", experiment.penalties[0], 1.0, 2)
    trace = solve(problem, settings, seed=1).trace["noise"] / problem.size
    table = load(folder)[1]
    run = table.query("algorithm == 'ObjG' and epsilon == 1 and local_updates == 2 and seed == 1")
    assert run["noise"].to_numpy() == pytest.approx(trace, rel=1e-3)


def test_final_errors_by_hand():
    rows = [("ObjG", "adaptive", 1.0, 1, seed, t) for seed in range(3) for t in (1, 2)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["test_error"] = [0.9, 0.1, 0.9, 0.2, 0.9, 0.6]
    (found,) = final_errors(table)
    assert found["test_error_percent"] == pytest.approx(30)
    assert found["deviation"] == pytest.approx(np.sqrt((20**2 + 10**2 + 30**2) / 2))
