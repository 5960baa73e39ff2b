"""Readings drawn towards public loads: their errors, and that nothing private decides on them."""

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.power import build, load_case
from tacit.power.public_model import shrunk
from tacit.privacy.accounting import calibrate

σ = 0.1


def errors(expected, distance, spread, trials=4000):
    """Mean squared errors per load, as read and as estimated, for loads so far from expected."""
    rng = np.random.default_rng(0)
    noise = σ * rng.normal(size=(trials, len(expected)))
    true = expected + distance
    estimates = np.array([shrunk(true + n, expected, σ, spread) for n in noise])
    return (noise**2).mean(), ((estimates - true) ** 2).mean()


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("distance", [0.0, 0.1, 100.0])
def test_without_a_spread_estimates_beat_readings_whatever_the_loads(size, distance):
    rng = np.random.default_rng(1)
    read, estimated = errors(rng.normal(size=size), distance * rng.normal(size=size), None)
    assert read == pytest.approx(σ**2, rel=0.03)
    assert estimated <= read * 1.001
    if distance == 0:
        assert estimated < 0.7 * read  # 2/m of it and a little, for a block of m


@pytest.mark.parametrize("m", [3, 16])
def test_without_a_spread_it_is_james_and_steins_estimate(m):
    """e + (v − e) max(0, 1 − (m − 2)σ²/‖v − e‖²), by blocks of loads of like size."""
    rng = np.random.default_rng(3)
    expected = rng.normal(size=m)
    for distance in (0.01, 0.2, 3.0):
        away = distance * rng.normal(size=m)
        keep = max(0.0, 1 - (m - 2) * σ**2 / (away @ away))
        np.testing.assert_allclose(shrunk(expected + away, expected, σ), expected + keep * away)
    # the smaller and the larger half of 32 loads, in any order, have a factor of their own
    order = rng.permutation(32)
    expected = np.where(np.arange(32) < 16, 0.1, 5.0)[order]
    away = np.where(np.arange(32) < 16, 0.001, 3.0)[order]
    found = shrunk(expected + away, expected, σ) - expected
    np.testing.assert_allclose(found, away * (away > 1) * (1 - 14 * σ**2 / (16 * 9)), atol=1e-12)


def test_a_stated_spread_gives_the_posterior_mean():
    expected, spread = np.array([0.0, 0.5, -2.0]), 0.1
    read = np.array([0.3, 0.6, -1.0])
    prior, known = (spread * expected) ** 2, np.full(3, σ**2)
    mean = (expected * known + read * prior) / (known + prior)
    assert shrunk(read, expected, σ, spread) == pytest.approx(mean)
    assert shrunk(read, expected, 0.0, spread) == pytest.approx(read)
    assert np.array_equal(shrunk(read, expected, 0.0), read)
    assert shrunk(read, expected, σ, 0.0) == pytest.approx(expected)
    few = shrunk(read[:2], expected[:2], σ)  # two numbers are too few to learn from
    assert np.array_equal(few, read[:2])


@pytest.mark.parametrize("objective", ["shed", "cost"])
def test_released_loads_are_drawn_towards_the_nominal_ones(objective):
    nominal = load_case("case14_ieee")
    case = build(nominal, 3, nominal=nominal, nominal_spread=0.1, objective=objective, beta=0.02)
    plain = build(nominal, 3, objective=objective, beta=0.02)
    for ours, theirs in zip(case.agents, plain.agents, strict=True):
        a, b = ours.objective.statistics(), theirs.objective.statistics()
        assert np.array_equal(a.values, b.values)
        assert a.sensitivity(2) == b.sensitivity(2)
        assert ours.objective.relation == theirs.objective.relation
        noise = calibrate("gaussian", 1.0, 1e-5, 1).variance(a.sensitivity(2)) ** 0.5
        noisy = a.values + noise * np.random.default_rng(3).normal(size=len(a.values))
        copy = a.released_objective(noisy, noise)
        assert np.array_equal(copy.data, shrunk(noisy, a.values, noise, 0.1))
        assert np.array_equal(b.released_objective(noisy, noise).data, noisy)


def test_a_spread_needs_nominal_loads_of_the_same_grid():
    with pytest.raises(InvalidInput, match="nominal_spread beside nominal"):
        build("case14", 3, nominal_spread=0.1)
    with pytest.raises(InvalidInput, match="nominal_spread"):
        build("case14", 3, nominal="case14", nominal_spread=-1.0)
    with pytest.raises(InvalidInput, match="the buses of case14"):
        build("case14", 3, nominal="case30")
