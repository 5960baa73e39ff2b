"""Algorithm 1: pure mathematics, and the public numbers of a run.

problem         agents, what each holds, and which coordinates they share
settings        rounds, schedules, mechanism: all that is public in a run, and what is asked of it
algorithm       Algorithm 1 of the paper, once, in its letters; what an agent computes with
adaptive        steps for losses that nobody planned for: what they follow from, all of it public
fixed_point     the same with exact local steps: one map that server and agents follow, accelerated
reference       the optimum without privacy of losses with no exact local step, in one place
theory          the bounds of Section 5 as numbers
"""

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import (
    ConstantPenalty,
    ConstantStep,
    DynamicPenalty,
    NonsmoothStep,
    Settings,
    SmoothStep,
    StronglyConvexStep,
)

__all__ = [
    "ConstantPenalty",
    "ConstantStep",
    "DynamicPenalty",
    "LocalProblem",
    "NonsmoothStep",
    "Problem",
    "Settings",
    "SmoothStep",
    "StronglyConvexStep",
]
