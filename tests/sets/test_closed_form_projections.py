"""Projection formulas: one property suite for all of them, in both formats, alone and stacked."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_form_sets import SETS, every_set, few, points, weights
from cvxpy_reference import projection, violation
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.sets import Ball, Box, HalfSpace, Hyperplane, L1Ball, Polyhedron, Product, Simplex


def inside(feasible_set, point):
    assert float(feasible_set.violation(point)) <= 1e-10


@cache
def reference(name):
    return projection(SETS[name][1], 4)


@every_set
@few
@given(v=points, c=weights)
def test_projection_is_feasible_and_idempotent(name, v, c):
    feasible_set, _ = SETS[name]
    z = feasible_set.project(v, c)
    inside(feasible_set, z)
    np.testing.assert_allclose(feasible_set.project(z, c), z, atol=1e-12)


@every_set
@few
@given(v=points, u=points, c=weights, share=st.floats(0, 1))
def test_feasible_points_stay(name, v, u, c, share):
    feasible_set, _ = SETS[name]
    between = share * feasible_set.project(v) + (1 - share) * feasible_set.project(u)
    inside(feasible_set, between)
    np.testing.assert_allclose(feasible_set.project(between, c), between, atol=1e-12)


@every_set
@few
@given(v=points, u=points, c=weights)
def test_projection_is_the_nearest_point(name, v, u, c):
    feasible_set, _ = SETS[name]
    z, w = feasible_set.project(v, c), feasible_set.project(u, c)
    size = 1 + np.abs(v).max() + np.abs(u).max()
    # non-expansive in its own metric
    assert np.sum(c * (z - w) ** 2) <= np.sum(c * (v - u) ** 2) + 1e-11 * size
    # variational inequality, for feasible points on and inside the border
    for feasible in (w, (z + w) / 2, feasible_set.project(0.1 * u)):
        assert np.sum(c * (v - z) * (feasible - z)) <= 1e-10 * size


@every_set
@settings(deadline=None, max_examples=10)
@given(v=arrays(np.float64, 4, elements=st.floats(-3, 3)), c=weights)
def test_projection_agrees_with_cvxpy(name, v, c):
    z = SETS[name][0].project(v, c)
    best = reference(name)(v, c)
    np.testing.assert_allclose(z, best, atol=1e-3)
    assert np.sum(c * (z - v) ** 2) <= np.sum(c * (best - v) ** 2) + 1e-7


@every_set
@few
@given(v=points)
def test_one_weight_for_all_coordinates_does_not_matter(name, v):
    feasible_set, _ = SETS[name]
    z = feasible_set.project(v)
    np.testing.assert_allclose(feasible_set.project(v, 7.0), z, atol=1e-12)
    np.testing.assert_allclose(feasible_set.project(v, np.full(4, 7.0)), z, atol=1e-11)


@every_set
@few
@given(v=points)
def test_violation_agrees_with_cvxpy(name, v):
    feasible_set, constraints = SETS[name]
    broken = violation(constraints, v)
    assert float(feasible_set.violation(v)) == pytest.approx(broken, abs=1e-9)


@every_set
def test_float32_stays_float32(name):
    feasible_set, _ = SETS[name]
    v = np.array([2.0, -1.0, 0.5, 4.0], np.float32)
    z = feasible_set.project(v, np.array([1.0, 2.0, 3.0, 4.0]))
    assert z.dtype == jnp.float32
    assert feasible_set.violation(z).dtype == jnp.float64
    assert feasible_set.violation(z) <= 1e-6
    exact = feasible_set.project(v.astype(np.float64), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(z, exact, atol=1e-5)


@pytest.mark.parametrize("distance", [1e2, 1e6, 1e8])
@pytest.mark.parametrize(
    "feasible_set",
    [
        HalfSpace(np.ones(4), 0.3, -0.5, 0.5),
        Hyperplane(np.ones(4), 0.2, -0.5, 0.5),
        Simplex(4),
        L1Ball(0.8, size=4),
    ],
    ids=lambda s: type(s).__name__,
)
def test_far_float32_points_land_in_the_set(feasible_set, distance):
    rng = np.random.default_rng(0)
    for _ in range(50):
        v = (distance * rng.normal(size=4)).astype(np.float32)
        c = (10 ** rng.uniform(-2, 2, 4)).astype(np.float32)
        z = feasible_set.project(v, c)
        assert z.dtype == np.float32
        assert float(feasible_set.violation(z)) <= 1e-6


def test_float32_boxes_round_inwards():
    """0.3 and −0.1 are no float32, and the nearest ones lie outside."""
    low, high = np.array([-0.1, 0.1]), np.array([0.3, 0.7])
    for far in (9.0, -9.0):
        z = Box(low, high).project(np.full(2, far, np.float32))
        assert z.dtype == np.float32
        exact = np.asarray(z, np.float64)
        assert (low <= exact).all() and (exact <= high).all()
        np.testing.assert_allclose(exact, high if far > 0 else low, rtol=2e-7)


@every_set
def test_nan_stays_visible(name):
    feasible_set, _ = SETS[name]
    v = np.array([0.0, math.nan, 0.0, 0.0])
    assert np.isnan(np.asarray(feasible_set.project(v))).any()
    assert np.isnan(float(feasible_set.violation(v)))


FAMILIES = [
    [Box(-1, 1, 3), Box(0.0, [1.0, 2.0, 3.0])],
    [Ball(0, 1, 3), Ball([1.0, 2.0, 3.0], 0.5)],
    [L1Ball(1.0, 3), L1Ball(2.0, 3, 1.0)],
    [Simplex(3), Simplex(3, 2.0)],
    [HalfSpace([1.0, 2.0, 3.0], 1.0), HalfSpace([1.0, -1.0, 0.0], 0.5, -1, 1)],
    [Hyperplane([1.0, 2.0, 3.0], 1.0), Hyperplane([1.0, -1.0, 0.0], 0.5, -1, 1)],
    [Product([Box(-1, 1, 1), Ball(0, 1, 2)]), Product([Box(0, 1, 1), Ball(1, 2, 2)])],
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f[0]).__name__)
def test_stacked_sets_under_vmap_are_a_loop(family):
    rng = np.random.default_rng(1)
    v, c = 3 * rng.normal(size=(2, 3)), rng.uniform(0.5, 2, (2, 3))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *family)

    @jax.jit
    def together(sets, v, c):
        z = jax.vmap(lambda s, v, c: s.project(v, c))(sets, v, c)
        return z, jax.vmap(lambda s, v: s.violation(v))(sets, v)

    z, broken = together(stacked, v, c)
    for k, alone in enumerate(family):
        np.testing.assert_allclose(z[k], alone.project(v[k], c[k]), atol=1e-14)
        np.testing.assert_allclose(broken[k], alone.violation(v[k]), atol=1e-14)


def test_only_boxes_are_separable():
    box, ball = Box(0, 1, 2), Ball(0, 1, 2)
    assert box.separable and not ball.separable and not Product([box, ball]).separable
    assert Product([box, box]).separable and Product([box, ball]).closed_form


def test_product_with_a_solver_backed_part():
    triangle = Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, 0.0])
    mixed = Product([Simplex(2), triangle])
    assert not mixed.closed_form and mixed.dimension == 4
    z = mixed.project(np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 3.0, 1.0, 3.0]))
    np.testing.assert_allclose(z, [0.25, 0.75, 0.0, 1.0], atol=1e-7)
    assert mixed.violation(z) <= 1e-7
    assert mixed.violation([2.0, 0.0, 0.0, 0.0]) == pytest.approx(1.0)


def test_a_set_does_not_change_with_the_arrays_it_was_given():
    center, upper = np.zeros(2), np.ones(2)
    ball, box = Ball(center, 1.0), Box(0.0, upper)
    center[:] = upper[:] = 9.0
    assert ball.violation([0.0, 0.0]) == 0 and box.violation([2.0, 0.0]) == 1
