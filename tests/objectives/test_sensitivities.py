"""Certified sensitivities against the worst neighbours: never exceeded, and attained."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import (
    BALL,
    BOX,
    CLASSES,
    FEATURES,
    SAMPLED,
    B,
    N,
    Y,
    balanced,
    change,
    corner,
    ones,
    pair,
    points,
    records,
    residual,
    sample,
    statistic,
    unit,
)

from tacit.errors import InvalidInput
from tacit.objectives import (
    LeastSquares,
    Objective,
    SoftmaxRegression,
)
from tacit.sets import Ball, Box

GRADIENT = jax.jit(lambda f, z: f.gradient(z))
PAPER = jax.jit(
    lambda f, z, norm: (f.paper_sensitivity(z, norm), f.paper_output_sensitivity(z, norm, 4.0)),
    static_argnums=2,
)


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


MOVES = [("least-squares", ("move", 0.3)), ("huber", ("move", 0.3))]
RELATIONS = [*((n, r) for n in SAMPLED for r in ("add-remove", "replace")), *MOVES]
SHIFTED = ["least-squares", "quantile", "logistic", "softmax", "limited-softmax", "per-sample"]
FEW = [(n, "add-remove" if n in SHIFTED else "replace") for n in SAMPLED]  # each objective once
FEW += [("least-squares", "replace"), ("softmax", "replace"), MOVES[0]]


@pytest.mark.parametrize(("name", "relation"), repeat(FEW, RELATIONS))
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


OUT, MOVE = ["least-squares", "huber", "quantile", "logistic", "limited-logistic"], ("move", 0.3)
# loss, relation, two records of neighbours, and the point at which they are furthest apart
WORST = [
    *((name, "add-remove", (B * unit, -Y), None, corner) for name in OUT),
    ("hinge", "add-remove", (B * unit, -Y), None, 0 * ones),
    *(
        (name, "replace", (B * unit, Y), (-B * unit, Y), 0)
        for name in ("hinge", "limited-logistic", "clipped-softmax")
    ),
    ("quantile", "replace", (B * unit, -Y), (-B * unit, -Y), 0),  # the steep side needs y < 0
    *((name, MOVE, (B * unit, 0.1), (B * unit, -0.2), 0) for name in ("least-squares", "huber")),
]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("worst", WORST, ids=lambda w: f"{w[0]}-{w[1]}")
def test_the_bound_is_attained(worst: Any, norm: int) -> None:
    name, relation, first, second, z = worst
    f, g = pair(name, relation, first, second)
    z = z + np.zeros(f.dimension)
    for W in (Box(-0.5, 0.5, f.dimension), Ball(0.0, 1.0, f.dimension)):
        assert change(f, g, z, norm) == pytest.approx(f.sensitivity(norm, W), rel=1e-5)


@pytest.mark.parametrize(("name", "most"), [("least-squares", 2 * Y), ("huber", 2 * 0.8)])
def test_a_target_moves_no_further_than_its_bounds(name: str, most: float) -> None:
    f, far = (sample(name, [B * unit], [0.1], neighbours=("move", b)) for b in (0.3, 100.0))
    assert f.neighbours == "one target moving by at most 0.3"
    assert far.sensitivity(2, BOX) == pytest.approx(most * B / N)


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


@pytest.mark.parametrize("length", [1e-3, 1.33, 300.0])
def test_logistic_replace_bound_is_nearly_attained(length: float) -> None:
    """Two records at angles ±φ: tight for tiny and huge scores, at most 1.4 between."""
    W, e = Ball(0.0, length, FEATURES), np.eye(FEATURES)
    best = 0.0
    for φ in np.arccos(np.linspace(0, 1, 41) ** 2):
        first, second = (B * (-math.cos(φ) * e[0] + s * math.sin(φ) * e[1]) for s in (1, -1))
        f, g = pair("logistic", "replace", (first, 1.0), (second, 1.0))
        best = max(best, change(f, g, length * e[0], 2))
    loose = f.sensitivity(2, W) / best
    assert 1 <= loose <= (1.4 if length == 1.33 else 1.02)


def test_rounding_a_moved_target_is_covered():
    beta = 6e-13
    common = {"feature_norm": 1.0, "target_bound": 3000.0, "normaliser": 1.0}
    box = Box(-1.0, 1.0, size=1)
    worst = 0.0
    for y in np.linspace(2000, 2001, repeat(60, 200)):
        targets = (y, y + beta)
        pair = [LeastSquares([[1.0]], [v], neighbours=("move", beta), **common) for v in targets]
        difference = [float(statistic(f, np.zeros(1))[0]) for f in pair]
        worst = max(worst, abs(difference[0] - difference[1]))
        assert worst <= pair[0].sensitivity(2, box)
    assert worst > beta  # the bound for exact arithmetic would be broken


def softmax_record(x: Any, label: int, K: int, relation: str = "add-remove") -> SoftmaxRegression:
    return SoftmaxRegression([x], [label], K, feature_norm=B, normaliser=N, neighbours=relation)


@pytest.mark.parametrize(
    ("c", "K", "factor"),
    [(0.3, 3, 0.9610), (1.0, 10, 1.0668), (2.8, 10, 1.389), (1e4, 5, 2**0.5)],
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
            size = float(np.linalg.norm(GRADIENT(f, Z.ravel()), norm))
            reached[norm] = max(reached[norm], size)
    for norm in (1, 2):
        assert reached[norm] == pytest.approx(f.sensitivity(norm, W), rel=1e-5)


def test_softmax_bound_on_a_ball() -> None:
    for K, loose in ((2, 1 + 1e-5), (10, 1.1)):
        f = softmax_record(B * unit, 0, K)
        own, low = (a.ravel()[:, None] for a in np.mgrid[-2:0:21j, -1:0.5:16j])
        scores = np.concatenate([  # few or many of the other classes have the highest score, 1
            np.where(np.arange(K) == 0, own, np.where(np.arange(K) <= high, 1.0, low))
            for high in range(1, K)
        ])  # fmt: skip
        scores /= np.linalg.norm(scores, axis=1, keepdims=True)
        Z = (unit[:, None] * scores[:, None, :]).reshape(len(scores), -1)
        gradients = jax.jit(jax.vmap(f.gradient))
        for length in (0.1, 0.7, 2.0, 20.0):
            reached = float(np.linalg.norm(gradients(length * Z), axis=1).max())
            bound = f.sensitivity(2, Ball(0.0, length, FEATURES * K))
            assert reached <= bound * (1 + 1e-9) and bound <= loose * reached


@pytest.mark.parametrize(("c", "loose"), [(0.01, 1.02), (2.0, 1.4), (40.0, 1.02)])
def test_softmax_replace_bound_is_nearly_attained(c: float, loose: float) -> None:
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
    assert f.sensitivity(2, W) <= loose * best


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
        claimed = float(PAPER(f, z, norm)[0])
        assert change(f, larger, z, norm) > 2 * claimed
        assert change(f, larger, z, norm) <= f.sensitivity(norm, W)


def test_paper_sensitivities() -> None:
    X, y = records(4, scale=0.1)
    f = sample("softmax", X, y)
    z, _ = points(f, 0)
    each_record = [
        GRADIENT(sample("softmax", X[i : i + 1], y[i : i + 1]), z) for i in range(len(y))
    ]
    for norm in (1, 2):
        largest = N * max(float(np.linalg.norm(g, norm)) for g in each_record)
        gradient, output = PAPER(f, z, norm)
        assert gradient == pytest.approx(largest / (N + 1))
        assert output == pytest.approx(2 * largest / (4 * N))
        assert residual().paper_sensitivity(z, norm) == pytest.approx(0.2)
        assert residual().paper_output_sensitivity(z, norm, 4.0) == pytest.approx(0.1)
    with pytest.raises(InvalidInput, match="calibration='paper', got Hinge"):
        sample("hinge", X, y).paper_sensitivity(z, 2)
    with pytest.raises(InvalidInput, match="got Hinge"):
        sample("hinge", X, y).paper_output_sensitivity(z, 2, 1.0)
