"""What a number of noisy updates costs: mechanisms -> (epsilon, delta).

    basic      sums budgets; true for every mechanism, loose
    paper      the composition theorem of Section 4.3; kept for comparison, no guarantee
    exact      what a run really costs, for one mechanism
    compose    the same for several mechanisms in sequence
    calibrate  the other way round: the least noise that keeps a run within a total budget

Gaussian totals are a closed form. Laplace totals and mixtures are privacy loss distributions of
Google's ``dp_accounting``. Numbers are rounded up, so that a statement is never too strong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import lru_cache, reduce
from typing import Any

from tacit.errors import (
    DERIVED,
    EPSILONS,
    NOT_DONE,
    InvalidInput,
    choice,
    count,
    non_negative,
    positive,
    probability,
)
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noiseless,
    gaussian_delta,
    gaussian_epsilon,
)

Parts = Sequence[tuple[Mechanism, int]]

# The grid of a privacy loss distribution: cells per Laplace epsilon, and when there is none
CELLS, CELLS_OF_ONE_UPDATE = 64, 1000
COARSE_CELLS, COARSE_FROM_UPDATES = 16, 10_000
LARGEST_GRID = 2_000_000  # cells; a coarser grid beyond that is still a bound, only looser
MOST_GRID_UPDATES = 100_000
LARGEST_GRID_EPSILON = 300.0  # of one Laplace update; beyond, e^epsilon would overflow
TRANSFORM_ERROR = 2e-11  # more than the rounding of the library's Fourier transforms, in delta
EPSILON_PER_DISTANCE = 320.0  # what discrete noise costs, see secure_noise.py


@dataclass(frozen=True)
class Guarantee:
    """A pair (epsilon, delta). As text, both are rounded up to five digits."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"epsilon <= {rounded_up(self.epsilon)}, delta <= {rounded_up(self.delta)}"


def rounded_up(value: float, digits: int = 5) -> str:
    """A number as text that is never smaller than the number (but for rounding at 1e-12)."""
    up = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(up.create_decimal(repr(float(value) * (1 - 1e-12)))):.{digits}g}"


def rounded_down(value: float, digits: int = 3) -> str:
    """A number as text that is never larger: of what is left."""
    down = Context(prec=digits, rounding=ROUND_FLOOR)
    return f"{float(down.create_decimal(repr(float(value)))):.{digits}g}"


def basic(epsilon: float, delta: float, updates: int) -> Guarantee:
    """Basic composition: ``updates`` times (epsilon, delta) (Section 4.3).

    Returns the total. Raises ``InvalidInput`` for numbers out of range.

    Guarantee: true for every mechanism if each update is (epsilon, delta)-private.
    """
    updates = count("updates", updates)
    delta = 0.0 if delta == 0 else probability("delta", delta)
    return Guarantee(updates * positive("epsilon", epsilon, EPSILONS), min(1.0, updates * delta))


def paper(epsilon: float, delta: float, updates: int) -> Guarantee:
    """The paper's total for Gaussian noise (Section 4.3, the composition theorem).

    sqrt(TE ln(1/delta) / ln(1.25/delta)) epsilon at the same delta, TE = ``updates``.

    Returns what the paper says. Raises ``InvalidInput`` for numbers out of range.

    Guarantee: none. The proof bounds epsilon' from below, and the exact total of
    ``Gaussian.classical(epsilon, delta)`` can be several times larger.
    """
    epsilon, delta = positive("epsilon", epsilon, EPSILONS), probability("delta", delta)
    ratio = math.log(1 / delta) / math.log(1.25 / delta)
    return Guarantee(math.sqrt(count("updates", updates) * ratio) * epsilon, delta)


def exact(mechanism: Mechanism, updates: int, delta: float) -> Guarantee:
    """The smallest epsilon, at ``delta``, of ``updates`` adaptive uses of one mechanism.

    Gaussian: closed form, mu = sqrt(updates) / noise_multiplier. Laplace: privacy loss
    distribution, within 0.1 % of the smallest epsilon for delta >= 1e-9. Below 1e-10, where the
    transforms' rounding would show, and beyond 100,000 updates, where they would take minutes, a
    Renyi bound, mostly up to 10 % larger (twice as large where epsilon is far below 0.1).
    ``delta = 0``, or more than 300 for one update, gives the pure epsilon.

    Guarantee: never below the smallest epsilon that is true for every pair of neighbours
    within the sensitivity (Laplace: up to TRANSFORM_ERROR, an estimate of the library's rounding);
    attained by the worst pair. Infinite for ``Noiseless``.
    """
    return compose([(mechanism, updates)], delta)


def compose(parts: Parts, delta: float) -> Guarantee:
    """The same for several mechanisms in sequence, each with its number of updates.

    parts   (mechanism, updates) pairs, in any order
    delta   at which epsilon is stated

    Returns the total. Raises ``InvalidInput`` for numbers out of range.
    """
    return Guarantee(epsilon_of(parts, delta), float(delta))


def epsilon_of(parts: Parts, delta: float, distance: float = 0.0) -> float:
    """The smallest epsilon at ``delta`` of mechanisms in sequence, rounded up.

    ``distance``: of discrete noise from rounded continuous noise, all updates together (the
    guarantee in ``secure_noise.py``). A pure epsilon (``delta = 0``) does not depend on it.
    """
    epsilon = _epsilon_of(parts, delta)
    if distance == 0 or delta == 0:
        return epsilon
    while math.isfinite(epsilon):
        room = delta - _lost(distance, epsilon + 0.1)
        larger = _epsilon_of(parts, room) if room > 0 else math.inf
        if larger <= epsilon + 0.1:
            return larger + EPSILON_PER_DISTANCE * distance
        epsilon = larger
    return epsilon


def _lost(distance: float, epsilon: float) -> float:
    return distance * (1 + math.exp(min(epsilon, 700.0) - 42))


def _epsilon_of(parts: Parts, delta: float) -> float:
    total = _total(parts)
    if delta == 0 and total.mu == 0:
        return total.pure
    delta = probability("delta", delta)
    if not math.isfinite(total.pure):
        return math.inf
    if not total.laplace:
        return gaussian_epsilon(total.mu, delta)
    highest = total.pure + (gaussian_epsilon(total.mu, delta) if total.mu else 0.0)
    if total.widest > LARGEST_GRID_EPSILON:
        return highest
    if delta < 5 * TRANSFORM_ERROR or total.updates > MOST_GRID_UPDATES:
        return min(highest, float(total.renyi().get_epsilon(delta)))
    return min(highest, _grid_epsilon(total, delta - TRANSFORM_ERROR))


@lru_cache(maxsize=1024)
def _grid_epsilon(total: _Total, delta: float) -> float:
    """Kept: a grid takes milliseconds to seconds, and plans and ledgers ask for the same again."""
    return float(total.losses().get_epsilon_for_delta(delta))


def delta_of(parts: Parts, epsilon: float, distance: float = 0.0) -> float:
    """The smallest delta at ``epsilon`` of mechanisms in sequence, rounded up."""
    epsilon = non_negative("epsilon", epsilon, DERIVED)
    if distance == 0:
        return _delta_of(parts, epsilon)
    if (before := epsilon - EPSILON_PER_DISTANCE * distance) < 0:
        return 1.0
    return min(1.0, _delta_of(parts, before) + _lost(distance, before))


def _delta_of(parts: Parts, epsilon: float) -> float:
    total = _total(parts)
    if not math.isfinite(total.pure):
        return 1.0
    if not total.laplace:
        return gaussian_delta(total.mu, epsilon)
    if total.mu == 0 and epsilon >= total.pure:
        return 0.0
    if total.widest > LARGEST_GRID_EPSILON:
        return 1.0
    if total.updates > MOST_GRID_UPDATES:
        return min(1.0, float(total.renyi().get_delta(epsilon)))
    delta = float(total.losses().get_delta_for_epsilon(epsilon)) + TRANSFORM_ERROR / 2
    if delta < 5 * TRANSFORM_ERROR:
        delta = min(delta, float(total.renyi().get_delta(epsilon)))
    return min(1.0, delta)


def calibrate(
    name: str, total_epsilon: float, total_delta: float, updates: int
) -> Gaussian | Laplace:
    """The mechanism with the least noise whose ``updates`` uses stay within a total budget.

    name                        "gaussian" or "laplace"
    total_epsilon, total_delta  the budget; Laplace noise also accepts ``total_delta = 0``
    updates                     how often it is used, local updates counted one by one

    Returns the mechanism. Raises ``InvalidInput`` where no noise fits the budget.

    Guarantee: ``exact(mechanism, updates, total_delta).epsilon`` is at most ``total_epsilon``
    and at least 99.9 % of it.
    """
    choice("mechanism name", name, ("gaussian", "laplace"))
    total_epsilon = positive("total_epsilon", total_epsilon, EPSILONS)
    updates = count("updates", updates)
    if name == "laplace" and total_delta != 0:
        total_delta = probability("total_delta", total_delta)
        return Laplace(_laplace_multiplier(total_epsilon, total_delta, updates))
    if name == "laplace":
        kind: type[Gaussian | Laplace] = Laplace
        multiplier = updates / total_epsilon
    else:
        kind = Gaussian
        multiplier = Gaussian.analytic(total_epsilon, total_delta).noise_multiplier
        multiplier *= math.sqrt(updates)
    step = 1e-15
    while exact(kind(multiplier), updates, total_delta).epsilon > total_epsilon:
        multiplier, step = multiplier * (1 + step), step * 2
    return kind(multiplier)


def _laplace_multiplier(epsilon: float, delta: float, updates: int) -> float:
    """A Laplace multiplier that spends between 99.9 % and 100 % of the budget, by bisection."""

    def spent(multiplier: float) -> float:
        return exact(Laplace(multiplier), updates, delta).epsilon / epsilon

    high = updates / epsilon * (1 + 1e-12)  # pure: spends at most everything
    # A Laplace update loses about as much as a Gaussian one of the same multiplier.
    low = min(high, Gaussian.analytic(epsilon, delta).noise_multiplier * math.sqrt(updates))
    ratio = 1.01
    while spent(low) <= 1:
        low, ratio = low / ratio, ratio**2
    ratio = 1.01
    while low * ratio < high and spent(low * ratio) > 1:
        low, ratio = low * ratio, ratio**2
    high = min(high, low * ratio)
    while (used := spent(high)) < 0.9991:
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (middle, high) if spent(middle) > 1 else (low, middle)
    assert used <= 1
    return high


@dataclass(frozen=True)
class _Total:
    """One Gaussian update of shift ``mu`` and Laplace updates, as (epsilon, updates) pairs."""

    mu: float
    laplace: tuple[tuple[float, int], ...]
    pure: float

    @property
    def widest(self) -> float:
        """The largest Laplace epsilon of one update."""
        return max(epsilon for epsilon, _ in self.laplace)

    @property
    def updates(self) -> int:
        """Of Laplace noise."""
        return sum(n for _, n in self.laplace)

    def losses(self) -> Any:
        """The privacy loss distribution of the whole, on a grid that dominates the true one."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        # the error of one cell shrinks against the total like 1/sqrt(updates)
        least = CELLS if self.updates <= COARSE_FROM_UPDATES else COARSE_CELLS
        cell = min(e / max(least, CELLS_OF_ONE_UPDATE / math.sqrt(n)) for e, n in self.laplace)
        widest = self.widest
        if self.mu:
            cell = min(cell, self.mu / CELLS)
            widest = max(widest, self.mu * (self.mu / 2 + 9))
        cell = max(cell, widest / LARGEST_GRID)
        grid = {"value_discretization_interval": cell}
        parts = [
            pld.from_laplace_mechanism(1 / epsilon, **grid).self_compose(n)
            for epsilon, n in self.laplace
        ]
        if self.mu:
            parts.append(pld.from_gaussian_mechanism(1 / self.mu, **grid))
        return reduce(lambda one, other: one.compose(other), parts)

    def renyi(self) -> Any:
        """The Renyi accountant, a looser bound that is sound for every delta."""
        import dp_accounting

        accountant = dp_accounting.rdp.RdpAccountant()
        for epsilon, n in self.laplace:
            accountant.compose(Laplace(1 / epsilon).event(n))
        if self.mu:
            accountant.compose(Gaussian(1 / self.mu).event(1))
        return accountant


def _total(parts: Parts) -> _Total:
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
    return _Total(mu, tuple(sorted(laplace.items())), pure if private else math.inf)
