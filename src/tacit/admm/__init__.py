"""Algorithm 1: pure mathematics, and the public numbers of a run.

problem         agents, what each holds, and which coordinates they share
settings        rounds, schedules, mechanism: all that is public in a run
schedules       penalties and step sizes
once_or_rounds  whether one release beats noise in every round, from public numbers
algorithm       Algorithm 1 of the paper, once, in its letters
fixed_point     the same with exact local steps, as one map that server and agents follow
acceleration    what a server chooses there: mixing, penalties, when to stop
plan            how to spend a budget: read once, or noise in every round
descent         rounds, steps and penalty of noisy descent
penalties       where penalties start
local_side      what an agent computes with: sensitivity, limits of its points, start
theory          the bounds of Section 5 as numbers
"""

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import (
    ConstantPenalty,
    ConstantStep,
    DynamicPenalty,
    GeometricPenalty,
    GeometricStep,
    NonsmoothStep,
    SmoothStep,
    StronglyConvexStep,
)
from tacit.admm.settings import Settings

__all__ = [
    "ConstantPenalty",
    "ConstantStep",
    "DynamicPenalty",
    "GeometricPenalty",
    "GeometricStep",
    "LocalProblem",
    "NonsmoothStep",
    "Problem",
    "Settings",
    "SmoothStep",
    "StronglyConvexStep",
]
