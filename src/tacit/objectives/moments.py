"""Sums and second moments of private rows, released once, with proven sensitivities.

    moments         ‖z − Σ_i m(x_i)/N‖²/2                       sums, and sums of products
    counts          the same of cells that rows are in          one 1 in every row
    mean            ‖z − Σ_i x_i/N‖²/2                          all that counts is s = Σ_i x_i
    least squares   (1/N) Σ_i (x_i'z − y_i)²/2 + (ridge/2)‖z‖²
                    = z'(S/N + ridge·I)z/2 − b'z/N + constant   S = X'X,  b = X'y

S and b are released together, with one noise: Dwork et al. (2014), Wang (2018, AdaSSP), who splits
the budget. A noisy S may have eigenvalues below zero; ``released_objective`` lifts them, from the
release alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, choice
from tacit.objectives.linear_model import Rows
from tacit.objectives.objective import RELATIONS, Statistics
from tacit.objectives.public import PublicQuadratic
from tacit.objectives.rounding import gamma, rounded_up
from tacit.pytree import pytree

if TYPE_CHECKING:
    from tacit.objectives.losses import LeastSquares
    from tacit.sets.feasible_set import FeasibleSet

BLOCK = 4096  # K: records that are added up at a time
FLOOR = 0.7  # least eigenvalue of a sum, in units of the edge of its noise: by experiment
ROOT = math.sqrt(2)


@pytree
class Mean(Rows):
    """‖z − Σ_i x_i/N‖²/2, least at the mean if there are N records.

    Guarantee: ‖x‖₂ ≤ B and ‖x‖₁ ≤ B₁ ≤ √d·B. A record that is added, removed or zeroed moves
    s = Σx by at most B in L2, B₁ in L1; one that is replaced by twice that, as x may become −x.
    All attained, at every z. The statistic is −s/N.
    Rounding (``rounding.py``): sums are float64 in any order, of M records, so that each of two
    neighbours' errs by at most γ_M·M·B (γ_{K+J}·M·B in blocks of K, J of them, as ``reading``
    adds); products there are none.
    """

    everywhere: ClassVar[bool] = True

    def value(self, z: Array) -> Array:
        apart = z + self.statistic(z)
        return (apart @ apart / 2).astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        return -self.features.sum(axis=-1, dtype=jnp.float64) / self.normaliser

    def public_gradient(self, z: Array) -> Array:
        return z

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return rounded_up(self._moved(norm, self.most_records + 2) / self.normaliser)

    def _moved(self, norm: int, depth: float) -> float:
        """The most by which neighbours' sums differ, each the result of ``depth`` operations."""
        B, M = self.feature_bound(choice("norm", norm, (1, 2))), self.most_records
        changed = 2 if self.neighbours == RELATIONS["replace"] else 1
        return B * (changed + 2 * gamma(depth) * M)

    def statistics(self) -> RowSum:
        return RowSum(self)

    smoothness, strong_convexity = 1.0, 1.0

    def longest(self, norm: int) -> float:
        """The largest norm of what a record adds."""
        return self.feature_bound(norm)

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """M/N times the longest, for M records, + sup‖z‖₂."""
        return self.longest(2) * self.most_records / self.normaliser + feasible_set.radius(2)


@pytree
class Moments(Mean):
    """‖z − Σ_i m(x_i)/N‖²/2, m(x) = (√2·x, xx'): the entries of xx' on and above the diagonal, row
    by row, those above times √2. Least at the first and second moments of the rows.

    Beside a constant 1, whose square adds up to the public number of records, these are all moments
    of w = (1, x): the L2 norm of m(x) is the Frobenius norm of ww' without that entry.

    Guarantee: ‖m(x)‖² = 2‖x‖² + ‖x‖⁴ ≤ 2B² + B⁴. *add-remove, zero-out*: Δ_2 is its root, and Δ_1
    = B²(1 − 1/√2) + B₁²/√2 + √2·B₁, as the entries of xx' sum up to ‖x‖₂²(1 − 1/√2) + ‖x‖₁²/√2;
    Δ_2 is attained. *replace*: Δ_2 = √2(1 + B²), or twice the above if smaller, since
    ‖ww' − vv'‖² = ‖w‖⁴ + ‖v‖⁴ − 2(w'v)² ≤ 2(1 + B²)², attained for B ≥ 1, where w'v can be 0.
    Δ_1 is twice the above, and no better bound is proven.
    Rounding: as that of ``SecondMoments``.
    """

    @property
    def dimension(self) -> int:
        d = self.feature_count
        return d * (d + 3) // 2

    def statistic(self, z: Array) -> Array:
        x = self.features.astype(jnp.float64)
        upper = jnp.triu_indices(self.feature_count)
        products = (x @ x.T * _weights(self.feature_count))[upper]
        return -jnp.concatenate([ROOT * x.sum(axis=-1), products]) / self.normaliser

    def statistics(self) -> RowProducts:
        return RowProducts(self)

    def longest(self, norm: int) -> float:
        B, B1 = self.feature_bound(2), self.feature_bound(1)
        if choice("norm", norm, (1, 2)) == 2:
            return math.sqrt(2 * B**2 + B**4)
        return B**2 * (1 - 1 / ROOT) + B1**2 / ROOT + ROOT * B1

    def _moved(self, norm: int, depth: float) -> float:
        one, M = self.longest(norm), self.most_records
        change = one
        if self.neighbours == RELATIONS["replace"]:
            change = min(2 * one, ROOT * (1 + self.feature_bound(2) ** 2) if norm == 2 else 2 * one)
        tiny = float(np.finfo(np.float64).tiny) * (1 + self.feature_bound(2)) ** 2
        flushed = 8 * M * tiny * float(self.dimension ** (1 / norm))
        return change + 2 * gamma(depth + 6) * M * one + flushed


@pytree
class Counts(Mean):
    """‖z − Σ_i x_i/N‖²/2 with a 1 in one cell of every row, or none: least at the cells' shares.

    Guarantee: rows of anything else are refused, without showing them. So ‖x‖₂ = ‖x‖₁ ≤ 1, and two
    rows differ by at most √2 in L2, 2 in L1: Δ_2 under *replace* is √2, less than twice that of one
    record. All attained. Sums of zeros and ones are exact;
    their quotients by N are not, in the two cells that differ: by u·M/N in all for M records.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        x = np.asarray(self.features)
        if not (np.isin(x, (0, 1)).all() and (x.sum(axis=0) <= 1).all()):
            raise InvalidInput("Expected rows with a 1 in one cell and zeros, got others.")

    def _moved(self, norm: int, depth: float) -> float:
        choice("norm", norm, (1, 2))
        changed = 2.0 ** (1 / norm) if self.neighbours == RELATIONS["replace"] else 1.0
        return changed + 2 * gamma(1) * self.most_records


@dataclass(frozen=True)
class RowSum(Statistics):
    """s = Σ_i x_i: with it f is known, as N is public.

    Guarantee: Δ_2 = B and Δ_1 = B₁, or twice that where a record is replaced (``Mean``), and the
    rounding of sums. All is computed by the processor, whatever the device of a run.
    """

    objective: Mean

    @property
    def size(self) -> int:
        return self.objective.dimension

    @cached_property
    def values(self) -> Vector:  # type: ignore[override]
        columns = np.asarray(self.objective.features)
        found = np.zeros(len(columns))
        for start in range(0, columns.shape[1], BLOCK):
            found += columns[:, start : start + BLOCK].sum(axis=1, dtype=np.float64)
        found.flags.writeable = False
        return found

    @property
    def source(self) -> tuple[Vector, ...]:
        return (np.asarray(self.objective.features),)

    def sensitivity(self, norm: int) -> float:
        M = self.objective.most_records
        return rounded_up(self.objective._moved(norm, min(BLOCK, M) + M / BLOCK + 2))

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        """‖z − s~/N‖²/2: the noise has mean zero, so no ``deviation`` corrects it."""
        d = self.objective.dimension
        values = array("values", values, (d,), dtype=np.float64)
        root = math.sqrt(0.5)
        return PublicQuadratic(
            root * sp.identity(d, format="csr"), -root * values / self.objective.normaliser
        )


@dataclass(frozen=True)
class RowProducts(RowSum):
    """Σ_i m(x_i) of ``Moments``: √2 times the sums of columns, then of their products."""

    objective: Moments

    @cached_property
    def values(self) -> Vector:  # type: ignore[override]
        columns = self.objective.features
        products, sums = _products(columns, np.ones(columns.shape[-1]))
        found = np.concatenate([ROOT * sums, products])
        found.flags.writeable = False
        return found


def matrix_of(values: Vector, d: int, records: float) -> Vector:
    """Σ_i ww' with w = (1, x), of the values of a ``RowProducts`` and the number of records."""
    values = array("values", values, (d * (d + 3) // 2,), dtype=np.float64)
    T = np.zeros((d + 1, d + 1))
    T[0, 0], T[0, 1:] = records, values[:d] / ROOT
    T[1:, 1:][np.triu_indices(d)] = values[d:]
    T[1:, 1:] /= _weights(d)
    return T + np.triu(T, 1).T


def _products(features: Array, targets: Array) -> tuple[Vector, Vector]:
    """X'X as a vector, those beside the diagonal times √2, and X'y: by blocks of records."""
    d, records = features.shape
    S, b = np.zeros((d, d)), np.zeros(d)
    for start in range(0, records, BLOCK):
        x = np.asarray(features[:, start : start + BLOCK], np.float64)
        S += x @ x.T
        b += x @ np.asarray(targets[start : start + BLOCK], np.float64)
    return (S * _weights(d))[np.triu_indices(d)], b


def _weights(d: int) -> Vector:
    """√2 beside the diagonal."""
    return np.where(np.eye(d, dtype=bool), 1.0, ROOT)


@dataclass(frozen=True)
class SecondMoments(Statistics):
    """(S as a vector, κb): on and above the diagonal row by row, the entries above times √2.

    So the L2 norm of the first part is the Frobenius norm of S. κ = B/Y is public and gives a
    record's two parts equal bounds.

    Guarantee: write ‖x‖₂ ≤ B, ‖x‖₁ ≤ B₁ ≤ √d·B, |y| ≤ Y (rows and targets beyond are shortened at
    construction), and D = d(d+1)/2. One record adds (xx', κxy).
    *add-remove, zero-out*: Δ_2 = √2·B² since ‖xx'‖² + κ²‖x‖²y² ≤ B⁴ + B⁴; in L1 the entries of
    xx' sum up to ‖x‖₂²(1 − 1/√2) + ‖x‖₁²/√2, so Δ_1 = B²(1 − 1/√2) + B₁²/√2 + B·B₁. Both attained.
    *replace*: Δ_2 = (3/√2)·B², or 2B² for d = 1: less than twice the above. Attained where there is
    no L1 bound. Δ_1 = 2B√(1−q²)(αq + β) with α = √(2D)·B, β = √d·B, q = 2α/(β + √(β² + 8α²)), or
    twice the above if smaller: not attained, but by less than 3 % (searched for 2 ≤ d ≤ 12).
    Proof. (x,y) and (−x,−y) add the same, so let c = x₁'x₂ ≥ 0. The first part of the difference
    has square ‖x₁‖⁴ + ‖x₂‖⁴ − 2c², the second at most κ²Y²(‖x₁‖² + ‖x₂‖² + 2c), κY = B. For a
    fixed c both grow in ‖x₁‖ and ‖x₂‖, so let both be B and c = B² cos θ: the parts are √2·B² sin θ
    and 2B² cos(θ/2). With p = sin²(θ/2) their squares add up to 4B⁴(1−p)(2p + 1), largest at
    p = 1/4. For d = 1 there is only c = ‖x₁‖‖x₂‖, and with a = ‖x₁‖ = B, b = ‖x₂‖ the squares add
    up to (B+b)²((B−b)² + B²), which grows in b. In L1, by Cauchy-Schwarz, the parts are at most √D
    and √d times as long: maximise their sum over q = sin(θ/2). ∎

    Rounding (``rounding.py``): products and sums are float64, by blocks of K records, J = M/K of
    them. Nothing is assumed about order or place: each entry errs by at most γ_{K+J+6} times the
    sum of the absolute values of its terms, the factors √2 and κ included, hence the vector by
    γ_{K+J+6}·M times one record's bound, in either of two neighbours. Products too small for the
    format may be flushed to zero. All is computed by the processor, whatever the device of a run.
    """

    objective: LeastSquares

    @cached_property
    def values(self) -> Vector:  # type: ignore[override]
        f = self.objective
        products, b = _products(f.features, f.targets)
        found = np.concatenate([products, self._scale * b])
        found.flags.writeable = False
        return found

    @property
    def size(self) -> int:
        return self._d * (self._d + 3) // 2

    @property
    def source(self) -> tuple[Vector, ...]:
        f = self.objective
        return np.asarray(f.features), np.asarray(f.targets), np.array([self._scale])

    @property
    def _d(self) -> int:
        return self.objective.dimension

    @property
    def _scale(self) -> float:
        """κ."""
        return self.objective.feature_bound(2) / self.objective.target_bound

    def sensitivity(self, norm: int) -> float:
        choice("norm", norm, (1, 2))
        f, d, B = self.objective, self._d, self.objective.feature_bound(2)
        one = ROOT * B**2
        pair = 2 * B**2 if d == 1 else 3 / ROOT * B**2
        if norm == 1:
            B1 = f.feature_bound(1)
            one = B**2 * (1 - 1 / ROOT) + B1**2 / ROOT + B * B1
            α, β = math.sqrt(d * (d + 1)) * B, math.sqrt(d) * B
            q = 2 * α / (β + math.hypot(β, math.sqrt(8) * α))
            pair = 2 * B * math.sqrt(1 - q**2) * (α * q + β)
        M = f.most_records
        change = min(2 * one, pair) if f.neighbours == RELATIONS["replace"] else one
        depth = min(BLOCK, M) + M / BLOCK + 6
        tiny = float(np.finfo(np.float64).tiny) * (1 + B) * (1 + f.target_bound) * (1 + self._scale)
        flushed = 8 * M * tiny * float((d * (d + 3) / 2) ** (1 / norm))
        return rounded_up(change + 2 * gamma(depth) * M * one + flushed)

    def gradient_deviation(self, deviation: float, feasible_set: FeasibleSet) -> float:
        """The deviation of a gradient's entry where values have ``deviation``, at the worst z.

        (s/N)·√(1/κ² + ‖z‖²(d + 1)/2d), the mean over the entries of (Ez − e/κ)/N.
        """
        d, R = self._d, feasible_set.reach(2)
        size = math.hypot(1 / self._scale, R * math.sqrt((d + 1) / (2 * d)))
        return deviation * size / self.objective.normaliser

    def matrices(self, values: Vector) -> tuple[Vector, Vector]:
        """S and b of such values."""
        values = array("values", values, (self.size,), dtype=np.float64)
        S = np.zeros((d := self._d, d))
        S[np.triu_indices(d)] = values[:-d]
        S /= _weights(d)
        return S + np.triu(S, 1).T, values[-d:] / self._scale

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        """z'(S⁺/N + ridge·I)z/2 − b'z/N as ‖Az + d‖², up to a constant.

        S⁺ has the eigenvectors of the noisy S, and no eigenvalue below FLOOR·√(2d/P)·``deviation``.
        The noise alone has eigenvalues up to about √(2d) deviations, that of P = ``agents`` added
        up √(2dP): P floors add up to FLOOR times that edge. What lies below is noise, and the
        floor is a ridge there, and only there (AdaSSP adds one everywhere). P is N/M where it is
        not given, as if all agents had as many records. Each agent lifts its own and needs no
        other's release: with up to 30 agents that was as good as lifting the sum's eigenvalues.
        Without noise (deviation 0) f is exact but for its constant.
        """
        f, d = self.objective, self._d
        spectrum, V = np.linalg.eigh(self.matrices(values)[0])
        none = 4 * d * float(np.finfo(np.float64).eps) * float(np.abs(spectrum).max())
        P = max(1.0, f.normaliser / f.most_records) if agents is None else agents
        floor = FLOOR * math.sqrt(2 * d / P) * deviation
        spectrum = np.where(spectrum > max(floor, none), spectrum, floor)
        roots = np.sqrt((spectrum / f.normaliser + f.ridge) / 2)
        linear = V.T @ np.asarray(values)[-d:] / (self._scale * f.normaliser)
        data = -np.divide(linear, 2 * roots, out=np.zeros(d), where=roots > 0)
        return PublicQuadratic(roots[:, None] * V.T, data, constant=-float(data @ data))
