"""Linear models: a loss of the scores x_i'z, summed over private records (x_i, y_i).

    f(z) = (1/N) Σ_i loss(x_i'z, y_i) + (ridge/2)‖z‖²

The losses are in ``losses.py``. Here are the two products with the data that a gradient takes, and
what one record can change in them, rounding included (``rounding.py``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import LENGTHS, InvalidInput, array, choice, non_negative, positive
from tacit.objectives.objective import RELATIONS, Records, optional_positive
from tacit.objectives.rounding import UNIT, cut_point, cut_rows, gamma, rounded_up
from tacit.pytree import pytree, store
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

BLOCK = 500  # K: records whose terms are added up in the format of the features
BLOCK_16 = 2000  # the same for features of 16 bits: about 6 MB for 784 of them
ROWS_AT_ONCE = 4096  # that are shortened at a time
LEAST_CLIP = 1e-6  # a smaller one would make a straight line of the loss, and rounding counts
CLIP_UNITS = 64  # by which a limited slope may err more than others, for |ln w| ≤ 15
ELEMENTARY = 64  # units by which the few operations of a slope may err, and two for each class
BFLOAT16 = (
    "features of 16 bits are added up by a GPU's matrix units, whose rounding is not documented: "
    "it is not inside the proof."
)


@pytree
class Rows(Records):
    """Records with a row of features each, kept as X' of shape (d, records).

    Rows longer than ``feature_norm`` (L2) or, where given, ``feature_norm_1`` (L1) are scaled down
    to it, each by its own numbers only, so neighbours stay neighbours. NaN and infinity are
    refused at construction.
    """

    features: Array = field(repr=False)
    _: KW_ONLY
    feature_norm: float
    feature_norm_1: float | None = None

    def __post_init__(self) -> None:
        require_64_bits()
        rows = array("features", self.features, (None, None))
        self._accept(len(rows))
        two = positive("feature_norm", self.feature_norm)
        one = optional_positive("feature_norm_1", self.feature_norm_1)
        columns = np.empty(rows.shape[::-1], rows.dtype)  # one copy of the data
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = _shortened(rows[start : start + ROWS_AT_ONCE], two, one)
            columns[:, start : start + len(part)] = (cut_rows(part, two) if self._exact else part).T
        store(self, features=jax.device_put(columns), feature_norm=two, feature_norm_1=one)

    @property
    def _exact(self) -> bool:
        """Whether products with the features must be exact (``rounding.py``)."""
        return False

    @property
    def feature_count(self) -> int:
        """d."""
        return int(self.features.shape[-2])

    @property
    def dimension(self) -> int:
        return self.feature_count

    def feature_bound(self, norm: int) -> float:
        """B or B₁: the largest norm of a row. ‖x‖₂ ≤ ‖x‖₁ ≤ √d‖x‖₂ may make either the other's."""
        one = math.inf if self.feature_norm_1 is None else self.feature_norm_1
        root = 1.0 if norm == 2 else math.sqrt(self.feature_count)
        rounding = 2**-6 if self.features.dtype == jnp.bfloat16 else 1e-12
        return min(root * self.feature_norm, one) * (1 + rounding)

    def uncertified_on(self, device: str) -> str:
        known = device in ("cpu", "gpu", "cuda", "rocm")
        return "" if known else f"the rounding of a {device} is not inside the proof."


@pytree
class LinearModel(Rows):
    """A loss of the scores x_i'z, averaged over records: the family of all models below.

    X' makes both products of a gradient run along a CPU's memory; ``for_device`` turns it around
    for a GPU. float32 features are computed with in float32 where records stay in place (zero-out,
    replace), else in float64; sums of blocks are float64. ``in_bfloat16`` gives a copy for a GPU's
    matrix units, which is not certified.

    Guarantee: a record contributes slope·x/N to the statistic. With ‖x‖₂ ≤ B and ‖x‖₁ ≤ B₁ its
    norm is at most ``slope_bound·B/N`` in L2, ``slope_bound·B₁/N`` in L1; replacing a record
    moves the sum by at most twice that. B₁ ≤ √d·B always. The ridge is public and no part of the
    statistic. Slopes are bounded through the scores, |x'z| ≤ min(B sup‖z‖₂, B₁ sup‖z‖_∞) on the
    set, and at all points by ``clip``, where a loss has one (``losses.py``).
    ``sensitivity`` adds what rounding can do: see ``_rounding``. On an unbounded set the rounding
    of scores is left out; agents compute at no point without a bound.
    """

    _: KW_ONLY
    ridge: float = 0.0
    clip: float | None = None

    curvature: ClassVar[float | None] = None  # largest second derivative; None if there are kinks
    outputs: ClassVar[int] = 1  # scores of a record
    limited: ClassVar[bool] = False  # whether slopes take notice of a limit

    @abstractmethod
    def losses(self, scores: Array) -> Array:
        """loss(s_i, y_i) of each record."""

    @abstractmethod
    def slopes(self, scores: Array) -> Array:
        """Its derivative in s_i, or a subgradient."""

    @abstractmethod
    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        """The largest slope of any record at any point of the set (a vector's: in the norm)."""

    def __post_init__(self) -> None:
        limit = None if self.clip is None else positive("clip", self.clip, (LEAST_CLIP, LENGTHS[1]))
        store(self, ridge=non_negative("ridge", self.ridge), clip=limit)
        if self.clip is not None and not self.limited:
            raise InvalidInput(
                f"Expected no clip for {type(self).__name__}: logistic and softmax "
                "regression have one; squared residuals with one are Huber(threshold=...)."
            )
        super().__post_init__()

    @property
    def _exact(self) -> bool:
        return self.curvature is None and not self.in_place

    @property
    def feature_count(self) -> int:
        return int(self.features.shape[-1 if self._by_records else -2])

    def in_bfloat16(self) -> Self:
        """The same objective with features of 16 bits: half the memory, a tenth of the time."""
        return self._with(self.features.astype(jnp.bfloat16))

    def for_device(self) -> Self:
        """On a GPU features by records, in blocks of at most BLOCK: (blocks, records, d).

        They are kept in the format of products (float64 where records shift), as converting them
        would cost more than both products. The last block is filled up with zeros.
        """
        if on_cpu() or self._by_records or self.features.dtype == jnp.bfloat16:
            return self
        d, records = self.features.shape
        blocks = max(1, -(-records // BLOCK))
        size = -(-records // blocks)
        padded = self.pad(blocks * size)
        rows = padded.features.T.reshape(blocks, size, d)
        return padded._with(rows.astype(self.arithmetic))

    @property
    def _by_records(self) -> bool:
        return bool(self.features.ndim == 3)

    def _with(self, features: Array) -> Self:
        copy: Self = jax.tree.map(lambda leaf: leaf, self)
        store(copy, features=features)
        return copy

    @property
    def uncertified(self) -> str:
        return BFLOAT16 if self.features.dtype == jnp.bfloat16 else self.doubt

    @property
    def arithmetic(self) -> Any:
        """The format of products: that of the features, or float64 where records shift."""
        if self.features.dtype == jnp.bfloat16:
            return jnp.float32
        return self.features.dtype if self.in_place else np.dtype(np.float64)

    def scores(self, z: Array) -> Array:
        """z @ features; exact where slopes jump and records shift."""
        if self.features.dtype == jnp.bfloat16:  # rounded to 16 bits: a GPU writes half
            sums = jnp.float32 if on_cpu() else jnp.bfloat16
            scores = jnp.matmul(z.astype(jnp.bfloat16), self.features, preferred_element_type=sums)
            return scores.astype(jnp.bfloat16).astype(jnp.float32)
        if self._exact:
            z = cut_point(z)
        z, x = (a.astype(self.arithmetic) for a in (z, self.features))
        if self._by_records:
            return _product(x.reshape(-1, x.shape[-1]), z.T).T
        return _product(z, x)

    def value(self, z: Array) -> Array:
        losses = jnp.where(self.present, self.losses(self.scores(z)), 0)
        return (losses.sum() / self.normaliser + self.ridge / 2 * (z @ z)).astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        """X'·slopes/N. Padding needs no mask: its features are zero."""
        return self._total(z).reshape(-1) / self.normaliser

    def public_gradient(self, z: Array) -> Array:
        return self.ridge * z

    def _total(self, z: Array) -> Array:
        """Σ_i slope_i x_i in float64, from sums over blocks of at most BLOCK records."""
        if self._by_records:
            return self._total_by_records(z)
        size, records = BLOCK, self.features.shape[-1]
        if self.features.dtype == jnp.bfloat16:
            size = BLOCK_16 if on_cpu() and records >= 2 * BLOCK_16 else records
        blocks = max(records - 1, 0) // max(size, 1)

        def part(start: Array | int, size: int) -> Array:
            piece = self._piece(start, size)
            return piece._sum_of(piece.slopes(piece.scores(z)))

        total = part(blocks * size, records - blocks * size)
        if not blocks:
            return total
        return jax.lax.fori_loop(0, blocks, lambda i, sum_: sum_ + part(i * size, size), total)

    def _total_by_records(self, z: Array) -> Array:
        """The same by one product for all scores, and one product for each block at once."""
        x, slopes = self.features, self.slopes(self.scores(z)).T
        slopes = slopes.reshape(*x.shape[:2], *slopes.shape[1:]).astype(x.dtype)
        sums = jnp.einsum("bid,bi...->bd...", x, slopes, precision="highest")
        # else a compiler might join the blocks
        apart: Array = jax.lax.optimization_barrier(sums)  # type: ignore[no-untyped-call]
        return apart.sum(axis=0, dtype=jnp.float64)

    def _piece(self, start: Array | int, size: int) -> Self:
        """The objective of ``size`` records, from number ``start``."""
        records = self.features.shape[-1]
        piece: Self = jax.tree.map(
            lambda leaf: (
                jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=-1)
                if np.ndim(leaf) and leaf.shape[-1] == records
                else leaf
            ),
            self,
        )
        return piece

    def _sum_of(self, slopes: Array) -> Array:
        if self.features.dtype == jnp.bfloat16:  # the faster form on a GPU
            slopes = slopes.astype(jnp.bfloat16)
            return _product(slopes, self.features.T).T.astype(jnp.float64)
        x = self.features.astype(self.arithmetic)
        return _product(x, slopes.astype(self.arithmetic).T).astype(jnp.float64)

    def score_bound(self, feasible_set: FeasibleSet) -> float:
        """The largest computed |x'z| of any record at any point of the set."""
        return self._largest_score(feasible_set) * (1 + gamma(self._terms, self._unit))

    def _largest_score(self, feasible_set: FeasibleSet) -> float:
        """sup Σ_j|x_j z_j| for one output; for several, the root of the sum of their squares."""
        euclidean = self.feature_bound(2) * feasible_set.reach(2)
        each = self.feature_bound(1) * feasible_set.reach(math.inf)
        return min(euclidean, math.sqrt(self.outputs) * each)

    @property
    def _terms(self) -> int:
        """Terms of a score, and its own rounding."""
        return self.feature_count + 1

    @property
    def _unit(self) -> float:
        return UNIT[np.dtype(self.arithmetic).name]

    def _slope_margin(self) -> float:
        """The relative error of a computed slope, beside the largest."""
        limited = 0 if self.clip is None else CLIP_UNITS
        return (ELEMENTARY + limited + 2 * self.outputs) * self._unit

    @property
    def largest_curvature(self) -> float | None:
        """The Lipschitz constant of slopes in the scores; None where slopes jump."""
        return self.curvature

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        choice("norm", norm, (1, 2))
        self._refuse_overflow(feasible_set)
        exact = self._largest_change(norm, feasible_set) * (1 + self._slope_margin())
        return rounded_up((exact + self._rounding(norm, feasible_set)) / self.normaliser)

    def _refuse_overflow(self, feasible_set: FeasibleSet) -> None:
        """No score and no sum may come near the largest number there is."""
        score = self._largest_score(feasible_set)
        sums = self.slope_bound(2, feasible_set) * self.feature_bound(2) * self.most_records
        largest = float(np.finfo(self.arithmetic).max) / 256
        if math.isfinite(score) and math.isfinite(sums) and max(score, sums) > largest:
            raise InvalidInput(
                f"Expected public bounds for which scores and sums fit {self.arithmetic}, got "
                f"scores up to {score:.3g} and sums up to {sums:.3g}."
            )

    def _largest_change(self, norm: int, feasible_set: FeasibleSet) -> float:
        """N·Δ before rounding: the most by which neighbours' sums over records differ."""
        one = self.slope_bound(norm, feasible_set) * self.feature_bound(norm)
        return 2 * one if self.neighbours == RELATIONS["replace"] else one

    def _rounding(self, norm: int, feasible_set: FeasibleSet) -> float:
        """The most that rounding adds to the difference of neighbours' sums (``rounding.py``).

        in place   2e·B + 2γ_K K·SB (one block) + 2γ_J M·SB (J blocks in float64)
        shifting   2e·BM + 2γ_M M·SB

        S bounds the slopes, M the records; e = L γ_d BR + slope margin·S is the error of a slope
        for L-smooth losses; 0 where scores are exact or z has no bound. A product or sum that is
        too small for the format may be flushed to zero: by less than ``tiny``, each. In place, a
        limited slope is as short as its limit whatever its score was rounded to: e is 0 there.
        """
        S = self.slope_bound(norm, feasible_set) * (1 + self._slope_margin())
        B, M, R = self.feature_bound(norm), self.most_records, feasible_set.reach(2)
        if not math.isfinite(S):
            return math.inf
        tiny = float(np.finfo(self.arithmetic).tiny)
        e = 0.0
        within = self.in_place and self.clip is not None
        if self.largest_curvature is not None and math.isfinite(R) and not within:
            L = self.largest_curvature * (math.sqrt(self.outputs) if norm == 1 else 1)
            error = gamma(self._terms, self._unit) * self._largest_score(feasible_set)
            e = L * (error + 2 * self._terms * self.outputs * tiny) + self._slope_margin() * S
        size: float = self.dimension ** (1 / norm)
        flushed = 8 * tiny * size  # of one term and its sum, twice
        if not self.in_place:
            return 2 * e * B * M + 2 * gamma(M + 2) * M * S * B + flushed * M
        K = min(BLOCK, M)
        blocks = 2 * gamma(M / BLOCK + 2) * M * S * B
        one_block = 2 * gamma(K + 2, self._unit) * K * S * B
        return 2 * e * B + one_block + blocks + flushed * K

    @property
    def smoothness(self) -> float | None:
        """L = curvature·B²M/N + ridge for M records."""
        if self.largest_curvature is None:
            return None
        share = self.most_records / self.normaliser
        return self.largest_curvature * self.feature_bound(2) ** 2 * share + self.ridge

    @property
    def strong_convexity(self) -> float:
        return self.ridge

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """slope_bound·B·M/N + ridge·sup‖z‖₂ for M records."""
        record = self.slope_bound(2, feasible_set) * self.feature_bound(2)
        ridge = self.ridge * feasible_set.radius(2) if self.ridge else 0.0
        return record * self.most_records / self.normaliser + ridge


def _product(a: Array, b: Array) -> Array:
    """a @ b in full precision; of numbers of 16 bits, summed in 32."""
    wide = jnp.float32 if b.dtype == jnp.bfloat16 else None
    return jnp.matmul(a, b, precision="highest", preferred_element_type=wide)


def _shortened(rows: Vector, norm_2: float, norm_1: float | None) -> Vector:
    """Rows within the bounds as they are, longer ones scaled down, of whatever size they are.

    In units of its largest entry no row under- or overflows. Lengths that are within a part in ten
    billion of a bound are computed again with the longest float there is.
    """
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=1, initial=0)
    unit = wide / np.where(largest > 0, largest, 1)[:, None]

    def allowed(unit: Any) -> Any:
        """The largest entry that a row of this direction may have."""
        most = norm_2 / np.maximum(np.sqrt((unit * unit).sum(axis=1)), 1)
        if norm_1 is None:
            return most
        return np.minimum(most, norm_1 / np.maximum(np.abs(unit).sum(axis=1), 1))

    most = allowed(unit)
    long = largest > most
    close = np.abs(largest - most) < 1e-10 * most
    if close.any():
        precise = wide[close].astype(np.longdouble)
        peak = np.abs(precise).max(axis=1)
        long[close] = peak > allowed(precise / peak[:, None])
    below_one = 1 - 4 * float(np.finfo(rows.dtype).eps)  # so that rounding keeps within the bound
    shorter = unit * (most * below_one)[:, None]
    return np.where(long[:, None], shorter, wide).astype(rows.dtype)


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"
