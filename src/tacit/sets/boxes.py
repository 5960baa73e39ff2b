"""Boxes, and the checks of bounds that other sets use too."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.pytree import pytree, store
from tacit.sets.feasible_set import FeasibleSet, norm_of, point_and_weight, wide_point_of


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

    @property
    def separable(self) -> bool:
        return True

    @property
    def dimension(self) -> int:
        return int(np.shape(self.lower)[-1])

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Array:
        v, _ = point_and_weight(point, weight, self.dimension)
        return jnp.clip(v, *_inwards(v.dtype, self.lower, self.upper))

    def violation(self, point: ArrayLike) -> Array:
        return outside(wide_point_of(point, self.dimension), self.lower, self.upper)

    def in_format(self, dtype: Any) -> Box:
        lower, upper = _inwards(dtype, self.lower, self.upper)
        copy: Box = jax.tree.map(lambda leaf: leaf, self)
        store(copy, lower=np.array(lower), upper=np.array(upper))
        return copy

    @property
    def diameter(self) -> float:
        return norm_of(np.asarray(self.upper) - np.asarray(self.lower), 2)

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
