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
need them. Arrays that are float32 stay float32.
"""

import logging

import jax

logging.getLogger("tacit").addHandler(logging.NullHandler())
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

from tacit.agent import Agent, Broadcast, Reply  # noqa: E402
from tacit.conic import Cone, ConeSet, Conic, Polyhedron  # noqa: E402
from tacit.cvxpyset import from_cvxpy  # noqa: E402
from tacit.errors import (  # noqa: E402
    CorruptFile,
    InvalidInput,
    InvalidSet,
    LedgerFailure,
    Refused,
    SolverFailure,
    TacitError,
)
from tacit.ledger import Ledger  # noqa: E402
from tacit.losses import (  # noqa: E402
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Quantile,
    SoftmaxRegression,
)
from tacit.mechanisms import Gaussian, Laplace, Mechanism, Noiseless  # noqa: E402
from tacit.objectives import Objective  # noqa: E402
from tacit.persample import PerSample  # noqa: E402
from tacit.problem import LocalProblem, Problem  # noqa: E402
from tacit.residual import Residual  # noqa: E402
from tacit.result import Result  # noqa: E402
from tacit.schedules import (  # noqa: E402
    ConstantPenalty,
    ConstantStep,
    DynamicPenalty,
    GeometricPenalty,
    GeometricStep,
    NonsmoothStep,
    SmoothStep,
    StronglyConvexStep,
)
from tacit.sets import (  # noqa: E402
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
from tacit.settings import Settings  # noqa: E402
from tacit.solve import Progress, solve  # noqa: E402
from tacit.sweep import solve_many  # noqa: E402

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
