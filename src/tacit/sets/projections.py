"""Weighted projections in closed form or by finite algorithms, as JAX functions in float64.

A projection is computed for every finite point, of any size, and its result is made to satisfy
the constraints at the end, whatever rounding did before: nothing that an agent proves about points
of its set rests on the point that it was sent. Far points are first scaled down by a power of two,
which leaves all their digits: 2⁴⁰⁰ away the direction alone decides. Weights
that differ by more than 2¹⁰⁰ count as 2¹⁰⁰ apart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tacit.sets.powers import exponent, magnitude, scaled

NEWTON_STEPS = 40  # weights that span twelve orders of magnitude need fewer
LARGEST_EXPONENT = 400  # points beyond 2 to this power are scaled down to it
LEAST_WEIGHT = 2.0**-100  # beside a largest weight of 1
EPS = float(np.finfo(np.float64).eps)


@jax.jit
def onto_cut(v: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """argmin Σ c_i (z_i − v_i)²/2 over {a'z = b, lower ≤ z ≤ upper}, by a finite algorithm.

    z(μ) = clip(v − μ a/c, lower, upper) for the multiplier μ with a'z(μ) = b. As μ grows, z_i
    leaves one bound at ``start``, reaches the other at ``end``, and a'z falls along straight
    pieces between these breakpoints. A binary search over the sorted breakpoints finds the piece
    that meets b, on which μ solves a linear equation.

    The result lies between the bounds, and a'z differs from b by a few units in the last place of
    Σ|a_i z_i| (``_onto_plane``).
    """
    v, c = _scaled_down(v), _relative(c)
    a, b, lower, upper = (jnp.asarray(x, jnp.float64) for x in (a, b, lower, upper))
    power = magnitude(jnp.max(jnp.abs(a)))
    a, b = scaled(a, -power), scaled(b, -power)
    # v − μ a/c loses its digits where v is far away. Along a/c the projection does not change, so a
    # first multiplier is taken out of v, exactly where it matters, and the rest found from there.
    first = _multiplier(_piece(v, c, a, b, lower, upper), v, c, a, b)
    near = v - jnp.where(jnp.isfinite(first), first, 0) * a / c
    z = _onto_piece(near, c, a, b, lower, upper)
    z = _onto_plane(z, c, a, b, lower, upper)
    return jnp.where(jnp.isnan(v), v, z)


class _Piece(NamedTuple):
    """Where the multiplier lies, and which coordinates move with it there."""

    left: Array
    right: Array
    free: Array
    fixed: Array


def _piece(v: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> _Piece:
    moving = a != 0
    slope = jnp.where(moving, a, 1)
    first, last = jnp.where(a > 0, upper, lower), jnp.where(a > 0, lower, upper)
    start = jnp.where(moving, c * (v - first) / slope, -jnp.inf)
    end = jnp.where(moving, c * (v - last) / slope, -jnp.inf)
    breakpoints = jnp.sort(jnp.concatenate([start, end]))

    def still_above(k: Array) -> Array:
        μ = breakpoints[k]
        z = jnp.clip(v - jnp.where(jnp.isfinite(μ), μ, 0) * a / c, lower, upper)
        return (μ == -jnp.inf) | ((μ < jnp.inf) & (total(a * z) > b))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) // 2
        right = (low < high) & still_above(middle)
        return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

    count = breakpoints.size
    whole = (jnp.asarray(0), jnp.asarray(count))
    at, _ = jax.lax.fori_loop(0, count.bit_length(), halve, whole)
    edges = jnp.concatenate([jnp.array([-jnp.inf]), breakpoints, jnp.array([jnp.inf])])
    left, right = edges[at], edges[at + 1]
    free = moving & (start <= left) & (right <= end)
    fixed = jnp.where(moving, jnp.where(start >= right, first, last), jnp.clip(v, lower, upper))
    return _Piece(left, right, free, fixed)


def _multiplier(piece: _Piece, v: Array, c: Array, a: Array, b: Array) -> Array:
    """μ with a'z(μ) = b: a linear equation on its piece."""
    left, right, free, fixed = piece
    fall = total(jnp.where(free, a * a / c, 0))
    excess = total(jnp.where(free, a * v, jnp.where(a != 0, a * fixed, 0))) - b
    corner = jnp.where(jnp.isfinite(right), right, left)
    root = jnp.where(fall > 0, excess / jnp.where(fall > 0, fall, 1), corner)
    return jnp.clip(root, left, right)


def _onto_piece(v: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """z(μ) for the multiplier, and what rounding leaves of a'z − b taken out again."""
    piece = _piece(v, c, a, b, lower, upper)
    free, fixed, μ = piece.free, piece.fixed, _multiplier(piece, v, c, a, b)
    fall = total(jnp.where(free, a * a / c, 0))
    z = jnp.where(free, jnp.clip(v - μ * a / c, lower, upper), fixed)
    for _ in range(2):
        rest = (total(jnp.where(a != 0, a * z, 0)) - b) / jnp.where(fall > 0, fall, 1)
        z = jnp.where(free, jnp.clip(z - rest * a / c, lower, upper), z)
    return z


def _onto_plane(z: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """z between the bounds with a'z = b up to rounding, near the z that was given.

    For points that are far away v − μ a/c keeps no digit, and z may be any point of the box. It is
    then moved towards the corner of the box where a'z is least or largest, by the share that
    removes a'z − b; coordinates without a bound in that direction take all of it, if there are any.
    """
    middle = jnp.clip(jnp.zeros_like(z), lower, upper)
    z = jnp.clip(jnp.where(jnp.isfinite(z), z, middle), lower, upper)
    for _ in range(3):
        terms = jnp.where(a != 0, a * z, 0)
        rest = total(terms) - b
        corner = jnp.where((a > 0) == (rest > 0), lower, upper)
        endless = (a != 0) & ~jnp.isfinite(corner)
        fall = total(jnp.where(endless, a * a / c, 0))
        apart = jnp.where((a != 0) & ~endless, corner - z, 0)
        room = jnp.abs(total(a * apart))
        share = jnp.clip(jnp.abs(rest) / jnp.where(room > 0, room, 1), 0, 1)
        along = rest / jnp.where(fall > 0, fall, 1)
        moved = jnp.where(fall > 0, z - jnp.where(endless, along * a / c, 0), z + share * apart)
        near = jnp.abs(rest) <= 2 * EPS * (total(jnp.abs(terms)) + jnp.abs(b))
        z = jnp.where(near, z, jnp.clip(moved, lower, upper))
    return z


def onto_simplex(v: Array, c: Array, sum_: Array) -> Array:
    """The weighted projection onto {z ≥ 0, Σ z = sum_}."""
    ones = jnp.ones(v.shape)
    z: Array = onto_cut(v, c, ones, sum_, 0 * ones, sum_ * ones)
    return z


@jax.jit
def onto_ball(v: Array, c: Array, center: Array, extent: Array) -> Array:
    """argmin Σ c_i (z_i − v_i)²/2 over ‖z − center‖₂ ≤ extent.

    y = (z − center)/extent is c_i u_i/(c_i + μ) with u = (v − center)/extent, and ‖y(μ)‖ = 1.
    Newton's method on the concave 1/‖y(μ)‖ climbs to the root from below; the bracket guards
    against rounding, and y is made no longer than 1 at the end.
    """
    center, extent = (jnp.asarray(x, jnp.float64) for x in (center, extent))
    u = _scaled_down((_scaled_down(v) - center) / extent, LARGEST_EXPONENT // 2)
    distance = length(u)

    def shrunk(μ: Array) -> tuple[Array, Array]:
        y = c / (c + μ) * u
        return y, length(y)

    def newton(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        μ, low, high = state
        y, norm = shrunk(μ)
        low, high = jnp.where(norm > 1, μ, low), jnp.where(norm > 1, high, μ)
        slope = jnp.maximum(total((y / norm) ** 2 / (c + μ)), np.finfo(np.float64).tiny)
        μ = μ + (norm - 1) / slope
        return jnp.where((low <= μ) & (μ <= high), μ, (low + high) / 2), low, high

    ratio = jnp.maximum(distance, 1)
    if jnp.ndim(c) == 0:
        y = u / ratio
    else:
        c = _relative(c)
        low, high = jnp.min(c) * (ratio - 1), jnp.max(c) * (ratio - 1)
        μ, _, _ = jax.lax.fori_loop(0, NEWTON_STEPS, newton, (low, low, high))
        y, _ = shrunk(μ)
    norm = length(y)
    y = y / jnp.maximum(norm, 1)
    return jnp.where(distance <= 1, v, center + extent * y)


def length(vector: Array) -> Array:
    """‖vector‖₂ of numbers of any size."""
    vector = jnp.asarray(vector, jnp.float64)
    power = magnitude(jnp.max(jnp.abs(vector), initial=0))
    return scaled(jnp.sqrt(total(scaled(vector, -power) ** 2)), power)


def total(terms: Array) -> Array:
    """Σ terms, in two levels: rounded 2√n times at most, not n times."""
    n = terms.shape[-1]
    width = math.isqrt(n)
    if width < 8:
        return terms.sum()
    rows = jnp.pad(terms, (0, -n % width)).reshape(-1, width)
    return rows.sum(axis=0).sum()


def _scaled_down(v: Array, limit: int = LARGEST_EXPONENT) -> Array:
    """v as float64, or the point on its ray where no coordinate exceeds 2^limit."""
    v = jnp.asarray(v, jnp.float64)
    return scaled(v, jnp.minimum(limit - exponent(jnp.max(jnp.abs(v))), 0))


def _relative(c: Array) -> Array:
    """Weights as float64 beside a largest of 1."""
    c = jnp.asarray(c, jnp.float64)
    return jnp.maximum(c / jnp.max(c), LEAST_WEIGHT)
