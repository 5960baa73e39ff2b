"""What is private: data inside objectives, with certified bounds on what one record can change.

objective       what every objective can do: value, statistic, sensitivity, neighbours
linear_model    losses of a linear model's scores: sensitivities, rounding, record by record
losses          logistic, softmax, hinge; least squares, Huber, quantile; clipped gradients
per_sample      any differentiable loss, each record's gradient clipped
exchange        what a household draws at a price: charging, sharing a line, a reserve
residual        |Az + d|^2 where d is private: power balance, inverse problems
moments         sums and second moments, released once: the mean of rows, least squares
public          objectives in which nothing is private any more, and their exact local steps
rounding        bounds on rounding errors, for the proofs
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.objectives.losses import (
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Quantile,
    SoftmaxRegression,
)
from tacit.objectives.objective import Objective, Statistics
from tacit.objectives.public import PublicObjective, PublicQuadratic
from tacit.objectives.residual import Residual

if TYPE_CHECKING:
    from tacit.objectives.exchange import Exchange
    from tacit.objectives.per_sample import PerSample

__all__ = [
    "Exchange",
    "Hinge",
    "Huber",
    "LeastSquares",
    "LogisticRegression",
    "Objective",
    "PerSample",
    "PublicObjective",
    "PublicQuadratic",
    "Quantile",
    "Residual",
    "SoftmaxRegression",
    "Statistics",
]


def __getattr__(name: str) -> Any:
    """Losses in a user's own words, imported when they are first used."""
    if name not in ("Exchange", "PerSample"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = "exchange" if name == "Exchange" else "per_sample"
    return getattr(import_module(f"{__name__}.{file}"), name)
