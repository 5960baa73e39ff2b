"""Any loss written in JAX, made private by clipping the gradient of every record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import LENGTHS, InvalidInput, array, choice, count, positive
from tacit.objectives.objective import RELATIONS, Records, optional_positive
from tacit.objectives.rounding import gamma, rounded_up
from tacit.pytree import pytree, static, store
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

BLOCK = 128  # records whose gradients are in memory at once


@pytree
class PerSample(Records):
    """(1/N) Σ_i loss(z, record_i) for a JAX function ``loss``, with clipped gradients.

    ``data`` is an array or a tree of arrays whose first axis is that of records. Each record's
    gradient is scaled down to norm ``clip``, in the L1 or L2 norm as ``clip_norm`` says. Where
    clipping acts, ``gradient`` is not the gradient of ``value``. ``smoothness``, if given, is the
    user's public claim. Convexity is the user's claim too; privacy does not rest on it.

    ``units``: a public length D_i of every coordinate, or a set, whose widths they then are; else
    1. Gradients are taken of z_i/D_i: ``clip``, the noise and Δ are in these units, so that no
    coordinate needs a clip, or gets noise, that another one asked for.

    Guarantee: a record adds a vector of ``clip_norm`` at most clip to the sum, whatever its data
    are and whatever function of z and that record the loss is (not one that looks at other records,
    along the axis over which JAX vectorises: ``custom_vmap``, some callbacks). A gradient with NaN
    or infinity in it, or too long for float64, counts as zero. So Δ = clip/N for *add-remove* and
    2clip/N for *replace* in that norm, both attained; L2 ≤ L1 ≤ √n·L2 gives the other one. This
    holds at every z, also outside the set. With ``units`` the statistic is the sum of clip(D∘g_i):
    what is clipped, summed and released with isotropic noise are the same numbers D∘g, as computed,
    so nothing above changes; ``lift`` divides by D afterwards, a public map.
    A gradient is in memory before it is measured, so that what is measured is what is added up.
    Rounding (``rounding.py``): clipped gradients are added in float64, 2γ_M·M·clip/N for M records.
    Where records stay in place, the gradients of the others are the same bit for bit. Where they
    shift (add-remove), each gradient is computed alone, by the same instructions wherever its
    record stands, at two to four times the cost.
    """

    loss: Callable[[Array, Any], Array] = static()
    data: Any = field(repr=False)
    _: KW_ONLY
    clip: float
    size: int = static()
    clip_norm: int = static(default=2)
    smoothness: float | None = None
    units: Any = static(default=None, repr=False)
    everywhere: ClassVar[bool] = True
    clipped: ClassVar[bool] = True
    axis: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_64_bits()
        count("size", self.size)
        choice("clip_norm", self.clip_norm, (1, 2))
        data = jax.tree.map(jnp.asarray, self.data)
        lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
        if len(lengths) != 1:
            raise InvalidInput(
                f"Expected data arrays with one and the same number of records as first axis, "
                f"got {sorted(lengths)}."
            )
        self._accept(lengths.pop())
        store(
            self,
            data=data,
            clip=positive("clip", self.clip),
            smoothness=optional_positive("smoothness", self.smoothness),
            units=None if self.units is None else self._lengths(self.units),
        )
        self._check_loss()

    def _lengths(self, units: Any) -> tuple[float, ...]:
        """The units as plain numbers; those of a set are its widths."""
        given = getattr(units, "widths", units)
        found = array("units", given, (self.size,), dtype=np.float64)
        if not ((found >= LENGTHS[0]) & (found <= LENGTHS[1])).all():
            raise InvalidInput(
                f"Expected units from {LENGTHS[0]:g} to {LENGTHS[1]:g}, such as the widths of a "
                f"set in which no coordinate is fixed, got {found}."
            )
        return tuple(found.tolist())

    @property
    def _units(self) -> Vector:
        return np.ones(self.size) if self.units is None else np.asarray(self.units)

    def _check_loss(self) -> None:
        """The loss must turn a vector of ``size`` numbers and one record into one number."""
        record = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype),  # type: ignore[no-untyped-call]
            self.data,
        )
        try:
            found = jax.eval_shape(self.loss, jnp.zeros(self.size), record)
            shape, kind = found.shape, found.dtype
        except Exception as error:
            first_line = str(error).split("\n")[0]
            raise InvalidInput(
                f"Expected loss(z, record) to accept {self.size} numbers and one record; it "
                f"failed: {first_line} (data are arrays, and a loss is of JAX: jax.numpy for "
                "numpy, jnp.where for if)"
            ) from error
        if shape != () or not jnp.issubdtype(kind, jnp.floating):
            raise InvalidInput(f"Expected one floating-point number from loss, got {kind}{shape}.")

    @property
    def dimension(self) -> int:
        return self.size

    def value(self, z: Array) -> Array:
        total = self._sum(lambda record: self.loss(z, record), jnp.zeros(()))
        return (total / self.normaliser).astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        raw = self._sum(lambda record: self._scaled(z, record), jnp.zeros(z.shape), self._clipped)
        return raw / self.normaliser

    def lift(self, statistic: Array) -> Array:
        return statistic if self.units is None else statistic / self._units

    @property
    def deviations(self) -> Vector:
        """The noise is the same in every unit: 1/D_i in coordinate i."""
        return 1 / self._units

    @property
    def lift_energy(self) -> float:
        return float((self.deviations**2).sum())

    def gradient_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        Δ = self.sensitivity(norm, feasible_set)
        return Δ if self.units is None else rounded_up(float(self.deviations.max()) * Δ)

    def lengths(self, z: Array) -> Vector:
        """Of every record's gradient at z, before it is clipped: what ``clip`` is compared with.

        It reads the data, and nothing covers it: for records that are public or made up.
        """
        one = lambda record: jnp.linalg.norm(self._scaled(z, record), ord=self.clip_norm)  # noqa: E731
        found: Vector = np.asarray(jax.vmap(one)(self.data))  # type: ignore[no-untyped-call]
        return found

    def _scaled(self, z: Array, record: Any) -> Array:
        """A record's gradient in float64, of its coordinates in their units."""
        gradient: Array = jax.grad(self.loss)(z, record).astype(jnp.float64)
        return gradient if self.units is None else gradient * self._units

    def _clipped(self, gradient: Array) -> Array:
        """A record's gradient in these units, no longer than clip.

        A little less is asked for, so that rounding cannot exceed it: n + 8 units for a sum of n.
        """
        limit = self.clip * (1 - (self.size + 8) * float(np.finfo(np.float64).eps))
        norm = jnp.linalg.norm(gradient, ord=self.clip_norm)
        scale = jnp.where(norm > limit, limit / norm, 1)
        return jnp.where(jnp.isfinite(norm), gradient * scale, 0)

    def _sum(
        self,
        term: Callable[[Any], Array],
        zero: Array,
        then: Callable[[Array], Array] | None = None,
    ) -> Array:
        """Σ then(term(record)) over the records present, a block at a time, in float64.

        Adding a million float32 gradients would round by more than one of them. Terms are in memory
        before ``then`` sees them, between two steps of a loop: else a compiler may compute them
        twice, with other roundings, to measure one and to scale the other, and where terms cancel
        these have nothing in common.
        """
        rows = self.present.shape[0]
        if rows == 0:
            return zero
        size = min(rows, BLOCK) if self.in_place else 1
        blocks = math.ceil(rows / size)

        def block(i: Array) -> tuple[Any, Array]:
            start = jnp.minimum(i * size, rows - size)  # the last block begins early ...
            records, present = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size),
                (self.data, self.present),
            )
            fresh = present & (start + jnp.arange(size) >= i * size)  # ... and skips what was seen
            return records, fresh

        def terms(i: Array) -> Array:
            records, _ = block(i)
            if size == 1:
                return term(jax.tree.map(lambda leaf: leaf[0], records))[None]
            return jax.vmap(term)(records)

        def add(i: Array, total: Array, found: Array) -> Array:
            fresh = block(i)[1].reshape((size,) + (1,) * (found.ndim - 1))
            return total + jnp.where(fresh, found, 0).sum(axis=0, dtype=total.dtype)

        if then is None:
            total: Array = jax.lax.fori_loop(
                0, blocks, lambda i, sum_: add(i, sum_, terms(i)), zero
            )
            return total

        def step(k: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            sum_, found = now
            return jax.lax.cond(  # type: ignore[no-any-return]
                k % 2 == 0,
                lambda: (sum_, terms(k // 2)),
                lambda: (add(k // 2, sum_, jax.vmap(then)(found)), found),
            )

        nothing = jnp.zeros((size, *zero.shape), zero.dtype)
        total, _ = jax.lax.fori_loop(0, 2 * blocks, step, (zero, nothing))
        return total

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        changed = 2 if self.neighbours == RELATIONS["replace"] else 1
        rounding = 2 * gamma(self.most_records + 1) * self.most_records
        worst = rounded_up(self.clip * (changed + rounding) / self.normaliser)
        wider = choice("norm", norm, (1, 2)) < self.clip_norm
        return rounded_up(math.sqrt(self.size) * worst) if wider else worst

    strong_convexity = 0.0

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """clip·M/N for M records (an L1 norm of at most clip is an L2 norm of at most clip), over
        the smallest unit."""
        return self.clip * self.most_records / self.normaliser * float(self.deviations.max())
