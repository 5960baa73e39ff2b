"""One small real problem of each kind, solved privately, for budgets from small to large.

Each answer stands beside what the same model finds without privacy, and beside what one would say
without the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.files import save_figure
from tacit.objectives.losses import Huber
from tacit.protocol.result import Result
from tacit.sets import Polyhedron

SEED = 1
EPSILON, DELTA = 2.0, 1e-5  # of the answers that are kept
EPSILONS, SEEDS = (0.5, 1.0, 2.0, 4.0), range(2)  # of the picture
OFFICES, HOSPITALS = 5, 3


@dataclass(frozen=True)
class Demo:
    """A problem, and how wrong its answers are; ``solved`` takes ε (None: no noise) and a seed."""

    name: str
    what: str
    measure: str
    without_data: float  # the error of an answer that knows no data
    solved: Callable[[float | None, int | None], tuple[Result, float]]


def digits() -> Demo:
    """Handwritten digits over five offices: each knows 270-odd of 1,347 training images."""
    from tacit.learn import Orientations, PrivateLogisticRegression

    data = _dataset("load_digits")
    order = np.random.default_rng(0).permutation(len(data.data))
    X, y = Orientations().fit_transform(data.data[order] / 16.0), data.target[order]
    cut = 3 * len(X) // 4
    office = [f"office {1 + i % OFFICES}" for i in range(cut)]

    def solved(epsilon: float | None, seed: int | None) -> tuple[Result, float]:
        model = PrivateLogisticRegression(epsilon, DELTA, classes=range(10), random_state=seed)
        model.fit(X[:cut], y[:cut], office)
        return model.result_, float(1 - model.score(X[cut:], y[cut:]))

    what = f"logistic regression on public image features, {OFFICES} agents"
    return Demo("digits", what, "share of test images in the wrong class", 0.9, solved)


def diabetes() -> Demo:
    """Disease progression over a polyhedron of coefficients: 442 patients in three hospitals.

    Body mass index and blood pressure may not lower the prediction, and the six serum coefficients
    may add up to at most 1 in absolute value.
    """
    data = _dataset("load_diabetes")
    X = data.data / 0.2  # a public constant; longer rows are clipped to feature_norm
    y = (data.target - 152.0) / 200.0
    X *= np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    serum = np.array([[0.0] * 4 + [1.0] * 6, [0.0] * 4 + [-1.0] * 6])
    lower = np.array([-1.0, -1.0, 0.0, 0.0, *[-1.0] * 6])
    coefficients = Polyhedron(serum, np.ones(2), lower=lower, upper=np.ones(10))
    public: dict[str, Any] = {"feature_norm": 1.0, "target_bound": 1.0, "threshold": 0.2}
    public |= {"normaliser": len(X), "record_bound": 200}
    problem = Problem(
        LocalProblem(
            Huber(X[p::HOSPITALS], y[p::HOSPITALS], **public),
            coefficients,
            name=f"hospital {p + 1}",
        )
        for p in range(HOSPITALS)
    )

    def solved(epsilon: float | None, seed: int | None) -> tuple[Result, float]:
        from tacit.transports import solve

        settings = Settings(500) if epsilon is None else Settings.for_budget(epsilon, DELTA)
        result = solve(problem, settings, seed=seed)
        return result, float(np.mean((X @ result.solution - y) ** 2))

    what = f"Huber's regression over a polyhedron, {HOSPITALS} agents"
    return Demo("diabetes", what, "mean squared residual", float(np.mean(y**2)), solved)


def run_demo(
    folder: Path, step: Callable[[str, int, int], None] = lambda what, done, of: None
) -> list[dict[str, Any]]:
    """Solve both problems, save results and ``demo.png``; one row of numbers per problem.

    ``step`` hears of every run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(_rows(folder, step))
    _plot(folder / "demo.png", rows)
    return rows


def _rows(folder: Path, step: Callable[[str, int, int], None]) -> Iterator[dict[str, Any]]:
    for problem in (digits(), diabetes()):
        runs = 1 + len(EPSILONS)
        step(problem.name, 0, runs)
        result, error = problem.solved(EPSILON, SEED)
        result.save(folder / problem.name)
        curve = {}
        for k, epsilon in enumerate(EPSILONS, 1):
            step(problem.name, k, runs)
            errors = [problem.solved(epsilon, seed)[1] for seed in SEEDS]
            curve[str(epsilon)] = float(np.mean(errors))
        yield {
            "problem": problem.name,
            "what": problem.what,
            "measure": problem.measure,
            "private": error,
            "non_private": problem.solved(None, None)[1],
            "without_data": problem.without_data,
            "violation": result.summary["violation"],
            "epsilon": result.privacy.epsilon,
            "delta": result.privacy.delta,
            "by_epsilon": curve,
        }
        step(problem.name, runs, runs)


def _plot(path: Path, rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for panel, row in zip(figure.subplots(1, len(rows)), rows, strict=True):
        panel.axhline(row["without_data"], color="grey", ls=":", label="without the data")
        curve = list(row["by_epsilon"].values())
        panel.plot(EPSILONS, curve, "o-", label=f"private, mean of {len(SEEDS)} seeds")
        panel.axhline(row["non_private"], color="black", lw=1, label="non-private")
        panel.set_xscale("log", base=2)
        panel.set_xticks(EPSILONS, [f"{x:g}" for x in EPSILONS])
        panel.set_ylim(bottom=0)
        panel.set_title(f"{row['problem']}: {row['what']}", fontsize="medium")
        panel.set_xlabel(f"total ε (δ = {row['delta']:g})")
        panel.set_ylabel(row["measure"])
        panel.legend()
    save_figure(path, figure, dpi=120)


def _dataset(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError:
        raise InvalidInput("Expected scikit-learn: pip install 'tacit[demo]'.") from None
    return getattr(datasets, name)()
