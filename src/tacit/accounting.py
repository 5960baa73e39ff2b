"""What a number of noisy updates costs: mechanisms -> (epsilon, delta).

    basic      sums budgets; true for every mechanism, loose
    paper      the composition theorem of Section 4.3; kept for comparison, no guarantee
    exact      what a run really costs, for one mechanism
    compose    the same for several mechanisms in sequence
    calibrate  the other way round: the least noise that keeps a run within a total budget

Every number is rounded so that a statement made with it is never too strong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr

from tacit.errors import NOT_DONE, InvalidInput, choice, count, non_negative, positive, probability
from tacit.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noiseless,
    gaussian_delta,
    gaussian_epsilon,
    root_rounded_up,
)

__all__ = [
    "Guarantee",
    "basic",
    "calibrate",
    "compose",
    "delta_of",
    "epsilon_of",
    "exact",
    "gaussian_delta",
    "gaussian_epsilon",
    "paper",
]

Parts = Sequence[tuple[Mechanism, int]]
Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Guarantee:
    """A pair (epsilon, delta). As text, both are rounded up to five digits."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        up = Context(prec=5, rounding=ROUND_CEILING)
        epsilon, delta = (up.create_decimal(repr(x)) for x in (self.epsilon, self.delta))
        return f"epsilon <= {float(epsilon):.5g}, delta <= {float(delta):.5g}"


def basic(epsilon: float, delta: float, updates: int) -> Guarantee:
    """Basic composition: ``updates`` times (epsilon, delta) (Section 4.3).

    Guarantee: true for every mechanism if each update is (epsilon, delta)-private.
    """
    updates = count("updates", updates)
    delta = 0.0 if delta == 0 else probability("delta", delta)
    return Guarantee(updates * positive("epsilon", epsilon), min(1.0, updates * delta))


def paper(epsilon: float, delta: float, updates: int) -> Guarantee:
    """The paper's total for Gaussian noise (Section 4.3, the composition theorem).

    sqrt(TE ln(1/delta) / ln(1.25/delta)) epsilon at the same delta, TE = ``updates``.

    Guarantee: none. The proof bounds epsilon' from below, and the exact total of
    ``Gaussian.classical(epsilon, delta)`` can be several times larger.
    """
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta)
    ratio = math.log(1 / delta) / math.log(1.25 / delta)
    return Guarantee(math.sqrt(count("updates", updates) * ratio) * epsilon, delta)


def exact(mechanism: Mechanism, updates: int, delta: float) -> Guarantee:
    """The smallest epsilon, at ``delta``, of ``updates`` adaptive uses of one mechanism.

    Gaussian: closed form, mu = sqrt(updates) / noise_multiplier. Laplace: privacy loss
    distribution, within 0.05 % of the smallest epsilon; ``delta = 0`` gives the pure epsilon.

    Guarantee: never below the smallest epsilon that is true for every pair of neighbours
    within the sensitivity; attained by the worst pair. Infinite for ``Noiseless``.
    """
    return compose([(mechanism, updates)], delta)


def compose(parts: Parts, delta: float) -> Guarantee:
    """The same for several mechanisms in sequence, each with its number of updates."""
    return Guarantee(epsilon_of(parts, delta), float(delta))


def epsilon_of(parts: Parts, delta: float) -> float:
    """The smallest epsilon at ``delta`` of mechanisms in sequence, rounded up."""
    spend = _total(parts)
    if delta == 0 and spend.mu == 0:
        return spend.pure
    delta = probability("delta", delta)
    if not math.isfinite(spend.pure):
        return math.inf
    if not spend.laplace:
        return gaussian_epsilon(spend.mu, delta)
    highest = spend.pure + (gaussian_epsilon(spend.mu, delta) if spend.mu else 0.0)
    if spend.excess(0.0, delta) <= 0:
        return 0.0
    if spend.excess(highest, delta) > 0:  # the grid is coarser than this bound
        return highest
    return min(highest, root_rounded_up(lambda e: spend.excess(e, delta), 0.0, highest))


def delta_of(parts: Parts, epsilon: float) -> float:
    """The smallest delta at ``epsilon`` of mechanisms in sequence, rounded up."""
    spend, epsilon = _total(parts), non_negative("epsilon", epsilon)
    if not math.isfinite(spend.pure):
        return 1.0
    if not spend.laplace:
        return gaussian_delta(spend.mu, epsilon)
    if spend.mu == 0 and epsilon >= spend.pure:
        return 0.0
    return min(1.0, max(math.exp(spend.log_delta(epsilon)), math.ulp(0.0)))


def calibrate(
    name: str, total_epsilon: float, total_delta: float, updates: int
) -> Gaussian | Laplace:
    """The mechanism with the least noise whose ``updates`` uses stay within a total budget.

    ``name`` is "gaussian" or "laplace". Laplace noise also accepts ``total_delta = 0``.

    Guarantee: ``exact(mechanism, updates, total_delta).epsilon`` is at most ``total_epsilon``
    and at least 99.9 % of it.
    """
    choice("mechanism name", name, ("gaussian", "laplace"))
    total_epsilon, updates = positive("total_epsilon", total_epsilon), count("updates", updates)
    if name == "laplace" and total_delta == 0:
        multiplier = updates / total_epsilon
    elif name == "gaussian":
        multiplier = Gaussian.analytic(total_epsilon, total_delta).noise_multiplier
        multiplier *= math.sqrt(updates)
    else:
        total_delta = probability("total_delta", total_delta)
        multiplier = _laplace_multiplier(total_epsilon, total_delta, updates)
    kind = Gaussian if name == "gaussian" else Laplace
    step = 1e-15
    while exact(kind(multiplier), updates, total_delta).epsilon > total_epsilon:
        multiplier, step = multiplier * (1 + step), step * 2
    return kind(multiplier)


def _laplace_multiplier(epsilon: float, delta: float, updates: int) -> float:
    """Smallest Laplace multiplier with delta(epsilon) <= delta, rounded up."""

    def excess(multiplier: float) -> float:
        return _total([(Laplace(multiplier), updates)]).excess(epsilon, delta)

    high = updates / epsilon * (1 + 1e-12)  # pure
    # A Laplace update loses about as much as a Gaussian one of the same multiplier.
    low = min(high, Gaussian.analytic(epsilon, delta).noise_multiplier * math.sqrt(updates)) / 2
    while excess(low) <= 0:
        low /= 2
    return root_rounded_up(excess, low, high)


# --- privacy loss distributions -----------------------------------------------------------


def _total(parts: Parts) -> _Spend:
    """Equal mechanisms merged: Gaussian ones add mu squared, Laplace ones add counts."""
    if not parts:
        raise InvalidInput("Expected at least one mechanism, got none. Nothing was accounted.")
    squares: list[float] = []
    laplace: dict[float, int] = {}
    private = True
    for mechanism, updates in parts:
        updates = count("updates", updates)
        if isinstance(mechanism, Gaussian):
            squares.append(updates / mechanism.noise_multiplier**2)
        elif isinstance(mechanism, Laplace):
            epsilon = 1 / mechanism.noise_multiplier
            laplace[epsilon] = laplace.get(epsilon, 0) + updates
        elif isinstance(mechanism, Noiseless):
            private = False
        else:
            raise InvalidInput(f"Expected a known mechanism, got {mechanism!r}. {NOT_DONE}")
    pure = math.fsum(n * epsilon for epsilon, n in laplace.items()) * (1 + 1e-15)
    mu = math.sqrt(math.fsum(squares)) * (1 + 1e-15)
    return _Spend(mu, tuple(sorted(laplace.items())), pure if private else math.inf)


@dataclass(frozen=True)
class _Law:
    """The privacy loss of one update on a grid, and how many updates there are."""

    first: int  # index of the first cell
    losses: Vector
    log_probabilities: Vector
    updates: int

    def cumulant(self, t: float) -> float:
        """ln E[e^(t loss)] of one update."""
        return float(logsumexp(t * self.losses + self.log_probabilities))

    def tilted(self, t: float) -> Vector:
        """Probabilities proportional to e^(t loss)."""
        result: Vector = np.exp(t * self.losses + self.log_probabilities - self.cumulant(t))
        return result


@dataclass(frozen=True)
class _Spend:
    """One Gaussian update of shift ``mu`` and Laplace updates, as (epsilon, updates) pairs.

    The privacy loss of the whole is the sum of independent losses, and
    delta(epsilon) = E[max(0, 1 - e^(epsilon - loss))]. Losses are put on a grid in such a way
    that the discrete pair dominates the true one, and added by a Fourier transform. A plain
    transform has an absolute error, 1e-12 or more, that hides a small delta; here
    probabilities are first tilted by e^(theta loss), so that the sum concentrates at epsilon
    and the error is relative to delta.
    """

    mu: float
    laplace: tuple[tuple[float, int], ...]
    pure: float

    def excess(self, epsilon: float, delta: float) -> float:
        """ln delta(epsilon) - ln delta, finite for root finding: positive if over budget."""
        return max(-50.0, self.log_delta(epsilon) - math.log(delta) + 1e-12)

    def log_delta(self, epsilon: float) -> float:
        """ln delta(epsilon), rounded up."""
        if self.mu == 0 and epsilon >= self.pure:
            return -math.inf
        laws, step = self._laws, self._step

        def cumulant(t: float) -> float:
            return math.fsum(law.updates * law.cumulant(t) for law in laws)

        def mean(t: float) -> float:
            return math.fsum(law.updates * float(law.tilted(t) @ law.losses) for law in laws)

        theta = _tilt(mean, epsilon, highest=300 / step)
        base, tilted = cumulant(theta), [law.tilted(theta) for law in laws]
        variance = math.fsum(
            law.updates * float(q @ (law.losses - q @ law.losses) ** 2)
            for law, q in zip(laws, tilted, strict=True)
        )

        # Chernoff: the tilted sum leaves [bottom, top] on either side with probability < e^-50.
        rates = 2.0 ** np.arange(1, 6) / max(math.sqrt(variance), step)
        top = min((cumulant(theta + s) - base + 50) / s for s in rates)
        bottom = max((base - cumulant(theta - s) - 50) / s for s in rates)
        first = math.floor(bottom / step)
        size = max(math.ceil(top / step) - first + 1, *(law.losses.size for law in laws))
        size = int(next_fast_len(size, real=True))

        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        for law, q in zip(laws, tilted, strict=True):
            spectrum *= rfft(q, size) ** law.updates
        origin = sum(law.updates * law.first for law in laws)
        total = np.roll(irfft(spectrum, size), (origin - first) % size)

        above = step * np.arange(first, first + size) - epsilon
        above, total = above[above > 0], np.maximum(total[above > 0], 0.0)
        value = float(total @ (np.exp(-theta * above) * -np.expm1(-above)))
        # What the window and the ends of the Gaussian grid leave out counts as revealed.
        value += math.exp(-50 - theta * (top - epsilon))
        result = base - theta * epsilon + math.log(value)
        if self.mu > 0:
            result = float(np.logaddexp(result, math.log(_GAUSSIAN_TAIL)))
        # Rounding errors: less than 1e-14 for each factor of the product.
        return min(0.0, result + 1e-9 + 1e-14 * sum(law.updates for law in laws))

    @cached_property
    def _step(self) -> float:
        """Grid step for which discretisation adds less than 0.05 % to epsilon.

        On a grid of step s the loss of each Laplace update grows by about s^2/8 in the mean, and
        that of the Gaussian one by at most s. Both are held against the typical loss. With
        Laplace noise alone the grid meets the two atoms of the largest part exactly.
        """
        typical = self.mu + self.mu**2 / 2
        typical += math.fsum(n * min(e, e * e / 2) for e, n in self.laplace)
        typical += math.sqrt(math.fsum(n * min(e * e, 4.0) for e, n in self.laplace))
        step = math.sqrt(1.6e-3 * typical / sum(n for _, n in self.laplace))
        if self.mu > 0:
            return min(step, 1e-4 * typical)
        largest, _ = max(self.laplace, key=lambda part: part[1] * min(part[0] ** 2, 4.0))
        return largest / math.ceil(largest / min(step, 2e-4 * typical))

    @cached_property
    def _laws(self) -> list[_Law]:
        grids = [(*_laplace_losses(epsilon, self._step), n) for epsilon, n in self.laplace]
        if self.mu > 0:
            grids.append((*_gaussian_losses(self.mu, self._step), 1))
        laws = []
        for first, probabilities, updates in grids:
            inside = np.flatnonzero(probabilities)
            start, stop = int(inside[0]), int(inside[-1]) + 1
            losses = self._step * np.arange(first + start, first + stop, dtype=np.float64)
            laws.append(_Law(first + start, losses, np.log(probabilities[start:stop]), updates))
        return laws


def _tilt(mean: Callable[[float], float], epsilon: float, highest: float) -> float:
    """theta >= 0 for which the tilted mean is close to epsilon (any theta is valid)."""
    if mean(0.0) >= epsilon:
        return 0.0
    high = min(1.0, highest)
    while mean(high) < epsilon:
        if high == highest:
            return highest
        high = min(2 * high, highest)
    return float(brentq(lambda t: mean(t) - epsilon, 0.0, high, rtol=1e-2))


def _laplace_losses(epsilon: float, step: float) -> tuple[int, Vector]:
    """Privacy loss of one Laplace update on a grid: (index of the first cell, probabilities).

    delta(t) = 1 - e^((t - epsilon)/2) for |t| <= epsilon. The discrete law has the same delta
    at the grid points and, between them, the chord in e^t, which lies above the convex
    curve: it dominates the true law ("connect the dots", Doroshenko et al., 2022). These are
    its second differences in closed form. A loss and its opposite have the ratio e^loss.
    """
    cells = math.floor(epsilon / step * (1 + 1e-12))
    rest = max(0.0, epsilon - cells * step)
    beyond = -math.expm1(-rest / 2)  # delta at the last grid point within epsilon
    index = np.arange(1, cells + 2)
    upper = math.tanh(step / 4) * np.exp((index * step - epsilon) / 2)
    if cells:
        upper[-2] = math.exp(-rest / 2) / (1 + math.exp(-step / 2))
        upper[-2] -= beyond * math.exp(-step) / -math.expm1(-step)
    upper[-1] = beyond / -math.expm1(-step)
    lower = np.exp(-index * step) * upper
    middle = math.tanh(step / 4) * math.exp(-epsilon / 2) if cells else 1 - upper[0] - lower[0]
    return -cells - 1, np.concatenate([lower[::-1], [middle], upper])


_GAUSSIAN_TAIL = 1e-315  # Phi(-38) = 2.9e-316


def _gaussian_losses(mu: float, step: float) -> tuple[int, Vector]:
    """Privacy loss N(mu^2/2, mu^2) of one Gaussian update, each loss rounded up to the grid."""
    first = math.floor((mu / 2 - 38) * mu / step)
    last = math.ceil((mu / 2 + 38) * mu / step)
    edge = step * np.arange(first - 1, last + 1) / mu - mu / 2
    below, above = ndtr(edge), ndtr(-edge)
    mass = np.where(edge[1:] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    mass[0] = below[1]
    return first, mass
