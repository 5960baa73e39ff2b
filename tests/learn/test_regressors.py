"""Private regressors: scikit-learn's conventions, public ranges, bounds, statements, accuracy."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from tacit.learn import (
    PrivateHuberRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
)

ALL = (PrivateHuberRegressor, PrivateRidge, PrivateQuantileRegressor)
IN_ROUNDS = (PrivateHuberRegressor, PrivateQuantileRegressor)
GENEROUS = {"total_epsilon": 500.0, "feature_norm": 6.0, "random_state": 0}

CHECKS = [  # all but one, which needs a setting of SciPy's
    (estimator, check)
    for kind in (
        PrivateHuberRegressor(**GENEROUS, target_range=(-5, 5), rounds=60),
        PrivateRidge(**GENEROUS, target_range=(-5, 5)),
        PrivateQuantileRegressor(**GENEROUS, target_range=(-5, 5), rounds=60),
    )
    for estimator, check in estimator_checks_generator(kind)
    if "array_api" not in str(check)
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[str(k) for k in range(len(CHECKS))])
def test_scikit_learn_conventions(estimator, check):
    assert check(estimator) is None
