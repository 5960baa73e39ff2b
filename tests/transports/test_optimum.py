"""Noiseless runs reach the optimum of the whole problem, as CVXPY and Clarabel find it."""

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest
from conftest import CLOSED_SETS, OBJECTIVES, SOLVER_SETS, problem_of, repeat

import tacit
from tacit.admm.settings import Schedule

NONSMOOTH = ("hinge", "quantile")
SEEDS = range(repeat(1, 10))
FEWER = repeat(4, 1)  # rounds of the kinks, by this factor: enough for the first seed
EVERY = [(o, s) for o in OBJECTIVES for s in (*CLOSED_SETS, *SOLVER_SETS)]
# every objective, and every kind of set; kinks through a solver take longest
SOME = [
    ("least-squares", "hyperplane"),
    ("logistic", "l1-ball"),
    ("softmax", "simplex"),
    ("huber", "product"),
    ("hinge", "half-space"),
    ("quantile", "box"),
    ("residual", "cvxpy"),
    ("per-sample", "cone"),
]
PAIRS = repeat(SOME, EVERY)


def expression(f, z):
    """f written in CVXPY from its records, independently of its JAX code."""
    if isinstance(f, tacit.Residual):
        return cp.sum_squares(np.asarray(f.matrix) @ z + np.asarray(f.data))
    if isinstance(f, tacit.PerSample):
        X, y = (np.asarray(part) for part in f.data)
        return cp.sum_squares(X @ z - y) / (2 * f.normaliser)
    X, N = np.asarray(f.features).T, float(f.normaliser)
    if isinstance(f, tacit.SoftmaxRegression):
        Z = cp.reshape(z, (X.shape[1], f.classes), order="C")
        labels = np.asarray(f.labels)
        scores = X @ Z
        return (
            cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(scores[np.arange(len(X)), labels])
        ) / N
    if isinstance(f, tacit.LogisticRegression | tacit.Hinge):
        signs = np.where(np.asarray(f.labels) > 0, 1.0, -1.0)
        margin = cp.multiply(signs, X @ z)
        hinge = isinstance(f, tacit.Hinge)
        return cp.sum(cp.pos(1 - margin) if hinge else cp.logistic(-margin)) / N
    r = np.asarray(f.targets) - X @ z
    if isinstance(f, tacit.Quantile):
        level = float(f.level)
        return cp.sum(cp.maximum(level * r, (level - 1) * r)) / N
    if isinstance(f, tacit.Huber):
        return cp.sum(cp.huber(r, float(f.threshold))) / (2 * N)
    return cp.sum_squares(r) / (2 * N)


def constraints(kind, z):
    n = z.shape[0]
    ones = np.ones(n)
    return {
        "box": [z >= -0.4, z <= 0.5],
        "non-negative": [z >= 0, z <= 0.7],
        "ball": [cp.norm(z, 2) <= 0.6],
        "l1-ball": [cp.norm(z, 1) <= 0.8],
        "simplex": [z >= 0, cp.sum(z) == 1],
        "half-space": [cp.sum(z) <= 0.3, z >= -0.5, z <= 0.5],
        "hyperplane": [cp.sum(z) == 0.2, z >= -0.5, z <= 0.5],
        "product": [cp.abs(z[0]) <= 0.3, cp.norm(z[1:], 2) <= 0.5],
        "polyhedron": [ones @ z <= 0.4, (np.arange(n) - 1.0) @ z <= 0.5, z >= -0.5, z <= 0.5],
        "cone": [cp.norm(z, 2) <= 0.6, z >= -0.5, z <= 0.5],
        "cvxpy": [cp.norm(z, 1) <= 0.9, cp.norm(z, 2) <= 0.7, z >= -0.4],
    }[kind]


@dataclass(frozen=True)
class Geometric(Schedule):
    """initial·ratio^(t−1); 1/√t would need 10¹² rounds for six digits."""

    initial: float
    ratio: float
    kind = "geometric"

    def __call__(self, t):
        return self.initial * self.ratio ** (t - 1)


def noiseless(objective, solver_backed):
    """Schedules: the constant 1/L for smooth objectives; geometric ones for the kinks."""
    if objective in NONSMOOTH:
        rounds, updates, ratio = (3200, 1, 0.993) if solver_backed else (10_000, 5, 0.9985)
        rounds, ratio = rounds // FEWER, ratio**FEWER
        return tacit.Settings(
            rounds,
            updates,
            step_size=Geometric(3.0, ratio),
            penalty=Geometric(0.1, 1 / ratio),
        )
    if solver_backed:
        return tacit.Settings(repeat(120, 800), 1)
    return tacit.Settings(repeat(128, 3000), 2)


@pytest.mark.parametrize(("objective", "feasible"), PAIRS)
def test_noiseless_runs_reach_the_optimum(objective, feasible):
    solver_backed = feasible in SOLVER_SETS
    settings = noiseless(objective, solver_backed)
    # agents by themselves compile less, and few rounds do; in make test kinks run as one program
    batch = repeat(False if objective not in NONSMOOTH else None, None)
    # subgradients through a solver take many calls: two unknowns keep that affordable
    size = {"dimension": 2, "records": 10} if solver_backed and objective in NONSMOOTH else {}
    for seed in SEEDS:
        problem = problem_of(objective, feasible, seed, agents=2, **size)
        z = cp.Variable(problem.size)
        total = sum(expression(a.objective, z) for a in problem.agents)
        reference = cp.Problem(cp.Minimize(total), constraints(feasible, z))
        with warnings.catch_warnings():  # "inaccurate" to its 1e-8; compared to 1e-6 below
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            optimum = reference.solve(cp.CLARABEL)
        options = {"seed": 0, "evaluate_every": settings.rounds, "batch": batch}
        result = tacit.solve(problem, settings, **options)
        reached = problem.value(result.solution)
        assert abs(reached - optimum) <= 1e-6 * abs(optimum) + 2e-8, (seed, reached, optimum)
        assert max(float(a.feasible_set.violation(result.solution)) for a in problem.agents) < 1e-6
