"""Objectives in which nothing is private any more: released copies, and those of noiseless runs.

An agent with such an objective may take exact local steps, as many and with as many settings as it
likes: all of it is post-processing of the one release (``Objective.reading``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp

from tacit._types import Array
from tacit.errors import InvalidInput, array
from tacit.objectives.exact_steps import Prox, quadratic_step, smooth_step
from tacit.objectives.objective import Objective
from tacit.objectives.residual import SparseMatrix, singular_bounds
from tacit.pytree import pytree, static, store
from tacit.sets.powers import require_64_bits

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet


class PublicObjective(Objective):
    """An objective that may be read in full: it was released, or the run has no noise.

    Guarantee: none of its own. It is as private as the release that it was computed from; Δ = 0,
    as neighbours have the same public copy.
    """

    neighbours = "nothing: the data in it are public"
    everywhere: ClassVar[bool] = True

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return 0.0

    def reading(self) -> NoReturn:
        raise InvalidInput(
            "Expected an objective of private data to release, got "
            f"{type(self).__name__}: all in it is public already."
        )

    @property
    @abstractmethod
    def mean_curvature(self) -> float:
        """The mean of the diagonal of f'', or a bound above it: penalties near it suit f."""

    @abstractmethod
    def prox(self, feasible_set: FeasibleSet) -> Prox:
        """The exact local step (v, c) → argmin over z in W of f(z) + ½ Σ_i c_i (z_i − v_i)².

        All c_i > 0. Made once for an agent: what does not change from step to step is set up here.
        ``exact_steps.py`` says which sets go with which objectives; others are refused here.
        """


@pytree
class PublicQuadratic(PublicObjective):
    """f(z) = ‖Az + d‖² + ``constant`` with public A (``matrix``, dense or sparse) and d (``data``).

    ``slack``: the set has A as its slack (``Residual``, ``Conic``).
    """

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    _: KW_ONLY
    slack: bool = static(default=False)
    constant: float = 0.0
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
        return ((self._residual(z) ** 2).sum() + self.constant).astype(z.dtype)

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

    @property
    def mean_curvature(self) -> float:
        """2‖A‖_F²/n."""
        A = self.matrix.values if isinstance(self.matrix, SparseMatrix) else self.matrix
        return 2 * float(np.sum(np.square(A))) / self.dimension

    def prox(self, feasible_set: FeasibleSet) -> Prox:
        return quadratic_step(self, feasible_set)


@pytree
class WithoutNoise(PublicObjective):
    """Any smooth objective in a run without noise, for exact local steps.

    Guarantee: none. The data in it are as they were given.
    """

    objective: Objective

    @property
    def on_host(self) -> bool:  # type: ignore[override]
        return self.objective.on_host

    @property
    def dimension(self) -> int:
        return self.objective.dimension

    def value(self, z: Array) -> Array:
        return self.objective.value(z)

    def statistic(self, z: Array) -> Array:
        return self.objective.statistic(z)

    def lift(self, statistic: Array) -> Array:
        return self.objective.lift(statistic)

    def public_gradient(self, z: Array) -> Array:
        return self.objective.public_gradient(z)

    @property
    def smoothness(self) -> float | None:
        return self.objective.smoothness

    @property
    def strong_convexity(self) -> float:
        return self.objective.strong_convexity

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        return self.objective.gradient_bound(feasible_set)

    @property
    def sample_count(self) -> int:
        return self.objective.sample_count

    @property
    def mean_curvature(self) -> float:
        return math.inf if self.smoothness is None else self.smoothness

    def prox(self, feasible_set: FeasibleSet) -> Prox:
        return smooth_step(self.objective, feasible_set)


def without_noise(objective: Objective) -> PublicObjective:
    """The objective for exact local steps in a run without noise: a quadratic where it is one.

    Guarantee: none. Nothing computed from it is private.
    """
    if isinstance(objective, PublicObjective):
        return objective
    try:
        reading = objective.reading()
    except InvalidInput:
        return WithoutNoise(objective)
    return reading.public_copy(reading.values, 0.0)
