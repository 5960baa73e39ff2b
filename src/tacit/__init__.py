"""Tacit: differentially private distributed convex optimisation.

Several parties each hold private data and public constraints and want the one answer that is best
for all of them. Consensus ADMM finds it; only randomised, feasible local solutions leave a party,
and every answer comes with an (epsilon, delta) statement that is true.

    problem          LocalProblem(objective, feasible_set, coupling), Problem
    privacy          Gaussian, Laplace, Noiseless; Settings.for_budget(total_epsilon, total_delta)
    run              solve(problem, settings) -> Result
                     release(problem, total_epsilon, total_delta) -> Released, to solve at no cost
                     solve_many(problem, [settings], [seed]) -> [Result], all at once
    trust            Ledger, Agent: pay before you answer; noise="secure"

Importing Tacit switches JAX to 64-bit floats (``jax_enable_x64``): projections and accounting
need them. Arrays that are float32 stay float32. JAX itself is imported with the first name that
is used, so that ``tacit --help`` need not wait for it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the module typing would be most of the time that this import takes
if TYPE_CHECKING:
    from typing import Any

    from tacit.admm import ConstantPenalty as ConstantPenalty
    from tacit.admm import ConstantStep as ConstantStep
    from tacit.admm import DynamicPenalty as DynamicPenalty
    from tacit.admm import LocalProblem as LocalProblem
    from tacit.admm import NonsmoothStep as NonsmoothStep
    from tacit.admm import Problem as Problem
    from tacit.admm import Settings as Settings
    from tacit.admm import SmoothStep as SmoothStep
    from tacit.admm import StronglyConvexStep as StronglyConvexStep
    from tacit.errors import CorruptFile as CorruptFile
    from tacit.errors import EngineFailure as EngineFailure
    from tacit.errors import InvalidInput as InvalidInput
    from tacit.errors import InvalidSet as InvalidSet
    from tacit.errors import LedgerFailure as LedgerFailure
    from tacit.errors import Refused as Refused
    from tacit.errors import SolverFailure as SolverFailure
    from tacit.errors import TacitError as TacitError
    from tacit.objectives import Exchange as Exchange
    from tacit.objectives import Hinge as Hinge
    from tacit.objectives import Huber as Huber
    from tacit.objectives import LeastSquares as LeastSquares
    from tacit.objectives import LogisticRegression as LogisticRegression
    from tacit.objectives import Objective as Objective
    from tacit.objectives import PerSample as PerSample
    from tacit.objectives import Quantile as Quantile
    from tacit.objectives import Residual as Residual
    from tacit.objectives import SoftmaxRegression as SoftmaxRegression
    from tacit.privacy import Gaussian as Gaussian
    from tacit.privacy import Laplace as Laplace
    from tacit.privacy import Ledger as Ledger
    from tacit.privacy import Mechanism as Mechanism
    from tacit.privacy import Noiseless as Noiseless
    from tacit.protocol import Agent as Agent
    from tacit.protocol import Broadcast as Broadcast
    from tacit.protocol import Progress as Progress
    from tacit.protocol import Released as Released
    from tacit.protocol import Reply as Reply
    from tacit.protocol import Result as Result
    from tacit.sets import Ball as Ball
    from tacit.sets import Box as Box
    from tacit.sets import Cone as Cone
    from tacit.sets import ConeSet as ConeSet
    from tacit.sets import Conic as Conic
    from tacit.sets import FeasibleSet as FeasibleSet
    from tacit.sets import HalfSpace as HalfSpace
    from tacit.sets import Hyperplane as Hyperplane
    from tacit.sets import L1Ball as L1Ball
    from tacit.sets import NonNegative as NonNegative
    from tacit.sets import Polyhedron as Polyhedron
    from tacit.sets import Product as Product
    from tacit.sets import Simplex as Simplex
    from tacit.sets import from_cvxpy as from_cvxpy
    from tacit.transports import release as release
    from tacit.transports import solve as solve
    from tacit.transports import solve_many as solve_many

os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)

NAMES = {  # by package
    "admm": "ConstantPenalty ConstantStep DynamicPenalty "
    "LocalProblem NonsmoothStep Problem Settings SmoothStep StronglyConvexStep",
    "errors": "CorruptFile EngineFailure InvalidInput InvalidSet LedgerFailure Refused "
    "SolverFailure TacitError",
    "objectives": "Exchange Hinge Huber LeastSquares LogisticRegression Objective PerSample "
    "Quantile Residual SoftmaxRegression",
    "privacy": "Gaussian Laplace Ledger Mechanism Noiseless",
    "protocol": "Agent Broadcast Progress Released Reply Result",
    "sets": "Ball Box Cone ConeSet Conic FeasibleSet HalfSpace Hyperplane L1Ball "
    "NonNegative Polyhedron Product Simplex from_cvxpy",
    "transports": "release solve solve_many",
}
__all__ = sorted(name for names in NAMES.values() for name in names.split())


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used."""
    from importlib import import_module, util

    for package, names in NAMES.items():
        if name in names.split():
            if package == "privacy":  # users may compile programs over mechanisms
                import_module("tacit.privacy.mechanisms").register_with_jax()
            value = globals()[name] = getattr(import_module(f"tacit.{package}"), name)
            return value
    if not name.startswith("_") and util.find_spec(f"tacit.{name}") is not None:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
