"""Clipping of per-record gradients: a limit on the slope of a record's loss.

A record of a linear model adds x·r' to the gradient, where r is the slope of its loss in the
scores. Limiting ‖r‖₂ to c gives a sensitivity of cB/N, ten times less noise where c is 0.15. For
softmax regression r = p − e_y = w·d with the weight w = 1 − p_y and the direction d: −1 at y, and
π_k = p_k/(1 − p_y) elsewhere. Σπ = 1, so K/(K − 1) ≤ ‖d‖₂² ≤ 2 and ‖d‖₁ = 2. Two forms:

    convex    d·min(w, c/√2)      the gradient of a convex function h(u) of the scores
    norm      d·min(w, c/‖d‖)     r scaled down to length c; a gradient of no function, if K > 2

with u = ln Σ_{k≠y} exp(s_k − s_y), which is convex in s and has gradient d. Softmax regression has
the loss ln(1 + e^u), with slope w = sigmoid(u). Its limited form goes on as a straight line where
that slope reaches q = c/√2, at u = t = ln(q/(1 − q)); it is convex and never falls, so h(u) is
convex:

    h(u) = ln(1 + exp(min(u, t))) + q·max(u − t, 0)

Logistic regression has one score s, u = −ys for y = ±1, and h with q = c. A softmax of two classes
has scores that differ by s and slopes (−r, r) of length √2·|r|: c there is c/√2 here.

Lipschitz constants of the slopes in the scores (the Hessian H of softmax regression is at most
2 max_k p_k(1 − p_k), by the sums of its rows):
*convex*: where w ≤ q it is H, at most 2q(1 − q) if q ≤ 1/2, as p_y ≥ 1 − q and all others ≤ q.
Elsewhere it is q(diag π − ππ') ≤ q/2, which is less. *logistic*: q(1 − q) if q ≤ 1/2. *norm*:
2q', with q' = c√((K − 1)/K), or 1/2 if that is less. Where ‖r‖ < c, w ≤ q', so H ≤ 2q'(1 − q') or
1/2. Where ‖r‖ ≥ c, a projection makes c/‖r‖·H the most; it is at most 2p_y·q' for p_y ≥ 1/2 (then
H ≤ 2p_y·w) and at most q' otherwise (H ≤ 1/2 and w > 1/2). A projection onto a ball lengthens no
difference, so 1/2 holds too.

Other losses have no such limit. Squared residuals with a bounded slope are Huber's, whose threshold
is the limit. Slopes of hinge and pinball losses are steps: to limit them is to scale the loss.

Rounding. w and π are computed without differences that cancel: they err by a few units relative to
themselves, w by |ln w| more where w < q. So a computed slope errs by at most 128 + 2K units of c as
long as c ≥ 1e-6, and its length exceeds c by no more than that.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from tacit._types import Array
from tacit.errors import InvalidInput, positive

FORMS = ("convex", "norm")
SMALLEST = 1e-6  # a smaller limit would make a straight line of the loss, and rounding counts
UNITS = 64  # by which a limited slope may err more than others, for |ln w| ≤ 15


def checked_limit(limit: float | None) -> float | None:
    if limit is None or positive("clip", limit) >= SMALLEST:
        return None if limit is None else float(limit)
    raise InvalidInput(f"Expected clip >= {SMALLEST:g}, got clip={limit}.")


# --- slopes and losses --------------------------------------------------------------------------


def softmax_slopes(scores: Array, is_label: Array, limit: Any, form: str) -> Array:
    """d·min(w, c/√2) or d·min(w, c/‖d‖) of every record; classes are the first axis."""
    powers, own = _beside_the_label(scores, is_label)
    total = powers.sum(axis=0)
    weight = total / (total + jnp.exp(own))
    shares = powers / total
    length = math.sqrt(2) if form == "convex" else jnp.sqrt(1 + (shares**2).sum(axis=0))
    direction = jnp.where(is_label, -1, shares)
    return direction * jnp.minimum(weight, jnp.asarray(limit, scores.dtype) / length)


def _beside_the_label(scores: Array, is_label: Array) -> tuple[Array, Array]:
    """exp(s_k − M) of all other classes, 0 at the label, and s_y − M; M is their largest score."""
    others = jnp.where(is_label, -jnp.inf, scores)
    top = others.max(axis=0)
    return jnp.exp(others - top), jnp.where(is_label, scores, 0).sum(axis=0) - top


def softmax_losses(scores: Array, is_label: Array, limit: Any) -> Array:
    """h(u) of every record, whose slopes are those of the convex form."""
    own = jnp.where(is_label, scores, 0).sum(axis=0)
    u = jax.nn.logsumexp(jnp.where(is_label, -jnp.inf, scores), axis=0) - own
    return limited_softplus(u, jnp.asarray(limit, scores.dtype) / math.sqrt(2))


def limited_softplus(u: Array, most: Array) -> Array:
    """ln(1 + e^u), going on as a straight line where its slope is ``most``."""
    below = jnp.where(most < 1, most, 0.5)
    t = jnp.where(most < 1, jnp.log(below) - jnp.log1p(-below), jnp.inf)
    return jax.nn.softplus(jnp.minimum(u, t)) + most * jnp.maximum(u - t, 0)


def limited_sigmoid(u: Array, most: Any) -> Array:
    """Its slope: min(sigmoid(u), most)."""
    return jnp.minimum(1 / (1 + jnp.exp(-u)), jnp.asarray(most, u.dtype))


# --- bounds -------------------------------------------------------------------------------------


def largest_softmax_slope(norm: int, limit: float, form: str, classes: int) -> float:
    """The largest L1 or L2 norm of a limited slope."""
    if norm == 2:
        return limit
    return 2 * limit * (math.sqrt(0.5) if form == "convex" else math.sqrt(1 - 1 / classes))


def softmax_curvature(limit: float, form: str, classes: int) -> float:
    """The Lipschitz constant of limited slopes in the scores."""
    if form == "norm":
        return min(0.5, 2 * limit * math.sqrt(1 - 1 / classes))
    return 2 * logistic_curvature(limit / math.sqrt(2))


def logistic_curvature(limit: float) -> float:
    return limit * (1 - limit) if limit <= 0.5 else 0.25
