"""Where the penalties of exact steps start, from public numbers."""

from __future__ import annotations

import math

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.objectives.public import PublicObjective


def starting_penalties(problem: Problem) -> tuple[Vector, Vector]:
    """ρ of every global coordinate, and its group: the problem's own, or of one group for all.

    Without own ones ρ is 0.3 times the mean curvature of the public copies, from trials on random
    quadratics. Runs adapt it.
    """
    if problem.penalties is not None:
        return problem.penalties
    curvatures = [
        f.mean_curvature for a in problem.agents if isinstance(f := a.objective, PublicObjective)
    ]
    mean = float(np.mean([c for c in curvatures if math.isfinite(c)] or [1.0]))
    return np.full(problem.size, 0.3 * mean if mean > 0 else 1.0), np.zeros(problem.size, np.int64)
