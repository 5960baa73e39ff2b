"""Private regressors: scikit-learn's conventions, public ranges, bounds, accuracy."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from conftest import repeat
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, Ridge

from tacit.learn import (
    Box,
    PrivateHuberRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
    PublicColumns,
    PublicRange,
    Simplex,
)
from tacit.learn.estimators import INTERCEPT_SHARE, prepare, scaled_down

RANGE = {"target_range": (0.0, 10.0)}


@pytest.fixture
def plane():
    """Targets around 5, with rows within [−1, 1], and a few targets far out of the public range."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (240, 3))
    y = 5 + X @ [2.0, -1.0, 0.5] + 0.2 * rng.normal(size=240)
    return X, y, np.arange(240) % 3


# --- what is fitted -------------------------------------------------------------------------------


def test_without_noise_it_is_ridge_regression(plane):
    """scikit-learn's, whose constant column has the ridge too, on the same rows."""
    X, y, agents = plane
    ours = PrivateRidge(None, alpha=5.0, feature_norm=1.5, **RANGE).fit(X, y, agents)
    rows = scaled_down(X, ours.longest_row)
    whole = np.hstack([rows, np.full((240, 1), INTERCEPT_SHARE * 1.5)])
    theirs = Ridge(alpha=5.0, fit_intercept=False).fit(whole, y - 5)
    np.testing.assert_allclose(ours.coef_, theirs.coef_[:3], atol=1e-4)
    assert ours.intercept_ == pytest.approx(5 + 0.45 * theirs.coef_[3], abs=1e-4)
    np.testing.assert_allclose(ours.predict(X), 5 + theirs.predict(whole), atol=1e-3)
    assert not ours.privacy_.certified and ours.coef_.shape == (3,)


@pytest.mark.parametrize("kind", [PrivateHuberRegressor, PrivateQuantileRegressor])
def test_without_noise_few_wild_targets_change_little(plane, kind):
    X, y, agents = plane
    wild = y.copy()
    wild[::20] = 1e6
    fits = [kind(None, feature_norm=2.0, **RANGE).fit(X, t, agents) for t in (y, wild)]
    np.testing.assert_allclose(fits[0].coef_, [2, -1, 0.5], atol=0.1)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, atol=0.3)
    assert fits[1].predict(X).max() <= 10


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_a_share_of_targets_is_below_a_quantile(plane, level):
    X, y, agents = plane
    model = PrivateQuantileRegressor(None, level=level, feature_norm=2.0, **RANGE)
    below = y < model.fit(X, y, agents).predict(X)
    assert below.mean() == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_predictions_are_within_the_public_range(plane, fit_intercept):
    X, y, _ = plane
    public = {"target_range": (2.0, 9.0), "fit_intercept": fit_intercept, "feature_norm": 100.0}
    model = PrivateRidge(None, **public).fit(X, y)
    model.coef_, model.intercept_ = np.eye(X.shape[1])[0], 5.0 if fit_intercept else 0.0
    rows = np.zeros((4, X.shape[1]))
    rows[:, 0] = [-9.0, -0.25, 0.25, 9.0]
    expected = [2.0, 4.75, 5.25, 9.0] if fit_intercept else [2.0, 2.0, 2.0, 9.0]
    np.testing.assert_allclose(model.predict(rows), expected)


def test_an_intercept_is_of_the_range_and_none_is_of_zero(plane):
    """With an intercept nothing learnt is the middle of the range; without one it is zero."""
    X, y, agents = plane
    nothing = {"constraint": Box(1e-6), "rounds": 2, "random_state": 0, **RANGE}
    model = PrivateHuberRegressor(None, fit_intercept=False, **nothing).fit(X, y, agents)
    np.testing.assert_allclose(model.predict(X), 0, atol=1e-4)
    assert model.intercept_ == 0
    model = PrivateHuberRegressor(None, **nothing | {"rounds": 1}).fit(X, 0 * y + 5, agents)
    np.testing.assert_allclose(model.predict(X), 5, atol=1e-4)


@pytest.mark.parametrize(
    "kind", repeat([PrivateHuberRegressor], [PrivateHuberRegressor, PrivateRidge])
)
def test_shares_of_a_mixture(kind):
    """Weights on a simplex, five agents, a total of (1, 1e-5): nearer than equal shares are."""
    rng = np.random.default_rng(1)
    X, weights = rng.uniform(-1, 1, (1000, 8)), np.array([0.5, 0.3, 0.2, 0, 0, 0, 0, 0])
    y = X @ weights + 0.05 * rng.normal(size=1000)
    model = kind(
        1.0, target_range=(-1, 1), constraint=Simplex(), fit_intercept=False, random_state=0
    ).fit(X, y, np.arange(1000) % 5)
    assert model.coef_.min() >= -1e-9 and model.coef_.sum() == pytest.approx(1)
    assert np.linalg.norm(model.coef_ - weights) < {PrivateHuberRegressor: 0.1}.get(kind, 0.3)
    assert np.linalg.norm(1 / 8 - weights) > 0.5


@cache
def diabetes():
    table = load_diabetes(scaled=False)
    ranges = {0: (18, 80), 1: (1, 2), 2: (15, 45), 3: (60, 140), 4: (90, 310), 5: (40, 250)}
    ranges |= {6: (20, 100), 7: (1, 10), 8: (3, 6.5), 9: (50, 130)}
    return PublicRange(ranges).fit_transform(table.data), table.target


def fitted(kind, unit=1.0):
    X, y = diabetes()
    model = kind(2.0, target_range=(0, 350 * unit), random_state=0)
    return model.fit(X[::2], unit * y[::2], agents=np.arange(221) % 3)


@pytest.mark.parametrize("kind", [PrivateHuberRegressor, PrivateRidge, PrivateQuantileRegressor])
def test_better_than_ignoring_the_data(kind):
    """Diabetes, three hospitals, 221 records, (2, 1e-5), public ranges and no other choice.

    And as well in any unit of the targets.
    """
    X, y = diabetes()
    model = fitted(kind)
    ours, middle, mean, exact = (
        np.sqrt(np.mean((predicted - y[1::2]) ** 2))
        for predicted in (
            model.predict(X[1::2]),
            175,
            y[::2].mean(),
            LinearRegression().fit(X[::2], y[::2]).predict(X[1::2]),
        )
    )
    assert ours < mean < middle
    assert model.privacy_.certified and 1.99 <= model.privacy_.epsilon <= 2.0
    if kind is not PrivateRidge:
        assert ours < exact + 0.3 * (mean - exact)
    if kind is PrivateHuberRegressor:
        np.testing.assert_allclose(fitted(kind, 1e4).predict(X), 1e4 * model.predict(X), rtol=0.02)


# --- privacy --------------------------------------------------------------------------------------


def test_reading_once_has_the_bound_of_second_moments(plane):
    """(X'X, κX'y) with and without one record, κ and the bound from public numbers only."""
    X, y, agents = plane
    X[0], y[0] = 1e3, 1e6
    model = PrivateRidge(1.0, feature_norm=2.0, **RANGE)
    problem, plan = prepare(model, X, y, agents)
    assert plan.release is not None
    reading = problem.agents[0].objective.statistics()
    mine = agents == 0
    rows, targets = model._rows(X[mine]), model._targets(y[mine])
    rows[0] = 0
    public = {"normaliser": 240.0, "record_bound": 80.0}
    without = model._agent("a", rows, targets, problem.agents[0].feasible_set, **public)
    changed = np.linalg.norm(reading.values - without.objective.statistics().values)
    assert 0.99 * reading.sensitivity(2) < changed <= reading.sensitivity(2)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_ridge_has_the_noise_that_was_asked_for(mechanism):
    """Of few columns Laplace noise adds less, and was taken whatever had been asked for."""
    X, y = np.linspace(-1, 1, 40)[:, None], np.linspace(0, 1, 40)
    fitted = PrivateRidge(
        1.0, target_range=(0, 1), mechanism=mechanism, fit_intercept=False, random_state=0
    ).fit(X, y)
    assert fitted.privacy_.once and fitted.privacy_.mechanism == mechanism


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
def test_a_summary_has_coefficients_per_unit_of_the_data(kind):
    """Of a table's own columns, and of a category what being of it adds."""
    rng = np.random.default_rng(0)
    age, sex = rng.uniform(20, 60, 4000), rng.choice(["f", "m"], 4000)
    table = pd.DataFrame({"age": age, "sex": sex})
    before = PublicColumns({"age": (0, 100)}, {"sex": ["f"]}).fit(table)
    model = kind(200.0, target_range=(0, 100), feature_norm=2.0, random_state=0)
    model.fit(before.transform(table), 0.5 * age + 7 * (sex == "f"))
    lines = {line.split()[0]: line.split() for line in model.summary(before).splitlines()}
    at = 1 if kind is PrivateRidge else 2
    assert float(lines["age"][at]) == pytest.approx(0.5, abs=0.05)
    assert float(lines["sex=f"][at]) == pytest.approx(7, abs=0.5)
    assert model.summary().startswith(("target on", " "))  # and without it, as it was
    assert "per unit" not in model.summary()
    assert kind is PrivateRidge or "One party has all records, and is trusted" in model.summary()
