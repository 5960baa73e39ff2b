"""One small real problem of each kind, solved privately, for budgets from small to large.

Each answer stands beside what the same model finds without privacy, and beside what one would say
without the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
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


class Digits:
    """Handwritten digits over five offices: each knows 270-odd of 1,347 training images."""

    name, measure = "digits", "share of test images in the wrong class"
    what = "logistic regression on public image features, 5 agents"
    without_data = 0.9

    def __init__(self, agents: int = 5) -> None:
        data = _dataset("load_digits")
        from tacit.learn import Orientations

        order = np.random.default_rng(0).permutation(len(data.data))
        X, y = Orientations().fit_transform(data.data[order] / 16.0), data.target[order]
        cut = 3 * len(X) // 4
        self.train, self.test = (X[:cut], y[:cut]), (X[cut:], y[cut:])
        self.owner = [f"office {1 + i % agents}" for i in range(cut)]

    def solved(self, epsilon: float | None, seed: int | None) -> tuple[Result, float]:
        """The result, and its error."""
        from tacit.learn import PrivateLogisticRegression

        classes = list(range(10))
        model = PrivateLogisticRegression(epsilon, DELTA, classes=classes, random_state=seed)
        model.fit(*self.train, self.owner)
        return model.result_, float(1 - model.score(*self.test))

    def non_private(self) -> float:
        return self.solved(None, None)[1]


# Diabetes coefficients: body mass index and blood pressure may not lower the prediction, and the
# six serum coefficients may add up to at most 1 in absolute value.
LOWER = np.array([-1.0, -1.0, 0.0, 0.0, *[-1.0] * 6])
UPPER = np.ones(10)
SERUM = np.array([[0.0] * 4 + [1.0] * 6, [0.0] * 4 + [-1.0] * 6])
SERUM_LIMIT = np.ones(2)


class Diabetes:
    """Disease progression over a polyhedron of coefficients: 442 patients in three hospitals."""

    name, measure = "diabetes", "mean squared residual"
    what = "Huber's regression over a polyhedron, 3 agents"

    def __init__(self, agents: int = 3) -> None:
        data = _dataset("load_diabetes")
        X = data.data / 0.2  # a public constant; longer rows are clipped to feature_norm
        y = (data.target - 152.0) / 200.0
        self.records = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], y
        self.problem = Problem(
            LocalProblem(
                Huber(
                    X[p::agents],
                    y[p::agents],
                    feature_norm=1.0,
                    target_bound=1.0,
                    threshold=0.2,
                    normaliser=len(X),
                    record_bound=200,
                ),
                Polyhedron(SERUM, SERUM_LIMIT, lower=LOWER, upper=UPPER),
                name=f"hospital {p + 1}",
            )
            for p in range(agents)
        )
        self.without_data = self._error(np.zeros(self.problem.size))

    def _error(self, z: Vector) -> float:
        X, y = self.records
        return float(np.mean((X @ z - y) ** 2))

    def solved(self, epsilon: float, seed: int) -> tuple[Result, float]:
        """The result, and its error."""
        from tacit.transports import solve

        result = solve(self.problem, Settings.for_budget(epsilon, DELTA), seed=seed)
        return result, self._error(result.solution)

    def non_private(self) -> float:
        """Least squares over the same polyhedron, by a solver of SciPy."""
        from scipy.optimize import minimize

        X, y = self.records
        found = minimize(
            lambda z: ((X @ z - y) @ (X @ z - y), 2 * X.T @ (X @ z - y)),
            np.zeros(len(UPPER)),
            jac=True,
            tol=1e-10,
            method="SLSQP",
            bounds=list(zip(LOWER, UPPER, strict=True)),
            constraints={"type": "ineq", "fun": lambda z: SERUM_LIMIT - SERUM @ z},
        )
        return self._error(np.asarray(found.x))


def run_demo(
    folder: Path, step: Callable[[str, int, int], None] = lambda what, done, of: None
) -> list[dict[str, Any]]:
    """Solve both problems, save results and ``demo.png``; one row of numbers per problem.

    ``step`` hears of every run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for problem in (Digits(), Diabetes()):
        runs = 1 + len(EPSILONS)
        step(problem.name, 0, runs)
        result, error = problem.solved(EPSILON, SEED)
        result.save(folder / problem.name)
        step(problem.name, 1, runs)
        curve = {}
        for epsilon in EPSILONS:
            errors = [problem.solved(epsilon, seed)[1] for seed in SEEDS]
            curve[str(epsilon)] = float(np.mean(errors))
            step(problem.name, 1 + len(curve), runs)
        rows.append(
            {
                "problem": problem.name,
                "what": problem.what,
                "measure": problem.measure,
                "private": error,
                "non_private": problem.non_private(),
                "without_data": problem.without_data,
                "violation": result.summary["violation"],
                "epsilon": result.privacy.epsilon,
                "delta": result.privacy.delta,
                "by_epsilon": curve,
            }
        )
    _plot(folder / "demo.png", rows)
    return rows


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
