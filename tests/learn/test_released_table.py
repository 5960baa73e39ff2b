"""One release of a table: agreement with least squares, intervals that cover, what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from conftest import repeat
from scipy.optimize import lsq_linear
from scipy.stats import binom, kstest

import tacit
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import (
    Box,
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateMoments,
    PrivateRidge,
    PublicRange,
)
from tacit.learn.error_bars import CLEAR, edge, estimate, spread
from tacit.learn.released_table import MOST_COLUMNS, Layout, expected
from tacit.privacy.accounting import calibrate

RANGES = {"age": (18.0, 90.0), "bmi": (15.0, 45.0), "cost": (0.0, 1200.0)}
CATEGORIES = {"sex": ["f", "m"], "stage": ["I", "II", "III"]}
ON = ["age", "sex=f", "bmi", "stage=II", "stage=III"]
RULES = {"ranges": RANGES, "categories": CATEGORIES}


def frame(n, seed=0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "stage": rng.choice(["I", "II", "III"], n, p=[0.5, 0.3, 0.2]),
            "bmi": np.clip(rng.normal(27, 4, n), 15, 45),
        }
    )
    female, stage = made["sex"] == "f", made["stage"] == "II"
    cost = 100 + 3 * made["age"] + 40 * female + 12 * made["bmi"] + 25 * stage
    return made.assign(cost=cost + rng.normal(0, 60, n))


def design(table):
    others = [table["sex"] == "f", table["bmi"], table["stage"] == "II", table["stage"] == "III"]
    return np.c_[np.ones(len(table)), table["age"], *others].astype(float)


@pytest.fixture(scope="module")
def table():
    return frame(20_000)


@pytest.fixture(scope="module")
def nearly_exact(table):
    return PrivateMoments(1e6, 1e-5, **RULES, random_state=1).fit(table, agents=table.index % 3)


@pytest.fixture(scope="module")
def released(table):
    return PrivateMoments(1.0, 1e-5, **RULES, random_state=1).fit(table, agents=table.index % 3)


# --- what is estimated --------------------------------------------------------------------------


def test_with_next_to_no_noise_it_is_least_squares_in_units_of_the_data(nearly_exact, table):
    """Coefficients, standard errors, R² and p as a statistics package has them, by its formulas."""
    fit = nearly_exact.regress("cost", ON)
    X, y = design(table), table["cost"].to_numpy()
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    left = y - X @ b
    variance = left @ left / (len(y) - X.shape[1])
    errors = np.sqrt(variance * np.diag(np.linalg.inv(X.T @ X)))
    off = np.abs([fit.intercept, *fit.coef] - b)
    assert (off <= 1e-5 * np.abs(b) + 5e-3 * errors).all()
    np.testing.assert_allclose(fit.std_error, errors[1:], rtol=5e-4)
    assert fit.r2 == pytest.approx(1 - left @ left / np.sum((y - y.mean()) ** 2), abs=1e-4)
    assert fit.deviation == pytest.approx(math.sqrt(variance), rel=1e-3)
    np.testing.assert_allclose(fit.interval()[:, 1] - fit.free[1:], 1.96 * fit.std_error, rtol=1e-3)
    np.testing.assert_allclose(
        fit.predict(table.head(9).drop(columns="cost")), (X @ b)[:9], rtol=1e-3
    )
    assert [row.name for row in fit.rows()] == ["(intercept)", *ON]


def test_what_follows_from_the_release_without_noise(nearly_exact, table):
    numbers = table.assign(female=table["sex"] == "f")[["age", "female", "bmi", "cost"]]
    names = ["age", "sex=f", "bmi", "cost"]
    for (mean, deviation), column in (
        (pair, column)
        for pair in nearly_exact.rows()
        for name, column in zip(names, numbers, strict=True)
        if pair[0].name == name
    ):
        values = numbers[column].astype(float)
        assert mean.value == pytest.approx(values.mean(), rel=1e-4)
        assert mean.error == pytest.approx(values.std() / math.sqrt(len(table)), rel=1e-2)
        assert deviation.value == pytest.approx(values.std(), rel=1e-3)
        assert mean.low < mean.value < mean.high and deviation.low < deviation.value
    found = nearly_exact.correlation().loc[names, names]
    np.testing.assert_allclose(found, numbers.astype(float).corr(), atol=1e-3)
    components = nearly_exact.principal_components(2)
    u = nearly_exact.layout_.rows(table)
    spectrum, V = np.linalg.eigh(np.cov(u.T, bias=True))
    np.testing.assert_allclose(components["share"], spectrum[::-1][:2] / spectrum.sum(), rtol=1e-3)
    first = components.drop(columns="share").iloc[0]
    assert abs(first @ V[:, -1]) == pytest.approx(1, abs=1e-4)


def test_ridges_and_constraints_hold_the_coefficients_and_not_the_intervals(nearly_exact, table):
    X, y = design(table), table["cost"].to_numpy()
    centred, target = X[:, 1:] - X[:, 1:].mean(axis=0), y - y.mean()
    free = nearly_exact.regress("cost", ON)
    ridge = nearly_exact.regress("cost", ON, l2=1e4)
    expected = np.linalg.solve(centred.T @ centred + 1e4 * np.eye(5), centred.T @ target)
    np.testing.assert_allclose(ridge.coef, expected, rtol=1e-3, atol=5e-3)
    held = nearly_exact.regress("cost", ON, constraint=Box(11.0))
    expected = lsq_linear(centred, target, (-11.0, 11.0)).x
    np.testing.assert_allclose(held.coef, expected, rtol=1e-3, atol=2e-2)
    assert held.intercept == pytest.approx(y.mean() - X[:, 1:].mean(axis=0) @ held.coef, rel=1e-3)
    for fit in (ridge, held):
        assert fit.held and not free.held
        np.testing.assert_array_equal(fit.interval(), free.interval())
    with pytest.raises(InvalidInput, match="Box"):
        nearly_exact.regress("cost", ON, constraint=Box)


# --- intervals ------------------------------------------------------------------------------------


def population(seed=0, d=4):
    """Rows (1, x, y): correlated columns within [−1, 1]; the best linear prediction is known."""
    rng = np.random.default_rng(seed)
    x = np.tanh(rng.normal(size=(50_000, d)) @ (np.eye(d) + 0.2) * 0.6)
    y = np.clip(x @ np.array([0.4, -0.3, 0.2, 0.0])[:d] + rng.normal(0, 0.25, len(x)), -1, 1)
    return np.c_[np.ones(len(x)), x, y]


def noises(rng, S, epsilon, shares):
    """A release of S as the library's: its noise, and its variances."""
    m = len(S)
    Δ = math.sqrt((m - 1) ** 2 + 2 * (m - 1))
    s2 = calibrate("gaussian", epsilon, 1e-5, 1).variance(Δ) * shares
    W = np.full((m, m), s2 / 2)
    np.fill_diagonal(W, s2)
    W[0, 0] = 0
    E = np.triu(rng.normal(size=(m, m)) * np.sqrt(W))
    return S + E + np.triu(E, 1).T, W


def fits(epsilon, shares, n, times, seed=0):
    rows = population()
    truth = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
    rng = np.random.default_rng(seed)
    for _ in range(times):
        w = rows[rng.integers(0, len(rows), n)]
        yield estimate(*noises(rng, w.T @ w, epsilon, shares), n), truth


@pytest.mark.parametrize(("epsilon", "shares", "n"), [(1.0, 5, 20_000), (1.0, 1, 5000)])
def test_intervals_cover_and_those_that_ignore_the_noise_do_not(epsilon, shares, n):
    times = repeat(150, 1000)
    both = alone = 0
    for found, truth in fits(epsilon, shares, n, times):
        assert found.clear >= 1
        off = np.abs(found.coef - truth)[1]
        both += off <= 1.96 * math.sqrt(found.sampling[1, 1] + found.privacy[1, 1])
        alone += off <= 1.96 * math.sqrt(found.sampling[1, 1])
    low, high = binom.ppf([1e-4, 1 - 1e-4], times, 0.95)
    assert low <= both <= high and alone < low


def test_noise_draws_estimates_away_only_to_first_order():
    """Near the threshold; least squares of T itself is off by more than chance explains."""
    rows, rng, n = population(), np.random.default_rng(0), 3500
    S = rows.T @ rows * (n / len(rows))
    exact = np.linalg.solve(S[:-1, :-1], S[:-1, -1])
    off, plain = [], []
    for _ in range(2000):
        T, W = noises(rng, S, 1.0, 5)
        found = estimate(T, W, n)
        if found.clear >= 1:
            off.append(found.coef - exact)
            plain.append(np.linalg.solve(T[:-1, :-1], T[:-1, -1]) - exact)
    t, control = (
        np.abs(np.mean(x, axis=0) / (np.std(x, axis=0) / math.sqrt(len(x))))[1:3].max()
        for x in (off, plain)
    )
    assert len(off) > 1000 and t < 4 < control


def test_the_covariance_of_noise_is_that_of_the_noise():
    rng = np.random.default_rng(0)
    W = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 0.5], [2.0, 0.5, 1.5]])
    v = np.array([1.0, -2.0, 0.5])
    E = np.triu(rng.normal(size=(100_000, 3, 3)) * np.sqrt(W))
    E = E + np.triu(E, 1).transpose(0, 2, 1)
    np.testing.assert_allclose(np.cov((E @ v).T), spread(W, np.outer(v, v)), atol=0.3)
    assert np.mean(np.abs(np.linalg.eigvalsh(E)).max(axis=1)) == pytest.approx(edge(W), rel=0.5)


def test_the_noise_of_a_release_is_what_the_table_says(table):
    """Every entry of T over its deviation is standard normal; with a secure sum there is less."""
    few = table.head(3000)
    u = Layout.of(tacit.learn.PublicColumns(**RULES).fit(few)).rows(few)
    w = np.c_[np.ones(len(u)), u]
    made, agents = {}, few.index % 5
    for how in (None, "sum"):
        options = {**RULES, "random_state": 3, "aggregation": how}
        made[how] = PrivateMoments(1.0, 1e-5, **options).fit(few, agents=agents)
        off = np.triu(made[how].matrix_ - w.T @ w)[made[how].variances_ > 0]
        scaled = off / np.sqrt(made[how].variances_[made[how].variances_ > 0])
        assert kstest(scaled[off != 0], "norm").pvalue > 1e-3
        assert kstest(scaled[off != 0] * 1.5, "norm").pvalue < 0.2
        assert made[how].matrix_[0, 0] == len(few)
    ratio = made["sum"].deviation_ / made[None].deviation_
    assert ratio == pytest.approx(math.sqrt(1 / 3), rel=1e-6)  # 5 − 2 add what makes up for one
    assert made["sum"].privacy_.parties == 5
    alone = PrivateMoments(1.0, 1e-5, **RULES, random_state=3).fit(few)
    assert alone.deviation_ == pytest.approx(made[None].deviation_ / math.sqrt(5), rel=1e-6)
    law, Δ = calibrate("gaussian", 1.0, 1e-5, 1), math.sqrt(2 * 4.1667 + 4.1667**2)
    assert alone.deviation_ == pytest.approx(math.sqrt(law.variance(Δ)), rel=1e-4)


def test_too_few_records_get_no_interval_but_a_sentence(released, table):
    few = PrivateMoments(1.0, 1e-5, **RULES, random_state=1).fit(table.head(300))
    fit = few.regress("cost", ON)
    assert fit.doubt in fit.summary() and "records, or a total epsilon of" in fit.doubt
    assert np.isnan(fit.interval()).all() and np.isnan(fit.std_error).all()
    assert np.isfinite(fit.coef).all() and fit.to_dict()["coefficients"][0]["low"] is None
    assert not released.regress("cost", ON).doubt
    fit.plot()


@pytest.mark.parametrize("also", [{"one": 5.0}, {"twin": None}])
def test_constant_and_collinear_columns_are_named(table, also):
    (name, value), few = *also.items(), table.head(4000)
    more = few.assign(**{name: few["age"] if value is None else value})
    ranges = {**RANGES, name: RANGES["age"]}
    options = {"ranges": ranges, "categories": CATEGORIES, "random_state": 0}
    for epsilon in (2.0, 1e6):
        fit = PrivateMoments(epsilon, 1e-5, **options).fit(more).regress("cost", ["age", name])
        assert repr(name) in fit.doubt and ("'age'" in fit.doubt) == (value is None)


def test_expected_widths_are_those_that_come(table):
    """Independent columns that fill a fifth of their range."""
    rng, n, m = np.random.default_rng(0), 20_000, 4
    x = pd.DataFrame({f"c{j}": np.clip(rng.normal(0, 0.4, n), -1, 1) for j in range(m)})
    found = PrivateMoments(1.0, 1e-5, ranges={"*": (-1.0, 1.0)}, random_state=0)
    found.fit(x, agents=np.arange(n) % 5)
    said = expected(m, n, 5, 1.0, least_eigenvalue=1)
    fit = found.regress("c0", ["c1", "c2", "c3"])
    half = (fit.interval()[:, 1] - fit.interval()[:, 0]) / 2
    np.testing.assert_allclose(half, said["coefficient"], rtol=0.35)
    mean = found.rows()[0][0]
    assert (mean.high - mean.low) / 2 / 2 == pytest.approx(said["mean"], rel=0.1)
    assert said["clear"] > 1 > expected(m, 500, 5, 1.0)["clear"]
    sums = expected(m, n, 5, 1.0, aggregation="sum", least_eigenvalue=1)
    assert sums["coefficient"] < said["coefficient"]
    assert CLEAR >= 1


def test_widths_to_expect_of_correlated_columns():
    """Two columns that share most of what they say: a least eigenvalue of 0.1."""
    rng, n = np.random.default_rng(0), 40_000
    x = 0.4 * rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], n)
    x = pd.DataFrame(np.c_[x, 0.4 * rng.normal(size=n)], columns=["a", "b", "c"]).clip(-1, 1)
    found = PrivateMoments(1.0, 1e-5, ranges={"*": (-1.0, 1.0)}, random_state=0).fit(x)
    half = np.diff(found.regress("c", ["a", "b"]).interval(), axis=1)[:, 0] / 2
    said = expected(3, n, 1, 1.0)["coefficient"]
    assert expected(3, n, 1, 1.0, least_eigenvalue=1)["coefficient"] < half.min()
    assert half.max() < said < 2 * half.max()


def test_deviations_of_a_single_category_cover():
    """A list of one, of which most records are: far from the middle of what it may be."""
    rng, hits, times = np.random.default_rng(0), 0, repeat(60, 400)
    for seed in range(times):
        few = pd.DataFrame({"ill": np.where(rng.random(500) < 0.8, "yes", "no")})
        found = PrivateMoments(1e4, categories={"ill": ["yes"]}, random_state=seed).fit(few)
        ((_, deviation),) = found.rows()
        hits += deviation.low <= 0.4 <= deviation.high
    assert hits >= binom.ppf(1e-4, times, 0.95)


# --- other estimators -----------------------------------------------------------------------------


def plane(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, 5 + X @ [2.0, -1.0, 0.5] + rng.normal(0, 0.5, n), np.arange(n) % 5


@pytest.mark.parametrize(("n", "how"), [(20_000, {}), (4000, {"aggregation": "sum"})])
def test_intervals_of_a_ridge_cover_at_least_as_often(n, how):
    """Their part of the noise is exact: the estimates spread no more than they say, and where
    sampling is next to nothing no less."""
    X, y, agents = plane(n, 0)
    ranges = {"target_range": (0.0, 10.0), "feature_norm": 2.0}
    off, missed, truth = [], [], [2.0, -1.0, 0.5]
    for seed in range(repeat(12, 60)):
        model = PrivateRidge(0.5, random_state=seed, **ranges, **how).fit(X, y, agents)
        bars = model.bars()
        exact = np.linalg.lstsq(np.c_[np.ones(n), X], y, rcond=None)[0]  # the noise's part alone
        off.append((bars.free - exact) / np.sqrt(np.diag(bars.privacy)))
        ends = model.coef_interval_
        np.testing.assert_array_equal(ends, bars.interval())
        missed += [(ends[:, 0] > truth) | (ends[:, 1] < truth)]
    assert np.mean(missed) < 0.12
    assert 0.6 < np.sqrt(np.mean(np.square(off))) < 1.5
    assert "no ridge" not in model.summary() and "Intervals are of the free" in model.summary()


def test_ranges_that_are_read_leave_more_noise_in_the_intervals_of_a_ridge():
    X, y, agents = plane(4000, 0)
    public = {"target_range": (0.0, 10.0), "random_state": 0}
    plain = PrivateRidge(1.0, **public).fit(X, y, agents)
    read = PrivateRidge(1.0, ranges="auto", **public).fit(X, y, agents)
    assert (
        read.release_mechanism_.noise_multiplier > 1.04 * plain.release_mechanism_.noise_multiplier
    )
    noises = [np.diag(model.bars().privacy)[1:] for model in (plain, read)]
    shares = [np.square(model.release_mechanism_.noise_multiplier) for model in (plain, read)]
    np.testing.assert_allclose(noises[1] / shares[1], noises[0] / shares[0], rtol=0.1)


def test_estimators_that_have_no_intervals_say_so():
    X, y, agents = plane(400, 1)
    ranges = {"target_range": (0.0, 10.0), "random_state": 0}
    three = PrivateLogisticRegression(1.0, random_state=0, rounds=3)
    for model, t in (
        (PrivateHuberRegressor(1.0, **ranges, rounds=3), y),
        (PrivateRidge(1.0, **ranges, rounds=3), y),  # noise in every round
        (three, np.digitize(y, [4, 6])),
    ):
        assert "PrivateMoments" in model.fit(X, t, agents).summary()
        assert np.isnan(getattr(model, "coef_interval_", np.nan)).all()
    assert len(three.summary().splitlines()[0].split()) == 3
    before = PublicRange({"*": (0, 10)}).fit(X)
    three.fit(before.transform(X), np.digitize(y, [4, 6]), agents)
    assert "per half range" in three.summary(before) and "per half" not in three.summary()
    few = PrivateRidge(0.1, **ranges).fit(X, y, agents)
    assert np.isnan(few.coef_interval_).all() and "records" in few.summary()
    bare = PrivateRidge(50.0, fit_intercept=False, **ranges)
    rows = bare.fit(X, y, agents).bars().rows()
    assert [row.name for row in rows] == ["x0", "x1", "x2"] and rows[0].error > 0


# --- what is kept, paid and refused ---------------------------------------------------------------


def test_a_table_is_kept_and_asked_again(released, tmp_path):
    path = released.save(tmp_path)
    again = PrivateMoments.load(tmp_path)
    one, other = (m.regress("cost", ON) for m in (released, again))
    assert one.summary() == other.summary() and released.summary() == again.summary()
    assert again.privacy_ == released.privacy_ and "1" in one.summary()
    assert one._repr_html_() and again._repr_html_() and PrivateMoments()._repr_html_()
    known = json.loads(path.read_text())
    assert set(known) == {
        *("format", "columns", "ranges", "categories", "fill", "records", "agents"),
        *("deviation", "values", "privacy"),
    }
    for key, value in (("values", [1.0]), ("records", 0), ("deviation", None), ("format", 9)):
        path.write_text(json.dumps({**known, key: value}))
        with pytest.raises(CorruptFile):
            PrivateMoments.load(tmp_path)


def test_a_table_is_paid_for_once(table, tmp_path):
    ledgers = {}
    for name in ("north", "south"):
        ledger = tacit.Ledger.create(tmp_path / f"{name}.db", total_epsilon=1.5, total_delta=1e-5)
        ledgers[name] = ledger
    few, agents = table.head(400), np.where(np.arange(400) % 2, "north", "south")
    options = {**RULES, "ledgers": ledgers}
    first, again = (PrivateMoments(1.0, 1e-5, **options).fit(few, agents=agents) for _ in "ab")
    np.testing.assert_array_equal(first.values_, again.values_)
    assert first.privacy_.secure and ledgers["north"].spent.epsilon <= 1
    with pytest.raises(tacit.Refused):
        PrivateMoments(1.4, 1e-5, **options).fit(few, agents=agents)
    assert ledgers["north"].spent.epsilon <= 1


@pytest.mark.parametrize(
    ("target", "on", "named"),
    [
        ("cost", ["cost"], "'cost'"),
        ("weight", ["age"], "'weight'"),
        ("cost", ["sex"], "'sex'"),
        ("cost", [], "[]"),
        ("cost", ["age", "age"], "'age'"),
        ("cost", ["sex=f", "sex=m"], "'sex'"),
        ("sex=f", ["sex=m"], "'sex'"),
    ],
)
def test_questions_that_have_no_answer(released, target, on, named):
    with pytest.raises(InvalidInput) as error:
        released.regress(target, on)
    assert named in str(error.value) and "\n" not in str(error.value)


def test_a_fit_that_fails_leaves_the_table_as_it_was(table):
    moments = PrivateMoments(1.0, 1e-5, **RULES, random_state=1).fit(table.head(500))
    before = moments.summary()
    moments.ranges = {**RANGES, "bmi": (0, 60)}
    with pytest.raises(InvalidInput):
        moments.fit(table.head(500), agents=[1, 2])
    assert moments.summary() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ranges": {"age": (18, 90)}}, "'bmi'"),
        ({"total_epsilon": 0.0}, "epsilon"),
        ({"neighbours": "add-remove"}, "'add-remove'"),
        ({"aggregation": "mean"}, "'mean'"),
    ],
)
def test_tables_that_are_not_released(table, change, named):
    with pytest.raises(InvalidInput, match=named):
        PrivateMoments(**{**RULES, **change}).fit(table.head(20))


def test_tables_that_are_too_small_or_too_wide(table):
    with pytest.raises(InvalidInput, match="records"):
        PrivateMoments(**RULES).fit(table.head(0))
    with pytest.raises(InvalidInput, match="200"):
        PrivateMoments(ranges={"*": (0, 1)}).fit(pd.DataFrame(np.zeros((3, MOST_COLUMNS + 1))))
    few = PrivateMoments(0.5, 1e-5, **RULES, random_state=0).fit(table.head(200))
    with pytest.raises(InvalidInput, match="k=8"):  # components that are lost in the noise
        few.principal_components(8)
