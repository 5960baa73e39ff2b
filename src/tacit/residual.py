"""The power-flow objective ‖Az + d‖²: a public matrix and private demands (Section 6.1)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from tacit.errors import NOT_DONE, InvalidInput, array, choice, count, positive
from tacit.objectives import Array, Objective, optional_positive, store
from tacit.pytree import pytree, static

if TYPE_CHECKING:
    from tacit.sets import FeasibleSet


@pytree
class Residual(Objective):
    """f(z) = ‖Az + d‖² with public A (``matrix``) and private d (``data``).

    ``beta`` is public, one number or one per entry of d; ``moved`` entries may move. The noise
    goes on the residual, statistic 2(Az + d) and lift A', or on the gradient 2A'(Az + d).
    ``data_bound`` is an optional public bound of ‖d‖₂; only ``gradient_bound`` needs it.

    Guarantee: neighbours differ in at most ``moved`` entries of d, entry i by at most β_i. The
    residual moves by 2Δd: Δ_1 is twice the sum of the largest β_i, Δ_2 twice the root of the sum
    of their squares; both attained. The gradient moves by 2Σ_i Δd_i·a_i, a_i the rows of A:
    at most twice the sum of the largest β_i‖a_i‖ (attained for one moved entry or parallel rows),
    and in L2 at most ‖A‖₂ times the residual's bound. Both hold at every z, also outside the set.
    NaN and infinity in the data are refused at construction.
    """

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    beta: float | tuple[float, ...] = static()
    moved: int = static(default=1)
    _: KW_ONLY
    noise_on: str = static(default="residual")
    data_bound: float | None = None

    def __post_init__(self) -> None:
        choice("noise_on", self.noise_on, ("residual", "gradient"))
        # float64 also for float32 input: rounding the data could move them by more than beta
        matrix = array("matrix", self.matrix, (None, None), dtype=np.float64)
        rows = len(matrix)
        data = array("data", self.data, (rows,), dtype=np.float64)
        if np.ndim(self.beta) == 0:
            beta: Any = positive("beta", self.beta)  # type: ignore[arg-type]
        else:
            beta = tuple(positive("beta", b) for b in array("beta", self.beta, (rows,)).tolist())
        if count("moved", self.moved) > rows:
            raise InvalidInput(
                f"Expected moved <= {rows}, the number of data, got moved={self.moved}. {NOT_DONE}"
            )
        bound = optional_positive("data_bound", self.data_bound)
        if bound is not None and np.linalg.norm(data) > bound:
            raise InvalidInput(f"Expected ‖data‖₂ <= data_bound={bound}, got more. {NOT_DONE}")
        store(self, matrix=jnp.asarray(matrix), data=jnp.asarray(data), beta=beta)

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        what = "one datum" if self.moved == 1 else f"up to {self.moved} data, each"
        by = (
            f"its own bound, {max(self.beta)} or less"
            if isinstance(self.beta, tuple)
            else self.beta
        )
        return f"{what} moving by at most {by}"

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[-1])

    @property
    def statistic_size(self) -> int:
        return int(self.matrix.shape[-2]) if self.noise_on == "residual" else self.dimension

    @property
    def lift_energy(self) -> float:
        if self.noise_on == "gradient":
            return float(self.dimension)
        return float(np.sum(np.asarray(self.matrix, np.float64) ** 2))

    def _residual(self, z: Array) -> Array:
        return self.matrix @ z.astype(self.matrix.dtype) + self.data

    def value(self, z: Array) -> Array:
        return jnp.sum(self._residual(z) ** 2).astype(z.dtype)

    def statistic(self, z: Array) -> Array:
        doubled = 2 * self._residual(z)
        at = doubled if self.noise_on == "residual" else self.matrix.T @ doubled
        return at.astype(z.dtype)

    def lift(self, statistic: Array) -> Array:
        if self.noise_on == "gradient":
            return statistic
        return (self.matrix.T @ statistic.astype(self.matrix.dtype)).astype(statistic.dtype)

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        if self.noise_on == "gradient":
            return self.gradient_sensitivity(norm, feasible_set)
        return 2 * self._most_moved(choice("norm", norm, (1, 2)))

    def gradient_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        lengths = np.linalg.norm(
            np.asarray(self.matrix, np.float64), choice("norm", norm, (1, 2)), 1
        )
        rows = 2 * float(np.sort(lengths * self._betas())[-self.moved :].sum())
        return rows if norm == 1 else min(rows, 2 * self._singular()[0] * self._most_moved(2))

    def _betas(self) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.asarray(self.beta, np.float64), self.matrix.shape[-2])

    def _most_moved(self, norm: int) -> float:
        """The largest norm that a change of the data can have."""
        largest = np.sort(self._betas())[-self.moved :]
        return float(np.linalg.norm(largest, norm))

    def _singular(self) -> tuple[float, float]:
        """The largest singular value of A and a lower bound of min ‖Az‖/‖z‖."""
        values = np.linalg.svd(np.asarray(self.matrix, np.float64), compute_uv=False)
        rounding = float(values[0]) * max(self.matrix.shape) * np.finfo(np.float64).eps
        smallest = float(values[-1]) - rounding if len(values) == self.dimension else 0.0
        return float(values[0]) + rounding, max(smallest, 0.0)

    @property
    def smoothness(self) -> float | None:
        """L = 2‖A‖₂²."""
        return 2 * self._singular()[0] ** 2

    @property
    def strong_convexity(self) -> float:
        """α = 2σ_min(A)²; 0 if A has fewer rows than columns."""
        return 2 * self._singular()[1] ** 2

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """2‖A‖₂(‖A‖₂ sup‖z‖₂ + data_bound)."""
        if self.data_bound is None:
            return math.inf
        norm = self._singular()[0]
        return 2 * norm * (norm * feasible_set.radius(2) + self.data_bound)

    def paper_sensitivity(self, z: Array, norm: int) -> Array:
        """Δ_1 = Δ_2 = 2β (Section 6.1).

        Guarantee: as ``sensitivity`` for one moved datum and noise on the residual. None for
        noise on the gradient, where it is too small by a factor max ‖a_i‖.
        """
        return jnp.asarray(2 * self._betas().max(), z.dtype)

    def paper_output_sensitivity(self, z: Array, norm: int, curvature: Array | float) -> Array:
        """Δ_1 = Δ_2 = β (Section 6.1). Guarantee: none."""
        return jnp.asarray(self._betas().max(), z.dtype)
