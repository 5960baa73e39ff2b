"""Sets on which a solver projects: images and slacks, CVXPY, and what happens when it fails."""

import math
import pickle
import sys
import threading
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from conftest import repeat
from sets_to_try import CONES, A, B, image_set

from tacit.errors import InvalidInput, SolverFailure
from tacit.sets import Ball, Cone, ConeSet, Polyhedron, cone_program, from_cvxpy
from tacit.sets.conic import Conic

# --- images, slacks and rare cones: the sets of power grids ------------------------------------


@pytest.mark.parametrize("rare", [(), (0,), (1,)])
def test_projection_onto_an_image_is_that_of_cvxpy(rng, rare):
    """With weights on the slack, and without; rare cones change no answer."""
    W, image, slack = image_set(rng, rare)
    assert W.dimension == 7 and W.slack_size == 2
    for _ in range(repeat(8, 20)):
        v, c = 3 * rng.normal(size=9), rng.uniform(0.1, 10, 9)
        for size in (9, 7):
            x = cp.Variable(3)
            lifted = np.vstack([image, slack @ image])[:size] @ x
            apart = cp.sum(cp.multiply(c[:size], cp.square(lifted - v[:size])))
            within = [x <= 1, x >= -1, cp.norm(x) <= 1.2]
            cp.Problem(cp.Minimize(apart), within).solve(cp.CLARABEL)
            z = W.project(v[:size], c[:size])
            assert z == pytest.approx(image @ x.value, abs=1e-4)
            assert W.violation(z) <= 1e-7


def test_violation_of_an_image_sees_both_the_cones_and_the_image(rng):
    W, image, _ = image_set(rng)
    inside = image @ np.array([0.1, 0.2, 0.3])
    assert W.violation(inside) < 1e-15
    bent = inside.copy()
    bent[5] += 0.25
    assert W.violation(bent) == pytest.approx(0.25)
    assert W.violation(image @ np.array([1.1, 0, 0])) == pytest.approx(0.1)


# --- CVXPY constraints -------------------------------------------------------------------------


def test_violation_leaves_the_users_variable_alone():
    z = cp.Variable(2)
    z.value = [7.0, 8.0]
    W = from_cvxpy(z, [z >= 0, cp.sum(z) <= 1])
    assert W.violation([2.0, 0.0]) == pytest.approx(1.0)
    assert list(z.value) == [7.0, 8.0]


def test_cvxpy_domains_count_in_the_violation():
    z = cp.Variable(2)
    W = from_cvxpy(z, [cp.quad_over_lin(z[0], z[1]) <= 1, z[1] <= 1])
    assert W.violation([0.5, 0.5]) == pytest.approx(0.0, abs=1e-12)
    assert W.violation([0.0, -0.5]) >= 0.5
    assert W.project([0.0, -0.5])[1] >= -1e-7


def test_projections_stay_within_the_radius_that_sensitivities_use():
    z = cp.Variable(2)
    W = from_cvxpy(z, cp.sum_squares(z) <= 1e-10)  # one constraint needs no list
    reach = W.radius(math.inf), W.radius(2)
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = W.project(10 ** rng.uniform(-6, 1) * rng.normal(size=2))
        assert np.abs(p).max() <= reach[0] and np.linalg.norm(p) <= reach[1]


def test_missing_cvxpy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tacit\[cvxpy\]'"):
        from_cvxpy(None, [])


# --- history, threads, failed solves and the Newton steps after them ---------------------------


def test_answers_do_not_depend_on_history_or_pickling():
    rng = np.random.default_rng(5)
    v, c = 3 * rng.normal(size=(3, 3)), rng.uniform(0.5, 2, (3, 3))
    for name in ("polyhedron", "cones", "cvxpy-auxiliaries"):
        W = CONES[name][0]
        first = [W.project(*pair) for pair in zip(v, c, strict=True)]
        again = [W.project(*pair) for pair in zip(v[::-1], c[::-1], strict=True)][::-1]
        copy = pickle.loads(pickle.dumps(W))
        copied = [copy.project(*pair) for pair in zip(v[::-1], c[::-1], strict=True)][::-1]
        assert np.array_equal(first, again) and np.array_equal(first, copied)
        assert copy.violation(v[0]) == W.violation(v[0])


def test_threads_may_share_a_set():
    W = CONES["polyhedron"][0]
    v = 3 * np.random.default_rng(6).normal(size=(40, 3))
    alone = [W.project(p) for p in v]
    found = {}

    def work(start):
        for i in range(start, 40, 4):
            found[i] = W.project(v[i])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[i], alone[i]) for i in range(40))


def failing(W, monkeypatch, statuses, polished=0):
    """Make the solver of a set report the given statuses, one per solve."""
    setups, set_up = [], cone_program.Program._set_up
    W._nearest._solver = None

    def reporting(program, data, settings):
        setups.append(settings)
        solver = set_up(program, data, settings)

        def solve():
            status, solution = statuses.pop(0), solver.solve()
            x, z = np.array(solution.x), np.full(len(solution.z), np.nan)
            if status == "stuck":  # almost there, with a usable dual
                x, z, status = x + 1e-5, np.array(solution.z), "NumericalError"
            elif status not in ("Solved", "near"):
                x = 1 + 2 * x
            status = "AlmostSolved" if status == "near" else status
            return SimpleNamespace(status=status, x=x, z=z, obj_val=1.0, obj_val_dual=0.0)

        return SimpleNamespace(update=solver.update, solve=solve)

    monkeypatch.setattr(cone_program.Program, "_set_up", reporting)
    monkeypatch.setattr(cone_program, "POLISHED_SIZE", polished)
    return setups


@pytest.mark.parametrize(
    ("statuses", "polished", "apart"),
    [
        ("Solved", 0, 1e-6),
        ("MaxIterations Solved", 0, 1e-6),
        ("AlmostSolved Solved", 0, 1e-6),
        ("PrimalInfeasible Solved", 0, 1e-6),
        ("near", 0, 1e-6),  # an almost solved answer is taken when it is feasible
        ("stuck", 150, 1e-9),  # Newton steps rescue it
        ("InsufficientProgress NumericalError", 0, None),
        ("InsufficientProgress AlmostSolved", 0, None),
        ("InsufficientProgress PrimalInfeasible", 0, None),
    ],
)
def test_a_failed_solve_is_tried_once_more(statuses, polished, apart, monkeypatch):
    W, reported = Polyhedron(A, B, lower=-1, upper=1), statuses.split()
    expected = W.project([3.0, 3.0, 3.0])
    setups = failing(W, monkeypatch, list(reported), polished)
    if apart is None:
        with pytest.raises(SolverFailure, match=reported[-1]):
            W.project([3.0, 3.0, 3.0])
    else:
        z = W.project([3.0, 3.0, 3.0])
        np.testing.assert_allclose(z, expected, atol=apart)
        assert W.violation(z) <= 1e-7
    assert setups == [{}, *cone_program.RETRIES[-1:]][: len(reported)]


def test_a_fast_program_tries_more_than_once(monkeypatch, rng):
    """Refinement first, then less regularisation, then no balancing; then it is an error."""
    W, _, _ = image_set(rng)
    expected = W.project(np.full(7, 2.0))
    setups = failing(W, monkeypatch, ["NumericalError", "InsufficientProgress", "Solved"])
    assert W.project(np.full(7, 2.0)) == pytest.approx(expected, abs=1e-5)
    assert setups == [{}, *cone_program.RETRIES[:2]]
    monkeypatch.undo()
    failing(W, monkeypatch, ["NumericalError"] * 4)
    with pytest.raises(SolverFailure, match="NumericalError"):
        W.project(np.full(7, 2.0))


def test_newton_steps_give_the_ball_to_machine_precision():
    """Clarabel alone leaves 1e-6 to 1e-5 on a curved boundary."""
    rng = np.random.default_rng(0)
    cone, ball = ConeSet([Cone(np.eye(5), limit=0.6)]), Ball(0.0, 0.6, size=5)
    for _ in range(50):
        v, c = rng.normal(size=5) * 10 ** rng.uniform(-1, 3), 10 ** rng.uniform(-2, 2, 5)
        np.testing.assert_allclose(cone.project(v, c), ball.project(v, c), atol=1e-10)


def test_points_barely_outside_are_no_trouble():
    """There the dual is almost zero and interior-point steps get stuck."""
    rng = np.random.default_rng(1)
    cone = ConeSet([Cone(np.eye(4), limit=0.6)], lower=-0.5, upper=0.5)
    ball = Ball(0.0, 0.6, size=4)
    for _ in range(100):
        u = rng.normal(size=4)
        u *= 0.6 / np.linalg.norm(u) * (1 + 10 ** rng.uniform(-9, -3))
        c = 10 ** rng.uniform(-2, 3) * 10 ** rng.uniform(-0.5, 0.5, 4)
        if np.abs(u).max() < 0.5:
            np.testing.assert_allclose(cone.project(u, c), ball.project(u, c), atol=1e-8)


@pytest.mark.parametrize("broken", [1e-8, 1e-5])
def test_a_rare_cone_that_is_hardly_broken_counts(broken):
    """The unit disc as a rare cone within a box: a point just outside is projected again."""
    rows = np.concatenate([np.eye(2), -np.eye(2), np.zeros((1, 2)), np.eye(2)])
    offset = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0])
    disc = Conic(rows, offset, [("nonneg", 4), ("soc", 3)], rare=[1])
    for angle in np.linspace(0, 6, 7):
        point = (1 + broken) * np.array([np.cos(angle), np.sin(angle)])
        assert disc.violation(point) == pytest.approx(broken, rel=1e-3)
        assert disc.violation(disc.project(point)) <= 5e-9
