"""Federated, constrained, private classification (Section 6.2) and regression.

data                labelled data from idx and LEAF files, and how agents share them
source              CSV and Parquet files as columns of numbers, labels and categories
table               data from one table of all agents, or from each agent's own
download            MNIST from a public mirror, checked
ranges              columns brought to one scale by public numbers
columns             columns of numbers, text and gaps as numbers, by public rules
constraints         hard constraints on a model's coefficients
centring            rows around a private mean: a first release, and its share of the budget
owners              whose record each is
linear              what all estimators share: rows, intercept, set, plan, fit, prepare, adopt
classifiers         PrivateLogisticRegression, PrivateLinearSVC
regressors          PrivateHuberRegressor, PrivateRidge, PrivateQuantileRegressor
feature_map         what public feature maps share: each row by itself, nothing learnt
orientations        edge directions of images
scattering          the scattering transform of images
fourier             random waves with a public seed, for tables
covered             which steps before an estimator its statement does not cover
model               a fitted classifier as one JSON file
record_recovery     what an eavesdropper learns about the records
gradient_inversion  from messages to gradients, from gradients to records
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.learn.constraints import Ball, Box, Budget, Convex, Sign, Simplex
from tacit.learn.data import Dataset, load_digits, load_leaf, load_mnist, split
from tacit.learn.table import load_table

if TYPE_CHECKING:
    from tacit.learn.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from tacit.learn.columns import PublicColumns
    from tacit.learn.covered import not_covered
    from tacit.learn.fourier import RandomFourier
    from tacit.learn.linear import plan
    from tacit.learn.model import load_model, save_model
    from tacit.learn.orientations import Orientations
    from tacit.learn.ranges import PublicRange
    from tacit.learn.regressors import (
        PrivateHuberRegressor,
        PrivateQuantileRegressor,
        PrivateRidge,
    )
    from tacit.learn.scattering import Scattering

LAZY = {  # these need scikit-learn; the rest does not
    "Orientations": "orientations",
    "PrivateHuberRegressor": "regressors",
    "PrivateLinearSVC": "classifiers",
    "PrivateLogisticRegression": "classifiers",
    "PrivateQuantileRegressor": "regressors",
    "PrivateRidge": "regressors",
    "PublicColumns": "columns",
    "PublicRange": "ranges",
    "RandomFourier": "fourier",
    "Scattering": "scattering",
    "load_model": "model",
    "not_covered": "covered",
    "plan": "linear",
    "save_model": "model",
}
__all__ = [
    "Ball",
    "Box",
    "Budget",
    "Convex",
    "Dataset",
    "Orientations",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PublicColumns",
    "PublicRange",
    "RandomFourier",
    "Scattering",
    "Sign",
    "Simplex",
    "load_digits",
    "load_leaf",
    "load_mnist",
    "load_model",
    "load_table",
    "not_covered",
    "plan",
    "save_model",
    "split",
]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tacit.learn.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
