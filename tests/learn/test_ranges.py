"""Ranges that are read privately: what is released, what it costs, and what is made of it."""

import json
import math

import numpy as np
import pytest
from conftest import repeat

import tacit
from tacit.errors import CorruptFile, InvalidInput, Refused
from tacit.learn import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
    load_model,
    save_model,
)
from tacit.learn.estimators import prepare
from tacit.learn.first_releases import Sums
from tacit.learn.ranges import (
    STAGES,
    in_bins,
    narrowed,
    trimmed,
    weights_of,
)
from tacit.privacy.accounting import calibrate, epsilon_of
from tacit.transports.solving import read

AGENTS = np.where(np.arange(6000) % 2 == 0, "north", "south")


@pytest.fixture(scope="module")
def narrow():
    """Columns within a tenth of their wide public ranges, and a target like that."""
    rng = np.random.default_rng(0)
    X = rng.uniform([0.3, -0.5, -1.0], [0.4, -0.4, 1.0], (6000, 3))
    y = 10 * X[:, 0] + 10 * X[:, 1] + 0.1 * rng.normal(size=6000)
    return X, y


def test_three_stages_of_four_bins_find_where_records_lie(narrow):
    X, y = narrow
    model = PrivateHuberRegressor(
        4.0, target_range=(-40, 40), ranges="auto", narrow_target=True, random_state=0
    )
    model.fit(X, y.tolist(), AGENTS)
    for (low, high), own in zip(model.ranges_[:2], X.T[:2], strict=True):
        assert low <= own.min() + 0.01 and own.max() - 0.01 <= high and high - low <= 0.25
    assert model.ranges_[2].tolist() == [-1, 1]
    assert (
        -40 < model.target_range_[0] < y.min() + 0.5 and y.max() - 0.5 < model.target_range_[1] < 40
    )
    assert model.privacy_.epsilon <= 4.0 and "histograms" in model.privacy_.words
    plain = PrivateHuberRegressor(4.0, target_range=(-40, 40), random_state=0).fit(X, y, AGENTS)
    errors = [np.sqrt(np.mean((m.predict(X) - y) ** 2)) for m in (model, plain)]
    assert errors[0] < 0.13 < errors[1]  # 0.1 is in the targets


def test_only_the_columns_that_are_named_are_read(narrow):
    X, y = narrow
    model = PrivateLogisticRegression(4.0, ranges=[1], rounds=2, random_state=0)
    model.fit(X, y > 0, AGENTS)
    assert model.ranges_[[0, 2]].tolist() == [[-1, 1], [-1, 1]] and model.ranges_[1, 1] < 0
    with pytest.raises(InvalidInput, match="columns by name or position"):
        PrivateLogisticRegression(ranges=["x"]).fit(X, y > 0)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_total_counts_every_stage(narrow, law):
    X, y = narrow
    delta = 1e-5 if law == "gaussian" else 0.0
    model = PrivateLogisticRegression(20.0, delta, ranges="auto", mechanism=law, rounds=4)
    model.random_state = 0
    _, settings = prepare(model, X, y > 0, seed=0)
    parts = [(m, n) for m, n, _ in model.first_releases_] + [(settings.mechanism, settings.updates)]
    assert [n for _, n in parts[:2]] == [STAGES, 1]
    assert 19.8 < epsilon_of(parts, delta) <= 20.0
    assert model.fit(X, y > 0).privacy_.epsilon == pytest.approx(epsilon_of(parts, delta))
    ridge = PrivateRidge(4.0, target_range=(-40, 40), ranges="auto", random_state=0).fit(X, y)
    (first, times, _), release = ridge.first_releases_[0], ridge.release_mechanism_
    assert ridge.privacy_.once and times == STAGES
    assert ridge.privacy_.epsilon == epsilon_of([(first, times), (release, 1)], 1e-5) <= 4.0


def test_ledgers_pay_for_every_stage_or_for_none(narrow, tmp_path):
    X, y = narrow
    how = {"ranges": "auto", "classes": [False, True], "rounds": 3, "ledgers": tmp_path}
    for name in ("north", "south"):
        tacit.Ledger.create(tmp_path / f"{name}.db", 4.1, 1e-5).close()
    with pytest.raises(Refused, match="beyond the budget"):  # which two stages less would fit
        PrivateLogisticRegression(4.2, **how).fit(X, y > 0, AGENTS)
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        assert ledger.spent.epsilon == 0
    fitted = PrivateLogisticRegression(4.0, **how).fit(X, y > 0, AGENTS)
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        assert len(ledger.runs()) == STAGES + 2
        assert 3.9 < ledger.spent.epsilon <= fitted.privacy_.epsilon <= 4.0


def test_with_few_records_nothing_is_read(narrow):
    """By public numbers: the same whatever the records are."""
    X, _ = narrow
    for rows in (X[:200], 0 * X[:200]):
        with pytest.raises(InvalidInput, match="less noise for ranges"):
            PrivateLogisticRegression(1.0, ranges="auto").fit(rows, np.arange(200) % 2)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
@pytest.mark.parametrize(("columns", "target"), [(3, True), (0, True), (4, False)])
def test_one_record_moves_a_histogram_by_no_more_than_its_sensitivity(columns, target, neighbours):
    weights = weights_of(columns, target)
    x = np.random.default_rng(0).uniform(-3, 3, (40, len(weights)))
    other = x.copy()
    other[0] = -other[0]
    rows = [
        (in_bins(part, -np.ones(len(weights)), np.ones(len(weights))) * weights[:, None]).reshape(
            40, -1
        )
        for part in (x, other)
    ]
    if neighbours == "zero-out":
        rows[1] = rows[0].copy()
        rows[1][0] = 0
    norms = math.sqrt(sum(weights**2)), sum(weights)
    own = Sums(np.array(["a"]), np.zeros(40, int), neighbours)
    (one,), (two,) = (own.parts(part, *norms) for part in rows)
    readings = one.objective.statistics(), two.objective.statistics()
    for norm in (1, 2):
        moved = np.linalg.norm(readings[0].values - readings[1].values, norm)
        assert moved <= readings[0].sensitivity(norm)
        assert neighbours == "replace" or moved == pytest.approx(norms[2 - norm])


def test_a_bin_goes_if_it_holds_next_to_nothing_with_those_beyond_it():
    low, high = np.array([-1.0]), np.array([1.0])
    for shares, expected in [
        ([0.0, 0.0, 1.0, 0.0], (0.0, 0.5)),
        ([0.004, 0.004, 0.99, 0.002], (-0.5, 0.5)),
        ([0.25, 0.25, 0.25, 0.25], (-1.0, 1.0)),
        ([1.0, 0.0, 0.0, 0.0], (-1.0, -0.5)),
        ([0.0, 0.0, 0.0, 0.0], (-1.0, 1.0)),  # all of it is noise
    ]:
        found = trimmed(np.array([shares]), np.zeros(1), low, high)
        assert (found[0][0], found[1][0]) == expected
    noisy = np.array([[0.03, 0.0, 0.97, 0.0]])
    assert trimmed(noisy, np.array([0.02]), low, high)[0][0] == -1
    assert trimmed(noisy, np.array([0.06]), low, high)[0][0] == 0


def test_stages_have_noise_of_their_own(narrow, monkeypatch):
    """With one seed too: the difference of two releases would have none."""
    X, y = narrow
    seen = []

    def kept(problem, *others, **how):
        found = read(problem, *others, **how)
        truth = problem.agents[0].objective.statistics().values
        seen.append(found.releases[0].values - truth)
        return found

    monkeypatch.setattr("tacit.learn.first_releases.read", kept)
    prepare(PrivateLogisticRegression(4.0, ranges="auto"), X, y > 0, seed=3)
    assert len(seen) == STAGES + 1
    for k in range(STAGES):
        assert not np.allclose(seen[k][:12], seen[(k + 1) % STAGES][:12], atol=1e-3)


def test_a_record_is_mapped_by_itself_and_a_saved_model_predicts_the_same(narrow, tmp_path):
    X, y = narrow
    ranges = np.array([[0.25, 0.5], [-1, 1], [-1, 1]])
    np.testing.assert_allclose(narrowed(X[:1], ranges)[0, 0], 8 * (X[0, 0] - 0.375))
    np.testing.assert_array_equal(narrowed(3 * X, ranges)[:, 1:], 3 * X[:, 1:])
    for model in (
        PrivateLogisticRegression(4.0, ranges="auto", rounds=3, random_state=0).fit(X, y > 0),
        PrivateRidge(
            4.0, target_range=(-40, 40), ranges=[0], narrow_target=True, random_state=0
        ).fit(X, y),
    ):
        document = json.loads(save_model(model, tmp_path).read_text())
        assert document["format"] == 4 and document["ranges"]["x0"] == model.ranges_[0].tolist()
        again = load_model(tmp_path)
        np.testing.assert_array_equal(again.predict(2 * X), model.predict(2 * X))
        for wrong in ([0.5, 0.5], [-2, 1], ["a", 1], None):
            broken = {**document, "ranges": {**document["ranges"], "x0": wrong}}
            (tmp_path / "model.json").write_text(json.dumps(broken))
            with pytest.raises(CorruptFile):
                load_model(tmp_path)


@pytest.mark.parametrize("how", repeat(["sum"], ["sum", None]))
def test_a_sum_costs_less(narrow, how):
    """The same columns at an epsilon that is too small for agents with noise of their own."""
    X, y = narrow
    agents = np.arange(6000) % 12
    budget = calibrate("gaussian", 0.45, 1e-5, 1)
    assert budget.noise_multiplier > 1
    model = PrivateLogisticRegression(
        0.45, ranges="auto", rounds=2, aggregation=how, random_state=0
    )
    if how is None:
        with pytest.raises(InvalidInput, match="less noise"):
            model.fit(X, y > 0, agents)
    else:
        assert model.fit(X, y > 0, agents).privacy_.epsilon <= 0.45


@pytest.mark.parametrize("changed", [False, True])
def test_that_two_stages_sort_all_records_alike_does_not_show(tmp_path, changed):
    """A number of 1/3 of its range is in the third bin of each stage, whatever was left out: all
    rows of two stages are the same, unless one record is elsewhere."""
    tacit.Ledger.create(tmp_path / "agent 1.db", 40.0, 1e-5)
    y = np.full(3000, 1 / 3)
    y[7] -= changed
    model = PrivateHuberRegressor(  # little noise: where nothing is left out, bins are the same
        20.0, target_range=(-1, 1), narrow_target=True, ledgers=tmp_path, rounds=1
    )
    model.fit(np.zeros((3000, 1)), y)
    ledger = tacit.Ledger(tmp_path / "agent 1.db")
    assert len(ledger.runs()) == STAGES + 1
    assert ledger.spent.epsilon == pytest.approx(model.privacy_.epsilon, rel=1e-6)
