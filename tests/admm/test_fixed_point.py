"""Exact local steps: the optimum of the whole problem, the same bits on both sides, safeguards."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from conftest import problem_of, repeat
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.admm import fixed_point
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.admm.fixed_point import (
    MEMORY,
    Instructions,
    Iterate,
    LocalRounds,
    Residuals,
    ServerRounds,
    Watch,
)
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput
from tacit.objectives import PublicQuadratic
from tacit.objectives.public import without_noise


def sides(problem, penalty=None, group=None, memory=MEMORY):
    """The server's side and the agents', at the start."""
    publics = [without_noise(a.objective) for a in problem.agents]
    couplings = [np.asarray(a.coupling) for a in problem.agents]
    held = [np.flatnonzero(c >= 0) for c in couplings]
    mine = [c[h] for c, h in zip(couplings, held, strict=True)]
    start = [np.asarray(a.feasible_set.project(np.zeros(a.dimension))) for a in problem.agents]
    copies = np.concatenate([z[h] for z, h in zip(start, held, strict=True)])
    w = average_over_holders(copies, Holders.of(mine, problem.size, np.float64))
    if penalty is None:
        penalty = np.mean([f.mean_curvature for f in publics])
    penalty = np.broadcast_to(np.asarray(penalty, float), w.shape)
    group = np.zeros(len(w), int) if group is None else group
    server = ServerRounds.start(mine, w, penalty, group, memory)
    agents = [
        LocalRounds(f.prox(a.feasible_set), h, z, penalty[m], group[m], memory, f.mean_curvature)
        for f, a, h, m, z in zip(publics, problem.agents, held, mine, start, strict=True)
    ]
    return server, agents, mine


def exact_run(problem, rounds=300, tolerance=1e-8, watch=None, **options):
    """The server's and the agents' sides at the end, and the residuals of every round."""
    server, agents, mine = sides(problem, **options)
    trace = []
    for _ in range(rounds):
        told = server.instructions
        agents = [a.answer(server.w[m], told) for a, m in zip(agents, mine, strict=True)]
        if watch is not None:
            watch(server, agents)
        server, found = server.receive(np.concatenate([a.z[a.held] for a in agents]))
        trace.append(found)
        if server.converged(found, tolerance):
            break
    return server, agents, trace


def random_quadratics(seed, agents=3, shared=4, private=2, feasible=None):
    """Agents with a few coordinates in common, each with some of its own."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(agents):
        coupling = np.full(shared + private, -1)
        who = rng.permutation(shared)[: max(2, shared - 1)]
        coupling[rng.permutation(shared + private)[: len(who)]] = who
        rows = rng.integers(2, 9)
        A = rng.normal(size=(rows, shared + private)) * np.exp(rng.normal(size=shared + private))
        W = tacit.Box(-1.0, 1.0, size=shared + private) if feasible is None else feasible
        made.append(LocalProblem(PublicQuadratic(A, rng.normal(size=rows)), W, coupling))
    unheld = np.setdiff1d(np.arange(shared), np.concatenate([a.coupling for a in made]))
    return (
        random_quadratics(seed + 10**7, agents, shared, private, feasible)
        if unheld.size
        else (Problem(made))
    )


def central(problem, constrained):
    """The optimal value by CVXPY, all agents' variables in one model."""
    w, value, constraints = cp.Variable(problem.size), 0, []
    for agent in problem.agents:
        z, coupling = cp.Variable(agent.dimension), np.asarray(agent.coupling)
        held = np.flatnonzero(coupling >= 0)
        constraints += [z[held] == w[coupling[held]], *constrained(z)]
        f = agent.objective
        value += cp.sum_squares(np.asarray(f.matrix) @ z + np.asarray(f.data))
    return cp.Problem(cp.Minimize(value), constraints).solve(cp.CLARABEL)


def value_of(problem, agents):
    """At the agents' points, with the mean of all copies in each."""
    return sum(float(p.objective.value(a.z)) for p, a in zip(problem.agents, agents, strict=True))


@settings(max_examples=repeat(6, 15))
@given(seed=st.integers(0, 10**6), strength=st.sampled_from([1e-2, 1.0, 1e2]))
def test_quadratics_reach_the_optimum_of_the_whole_problem(seed, strength):
    problem = random_quadratics(seed)
    best = central(problem, lambda z: [z >= -1, z <= 1])
    curvature = np.mean([a.objective.mean_curvature for a in problem.agents])
    _, agents, trace = exact_run(problem, penalty=strength * curvature)
    assert trace[-1].within(1e-8)
    assert value_of(problem, agents) == pytest.approx(best, rel=1e-5, abs=1e-6)


SOME = [("residual", "polyhedron"), ("residual", "cvxpy"), ("logistic", "simplex")]
EVERY = [*SOME, ("residual", "simplex"), ("residual", "l1-ball"), ("logistic", "l1-ball")]
# logistic with polyhedron or cvxpy has no exact step: tests/objectives


@pytest.mark.parametrize(("loss", "kind"), repeat(SOME, EVERY))
def test_other_sets_and_losses(loss, kind):
    """By the optimality conditions: no agent gains by moving all copies together."""
    problem = problem_of(loss, kind, seed=3)
    _, agents, trace = exact_run(problem, tolerance=1e-7)
    assert trace[-1].within(1e-7)
    w = np.mean([a.z for a in agents], axis=0)
    W = problem.agents[0].feasible_set
    gradient = sum(np.asarray(a.objective.gradient(w)) for a in problem.agents)
    L = sum(a.objective.smoothness for a in problem.agents)
    np.testing.assert_allclose(W.project(w - gradient / L), w, atol=3e-6)


def test_server_and_agents_have_the_same_bits():
    """Through mixing, forgetting and changes of penalties, on coordinates in another order."""
    seen = set()

    def watch(server, agents):
        ours = server.iterate
        assert (ours.s == np.concatenate([a.iterate.s for a in agents])).all()
        assert (ours.penalty == np.concatenate([a.iterate.penalty for a in agents])).all()
        told = server.instructions
        seen.update(["mixing"] * bool(told.mixing) + ["factors"] * bool(told.factors))
        seen.update(["undo"] * told.undo)

    size = repeat(
        {"agents": 3, "shared": 6, "private": 2}, {"agents": 5, "shared": 9, "private": 3}
    )
    problem, group = random_quadratics(1, **size), np.arange(size["shared"]) % 2
    exact_run(problem, 60, 1e-12, watch, penalty=np.where(group, 1e3, 1e-3), group=group)
    assert seen == {"mixing", "factors", "undo"}


def test_acceleration_saves_rounds():
    problem = repeat(
        random_quadratics(5, agents=3, shared=6, private=0),
        random_quadratics(4, agents=6, shared=12, private=0),
    )
    accelerated, plain = (len(exact_run(problem, memory=m)[2]) for m in (10, 0))
    assert accelerated < 0.7 * plain


def wild(now, g):
    """Mixing numbers that a broken least-squares routine might give."""
    return 300.0 * np.random.default_rng(len(g)).normal(size=len(now.changes))


def test_a_bad_mixing_does_not_make_it_diverge(monkeypatch):
    problem = random_quadratics(2)
    monkeypatch.setattr(fixed_point, "mixing", wild)
    _, agents, trace = exact_run(problem, 300, 1e-6)
    assert trace[-1].within(1e-6)
    best = central(problem, lambda z: [z >= -1, z <= 1])
    assert value_of(problem, agents) == pytest.approx(best, rel=1e-3, abs=1e-4)
    for name in ("LONGEST_STEP", "ALLOWANCE", "SETBACK"):  # control: without the safeguards
        monkeypatch.setattr(fixed_point, name, np.inf)
    _, _, trace = exact_run(problem, repeat(60, 200), 1e-6)
    assert not trace[-1].within(1e-2)


def test_penalties_far_off_are_brought_into_balance():
    """1e-4 and 1e4 times the curvature: all copies agree at once there, and nothing has moved."""
    problem = random_quadratics(2)
    best = central(problem, lambda z: [z >= -1, z <= 1])
    for penalty in (1e-4, 1e4, 1e6):
        server, agents, trace = exact_run(problem, 200, 1e-5, penalty=penalty)
        assert trace[-1].within(1e-5)
        assert value_of(problem, agents) == pytest.approx(best, rel=1e-3)
    assert server.watch.changes >= 2
    server, _, _ = sides(problem, penalty=1e6)
    found = Residuals(0.0, 1.0, 0.0, 1.0, (1.0, 1.0), (np.zeros(1), np.zeros(1)))
    assert not server.converged(found, 1e-6)  # nothing is known of the way ahead
    near = dataclasses.replace(server, watch=Watch(ahead=(0.0,) * fixed_point.IN_A_ROW))
    assert near.converged(found, 1e-6)
    off = Watch(balance=(np.array([-3.0, 0.5]),))
    assert not off.balanced and off.factors() == (0.1, 1.0)
    assert Watch(balance=(np.array([0.5]),)).balanced


@pytest.mark.parametrize(("length", "undone"), [(1e-16, False), (1e-15, False), (1e-13, True)])
def test_rounding_is_no_setback(length, undone):
    s = np.full(5, 3.0)
    now = Iterate.start(s, np.full(5, 2.0), np.zeros(5, int), 3)
    watch = Watch(first=1.0, best=0.0, accelerated=1, mixed=True, ahead=(0.0,) * 3)
    instructions, after = watch.choose(now, np.full(5, length), np.zeros(5))
    assert instructions.undo is undone
    assert (after.ahead == Watch.ahead) is undone  # what is known of the way ahead is forgotten


def test_a_change_of_penalty_leaves_the_dual_as_it_is():
    rng = np.random.default_rng(0)
    s, w, z = rng.normal(size=(3, 5))
    group = np.array([0, 1, 0, 1, 1])
    now = Iterate.start(s, np.full(5, 2.0), group, 3)
    after = now.follow(w, z, Instructions(factors=(4.0, 0.5)))
    np.testing.assert_allclose(after.penalty, [8, 1, 8, 1, 1])
    np.testing.assert_allclose(after.penalty * (after.s - w), 2.0 * (s - z))
    assert after.last is None and not after.steps


def test_residuals_in_their_own_metrics():
    """By the formulas, with a penalty of its own for every coordinate: λ⁺ = ρ(s − z).

    Both parts are orthogonal, and make up the step.
    """
    problem, ρ = random_quadratics(3), np.array([1e-2, 1.0, 30.0, 1e3])
    server, *_ = sides(problem, penalty=ρ)
    z = np.random.default_rng(0).normal(size=len(server.index))
    following, found = server.receive(z)

    def mean(x):  # over the holders of each coordinate, for every copy
        return np.array([x[server.index == k].mean() for k in server.index])

    own = ρ[server.index]
    λ = own * (server.iterate.s - z)
    assert found.primal == pytest.approx(np.linalg.norm(z - mean(z)))
    assert found.size == pytest.approx(np.linalg.norm(mean(z)))
    assert found.dual == pytest.approx(np.linalg.norm(mean(λ) / np.sqrt(own)))
    assert found.dual_size == pytest.approx(np.linalg.norm(np.sqrt(own) * mean(z)))
    assert found.least == pytest.approx((np.sqrt(len(z)), np.sqrt(own.sum())))
    g = np.sqrt(own) * (following.iterate.s - server.iterate.s)  # a plain step
    assert sum(part @ part for part in found.parts) == pytest.approx(g @ g, rel=1e-12)
    assert not found.within(1e-3) and found.within(1e9)


@pytest.mark.parametrize(("times", "taken"), [(0.9, True), (1.1, False)])
def test_an_accelerated_step_is_not_far_from_the_plain_one(times, taken):
    """At most LONGEST_STEP ‖g‖, where nothing else forbids it."""
    ones, g = np.ones(3), np.array([1.0, 0.0, 0.0])
    length = times * fixed_point.LONGEST_STEP
    # g fell from 2 to 1 while s + g moved by ``length``: the secant says to go as far again
    now = Iterate(ones, ones, np.zeros(3, int), 3, (ones + g + length * g, 2 * g))
    told, watch = Watch(first=2.0, best=2.0).choose(now, ones + g, ones)
    assert bool(told.mixing) is watch.mixed is taken
    assert not told.undo and not told.factors


def test_a_step_that_is_undone_leaves_no_trace_in_an_agent():
    """Private coordinates too go on from where they were before it."""
    server, agents, mine = sides(random_quadratics(2))
    rng, (first, *_), held = np.random.default_rng(0), agents, mine[0]
    for _ in range(3):
        first = first.answer(rng.normal(size=len(server.w))[held], Instructions())
    w, after = rng.normal(size=(2, len(server.w)))
    far = first.answer(w[held], Instructions(mixing=(100.0,)))
    undone = far.answer(after[held], Instructions(undo=True))
    np.testing.assert_array_equal(undone.before, first.z)
    np.testing.assert_array_equal(undone.iterate.s, far.iterate.last[0])
    v, c = first.z.copy(), np.full(len(first.z), fixed_point.PRIVATE_WEIGHT)
    c *= min(undone.iterate.penalty.min(), undone.curvature)
    v[undone.held], c[undone.held] = undone.iterate.s, undone.iterate.penalty
    np.testing.assert_allclose(undone.z, undone.step(v, c), atol=1e-12)


def test_an_agent_does_not_follow_to_infinity():
    for wrong in ({"mixing": (np.nan,)}, {"mixing": (1e10,)}, {"factors": (0.0,)}):
        with pytest.raises(InvalidInput, match="Expected"):
            Instructions(**wrong)
    ones = np.ones(2)
    now = Iterate.start(ones, ones, np.zeros(2, int), 2)
    with pytest.raises(InvalidInput, match="for 0 remembered steps"):
        now.follow(ones, ones, Instructions(mixing=(1.0,)))
    two = Iterate.start(ones, ones, np.arange(2), 2)
    with pytest.raises(InvalidInput, match="a factor for every group"):
        two.follow(ones, ones, Instructions(factors=(2.0,)))
    assert two.follow(ones, ones, Instructions(factors=(2.0, 4.0))).penalty.tolist() == [2.0, 4.0]
    with pytest.raises(InvalidInput, match="targets up to 1e\\+100"):
        now.follow(np.array([1e101, 0.0]), ones, Instructions())
    with pytest.raises(InvalidInput, match="penalties from"):
        Iterate.start(ones, 0 * ones, np.zeros(2, int), 2)
