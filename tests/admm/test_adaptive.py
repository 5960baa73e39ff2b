"""Steps that adapt to what is public: the rule, alike everywhere, and better than by theory."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
from clinic import Willing
from conftest import problem_of, repeat

import tacit
from tacit.admm import adaptive
from tacit.admm.adaptive import MOST, RANGE, Pace, ground_of_consensus
from tacit.admm.algorithm import Holders, Round
from tacit.admm.settings import AdaptiveStep, Settings, step_size_from
from tacit.errors import InvalidInput, Refused
from tacit.lab.audit import lower_bounds
from tacit.privacy.accounting import exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.seeded_noise import agent_key, jax_key, root_key
from tacit.protocol.agent import Agent
from tacit.protocol.coordinator import Coordinator
from tacit.protocol.facts import described, facts_of
from tacit.protocol.messages import Broadcast, Own, answer_from
from tacit.protocol.participant import Participant, answer_bytes
from tacit.transports.local import Local

T = 12
BUDGET = Settings.for_budget(4.0, 1e-5, rounds=T)


def absolute(z, record):
    x, y = record
    return jnp.abs(x @ z - y)


def records(p, n=3):
    rng = np.random.default_rng(p)
    X = rng.uniform(-1, 1, (20, n))
    return X, X @ np.linspace(0.6, -0.3, n) + 0.05 * rng.normal(size=20)


def alike(agents=3, dtype=float):
    """Global consensus over a set whose coordinates differ in width."""
    W = tacit.Product([tacit.Box(-1.0, 1.0, 2), tacit.Box([-5.0], [5.0])])
    common = {"clip": 2.0, "size": 3, "normaliser": 60}
    return tacit.Problem(
        tacit.LocalProblem(
            tacit.PerSample(absolute, tuple(a.astype(dtype) for a in records(p)), **common), W
        )
        for p in range(agents)
    )


def partly(agents=3, dtype=float):
    """One coordinate in common, two of each agent's own."""
    common = {"clip": 2.0, "size": 3, "normaliser": 60}
    return tacit.Problem(
        tacit.LocalProblem(
            tacit.PerSample(absolute, tuple(a.astype(dtype) for a in records(p)), **common),
            tacit.Box(-2.0, 2.0, 3),
            coupling=[-1, 0, -1],
        )
        for p in range(agents)
    )


def solved(problem, settings=BUDGET, **how):
    return tacit.solve(problem, settings, seed=3, **how)


def test_the_rule_is_as_it_is_written():
    """Two agents, three rounds, by hand."""
    problem, seen = alike(2), []
    found = solved(problem, batch=False, callback=seen.append)
    D, P, n = np.array([2.0, 2.0, 10.0]), 2, 3
    σ2 = BUDGET.mechanism.variance(problem.agents[0].objective.sensitivity(2, None))
    z, λ, S = np.zeros((P, n)), np.zeros((P, n)), np.zeros((P, n))
    V, d, k = np.zeros(n), 0.003, max(0.0, np.sqrt(2 * np.log(2 * n)) - 1.5)
    for t, now in enumerate(seen, 1):
        d = min(MOST, max(d, (2 * (np.abs(z.mean(0)) - k * np.sqrt(V)) / D).max()))
        first = found.settings.step_size.gradient**2 * ((t == 1) + 1e-12)
        root = np.sqrt(T * σ2 + np.maximum(S, 0) + first)
        c = (root / (np.sqrt(P) * d * D * (1 - (t - 1) / T))).mean(0)
        w = (z - λ / (c / 2)).mean(0)
        np.testing.assert_allclose(now.consensus, w, rtol=1e-9, atol=1e-12)
        after = np.array(now.points)
        S += (z * c / 2 + c / 2 * w + λ - c * after) ** 2 - σ2
        V += σ2 / P / c**2
        λ += c / 2 * (w - after)
        z = after
        np.testing.assert_allclose(now.duals, λ, rtol=1e-7, atol=1e-9)
    assert d > 0.003  # it has grown


@pytest.mark.parametrize(("make", "batch"), [(partly, True), (alike, False)])
def test_a_resumed_run_has_the_same_bits(make, batch, tmp_path):
    problem, whole = make(), solved(make(), batch=batch)

    def stop(now):
        if now.round == 7:
            raise KeyboardInterrupt

    how = {"batch": batch, "checkpoint": tmp_path / "run.npz"}
    with pytest.raises(KeyboardInterrupt):
        solved(problem, callback=stop, **how)
    resumed = solved(problem, **how)
    np.testing.assert_array_equal(resumed.solution, whole.solution)
    for a, b in zip(resumed.local, whole.local, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("make", "dtype"), [(alike, np.float32), (partly, np.float64)])
def test_one_program_computes_what_agents_compute(make, dtype):
    one, many = (solved(make(dtype=dtype), batch=batch) for batch in (False, True))
    for a, b in zip(one.local, many.local, strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 if dtype == np.float64 else 2e-4)


class Bytes(Local):
    """As between organisations: every message as bytes."""

    own = False

    def ask(self, requests, deadline=None):
        each = self.each
        return {n: answer_from(answer_bytes(each[n], r.to_bytes())) for n, r in requests.items()}


def test_strangers_compute_the_same_bits_from_messages_alone(tmp_path):
    problem = partly()
    expected = solved(problem, batch=False)
    line, own = Bytes([], 1), Own("seeded", root_key(3), True, len(problem.agents))
    line.names, line.each = problem.names, {}
    for i, (name, part) in enumerate(zip(problem.names, problem.agents, strict=True)):
        ledger = Ledger.create(tmp_path / f"{i}.db", 4.0, 1e-4)
        line.each[name] = Participant(part, name, index=i, ledger=ledger, rules=Willing(part, own))
    found = Coordinator(line, BUDGET, seed=3, run="run").conduct()
    np.testing.assert_array_equal(found.solution, expected.solution)


def test_an_agent_with_a_ledger_goes_on_with_its_private_steps(tmp_path):
    problem = partly(2)
    settings = BUDGET.complete(problem)
    part, told = problem.agents[0], np.array([0.01, 3.0])

    def ask(agent, t):
        last = {"a": agent.last_digest}
        return agent.respond(Broadcast("run", t, np.array([0.1 * t]), last, told * t))

    def made(path):
        ledger = Ledger(path) if path.exists() else Ledger.create(path, 4.0, 1e-4)
        key = agent_key(jax_key(root_key(3)), "run", 0)
        return Agent(part, "a", settings, key, "run", 1, ledger=ledger, noise="seeded")

    whole, halves = made(tmp_path / "whole.db"), made(tmp_path / "halves.db")
    for t in (1, 2, 3):
        ask(whole, t)
        ask(halves, t)
    halves = made(tmp_path / "halves.db")  # as after a restart
    np.testing.assert_array_equal(halves.pace, whole.pace)
    np.testing.assert_array_equal(ask(halves, 4).primal, ask(whole, 4).primal)
    again = Broadcast("run", 4, np.array([0.4]), {"a": halves.last_digest}, told * 5)
    with pytest.raises(Refused):  # other steps are another question
        halves.respond(again)


HOSTILE = [[], [0.01], [0.01, 1.0, 1.0], [0.0, 1.0], [2.0, 1.0], [0.01, 0.0], [0.01, -1.0]]
HOSTILE += [[0.01, np.nan], [0.01, np.inf], [0.01, 1e300], [np.nan, 1.0], [[0.01, 1.0]]]


@pytest.mark.parametrize("told", [np.array(x) for x in HOSTILE] + ["ab", None, object()])
def test_steps_that_nobody_can_take_are_refused_before_data_are_touched(told, monkeypatch):
    problem = partly(2)
    agent = Agent(problem.agents[0], "a", BUDGET.complete(problem), None, "run", 1, noise="secure")
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with pytest.raises(Refused, match="steps"):
        agent.respond(Broadcast("run", 1, np.zeros(1), {}, told))
    assert agent.rounds_done == 0


def test_losses_of_scores_and_given_schedules_are_as_they_were():
    X, y = records(0)
    f = tacit.LeastSquares(X, y, feature_norm=2.0, target_bound=1.0, normaliser=60)
    scores = tacit.Problem([tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 3))])
    assert not isinstance(BUDGET.complete(scores).step_size, AdaptiveStep)
    for given in ({"step_size": 0.1}, {"penalty": 1.0}, {"local_updates": 2}):
        settings = Settings.for_budget(1.0, 1e-5, rounds=3, **given)
        assert not isinstance(settings.complete(alike()).step_size, AdaptiveStep)
    assert isinstance(BUDGET.complete(alike()).step_size, AdaptiveStep)
    near = Settings.for_budget(1.0, 1e-5, rounds=3, reach=0.1).complete(scores)
    assert near.step_size == AdaptiveStep(f.gradient_bound(scores.agents[0].feasible_set), 0.1, 0.0)
    assert step_size_from(near.step_size.to_dict()) == near.step_size
    assert Settings.from_dict(near.to_dict()) == near


@pytest.mark.parametrize("other", [{"step_size": 0.1}, {"local_updates": 2}, {"penalty": 2.0}])
def test_reach_decides_steps_alone(other):
    with pytest.raises(InvalidInput, match="reach"):
        Settings(3, reach=0.1, **other)


def test_known_reach_is_kept():
    problem, settings = alike(), Settings.for_budget(4.0, 1e-5, rounds=T, reach=0.05)
    settings = settings.complete(problem)
    known = ground_of_consensus(problem, settings)
    pace = Pace.first(9, 3, settings)
    holders = Holders.of([np.arange(3)] * 3, 3, float)
    far = adaptive.consensus_steps(pace, known, np.full(9, 0.9), 5, holders)
    assert far[0] == 0.05 and ((far[1] > RANGE[0]) & (far[1] < RANGE[1])).all()


def test_many_configurations_are_each_what_solve_gives():
    """Each with steps by its own noise."""
    each = [Settings.for_budget(e, 1e-5, rounds=T) for e in (1.0, 8.0)]
    _, found = tacit.solve_many(alike(), each, [3, 3])
    np.testing.assert_allclose(found.solution, solved(alike(), each[1]).solution, atol=1e-10)
    with pytest.raises(InvalidInput, match="reach"):
        near = Settings.for_budget(1.0, 1e-5, rounds=T, reach=0.1)
        tacit.solve_many(alike(), [each[0], near], [3, 3])


def test_what_is_left_is_bounded_and_said(tmp_path):
    """Against the optimum by linear programming, in a run that is too short and in one that is not;
    the same of agents one by one, of one program, and in the saved result."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 3))
    y = X @ [0.5, -0.2, 0.1] + 0.05 * rng.normal(size=600)
    z, r = cp.Variable(3), cp.Variable(600)
    best = cp.Problem(cp.Minimize(cp.norm1(r) / 600), [r == y - X @ z, cp.abs(z) <= 2]).solve()
    common = {"clip": 1.8, "size": 3, "normaliser": 600}
    problem = tacit.Problem(
        tacit.LocalProblem(
            tacit.PerSample(absolute, (X[p::2], y[p::2]), **common), tacit.Box(-2.0, 2.0, 3)
        )
        for p in range(2)
    )
    for rounds, finished in ((4, False), (150, True)):
        settings = Settings.for_budget(20.0, 1e-5, rounds=rounds)
        found = tacit.solve(problem, settings, seed=1)
        late = found.trace["objective"][rounds // 2 :].mean()
        assert found.gap.finished is finished
        assert found.gap.bound > late - best
        assert ("Not finished" in repr(found)) is not finished
        assert "if no gradient was clipped" in str(found.gap)
    alone = tacit.solve(problem, settings, seed=1, batch=False)
    assert alone.gap.bound == pytest.approx(found.gap.bound, rel=1e-9)
    assert tacit.Result.load(found.save(tmp_path / "out")).gap == found.gap


@pytest.mark.parametrize("batch", [True, False])
def test_what_is_left_where_agents_keep_coordinates(batch):
    """Against the optimum in one place, which is another method; too short, and not."""
    problem = partly()
    best = tacit.solve(problem, Settings(400, tolerance=1e-6))
    least = problem.value(best.solution, best.local)
    for rounds, finished in ((4, False), (150, True)):
        settings = Settings.for_budget(100.0, 1e-5, rounds=rounds)
        found = solved(problem, settings, batch=batch)
        late = found.trace["objective"][rounds // 2 :].mean()
        assert found.gap.finished is finished
        assert found.gap.bound > late - least > 0


def product(z, x):
    return x @ z


def canary_runs(trials, multiplier, T=4):
    """Of so many runs without and with a record, Σ_t of the gradient that each step has shown along
    the record's own: what an adversary who sees all messages makes of them."""
    found = []
    for there in (0, 1):
        data = np.array([[0.0, 1.0]] + there * [[1.0, 0.0]])
        f = tacit.PerSample(product, data, clip=1.0, size=2, normaliser=2, record_bound=2)
        problem = tacit.Problem([tacit.LocalProblem(f, tacit.Box(-50.0, 50.0, 2))])
        law = tacit.Gaussian(multiplier)
        settings = Settings(T, mechanism=law, delta=0.01).complete(problem)
        seen, seeds = [np.zeros((trials, 2))], list(range(there * trials, (1 + there) * trials))
        keep = lambda t, z, rows, seen=seen: seen.append(z)  # noqa: E731
        tacit.solve_many(problem, [settings] * trials, seeds, evaluate_every=1, callback=keep)
        ground, scores = ground_of_consensus(problem, settings), []
        holders = Holders.of([np.arange(2)], 2, float)
        for points in np.stack(seen, axis=1):
            pace, λ, score = Pace.first(2, 2, settings), np.zeros(2), 0.0
            for t in range(1, T + 1):
                z, after = points[t - 1], points[t]
                reach, c = adaptive.consensus_steps(pace, ground, z, t, holders)
                w = z - λ / (c / 2)
                now = Round(np.float64(t), w, λ, c / 2, 2 / c)
                score += adaptive._shown(now, 1.0, z, after)[0]
                about = pace, ground, reach, now, z, after, holders
                pace, λ = adaptive.consensus_learned(*about), λ + c / 2 * (w - after)
            scores.append(score)
        found.append(np.array(scores))
    return found


def test_an_audit_of_adaptive_runs_finds_no_more_than_is_claimed():
    """And finds a part of what is claimed, and half of the noise."""
    trials, about = repeat(300, 20_000), (tacit.Gaussian(2.0), 4, 0.01)
    claim, found = exact(*about).epsilon, []
    for multiplier in (2.0, 1.0):
        scores = [world[None] for world in canary_runs(trials, multiplier)]
        shown = lower_bounds(*scores, ["score"], *about)
        found.append(max(shown.free, shown.curve))
    assert 0.2 * claim < found[0] <= claim < found[1]  # half the noise is for another claim


def told(problem):
    """The problem as rank 0 of a cluster knows it."""
    pairs = zip(problem.agents, problem.names, strict=True)
    return described([facts_of(agent, name) for agent, name in pairs])


def test_of_ranks_that_are_elsewhere_facts_will_do():
    problem, expected = alike(), solved(alike(), batch=False)
    found = Coordinator(Local.of(problem), BUDGET, known=told(problem), seed=3).conduct()
    np.testing.assert_array_equal(found.solution, expected.solution)
    assert found.gap is None  # nobody here knows the set


def test_exact_steps_of_ranks_that_are_elsewhere_are_theirs():
    problem, settings = problem_of("residual", "polyhedron"), Settings(40, tolerance=1e-3)
    expected = tacit.solve(problem, settings)
    found = Coordinator(Local.of(problem), settings, known=told(problem)).conduct()
    np.testing.assert_array_equal(found.solution, expected.solution)


@pytest.mark.parametrize("T", [1, 4, 5])
def test_a_gap_is_of_the_second_half_of_the_rounds(T):
    """Sums over as many rounds as ``gap_of`` divides them by."""
    problem, one = alike(), np.ones(1)
    settings = Settings.for_budget(1.0, 1e-5, rounds=T).complete(problem)
    known = ground_of_consensus(problem, settings)
    index = np.concatenate([np.asarray(agent.coupling) for agent in problem.agents])
    holders = Holders.of([np.asarray(a.coupling) for a in problem.agents], problem.size, float)
    pace, z = Pace.first(len(index), problem.size, settings), np.ones(len(index))
    for t in range(1, T + 1):
        now = Round(t, 0.0, 0.0, one, one)  # g = z/η + ρw + λ − (1/η + ρ)z' = 1 at z' = 0
        pace = adaptive.consensus_learned(pace, known, pace.reach, now, z, 0 * z, holders)
    half = T - T // 2
    np.testing.assert_allclose(pace.pull, half * len(problem.agents))
    assert pace.inner == pytest.approx(half * len(index))
