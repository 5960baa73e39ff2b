"""What one reading of an objective tells, and public copies made from it."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import SAMPLED, records, residual, sample

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput
from tacit.objectives import PublicQuadratic, Reading, Residual
from tacit.sets import Ball


@settings(deadline=None, max_examples=repeat(20, 40))
@given(seed=st.integers(0, 10**6), moved=st.integers(1, 5), grouped=st.booleans())
def test_the_sensitivity_of_a_reading_is_that_of_the_data_and_attained(seed, moved, grouped):
    """All sets of entries that may move, each by ±β_i: the furthest has the length Δ."""
    rng = np.random.default_rng(seed)
    β, labels = rng.uniform(0, 1, 5) * (rng.uniform(size=5) < 0.8), rng.integers(0, 3, 5)
    β[0] = 0.5
    options = {"groups": labels} if grouped else {"moved": moved}
    f = Residual(rng.normal(size=(5, 3)), rng.normal(size=5), β, **options)
    together = (
        [np.flatnonzero(labels == g) for g in set(labels.tolist())]
        if grouped
        else [list(who) for who in combinations(range(5), moved)]
    )
    reading = f.reading()
    for norm in (1, 2):
        largest = 0.0
        for who in together:
            d = f.data.copy()
            d[who] += β[who] * rng.choice([-1, 1], size=len(who))
            other = Residual(f.matrix, d, β, **options).reading()
            apart = float(np.linalg.norm(other.values - reading.values, norm))
            assert apart <= reading.sensitivity(norm) * (1 + 1e-9)
            assert other.sensitivity(norm) == reading.sensitivity(norm)
            largest = max(largest, apart)
        assert reading.sensitivity(norm) == pytest.approx(largest, rel=1e-9)


def test_a_bus_with_two_demands_moves_by_the_root_of_two():
    f = Residual(np.eye(4), np.zeros(4), 0.01, groups=[0, 1, 0, 1])
    assert f.reading().sensitivity(1) == pytest.approx(0.02, rel=1e-9)
    assert f.reading().sensitivity(2) == pytest.approx(np.sqrt(2) * 0.01, rel=1e-9)
    assert f.reading().sensitivity(2) >= np.sqrt(2) * 0.01
    # half of what moves the statistic 2(Az + d), and nothing for rounding
    assert f.reading().sensitivity(2) < f.sensitivity(2, Ball(0.0, 1.0, 4)) / 2
    with pytest.raises(InvalidInput, match="norm"):
        f.reading().sensitivity(3)


def test_numbers_of_any_size_are_read_as_they_are():
    """At 1e17 numbers are 16 apart: no arithmetic may round data that differ by 0.01 there."""
    near, far = (Residual(np.array([[1.0]]), np.array([d]), 1.0).reading() for d in (1e17, -3.25))
    assert near.values[0] == 1e17 and far.values[0] == -3.25
    with pytest.raises(ValueError, match="read-only"):
        near.values[0] = 7.0


@pytest.mark.parametrize("name", [name for name in SAMPLED if name != "least-squares"])
def test_what_cannot_be_read_once_says_so(name):
    with pytest.raises(InvalidInput, match="a quadratic one, to be read once, got"):
        sample(name, *records(0)).reading()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_public_copy_is_the_objective_of_its_data(sparse):
    f = residual(slack=True)
    A = sp.csr_matrix(f.matrix) if sparse else f.matrix
    reading = Residual(A, f.data, 0.1, slack=True).reading()
    assert isinstance(reading, Reading)
    rng = np.random.default_rng(0)
    noisy = reading.values + rng.normal(size=6)
    g = reading.public_copy(noisy, 1.0)
    truth = Residual(f.matrix, noisy, 0.1)
    assert isinstance(g, PublicQuadratic) and g.slack_size == 6 and g.dimension == 4
    z = rng.normal(size=4)
    for point in (z, jnp.asarray(z)):
        np.testing.assert_allclose(g.value(point), truth.value(point))
        np.testing.assert_allclose(g.gradient(point), truth.gradient(point), rtol=1e-12)
        np.testing.assert_allclose(g.slack_of(point), f.matrix @ z)
    np.testing.assert_allclose(jax.jit(jax.grad(g.value))(jnp.asarray(z)), g.gradient(z), rtol=1e-9)
    assert g.smoothness >= 2 * np.linalg.norm(f.matrix, 2) ** 2 * (1 - 1e-12)
    W = Ball(0.0, 1.0, 4)
    assert g.sensitivity(1, W) == g.sensitivity(2, W) == 0
    assert np.linalg.norm(g.gradient(np.ones(4) / 2)) <= g.gradient_bound(W)
    assert LocalProblem(PublicQuadratic(A, noisy), W).dimension == 4


def test_public_numbers_are_checked():
    with pytest.raises(InvalidInput, match=r"data of shape \(3\)"):
        PublicQuadratic(np.ones((3, 2)), np.ones(2))
    with pytest.raises(InvalidInput, match="finite"):
        PublicQuadratic(np.ones((2, 2)), np.array([1.0, np.nan]))
