"""Noisy readings of loads, drawn towards public ones: nearer to the truth, at no cost in privacy.

With a stated spread, loads are taken to be expected_i·(1 + spread·(standard normal)), and a reading
v_i = d_i + noise of deviation σ becomes the posterior mean

    e_i + (v_i − e_i) τ_i²/(τ_i² + σ²),     τ_i = spread·|e_i|

which has the least expected squared error: τ²σ²/(τ² + σ²) in place of σ². For other laws with these
variances it is the best estimate that is linear in v (Bernardo and Smith, 1994).

Without one the readings themselves tell how far loads lie from what was expected: in blocks of m
loads of like expected size, James and Stein's estimate with positive part,

    e + (v − e) max(0, 1 − (m − 2)σ²/‖v − e‖²)

For Gaussian noise and m ≥ 3 its expected squared error is below mσ², that of the readings, whatever
the loads are (James and Stein, 1961; Baranchik, 1964), hence so is that of all blocks together.

Guarantee: computed from noisy values and public numbers only (expected loads, spread, σ), so it is
post-processing: what holds for the release holds for the estimates.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from tacit._types import Array, Vector
from tacit.errors import array, non_negative
from tacit.objectives.public import PublicQuadratic
from tacit.objectives.residual import DataReading, Residual
from tacit.pytree import pytree, static, store

BLOCK = 16  # loads that share one factor


@pytree
class ExpectedLoads(Residual):
    """Load shedding whose loads have public ``expected`` values, and maybe a public ``spread``."""

    _: KW_ONLY
    expected: Array = field(default=(), repr=False)
    spread: float | None = static(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        spread = None if self.spread is None else non_negative("nominal_spread", self.spread)
        expected = array("expected", self.expected, self.data.shape, dtype=np.float64)
        store(self, expected=expected, spread=spread)

    def reading(self) -> LoadReading:
        return LoadReading(self)


@dataclass(frozen=True)
class LoadReading(DataReading):
    """The loads, as ``Residual`` has them read; a copy of them is drawn towards what is expected.

    Guarantee: ``DataReading``'s.
    """

    objective: Any

    def public_copy(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        of = self.objective
        loads = shrunk(values, np.asarray(of.expected), deviation, of.spread)
        return PublicQuadratic(of.matrix, loads, slack=of.slack)


def shrunk(
    values: Vector, expected: Vector, deviation: float, spread: float | None = None
) -> Vector:
    """The estimates of the module's docstring, by a stated spread or without one."""
    away, σ2 = values - expected, deviation**2
    if σ2 == 0:
        return np.array(values, np.float64)
    if spread is not None:
        τ2 = (spread * expected) ** 2
        return np.asarray(expected + away * τ2 / (τ2 + σ2))
    order = np.argsort(np.abs(expected), kind="stable")
    estimate = np.array(values, np.float64)
    for block in np.array_split(order, max(1, len(order) // BLOCK)):
        if (m := len(block)) >= 3:
            length = max(float(away[block] @ away[block]), 1e-300)
            keep = max(0.0, 1 - (m - 2) * σ2 / length)
            estimate[block] = expected[block] + keep * away[block]
    return estimate
