"""What agents release before a run: noisy sums of rows, out of the same budget.

    rows of every agent ─▶ Σ x_i + noise     once (``Sums``): a mean, or shares of bins
    budget              ─▶ the noise of a share of it, and the ε that is left (``shared``)

Guarantee: a row is made of one record and of public numbers, and its length is at most a public B,
so that Δ = B (``Mean``). The sums are released by ``release.py``: paid in the agents' ledgers, with
secure noise where that is asked for. What follows depends on them: adaptive composition, and
``statement.with_releases`` states the total of all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput, probability
from tacit.objectives.moments import Mean
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noiseless,
    check_parties,
    gaussian_epsilon,
)
from tacit.sets import Box
from tacit.transports.solving import read

# relative: the noise of the mean is larger by it, and what is left for a run with secure noise is
# smaller, which pays for that noise's distance (``secure_noise.py``)
ROOM, SECURE_ROOM = 1e-6, 1e-4


@dataclass(frozen=True)
class Sums:
    """Whose each record is, and how agents release noisy sums of rows that are made of them.

    ``how``: the seed, noise, ledgers, aggregation and colluding of ``solve``. Asked again for the
    same data and budget, an agent with a ledger gives what it has given, and so does a checkpoint,
    which keeps the sums; a secure sum is kept by its checkpoint alone.
    """

    names: Vector
    owner: Vector
    neighbours: str = "zero-out"
    delta: float = 0.0
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parties(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> dict[str, float]:
        """Of all records, and of the largest agent's: public."""
        return sizes(self.owner)

    def parts(
        self, rows: Vector, B: float, B1: float | None = None, asked: str = ""
    ) -> list[LocalProblem]:
        """The agents, each with the mean of its rows, no longer than B, or B1 in L1."""
        public: Any = {"feature_norm": B, "feature_norm_1": B1, "neighbours": self.neighbours}
        public |= self.sizes
        box = Box(-B, B, size=rows.shape[1])
        return [
            LocalProblem(Mean(rows[self.owner == p], **public), box, None, str(name), asked)
            for p, name in enumerate(self.names)
        ]

    def deviation(self, parts: list[LocalProblem], mechanism: Mechanism) -> float:
        """Of the noise in the mean of all rows: from public numbers."""
        if isinstance(mechanism, Noiseless):
            return 0.0
        f: Any = parts[0].objective
        each = mechanism.variance(f.statistics().sensitivity(mechanism.norm))
        summed = noises_of(self.parties, self.how.get("aggregation"), self.how.get("colluding"))
        return math.sqrt(each * summed) / float(f.normaliser)

    def mean(self, parts: list[LocalProblem], mechanism: Mechanism, run: str, **how: Any) -> Vector:
        """Of all agents' rows, from one noisy sum of each: public from here on. Ledgers are to pay
        for what comes ``then`` too; seeded noise differs with the name of a ``run``."""
        if isinstance(mechanism, Noiseless):
            sums: Any = [agent.objective.statistics().values for agent in parts]
        else:
            found = read(Problem(parts), mechanism, self.delta, run=run, **how, **self.how)
            sums = [release.values for release in found.releases]
        total: Vector = np.sum(sums, axis=0) / len(self.owner)
        return total


def sizes(owner: Vector) -> dict[str, float]:
    """Of all records, and of the largest agent's: public."""
    return {"normaliser": float(len(owner)), "record_bound": float(np.bincount(owner).max())}


def noises_of(parties: int, aggregation: str | None, colluding: int | None) -> float:
    """How many agents' noise what all release adds up to."""
    if aggregation is None:
        return parties
    return parties / (parties - check_parties(parties, colluding))


def shared(
    mechanism: str, total_epsilon: float, total_delta: float, share: float, secure: bool = False
) -> tuple[Mechanism, float]:
    """The noise of a release that takes a share of a budget, and the ε that is left at the same δ.

    Gaussian: a share of μ², as squares of shifts add up. Laplace: a share of ε.

    Guarantee: the release, and a run that costs at most (ε left, δ), cost at most the total.
    """
    probability("centring_share", share)
    rest = 1 - (SECURE_ROOM if secure and total_delta > 0 else 1e-12)  # sums are rounded up
    if mechanism != "gaussian":
        pure = calibrate(mechanism, share * total_epsilon, 0.0, 1)
        return pure, (1 - share) * total_epsilon * rest
    μ = 1 / calibrate(mechanism, total_epsilon, total_delta, 1).noise_multiplier
    left = gaussian_epsilon(μ * math.sqrt(1 - share), total_delta) * rest
    if left <= 0:  # δ alone would pay for the run; no noise is calibrated to that
        raise InvalidInput(
            f"Expected a smaller centring_share, or a smaller delta, got centring_share={share}: "
            f"of epsilon {total_epsilon:g} at delta {total_delta:g} nothing would be left for the "
            "run. Nothing was fit."
        )
    return Gaussian((1 + ROOM) / (μ * math.sqrt(share))), left


def together(*parts: tuple[Mechanism, int]) -> tuple[Mechanism, int]:
    """One mechanism that costs what these do, each with its count: μ² adds up, and pure ε does."""
    noisy = [(m, n) for m, n in parts if n and not isinstance(m, Noiseless)]
    if all(isinstance(m, Gaussian) for m, _ in noisy) and noisy:
        square = math.fsum(n / m.noise_multiplier**2 for m, n in noisy)  # type: ignore[attr-defined]
        return Gaussian(1 / math.sqrt(square)), 1
    if noisy:
        total = math.fsum(n / m.noise_multiplier for m, n in noisy)  # type: ignore[attr-defined]
        return Laplace(1 / total), 1
    return Noiseless(), 1
