"""The power-flow objective ‖Az + d‖²: a public matrix and private demands (Section 6.1)."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, choice, count, digits, non_negative, positive
from tacit.objectives.objective import Objective, Statistics, optional_positive
from tacit.objectives.rounding import DOUBLE, gamma, rounded_up
from tacit.pytree import pytree, static, store
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.objectives.public import PublicQuadratic
    from tacit.sets.feasible_set import FeasibleSet


@pytree
class SparseMatrix:
    """A public matrix by its entries, for products in compiled code."""

    rows: Array = field(repr=False)
    columns: Array = field(repr=False)
    values: Array = field(repr=False)
    shape: tuple[int, int] = static()

    @classmethod
    def of(cls, matrix: Any) -> SparseMatrix:
        entries = sp.coo_matrix(sp.csr_matrix(matrix, dtype=np.float64))
        values = array("the entries of matrix", entries.data, (None,), dtype=np.float64)
        return cls(entries.row.astype(np.int64), entries.col.astype(np.int64), values, matrix.shape)

    def __matmul__(self, z: Array) -> Array:
        if isinstance(z, np.ndarray):
            return np.bincount(self.rows, self.values * z[self.columns], self.shape[0])
        return jnp.zeros(self.shape[0], z.dtype).at[self.rows].add(self.values * z[self.columns])

    @property
    def T(self) -> SparseMatrix:
        return SparseMatrix(self.columns, self.rows, self.values, self.shape[::-1])


class SquaredResidual(Objective):
    """f(z) = ‖Az + d‖² + ``constant``, A (``matrix``) dense or sparse; d is ``data``."""

    matrix: Any
    data: Array
    slack: bool
    constant: float = 0.0
    on_host: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[-1])

    @property
    def slack_size(self) -> int:
        return int(self.matrix.shape[-2]) if self.slack else 0

    def slack_of(self, z: Array) -> Array:
        return self.matrix @ z

    def _residual(self, z: Array) -> Array:
        return self.matrix @ z.astype(self.data.dtype) + self.data

    def value(self, z: Array) -> Array:
        return ((self._residual(z) ** 2).sum() + self.constant).astype(z.dtype)

    @property
    def smoothness(self) -> float | None:
        """L = 2‖A‖₂²."""
        return 2 * singular_bounds(self.matrix)[0] ** 2

    @property
    def strong_convexity(self) -> float:
        """α = 2σ_min(A)²; 0 if A has fewer rows than columns."""
        return 2 * singular_bounds(self.matrix)[1] ** 2

    @property
    @abstractmethod
    def _length(self) -> float:
        """‖d‖₂ or a public bound of it; inf where none is known."""

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """2‖A‖₂(‖A‖₂ sup‖z‖₂ + ‖d‖₂)."""
        norm, radius = singular_bounds(self.matrix)[0], feasible_set.radius(2)
        if math.isinf(radius) or math.isinf(self._length):
            return math.inf
        return 2 * norm * (norm * radius + self._length)


@pytree
class Residual(SquaredResidual):
    """f(z) = ‖Az + d‖² with public A (``matrix``, dense or a SciPy sparse one) and private d.

    ``beta`` is public, one number or one per entry of d (0: that entry does not move); ``moved``
    entries may move, or, with ``groups`` (one label per entry), all entries of one group. The noise
    goes on the residual, statistic 2(Az + d) and lift A', or on the gradient 2A'(Az + d).
    ``data_bound`` is an optional public bound of ‖d‖₂; only ``gradient_bound`` needs it.
    ``slack``: Az has a proximal term of its own in the local step, as if it were a variable that
    z determines; its metric is then I + A'A, and the set must have A as its slack (``Conic``).
    For statements: ``change`` says what moves, in words that must name the same neighbours,
    ``unit`` in what unit, ``doubt`` why beta is not a proven bound.

    Guarantee: neighbours differ in at most ``moved`` entries of d, or in those of one group, entry
    i by at most β_i. The residual moves by 2Δd: Δ_1 is twice the largest sum of the β_i that move,
    Δ_2 twice the root of the sum of their squares; both attained. The gradient moves by
    2Σ_i Δd_i·a_i, a_i the rows of A: at most twice the sum of the largest β_i‖a_i‖ (attained for
    one moved entry, parallel rows, and in L1 for rows without common columns), and in L2 at most
    ‖A‖₂ times the residual's bound; in L2 for groups of up to 8 the largest ‖Σ ±β_i a_i‖, attained.
    All hold at every z, also outside the set.
    Rounding (``rounding.py``): entries of 2(Az + d) beyond ±C, C = 2³⁷ max β, count as ±C, which
    brings no two nearer values apart. Az is the same for neighbours; adding d_i to it is rounded
    once, by at most 2⁻⁵³C in each, 2⁻¹⁵ max β together for every entry that moves. On the gradient,
    only columns with an entry in a moved row change, each a sum of at most k products: a row a_i
    adds 2γ_k C times the norm of those columns' sums of |entries|.
    NaN and infinity in the data are refused at construction.
    """

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    beta: float | tuple[float, ...] = static()
    moved: int = static(default=1)
    _: KW_ONLY
    groups: tuple[int, ...] | None = static(default=None, repr=False)
    noise_on: str = static(default="residual")
    slack: bool = static(default=False)
    data_bound: float | None = None
    change: str = static(default="")
    unit: str = static(default="")
    doubt: str = static(default="")

    def __post_init__(self) -> None:
        require_64_bits()
        choice("noise_on", self.noise_on, ("residual", "gradient"))
        # float64 also for float32 input: rounding the data could move them by more than beta
        matrix = public_matrix(self.matrix)
        rows = matrix.shape[0]
        data = array("data", self.data, (rows,), dtype=np.float64)
        given = np.asarray(self.data)
        if (data.astype(given.dtype) != given).any() or (data != given).any():
            raise InvalidInput(
                "Expected data that float64 holds exactly: rounding could move them by more than "
                "beta."
            )
        if np.ndim(self.beta) == 0:
            beta: Any = positive("beta", self.beta)  # type: ignore[arg-type]
        else:
            values = array("beta", self.beta, (rows,)).tolist()
            positive("the largest beta", max(values))
            beta = tuple(non_negative("beta", b) for b in values)
        if count("moved", self.moved) > rows:
            raise InvalidInput(
                f"Expected moved <= {rows}, the number of data, got moved={self.moved}."
            )
        if self.groups is not None:
            labels = np.asarray(self.groups)
            if labels.shape != (rows,) or labels.dtype.kind not in "iu" or self.moved != 1:
                raise InvalidInput(
                    f"Expected groups as {rows} whole numbers, and moved=1 beside them, got "
                    f"shape {labels.shape} and moved={self.moved}."
                )
            store(self, groups=tuple(labels.tolist()))
        bound = optional_positive("data_bound", self.data_bound)
        if bound is not None and np.linalg.norm(data) > bound:
            raise InvalidInput(f"Expected ‖data‖₂ <= data_bound={bound}, got more.")
        store(self, matrix=matrix, data=data, beta=beta)

    def uncertified_on(self, device: str) -> str:
        if device == "cpu" or not isinstance(self.matrix, SparseMatrix):
            return ""
        return f"a {device} adds up the products of a sparse matrix in no fixed order."

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        return self._in_words(digits)

    def _in_words(self, digits: Callable[[float], str]) -> str:
        what = "one datum" if self.moved == 1 else f"up to {self.moved} data, each"
        if self.groups is not None:
            what = "the data of one group, each"
        what = self.change or what
        by = (
            f"its own bound, {digits(max(self.beta))} or less"
            if isinstance(self.beta, tuple)
            else digits(self.beta)
        )
        return f"{what} moving by at most {by}{self.unit and ' ' + self.unit}"

    @property
    def relation(self) -> str:
        exact = repr((self.beta, self.moved, self.groups, self.matrix.shape[-2]))
        words = self._in_words("{:g}".format)  # as ledgers have them: the digest tells the rest
        return f"{words} ({hashlib.sha256(exact.encode()).hexdigest()[:12]})"

    @property
    def agreed(self) -> str:
        tells_all = not isinstance(self.beta, tuple) and (self.groups is None or self.change)
        return self.neighbours if tells_all else self.relation

    @property
    def statistic_size(self) -> int:
        return int(self.matrix.shape[-2]) if self.noise_on == "residual" else self.dimension

    @property
    def lift_energy(self) -> float:
        if self.noise_on == "gradient":
            return float(self.dimension)
        return float(rows_in(on_host(self.matrix), lambda row: np.sum(row**2)).sum())

    @property
    def _largest(self) -> float:
        """C: beyond it an entry of the statistic counts as C."""
        return 2.0**37 * float(self._betas().max())

    def statistic(self, z: Array) -> Array:
        doubled = (2 * self._residual(z)).clip(-self._largest, self._largest)
        return doubled if self.noise_on == "residual" else self.matrix.T @ doubled

    def lift(self, statistic: Array) -> Array:
        if self.noise_on == "gradient":
            return statistic
        return self.matrix.T @ statistic

    def statistics(self) -> DataStatistics:
        return DataStatistics(self)

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        if self.noise_on == "gradient":
            return self.gradient_sensitivity(norm, feasible_set)
        return self._residual_sensitivity(norm)

    def _residual_sensitivity(self, norm: int) -> float:
        choice("norm", norm, (1, 2))
        return rounded_up(2 * self._most_moved(norm) + self._together(self._rounded(), norm))

    def _rounded(self) -> Vector:
        """The most that rounding adds to the change of each entry of 2(Az + d)."""
        largest = 2 * DOUBLE * self._largest
        return np.where(self._betas() > 0, largest, 0.0)

    def gradient_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        choice("norm", norm, (1, 2))
        lengths = rows_in(on_host(self.matrix), lambda row: np.linalg.norm(row, norm))
        rounding = self._together(lengths * self._rounded() + self._rounded_sums(norm), 1)
        rows = 2 * self._together(lengths * self._betas(), 1)
        if norm == 2 and self.groups is not None and max(Counter(self.groups).values()) <= 8:
            rows = 2 * self._longest_sum()
        elif norm == 2:
            rows = min(rows, 2 * singular_bounds(self.matrix)[0] * self._most_moved(2))
        return rounded_up(rows + rounding)

    def _rounded_sums(self, norm: int) -> Vector:
        """For each row that moves, what the rounding of A'(...) adds."""
        A = sp.csr_matrix(on_host(self.matrix))
        dense = not isinstance(self.matrix, SparseMatrix)
        most = A.shape[0] if dense else int(np.bincount(A.indices, minlength=1).max())
        columns = np.asarray(abs(A).sum(axis=0)).ravel()
        if float(columns.max(initial=0)) * self._largest > 1e300:
            raise InvalidInput(
                f"Expected a matrix whose sums of columns times {self._largest:.3g} fit float64, "
                f"got sums up to {float(columns.max()):.3g}."
            )
        touched = [columns[row] for row in np.split(A.indices, A.indptr[1:-1])]
        norms = np.array([np.linalg.norm(sums, norm) if sums.size else 0.0 for sums in touched])
        return np.where(self._betas() > 0, 2 * gamma(most + 1) * self._largest * norms, 0.0)

    def _longest_sum(self) -> float:
        """max ‖Σ ±β_i a_i‖₂ over the signs of a group's entries, by their inner products."""
        A, β = on_host(self.matrix), self._betas()
        longest = 0.0
        for label in set(self.groups or ()):
            members = np.flatnonzero(np.asarray(self.groups) == label)
            part = A[members] @ A[members].T
            gram = part.toarray() if sp.issparse(part) else part
            signs = np.array(list(product((1.0, -1.0), repeat=len(members)))) * β[members]
            longest = max(longest, float(np.einsum("ki,ij,kj->k", signs, gram, signs).max()))
        return math.sqrt(longest)

    def output_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """With a slack, the residual's: in the metric I + A'A the factor A' does not lengthen."""
        if self.slack:
            return self._residual_sensitivity(norm)
        return self.gradient_sensitivity(norm, feasible_set)

    def _betas(self) -> Vector:
        return np.broadcast_to(np.asarray(self.beta, np.float64), self.matrix.shape[-2])

    def _most_moved(self, norm: int) -> float:
        """The largest norm that a change of the data can have."""
        return self._together(self._betas(), norm)

    def _together(self, values: Vector, norm: int) -> float:
        """The largest norm of the values of entries that may move together."""
        largest = float(np.max(values, initial=0.0)) or 1.0
        powers = (np.asarray(values, np.float64) / largest) ** norm
        if self.groups is None:
            most = np.sort(powers)[-self.moved :].sum()
        else:
            _, group = np.unique(self.groups, return_inverse=True)
            most = np.bincount(group, powers).max()
        return largest * float(most ** (1 / norm))

    @property
    def _length(self) -> float:
        return math.inf if self.data_bound is None else self.data_bound

    def paper_sensitivity(self, z: Array, norm: int) -> Array:
        """Δ_1 = Δ_2 = 2β (Section 6.1).

        Guarantee: as ``sensitivity`` for one moved datum and noise on the residual. None for
        noise on the gradient, where it is too small by a factor max ‖a_i‖.
        """
        return np.asarray(2 * self._betas().max(), z.dtype)

    def paper_output_sensitivity(self, z: Array, norm: int, curvature: Array | float) -> Array:
        """Δ_1 = Δ_2 = β (Section 6.1). Guarantee: none."""
        return np.asarray(self._betas().max(), z.dtype)


@dataclass(frozen=True)
class DataStatistics(Statistics):
    """d itself: with it f(z) = ‖Az + d‖² is known, as A is public.

    Guarantee: neighbours differ in at most ``moved`` entries of d, or in those of one group, entry
    i by at most β_i, and nothing is computed from d before the noise: Δ_p is the largest p-norm of
    the β_i that move together, attained. No arithmetic, so no rounding: d is float64 as it was
    given (data that float64 does not hold are refused), and both differences and β are of these
    numbers. Noise on a grid divides d by a power of two and rounds, which ``secure_noise`` counts;
    clipping there at ±2⁶¹ spacings brings no two values further apart.
    """

    objective: Residual

    @cached_property
    def values(self) -> Vector:  # type: ignore[override]
        data = np.array(self.objective.data, np.float64)
        data.flags.writeable = False
        return data

    def sensitivity(self, norm: int) -> float:
        return rounded_up(self.objective._most_moved(choice("norm", norm, (1, 2))))

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        """‖Az + d~‖²: the noise has mean zero, so no ``deviation`` corrects it."""
        from tacit.objectives.public import PublicQuadratic

        return PublicQuadratic(self.objective.matrix, values, slack=self.objective.slack)


def public_matrix(matrix: Any) -> Any:
    """A finite matrix in float64, dense or for compiled code."""
    if isinstance(matrix, SparseMatrix):
        return matrix
    if sp.issparse(matrix):
        return SparseMatrix.of(matrix)
    return array("matrix", matrix, (None, None), dtype=np.float64)


def on_host(matrix: Array) -> Any:
    """A matrix as a NumPy array or, if it is sparse, as a SciPy matrix."""
    if not isinstance(matrix, SparseMatrix):
        return np.asarray(matrix, np.float64)
    entries = (np.asarray(matrix.values), (np.asarray(matrix.rows), np.asarray(matrix.columns)))
    return sp.csr_matrix(entries, shape=matrix.shape)


def rows_in(A: Any, norm: Callable[[Any], Any]) -> Vector:
    """``norm`` of each row of a matrix on the host."""
    rows = np.split(A.data, A.indptr[1:-1]) if sp.issparse(A) else A
    return np.array([norm(row) for row in rows], dtype=np.float64)


def singular_bounds(matrix: Array) -> tuple[float, float]:
    """Bounds of the largest singular value of A and of min ‖Az‖/‖z‖."""
    if isinstance(matrix, SparseMatrix):  # ‖A‖₂² ≤ ‖A‖₁‖A‖_∞
        by_row = rows_in(on_host(matrix), lambda row: np.abs(row).sum()).max()
        columns = np.bincount(np.asarray(matrix.columns), np.abs(matrix.values))
        return float(np.sqrt(by_row * columns.max())), 0.0
    values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    rounding = float(values[0]) * max(matrix.shape) * np.finfo(np.float64).eps
    smallest = float(values[-1]) - rounding if len(values) == matrix.shape[1] else 0.0
    return float(values[0]) + rounding, max(smallest, 0.0)
