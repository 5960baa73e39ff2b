"""Algorithm 1 and those who run it.

problem         agents, what each holds, and which coordinates they share
settings        rounds, schedules, mechanism: all that is public in a run
schedules       penalties and step sizes
algorithm       Algorithm 1 of the paper, once, in its letters
agent           the only place where private data are read: one message in, one reply out
statement       what a run promises, in numbers and in words
result          what a run leaves behind, and its files
checkpoint      a run that can be continued, bit for bit
data_digest     whether a continued run has the same problem
theory          the bounds of Section 5 as numbers
"""

from tacit.admm.agent import Agent, Broadcast, Reply
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.result import Progress, Result
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
    "Agent",
    "Broadcast",
    "ConstantPenalty",
    "ConstantStep",
    "DynamicPenalty",
    "GeometricPenalty",
    "GeometricStep",
    "LocalProblem",
    "NonsmoothStep",
    "Problem",
    "Progress",
    "Reply",
    "Result",
    "Settings",
    "SmoothStep",
    "StronglyConvexStep",
]
