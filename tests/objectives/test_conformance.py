"""Every objective of records, beside plain NumPy: value, gradient, curvature, and neighbours.

One test for all objectives, relations and numbers of records around the ends of blocks. The other
side adds up one record after another in float64 and knows no block, no padding and no JAX.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from conftest import repeat
from small_objectives import (
    CLASSES,
    FEATURES,
    KINKED,
    SAMPLED,
    B,
    Y,
    classes,
    records,
    sample,
)

from tacit.objectives import (
    Hinge,
    LogisticRegression,
    Objective,
    linear_model,
    moments,
    per_sample,
)
from tacit.objectives.moments import Mean
from tacit.sets import Ball, Box

WAYS = ("add-remove", "zero-out", "replace")
RIDGE, CLIP, SLOPE, THRESHOLD, LEVEL = 0.25, 0.7, 0.3, 0.8, 0.3
LIMITED = ("limited-logistic", "limited-softmax", "clipped-softmax")
POINTS = np.random.default_rng(7).integers(-7, 8, (2, FEATURES * CLASSES)) / 16


def build(name: str, X: Any, y: Any, relation: str, N: float) -> Objective:
    options: dict[str, Any] = {"neighbours": relation, "normaliser": N, "record_bound": N}
    if name == "mean":
        return Mean(X, feature_norm=B, **options)
    if name != "per-sample":
        options["ridge"] = RIDGE
    return sample(name, X, y, **options)


def plain(name: str, X: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Every record's loss, and its part of the statistic (rows), by the formula."""
    if name == "mean":
        return np.zeros(len(X)), -X
    if name == "per-sample":
        loss = (X @ z - y) ** 2 / 2 + np.cosh(z).sum() / 10
        raw = (X @ z - y)[:, None] * X + np.sinh(z) / 10
        shrink = CLIP / np.maximum(np.linalg.norm(raw, axis=1), CLIP)
        return loss, np.where(np.isfinite(shrink)[:, None], raw * shrink[:, None], 0)
    if "softmax" in name:
        S, own = X @ z.reshape(FEATURES, CLASSES), classes(y)[:, None] == np.arange(CLASSES)
        p = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
        loss, slope = -np.log(p[own]), p - own
        if name == "clipped-softmax":
            slope *= SLOPE / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), SLOPE)
        if name == "limited-softmax":
            most, w = SLOPE / math.sqrt(2), 1 - p[own]
            slope *= (np.minimum(w, most) / w)[:, None]
            loss = straight(np.log(w / (1 - w)), most)
        return loss, (X[:, :, None] * slope[:, None, :]).reshape(len(X), -1)
    s, sign, t = X @ z, np.where(y > 0, 1, -1), np.clip(y, -Y, Y)
    if "logistic" in name:
        u = -sign * s
        most = SLOPE if name in LIMITED else 1.0
        loss, slope = straight(u, most), -sign * np.minimum(1 / (1 + np.exp(-u)), most)
    elif name == "hinge":
        loss, slope = np.maximum(0, 1 - sign * s), -sign * (sign * s < 1)
    elif name == "quantile":
        loss = np.where(y > s, LEVEL * (y - s), (1 - LEVEL) * (s - y))
        slope = np.where(y > s, -LEVEL, 1 - LEVEL)
    else:
        slope = s - t if name == "least-squares" else np.clip(s - t, -THRESHOLD, THRESHOLD)
        far = abs(s - t) > abs(slope)
        loss = np.where(far, THRESHOLD * (abs(s - t) - THRESHOLD / 2), (s - t) ** 2 / 2)
    return loss, slope[:, None] * X


def straight(u: Any, most: float) -> Any:
    """ln(1 + e^u), a straight line from where its slope is ``most``."""
    t = math.inf if most == 1 else math.log(most / (1 - most))
    beyond = np.log1p(np.exp(t)) + most * (u - t) if most < 1 else 0
    return np.where(u > t, beyond, np.log1p(np.exp(np.minimum(u, t))))


PROGRAM = jax.jit(lambda f, z: (f.value(z), f.gradient(z), f.statistic(z)))


def ends(name: str) -> list[int]:
    """Numbers of records around the ends of a block, whatever a block of this objective is."""
    K = {"per-sample": per_sample.BLOCK, "mean": moments.BLOCK}.get(name, linear_model.BLOCK)
    some = [K + 1] if name != "per-sample" else [1, K - 1, K + 1, 2 * K + 1]
    return repeat(some, [1, 2, K - 1, K, K + 1, 2 * K - 1, 2 * K, 2 * K + 1])


CASES = [(n, w, rows) for n in [*SAMPLED, "mean"] for w in WAYS for rows in ends(n)]


@pytest.mark.parametrize(("name", "relation", "rows"), CASES)
def test_sums_over_records_are_those_of_numpy(name: str, relation: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    # multiples of 2⁻¹⁰: exact where rows and points are cut (``rounding.py``)
    X = np.round(rng.uniform(-0.7, 0.7, (rows, FEATURES)) * 1024) / 1024
    y = np.round(rng.normal(size=rows) * 2048) / 1024
    f = build(name, X, y, relation, rows)
    z = POINTS[0, : f.dimension]
    loss, terms = plain(name, X, y, z)
    ridge = 0.0 if name in ("per-sample", "mean") else RIDGE
    public = z if name == "mean" else ridge * z
    expected = loss.sum() / rows + ridge * z @ z / 2
    if name == "mean":
        expected = np.sum((z - X.mean(axis=0)) ** 2) / 2
    value, gradient, statistic = PROGRAM(f, z)
    assert float(value) == pytest.approx(expected, rel=1e-11)
    np.testing.assert_allclose(statistic, terms.sum(axis=0) / rows, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(gradient, terms.sum(axis=0) / rows + public, rtol=1e-10, atol=1e-13)
    assert np.linalg.norm(gradient) <= f.gradient_bound(Box(-0.5, 0.5, f.dimension))
    if not f.clipped:  # convex, smooth and strongly convex as claimed
        step = POINTS[1, : f.dimension] - z
        above = float(PROGRAM(f, z + step)[0] - value - gradient @ step)
        assert above >= f.strong_convexity / 2 * step @ step - 1e-12
        assert f.smoothness is not None or name in KINKED
        assert f.smoothness is None or above <= f.smoothness / 2 * step @ step + 1e-12
    # neighbours differ by one record, wherever it stands in its block; and by all that is stated
    W, largest = Box(-0.5, 0.5, f.dimension), {1: 0.0, 2: 0.0}
    places = sorted({0, rows // 3, rows - 1}) if relation != "add-remove" else [rows - 1]
    for i in places:
        other, other_y = X.copy(), y.copy()
        if relation == "add-remove":
            if rows == 1:
                continue
            other, other_y = X[:-1], y[:-1]
        elif relation == "replace":
            other[i], other_y[i] = -X[i], y[i]
        else:  # a record that is out adds nothing
            other[i] = math.nan if name == "per-sample" else 0.0
        apart = np.asarray(PROGRAM(build(name, other, other_y, relation, rows), z)[2]) - statistic
        after = plain(name, other, other_y, z)[1]
        moved = np.nan_to_num(after[i] if len(after) == rows else 0) - terms[i]
        np.testing.assert_allclose(apart, moved / rows, rtol=1e-7, atol=1e-13)
        for norm in largest:
            largest[norm] = max(largest[norm], float(np.linalg.norm(apart, norm)))
    for norm, found in largest.items():
        assert found <= f.sensitivity(norm, W) * (1 + 1e-9)


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
