"""Small objectives of every kind, their records, and pairs of neighbours."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.objectives import (
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Objective,
    PerSample,
    Quantile,
    Residual,
    SoftmaxRegression,
)
from tacit.sets import Ball, Box

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
        return PerSample(pinball, (X, y), **{"clip": 0.7, "size": X.shape[1], **options})
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
        case "limited-logistic":
            return LogisticRegression(X, y > 0, clip=0.3, **options)
        case "limited-softmax":
            return SoftmaxRegression(X, classes(y), CLASSES, clip=0.3, **options)
        case "clipped-softmax":
            form = {"clip": 0.3, "clip_form": "norm"}
            return SoftmaxRegression(X, classes(y), CLASSES, **form, **options)
    raise AssertionError(name)


LINEAR = ["least-squares", "huber", "quantile", "logistic", "hinge", "softmax"]
LINEAR += ["limited-logistic", "limited-softmax"]
SAMPLED = [*LINEAR, "clipped-softmax", "per-sample"]
KINKED = {"quantile", "hinge"}


def records(seed: int, rows: int = 8, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(rows, FEATURES)), 2 * rng.normal(size=rows)


def residual(**options: Any) -> Residual:
    rng = np.random.default_rng(3)
    return Residual(rng.normal(size=(6, 4)), rng.normal(size=6), 0.1, **options)


def points(f: Objective, seed: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    z, u = rng.normal(size=(2, f.dimension))
    return jnp.asarray(z), jnp.asarray(u)


statistic = jax.jit(lambda f, z: f.statistic(z))


def change(f: Objective, g: Objective, z: Any, norm: int) -> float:
    return float(np.linalg.norm(statistic(f, z) - statistic(g, z), norm))


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
