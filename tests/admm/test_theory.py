"""Section 5: mean gaps stay below the bounds, and fall in T as the theorems say."""

import math
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from conftest import objective_of, problem_of, repeat, set_of
from test_optimum import constraints, expression

import tacit
from tacit.admm.theory import Constants, ErgodicAverage, bound, constants

SEEDS = range(repeat(3, 12))
FEASIBLE = repeat("box", "ball")  # the program of many other tests
STEPS = {
    "smooth": ("logistic", lambda L, α: tacit.SmoothStep(L, growth=0.5)),
    "nonsmooth": ("hinge", lambda L, α: tacit.NonsmoothStep(1.0)),
    "strongly-convex": ("least-squares", lambda L, α: tacit.StronglyConvexStep(α)),
}


@cache
def case(theorem):
    kind, step = STEPS[theorem]
    ridge = 0.3 if theorem == "strongly-convex" else 0.0
    problem = problem_of(kind, FEASIBLE, seed=1, ridge=ridge)
    f = problem.agents[0].objective
    z = cp.Variable(problem.size)
    total = sum(expression(a.objective, z) for a in problem.agents)
    total += sum(a.objective.strong_convexity for a in problem.agents) / 2 * cp.sum_squares(z)
    optimum = cp.Problem(cp.Minimize(total), constraints(FEASIBLE, z)).solve(cp.CLARABEL)
    return problem, step(f.smoothness, f.strong_convexity), optimum


def mean_gap(theorem, rounds, local_updates=2, mechanism=None, seeds=SEEDS):
    """The mean over seeds of the theorem's left-hand side, and its right-hand side."""
    problem, step, optimum = case(theorem)
    settings = tacit.Settings(
        rounds,
        local_updates,
        mechanism or tacit.Gaussian(2.0),
        penalty=tacit.ConstantPenalty(0.2),
        step_size=step,
    )
    gaps, largest_dual = [], 0.0
    averages = []
    for seed in seeds:
        ergodic = ErgodicAverage(problem, theorem, local_updates)
        duals = []

        def watch(progress, ergodic=ergodic, duals=duals):
            ergodic(progress)
            duals.append(np.linalg.norm(np.concatenate(progress.duals)))

        tacit.solve(problem, settings, seed=seed, callback=watch)
        largest_dual = max(largest_dual, *duals)
        averages.append(ergodic)
    γ = max(largest_dual, 0.1)  # the strongly convex theorem assumes ‖λ^t‖ ≤ γ
    gaps = [ergodic.gap(optimum, γ) for ergodic in averages]
    return float(np.mean(gaps)), bound(constants(problem, settings), step, γ), γ


EVERY = [(theorem, law(2.0)) for theorem in STEPS for law in (tacit.Gaussian, tacit.Laplace)]
SOME = [EVERY[k] for k in (0, 3, 4)]  # every theorem once, both laws


@pytest.mark.parametrize(("theorem", "mechanism"), repeat(SOME, EVERY))
def test_mean_gap_is_below_the_bound(theorem, mechanism):
    gap, limit, _ = mean_gap(theorem, 60, mechanism=mechanism)
    assert 0 < gap <= limit


def test_bounds_are_the_papers_formulas():
    """The three right-hand sides with the paper's κ = 1/ε, s = 1 and n·P·U_3/ε² written out."""
    n, P, T, E, ε, γ, L, α = 4, 3, 50, 2, 0.5, 1.1, 2, 0.6
    U1, U2, U3, ρ1, ρT = 1.3, 2.0, 0.7, 0.4, 0.9
    k = Constants(P * U1**2, n * P * U3 / ε**2, U2, ρ1, ρT, T, E)
    smooth = (n * P * U3 + U2**2 / (2 * E)) / (ε * math.sqrt(T))
    smooth += (U2**2 * (ρT + L / E) + γ**2 / ρ1) / (2 * T)
    nonsmooth = (n * P * U3 / ε**2 + P * U1**2 + U2**2 / (2 * E)) / math.sqrt(T)
    nonsmooth += (U2**2 * ρT + γ**2 / ρ1 + 2 * γ * U2) / (2 * T)
    strong = 2 * U2 * γ + U2**2 * ρT + 4 * γ**2 / ρ1 + α * U2**2 / (2 * E)
    strong = (strong + 2 * P * (U1**2 + n * U3 / ε**2) / α) / (T + 1)
    assert bound(k, tacit.SmoothStep(L, 1 / ε), γ) == pytest.approx(smooth)
    assert bound(k, tacit.NonsmoothStep(), γ) == pytest.approx(nonsmooth)
    assert bound(k, tacit.StronglyConvexStep(α), γ) == pytest.approx(strong)


def test_constants_of_a_problem():
    problem = problem_of("logistic", "ball", agents=3)
    settings = tacit.Settings(10, 2, tacit.Gaussian(3.0))
    k = constants(problem, settings)
    Δ = problem.agents[0].objective.sensitivity(2, problem.agents[0].feasible_set)
    assert k.diameter == pytest.approx(math.sqrt(3) * 1.2)
    assert constants(problem, settings, as_printed=True).diameter == pytest.approx(1.2)
    # the paper's U_2 is for one agent; the stacked points of three agents lie further apart
    u, v = np.tile([0.6, 0, 0, 0], 3), np.tile([-0.6, 0, 0, 0], 3)
    assert 1.2 < np.linalg.norm(u - v) <= k.diameter * (1 + 1e-12)
    assert k.noise_energy == pytest.approx(3 * 4 * (3.0 * Δ) ** 2)


@pytest.mark.parametrize("theorem", ["smooth", "nonsmooth", "strongly-convex"])
def test_ergodic_average_is_the_theorems_mean(theorem):
    """Against z^{t,e} recorded one by one (E = 1 makes every local point visible)."""
    problem = problem_of("logistic", "box")
    settings = tacit.Settings(5, 1, tacit.Gaussian(2.0), penalty=tacit.ConstantPenalty(0.3))
    ergodic = ErgodicAverage(problem, theorem, 1)
    points, ws = [], []

    def watch(progress):
        ergodic(progress)
        points.append(progress.points[0])
        ws.append(progress.consensus)

    tacit.solve(problem, settings, seed=0, callback=watch)
    start = np.asarray(problem.agents[0].feasible_set.project(np.zeros(4)))
    used = np.array(points if theorem == "smooth" else [start, *points[:-1]])
    weights = np.arange(1, 6) if theorem == "strongly-convex" else np.ones(5)
    np.testing.assert_allclose(ergodic.z[0], np.average(used, axis=0, weights=weights))
    np.testing.assert_allclose(ergodic.w, np.average(ws, axis=0, weights=weights))


def test_schedules():
    assert tacit.SmoothStep(2.0, 0.5)(9) == pytest.approx(1 / 3.5)
    assert tacit.NonsmoothStep()(16) == pytest.approx(0.25)
    assert tacit.StronglyConvexStep(0.5)(2) == pytest.approx(1.0)
    mnist = tacit.DynamicPenalty(base=2, privacy=5, epsilon=0.05, period=10_000)
    assert mnist(1) == pytest.approx(102) and mnist(10_000) == pytest.approx(102.4)
    femnist = tacit.DynamicPenalty(base=0.005, privacy=0.05, epsilon=1.0, period=2000)
    assert femnist(4000) == pytest.approx(0.005 * 1.44 + 0.05)
    assert femnist(10**9) == 1e9
    for schedule in (mnist, femnist):
        values = [schedule(t) for t in range(1, 5000, 7)]
        assert (np.diff(values) >= 0).all()
    with pytest.raises(tacit.InvalidInput, match="schedule of Tacit's as step_size, such as"):
        tacit.Settings(10, step_size=lambda t: 1 / t)


def test_bound_refuses_what_no_theorem_covers():
    problem = problem_of("logistic", "box")
    k = constants(problem, tacit.Settings(10, 1, tacit.Gaussian(1.0)))
    with pytest.raises(tacit.InvalidInput, match="ConstantStep"):
        bound(k, tacit.ConstantStep(0.1), 1.0)
    with pytest.raises(tacit.InvalidInput, match="growth"):
        bound(k, tacit.SmoothStep(1.0), 1.0)
    with pytest.raises(tacit.InvalidInput, match="gamma"):
        bound(k, tacit.NonsmoothStep(), -1.0)


@pytest.mark.parametrize(
    ("objective", "changes", "words"),
    [
        ("logistic", {"step_size": tacit.SmoothStep(0.001, 1.0)}, "smoothness"),
        ("hinge", {"step_size": tacit.SmoothStep(1.0, 1.0)}, "smoothness"),
        ("least-squares", {"step_size": tacit.StronglyConvexStep(1.0)}, "strongly convex"),
        ("logistic", {"perturbation": "projected-output"}, "objective"),
        ("softmax", {"calibration": "paper"}, "certified"),
        ("per-sample", {}, "clipped"),
    ],
)
def test_constants_refuse_what_breaks_an_assumption(objective, changes, words):
    settings = {"step_size": tacit.NonsmoothStep(), "penalty": tacit.ConstantPenalty(1.0)}
    with pytest.raises(tacit.InvalidInput, match=words):
        constants(
            problem_of(objective, "ball"),
            tacit.Settings(10, 1, tacit.Gaussian(1.0), **(settings | changes)),
        )


def test_residual_noise_reaches_the_gradient_through_the_matrix(rng):
    f = objective_of("residual", rng)
    problem = tacit.Problem([tacit.LocalProblem(f, set_of("box", 4))])
    schedules = {"step_size": tacit.NonsmoothStep(), "penalty": 1.0}
    k = constants(problem, tacit.Settings(10, 1, tacit.Laplace(5.0), **schedules))
    energy = 2 * (5.0 * 2 * 0.01) ** 2 * float((np.asarray(f.matrix) ** 2).sum())
    assert k.noise_energy == pytest.approx(energy, rel=1e-4)  # Δ has room for rounding


def test_default_schedules_by_hand():
    """The largest L, the smallest diameter and the largest noise over agents that differ."""
    rng = np.random.default_rng(0)
    objectives = [objective_of("logistic", rng, records=n, normaliser=30) for n in (10, 20)]
    sets = [tacit.Box(-1.0, 1.0, size=4), tacit.Box(-0.5, 0.5, size=4)]
    problem = tacit.Problem(map(tacit.LocalProblem, objectives, sets))
    mechanism, T, E = tacit.Gaussian(2.0), 9, 2
    found = tacit.Settings(T, E, mechanism).complete(problem)
    L = 0.25 * 20 / 30  # curvature·B²M/N of the agent with more records
    Δ = max(f.sensitivity(2, W) for f, W in zip(objectives, sets, strict=True))
    growth = 2.0 * Δ * math.sqrt(4) * math.sqrt(2 * E) / 2.0  # D = 2 of the smaller box
    for t in (1, T):
        assert found.step_size(t) == pytest.approx(1 / (L + growth * math.sqrt(t)), rel=1e-9)
    assert found.penalty(1) == pytest.approx(0.3 / found.step_size(T))
    hinges = [objective_of("hinge", rng, records=n, normaliser=30) for n in (10, 20)]
    rough = tacit.Problem(map(tacit.LocalProblem, hinges, sets))
    found = tacit.Settings(T, E).complete(rough)
    G, D = 20 / 30, 2.0
    assert found.step_size(4) == pytest.approx(D / math.sqrt(2 * E * G**2) / 2, rel=1e-9)
    assert found.penalty(1) == pytest.approx(G / D, rel=1e-9)
