"""Public feasible sets W_p of the agents: weighted projection, violation and size.

Every set offers ``project``, the only place where a constraint enters an update of Algorithm 1:

    project(v, c) = argmin over z in W of Σ_i c_i (z_i − v_i)² / 2

The sets in this file project in closed form with JAX: they can be compiled, stacked and vmapped,
and the result has the dtype of the point. Sets that need a cone solver are in ``conic.py``.

Guarantee: ``violation(project(v, c))`` is at most ``tolerance(dtype)``, a few units in the last
place of the set's own numbers, for every finite point v and all positive weights c, in float32 and
float64: see ``projections.py``. ``violation`` is computed in float64, on its own.

A set is public. Its ``diameter`` and ``radius`` enter certified sensitivities, so a set must never
be built from private data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import NOT_DONE, InvalidInput, InvalidSet
from tacit.pytree import pytree, static
from tacit.sets.projections import length, onto_ball, onto_cut, onto_simplex, total


class FeasibleSet(ABC):
    """A public closed convex set W of one agent's variables."""

    @property
    def closed_form(self) -> bool:
        """Whether ``project`` is pure JAX; otherwise it runs a solver on the host in float64."""
        return True

    @property
    def separable(self) -> bool:
        """Whether the projection acts on each coordinate alone."""
        return False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of variables."""

    @property
    def slack_size(self) -> int:
        """Number of linear functions of z whose values ``project`` can weigh too."""
        return 0

    def slack_of(self, point: Any) -> Any:
        """These functions at a point."""
        raise NotImplementedError

    @abstractmethod
    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Any:
        """The point of W nearest to ``point`` when coordinate i weighs ``weight[i] > 0``.

        argmin over z in W of Σ_i c_i (z_i − v_i)² / 2; no weight, or one number, is the ordinary
        projection. Closed-form sets turn a NaN in ``point`` into a NaN in the result, so that
        compiled and plain calls agree; solver-backed sets refuse it.
        """

    @abstractmethod
    def violation(self, point: ArrayLike) -> Any:
        """Largest amount by which a constraint is broken at ``point``; 0 inside W."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance ‖u − v‖₂ of two points of W, or a bound above it; may be infinite."""

    @abstractmethod
    def radius(self, norm: float) -> float:
        """Largest ‖z‖₂ (norm 2) or ‖z‖_∞ (norm ``math.inf``) over W, or a bound above it."""

    def reach(self, norm: float) -> float:
        """``radius``, and a millionth more for rounding: what sensitivities are proven for.

        An agent computes at no point that is longer.
        """
        return self.radius(norm) * (1 + 2.0**-20)

    @property
    def magnitude(self) -> float:
        """The size of the largest number in a constraint at points of W, or a bound above it."""
        return self.radius(math.inf)

    def in_format(self, dtype: Any) -> FeasibleSet:
        """The same set for points of ``dtype``, with what can be rounded beforehand."""
        return self

    def tolerance(self, dtype: Any) -> float:
        """The largest violation that rounding to ``dtype`` leaves: a few units of ``magnitude``."""
        return (8 + 2 * math.sqrt(self.dimension)) * float(np.finfo(dtype).eps) * self.magnitude


@pytree
class Box(FeasibleSet):
    """Bounds on every coordinate: {z : lower ≤ z ≤ upper}. Its sizes are exact.

    Two scalar bounds need a ``size``. A bound may be infinite.
    """

    lower: ArrayLike
    upper: ArrayLike

    def __init__(self, lower: ArrayLike, upper: ArrayLike, size: int | None = None) -> None:
        lower, upper = bounds(lower, upper, size)
        _store(self, lower=lower, upper=upper)

    @property
    def separable(self) -> bool:
        return True

    @property
    def dimension(self) -> int:
        return _length(self.lower)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, _ = _point_and_weight(point, weight, self.dimension)
        return jnp.clip(v, *_inwards(v.dtype, self.lower, self.upper))

    def violation(self, point: ArrayLike) -> Array:
        return _outside(_wide(point, self.dimension), self.lower, self.upper)

    def in_format(self, dtype: Any) -> Box:
        lower, upper = _inwards(dtype, self.lower, self.upper)
        copy: Box = jax.tree.map(lambda leaf: leaf, self)
        _store(copy, lower=np.asarray(lower), upper=np.asarray(upper))
        return copy

    @property
    def diameter(self) -> float:
        return _norm(np.asarray(self.upper) - np.asarray(self.lower), 2)

    def radius(self, norm: float) -> float:
        return _norm(np.maximum(np.abs(self.lower), np.abs(self.upper)), norm)


def NonNegative(size: int, upper: ArrayLike = math.inf) -> Box:
    """The box {z : 0 ≤ z ≤ upper}."""
    return Box(0.0, upper, size)


@pytree
class Ball(FeasibleSet):
    """The Euclidean ball {z : ‖z − center‖₂ ≤ radius}. Its sizes are exact.

    A scalar center (0 for the origin) needs a ``size``. The radius is kept as ``extent``, because
    ``radius(norm)`` is the largest norm of a point of the set.
    """

    center: ArrayLike
    extent: ArrayLike

    def __init__(self, center: ArrayLike, radius: float, size: int | None = None) -> None:
        extent = np.asarray(_positive("radius", radius))
        _store(self, center=_center(center, size), extent=extent)

    @property
    def dimension(self) -> int:
        return _length(self.center)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = _point_and_weight(point, weight, self.dimension)
        z: Array = onto_ball(v, c, self.center, self.extent).astype(v.dtype)
        return z

    def violation(self, point: ArrayLike) -> Array:
        z = _wide(point, self.dimension)
        return jnp.maximum(length(z - jnp.asarray(self.center)) - jnp.asarray(self.extent), 0)

    @property
    def diameter(self) -> float:
        return 2 * float(np.asarray(self.extent))

    def radius(self, norm: float) -> float:
        return _norm(self.center, norm) + float(np.asarray(self.extent))

    @property
    def magnitude(self) -> float:
        return self.radius(2)


@pytree
class L1Ball(FeasibleSet):
    """The cross-polytope {z : ‖z − center‖₁ ≤ radius}. Its sizes are exact."""

    center: ArrayLike
    extent: ArrayLike

    def __init__(self, radius: float, size: int | None = None, center: ArrayLike = 0.0) -> None:
        extent = np.asarray(_positive("radius", radius))
        _store(self, center=_center(center, size), extent=extent)

    @property
    def dimension(self) -> int:
        return _length(self.center)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        # The signs of z − center are those of v − center; the absolute values are those of v
        # projected onto {y ≥ 0 : Σ y = radius}.
        v, c = _point_and_weight(point, weight, self.dimension)
        center, extent = jnp.asarray(self.center), jnp.asarray(self.extent)
        apart = v.astype(jnp.float64) - center
        z = center + jnp.sign(apart) * onto_simplex(jnp.abs(apart), c, extent)
        return jnp.where(total(jnp.abs(apart)) <= extent, v, z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = _wide(point, self.dimension)
        return jnp.maximum(total(jnp.abs(z - jnp.asarray(self.center))) - self.extent, 0)

    @property
    def diameter(self) -> float:
        return 2 * float(np.asarray(self.extent))

    def radius(self, norm: float) -> float:
        # A norm is largest at a vertex: center moved outwards along its largest coordinate.
        vertex = np.abs(np.asarray(self.center))
        vertex[np.argmax(vertex)] += np.asarray(self.extent)
        return _norm(vertex, norm)

    @property
    def magnitude(self) -> float:
        return float(np.abs(self.center).sum() + np.asarray(self.extent))


@pytree
class Simplex(FeasibleSet):
    """Non-negative vectors of a given sum: {z ≥ 0 : Σ_i z_i = total}. Its sizes are exact."""

    size: int = static()
    total: ArrayLike = 1.0

    def __post_init__(self) -> None:
        total = np.asarray(_positive("total", self.total))
        _store(self, size=errors.count("size", self.size), total=total)

    @property
    def dimension(self) -> int:
        return self.size

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = _point_and_weight(point, weight, self.dimension)
        return onto_simplex(v, c, jnp.asarray(self.total)).astype(v.dtype)

    def violation(self, point: ArrayLike) -> Array:
        z = _wide(point, self.dimension)
        return jnp.maximum(jnp.abs(total(z) - jnp.asarray(self.total)), jnp.max(-z))

    @property
    def diameter(self) -> float:
        return math.sqrt(2) * float(np.asarray(self.total)) if self.size > 1 else 0.0

    def radius(self, norm: float) -> float:
        errors.choice("norm", norm, (2, math.inf))
        return float(np.asarray(self.total))


@pytree
class HalfSpace(FeasibleSet):
    """A box cut by one inequality: {z : normal'z ≤ offset, lower ≤ z ≤ upper}.

    ``radius(inf)`` is exact. ``radius(2)`` and ``diameter`` are those of the smallest box around
    the set: bounds above the true ones.
    """

    normal: ArrayLike
    offset: ArrayLike
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf
    around: Box = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _store(self, **_cut_box(self.normal, self.offset, self.lower, self.upper))
        _store(self, around=_smallest_box(self, -math.inf))

    @property
    def dimension(self) -> int:
        return _length(self.normal)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = _point_and_weight(point, weight, self.dimension)
        lower, upper = jnp.asarray(self.around.lower), jnp.asarray(self.around.upper)
        in_box = jnp.clip(v.astype(jnp.float64), lower, upper)
        cut = onto_cut(v, c, self.normal, self.offset, lower, upper)
        z = jnp.where(total(jnp.asarray(self.normal) * in_box) <= self.offset, in_box, cut)
        return self.around.project(z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = _wide(point, self.dimension)
        beyond = total(jnp.asarray(self.normal) * z) - jnp.asarray(self.offset)
        return jnp.maximum(beyond, _outside(z, self.lower, self.upper))

    @property
    def diameter(self) -> float:
        return self.around.diameter

    def radius(self, norm: float) -> float:
        return self.around.radius(norm)

    @property
    def magnitude(self) -> float:
        return _largest_terms(self)


@pytree
class Hyperplane(FeasibleSet):
    """A box cut by one equation: {z : normal'z = offset, lower ≤ z ≤ upper}.

    ``radius(inf)`` is exact. ``radius(2)`` and ``diameter`` are those of the smallest box around
    the set: bounds above the true ones.
    """

    normal: ArrayLike
    offset: ArrayLike
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf
    around: Box = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _store(self, **_cut_box(self.normal, self.offset, self.lower, self.upper))
        _store(self, around=_smallest_box(self, float(np.asarray(self.offset))))

    @property
    def dimension(self) -> int:
        return _length(self.normal)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = _point_and_weight(point, weight, self.dimension)
        z = onto_cut(v, c, self.normal, self.offset, self.around.lower, self.around.upper)
        return self.around.project(z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = _wide(point, self.dimension)
        apart = jnp.abs(total(jnp.asarray(self.normal) * z) - jnp.asarray(self.offset))
        return jnp.maximum(apart, _outside(z, self.lower, self.upper))

    @property
    def diameter(self) -> float:
        return self.around.diameter

    def radius(self, norm: float) -> float:
        return self.around.radius(norm)

    @property
    def magnitude(self) -> float:
        return _largest_terms(self)


@pytree
class Product(FeasibleSet):
    """Cartesian product W_1 × W_2 × ...: blocks of variables in order, each in its own set.

    Its sizes are exact where those of all parts are.
    """

    sets: tuple[FeasibleSet, ...]

    def __init__(self, sets: Sequence[FeasibleSet]) -> None:
        if not sets or not all(isinstance(part, FeasibleSet) for part in sets):
            raise InvalidInput(f"Expected one or more feasible sets, got {sets!r}. {NOT_DONE}")
        _store(self, sets=tuple(sets))

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
        v, c = _point_and_weight(point, weight, self.dimension)
        weights = self._blocks(jnp.broadcast_to(c, v.shape))
        parts = zip(self.sets, self._blocks(v), weights, strict=True)
        blocks = [part.project(block, c) for part, block, c in parts]
        return (jnp if self.closed_form else np).concatenate(blocks)

    def violation(self, point: ArrayLike) -> Any:
        blocks = self._blocks(_vector(point, self.dimension))
        broken = [part.violation(z) for part, z in zip(self.sets, blocks, strict=True)]
        return jnp.max(jnp.stack(broken)) if self.closed_form else float(np.max(broken))

    def in_format(self, dtype: Any) -> Product:
        return Product([part.in_format(dtype) for part in self.sets])

    def _blocks(self, vector: Array) -> list[Array]:
        ends = np.cumsum([part.dimension for part in self.sets])
        return jnp.split(vector, ends[:-1])

    @property
    def diameter(self) -> float:
        return _norm([part.diameter for part in self.sets], 2)

    def radius(self, norm: float) -> float:
        return _norm([part.radius(norm) for part in self.sets], norm)

    @property
    def magnitude(self) -> float:
        return max(part.magnitude for part in self.sets)

    def tolerance(self, dtype: Any) -> float:
        return max(part.tolerance(dtype) for part in self.sets)


def bounds(lower: Any, upper: Any, size: int | None) -> tuple[Vector, Vector]:
    """Both bounds as vectors; refuses NaN, shapes that do not fit and lower > upper."""
    shape = () if size is None else (errors.count("size", size),)
    try:
        pair = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        shape = np.broadcast_shapes(shape, pair[0].shape, pair[1].shape)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Expected bounds that fit together: {error}. {NOT_DONE}") from None
    if len(shape) != 1 or shape[0] == 0 or (size is not None and shape[0] != size):
        raise InvalidInput(
            f"Expected bounds of one vector of variables (or numbers and a size), got shapes "
            f"{pair[0].shape} and {pair[1].shape} with size={size}. {NOT_DONE}"
        )
    low, high = np.broadcast_to(pair[0], shape).copy(), np.broadcast_to(pair[1], shape).copy()
    if np.isnan(low).any() or np.isnan(high).any():
        raise InvalidInput(f"Expected bounds without NaN, got {low} and {high}. {NOT_DONE}")
    wrong = (low > high) | (low == math.inf) | (high == -math.inf)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidSet(
            f"Expected lower <= upper, got lower={low[i]:g}, upper={high[i]:g} at index {i}: "
            f"the set is empty. {NOT_DONE}"
        )
    return low, high


def _cut_box(normal: Any, offset: Any, lower: Any, upper: Any) -> dict[str, Vector]:
    """The checked fields of a half-space or hyperplane."""
    normal = errors.array("normal", normal, (None,), dtype=np.float64)
    if not normal.any():
        raise InvalidInput(f"Expected a normal that is not zero, got {normal}. {NOT_DONE}")
    lower, upper = bounds(lower, upper, normal.size)
    offset = errors.array("offset", offset, (), dtype=np.float64)
    return {"normal": normal.copy(), "offset": offset.copy(), "lower": lower, "upper": upper}


def _smallest_box(cut: HalfSpace | Hyperplane, least: float) -> Box:
    """The smallest box around {least ≤ a'z ≤ b, lower ≤ z ≤ upper}, rounded outwards.

    Refuses an empty set. a_i z_i lies between least − Σ_{j≠i} max a_j z_j and
    b − Σ_{j≠i} min a_j z_j, and both ends are reached.
    """
    a, b = np.asarray(cut.normal), float(np.asarray(cut.offset))
    lower, upper = np.asarray(cut.lower), np.asarray(cut.upper)
    moving = a != 0
    ends = a[moving] * np.stack([lower, upper])[:, moving]
    low, high = ends.min(axis=0), ends.max(axis=0)
    rounding = 1e-14 * (abs(b) + float(np.abs(ends[np.isfinite(ends)]).sum()))
    if low.sum() > b + rounding or high.sum() < least - rounding:
        raise InvalidSet(
            f"Expected an offset that normal'z can meet, got offset={b:g} where normal'z lies in "
            f"[{low.sum():g}, {high.sum():g}]: the set is empty. {NOT_DONE}"
        )
    ends = np.stack([least - _sum_of_others(high), b - _sum_of_others(low)]) / a[moving]
    slack = rounding / np.abs(a[moving])
    tight_lower, tight_upper = lower.copy(), upper.copy()
    tight_lower[moving] = np.clip(ends.min(axis=0) - slack, lower[moving], upper[moving])
    tight_upper[moving] = np.clip(ends.max(axis=0) + slack, lower[moving], upper[moving])
    return Box(tight_lower, tight_upper)


def _largest_terms(cut: HalfSpace | Hyperplane) -> float:
    """Σ|a_i| sup|z_i| + |b|, or the largest coordinate if that is larger."""
    largest = np.maximum(np.abs(cut.around.lower), np.abs(cut.around.upper))
    a = np.abs(np.asarray(cut.normal))
    terms = float(np.where(a > 0, a * largest, 0).sum()) + abs(float(np.asarray(cut.offset)))
    return max(terms, cut.around.radius(math.inf))


def _sum_of_others(terms: Vector) -> Vector:
    """Σ_{j≠i} terms_j for every i, where terms may hold infinities of one sign."""
    infinite = np.isinf(terms)
    finite = np.where(infinite, 0, terms)
    others_infinite = infinite.sum() - infinite > 0
    others: Vector = np.where(others_infinite, terms[infinite].sum(), finite.sum() - finite)
    return others


def _point_and_weight(point: ArrayLike, weight: ArrayLike | None, size: int) -> tuple[Array, Array]:
    """The point and, as float64, its weights; a common weight of all coordinates becomes 1."""
    v = _vector(point, size)
    c = jnp.asarray(1 if weight is None else weight, jnp.float64)
    if c.shape not in ((), (size,)):
        raise InvalidInput(f"Expected a weight of shape ({size},), got {c.shape}. {NOT_DONE}")
    if not isinstance(c, jax.core.Tracer) and not bool(jnp.all((c > 0) & jnp.isfinite(c))):
        raise InvalidInput(f"Expected finite weights > 0, got {c}. {NOT_DONE}")
    return v, c if c.ndim else jnp.ones_like(c)


def _vector(point: ArrayLike, size: int) -> Array:
    z = jnp.asarray(point)
    if z.shape != (size,):
        raise InvalidInput(f"Expected a point of shape ({size},), got {z.shape}. {NOT_DONE}")
    return z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(jnp.float64)


def _wide(point: ArrayLike, size: int) -> Array:
    return _vector(point, size).astype(jnp.float64)


def _inwards(dtype: Any, lower: ArrayLike, upper: ArrayLike) -> tuple[Array, Array]:
    """The bounds in ``dtype``, rounded to the inside; the nearest numbers if none lies between."""
    exact = jnp.asarray(lower), jnp.asarray(upper)
    if exact[0].dtype == exact[1].dtype == dtype:
        return exact
    near = [x.astype(dtype) for x in exact]
    too_low, too_high = near[0] < exact[0], near[1] > exact[1]
    low = jnp.where(too_low, jnp.nextafter(near[0], jnp.inf), near[0])
    high = jnp.where(too_high, jnp.nextafter(near[1], -jnp.inf), near[1])
    return jnp.where(low > high, near[0], low), jnp.where(low > high, near[0], high)


def _outside(z: Array, lower: ArrayLike, upper: ArrayLike) -> Array:
    beyond = jnp.maximum(jnp.asarray(lower) - z, z - jnp.asarray(upper))
    return jnp.maximum(jnp.max(beyond), 0)


def _norm(vector: ArrayLike | Sequence[float], norm: float) -> float:
    errors.choice("norm", norm, (2, math.inf))
    return float(np.linalg.norm(np.asarray(vector), norm))


def _length(vector: ArrayLike) -> int:
    return int(np.shape(vector)[-1])


def _positive(name: str, value: Any) -> float:
    """A length that a set cannot do without: an empty set is refused as such."""
    try:
        return errors.positive(name, value)
    except InvalidInput as error:
        raise InvalidSet(str(error)) from None


def _center(center: Any, size: int | None) -> Vector:
    shape: tuple[int | None, ...] = (None if size is None else errors.count("size", size),)
    if np.ndim(center) == 0:
        if size is None:
            raise InvalidInput(f"Expected a center vector, or a number and a size. {NOT_DONE}")
        center = np.full(size, center)
    return errors.array("center", center, shape, dtype=np.float64).copy()


def _store(value: Any, **fields: object) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, content in fields.items():
        object.__setattr__(value, name, content)
