"""Studies of a classifier: each party's records meet public columns, ranges and classes."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import repeat
from sklearn.pipeline import make_pipeline
from test_study import PARTY, refused, same, told

import tacit
from tacit.cli.main import main
from tacit.learn import (
    Box,
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PublicColumns,
    PublicRange,
    load_model,
    load_table,
)
from tacit.learn.estimators import adopt, prepare
from tacit.objectives.objective import RELATIONS
from tacit.studies import PartyFile, Study

STUDY = """
[learn]
features = ["age", "fee", "visits"]
target = "churn"
classes = ["no", "yes"]
normaliser = 90
record_bound = 40
bound = 4.0
centring_share = "none"
[learn.ranges]
age = [18, 90]
"*" = [0, 10]
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[[agents]]
name = "A"
[[agents]]
name = "B"
[[agents]]
name = "C"
"""
RANGES = {"age": (18, 90), "*": (0, 10)}
SIZES = {"A": 20, "B": 40, "C": 30}


@pytest.fixture(params=[2, 3], ids=["two classes", "three classes"])
def tables(request, tmp_path):
    """Three parties' tables, and the same records in one."""
    rng = np.random.default_rng(5)
    classes = ["no", "yes", "maybe"][: request.param]
    parts = []
    for name, size in SIZES.items():
        rows = {
            "visits": rng.integers(0, 12, size),
            "age": rng.uniform(10, 95, size),
            "note": ["text"] * size,
            "fee": rng.normal(5, 3, size),
            "churn": rng.choice(classes, size),
        }
        parts.append(pd.DataFrame(rows).assign(owner=name))
        parts[-1].drop(columns="owner").to_csv(tmp_path / f"{name}.csv", index=False)
        text = PARTY.replace("North hospital", name).replace("north.csv", f"{name}.csv")
        text = text.replace('target = "progression"\n', "")
        (tmp_path / f"{name}.toml").write_text(text)
    pd.concat(parts).to_csv(tmp_path / "all.csv", index=False)
    text = STUDY.replace('["no", "yes"]', json.dumps(classes))
    (tmp_path / "study.toml").write_text(text)
    return tmp_path


def parts_of(folder):
    study = Study.load(folder)
    return study, [study.problem_of(n, PartyFile.load(folder / f"{n}.toml")) for n in SIZES]


def in_one_process(folder, **options):
    """What ``tacit learn`` does with all records in one table."""
    data = load_table(folder / "all.csv", "churn", "owner", features=("age", "fee", "visits"))
    ranges = PublicRange(RANGES)
    features = ranges.fit_transform(pd.DataFrame(data.features, columns=list(data.columns)))
    options |= {"centring_share": None}
    model = PrivateLogisticRegression(
        2.0, 1e-5, constraint=Box(4.0), classes=list(data.names), **options
    )
    labels = np.array(data.names)[data.labels]
    return ranges, model, *prepare(model, features, labels, data.groups)


def test_a_study_is_the_fit_of_one_process(tables):
    study, parts = parts_of(tables)
    *_, problem, settings = in_one_process(tables)
    assert study.agents == problem.names
    assert all(map(same, parts, problem.agents))
    known = told(tacit.Problem(parts), study)
    assert study.plan(known).settings == settings
    assert settings.complete(known) == settings.complete(problem)


@pytest.mark.parametrize("tables", repeat([3], [2, 3]), indirect=True, ids="{} classes".format)
def test_the_model_is_that_of_one_process(tables, capsys):
    text = (tables / "study.toml").read_text()
    (tables / "study.toml").write_text(
        text.replace("[[agents]]", "[algorithm]\nrounds = 4\n[[agents]]", 1)
    )
    study, parts = parts_of(tables)
    ranges, model, problem, settings = in_one_process(tables, rounds=4)
    assert study.plan(told(tacit.Problem(parts), study)).settings == settings
    result = tacit.solve(tacit.Problem(parts), settings, seed=2)
    adopt(model, problem, tacit.solve(problem, settings, seed=2))
    assert study.kind.write_outcome(tables / "model", result) == ["model.json"]
    found = load_model(tables / "model")
    expected = make_pipeline(ranges, model)
    sample = pd.read_csv(tables / "all.csv")[["age", "fee", "visits"]]
    np.testing.assert_array_equal(found.predict_proba(sample), expected.predict_proba(sample))
    assert study.kind.stated(result).privacy == model.privacy_
    assert study.kind.assumed(1e-5) == model.privacy_.assumed != result.privacy.assumed
    assert found[-1].privacy_ == model.privacy_
    assert main(["predict", str(tables / "model"), str(tables / "B.csv"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["predictions"] == expected.predict(sample[20:60]).tolist()
    (own := tables / "own").mkdir()
    assert study.kind.write_own(own, parts[0], result.local[0], None) == ["solution.npz"]
    names = study.kind.write_own(own, parts[0], result.solution, result.privacy)
    assert names == ["solution.npz", "model.json"]
    mine = load_model(own)
    assert mine[-1].privacy_ == model.privacy_
    np.testing.assert_array_equal(mine.predict_proba(sample), expected.predict_proba(sample))


REGRESSION = """
[learn]
columns = "columns.toml"
model = "MODEL"
normaliser = 90
record_bound = 40
[privacy]
total_epsilon = 4.0
total_delta = 1e-5
[[agents]]
name = "A"
[[agents]]
name = "B"
[[agents]]
name = "C"
"""
COLUMNS = """
target = "visits"
target_range = [0, 12]
drop = ["churn"]
[ranges]
age = [18, 90]
fee = [0, 10]
[categories]
note = ["text", "none"]
[fill]
fee = 5
"""


@pytest.mark.parametrize("tables", [2], indirect=True, ids="{} classes".format)
@pytest.mark.parametrize("model", repeat(["huber", "ridge"], ["huber", "ridge", "quantile"]))
def test_a_regression_by_rules_in_a_file_is_that_of_tacit_learn(tables, model, capsys):
    """Three sites with text, missing values and a number to predict, from study to predictions."""
    (tables / "columns.toml").write_text(COLUMNS)
    (tables / "study.toml").write_text(REGRESSION.replace("MODEL", model))
    for name in SIZES:
        table = pd.read_csv(tables / f"{name}.csv")
        table.loc[::3, "fee"] = np.nan
        table.loc[::4, "note"] = "none"
        table.to_csv(tables / f"{name}.csv", index=False)
    study, parts = parts_of(tables)
    assert study.kind.files == ("columns.toml",)
    plan = study.plan(told(tacit.Problem(parts), study))
    columns = PublicColumns(
        {"age": (18, 90), "fee": (0, 10)}, {"note": ["text", "none"]}, {"fee": 5}
    )
    whole = pd.concat([pd.read_csv(tables / f"{n}.csv").assign(owner=n) for n in SIZES])
    rows = np.ascontiguousarray(columns.fit_transform(whole[["age", "fee", "note"]]))
    kind = {"huber": PrivateHuberRegressor, "ridge": PrivateRidge}.get(
        model, PrivateQuantileRegressor
    )
    alone = kind(4.0, 1e-5, target_range=(0, 12))
    visits = whole["visits"].to_numpy(float)
    problem, settings = prepare(alone, rows, visits, whole["owner"].to_numpy())
    assert plan == settings or plan.settings == settings
    for mine, theirs in zip(parts, problem.agents, strict=True):
        np.testing.assert_allclose(mine.objective.targets, theirs.objective.targets)
        np.testing.assert_allclose(mine.objective.features, theirs.objective.features, rtol=1e-15)
    result = tacit.solve(tacit.Problem(parts), plan, seed=2)
    assert study.kind.stated(result).privacy.epsilon <= 4.0
    study.kind.write_outcome(tables / "model", result)
    assert main(["predict", str(tables / "model"), str(tables / "B.csv"), "--json"]) == 0
    said = np.array(json.loads(capsys.readouterr().out)["predictions"])
    assert said.shape == (40,) and 0 <= said.min() <= said.max() <= 12


def test_a_party_may_call_its_target_otherwise(tables):
    _, (first, *_) = parts_of(tables)
    table = pd.read_csv(tables / "A.csv", dtype=str).rename(columns={"churn": "left"})
    table[reversed(table.columns)].to_csv(tables / "A.csv", index=False)
    assert "'churn'" in refused(lambda: parts_of(tables))
    text = (tables / "A.toml").read_text()
    (tables / "A.toml").write_text(text.replace("[limits]", 'target = "left"\n[limits]'))
    hidden = RELATIONS["zero-out"]
    assert first.objective.neighbours == hidden
    (tables / "A.toml").write_text((tables / "A.toml").read_text() + f'hides = "{hidden}"\n')
    _, (again, *_) = parts_of(tables)
    assert same(first, again)


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (STUDY, 'features = ["age", "fee", "visits"]', 'features = ["age", "age"]', "features"),
        (STUDY, 'target = "churn"', 'target = "age"', "'age'"),
        (STUDY, 'classes = ["no", "yes"]', 'classes = ["no", "no"]', "classes"),
        (STUDY, "record_bound = 40\n", "", "record_bound"),
        (STUDY, "bound = 4.0", 'neighbours = "add-remove"', "neighbours"),
        (STUDY, "age = [18, 90]", "age = 18", "'age'"),
        (STUDY, "[privacy]", '[learn.categories]\ntown = ["a", "b"]\n[privacy]', "town"),
        (STUDY, '"*" = [0, 10]', "", "'fee'"),
        (STUDY, "total_delta = 1e-5\n", "", "total_delta"),
        (STUDY, 'name = "B"', 'name = "B"\ncoupling = [1]', "coupling"),
        (REGRESSION, '"columns.toml"', '"../columns.toml"', "columns"),
        (REGRESSION, '"columns.toml"', '"columns.toml"\ntarget = "age"', "target"),
        (REGRESSION, 'model = "MODEL"', 'model = "logistic"', "model"),
        (REGRESSION, 'model = "MODEL"', 'model = "huber"\nlevel = 0.2', "level"),
        (REGRESSION, "= 1e-5", '= 1e-5\ncalibration = "certified"', "calibration"),
    ],
)
def test_what_a_study_of_a_model_may_not_say(tmp_path, text, old, new, words):
    (tmp_path / "columns.toml").write_text(COLUMNS)
    path = tmp_path / "study.toml"
    path.write_text(text.replace("MODEL", "huber"))
    Study.load(tmp_path)
    assert old in text
    path.write_text(text.replace(old, new, 1).replace("MODEL", "huber"))
    assert words in refused(lambda: Study.load(tmp_path))
