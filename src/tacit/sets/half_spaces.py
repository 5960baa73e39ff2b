"""Half-spaces and hyperplanes, within bounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.pytree import pytree, store
from tacit.sets.boxes import Box, bounds, outside
from tacit.sets.feasible_set import FeasibleSet, point_and_weight, wide_point_of
from tacit.sets.projections import onto_cut, total


@pytree
class CutBox(FeasibleSet):
    """A box cut by one linear constraint: {z : least ≤ normal'z ≤ offset, lower ≤ z ≤ upper}.

    ``radius(inf)`` is exact. ``radius(2)`` and ``diameter`` are those of ``around``, the smallest
    box around the set: bounds above the true ones.
    """

    normal: ArrayLike
    offset: ArrayLike
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf
    around: Box = field(init=False, repr=False)

    def __post_init__(self) -> None:
        normal = errors.array("normal", self.normal, (None,), dtype=np.float64).copy()
        if not normal.any():
            raise InvalidInput(f"Expected a normal that is not zero, got {normal}.")
        lower, upper = bounds(self.lower, self.upper, normal.size)
        offset = errors.array("offset", self.offset, (), dtype=np.float64).copy()
        store(self, normal=normal, offset=offset, lower=lower, upper=upper)
        store(self, around=_smallest_box(self))

    @property
    @abstractmethod
    def least(self) -> float:
        """The smallest normal'z that is allowed."""

    @property
    def dimension(self) -> int:
        return int(np.shape(self.normal)[-1])

    @property
    def diameter(self) -> float:
        return self.around.diameter

    def radius(self, norm: float) -> float:
        return self.around.radius(norm)

    @property
    def magnitude(self) -> float:
        """Σ|a_i| sup|z_i| + |b|, or the largest coordinate if that is larger."""
        largest = np.maximum(np.abs(self.around.lower), np.abs(self.around.upper))
        a = np.abs(np.asarray(self.normal))
        terms = float(np.where(a > 0, a * largest, 0).sum()) + abs(float(np.asarray(self.offset)))
        return max(terms, self.around.radius(math.inf))


@pytree
class HalfSpace(CutBox):
    """A box cut by one inequality: {z : normal'z ≤ offset, lower ≤ z ≤ upper}.

    Its sizes are those of the smallest box around it; only ``radius(inf)`` is exact.
    """

    @property
    def least(self) -> float:
        return -math.inf

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = point_and_weight(point, weight, self.dimension)
        lower, upper = jnp.asarray(self.around.lower), jnp.asarray(self.around.upper)
        in_box = jnp.clip(v.astype(jnp.float64), lower, upper)
        cut = onto_cut(v, c, self.normal, self.offset, lower, upper)
        z = jnp.where(total(jnp.asarray(self.normal) * in_box) <= self.offset, in_box, cut)
        return self.around.project(z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        beyond = total(jnp.asarray(self.normal) * z) - jnp.asarray(self.offset)
        return jnp.maximum(beyond, outside(z, self.lower, self.upper))


@pytree
class Hyperplane(CutBox):
    """A box cut by one equation: {z : normal'z = offset, lower ≤ z ≤ upper}.

    Its sizes are those of the smallest box around it; only ``radius(inf)`` is exact.
    """

    @property
    def least(self) -> float:
        return float(np.asarray(self.offset))

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, c = point_and_weight(point, weight, self.dimension)
        z = onto_cut(v, c, self.normal, self.offset, self.around.lower, self.around.upper)
        return self.around.project(z.astype(v.dtype))

    def violation(self, point: ArrayLike) -> Array:
        z = wide_point_of(point, self.dimension)
        apart = jnp.abs(total(jnp.asarray(self.normal) * z) - jnp.asarray(self.offset))
        return jnp.maximum(apart, outside(z, self.lower, self.upper))


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


def _sum_of_others(terms: Vector) -> Vector:
    """Σ_{j≠i} terms_j for every i, where terms may hold infinities of one sign."""
    infinite = np.isinf(terms)
    finite = np.where(infinite, 0, terms)
    others_infinite = infinite.sum() - infinite > 0
    others: Vector = np.where(others_infinite, terms[infinite].sum(), finite.sum() - finite)
    return others
