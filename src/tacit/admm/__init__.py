"""Algorithm 1 and those who run it.

problem         agents, what each holds, and which coordinates they share
settings        rounds, schedules, mechanism: all that is public in a run
schedules       penalties and step sizes
once_or_rounds  whether one release beats noise in every round, from public numbers
algorithm       Algorithm 1 of the paper, once, in its letters
fixed_point     the same with exact local steps, as one map that server and agents follow
acceleration    what a server chooses there: mixing, penalties, when to stop
wire            messages as bytes: one encoding for each
messages        broadcast, reply and refusal
facts           what a server knows of an agent: sizes and bounds
agent           where private data meet a message, in every round: one in, one reply out
local_side      what an agent computes with: sensitivity, limits of its points, start
server          the server: names, couplings, settings, replies, and an engine
release         one noisy reading of an agent's data, paid for once and kept
released        a problem of public copies, which costs nothing more to solve
plan            how to spend a budget: read once, or noise in every round
descent         rounds, steps and penalty of noisy descent
public_agent    an agent of a released problem: exact steps on a public copy
exact_server    the server of a released problem: acceleration, and an end at a tolerance
penalties       where penalties start
keys            where noise comes from, and keys of seeded noise
statement       what a run promises, in numbers and in words
result          what a run leaves behind, and its files
jupyter         a result and a statement as a notebook shows them
checkpoint      a run that can be continued, bit for bit
data_digest     whether a continued run has the same problem
theory          the bounds of Section 5 as numbers
"""

from tacit.admm.agent import Agent
from tacit.admm.messages import Broadcast, Refusal, Reply
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.released import Released
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
from tacit.admm.server import Engine, Member, Server
from tacit.admm.settings import Settings

__all__ = [
    "Agent",
    "Broadcast",
    "ConstantPenalty",
    "ConstantStep",
    "DynamicPenalty",
    "Engine",
    "GeometricPenalty",
    "GeometricStep",
    "LocalProblem",
    "Member",
    "NonsmoothStep",
    "Problem",
    "Progress",
    "Refusal",
    "Released",
    "Reply",
    "Result",
    "Server",
    "Settings",
    "SmoothStep",
    "StronglyConvexStep",
]
