"""One local update is the minimiser the paper writes down, with noise of the certified scale."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import objective_of, problem_of, repeat, set_of
from scipy import stats
from sets_to_try import SETS

import tacit
from tacit.admm import algorithm
from tacit.admm.algorithm import (
    Holders,
    Limits,
    Local,
    Round,
    Rule,
    certified_sensitivity,
    local_update,
    output_noise_shape,
    server_step,
)
from tacit.objectives.residual import Residual
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.privacy.seeded_noise import agent_key
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast

NO_LIMITS = Limits(np.inf, np.inf, np.inf)


def update(f, W, z, w, λ, ρ, η, coupled, rule, noise, seed):
    local = Local(f, W, coupled, *noise, jax.random.key(seed), NO_LIMITS)
    return local_update(z, 0, Round(1, w, λ, ρ, η), local, rule)[0]


def key_of(seed, t=1, e=0):
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), e)


KINDS = ("box", "ball", "simplex", "cones", "cvxpy-auxiliaries")


@pytest.mark.parametrize("kind", KINDS)
def test_update_minimises_the_papers_subproblem(kind, rng):
    """Line 18 against CVXPY on eq. (DPADMM-2-Prox) as printed, with a private coordinate."""
    W, constraints = SETS[kind]
    n, ρ, η = W.dimension, 3.0, 0.4
    f = objective_of("least-squares", rng, dimension=n)
    z = np.asarray(W.project(rng.normal(size=n)))
    w, λ = rng.normal(size=n), rng.normal(size=n)
    coupled = np.arange(n) != 2
    mechanism = tacit.Gaussian(2.0)
    Δ = f.sensitivity(2, W)
    rule = Rule(1, "objective", "certified", W.separable)
    shared = coupled.astype(float)
    got = update(f, W, z, w * shared, λ * shared, ρ, η, shared, rule, (Δ, mechanism), 5)
    ξ = np.asarray(mechanism.sample(key_of(5), (n,), Δ, jnp.float64))
    x = cp.Variable(n)
    cost = (
        np.asarray(f.gradient(z)) @ x
        + cp.sum_squares(x - z) / (2 * η)
        + ρ / 2 * cp.sum_squares((w - x + (λ - ξ) / ρ)[coupled])
        + ξ[2] * x[2]  # no penalty on the private coordinate: its noise stands alone
    )
    cp.Problem(cp.Minimize(cost), constraints(x)).solve(
        cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9
    )
    assert abs(ξ).max() > 0.05
    np.testing.assert_allclose(got, x.value, atol=3e-5)  # the gap tolerance 1e-9, square-rooted
    assert float(W.violation(got)) < 1e-6


def test_server_step_averages_over_the_holders_of_a_coordinate():
    """Line 5: with a private coordinate and different holders; held by three, two and one."""
    couplings = [np.array([0, 1, -1]), np.array([1, 2]), np.array([2, 0])]
    z = np.array([1.0, 2.0, 99.0, 4.0, 6.0, 8.0, 3.0])
    λ = np.array([2.0, 0.0, 0.0, 4.0, 0.0, 2.0, 0.0])
    w = server_step(z, λ, 2.0, Holders.of(couplings, 3, np.float64))
    np.testing.assert_allclose(w, [(1 - 1 + 3) / 2, (2 + 4 - 2) / 2, (6 + 8 - 1) / 2])
    couplings = [np.array([0, 1, 2]), np.array([1, -1, 0]), np.array([0])]
    z = np.array([3.0, 4.0, 5.0, 6.0, 99.0, 9.0, 12.0])
    w = server_step(z, 0 * z, 1.0, Holders.of(couplings, 3, np.float64))
    np.testing.assert_allclose(w, [(3 + 9 + 12) / 3, (4 + 6) / 2, 5.0])


def test_a_reply_carries_the_coupled_coordinates_and_nothing_else(rng):
    part = tacit.LocalProblem(objective_of("huber", rng), set_of("box", 4), [1, -1, 0, -1])
    settings = tacit.Settings(2, 1, tacit.Laplace(1.0)).complete(tacit.Problem([part]))
    agent = Agent(part, "a", settings, agent_key(jax.random.key(0), "run", 0), "run", 2)
    steps = np.array([0.01, 1.0, 1.0])  # which adapt
    reply = agent.respond(Broadcast("run", 1, np.zeros(2), instructions=steps))
    assert set(vars(reply)) == {"run", "round", "primal", "settled"} and not reply.settled
    np.testing.assert_array_equal(reply.primal, np.asarray(agent.average)[[0, 2]])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("kind", ["box", "ball", "simplex", "polyhedron"])
def test_output_noise_shape_covers_the_output_sensitivity(kind, norm, rng):
    """‖(z − z')/s‖ ≤ Δ for random neighbouring gradients, and the bound is attained on the box."""
    n, W = 4, set_of(kind, 4)
    worst = 0.0
    for _ in range(repeat(100, 300)):
        c = rng.uniform(0.5, 4.0, n)
        s = np.asarray(output_noise_shape(jnp.asarray(c), c.min(), W.separable, norm))
        q, d = rng.normal(size=n) * 0.3, rng.normal(size=n) * 0.1
        if rng.random() < 0.5:
            d = d * (np.arange(n) == rng.integers(n))
        dz = np.asarray(W.project(q / c, c)) - np.asarray(W.project((q + d) / c, c))
        Δ = np.linalg.norm(d, norm if W.separable else 2)
        worst = max(worst, np.linalg.norm(dz / s, norm) / Δ)
    assert worst <= 1 + 1e-6
    if kind == "box":
        assert worst > 0.99


def test_output_noise_needs_a_bound_that_holds_outside_the_set():
    """Least squares is bounded only inside the set; plain output noise leaves it: refused."""
    problem = problem_of("least-squares", "box")
    settings = tacit.Settings(2, 1, tacit.Gaussian(1.0), perturbation="output")
    with pytest.raises(tacit.InvalidInput, match="bounded only inside"):
        tacit.solve(problem, settings, seed=0)
    ok = tacit.Settings(2, 2, tacit.Gaussian(1.0), perturbation="projected-output", penalty=0.5)
    words = tacit.solve(problem_of("logistic", "ball"), ok, seed=0).privacy.words
    assert "Not certified: noise on the output hides an exact update" in words


PLACES = [(law, place) for law in ("gaussian", "laplace") for place in ("objective", "output")]


@pytest.mark.parametrize(("law", "perturbation"), repeat(PLACES[::3], PLACES))  # both of each
def test_released_points_carry_noise_of_the_certified_scale(perturbation, law, rng):
    """Recover ξ from what leaves an agent; a Kolmogorov-Smirnov test, and two wrong scales.

    In a huge box nothing is clipped, so the reply gives ξ away: −c·(z − noiseless z) on the
    objective, z − noiseless z on the output (where the scale is Δ/c).
    """
    n, records, ρ, η = 20_000, 3, 2.0, 0.5
    X = rng.normal(size=(records, n))
    f = tacit.LogisticRegression(X, [0, 1, 1], feature_norm=1.0, normaliser=50.0)
    W = tacit.Box(-100.0, 100.0, size=n)
    mechanism = {"gaussian": tacit.Gaussian(3.0), "laplace": tacit.Laplace(3.0)}[law]
    schedules = {
        "penalty": tacit.ConstantPenalty(ρ),
        "step_size": tacit.ConstantStep(η),
        "perturbation": perturbation,
    }
    part = tacit.LocalProblem(f, W)
    noisy = tacit.solve([part], tacit.Settings(1, 1, mechanism, **schedules), seed=1)
    plain = tacit.solve([part], tacit.Settings(1, 1, **schedules), seed=1)
    difference = noisy.solution - plain.solution
    c = 1 / η + ρ
    ξ = -c * difference if perturbation == "objective" else difference
    settings = tacit.Settings(1, 1, mechanism, **schedules)
    Δ = certified_sensitivity(part, settings) / (1 if perturbation == "objective" else c)
    shape = {"gaussian": stats.norm, "laplace": stats.laplace}[law]
    assert stats.kstest(ξ, shape(scale=3.0 * Δ).cdf).pvalue > 1e-3
    for wrong in (1.1, 1 / 1.1, 3.0):  # 3.0: the variance used as a standard deviation
        assert stats.kstest(ξ, shape(scale=3.0 * Δ * wrong).cdf).pvalue < 1e-3
    assert noisy.trace["noise"][-1] == pytest.approx(np.abs(ξ).sum(), rel=1e-6)


def test_an_average_of_many_float32_points_stays_in_the_set():
    """Added up in their own format they would leave it."""
    X = np.ones((4, 2), np.float32)
    f = tacit.LeastSquares(X, np.ones(4), feature_norm=2.0, target_bound=1.0, normaliser=4)
    agents = [tacit.LocalProblem(f, tacit.Box(0.1, 0.1, size=2))]
    settings = tacit.Settings(1, 20_000, tacit.Noiseless(), penalty=1.0, step_size=0.1)
    for batch in (False, True):
        found = tacit.solve(agents, settings, batch=batch).local[0]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.full(2, 0.1, np.float32))


@pytest.mark.parametrize("mechanism", [Gaussian(2.0), Laplace(2.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("coupled", [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]], ids=["all", "some"])
def test_output_noise_with_a_slack_is_scaled_by_the_step(mechanism, coupled):
    """The least curvature is that of the slack, 1/η, also where every coordinate has a ρ on top."""
    A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    f, key, Δ, η, ρ = Residual(A, [0.1, 0.2], 0.01, slack=True), jax.random.key(1), 0.3, 0.5, 7.0
    z, coupled = np.zeros(3), np.array(coupled)
    c = 1 / η + ρ * coupled
    local = Local(f, None, coupled, Δ, mechanism, key, Limits(1.0, 1.0, 1.0))
    rule = Rule(1, "output", "certified", separable=False)
    drawn = algorithm.draw(z, c, 0, Round(1, z, z, ρ, η), local, rule)
    plain = algorithm.sample_on_host(key, 1, 0, 3, Δ, z.dtype, mechanism)
    root = np.sqrt(3) if mechanism.norm == 1 else 1.0
    np.testing.assert_allclose(drawn, plain * root * np.sqrt(η / c), rtol=1e-12)
