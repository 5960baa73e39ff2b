"""Noise has the law it claims, scales with the sensitivity, and never comes out as zero."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import InvalidInput
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Noiseless,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    mechanism_from,
    per_update,
)

NOISY = [Gaussian(1.7), Laplace(0.6)]
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
identify = {"ids": lambda m: m.name}


@pytest.mark.parametrize("mechanism", NOISY, **identify)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_law_is_accepted_and_a_wrong_scale_is_rejected(mechanism, dtype):
    # A scale 5 % off moves the distribution function by 0.009 (Laplace) or 0.012 (normal); at
    # 200,000 samples the test at level 0.001 rejects from 0.0044 on: power > 0.999.
    sensitivity = 0.3
    draw = jax.jit(lambda key: mechanism.sample(key, (400, 500), sensitivity, dtype))  # at once
    noise = np.asarray(draw(jax.random.key(1))).ravel()
    assert noise.dtype == dtype
    law, scale = LAWS[mechanism.name], mechanism.noise_multiplier * sensitivity

    def likely(scale):  # of so many samples the limit law is exact enough, and ten times as fast
        return stats.kstest(noise, law(scale=scale).cdf, method="asymp").pvalue

    assert likely(scale) > 0.001
    for wrong in (0.95 * scale, 1.05 * scale):
        assert likely(wrong) < 0.001
    assert likely(scale**2) < 1e-12  # the classic slip, a variance used as a standard deviation
    assert noise.var() == pytest.approx(mechanism.variance(sensitivity), rel=0.03)


@pytest.mark.parametrize("mechanism", NOISY, **identify)
def test_coordinates_and_keys_are_independent(mechanism):
    keys = jax.random.split(jax.random.key(3), 2)
    a, b = (np.asarray(mechanism.sample(k, (20_000,), 1.0)) for k in keys)
    assert not np.any(a == b)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.03


def test_variance_is_the_paper_s_table():
    epsilon, delta, beta = 0.05, 1e-2, 0.01
    gaussian = 2 * math.log(1.25 / delta) * (2 * beta / epsilon) ** 2
    assert Gaussian.classical(epsilon, delta).variance(2 * beta) == pytest.approx(gaussian)
    laplace = 2 * (2 * beta / epsilon) ** 2
    assert Laplace.of_epsilon(epsilon).variance(2 * beta) == pytest.approx(laplace)


@pytest.mark.parametrize("mechanism", NOISY, **identify)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None])
def test_a_useless_sensitivity_is_refused(mechanism, bad):
    for use in (mechanism.scale, mechanism.variance):
        with pytest.raises(InvalidInput, match="sensitivity"):
            use(bad)
    with pytest.raises(InvalidInput, match="sensitivity"):
        mechanism.sample(jax.random.key(0), (2,), bad)


@pytest.mark.parametrize("mechanism", NOISY, **identify)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_useless_traced_sensitivity_gives_no_usable_release(mechanism, bad):
    noise = jax.jit(lambda s: mechanism.sample(jax.random.key(0), (3,), s))(bad)
    assert np.isnan(noise).all()


@given(st.floats(1e-3, 1), st.floats(1e-12, 0.999))
@settings(max_examples=repeat(30, 60))
def test_classical_holds_up_to_epsilon_one(epsilon, delta):
    multiplier = Gaussian.classical(epsilon, delta).noise_multiplier
    assert gaussian_delta(1 / multiplier, epsilon) <= delta
    assert multiplier >= Gaussian.analytic(epsilon, delta).noise_multiplier


def test_per_update():
    assert per_update("laplace", 0.5) == Laplace(2.0)
    assert per_update("gaussian", 0.5, 1e-5) == Gaussian.analytic(0.5, 1e-5)
    for calibration in ("paper", "paper-tight"):  # the tight one has another sensitivity
        assert per_update("gaussian", 0.5, 1e-5, calibration) == Gaussian.classical(0.5, 1e-5)
        assert per_update("laplace", 0.5, None, calibration) == Laplace(2.0)
    for arguments in [("gaussian", 0.5), ("cauchy", 0.5), ("laplace", 0.5, None, "magic")]:
        with pytest.raises(InvalidInput):
            per_update(*arguments)


@pytest.mark.parametrize("mechanism", [*NOISY, Noiseless()], **identify)
def test_plain_data_round_trip(mechanism):
    assert mechanism_from(mechanism.to_dict()) == mechanism
    assert hash(mechanism_from(mechanism.to_dict())) == hash(mechanism)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "much", None])
def test_bad_parameters_and_plain_data(bad):
    for build in (
        lambda: Gaussian(bad),
        lambda: Laplace.of_epsilon(bad),
        lambda: Gaussian.classical(bad, 1e-5),
        lambda: Gaussian.analytic(bad, 1e-5),
        lambda: Gaussian.classical(1.0, bad),
        lambda: mechanism_from({"kind": "laplace", "noise_multiplier": bad}),
        lambda: mechanism_from({"kind": "noiseless", "noise_multiplier": 1.0}),
        lambda: mechanism_from({"kind": "gaussian"}),
        lambda: mechanism_from({"kind": "cauchy"}),
        lambda: mechanism_from({}),
    ):
        with pytest.raises(InvalidInput, match="Expected"):
            build()


# --- epsilon, delta and noise of a Gaussian update, beside 60 digits: never too small -------------


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


@given(st.floats(1e-6, 1e3), st.floats(-40, -0.01))
@settings(max_examples=repeat(30, 60))
def test_noise_for_a_budget_is_within_it_and_hardly_more(epsilon, log_delta):
    delta = 10**log_delta
    multiplier = gaussian_multiplier(epsilon, delta)
    assert true_gaussian_delta(1 / multiplier, epsilon) <= delta
    assert true_gaussian_delta(1 / (multiplier * (1 - 1e-7)), epsilon) > delta
