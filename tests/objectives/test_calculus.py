"""Gradients, curvature and bounds of them are those of the value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_objectives import FEATURES, KINKED, LINEAR, B, N, points, records, residual, sample

from tacit.objectives import Hinge, LogisticRegression, Objective, Residual, SoftmaxRegression
from tacit.sets import Ball, Box


def every_objective() -> dict[str, Objective]:
    X, y = records(0)
    found: dict[str, Objective] = {name: sample(name, X, y) for name in LINEAR}
    found["ridge"] = sample("least-squares", X, y, ridge=0.4)
    found["softmax with ridge"] = sample("softmax", X, y, ridge=0.4)
    found["per-sample"] = sample("per-sample", X, y, clip=1e9)
    found["residual"] = residual(data_bound=9.0)
    found["residual, noise on gradient"] = residual(data_bound=9.0, noise_on="gradient")
    return found


OBJECTIVES = every_objective()


@jax.jit
def program(f: Objective, Z: Any) -> Any:
    lifted = jax.vmap(f.lift)(jnp.eye(f.statistic_size))
    return jax.lax.map(lambda z: (f.value(z), f.gradient(z), jax.grad(f.value)(z)), Z), lifted


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_gradients_and_claims_fit_one_another(name: str) -> None:
    """Convex, smooth and strongly convex as claimed; gradients no longer than the bound."""
    f = OBJECTIVES[name]
    apart = np.stack([z for seed in range(5) for z in points(f, seed)])  # no z is at a kink
    sets = Box(-2.0, 1.5, f.dimension), Ball(0.0, 1.5, f.dimension)
    within = [np.stack([W.project(10 * z) for z in apart]) for W in sets]
    found, lifted = jax.tree.map(np.asarray, program(f, np.concatenate([apart, *within])))
    values, gradients, derivatives = found
    np.testing.assert_allclose(gradients[:10], derivatives[:10], rtol=1e-9, atol=1e-12)
    assert float((lifted**2).sum()) == pytest.approx(f.lift_energy)
    for i in range(0, 10, 2):
        step = apart[i + 1] - apart[i]
        above = values[i + 1] - values[i] - gradients[i] @ step
        assert above >= f.strong_convexity / 2 * step @ step - 1e-12
        if f.smoothness is None:
            assert name in KINKED | {"per-sample"}
        else:
            assert above <= f.smoothness / 2 * step @ step + 1e-12
    for W, rows in zip(sets, (gradients[10:20], gradients[20:]), strict=True):
        assert np.linalg.norm(rows, axis=1).max() <= f.gradient_bound(W)


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


@pytest.mark.parametrize("W", [Box(-2.0, 1.5, FEATURES), Ball(0.0, 1.5, FEATURES)])
def test_the_bound_of_a_ridge_is_that_of_the_longest_point(W: Any) -> None:
    """Records count for next to nothing here: the gradient is ridge·z."""
    f = sample("logistic", *records(0), ridge=0.4, normaliser=1e12, record_bound=8)
    z = W.project(np.full(FEATURES, -9.0))
    found = float(np.linalg.norm(f.gradient(z)))
    assert [found, f.gradient_bound(W)] == pytest.approx([0.4 * W.radius(2)] * 2)


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
