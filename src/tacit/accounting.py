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
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr

from tacit.errors import InvalidInput, choice, count, non_negative, positive, probability
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
    """A pair (epsilon, delta). In words, ``str`` rounds both up to four digits."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        up = Context(prec=4, rounding=ROUND_CEILING)
        epsilon, delta = (
            f"{+up.create_decimal(Decimal(x)).normalize():g}" if math.isfinite(x) else "infinity"
            for x in (self.epsilon, self.delta)
        )
        return f"epsilon <= {epsilon}, delta <= {delta}"


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
    if spend.log_delta(0.0) <= math.log(delta):
        return 0.0
    if spend.log_delta(highest) > math.log(delta):  # the grid is coarser than this bound
        return highest
    excess = lambda epsilon: spend.log_delta(epsilon) - math.log(delta)  # noqa: E731
    return min(highest, root_rounded_up(excess, 0.0, highest))


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


def calibrate(name: str, total_epsilon: float, total_delta: float, updates: int) -> Mechanism:
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
        multiplier = _laplace_multiplier(total_epsilon, probability("total_delta", total_delta), updates)
    kind = Gaussian if name == "gaussian" else Laplace
    step = 1e-15
    while exact(kind(multiplier), updates, total_delta).epsilon > total_epsilon:
        multiplier, step = multiplier * (1 + step), step * 2
    return kind(multiplier)
