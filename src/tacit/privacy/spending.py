"""What runs cost an agent: limits, the terms it agreed to, and the exact total of its charges."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tacit.privacy.accounting import Guarantee, delta_of, epsilon_of, gaussian_epsilon
from tacit.privacy.mechanisms import Gaussian, Laplace, Mechanism, mechanism_from
from tacit.reading import typed


class Limit(NamedTuple):
    """What an agent may spend in all, from the time ``when`` (UTC) on."""

    when: str
    epsilon: float
    delta: float


def changed(before: Limit, now: Limit) -> str:
    """In words: more of either number is a raise."""
    if (more := now.epsilon > before.epsilon or now.delta > before.delta) == (
        now.epsilon < before.epsilon or now.delta < before.delta
    ):
        return "changed"
    return "raised" if more else "lowered"


@dataclass(frozen=True)
class Terms:
    """What an agent agrees to at the start of a run."""

    agent: str
    mechanism: Mechanism
    rounds: int
    local_updates: int
    distance: float  # of one update of discrete noise from continuous, see secure_noise.py
    noise: str  # "secure" or "seeded"
    neighbours: str  # what is hidden; totals make sense only if it is the same in all runs
    settings: str  # digest of all that is public in the run

    def release(self, n: int) -> str:
        """The run's name of the n-th release on these terms: one for every state of the data."""
        return f"release-{self.settings[:12]}-{n}"

    def released_as(self, run: str) -> bool:
        """Whether a run is a release: one reading of the data, and no rounds."""
        return self.rounds == 1 and run.startswith(self.release(0)[:-1])

    def to_json(self) -> str:
        data = {**asdict(self), "mechanism": self.mechanism.to_dict()}
        data["slack"] = data.pop("distance")  # as ledgers have always had it
        return canonical(data)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        data = json.loads(text)
        data["distance"] = data.pop("slack")
        return typed(cls(**{**data, "mechanism": mechanism_from(data["mechanism"])}))


class Spend:
    """Charges so far, merged: as many numbers as there are different mechanisms and distances."""

    def __init__(self, updates: Counter[tuple[Mechanism, float]] | None = None) -> None:
        self.updates = updates or Counter()

    def plus(self, terms: Terms, updates: int) -> Spend:
        return Spend(self.updates + Counter({(terms.mechanism, terms.distance): updates}))

    @property
    def parts(self) -> list[tuple[Mechanism, int]]:
        return [(mechanism, n) for (mechanism, _), n in self.updates.items()]

    @property
    def distance(self) -> float:
        return math.fsum(distance * n for (_, distance), n in self.updates.items())

    @property
    def slow(self) -> bool:
        """Whether the exact total takes more than a formula."""
        return any(isinstance(mechanism, Laplace) for mechanism, _ in self.parts)

    def within(self, budget: Guarantee) -> bool:
        if self.updates and budget.delta > 0:  # one formula; too strict for some discrete noise
            if delta_of(self.parts, budget.epsilon, self.distance) <= budget.delta:
                return True
            if self.distance == 0:
                return False
        return self.epsilon(budget.delta) <= budget.epsilon

    def room(self, budget: Guarantee) -> float | None:
        """The epsilon, at the budget's delta, of the largest further Gaussian run that fits.

        None where that takes more than a formula.
        """
        if self.slow or budget.delta == 0:
            return None
        square = sum(n / m.noise_multiplier**2 for m, n in self.parts if isinstance(m, Gaussian))
        most = Gaussian.analytic(budget.epsilon, budget.delta).noise_multiplier ** -2
        left = math.sqrt(max(0.0, most - square)) * (1 - 1e-6)
        return gaussian_epsilon(left, budget.delta) if left > 0 else 0.0

    def epsilon(self, delta: float) -> float:
        if not self.updates:
            return 0.0
        if delta == 0 and not all(isinstance(m, Laplace) for m, _ in self.parts):
            return math.inf
        return epsilon_of(self.parts, delta, self.distance)


def most_updates(spend: Spend, terms: Terms, budget: Guarantee) -> int:
    """The largest number of updates on these terms, up to a whole run more, that fits."""
    before = spend.updates[terms.mechanism, terms.distance]
    low, high = 0, terms.rounds * terms.local_updates
    if spend.plus(terms, high).within(budget):
        return before + high
    while high - low > 1:
        middle = (low + high) // 2
        fits = spend.plus(terms, middle).within(budget)
        low, high = (middle, high) if fits else (low, middle)
    return before + low


def canonical(data: Any) -> str:
    """JSON that is the same for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
