"""Σ_i slope_i x_i of a linear model as one kernel of a GPU (Pallas, Triton), by tiles of records.

A program of the kernel has a tile of 128 records. It computes their scores, their slopes (by the
model's own ``slopes``, traced) and the tile's sums, for which it takes the features again, the last
first: those may still be in the cache. Sums of tiles are all it writes; they are added in float64.

Rounding, as ``rounding.py`` has it for records in place. *Scores* are sums of d products by float32
multiplications and additions, fused or not: γ_d. Their order is one for all records, and nothing
of another record enters. *Slopes* are float32. Here exp(x) is assumed to err by at most 4 + 2|x|
units: for x ≤ 0 that is less than 5 units of 1, and in a limited slope up to 2|ln w| units more.
*Sums of tiles* are float64, where products of float32 numbers are exact, and rounded to float32
once, by u·Σ|terms|; and by no more again as long as matrix units for float64 err by less than 2²⁰
units of float64 in a sum or product. They are specified to err by one, as a fused operation does.
So n records in T = n/128 tiles, each adding at most SB, give neighbours' sums that are off by

    2·2u·128·SB (one tile) + 2γ_{T+2} n·SB (tiles in float64)

at most: less than ``LinearModel._rounding`` adds for blocks of BLOCK records, if n ≤ MOST_RECORDS.

An H200 updates MNIST's size in 175 µs instead of 380. Features of 16 bits gained nothing,
and other devices were not measured. They, few features, and many points at once have two products,
as all have where JAX is without the Triton backend of Pallas (deprecated in 0.11).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from tacit._types import Array

if TYPE_CHECKING:
    from tacit.objectives.linear_model import LinearModel

OUTPUTS = 16  # scores of a record that a tile has room for
FEWEST, MOST_RECORDS = 2**20, 10**7  # numbers in the features, records


class Tile(NamedTuple):
    """How the work is cut: the fastest of those tried on an H200."""

    records: int = 128
    scored: int = 32  # features at a time
    summed: int = 32
    warps: int = 4
    stages: int = 3  # of a program's pipeline


TILE = Tile()
Sum = Callable[["LinearModel", Array], Array]


def serves(f: LinearModel) -> bool:
    """Whether the kernel is there for this objective, on the default device."""
    d, records = f.features.shape[-2:]
    if not type(f).__dict__.get("traceable") or not f.in_place or f.outputs > OUTPUTS:
        return False
    if f.features.dtype != jnp.float32 or d * records < FEWEST or records > MOST_RECORDS:
        return False
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    hopper = getattr(jax.devices()[0], "compute_capability", "") == "9.0"
    return hopper and hasattr(triton, "load") and hasattr(triton, "CompilerParams")


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
    function = custom_vmap(kernel)

    @function.def_vmap
    def _(size: int, batched: Any, leaves: Any, z: Array) -> tuple[Array, bool]:
        axes = jax.tree.map(lambda whether: 0 if whether else None, tuple(batched))
        many = partial(jax.vmap, in_axes=axes, axis_size=size)
        if not batched[0][place]:
            return many(products)(leaves, z), True
        return _batched(many(kernel), many(products), place)(leaves, z), True

    return function


def sums(f: LinearModel, z: Array, interpret: bool = False) -> Array:
    """The kernel for one agent, and the sum over its tiles."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    R = TILE.records
    (d, records), outputs = f.features.shape, f.outputs
    tiles, steps, last_steps = (
        -(-n // m) for n, m in ((records, R), (d, TILE.scored), (d, TILE.summed))
    )
    leaves, structure = jax.tree.flatten(f)
    used = _used(f)

    def kernel(x_ref: Any, z_ref: Any, *refs: Any) -> None:
        *side_refs, out_ref = refs
        zero = jnp.int32(0)
        start = pl.program_id(0) * R
        here = start + jnp.arange(R, dtype=jnp.int32) < records
        row = jax.lax.broadcasted_iota(jnp.int32, (OUTPUTS, R), 0)

        def features(first: Array, size: int) -> Array:
            mask = (first + jax.lax.broadcasted_iota(jnp.int32, (size, R), 0) < d) & here[None]
            part = x_ref.at[pl.ds(first, size), pl.ds(start, R)]
            return triton.load(part, mask=mask, other=0)

        def scored(i: Array, scores: Array) -> Array:
            first = i * TILE.scored
            weights = triton.load(z_ref.at[pl.ds(first, TILE.scored), pl.ds(zero, OUTPUTS)])
            return scores + _dot(features(first, TILE.scored), weights, 0, 0)

        scores = jnp.zeros((R, OUTPUTS), jnp.float32)
        scores = jax.lax.fori_loop(zero, jnp.int32(steps), scored, scores).T
        sides = list(leaves)
        for i, ref in zip(used, side_refs, strict=True):
            if ref.shape == (1,):
                sides[i] = triton.load(ref.at[pl.ds(zero, 1)]).reshape(())
            else:
                sides[i] = triton.load(ref.at[pl.ds(start, R)], mask=here, other=0)
        piece = jax.tree.unflatten(structure, sides)
        if outputs == 1:
            slopes = piece.slopes(jnp.where(row == 0, scores, 0).sum(axis=0))
            slopes = jnp.where(row == 0, slopes[None], 0)
        else:
            slopes = piece.widened(OUTPUTS).slopes(jnp.where(row < outputs, scores, -jnp.inf))
        slopes = slopes.astype(jnp.float64)

        def summed(i: Array, _: None) -> None:
            first = (last_steps - 1 - i) * TILE.summed  # backwards: the cache has the last ones
            part = _dot(features(first, TILE.summed).astype(jnp.float64), slopes, 1, 1)
            where = out_ref.at[pl.ds(first, TILE.summed), pl.ds(zero, OUTPUTS)]
            triton.store(where, part.astype(jnp.float32))

        jax.lax.fori_loop(zero, jnp.int32(last_steps), summed, None)

    weights = z.reshape(d, outputs).astype(jnp.float32)
    weights = jnp.pad(weights, ((0, steps * TILE.scored - d), (0, OUTPUTS - outputs)))
    sides = [_wide(jnp.asarray(leaves[i])).reshape(-1) for i in used]
    shape = (last_steps * TILE.summed, OUTPUTS)
    parts = pl.pallas_call(
        kernel,
        grid=(tiles,),
        in_specs=[pl.BlockSpec()] * (2 + len(used)),
        out_specs=pl.BlockSpec((None, *shape), lambda tile: (tile, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((tiles, *shape), jnp.float32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=TILE.warps, num_stages=TILE.stages),
        interpret=interpret,
    )(f.features, weights, *sides)
    total: Array = parts[:, :d, :outputs].sum(axis=0, dtype=jnp.float64)
    return total if outputs > 1 else total[:, 0]


def _used(f: LinearModel) -> list[int]:
    """Which leaves of the model its slopes are made of."""
    leaves, structure = jax.tree.flatten(f)
    shape = f.features.shape[-1:] if f.outputs == 1 else (f.outputs, f.features.shape[-1])
    traced = jax.make_jaxpr(lambda x, s: jax.tree.unflatten(structure, x).slopes(s))
    scores = jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]
    graph = traced(leaves, scores).jaxpr
    read = {id(variable) for equation in graph.eqns for variable in equation.invars}
    return [i for i, variable in enumerate(graph.invars[:-1]) if id(variable) in read]


def _wide(numbers: Array) -> Array:
    """At least 32 bits: Triton derives the layout of a float64 product from the shortest load."""
    short = numbers.dtype.itemsize < 4
    return numbers.astype(jnp.int32) if short and numbers.dtype.kind in "iub" else numbers


def _dot(a: Array, b: Array, axis: int, other: int) -> Array:
    """The product along these axes: float32 in float32, with no shorter format between."""
    wide = jnp.float64 if a.dtype == jnp.float64 else jnp.float32
    dimensions = (((axis,), (other,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, precision="highest", preferred_element_type=wide)
