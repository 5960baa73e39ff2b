"""Agents that differ: every public number of a run is of all of them, not of the first.

What is largest, smallest, a sum or a doubt is compared with a formula here, in both orders.
"""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import problem_of

import tacit
from tacit import planning
from tacit.admm.settings import Asked
from tacit.planning import Known, Plan, noise_energy, penalties_of, plan
from tacit.privacy.accounting import calibrate
from tacit.protocol.statement import (
    PrivacyStatement,
    privacy_statement,
    release_statement,
    why_uncertified,
    with_releases,
)

ORDERS = pytest.mark.parametrize("turned", [False, True])
LAW = tacit.Gaussian(3.0)


def in_order(agents, turned):
    return tacit.Problem(agents[::-1] if turned else agents)


def residual(name, rows, beta, size=3, **about):
    """Of which the first coordinate is everybody's, the others its own."""
    f = tacit.Residual(np.ones((rows, size)), np.zeros(rows), beta, **about)
    own = [0, *[-1] * (size - 1)]
    return tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, size=size), own, name)


def renamed(agent, name):
    return tacit.LocalProblem(agent.objective, agent.feasible_set, name=name)


def squares(name, records, B=1.0, radius=1.0, d=3, normaliser=100.0, **about):
    f = tacit.LeastSquares(
        np.zeros((records, d)),
        np.zeros(records),
        feature_norm=B,
        target_bound=1.0,
        normaliser=normaliser,
        record_bound=records,
        **about,
    )
    return tacit.LocalProblem(f, tacit.Ball(0.0, radius, d), name=name)


@ORDERS
def test_the_energy_of_a_release_is_a_sum_over_agents(turned):
    problem = in_order([residual("a", 2, 0.1), residual("b", 5, 0.7)], turned)
    energy = {
        tacit.Gaussian: 9 * (2 * 0.1**2 + 5 * 0.7**2),
        tacit.Laplace: 18 * (2 * 0.1**2 + 5 * 0.7**2),
    }
    for law, expected in energy.items():
        assert noise_energy(problem, law(3.0)) == pytest.approx(expected, rel=1e-6)


def test_where_penalties_of_exact_steps_start():
    problem, exact = problem_of("residual", "box"), tacit.Settings(5, tolerance=1e-3)
    for curvatures, mean in (([1.0, 3.0], 2.0), ([math.inf, 4.0], 4.0), ([math.inf], 1.0)):
        penalty, group = penalties_of(problem, exact, curvatures)
        np.testing.assert_allclose(penalty, np.full(4, 0.3 * mean))
        assert group.tolist() == [0] * 4
    np.testing.assert_allclose(penalties_of(problem, exact, [0.0, 0.0])[0], np.ones(4))
    own = np.array([1.0, 100.0, 1.0, 100.0]), np.array([0, 1, 0, 1])
    problem = tacit.Problem(problem.agents, own)
    np.testing.assert_array_equal(penalties_of(problem, exact, [7.0]), own)
    given = dataclasses.replace(exact, penalty=5.0)  # the geometric mean of what there is is 10
    penalty, group = penalties_of(problem, given, [7.0])
    np.testing.assert_allclose(penalty, own[0] / 2)
    assert group is problem.penalties[1]


@ORDERS
def test_one_release_is_compared_over_all_agents(turned, monkeypatch):
    """√Σ of both sides; each agent has another curvature, noise and size."""
    agents = [squares("a", 10, B=1.0), squares("b", 60, B=1.0, neighbours="replace")]
    problem, budget = in_order(agents, turned), Asked(1.0, 1e-5, "gaussian")
    one, many = (calibrate("gaussian", 1.0, 1e-5, T) for T in (1, planning.COMPARED))
    each = []
    for agent in agents:
        statistics, f = agent.objective.statistics(), agent.objective
        σ = one.noise_multiplier * statistics.sensitivity(2)
        Δ = f.sensitivity(2, agent.feasible_set)
        each.append(
            (statistics.gradient_deviation(σ, agent.feasible_set), many.noise_multiplier * Δ)
        )
    once, rounds = (math.sqrt(sum(x * x for x in part)) for part in zip(*each, strict=True))
    ratio = once / (rounds / math.sqrt(planning.COMPARED))
    assert not any(math.isclose(ratio, a / (b / 10), rel_tol=0.01) for a, b in each)
    assert f"({ratio:.2g} times" in plan(problem, budget).reason
    # whether X'X drowns: the noise of the sum of all, in both orders at the limit
    f = agents[0].objective
    total = sum(one.variance(a.objective.statistics().sensitivity(2)) for a in agents)
    signal = f.normaliser * f.feature_bound(2) ** 2 / f.dimension
    edge = signal / math.sqrt(2 * f.dimension * total)  # how much noisier it would be at the limit
    pairs = [(a.objective.statistics(), a) for a in problem.agents]
    for factor, drowned in ((1.01, True), (0.99, False)):
        law = tacit.Gaussian(one.noise_multiplier * edge * factor)
        assert planning._drowned(pairs, law) is drowned


@ORDERS
def test_the_most_columns_of_any_agent_decide(turned, monkeypatch):
    monkeypatch.setattr(planning, "MOST_COLUMNS", 3)
    narrow, wide = squares("a", 9), squares("b", 9, d=4)
    narrow = tacit.LocalProblem(narrow.objective, narrow.feasible_set, [0, 1, 2], "a")
    wide = tacit.LocalProblem(wide.objective, wide.feasible_set, [0, 1, 2, -1], "b")
    assert "4 columns" in plan(in_order([narrow, wide], turned), Asked(1.0, 1e-5)).reason


@ORDERS
@pytest.mark.parametrize("way", ["reach", "curvature", "longest"])
def test_steps_are_planned_by_the_largest_of_each(way, turned, monkeypatch):
    """One number of the second agent alone is another: plans are those of two such agents."""
    from tacit.objectives.objective import Descent

    usual = {"curvature": 2.0, "reach": 1.0, "longest": 10.0}
    other = usual | {way: 1.0 if way == "longest" else 5.0}
    agents = problem_of("logistic", "box").agents
    agents = [renamed(a, name) for a, name in zip(agents, "ab", strict=True)]
    told = dict(zip("ab", (Descent(**usual), Descent(**other)), strict=True))
    kind = type(agents[0].objective)
    named = {id(a.objective): a.name for a in agents}
    monkeypatch.setattr(kind, "descent", property(lambda f: told[named[id(f)]]))
    problem, asked = in_order(agents, turned), Asked(1.0, 1e-5, way="rounds")
    assert planning.descent_of(problem) == Descent(**other)
    known = plan(problem, asked, Known(Descent(**other)))
    assert plan(problem, asked) == known
    told["b"] = None
    assert planning.descent_of(problem) is None
    told["b"] = Descent(**other)
    few = tacit.LocalProblem(agents[1].objective, agents[1].feasible_set, [0, 1, 2, -1], "b")
    assert planning.descent_of(in_order([agents[0], few], turned)) is None


@ORDERS
def test_the_noisiest_agent_shortens_the_path(turned):
    agents = [
        tacit.LocalProblem(
            tacit.LogisticRegression(
                np.zeros((n, 3)),
                np.zeros(n, int),
                feature_norm=1.0,
                normaliser=4000.0,
                neighbours=relation,
            ),
            tacit.Box(-9.0, 9.0, size=3),
            name=relation,
        )
        for n, relation in ((2000, "zero-out"), (2000, "replace"))
    ]
    asked = Asked(1.0, 1e-5, way="rounds")
    found = plan(in_order(agents, turned), asked).settings
    same = plan(tacit.Problem([agents[1], renamed(agents[1], "c")]), asked).settings
    quiet = plan(tacit.Problem([agents[0], renamed(agents[0], "c")]), asked).settings
    assert found == same != quiet


@ORDERS
def test_a_doubt_about_one_agent_is_one_about_the_run(turned, monkeypatch):
    problem = in_order(
        [residual("a", 2, 0.1), residual("b", 2, 0.1, doubt="it is a test.")], turned
    )
    settings = tacit.Settings(2, 1, LAW, 1e-5)
    for said in (
        release_statement(problem, LAW, 1e-5, False, True),
        privacy_statement(problem, settings, False),
    ):
        assert said.uncertified == "it is a test." and not said.certified
    sure = in_order([residual("a", 2, 0.1), residual("b", 2, 0.1)], turned)
    assert release_statement(sure, LAW, 1e-5, False, True).certified
    second = sure.agents[1].objective
    monkeypatch.setattr(
        type(second), "uncertified_on", lambda f, device: "device" if f is second else ""
    )
    assert why_uncertified(sure.agents, settings) == "device"


@ORDERS
def test_a_statement_lists_every_agent_once_with_what_is_hidden_of_it(turned):
    agents = [residual("a", 2, 0.1), residual("b", 2, 0.2), residual("c", 3, 0.1)]
    problem = in_order(agents, turned)
    statement = privacy_statement(problem, tacit.Settings(2, 1, LAW, 1e-5), False)
    found = statement.neighbours
    said = {name: change for change, names in found for name in names}
    assert said == {a.name: a.objective.neighbours for a in agents}
    assert sum(len(names) for _, names in found) == 3 and len(found) == 2
    assert all(change in statement.words for change in said.values())
    assert [names for _, names in found if len(names) > 1] == [("c", "a") if turned else ("a", "c")]


@ORDERS
def test_secure_noise_that_was_paid_again_counts_the_widest_message(turned):
    """ε at the distance of the agent with most numbers."""
    from tacit.privacy.accounting import epsilon_of
    from tacit.privacy.secure_noise import largest_distance

    problem = in_order([residual("a", 2, 0.1), residual("b", 4000, 0.1)], turned)
    settings = tacit.Settings(3, 2, LAW, 1e-5)
    exact = epsilon_of([(LAW, 8)], 1e-5)
    far = epsilon_of([(LAW, 8)], 1e-5, 8 * largest_distance(LAW, 4000))
    near = epsilon_of([(LAW, 8)], 1e-5, 8 * largest_distance(LAW, 2))
    assert exact < near < far
    assert privacy_statement(problem, settings, False, True, 8).epsilon == far
    assert privacy_statement(problem, settings, False, True, 7).epsilon > epsilon_of(
        [(LAW, 7)], 1e-5
    )
    assert privacy_statement(problem, settings, False, True, 6).epsilon == epsilon_of(
        [(LAW, 6)], 1e-5
    )
    assert privacy_statement(problem, settings, False, False, 8).epsilon == exact


def test_a_total_with_a_reading_before_it_counts_both_with_their_distances():
    from tacit.privacy.accounting import epsilon_of
    from tacit.privacy.mechanisms import share_of
    from tacit.privacy.secure_noise import largest_distance

    first, rounds = tacit.Gaussian(7.0), tacit.Gaussian(5.0)
    run = PrivacyStatement(1.0, 1e-5, "gaussian", 6, (("x", ("a",)),), False, secure=True)
    parts = [(first, 1), (rounds, 6)]
    distance = 6 * largest_distance(rounds, 9) + largest_distance(first, 400)
    found = with_releases(run, rounds, 9, [(first, 1, 400)], "words")
    assert found.epsilon == epsilon_of(parts, 1e-5, distance) and found.before == "words"
    plain = with_releases(
        dataclasses.replace(run, secure=False), rounds, 9, [(first, 1, 400)], "words"
    )
    assert plain.epsilon == epsilon_of(parts, 1e-5) < found.epsilon
    open_ = with_releases(run, rounds, 9, [(tacit.Noiseless(), 1, 400)], "words")
    assert open_.epsilon == math.inf and not open_.certified and open_.before == "words"
    assert with_releases(run, tacit.Noiseless(), 9, [(first, 1, 400)], "words") is run
    parts, own = [(first, 1), (rounds, 6)], [(share_of(first, 3), 1), (share_of(rounds, 3), 6)]
    of_sums = dataclasses.replace(run, secure=False, parties=4, colluding=1, alone=1.5)
    found = with_releases(of_sums, rounds, 9, [(first, 1, 400)], "words")
    assert (found.epsilon, found.alone) == (epsilon_of(parts, 1e-5), epsilon_of(own, 1e-5))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # (settings' rounds, tolerance, E, mechanism, delta), release, whether there is a reason
        (Asked(), ((1000, 1e-6, 1), None, False)),
        (Asked(rounds=7, others={"tolerance": 1e-3}), ((7, 1e-3, 1), None, False)),
        (Asked(way="rounds"), ((300, None, 5), None, False)),
        (Asked(way="rounds", rounds=7, others={"local_updates": 2}), ((7, None, 2), None, False)),
        (Asked(epsilon=0.5, delta=1e-4), ((20, None, 1), None, True)),
        (Asked(epsilon=0.5, mechanism="laplace"), ((20, None, 1), None, True)),
        (Asked(1.0, 1e-5, "laplace", rounds=9), ((9, 1e-4, 1), tacit.Laplace, True)),
        (Asked(1.0, 1e-5, "gaussian"), ((1000, 1e-4, 1), tacit.Gaussian, True)),
        (Asked(1.0, 0.0), ((1000, 1e-4, 1), tacit.Laplace, True)),
        (Asked(1.0, 1e-5, others={"tolerance": 1e-2}), ((1000, 1e-2, 1), tacit.Laplace, True)),
        (Asked(1.0, 1e-5, others={"local_updates": 1}), ((1000, 1e-4, 1), tacit.Laplace, True)),
        (Asked(1.0, 1e-5, others={"local_updates": 2}), ((200, None, 2), None, True)),
        (Asked(1.0, 1e-5, others={"step_size": 0.1}), ((200, None, 1), None, True)),
        (Asked(1.0, 1e-5, others={"calibration": "paper"}), ((200, None, 1), None, True)),
        (Asked(1.0, 1e-5, others={"perturbation": "output"}), ((200, None, 1), None, True)),
    ],
    ids=str,
)
def test_what_is_asked_for_is_planned(asked, expected):
    """A table of all ways to ask, of loads that one release serves best."""
    problem = tacit.Problem([residual("a", 2, 0.1), residual("b", 2, 0.1)])
    (rounds, tolerance, E), release, reason = expected
    found = plan(problem, asked)
    s = found.settings
    assert (s.rounds, s.tolerance, s.local_updates) == (rounds, tolerance, E)
    assert (found.release and type(found.release)) is release
    assert bool(found.reason) is reason
    assert found.delta == (asked.total_delta if release else s.delta)
    if asked.epsilon is not None:
        assert s.delta == (asked.delta or 0.0)
        assert s.mechanism == (
            tacit.Laplace(2.0) if asked.mechanism else tacit.Gaussian.analytic(0.5, 1e-4)
        )
    elif asked.total_epsilon is None:
        assert isinstance(s.mechanism, tacit.Noiseless)
    elif release is None:
        assert s.mechanism == calibrate("gaussian", 1.0, 1e-5, rounds * E)
        for name, value in asked.others.items():
            got = getattr(s, name)
            assert got == value or got.value == value
    else:
        assert found.release == calibrate(release.name, 1.0, asked.total_delta, 1)
        assert ("adds least" in found.reason) == (asked.mechanism is None)
        if asked.mechanism is None:
            assert f"{release.name.capitalize()} noise adds least" in found.reason


def test_what_an_application_knows_gives_way_to_what_is_asked():
    problem = tacit.Problem([residual("a", 2, 0.1)])
    known = Known(rounds=11, tolerance=lambda problem, noise: 0.02, reason="Loads.")
    found = plan(problem, Asked(1.0, 1e-5, way="release"), known)
    assert found.settings.tolerance == 0.02 and "0.02" in found.reason
    assert found.reason.startswith("Loads.")
    asked = Asked(1.0, 1e-5, way="release", others={"tolerance": 1e-3})
    found = plan(problem, asked, known)
    assert found.settings.tolerance == 1e-3 and "far below" not in found.reason
    assert plan(problem, Asked(epsilon=1.0, delta=1e-5), known).settings.rounds == 11
    assert plan(problem, Asked(epsilon=1.0, delta=1e-5, rounds=3), known).settings.rounds == 3
    chosen = Plan(tacit.Settings(2), None, 1e-3, "mine")
    assert plan(problem, chosen) is chosen
    given = tacit.Settings(2, 1, LAW, 1e-4)
    assert plan(problem, given) == Plan(given, None, 1e-4, "")
    with pytest.raises(tacit.InvalidInput, match="SimpleNamespace"):
        plan(problem, SimpleNamespace())
