"""What all estimators share: seeds, agents, ledgers, budgets, statements, bounds, and refusals."""

from functools import cache

import jax
import numpy as np
import pandas as pd
import pytest
from conftest import EXHAUSTIVE, repeat
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import tacit
from tacit.errors import InvalidInput, Refused
from tacit.learn import (
    Ball,
    Box,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    Sign,
    Simplex,
)
from tacit.learn.estimators import DEFAULT_BOX, INTERCEPT_SHARE, prepare
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.mechanisms import Noiseless
from tacit.protocol.statement import PrivacyStatement

pytestmark = pytest.mark.filterwarnings("ignore:.*copies of Private")  # of the table below
PROJECT = jax.jit(jax.vmap(lambda W, z: W.project(z), (None, 0)))
STATISTIC = jax.jit(lambda f, points: jax.lax.map(f.statistic, points))
RANGE = {"target_range": (0.0, 10.0)}
ALL = (
    PrivateHuberRegressor(2.0, **RANGE, rounds=6),
    PrivateQuantileRegressor(2.0, **RANGE, rounds=6),
    PrivateRidge(2.0, **RANGE),
    PrivateLogisticRegression(2.0, classes=[0, 1], rounds=6),
    PrivateLinearSVC(2.0, classes=[0, 1], rounds=6),
)
HUBER, QUANTILE, RIDGE, LOGISTIC, SVC = ALL


def of(*models):
    return pytest.mark.parametrize("model", models, ids=lambda m: type(m).__name__)


every = of(*ALL)
# The others are fitted with noise in test_classifiers.py and test_regressors.py
most = of(*repeat([RIDGE, LOGISTIC], ALL))


@cache
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 3))
    y = 5 + X @ [2.0, -1.0, 0.5] + 0.2 * rng.normal(size=120)
    return X, y, np.where(np.arange(120) % 2 == 0, "north", "south")


def targets(model, y):
    return (y > 5).astype(int) if is_classifier(model) else y


def fit(model, **options):
    X, y, agents = data()
    return clone(model).set_params(**options).fit(X, targets(model, y), agents)


@cache
def fitted(model):
    return fit(model, random_state=0)


@most
def test_a_seed_gives_the_same_model_and_another_seed_another(model):
    first, same, other = fitted(model), fit(model, random_state=0), fit(model, random_state=1)
    np.testing.assert_array_equal(first.coef_, same.coef_)
    assert (first.coef_ != other.coef_).any()
    np.testing.assert_array_equal(first.predict(data()[0]), same.predict(data()[0]))


@most
def test_the_statement_is_certified_and_of_the_whole_budget(model):
    found = fitted(model)
    privacy = found.privacy_
    assert found.get_params() == clone(model).set_params(random_state=0).get_params()
    assert privacy.certified and 1.99 <= privacy.epsilon <= 2.0 and privacy.delta == 1e-5
    assert "the numbers of records where that change keeps them" in privacy.words
    assert "(a scaler fitted on private data is not covered)" in privacy.words
    assert found.result_.privacy == privacy and found.n_agents_ == 2
    public = "the list of classes" if is_classifier(model) else "the range of targets"
    assert public in privacy.words
    assert PrivacyStatement.from_dict(privacy.to_dict()) == privacy


# The others without noise: test_classifiers.py, test_regressors.py
@of(*repeat([RIDGE, LOGISTIC], ALL))
def test_without_noise_nothing_is_private(model):
    X, y, _ = data()
    found = fit(model, total_epsilon=None)
    assert not found.privacy_.certified and found.score(X, targets(model, y)) > 0.5
    assert all(noise == Noiseless() for noise, *_ in found.first_releases_)
    assert getattr(found, "clip_", None) is None


@of(*repeat([HUBER, RIDGE], [HUBER, RIDGE, SVC]))  # a classifier's: test_centring.py
def test_ledgers_pay_and_refuse(model, tmp_path):
    X, y, agents = data()
    for name in ("north", "south"):
        tacit.Ledger.create(tmp_path / f"{name}.db", 2.01, 1e-5).close()
    found = fit(model, ledgers=tmp_path)
    assert found.privacy_.secure and not found.privacy_.seeded
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        assert ledger.spent.epsilon == pytest.approx(found.privacy_.epsilon, rel=1e-3)
        assert ledger.spent.epsilon <= found.privacy_.epsilon
    with pytest.raises(Refused, match="beyond the budget"):
        clone(model).set_params(ledgers=tmp_path).fit(-X, targets(model, y), agents)


@every
def test_rows_are_within_the_norm_that_is_stated(model):
    """Whatever rows are given, and in predictions too."""
    X, y, agents = data()
    for intercept in (True, False):
        found = clone(model).set_params(random_state=0, fit_intercept=intercept)
        problem, _ = prepare(found, 1e3 * X, targets(model, y), agents)
        f = problem.agents[0].objective
        assert f.feature_norm == found.feature_norm_
        longest = np.linalg.norm(found._rows(1e6 * X), axis=1).max()
        assert longest <= f.feature_norm * (1 + 1e-12)
        if model.feature_norm is None:  # three columns in [−1, 1]
            assert f.feature_norm == pytest.approx(1.0)


@of(RIDGE)
def test_progress_is_told(model):
    told = []
    clone(model).fit(*data(), progress=lambda *rounds: told.append(rounds))
    assert told and told[-1][0] <= told[-1][1]


@pytest.mark.parametrize("classes", [2, 3])
def test_both_defaults_are_on_and_within_the_total(classes):
    """A mean before the run, and slopes no longer than the limit: one total for both."""
    X, y, agents = data()
    labels = np.digitize(y, [5.0] if classes == 2 else [4.5, 5.5])
    model = PrivateLogisticRegression(2.0, rounds=6, local_updates=2, random_state=0)
    problem, settings = prepare(model, X, labels, agents)
    assert model.mean_ is not None and model.clip_ == 0.6
    spent = epsilon_of([(model.first_releases_[0][0], 1), (settings.mechanism, 12)], 1e-5)
    assert 1.99 <= spent <= 2.0
    if classes == 2 or EXHAUSTIVE:
        assert model.fit(X, labels, agents).privacy_.epsilon == spent
    agent = problem.agents[0]
    bound = agent.objective.sensitivity(2, agent.feasible_set)
    slope = 0.6 / 2**0.5 if classes == 2 else 0.6
    assert slope / 120 <= bound <= 1.001 * slope / 120
    paper = PrivateLogisticRegression(2.0, calibration="paper", rounds=2, random_state=0)
    prepare(paper, X, labels)
    assert paper.clip_ is None and paper.mean_ is None


@pytest.mark.parametrize("norm", [1.0, 4.0])
@pytest.mark.parametrize("constraint", [None, Box(0.1), Ball(0.5)])
@pytest.mark.parametrize("classes", [2, 3])
def test_an_intercept_has_a_box_of_its_own(rng, classes, constraint, norm):
    """±32 of a score, whatever the norm of rows and the constraint on coefficients."""
    X, y = rng.normal(size=(12, 2)), np.arange(12) % classes
    model = PrivateLogisticRegression(None, feature_norm=norm, constraint=constraint)
    problem, _ = prepare(model, X, y)
    outputs = 1 if classes == 2 else classes
    W = problem.agents[0].feasible_set
    found = np.asarray(W.project(np.full(W.dimension, 1e9)))
    scores = found[-outputs:] * INTERCEPT_SHARE * norm
    np.testing.assert_allclose(scores, DEFAULT_BOX, rtol=1e-9)
    largest = {type(None): DEFAULT_BOX / norm, Box: 0.1, Ball: 0.5}[type(constraint)]
    assert np.abs(found[:-outputs]).max() <= largest * (1 + 1e-9)


def test_a_fit_that_is_interrupted_leaves_no_statement_of_an_earlier_one():
    """Else the exact mean of rows stands in a model beside "certified"."""
    X, y, _ = data()
    model = PrivateLogisticRegression(2.0, classes=[0, 1], rounds=6, centring_share=0.1)
    model.fit(X, y > np.median(y))
    before = model.privacy_, model.predict(X), model.mean_
    model.set_params(total_epsilon=None)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y > np.median(y), progress=interrupt)
    assert model.privacy_ == before[0]
    for now, then in zip((model.predict(X), model.mean_), before[1:], strict=True):
        np.testing.assert_array_equal(now, then)
    prepare(model, X, y > np.median(y))  # of this one an earlier statement says nothing
    assert not hasattr(model, "privacy_") and not hasattr(model, "coef_")
    fresh = clone(model)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y > np.median(y), progress=interrupt)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


# --- what is private ----------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
@of(HUBER, QUANTILE, LOGISTIC, SVC)
def test_one_record_moves_the_sum_by_no_more_than_the_bound(model, neighbours):
    """Any record, of any size, in place of another: by hand, and near the bound."""
    X, y, _ = data()
    rng, X, y = np.random.default_rng(2), X.copy(), y.copy()
    X[0], y[0] = 1e3 * rng.normal(size=3), -1e6
    for intercept in (True, False):
        found = clone(model).set_params(neighbours=neighbours, fit_intercept=intercept)
        agent = prepare(found, X, targets(model, y), seed=0)[0].agents[0]
        rows, mine = found._rows(X), found._targets(targets(model, y))
        other = rows.copy(), mine.copy()
        if neighbours == "replace":
            other[0][0] = found._rows(-X[:1])[0]
            other[1][0] = mine[0] if is_classifier(model) else found._targets(-y[:1])[0]
        else:
            other[0][0] = 0
        public = {"normaliser": 120.0, "record_bound": 120.0}
        points = PROJECT(agent.feasible_set, 10 * rng.normal(size=(50, rows.shape[1])))
        sums = [
            STATISTIC(found._agent("a", *rows_, agent.feasible_set, **public).objective, points)
            for rows_ in ((rows, mine), other)
        ]
        changed = np.linalg.norm(np.subtract(*sums), axis=1).max()
        bound = agent.objective.sensitivity(2, agent.feasible_set)
        assert 0.5 * bound < changed <= bound


@every
def test_settings_and_sets_do_not_depend_on_the_data(model):
    """Any other data of the same sizes: the same rounds, noise, set and bounds, to the last bit."""
    X, y, agents = data()
    seen = []
    for x, t in ((X, y), (1e3 * X[::-1], -1e6 * y), (0 * X, 0 * y)):
        problem, settings = prepare(clone(model), x, targets(model, t), agents)
        agent = problem.agents[0]
        bound = agent.objective.sensitivity(2, agent.feasible_set)
        seen.append((settings, bound, agent.feasible_set.reach(2)))
    assert seen[0] == seen[1] == seen[2]


# --- what is refused ----------------------------------------------------------------------------

WRONG = [
    ({"total_epsilon": -1.0}, "total_epsilon > 0"),
    ({"total_delta": 2.0}, "delta"),
    ({"feature_norm": 0.0}, "feature_norm > 0"),
    ({"rounds": 0}, "rounds >= 1"),
    ({"local_updates": 0, "total_epsilon": None}, "local_updates >= 1"),
    ({"constraint": Box}, "such as Box"),
    ({"constraint": "box"}, "such as Box"),
    ({"constraint": Box(-1.0)}, "bound > 0"),
    ({"random_state": "now"}, "random_state"),
    ({"neighbours": "all"}, "neighbours"),
]
OF_CLASSES = [
    ({"constraint": Sign({"age": 1}, 1.0)}, "got 1 of 'age'"),
    ({"constraint": Sign({3: 1}, 1.0)}, "signs"),
    ({"constraint": Sign([1, 1], 1.0)}, "signs by feature"),
    ({"centring_share": 0.0}, "0 < centring_share < 1"),
    ({"calibration": "paper", "centring_share": 0.1}, "certified noise for a private mean"),
    ({"mechanism": "cauchy"}, "mechanism name"),
    ({"keep_length": "some"}, "keep_length"),
    ({"clip": 1e-9}, "1e-06 <= clip"),
    ({"rounds": 10**6, "local_updates": 10**6}, "rounds times local_updates"),
    *(
        ({name: value}, f"{name} as a number")
        for name in ("clip", "centring_share")
        for value in ("some", [1], {}, 1j)
    ),
]
OF_NUMBERS = [
    ({"target_range": None}, "target_range=.low, high., the public range of targets, got"),
    ({"target_range": (1.0, 1.0)}, "target_range"),
    ({"target_range": (0.0, np.inf)}, "target_range"),
    ({"target_range": (0, 10**400)}, "target_range"),
    ({"target_range": 3.0}, "target_range"),
]
REFUSED = [
    *((LOGISTIC, *case) for case in [*WRONG, *OF_CLASSES]),
    *((RIDGE, *case) for case in [*WRONG, *OF_NUMBERS]),
    (HUBER, {"target_range": None}, "target_range"),
    (HUBER, {"threshold": 0.0}, "threshold > 0"),
    (RIDGE, {"alpha": -1.0}, "alpha >= 0"),
    (RIDGE, {"constraint": Simplex(0.0)}, "total > 0"),
    (QUANTILE, {"level": 1.0}, "0 < level < 1"),
    (SVC, {"classes": [0, 1, 2]}, "expected two classes, got 3"),
]


@pytest.mark.parametrize(("model", "wrong", "words"), REFUSED)
def test_what_is_refused_is_not_paid_for(model, wrong, words, tmp_path):
    X, y, _ = data()
    with tacit.Ledger.create(tmp_path / "agent 1.db", 100.0, 1e-3) as ledger:
        with pytest.raises(InvalidInput, match=words):
            clone(model).set_params(ledgers=tmp_path, **wrong).fit(X, targets(model, y))
        assert not ledger.runs()


def test_agents_of_every_record():
    X, y, agents = data()
    with pytest.raises(InvalidInput, match="one agent per record, 120 in all"):
        clone(RIDGE).fit(X, y, agents=[0, 1])
    for nobody in (None, np.nan, "", pd.NA):
        named = agents.astype(object)
        named[3] = nobody
        with pytest.raises(InvalidInput, match="none in row 4"):
            clone(RIDGE).fit(X, y, agents=named)


def test_no_error_shows_a_record():
    numbers, text = np.full(4, 0.1234), np.array(["SECRET"] * 4)
    huber = PrivateHuberRegressor(target_range=(0, 1), rounds=1)
    for X, y in ((np.eye(4), text), (numbers, numbers), (np.eye(4) * 0.1234j, numbers)):
        with pytest.raises(InvalidInput) as error:
            huber.fit(X, y)
        assert "SECRET" not in str(error.value) and "1234" not in str(error.value)
    with pytest.raises(InvalidInput, match="one type"):
        PrivateLogisticRegression(rounds=1).fit(np.eye(4), np.array(["SECRET", 1.5] * 2, object))
