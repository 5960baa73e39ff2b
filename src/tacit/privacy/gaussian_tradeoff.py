"""The exact trade-off of Gaussian noise: epsilon, delta and the shift mu, each from the others.

Telling N(0, 1) from N(mu, 1) is as hard as telling neighbours apart after an update of noise
multiplier 1/mu (Balle and Wang, 2018):

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

Every number is rounded up, so that a statement made from it is never too strong.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfcx, ndtr

from tacit.errors import DERIVED, EPSILONS, InvalidInput, non_negative, positive, probability


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` for telling N(0, 1) from N(mu, 1), rounded up.

    Guarantee: never below the true value, and above it by less than one part in a million for
    delta >= 1e-300 and 1e-6 <= mu.
    """
    mu, epsilon = positive("mu", mu, DERIVED), non_negative("epsilon", epsilon)
    return min(1.0, max(math.exp(_log_delta(mu, epsilon)), math.ulp(0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon at ``delta`` for telling N(0, 1) from N(mu, 1), rounded up."""
    mu, target = positive("mu", mu, DERIVED), math.log(probability("delta", delta)) - 1e-12
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    highest = mu * mu / 2 + mu * math.sqrt(-2 * target)  # the Chernoff bound
    return root_rounded_up(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, highest)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Smallest 1/mu with delta(epsilon) <= delta, rounded up (at most one part in a billion)."""
    epsilon, target = (
        positive("epsilon", epsilon, EPSILONS),
        math.log(probability("delta", delta)) - 1e-12,
    )
    low = high = 1.0
    while _log_delta(1 / high, epsilon) > target:
        high *= 2
    while _log_delta(1 / low, epsilon) <= target:
        low /= 2
    root = root_rounded_up(lambda m: _log_delta(1 / m, epsilon) - target, low, high)
    return root * (1 + 1e-12)  # so that accounting for it, which also rounds up, agrees


def _log_delta(mu: float, epsilon: float) -> float:
    """ln delta(epsilon), rounded up.

    e^epsilon phi(b) = phi(a) with a, b the two arguments of Phi, so that in terms of the Mills
    ratio Phi(-x)/phi(x) = sqrt(pi/2) erfcx(x/sqrt 2) nothing overflows and little cancels.
    """
    a = mu / 2 - epsilon / mu
    log_phi = -a * a / 2 - math.log(2 * math.pi) / 2
    second = math.sqrt(math.pi / 2) * float(erfcx((mu - a) / math.sqrt(2)))
    if a > 0:
        gap = float(ndtr(a)) * (1 + 1e-15) - math.exp(log_phi) * second
        return math.log(gap) + 1e-10
    first = math.sqrt(math.pi / 2) * float(erfcx(-a / math.sqrt(2)))
    return log_phi + math.log(first * (1 + 1e-15) - second) + 1e-10


def root_rounded_up(function: Callable[[float], float], low: float, high: float) -> float:
    """A point just above the root of a decreasing function, where it is <= 0."""
    from scipy.optimize import brentq  # takes as long to import as all else that accounts need

    if not function(low) > 0 >= function(high):
        raise InvalidInput(f"Expected the budget to be met between {low!r} and {high!r}.")
    root, step = float(brentq(function, low, high, xtol=1e-300, rtol=1e-14)), 1e-15
    while not function(root) <= 0:
        root, step = min(high, root * (1 + step)), step * 2
    return root
