"""Tacit: differentially private distributed convex optimisation.

Several parties each hold private data and public constraints and want the one answer that is best
for all of them. Consensus ADMM finds it; only randomised, feasible local solutions leave a party,
and every answer comes with an (epsilon, delta) statement that is true.

    problem side     LocalProblem(objective, feasible_set, coupling), Problem
    privacy          Gaussian, Laplace, Noiseless; Settings.for_budget(total_epsilon, total_delta)
    run              solve(problem, settings) -> Result
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

    from tacit.agent import Agent, Broadcast, Reply
    from tacit.conic import Cone, ConeSet, Conic, Polyhedron
    from tacit.cvxpyset import from_cvxpy
    from tacit.errors import (
        CorruptFile,
        InvalidInput,
        InvalidSet,
        LedgerFailure,
        Refused,
        SolverFailure,
        TacitError,
    )
    from tacit.ledger import Ledger
    from tacit.losses import (
        Hinge,
        Huber,
        LeastSquares,
        LogisticRegression,
        Quantile,
        SoftmaxRegression,
    )
    from tacit.mechanisms import Gaussian, Laplace, Mechanism, Noiseless
    from tacit.objectives import Objective
    from tacit.persample import PerSample
    from tacit.problem import LocalProblem, Problem
    from tacit.residual import Residual
    from tacit.result import Result
    from tacit.schedules import (
        ConstantPenalty,
        ConstantStep,
        DynamicPenalty,
        GeometricPenalty,
        GeometricStep,
        NonsmoothStep,
        SmoothStep,
        StronglyConvexStep,
    )
    from tacit.sets import (
        Ball,
        Box,
        FeasibleSet,
        HalfSpace,
        Hyperplane,
        L1Ball,
        NonNegative,
        Product,
        Simplex,
    )
    from tacit.settings import Settings
    from tacit.solve import Progress, solve
    from tacit.sweep import solve_many

os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)

NAMES = {  # by module
    "agent": "Agent Broadcast Reply",
    "conic": "Cone ConeSet Conic Polyhedron",
    "cvxpyset": "from_cvxpy",
    "errors": "CorruptFile InvalidInput InvalidSet LedgerFailure Refused SolverFailure TacitError",
    "ledger": "Ledger",
    "losses": "Hinge Huber LeastSquares LogisticRegression Quantile SoftmaxRegression",
    "mechanisms": "Gaussian Laplace Mechanism Noiseless",
    "objectives": "Objective",
    "persample": "PerSample",
    "problem": "LocalProblem Problem",
    "residual": "Residual",
    "result": "Result",
    "schedules": "ConstantPenalty ConstantStep DynamicPenalty GeometricPenalty "
    "GeometricStep NonsmoothStep SmoothStep StronglyConvexStep",
    "sets": "Ball Box FeasibleSet HalfSpace Hyperplane L1Ball NonNegative Product Simplex",
    "settings": "Settings",
    "solve": "Progress solve",
    "sweep": "solve_many",
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
    "solve",
    "solve_many",
]


class _Package(type(sys)):  # type: ignore[misc]
    """Names are imported when they are first used."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module, util

        if name in __all__:
            module = next(module for module, names in NAMES.items() if name in names.split())
            value = getattr(import_module(f"tacit.{module}"), name)
            setattr(self, name, value)
            return value
        if not name.startswith("_") and util.find_spec(f"tacit.{name}") is not None:
            return import_module(f"tacit.{name}")
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # importing the module tacit.solve must not hide the function
        if name not in __all__ or not isinstance(value, type(sys)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
