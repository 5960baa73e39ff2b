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

    from tacit.admm import (
        Agent,
        Broadcast,
        ConstantPenalty,
        ConstantStep,
        DynamicPenalty,
        GeometricPenalty,
        GeometricStep,
        LocalProblem,
        NonsmoothStep,
        Problem,
        Progress,
        Released,
        Reply,
        Result,
        Settings,
        SmoothStep,
        StronglyConvexStep,
    )
    from tacit.engines import release, solve, solve_many
    from tacit.errors import (
        CorruptFile,
        EngineFailure,
        InvalidInput,
        InvalidSet,
        LedgerFailure,
        Refused,
        SolverFailure,
        TacitError,
    )
    from tacit.objectives import (
        Hinge,
        Huber,
        LeastSquares,
        LogisticRegression,
        Objective,
        PerSample,
        Quantile,
        Residual,
        SoftmaxRegression,
    )
    from tacit.privacy import Gaussian, Laplace, Ledger, Mechanism, Noiseless
    from tacit.sets import (
        Ball,
        Box,
        Cone,
        ConeSet,
        Conic,
        FeasibleSet,
        HalfSpace,
        Hyperplane,
        L1Ball,
        NonNegative,
        Polyhedron,
        Product,
        Simplex,
        from_cvxpy,
    )

os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)

# modules that the documentation of 0.1.0 imported from here; new code imports from the rooms
__path__.append(os.path.join(__path__[0], "moved"))
NAMES = {  # by room
    "admm": "Agent Broadcast ConstantPenalty ConstantStep DynamicPenalty GeometricPenalty "
    "GeometricStep LocalProblem NonsmoothStep Problem Progress Released Reply Result Settings "
    "SmoothStep StronglyConvexStep",
    "engines": "release solve solve_many",
    "errors": "CorruptFile EngineFailure InvalidInput InvalidSet LedgerFailure Refused "
    "SolverFailure TacitError",
    "objectives": "Hinge Huber LeastSquares LogisticRegression Objective PerSample Quantile "
    "Residual SoftmaxRegression",
    "privacy": "Gaussian Laplace Ledger Mechanism Noiseless",
    "sets": "Ball Box Cone ConeSet Conic FeasibleSet HalfSpace Hyperplane L1Ball "
    "NonNegative Polyhedron Product Simplex from_cvxpy",
}
__all__ = [
    "Agent",
    "Ball",
    "Box",
    "Broadcast",
    "Cone",
    "ConeSet",
    "Conic",
    "ConstantPenalty",
    "ConstantStep",
    "CorruptFile",
    "DynamicPenalty",
    "EngineFailure",
    "FeasibleSet",
    "Gaussian",
    "GeometricPenalty",
    "GeometricStep",
    "HalfSpace",
    "Hinge",
    "Huber",
    "Hyperplane",
    "InvalidInput",
    "InvalidSet",
    "L1Ball",
    "Laplace",
    "LeastSquares",
    "Ledger",
    "LedgerFailure",
    "LocalProblem",
    "LogisticRegression",
    "Mechanism",
    "Noiseless",
    "NonNegative",
    "NonsmoothStep",
    "Objective",
    "PerSample",
    "Polyhedron",
    "Problem",
    "Product",
    "Progress",
    "Quantile",
    "Refused",
    "Released",
    "Reply",
    "Residual",
    "Result",
    "Settings",
    "Simplex",
    "SmoothStep",
    "SoftmaxRegression",
    "SolverFailure",
    "StronglyConvexStep",
    "TacitError",
    "from_cvxpy",
    "release",
    "solve",
    "solve_many",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used."""
    from importlib import import_module, util

    for room, names in NAMES.items():
        if name in names.split():
            if room == "privacy":  # users may compile programs over mechanisms
                import_module("tacit.privacy.mechanisms").register_with_jax()
            value = globals()[name] = getattr(import_module(f"tacit.{room}"), name)
            return value
    if not name.startswith("_") and util.find_spec(f"tacit.{name}") is not None:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
