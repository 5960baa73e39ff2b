"""Sets with a projection formula: boxes, half-spaces, hyperplanes, balls, the simplex, products.

Weighted projections are in closed form or by finite algorithms, as JAX functions in float64.

A projection is computed for every finite point, of any size, and its result is made to satisfy
the constraints at the end, whatever rounding did before: nothing that an agent proves about points
of its set rests on the point that it was sent. Far points are first scaled down by a power of two,
which leaves all their digits: 2⁴⁰⁰ away the direction alone decides. Weights
that differ by more than 2¹⁰⁰ count as 2¹⁰⁰ apart.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.pytree import pytree, static, store
from tacit.sets.feasible_set import (
    FeasibleSet,
    exponent,
    magnitude,
    norm_of,
    point_and_weight,
    point_of,
    scaled,
    wide_point_of,
)

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


Piece = tuple[Array, Array, Array, Array]  # its ends, who moves with μ, where others are


def _piece(v: Array, c: Array, a: Array, b: Array, lower: Array, upper: Array) -> Piece:
    """Where the multiplier lies."""
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
    return left, right, free, fixed


def _multiplier(piece: Piece, v: Array, c: Array, a: Array, b: Array) -> Array:
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
    (_, _, free, fixed), μ = piece, _multiplier(piece, v, c, a, b)
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


@pytree
class Box(FeasibleSet):
    """Bounds on every coordinate: {z : lower ≤ z ≤ upper}. Its sizes are exact.

    Two scalar bounds need a ``size``. A bound may be infinite.
    """

    lower: ArrayLike
    upper: ArrayLike

    def __init__(self, lower: ArrayLike, upper: ArrayLike, size: int | None = None) -> None:
        lower, upper = bounds(lower, upper, size)
        store(self, lower=lower, upper=upper)

    separable = True

    @property
    def dimension(self) -> int:
        return int(np.shape(self.lower)[-1])

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, _ = point_and_weight(point, weight, self.dimension)
        return jnp.clip(v, *_inwards(v.dtype, self.lower, self.upper))

    def violation(self, point: ArrayLike) -> Array:
        return outside(wide_point_of(point, self.dimension), self.lower, self.upper)

    @property
    def widths(self) -> Vector:
        width: Vector = np.asarray(self.upper, np.float64) - np.asarray(self.lower, np.float64)
        return width

    @property
    def diameter(self) -> float:
        return norm_of(self.widths, 2)

    def radius(self, norm: float) -> float:
        return norm_of(np.maximum(np.abs(self.lower), np.abs(self.upper)), norm)


def NonNegative(size: int, upper: ArrayLike = math.inf) -> Box:
    """The box {z : 0 ≤ z ≤ upper}."""
    return Box(0.0, upper, size)


def bounds(lower: Any, upper: Any, size: int | None) -> tuple[Vector, Vector]:
    """Both bounds as vectors; refuses NaN, shapes that do not fit and lower > upper."""
    shape = () if size is None else (errors.count("size", size),)
    try:
        pair = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        shape = np.broadcast_shapes(shape, pair[0].shape, pair[1].shape)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Expected bounds that fit together: {error}.") from None
    if len(shape) != 1 or shape[0] == 0 or (size is not None and shape[0] != size):
        raise InvalidInput(
            f"Expected bounds of one vector of variables (or numbers and a size), got shapes "
            f"{pair[0].shape} and {pair[1].shape} with size={size}."
        )
    low, high = np.broadcast_to(pair[0], shape).copy(), np.broadcast_to(pair[1], shape).copy()
    if np.isnan(low).any() or np.isnan(high).any():
        raise InvalidInput(f"Expected bounds without NaN, got {low} and {high}.")
    wrong = (low > high) | (low == math.inf) | (high == -math.inf)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidSet(
            f"Expected lower <= upper, got lower={low[i]:g}, upper={high[i]:g} at index {i}: "
            f"the set is empty."
        )
    return low, high


def _inwards(dtype: Any, lower: Any, upper: Any) -> tuple[Array, Array]:
    """The bounds in ``dtype``, rounded to the inside; the nearest numbers if none lies between."""
    exact = lower, upper
    if lower.dtype == upper.dtype == dtype:
        return exact
    near = [x.astype(dtype) for x in exact]
    too_low, too_high = near[0] < exact[0], near[1] > exact[1]
    low = jnp.where(too_low, jnp.nextafter(near[0], jnp.inf), near[0])
    high = jnp.where(too_high, jnp.nextafter(near[1], -jnp.inf), near[1])
    return jnp.where(low > high, near[0], low), jnp.where(low > high, near[0], high)


def outside(z: Array, lower: ArrayLike, upper: ArrayLike) -> Array:
    beyond = jnp.maximum(jnp.asarray(lower) - z, z - jnp.asarray(upper))
    return jnp.maximum(jnp.max(beyond), 0)


@pytree
class CutBox(FeasibleSet):
    """A box cut by one linear constraint: {z : least ≤ normal'z ≤ offset, lower ≤ z ≤ upper}.

    ``radius(inf)`` is exact. ``radius(2)`` and ``diameter`` are bounds above the true ones, no
    larger than those of ``around``, the smallest box around the set, and exact for a simplex and
    for budgets {z ≥ 0 : a'z ≤ b}.
    """

    normal: ArrayLike
    offset: ArrayLike
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf
    around: Box = field(init=False, repr=False)
    equation: ClassVar[bool] = False

    def __post_init__(self) -> None:
        normal = errors.array("normal", self.normal, (None,), dtype=np.float64).copy()
        if not normal.any():
            raise InvalidInput(f"Expected a normal that is not zero, got {normal}.")
        lower, upper = bounds(self.lower, self.upper, normal.size)
        offset = errors.array("offset", self.offset, (), dtype=np.float64).copy()
        store(self, normal=normal, offset=offset, lower=lower, upper=upper)
        store(self, around=_smallest_box(self))

    @property
    def least(self) -> float:
        """The smallest normal'z that is allowed."""
        return float(np.asarray(self.offset)) if self.equation else -math.inf

    @property
    def dimension(self) -> int:
        return int(np.shape(self.normal)[-1])

    @property
    def widths(self) -> Vector:
        return self.around.widths

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = point_and_weight(point, weight, self.dimension)
        lower, upper = jnp.asarray(self.around.lower), jnp.asarray(self.around.upper)
        z = onto_cut(v, c, self.normal, self.offset, lower, upper)
        if not self.equation:
            in_box = jnp.clip(v.astype(jnp.float64), lower, upper)
            z = jnp.where(total(jnp.asarray(self.normal) * in_box) <= self.offset, in_box, z)
        return self.around.project(z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        beyond = total(jnp.asarray(self.normal) * z) - jnp.asarray(self.offset)
        beyond = jnp.abs(beyond) if self.equation else beyond
        return jnp.maximum(beyond, outside(z, self.lower, self.upper))

    @property
    def diameter(self) -> float:
        """(u_i − v_i)² ≤ 2(h − l)min(z_i − l, h − z_i) for z = (u + v)/2 (``radii.py``)."""
        low, high = np.asarray(self.around.lower), np.asarray(self.around.upper)
        in_box = self.around.diameter
        if not 0 < in_box < math.inf:
            return in_box
        tent = np.stack([0 * low, high - low, 0 * low])
        return min(in_box, _largest_sum(self, np.stack([low, (low + high) / 2, high]), tent))

    def radius(self, norm: float) -> float:
        """z_i² is at most the chord through l² and h²."""
        in_box = self.around.radius(norm)
        if norm == math.inf or not 0 < in_box < math.inf:
            return in_box
        ends = np.stack([np.asarray(self.around.lower), np.asarray(self.around.upper)])
        return min(in_box, _largest_sum(self, ends, ends))

    @property
    def magnitude(self) -> float:
        """Σ|a_i| sup|z_i| + |b|, or the largest coordinate if that is larger."""
        largest = np.maximum(np.abs(self.around.lower), np.abs(self.around.upper))
        a = np.abs(np.asarray(self.normal))
        terms = float(np.where(a > 0, a * largest, 0).sum()) + abs(float(np.asarray(self.offset)))
        return max(terms, self.around.radius(math.inf))


@pytree
class HalfSpace(CutBox):
    """A box cut by one inequality: {z : normal'z ≤ offset, lower ≤ z ≤ upper}."""


@pytree
class Hyperplane(CutBox):
    """A box cut by one equation: {z : normal'z = offset, lower ≤ z ≤ upper}."""

    equation: ClassVar[bool] = True


def _smallest_box(cut: CutBox) -> Box:
    """The smallest box around {least ≤ a'z ≤ b, lower ≤ z ≤ upper}, rounded outwards.

    Refuses an empty set. a_i z_i lies between least − Σ_{j≠i} max a_j z_j and
    b − Σ_{j≠i} min a_j z_j, and both ends are reached.
    """
    a, b, least = np.asarray(cut.normal), float(np.asarray(cut.offset)), cut.least
    lower, upper = np.asarray(cut.lower), np.asarray(cut.upper)
    moving = a != 0
    ends = a[moving] * np.stack([lower, upper])[:, moving]
    low, high = ends.min(axis=0), ends.max(axis=0)
    rounding = 1e-14 * (abs(b) + float(np.abs(ends[np.isfinite(ends)]).sum()))
    if low.sum() > b + rounding or high.sum() < least - rounding:
        raise InvalidSet(
            f"Expected an offset that normal'z can meet, got offset={b:g} where normal'z lies in "
            f"[{low.sum():g}, {high.sum():g}]: the set is empty."
        )
    ends = np.stack([least - _sum_of_others(high), b - _sum_of_others(low)]) / a[moving]
    allowance = rounding / np.abs(a[moving])
    tight_lower, tight_upper = lower.copy(), upper.copy()
    tight_lower[moving] = np.clip(ends.min(axis=0) - allowance, lower[moving], upper[moving])
    tight_upper[moving] = np.clip(ends.max(axis=0) + allowance, lower[moving], upper[moving])
    return Box(tight_lower, tight_upper)


def _largest_sum(cut: CutBox, points: Vector, roots: Vector) -> float:
    """√ sup Σ_i g_i(z_i), rounded upwards, over the cut box, or a bound above it.

    g_i is concave and made of the straight lines through (points, roots²) of coordinate i. For any
    multiplier μ of the cut, Σ g_i ≤ μb + Σ_i max over its points of g_i − μ a_i z_i, where μ ≥ 0
    for an inequality; the least of these is at a μ where a maximum changes.
    """
    unit = float(np.abs(points).max())
    a, points, gains = np.asarray(cut.normal), points / unit, (roots / unit) ** 2
    b = float(np.asarray(cut.offset)) / unit

    def bound(μ: float) -> float:
        prices = μ * a * points
        size = abs(μ * b) + float((np.abs(gains) + np.abs(prices)).max(axis=0).sum())
        exact = μ * b + float((gains - prices).max(axis=0).sum())
        return exact + (len(a) + 8) * float(np.finfo(np.float64).eps) * size

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slopes = np.diff(gains, axis=0) / (a * np.diff(points, axis=0))
    changes = np.unique(np.append(slopes[np.isfinite(slopes)], 0.0))
    changes = changes if cut.equation else changes[changes >= 0]
    numbers = changes.tolist()
    # convex in μ: it falls, then rises
    rises = lambda i: bound(numbers[i]) <= bound(numbers[i + 1])  # noqa: E731
    least = numbers[bisect.bisect_left(range(len(numbers) - 1), True, key=rises)]
    return unit * math.sqrt(max(bound(least), 0.0)) * (1 + 2.0**-50)


def _sum_of_others(terms: Vector) -> Vector:
    """Σ_{j≠i} terms_j for every i, where terms may hold infinities of one sign."""
    infinite = np.isinf(terms)
    finite = np.where(infinite, 0, terms)
    others_infinite = infinite.sum() - infinite > 0
    others: Vector = np.where(others_infinite, terms[infinite].sum(), finite.sum() - finite)
    return others


@pytree
class _Around(FeasibleSet):
    """The points within ``extent`` of ``center``; ``radius(norm)`` is the norm of the longest."""

    center: ArrayLike
    extent: ArrayLike

    def _place(self, center: Any, radius: float, size: int | None) -> None:
        shape: tuple[int | None, ...] = (None if size is None else errors.count("size", size),)
        if np.ndim(center) == 0:
            if size is None:
                raise InvalidInput("Expected a center vector, or a number and a size.")
            center = np.full(size, center)
        center = errors.array("center", center, shape, dtype=np.float64).copy()
        store(self, center=center, extent=np.asarray(_positive("radius", radius)))

    @property
    def dimension(self) -> int:
        return int(np.shape(self.center)[-1])

    @property
    def diameter(self) -> float:
        return 2 * float(np.asarray(self.extent))


@pytree
class Ball(_Around):
    """The Euclidean ball {z : ‖z − center‖₂ ≤ radius}.

    A scalar center (0 for the origin) needs a ``size``. The radius is kept as ``extent``.
    """

    def __init__(self, center: ArrayLike, radius: float, size: int | None = None) -> None:
        self._place(center, radius, size)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = point_and_weight(point, weight, self.dimension)
        z: Array = onto_ball(v, c, self.center, self.extent).astype(v.dtype)
        return z

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        return jnp.maximum(length(z - jnp.asarray(self.center)) - jnp.asarray(self.extent), 0)

    def radius(self, norm: float) -> float:
        return norm_of(self.center, norm) + float(np.asarray(self.extent))

    @property
    def magnitude(self) -> float:
        return self.radius(2)


@pytree
class L1Ball(_Around):
    """The cross-polytope {z : ‖z − center‖₁ ≤ radius}."""

    def __init__(self, radius: float, size: int | None = None, center: ArrayLike = 0.0) -> None:
        self._place(center, radius, size)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        # The signs of z − center are those of v − center; the absolute values are those of v
        # projected onto {y ≥ 0 : Σ y = radius}.
        v, c = point_and_weight(point, weight, self.dimension)
        center, extent = jnp.asarray(self.center), jnp.asarray(self.extent)
        apart = v.astype(jnp.float64) - center
        z = center + jnp.sign(apart) * onto_simplex(jnp.abs(apart), c, extent)
        return jnp.where(total(jnp.abs(apart)) <= extent, v, z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        return jnp.maximum(total(jnp.abs(z - jnp.asarray(self.center))) - self.extent, 0)

    def radius(self, norm: float) -> float:
        # A norm is largest at a vertex: center moved outwards along its largest coordinate.
        vertex = np.abs(np.asarray(self.center))
        vertex[np.argmax(vertex)] += np.asarray(self.extent)
        return norm_of(vertex, norm)

    @property
    def magnitude(self) -> float:
        return float(np.abs(self.center).sum() + np.asarray(self.extent))


@pytree
class Simplex(FeasibleSet):
    """Non-negative vectors of a given sum: {z ≥ 0 : Σ_i z_i = total}."""

    size: int = static()
    total: ArrayLike = 1.0

    def __post_init__(self) -> None:
        total = np.asarray(_positive("total", self.total))
        store(self, size=errors.count("size", self.size), total=total)

    @property
    def dimension(self) -> int:
        return self.size

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = point_and_weight(point, weight, self.dimension)
        return onto_simplex(v, c, jnp.asarray(self.total)).astype(v.dtype)

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        return jnp.maximum(jnp.abs(total(z) - jnp.asarray(self.total)), jnp.max(-z))

    @property
    def widths(self) -> Vector:
        return np.full(self.size, self.radius(2) if self.size > 1 else 0.0)

    @property
    def diameter(self) -> float:
        return math.sqrt(2) * float(np.asarray(self.total)) if self.size > 1 else 0.0

    def radius(self, norm: float) -> float:
        errors.choice("norm", norm, (2, math.inf))
        return float(np.asarray(self.total))


def _positive(name: str, value: Any) -> float:
    """A length that a set cannot do without: an empty set is refused as such."""
    try:
        return errors.positive(name, value)
    except InvalidInput as error:
        raise InvalidSet(str(error)) from None


@pytree
class Product(FeasibleSet):
    """Cartesian product W_1 × W_2 × ...: blocks of variables in order, each in its own set.

    Its sizes are exact where those of all parts are.
    """

    sets: tuple[FeasibleSet, ...]

    def __init__(self, sets: Sequence[FeasibleSet]) -> None:
        if not sets or not all(isinstance(part, FeasibleSet) for part in sets):
            raise InvalidInput(f"Expected one or more feasible sets, got {sets!r}.")
        store(self, sets=tuple(sets))

    @property
    def closed_form(self) -> bool:
        return all(part.closed_form for part in self.sets)

    @property
    def separable(self) -> bool:
        return all(part.separable for part in self.sets)

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.sets)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Any:
        v, c = point_and_weight(point, weight, self.dimension)
        weights = self._blocks(jnp.broadcast_to(c, v.shape))
        parts = zip(self.sets, self._blocks(v), weights, strict=True)
        blocks = [part.project(block, c) for part, block, c in parts]
        return (jnp if self.closed_form else np).concatenate(blocks)

    def violation(self, point: ArrayLike) -> Any:
        blocks = self._blocks(point_of(point, self.dimension))
        broken = [part.violation(z) for part, z in zip(self.sets, blocks, strict=True)]
        return jnp.max(jnp.stack(broken)) if self.closed_form else float(np.max(broken))

    def _blocks(self, vector: Array) -> list[Array]:
        ends = np.cumsum([part.dimension for part in self.sets])
        return jnp.split(vector, ends[:-1])

    @property
    def widths(self) -> Vector:
        return np.concatenate([part.widths for part in self.sets])

    @property
    def diameter(self) -> float:
        return norm_of([part.diameter for part in self.sets], 2)

    def radius(self, norm: float) -> float:
        return norm_of([part.radius(norm) for part in self.sets], norm)

    @property
    def magnitude(self) -> float:
        return max(part.magnitude for part in self.sets)

    def tolerance(self, dtype: Any) -> float:
        return max(part.tolerance(dtype) for part in self.sets)
