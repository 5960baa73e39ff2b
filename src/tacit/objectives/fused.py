"""Σ_i slope_i x_i of a linear model as one kernel of a GPU (Pallas, Triton), tile by tile of records.

A program of the kernel has a tile of at most 128 records. It computes their scores, which takes
their features once, their slopes (the model's own ``slopes``, traced), and the tile's sums, which
takes the features again. Nothing but these sums is written. They are added in float64 outside.

Rounding, float32 features. Nothing is assumed of matrix units that their makers do not say:
*scores* are sums of d products by float32 multiplications and additions, fused or not, in one order
for all records: γ_d, as in ``rounding.py``, and a score depends on its own record and z only.
*slopes* are computed in float64. *Sums of tiles* are float64 too: products of a float32 number and
a slope, each rounded to the nearest as a fused operation is (NVIDIA's documentation of ``mma`` for
.f64); then rounded to float32 once. With n records, all ≤ SB long, a change in one tile and T =
n/128 tiles the computed sums of neighbours differ by at most

    2·2u·128·SB (one tile) + 2γ_{T+2} n·SB (tiles in float64)

beyond the exact difference: less than what ``LinearModel._rounding`` adds for blocks of BLOCK
records, as long as n ≤ MOST_RECORDS. Features of 16 bits go to the matrix units, whose float32 sums
are not documented: they are not certified, with or without this kernel.

The Triton backend of Pallas is deprecated in JAX 0.11: where it is missing, where the features are
few, or the device is not NVIDIA's with compute capability 8 or more, products are used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array

if TYPE_CHECKING:
    from tacit.objectives.linear_model import LinearModel

OUTPUTS = 16  # scores of a record that a tile has room for
FEWEST, MOST_RECORDS = 2**20, 10**7  # numbers in the features, records
# records and features of a tile, warps of a program, stages of its pipeline; measured on an H200
TILES = {"float32": (128, 32, 4, 3), "bfloat16": (256, 64, 4, 4)}


def serves(f: LinearModel) -> bool:
    """Whether the kernel is there for this objective, on the default device."""
    d, records = f.features.shape[-2:]
    if not type(f).__dict__.get("traceable") or not f.in_place or f.outputs > OUTPUTS:
        return False
    if f.features.dtype.name not in TILES or d * records < FEWEST or records > MOST_RECORDS:
        return False
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))  # "9.0"; AMD's: gfx...
    known = capability.replace(".", "").isdigit() and float(capability) >= 8
    return known and hasattr(triton, "load") and hasattr(triton, "CompilerParams")


Sum = Callable[["LinearModel", Array], Array]


def total(f: LinearModel, z: Array, products: Sum, kernel: Sum | None = None) -> Array:
    """Σ_i slope_i x_i in float64, of the shape that ``products`` gives.

    Agents of a batch are more programs of the kernel. Many points for the same features, which a
    kernel would read for each of them, are left to ``products``.
    """
    leaves, structure = jax.tree.flatten(f)
    place = [leaf is f.features for leaf in leaves].index(True)

    def of(function: Sum) -> Callable[[Any, Array], Array]:
        return lambda leaves, z: function(jax.tree.unflatten(structure, leaves), z)

    return _batched(of(kernel or sums), of(products), place)(leaves, z)


def _batched(kernel: Callable[..., Any], products: Callable[..., Any], place: int) -> Any:
    function = jax.custom_batching.custom_vmap(kernel)

    @function.def_vmap
    def _(size: int, batched: Any, leaves: Any, z: Array) -> tuple[Array, bool]:
        axes = jax.tree.map(lambda whether: 0 if whether else None, tuple(batched))
        many = partial(jax.vmap, in_axes=axes, axis_size=size)
        if not batched[0][place]:
            return many(products)(leaves, z), True
        return _batched(many(kernel), many(products), place)(leaves, z), True

    return function


def sums(f: LinearModel, z: Array, tile: Any = None, interpret: bool = False) -> Array:
    """The kernel for one agent, and the sum over its tiles."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    R, K, warps, stages = tile or TILES[f.features.dtype.name]
    (d, records), outputs = f.features.shape, f.outputs
    tiles, steps = -(-records // R), -(-d // K)
    short = f.features.dtype == jnp.bfloat16
    # formats of: operands of scores, slopes, operands of sums
    format_1, middle, format_2 = (
        (jnp.bfloat16, jnp.float32, jnp.bfloat16)
        if short
        else (jnp.float32, jnp.float64, jnp.float64)
    )
    leaves, structure = jax.tree.flatten(f)
    used = [i for i, leaf in enumerate(leaves) if np.shape(leaf) in ((), (records,))]

    def kernel(x_ref: Any, z_ref: Any, *refs: Any) -> None:
        *side_refs, out_ref = refs
        zero = jnp.int32(0)
        start = pl.program_id(0) * R
        here = start + jnp.arange(R, dtype=jnp.int32) < records
        row = jax.lax.broadcasted_iota(jnp.int32, (OUTPUTS, R), 0)

        def features(i: Array, dtype: Any) -> Array:
            mask = (i * K + jax.lax.broadcasted_iota(jnp.int32, (K, R), 0) < d) & here[None]
            x = x_ref.at[pl.ds(i * K, K), pl.ds(start, R)]
            return triton.load(x, mask=mask, other=0).astype(dtype)

        def scored(i: Array, scores: Array) -> Array:
            weights = triton.load(z_ref.at[pl.ds(i * K, K), pl.ds(zero, OUTPUTS)])
            return scores + _dot(features(i, format_1), weights.astype(format_1), 0, 0)

        scores = jnp.zeros((R, OUTPUTS), jnp.float32)
        scores = jax.lax.fori_loop(zero, jnp.int32(steps), scored, scores).T.astype(middle)
        sides = list(leaves)
        for i, ref in zip(used, side_refs, strict=True):
            whole = ref.shape == (1,)
            sides[i] = (
                triton.load(ref.at[pl.ds(zero, 1)]).reshape(())
                if whole
                else triton.load(ref.at[pl.ds(start, R)], mask=here, other=0)
            )
        piece = jax.tree.unflatten(structure, sides)
        if outputs == 1:
            slopes = piece.slopes(jnp.where(row == 0, scores, 0).sum(axis=0))
            slopes = jnp.where(row == 0, slopes[None], 0)
        else:
            slopes = piece.widened(OUTPUTS).slopes(jnp.where(row < outputs, scores, -jnp.inf))
        slopes = slopes.astype(format_2)

        def summed(i: Array, _: None) -> None:
            part = _dot(features(i, format_2), slopes, 1, 1).astype(jnp.float32)
            triton.store(out_ref.at[pl.ds(i * K, K), pl.ds(zero, OUTPUTS)], part)

        jax.lax.fori_loop(zero, jnp.int32(steps), summed, None)

    weights = z.reshape(d, outputs).astype(jnp.float32)
    weights = jnp.pad(weights, ((0, steps * K - d), (0, OUTPUTS - outputs)))
    sides = [jnp.asarray(leaves[i]).reshape(-1) for i in used]
    parts = pl.pallas_call(
        kernel,
        grid=(tiles,),
        in_specs=[pl.BlockSpec()] * (2 + len(used)),
        out_specs=pl.BlockSpec((None, steps * K, OUTPUTS), lambda t: (t, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((tiles, steps * K, OUTPUTS), jnp.float32),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=interpret,
    )(f.features, weights, *sides)
    total: Array = parts[:, :d, :outputs].sum(axis=0, dtype=jnp.float64)
    return total if outputs > 1 else total[:, 0]


def _dot(a: Array, b: Array, axis: int, other: int) -> Array:
    """The product along these axes: float32 in float32, with no shorter format between."""
    wide = jnp.float64 if a.dtype == jnp.float64 else jnp.float32
    dimensions = (((axis,), (other,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, precision="highest", preferred_element_type=wide)
