"""What all linear estimators share: seeds, agents, ledgers, secure noise, statements."""

import numpy as np
import pytest
from conftest import EXHAUSTIVE, repeat
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

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
    PublicRange,
)
from tacit.learn.linear import DEFAULT_BOX, INTERCEPT_SHARE, prepare
from tacit.privacy.accounting import epsilon_of

RANGE = {"target_range": (0.0, 10.0)}
ALL = (
    PrivateHuberRegressor(2.0, **RANGE, rounds=6),
    PrivateQuantileRegressor(2.0, **RANGE, rounds=6),
    PrivateRidge(2.0, **RANGE),
    PrivateLogisticRegression(2.0, classes=[0, 1], rounds=6),
    PrivateLinearSVC(2.0, classes=[0, 1], rounds=6),
)
every = pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
# The other two are fitted with noise in test_classifiers.py and test_regressors.py
most = pytest.mark.parametrize(
    "model", repeat([ALL[0], ALL[2], ALL[3]], ALL), ids=lambda m: type(m).__name__
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 3))
    y = 5 + X @ [2.0, -1.0, 0.5] + 0.2 * rng.normal(size=120)
    return X, y, np.where(np.arange(120) % 2 == 0, "north", "south")


def targets(model, y):
    return (y > 5).astype(int) if is_classifier(model) else y


@most
def test_a_seed_gives_the_same_model_and_another_seed_another(data, model):
    X, y, agents = data
    fits = [
        clone(model).set_params(random_state=seed).fit(X, targets(model, y), agents)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert (fits[0].coef_ != fits[2].coef_).any()
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X))


@most
def test_the_statement_is_certified_and_of_the_whole_budget(data, model):
    X, y, agents = data
    fitted = clone(model).set_params(random_state=0).fit(X, targets(model, y), agents)
    privacy = fitted.privacy_
    assert fitted.get_params() == clone(model).set_params(random_state=0).get_params()
    assert privacy.certified and 1.99 <= privacy.epsilon <= 2.0 and privacy.delta == 1e-5
    assert "the numbers of records where that change keeps them" in privacy.words
    assert fitted.result_.privacy == privacy and fitted.n_agents_ == 2
    public = "the list of classes" if is_classifier(model) else "the range of targets"
    assert public in privacy.words


# The others without noise: test_classifiers.py, test_regressors.py
@pytest.mark.parametrize("model", repeat(ALL[2:4], ALL), ids=lambda m: type(m).__name__)
def test_without_noise_nothing_is_private(data, model):
    X, y, agents = data
    fitted = clone(model).set_params(total_epsilon=None).fit(X, targets(model, y), agents)
    assert not fitted.privacy_.certified and fitted.score(X, targets(model, y)) > 0.5
    assert getattr(fitted, "mean_", None) is None
    assert getattr(fitted, "slope_limit_", None) is None


@pytest.mark.parametrize(
    "model", repeat([ALL[0], ALL[2]], [ALL[0], ALL[2], ALL[4]]), ids=lambda m: type(m).__name__
)  # a classifier's: test_centring.py
def test_ledgers_pay_and_refuse(data, model, tmp_path):
    X, y, agents = data
    for name in ("north", "south"):
        tacit.Ledger.create(tmp_path / f"{name}.db", 2.01, 1e-5).close()
    fitted = clone(model).set_params(ledgers=tmp_path).fit(X, targets(model, y), agents)
    assert fitted.privacy_.secure and not fitted.privacy_.seeded
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        assert ledger.spent.epsilon == pytest.approx(fitted.privacy_.epsilon, rel=1e-3)
        assert ledger.spent.epsilon <= fitted.privacy_.epsilon
    with pytest.raises(Refused, match="beyond the budget"):
        clone(model).set_params(ledgers=tmp_path).fit(-X, targets(model, y), agents)


def test_what_is_refused_is_not_paid_for(data, tmp_path):
    X, y, _ = data
    with tacit.Ledger.create(tmp_path / "agent 1.db", 2.0, 1e-5) as ledger:
        for model, words in (
            (PrivateRidge(ledgers=tmp_path), "target_range"),
            (PrivateLinearSVC(ledgers=tmp_path, classes=[0, 1, 2]), "expected two classes, got 3"),
            (PrivateLinearSVC(ledgers=tmp_path, constraint="box"), "a constraint such as"),
        ):
            with pytest.raises(InvalidInput, match=words):
                model.fit(X, targets(model, y))
        assert not ledger.runs()


@every
def test_rows_are_within_the_norm_that_is_stated(data, model):
    """Whatever rows are given, and in predictions too."""
    X, y, agents = data
    fitted = clone(model).set_params(random_state=0)
    problem, _ = prepare(fitted, 1e3 * X, targets(model, y), agents)
    f = problem.agents[0].objective
    assert f.feature_norm == fitted.feature_norm_
    assert np.linalg.norm(fitted._rows(1e6 * X), axis=1).max() <= f.feature_norm * (1 + 1e-12)
    if model.feature_norm is None:  # three columns in [−1, 1]
        assert f.feature_norm == pytest.approx(1.0)


@most
def test_they_follow_public_ranges_in_a_pipeline(data, model):
    X, y, agents = data
    raw = 100 + 50 * X
    seeded = clone(model).set_params(random_state=0)
    one = Pipeline([("ranges", PublicRange({"*": (50, 150)})), ("model", clone(seeded))])
    other = seeded.fit(X, targets(model, y), agents)
    predicted = one.fit(raw, targets(model, y), model__agents=agents).predict(raw)
    if is_classifier(model):
        assert (predicted == other.predict(X)).mean() > 0.98
    else:
        np.testing.assert_allclose(predicted, other.predict(X), rtol=1e-6)


@pytest.mark.parametrize("model", [ALL[0], ALL[2]], ids=lambda m: type(m).__name__)
def test_progress_is_told(data, model):
    X, y, agents = data
    told = []
    clone(model).fit(X, y, agents, progress=lambda *rounds: told.append(rounds))
    assert told and told[-1][0] <= told[-1][1]


@pytest.mark.parametrize("classes", [2, 3])
def test_both_defaults_are_on_and_within_the_total(data, classes):
    """A mean before the run, and slopes no longer than the limit: one total for both."""
    X, y, agents = data
    labels = np.digitize(y, [5.0] if classes == 2 else [4.5, 5.5])
    model = PrivateLogisticRegression(2.0, rounds=6, local_updates=2, random_state=0)
    problem, settings = prepare(model, X, labels, agents)
    assert model.mean_ is not None and model.slope_limit_ == {2: 0.3, 3: 0.1}[classes]
    spent = epsilon_of([(model.reading_, 1), (settings.mechanism, 12)], 1e-5)
    assert 1.99 <= spent <= 2.0
    if classes == 2 or EXHAUSTIVE:
        assert model.fit(X, labels, agents).privacy_.epsilon == spent
    agent = problem.agents[0]
    bound = agent.objective.sensitivity(2, agent.feasible_set)
    slope = 0.3 / 2**0.5 if classes == 2 else 0.1
    assert slope / 120 <= bound <= 1.001 * slope / 120


def test_limits_are_numbers_or_planned(data):
    X, y, _ = data
    for name, value in (("slope_limit", "some"), ("centring_share", "some"), ("slope_limit", -1.0)):
        with pytest.raises(InvalidInput, match=name):
            PrivateLogisticRegression(2.0, **{name: value}).fit(X, y > 5)
    paper = PrivateLogisticRegression(2.0, calibration="paper", rounds=2, random_state=0)
    prepare(paper, X, np.digitize(y, [4.5, 5.5]))
    assert paper.slope_limit_ is None and paper.mean_ is None


@pytest.mark.parametrize("name", ["centring_share", "slope_limit"])
@pytest.mark.parametrize("value", [[1], {}, 1j])
def test_a_planned_parameter_of_another_kind_is_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        PrivateLogisticRegression(rounds=1, **{name: value}).fit(np.eye(4), [0, 1, 0, 1])


def test_no_error_shows_a_record():
    numbers, text = np.full(4, 0.1234), np.array(["SECRET"] * 4)
    huber = PrivateHuberRegressor(target_range=(0, 1), rounds=1)
    for X, y in ((np.eye(4), text), (numbers, numbers), (np.eye(4) * 0.1234j, numbers)):
        with pytest.raises(InvalidInput) as error:
            huber.fit(X, y)
        assert "SECRET" not in str(error.value) and "1234" not in str(error.value)
    with pytest.raises(InvalidInput, match="one type"):
        PrivateLogisticRegression(rounds=1).fit(np.eye(4), np.array(["SECRET", 1.5] * 2, object))
    with pytest.raises(InvalidInput, match="target_range"):
        PrivateHuberRegressor(target_range=(0, 10**400)).fit(np.eye(4), numbers)


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
    found = np.asarray(W.project(np.full(3 * outputs, 1e9)))
    scores = found[-outputs:] * INTERCEPT_SHARE * norm
    np.testing.assert_allclose(scores, DEFAULT_BOX, rtol=1e-9)
    largest = {type(None): DEFAULT_BOX / norm, Box: 0.1, Ball: 0.5}[type(constraint)]
    assert np.abs(found[:-outputs]).max() <= largest * (1 + 1e-9)


def test_a_fit_that_is_interrupted_leaves_no_statement_of_an_earlier_one(data):
    """Else the exact mean of rows stands in a model beside "certified"."""
    X, y, _ = data
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
