"""What an agent computes with: its sensitivity, the limits of its points, where it starts.

All of it is public but the objective inside, and the same for one agent and for a batch of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit._types import Array
from tacit.admm.algorithm import Limits, Local
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms import Noiseless
from tacit.sets import Box
from tacit.sets.feasible_set import require_64_bits


def start_point(problem: LocalProblem) -> Array:
    """z^1: the feasible point nearest to the origin. Public, as the set is."""
    return np.asarray(problem.feasible_set.project(np.zeros(problem.dimension, problem.dtype)))


def certified_sensitivity(problem: LocalProblem, settings: Settings) -> float:
    """Δ of what receives the noise: the statistic (objective) or, shaped later, the gradient.

    Plain output noise leaves the set, and the next gradient is taken there, so Δ must then hold
    at every point; its rounding is bounded up to ``farthest``, beyond which a round fails. For L1
    noise on the output of a set that is not separable, the bound in ``output_noise_shape`` is in
    terms of Δ_2.
    """
    mechanism, feasible_set = settings.mechanism, problem.feasible_set
    if isinstance(mechanism, Noiseless) or settings.calibration != "certified":
        return 0.0
    if settings.perturbation == "objective":
        return problem.objective.sensitivity(mechanism.norm, feasible_set)
    norm = mechanism.norm if feasible_set.separable else 2
    if settings.perturbation == "projected-output":
        return problem.objective.output_sensitivity(norm, feasible_set)
    everywhere = Box(-math.inf, math.inf, size=problem.dimension)
    Δ = problem.objective.output_sensitivity(norm, everywhere)
    if not math.isfinite(Δ):
        raise InvalidInput(
            f"Expected an objective whose gradient changes by a bounded amount at every point for "
            f"perturbation='output'; that of {type(problem.objective).__name__} is bounded only "
            "inside the feasible set. Use 'objective' or 'projected-output'. Nothing was released."
        )
    if problem.objective.everywhere:
        return Δ
    most = farthest(problem)
    return problem.objective.output_sensitivity(norm, Box(-most, most, size=problem.dimension))


def farthest(problem: LocalProblem) -> float:
    """The largest coordinate of a point outside of the set at which an agent computes."""
    return 2.0**10 * (1 + problem.feasible_set.reach(math.inf))


def limits(problem: LocalProblem, settings: Settings, dtype: Any) -> Limits:
    """Where this agent computes and what it releases: see ``algorithm.admitted``."""
    f, W = problem.objective, problem.feasible_set
    violation, two, infinity = W.tolerance(dtype), math.inf, math.inf
    if settings.perturbation == "output":
        violation = math.inf
        infinity = math.inf if f.everywhere else farthest(problem)
    elif not f.everywhere:
        two, infinity = W.reach(2), W.reach(math.inf)
    return Limits(*map(np.float64, (violation, two, infinity)))


def local_side(problem: LocalProblem, settings: Settings, key: Array, dtype: Any) -> Local:
    """What this agent brings to every round, computing in ``dtype``."""
    require_64_bits()
    exact = certified_sensitivity(problem, settings)
    # never less noise than was certified, also after the scale is rounded
    Δ = dtype.type(exact * (1 + 2 * float(np.finfo(dtype).eps)))
    if exact and dtype == np.float32 and not 1e-30 < float(settings.mechanism.scale(exact)) < 1e30:
        raise InvalidInput(
            "Expected noise of scale between 1e-30 and 1e30 for float32 data, got "
            f"{float(settings.mechanism.scale(exact)):g}: give float64. Nothing was released."
        )
    coupled = problem.coupled.astype(dtype)
    f, W = problem.objective, problem.feasible_set.in_format(dtype)
    return Local(f, W, coupled, Δ, settings.mechanism, key, limits(problem, settings, dtype))
