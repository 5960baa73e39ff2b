"""Federated, constrained, private classification (Section 6.2)."""

from typing import TYPE_CHECKING, Any

from tacit.learn.constraints import Ball, Box, Budget, Convex, Sign
from tacit.learn.data import Dataset, load_digits, load_leaf, load_mnist, load_table, split
from tacit.learn.plan import plan

if TYPE_CHECKING:
    from tacit.learn.estimator import PrivateLogisticRegression

__all__ = [
    "Ball",
    "Box",
    "Budget",
    "Convex",
    "Dataset",
    "PrivateLogisticRegression",
    "Sign",
    "load_digits",
    "load_leaf",
    "load_mnist",
    "load_table",
    "plan",
    "split",
]


def __getattr__(name: str) -> Any:
    """The estimator needs scikit-learn; the rest does not."""
    if name != "PrivateLogisticRegression":
        raise AttributeError(name)
    from tacit.learn.estimator import PrivateLogisticRegression

    return PrivateLogisticRegression
