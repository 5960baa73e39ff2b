"""The solver behind a set: history, threads, failed solves and the Newton steps after them."""

import pickle
import threading

import numpy as np
import pytest
from cone_sets import SETS, A, B, image_set

from tacit.errors import SolverFailure
from tacit.sets import Ball, Cone, ConeSet, Polyhedron, cone_program


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


def failing(feasible_set, monkeypatch, statuses, polished=0):
    """Make the solver of a set report the given statuses, one per solve."""
    setups, set_up = [], cone_program.Program._set_up

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
    monkeypatch.setattr(cone_program.Program, "_set_up", reporting_set_up)
    monkeypatch.setattr(cone_program, "POLISHED_SIZE", polished)
    return setups


@pytest.mark.parametrize("first", ["MaxIterations", "AlmostSolved", "PrimalInfeasible"])
def test_a_failed_solve_is_tried_once_more(first, monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    expected = feasible_set.project([3.0, 3.0, 3.0])
    setups = failing(feasible_set, monkeypatch, [first, "Solved"])
    np.testing.assert_allclose(feasible_set.project([3.0, 3.0, 3.0]), expected, atol=1e-6)
    assert setups == [{}, cone_program.RETRIES[-1]]


@pytest.mark.parametrize("last", ["NumericalError", "AlmostSolved", "PrimalInfeasible"])
def test_a_solver_that_fails_twice_is_an_error(last, monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    failing(feasible_set, monkeypatch, ["InsufficientProgress", last])
    with pytest.raises(SolverFailure, match=last):
        feasible_set.project([3.0, 3.0, 3.0])


def test_an_almost_solved_answer_is_taken_when_it_is_feasible(monkeypatch):
    feasible_set = Polyhedron(A, B, lower=-1, upper=1)
    setups = failing(feasible_set, monkeypatch, ["near"])
    assert feasible_set.violation(feasible_set.project([3.0, 3.0, 3.0])) <= 1e-7
    assert setups == [{}]


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
