"""Epsilon, delta and noise of a Gaussian update, beside 60 digits: never too small."""

import mpmath
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.mechanisms import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
)


def true_gaussian_delta(mu, epsilon):
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 50.0, 447.0])
@pytest.mark.parametrize("z", [-3.0, -0.5, 0.0, 0.5, 1.0, 3.0, 8.0, 20.0, 36.5])
def test_gaussian_closed_form_is_rounded_up(mu, z):
    epsilon = max(0.0, mu * (mu / 2 + z))
    truth = true_gaussian_delta(mu, epsilon)
    claim = gaussian_delta(mu, epsilon)
    assert truth <= claim <= truth * (1 + 1e-6)
    stated = gaussian_epsilon(mu, claim)
    assert true_gaussian_delta(mu, stated) <= claim
    assert stated <= epsilon * (1 + 1e-6) + 1e-8 * mu


def test_gaussian_extremes():
    assert gaussian_delta(1.0, 1e5) > 0  # an underflow is not a promise
    assert gaussian_delta(1e4, 0.0) == 1.0
    assert gaussian_epsilon(1e-9, 0.1) == 0.0
    assert true_gaussian_delta(400.0, gaussian_epsilon(400.0, 1e-300)) <= 1e-300


@given(st.floats(0.01, 30), st.floats(1e-12, 0.3))
@settings(max_examples=repeat(20, 40))
def test_monotone_in_everything(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(mu * 1.1, delta) >= epsilon
    assert gaussian_epsilon(mu, delta / 2) >= epsilon
    assert gaussian_delta(mu, epsilon + 0.1) <= gaussian_delta(mu, epsilon)


@given(st.floats(1e-6, 1e3), st.floats(-40, -0.01))
@settings(max_examples=repeat(30, 60))
def test_noise_for_a_budget_is_within_it_and_hardly_more(epsilon, log_delta):
    delta = 10**log_delta
    multiplier = gaussian_multiplier(epsilon, delta)
    assert true_gaussian_delta(1 / multiplier, epsilon) <= delta
    assert true_gaussian_delta(1 / (multiplier * (1 - 1e-7)), epsilon) > delta
