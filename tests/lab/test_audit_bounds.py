"""Bounds of an audit keep their confidence, and any of them above the claim refutes it."""

import math

import numpy as np
import pytest
from conftest import repeat
from scipy.special import betainc
from scipy.stats import binom, norm

from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.lab.audit import (
    Audit,
    audit,
    ball_worlds,
    curve_epsilon,
    free_epsilon,
    lower_bounds,
    upper_bound,
)
from tacit.lab.audit.bounds import Bounds, Rates, largest_bound, rounded_down
from tacit.privacy.accounting import Guarantee, exact
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless, gaussian_epsilon

DELTA = 1e-5


@pytest.mark.parametrize("trials", [1, 7, 200])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.97])
def test_clopper_pearson_covers_every_rate(trials, rate):
    errors = np.arange(trials + 1)
    for confidence in (0.9, 0.999):
        bounds = upper_bound(errors, trials, confidence)
        covered = binom.pmf(errors, trials, rate)[bounds >= rate].sum()
        assert covered >= confidence - 1e-12
    assert upper_bound(0, trials, 0.99) == pytest.approx(1 - 0.01 ** (1 / trials))
    assert upper_bound(trials, trials, 0.99) == 1


def test_free_epsilon_of_randomised_response():
    for epsilon in (0.3, 2.0):
        rate = 1 / (1 + math.exp(epsilon))
        assert free_epsilon(rate, rate, 0.0) == pytest.approx(epsilon)
        truth_told = DELTA + (1 - DELTA) * (1 - rate)  # with probability delta all is told
        assert free_epsilon(rate * (1 - DELTA), 1 - truth_told, DELTA) == pytest.approx(epsilon)
    assert free_epsilon(0.5, 0.5, 0.0) == free_epsilon(1.0, 0.9, 0.0) == 0
    assert free_epsilon(0.3, 1e-3, 0.0) == free_epsilon(1e-3, 0.3, 0.0) > 6  # both directions


def test_curve_epsilon_is_exact_on_gaussian_rates():
    for threshold in (-1.0, 0.2, 2.0):
        a, b = norm.sf(threshold), norm.cdf(threshold - 0.7)
        found = curve_epsilon(Gaussian(1.0), 9, DELTA, a, b)
        assert found == pytest.approx(gaussian_epsilon(0.7, DELTA), rel=1e-6)
    assert curve_epsilon(Gaussian(1.0), 9, DELTA, 0.6, 0.5) == 0


@pytest.mark.parametrize("updates", [1, 3])
def test_curve_epsilon_on_laplace_rates(updates):
    one, trials = 0.6, 400_000
    noise = np.random.default_rng(0).laplace(size=(updates, trials)) / one
    ratio = [(abs(x) - abs(x - 1)).sum(axis=0) for x in (noise, noise + 1)]
    rates = np.mean(ratio[0] >= 0.2), np.mean(ratio[1] < 0.2)
    truth = exact(Laplace(1 / one), updates, DELTA).epsilon
    assert 0.97 * truth < curve_epsilon(Laplace(5.0), updates, DELTA, *rates) < 1.01 * truth
    with pytest.raises(InvalidInput, match="noise to audit"):
        curve_epsilon(Noiseless(), 1, DELTA, 0.1, 0.1)


def test_false_alarms_are_as_rare_as_promised():
    """At 90 %: bounds above the truth in at most a tenth of the audits, where it is attained."""
    rng, alarms, found = np.random.default_rng(0), 0, []
    truth, times = gaussian_epsilon(2.0, DELTA), repeat(100, 200)
    for _ in range(times):
        s0, s1 = rng.normal(size=(3, 400)), rng.normal(size=(3, 400))
        s1[1] += 2.0
        bounds = lower_bounds(s0, s1, ("x", "y", "z"), Gaussian(0.5), 1, DELTA, 0.9)
        assert bounds.curve_rates.attack == bounds.free_rates.attack == "y"
        alarms += max(bounds.free, bounds.curve) > truth
        found.append(bounds.curve / truth)
    assert alarms <= 0.1 * times
    assert np.mean(found) > 0.7  # and the bound is no empty one


def test_choosing_among_many_attacks_costs_no_confidence():
    """Nothing differs between the worlds; the best of 20 chance findings must not count."""
    rng, alarms = np.random.default_rng(1), 0
    times = repeat(40, 100)
    for _ in range(times):
        s0, s1 = rng.normal(size=(2, 20, 200))
        names = [str(i) for i in range(20)]
        bounds = lower_bounds(s0, s1, names, Gaussian(1.0), 1, DELTA, 0.9)
        alarms += max(bounds.free, bounds.curve) > 0
    assert alarms <= 0.1 * times


def test_scores_that_are_no_numbers_count_as_errors():
    s0, s1 = np.zeros((1, 200)), np.ones((1, 200))
    for errors, least, most in ((0, 2, math.inf), (100, 0, 5), (200, 0, 0)):
        s1[0, 200 - errors :] = np.nan
        assert least <= lower_bounds(s0, s1, ["x"], Gaussian(1.0), 1, DELTA).free <= most
    with pytest.raises(InvalidInput, match="at least 100 trials"):
        lower_bounds(s0[:, :99], s1[:, :99], ["x"], Gaussian(1.0), 1, DELTA)


@pytest.mark.parametrize("world", [0, 1])
def test_scores_that_are_no_numbers_count_in_their_own_world(world):
    scores = [np.zeros((1, 200)), np.ones((1, 200))]
    scores[world][0, 100:] = np.nan
    found = lower_bounds(*scores, ["x"], Gaussian(1.0), 1, DELTA)
    for rates in (found.free_rates, found.curve_rates):
        assert rates.errors == ((100, 0), (0, 100))[world] and rates.trials == (160, 160)


@pytest.mark.parametrize("place", range(4))
def test_any_bound_above_the_claim_refutes_it(place):
    epsilons = [2.5 if k == place else 0.5 for k in range(4)]
    rates = Rates(0.1, 0.1, (1, 1), (80, 80), "likelihood")
    white, black = (Bounds(*epsilons[k : k + 2], rates, rates) for k in (0, 2))
    about = (Settings(1, 1, Gaussian(1.0)), Guarantee(2.0, DELTA), white, black, 100, 0.99, 0)
    found = Audit("name", "canary", *about)
    assert found.violated and "at least 2.500" in found.verdict
    calm = Audit("name", "canary", about[0], Guarantee(3.0, DELTA), *about[2:])
    assert not calm.violated and calm.verdict == "consistent with the claim"


@pytest.mark.parametrize("updates", [1, 3])
def test_a_pure_epsilon_is_no_smaller_than_that_of_a_delta(updates):
    pure, other = (curve_epsilon(Laplace(1.0), updates, delta, 0.02, 0.02) for delta in (0, DELTA))
    assert pure >= other > 1.0


def test_a_claim_that_gaussian_noise_has_no_epsilon_for_is_refused_first(monkeypatch):
    monkeypatch.setattr("tacit.lab.audit.trials.run_trials", None)
    with pytest.raises(InvalidInput, match="0 < delta < 1, got delta=0"):
        audit(ball_worlds(), Settings(1, 1, Gaussian(1.0)), trials=100, claim=Guarantee(2.0, 0.0))


@pytest.mark.parametrize("mechanism", [Gaussian(1.0), Laplace(1.0)], ids=["gaussian", "laplace"])
def test_trials_show_no_more_than_the_largest_bound(mechanism):
    """It is that of scores which tell the worlds apart without an error."""
    scores = np.zeros((1, 100)), np.ones((1, 100))
    found = lower_bounds(*scores, ["x"], mechanism, 2, DELTA, 0.995)
    most = largest_bound(100, mechanism, 2, DELTA, 0.995)
    assert most == max(found.free, found.curve)
    for claimed in (0.99 * most, most):
        about = Settings(1, 2, mechanism), Guarantee(claimed, DELTA), found, found, 100, 0.99, 0
        one = Audit("name", "canary", *about, updates=2)
        assert one.violated == one.refutable == (claimed < most)
    few = "too few trials to refute the claim: 100 show"
    assert one.verdict == f"{few} {rounded_down(most)} at most"
    assert not one.to_dict()["refutable"]


def test_four_error_rates_share_the_risk(confidence=0.9):
    """Clopper and Pearson's bound of e errors in n is where betainc(e + 1, n − e) is the level."""
    s0, s1 = np.random.default_rng(0).normal(size=(2, 1, 500))
    found = lower_bounds(s0, s1 + 1, ["x"], Gaussian(1.0), 1, DELTA, confidence)
    for rates in (found.free_rates, found.curve_rates):
        bounds = rates.false_positive, rates.false_negative
        for bound, errors, trials in zip(bounds, rates.errors, rates.trials, strict=True):
            assert 0 < errors < trials
            risk = 1 - betainc(errors + 1, trials - errors, bound)
            assert risk == pytest.approx((1 - confidence) / 4, rel=1e-6)
