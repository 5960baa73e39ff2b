"""Sizes of sets, on which sensitivities rest: never too small, exact where they are called so."""

import math
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sets_to_try import CLOSED, SETS, I, by_cvxpy

from tacit.errors import InvalidInput, SolverFailure
from tacit.sets import (
    Ball,
    Box,
    Cone,
    ConeSet,
    Conic,
    HalfSpace,
    Hyperplane,
    L1Ball,
    Polyhedron,
    Product,
    Simplex,
)
from tacit.sets.cone_program import Program
from tacit.sets.radii import Rows

points = arrays(np.float64, 4, elements=st.floats(-9, 9))


# --- what holds of every set -------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
@settings(deadline=None, max_examples=repeat(10, 30))
@given(v=points, u=points)
def test_sizes_bound_every_feasible_pair(name, v, u):
    W = SETS[name][0]
    z, w = (np.asarray(W.project(p[: W.dimension])) for p in (v, u))
    more = 0.0 if name in CLOSED else 1e-8
    assert np.linalg.norm(z - w) <= W.diameter * (1 + 1e-12) + more
    for norm in (2, math.inf):
        assert np.linalg.norm(z, norm) <= W.radius(norm) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CLOSED)
def test_tolerances_are_a_few_units_in_the_last_place(name, dtype):
    W = CLOSED[name][0]
    unit = float(np.spacing(dtype(W.magnitude)))
    assert unit <= W.tolerance(dtype) <= 32 * unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_is_as_loose_as_its_loosest_part(dtype, rng):
    """What rounding leaves of the largest part is allowed: its projections are within it."""
    large = Hyperplane(rng.normal(size=6), 2e7, -1e9, 1e9)
    for parts in ([Box(-1e-3, 1e-3, 2), large], [large, Ball(0.0, 1e-3, 2)]):
        W = Product(parts)
        assert W.tolerance(dtype) == max(part.tolerance(dtype) for part in parts)
        assert W.magnitude == max(part.magnitude for part in parts)
        z = W.project((1e6 * rng.normal(size=8)).astype(dtype))
        assert 0 <= W.violation(z) <= W.tolerance(dtype)


# --- by hand, and by the set's other name ------------------------------------------------------

SIZE = 6
MIDDLE = np.array([0.3, -1.2, 0.0, 2.0, 0.4, -0.1])
SIGNS = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
ONES = np.ones((1, SIZE))


def written(constraints):
    return by_cvxpy(constraints, SIZE)


# name: how a set is written for the solver, the same set by name
BY_NAME = {
    "simplex": (lambda: written(lambda z: [z >= 0, cp.sum(z) == 1]), Simplex(SIZE)),
    "simplex as polyhedron": (lambda: Polyhedron(None, None, ONES, [3.0], 0.0), Simplex(SIZE, 3.0)),
    "budget": (lambda: written(lambda z: [z >= 0, cp.sum(z) <= 1]), HalfSpace(ONES[0], 1.0, 0.0)),
    "box": (lambda: written(lambda z: [z >= -1, z <= 0.5]), Box(-1.0, 0.5, SIZE)),
    "ball elsewhere": (
        lambda: ConeSet([Cone(np.eye(SIZE), -MIDDLE, limit=2.0)]),
        Ball(MIDDLE, 2.0),
    ),
    "squares": (lambda: written(lambda z: [cp.sum_squares(z - MIDDLE) <= 4]), Ball(MIDDLE, 2.0)),
    "L1 ball elsewhere": (
        lambda: written(lambda z: [cp.norm1(z - MIDDLE) <= 0.7]),
        L1Ball(0.7, center=MIDDLE),
    ),
    "L1 ball of 16 rows": (
        lambda: Polyhedron(SIGNS, 2 + SIGNS @ MIDDLE[:4]),
        L1Ball(2.0, center=MIDDLE[:4]),
    ),
    "product": (
        lambda: written(lambda z: [z[:3] >= 0, cp.sum(z[:3]) == 2, cp.norm(z[3:]) <= 1]),
        Product([Simplex(3, 2.0), Ball(0.0, 1.0, 3)]),
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_sizes_are_those_of_the_set_by_name(name):
    write, closed = BY_NAME[name]
    W = write()
    for norm in (2, math.inf):
        assert closed.radius(norm) * (1 - 1e-15) <= W.radius(norm)
        assert W.radius(norm) == pytest.approx(closed.radius(norm), rel=1e-6)
    assert closed.diameter * (1 - 1e-15) <= W.diameter
    assert W.diameter == pytest.approx(closed.diameter, rel=1e-6)


def test_sizes_by_hand():
    assert Box([-1.0, 0.0], [3.0, 3.0]).diameter == 5.0
    assert Box(-2, 1, 4).radius(2) == 4.0
    assert Ball([3.0, 4.0], 1.0).radius(2) == 6.0
    assert Simplex(1).diameter == 0.0
    assert L1Ball(1.0, center=[3.0, 4.0]).radius(2) == pytest.approx(math.hypot(3, 5))
    assert Product([Ball(0, 1, 2), Simplex(2)]).diameter == pytest.approx(math.sqrt(6))
    assert HalfSpace([1.0, 2.0], 1.0, lower=0.0).radius(math.inf) == pytest.approx(1.0)
    assert HalfSpace([1.0, 2.0, 4.0], 1.0, 0.0).diameter == pytest.approx(math.hypot(1, 0.5))
    assert Hyperplane([1.0, 1.0], 1.0, 0.0, math.inf).diameter == pytest.approx(math.sqrt(2))
    for unbounded in (Box(0, math.inf, 2), HalfSpace([1.0, 1.0], 0.0), Hyperplane([1.0, 1.0], 0)):
        assert unbounded.diameter == unbounded.radius(2) == math.inf
    with pytest.raises(InvalidInput, match="norm"):
        Simplex(2).radius(1)
    # x + y = 1.5 in the unit square: both between ½ and 1; x + y ≤ 1.5 has all of the square
    plane = Hyperplane([1.0, 1.0], 1.5, 0.0, 1.0)
    np.testing.assert_allclose(plane.around.lower, [0.5, 0.5], atol=1e-12)
    assert plane.diameter == pytest.approx(math.sqrt(0.5))
    np.testing.assert_allclose(HalfSpace([1.0, 1.0], 1.5, 0.0, 1.0).around.lower, 0.0, atol=1e-12)


def test_sizes_of_cone_sets_by_hand():
    """Not below the true ones even by the solver's error: sensitivities are proven for them."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(SIZE, SIZE)))[0]
    tilted = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]]).T
    for W, radius, diameter in (
        (written(lambda z: [z >= 0, z <= 0.5, cp.sum(z) == 1]), math.sqrt(0.5), 1.0),
        (ConeSet([Cone(np.diag([0.5, 1, 2, 3, 4, 5]) @ turned, limit=1.0)]), 2.0, 4.0),
        (ConeSet([Cone(tilted, limit=1.0)]), math.sqrt(2), None),
        (Polyhedron(lower=-np.ones(3), upper=np.ones(3)), math.sqrt(3), 2 * math.sqrt(3)),
        (ConeSet([Cone(np.eye(2), limit=1.5)], lower=-9.0, upper=9.0), 1.5, 3.0),
    ):
        assert radius * (1 - 1e-12) <= W.radius(2) <= radius * (1 + 1e-6)
        if diameter is not None:
            assert diameter * (1 - 1e-12) <= W.diameter <= diameter * (1 + 1e-6)
    cube = Polyhedron(lower=-np.ones(3), upper=np.ones(3))
    assert 1 <= cube.radius(math.inf) <= 1 + 1e-6
    for thin in (1e-3, 1e-5):  # a long thin set is bounded
        wedge = Polyhedron([[thin, 1.0], [thin, -1.0]], [1.0, 1.0], lower=[0.0, -math.inf])
        assert 1 / thin <= wedge.radius(math.inf) <= (1 + 1e-5) / thin
    point = Polyhedron(lower=[1.0, -2.0], upper=[1.0, -2.0])
    assert point.diameter <= 1e-7 and point.radius(math.inf) == pytest.approx(2.0, abs=1e-7)


def vertices(matrix, offset):
    """All points where n rows meet and the others hold."""
    n = matrix.shape[1]
    rows = np.array(list(combinations(range(len(offset)), n)))
    rows = rows[np.abs(np.linalg.det(matrix[rows])) > 1e-9]
    points = np.linalg.solve(matrix[rows], offset[rows][..., None])[..., 0]
    return points[(points @ matrix.T <= offset + 1e-9).all(axis=1)]


def true_sizes(points):
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.linalg.norm(points, axis=1).max(), distances.max()


@settings(deadline=None, max_examples=repeat(40, 80))
@given(
    seed=st.integers(0, 2**32 - 1), equation=st.booleans(), kind=st.sampled_from(["cone", "cut"])
)
def test_no_polytope_is_longer_or_wider_than_its_sizes(seed, equation, kind):
    """Cut boxes by their formula, polyhedra by the solver."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    inside = rng.choice([0.0, 1.0, 30.0]) * rng.normal(size=n)
    low, high = inside - rng.uniform(0.1, 2, n), inside + rng.uniform(0.1, 2, n)
    A = rng.normal(size=(1 if kind == "cut" else int(rng.integers(1, 5)), n))
    A *= 10.0 ** rng.integers(-2, 3, n) if kind == "cut" else rng.random(n) < 0.8
    A = A if A.any(axis=1).all() else A + 1
    b = A @ inside + (0 if kind == "cut" and equation else rng.uniform(0.05, 1, len(A)))
    rows, offset = [A, np.eye(n), -np.eye(n)], [b, high, -low]
    if kind == "cut":
        W = (Hyperplane if equation else HalfSpace)(A[0], b[0], low, high)
        more = A, b
    else:
        more = np.ones((1, n)), [inside.sum()]
        W = Polyhedron(A, b, *(more if equation else (None, None)), low, high)
    if equation:
        rows, offset = [*rows, more[0], -more[0]], [*offset, more[1], -np.array(more[1])]
    longest, widest = true_sizes(vertices(np.vstack(rows), np.concatenate(offset)))
    assert longest <= W.radius(2) * (1 + 1e-9) and W.radius(2) <= W.around.radius(2)
    assert widest <= W.diameter * (1 + 1e-9) + 1e-9 and W.diameter <= W.around.diameter


def test_an_answer_that_the_solver_left_outside_is_brought_back(monkeypatch):
    """By no more than it was outside."""
    W = BY_NAME["simplex"][0]()
    radius = W.radius(2)
    exact = W._find_nearest
    monkeypatch.setattr(W, "_find_nearest", lambda v, c: 1.0001 * exact(v, c))
    z = W.project([5.0, 0, 0, 0, 0, 0])
    assert np.linalg.norm(z) <= radius and W.violation(z) <= 1e-6


def test_auxiliary_variables_without_a_bound():
    """|z| ≤ 1 in two coordinates, and t ≥ z₁ for a t that may grow; ‖z‖ ≤ s for an s alike."""
    rows = np.zeros((8, 4))
    rows[:4, :2] = np.vstack([np.eye(2), -np.eye(2)])
    rows[4, [0, 2]] = 1.0, -1.0
    rows[5, 3] = rows[6, 0] = rows[7, 1] = -1.0
    offset = [1.0, 1, 1, 1, 0, 0, 0, 0]
    W = Conic(rows, offset, [("nonneg", 5), ("soc", 3)], variables=[0, 1])
    assert math.sqrt(2) <= W.radius(2) <= math.sqrt(2) * (1 + 1e-6)
    assert 2 * math.sqrt(2) <= W.diameter <= 2 * math.sqrt(2) * (1 + 1e-6)


# --- certificates: what a wrong dual point proves -----------------------------------------------


@settings(deadline=None, max_examples=repeat(30, 60))
@given(seed=st.integers(0, 2**32 - 1), wrong=st.sampled_from([0.0, 1e-6, 0.1, 3.0]))
def test_any_dual_point_proves_a_bound_that_holds(seed, wrong):
    """Over the unit ball cut by x₁ ≥ 0 and x₂ = x₃; with the exact dual point, the true one."""
    rng = np.random.default_rng(seed)
    A = np.vstack([[0, 1.0, -1.0], [-1.0, 0, 0], np.zeros((1, 3)), -I])
    rows = Rows(
        sp.csc_matrix(A), np.array([0, 0, 1.0, 0, 0, 0]), (("zero", 1), ("nonneg", 1), ("soc", 4))
    )
    q = rng.normal(size=3)
    best = np.array([max(q[0], 0), (q[1] + q[2]) / 2, (q[1] + q[2]) / 2])
    length = float(np.linalg.norm(best))
    exact = np.concatenate([[(q[1] - q[2]) / 2, max(-q[0], 0), length], -best])
    m, r = rows.certified(q, exact + wrong * rng.normal(size=6))
    points = rng.normal(size=(200, 3))
    points[:, 0], points[:, 1] = np.abs(points[:, 0]), points[:, 2]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    for x in [best / length, *points]:
        assert q @ x <= m + r @ np.abs(x)
    if not wrong:
        assert m + r.sum() <= length * (1 + 1e-12)


def test_a_wrong_certificate_is_rejected_or_costs_what_it_is_wrong_by(monkeypatch):
    exact = Program.minimise
    factor = 0.999

    def wrong(self, *args, **changes):
        status, x, y = exact(self, *args, **changes)
        return status, x, factor * y

    W = BY_NAME["simplex"][0]()
    assert W.around.radius(math.inf) <= 1.1
    monkeypatch.setattr(Program, "minimise", wrong)
    assert W.radius(2) >= 1 and W.diameter >= math.sqrt(2)
    assert 1 <= BY_NAME["simplex"][0]().radius(math.inf) <= 1.1
    factor = 0.4
    with pytest.raises(SolverFailure, match="proof"):
        BY_NAME["simplex"][0]().radius(math.inf)


def test_where_the_solver_fails_the_box_is_the_bound(monkeypatch):
    W = BY_NAME["simplex"][0]()
    box = W.around

    def fail(*args, **changes):
        raise SolverFailure("Expected a solved cone program, got none.")

    monkeypatch.setattr(Program, "minimise", fail)
    assert W.radius(2) == box.radius(2) and W.diameter == box.diameter
