"""The plan: bounded noise, from public numbers only."""

import math

import numpy as np
import pytest
from conftest import repeat

import tacit
from tacit.admm.settings import Asked
from tacit.learn import PrivateLogisticRegression
from tacit.learn.classifiers import Planned, planned_clip, planned_share
from tacit.learn.estimators import prepare
from tacit.planning import DEVIATION, SHORT_PATH, UPDATES
from tacit.planning import plan as planned
from tacit.privacy.accounting import calibrate
from tacit.protocol.facts import described, facts_of
from tacit.protocol.messages import answer_from


def problem_of(records, agents, classes=10, features=20, B=1.0):
    rng = np.random.default_rng(0)
    n = records // agents
    return tacit.Problem(
        tacit.LocalProblem(
            tacit.SoftmaxRegression(
                rng.normal(size=(n, features)),
                rng.integers(0, classes, n),
                classes,
                feature_norm=B,
                normaliser=records,
                record_bound=n,
            ),
            tacit.Box(-8 / B, 8 / B, size=features * classes),
        )
        for _ in range(agents)
    )


def plan(problem, epsilon, delta, **others):
    return planned(problem, Asked(epsilon, delta, others=others, way="rounds")).settings


def first_step(settings):
    """Of the average over agents."""
    return 1 / (1 / settings.step_size(0) + settings.penalty(1))


@pytest.mark.parametrize("local_updates", [None, 5])
@pytest.mark.parametrize(("records", "agents"), [(400, 4), (4000, 4), (4000, 40)])
def test_the_plan_bounds_the_noise_of_a_score(records, agents, local_updates):
    """B s σ √(U/P) is DEVIATION, and the first step not beyond what is stable."""
    problem = problem_of(records, agents)
    for epsilon in (0.5, 2.0, 8.0):
        settings = plan(problem, epsilon, 1e-5, local_updates=local_updates)
        agent = problem.agents[0]
        σ = math.sqrt(
            settings.mechanism.variance(agent.objective.sensitivity(2, agent.feasible_set))
        )
        noise = first_step(settings) * σ * math.sqrt(settings.updates / agents)
        path = first_step(settings) * settings.updates * agent.objective.descent.curvature
        # where there is little to learn, less: as much less as the path is shorter than SHORT_PATH
        wanted = DEVIATION * min(1, math.sqrt(path / SHORT_PATH))
        assert noise == pytest.approx(wanted, rel=0.01)
        assert UPDATES[0] <= settings.updates <= UPDATES[1]
        assert first_step(settings) * agent.objective.descent.curvature <= 10 * (1 + 1e-9)


def test_steps_stay_stable_where_the_data_outweigh_the_noise():
    """A budget of no use to anyone: the path ends at stable steps, not at DEVIATION."""
    problem = problem_of(40_000, 2, classes=2)
    settings = plan(problem, 200.0, 1e-3)
    assert settings.updates == UPDATES[1]
    f = problem.agents[0].objective
    assert first_step(settings) * f.descent.curvature == pytest.approx(10)


def test_steps_do_not_diverge_where_records_are_many_and_columns_few():
    """Five columns that are alike and labels that are noisy: without noise 32.3 % of errors. Steps
    of 30/L₀, to which they once grew, had 43 %."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24_000, 5)) * np.exp(-0.3 * np.arange(5))
    X = X @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    score = X @ rng.normal(size=5)
    y = rng.random(len(X)) < 1 / (1 + np.exp(-score / score.std()))
    X /= X.std(axis=0)  # in earnest: by public numbers
    model = PrivateLogisticRegression(16.0, 1e-5, feature_norm=math.sqrt(5), random_state=0)
    model.fit(X[:20_000], y[:20_000])
    X, y, score = X[20_000:], y[20_000:], score[20_000:]
    assert 1 - model.score(X, y) < np.mean((score > 0) != y) + 0.01


def test_one_planner():
    """A budget alone, the learn room, and a server that knows only facts: the same settings."""
    problem = problem_of(400, 4)
    chosen = planned(problem, Asked(1.0, 1e-5))
    assert chosen.settings == plan(problem, 1.0, 1e-5)
    assert "200 rounds of one update" in chosen.reason and "3.5" in chosen.reason
    facts = [
        answer_from(facts_of(agent, name).to_bytes())
        for agent, name in zip(problem.agents, problem.names, strict=True)
    ]
    assert planned(described(facts), Asked(1.0, 1e-5)) == chosen
    asked = Asked(1.0, 1e-5, others={"local_updates": 3})
    assert planned(problem, asked).settings == plan(problem, 1.0, 1e-5, local_updates=3)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_slope_limit_shortens_the_step_no_less_than_the_noise(classes):
    """A limit a tenth as long: a tenth of the noise, ten times the path, in steps ten times longer
    (L₀ is a tenth too)."""
    rows, labels = np.zeros((4, 3)), np.zeros(4, int)

    def settings(limit):
        kind = tacit.LogisticRegression if classes == 2 else tacit.SoftmaxRegression
        extra = () if classes == 2 else (classes,)
        f = kind(rows, labels, *extra, feature_norm=1.0, normaliser=1000, clip=limit)
        outputs = 1 if classes == 2 else classes
        box = tacit.Box(-9.0, 9.0, size=3 * outputs)
        return plan(tacit.Problem([tacit.LocalProblem(f, box)]), 1.0, 1e-5)

    wide, narrow = settings(0.4), settings(0.04)
    assert narrow.rounds == wide.rounds
    assert first_step(narrow) == pytest.approx(10 * first_step(wide), rel=1e-3)


@pytest.mark.parametrize("classes", [2, 6])
def test_a_wider_limit_for_few_classes_where_data_are_plenty(classes):
    """From public numbers: few records 0.6, many no limit; more than six classes 0.1."""
    cases = [(classes, 30, 3, 500), (classes, 10, 3, 6000), (classes, 10, 3, 10**6)]
    few, more, none, many = (
        planned_clip(K, Planned(*case, 1.0, 1e-5)) for K, *case in (*cases, (7, 30, 3, 10**6))
    )
    assert few == 0.6 < more < math.sqrt(2) and none is None and many == 0.1


def test_unequal_agents_have_as_many_more_updates_as_the_largest_has_records():
    """Steps are as short as the largest needs: a share of 60 % of five is three times L₀."""
    rng = np.random.default_rng(0)
    X, y = np.zeros((2000, 3)), rng.integers(0, 2, 2000)
    updates, paths = [], []
    for agents in (np.arange(2000) % 5, np.repeat(range(5), [1200, 400, 200, 100, 100])):
        model = PrivateLogisticRegression(200.0, 1e-3, keep_length=False)
        _, settings = prepare(model, X, y, agents, seed=0)
        updates.append(settings.updates)
        paths.append(first_step(settings) * settings.updates)
    assert updates == [UPDATES[1], 3 * UPDATES[1]]
    assert paths[1] == pytest.approx(paths[0])


@pytest.mark.parametrize(
    ("law", "delta", "little", "much", "between"),
    [
        ("gaussian", 1e-5, (392, 10, 60_000), (64, 10, 1347), (64, 10, 5000)),
        ("laplace", 0.0, (16, 4, 100_000), (64, 10, 6000), (16, 4, 10_000)),
    ],
)
def test_a_mean_takes_no_more_of_the_budget_than_it_needs(law, delta, little, much, between):
    """Its noise is a tenth of a row's length, for a share from 0.02 to 0.1; Laplace noise is paid
    for in the L1 norm, and in proportion to 1/share."""
    assert planned_share(Planned(*little, 1.0, delta, law)) == 0.02
    assert planned_share(Planned(*much, 1.0, delta, law)) == 0.1
    share = planned_share(Planned(*between, 1.0, delta, law))
    columns, agents, records = between
    assert 0.02 < share < 0.1
    if law == "laplace":
        variance = 2 * columns / share**2  # of a sum's entry: √2·Δ_1/ε
    else:
        variance = calibrate(law, 1.0, delta, 1).variance(1.0) / share
    assert math.sqrt(variance * columns * agents) / records == pytest.approx(0.1)


@pytest.mark.parametrize("loss", repeat([{"threshold": 0.5}], [{}, {"threshold": 0.5}]))
def test_a_ridge_shortens_the_steps(rng, loss):
    """It curves f as the data do: steps stay stable, whatever it is."""
    kind = tacit.Huber if loss else tacit.LeastSquares
    public = {"normaliser": 80, "record_bound": 40, "neighbours": "zero-out", "feature_norm": 1.0}
    for ridge in (0.0, 1000.0):
        f = kind(
            rng.normal(size=(40, 3)),
            rng.normal(size=40),
            target_bound=1.0,
            ridge=ridge,
            **public,
            **loss,
        )
        box = tacit.Box(-5, 5, size=3)
        problem = tacit.Problem([tacit.LocalProblem(f, box, name=name) for name in "ab"])
        settings = planned(problem, Asked(30.0, 1e-5, way="rounds")).settings
        assert settings.step_size is not None
        step = 1 / (settings.step_size.smoothness + settings.penalty.value)
        assert step * f.smoothness <= 2
        if ridge:
            assert np.abs(tacit.solve(problem, settings, seed=0).solution).max() < 0.1


def test_the_plan_does_not_depend_on_units():
    """Features and norms ten times larger: the same rounds, steps a hundredth."""
    a, b = (plan(problem_of(4000, 4, B=B), 2.0, 1e-5) for B in (1.0, 10.0))
    assert (a.rounds, a.mechanism) == (b.rounds, b.mechanism)
    assert first_step(b) == pytest.approx(first_step(a) / 100, rel=0.05)
