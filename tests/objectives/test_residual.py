"""‖Az + d‖²: residual and gradient, groups, sparse matrices, slack; and releases of d."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import residual

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput
from tacit.objectives import PublicQuadratic, Residual
from tacit.sets import Ball, Box

ROUNDING = 2e-4  # what the rounding of numbers up to 2³⁷β adds


@pytest.mark.parametrize("noise_on", ["residual", "gradient"])
@settings(deadline=None, max_examples=repeat(10, 20))
@given(seed=st.integers(0, 10**6), moved=st.integers(1, 6), vector=st.booleans())
def test_residual_neighbours_never_exceed_the_bound(
    noise_on: str, seed: int, moved: int, vector: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, d = rng.normal(size=(6, 4)), rng.normal(size=6)
    β = rng.uniform(0.1, 1, size=6) if vector else 0.3
    who = rng.permutation(6)[:moved]
    d2 = d.copy()
    d2[who] += (β * np.ones(6) * rng.choice([-1, 1], size=6))[who]
    f, g = (Residual(A, data, β, moved, noise_on=noise_on) for data in (d, d2))
    W, z = Ball(0.0, 1.0, 4), rng.normal(size=4)
    for norm in (1, 2):
        # of NumPy's: a number of data is a program
        assert np.linalg.norm(f.statistic(z) - g.statistic(z), norm) <= f.sensitivity(norm, W) * (
            1 + 1e-9
        )
        moved_gradient = np.linalg.norm(f.gradient(z) - g.gradient(z), norm)
        assert moved_gradient <= f.gradient_sensitivity(norm, W) * (1 + 1e-9)


def test_residual_bounds_are_attained() -> None:
    W, A = Ball(0.0, 1.0, 2), np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])
    one = Residual(A, np.zeros(3), 0.01)
    assert one.sensitivity(1, W) == one.sensitivity(2, W) == pytest.approx(0.02, rel=ROUNDING)
    assert one.gradient_sensitivity(1, W) == pytest.approx(0.02 * 7, rel=ROUNDING)
    assert one.gradient_sensitivity(2, W) == pytest.approx(0.02 * 5, rel=ROUNDING)
    assert one.neighbours == "one datum moving by at most 0.01"
    two = Residual(A, np.zeros(3), [0.1, 0.3, 0.4], 2)
    assert two.sensitivity(1, W) == pytest.approx(1.4, rel=ROUNDING)
    assert two.sensitivity(2, W) == pytest.approx(1.0, rel=ROUNDING)
    assert two.neighbours == "up to 2 data, each moving by at most its own bound, 0.4 or less"
    orthogonal = Residual(np.eye(4), np.zeros(4), 1.0, 4, noise_on="gradient")
    assert orthogonal.sensitivity(2, Ball(0.0, 1.0, 4)) == pytest.approx(4.0, rel=1e-3)  # not 2·4
    assert orthogonal.statistic_size == orthogonal.dimension == 4
    slack = Residual(A, np.zeros(3), 0.01, slack=True)  # in whose metric A' lengthens nothing
    assert slack.output_sensitivity(2, W) == slack.sensitivity(2, W)
    assert one.output_sensitivity(2, W) == one.gradient_sensitivity(2, W)


def test_residual_groups_move_together() -> None:
    """Two rows that share a column: the exact L2 bound lies between √2 and 2 times one row's."""
    A = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [5.0, 0.0, 0.0], [0.0, 0.1, 0.0]])
    W, options = Ball(0.0, 1.0, 3), {"groups": [0, 0, 1, 1]}
    f = Residual(A, np.zeros(4), [0.3, 0.4, 0.01, 0.01], **options)
    assert f.sensitivity(1, W) == pytest.approx(2 * 0.7, rel=ROUNDING)
    assert f.sensitivity(2, W) == pytest.approx(2 * 0.5, rel=ROUNDING)
    both = 0.3 * A[0] + 0.4 * A[1]
    assert f.gradient_sensitivity(2, W) == pytest.approx(2 * np.linalg.norm(both), rel=1e-3)
    assert f.gradient_sensitivity(1, W) == pytest.approx(2 * np.abs(both).sum(), rel=1e-3)
    assert "the data of one group, each moving by at most its own bound" in f.neighbours
    for wrong in ([0, 0, 1], [0.5] * 4):
        with pytest.raises(InvalidInput, match="groups as 4 whole numbers"):
            Residual(A, np.zeros(4), 0.1, groups=wrong)


@pytest.mark.parametrize("noise_on", ["residual", "gradient"])
def test_a_sparse_residual_is_the_dense_one(noise_on: str) -> None:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(5, 7)) * (rng.uniform(size=(5, 7)) < 0.4)
    d, z, W = rng.normal(size=5), rng.normal(size=7), Ball(0.0, 1.0, 7)
    dense = Residual(A, d, 0.1, noise_on=noise_on, slack=True)
    sparse = Residual(sp.csr_matrix(A), d, 0.1, noise_on=noise_on, slack=True)
    assert sparse.slack_size == 5 and sparse.dimension == 7

    def known(f: Residual, z: Any) -> Any:
        return f.value(z), f.gradient(z), f.slack_of(z)

    for of in (known, jax.jit(known)):  # NumPy's arrays and JAX's
        for ours, theirs in zip(of(sparse, z), of(dense, z), strict=True):
            np.testing.assert_allclose(ours, theirs)
        np.testing.assert_allclose(of(sparse, z)[2], A @ z)
    assert isinstance(sparse.gradient(z), np.ndarray)
    np.testing.assert_allclose(jax.jit(jax.grad(sparse.value))(jnp.asarray(z)), dense.gradient(z))
    for norm in (1, 2):
        assert sparse.sensitivity(norm, W) == pytest.approx(dense.sensitivity(norm, W), rel=1e-3)
    lifted = jax.vmap(dense.lift)(np.eye(dense.statistic_size))
    assert sparse.lift_energy == pytest.approx(dense.lift_energy) == np.sum(lifted**2)
    bounded = Residual(A, d, 0.1, data_bound=np.linalg.norm(d) + 1e-9)
    assert dense.gradient_bound(W) == np.inf
    inside = z / np.linalg.norm(z)
    assert np.linalg.norm(dense.gradient(inside)) <= bounded.gradient_bound(W)
    assert sparse.smoothness >= dense.smoothness  # a bound from row and column sums


def test_a_huge_residual_does_not_round_away_its_bound():
    """At 1e17 numbers are 16 apart: data that differ by 0.01 would be rounded that far apart."""
    for near, noise_on in ((7.995, "residual"), (7.995, "gradient")):
        f, g = (
            Residual(np.array([[1e17]]), np.array([d]), 0.01, noise_on=noise_on)
            for d in (near, near + 0.01)
        )
        z = np.ones(1)
        moved = np.abs(np.asarray(f.statistic(z)) - np.asarray(g.statistic(z))).max()
        assert moved <= f.sensitivity(2, Box(-1.0, 1.0, 1))


@pytest.mark.parametrize("beta", [0.12345651, 0.1234565, 1 / 3, 0.01, 2.0, 1e-5, 1e7 / 3])
def test_words_never_say_less_than_beta(beta):
    """0.12345651 was stated as 0.123457, 0.1234564 as 0.123456: the nearest of six digits."""
    for f in (Residual(np.eye(2), np.zeros(2), b) for b in (beta, [beta, beta / 2])):
        said = re.findall(r"[0-9][0-9.e+-]*", f.neighbours)
        assert [float(number) for number in said] == [beta]
        assert f"{beta:g}" in f.relation  # as ledgers have always had it, and a digest of all
    assert Residual(np.eye(1), np.zeros(1), 0.01).neighbours == "one datum moving by at most 0.01"


# --- releases ----------------------------------------------------------------------------------


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
    statistics = f.statistics()
    for norm in (1, 2):
        largest = 0.0
        for who in together:
            d = f.data.copy()
            d[who] += β[who] * rng.choice([-1, 1], size=len(who))
            other = Residual(f.matrix, d, β, **options).statistics()
            apart = float(np.linalg.norm(other.values - statistics.values, norm))
            assert apart <= statistics.sensitivity(norm) * (1 + 1e-9)
            assert other.sensitivity(norm) == statistics.sensitivity(norm)
            largest = max(largest, apart)
        assert statistics.sensitivity(norm) == pytest.approx(largest, rel=1e-9)


def test_a_bus_with_two_demands_moves_by_the_root_of_two():
    f = Residual(np.eye(4), np.zeros(4), 0.01, groups=[0, 1, 0, 1])
    assert f.statistics().sensitivity(1) == pytest.approx(0.02, rel=1e-9)
    assert f.statistics().sensitivity(2) == pytest.approx(np.sqrt(2) * 0.01, rel=1e-9)
    assert f.statistics().sensitivity(2) >= np.sqrt(2) * 0.01
    # half of what moves the statistic 2(Az + d), and nothing for rounding
    assert f.statistics().sensitivity(2) < f.sensitivity(2, Ball(0.0, 1.0, 4)) / 2
    with pytest.raises(InvalidInput, match="norm"):
        f.statistics().sensitivity(3)


def test_numbers_of_any_size_are_read_as_they_are():
    """At 1e17 numbers are 16 apart: no arithmetic may round data that differ by 0.01 there."""
    near, far = (
        Residual(np.array([[1.0]]), np.array([d]), 1.0).statistics() for d in (1e17, -3.25)
    )
    assert near.values[0] == 1e17 and far.values[0] == -3.25
    with pytest.raises(ValueError, match="read-only"):
        near.values[0] = 7.0


@pytest.mark.parametrize("sparse", [False, True])
def test_a_public_copy_is_the_objective_of_its_data(sparse):
    f = residual(slack=True)
    A = sp.csr_matrix(f.matrix) if sparse else f.matrix
    statistics = Residual(A, f.data, 0.1, slack=True).statistics()
    rng = np.random.default_rng(0)
    noisy = statistics.values + rng.normal(size=6)
    g = statistics.released_objective(noisy, 1.0)
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
