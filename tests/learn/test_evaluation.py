"""What may be published of a test: errors, AUC and calibration from one noisy histogram."""

import json

import numpy as np
import pytest
from conftest import repeat
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix, roc_auc_score
from sklearn.svm import LinearSVC

import tacit
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.learn import PrivateEvaluation, PrivateHuberRegressor

BUDGET = {"total_epsilon": 1e4, "total_delta": 1e-5, "random_state": 0}  # next to no noise


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    return X, (X[:, 0] + 0.7 * rng.normal(size=3000) > 0).astype(int)


def test_of_two_classes_all_of_it_is_what_scikit_learn_says(records):
    X, y = records
    model = LogisticRegression().fit(X[:500], y[:500])
    X, y = X[500:], y[500:]
    found = PrivateEvaluation(model=model, **BUDGET).fit(X, y, np.arange(2500) % 3)
    error, low, high = found.error()
    assert error == pytest.approx(1 - model.score(X, y), abs=1e-3) and low < error < high
    np.testing.assert_allclose(found.confusion, confusion_matrix(y, model.predict(X)), atol=3)
    assert found.auc == pytest.approx(roc_auc_score(y, model.predict_proba(X)[:, 1]), abs=0.01)
    p = model.predict_proba(X)[:, 1]
    for k, (_, share, many) in enumerate(found.calibration):
        inside = (p > k / 10) & (p <= (k + 1) / 10)
        assert many == pytest.approx(inside.sum(), abs=3)
        assert share == pytest.approx(y[inside].mean(), abs=0.03)


def test_more_classes_and_models_without_probabilities(records):
    X, _ = records
    y = np.array(list("abc"))[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = LogisticRegression().fit(X, y)
    found = PrivateEvaluation(model=model, **BUDGET).fit(X, y)
    np.testing.assert_allclose(found.confusion, confusion_matrix(y, model.predict(X)), atol=3)
    assert found.auc is None and found.calibration is None
    svm = LinearSVC().fit(X, X[:, 0] > 0)
    found = PrivateEvaluation(model=svm, **BUDGET).fit(X, X[:, 0] > 0)
    assert found.error()[0] == pytest.approx(1 - svm.score(X, X[:, 0] > 0), abs=2e-3)
    many = np.arange(3000) % 12
    model = LogisticRegression().fit(X, many)
    found = PrivateEvaluation(model=model, **BUDGET).fit(X, many)
    assert found.confusion is None
    assert found.error()[0] == pytest.approx(1 - model.score(X, many), abs=2e-3)
    with pytest.raises(InvalidInput, match="labels of"):
        PrivateEvaluation(model=model, **BUDGET).fit(X, many + 1)


def test_of_numbers_how_many_are_near(records):
    X, _ = records
    y = X[:, 0]
    model = PrivateHuberRegressor(None, target_range=(-5, 5)).fit(X, y)
    found = PrivateEvaluation(model=model, **BUDGET).fit(X, y)
    apart = np.abs(model.predict(X) - y) / 10
    said = found.summary()
    assert "within 50 % of the target's range" in said and "within 100 %" not in said
    for name, (share, *_) in found.within().items():
        limit = float(name.split()[1]) / 100
        assert share == pytest.approx((apart <= limit).mean(), abs=2e-3)
    with pytest.raises(InvalidInput, match="within"):
        found.error()
    with pytest.raises(InvalidInput, match="public range"):
        PrivateEvaluation(model=LinearRegression().fit(X, y), **BUDGET).fit(X, y)


def test_intervals_hold_the_truth(records):
    """Of the noise, whose deviation is that of the sum of the cells of what is right."""
    X, y = records
    model = LogisticRegression().fit(X[:500], y[:500])
    truth, X, y = 1 - model.score(X[500:], y[500:]), X[500:], y[500:]
    inside, times = 0, repeat(25, 60)
    for seed in range(times):
        found = PrivateEvaluation(0.5, 1e-5, model=model, random_state=seed).fit(X, y)
        _, low, high = found.error()
        inside += low <= truth <= high
        assert found.privacy_.epsilon <= 0.5
    assert inside >= 0.85 * times


def test_the_command_releases_it_of_the_records_kept_for_the_test(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 2000)
    lines = [f"{v:.4f},{'yes' if v > 0.5 else 'no'},{'nw'[k % 2]}" for k, v in enumerate(x)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,who", *lines]) + "\n")
    words = ["learn", "t.csv", "--target", "y", "--classes", "no,yes", "--range", "*=0:1"]
    words += ["--agent-column", "who", "--total-epsilon", "4", "--rounds", "8", "--seed", "1"]
    assert main([*words, "--test-epsilon", "2", "--json", "--out", "a"]) == 0
    said = json.loads(capsys.readouterr().out)
    released, exact = said["evaluation"], said["not_covered"]["test_error"]
    assert released["epsilon"] <= 2 and released["records"] == 400
    low, high = released["error_interval"]
    assert low <= exact <= high and 0 < released["auc"] <= 1
    again = PrivateEvaluation.load("a")
    assert again.error()[0] == released["error"]
    assert main([*words, "--test-epsilon", "2", "--out", "b"]) == 0
    shown = capsys.readouterr().out
    assert "yes, where 40 to 50 % was predicted" in shown
    assert again.summary() in shown and f"{100 * again.error()[0]:.1f} %" in again.summary()
    assert main([*words, "--test-epsilon", "2", "--test-share", "0", "--out", "c"]) == 2
    dealt = [w for w in words if w not in ("--agent-column", "who")] + ["--drop", "who"]
    assert main([*dealt, "--test-epsilon", "2", "--ledgers", ".", "--out", "d"]) == 2


@pytest.mark.parametrize("odd", ["a word", np.nan])
def test_targets_that_are_no_numbers_are_refused_without_showing_them(records, odd):
    X, _ = records
    model = PrivateHuberRegressor(1.0, target_range=(-3, 3), random_state=0, rounds=2)
    model.fit(X, X[:, 0])
    y = X[:, 0].astype(object)
    y[0] = odd
    with pytest.raises(InvalidInput, match="targets") as error:
        PrivateEvaluation(model=model, **BUDGET).fit(X, y)
    assert "word" not in str(error.value)


def test_that_two_models_agree_on_all_records_does_not_show(tmp_path, records):
    X, y = records
    tacit.Ledger.create(tmp_path / "agent 1.db", 10.0, 1e-5)
    model = LogisticRegression().fit(X, y)
    other = LogisticRegression().fit(X, y)
    other.coef_ = other.coef_ * (1 + 1e-12)  # all records are in the same cells
    about = {"total_epsilon": 1.0, "ledgers": tmp_path}
    found = [PrivateEvaluation(model=m, **about).fit(X, y) for m in (model, other, model)]
    assert (found[0].table != found[1].table).any()
    assert (found[0].table == found[2].table).all()  # asked again, at no cost
    assert len(tacit.Ledger(tmp_path / "agent 1.db").runs()) == 2
