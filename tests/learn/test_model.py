"""Public ranges, and models as files."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import (
    PrivateLogisticRegression,
    PublicRange,
    load_model,
    save_model,
)

RANGES = {"age": (20, 80), "*": (0.0, 10.0)}


def clinic(rng, records=300):
    table = pd.DataFrame({"age": rng.uniform(10, 90, records), "fee": rng.uniform(0, 10, records)})
    return table, np.where(table["age"] / 60 + table["fee"] / 10 > 1.3, "yes", "no")


def test_public_ranges(rng):
    table, _ = clinic(rng)
    mapped = PublicRange(RANGES).fit_transform(table)
    by_hand = [np.clip((table["age"] - 50) / 30, -1, 1), table["fee"] / 5 - 1]
    np.testing.assert_allclose(mapped, np.transpose(by_hand), atol=1e-12)
    other = PublicRange(RANGES).fit(table[:2])  # nothing is read off the data
    np.testing.assert_array_equal(other.transform(table), mapped)
    same = PublicRange({0: (20, 80), 1: (0, 10)}).fit_transform(table.to_numpy(np.float32))
    assert same.dtype == np.float32
    np.testing.assert_allclose(same, mapped, atol=1e-6)
    assert np.abs(PublicRange({"*": (-1, 1)}).fit_transform([[1e308, -0.25]])).tolist() == [
        [1, 0.25]
    ]
    for wrong, words in (
        ({"age": (20, 80)}, "none of 'fee' .1 of 2 have none"),
        ({"size": (0, 1), "*": (0, 1)}, "columns age, fee, got one of 'size'"),
        ({"*": (1, 1)}, r"low < high of '\*'"),
        ({"*": (0, np.inf)}, "low < high"),
        ([(0, 1)], "by column"),
    ):
        with pytest.raises(InvalidInput, match=words):
            PublicRange(wrong).fit(table)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("with_ranges", [True, False])
def test_a_saved_model_predicts_the_same(tmp_path, rng, classes, with_ranges):
    table, y = clinic(rng)
    if classes == 3:
        y = np.arange(300) % 3
    model = PrivateLogisticRegression(4.0, rounds=5, random_state=0, feature_norm=1.5)
    if with_ranges:
        model = make_pipeline(PublicRange(RANGES), model)
    save_model(model.fit(table, y), tmp_path)
    again = load_model(tmp_path)
    assert (again.predict(table) == model.predict(table)).all()
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    last, ours = (m[-1] if with_ranges else m for m in (again, model))
    assert last.privacy_ == ours.privacy_ and (last.classes_ == ours.classes_).all()
    written = json.loads((tmp_path / "model.json").read_text())
    assert written["scores"][-1]["coefficients"]["fee"] == ours.coef_[-1, 1]
    assert "objective" not in json.dumps({**written, "privacy": None})
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table[["fee", "age"]])


def test_models_that_cannot_be_saved_or_read(tmp_path, rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    with pytest.raises(InvalidInput, match="Nothing was saved"):
        save_model(make_pipeline(StandardScaler(), PrivateLogisticRegression()), tmp_path)
    with pytest.raises(CorruptFile, match="model that tacit saved"):
        load_model(tmp_path)
    save_model(PrivateLogisticRegression(None, rounds=2).fit(X, y), tmp_path)
    assert load_model(tmp_path).privacy_.epsilon == np.inf
    text = (tmp_path / "model.json").read_text()
    for old, new in (('"format": 1', '"format": 2'), ('"x1"', '"x7"'), ('"scores"', '"s"')):
        (tmp_path / "model.json").write_text(text.replace(old, new, 1))
        with pytest.raises(CorruptFile, match="model that tacit saved"):
            load_model(tmp_path)


def test_a_saved_binary_score_is_of_the_class_it_names(tmp_path):
    """Predicting by hand with nothing but the numbers of the file."""
    import json

    from tacit.learn import save_model

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 2))
    y = np.where(x[:, 0] + 0.2 > 0, "yes", "no")  # first column and intercept matter
    model = PrivateLogisticRegression(None, rounds=60).fit(x, y)
    document = json.loads(save_model(model, tmp_path).read_text())
    (score,) = document["scores"]
    lengths = np.sqrt((x**2).sum(axis=1, keepdims=True))
    rows = x * np.minimum(1, document["longest_row"] / lengths)
    values = score["intercept"] + rows @ [score["coefficients"][c] for c in document["columns"]]
    other = next(c for c in document["classes"] if c != score["class"])
    said = np.where(values > 0, score["class"], other)
    assert score["class"] == "yes" and (said == y).mean() > 0.9
    assert (said == model.predict(x)).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_long_rows_have_the_same_scores_in_a_saved_model(tmp_path, rng, intercept):
    """Rows are scaled down to another length where there is no intercept."""
    X, y = 9 * rng.normal(size=(40, 3)), np.arange(40) % 2
    model = PrivateLogisticRegression(None, rounds=3, fit_intercept=intercept).fit(X, y)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), rtol=1e-12)
