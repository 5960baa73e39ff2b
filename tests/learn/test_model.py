"""Public ranges, and models as files."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import (
    PrivateLogisticRegression,
    PrivateRidge,
    PublicColumns,
    PublicRange,
    load_model,
    save_model,
)

RANGES = {"age": (20, 80), "*": (0.0, 10.0)}


def clinic(rng, records=40):  # as many as in the tests below: few programs
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


FEW = {"rounds": 3, "random_state": 0}
SAVED = {
    "two classes": PrivateLogisticRegression(4.0, feature_norm=1.5, **FEW),
    "three classes": PrivateLogisticRegression(4.0, feature_norm=1.5, classes=[0, 1, 2], **FEW),
    "no intercept": PrivateLogisticRegression(None, fit_intercept=False, **FEW),
    "centred": PrivateLogisticRegression(4.0, centring_share=0.05, clip=None, **FEW),
    "centred, with lengths": PrivateLogisticRegression(None, keep_length=True, **FEW),
    "numbers": PrivateRidge(4.0, target_range=(-2.5, 13), random_state=0),
    "numbers, no intercept": PrivateRidge(
        4.0, target_range=(-2.5, 13), fit_intercept=False, random_state=0
    ),
}


@pytest.mark.filterwarnings("ignore:.*copies of Private")
@pytest.mark.parametrize("with_ranges", [True, False])
@pytest.mark.parametrize("name", SAVED)
def test_a_saved_model_predicts_the_same(tmp_path, rng, name, with_ranges):
    """Also of rows that are too long, which are scaled down, by the intercept too."""
    table, y = clinic(rng)
    y = np.arange(40) % 3 if name == "three classes" else y
    y = table["fee"] + 1 if name.startswith("numbers") else y
    ours = clone(SAVED[name])
    model = make_pipeline(PublicRange(RANGES), ours) if with_ranges else ours
    written = json.loads(save_model(model.fit(table, y), tmp_path).read_text())
    again = load_model(tmp_path)
    table[::2] *= 9
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    scores = "predict" if name.startswith("numbers") else "predict_proba"
    one, other = (getattr(m, scores)(table) for m in (again, model))
    np.testing.assert_allclose(one, other, rtol=1e-12)
    last = again[-1] if with_ranges else again
    assert last.privacy_ == ours.privacy_ and written["columns"] == ["age", "fee"]
    assert written["estimator"] == type(ours).__name__
    assert written["scores"][-1]["coefficients"]["fee"] == np.atleast_2d(ours.coef_)[-1, 1]
    assert (written.get("mean") is None) == (getattr(ours, "mean_", None) is None)
    assert "objective" not in json.dumps({**written, "privacy": None})
    if name.startswith("numbers"):
        assert written["target_range"] == [-2.5, 13] and "classes" not in written
    else:
        assert (last.classes_ == ours.classes_).all()
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table[["fee", "age"]])
    # others may read it where it promises something
    assert (tmp_path / "model.json").stat().st_mode & 0o777 == (
        0o644 if ours.total_epsilon else 0o600
    )


def test_models_that_cannot_be_saved(tmp_path, rng):
    with pytest.raises(InvalidInput, match="StandardScaler learnt is not covered"):
        save_model(make_pipeline(StandardScaler(), PrivateLogisticRegression()), tmp_path)
    with pytest.raises(CorruptFile, match="model that tacit saved"):
        load_model(tmp_path)
    model = make_pipeline(PublicRange({"*": (-1, 2)}), PrivateRidge(4.0, target_range=(-2.5, 3)))
    X = rng.uniform(-1, 1, (40, 2))
    model.fit(X, X[:, 0])[0].ranges = {"*": (abs, 2)}
    with pytest.raises(InvalidInput, match="numbers and text, got builtin"):
        save_model(model, tmp_path / "n")
    assert not (tmp_path / "n").exists()


def test_a_saved_binary_score_is_of_the_class_it_names(tmp_path):
    """Predicting by hand with nothing but the numbers of the file."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 2))
    y = np.where(x[:, 0] + 0.2 > 0, "yes", "no")  # first column and intercept matter
    model = PrivateLogisticRegression(None, rounds=60, centring_share=None).fit(x, y)
    document = json.loads(save_model(model, tmp_path).read_text())
    (score,) = document["scores"]
    lengths = np.sqrt((x**2).sum(axis=1, keepdims=True))
    rows = x * np.minimum(1, document["longest_row"] / lengths)
    values = score["intercept"] + rows @ [score["coefficients"][c] for c in document["columns"]]
    other = next(c for c in document["classes"] if c != score["class"])
    said = np.where(values > 0, score["class"], other)
    assert score["class"] == "yes" and (said == y).mean() > 0.9
    assert (said == model.predict(x)).all()


def test_a_model_of_text_and_gaps_predicts_the_same(tmp_path, rng):
    table, y = clinic(rng)
    table["city"] = rng.choice(np.array(["Bern", "Zug, ZG", "elsewhere", None], object), 40)
    rules = PublicColumns(RANGES, {"city": ["Bern", "Zug, ZG"]}, {"city": "Bern", "fee": 3})
    model = make_pipeline(rules, PrivateLogisticRegression(4.0, rounds=5, random_state=0))
    save_model(model.fit(table, y), tmp_path)
    again = load_model(tmp_path)
    other = table[["city", "fee", "age"]].assign(more=1)  # by name, as it is in the table
    other.loc[3, "fee"] = np.nan
    np.testing.assert_array_equal(again.predict_proba(other), model.predict_proba(other))
    written = json.loads((tmp_path / "model.json").read_text())
    assert written["format"] == 3  # as 0.2.0 reads
    assert written["columns"] == ["age", "fee", "city=Bern", "city=Zug, ZG"]
    assert again.feature_names_in_.tolist() == ["age", "fee", "city"]


def test_models_of_the_first_two_formats_are_read(tmp_path, rng):
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    ranges = {"0": [-1, 2], "1": [-2, 1]}
    maps = PublicRange({int(k): v for k, v in ranges.items()})
    last = PrivateLogisticRegression(4.0, rounds=2, keep_length=False)
    model = make_pipeline(maps, last).fit(X, y)
    path = save_model(model, tmp_path)
    document = json.loads(path.read_text())
    for key in ("estimator", "steps"):
        del document[key]
    document |= {"format": 2, "ranges": {f"x{k}": v for k, v in ranges.items()}}
    path.write_text(json.dumps(document))
    np.testing.assert_array_equal(load_model(tmp_path).predict_proba(X), model.predict_proba(X))
    model[-1].mean_ = None
    path.write_text(json.dumps({**document, "format": 1, "mean": None}))
    np.testing.assert_array_equal(load_model(tmp_path).predict_proba(X), model.predict_proba(X))


def test_a_class_of_the_same_name_is_not_saved(tmp_path, rng):
    class PublicRange(StandardScaler):
        pass

    model = make_pipeline(PublicRange(), PrivateLogisticRegression(rounds=1))
    model.fit(rng.normal(size=(40, 2)), np.arange(40) % 2)
    with pytest.raises(InvalidInput, match="Nothing was saved"):
        save_model(model, tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of two columns with public rules, as a document."""
    table, y = clinic(np.random.default_rng(0))
    model = make_pipeline(PublicColumns(RANGES), PrivateLogisticRegression(None, rounds=1))
    path = save_model(model.fit(table, y), tmp_path_factory.mktemp("m"))
    assert load_model(path.parent)[-1].privacy_.epsilon == np.inf
    return json.loads(path.read_text())


WIDE = {"kind": "Scattering", "parameters": {"scales": 2, "angles": 8, "shape": [1, 10**6]}}
DAMAGES = [
    *({"classes": value} for value in ([], ["no"], ["no", "no"], "no", None, ["a", "b", "c"])),
    *({"scores": value} for value in ([], None, 3)),
    *({"columns": value} for value in (["age", "age"], ["age", "x7"], ["age"], 3)),
    *({"steps": value} for value in (None, 3, [[]])),
    *({"estimator": value} for value in ("SVC", "PrivateRidge", None, [1])),
    *({"format": value} for value in (0, 1, 2, 3, 5, "4", None)),
    *({"length": value} for value in (-1.0, "1")),
    {"mean": {"age": 1}},
    {"feature_norm": float("nan")},
    {"fit_intercept": "no"},
]
OF_A_SCORE = [{"intercept": []}, {"intercept": float("nan")}, {"coefficients": {"age": 1}}]
OF_A_STEP = [
    *({"kind": value} for value in ("StandardScaler", ["PublicRange"], "Scattering")),
    *({"width": value} for value in (3, "2", 10**12)),
    {"columns": "ab"},
    {"width": 10**18, "columns": None},
    *({"parameters": value} for value in ({}, {"ranges": 3}, {"memory": "x"})),
    {"kind": "RandomFourier", "columns": None, "parameters": {}},
    {**WIDE, "width": 10**6, "columns": None},  # 40 million columns took 3 GB
]


def damaged(document):
    yield from ({**document, **change} for change in DAMAGES)
    for part, changes in (("scores", OF_A_SCORE), ("steps", OF_A_STEP)):
        yield from ({**document, part: [{**document[part][0], **c}]} for c in changes)
    for gone in ("classes", "mean", "steps", "estimator", "privacy", "scores"):
        yield {key: value for key, value in document.items() if key != gone}


def test_a_damaged_model_is_refused(tmp_path, saved):
    texts = [json.dumps(document) for document in damaged(saved)]
    for text in (*texts, "[" * 100_000):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(CorruptFile, match="model that tacit saved"):
            load_model(tmp_path)
