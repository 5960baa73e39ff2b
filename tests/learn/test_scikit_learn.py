"""scikit-learn's own checks of estimators and transformers, and pipelines with public ranges."""

import re

import numpy as np
import pytest
from conftest import EXHAUSTIVE
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from tacit.learn import (
    Orientations,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PublicRange,
    RandomFourier,
    Scattering,
)


class AnyLength:
    """Takes the first 16 numbers of a row, again and again if there are fewer, as an image.

    The checks give rows of 1 to 20 numbers, where the map itself would ask for a square.
    """

    def _columns(self, given):
        return super()._columns(16)

    def _rows(self, X, columns):
        return super()._rows(X[:, np.arange(16) % X.shape[1]], columns)


class AnyOrientations(AnyLength, Orientations):
    pass


class AnyScattering(AnyLength, Scattering):
    pass


GENEROUS = {"total_epsilon": 500.0, "feature_norm": 6.0, "random_state": 0}
NUMBERS = {**GENEROUS, "target_range": (-5, 5)}
# What a class has of its own: the fit is that of PrivateRidge, which has nearly all checks, and a
# program for every size of array is a second each
OWN = re.compile("init|_params|tag|repr|clone|constructible|mixin|multiclass")
ARRAYS = re.compile("overwrite|during_fit|not_an_array|memmap")
CLASSES = re.compile("classif|decision")
ALL = (
    PublicRange({"*": (-10, 10)}),
    AnyOrientations(2, 2),
    AnyScattering(1, 2),
    RandomFourier(8),
    PrivateRidge(**NUMBERS),
)
FEW = (
    PrivateLogisticRegression(**GENEROUS | {"feature_norm": 5.0}, rounds=60),
    PrivateLinearSVC(**GENEROUS | {"feature_norm": 5.0}, rounds=60),
    PrivateHuberRegressor(**NUMBERS, rounds=60),
    PrivateQuantileRegressor(**NUMBERS, rounds=60),
)


def chosen(kind, check):
    """Among all but one, which needs a setting of SciPy's."""
    if "array_api" in check:
        return False
    if EXHAUSTIVE or kind in ALL:
        return EXHAUSTIVE or "memmap=True)" not in check
    classifier = isinstance(kind, PrivateLogisticRegression) and CLASSES.search(check)
    return (OWN.search(check) or classifier) and not ARRAYS.search(check)


CHECKS = [
    (estimator, check)
    for kind in (*ALL, *FEW)
    for estimator, check in estimator_checks_generator(kind)
    if chosen(kind, str(check))
]


@pytest.mark.parametrize(("seed", "words"), [(0, "noise is the same"), (None, "of its own.$")])
def test_cross_validation_warns_that_every_fit_spends(seed, words):
    X, y = np.random.default_rng(0).uniform(-1, 1, (40, 2)), np.arange(40) / 40
    model = PrivateRidge(target_range=(0, 1), random_state=seed)
    model.fit(X, y).fit(X, y)  # one's own fits are one's own to count
    with pytest.warns(UserWarning, match=words) as seen:
        cross_val_score(model, X, y, cv=3)
    assert [str(w.message)[0] for w in seen] == ["2", "3"]


@pytest.mark.filterwarnings("ignore:.*copies of Private")
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[str(k) for k in range(len(CHECKS))])
def test_scikit_learn_conventions(estimator, check):
    assert check(estimator) is None
