"""The mean of private rows: Δ of one reading against the worst neighbours, and its public copy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import change

import tacit
from tacit.errors import InvalidInput
from tacit.objectives.mean import BLOCK, Mean

RELATIONS = ["add-remove", "zero-out", "replace"]
B = 1.5


def mean_of(rows, relation="add-remove", **options):
    options = {"feature_norm": B, "normaliser": 12.0, **options}
    return Mean(np.asarray(rows), neighbours=relation, **options)


def neighbour(x, relation, row):
    if relation == "add-remove":
        return x[1:]
    return np.concatenate([[row if relation == "replace" else 0 * x[0]], x[1:]]).astype(x.dtype)


def apart(f, g, norm):
    return float(np.linalg.norm(f.reading().values - g.reading().values, norm))


@pytest.mark.parametrize("relation", RELATIONS)
@settings(deadline=None, max_examples=repeat(20, 40))
@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from(repeat([1, 4], [1, 2, 3, 4, 5])),
    scale=st.sampled_from([1e-320, 0.1, 1.0, 30.0, 1e30, 1e300]),
    dtype=st.sampled_from([np.float32, np.float64]),
    norm_1=st.sampled_from([None, 1.7, 1.0]),
)
def test_neighbours_never_exceed_the_bound(relation, seed, d, scale, dtype, norm_1):
    rng = np.random.default_rng(seed)
    scale = min(scale, float(np.finfo(dtype).max) / 100)
    x = (scale * rng.normal(size=(6, d))).astype(dtype)
    other = neighbour(x, relation, -x[0] + scale * rng.normal(size=d) / 9)
    f, g = (mean_of(rows, relation, feature_norm_1=norm_1) for rows in (x, other))
    box = tacit.Box(-1.0, 1.0, d)
    z = np.zeros(d)
    for norm in (1, 2):
        Δ = f.reading().sensitivity(norm)
        assert apart(f, g, norm) <= Δ == g.reading().sensitivity(norm)
        assert change(f, g, z, norm) <= f.sensitivity(norm, box)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("norm", [1, 2])
def test_the_bound_is_attained(relation, norm):
    row = np.full(4, 1e30)  # cut to length B, all entries equal
    x = np.stack([row, np.ones(4)])
    f, g = (mean_of(rows, relation) for rows in (x, neighbour(x, relation, -row)))
    assert apart(f, g, norm) == pytest.approx(f.reading().sensitivity(norm), rel=1e-6)
    twice = 2 if relation == "replace" else 1
    length = B * (2 if norm == 1 else 1)
    assert f.reading().sensitivity(norm) == pytest.approx(twice * length, rel=1e-6)
    assert f.sensitivity(norm, tacit.Box(-1, 1, 4)) == pytest.approx(twice * length / 12, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_many_records_is_inside_the_bound(dtype):
    """Rows that shift by one place are added in another order; all in 64 bits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * BLOCK + 5, 3)).astype(dtype)
    f, g = (mean_of(rows, "add-remove", normaliser=20_000.0) for rows in (x, x[1:]))
    exact = [np.asarray(h.features).astype(np.longdouble).sum(axis=1) for h in (f, g)]
    errors = [np.abs(h.reading().values - e).max() for h, e in zip((f, g), exact, strict=True)]
    room = f.reading().sensitivity(2) - B
    assert max(errors) <= room / 2 and room < 1e-6
    assert room >= 2 * BLOCK * 2.0**-53 * len(x) * B
    assert max(errors) > 0 or dtype == np.float32  # whose sums are exact here
    assert apart(f, g, 2) <= f.reading().sensitivity(2)


def test_it_is_the_quadratic_that_it_says():
    x = np.random.default_rng(0).normal(size=(12, 3)) / 5
    f = mean_of(x)
    z = jnp.asarray([0.3, -0.2, 0.9])
    m = x.mean(axis=0)
    assert float(f.value(z)) == pytest.approx(((z - m) ** 2).sum() / 2)
    np.testing.assert_allclose(f.gradient(z), z - m, rtol=1e-12)
    np.testing.assert_allclose(f.gradient(z), jax.jit(jax.grad(f.value))(z), rtol=1e-12)
    copy = f.reading().public_copy(f.reading().values, 0.0)
    assert float(copy.value(np.asarray(z))) == pytest.approx(float(f.value(z)))
    np.testing.assert_allclose(copy.gradient(np.asarray(z)), f.gradient(z), rtol=1e-12)
    assert (f.smoothness, f.strong_convexity) == (1.0, 1.0)
    ball = tacit.Ball(0.0, 2.0, 3)
    assert np.linalg.norm(f.gradient(jnp.asarray([2.0, 0, 0]))) <= f.gradient_bound(ball)
    padded = f.pad(20)
    assert padded.sample_count == f.sample_count == 12
    np.testing.assert_allclose(padded.gradient(z), f.gradient(z), rtol=1e-12)


def two_agents():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(40, 3)) / 9 + 0.3 for _ in range(2)]
    parts = [
        tacit.LocalProblem(
            mean_of(x, "zero-out", normaliser=80.0), tacit.Box(-1.0, 1.0, 3), name=name
        )
        for x, name in zip(rows, ("north", "south"), strict=True)
    ]
    return rows, parts


def test_it_is_released_as_others_are():
    rows, parts = two_agents()
    released = tacit.release(parts, 200.0, 1e-6, seed=0)
    assert released.privacy.epsilon <= 200
    for release, x in zip(released.releases, rows, strict=True):
        np.testing.assert_allclose(release.values, x.sum(axis=0), atol=1.0)


@pytest.mark.exhaustive  # test_it_is_the_quadratic_that_it_says, and runs go by its gradient
def test_it_is_solved_as_others_are():
    rows, parts = two_agents()
    found = tacit.solve(parts, tacit.Settings(60, 1, tacit.Noiseless(), step_size=1.0), seed=0)
    half = np.concatenate(rows).mean(axis=0) / 2  # of two agents' halves of the sum
    np.testing.assert_allclose(found.solution, half, atol=1e-4)


def test_sums_of_an_unknown_device_are_not_inside_the_proof():
    f = mean_of([[1.0]])
    assert f.uncertified_on("tpu") and not f.uncertified_on("cpu") and not f.uncertified_on("gpu")


def test_bad_rows_are_refused():
    with pytest.raises(InvalidInput, match="finite numbers in features"):
        mean_of([[math.nan]])
    with pytest.raises(InvalidInput, match="feature_norm > 0"):
        mean_of([[1.0]], feature_norm=0.0)
    with pytest.raises(InvalidInput, match="norm to be one of"):
        mean_of([[1.0]]).reading().sensitivity(3)


def test_the_rows_decide_whether_data_are_the_same():
    """Sums of other rows may be equal, and sums of the same rows differ in their last bits."""
    f, g = mean_of([[0.1, 0.2], [0.3, 0.4]]), mean_of([[0.3, 0.4], [0.1, 0.2]])
    np.testing.assert_allclose(f.reading().values, g.reading().values, rtol=1e-15)
    (one,), (other,) = f.reading().source, g.reading().source
    assert (one != other).any()
