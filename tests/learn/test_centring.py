"""Rows around a private mean: what it costs, who pays, and that a row is mapped by itself."""

import itertools
import math

import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import tacit
from tacit.errors import InvalidInput, Refused
from tacit.learn import Box, PrivateLogisticRegression
from tacit.learn.centring import around, scaled_down, shrunk
from tacit.learn.estimators import READ, adopt, owners, prepare, rebuilt
from tacit.learn.first_releases import Sums, shared
from tacit.privacy.accounting import calibrate, epsilon_of
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.secure_noise import SecureNoise, largest_distance
from tacit.protocol.statement import PrivacyStatement, with_releases
from tacit.transports.solving import read

SMALL = {"rounds": 4, "local_updates": 2, "centring_share": 0.05}


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    X = np.array([3.0, 1, 2, 0]) + np.eye(4)[y] + 0.3 * rng.normal(size=(240, 4))
    return X, y, np.where(np.arange(240) % 2 == 0, "north", "south")


def model(**options):
    return PrivateLogisticRegression(feature_norm=4.0, classes=[0, 1, 2], **SMALL | options)


# --- budgets --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=repeat(15, 30))
@given(
    epsilon=st.floats(0.01, 20),
    delta=st.sampled_from([1e-9, 1e-5, 1e-3]),
    share=st.floats(0.001, 0.9),
    updates=st.sampled_from([1, 50, 3000]),
)
def test_both_together_keep_within_the_budget(epsilon, delta, share, updates):
    reading, left = shared("gaussian", epsilon, delta, share)
    run = calibrate("gaussian", left, delta, updates)
    total = epsilon_of([(reading, 1), (run, updates)], delta)
    assert 0.998 * epsilon <= total <= epsilon
    square = reading.noise_multiplier**-2 / (
        reading.noise_multiplier**-2 + updates * run.noise_multiplier**-2
    )
    assert square == pytest.approx(share, rel=1e-2)
    if delta >= 1e-5 and updates <= 50:  # secure noise of ordinary size
        reading, left = shared("gaussian", epsilon, delta, share, secure=True)
        run = calibrate("gaussian", left, delta, updates)
        distance = largest_distance(reading, 800) + updates * largest_distance(run, 8000)
        assert epsilon_of([(reading, 1), (run, updates)], delta, distance) <= epsilon


@pytest.mark.parametrize(("delta", "epsilon"), [*itertools.product((1e-8, 1e-5), (0.1, 1.0, 8.0))])
def test_secure_noise_of_long_runs_keeps_within_the_budget(delta, epsilon):
    for share in (0.02, 0.1):
        reading, left = shared("gaussian", epsilon, delta, share, secure=True)
        run = calibrate("gaussian", left, delta, 800)
        distance = largest_distance(reading, 5_000) + 800 * largest_distance(run, 50_000)
        total = epsilon_of([(reading, 1), (run, 800)], delta, distance)
        assert 0.999 * epsilon <= total <= epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_laplace_shares_epsilon(delta):
    reading, left = shared("laplace", 2.0, delta, 0.1)
    assert epsilon_of([(reading, 1)], 0.0) == pytest.approx(0.2)
    run = calibrate("laplace", left, delta, 20)
    assert epsilon_of([(reading, 1), (run, 20)], delta) <= 2.0
    for epsilon, share in itertools.product((0.1, 0.3, 1.0, 7.3), (0.1, 0.3, 0.7)):
        reading, left = shared("laplace", epsilon, 0.0, share)
        assert epsilon_of([(reading, 1), (calibrate("laplace", left, 0.0, 7), 7)], 0.0) <= epsilon


def test_a_budget_of_which_nothing_is_left_is_refused():
    """With a large delta the rest of a small epsilon would cost none: refused, and not paid for."""
    with pytest.raises(InvalidInput, match="a smaller centring_share, or a smaller delta"):
        shared("gaussian", 0.001, 0.01, 0.5)
    assert shared("gaussian", 0.001, 1e-5, 0.5)[1] > 0


def test_no_secure_noise_is_further_away_than_the_statement_counts():
    for multiplier in (0.3, 1.0, 7.7):
        for sensitivity in (1e-3, 1.0, 1.999, 2.0):
            noise = SecureNoise(Gaussian(multiplier), sensitivity, 40)
            assert noise.distance <= largest_distance(noise.mechanism, 40)


# --- statements and ledgers -----------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
def test_the_statement_of_both_counts_the_distance_of_every_update(secure):
    """So many updates that what one of them is off by would not show."""
    updates, sizes, delta = 10**6, (5000, 50), 1e-9
    run, reading = calibrate("gaussian", 1.0, delta, updates), calibrate("gaussian", 0.1, delta, 1)
    alone = PrivacyStatement(1.0, delta, "gaussian", updates, (), False, secure=secure)
    found = with_releases(alone, run, sizes[0], [(reading, 1, sizes[1])], "read")
    far = updates * largest_distance(run, sizes[0]) + largest_distance(reading, sizes[1])
    parts = [(reading, 1), (run, updates)]
    assert found.epsilon == epsilon_of(parts, delta, far if secure else 0.0)
    near = far - (updates - 1) * largest_distance(run, sizes[0])
    assert epsilon_of(parts, delta) < epsilon_of(parts, delta, near) < epsilon_of(parts, delta, far)


def test_the_statement_covers_both(blobs):
    X, y, agents = blobs
    fitted = model(total_epsilon=2.0, random_state=0).fit(X, y, agents)
    run = fitted.result_.settings.mechanism
    alone = epsilon_of([(run, 8)], 1e-5)
    both = epsilon_of([(fitted.first_releases_[0][0], 1), (run, 8)], 1e-5)
    assert alone < fitted.privacy_.epsilon == both <= 2.0
    assert both >= 1.998 and fitted.result_.privacy == fitted.privacy_
    assert fitted.privacy_.updates == 8 and "before that one noisy sum" in str(fitted.privacy_)
    again = tacit.protocol.statement.PrivacyStatement.from_dict(fitted.privacy_.to_dict())
    assert again == fitted.privacy_
    plain = clone(fitted).set_params(centring_share=None).fit(X, y, agents)
    assert plain.mean_ is None and "before" not in plain.privacy_.to_dict()
    assert "before them" not in plain.privacy_.words


def test_ledgers_pay_for_both_and_no_more_than_the_total(blobs, tmp_path):
    """In a ledger whose budget is the total, to the last bit; a second run finds it spent."""
    X, y, agents = blobs
    for name in ("north", "south"):
        tacit.Ledger.create(tmp_path / f"{name}.db", 2.0, 1e-5).close()
    fitted = model(total_epsilon=2.0, ledgers=tmp_path).fit(X, y, agents)
    assert fitted.privacy_.secure and fitted.privacy_.epsilon <= 2.0
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        first, second = ledger.runs()
        assert (first["rounds_charged"], second["rounds_charged"]) == (1, 4)
        assert first["run"].startswith("release-")
        spent = ledger.spent.epsilon
        assert 1.99 <= spent <= fitted.privacy_.epsilon
        assert spent > epsilon_of([(fitted.result_.settings.mechanism, 8)], 1e-5) * 1.01
    # the mean is given again at no cost, a run is not
    reading, _ = shared("gaussian", 2.0, 1e-5, 0.05)
    sums = Sums(*owners(agents, 240), delta=1e-5, how={"ledgers": tmp_path})
    means = fitted._means(X, sums)
    again = sums.mean(means, reading, "centring")
    assert (shrunk(again, sums.deviation(means, reading), 4.0) == fitted.mean_).all()
    with tacit.Ledger(tmp_path / "north.db") as ledger:
        assert len(ledger.runs()) == 2 and ledger.spent.epsilon == spent
    with pytest.raises(Refused, match="beyond the budget"):
        model(total_epsilon=2.0, ledgers=tmp_path).fit(2 - X, y, agents)


def test_the_noise_of_a_mean_is_that_of_all_agents_sums(blobs):
    X, _, agents = blobs
    sums = Sums(*owners(agents, 240))
    seen = sums.deviation(model()._means(X, sums), Gaussian(3.0))
    assert seen == pytest.approx(3.0 * 4.0 * math.sqrt(2) / 240, rel=1e-3)


# --- lengths --------------------------------------------------------------------------------------


def unequal(records=6000):
    """Rows of two classes in one direction: one class is short, the other long."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, records)
    rows = rng.normal(size=(records, 3)) * np.where(y, 0.15, 0.7)[:, None]
    return np.clip(rows, -1, 1), y


def test_a_length_tells_classes_that_a_direction_does_not():
    X, y = unequal()
    found = {}
    for kept in (False, "auto"):
        one = PrivateLogisticRegression(4.0, classes=[0, 1], keep_length=kept, random_state=0)
        found[kept] = one.fit(X, y).score(X, y)
    assert found[False] < 0.65 and found["auto"] > 0.85


def test_a_row_with_its_length_is_mapped_by_itself_and_no_longer_than_public():
    X, y = unequal(60)
    fitted = PrivateLogisticRegression(4.0, classes=[0, 1], rounds=3, keep_length=True)
    fitted.fit(X, y)
    rows = fitted._rows(1e3 * X)
    assert rows.shape == (60, 5) and fitted.coef_.shape == (1, 3)
    np.testing.assert_array_equal(rows[7:8], fitted._rows(1e3 * X[7:8]))
    lengths = np.linalg.norm(fitted._rows(np.vstack([X, 0 * X, 1e3 * X]))[:, :4], axis=1)
    assert lengths.max() <= fitted.longest_row * (1 + 1e-15)
    m, R = fitted.mean_, fitted.length_
    r = np.linalg.norm(scaled_down(X[:1], fitted.longest_given)[0] - m)
    column = fitted.longest_row * 0.25 * np.clip(2 * (r / R - 1), -1, 1)
    assert fitted._rows(X[:1])[0, 3] == pytest.approx(column)
    truth = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert abs(R - truth) < 0.6


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
def test_the_sum_with_squares_moves_by_no_more_than_its_sensitivity(neighbours):
    """The longest row against none, or against the one with the largest distance of all."""
    X = np.vstack([np.ones((1, 3)), np.full((59, 3), 0.2)])
    public = {"neighbours": neighbours, "keep_length": True, "rounds": 2}
    fitted = PrivateLogisticRegression(4.0, **public).fit(X, np.arange(60) % 2)
    own = Sums(np.array(["a"]), np.zeros(60, int), neighbours)
    other = X.copy()
    other[0] = 0 if neighbours == "zero-out" else -1
    (one,), (two,) = (fitted._means(part, own) for part in (X, other))
    readings = one.objective.statistics(), two.objective.statistics()
    for norm in (1, 2):
        moved = np.linalg.norm(readings[0].values - readings[1].values, norm)
        bound = readings[0].sensitivity(norm)
        assert moved <= bound
        # the square of a length has no sign: what is replaced by its opposite keeps it
        assert norm == 1 or moved > bound * (0.9999 if neighbours == "zero-out" else 0.95)


@pytest.mark.parametrize(
    ("records", "columns", "options", "kept"),
    [
        (60_000, 3, {}, True),  # few columns, no constraint, a norm of 1, a mean, many records
        (60, 3, {}, False),
        (60_000, 21, {}, False),
        (60_000, 3, {"feature_norm": 2.0}, False),
        (60_000, 3, {"constraint": Box(1.0)}, False),
        (60_000, 3, {"keep_length": False}, False),
        (60_000, 3, {"centring_share": None}, False),
        (60, 21, {"keep_length": True}, True),  # as it is said
    ],
)
def test_lengths_are_kept_by_public_numbers(records, columns, options, kept):
    one = PrivateLogisticRegression(1.0, rounds=1, **options)
    prepare(one, np.ones((records, columns)), np.arange(records) % 2, seed=0)
    assert (one.length_ is not None) == kept


def test_another_release_in_a_ledger_is_not_the_mean(blobs, tmp_path):
    """It was taken for the mean: that was paid for, and then there was too little for the run."""
    X, y, _ = blobs
    ledger = tacit.Ledger.create(tmp_path / "agent 1.db", 1.9, 1e-5)
    public = {"feature_norm": 4.0, "target_bound": 2.0, "neighbours": "zero-out"}
    f = tacit.LeastSquares(scaled_down(X, 4.0), 1.0 * y, normaliser=240, **public)
    W = tacit.Box(-1, 1, size=4)
    tacit.release([tacit.LocalProblem(f, W)], 0.05, 1e-5, ledgers={"agent 1": ledger})
    spent = ledger.spent
    with pytest.raises(Refused, match="and the run after it would go beyond"):
        model(total_epsilon=2.0, centring_share=0.3, ledgers=tmp_path).fit(X, y)
    assert len(ledger.runs()) == 1 and ledger.spent == spent
    model(total_epsilon=1.8, centring_share=0.3, ledgers=tmp_path).fit(X, y)
    assert len(ledger.runs()) == 3


def test_ledgers_leave_room_for_the_distance_of_secure_noise(blobs, tmp_path):
    """They make noise secure without a word."""
    for name in ("north", "south"):
        tacit.Ledger.create(tmp_path / f"{name}.db", 9.0, 1e-4).close()
    ways = {"ledgers": tmp_path}, {"noise": "secure"}, {"ledgers": tmp_path, "noise": "seeded"}
    ledgers, secure, seeded = (prepare(model(**way), *blobs, seed=None)[1] for way in ways)
    assert ledgers.mechanism == secure.mechanism != seeded.mechanism


@pytest.mark.parametrize("epsilon", [0.5, None])
def test_what_a_checkpoint_keeps_of_a_mean_is_of_these_data(blobs, tmp_path, epsilon):
    """It is read from there and not again, with its seal; a mean without noise is not kept."""
    X, y, agents = blobs
    kept, first, again = tmp_path / "mean.npz", model(total_epsilon=epsilon), None
    prepare(first, X, y, agents, folder=tmp_path)
    assert kept.exists() == (epsilon is not None)
    again = model(total_epsilon=epsilon)
    prepare(again, X, y, agents, folder=tmp_path)
    np.testing.assert_array_equal(again.mean_, first.mean_)
    if epsilon is None:
        np.testing.assert_allclose(first.mean_, scaled_down(X, 4.0).mean(axis=0), rtol=1e-12)
        return
    moved = X.copy()
    moved[0] = 0
    for rows, other in ((moved, {}), (X, {"total_epsilon": 1.0}), (X, {"mechanism": "laplace"})):
        with pytest.raises(InvalidInput, match="release"):
            prepare(model(**{"total_epsilon": epsilon} | other), rows, y, agents, folder=tmp_path)
    kept.unlink()
    prepare(model(total_epsilon=2.0), moved, y, agents, folder=tmp_path)


def test_another_rank_makes_the_same_problem_of_what_was_read(blobs):
    X, y, agents = blobs
    first, second = model(random_state=3), model(random_state=3)
    problem, _ = prepare(first, X, y, agents, seed=3)
    again = rebuilt(
        second, X.tolist(), y.tolist(), agents, {name: getattr(first, name) for name in READ}
    )
    for one, other in zip(problem.agents, again.agents, strict=True):
        np.testing.assert_array_equal(one.objective.features, other.objective.features)
    assert (model(random_state=4).fit(X, y, agents).mean_ != first.mean_).any()


def test_a_mean_without_noise_covers_no_run(blobs):
    """A run with noise on rows around an exact private mean: its own total says nothing."""
    X, y, agents = blobs
    exact = model(total_epsilon=None)
    problem, _ = prepare(exact, X, y, agents)
    run = tacit.Settings(4, 2, Gaussian(5.0), delta=1e-5)
    adopt(exact, problem, tacit.solve(problem, run, seed=0))
    assert math.isinf(exact.privacy_.epsilon) and not exact.privacy_.certified
    assert "Not private" in exact.privacy_.words


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_is_mapped_by_its_own_numbers(blobs):
    X, y, agents = blobs
    fitted = model(random_state=0).fit(X, y, agents)
    rows = fitted._rows(X)
    np.testing.assert_array_equal(fitted._rows(X[5:6])[0], rows[5])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 4.0, rtol=1e-12)
    apart = X * np.minimum(1, 4 / np.linalg.norm(X, axis=1))[:, None] - fitted.mean_
    expected = math.sqrt(0.91) * 4 * apart / np.linalg.norm(apart, axis=1)[:, None]
    np.testing.assert_allclose(rows[:, :-1], expected, rtol=1e-12)
    np.testing.assert_allclose(rows[:, -1], 1.2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_any_size_have_the_length(dtype):
    X = np.array([[0.0, 0], [1e-30, 0], [1e30, -1e30], [1.0, 2.0]], dtype)
    rows = around(X, np.array([1.0, 2.0]), 3.0)
    assert rows.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), [3, 3, 3, 0], 1e-6)
    for scale in (10.0, 1e30):
        np.testing.assert_allclose(scaled_down(scale * X[3:], 2.0), 2 * X[3:] / math.sqrt(5), 1e-6)
    np.testing.assert_array_equal(scaled_down(X[1:2], 2.0), X[1:2])
    short = around(np.array([[1e-300, 0.0]]), np.zeros(2), 3.0)
    np.testing.assert_allclose(short, [[3.0, 0.0]])


@pytest.mark.parametrize(("neighbours", "changed"), [("zero-out", 1), ("replace", 2)])
def test_the_noise_of_the_mean_does_not_depend_on_the_data(blobs, monkeypatch, neighbours, changed):
    """Longer rows are cut to the public norm; shorter ones have the noise of that norm."""
    X, y, _ = blobs
    seen = []

    def recorded(problem, *others, **how):
        seen.append(problem.agents[0].objective.statistics().sensitivity(2))
        return read(problem, *others, **how)

    monkeypatch.setattr("tacit.learn.first_releases.read", recorded)
    for scale in (1e-3, 1.0, 1e6):
        fitted = model(neighbours=neighbours)
        prepare(fitted, scale * X, y, seed=0)
        assert np.linalg.norm(fitted.mean_) <= 4.0 + 1e-9
    assert seen[0] == seen[1] == seen[2] == pytest.approx(4.0 * changed, rel=1e-6)


def test_a_mean_that_may_be_noise_is_drawn_towards_zero():
    m = np.array([3.0, 4.0])
    np.testing.assert_allclose(shrunk(m, 0.0, 9.0), m)
    np.testing.assert_allclose(shrunk(m, 1.0, 9.0), m * (1 - 2 / 25))
    np.testing.assert_array_equal(shrunk(m, 4.0, 9.0), 0 * m)
    np.testing.assert_array_equal(shrunk(0 * m, 0.0, 9.0), 0 * m)
    np.testing.assert_allclose(shrunk(m, 0.0, 1.0), m / 5)
