"""Solver-backed sets: the same properties at solver accuracy, agreement, refusals, pickling."""

import math
import pickle
import sys
import threading
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tacit  # noqa: F401  (switches JAX to float64)
from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, InvalidSet, SolverFailure
from tacit.objectives.residual import Residual
from tacit.sets import cone_program as coneprogram
from tacit.sets.closed_forms import Ball, HalfSpace, Simplex
from tacit.sets.conic import Cone, ConeSet, Conic, Polyhedron
from tacit.sets.cvxpy_sets import from_cvxpy

A = np.array([[1.0, 1.0, 0.5], [-1.0, 2.0, 0.0], [0.0, -1.0, 1.0]])
B = np.array([1.0, 1.5, 0.8])
F, G, H = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]]), np.array([0.1, -0.2]), np.full(3, 0.1)


def polyhedron(z):
    return [A @ z <= B, z >= -1, z <= 1]


def with_equation(z):
    return [A @ z <= B, z[0] + z[1] + z[2] == 0.4, z >= -1, z <= 2]


def cones(z):
    return [cp.norm(F @ z + G) <= H @ z + 0.9, cp.norm(z) <= 1.2, A @ z <= B]


def with_auxiliaries(z):
    return [cp.norm1(z) <= 1.5, cp.sum_squares(z) <= 1, cp.max(z) <= 0.7]


def by_cvxpy(constraints):
    z = cp.Variable(3)
    return from_cvxpy(z, constraints(z))


# ‖z‖₁ ≤ 1.5 with auxiliary bounds t of |z|, written by hand in columns (t, z)
I, O = np.eye(3), np.zeros((3, 3))  # noqa: E741
L1 = Conic(
    np.block([[-I, I], [-I, -I], [np.ones((1, 3)), np.zeros((1, 3))]]),
    np.array([0, 0, 0, 0, 0, 0, 1.5]),
    [("nonneg", 7)],
    variables=[3, 4, 5],
)

# name: the set, the same set in CVXPY's words
SETS = {
    "polyhedron": (Polyhedron(A, B, lower=-1, upper=1), polyhedron),
    "equation": (
        Polyhedron(sp.csr_matrix(A), B, [[1.0, 1.0, 1.0]], [0.4], lower=-1, upper=2),
        with_equation,
    ),
    "cones": (
        ConeSet([Cone(F, G, H, 0.9), Cone(np.eye(3), limit=1.2)], matrix=A, offset=B),
        cones,
    ),
    "auxiliaries": (L1, lambda z: [cp.norm1(z) <= 1.5]),
    "cvxpy-linear": (by_cvxpy(with_equation), with_equation),
    "cvxpy-cones": (by_cvxpy(cones), cones),
    "cvxpy-auxiliaries": (by_cvxpy(with_auxiliaries), with_auxiliaries),
}
CURVED = {"cones", "cvxpy-cones", "cvxpy-auxiliaries"}

every_set = pytest.mark.parametrize("name", SETS)
points = st.builds(
    lambda v, scale: v * scale,
    arrays(np.float64, 3, elements=st.floats(-3, 3)),
    st.sampled_from([0.1, 1.0, 300.0]),
)
weights = arrays(np.float64, 3, elements=st.floats(0.1, 10))
few = settings(deadline=None, max_examples=25)


def accuracy(name):
    return 1e-4 if name in CURVED else 1e-6


@cache
def reference(name):
    z, root, target = cp.Variable(3), cp.Parameter(3, nonneg=True), cp.Parameter(3)
    objective = cp.sum_squares(cp.multiply(root, z) - target)
    problem = cp.Problem(cp.Minimize(objective), SETS[name][1](z))

    def project(v, c):
        root.value, target.value = np.sqrt(c), np.sqrt(c) * v
        problem.solve(cp.CLARABEL)
        return z.value

    return project


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
    z = cp.Variable(3)
    z.value = v
    broken = max(float(np.max(c.violation())) for c in constraints(z))
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


def test_agreement_with_closed_forms():
    rng = np.random.default_rng(3)
    a = rng.normal(size=6)
    pairs = [
        (Polyhedron([a], [0.3], lower=np.full(6, -1.0), upper=1), HalfSpace(a, 0.3, -1, 1), 1e-6),
        (Polyhedron(None, None, np.ones((1, 6)), [1.0], lower=0.0), Simplex(6), 1e-6),
        (ConeSet([Cone(np.eye(6), -a, limit=0.7)]), Ball(a, 0.7), 1e-4),
    ]
    for by_solver, closed, tolerance in pairs:
        for scale in (0.3, 3.0, 1e3, 1e6):
            v, c = scale * rng.normal(size=6), np.exp(rng.normal(size=6))
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


def test_answers_do_not_depend_on_history_or_pickling():
    rng = np.random.default_rng(5)
    v, c = 3 * rng.normal(size=(3, 3)), rng.uniform(0.5, 2, (3, 3))
    for name in ("polyhedron", "cones", "cvxpy-auxiliaries"):
        feasible_set = SETS[name][0]
        first = [feasible_set.project(*pair) for pair in zip(v, c, strict=True)]
        again = [feasible_set.project(*pair) for pair in zip(v[::-1], c[::-1], strict=True)][::-1]
        copy = pickle.loads(pickle.dumps(feasible_set))
        copied = [copy.project(*pair) for pair in zip(v[::-1], c[::-1], strict=True)][::-1]
        assert np.array_equal(first, again) and np.array_equal(first, copied)
        assert copy.violation(v[0]) == feasible_set.violation(v[0])


def test_threads_may_share_a_set():
    feasible_set = SETS["polyhedron"][0]
    v = 3 * np.random.default_rng(6).normal(size=(40, 3))
    alone = [feasible_set.project(p) for p in v]
    found = {}

    def work(start):
        for i in range(start, 40, 4):
            found[i] = feasible_set.project(v[i])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[i], alone[i]) for i in range(40))


def test_violation_leaves_the_users_variable_alone():
    z = cp.Variable(2)
    z.value = [7.0, 8.0]
    feasible_set = from_cvxpy(z, [z >= 0, cp.sum(z) <= 1])
    assert feasible_set.violation([2.0, 0.0]) == pytest.approx(1.0)
    assert list(z.value) == [7.0, 8.0]


def test_cvxpy_domains_count_in_the_violation():
    z = cp.Variable(2)
    feasible_set = from_cvxpy(z, [cp.quad_over_lin(z[0], z[1]) <= 1, z[1] <= 1])
    assert feasible_set.violation([0.5, 0.5]) == pytest.approx(0.0, abs=1e-12)
    assert feasible_set.violation([0.0, -0.5]) >= 0.5
    assert feasible_set.project([0.0, -0.5])[1] >= -1e-7


def failing(feasible_set, monkeypatch, statuses, polished=0):
    """Make the solver of a set report the given statuses, one per solve."""
    setups, set_up = [], coneprogram.Program._set_up

    class Reporting:
        def __init__(self, solver):
            self.solver, self.update = solver, solver.update

        def solve(self):
            solution = self.solver.solve()
            status = statuses.pop(0)
            x = (
                np.array(solution.x)
                if status in ("Solved", "near")
                else 1 + 2 * np.array(solution.x)
            )
            z = np.full(len(solution.z), np.nan)
            if status == "stuck":  # almost there, with a usable dual
                x, z, status = np.array(solution.x) + 1e-5, np.array(solution.z), "NumericalError"
            status = "AlmostSolved" if status == "near" else status
            fields = {"status": status, "x": x, "z": z, "obj_val": 1.0, "obj_val_dual": 0.0}
            return type("Solution", (), fields)

    def reporting_set_up(program, data, settings):
        setups.append(settings)
        return Reporting(set_up(program, data, settings))

    feasible_set._nearest._solver = None
    monkeypatch.setattr(coneprogram.Program, "_set_up", reporting_set_up)
    monkeypatch.setattr(coneprogram, "POLISHED", polished)
    return setups


@pytest.mark.parametrize("first", ["MaxIterations", "AlmostSolved", "PrimalInfeasible"])
def test_a_failed_solve_is_tried_once_more(first, monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    expected = feasible_set.project([3.0, 3.0, 3.0])
    setups = failing(feasible_set, monkeypatch, [first, "Solved"])
    np.testing.assert_allclose(feasible_set.project([3.0, 3.0, 3.0]), expected, atol=1e-6)
    assert setups == [{}, coneprogram.AGAIN[-1]]


@pytest.mark.parametrize("last", ["NumericalError", "AlmostSolved", "PrimalInfeasible"])
def test_a_solver_that_fails_twice_is_an_error(last, monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    failing(feasible_set, monkeypatch, ["InsufficientProgress", last])
    with pytest.raises(SolverFailure, match=last):
        feasible_set.project([3.0, 3.0, 3.0])


def test_newton_steps_rescue_a_solver_that_got_stuck(monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    expected = feasible_set.project([3.0, 3.0, 3.0])
    setups = failing(feasible_set, monkeypatch, ["stuck"], polished=150)
    np.testing.assert_allclose(feasible_set.project([3.0, 3.0, 3.0]), expected, atol=1e-9)
    assert setups == [{}]


def test_newton_steps_give_the_ball_to_machine_precision():
    """Clarabel alone leaves 1e-6 to 1e-5 on a curved boundary."""
    rng = np.random.default_rng(0)
    cone, ball = ConeSet([Cone(np.eye(5), limit=0.6)]), Ball(0.0, 0.6, size=5)
    for _ in range(200):
        v, c = rng.normal(size=5) * 10 ** rng.uniform(-1, 3), 10 ** rng.uniform(-2, 2, 5)
        np.testing.assert_allclose(cone.project(v, c), ball.project(v, c), atol=1e-10)


def test_points_barely_outside_are_no_trouble():
    """There the dual is almost zero and interior-point steps get stuck."""
    rng = np.random.default_rng(1)
    cone = ConeSet([Cone(np.eye(4), limit=0.6)], lower=-0.5, upper=0.5)
    ball = Ball(0.0, 0.6, size=4)
    for _ in range(500):
        u = rng.normal(size=4)
        u *= 0.6 / np.linalg.norm(u) * (1 + 10 ** rng.uniform(-9, -3))
        c = 10 ** rng.uniform(-2, 3) * 10 ** rng.uniform(-0.5, 0.5, 4)
        if np.abs(u).max() < 0.5:
            np.testing.assert_allclose(cone.project(u, c), ball.project(u, c), atol=1e-8)


def test_an_almost_solved_answer_is_taken_when_it_is_feasible(monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    setups = failing(feasible_set, monkeypatch, ["near"])
    assert feasible_set.violation(feasible_set.project([3.0, 3.0, 3.0])) <= 1e-7
    assert setups == [{}]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Polyhedron([[1.0, 1.0], [-1.0, -1.0]], [1.0, -2.0], lower=-5, upper=5),
        lambda: Polyhedron(lower=[0.0, 1.0], upper=[1.0, 0.0]),
        lambda: Polyhedron([[1.0]], [-1.0], lower=0.0),
        lambda: ConeSet([Cone(np.eye(2), limit=1.0), Cone(np.eye(2), [-5.0, 0.0], limit=1.0)]),
        lambda: ConeSet([Cone(np.eye(2), limit=-1.0)]),
        lambda: by_cvxpy(lambda z: [cp.norm(z) <= 1, z[0] >= 2]),
    ],
)
def test_empty_sets_are_refused(build):
    with pytest.raises(InvalidSet, match=r"empty.*Nothing was released"):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Polyhedron([[1.0, 1.0]], [1.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, -math.inf], upper=[math.inf, math.inf]),
        lambda: Polyhedron(lower=[-math.inf, 0.0]),
        lambda: Polyhedron(None, None, [[1.0, 1.0]], [0.0]),
        lambda: ConeSet([Cone([[1.0, 0.0]], limit=1.0)]),
        lambda: ConeSet([Cone([[1.0, 0.0]], slope=[0.0, 1.0])]),
        lambda: by_cvxpy(lambda z: [cp.norm(z[:2]) <= 1, z[2] >= 0]),
        lambda: by_cvxpy(lambda z: [cp.norm1(z[:2]) <= z[2]]),
    ],
)
def test_unbounded_sets_are_refused(build):
    with pytest.raises(InvalidSet, match=r"unbounded.*Nothing was released"):
        build()


def test_auxiliary_variables_may_be_unbounded():
    # z ≤ y, −1 ≤ z ≤ 1: y has no upper bound, z has
    free = Conic([[1.0, -1.0], [1.0, 0.0], [-1.0, 0.0]], [0, 1, 1], [("nonneg", 3)], variables=[0])
    np.testing.assert_allclose(free.project([4.0]), [1.0], atol=1e-7)
    # z² ≤ y has no ray in z, and yet z is unbounded
    parabola = [[0.0, -0.5], [0.0, -0.5], [-1.0, 0.0]]
    with pytest.raises((InvalidSet, SolverFailure)):
        Conic(parabola, [0.5, -0.5, 0.0], [("soc", 3)], variables=[0])


@pytest.mark.parametrize(
    "build",
    [
        lambda: Polyhedron(),
        lambda: Polyhedron(lower=0.0, upper=1.0),
        lambda: Polyhedron([[1.0, 1.0]]),
        lambda: Polyhedron([[1.0, math.nan]], [1.0], lower=0, upper=1),
        lambda: Polyhedron(sp.csr_matrix([[1.0, math.inf]]), [1.0], lower=0, upper=1),
        lambda: Polyhedron([1.0, 1.0], [1.0], lower=[0.0, 0.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0, 2.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0], [[1.0]], [1.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0], lower=[math.nan, 0.0], upper=1),
        lambda: ConeSet([Cone(np.eye(2), [1.0, 1.0, 1.0])]),
        lambda: ConeSet([Cone(np.eye(2), limit=math.inf)]),
        lambda: ConeSet([Cone(np.eye(2), limit=1.0), Cone(np.eye(3), limit=1.0)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 1)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("exp", 2)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 2)], variables=[0, 0]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 2)], variables=[2]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 2)], variables=[0.5]),
        lambda: SETS["polyhedron"][0].project([0.0, math.nan, 0.0]),
        lambda: SETS["polyhedron"][0].project([0.0, 0.0]),
        lambda: SETS["polyhedron"][0].project([0.0, 0.0, 0.0], [1.0, 0.0, 1.0]),
        lambda: SETS["polyhedron"][0].project([0.0, 0.0, 0.0], -1.0),
        lambda: SETS["polyhedron"][0].violation([math.inf, 0.0, 0.0]),
        lambda: SETS["polyhedron"][0].radius(1),
        lambda: from_cvxpy(cp.Variable((2, 2)), []),
        lambda: from_cvxpy("z", []),
        lambda: from_cvxpy(cp.Variable(2), []),
        lambda: from_cvxpy(cp.Variable(2, nonneg=True), []),
        lambda: by_cvxpy(lambda z: [cp.norm(z) <= cp.Variable()]),
        lambda: by_cvxpy(lambda z: [cp.norm(z) <= cp.Parameter(value=1.0)]),
        lambda: by_cvxpy(lambda z: [cp.norm(z) >= 1]),
        lambda: by_cvxpy(lambda z: [cp.exp(z) <= 1, z >= -1]),
    ],
)
def test_bad_input_is_refused(build):
    with pytest.raises(InvalidInput, match="Nothing was released"):
        build()


def test_missing_cvxpy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tacit\[cvxpy\]'"):
        from_cvxpy(None, [])


def test_badly_scaled_rows_do_not_let_points_escape():
    """Tolerances are distances, not slacks of whatever scale the rows were written in."""
    for scale in (1e-12, 1e-9, 1.0, 1e9):
        rows = scale * np.array([[1.0], [-1.0]])
        feasible_set = Polyhedron(rows, scale * np.ones(2))
        assert abs(feasible_set.project([1.9])[0] - 1.0) < 1e-8
        assert abs(feasible_set.project([-901.0])[0] + 1.0) < 1e-8


def test_projections_stay_within_the_radius_that_sensitivities_use():
    z = cp.Variable(2)
    feasible_set = from_cvxpy(z, [cp.sum_squares(z) <= 1e-10])
    reach = feasible_set.radius(math.inf), feasible_set.radius(2)
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = feasible_set.project(10 ** rng.uniform(-6, 1) * rng.normal(size=2))
        assert np.abs(p).max() <= reach[0] and np.linalg.norm(p) <= reach[1]


def test_one_constraint_needs_no_list_and_other_things_are_refused():
    z = cp.Variable(2)
    assert from_cvxpy(z, cp.norm(z) <= 1).dimension == 2
    with pytest.raises(InvalidInput, match="CVXPY constraints"):
        from_cvxpy(z, [True, cp.norm(z) <= 1])


# Images, slacks and rare cones (the power-flow sets)


def image_set(rng, rare=()):
    """z = image @ x with x in a box and a ball, and a slack S @ z."""
    image = np.vstack([np.eye(3), rng.normal(size=(4, 3))])
    rows = np.vstack([np.eye(3), -np.eye(3), np.zeros((1, 3)), -np.eye(3)])
    offset = np.concatenate([np.ones(6), [1.2, 0, 0, 0]])
    slack = rng.normal(size=(2, 7))
    cones = [("nonneg", 6), ("soc", 4)]
    return Conic(rows, offset, cones, image=image, slack=slack, rare=rare), image, slack


@pytest.mark.parametrize("rare", [(), (0,), (1,)])
def test_projection_onto_an_image_is_that_of_cvxpy(rng, rare):
    W, image, slack = image_set(rng, rare)
    assert W.dimension == 7 and W.slack_size == 2
    for _ in range(20):
        v, c = 3 * rng.normal(size=9), rng.uniform(0.1, 10, 9)
        x = cp.Variable(3)
        lifted = np.vstack([image, slack @ image]) @ x
        cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(c, cp.square(lifted - v)))),
            [x <= 1, x >= -1, cp.norm(x) <= 1.2],
        ).solve(cp.CLARABEL)
        z = W.project(v, c)
        assert z == pytest.approx(image @ x.value, abs=1e-4)
        assert W.violation(z) <= 1e-7
        plain = W.project(v[:7], c[:7])  # without the slack
        lifted = image @ x
        cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(c[:7], cp.square(lifted - v[:7])))),
            [x <= 1, x >= -1, cp.norm(x) <= 1.2],
        ).solve(cp.CLARABEL)
        assert plain == pytest.approx(image @ x.value, abs=1e-4)


def test_rare_cones_change_no_answer(rng):
    full, _, _ = image_set(np.random.default_rng(5))
    lazy, _, _ = image_set(np.random.default_rng(5), rare=(1,))
    for _ in range(50):
        v = 2 * rng.normal(size=9)
        assert lazy.project(v) == pytest.approx(full.project(v), abs=1e-5)


def test_violation_of_an_image_sees_both_the_cones_and_the_image(rng):
    W, image, _ = image_set(rng)
    inside = image @ np.array([0.1, 0.2, 0.3])
    assert W.violation(inside) < 1e-15
    bent = inside.copy()
    bent[5] += 0.25
    assert W.violation(bent) == pytest.approx(0.25)
    assert W.violation(image @ np.array([1.1, 0, 0])) == pytest.approx(0.1)


def test_linearised_projection_is_its_derivative(rng):
    W, image, slack = image_set(rng)
    lifted = np.vstack([image, slack @ image])
    checked = 0
    for _ in range(30):
        v, c = 2 * rng.normal(size=9), rng.uniform(0.5, 2, 9)
        x, H = W.linearised(v, c)
        step = 1e-3 * rng.normal(size=9)
        ends = [W.project(v + s * step, c)[:3] for s in (1, -1)]
        measured = (ends[0] - ends[1]) / 2
        predicted = np.linalg.solve(H, lifted.T @ (c * step))
        kink = np.abs(W.project(v + step, c)[:3] + W.project(v - step, c)[:3] - 2 * x).max()
        if kink < 1e-6:  # away from faces, where there is no derivative
            checked += 1
            assert predicted == pytest.approx(measured, abs=0.05 * np.abs(measured).max())
    assert checked >= 10


def test_a_fast_program_tries_more_than_once(monkeypatch, rng):
    """Refinement first, then less regularisation, then no balancing; then it is an error."""
    W, _, _ = image_set(rng)
    expected = W.project(np.full(7, 2.0))
    setups = failing(W, monkeypatch, ["NumericalError", "InsufficientProgress", "Solved"])
    assert W.project(np.full(7, 2.0)) == pytest.approx(expected, abs=1e-5)
    assert setups == [{}, *coneprogram.AGAIN[:2]]
    monkeypatch.undo()
    failing(W, monkeypatch, ["NumericalError"] * 4)
    with pytest.raises(SolverFailure, match="NumericalError"):
        W.project(np.full(7, 2.0))


def test_bad_images(rng):
    rows, offset = np.vstack([np.eye(2), -np.eye(2)]), np.ones(4)
    with pytest.raises(InvalidInput, match="every column to be an entry"):
        Conic(rows, offset, [("nonneg", 4)], image=[[1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(InvalidInput, match=r"slack of shape \(any, 3\)"):
        Conic(rows, offset, [("nonneg", 4)], image=np.vstack([np.eye(2), [1, 1]]), slack=np.eye(2))
    with pytest.raises(InvalidInput, match="as rare"):
        Conic(rows, offset, [("nonneg", 4)], rare=[0])


def test_the_slack_must_be_the_objective_s(rng):
    W, _, slack = image_set(rng)
    LocalProblem(Residual(slack, np.ones(2), 0.1, slack=True), W)
    with pytest.raises(InvalidInput, match="got another matrix"):
        LocalProblem(Residual(5 * slack, np.ones(2), 0.1, slack=True), W)


def test_sizes_are_never_below_the_true_ones():
    """Not even by the solver's error: sensitivities are proven for points up to the radius."""
    cube = Polyhedron(lower=-np.ones(3), upper=np.ones(3))
    disc = ConeSet([Cone(np.eye(2), limit=1.5)], lower=-9.0 * np.ones(2), upper=9.0 * np.ones(2))
    for W, size in ((cube, 1.0), (disc, 1.5)):
        assert size <= W.radius(math.inf) <= size * (1 + 1e-6)
    assert cube.diameter >= 2 * math.sqrt(3) and disc.diameter >= 3.0


def test_weights_of_a_polyhedron_by_hand():
    """Onto x + y ≤ 1 from (2, 2), x three times as heavy: x falls by 3/4, y by 9/4."""
    W = Polyhedron(np.ones((1, 2)), np.ones(1), lower=-9.0 * np.ones(2), upper=9.0 * np.ones(2))
    z = W.project(np.array([2.0, 2.0]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(z, [1.25, -0.25], atol=1e-8)
