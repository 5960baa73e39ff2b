"""Objectives in which nothing is private any more: released copies, and those of noiseless runs.

An agent with such an objective may take exact local steps, as many and with as many settings as it
likes: all of it is post-processing of the one release (``Objective.reading``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.errors import array
from tacit.objectives.objective import Objective
from tacit.objectives.residual import SparseMatrix, singular_bounds
from tacit.objectives.rounding import require_64_bits
from tacit.pytree import pytree, static, store

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

Prox = Callable[[Vector, Vector], Vector]


class PublicObjective(Objective):
    """An objective that may be read in full: it was released, or the run has no noise.

    Guarantee: none of its own. It is as private as the release that it was computed from; Δ = 0,
    as neighbours have the same public copy.
    """

    neighbours = "nothing: the data in it are public"
    everywhere: ClassVar[bool] = True

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return 0.0

    @abstractmethod
    def prox(self, feasible_set: FeasibleSet) -> Prox:
        """The exact local step (v, c) → argmin over z in W of f(z) + ½ Σ_i c_i (z_i − v_i)².

        All c_i > 0. Made once for an agent: what does not change from step to step is set up here.
        """


@pytree
class PublicQuadratic(PublicObjective):
    """f(z) = ‖Az + d‖² with public A (``matrix``, dense or sparse) and public d (``data``).

    ``slack``: the set has A as its slack (``Residual``, ``Conic``).
    """

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    _: KW_ONLY
    slack: bool = static(default=False)
    on_host: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_64_bits()
        A = self.matrix
        if sp.issparse(A):
            A = SparseMatrix.of(A)
        elif not isinstance(A, SparseMatrix):
            A = array("matrix", A, (None, None), dtype=np.float64)
        data = array("data", self.data, (A.shape[0],), dtype=np.float64)
        store(self, matrix=A, data=data)

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
        return (self._residual(z) ** 2).sum().astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        """The gradient 2A'(Az + d)."""
        return self.matrix.T @ (2 * self._residual(z))

    @property
    def smoothness(self) -> float | None:
        """L = 2‖A‖₂²."""
        return 2 * singular_bounds(self.matrix)[0] ** 2

    @property
    def strong_convexity(self) -> float:
        """α = 2σ_min(A)²; 0 if A has fewer rows than columns."""
        return 2 * singular_bounds(self.matrix)[1] ** 2

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """2‖A‖₂(‖A‖₂ sup‖z‖₂ + ‖d‖₂)."""
        norm = singular_bounds(self.matrix)[0]
        length = float(np.linalg.norm(self.data))
        radius = feasible_set.radius(2)
        return 2 * norm * (norm * radius + length) if math.isfinite(radius) else math.inf

    def prox(self, feasible_set: FeasibleSet) -> Prox:
        raise NotImplementedError
