"""One small real problem of each kind, solved privately and set beside its non-private optimum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.conic import Polyhedron
from tacit.errors import TacitError
from tacit.objectives import LeastSquares, SoftmaxRegression
from tacit.problem import LocalProblem, Problem
from tacit.result import Result
from tacit.sets import Box
from tacit.settings import Settings

Vector = np.ndarray[Any, Any]
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
                X[:train][p::agents], y[:train][p::agents], 10, feature_norm=3.0, normaliser=train
            ),
            Box(-1.0, 1.0, size=X.shape[1] * 10),
            name=f"office {p + 1}",
        )
        for p in range(agents)
    )
    return problem, X[train:], y[train:]


def diabetes(agents: int = 3) -> Problem:
    """Disease progression by constrained least squares over a polyhedron.

    Coefficients of body mass index and blood pressure may not be negative, and coefficients
    together may not exceed 1 in absolute sum of the two serum groups: public medical knowledge.
    """
    data = _dataset("load_diabetes")
    X = data.data / np.linalg.norm(data.data, axis=1).max()
    y = (data.target - 152.0) / 200.0
    n = X.shape[1]
    lower = np.full(n, -1.0)
    lower[[2, 3]] = 0.0  # bmi, blood pressure
    serum = np.zeros((2, n))
    serum[0, 4:] = 1.0
    serum[1, 4:] = -1.0
    feasible = {"matrix": serum, "offset": np.ones(2), "lower": lower, "upper": np.ones(n)}
    return Problem(
        LocalProblem(
            LeastSquares(
                X[p::agents],
                y[p::agents],
                feature_norm=1.0,
                target_bound=1.0,
                normaliser=len(X),
            ),
            Polyhedron(**feasible),
            name=f"hospital {p + 1}",
        )
        for p in range(agents)
    )


def run_demo(folder: Path, solve: Callable[..., Result]) -> list[dict[str, Any]]:
    """Solve both problems, save results and ``demo.png``; one row of numbers per problem."""
    folder.mkdir(parents=True, exist_ok=True)
    softmax, X, y = digits()
    first = solve(
        "digits, softmax, box",
        softmax,
        Settings.for_budget(total_epsilon=2.0, total_delta=1e-5, rounds=150, local_updates=2),
        seed=SEED,
    )
    regression = diabetes()
    second = solve(
        "diabetes, least squares, polyhedron",
        regression,
        Settings.for_budget(total_epsilon=2.0, total_delta=1e-5, rounds=100, local_updates=1),
        seed=SEED,
    )
    accuracy = _accuracy(first.ergodic, X, y)
    start = _box_start(softmax)
    best = _optimum(softmax, start, bounds=[(-1.0, 1.0)] * len(start))
    rows = [
        _row("digits, softmax, box", softmax, first, best)
        | {
            "note": f"test accuracy {accuracy:.1%} "
            f"(non-private {_accuracy(best[1], X, y):.1%}), {len(softmax.agents)} agents"
        }
    ]
    W = regression.agents[0].feasible_set
    limits = diabetes_constraints()
    best = _optimum(
        regression,
        np.asarray(W.project(np.zeros(regression.size))),
        bounds=list(zip(limits["lower"], limits["upper"], strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda z: limits["offset"] - limits["matrix"] @ z,
        },
    )
    rows.append(
        _row("diabetes, least squares, polyhedron", regression, second, best)
        | {"note": f"{len(regression.agents)} agents, {regression.size} coefficients"}
    )
    first.save(folder / "digits")
    second.save(folder / "diabetes")
    _plot(folder / "demo.png", (first, second), rows)
    return rows
