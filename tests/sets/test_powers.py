"""Powers of two: exact, against NumPy's of the C library, at every size."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.objectives.rounding import cut_point
from tacit.sets.closed_form import length
from tacit.sets.feasible_set import FARTHEST, LEAST, exponent, magnitude, scaled

EDGES = [LEAST, 2 * LEAST, 0.5, 1 - 2**-53, 1.0, 1.5, 2.0, 1.7e308, math.nextafter(2.0**1000, 0)]
exponent_, magnitude_, scaled_ = (jax.jit(f) for f in (exponent, magnitude, scaled))


@given(st.one_of(st.sampled_from(EDGES), st.floats(LEAST, allow_infinity=False)))
def test_the_exponent_is_that_of_the_number(number):
    right = math.frexp(number)[1]
    assert int(exponent_(number)) == right
    assert int(magnitude_(number)) == max(-FARTHEST, min(right, FARTHEST))


@given(
    arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_subnormal=False)),
    st.integers(-1022, 1023),
)
def test_scaling_is_exact(numbers, power):
    found = np.asarray(scaled_(numbers, power))
    with np.errstate(over="ignore"):
        right = np.ldexp(numbers, power)
    normal = (np.abs(right) > LEAST) | (numbers == 0)
    np.testing.assert_array_equal(found[normal], right[normal])
    assert (np.abs(found[~normal]) <= LEAST).all()  # what is smaller may become 0


def test_what_is_not_a_number_stays_so_and_derivatives_are_those_of_a_product():
    found = np.asarray(scaled_(np.array([np.nan, np.inf, -np.inf, -0.0]), -700))
    np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf, -0.0])
    assert np.signbit(found[3])
    assert [int(exponent_(x)) for x in (0.0, 5e-324, LEAST / 2, math.inf, math.nan)] == [0] * 5
    assert float(jax.grad(lambda x: scaled(x, 3))(1.7)) == 8.0
    assert float(jax.grad(lambda x: scaled(x, -exponent(x)))(1.7)) == 0.5


@pytest.mark.parametrize("size", [LEAST, 1e-300, 1e-160, 1.0, 1e160, 1e300, 2.0**1022])
def test_lengths_at_the_ends_of_the_range(size):
    assert float(length(np.array([3.0, -4.0]) / 4 * size)) == pytest.approx(1.25 * size, rel=1e-15)


@pytest.mark.parametrize("size", [0.0, 5e-324, LEAST, 1e-200, 1e-150, 1.0, 1e200, 1.7e308])
def test_cut_points_are_multiples_of_a_power_at_every_size(size):
    """And so few of it that no sum of products is rounded; the power is no subnormal number."""
    z = np.random.default_rng(0).uniform(-1, 1, 40) * size
    cut = np.asarray(cut_point(z))
    grid = 2.0 ** (max(math.frexp(np.abs(z).max())[1], -500) + 3 - 26)
    assert grid >= 2.0**-526 and grid >= 2.0**-26 * np.abs(z).max()
    assert (np.abs(cut) <= np.abs(z)).all() and (np.abs(z - cut) < grid).all()
    steps = cut / grid
    assert (steps == np.round(steps)).all() and np.abs(steps).max() <= 2.0**26
