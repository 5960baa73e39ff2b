"""Rounds, local updates, step size and penalty for a private linear model, from public numbers.

The noise of a run adds up along its path. With U updates of step s on P agents, each with noise of
deviation σ on its gradient, the scores x'z (‖x‖₂ ≤ B) of the consensus carry noise of deviation

    B s σ √(U/P).

The longer the path sU, the nearer the optimum, and the more noise. The rule takes the path on which
that deviation is about SCORE_DEVIATION: larger where the budget, the records or the number of
agents allow it. With Gaussian noise it does not depend on how many updates the path is cut into (σ
grows as √U). So there are as many as keep the first step at STEP/L₀, within UPDATES; where those
are too few, steps grow to at most LARGEST/L₀. L₀ = c·B²M/N bounds the curvature of an agent's
objective at z = 0; c is 1/K for K classes and 1/4 for two; M is its number of records, N that of
all. A slope limit makes c smaller (``_curvature``). Steps beyond 2/L₀
were stable on all data tried, as L₀ takes all records for alike.

SCORE_DEVIATION, LONGEST, STEP and the form of the schedules come from trials on MNIST's training
images (50,000 to learn from, 10,000 to judge by), on a tenth of them, on scikit-learn's digits and
on FEMNIST, its writers pooled and shared out to ten agents.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tacit.admm.problem import Problem
from tacit.admm.schedules import ConstantPenalty, SmoothStep
from tacit.admm.settings import Settings
from tacit.errors import count
from tacit.learn.centring import SHARE
from tacit.objectives.slope_limits import logistic_curvature
from tacit.privacy.mechanisms import Noiseless

SCORE_DEVIATION = 3.5  # deviation of a score, were the steps all as long as the first
LONGEST = 8000.0  # path, in units of 1/L₀
STEP = 2.0  # first step, in units of 1/L₀
LARGEST = 8.0  # the same, where more updates would be needed
UPDATES = (50, 1000)  # least and most
LOCAL = 5  # local updates of a round
NOISELESS = 300  # rounds without noise
SLOPE_LIMIT = 0.15  # length of a softmax's slope, which is √2 at most


def planned_slope_limit(classes: int) -> float:
    """What one record may pull, in the units of a softmax's slope."""
    return SLOPE_LIMIT


def planned_share() -> float:
    """Of the budget, for the mean that rows are centred by."""
    return SHARE


def plan(
    problem: Problem,
    classes: int,
    total_epsilon: float,
    total_delta: float,
    *,
    rounds: int | None = None,
    local_updates: int | None = None,
    mechanism: str = "gaussian",
    **others: Any,
) -> Settings:
    """Settings for a budget; ``rounds`` and ``local_updates`` are kept where given.

    All that is read is public: sizes, bounds, the budget. So the choice costs no privacy.
    """
    agents = problem.agents
    largest = max(agents, key=lambda a: float(a.objective.most_records))  # type: ignore[attr-defined]
    f: Any = largest.objective
    B = f.feature_bound(2)
    curvature = _curvature(f, classes) * B**2 * f.most_records / f.normaliser
    E = LOCAL if local_updates is None else local_updates

    def budget(updates_wanted: int) -> Settings:
        T = max(1, math.ceil(updates_wanted / count("local_updates", E)))
        T = T if rounds is None else rounds
        return Settings.for_budget(total_epsilon, total_delta, T, E, mechanism, **others)

    def path(settings: Settings) -> float:
        Δ = f.sensitivity(settings.mechanism.norm, largest.feasible_set)
        σ = math.sqrt(settings.mechanism.variance(Δ))
        free = SCORE_DEVIATION * math.sqrt(settings.updates * len(agents)) / (B * σ)  # s·U
        return float(min(free * curvature, LONGEST))

    settings = budget(UPDATES[1])
    wanted = min(max(math.ceil(path(settings) / STEP), UPDATES[0]), UPDATES[1])
    settings = budget(wanted)
    step = min(path(settings) / settings.updates, LARGEST) / curvature
    return with_schedules(settings, step)


def _curvature(f: Any, classes: int) -> float:
    """c: of a record's loss in its scores at z = 0, times what a slope limit leaves of the slope.

    Two classes: a limited loss is a straight line there; the most that it has elsewhere.
    """
    limit = f.slope_limit
    if classes == 2:
        return 0.25 if limit is None else logistic_curvature(limit)
    shorter = 1.0 if limit is None else min(1.0, limit / math.sqrt(1 - 1 / classes))
    return shorter / classes


def with_schedules(settings: Settings, step: float) -> Settings:
    """A step that falls to a third, and a penalty of a fifth of the first proximal weight."""
    weight = 1 / (1.1 * step)
    growth = 2 * weight / math.sqrt(settings.rounds)
    return dataclasses.replace(
        settings,
        step_size=settings.step_size or SmoothStep(weight, growth),
        penalty=settings.penalty or ConstantPenalty(0.2 * weight),
    )


def without_noise(
    problem: Problem, classes: int, rounds: int | None, local_updates: int | None
) -> Settings:
    """Settings of a run that is not private: the same schedules with the longest path."""
    f: Any = problem.agents[0].objective
    share = max(a.objective.most_records for a in problem.agents) / f.normaliser  # type: ignore[attr-defined]
    curvature = _curvature(f, classes) * f.feature_bound(2) ** 2 * share
    T = NOISELESS if rounds is None else rounds
    E = LOCAL if local_updates is None else local_updates
    return with_schedules(Settings(T, E, Noiseless()), STEP / curvature)
