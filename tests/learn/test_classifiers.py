"""The private classifier: scikit-learn's conventions, constraints, budgets, statements."""

import math
import re

import cvxpy as cp
import jax
import numpy as np
import pandas as pd
import pytest
from conftest import EXHAUSTIVE, repeat
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import tacit
from tacit.admm.local_side import local_side
from tacit.errors import InvalidInput
from tacit.learn import (
    Ball,
    Box,
    Budget,
    Convex,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PublicRange,
    Sign,
    load_digits,
    split,
)
from tacit.learn.centring import scaled_down
from tacit.learn.linear import INTERCEPT_SHARE, prepare, sizes
from tacit.protocol.statement import privacy_statement

PROJECT = jax.jit(jax.vmap(lambda W, z: W.project(z), (None, 0)))
GENEROUS = {"total_epsilon": 500.0, "feature_norm": 5.0, "random_state": 0}

# What a class has of its own; LinearSVC fits and predicts with the code of the classifier above
OWN = re.compile("init|params|tag|repr|clone|constructible|mixin|multiclass")
# A program for every size of array: PrivateRidge has nearly all of these, by the same code
# (test_regressors.py)
ARRAYS = re.compile("overwrite|during_fit|not_an_array|memmap")


def chosen(kind, check):
    own = OWN.pattern if isinstance(kind, PrivateLinearSVC) else f"{OWN.pattern}|classif|decision"
    return isinstance(kind, PublicRange) or (
        re.search(own, str(check)) and not ARRAYS.search(str(check))
    )


CHECKS = [  # all but one, which needs a setting of SciPy's
    (estimator, check)
    for kind in (
        PrivateLogisticRegression(**GENEROUS, rounds=60),
        PublicRange({"*": (-10, 10)}),
        PrivateLinearSVC(**GENEROUS, rounds=60),
    )
    for estimator, check in estimator_checks_generator(kind)
    if "array_api" not in str(check) and (EXHAUSTIVE or chosen(kind, check))
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[str(k) for k in range(len(CHECKS))])
def test_scikit_learn_conventions(estimator, check):
    assert check(estimator) is None


@pytest.fixture(scope="module")
def digits():
    train, test = load_digits(), load_digits("test")
    owner = np.zeros(len(train), int)
    for p, rows in enumerate(split(train, 5)):
        owner[rows] = p
    return train, test, owner


def test_without_noise_it_is_logistic_regression(digits):
    """Near scikit-learn's answer on the same rows, with the same agents' data pooled."""
    train, test, owner = digits
    model = PrivateLogisticRegression(None, feature_norm=1.0, rounds=300)
    model.fit(train.features, train.labels, agents=owner)
    assert not model.privacy_.certified
    peer = LogisticRegression(C=100, max_iter=1000).fit(
        scaled_down(train.features, 1.0), train.labels
    )
    theirs = peer.score(scaled_down(test.features, 1.0), test.labels)
    assert abs(model.score(test.features, test.labels) - theirs) < 0.02
    shares = model.predict_proba(test.features)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(test.features)).all()
    assert model.coef_.shape == (10, 64) and model.intercept_.shape == (10,)
    assert np.abs(model.coef_).max() > 8  # which a narrow default box would cut off


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_budget_is_kept_and_buys_accuracy(digits, epsilon):
    train, test, owner = digits
    model = PrivateLogisticRegression(epsilon, 1e-5, random_state=1)
    model.fit(train.features, train.labels, agents=owner)
    assert 0.999 * epsilon <= model.privacy_.epsilon <= epsilon and model.privacy_.certified
    error = 1 - model.score(test.features, test.labels)
    assert error < {2.0: 0.12, 8.0: 0.06}[epsilon]  # a guess has 0.9; not centred: 0.133, 0.069


@pytest.mark.parametrize(
    "constraint",
    [Box(0.1), Ball(0.5), Budget(1.0), Convex(lambda Z: [cp.norm(Z, "fro") <= 0.3, Z[0] >= Z[1]])],
    ids=["box", "ball", "budget", "cvxpy"],
)
def test_constraints_hold_whatever_the_noise(constraint, rng):
    X, y = make_blobs(60, n_features=3, centers=3, random_state=0)
    model = PrivateLogisticRegression(0.5, constraint=constraint, rounds=2, random_state=0)
    model.fit(X, y)
    Z = model.coef_.T
    measured = {
        Box: np.abs(Z).max() - 0.1,
        Ball: np.linalg.norm(Z) - 0.5,
        Budget: np.abs(Z).sum() - 1.0,
        Convex: max(np.linalg.norm(Z) - 0.3, (Z[1] - Z[0]).max()),
    }[type(constraint)]
    assert -1.0 < measured <= 1e-6  # noise of this size reaches the boundary


def test_monotone_effects(rng):
    """A feature whose true effect is negative cannot get a negative coefficient."""
    X = rng.uniform(-1, 1, (400, 3))
    y = (X @ [1.0, -1.0, 0.5] > 0).astype(int)
    free = PrivateLogisticRegression(None, rounds=50).fit(X, y)
    held = PrivateLogisticRegression(None, rounds=50, constraint=Sign({1: 1, 2: 1}, 8.0)).fit(X, y)
    assert free.coef_[0, 1] < -1 < 0 <= held.coef_[0, 1] < 1e-9
    assert held.coef_[0, 2] > 0.5
    for wrong in (Sign({3: 1}, 1.0), Sign({0: 2}, 1.0)):
        with pytest.raises(InvalidInput, match="signs"):
            PrivateLogisticRegression(None, constraint=wrong).fit(X, y)
    with pytest.raises(InvalidInput, match="two classes"):
        PrivateLogisticRegression(None, constraint=Sign({0: 1}, 1.0)).fit(X, np.arange(400) % 3)


EVERY = [(classes, intercept) for classes in (2, 3) for intercept in (True, False)]


@pytest.mark.parametrize(("classes", "fit_intercept"), repeat(EVERY[::3], EVERY))
def test_rows_keep_within_the_norm(rng, classes, fit_intercept):
    """What the sensitivity rests on: rows with the constant are no longer than feature_norm."""
    X = rng.normal(size=(60, 3)) * 10 ** rng.uniform(-3, 3, (60, 1))
    y = np.arange(60) % classes
    options = {"feature_norm": 2.0, "fit_intercept": fit_intercept, "rounds": 2, "random_state": 0}
    centred = PrivateLogisticRegression(50.0, **options)
    prepare(centred, X, y)
    model = PrivateLogisticRegression(50.0, centring_share=None, **options).fit(X, y)
    for fitted in (centred, model):
        assert np.linalg.norm(fitted._rows(X), axis=1).max() <= 2.0 * (1 + 1e-12)
    scores = model.decision_function(X)
    rows = scaled_down(X, 2.0 * math.sqrt(1 - INTERCEPT_SHARE**2) if fit_intercept else 2.0)
    by_hand = rows @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(np.squeeze(scores), np.squeeze(by_hand), atol=1e-9)


def test_classes_are_public(rng):
    """A label that one record alone has must not change what is released, nor its shape."""
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    given = PrivateLogisticRegression(1.0, classes=[0, 1, 7], rounds=2, random_state=0)
    rare = y.copy()
    rare[0] = 7
    assert given.fit(X, rare).coef_.shape == given.fit(X, y).coef_.shape == (3, 3)
    assert given.classes_.tolist() == [0, 1, 7] and "list of classes" in given.privacy_.words
    taken = PrivateLogisticRegression(1.0, rounds=2, random_state=0).fit(X, y)
    assert "the labels that occur" in taken.privacy_.assumed
    missing = r"labels of \[0, 2\], got another one in row 2\."
    for wrong, words in (([0, 2], missing), ([0, None], "of one type")):
        with pytest.raises(InvalidInput, match=words):
            PrivateLogisticRegression(1.0, classes=wrong).fit(X, y)
    with pytest.raises(InvalidInput, match="got 1 class"):
        PrivateLogisticRegression(1.0).fit(X, ["a"] * 60)


@pytest.mark.parametrize("limit", [None, 0.15])
@pytest.mark.parametrize("classes", [2, 3])
def test_one_record_moves_the_sum_by_no_more_than_the_statement_says(rng, classes, limit):
    """Zero-out neighbours, by hand: the same normaliser, one record's features at zero."""
    X, y = rng.normal(size=(60, 3)), rng.integers(0, classes, 60)
    model = PrivateLogisticRegression(1.0, rounds=2, random_state=0, slope_limit=limit).fit(X, y)
    assert "(numbers of records stay)" in model.privacy_.words and model.slope_limit_ == limit
    rows, owner = model._rows(X), np.zeros(60, int)
    problem = model._problem(X, y, np.array(["a"]), owner, **sizes(owner))
    f, W = problem.agents[0].objective, problem.agents[0].feasible_set
    worst = 0.0
    for z in np.asarray(PROJECT(W, rng.normal(size=(200, W.dimension)) * 20)):
        k = rng.integers(60)
        scores = rows[k] @ z.reshape(4, -1)
        scores = scores if classes > 2 else np.array([0.0, scores[0]])
        slope = np.exp(scores - scores.max())
        slope /= slope.sum()
        slope[y[k]] -= 1
        length = min(np.linalg.norm(slope), limit or 2)
        worst = max(worst, np.linalg.norm(rows[k]) * length / 60)
    most = f.sensitivity(2, W) * (math.sqrt(2) if classes == 2 else 1)
    assert 0.9 * most < worst <= most


def test_paper_calibration_is_marked(digits):
    train, _, owner = digits
    model = PrivateLogisticRegression(4.0, calibration="paper", rounds=2, random_state=0)
    stated = privacy_statement(*prepare(model, train.features, train.labels, owner), seeded=True)
    if EXHAUSTIVE:
        stated = model.fit(train.features, train.labels, agents=owner).privacy_
    assert not stated.certified and "Not certified" in stated.words


def test_bad_input(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    for wrong, words in (
        ({"total_epsilon": -1.0}, "total_epsilon > 0"),
        ({"total_delta": 2.0}, "delta"),
        ({"feature_norm": 0.0}, "feature_norm > 0"),
        ({"rounds": -3}, "rounds"),
        ({"rounds": 0}, "rounds >= 1"),
        ({"local_updates": 0}, "local_updates >= 1"),
        ({"rounds": 0, "total_epsilon": None}, "rounds >= 1"),
        ({"local_updates": 0, "total_epsilon": None}, "local_updates >= 1"),
        ({"constraint": "box"}, "such as Box"),
        ({"constraint": Box}, "such as Box"),
        ({"constraint": Sign({"age": 1}, 1.0)}, "got 1 of 'age'"),
        ({"constraint": Sign([1, 1], 1.0)}, "signs by feature"),
        ({"random_state": "now"}, "random_state"),
        ({"neighbours": "all"}, "neighbours"),
        ({"constraint": Box(-1.0)}, "bound > 0"),
    ):
        with pytest.raises(InvalidInput, match=words):
            PrivateLogisticRegression(**wrong).fit(X, y)
    with pytest.raises(InvalidInput, match="one agent per record, 20 in all"):
        PrivateLogisticRegression().fit(X, y, agents=[0, 1])
    for nobody in (None, np.nan, "", pd.NA):
        agents = np.array(["east"] * 20, object)
        agents[3] = nobody
        with pytest.raises(InvalidInput, match="none in row 4"):
            PrivateLogisticRegression().fit(X, y, agents=agents)


def test_the_statement_reads_well_and_names_its_assumptions(rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    fits = {"rounds": 2, "random_state": np.random.RandomState(0)}  # as scikit-learn allows
    model = PrivateLogisticRegression(1.0, 0.01, classes=[0, 1], **fits).fit(X, y)
    words = model.privacy_.words
    assert words.startswith(
        "For taking one record out of the sums or putting it back (numbers of records stay) in one "
        "agent's data, all messages of the run together"
    )
    assert "(a scaler fitted on private data is not covered)" in words
    assert "1/60 or more" not in words
    large = PrivateLogisticRegression(1.0, 0.02, classes=[0, 1], **fits).fit(X, y)
    assert "1/60 or more would allow publishing a whole record" in large.privacy_.words
    assert large.result_.seed != model.result_.seed
    again = tacit.protocol.statement.PrivacyStatement.from_dict(large.privacy_.to_dict())
    assert again == large.privacy_


@pytest.mark.exhaustive  # test_without_noise_it_is_logistic_regression
def test_unconstrained_models_reach_the_optimum():
    """Coefficients that a narrow default box would cut off: near scikit-learn's objective."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 20))
    y = (X @ rng.normal(size=20) + 0.4 * rng.logistic(size=3000) > 0).astype(int)
    ours = PrivateLogisticRegression(None, feature_norm=4.5).fit(X, y)
    theirs = LogisticRegression(C=1e6, max_iter=1000).fit(X, y)
    loss, best = (
        np.mean(np.logaddexp(0, np.where(y, -1, 1) * m.decision_function(X)))
        for m in (ours, theirs)
    )
    assert np.abs(ours.coef_).max() > 8 / 4.5 and loss < best + 0.04


def test_rows_of_any_size_keep_their_direction(rng):
    X = rng.normal(size=(5, 3))
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    for scale in (10.0, 1e150, 1e300):
        np.testing.assert_allclose(scaled_down(X * scale, 2.0), 2 * directions)
    np.testing.assert_array_equal(scaled_down(X * 1e-300, 2.0), X * 1e-300)


def test_noise_in_single_precision_is_never_below_what_is_certified():
    settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=2)
    for normaliser in range(3, 40):
        f = tacit.LogisticRegression(
            np.ones((2, 2), np.float32), [0, 1], feature_norm=1.0, normaliser=normaliser
        )
        agent = tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, size=2))
        side = local_side(agent, settings, None, np.dtype(np.float32))
        exact = f.sensitivity(2, agent.feasible_set)
        assert exact <= float(side.Δ) < exact * (1 + 1e-6)


def test_a_second_fit_compiles_nothing(rng, caplog):
    X, y = rng.normal(size=(41, 2)), np.arange(41) % 2
    seen = []
    for seed in range(2):
        model = PrivateLogisticRegression(1.0, rounds=3, random_state=seed)
        with jax.log_compiles():
            model.fit(X, y, agents=np.arange(41) % 3)
        seen.append(caplog.text.count("Compiling"))
    assert 0 < seen[0] == seen[1]


def test_all_names_are_listed():
    assert set(tacit.learn.__all__) <= set(dir(tacit.learn))
    assert all(hasattr(tacit.learn, name) for name in tacit.learn.__all__)
    assert not hasattr(tacit.learn, "LogisticRegression")


@pytest.mark.parametrize("classes", [2, 3])
def test_the_likeliest_class_is_the_prediction(rng, classes):
    X, y = make_blobs(60, n_features=3, centers=classes, random_state=0)
    model = PrivateLogisticRegression(None, feature_norm=10.0, rounds=20).fit(X, y)
    shares = model.predict_proba(X)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(X)).all()
    assert len(set(model.predict(X))) == classes


def test_probabilities_of_two_classes_are_those_of_the_score(rng):
    """The second class has probability 1/(1 + exp(−score)), of scores of any size."""
    X, y = rng.normal(size=(12, 2)), np.array(["b", "a"] * 6)
    model = PrivateLogisticRegression(None, rounds=1).fit(X, y)
    model.coef_, model.intercept_ = np.array([[3.0, -1.0]]), np.array([0.5])
    u = np.array([[1.0, 0.0], [0.0, 1.0], [300.0, 0.0], [-300.0, 0.0]]) / 1e3
    score = u @ [3.0, -1.0] + 0.5
    found = model.predict_proba(u)
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-score)), rtol=1e-12)
    np.testing.assert_allclose(found[:, 0], 1 / (1 + np.exp(score)), rtol=1e-12)
    model.intercept_ = np.array([-2000.0])
    np.testing.assert_array_equal(model.predict_proba(u), [[1.0, 0.0]] * 4)
    assert list(model.classes_) == ["a", "b"] and set(model.predict(u)) == {"a"}


def test_published_numbers_give_the_scores_of_the_solution(rng):
    """coef_ and intercept_ beside the solution itself, for a norm other than 1."""
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    model = PrivateLogisticRegression(None, feature_norm=4.0, rounds=20).fit(X, y)
    rows = np.hstack([scaled_down(X, model.longest_row), np.full((60, 1), INTERCEPT_SHARE * 4.0)])
    scores = rows @ model.result_.solution
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-9)
    by_hand = rows[:, :3] @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(by_hand, scores, rtol=1e-9)


def test_classes_may_be_given_in_any_order(rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 3
    fits = [
        PrivateLogisticRegression(1.0, classes=order, rounds=2, random_state=0).fit(X, y)
        for order in ([0, 1, 2], [2, 0, 1])
    ]
    assert fits[1].classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_a_support_vector_machine_is_scikit_learns_without_noise(rng):
    X = rng.uniform(-1, 1, (400, 3))
    y = np.where(X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=400) > 0, "yes", "no")
    ours = PrivateLinearSVC(None, feature_norm=2.0).fit(X, y, agents=np.arange(400) % 3)
    theirs = LinearSVC(loss="hinge", C=100, max_iter=100_000).fit(X, y)
    assert ours.score(X, y) > theirs.score(X, y) - 0.02
    assert np.corrcoef(ours.decision_function(X), theirs.decision_function(X))[0, 1] > 0.99
    assert not hasattr(ours, "predict_proba")
    with pytest.raises(InvalidInput, match="expected two classes, got 3 classes"):
        PrivateLinearSVC().fit(X, np.arange(400) % 3)


def test_a_private_support_vector_machine_learns(rng):
    X = rng.uniform(-1, 1, (900, 3))
    y = (X @ [2.0, -1.0, 0.5] > 0).astype(int)
    for neighbours in repeat(["replace"], ["zero-out", "replace"]):  # others run with the first
        model = PrivateLinearSVC(1.0, neighbours=neighbours, random_state=0)
        model.fit(X[::2], y[::2], agents=np.arange(450) % 3)
        assert model.score(X[1::2], y[1::2]) > 0.85
        assert model.privacy_.certified and 0.999 <= model.privacy_.epsilon <= 1.0
