"""Federated, constrained, private classification (Section 6.2) and regression.

data         labelled data from tables, idx and LEAF files, and how agents share them
features     public maps of rows: columns, random waves, edge directions, the scattering transform,
             public directions
constraints  hard constraints on a model's coefficients
first_releases   noisy sums of rows before a run, and their share of the budget
centring     rows around a private mean
ranges       where the numbers of columns lie, read privately
estimators   what all estimators share: records in, a problem out; a result in, a model out
classifiers  estimators of classes: a loss each, its targets, its predictions
regressors   estimators of numbers in a public range
error_bars   a regression from noisy second moments: estimate, intervals, summary
released_table   one release of a table, and every regression of it
counts       one histogram over the parties
evaluation   how good a model is, from one histogram of records that were held out
model        a fitted model as one JSON file; which steps before it are public
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.learn.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from tacit.learn.constraints import CoefficientBall as Ball
    from tacit.learn.constraints import CoefficientBox as Box
    from tacit.learn.constraints import CoefficientL1Ball as Budget
    from tacit.learn.constraints import CoefficientSimplex as Simplex
    from tacit.learn.constraints import Convex, Sign
    from tacit.learn.counts import PrivateCounts
    from tacit.learn.data import Dataset, load_digits, load_leaf, load_mnist, load_table, split
    from tacit.learn.error_bars import Regression
    from tacit.learn.evaluation import PrivateEvaluation
    from tacit.learn.features import (
        Orientations,
        PublicColumns,
        PublicComponents,
        PublicRange,
        RandomFourier,
        Scattering,
    )
    from tacit.learn.model import load_model, not_covered, save_model
    from tacit.learn.regressors import (
        PrivateHuberRegressor,
        PrivateQuantileRegressor,
        PrivateRidge,
    )
    from tacit.learn.released_table import PrivateMoments

# Of names that feasible sets have too
CONSTRAINTS = {
    "Ball": "CoefficientBall",
    "Box": "CoefficientBox",
    "Budget": "CoefficientL1Ball",
    "Convex": "Convex",
    "Sign": "Sign",
    "Simplex": "CoefficientSimplex",
}
# The model of a command or a study: its estimator, and whether it predicts a number
MODELS = {
    "logistic": ("PrivateLogisticRegression", False),
    "svm": ("PrivateLinearSVC", False),
    "huber": ("PrivateHuberRegressor", True),
    "ridge": ("PrivateRidge", True),
    "quantile": ("PrivateQuantileRegressor", True),
}

__all__ = [
    "Ball",
    "Box",
    "Budget",
    "Convex",
    "Dataset",
    "Orientations",
    "PrivateCounts",
    "PrivateEvaluation",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMoments",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PublicColumns",
    "PublicComponents",
    "PublicRange",
    "RandomFourier",
    "Regression",
    "Scattering",
    "Sign",
    "Simplex",
    "load_digits",
    "load_leaf",
    "load_mnist",
    "load_model",
    "load_table",
    "not_covered",
    "save_model",
    "split",
]


def __getattr__(name: str) -> Any:
    """What needs scikit-learn is imported when it is asked for."""
    if name in __all__:
        if name in CONSTRAINTS:
            return getattr(import_module("tacit.learn.constraints"), CONSTRAINTS[name])
        parts = "data", "features", "model", "classifiers", "regressors", "released_table"
        for module in (*parts, "counts", "evaluation"):
            found = getattr(import_module(f"tacit.learn.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
