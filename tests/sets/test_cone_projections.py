"""Solver-backed sets: the same properties at the solver's accuracy."""

import math
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from cone_sets import CURVED, L1, SETS
from conftest import repeat
from cvxpy_reference import projection, violation
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.sets import Ball, Cone, ConeSet, Conic, HalfSpace, Polyhedron, Simplex

every_set = pytest.mark.parametrize("name", SETS)
points = st.builds(
    lambda v, scale: v * scale,
    arrays(np.float64, 3, elements=st.floats(-3, 3)),
    st.sampled_from([0.1, 1.0, 300.0]),
)
weights = arrays(np.float64, 3, elements=st.floats(0.1, 10))
few = settings(deadline=None, max_examples=repeat(12, 25))


def accuracy(name):
    return 1e-4 if name in CURVED else 1e-6


@cache
def reference(name):
    return projection(SETS[name][1], 3)


@every_set
@few
@given(v=points, c=weights)
def test_projection_is_feasible_and_idempotent(name, v, c):
    feasible_set, _ = SETS[name]
    z = feasible_set.project(v, c)
    assert z.dtype == np.float64
    assert feasible_set.violation(z) <= 1e-7
    np.testing.assert_allclose(feasible_set.project(z, c), z, atol=accuracy(name))


@every_set
@few
@given(v=points, u=points, c=weights)
def test_projection_is_the_nearest_point(name, v, u, c):
    feasible_set, _ = SETS[name]
    z, w = feasible_set.project(v, c), feasible_set.project(u, c)
    size = (1 + np.abs(v).max() + np.abs(u).max()) * c.max()
    assert np.sum(c * (z - w) ** 2) <= np.sum(c * (v - u) ** 2) + accuracy(name) * size
    for feasible in (w, (z + w) / 2, feasible_set.project(0.1 * u)):
        assert np.sum(c * (v - z) * (feasible - z)) <= accuracy(name) * size


@every_set
@settings(deadline=None, max_examples=10)
@given(v=arrays(np.float64, 3, elements=st.floats(-3, 3)), c=weights)
def test_projection_agrees_with_cvxpy(name, v, c):
    z = SETS[name][0].project(v, c)
    best = reference(name)(v, c)
    np.testing.assert_allclose(z, best, atol=1e-3)
    assert np.sum(c * (z - v) ** 2) <= np.sum(c * (best - v) ** 2) + 1e-6


@every_set
@few
@given(v=points)
def test_violation_is_positive_outside_and_zero_inside(name, v):
    feasible_set, constraints = SETS[name]
    broken = violation(constraints, v)
    if name == "auxiliaries":  # seven rows share the violation of one norm
        assert (feasible_set.violation(v) > 1e-8) == (broken > 1e-7)
    else:
        assert feasible_set.violation(v) == pytest.approx(broken, abs=1e-8)


@every_set
@few
@given(v=points, u=points)
def test_sizes_bound_every_feasible_pair(name, v, u):
    feasible_set, _ = SETS[name]
    z, w = feasible_set.project(v), feasible_set.project(u)
    assert np.linalg.norm(z - w) <= feasible_set.diameter + 1e-8
    for norm in (2, math.inf):
        assert np.linalg.norm(z, norm) <= feasible_set.radius(norm) + 1e-8


@every_set
def test_radius_is_the_largest_coordinate(name):
    feasible_set, constraints = SETS[name]
    z = cp.Variable(3)
    reached = [
        cp.Problem(cp.Maximize(sign * z[i]), constraints(z)).solve(cp.CLARABEL)
        for sign in (1, -1)
        for i in range(3)
    ]
    assert feasible_set.radius(math.inf) == pytest.approx(max(reached), rel=1e-6)


def test_sizes_are_never_below_the_true_ones():
    """Not even by the solver's error: sensitivities are proven for points up to the radius."""
    cube = Polyhedron(lower=-np.ones(3), upper=np.ones(3))
    disc = ConeSet([Cone(np.eye(2), limit=1.5)], lower=-9.0 * np.ones(2), upper=9.0 * np.ones(2))
    for W, size in ((cube, 1.0), (disc, 1.5)):
        assert size <= W.radius(math.inf) <= size * (1 + 1e-6)
    assert cube.diameter >= 2 * math.sqrt(3) and disc.diameter >= 3.0


def test_agreement_with_closed_forms():
    rng = np.random.default_rng(3)
    a = rng.normal(size=4)
    pairs = [
        (Polyhedron([a], [0.3], lower=np.full(4, -1.0), upper=1), HalfSpace(a, 0.3, -1, 1), 1e-6),
        (Polyhedron(None, None, np.ones((1, 4)), [1.0], lower=0.0), Simplex(4), 1e-6),
        (ConeSet([Cone(np.eye(4), -a, limit=0.7)]), Ball(a, 0.7), 1e-4),
    ]
    for by_solver, closed, tolerance in pairs:
        for scale in (0.3, 3.0, 1e3, 1e6):
            v, c = scale * rng.normal(size=4), np.exp(rng.normal(size=4))
            z = by_solver.project(v, c)
            np.testing.assert_allclose(z, closed.project(v, c), atol=tolerance)
            assert closed.violation(z) <= 1e-7
        assert by_solver.diameter >= closed.diameter * (1 - 1e-9) or closed.diameter == math.inf


@pytest.mark.parametrize(
    ("feasible_set", "point", "broken"),
    [
        (Polyhedron([[1.0, 2.0]], [1.0], lower=[-1.0, -1.0], upper=1), [1.0, 1.0], 2.0),
        (Polyhedron([[1.0, 2.0]], [1.0], lower=[-1.0, -1.0], upper=1), [-4.0, 0.0], 3.0),
        (Polyhedron(None, None, [[1.0, 1.0]], [1.0], [0.0, 0.0]), [0.0, 0.25], 0.75),
        (ConeSet([Cone(np.eye(2), [1.0, 0.0], [0.0, 0.5], 2.0)]), [2.0, 4.0], 1.0),
        (Conic(np.vstack([np.zeros((1, 2)), -np.eye(2)]), [1, 0, 0], [("soc", 3)]), [3, 4], 4.0),
        (L1, [1.5, 0.0, 0.0], 0.0),
        # rows of length 1: t₁ ≥ 3.1 − √2s, t₂ and t₃ ≥ −√2s, Σ t ≤ 1.5 + √3s
        (L1, [3.1, 0.0, 0.0], 1.6 / (3 * math.sqrt(2) + math.sqrt(3))),
    ],
)
def test_violation_by_hand(feasible_set, point, broken):
    assert feasible_set.violation(point) == pytest.approx(broken, abs=1e-8)


def test_weights_of_a_polyhedron_by_hand():
    """Onto x + y ≤ 1 from (2, 2), x three times as heavy: x falls by 3/4, y by 9/4."""
    W = Polyhedron(np.ones((1, 2)), np.ones(1), lower=-9.0 * np.ones(2), upper=9.0 * np.ones(2))
    z = W.project(np.array([2.0, 2.0]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(z, [1.25, -0.25], atol=1e-8)


def test_auxiliary_equations_and_cones_count_in_the_violation():
    # z₁ = y, ‖(z₂, y)‖ ≤ 1 with the auxiliary y in the middle column
    matrix = np.array([[1.0, -1.0, 0.0], [0, 0, 0], [0, 0, -1.0], [0, -1.0, 0]])
    disc = Conic(matrix, [0.0, 1.0, 0.0, 0.0], [("zero", 1), ("soc", 3)], variables=[0, 2])
    np.testing.assert_allclose(disc.project([3.0, 4.0]), [0.6, 0.8], atol=1e-5)
    np.testing.assert_allclose(
        disc.project([2.0, 1.0], [1.0, 3.0]),
        Ball(0, 1, 2).project([2.0, 1.0], [1.0, 3.0]),
        atol=1e-4,
    )
    assert disc.violation([0.6, 0.7]) == pytest.approx(0.0, abs=1e-8)
    # rows of length 1: y = 1 + s breaks the disc by s and the equation by (2 − s)/√2 = s
    assert disc.violation([3.0, 0.0]) == pytest.approx(2 / (1 + math.sqrt(2)), abs=1e-7)


def test_order_of_variables():
    box = Polyhedron([[1.0, 0.0], [0.0, 1.0]], [1.0, 5.0], lower=[0.0, 0.0])
    swapped = Conic(box._matrix, box._offset, box._cones, variables=[1, 0])
    v, c = np.array([9.0, 9.0]), np.array([1.0, 50.0])
    np.testing.assert_allclose(swapped.project(v, c), [5.0, 1.0], atol=1e-7)
    cut = Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, 0.0])
    swapped = Conic(cut._matrix, cut._offset, cut._cones, variables=[1, 0])
    np.testing.assert_allclose(swapped.project([1.0, 1.0], [1.0, 3.0]), [0.25, 0.75], atol=1e-7)


def test_a_long_thin_set_is_bounded():
    for thin in (1e-3, 1e-5):
        wedge = Polyhedron([[thin, 1.0], [thin, -1.0]], [1.0, 1.0], lower=[0.0, -math.inf])
        assert wedge.radius(math.inf) == pytest.approx(1 / thin, rel=1e-5)
        assert wedge.radius(math.inf) >= 1 / thin


def test_fixed_coordinates_and_a_single_point():
    point = Polyhedron(lower=[1.0, -2.0], upper=[1.0, -2.0])
    np.testing.assert_allclose(point.project([5.0, 5.0]), [1.0, -2.0], atol=1e-8)
    assert point.diameter <= 1e-7
    assert point.radius(math.inf) == pytest.approx(2.0, abs=1e-7)


def test_feasible_points_come_back_unchanged():
    v = np.array([0.1, 0.2, 0.0])
    for feasible_set in (SETS["polyhedron"][0], SETS["cones"][0], SETS["cvxpy-cones"][0]):
        z = feasible_set.project(v)
        assert np.array_equal(z, v) and z is not v


def test_badly_scaled_rows_do_not_let_points_escape():
    """Tolerances are distances, not margins of whatever scale the rows were written in."""
    for scale in (1e-12, 1e-9, 1.0, 1e9):
        rows = scale * np.array([[1.0], [-1.0]])
        feasible_set = Polyhedron(rows, scale * np.ones(2))
        assert abs(feasible_set.project([1.9])[0] - 1.0) < 1e-8
        assert abs(feasible_set.project([-901.0])[0] + 1.0) < 1e-8
