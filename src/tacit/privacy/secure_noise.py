"""Noise that withstands attack: exact discrete noise on a grid, from the operating system.

Floating-point noise has gaps in its low-order bits that give the data away (Mironov, 2012), and a
seeded generator can be searched. Here the statistic φ is rounded to a grid of spacing γ, a power
of two, and receives γ·X with X discrete on the whole numbers, so that the sum is exact:

    φ_γ + γX,   φ_γ = γ·round(φ/γ),   X of scale s = m(Δ + γ n^{1/p})/γ

Guarantee: for p = 1 (Laplace) or 2 (Gaussian), noise multiplier m, sensitivity Δ in the p-norm and
n coordinates, updates that the continuous mechanisms of multiplier m make (ε, δ)-private are

    (ε + 320 τ, δ + (1 + e^{ε−42}) τ)-private,    τ = Σ n/40s² (Gaussian) or Σ n/7s² (Laplace)

over all updates, the *distance* from rounded continuous noise; s ≥ 2²⁸ (Gaussian) or 2³²
(Laplace). Entries of φ beyond ±2⁶¹γ count as ±2⁶¹γ, which brings no two of them further apart; sums
are of whole numbers, in 64 bits.
Proof. Rounding moves each coordinate by at most γ/2, so neighbouring φ_γ differ by at most
Δ + γn^{1/p}. Adding continuous noise of scale γs and rounding to the grid is the continuous
mechanism of multiplier m, post-processed; as φ_γ lies on the grid, it adds the rounded noise R.
X is close to R. (1) In total variation. Gaussian: P[R = k] is the integral of the density over
[k−½, k+½], P[X = k] its value at k up to a factor 1 ± 1e-24; they differ by at most
sup|density''|/24 there, which sums to (4φ(1)/s² + O(1/s³))/24 < 1/24s², twice the total variation.
Laplace: with h = 1/2s masses are tanh(h)e^{−2h|k|} (X) against sinh(h)e^{−2h|k|} for k ≠ 0 (R), so
that the total variation is the excess of X at zero, tanh h − 1 + e^{−h} ≤ h²/2 = 1/8s².
(2) In ratio, P[R = k] ≤ e^κ P[X = k]. Gaussian, |k| ≤ 13s: the second-order term of the integral is
(k²/s² − 1)/24s², so κ = 8/s²; beyond, R has a mass of 2e-38. Laplace: cosh h ≤ e^{h²/2} for k ≠ 0,
and less than 1 at zero, so κ = 1/8s²; up to 105s, beyond which R has a mass of 3e-46.
For N coordinates in all, Pr[X-run on D ∈ S] ≤ Pr[R-run on D ∈ S] + Nτ₁ ≤
e^ε Pr[R-run on D' ∈ S] + δ + Nτ₁ ≤ e^{ε+Nκ} Pr[X-run on D' ∈ S] + δ + Nτ₁ + e^ε N·(mass beyond),
and 320τ ≥ Nκ, τ ≥ Nτ₁, e^{ε−42}τ ≥ e^ε N·(mass beyond) for s ≤ 2²⁹ (Gaussian) or 2³³ (Laplace);
for a larger s, τ is taken as for these. ∎

``secure_noise`` makes up for the distance with a little more noise, so that a run's total at its δ
is the one without. For pure ε (δ = 0) discrete Laplace noise needs no comparison: its own ratio of
masses is at most e^{1/m}, up to where tables end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import DERIVED, NOT_DONE, InvalidInput, count, positive
from tacit.privacy import discrete
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.mechanisms import Gaussian, Laplace, Mechanism

GRID_BITS = {"gaussian": 28, "laplace": 32}  # between the noise's scale and the grid
INVERSE_DISTANCE = {"gaussian": 40, "laplace": 7}  # of one coordinate, in units of s²; see above


class GridNoise(NamedTuple):
    """Noise on a grid, for the E updates of a round."""

    values: Any  # (E, size of the statistic): whole numbers, in units of the spacing
    spacing: Any


@dataclass(frozen=True)
class SecureNoise:
    """Discrete noise for a statistic of ``size`` coordinates; costs what ``mechanism`` does, and
    the ``distance`` of every update on top."""

    mechanism: Gaussian | Laplace
    sensitivity: float
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Gaussian | Laplace):
            raise InvalidInput(
                f"Expected gaussian or laplace noise to make secure, got {self.mechanism!r}. "
                f"{NOT_DONE}"
            )
        positive("sensitivity", self.sensitivity, DERIVED)
        count("size", self.size)
        if not 1e-200 < self.mechanism.scale(self.sensitivity) < 1e200:
            raise InvalidInput(
                f"Expected noise of scale between 1e-200 and 1e200 for secure noise, got "
                f"{self.mechanism.scale(self.sensitivity):g}. {NOT_DONE}"
            )

    @cached_property
    def spacing(self) -> float:
        """γ, a power of two."""
        _, exponent = math.frexp(self.mechanism.scale(self.sensitivity))
        return math.ldexp(1.0, exponent - 1 - GRID_BITS[self.mechanism.name])

    @cached_property
    def scale(self) -> Decimal:
        """s, in units of the grid."""
        with localcontext(prec=discrete.DIGITS):
            root = Decimal(self.size)
            if self.mechanism.norm == 2:
                root = root.sqrt() * (1 + Decimal("1e-50"))
            moved = Decimal(self.sensitivity) / Decimal(self.spacing) + root
            return Decimal(self.mechanism.noise_multiplier) * moved

    @property
    def distance(self) -> float:
        """Distance of one update's noise from a rounding of the continuous law."""
        name = self.mechanism.name
        s = min(float(self.scale), 2.0 ** (GRID_BITS[name] + 1))
        return self.size / (INVERSE_DISTANCE[name] * s**2)

    @property
    def slack(self) -> float:
        """``distance``, by its name in 0.1.0."""
        return self.distance

    def event(self, updates: int) -> Any:
        """The ``dp_accounting`` event; ``updates`` times ``distance`` comes on top."""
        return self.mechanism.event(updates)

    def draw(self, updates: int) -> GridNoise:
        """Fresh noise for so many updates. Never twice the same: there is no seed."""
        with localcontext(prec=discrete.DIGITS):
            gaussian = isinstance(self.mechanism, Gaussian)
            law = discrete.gaussian(self.scale**2) if gaussian else discrete.laplace(self.scale)
        values = discrete.sample(law, count("updates", updates) * self.size)
        return GridNoise(values.reshape(updates, self.size), np.float64(self.spacing))


def largest_distance(mechanism: Mechanism, size: int) -> float:
    """The most that ``SecureNoise.distance`` of one update may be, whatever its sensitivity."""
    name = mechanism.name
    return size / (INVERSE_DISTANCE[name] * 2.0 ** (2 * GRID_BITS[name]))


def secure_noise(
    mechanism: Mechanism, sensitivity: float, size: int, updates: int, delta: float
) -> SecureNoise:
    """Secure noise whose ``updates`` cost no more, at ``delta``, than those of ``mechanism``."""
    noise = SecureNoise(mechanism, float(sensitivity), int(size))  # type: ignore[arg-type]
    if delta == 0:
        return noise
    target, more = epsilon_of([(mechanism, updates)], delta), 1e-10
    while more < 1e-3:
        wider = type(noise.mechanism)(noise.mechanism.noise_multiplier * (1 + more))
        wide = SecureNoise(wider, noise.sensitivity, noise.size)
        if epsilon_of([(wider, updates)], delta, wide.distance * updates) <= target:
            return wide
        more *= 10
    raise InvalidInput(
        f"Expected a larger delta or a smaller epsilon for {updates} updates of {size} coordinates "
        f"of secure noise (distance {noise.distance * updates:.2g}), got epsilon {target:.4g}, "
        f"delta={delta!r}. {NOT_DONE}"
    )
