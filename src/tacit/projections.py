"""Weighted projections in closed form or by finite algorithms, as JAX functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

NEWTON_STEPS = 40  # weights that span twelve orders of magnitude need fewer


@jax.jit
def onto_cut(v: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """argmin Σ c_i (z_i − v_i)²/2 over {a'z = b, lower ≤ z ≤ upper}, by a finite algorithm.

    z(μ) = clip(v − μ a/c, lower, upper) for the multiplier μ with a'z(μ) = b. As μ grows, z_i
    leaves one bound at ``start``, reaches the other at ``end``, and a'z falls along straight
    pieces between these breakpoints. A binary search over the sorted breakpoints finds the piece
    that meets b, on which μ solves a linear equation.
    """
    dtype = v.dtype  # sums over far points need all digits, also where the data are float32
    v, c, a, b, lower, upper = (jnp.asarray(x, jnp.float64) for x in (v, c, a, b, lower, upper))
    moving = a != 0
    slope = jnp.where(moving, a, 1)
    first, last = jnp.where(a > 0, upper, lower), jnp.where(a > 0, lower, upper)
    start = jnp.where(moving, c * (v - first) / slope, -jnp.inf)
    end = jnp.where(moving, c * (v - last) / slope, -jnp.inf)
    breakpoints = jnp.sort(jnp.concatenate([start, end]))

    def still_above(k: Array) -> Array:
        μ = breakpoints[k]
        z = jnp.clip(v - jnp.where(jnp.isfinite(μ), μ, 0) * a / c, lower, upper)
        return (μ == -jnp.inf) | ((μ < jnp.inf) & (jnp.sum(a * z) > b))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) // 2
        right = (low < high) & still_above(middle)
        return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

    count = breakpoints.size
    whole = (jnp.asarray(0), jnp.asarray(count))
    piece, _ = jax.lax.fori_loop(0, count.bit_length(), halve, whole)
    edges = jnp.concatenate([jnp.array([-jnp.inf]), breakpoints, jnp.array([jnp.inf])])
    left, right = edges[piece], edges[piece + 1]

    free = moving & (start <= left) & (right <= end)
    fixed = jnp.where(moving, jnp.where(start >= right, first, last), jnp.clip(v, lower, upper))
    fall = jnp.sum(jnp.where(free, a * a / c, 0))
    excess = jnp.sum(jnp.where(free, a * v, jnp.where(moving, a * fixed, 0))) - b
    corner = jnp.where(jnp.isfinite(right), right, left)
    μ = jnp.clip(jnp.where(fall > 0, excess / jnp.where(fall > 0, fall, 1), corner), left, right)
    z = jnp.where(free, jnp.clip(v - μ * a / c, lower, upper), fixed)
    for _ in range(2):  # v − μ a/c loses digits when v is far away: remove what is left of a'z − b
        rest = (jnp.sum(jnp.where(moving, a * z, 0)) - b) / jnp.where(fall > 0, fall, 1)
        z = jnp.where(free, jnp.clip(z - rest * a / c, lower, upper), z)
    return jnp.where(jnp.isnan(v), v, z).astype(dtype)


def onto_simplex(v: Array, c: Array, total: Array) -> Array:
    """The weighted projection onto {z ≥ 0, Σ z = total}."""
    ones = jnp.ones_like(v)
    z: Array = onto_cut(v, c, ones, total, 0 * ones, jnp.inf * ones)
    return z


@jax.jit
def onto_ball(v: Array, c: Array, center: Array, extent: Array) -> Array:
    """argmin Σ c_i (z_i − v_i)²/2 over ‖z − center‖₂ ≤ extent.

    y = z − center is c_i w_i/(c_i + μ) with w = v − center, and ‖y(μ)‖ = extent. Newton's method on
    the concave 1/‖y(μ)‖ climbs to the root from below; the bracket guards against rounding.
    """
    w = v - center
    distance = jnp.sqrt(jnp.sum(w * w))
    ratio = jnp.maximum(distance / extent, 1)

    def shrunk(μ: Array) -> tuple[Array, Array]:
        y = c / (c + μ) * w
        return y, jnp.sqrt(jnp.sum(y * y))

    def newton(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        μ, low, high = state
        y, norm = shrunk(μ)
        low, high = jnp.where(norm > extent, μ, low), jnp.where(norm > extent, high, μ)
        slope = jnp.maximum(jnp.sum(y * y / (c + μ)), np.finfo(v.dtype).tiny)
        μ = μ + (norm / extent - 1) * norm**2 / slope
        return jnp.where((low <= μ) & (μ <= high), μ, (low + high) / 2), low, high

    if c.ndim == 0:
        y = w / ratio
    else:
        low, high = jnp.min(c) * (ratio - 1), jnp.max(c) * (ratio - 1)
        μ, _, _ = jax.lax.fori_loop(0, NEWTON_STEPS, newton, (low, low, high))
        y, _ = shrunk(μ)
    norm = jnp.sqrt(jnp.sum(y * y))
    y = y * jnp.minimum(extent / jnp.where(norm > 0, norm, 1), 1)
    return jnp.where(distance <= extent, v, center + y)
