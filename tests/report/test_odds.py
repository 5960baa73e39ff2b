"""The bounds on what a guesser gains: true of real mechanisms, and of no smaller epsilon."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from tacit.privacy.mechanisms import gaussian_delta
from tacit.report.odds import exception, guess, hits, loss, next_to_nothing, percent, suspicion

epsilons = st.floats(1e-4, 8.0)
deltas = st.floats(1e-12, 0.05)
shares = st.floats(1e-4, 0.999)


def delta_at(law, epsilon):
    """The smallest delta at epsilon, from the definition, in both directions."""
    p, q = law
    e = math.exp(epsilon)
    return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum())


def often_beyond(law, before, bound):
    """How often somebody ends with more than ``bound``, whichever is true."""
    p, q = law
    after = before * p / (before * p + (1 - before) * q)
    beyond = after > bound * (1 + 1e-9)
    return max(p[beyond].sum(), q[beyond].sum())


def best_guess(law):
    p, q = law
    return np.maximum(p, q).sum() / 2


def response(epsilon):
    """Randomised response: the truth with odds e^ε."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def laplace(epsilon, cells=4001):
    """Laplace noise of scale 1/ε on numbers one apart, in cells: post-processing of the law."""
    edges = np.concatenate([[-np.inf], np.linspace(-20, 21, cells) / max(epsilon, 0.5), [np.inf]])

    def law(at):
        x = edges - at
        below = np.exp(np.minimum(x, 0) * epsilon) / 2
        return np.diff(np.where(x < 0, below, 1 - np.exp(-np.maximum(x, 0) * epsilon) / 2))

    p, q = law(0.0), law(1.0)
    some = (p > 1e-15) & (q > 1e-15)  # cells that rounding has left something of
    return p[some], q[some]


@given(epsilons, shares)
def test_pure_budgets_are_met_and_attained(epsilon, before):
    for law in (response(epsilon), laplace(epsilon)):
        assert often_beyond(law, before, suspicion(before, epsilon, 0)) == 0
        assert best_guess(law) <= guess(epsilon, 0) + 1e-12
    law = response(epsilon)
    assert best_guess(law) == pytest.approx(guess(epsilon, 0), abs=1e-9)
    # a control: the bound of a smaller epsilon is broken
    assert often_beyond(law, before, suspicion(before, 0.95 * epsilon, 0)) > 0.5
    assert best_guess(law) > guess(0.95 * epsilon, 0)
    assert often_beyond(laplace(epsilon), 0.5, suspicion(0.5, 0.95 * epsilon, 0)) > 0.1
    # a test by randomised response is the best there is
    alarm = 1 / (1 + math.exp(epsilon))
    assert 1 - alarm == pytest.approx(hits(alarm, epsilon, 0), abs=1e-9)
    assert 1 - alarm > hits(alarm, 0.95 * epsilon, 0)


@given(st.floats(0.05, 3.0), st.floats(0.001, 0.9))
def test_the_bounds_on_tests_are_no_larger_than_they_must_be(mu, alarm):
    """Over all (ε, δ) of Gaussian noise the smallest is the best test there is."""
    grid = np.linspace(0, 12, 1200)
    least = min(hits(alarm, e, gaussian_delta(mu, e)) for e in grid)
    best = ndtr(ndtri(alarm) + mu)
    assert best <= least <= best + 2e-3
    assert min(hits(alarm, 0.9 * e, 0.9 * gaussian_delta(mu, e)) for e in grid[1:]) < best


@given(epsilons, st.floats(1e-9, 1e-3), st.floats(1.5, 40.0))
def test_the_loss_is_attained(epsilon, delta, times):
    """A law with the mass m where P/Q is e^t: (ε, δ)-private, and beyond no smaller bound."""
    mass = times * delta
    t = epsilon - math.log(1 - 1 / times)
    p, q = mass, mass * math.exp(-t)
    law = np.array([p, 1 - p]), np.array([q, 1 - q])
    assert delta_at(law, epsilon) <= delta * (1 + 1e-6) + 1e-15
    for before in (0.01, 0.1, 0.5):
        assert often_beyond(law, before, suspicion(before, epsilon, delta)) <= exception(delta)
    # it is beyond every t below this one more often than ``rarer``: there t must not be smaller
    rarer = mass * (1 - 1e-9)
    assert loss(epsilon, delta, rarer) >= t * (1 - 1e-9)
    assert loss(0.99 * epsilon, delta, rarer) < t  # a control: of a smaller epsilon it is


@given(epsilons, deltas, st.integers(2, 8), st.randoms(use_true_random=False))
def test_any_law_with_the_budget_keeps_what_is_said(epsilon, delta, outcomes, random):
    p = np.array([random.random() ** 4 + 1e-12 for _ in range(outcomes)])
    q = np.array([random.random() ** 4 + 1e-12 for _ in range(outcomes)])
    law = p / p.sum(), q / q.sum()
    delta = max(delta, delta_at(law, epsilon))  # its own budget
    if delta >= 1:
        return
    for before in (0.01, 0.1, 0.5, 0.9):
        bound = suspicion(before, epsilon, delta)
        assert often_beyond(law, before, bound) <= exception(delta) + 1e-12
    assert best_guess(law) <= guess(epsilon, delta)
    order = np.argsort(-law[0] / law[1])  # the best tests, by Neyman and Pearson
    for hit, alarm in zip(np.cumsum(law[0][order]), np.cumsum(law[1][order]), strict=True):
        assert hit <= hits(min(1.0, alarm), epsilon, delta) + 1e-12


# --- the edges --------------------------------------------------------------------------------


@given(st.floats(0, 1e308), st.floats(0, 1), st.floats(0, 1))
def test_always_a_probability_and_never_below_the_start(epsilon, delta, share):
    for found in (suspicion(share, epsilon, delta), hits(share, epsilon, delta)):
        assert share * (1 - 1e-12) <= found <= 1
    assert 0.5 <= guess(epsilon, delta) <= 1
    more = suspicion(share, min(1e308, epsilon + 0.1), delta)
    assert more >= suspicion(share, epsilon, delta)


def test_extremes():
    assert suspicion(0.1, 1e300, 0) == 1 and hits(0.01, 1e300, 0) == 1 and guess(1e300, 0) == 1
    assert suspicion(0.1, math.inf, 0) == 1 and suspicion(0.1, math.nan, 0) == 1
    assert suspicion(0.1, 0.0, 0.0) == pytest.approx(0.1)
    assert suspicion(0.1, 0.1, 0.2) == 1  # a delta so large that nothing is said
    assert next_to_nothing(10.0, 1e-5) and not next_to_nothing(8.0, 1e-5)
    assert exception(0.0) == 0 and exception(0.3) == 1


@given(st.floats(0, 1))
def test_per_cents_are_rounded_up(share):
    shown = float(percent(share).removesuffix("\u00a0%")) / 100
    assert share <= shown + 1e-11 and shown <= share + 0.00100001
    few = [percent(x).replace("\u00a0", " ") for x in (0.2501, 0.25, 0.9991, math.nan, 0.0)]
    assert few == ["25.1 %", "25 %", "100 %", "100 %", "0 %"]
