"""Figures as data: runs resume, verdicts can go either way, tables and figures come from traces."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from conftest import DRAW, EXHAUSTIVE, drawing, repeat
from matplotlib.figure import Figure
from test_learn_data import idx, leaf

from tacit.errors import CorruptFile, InvalidInput
from tacit.lab.reproduce import learning, power, verdict
from tacit.learn.data import load_mnist
from tacit.transports.solving import solve

# --- verdicts -----------------------------------------------------------------------------------


def test_verdicts_can_go_either_way():
    low, high, noisy = np.full(10, 1.0), np.full(10, 2.0), np.linspace(-5, 8, 10)
    values = {("a", 1, 1): low, ("b", 1, 1): high, ("c", 1, 1): noisy}
    a, b, c = values
    for pairs, some, said in (
        ([(a, b)], False, "holds"),
        ([(b, a)], False, "does not hold"),
        ([(a, b), (b, a)], False, "does not hold"),
        ([(a, b), (a, c)], False, "undecided"),
        ([(a, b), (b, a)], True, "holds"),
        ([(b, a)], True, "does not hold"),
        ([(b, a), (a, c)], True, "not seen"),
    ):
        assert verdict(values, pairs, some)["verdict"] == said
    one = {key: value[:1] for key, value in values.items()}  # one seed decides nothing
    assert verdict(one, [(a, b)])["verdict"] == "undecided"


def test_verdicts_hold_together():
    """Equal curves: a claim of 12 comparisons is turned down in about 5 % of trials, not 25 %."""
    rng, times = np.random.default_rng(0), repeat(200, 400)
    keys = [(str(k), 1, 1) for k in range(24)]
    pairs = list(zip(keys[::2], keys[1::2], strict=True))
    down = [
        verdict({key: rng.normal(size=10) for key in keys}, pairs)["verdict"] for _ in range(times)
    ].count("does not hold")
    assert down < 0.08 * times


def verdicts(experiment, table):
    return {row["claim"]: row["verdict"] for row in experiment.claims(table)}


def drawn_size(experiment, table, **options):
    figure, picture = experiment.draw(table), BytesIO()
    figure.set_layout_engine("none")  # half of the time
    DRAW(figure, picture, **options)
    return figure, len(picture.getvalue())


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        *((power, "case14", w) for w in ({"seeds": 0}, {"rounds": -1})),
        *((learning, "mnist", w) for w in ({"seeds": 0}, {"rounds": 0}, {"data": "cifar"})),
    ],
)
def test_bad_experiments(kind, name, wrong):
    with pytest.raises(InvalidInput):
        kind.Experiment.named(name, **wrong)


# --- power --------------------------------------------------------------------------------------

GRID = {"rounds": repeat(2, 12), "seeds": 2, "epsilons": [0.1, 1.0], "local_updates": [1, 2]}


def threads(workers, _, start, about):
    return ThreadPoolExecutor(1, initializer=start, initargs=about)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """In this process; that which is interrupted goes on in another one."""
    told = []
    experiment = power.Experiment.named("case14", **GRID)
    out = tmp_path_factory.mktemp("figure")
    with pytest.MonkeyPatch.context() as patch:
        if EXHAUSTIVE:
            patch.setattr(Figure, "savefig", DRAW)
        else:
            patch.setattr(power, "ProcessPoolExecutor", threads)
        experiment.make(out, 2, progress=lambda *now: told.append(now))
    assert told[0] == (0, told[-1][1]) and told[-1][0] == told[-1][1]
    return out


def test_table_1_is_the_paper_s():
    """2 ln(1.25/δ)(2β/ε)², 2(2β/ε)², and the same with β for Out."""
    for row in power.Experiment.named("case14").table1():
        ε, β = row["epsilon"], 0.01
        gauss = 2 * np.log(1.25 / 1e-2)
        wanted = {
            "ObjG": gauss * (2 * β / ε) ** 2,
            "ObjL": 2 * (2 * β / ε) ** 2,
            "OutG": gauss * (β / ε) ** 2,
            "OutL": 2 * (β / ε) ** 2,
        }
        assert [row[f"variance {a}"] for a in wanted] == pytest.approx(list(wanted.values()))


def test_noise_in_the_traces_is_that_of_table_1(folder):
    """Mean |ξ| is σ√(2/π) for normal and b for Laplace noise, over n coordinates of 3 zones."""
    experiment, table = power.Experiment.read(folder)
    n = sum(agent.dimension for agent in experiment.build().agents)
    row = experiment.table1()[0]
    for algorithm in power.ALGORITHMS:
        chosen = table[
            (table["algorithm"] == algorithm)
            & (table["epsilon"] == 0.1)
            & (table["local_updates"] == 1)
        ]
        variance = row[f"variance {algorithm}"]
        each = np.sqrt(2 * variance / np.pi) if algorithm[-1] == "G" else np.sqrt(variance / 2)
        assert chosen["noise"].mean() == pytest.approx(n * each, rel=0.05)


def test_files_and_figure(folder):
    for name in ("table1.csv", "claims.csv", "traces.csv"):
        assert (folder / name).stat().st_size > 100
    assert (folder / "figure.png").exists() and (folder / "figure.pdf").exists()
    experiment, table = power.Experiment.read(folder)
    figure, size = drawn_size(experiment, table, dpi=20)
    assert size > 1_000
    assert len(figure.axes) == 4 * 2  # noise, objective for two E, residual; two epsilons
    legend = figure.axes[1].get_legend().get_texts()
    assert [t.get_text() for t in legend] == list(power.ALGORITHMS)
    assert "0.1" in figure.axes[0].get_title()
    assert "not certified" in figure.get_suptitle()
    with open(folder / "claims.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11 and all(row["numbers"] for row in rows)
    assert json.loads((folder / "experiment.json").read_text())["versions"]["clarabel"]


def test_an_interrupted_experiment_goes_on_and_comes_out_the_same(folder, tmp_path):
    experiment, table = power.Experiment.read(folder)
    lines = (folder / "traces.csv").read_text().splitlines(keepends=True)
    (tmp_path / "experiment.json").write_bytes((folder / "experiment.json").read_bytes())
    left = repeat(3, 50)
    (tmp_path / "traces.csv").write_text("".join(lines[:-left]) + lines[-left][:9])  # half a line
    told = []
    experiment.make(tmp_path, 1, progress=lambda *now: told.append(now))
    assert 0 < told[0][0] < told[0][1]
    order = ["algorithm", "epsilon", "local_updates", "seed", "round"]
    again = power.Experiment.read(tmp_path)[1]
    a, b = (t.sort_values(order).reset_index(drop=True) for t in (table, again))
    assert a.equals(b)  # bit for bit, whatever the processes


def test_another_experiment_does_not_overwrite(folder):
    with pytest.raises(InvalidInput, match="holds another experiment"):
        power.Experiment.named("case14", **{**GRID, "seeds": 3}).make(folder)
    for kind in (power, learning):
        with pytest.raises(CorruptFile, match="traces of an experiment"):
            kind.Experiment.read(folder / "absent")


def test_totals_are_for_the_proven_sensitivity():
    last = power.Experiment.named("case14").table1()[-1]
    assert last["proven total epsilon ObjG, E = 5"] == pytest.approx(311, abs=1)


# --- learning, on small data of MNIST's and LEAF's format ---------------------------------------

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
    experiment = learning.Experiment.named("mnist", **MNIST)
    folder, seen = tmp_path_factory.mktemp("out") / "m", []
    with repeat(nullcontext, drawing)():
        experiment.make(folder, mnist, progress=lambda *what: seen.append(what))
    assert seen[0] == (0, ALL) and seen[-1] == (ALL, ALL)
    return experiment, folder, experiment.read(folder)[1]


def test_traces_figure_and_claims(made):
    experiment, folder, table = made
    assert len(table) == 3 * 2 * 2 * 2 * ROUNDS  # algorithms, E, epsilons, seeds, rounds
    assert table["test_error"].between(0, 1).all()
    obj = table[table["algorithm"] == "ObjG"]
    assert (obj["violation"] <= 1e-6).all()
    noise = obj[obj["round"] == ROUNDS].groupby("epsilon")["noise"].mean()
    assert noise[0.1] / noise[1.0] == pytest.approx(10, rel=0.1)
    first = table[(table["round"] == 1) & (table["local_updates"] == 1)]
    mean = first.groupby("algorithm")["noise"].mean()
    assert mean["OutG"] / mean["OutG, tight"] == pytest.approx(2, rel=0.05)  # (N + 1)/N besides
    with open(folder / "claims.csv", newline="") as file:
        said = [row["verdict"] for row in csv.DictReader(file)]
    assert len(said) == 8 and set(said) <= {"holds", "does not hold", "undecided"}
    assert (folder / "figure.pdf").exists() and (folder / "figure.png").exists()
    assert drawn_size(experiment, table, format="pdf")[1] > 5_000
    assert (folder / "errors.csv").read_text().count("\n") == 13
    assert len(json.loads(json.dumps(experiment.tables(table)))["errors"]) == 12


def test_claims_follow_the_traces(folder, made):
    """A trace in which Out is better must turn the verdict."""
    experiment, table = power.Experiment.read(folder)
    claim = "E = 1: Obj reaches lower objectives than Out, at every epsilon."
    assert verdicts(experiment, table)[claim] != "does not hold"
    for one, traces, said in (
        (experiment, table, claim),
        (made[0], made[2], "The objective of ObjG is lower than that of OutG."),
    ):
        turned = traces.copy()
        obj = turned["algorithm"].str.startswith("Obj")
        turned.loc[obj, "objective"] = 1e6 + turned.loc[obj, "seed"]
        assert verdicts(one, turned)[said] == "does not hold"


def test_finished_groups_are_not_run_again(made, mnist):
    experiment, folder, _ = made
    seen, before = [], (folder / "traces.csv").read_bytes()
    experiment.make(folder, mnist, progress=lambda *what: seen.append(what))
    assert seen == [(ALL, ALL)] and (folder / "traces.csv").read_bytes() == before


def test_penalties(mnist, tmp_path):
    with pytest.raises(CorruptFile):  # without data nothing is made
        learning.Experiment.named("mnist").make(tmp_path / "o", tmp_path)
    assert not (tmp_path / "o").exists()
    fewer = repeat({"seeds": 1, "penalties": ["10", "adaptive/100"]}, {})  # a program of ``made``
    experiment = learning.Experiment.named("hyper", **{**MNIST, "local_updates": [1], **fewer})
    (row,) = experiment.make(tmp_path / "h", mnist)["claims"]
    table = experiment.read(tmp_path / "h")[1]
    assert set(table["penalty"]) == set(experiment.penalties)
    assert row["verdict"] in ("holds", "does not hold")
    assert "spread over penalties" in row["numbers"]


def test_writers_are_agents(tmp_path):
    rng = np.random.default_rng(1)
    for part, names in (("train", {"a": 7, "b": 3, "c": 5}), ("test", {"a": 4, "z": 4})):
        (tmp_path / part).mkdir()
        users = {
            n: (rng.random((k, 784)).round(3), rng.integers(0, 62, k)) for n, k in names.items()
        }
        leaf(tmp_path / part / "1.json.gz", users)
    experiment = learning.Experiment.named("femnist", **SMALL, algorithms=["ObjG"])
    train, test = experiment.load(tmp_path)
    problem = experiment.problem(train)
    assert [a.objective.sample_count for a in problem.agents] == [7, 3, 5]
    assert problem.size == 784 * 62 and len(test) == 8


def test_noise_is_the_mean_over_the_coordinates(made, mnist):
    """The paper's Σ_p Σ_e of the mean |ξ_i|: what ``solve`` sums, by the number of weights."""
    experiment, _, table = made
    problem = experiment.problem(load_mnist(mnist))
    settings = experiment.settings("ObjG", experiment.penalties[0], 1.0, 2)
    trace = solve(problem, settings, seed=1).trace["noise"] / problem.size
    run = table.query("algorithm == 'ObjG' and epsilon == 1 and local_updates == 2 and seed == 1")
    assert run["noise"].to_numpy() == pytest.approx(trace, rel=1e-3)


def test_final_errors_by_hand():
    rows = [("ObjG", "adaptive", 1.0, 1, seed, t) for seed in range(3) for t in (1, 2)]
    table = pd.DataFrame(rows, columns=learning.Experiment.columns[:6])
    table["test_error"] = [0.9, 0.1, 0.9, 0.2, 0.9, 0.6]
    (found,) = learning.final_errors(table)
    assert found["test_error_percent"] == pytest.approx(30)
    assert found["deviation"] == pytest.approx(np.sqrt((20**2 + 10**2 + 30**2) / 2))
