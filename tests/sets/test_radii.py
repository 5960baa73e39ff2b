"""Sizes of cone sets and cut boxes: never below the true ones, and those of the sets by name."""

import math
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cone_sets import SETS, I, image_set
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.errors import SolverFailure
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
    from_cvxpy,
)
from tacit.sets.cone_program import Program
from tacit.sets.radii import Rows

SIZE = 6
CENTER = np.array([0.3, -1.2, 0.0, 2.0, 0.4, -0.1])
SIGNS = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
ONES = np.ones((1, SIZE))


def by_cvxpy(constraints):
    z = cp.Variable(SIZE)
    return from_cvxpy(z, constraints(z))


# name: how a set is written for the solver, the same set by name
BY_NAME = {
    "simplex": (lambda: by_cvxpy(lambda z: [z >= 0, cp.sum(z) == 1]), Simplex(SIZE)),
    "simplex as polyhedron": (lambda: Polyhedron(None, None, ONES, [3.0], 0.0), Simplex(SIZE, 3.0)),
    "simplex as hyperplane": (lambda: Hyperplane(ONES[0], 1.0, 0.0), Simplex(SIZE)),
    "budget": (lambda: by_cvxpy(lambda z: [z >= 0, cp.sum(z) <= 1]), HalfSpace(ONES[0], 1.0, 0.0)),
    "box": (lambda: by_cvxpy(lambda z: [z >= -1, z <= 0.5]), Box(-1.0, 0.5, SIZE)),
    "box as polyhedron": (
        lambda: Polyhedron(lower=CENTER - 1, upper=CENTER + 2),
        Box(CENTER - 1, CENTER + 2),
    ),
    "largest entry": (
        lambda: by_cvxpy(lambda z: [cp.norm_inf(z - CENTER) <= 0.5]),
        Box(CENTER - 0.5, CENTER + 0.5),
    ),
    "ball": (lambda: by_cvxpy(lambda z: [cp.norm(z) <= 2]), Ball(0.0, 2.0, SIZE)),
    "ball elsewhere": (
        lambda: ConeSet([Cone(np.eye(SIZE), -CENTER, limit=2.0)]),
        Ball(CENTER, 2.0),
    ),
    "squares": (lambda: by_cvxpy(lambda z: [cp.sum_squares(z - CENTER) <= 4]), Ball(CENTER, 2.0)),
    "L1 ball": (lambda: by_cvxpy(lambda z: [cp.norm1(z) <= 2]), L1Ball(2.0, SIZE)),
    "L1 ball elsewhere": (
        lambda: by_cvxpy(lambda z: [cp.norm1(z - CENTER) <= 0.7]),
        L1Ball(0.7, center=CENTER),
    ),
    "L1 ball of 16 rows": (
        lambda: Polyhedron(SIGNS, 2 + SIGNS @ CENTER[:4]),
        L1Ball(2.0, center=CENTER[:4]),
    ),
    "product": (
        lambda: by_cvxpy(lambda z: [z[:3] >= 0, cp.sum(z[:3]) == 2, cp.norm(z[3:]) <= 1]),
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
    capped = by_cvxpy(lambda z: [z >= 0, z <= 0.5, cp.sum(z) == 1])
    assert capped.radius(2) == pytest.approx(math.sqrt(0.5), rel=1e-6)
    assert capped.diameter == pytest.approx(1.0, rel=1e-6)
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(SIZE, SIZE)))[0]
    ellipsoid = ConeSet([Cone(np.diag([0.5, 1, 2, 3, 4, 5]) @ turned, limit=1.0)])
    assert ellipsoid.radius(2) == pytest.approx(2.0, rel=1e-6)
    assert ellipsoid.diameter == pytest.approx(4.0, rel=1e-6)
    tilted = ConeSet([Cone(np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]]).T, limit=1.0)])
    assert tilted.radius(2) == pytest.approx(math.sqrt(2), rel=1e-6)
    assert HalfSpace([1.0, 2.0, 4.0], 1.0, 0.0).diameter == pytest.approx(math.hypot(1, 0.5))


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


@settings(deadline=None, max_examples=repeat(20, 40))
@given(seed=st.integers(0, 2**32 - 1), equation=st.booleans())
def test_no_polytope_is_longer_or_wider_than_its_sizes(seed, equation):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    inside = rng.choice([0.0, 1.0, 30.0]) * rng.normal(size=n)
    A = rng.normal(size=(int(rng.integers(1, 5)), n)) * (rng.random(n) < 0.8)
    A = A if A.any(axis=1).all() else A + 1
    b = A @ inside + rng.uniform(0.05, 1, len(A))
    low, high = inside - rng.uniform(0.1, 2, n), inside + rng.uniform(0.1, 2, n)
    bounds = np.vstack([A, np.eye(n), -np.eye(n)]), np.concatenate([b, high, -low])
    sets = [Polyhedron(A, b, lower=low, upper=high)]
    if equation:
        a, at = np.ones((1, n)), [inside.sum()]
        bounds = np.vstack([bounds[0], a, -a]), np.concatenate([bounds[1], at, -np.array(at)])
        sets = [Polyhedron(A, b, a, at, low, high)]
    elif len(A) == 1:
        sets.append(HalfSpace(A[0], b[0], low, high))
    longest, widest = true_sizes(vertices(*bounds))
    for W in sets:
        assert longest <= W.radius(2) * (1 + 1e-12) and W.radius(2) <= W.around.radius(2)
        assert widest <= W.diameter * (1 + 1e-12) + 1e-9 and W.diameter <= W.around.diameter


@settings(deadline=None, max_examples=repeat(30, 60))
@given(seed=st.integers(0, 2**32 - 1), equation=st.booleans())
def test_no_cut_box_is_longer_or_wider_than_its_sizes(seed, equation):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    a = rng.normal(size=n) * 10.0 ** rng.integers(-2, 3, n)
    inside = rng.choice([0.0, 1.0, 30.0]) * rng.normal(size=n)
    low, high = inside - rng.uniform(0, 2, n), inside + rng.uniform(0, 2, n)
    b = a @ inside + (0.0 if equation else rng.uniform(0, 1))
    W = (Hyperplane if equation else HalfSpace)(a, b, low, high)
    rows = [a, -a] if equation else [a]
    offset = np.concatenate([[b, -b] if equation else [b], high, -low])
    found = vertices(np.vstack([*rows, np.eye(n), -np.eye(n)]), offset)
    longest, widest = true_sizes(found)
    assert longest <= W.radius(2) * (1 + 1e-9) and W.radius(2) <= W.around.radius(2)
    assert widest <= W.diameter * (1 + 1e-9) + 1e-9 and W.diameter <= W.around.diameter


@pytest.mark.parametrize("name", [*SETS, "image"])
def test_no_answer_of_a_projection_is_beyond_the_sizes(name):
    rng = np.random.default_rng(0)
    W = image_set(rng)[0] if name == "image" else SETS[name][0]
    most = W.radius(2), W.radius(math.inf)
    found = np.array([W.project(100 * rng.normal(size=W.dimension)) for _ in range(60)])
    longest, widest = true_sizes(found)
    assert longest <= most[0] and np.abs(found).max() <= most[1]
    assert widest <= W.diameter + 1e-7
    assert most[0] <= W.around.radius(2)


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


@pytest.mark.parametrize("norm", [1, 2])
def test_sensitivities_through_cvxpy_are_those_by_name(norm):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(20, SIZE)), rng.choice([-1.0, 1.0], 20)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    public = {"normaliser": 20, "feature_norm": 1.0}
    squares = tacit.LeastSquares(x, labels, target_bound=1.0, neighbours="replace", **public)
    logistic = tacit.LogisticRegression(x, labels, ridge=0.1, **public)
    for name in ("simplex", "ball", "L1 ball elsewhere", "box"):
        write, closed = BY_NAME[name]
        W = write()
        for f in (squares, logistic):
            assert f.sensitivity(norm, W) == pytest.approx(f.sensitivity(norm, closed), rel=1e-6)
    W = BY_NAME["simplex"][0]()
    assert squares.sensitivity(2, W) < 0.75 * squares.sensitivity(2, W.around)


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
