"""The mean of private rows, to be read once: what other rows are centred by.

f(z) = ‖z − Σ_i x_i/N‖²/2        a run needs s = Σ_i x_i of it, and nothing else
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
from tacit.errors import array, choice
from tacit.objectives.linear_model import Rows
from tacit.objectives.objective import RELATIONS, Reading
from tacit.objectives.public import PublicQuadratic
from tacit.objectives.rounding import gamma, rounded_up
from tacit.pytree import pytree

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

BLOCK = 4096  # K: records that are added up at a time


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

    def reading(self) -> RowSum:
        return RowSum(self)

    @property
    def smoothness(self) -> float | None:
        return 1.0

    @property
    def strong_convexity(self) -> float:
        return 1.0

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """BM/N + sup‖z‖₂ for M records."""
        largest = self.feature_bound(2) * self.most_records / self.normaliser
        return largest + feasible_set.radius(2)


@dataclass(frozen=True)
class RowSum(Reading):
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

    def public_copy(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        """‖z − s~/N‖²/2: the noise has mean zero, so no ``deviation`` corrects it."""
        d = self.objective.dimension
        values = array("values", values, (d,), dtype=np.float64)
        root = math.sqrt(0.5)
        return PublicQuadratic(
            root * sp.identity(d, format="csr"), -root * values / self.objective.normaliser
        )
