"""Powers of two: exact, against NumPy's of the C library, at every size."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.sets.powers import LEAST, exponent, scaled

EDGES = [LEAST, 2 * LEAST, 0.5, 1 - 2**-53, 1.0, 1.5, 2.0, 1.7e308, math.nextafter(2.0**1000, 0)]
exponent_, scaled_ = jax.jit(exponent), jax.jit(scaled)


@given(st.one_of(st.sampled_from(EDGES), st.floats(LEAST, allow_infinity=False)))
def test_the_exponent_is_that_of_the_number(number):
    assert int(exponent_(number)) == math.frexp(number)[1]


@pytest.mark.parametrize("number", [0.0, -0.0, 5e-324, LEAST / 2, math.inf, -math.inf, math.nan])
def test_what_has_no_exponent_has_none(number):
    assert int(exponent_(number)) == 0


@given(
    arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_subnormal=False)),
    st.integers(-2044, 2044),
)
def test_scaling_is_exact(numbers, power):
    found = np.asarray(scaled_(numbers, power))
    with np.errstate(over="ignore"):
        right = np.ldexp(numbers, power)
    normal = (np.abs(right) >= LEAST) | (numbers == 0)
    np.testing.assert_array_equal(found[normal], right[normal])
    assert (np.abs(found[~normal]) <= LEAST).all()  # what is smaller may become 0


def test_what_is_not_a_number_stays_so():
    found = np.asarray(scaled_(np.array([np.nan, np.inf, -np.inf, -0.0]), -1500))
    np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf, -0.0])
    assert np.signbit(found[3])


def test_a_power_that_is_made_of_two_halves_reaches_further_than_one():
    assert float(scaled_(2.0**-1000, 2000)) == 2.0**1000
    assert float(scaled_(2.0**1023, -2044)) == 2.0**-1021
    assert float(scaled_(1.0, 1024)) == math.inf


def test_derivatives_are_those_of_a_product():
    assert float(jax.grad(lambda x: scaled(x, 3))(1.7)) == 8.0
    assert float(jax.grad(lambda x: scaled(x, -exponent(x)))(1.7)) == 0.5
