"""Secure noise: the grid is in the proof, in the sum and in the accounting."""

import math
from decimal import Decimal

import jax
import numpy as np
import pytest
from conftest import problem_of, repeat
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.admm.algorithm import noisy
from tacit.errors import InvalidInput
from tacit.privacy.accounting import EPSILON_PER_DISTANCE, calibrate, delta_of, epsilon_of, exact
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless
from tacit.privacy.secure_noise import (
    GRID_BITS,
    INVERSE_DISTANCE,
    MOST_SHARES,
    REACH,
    GridNoise,
    SecureNoise,
    secure_noise,
)

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


@effort(deadline=None, max_examples=repeat(30, 60))
@given(
    st.sampled_from([Gaussian, Laplace]),
    st.floats(0.01, 1e4),
    st.floats(1e-12, 1e6),
    st.integers(1, 100_000),
)
def test_scale_covers_the_rounded_sensitivity(kind, multiplier, sensitivity, size):
    noise = SecureNoise(kind(multiplier), sensitivity, size)
    γ = noise.spacing
    assert math.frexp(γ)[0] == 0.5  # a power of two
    moved = Decimal(sensitivity) + Decimal(γ) * (
        Decimal(size).sqrt() if kind is Gaussian else Decimal(size)
    )
    assert noise.scale * Decimal(γ) >= Decimal(multiplier) * moved * (1 - Decimal("1e-26"))
    assert noise.scale >= 2 ** (28 if kind is Gaussian else 32)
    assert float(noise.scale) * γ <= multiplier * (sensitivity + size * γ) * (1 + 1e-9)


@pytest.mark.parametrize("mechanism", [Gaussian(2.5), Laplace(1.5)], ids=lambda m: m.name)
def test_noise_has_the_law_of_its_mechanism(mechanism):
    noise = SecureNoise(mechanism, 0.02, 5000)
    drawn = noise.draw(30)
    assert drawn.values.shape == (30, 5000)
    assert drawn.values.dtype == np.int64 and drawn.spacing == noise.spacing
    law, scale = LAWS[mechanism.name], mechanism.scale(0.02)
    ξ = drawn.values.ravel() * drawn.spacing
    assert stats.kstest(ξ, law(scale=scale).cdf).pvalue > 1e-4
    for wrong in (0.95 * scale, scale**2, scale / 2):
        assert stats.kstest(ξ, law(scale=wrong).cdf).pvalue < 1e-4


def test_sum_is_exact_on_the_grid():
    rng = np.random.default_rng(0)
    spacing = np.float64(2.0**-20)
    X = rng.integers(-(2**30), 2**30, 1000)
    φ = rng.normal(size=1000)
    grid = GridNoise(X[None], spacing)
    for values in (φ, jax.numpy.asarray(φ)):
        total = np.asarray(noisy(values, X, grid))
        assert total.dtype == np.float64 and np.all(total % spacing == 0)
        np.testing.assert_array_equal(total, np.round(φ / spacing) * spacing + X * spacing)
        assert np.abs(total - X * spacing - φ).max() <= spacing / 2


def test_statistics_of_any_size_are_hidden():
    """2⁵³ steps of the grid and more: float64 sums would drop the noise, whole numbers do not."""
    spacing, X = np.float64(2.0**-20), np.array([1, -1, 7])
    grid = GridNoise(X[None], spacing)
    for large in (2.0**40, 1e300, -1e300):
        got = np.asarray(noisy(np.full(3, large), X, grid)) / spacing
        assert np.isfinite(got).all() and (np.abs(got) <= 2.0**61 + 8).all()
    φ = np.full(3, 2.0**35)  # 2⁵⁵ steps: X survives in whole numbers, rounded only afterwards
    total = np.asarray(noisy(φ, X * 2**4, grid))
    assert len(set(total)) == 3


def variation(name, s):
    """Total variation between discrete noise and the rounding of continuous noise of scale s."""
    k = np.arange(-int(60 * s), int(60 * s) + 1)
    edges = np.append(k - 0.5, k[-1] + 0.5) / s
    if name == "gaussian":
        mass = np.exp(-(k**2) / (2 * s * s))
        rounded = np.diff(stats.norm.cdf(edges))
    else:
        mass = np.exp(-np.abs(k) / s)
        rounded = np.diff(stats.laplace.cdf(edges))
    return 0.5 * np.abs(mass / mass.sum() - rounded).sum()


def test_the_distance_is_added_to_delta():
    """δ(ε − 320τ) + (1 + e^{ε−320τ−42})τ, the guarantee in ``secure_noise.py``."""
    for parts, ε in (([(Gaussian(20.0), 100)], 3.0), ([(Laplace(2.0), 100)], 45.0)):
        for distance in (1e-9, 1e-6):
            before = ε - 320 * distance
            expected = delta_of(parts, before) + (1 + math.exp(before - 42)) * distance
            assert delta_of(parts, ε, distance) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("s", [4.0, 16.3, 100.0, 1000.0])
def test_the_distance_to_rounded_noise_is_bounded(name, s):
    distance = variation(name, s)
    assert distance <= 1 / (INVERSE_DISTANCE[name] * s * s)
    assert distance >= 0.7 / (INVERSE_DISTANCE[name] * s * s)  # and is not far above it


def log_ratio(name, s):
    """The largest ln(P[R = k]/P[X = k]) up to 8 scales, R rounded continuous noise."""
    k = np.arange(0, int(8 * s) + 1)
    if name == "gaussian":
        mass = np.exp(-(k**2) / (2 * s * s)) / (s * np.sqrt(2 * np.pi))
        rounded = stats.norm.sf((k - 0.5) / s) - stats.norm.sf((k + 0.5) / s)
        rounded[0] = 1 - 2 * stats.norm.sf(0.5 / s)
    else:
        mass = np.tanh(0.5 / s) * np.exp(-k / s)
        rounded = np.sinh(0.5 / s) * np.exp(-k / s)
        rounded[0] = -np.expm1(-0.5 / s)
    return np.log(rounded / mass).max()


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("s", [16.0, 50.0, 200.0])
def test_ratio_is_bounded_by_320_times_the_distance(name, s):
    assert log_ratio(name, s) <= EPSILON_PER_DISTANCE / (INVERSE_DISTANCE[name] * s * s)
    assert log_ratio(name, s) > 0


@pytest.mark.parametrize(
    ("noise", "beyond"),
    [
        (SecureNoise(Gaussian(1.0), 1.0, 1), 2 * stats.norm.sf(13)),
        (SecureNoise(Gaussian(1.999), 1.0, 1), 2 * stats.norm.sf(13)),
        (SecureNoise(Gaussian(1e6), 1.0, 10**6), 2 * stats.norm.sf(13)),
        (SecureNoise(Laplace(1.999), 1.0, 1), math.exp(-105)),
        (SecureNoise(Laplace(1e6), 1.0, 10**8), math.exp(-105)),
    ],
)
def test_the_distance_covers_the_end_of_the_tables(noise, beyond):
    assert math.exp(-42) * noise.distance >= noise.size * beyond
    squares = INVERSE_DISTANCE[noise.mechanism.name] * float(noise.scale) ** 2
    assert noise.distance >= noise.size / squares


def test_the_distance_costs_epsilon_and_delta():
    parts = [(Gaussian(20.0), 100)]
    plain = epsilon_of(parts, 1e-5)
    assert epsilon_of(parts, 1e-5, 0.0) == plain
    for distance in (1e-14, 1e-9, 1e-6):
        ε = epsilon_of(parts, 1e-5, distance)
        inner = ε - EPSILON_PER_DISTANCE * distance
        assert ε > plain
        assert delta_of(parts, inner) + distance <= 1e-5 * (1 + 1e-9)
        assert delta_of(parts, ε, distance) <= 1e-5 * (1 + 1e-6)
    assert epsilon_of(parts, 1e-5, 1e-5) == math.inf
    assert delta_of(parts, 1e-3, 1e-5) == 1.0  # less than what the ratio alone costs
    assert epsilon_of([(Laplace(50.0), 10)], 0.0, 1e-9) == pytest.approx(0.2)
    # the end of the tables counts only for very large epsilon
    large = [(Gaussian(0.2), 4)]
    assert epsilon_of(large, 1e-5, 1e-20) > epsilon_of(large, 1e-5)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("size", [10, 50_000])
def test_a_secure_run_costs_no_more_than_agreed(name, epsilon, size):
    mechanism = calibrate(name, epsilon, 1e-5, 1000)
    noise = secure_noise(mechanism, 0.1, size, 1000, 1e-5)
    spent = epsilon_of([(noise.mechanism, 1000)], 1e-5, 1000 * noise.distance)
    assert spent <= exact(mechanism, 1000, 1e-5).epsilon <= epsilon
    assert noise.mechanism.noise_multiplier <= 1.0001 * mechanism.noise_multiplier


def test_a_secure_run_says_so_and_solves():
    settings = tacit.Settings.for_budget(50.0, 1e-5, 20, 2)
    result = tacit.solve(problem_of("softmax", "box"), settings, noise="secure")
    assert result.privacy.secure and result.privacy.certified and not result.privacy.seeded
    assert "operating system's generator" in result.privacy.words
    assert result.to_dict()["noise_source"] == "operating system, exact (secure)"
    assert result.trace["violation"].max() <= 1e-6
    quiet = tacit.solve(problem_of("softmax", "box"), tacit.Settings(100, 2), batch=False)
    start, best = result.trace["objective"][0], quiet.trace["objective"][-1]
    assert result.trace["objective"][-1] < best + 0.5 * max(start - best, 0.1)


def secure(**options):
    settings = tacit.Settings.for_budget(1.0, 1e-5, 3)
    return tacit.solve(problem_of("softmax", "box"), settings, **{"noise": "secure", **options})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SecureNoise(Noiseless(), 1.0, 5), "gaussian or laplace"),
        (lambda: SecureNoise(Gaussian(1.0), float("nan"), 5), "sensitivity"),
        (lambda: SecureNoise(Gaussian(1.0), 0.0, 5), "sensitivity"),
        (lambda: SecureNoise(Gaussian(1.0), 1e-250, 5), "1e-100 <= sensitivity"),
        (lambda: secure_noise(Gaussian(1.0), 1.0, 10**6, 10**6, 1e-9), "Expected a larger delta"),
        (lambda: SecureNoise(Gaussian(1.0), 1.0, 5, MOST_SHARES + 1), "at most 100000 parties"),
        (lambda: secure(seed=1), "Expected no seed for secure noise"),
        (lambda: secure(batch=True), "batch=False"),
        (lambda: secure(noise="perfect"), "Expected noise to be one of"),
    ],
)
def test_what_cannot_be_made_secure_is_refused(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_the_distance_has_room_for_the_ends_of_all_shares():
    """Of one coordinate, in units of e^ε: the tables of three digits of every share end."""
    distance = 1 / (INVERSE_DISTANCE["gaussian"] * 4.0 ** (GRID_BITS["gaussian"] + 1))
    beyond, ends = (math.erfc(x / math.sqrt(2)) for x in (13.0, REACH[0]))
    assert 2 * 3 * MOST_SHARES * ends + beyond < math.exp(-42) * distance
    share = SecureNoise(Gaussian(5.0), 1.0, 5, MOST_SHARES)
    assert float(share.scale) / math.sqrt(MOST_SHARES) >= 2.0 ** GRID_BITS["gaussian"]
