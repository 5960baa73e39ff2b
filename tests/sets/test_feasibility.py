"""Objective perturbation never leaves the set; output perturbation does."""

import jax
import numpy as np
import pytest
from conftest import CLOSED_SETS, SOLVER_SETS, problem_of, repeat

import tacit

RELEASES = repeat(40, 1000)
EVERY = [
    (feasible, mechanism)
    for mechanism in (tacit.Gaussian(20.0), tacit.Laplace(20.0))
    for feasible in (*CLOSED_SETS, *SOLVER_SETS)
]
SOME = EVERY[::2]  # every set once: there is an odd number of them
# agents of the other sets run one by one; in transports/test_solving.py ball and simplex do not
BATCHED = repeat(("box",), CLOSED_SETS)


def outside(feasible_set, z):
    return feasible_set.violation(z)


compiled_outside = jax.jit(outside)


@pytest.mark.parametrize(("feasible", "mechanism"), repeat(SOME, EVERY))
def test_every_release_is_feasible(feasible, mechanism):
    """Heavy noise, and many releases."""
    solver_backed = feasible in SOLVER_SETS
    problem = problem_of("logistic", feasible)
    rounds = repeat(10, 120) if solver_backed else RELEASES // len(problem.agents) + 1
    worst, released = [], 0
    violation = outside if solver_backed else compiled_outside

    def look(progress):
        nonlocal released
        released += len(progress.averages)
        for agent, z in zip(problem.agents, progress.averages, strict=True):
            worst.append(float(violation(agent.feasible_set, z)))

    settings = tacit.Settings(rounds, 2, mechanism, penalty=tacit.ConstantPenalty(0.2))
    batch = feasible in BATCHED
    result = tacit.solve(problem, settings, seed=11, callback=look, batch=batch)
    assert released == rounds * len(problem.agents)
    assert max(worst) <= (1e-6 if solver_backed else 1e-8)
    assert result.trace["violation"].max() == pytest.approx(max(worst), abs=1e-12)
    spread = np.std([z for z in result.local], axis=0).max()
    assert spread > 1e-3  # the noise really moves the points


# transports/test_solving.py projects noisy outputs onto a ball
@pytest.mark.parametrize("feasible", ["box", "polyhedron", *repeat([], ["ball", "simplex"])])
def test_output_noise_leaves_the_set_and_projection_brings_it_back(feasible):
    problem = problem_of("logistic", feasible)
    outside = {}
    for perturbation in ("objective", "output", "projected-output"):
        settings = tacit.Settings(
            repeat(8, 30),
            2,
            tacit.Gaussian(5.0),
            perturbation=perturbation,
            penalty=tacit.ConstantPenalty(0.2),
        )
        result = tacit.solve(problem, settings, seed=2, batch=repeat(False, None))
        outside[perturbation] = result.trace["violation"].max()
    assert outside["output"] > 1e-2
    assert outside["objective"] < 1e-6
    assert outside["projected-output"] < 1e-6
