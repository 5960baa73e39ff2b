"""Private objectives: value, gradient, and a proven bound on what one record can do to it.

    f(z) = (1/N) Σ_i loss(x_i'z, y_i) + (ridge/2)‖z‖²        records (x_i, y_i) are private

Feasible sets and all bounds are public, N (``normaliser``) too: it does not change when a record
is added, so that a neighbour changes one term of the sum and nothing else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import (
    NOT_DONE,
    InvalidInput,
    array,
    choice,
    non_negative,
    positive,
)
from tacit.pytree import pytree, static

if TYPE_CHECKING:
    from tacit.sets import FeasibleSet

Array = Any  # NumPy or JAX arrays come in, JAX arrays go out
BLOCK = 2000  # records of a block: about 6 MB for 784 float32 features
RELATIONS = {
    "add-remove": "adding or removing one record",
    "zero-out": "taking one record out of the sums or putting it back (numbers of records stay)",
    "replace": "replacing one record",
}


class Objective(ABC):
    """An agent's private convex objective f over a public feasible set.

    Noise goes on ``statistic(z)``, and ``gradient(z) = lift(statistic(z))`` with a public linear
    map; for most objectives the statistic is the gradient itself.

    Guarantee: for neighbouring data, as ``neighbours`` says in words, and any point z of the
    feasible set, ``‖statistic(z) − statistic'(z)‖ ≤ sensitivity(norm, feasible_set)``. The bound
    never depends on private data. It is for real arithmetic on the stored data; the rounding of
    sums is not covered, nor points z outside the set (NaN and infinity among them).
    ``value`` reads private data and nothing bounds it: do not release it.
    """

    neighbours: str
    on_host: ClassVar[bool] = False  # whether all below also runs in NumPy on NumPy's arrays
    doubt: str = ""  # why the sensitivity is no proven bound, where it is not

    @property
    def relation(self) -> str:
        """``neighbours`` with all that decides which data are neighbours: totals may be added up
        where it is the same."""
        return self.neighbours

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The length of z."""

    @abstractmethod
    def value(self, z: Array) -> Array:
        """f(z)."""

    @abstractmethod
    def statistic(self, z: Array) -> Array:
        """The vector that receives the noise."""

    def lift(self, statistic: Array) -> Array:
        """The public linear map from the statistic to the gradient."""
        return statistic

    def gradient(self, z: Array) -> Array:
        """f'(z), or a subgradient where f has a kink."""
        return self.lift(self.statistic(z))

    @property
    def statistic_size(self) -> int:
        return self.dimension

    @property
    def lift_energy(self) -> float:
        """E‖lift(ξ)‖² for noise ξ of unit variance on the statistic."""
        return float(self.dimension)

    @abstractmethod
    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """Δ: the most that neighbouring data can move the statistic, in the L1 or L2 norm."""

    def gradient_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """The most that neighbouring data can move the gradient."""
        return self.sensitivity(norm, feasible_set)

    def output_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """Δ for noise on the output, to be shaped by ``algorithm.output_noise_shape``."""
        return self.gradient_sensitivity(norm, feasible_set)

    @property
    def slack_size(self) -> int:
        """The number of linear functions of z with a proximal term of their own."""
        return 0

    def slack_of(self, z: Array) -> Array:
        """These functions at z."""
        raise NotImplementedError

    def paper_sensitivity(self, z: Array, norm: int) -> Array:
        """The Δ with which the paper ran objective perturbation. Not certified."""
        raise InvalidInput(
            f"Expected an objective of the paper's experiments for calibration='paper', got "
            f"{type(self).__name__}. {NOT_DONE}"
        )

    def paper_output_sensitivity(self, z: Array, norm: int, curvature: Array | float) -> Array:
        """The Δ with which the paper ran output perturbation. Not certified."""
        return self.paper_sensitivity(z, norm)

    @property
    @abstractmethod
    def smoothness(self) -> float | None:
        """L: a public bound of the gradient's Lipschitz constant; None if f is not smooth."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """α: a public lower bound of the curvature of f."""

    @abstractmethod
    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """U_1 (Section 5): a public bound of ‖f'(z)‖₂ over the set; inf where none is known."""

    @property
    def sample_count(self) -> int:
        """The number of private records; 0 for data that are not records."""
        return 0

    def pad(self, rows: int) -> Self:
        """The same function with room for ``rows`` records, so that agents can be batched."""
        return self


@pytree
class Records(Objective):
    """An objective that is a sum over private records, divided by a public ``normaliser``.

    ``neighbours`` is "add-remove", "zero-out" or "replace", and kept in words. "zero-out" is
    "add-remove" where the number of records is public and stays: the record that is out counts,
    but adds nothing. ``record_bound`` is a
    public bound on the number of records. By default it is that number itself under "replace",
    and "zero-out", where neighbours have equally many, and the normaliser under "add-remove".
    """

    _: KW_ONLY
    normaliser: float
    neighbours: Any = static(default="add-remove")
    record_bound: float | None = None
    present: Array = field(init=False, repr=False)  # False on rows that are padding

    @property
    def sample_count(self) -> int:
        return int(np.sum(np.asarray(self.present)))

    @property
    def most_records(self) -> float:
        """M: no neighbour has more records than this. Public."""
        if self.record_bound is not None:
            return self.record_bound
        adds = self.neighbours == RELATIONS["add-remove"]
        return self.normaliser if adds else float(self.sample_count)

    def _accept(self, records: int) -> None:
        """Check the public settings against ``records`` rows, and mark all of them as present."""
        store(
            self,
            normaliser=positive("normaliser", self.normaliser),
            neighbours=RELATIONS[choice("neighbours", self.neighbours, tuple(RELATIONS))],
            record_bound=optional_positive("record_bound", self.record_bound),
            present=jnp.asarray(np.ones(records, bool)),
        )
        if self.most_records < records:
            raise InvalidInput(
                f"Expected at most {self.most_records:g} records (record_bound, or else "
                f"normaliser), got more. Give a public record_bound. {NOT_DONE}"
            )


@pytree
class LinearModel(Records):
    """A loss of the scores x_i'z, averaged over records: the family of all models below.

    ``features`` has one row per record and is kept feature-major, as X' of shape (d, records):
    both products of a gradient then run along memory. Rows longer than ``feature_norm`` (L2) or,
    where given, ``feature_norm_1`` (L1) are scaled down to it; each record is scaled by its own
    numbers only, so neighbours stay neighbours. float32 features are computed with in float32;
    ``in_bfloat16`` gives a copy for a GPU's matrix units.

    Guarantee: a record contributes slope·x/N to the gradient. With ‖x‖₂ ≤ B and ‖x‖₁ ≤ B₁ its
    norm is at most ``slope_bound·B/N`` in L2, ``slope_bound·B₁/N`` in L1; replacing a record
    moves the sum by at most twice that. B₁ ≤ √d·B always. The ridge is public and cancels.
    Slopes are bounded through the scores, |x'z| ≤ min(B sup‖z‖₂, B₁ sup‖z‖_∞) on the set.
    In bfloat16, features, z, scores and slopes are rounded to 8 bits, number by number; sums are in
    float32. Each rounding lengthens a vector by at most 2⁻⁸; ``feature_bound`` adds 2⁻⁶, for x, z
    and x'z in the scores, and for x and slopes in the gradient.
    NaN and infinity in the data are refused at construction.
    """

    features: Array = field(repr=False)
    _: KW_ONLY
    feature_norm: float
    feature_norm_1: float | None = None
    ridge: float = 0.0

    curvature: ClassVar[float | None] = None  # largest second derivative; None if there are kinks

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
        rows = array("features", self.features, (None, None))
        self._accept(len(rows))
        store(
            self,
            feature_norm=positive("feature_norm", self.feature_norm),
            feature_norm_1=optional_positive("feature_norm_1", self.feature_norm_1),
            ridge=non_negative("ridge", self.ridge),
        )
        store(self, features=_bounded_columns(rows, self.feature_norm, self.feature_norm_1))

    @property
    def dimension(self) -> int:
        return int(self.features.shape[-2])

    def in_bfloat16(self) -> Self:
        """The same objective with features of 16 bits: half the memory, a tenth of the time."""
        if getattr(self, "moved_by", None) is not None:
            raise InvalidInput(
                "Expected neighbours that differ by a record for 16 bits: rounding may make more "
                f"of a target that moves a little. {NOT_DONE}"
            )
        copy: Self = jax.tree.map(lambda leaf: leaf, self)
        store(copy, features=self.features.astype(jnp.bfloat16))
        return copy

    def scores(self, z: Array) -> Array:
        return scores_of(z, self.features)

    def value(self, z: Array) -> Array:
        losses = jnp.where(self.present, self.losses(self.scores(z)), 0)
        return (losses.sum() / self.normaliser + self.ridge / 2 * (z @ z)).astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        """f'(z) = X'·slopes/N + ridge·z. Padding needs no mask: its features are zero."""
        total = self._total(z)
        return (total.reshape(-1) / self.normaliser + self.ridge * z).astype(z.dtype)

    def _total(self, z: Array) -> Array:
        """Σ_i slope_i x_i. On a CPU in blocks, so that both products find the features in cache."""
        records = self.features.shape[-1]
        blocks = records // BLOCK if records >= 2 * BLOCK and _on_cpu() else 0

        def part(start: Array | int, size: int) -> Array:
            piece = jax.tree.map(
                lambda leaf: (
                    jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=-1)
                    if np.ndim(leaf) and leaf.shape[-1] == records
                    else leaf
                ),
                self,
            )
            slopes = piece.slopes(piece.scores(z)).astype(self.features.dtype)
            if self.features.dtype == jnp.bfloat16:  # the faster form on a GPU
                return product(slopes, piece.features.T).T
            return product(piece.features, slopes.T)

        total = part(blocks * BLOCK, records - blocks * BLOCK)
        if not blocks:
            return total
        return jax.lax.fori_loop(0, blocks, lambda i, sum_: sum_ + part(i * BLOCK, BLOCK), total)

    def feature_bound(self, norm: int) -> float:
        """B or B₁: the largest norm of a row. ‖x‖₂ ≤ ‖x‖₁ ≤ √d‖x‖₂ may make either the other's."""
        one = math.inf if self.feature_norm_1 is None else self.feature_norm_1
        rounding = 1 + 2**-6 if self.features.dtype == jnp.bfloat16 else 1.0
        if norm == 2:
            return min(self.feature_norm, one) * rounding
        return min(math.sqrt(self.features.shape[-2]) * self.feature_norm, one) * rounding

    def score_bound(self, feasible_set: FeasibleSet) -> float:
        """The largest |x'z| of any record at any point of the set."""
        euclidean = self.feature_bound(2) * feasible_set.radius(2)
        return min(euclidean, self.feature_bound(1) * feasible_set.radius(math.inf))

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        choice("norm", norm, (1, 2))
        return self._largest_change(norm, feasible_set) / self.normaliser

    def _largest_change(self, norm: int, feasible_set: FeasibleSet) -> float:
        """N·Δ: the most by which neighbours' sums over records differ."""
        one = self.slope_bound(norm, feasible_set) * self.feature_bound(norm)
        return 2 * one if self.neighbours == RELATIONS["replace"] else one

    @property
    def smoothness(self) -> float | None:
        """L = curvature·B²M/N + ridge for M records."""
        if self.curvature is None:
            return None
        share = self.most_records / self.normaliser
        return self.curvature * self.feature_bound(2) ** 2 * share + self.ridge

    @property
    def strong_convexity(self) -> float:
        return self.ridge

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """slope_bound·B·M/N + ridge·sup‖z‖₂ for M records."""
        record = self.slope_bound(2, feasible_set) * self.feature_bound(2)
        ridge = self.ridge * feasible_set.radius(2) if self.ridge else 0.0
        return record * self.most_records / self.normaliser + ridge

    def pad(self, rows: int) -> Self:
        extra = rows - self.features.shape[-1]
        if extra < 0:
            raise InvalidInput(
                f"Expected rows >= {self.features.shape[-1]} to pad to, got rows={rows}. {NOT_DONE}"
            )

        def widen(leaf: Any) -> Any:  # the last axis of every array is that of records
            width = [(0, 0)] * (np.ndim(leaf) - 1) + [(0, extra)]
            return jnp.pad(leaf, width) if np.ndim(leaf) else leaf

        return self if extra == 0 else jax.tree.map(widen, self)


def scores_of(weights: Array, features: Array) -> Array:
    """weights @ features, rounded to 16 bits if those have 16: that halves what a GPU writes."""
    if features.dtype != jnp.bfloat16:
        return product(weights.astype(features.dtype), features)
    sums = jnp.float32 if _on_cpu() else jnp.bfloat16  # a GPU adds in 32 bits and writes 16
    scores = jnp.matmul(weights.astype(jnp.bfloat16), features, preferred_element_type=sums)
    return scores.astype(jnp.bfloat16).astype(jnp.float32)


def product(a: Array, b: Array) -> Array:
    """a @ b in full precision; of numbers of 16 bits, summed in 32."""
    wide = jnp.float32 if b.dtype == jnp.bfloat16 else None
    return jnp.matmul(a, b, precision="highest", preferred_element_type=wide)


def optional_positive(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)


def store(target: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)


def _bounded_columns(rows: np.ndarray[Any, Any], norm_2: float, norm_1: float | None) -> Array:
    """The rows as columns, scaled down to the bounds on their norms; one copy of the data."""
    excess = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)) / norm_2
    if norm_1 is not None:
        excess = np.maximum(excess, np.abs(rows).sum(axis=1, dtype=np.float64) / norm_1)
    below_one = 1 - 2 * np.finfo(rows.dtype).eps  # so that rounding keeps within the bound
    scale = np.where(excess > 1, below_one / np.maximum(excess, 1), 1).astype(rows.dtype)
    return jnp.asarray(np.multiply(rows.T, scale, order="C"))


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
