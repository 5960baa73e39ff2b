"""Rounds with noise for losses of bounded slope: Huber, quantiles, hinge. From public numbers only.

As in ``plan.py``: with U updates of step s on P agents, each with noise of deviation σ on its
gradient, scores x'z (‖x‖₂ ≤ B) carry noise of deviation B s σ √(U/P). The path sU is the one on
which that is ``deviation``, or LONGEST/L if that is shorter; where it is shorter than SHORT/L there
is little to learn on it, and it is made shorter still, for less noise. It is cut into steps of at
most STEP/L where UPDATES allow it. L = c·B²M/N bounds the curvature of an agent's objective, c that
of the loss; a loss with kinks has none, and c is what it has if a kink is rounded off over the unit
of scores that matters.

The numbers come from trials on three quarters of the training parts of the five tables of
``benchmarks/regression_tables.py``, judged by the rest, 120 records to all, ε from 0.05 to 2.
"""

from __future__ import annotations

import math
from typing import Any

from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.learn.plan import with_schedules
from tacit.privacy.mechanisms import Noiseless

LONGEST = 2000.0  # path, in units of 1/L
SHORT = 10.0  # path, in the same units
STEP = 2.0  # first step, in units of 1/L
UPDATES = (100, 1000)  # least and most
LOCAL = 1  # local updates of a round
NOISELESS = 1000  # rounds without noise


def noisy_rounds(
    problem: Problem,
    curvature: float,
    deviation: float,
    total_epsilon: float | None,
    total_delta: float,
    *,
    rounds: int | None = None,
    local_updates: int | None = None,
    mechanism: str = "gaussian",
) -> Settings:
    """Settings for a budget; None: without noise. What is given is kept."""
    largest = max(problem.agents, key=lambda a: float(a.objective.most_records))  # type: ignore[attr-defined]
    f: Any = largest.objective
    B = f.feature_bound(2)
    L = curvature * B**2 * f.most_records / f.normaliser
    E = LOCAL if local_updates is None else local_updates
    if total_epsilon is None:
        T = math.ceil(NOISELESS / E) if rounds is None else rounds
        return with_schedules(Settings(T, E, Noiseless()), STEP / L)
    epsilon: float = total_epsilon

    def budget(updates: int) -> Settings:
        T = max(1, math.ceil(updates / E)) if rounds is None else rounds
        return Settings.for_budget(epsilon, total_delta, T, E, mechanism)

    def path(settings: Settings) -> float:
        Δ = f.sensitivity(settings.mechanism.norm, largest.feasible_set)
        σ = math.sqrt(settings.mechanism.variance(Δ))
        free = L * deviation * math.sqrt(settings.updates * len(problem.agents)) / (B * σ)
        return float(min(free, free**2 / SHORT, LONGEST))

    wanted = math.ceil(path(budget(UPDATES[1])) / STEP)
    settings = budget(min(max(wanted, UPDATES[0]), UPDATES[1]))
    step = min(path(settings) / settings.updates, STEP) / L
    return with_schedules(settings, step)
