"""Where the penalties of exact steps start, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.admm.schedules import ConstantPenalty
from tacit.admm.settings import Settings
from tacit.objectives.public import PublicObjective


def starting_penalties(problem: Problem) -> tuple[Vector, Vector]:
    """ρ of every global coordinate, and its group: the problem's own, or of one group for all.

    Without own ones ρ is 0.3 times the mean curvature of the public copies, from trials on random
    quadratics. Runs adapt it.
    """
    if problem.penalties is not None:
        return problem.penalties
    copies = [f for a in problem.agents if isinstance(f := a.objective, PublicObjective)]
    return penalties_from([f.mean_curvature for f in copies], problem.size)


def penalties_of(
    problem: Problem, settings: Settings, curvatures: Sequence[float]
) -> tuple[Vector, Vector]:
    """Where penalties start, and their groups; a given penalty is their geometric mean."""
    penalty, group = problem.penalties or penalties_from(curvatures, problem.size)
    if isinstance(settings.penalty, ConstantPenalty):
        penalty = penalty * (settings.penalty(1) / float(np.exp(np.log(penalty).mean())))
    return penalty, group


def penalties_from(curvatures: Sequence[float], size: int) -> tuple[Vector, Vector]:
    """ρ of ``size`` coordinates, and their one group, from the public copies' mean curvatures."""
    mean = float(np.mean([c for c in curvatures if math.isfinite(c)] or [1.0]))
    return np.full(size, 0.3 * mean if mean > 0 else 1.0), np.zeros(size, np.int64)
