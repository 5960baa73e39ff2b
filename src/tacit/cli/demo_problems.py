"""One small real problem of each kind, solved privately and set beside its non-private optimum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.result import Result
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.files import save_figure
from tacit.objectives.losses import LeastSquares, SoftmaxRegression
from tacit.privacy.accounting import rounded_up
from tacit.sets import Box, Polyhedron

SEED = 1


def digits(agents: int = 5) -> tuple[Problem, Vector, Vector]:
    """Federated softmax regression on scikit-learn's digits; also the held-out test set.

    Each agent knows 270-odd of 1,347 training images. Weights lie in the box [−1, 1].
    """
    data = _dataset("load_digits")
    order = np.random.default_rng(0).permutation(len(data.data))
    X = np.hstack([data.data / 16.0, np.ones((len(order), 1))])[order]
    y = data.target[order]
    train = 3 * len(X) // 4
    problem = Problem(
        LocalProblem(
            SoftmaxRegression(
                X[:train][p::agents],
                y[:train][p::agents],
                10,
                feature_norm=3.0,
                normaliser=train,
                record_bound=300,
            ),
            Box(-1.0, 1.0, size=X.shape[1] * 10),
            name=f"office {p + 1}",
        )
        for p in range(agents)
    )
    return problem, X[train:], y[train:]


# Diabetes coefficients: body mass index and blood pressure may not lower the prediction, and the
# six serum coefficients may add up to at most 1 in absolute value.
LOWER = np.array([-1.0, -1.0, 0.0, 0.0, *[-1.0] * 6])
UPPER = np.ones(10)
SERUM = np.array([[0.0] * 4 + [1.0] * 6, [0.0] * 4 + [-1.0] * 6])
SERUM_LIMIT = np.ones(2)


def diabetes(agents: int = 3) -> Problem:
    """Disease progression by least squares over a polyhedron, 442 patients in three hospitals."""
    data = _dataset("load_diabetes")
    X = data.data / 0.2  # a public constant; longer rows are clipped to feature_norm
    y = (data.target - 152.0) / 200.0
    return Problem(
        LocalProblem(
            LeastSquares(
                X[p::agents],
                y[p::agents],
                feature_norm=1.0,
                target_bound=1.0,
                normaliser=len(X),
                record_bound=200,
            ),
            Polyhedron(SERUM, SERUM_LIMIT, lower=LOWER, upper=UPPER),
            name=f"hospital {p + 1}",
        )
        for p in range(agents)
    )


def run_demo(folder: Path, solve: Callable[..., Result]) -> list[dict[str, Any]]:
    """Solve both problems, save results and ``demo.png``; one row of numbers per problem."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, results = [], []
    problem, X, y = digits()
    label = "digits"
    settings = Settings.for_budget(2.0, 1e-5, rounds=150, local_updates=2)
    result = solve(label, problem, settings, seed=SEED)
    best = _optimum(problem, bounds=[(-1.0, 1.0)] * problem.size)
    note = (
        f"softmax regression over a box, {len(problem.agents)} agents; "
        f"test accuracy {_accuracy(result.solution, X, y):.1%}, "
        f"non-private {_accuracy(best, X, y):.1%}"
    )
    rows.append(_row(label, problem, result, best, note))
    results.append(result)

    problem = diabetes()
    label = "diabetes"
    settings = Settings.for_budget(2.0, 1e-5, rounds=20, local_updates=2)
    result = solve(label, problem, settings, seed=SEED)
    best = _optimum(
        problem,
        bounds=list(zip(LOWER, UPPER, strict=True)),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: SERUM_LIMIT - SERUM @ z},
    )
    note = (
        f"least squares over a polyhedron, {len(problem.agents)} agents; coefficients "
        + " ".join(f"{c:+.2f}" for c in result.solution)
    )
    rows.append(_row(label, problem, result, best, note))
    results.append(result)

    for row, result in zip(rows, results, strict=True):
        result.save(folder / str(row["problem"]))
    _plot(folder / "demo.png", results, rows)
    return rows


def _row(label: str, problem: Problem, result: Result, best: Vector, note: str) -> dict[str, Any]:
    answer = result.solution
    return {
        "problem": label,
        "objective": problem.value(answer),
        "optimum": problem.value(best),
        "violation": max(float(a.feasible_set.violation(answer)) for a in problem.agents),
        "residual": float(result.trace["residual"][-1]),
        "epsilon": result.privacy.epsilon,
        "delta": result.privacy.delta,
        "note": note,
    }


def _optimum(problem: Problem, **options: Any) -> Vector:
    """The non-private optimum of the pooled problem, by a solver of SciPy."""
    from scipy.optimize import minimize

    gradient = jax.jit(lambda f, z: f.gradient(z))

    def pooled(z: Vector) -> tuple[float, Vector]:
        gradients = [np.asarray(gradient(a.objective, z)) for a in problem.agents]
        return problem.value(z), np.sum(gradients, axis=0)

    found = minimize(pooled, np.zeros(problem.size), jac=True, tol=1e-10, **options)
    return np.asarray(found.x)


def _accuracy(weights: Vector, X: Vector, y: Vector) -> float:
    return float((np.argmax(X @ weights.reshape(X.shape[1], -1), axis=1) == y).mean())


def _plot(path: Path, results: list[Result], rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for panel, result, row in zip(figure.subplots(1, len(rows)), results, rows, strict=True):
        panel.plot(
            result.trace["round"], result.trace["objective"], label="private run, each round"
        )
        panel.axhline(row["objective"], color="C0", ls="--", label="private answer (consensus)")
        panel.axhline(row["optimum"], color="black", lw=1, label="non-private optimum")
        panel.set_title(
            f"{row['problem']}\ntotal ε = {rounded_up(row['epsilon'], 3)}, δ = {row['delta']:g}"
        )
        panel.set_xlabel("round")
        panel.set_ylabel("objective")
        panel.legend()
    save_figure(path, figure, dpi=120)


def _dataset(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError:
        raise InvalidInput("Expected scikit-learn: pip install 'tacit[demo]'.") from None
    return getattr(datasets, name)()
