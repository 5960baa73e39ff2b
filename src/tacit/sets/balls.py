"""Euclidean and L1 balls, and the simplex. Their sizes are exact."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.pytree import pytree, static, store
from tacit.sets.feasible_set import FeasibleSet, norm_of, point_and_weight, wide_point_of
from tacit.sets.projections import length, onto_ball, onto_simplex, total


@pytree
class _Around(FeasibleSet):
    """The points within ``extent`` of ``center``; ``radius(norm)`` is the norm of the longest."""

    center: ArrayLike
    extent: ArrayLike

    def _place(self, center: ArrayLike, radius: float, size: int | None) -> None:
        extent = np.asarray(_positive("radius", radius))
        store(self, center=_center(center, size), extent=extent)

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


def _center(center: Any, size: int | None) -> Vector:
    shape: tuple[int | None, ...] = (None if size is None else errors.count("size", size),)
    if np.ndim(center) == 0:
        if size is None:
            raise InvalidInput("Expected a center vector, or a number and a size.")
        center = np.full(size, center)
    return errors.array("center", center, shape, dtype=np.float64).copy()
