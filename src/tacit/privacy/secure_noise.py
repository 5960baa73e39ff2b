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

*Shares of a sum.* h = P − c parties each add X_i of scale s/√h ≥ 2²⁸ (Gaussian): their sum is X of
scale s, in every mass up to e^{±4.1(h−1)exp(−2π²v²)}, v² ≥ min s_i²/2 ≥ 2⁵⁵, so that nothing above
changes by a number that could be written down. Errors of the samplers add up to h·1e-24 in ratio,
less than what κ is smaller by at s ≥ 2²⁸√h for h > 8; tables end h times, (1 + e^ε)·3h·1.6e-44 in δ
of a coordinate, for which e^{ε−42}τ has room up to h = 390,000; both hold for h ≤ 100,000. One
share alone is X of multiplier m/√h.
Lemma. X_i independent discrete Gaussians of scales s_i, S_k² = s_1² + … + s_k². For every integer j
|ln P[ΣX_i = j] − ln N_ℤ(j; S_h²)| ≤ 4.1 Σ_{k=2..h} exp(−2π²v_k²), v_k² = S_{k−1}²s_k²/S_k² ≥ ½ min
s_i², v_k ≥ ½. Proof. For two terms complete the square; the rest is Σ_i ρ_v(i − ja²/s²), by Poisson
summation √(2π)v(1 ± η), η ≤ 2.0001exp(−2π²v²). The ratio of masses averages to 1, so that its
logarithm is at most ln((1+η)/(1−η)); pointwise ratios survive convolution (Kairouz, Liu and
Steinke, 2021, Theorem 1, for equal scales). ∎

``secure_noise`` makes up for the distance with a little more noise, so that a run's total at its δ
is the one without. For pure ε (δ = 0) discrete Laplace noise needs no comparison: its own ratio of
masses is at most e^{1/m}, up to where tables end.

X is drawn from tables of its distribution function in 256 bits: one uniform number of 64 bits finds
the outcome, and 192 more are drawn in the rare case that the first do not decide. A wide one is a
sum of narrow ones, so that tables stay in the processor's cache:

    Gaussian   P[X = k] ∝ exp(−k²/2s²) (Canonne, Kamath and Steinke, 2020). X = A + K·B, A of scale
               2K and B of scale √(s² − 4K²)/K. The sum has this distribution of scale s up to a
               factor 1 ± 2exp(−2π²/(¼ + K²/(s² − 4K²))), which is 1 ± 1e-25 or nearer for s > 2048,
               in every mass (Micciancio and Walter, 2017; Poisson summation over A + K·B = k).
    Laplace    P[X = k] ∝ exp(−|k|/s). |X| = A + K·B for the digit A = |X| mod K: exact, A and B
               are independent.

Guarantee: masses up to 13 scales (Gaussian) or 105 scales (Laplace) have a relative error below
1e-24; beyond, where the laws have 2e-38 and 3e-46, tables end. All random bits come from
``random_bytes``, the generator of the operating system.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import DERIVED, NOT_DONE, InvalidInput, count, positive
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.mechanisms import Gaussian, Laplace, Mechanism

GRID_BITS = {"gaussian": 28, "laplace": 32}  # between the noise's scale and the grid
INVERSE_DISTANCE = {"gaussian": 40, "laplace": 7}  # of one coordinate, in units of s²; see above
MOST_SHARES = 100_000
# The tables of the sampler
DIGITS = 100  # of the decimal arithmetic that makes them
LOW_BITS = 192  # of a threshold, beyond the first 64
REACH = 14.0, 110.0  # scales after which they end: Gaussian, Laplace
WIDEST_TABLE = 2048, 256  # the largest scale of one of them
RADIX = 512, 2048

Whole = np.ndarray[Any, np.dtype[np.int64]]
random_bytes = os.urandom


class GridNoise(NamedTuple):
    """Noise on a grid, for the E updates of a round."""

    values: Any  # (E, size of the statistic): whole numbers, in units of the spacing
    spacing: Any


@dataclass(frozen=True)
class SecureNoise:
    """Discrete noise for a statistic of ``size`` coordinates; costs what ``mechanism`` does, and
    the ``distance`` of every update on top.

    ``shares``: how many independent ones make up this noise together; ``draw`` gives one of them.
    """

    mechanism: Gaussian | Laplace
    sensitivity: float
    size: int
    shares: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Gaussian | Laplace):
            raise InvalidInput(
                f"Expected gaussian or laplace noise to make secure, got {self.mechanism!r}. "
                f"{NOT_DONE}"
            )
        positive("sensitivity", self.sensitivity, DERIVED)
        count("size", self.size)
        if count("shares", self.shares) > MOST_SHARES:
            raise InvalidInput(
                f"Expected at most {MOST_SHARES} parties that add noise to a secure sum, got "
                f"{self.shares}: its proof ends there. {NOT_DONE}"
            )
        if self.shares > 1 and not isinstance(self.mechanism, Gaussian):
            raise InvalidInput(
                f"Expected gaussian noise for a secure sum, got {self.mechanism.name}: a sum of "
                f"Laplace noises is not Laplace noise. {NOT_DONE}"
            )
        if not 1e-200 < self.mechanism.scale(self.sensitivity) < 1e200:
            raise InvalidInput(
                f"Expected noise of scale between 1e-200 and 1e200 for secure noise, got "
                f"{self.mechanism.scale(self.sensitivity):g}. {NOT_DONE}"
            )

    @cached_property
    def spacing(self) -> float:
        """γ, a power of two."""
        share = self.mechanism.scale(self.sensitivity) / math.sqrt(self.shares)
        _, exponent = math.frexp(share)
        return math.ldexp(1.0, exponent - 1 - GRID_BITS[self.mechanism.name])

    @cached_property
    def scale(self) -> Decimal:
        """s, in units of the grid."""
        with localcontext(prec=DIGITS):
            root = Decimal(self.size)
            if self.mechanism.norm == 2:
                root = root.sqrt() * (1 + Decimal("1e-50"))
            moved = Decimal(self.sensitivity) / Decimal(self.spacing) + root
            return Decimal(self.mechanism.noise_multiplier) * moved

    @property
    def distance(self) -> float:
        """Distance of one update's noise from a rounding of the continuous distribution."""
        name = self.mechanism.name
        s = min(float(self.scale), 2.0 ** (GRID_BITS[name] + 1))
        return self.size / (INVERSE_DISTANCE[name] * s**2)

    def draw(self, updates: int) -> GridNoise:
        """Fresh noise for ``updates`` updates. Never twice the same: there is no seed."""
        with localcontext(prec=DIGITS):
            gaussian = isinstance(self.mechanism, Gaussian)
            variance = self.scale**2 / self.shares
            distribution = discrete_gaussian(variance) if gaussian else discrete_laplace(self.scale)
        values = sample(distribution, count("updates", updates) * self.size)
        return GridNoise(values.reshape(updates, self.size), np.float64(self.spacing))


def largest_distance(mechanism: Mechanism, size: int) -> float:
    """The most that ``SecureNoise.distance`` of one update may be, whatever its sensitivity."""
    name = mechanism.name
    return size / (INVERSE_DISTANCE[name] * 2.0 ** (2 * GRID_BITS[name]))


def secure_noise(
    mechanism: Mechanism, sensitivity: float, size: int, updates: int, delta: float, shares: int = 1
) -> SecureNoise:
    """Secure noise whose ``updates`` cost no more, at ``delta``, than those of ``mechanism``."""
    about = float(sensitivity), int(size), shares
    noise = SecureNoise(mechanism, *about)  # type: ignore[arg-type]
    if delta == 0:
        return noise
    target, more = epsilon_of([(mechanism, updates)], delta), 1e-10
    while more < 1e-3:
        wider = type(noise.mechanism)(noise.mechanism.noise_multiplier * (1 + more))
        wide = SecureNoise(wider, *about)
        if epsilon_of([(wider, updates)], delta, wide.distance * updates) <= target:
            return wide
        more *= 10
    raise InvalidInput(
        f"Expected a larger delta or a smaller epsilon for {updates} updates of {size} coordinates "
        f"of secure noise (distance {noise.distance * updates:.2g}), got epsilon {target:.4g}, "
        f"delta={delta!r}. {NOT_DONE}"
    )


# --- exact sampling ---------------------------------------------------------------------------


class Table(NamedTuple):
    """A distribution on first, first + 1, ...: i if the 256-bit number is below threshold i."""

    first: int
    high: np.ndarray[Any, np.dtype[np.uint64]]
    low: tuple[int, ...]  # the other LOW_BITS of each threshold


class Distribution(NamedTuple):
    """A sum Σ radixᵈ·(number of table d), with a random sign if the tables are one-sided."""

    tables: tuple[Table, ...]
    radix: int
    one_sided: bool


@lru_cache(maxsize=64)
def discrete_gaussian(variance: Decimal) -> Distribution:
    """The discrete Gaussian with parameter s² = ``variance``."""
    K, tables = RADIX[0], []
    with localcontext(prec=DIGITS):
        while variance > WIDEST_TABLE[0] ** 2:
            tables.append(_gaussian_table(Decimal(4 * K * K)))
            variance = (variance - 4 * K * K) / (K * K)
        tables.append(_gaussian_table(variance, leading=bool(tables)))
    return Distribution(tuple(tables), K, one_sided=False)


@lru_cache(maxsize=64)
def discrete_laplace(scale: Decimal) -> Distribution:
    """The discrete Laplace distribution with scale s."""
    K, tables = RADIX[1], []
    with localcontext(prec=DIGITS):
        while scale > WIDEST_TABLE[1]:
            tables.append(_geometric_table(scale, K))
            scale = scale / K
        tables.append(_geometric_table(scale, int(REACH[1] * float(scale)) + 2))
    return Distribution(tuple(tables), K, one_sided=True)


@lru_cache(maxsize=256)
def _gaussian_table(variance: Decimal, leading: bool = False) -> Table:
    with localcontext(prec=DIGITS):
        # a leading digit reaches as far as the distribution, which is wider by the digits below
        last = int(REACH[0] * (float(variance) + 4 * leading) ** 0.5) + (20 if leading else 2)
        factor = (-1 / (2 * variance)).exp()
        square, mass, masses = factor * factor, Decimal(1), [Decimal(1)]
        for _ in range(last):  # exp(−(k+1)²/2s²) = exp(−k²/2s²) · exp(−(2k+1)/2s²)
            mass, factor = mass * factor, factor * square
            masses.append(mass)
        return _table(-last, masses[:0:-1] + masses)


def _geometric_table(scale: Decimal, size: int) -> Table:
    with localcontext(prec=DIGITS):
        factor = (-1 / scale).exp()
        mass, masses = Decimal(1), [Decimal(1)]
        for _ in range(size - 1):
            mass = mass * factor
            masses.append(mass)
        return _table(0, masses)


def _table(first: int, masses: list[Decimal]) -> Table:
    sums = list(accumulate(masses))
    unit = Decimal(2) ** (64 + LOW_BITS) / sums[-1]
    whole = [int(s * unit) for s in sums[:-1]]  # the last outcome needs no threshold
    high = np.array([w >> LOW_BITS for w in whole], dtype=np.uint64)
    return Table(first, high, tuple(w & (2**LOW_BITS - 1) for w in whole))


def sample(distribution: Distribution, size: int) -> Whole:
    """``size`` independent numbers."""
    result = _sizes(distribution, size)
    if not distribution.one_sided:
        return result
    negative = _coins(size)
    while (again := negative & (result == 0)).any():  # −0 would count zero twice
        result[again], negative[again] = _sizes(distribution, again.sum()), _coins(again.sum())
    return np.where(negative, -result, result)


def _sizes(distribution: Distribution, size: int) -> Whole:
    result = np.zeros(size, np.int64)
    for power, table in enumerate(distribution.tables):
        result += distribution.radix**power * _draw(table, size)
    return result


def _coins(size: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    coins: np.ndarray[Any, np.dtype[np.bool_]] = (
        np.frombuffer(random_bytes(int(size)), np.uint8) & 1 == 1
    )
    return coins


def _draw(table: Table, size: int) -> Whole:
    uniform = np.frombuffer(random_bytes(8 * int(size)), np.uint64)
    index = np.searchsorted(table.high, uniform)
    unsure = np.flatnonzero(table.high[np.minimum(index, len(table.high) - 1)] == uniform)
    for i in unsure:  # one in 2⁵⁰
        rest = int.from_bytes(random_bytes(LOW_BITS // 8), "little")
        while index[i] < len(table.high) and (
            table.high[index[i]] == uniform[i] and table.low[index[i]] <= rest
        ):
            index[i] += 1
    return table.first + index
