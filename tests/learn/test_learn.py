"""The private classifier: scikit-learn's conventions, constraints, budgets, the planner."""

import json
import math
import subprocess
import sys
from pathlib import Path

import cvxpy as cp
import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import tacit
from tacit.admm.local_side import local_side
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import (
    Ball,
    Box,
    Budget,
    Convex,
    PrivateLogisticRegression,
    PublicRange,
    Sign,
    load_digits,
    load_model,
    plan,
    save_model,
    split,
)
from tacit.learn.estimator import SHARE, scaled_down
from tacit.learn.plan import NOISE

TACIT = Path(sys.executable).with_name("tacit")
GENEROUS = {"total_epsilon": 500.0, "feature_norm": 5.0, "random_state": 0}


CHECKS = [  # all but one, which needs a setting of SciPy's
    (estimator, check)
    for kind in (
        PrivateLogisticRegression(**GENEROUS, rounds=60),
        PublicRange({"*": (-10, 10)}),
    )
    for estimator, check in estimator_checks_generator(kind)
    if "array_api" not in str(check)
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


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_budget_is_kept_and_buys_accuracy(digits, epsilon):
    train, test, owner = digits
    model = PrivateLogisticRegression(epsilon, 1e-5, random_state=1)
    model.fit(train.features, train.labels, agents=owner)
    assert 0.999 * epsilon <= model.privacy_.epsilon <= epsilon and model.privacy_.certified
    error = 1 - model.score(test.features, test.labels)
    assert error < {2.0: 0.35, 8.0: 0.14}[epsilon]  # a guess has 0.9


@pytest.mark.parametrize(
    "constraint",
    [Box(0.1), Ball(0.5), Budget(1.0), Convex(lambda Z: [cp.norm(Z, "fro") <= 0.3, Z[0] >= Z[1]])],
    ids=["box", "ball", "budget", "cvxpy"],
)
def test_constraints_hold_whatever_the_noise(constraint, rng):
    X, y = make_blobs(90, n_features=4, centers=3, random_state=0)
    model = PrivateLogisticRegression(0.5, constraint=constraint, rounds=3, random_state=0)
    model.fit(X, y, agents=np.arange(90) % 3)
    Z = model.coef_.T
    measured = {
        "Box": np.abs(Z).max() - 0.1,
        "Ball": np.linalg.norm(Z) - 0.5,
        "Budget": np.abs(Z).sum() - 1.0,
        "Convex": max(np.linalg.norm(Z) - 0.3, (Z[1] - Z[0]).max()),
    }[type(constraint).__name__]
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


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_keep_within_the_norm(rng, classes, fit_intercept):
    """What the sensitivity rests on: rows with the constant are no longer than feature_norm."""
    X = rng.normal(size=(60, 5)) * 10 ** rng.uniform(-3, 3, (60, 1))
    y = np.arange(60) % classes
    model = PrivateLogisticRegression(
        50.0, feature_norm=2.0, fit_intercept=fit_intercept, rounds=2, random_state=0
    ).fit(X, y)
    lengths = np.linalg.norm(model._rows(X), axis=1)
    assert lengths.max() <= 2.0 * (1 + 1e-12)
    scores = model.decision_function(X)
    rows = scaled_down(X, 2.0 * math.sqrt(1 - SHARE**2) if fit_intercept else 2.0)
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
    assert "public: the numbers of records, the labels that occur" in taken.privacy_.words
    missing = r"labels of \[0, 2\], got another one in row 2\."
    for wrong, words in (([0, 2], missing), ([0, None], "of one type")):
        with pytest.raises(InvalidInput, match=words):
            PrivateLogisticRegression(1.0, classes=wrong).fit(X, y)
    with pytest.raises(InvalidInput, match="got 1 class"):
        PrivateLogisticRegression(1.0).fit(X, ["a"] * 60)


def test_sizes_are_fixed_in_the_statement_and_one_record_moves_the_sum_by_no_more(rng):
    """Zero-out neighbours: the same normaliser, one record's features at zero."""
    X, y = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
    model = PrivateLogisticRegression(1.0, rounds=2, random_state=0).fit(X, y)
    assert "(numbers of records stay)" in model.privacy_.words
    rows, owner = model._rows(X), np.zeros(50, int)
    problem = model._problem(X, y, np.array(["a"]), owner)
    f, W = problem.agents[0].objective, problem.agents[0].feasible_set
    worst = 0.0
    for _ in range(200):
        z = np.asarray(W.project(rng.normal(size=W.dimension) * 20))
        k = rng.integers(50)
        scores = rows[k] @ z.reshape(5, 3)
        share = np.exp(scores - scores.max())
        share /= share.sum()
        share[y[k]] -= 1
        worst = max(worst, np.linalg.norm(np.outer(rows[k], share)) / 50)
    assert 0.9 * f.sensitivity(2, W) < worst <= f.sensitivity(2, W)


def test_paper_calibration_is_marked(digits):
    train, _, owner = digits
    model = PrivateLogisticRegression(4.0, calibration="paper", rounds=2, random_state=0)
    model.fit(train.features, train.labels, agents=owner)
    assert not model.privacy_.certified and "Not certified" in model.privacy_.words


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
    X, y = rng.normal(size=(50, 2)), np.arange(50) % 2
    fits = {"rounds": 2, "random_state": np.random.RandomState(0)}  # as scikit-learn allows
    model = PrivateLogisticRegression(1.0, 0.01, classes=[0, 1], **fits).fit(X, y)
    words = model.privacy_.words
    assert words.startswith(
        "For taking one record out of the sums or putting it back (numbers of records stay) in one "
        "agent's data, all messages of the run together"
    )
    assert "(a scaler fitted on private data is not covered)" in words
    assert "1/50 or more" not in words
    large = PrivateLogisticRegression(1.0, 0.02, classes=[0, 1], **fits).fit(X, y)
    assert "1/50 or more would allow publishing a whole record" in large.privacy_.words
    assert large.result_.seed != model.result_.seed
    again = tacit.admm.statement.PrivacyStatement.from_dict(large.privacy_.to_dict())
    assert again == large.privacy_


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


def problem_of(records, agents, classes=10, features=20, B=1.0):
    rng = np.random.default_rng(0)
    n = records // agents
    return tacit.Problem(
        tacit.LocalProblem(
            tacit.SoftmaxRegression(
                rng.normal(size=(n, features)),
                rng.integers(0, classes, n),
                classes,
                feature_norm=B,
                normaliser=records,
                record_bound=n,
            ),
            tacit.Box(-8 / B, 8 / B, size=features * classes),
        )
        for _ in range(agents)
    )


def first_step(settings):
    return 1 / (1 / settings.step_size(0) * 1.1)


@pytest.mark.parametrize(("records", "agents"), [(400, 4), (4000, 4), (4000, 40)])
def test_the_plan_bounds_the_noise_of_a_score(records, agents):
    """B s σ √(U/P) is at most NOISE, and reaches it unless the longest path is shorter."""
    problem = problem_of(records, agents)
    for epsilon in (0.5, 2.0, 8.0):
        settings = plan(problem, 10, epsilon, 1e-5)
        agent = problem.agents[0]
        σ = math.sqrt(
            settings.mechanism.variance(agent.objective.sensitivity(2, agent.feasible_set))
        )
        noise = first_step(settings) * σ * math.sqrt(settings.updates / agents)
        assert noise == pytest.approx(NOISE, rel=0.01)
        assert 50 <= settings.updates <= 1000


def test_the_plan_does_not_depend_on_units():
    """Features and norms ten times larger: the same rounds, steps a hundredth."""
    a, b = (plan(problem_of(4000, 4, B=B), 10, 2.0, 1e-5) for B in (1.0, 10.0))
    assert (a.rounds, a.mechanism) == (b.rounds, b.mechanism)
    assert first_step(b) == pytest.approx(first_step(a) / 100, rel=0.05)


def test_the_plan_reads_nothing_private():
    """Other records with the same public numbers: the same settings."""
    one = problem_of(400, 4)
    other = tacit.Problem(
        tacit.LocalProblem(
            tacit.SoftmaxRegression(
                np.zeros((100, 20)),
                np.zeros(100, int),
                10,
                feature_norm=1.0,
                normaliser=400,
                record_bound=100,
            ),
            agent.feasible_set,
        )
        for agent in one.agents
    )
    assert plan(one, 10, 1.0, 1e-5) == plan(other, 10, 1.0, 1e-5)
    assert plan(one, 10, 1.0, 1e-5, rounds=7, local_updates=2).updates == 14


def test_the_plan_on_data_it_was_not_tuned_on():
    """Breast cancer, three hospitals, total (2, 1e-5): far better than a guess."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)  # in earnest: by public numbers
    errors = []
    for seed in range(3):
        model = PrivateLogisticRegression(2.0, 1e-5, random_state=seed)
        model.fit(X[::2], y[::2], agents=np.arange(len(X[::2])) % 3)
        errors.append(1 - model.score(X[1::2], y[1::2]))
    assert np.mean(errors) < 0.12  # the larger class is 63 %; without privacy 0.03


def run(words, *, folder, check=True):
    done = subprocess.run(
        [TACIT, *words.split()], capture_output=True, text=True, cwd=folder, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def test_command_on_digits(tmp_path):
    done = run(
        "learn digits --agents 10 --total-epsilon 4 --total-delta 1e-5 --seed 1 --json",
        folder=tmp_path,
    )
    document = json.loads(done.stdout)
    wanted = "test_error train_objective epsilon delta rounds local_updates seed"
    assert set(wanted.split()) <= set(document)
    assert document["test_error"] < 0.3 and document["epsilon"] <= 4 and document["seed"] == 1
    assert document["classes"] == list("0123456789")
    test = load_digits("test")
    guesses = load_model(tmp_path / "digits-model").predict(test.features)
    assert np.mean(guesses != test.labels.astype(str)) == pytest.approx(document["test_error"])
    open_run = run("learn digits --no-noise --rounds 2 --out open", folder=tmp_path).stdout
    assert "Not private" in open_run and "delta" not in open_run
    again = run("learn digits --total-epsilon 1", folder=tmp_path, check=False)
    assert again.returncode == 2 and "budget is spent" in again.stderr


def test_command_on_a_table(tmp_path, rng, refused):
    rows = ["age,fee,churn,hospital"]
    for _ in range(600):
        age, fee = rng.uniform(20, 80), rng.uniform(0, 10)
        churn = "yes" if age / 60 + fee / 10 > 1.3 else "no"
        rows.append(f"{age:.1f},{fee:.2f},{churn},{rng.choice(['east', 'west', 'south'])}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (tmp_path / "few.csv").write_text("x,y\n0.1,1\n0.2,1\n0.3,1\n")
    (tmp_path / "one.csv").write_text("x,y,a\n0.1,1,east\n")
    ranges = "--range age=20:80 --range fee=0:10"
    base = "learn t.csv --target churn --agent-column hospital --total-epsilon 4 --seed 2"
    done = run(f"{base} {ranges} --feature-norm 1.5 --classes no,yes,maybe", folder=tmp_path)
    assert "3 agents, 480 records, 3 classes" in done.stdout and "t-model" in done.stdout
    assert "objective (not covered: keep secret)" in done.stdout
    found = json.loads(run("predict t-model t.csv --json", folder=tmp_path).stdout)
    table = pd.read_csv(tmp_path / "t.csv")
    model = load_model(tmp_path / "t-model")
    assert found["predictions"] == model.predict(table[["age", "fee"]]).tolist()
    assert found["classes"] == ["maybe", "no", "yes"] and len(found["probabilities"]) == 600
    assert np.mean(np.array(found["predictions"]) == table["churn"]) > 0.75
    run("predict t-model t.csv --out p.csv", folder=tmp_path)
    written = pd.read_csv(tmp_path / "p.csv")
    assert written["prediction"].tolist() == found["predictions"]
    assert list(written)[1:] == [f"probability of {c}" for c in found["classes"]]
    assert float(done.stdout.split("120 records; not covered)")[1].split("│")[1].split("%")[0]) < 25
    for wrong, words in (
        ("learn t.csv --total-epsilon 1 --out r", "--target"),
        ("learn absent.csv --total-epsilon 1", "got 'absent.csv'"),
        ("learn t.csv --target churn", "one of --total-epsilon"),
        ("learn mnist --total-epsilon 1", "--data"),
        (f"{base} --out r", "none of 'age' (2 of 2 have none)"),
        (f"{base} --range age=20 --range fee=0:1 --out r", "COLUMN=LOW:HIGH, got 'age=20'"),
        (f"{base} --range age=80:20 --range fee=0:1 --out r", "low < high of 'age'"),
        (f"{base} {ranges} --range size=1:2 --out r", "got one of 'size'"),
        (f"{base} {ranges} --drop size --out r", "a column 'size'"),
        (f"{base} {ranges} --agents 4 --out r", "--agent-column without --agents"),
        (f"{base} {ranges} --split iid --out r", "--agent-column without --agents"),
        (f"{base} {ranges} --rounds 0 --out r", "rounds >= 1"),
        (f"{base} {ranges} --classes no,never --out r", "got another one in row"),
        (f"{base} {ranges} --alpha 2 --out r", "--split dirichlet only"),
        (
            "learn t.csv --target fee --total-epsilon 1 --drop churn --drop hospital --out r",
            "a fraction in row",
        ),
        ("learn few.csv --target y --agents 1 --range *=0:1 --total-epsilon 1", "got 1 class."),
        ("learn few.csv --target y --range *=0:1 --total-epsilon 1", "1 to 2 agents, got 10"),
        ("learn one.csv --target y --agent-column a --range *=0:1 --total-epsilon 1", "0 sample"),
        ("learn digits --total-epsilon 1 --agents 0", "agents >= 1"),
        ("learn digits --total-epsilon 1 --target churn", "for a table only"),
        ("learn digits --total-epsilon 1 --test-share 0.5", "for a table only"),
        ("learn digits --total-epsilon 1 --split group --agents 3", "one per group"),
        ("learn digits --total-epsilon 1 --split group", "agent-column"),
        ("predict absent t.csv", "model that tacit saved"),
        ("predict t-model few.csv", "got no 'age' (2 of 2"),
        ("learn digits --total-epsilon 1 --device gpu", "a gpu that JAX can use"),
        ("reproduce mnist", "--data"),
        ("reproduce mnist --case case14", "no --case"),
    ):
        assert words in refused(wrong)


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


def test_the_plan_reads_public_numbers_only():
    """Other records and labels, of the same sizes: the same settings to the last bit."""
    rng = np.random.default_rng(1)
    chosen = []
    for scale, share in ((1.0, 0.5), (1e-3, 0.05), (1e3, 0.95)):
        x = scale * rng.normal(size=(60, 3))
        y = (np.arange(60) < share * 60).astype(int)
        model = PrivateLogisticRegression(2.0, 1e-5, classes=[0, 1], random_state=0)
        model.fit(x, y, agents=np.arange(60) % 3)
        chosen.append(model.result_.settings.to_dict())
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.parametrize("intercept", [True, False])
def test_long_rows_have_the_same_scores_in_a_saved_model(tmp_path, rng, intercept):
    """Rows are scaled down to another length where there is no intercept."""
    X, y = 9 * rng.normal(size=(40, 3)), np.arange(40) % 2
    model = PrivateLogisticRegression(None, rounds=3, fit_intercept=intercept).fit(X, y)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_likeliest_class_is_the_prediction(rng, classes):
    X, y = make_blobs(60, centers=classes, random_state=0)
    model = PrivateLogisticRegression(None, feature_norm=10.0, rounds=20).fit(X, y)
    shares = model.predict_proba(X)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(X)).all()
    assert len(set(model.predict(X))) == classes


def test_published_numbers_give_the_scores_of_the_solution(rng):
    """coef_ and intercept_ beside the solution itself, for a norm other than 1."""
    X, y = rng.normal(size=(50, 3)), np.arange(50) % 2
    model = PrivateLogisticRegression(None, feature_norm=4.0, rounds=3).fit(X, y)
    rows = np.hstack([scaled_down(X, model.longest_row), np.full((50, 1), SHARE * 4.0)])
    scores = rows @ model.result_.solution
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-9)
    by_hand = rows[:, :3] @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(by_hand, scores, rtol=1e-9)


def test_classes_may_be_given_in_any_order(rng):
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 3
    fits = [
        PrivateLogisticRegression(1.0, classes=order, rounds=2, random_state=0).fit(X, y)
        for order in ([0, 1, 2], [2, 0, 1])
    ]
    assert fits[1].classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
