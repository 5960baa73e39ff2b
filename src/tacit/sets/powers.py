"""Powers of two, made of their bits: scaling that is exact (``jnp.ldexp`` is not everywhere)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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
