"""Powers of two, made of their bits: scaling that is exact.

``jnp.ldexp`` takes every number apart and raises 2 to a power in floating point, which nobody
promises to be exact on every device; it is slow besides, to compile and to run.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

MANTISSA, BIAS = 52, 1023  # of float64
LEAST = float(np.finfo(np.float64).tiny)


def exponent(number: Any) -> Array:
    """The e with 2^(e−1) ≤ number < 2^e, an int64; 0 below 2⁻¹⁰²², for ∞ and for NaN."""
    number = jnp.asarray(number, jnp.float64)
    usable = jnp.isfinite(number) & (number >= LEAST)
    bits = jax.lax.bitcast_convert_type(jnp.where(usable, number, 0.5), jnp.int64)
    return (bits >> MANTISSA) - (BIAS - 1)


def scaled(numbers: Array, power: Array) -> Array:
    """numbers · 2^power in float64, for |power| ≤ 2044.

    Guarantee: exact where the result is 0 or at least 2⁻¹⁰²²; ∞ where it is too large. A smaller
    one may become 0. In two factors of like sign, as one may be out of range where both are not.
    """
    half = jnp.asarray(power, jnp.int64) >> 1
    return jnp.asarray(numbers, jnp.float64) * _power(half) * _power(power - half)


def _power(e: Array) -> Array:
    """2^e for −1022 ≤ e ≤ 1023."""
    return jax.lax.bitcast_convert_type((e + BIAS) << MANTISSA, jnp.float64)
