"""Public feasible sets W_p of the agents: weighted projection, violation and size.

Every set offers ``project``, the only place where a constraint enters an update of Algorithm 1:

    project(v, c) = argmin over z in W of Σ_i c_i (z_i − v_i)² / 2

Boxes, balls, half-spaces and their products have projection formulas in JAX: they can be compiled,
stacked and vmapped, and the result has the dtype of the point. On ``Conic`` sets a solver projects.

Guarantee: ``violation(project(v, c))`` is at most ``tolerance(dtype)``, for sets with a formula a
few units in the last place of the set's own numbers, for every finite point v and all positive
weights c, in float32 and float64: see ``closed_form.py``. ``violation`` is computed in float64, on
its own.

A set is public. Its ``diameter`` and ``radius`` enter certified sensitivities, so a set must never
be built from private data.

Scaling by powers of two is exact: they are made of their bits, as ``jnp.ldexp`` is not exact
everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit import errors
from tacit.errors import InvalidInput

MANTISSA, BIAS = 52, 1023  # of float64
LEAST = float(np.finfo(np.float64).tiny)
FARTHEST = 1000  # of powers that numbers are scaled by and back again


def exponent(number: Any) -> Array:
    """The e with 2^(e−1) ≤ number < 2^e, an int64; 0 below 2⁻¹⁰²², for ∞ and for NaN."""
    number = _double(number)
    usable = jnp.isfinite(number) & (number >= LEAST)
    bits = jax.lax.bitcast_convert_type(jnp.where(usable, number, 0.5), jnp.int64)
    return (bits >> MANTISSA) - (BIAS - 1)


def magnitude(number: Any) -> Array:
    """The exponent, within ±1000: scaling down by it and back again is in range."""
    return jnp.clip(exponent(number), -FARTHEST, FARTHEST)


def scaled(numbers: Any, power: Any) -> Array:
    """numbers · 2^power in float64, for −1022 ≤ power ≤ 1023: one product.

    Guarantee: exact where number and result are 0 or at least 2⁻¹⁰²² in size; ∞ where it is too
    large. Smaller numbers, and smaller results, may become 0.
    """
    bits = (jnp.asarray(power, jnp.int64) + BIAS) << MANTISSA
    return _double(numbers) * jax.lax.bitcast_convert_type(bits, jnp.float64)


def _double(numbers: Any) -> Array:
    require_64_bits()  # else bits would be taken for others
    return jnp.asarray(numbers, jnp.float64)


def require_64_bits() -> None:
    """Refuse where JAX was told to do without numbers of 64 bits: no claim on rounding holds."""
    if jnp.result_type(float) != np.float64:
        raise InvalidInput(
            "Expected jax_enable_x64, which importing tacit switches on, to stay on; it was "
            "switched off. Nothing was computed."
        )


class FeasibleSet(ABC):
    """A public closed convex set W of one agent's variables."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dimension} variables)"

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

    @property
    def widths(self) -> Any:
        """How far W reaches along each coordinate, or bounds above it: its units."""
        return np.full(self.dimension, self.diameter)

    def reach(self, norm: float) -> float:
        """``radius``, and a millionth more for rounding: what sensitivities are proven for.

        An agent computes at no point that is longer.
        """
        return self.radius(norm) * (1 + 2.0**-20)

    @property
    def magnitude(self) -> float:
        """The size of the largest number in a constraint at points of W, or a bound above it."""
        return self.radius(math.inf)

    def tolerance(self, dtype: Any) -> float:
        """The largest violation that rounding to ``dtype`` leaves: a few units of ``magnitude``."""
        return (8 + 2 * math.sqrt(self.dimension)) * float(np.finfo(dtype).eps) * self.magnitude


def point_and_weight(point: ArrayLike, weight: ArrayLike | None, size: int) -> tuple[Array, Array]:
    """The point and, as float64, its weights; a common weight of all coordinates becomes 1."""
    v = point_of(point, size)
    c = jnp.asarray(1 if weight is None else weight, jnp.float64)
    if c.shape not in ((), (size,)):
        raise InvalidInput(f"Expected a weight of shape ({size},), got {c.shape}.")
    known = None if isinstance(c, jax.core.Tracer) else np.asarray(c)
    if known is not None and not ((known > 0) & np.isfinite(known)).all():
        raise InvalidInput(f"Expected finite weights > 0, got {c}.")
    return v, c if c.ndim else jnp.ones_like(c)


def point_of(point: ArrayLike, size: int) -> Array:
    z = jnp.asarray(point)
    if z.shape != (size,):
        raise InvalidInput(f"Expected a point of shape ({size},), got {z.shape}.")
    return z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(jnp.float64)


def wide_point_of(point: ArrayLike, size: int) -> Array:
    return point_of(point, size).astype(jnp.float64)


def norm_of(vector: ArrayLike | Sequence[float], norm: float) -> float:
    errors.choice("norm", norm, (2, math.inf))
    return float(np.linalg.norm(np.asarray(vector), norm))
