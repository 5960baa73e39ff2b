"""Rounding inside the proof: how far computed statistics of neighbours can differ beyond Δ.

Numbers are rounded to the nearest with a unit u = 2⁻²⁴ (float32) or 2⁻⁵³ (float64). For sums and
products of n terms in any order, with or without fused operations (Higham, 2002, Section 3.1),

    |computed Σ x_i y_i − Σ x_i y_i| ≤ γ_n Σ|x_i y_i|,      γ_n = nu/(1 − nu)

A statistic is Σ_i slope_i x_i/N over records, ‖slope_i x_i‖ ≤ SB. One record differs. The sums of
the other records' terms then differ too, as computed, for two reasons. (a) *Sums* are rounded
differently: by at most 2γ_M·M·SB for M records. (b) *Terms* may be: a score x_i'z that stands
elsewhere in a matrix may be added up in another order, and a slope follows it.

*Records stay in place* (zero-out, replace, move: neighbours have equally many records). The same
program reads the same numbers at the same places, so all terms but the changed ones are the same
bit for bit, and so is the sum of every block of at most K records without a change. Only one
block's rounding counts, 2γ_K·K·SB, in the arithmetic of the features; blocks are added in float64.
Assumed: entry (k, i) of a matrix product is a function of row k and column i, of the shapes and of
(k, i), whatever stands in other columns. Products that are computed by adding and multiplying
(no Strassen) have this property. On a CPU blocks are computed one after the other. On a GPU one
product has all scores, and one call the products of all blocks: entry (b, k, i) is taken to be a
function of block b, of the shapes and of (b, k, i). Bounds there are for blocks of K = 500 records
or fewer, as the sum of a larger one could err by more; the zeros that fill up the last block add
nothing, and exactly.

*Records shift* (add-remove: neighbours are compiled to other programs). Nothing is assumed about
order. All arithmetic is float64. A term moves by at most B times the change of its slope, which is
at most L·2γ_d BR for a slope with Lipschitz constant L and ‖z‖ ≤ R, and its own rounding. Where
slopes jump (hinge, quantile) scores are computed exactly instead: x and z are cut to multiples of
g_x ≥ 2⁻²⁶B and g_z ≥ 2⁻²⁶‖z‖, powers of two, so that every partial sum is a multiple of g_x g_z and
at most ‖x‖‖z‖ ≤ 2⁵² g_x g_z: no sum is rounded, in any order. g_z ≥ 2⁻⁵²⁶, so that g_x g_z is no
subnormal number for any B that is taken (1e-30 and more).

Elementary functions (exp, log, division) are assumed to err by at most 32 units.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Vector
from tacit.sets.feasible_set import exponent, scaled

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
DOUBLE = UNIT["float64"]
EXACT_BITS = 26  # of x and of z, where scores must be exact
LEAST_EXPONENT = -500  # of such a z: what is smaller by far than its grid is cut to 0


def gamma(n: float, unit: float = DOUBLE) -> float:
    """γ_n: the largest relative error of a sum of n products; infinite if it may be 1 or more."""
    return n * unit / (1 - n * unit) if n * unit < 0.5 else math.inf


def rounded_up(value: float) -> float:
    """A little more than ``value``: covers the few operations that made it."""
    return value * (1 + 1e-12)


def cut_rows(rows: Vector, norm: float) -> Vector:
    """Rows of length at most ``norm``, cut to multiples of g_x; no row gets longer."""
    grid = rows.dtype.type(2.0 ** (math.ceil(math.log2(norm)) - EXACT_BITS))
    cut: Vector = np.trunc(rows / grid) * grid
    return cut


@jax.custom_jvp
def cut_point(z: Any) -> Any:
    """z as float64, cut to multiples of g_z. Derivatives see z."""
    z = jnp.asarray(z, jnp.float64)
    largest = jnp.max(jnp.abs(z), initial=0)
    # ‖z‖ ≤ √n·max|z|; and products of g_x and g_z are no subnormal numbers, which may become 0
    power = jnp.maximum(exponent(largest), LEAST_EXPONENT)
    power = power + math.ceil(math.log2(max(z.size, 1)) / 2) - EXACT_BITS
    return scaled(jnp.trunc(scaled(z, -power)), power)


@cut_point.defjvp
def _of_cut_point(values: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return cut_point(values[0]), jnp.asarray(tangents[0], jnp.float64)
