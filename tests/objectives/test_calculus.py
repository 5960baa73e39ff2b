"""Gradients, curvature and bounds of them are those of the value."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from small_objectives import (
    FEATURES,
    KINKED,
    LINEAR,
    B,
    N,
    pinball,
    points,
    records,
    residual,
    sample,
)

from tacit.objectives import (
    Hinge,
    LeastSquares,
    LogisticRegression,
    Objective,
    PerSample,
    Residual,
    SoftmaxRegression,
)
from tacit.sets import Ball, Box


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
SEEDS = 5


class At(NamedTuple):
    """What is known of an objective at a point."""

    z: Any
    value: Any
    gradient: Any
    derivative: Any
    lifted: Any


@jax.jit
def program(f: Objective, Z: Any) -> Any:
    def one(z: Any) -> At:
        lifted = f.lift(f.statistic(z)) + f.public_gradient(z)
        return At(z, f.value(z), f.gradient(z), jax.grad(f.value)(z), lifted)

    return jax.lax.map(one, Z), jax.vmap(f.lift)(jnp.eye(f.statistic_size))


@cache
def seen(name: str) -> tuple[list[At], Any]:
    """At pairs of points, then at ten within a box and ten within a ball; and the lift's columns.

    One program for all tests below; it computes point by point.
    """
    f = OBJECTIVES[name]
    far = [10 * np.asarray(points(f, seed)[0]) for seed in range(10)]
    within = [np.clip(z, -2.0, 1.5) for z in far]
    within += [z / max(1.0, float(np.linalg.norm(z)) / 1.5) for z in far]
    Z = np.stack([*(z for seed in range(SEEDS) for z in points(f, seed)), *within])
    found, columns = jax.tree.map(np.asarray, program(f, Z))
    return [At(*row) for row in zip(*found, strict=True)], columns


@each
def test_gradient_is_the_derivative_of_value(name: str) -> None:
    f = OBJECTIVES[name]
    for at in seen(name)[0][: 2 * SEEDS]:  # where f has kinks, z is none
        np.testing.assert_allclose(at.gradient, at.derivative, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(at.gradient, at.lifted)
    assert jax.eval_shape(f.statistic, points(f, 1)[0]).shape == (f.statistic_size,)


@each
def test_lift_is_linear_and_its_energy_is_known(name: str) -> None:
    columns = seen(name)[1]
    assert float((columns**2).sum()) == pytest.approx(OBJECTIVES[name].lift_energy)


@each
@pytest.mark.parametrize("seed", range(SEEDS))
def test_convex_smooth_and_strongly_convex_as_claimed(name: str, seed: int) -> None:
    f = OBJECTIVES[name]
    z, u = seen(name)[0][2 * seed : 2 * seed + 2]
    above = float(u.value - z.value - z.gradient @ (u.z - z.z))
    square = float((u.z - z.z) @ (u.z - z.z))
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
    hessian = jax.jit(jax.hessian(two.value))(jnp.zeros(8))
    assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(two.smoothness)


@each
@pytest.mark.parametrize("kind", [Box, Ball])
def test_gradient_bound_holds(name: str, kind: type) -> None:
    f = OBJECTIVES[name]
    W = Box(-2.0, 1.5, f.dimension) if kind is Box else Ball(0.0, 1.5, f.dimension)
    if isinstance(f, Residual):
        assert f.gradient_bound(W) == math.inf
        f = residual(data_bound=float(np.linalg.norm(f.data)) + 1e-9)
    first = 2 * SEEDS + (0 if kind is Box else 10)
    for at in seen(name)[0][first : first + 10]:
        assert np.linalg.norm(at.gradient) <= f.gradient_bound(W)


@pytest.mark.parametrize("W", [Box(-2.0, 1.5, FEATURES), Ball(0.0, 1.5, FEATURES)])
def test_the_bound_of_a_ridge_is_that_of_the_longest_point(W: Any) -> None:
    """Records count for next to nothing here: the gradient is ridge·z."""
    f = sample("logistic", *records(0), ridge=0.4, normaliser=1e12, record_bound=8)
    z = W.project(np.full(FEATURES, -9.0))
    found = float(np.linalg.norm(f.gradient(z)))
    assert [found, f.gradient_bound(W)] == pytest.approx([0.4 * W.radius(2)] * 2)


@pytest.mark.parametrize("records", repeat([4000], [3, 3999, 4000, 4700, 6000]))
def test_sums_in_blocks_are_the_whole_sum(records):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(records, 3)), rng.normal(size=6)
    common = {"feature_norm": 9.0, "normaliser": 10.0, "record_bound": records}
    softmax = SoftmaxRegression(X, rng.integers(0, 2, records), 2, **common)
    slope, gradient = (
        jax.jit(jax.grad(lambda z, f: f.value(z))),
        jax.jit(lambda z, f: f.gradient(z)),
    )
    np.testing.assert_allclose(gradient(z, softmax), slope(z, softmax), rtol=1e-10)
    squares = LeastSquares(X, rng.uniform(-1, 1, records), target_bound=1.0, **common)
    z = z[:3]
    np.testing.assert_allclose(gradient(z, squares), slope(z, squares), rtol=1e-10)
    padded = squares.pad(records + 700)  # a part of a block too
    np.testing.assert_allclose(gradient(z, padded), gradient(z, squares), rtol=1e-10)


@pytest.mark.parametrize("kind", [LogisticRegression, Hinge])
def test_labels_zero_and_one_are_minus_and_plus_one(kind):
    X, z = np.random.default_rng(0).normal(size=(6, 2)), np.array([0.7, -0.4])
    bits = np.array([0, 1, 1, 0, 0, 1])
    common = {"feature_norm": 9.0, "normaliser": 6}
    f, g = kind(X, bits, **common), kind(X, 2 * bits - 1, **common)
    margin = (2 * bits - 1) * (X @ z)
    loss = np.log1p(np.exp(-margin)) if kind is LogisticRegression else 1 - margin
    both = jax.jit(lambda f: (f.value(z), f.gradient(z)))
    (value, gradient), (other, same) = both(f), both(g)
    assert float(value) == float(other) == pytest.approx(np.maximum(loss, 0).mean())
    np.testing.assert_array_equal(gradient, same)


def test_softmax_gradient_is_two_products() -> None:
    X, y = (a.astype(np.float32) for a in records(0))
    f = sample("softmax", X, y)
    z = jnp.zeros(f.dimension, jnp.float32)
    program = str(jax.make_jaxpr(lambda f, z: f.gradient(z))(f, z))
    assert program.count("dot_general") == 2
    assert "scatter" not in program and "gather" not in program
