"""The optimum in one place: as CVXPY has it, for losses with kinks and for any loss on any set."""

import warnings

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CLOSED_SETS, SOLVER_SETS, problem_of, repeat
from test_optimum import constraints, expression

import tacit
from tacit.admm.reference import optimum
from tacit.errors import InvalidInput

EXACT = tacit.Settings(500, tolerance=1e-8)
EVERY = [(o, s) for o in ("hinge", "quantile", "logistic") for s in (*CLOSED_SETS, *SOLVER_SETS)]
SOME = [("quantile", s) for s in (*CLOSED_SETS, *SOLVER_SETS)]
SOME += [("hinge", "hyperplane"), ("logistic", "cone"), ("huber", "polyhedron")]


@pytest.mark.parametrize(("objective", "feasible"), repeat(SOME, EVERY))
def test_it_is_what_cvxpy_finds(objective, feasible):
    # the hinge's data pull a plane's points to its other side
    problem = problem_of(objective, feasible, 3 if objective == "hinge" else 0, agents=2)
    z = cp.Variable(problem.size)
    total = sum(expression(a.objective, z) for a in problem.agents)
    best = cp.Problem(cp.Minimize(total), constraints(feasible, z))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        expected = best.solve(cp.CLARABEL)
    found = tacit.solve(problem, EXACT)
    assert found.converged and not found.privacy.certified
    assert abs(problem.value(found.solution) - expected) <= 1e-6 * abs(expected) + 2e-8
    assert all(a.feasible_set.violation(found.solution) < 1e-6 for a in problem.agents)


def test_private_coordinates_are_in_it():
    """And ``Problem.value`` has them."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (2, 40, 3)), rng.uniform(-1, 1, (2, 40))
    kink = lambda z, r: jnp.abs(r[1] - r[0] @ z)  # noqa: E731
    box, about = tacit.Box(-1.0, 1.0, 3), {"clip": 0.01, "size": 3, "normaliser": 80}
    problem = tacit.Problem(
        tacit.LocalProblem(tacit.PerSample(kink, (X[p], y[p]), **about), box, [-1, 0, -1])
        for p in range(2)
    )
    z, v = cp.Variable(), cp.Variable((2, 2))
    each = [y[p] - X[p][:, 1] * z - X[p][:, [0, 2]] @ v[p] for p in range(2)]
    size = sum(cp.norm1(r) for r in each) / 80
    best = cp.Problem(cp.Minimize(size), [cp.abs(z) <= 1, cp.abs(v) <= 1]).solve(cp.CLARABEL)
    found = tacit.solve(problem, EXACT)
    assert found.converged  # also where gradients would be clipped in a run with noise
    assert problem.value(found.solution, found.local) == pytest.approx(best, rel=1e-6)
    with pytest.raises(InvalidInput, match="local points"):
        problem.value(found.solution)
    with pytest.raises(InvalidInput, match="solution"):
        problem.value([], found.local)


def test_what_is_not_reached_is_said():
    problem = problem_of("quantile", "ball", 0, agents=2)
    short = tacit.solve(problem, tacit.Settings(3, tolerance=1e-8))
    known = optimum(problem, 1e-9, 500)
    assert short.converged is False and known.converged
    assert repr(short).endswith("no noise, not certified, tolerance NOT reached)")
    gap = short.trace["dual_residual"][-1]
    assert 0 <= problem.value(short.solution) - known.value <= gap + 1e-9


def test_a_loss_that_is_not_convex_is_found_out():
    data, box = np.ones((4, 1)), tacit.Box(-1.0, 1.0, 1)
    f = tacit.PerSample(
        lambda z, r: jnp.sqrt(jnp.abs(z[0] - 0.5) + 0.01), data, clip=1.0, size=1, normaliser=4
    )
    with pytest.raises(InvalidInput, match="convex"):
        tacit.solve(
            [tacit.LocalProblem(f, tacit.Box(-0.2, 1.0, 1)), tacit.LocalProblem(f, box)], EXACT
        )


def test_sets_of_ones_own_are_refused():
    from tacit.sets import FeasibleSet

    class Own(FeasibleSet):
        dimension, diameter = 4, 2.0

        def project(self, point, weight=None):
            return jnp.clip(jnp.asarray(point), -0.5, 0.5)

        def violation(self, point):
            return 0.0

        def radius(self, norm):
            return 1.0

    f = problem_of("quantile", "box", 0, agents=1).agents[0].objective
    with pytest.raises(InvalidInput, match="Own"):
        tacit.solve([tacit.LocalProblem(f, Own())], EXACT)
