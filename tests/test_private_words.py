"""No error and no log record says what is in private data: only where, and what was allowed."""

import json
import logging
import re

import numpy as np
import pytest
from grids import EVERYTHING

import tacit
from tacit.cli.main import main
from tacit.learn import PrivateLogisticRegression, PublicRange, load_leaf, load_table
from tacit.learn.data import Dataset, split
from tacit.power import load_case
from tacit.studies.job import load_job

SECRET = 7193
MARKS = ("7193", "7.193", "71.93", "Xq7193")
COMMON = {"feature_norm": 1.0, "normaliser": 10}
X = [[0.5], [0.1], [0.2]]


FEATURES = (
    [[0.5], ["Xq7193"], [0.2]],
    [[0.5], [7193.5, 1.0], [0.2]],
    [[7193.0], [np.nan], [0.2]],
    [[7193.0 + 1j], [0.0], [0.0]],
    [7193.0, 0.0, 0.0],
)
LABELS = (
    [0, SECRET, 1],
    [0, -SECRET, 1],
    [0, SECRET + 0.5, 1],
    ["0", "Xq7193", "1"],
    [0, np.nan, SECRET],
    [0, 1e30 + SECRET, 1],
)


def objectives():
    for features in FEATURES:
        yield lambda X=features: tacit.LeastSquares(X, [0, 0, 0], target_bound=1.0, **COMMON)
        yield lambda X=features: tacit.LogisticRegression(X, [0, 1, 0], **COMMON)
        yield lambda X=features: tacit.Residual(X, [0.0, 0.0, 0.0], beta=0.1)
    for labels in LABELS:
        yield lambda y=labels: tacit.LogisticRegression(X, y, **COMMON)
        yield lambda y=labels: tacit.SoftmaxRegression(X, y, 3, **COMMON)
        yield lambda y=labels: tacit.Hinge(X, y, **COMMON)
        yield lambda y=labels: tacit.LeastSquares(X, [*y[:-1], np.inf], target_bound=1.0, **COMMON)
        yield lambda y=labels: tacit.Residual(X, [*y[:-1], np.inf], beta=0.1)
    yield lambda: tacit.Residual(X, [7193.0, 0.0, 0.0], beta=0.1, data_bound=1.0)
    f = tacit.LeastSquares([[7.193e3]], [7193.0], target_bound=1.0, **COMMON)
    p = tacit.Problem([tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, size=1))])
    yield lambda: tacit.solve(p, p)
    yield lambda: tacit.solve(p, f)
    yield lambda: tacit.LocalProblem(f, f)
    yield lambda: tacit.LocalProblem(tacit.Box(-1.0, 1.0, size=1), f)
    yield lambda: tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, size=2))
    x, y = np.full((2, 2), 0.7193), np.array([7193.0, 1.0])  # in the wrong place
    bounds = {"target_bound": 1.0, **COMMON}
    yield lambda: tacit.LeastSquares(x, y, **bounds | {"target_bound": y})
    yield lambda: tacit.LeastSquares(x, y, **bounds | {"feature_norm": x})
    yield lambda: tacit.SoftmaxRegression(x, [0, 1], y, **COMMON)
    yield lambda: tacit.solve([x], tacit.Settings(2))
    yield lambda: tacit.Quantile(x, y, level=y, **COMMON)
    yield lambda: tacit.Hinge(x, [0, 1], neighbours=(y,), **COMMON)


def estimators():
    def fit(X, y, **options):
        return PrivateLogisticRegression(1.0, 1e-5, rounds=1, **options).fit(X, y)

    yield lambda: fit(X, [0, SECRET, 1], classes=[0, 1])
    yield lambda: fit(X, ["a", "Xq7193", "b"], classes=["a", "b"])
    yield lambda: fit(X, [SECRET] * 3)
    yield lambda: fit(X, [0.5, SECRET + 0.5, 1])
    for features in FEATURES[:4]:
        yield lambda X=features: fit(X, [0, 1, 0])
    yield lambda: PublicRange({0: (-1, 1)}).fit_transform([["Xq7193"], [1.0]])
    yield lambda: split(Dataset(np.ones((2, 1)), np.array([0, SECRET]), ("a",)), 3)


def told(make):
    with pytest.raises((ValueError, TypeError, tacit.TacitError)) as error:
        make()
    return str(error.value) + str(error.value.__cause__ or "")


def silent(said):
    return not any(mark in said for mark in MARKS)


@pytest.mark.parametrize("make", [*objectives(), *estimators()])
def test_values_are_not_in_errors(make, caplog):
    caplog.set_level(logging.DEBUG)
    said = told(make)
    # JAX logs digests of its programs and how long they took: any digits may be in them
    assert silent(said + re.sub(r"[0-9a-f]{64}|[\d.e-]+ sec", "", caplog.text)), said


JOB = """
objective = { kind = "logistic", feature_norm = 1.0, normaliser = 10 }
set = { kind = "box", lower = -1.0, upper = 1.0 }
privacy = { total_epsilon = 1.0, total_delta = 1e-5 }
algorithm = { rounds = 2 }
agents = [{ data = "d.csv", target = "y" }]
"""


@pytest.mark.parametrize(
    "table",
    [
        "a,y\n0.1,7193\n0.2,1\n",
        "a,y\n0.1,Xq7193\n0.2,1\n",
        "a,y\n0.1,7193,5\n",
        "a,y\nnan,7193\n0.2,1\n",
        "Xq7193,Yq\n0.1,0\n",
        "7193,0\n0.1,0\n",
        "a,y\n0.1,7193.5\n",
        "",
    ],
    ids="12345678",  # else the table is in the name of the folder
)
def test_jobs_and_tables(tmp_path, monkeypatch, capsys, table):
    (tmp_path / "d.csv").write_text(table)
    (tmp_path / "j.toml").write_text(JOB)
    assert silent(told(lambda: load_job(tmp_path / "j.toml")))
    monkeypatch.chdir(tmp_path)
    budget = ["--total-epsilon", "1", "--range", "*=-1:1", "--rounds", "1", "--classes", "0,1"]
    assert main(["learn", "d.csv", "--target", "y", *budget]) in (1, 2)
    assert silent(capsys.readouterr().err)


def test_arrays_of_a_job(tmp_path):
    (tmp_path / "j.toml").write_text(JOB.replace("d.csv", "d.npz"))
    for labels in LABELS:
        np.savez(tmp_path / "d.npz", features=np.array(X), labels=np.array(labels))
        assert silent(told(lambda: load_job(tmp_path / "j.toml")))


LEAF = (
    ([[7193.0]], [7193]),
    ([["Xq7193"]], [0]),
    ([[0.5]], ["Xq7193"]),
    ([[0.5, 7193.0], [7193.0]], [0, 0]),
    ([7193], [0]),
    ([[0.5]], [0, 7193]),
)
CSV = (b"a,y\n\xff7193,1\n", b'a,y\n1,2\n7193,1,"5\n')


def test_files_of_learning(tmp_path):
    for x, y in LEAF:
        user = {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": x, "y": y}}}
        (tmp_path / "a.json").write_text(json.dumps(user))
        assert silent(told(lambda: load_leaf(tmp_path)))
    for text in CSV:
        (tmp_path / "t.csv").write_bytes(text)
        assert silent(told(lambda: load_table(tmp_path / "t.csv", "y")))
    (tmp_path / "t.parquet").write_text("Xq7193")
    assert silent(told(lambda: load_table(tmp_path / "t.parquet", "y")))


def test_loads_of_a_grid(tmp_path):
    row, path = "25\t1\t60\t20", tmp_path / "g.m"
    assert row in EVERYTHING
    for cell in ("Xq7193", "NaN\t7193", "1e999\t7193"):
        path.write_text(EVERYTHING.replace(row, f"25\t1\t{cell}", 1))
        assert silent(told(lambda: load_case(path)))
    path.write_text(EVERYTHING + "mpc.bus(2, 3) = 7193;\n")
    assert silent(told(lambda: load_case(path)))
