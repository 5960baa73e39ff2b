"""Objectives: calculus, certified sensitivities against worst-case neighbours, padding, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput
from tacit.objectives.losses import (
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Quantile,
    SoftmaxRegression,
)
from tacit.objectives.objective import Objective
from tacit.objectives.per_sample import PerSample
from tacit.objectives.residual import Residual
from tacit.sets.closed_forms import Ball, Box

FEATURES, CLASSES, B, Y, N = 4, 3, 1.5, 2.0, 12.0


def pinball(z: jax.Array, record: Any) -> jax.Array:
    x, y = record
    return (x @ z - y) ** 2 / 2 + jnp.sum(jnp.cosh(z)) / 10


def classes(y: np.ndarray) -> np.ndarray:
    return (np.abs(y) * 100).astype(int) % CLASSES


def sample(name: str, X: Any, y: Any, **options: Any) -> Objective:
    """The objective called ``name`` on rows X and real numbers y."""
    X, y = np.asarray(X), np.asarray(y)
    options = {"normaliser": N, **options}
    if name == "per-sample":
        return PerSample(pinball, (X, y), clip=0.7, size=X.shape[1], **options)
    options = {"feature_norm": B, **options}
    match name:
        case "least-squares":
            return LeastSquares(X, y, target_bound=Y, **options)
        case "huber":
            return Huber(X, y, target_bound=Y, threshold=0.8, **options)
        case "quantile":
            return Quantile(X, y, level=0.3, **options)
        case "logistic":
            return LogisticRegression(X, y > 0, **options)
        case "hinge":
            return Hinge(X, np.where(y > 0, 1, -1), **options)
        case "softmax":
            return SoftmaxRegression(X, classes(y), CLASSES, **options)
    raise AssertionError(name)


LINEAR = ["least-squares", "huber", "quantile", "logistic", "hinge", "softmax"]
SAMPLED = [*LINEAR, "per-sample"]
KINKED = {"quantile", "hinge"}


def records(seed: int, rows: int = 8, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(rows, FEATURES)), 2 * rng.normal(size=rows)


def residual(**options: Any) -> Residual:
    rng = np.random.default_rng(3)
    return Residual(rng.normal(size=(6, 4)), rng.normal(size=6), 0.1, **options)


def every_objective() -> dict[str, Objective]:
    X, y = records(0)
    found: dict[str, Objective] = {name: sample(name, X, y) for name in LINEAR}
    found["ridge"] = sample("least-squares", X, y, ridge=0.4)
    found["softmax with ridge"] = sample("softmax", X, y, ridge=0.4)
    found["per-sample"] = PerSample(pinball, (X, y), clip=1e9, size=FEATURES, normaliser=N)
    found["residual"] = residual()
    found["residual, noise on gradient"] = residual(noise_on="gradient")
    return found


OBJECTIVES = every_objective()
each = pytest.mark.parametrize("name", OBJECTIVES)


def points(f: Objective, seed: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    z, u = rng.normal(size=(2, f.dimension))
    return jnp.asarray(z), jnp.asarray(u)


# Calculus


@each
def test_gradient_is_the_derivative_of_value(name: str) -> None:
    f = OBJECTIVES[name]  # where f has kinks, z is none
    z, _ = points(f, 1)
    np.testing.assert_allclose(f.gradient(z), jax.grad(f.value)(z), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(f.gradient(z), f.lift(f.statistic(z)) + f.public_gradient(z))
    assert f.statistic(z).shape == (f.statistic_size,)


@each
def test_lift_is_linear_and_its_energy_is_known(name: str) -> None:
    f = OBJECTIVES[name]
    columns = jax.vmap(f.lift)(jnp.eye(f.statistic_size))
    assert float((columns**2).sum()) == pytest.approx(f.lift_energy)


@each
@pytest.mark.parametrize("seed", range(5))
def test_convex_smooth_and_strongly_convex_as_claimed(name: str, seed: int) -> None:
    f = OBJECTIVES[name]
    z, u = points(f, seed)
    above = float(f.value(u) - f.value(z) - f.gradient(z) @ (u - z))
    square = float((u - z) @ (u - z))
    assert above >= f.strong_convexity / 2 * square - 1e-12
    if f.smoothness is None:
        assert name in KINKED | {"per-sample"}
    else:
        assert above <= f.smoothness / 2 * square + 1e-12


def test_curvature_claims_are_tight() -> None:
    f = residual()
    eigenvalues = np.linalg.eigvalsh(2 * np.asarray(f.matrix).T @ np.asarray(f.matrix))
    assert f.smoothness == pytest.approx(eigenvalues[-1])
    assert f.strong_convexity == pytest.approx(eigenvalues[0])
    assert Residual(np.ones((2, 3)), np.zeros(2), 1.0).strong_convexity == 0
    X = np.tile([B, 0, 0, 0], (12, 1))
    half = {"least-squares": 1.0, "huber": 1.0, "logistic": 0.25, "softmax": 0.5}
    for name, curvature in half.items():
        f = sample(name, X, np.zeros(12))
        assert f.smoothness == pytest.approx(curvature * B**2)
    two = SoftmaxRegression(X, np.zeros(12), 2, feature_norm=B, normaliser=N)
    hessian = jax.hessian(two.value)(jnp.zeros(8))
    assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(two.smoothness)


@each
@pytest.mark.parametrize("kind", [Box, Ball])
def test_gradient_bound_holds(name: str, kind: type) -> None:
    f = OBJECTIVES[name]
    W = Box(-2.0, 1.5, f.dimension) if kind is Box else Ball(0.0, 1.5, f.dimension)
    if isinstance(f, Residual):
        assert f.gradient_bound(W) == math.inf
        f = residual(data_bound=float(np.linalg.norm(f.data)) + 1e-9)
    for seed in range(10):
        z = W.project(10 * points(f, seed)[0])
        assert np.linalg.norm(f.gradient(z)) <= f.gradient_bound(W)


# Certified sensitivities


statistic = jax.jit(lambda f, z: f.statistic(z))


def change(f: Objective, g: Objective, z: Any, norm: int) -> float:
    return float(np.linalg.norm(statistic(f, z) - statistic(g, z), norm))


def neighbours_of(
    name: str, relation: Any, seed: int, scale: float, **options: Any
) -> tuple[Objective, Objective]:
    X, y = records(seed, rows=5, scale=scale)
    X2, y2 = X.copy(), y.copy()
    rng = np.random.default_rng([seed, 1])
    options["neighbours"] = relation
    if relation == "add-remove":
        X2, y2 = X[1:], y[1:]
    elif relation == "replace":
        X2[0], y2[0] = rng.choice([-1, 1]) * X[0] + scale * rng.normal(size=FEATURES) / 4, -y[0]
    else:
        y2[0] += rng.choice([-1, 1]) * relation[1]
    return sample(name, X, y, **options), sample(name, X2, y2, **options)


RELATIONS = [(n, r) for n in SAMPLED for r in ("add-remove", "replace")]
RELATIONS += [("least-squares", ("move", 0.3)), ("huber", ("move", 0.3))]


@pytest.mark.parametrize(("name", "relation"), RELATIONS)
@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    size=st.sampled_from([0.01, 0.5, 5.0]),
    ball=st.booleans(),
    norm_1=st.sampled_from([None, 1.7, 1.0]),
)
def test_neighbours_never_exceed_the_bound(
    name: str, relation: Any, seed: int, scale: float, size: float, ball: bool, norm_1: Any
) -> None:
    options = {} if name == "per-sample" else {"feature_norm_1": norm_1, "ridge": 0.2}
    f, g = neighbours_of(name, relation, seed, scale, **options)
    W = Ball(0.0, size, f.dimension) if ball else Box(-size, size, f.dimension)
    z = W.project(10 * points(f, seed)[0])
    for norm in (1, 2):
        bound = f.sensitivity(norm, W)
        assert bound == g.sensitivity(norm, W) == f.gradient_sensitivity(norm, W)
        assert change(f, g, z, norm) <= bound * (1 + 1e-9)


def pair(name: str, relation: Any, first: Any, second: Any, **options: Any) -> tuple[Any, Any]:
    """Two neighbours whose first record is ``first`` = (x, y), and ``second`` or missing."""
    other = (np.zeros(FEATURES), 0.5)
    options |= {"neighbours": relation}

    def build(*rows: Any) -> Objective:
        return sample(name, [r[0] for r in rows], [r[1] for r in rows], **options)

    return build(first, other), build(second, other) if second else build(other)


ones = np.ones(FEATURES)
unit = ones / math.sqrt(FEATURES)
balanced = np.array([1.0, -1, 1, -1]) / 2
corner = 0.5 * ones  # of the box below; its largest norm is that of the ball
BOX, BALL = Box(-0.5, 0.5, FEATURES), Ball(0.0, 1.0, FEATURES)


@pytest.mark.parametrize("W", [BOX, BALL])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", ["least-squares", "huber", "quantile", "logistic", "hinge"])
def test_add_remove_bound_is_attained(name: str, norm: int, W: Any) -> None:
    f, g = pair(name, "add-remove", (B * unit, -Y), None)
    z = np.zeros(FEATURES) if name == "hinge" else corner
    assert change(f, g, z, norm) == pytest.approx(f.sensitivity(norm, W), rel=1e-5)


@pytest.mark.parametrize("W", [BOX, BALL])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("targets", [0.01, 0.5, Y])
def test_least_squares_replace_bound_is_attained(targets: float, norm: int, W: Any) -> None:
    def build(x: Any, y: float) -> LeastSquares:
        options = {"feature_norm": B, "target_bound": targets, "normaliser": N}
        return LeastSquares([x], [y], neighbours="replace", **options)

    q = 2 * B / (targets + math.hypot(targets, math.sqrt(8) * B))
    tilt = [B * (math.sqrt(1 - q**2) * unit + sign * q * balanced) for sign in (1, -1)]
    f, g = build(tilt[0], -targets), build(tilt[1], targets)
    assert change(f, g, balanced, norm) == pytest.approx(f.sensitivity(norm, W), rel=1e-5)
    assert f.sensitivity(norm, W) < 2 * sample(
        "least-squares", [tilt[0]], [0.0], neighbours="add-remove"
    ).sensitivity(norm, W)


def test_least_squares_replace_with_sparse_features() -> None:
    """With an L1 bound on features the Euclidean angle formula alone would be too small."""
    W = Box(-1.0, 1.0, FEATURES)
    options = {"feature_norm": 1.0, "feature_norm_1": 1.0, "target_bound": 0.01, "normaliser": 1}
    x1, x2 = np.eye(FEATURES)[:2]
    f = LeastSquares([x1], [-0.01], neighbours="replace", **options)
    g = LeastSquares([x2], [-0.01], neighbours="replace", **options)
    moved = change(f, g, np.ones(FEATURES), 2)
    a, t = f.score_bound(W), 0.01
    q = 2 * a / (t + math.hypot(t, math.sqrt(8) * a))
    assert moved > 1.4 * 2 * math.sqrt(1 - q**2) * (a * q + t) * 0.98
    assert moved <= f.sensitivity(2, W) <= 1.25 * moved


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", ["quantile", "hinge"])
def test_replace_bound_is_attained(name: str, norm: int) -> None:
    sign = -1 if name == "quantile" else 1  # quantile: the steep side at z = 0 needs y < 0
    f, g = pair(name, "replace", (B * unit, sign * Y), (-B * unit, sign * Y))
    assert change(f, g, 0 * ones, norm) == pytest.approx(f.sensitivity(norm, BOX), rel=1e-5)


@pytest.mark.parametrize("length", [1e-3, 1.33, 300.0])
def test_logistic_replace_slack(length: float) -> None:
    """Two records at angles ±φ: tight for tiny and huge scores, at most 1.4 between."""
    W, e = Ball(0.0, length, FEATURES), np.eye(FEATURES)
    best = 0.0
    for φ in np.arccos(np.linspace(0, 1, 41) ** 2):
        first, second = (B * (-math.cos(φ) * e[0] + s * math.sin(φ) * e[1]) for s in (1, -1))
        f, g = pair("logistic", "replace", (first, 1.0), (second, 1.0))
        best = max(best, change(f, g, length * e[0], 2))
    slack = f.sensitivity(2, W) / best
    assert 1 <= slack <= (1.4 if length == 1.33 else 1.02)


@pytest.mark.parametrize("name", ["least-squares", "huber"])
@pytest.mark.parametrize("norm", [1, 2])
def test_move_bound_is_attained(name: str, norm: int) -> None:
    f, g = pair(name, ("move", 0.3), (B * unit, 0.1), (B * unit, -0.2))
    assert change(f, g, 0 * ones, norm) == pytest.approx(f.sensitivity(norm, BOX))
    assert f.neighbours == "one target moving by at most 0.3"
    far, _ = pair(name, ("move", 100.0), (B * unit, 0.1), (B * unit, -0.2))
    assert far.sensitivity(2, BOX) == pytest.approx(
        min(2 * Y, 2 * 0.8 if name == "huber" else 9e9) * B / N
    )


def softmax_record(x: Any, label: int, K: int, relation: str = "add-remove") -> SoftmaxRegression:
    return SoftmaxRegression([x], [label], K, feature_norm=B, normaliser=N, neighbours=relation)


@pytest.mark.parametrize(
    ("c", "K", "factor"), [(1.0, 10, 1.0668), (2.8, 10, 1.389), (1e4, 5, 2**0.5)]
)
def test_softmax_bound_is_attained_on_a_box(c: float, K: int, factor: float) -> None:
    u = c / (B * math.sqrt(FEATURES))
    W = Box(-u, u, FEATURES * K)
    f = softmax_record(B * unit, 0, K)
    assert f.slope_bound(2, W) == pytest.approx(factor, rel=5e-4)
    reached = {1: 0.0, 2: 0.0}
    for high in range(1, K):  # so many other classes have the largest score
        Z = -u * np.ones((FEATURES, K))
        Z[:, 1 : high + 1] = u
        for norm in (1, 2):
            size = float(np.linalg.norm(f.gradient(jnp.asarray(Z.ravel())), norm))
            reached[norm] = max(reached[norm], size)
    for norm in (1, 2):
        assert reached[norm] == pytest.approx(f.sensitivity(norm, W), rel=1e-5)


def test_softmax_bound_on_a_ball() -> None:
    for K, slack in ((2, 1 + 1e-5), (10, 1.1)):
        f = softmax_record(B * unit, 0, K)
        own, low = (a.ravel()[:, None] for a in np.mgrid[-2:0:21j, -1:0.5:16j])
        scores = np.concatenate([  # few or many of the other classes have the highest score, 1
            np.where(np.arange(K) == 0, own, np.where(np.arange(K) <= high, 1.0, low))
            for high in range(1, K)
        ])  # fmt: skip
        scores /= np.linalg.norm(scores, axis=1, keepdims=True)
        Z = jnp.asarray(unit[:, None] * scores[:, None, :]).reshape(len(scores), -1)
        for length in (0.1, 0.7, 2.0, 20.0):
            reached = float(jnp.linalg.norm(jax.vmap(f.gradient)(length * Z), axis=1).max())
            bound = f.sensitivity(2, Ball(0.0, length, FEATURES * K))
            assert reached <= bound * (1 + 1e-9) and bound <= slack * reached


@pytest.mark.parametrize(("c", "slack"), [(0.01, 1.02), (2.0, 1.4), (40.0, 1.02)])
def test_softmax_replace_slack(c: float, slack: float) -> None:
    """Neighbouring records whose scores are opposite although they point almost the same way."""
    u, K = c / (B * math.sqrt(FEATURES)), 3
    W, best = Box(-u, u, FEATURES * K), 0.0
    for q in np.linspace(0, 1, 21):
        tilt = [B * (math.sqrt(1 - q**2) * unit + s * q * balanced) for s in (1, -1)]
        for labels in ((0, 1), (2, 2)):
            for sign in (1, -1):
                Z = 2 * u * np.outer(balanced, [1.0, -1.0, 0.0]) * sign
                f, g = (
                    softmax_record(x, k, K, "replace") for x, k in zip(tilt, labels, strict=True)
                )
                best = max(best, change(f, g, Z.ravel(), 2))
    assert best <= f.sensitivity(2, W) * (1 + 1e-9)
    assert f.sensitivity(2, W) <= slack * best


def test_bounds_on_unbounded_sets() -> None:
    everything = Box(-math.inf, math.inf, FEATURES)
    X, y = records(0)
    assert sample("least-squares", X, y).sensitivity(2, everything) == math.inf
    options = {"neighbours": "replace"}
    assert sample("least-squares", X, y, **options).sensitivity(1, everything) == math.inf
    assert sample("huber", X, y, **options).sensitivity(2, everything) == pytest.approx(1.6 * B / N)
    assert sample("logistic", X, y).sensitivity(2, everything) == pytest.approx(B / N)
    wide = Box(-math.inf, math.inf, FEATURES * CLASSES)
    assert sample("softmax", X, y).sensitivity(2, wide) == pytest.approx(math.sqrt(2) * B / N)
    assert sample("softmax", X, y).sensitivity(1, wide) == pytest.approx(2 * 2 * B / N)


@pytest.mark.parametrize("name", SAMPLED)
def test_bounds_do_not_depend_on_the_data(name: str) -> None:
    f, g = (sample(name, *records(s, scale=10.0**s)) for s in (0, 1))
    W = Box(-1.0, 1.0, f.dimension)
    for attribute in ("smoothness", "strong_convexity", "neighbours"):
        assert getattr(f, attribute) == getattr(g, attribute)
    assert f.gradient_bound(W) == g.gradient_bound(W)
    assert all(f.sensitivity(n, W) == g.sensitivity(n, W) for n in (1, 2))


def test_control_the_papers_sensitivity_is_exceeded_by_a_neighbour() -> None:
    X, y = records(4, scale=0.1)
    f = sample("softmax", X, y)
    z = jnp.zeros(f.dimension)
    larger = sample("softmax", np.r_[X, [B * unit]], np.r_[y, 0.5])
    W = Box(-1.0, 1.0, f.dimension)
    for norm in (1, 2):
        claimed = float(jax.jit(f.paper_sensitivity, static_argnums=1)(z, norm))
        assert change(f, larger, z, norm) > 2 * claimed
        assert change(f, larger, z, norm) <= f.sensitivity(norm, W)


def test_paper_sensitivities() -> None:
    X, y = records(4, scale=0.1)
    f = sample("softmax", X, y)
    z, _ = points(f, 0)
    each_record = [sample("softmax", X[i : i + 1], y[i : i + 1]).gradient(z) for i in range(len(y))]
    for norm in (1, 2):
        largest = N * max(float(np.linalg.norm(g, norm)) for g in each_record)
        assert f.paper_sensitivity(z, norm) == pytest.approx(largest / (N + 1))
        assert f.paper_output_sensitivity(z, norm, 4.0) == pytest.approx(2 * largest / (4 * N))
        assert residual().paper_sensitivity(z, norm) == pytest.approx(0.2)
        assert residual().paper_output_sensitivity(z, norm, 4.0) == pytest.approx(0.1)
    with pytest.raises(InvalidInput, match="calibration='paper', got Hinge"):
        sample("hinge", X, y).paper_sensitivity(z, 2)
    with pytest.raises(InvalidInput, match="got Hinge"):
        sample("hinge", X, y).paper_output_sensitivity(z, 2, 1.0)


# Residual


@pytest.mark.parametrize("noise_on", ["residual", "gradient"])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), moved=st.integers(1, 6), vector=st.booleans())
def test_residual_neighbours_never_exceed_the_bound(
    noise_on: str, seed: int, moved: int, vector: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, d = rng.normal(size=(6, 4)), rng.normal(size=6)
    β = rng.uniform(0.1, 1, size=6) if vector else 0.3
    who = rng.permutation(6)[:moved]
    d2 = d.copy()
    d2[who] += (β * np.ones(6) * rng.choice([-1, 1], size=6))[who]
    f, g = (Residual(A, data, β, moved, noise_on=noise_on) for data in (d, d2))
    W, z = Ball(0.0, 1.0, 4), rng.normal(size=4)
    for norm in (1, 2):
        assert change(f, g, z, norm) <= f.sensitivity(norm, W) * (1 + 1e-9)
        moved_gradient = np.linalg.norm(
            f.gradient(jnp.asarray(z)) - g.gradient(jnp.asarray(z)), norm
        )
        assert moved_gradient <= f.gradient_sensitivity(norm, W) * (1 + 1e-9)


ROUNDING = 2e-4  # what the rounding of numbers up to 2³⁷β adds


def test_residual_bounds_are_attained() -> None:
    W, A = Ball(0.0, 1.0, 2), np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])
    one = Residual(A, np.zeros(3), 0.01)
    assert one.sensitivity(1, W) == one.sensitivity(2, W) == pytest.approx(0.02, rel=ROUNDING)
    assert one.gradient_sensitivity(1, W) == pytest.approx(0.02 * 7, rel=ROUNDING)
    assert one.gradient_sensitivity(2, W) == pytest.approx(0.02 * 5, rel=ROUNDING)
    assert one.neighbours == "one datum moving by at most 0.01"
    two = Residual(A, np.zeros(3), [0.1, 0.3, 0.4], 2)
    assert two.sensitivity(1, W) == pytest.approx(1.4, rel=ROUNDING)
    assert two.sensitivity(2, W) == pytest.approx(1.0, rel=ROUNDING)
    assert two.neighbours == "up to 2 data, each moving by at most its own bound, 0.4 or less"
    orthogonal = Residual(np.eye(4), np.zeros(4), 1.0, 4, noise_on="gradient")
    assert orthogonal.sensitivity(2, Ball(0.0, 1.0, 4)) == pytest.approx(4.0, rel=1e-3)  # not 2·4
    assert orthogonal.statistic_size == orthogonal.dimension == 4


def test_residual_groups_move_together() -> None:
    """Two rows that share a column: the exact L2 bound lies between √2 and 2 times one row's."""
    A = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [5.0, 0.0, 0.0], [0.0, 0.1, 0.0]])
    W, options = Ball(0.0, 1.0, 3), {"groups": [0, 0, 1, 1]}
    f = Residual(A, np.zeros(4), [0.3, 0.4, 0.01, 0.01], **options)
    assert f.sensitivity(1, W) == pytest.approx(2 * 0.7, rel=ROUNDING)
    assert f.sensitivity(2, W) == pytest.approx(2 * 0.5, rel=ROUNDING)
    both = 0.3 * A[0] + 0.4 * A[1]
    assert f.gradient_sensitivity(2, W) == pytest.approx(2 * np.linalg.norm(both), rel=1e-3)
    assert f.gradient_sensitivity(1, W) == pytest.approx(2 * np.abs(both).sum(), rel=1e-3)
    assert "the data of one group, each moving by at most its own bound" in f.neighbours
    for wrong in ([0, 0, 1], [0.5] * 4):
        with pytest.raises(InvalidInput, match="groups as 4 whole numbers"):
            Residual(A, np.zeros(4), 0.1, groups=wrong)


@pytest.mark.parametrize("noise_on", ["residual", "gradient"])
def test_a_sparse_residual_is_the_dense_one(noise_on: str) -> None:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(5, 7)) * (rng.uniform(size=(5, 7)) < 0.4)
    d, z, W = rng.normal(size=5), rng.normal(size=7), Ball(0.0, 1.0, 7)
    dense = Residual(A, d, 0.1, noise_on=noise_on, slack=True)
    sparse = Residual(sp.csr_matrix(A), d, 0.1, noise_on=noise_on, slack=True)
    assert sparse.slack_size == 5 and sparse.dimension == 7
    for point in (z, jnp.asarray(z)):  # NumPy's arrays and JAX's
        np.testing.assert_allclose(sparse.value(point), dense.value(point))
        np.testing.assert_allclose(sparse.gradient(point), dense.gradient(point))
        np.testing.assert_allclose(sparse.slack_of(point), A @ z)
    assert isinstance(sparse.gradient(z), np.ndarray)
    np.testing.assert_allclose(jax.grad(sparse.value)(jnp.asarray(z)), dense.gradient(z))
    for norm in (1, 2):
        assert sparse.sensitivity(norm, W) == pytest.approx(dense.sensitivity(norm, W), rel=1e-3)
    assert sparse.lift_energy == pytest.approx(dense.lift_energy)
    assert sparse.smoothness >= dense.smoothness  # a bound from row and column sums


def test_a_slack_needs_a_set_that_has_it() -> None:
    f = Residual(np.eye(2), np.zeros(2), 1.0, slack=True)
    with pytest.raises(InvalidInput, match="a feasible set with 2 slacks"):
        LocalProblem(f, Ball(0.0, 1.0, 2))


# Per-sample clipping


@pytest.mark.parametrize("clip_norm", [1, 2])
def test_per_sample_clipping(clip_norm: int) -> None:
    X, y = records(0, rows=300)
    options = {"size": FEATURES, "normaliser": 300, "clip_norm": clip_norm}
    f = PerSample(pinball, (X, y), clip=0.7, **options)
    z, _ = points(f, 0)
    gradients = np.stack([jax.grad(pinball)(z, r) for r in zip(X, y, strict=True)])
    norms = np.linalg.norm(gradients, clip_norm, axis=1)
    clipped = gradients * np.minimum(1, 0.7 / norms)[:, None]
    assert (norms > 0.7).any() and (norms < 0.7).any()
    np.testing.assert_allclose(f.gradient(z), clipped.mean(axis=0), rtol=1e-12)
    W = Ball(0.0, 1.0, FEATURES)
    expected = {1: 0.7 / 300 * (1 if clip_norm == 1 else 2), 2: 0.7 / 300}
    assert all(f.sensitivity(n, W) == pytest.approx(expected[n]) for n in (1, 2))
    replace = PerSample(pinball, (X, y), clip=0.7, neighbours="replace", **options)
    assert replace.sensitivity(2, W) == pytest.approx(2 * f.sensitivity(2, W))


def test_per_sample_bound_survives_broken_records() -> None:
    X, y = records(0)
    X2 = X.copy()
    X2[0], X2[1], X2[2] = math.nan, math.inf, 1e200  # the last: finite, but its square is not
    options = {"clip": 0.7, "size": FEATURES, "normaliser": N}
    f = PerSample(pinball, (X2, y), **options)
    whole = PerSample(pinball, (X[3:], y[3:]), **options)
    z, _ = points(f, 0)
    np.testing.assert_allclose(f.gradient(z), whole.gradient(z), rtol=1e-12)


def test_per_sample_memory_does_not_grow_as_records_times_size() -> None:
    rows, size = 4000, 500
    data = np.zeros((rows, size), np.float32)
    f = PerSample(lambda z, x: (z @ x) ** 2, data, clip=1.0, size=size, normaliser=rows)
    z = jnp.zeros(size, jnp.float32)
    compiled = jax.jit(lambda f, z: f.gradient(z)).lower(f, z).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < rows * size * 4 / 4


# Storage, padding, batching


def test_rows_are_scaled_to_their_bounds_and_short_ones_kept() -> None:
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1.0, 1.0]])
    options = {"level": 0.5, "feature_norm": 2.0, "feature_norm_1": 1.5, "normaliser": 4}
    f = Quantile(X, np.zeros(4), neighbours="replace", **options)
    expected = np.array([[3 * 1.5 / 7, 4 * 1.5 / 7], [0.3, 0.4], [0, 0], [0.75, 0.75]])
    np.testing.assert_allclose(f.features, expected.T, rtol=2e-15)
    np.testing.assert_array_equal(f.features[:, 1], X[1])
    cut = Quantile(X, np.zeros(4), **options)  # where scores must be exact: multiples of 2⁻²⁵
    np.testing.assert_allclose(cut.features, expected.T, atol=2.0**-25)
    assert (np.asarray(cut.features) * 2.0**25 % 1 == 0).all()
    g = LeastSquares(X, [9.0, -9, 1, 0], target_bound=Y, feature_norm=9.0, normaliser=4)
    np.testing.assert_allclose(g.targets, [Y, -Y, 1, 0], rtol=1e-15)


def test_rounding_does_not_break_the_bounds_in_float32() -> None:
    X, y = np.random.default_rng(0).normal(size=(2, 2000, 7)).astype(np.float32)
    f = LeastSquares(X, 9 * y[:, 0], target_bound=0.1, feature_norm=0.1, normaliser=2000)
    assert np.linalg.norm(np.asarray(f.features, np.float64), axis=0).max() <= 0.1
    assert np.abs(np.asarray(f.targets, np.float64)).max() <= 0.1


@pytest.mark.parametrize("name", SAMPLED)
def test_padding_and_batching_change_nothing(name: str) -> None:
    agents = [
        sample(name, *records(rows, rows=rows), normaliser=9.0 + rows, **options)
        for rows, options in ((3, {}), (5, {}), (8, {}))
    ]
    z, _ = points(agents[0], 0)
    padded = [f.pad(8) for f in agents]
    for f, g in zip(agents, padded, strict=True):
        assert f.sample_count == g.sample_count
        assert g.present.shape == (8,)
        np.testing.assert_allclose(f.value(z), g.value(z), rtol=1e-14)
        np.testing.assert_allclose(f.gradient(z), g.gradient(z), rtol=1e-13, atol=1e-16)
        W = Box(-1.0, 1.0, f.dimension)
        assert f.sensitivity(2, W) == g.sensitivity(2, W)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    gradients = jax.jit(jax.vmap(lambda f: f.gradient(z)))(stacked)
    values = jax.vmap(lambda f: f.value(z))(stacked)
    for i, f in enumerate(agents):
        np.testing.assert_allclose(gradients[i], f.gradient(z), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(values[i], f.value(z), rtol=1e-12)
    with pytest.raises(InvalidInput, match="rows >= 8"):
        agents[-1].pad(7)
    assert residual().pad(99).sample_count == 0


@pytest.mark.parametrize("name", [*SAMPLED, "residual"])
def test_float32_stays_float32(name: str) -> None:
    def build(seed: int) -> Objective:
        X, y = (a.astype(np.float32) for a in records(seed))
        return Residual(X, y, 0.1) if name == "residual" else sample(name, X, y)

    f = build(0)
    z = points(f, 0)[0].astype(jnp.float32)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), f, build(1))
    calls: list[Callable[[Any, Any], Any]] = [lambda f, z: f.gradient(z), lambda f, z: f.value(z)]
    for call in calls:
        assert call(f, z).dtype == jnp.float32
        assert call(f, z.astype(jnp.float64)).dtype == jnp.float64
        assert jax.vmap(call, (0, None))(stacked, z).dtype == jnp.float32


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_float32_data_are_never_copied_to_float64(name: str, dtype: Any) -> None:
    X, y = (a.astype(np.float32) for a in records(0, rows=77))
    f = sample(name, X, y, normaliser=77, neighbours="replace")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), f, f)
    gradient = jax.vmap(lambda f, z: f.gradient(z), (0, None))
    program = str(jax.make_jaxpr(gradient)(stacked, jnp.zeros(f.dimension, dtype)))
    assert f"f64[2,{FEATURES},77]" not in program
    assert f"f32[2,{FEATURES},77]" in program
    if hasattr(f, "labels"):
        assert f.labels.dtype.itemsize == 1


def test_softmax_gradient_is_two_products() -> None:
    X, y = (a.astype(np.float32) for a in records(0))
    f = sample("softmax", X, y)
    z = jnp.zeros(f.dimension, jnp.float32)
    program = str(jax.make_jaxpr(lambda f, z: f.gradient(z))(f, z))
    assert program.count("dot_general") == 2
    assert "scatter" not in program and "gather" not in program


def test_records_are_bounded() -> None:
    X, y = records(0)
    assert sample("hinge", X, y).neighbours == "adding or removing one record"
    assert sample("hinge", X, y, neighbours="replace").neighbours == "replacing one record"
    assert sample("logistic", X, y).smoothness == pytest.approx(B**2 / 4)
    replace = sample("logistic", X, y, neighbours="replace")
    assert replace.smoothness == pytest.approx(B**2 / 4 * 8 / N)
    fewer = sample("logistic", X, y, record_bound=10)
    assert fewer.smoothness == pytest.approx(B**2 / 4 * 10 / N)
    share = sample("logistic", X, y, normaliser=4, record_bound=10)
    assert share.smoothness == pytest.approx(B**2 / 4 * 10 / 4)
    with pytest.raises(InvalidInput, match=r"at most 4 records .* got more. Give a public"):
        sample("logistic", X, y, normaliser=4)


# Errors

X0, y0 = records(0)
NAN = X0.copy()
NAN[2, 1] = math.nan


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: sample("hinge", NAN, y0),
            r"finite numbers in features, not so at index \(2, 1\)",
        ),
        (lambda: sample("hinge", X0[0], y0), "features of shape"),
        (lambda: sample("hinge", X0, y0[1:]), "labels of shape"),
        (lambda: sample("quantile", X0, y0[1:]), "targets of shape"),
        (lambda: sample("huber", X0, y0 * math.inf), "finite numbers in targets"),
        (lambda: LogisticRegression(X0, range(8), feature_norm=B, normaliser=N), "0 and 1, or -1"),
        (lambda: Hinge(X0, y0, feature_norm=B, normaliser=N), "whole numbers as labels"),
        (lambda: SoftmaxRegression(X0, range(8), 7, feature_norm=B, normaliser=N), "0, ..., 6"),
        (lambda: SoftmaxRegression(X0, -y0 // 9, 7, feature_norm=B, normaliser=N), "0, ..., 6"),
        (lambda: SoftmaxRegression(X0, y0 > 0, 1, feature_norm=B, normaliser=N), "classes >= 2"),
        (lambda: sample("hinge", X0, y0, neighbours="swap"), "neighbours to be one of"),
        (lambda: sample("hinge", X0, y0, neighbours=("move", 1.0)), "neighbours to be one of"),
        (lambda: sample("huber", X0, y0, neighbours=("move", -1.0)), "finite move > 0"),
        (lambda: sample("huber", X0, y0, neighbours=("move",)), "neighbours to be one of"),
        (lambda: sample("hinge", X0, y0, normaliser=0), "normaliser > 0"),
        (lambda: sample("hinge", X0, y0, record_bound=math.nan), "record_bound > 0"),
        (lambda: sample("hinge", X0, y0, feature_norm=math.inf), "feature_norm > 0"),
        (lambda: sample("hinge", X0, y0, feature_norm_1=-1), "feature_norm_1 > 0"),
        (lambda: sample("hinge", X0, y0, ridge=-1), "ridge >= 0"),
        (lambda: Quantile(X0, y0, level=1.0, feature_norm=B, normaliser=N), "0 < level < 1"),
        (lambda: sample("hinge", X0, y0).sensitivity(3, BOX), "norm to be one of 1, 2"),
        (lambda: sample("per-sample", X0, y0).sensitivity(3, BOX), "norm to be one of 1, 2"),
        (lambda: sample("per-sample", X0, y0[1:]), "same number of records"),
        (lambda: sample("per-sample", X0, y0, clip_norm=3), "clip_norm to be one of"),
        (lambda: residual().sensitivity(0, BOX), "norm to be one of 1, 2"),
        (lambda: residual(moved=7), "moved <= 6"),
        (lambda: residual(noise_on="output"), "noise_on to be one of"),
        (lambda: residual(data_bound=1e-3), "data_bound=0.001, got more"),
        (lambda: Residual(np.eye(2), [0.0, math.nan], 1.0), "finite numbers in data"),
        (lambda: Residual(np.eye(2), np.zeros(3), 1.0), "data of shape"),
        (lambda: Residual(np.eye(2), np.zeros(2), 0.0), "beta > 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [1.0, -1.0]), "beta >= 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [0.0, 0.0]), "the largest beta > 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [1.0]), "beta of shape"),
    ],
)
def test_bad_input_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build()


def test_float32_per_sample_sums_do_not_round_away_a_record():
    """Half a million clipped gradients in float32: one record more moves the sum by one record."""
    rows = 500_000
    X = np.full((rows + 1, 1), 1.0, np.float32)
    common = {"clip": 1.0, "size": 1, "normaliser": 1.0, "record_bound": rows + 1}

    def loss(z, x):
        return (x @ z) * np.float32(0.7)

    z = jnp.ones(1, jnp.float32)
    more = PerSample(loss, X, **common).statistic(z)
    less = PerSample(loss, X[:-1], **common).statistic(z)
    assert abs(float(more[0]) - float(less[0])) <= 1.0


def test_rounding_a_moved_target_is_covered():
    beta = 6e-13
    common = {"feature_norm": 1.0, "target_bound": 3000.0, "normaliser": 1.0}
    box = Box(-1.0, 1.0, size=1)
    worst = 0.0
    for y in np.linspace(2000, 2001, 200):
        targets = (y, y + beta)
        pair = [LeastSquares([[1.0]], [v], neighbours=("move", beta), **common) for v in targets]
        difference = [float(f.statistic(jnp.zeros(1))[0]) for f in pair]
        worst = max(worst, abs(difference[0] - difference[1]))
        assert worst <= pair[0].sensitivity(2, box)
    assert worst > beta  # the bound for exact arithmetic would be broken


def test_a_moved_target_is_refused_in_float32():
    with pytest.raises(InvalidInput, match="float64 features where one target moves"):
        LeastSquares(
            np.ones((1, 1), np.float32),
            [1.0],
            neighbours=("move", 0.1),
            feature_norm=1.0,
            target_bound=1.0,
            normaliser=1.0,
        )


@pytest.mark.parametrize(
    ("loss", "size", "words"),
    [
        (lambda z, x: z * 1.0, 2, "one number"),
        (lambda z, x: (x @ z) ** 2, 3, "failed"),
        (lambda z: z.sum(), 2, "failed"),
    ],
)
def test_a_loss_of_the_wrong_form_is_refused(loss, size, words):
    with pytest.raises(InvalidInput, match=words):
        PerSample(loss, np.ones((4, 2)), clip=1.0, size=size, normaliser=4.0)


@pytest.mark.parametrize("features", [[[1j, 2.0]], [["1", "2"]]])
def test_features_that_are_not_real_numbers_are_refused(features):
    with pytest.raises(InvalidInput, match="to hold numbers"):
        LeastSquares(features, [1.0], feature_norm=1.0, target_bound=1.0, normaliser=1.0)


@pytest.mark.parametrize("records", [3, 3999, 4000, 4700, 6000])
def test_sums_in_blocks_are_the_whole_sum(records):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(records, 3)), rng.normal(size=6)
    common = {"feature_norm": 9.0, "normaliser": 10.0, "record_bound": records}
    softmax = SoftmaxRegression(X, rng.integers(0, 2, records), 2, **common)
    np.testing.assert_allclose(softmax.gradient(z), jax.grad(softmax.value)(z), rtol=1e-10)
    squares = LeastSquares(X, rng.uniform(-1, 1, records), target_bound=1.0, **common)
    np.testing.assert_allclose(squares.gradient(z[:3]), jax.grad(squares.value)(z[:3]), rtol=1e-10)
    padded = squares.pad(records + 700)
    np.testing.assert_allclose(padded.gradient(z[:3]), squares.gradient(z[:3]), rtol=1e-10)


def test_targets_are_clipped_to_their_bound():
    X, y = np.eye(3), np.array([9.0, -9.0, 0.25])
    for kind, options in ((LeastSquares, {}), (Huber, {"threshold": 50.0})):
        f = kind(X, y, feature_norm=1.0, target_bound=2.0, normaliser=3, **options)
        targets = np.asarray(f.targets)
        assert np.abs(targets).max() <= 2.0
        np.testing.assert_allclose(targets, [2.0, -2.0, 0.25])


@pytest.mark.parametrize("kind", [LogisticRegression, Hinge])
def test_labels_zero_and_one_are_minus_and_plus_one(kind):
    X, z = np.random.default_rng(0).normal(size=(6, 2)), np.array([0.7, -0.4])
    bits = np.array([0, 1, 1, 0, 0, 1])
    common = {"feature_norm": 9.0, "normaliser": 6}
    f, g = kind(X, bits, **common), kind(X, 2 * bits - 1, **common)
    margin = (2 * bits - 1) * (X @ z)
    loss = np.log1p(np.exp(-margin)) if kind is LogisticRegression else 1 - margin
    assert float(f.value(z)) == float(g.value(z)) == pytest.approx(np.maximum(loss, 0).mean())
    np.testing.assert_array_equal(f.gradient(z), g.gradient(z))


def test_a_huge_residual_does_not_round_away_its_bound():
    """At 1e17 numbers are 16 apart: data that differ by 0.01 would be rounded that far apart."""
    for near, noise_on in ((7.995, "residual"), (7.995, "gradient")):
        f, g = (
            Residual(np.array([[1e17]]), np.array([d]), 0.01, noise_on=noise_on)
            for d in (near, near + 0.01)
        )
        z = np.ones(1)
        moved = np.abs(np.asarray(f.statistic(z)) - np.asarray(g.statistic(z))).max()
        assert moved <= f.sensitivity(2, Box(-1.0, 1.0, 1))
