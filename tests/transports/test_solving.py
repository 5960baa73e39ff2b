"""The driver: determinism, entropy, callbacks, traces, problems that do not fit together."""

import dataclasses
import gc
import itertools
import threading
import time

import numpy as np
import pytest
from conftest import problem_of, repeat

import tacit
from tacit.admm.settings import NonsmoothStep, StronglyConvexStep
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast
from tacit.transports import local
from tacit.transports.batched import _compiled

SETTINGS = tacit.Settings(12, 2, tacit.Gaussian(3.0), penalty=tacit.ConstantPenalty(0.3))


def same(a, b):
    np.testing.assert_array_equal(a.solution, b.solution)
    np.testing.assert_array_equal(a.ergodic, b.ergodic)
    for name in a.trace:
        np.testing.assert_array_equal(a.trace[name], b.trace[name])
    for x, y in zip(a.local, b.local, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("feasible", ["box", "polyhedron"])
def test_same_seed_same_result_bit_for_bit(feasible):
    problem = problem_of("logistic", feasible)
    same(tacit.solve(problem, SETTINGS, seed=4), tacit.solve(problem, SETTINGS, seed=4))
    other = tacit.solve(problem, SETTINGS, seed=5)
    assert np.abs(other.solution - tacit.solve(problem, SETTINGS, seed=4).solution).max() > 1e-6


@pytest.mark.parametrize(("worth", "apart"), [(0.0, True), (np.inf, False)])
def test_only_answers_that_take_long_are_worth_a_thread(worth, apart, monkeypatch):
    problem, threads = problem_of("residual", "polyhedron"), set()
    expected = tacit.solve(problem, SETTINGS, seed=4, workers=1)
    respond = Agent.respond

    def watched(*given):
        threads.add(threading.get_ident())
        return respond(*given)

    monkeypatch.setattr(Agent, "respond", watched)
    monkeypatch.setattr(local, "WORTH_A_THREAD", worth)
    same(tacit.solve(problem, SETTINGS, seed=4, workers=2), expected)
    assert (threads == {threading.get_ident()}) is not apart


def test_a_quick_round_does_not_end_threads(monkeypatch):
    """Such as one that a ledger answers when a run is continued."""
    monkeypatch.setattr(local, "WORTH_A_THREAD", 0.2)
    here = local.Local([(name, problem_of("residual", "box").agents[0]) for name in "ab"], 2)
    apart, seconds = [], [0.25, 0.0, 0.0, 0.25, 0.25]
    for now in seconds:
        threads = set()

        def answer(self, request, now=now, threads=threads):
            threads.add(threading.get_ident())
            time.sleep(now)

        monkeypatch.setattr(local.Participant, "handle", answer)
        here.ask(dict.fromkeys("ab", Broadcast("run", 1, np.zeros(1))))
        apart.append(threading.get_ident() not in threads)
    assert apart == [True, True, False, False, True]


def test_runs_of_one_seed_and_different_names_have_different_noise():
    problem = problem_of("logistic", "box")
    found = [tacit.solve(problem, SETTINGS, seed=4, run=r) for r in ("monday", "", None)]
    found += [tacit.solve(problem, SETTINGS) for _ in range(2)]  # from the system
    for one, other in itertools.combinations(found, 2):
        assert np.abs(one.solution - other.solution).max() > 1e-6
    for one in found:
        assert ("seed" in one.privacy.words) == (one.seed is not None)
    assert found[-1].summary["seed"] == "from the operating system"


def test_evaluating_less_often_changes_nothing_else():
    problem = problem_of("logistic", "box")
    every = tacit.solve(problem, SETTINGS, seed=1)
    some = tacit.solve(problem, SETTINGS, seed=1, evaluate_every=5)
    assert list(some.trace["round"]) == [5, 10, 12]
    np.testing.assert_allclose(some.solution, every.solution, atol=1e-12)
    index = [4, 9, 11]
    for name in every.trace:
        np.testing.assert_allclose(some.trace[name], every.trace[name][index], rtol=1e-9)


def test_the_trace_is_what_it_says():
    """Objective, residual and noise recomputed from what the callback saw."""
    problem = problem_of("logistic", "box")
    rows = []

    def watch(progress):
        value = sum(
            float(a.objective.value(z))
            for a, z in zip(problem.agents, progress.averages, strict=True)
        )
        gap = np.concatenate([progress.consensus - z for z in progress.averages])
        rows.append((value, np.linalg.norm(gap)))

    result = tacit.solve(problem, SETTINGS, seed=2, callback=watch)
    np.testing.assert_allclose(result.trace["objective"], [r[0] for r in rows], rtol=1e-12)
    np.testing.assert_allclose(result.trace["residual"], [r[1] for r in rows], rtol=1e-9)
    Δ = problem.agents[0].objective.sensitivity(2, problem.agents[0].feasible_set)
    expected = 2 * 2 * 4 * 3.0 * Δ * np.sqrt(2 / np.pi)  # agents·updates·coordinates·E|ξ|
    assert result.trace["noise"].mean() == pytest.approx(expected, rel=0.25)
    mean = np.mean(result.local, axis=0)
    np.testing.assert_allclose(result.solution, mean, atol=1e-14)


@pytest.mark.parametrize("batch", [True, False])
def test_the_trace_has_the_sums_and_the_largest_of_all_agents(batch):
    """Noise on the output leaves a small box far behind, and a large one never."""
    f = tacit.LogisticRegression(np.eye(3), [0, 1, 1], feature_norm=1.0, normaliser=6.0)
    sizes = [100.0, 0.01, 1.0]
    agents = [tacit.LocalProblem(f, tacit.Box(-r, r, size=3)) for r in sizes]
    law = {"perturbation": "output", "penalty": 1.0, "step_size": 0.5}
    settings = tacit.Settings(2, 1, tacit.Gaussian(5.0), **law)
    found = tacit.solve(agents, settings, seed=0, batch=batch)
    beyond = [max(np.abs(z).max() - r, 0.0) for z, r in zip(found.local, sizes, strict=True)]
    assert beyond[1] > max(beyond[0], beyond[2]) and beyond[0] == 0
    assert found.trace["violation"][-1] == pytest.approx(beyond[1])
    values = [float(f.value(z)) for z in found.local]
    assert found.trace["objective"][-1] == pytest.approx(sum(values))


def unlike():
    """Five agents, no two of one size, bound, set and coupling; three share a program."""
    rng = np.random.default_rng(7)

    def rows(n):
        return rng.normal(size=(n, 3)) / 3, rng.uniform(-1, 1, n)

    public = {"feature_norm": 1.0, "normaliser": 60.0, "neighbours": "zero-out"}
    objectives = [
        tacit.Huber(*rows(n), target_bound=1.0, threshold=0.3, ridge=ridge, **public)
        for n, ridge in ((20, 0.0), (19, 0.5), (20, 0.25))
    ]
    X, y = rows(11)
    objectives.append(tacit.LogisticRegression(X, y > 0, **public))
    objectives.append(tacit.Residual(rng.normal(size=(4, 5)), rng.normal(size=4), 0.02))
    sets = [tacit.Box(-r, 2 * r, size=3) for r in (0.3, 0.5, 0.2)]
    sets += [tacit.Simplex(3), tacit.Ball(0.1, 0.4, 5)]
    held = [0, 1, 2], [2, 0, -1], [1, -1, 3], [3, 2, 1], [-1, 0, 3, -1, 1]
    return tacit.Problem(map(tacit.LocalProblem, objectives, sets, held, "abcde"))


LAWS = [(tacit.Gaussian(2.0), "projected-output"), (tacit.Laplace(2.0), "objective")]


@pytest.mark.parametrize(("law", "perturbation"), repeat(LAWS[:1], LAWS))
def test_one_program_gives_what_unlike_agents_give_one_by_one(law, perturbation):
    """Every number that a run has."""
    problem = unlike()
    schedules = {"penalty": 0.7, "step_size": tacit.StronglyConvexStep(0.5)}
    settings = tacit.Settings(5, 2, law, 1e-5, perturbation, **schedules)
    seen = {True: [], False: []}
    for batch, rows in seen.items():
        found = tacit.solve(problem, settings, seed=3, batch=batch, callback=rows.append)
        rows.append(found)
    (*rounds, one), (*others, each) = seen.values()
    near = {"rtol": 1e-9, "atol": 1e-12}
    for a, b in zip(rounds, others, strict=True):
        np.testing.assert_allclose(a.consensus, b.consensus, **near)
        for name in ("averages", "points", "duals"):
            for x, z in zip(getattr(a, name), getattr(b, name), strict=True):
                np.testing.assert_allclose(x, z, **near)
    for name in ("solution", "ergodic"):
        np.testing.assert_allclose(getattr(one, name), getattr(each, name), **near)
    for name in one.trace:
        np.testing.assert_allclose(one.trace[name], each.trace[name], **near)
    assert one.privacy == each.privacy
    # and the server's side, from what the agents sent
    shared = [np.asarray(a.coupling) for a in problem.agents]
    for after in rounds:
        sums, counts = np.zeros(4), np.zeros(4)
        for z, held in zip(after.averages, shared, strict=True):
            np.add.at(sums, held[held >= 0], z[held >= 0])
            np.add.at(counts, held[held >= 0], 1)
        apart = [
            after.consensus[h[h >= 0]] - z[h >= 0]
            for z, h in zip(after.averages, shared, strict=True)
        ]
        assert after.row["residual"] == pytest.approx(np.linalg.norm(np.concatenate(apart)))
        value = sum(
            float(a.objective.value(z)) for a, z in zip(problem.agents, after.averages, strict=True)
        )
        assert after.row["objective"] == pytest.approx(value)
    np.testing.assert_allclose(one.solution, sums / counts, **near)


BOX, GOOD = tacit.Box(-1, 1, size=4), problem_of("huber", "box").agents[0]
SMALL = problem_of("huber", "box", dimension=3).agents[0]
GAUSSIAN = tacit.Gaussian(1.0)
LOSSES = {n: problem_of("logistic", "box", agents=1, normaliser=n).agents[0] for n in (20.0, 25)}


def part(coupling=None, feasible=BOX, name="north"):
    return tacit.LocalProblem(GOOD.objective, feasible, coupling, name)


def solved(**options):
    return tacit.solve([GOOD, GOOD], **{"settings": SETTINGS, **options})


REFUSED = [
    (lambda: tacit.Settings(0), "rounds=0"),
    (lambda: tacit.Settings(5, 0), "local_updates=0"),
    (lambda: tacit.Settings(5, 1, "gaussian"), "mechanism"),
    (lambda: tacit.Settings(5, 1, GAUSSIAN, delta=1.2), "delta=1.2"),
    (lambda: tacit.Settings(5, 1, GAUSSIAN, delta=0), "delta=0"),
    (lambda: tacit.Settings(5, perturbation="input"), "'input'"),
    (lambda: tacit.Settings(5, calibration="mine"), "'mine'"),
    (lambda: tacit.Settings.for_budget(-1, 1e-5, 5), "total_epsilon=-1"),
    (lambda: tacit.Settings.for_budget(float("nan"), 1e-5, 5), "total_epsilon=nan"),
    (lambda: tacit.Settings.for_budget(1, 0, 5), "delta"),
    (lambda: tacit.Settings.for_budget(1, 1e-5, 5, mechanism="cauchy"), "cauchy"),
    (lambda: tacit.Settings(5, penalty="1"), "penalty"),
    (lambda: tacit.Settings(5, step_size=-0.1), "step size=-0.1"),
    (lambda: solved(settings={"rounds": 5}), "Settings"),
    (lambda: tacit.solve(GOOD, SETTINGS), "list of agents"),
    (lambda: tacit.solve([1, 2], SETTINGS), "LocalProblem"),
    (lambda: solved(checkpoint="no/such/file"), "existing folder"),
    (lambda: solved(seed=-1), "seed=-1"),
    (lambda: solved(seed=1.5), "seed=1.5"),
    (lambda: solved(evaluate_every=0), "=0"),
    (lambda: tacit.solve(problem_of("huber", "polyhedron"), SETTINGS, batch=True), "a solver"),
    (lambda: part(feasible=tacit.Box(-1, 1, size=3)), "'north'.* dimension 4|dimension 4.*north"),
    (lambda: part(feasible=tacit.Box(-1, np.inf, size=4)), "unbounded"),
    (lambda: part([0, 1, 2]), "4 whole numbers"),
    (lambda: part([0, 1, 2, 2]), "at most once"),
    (lambda: part([0, 1, 2, -2]), "at most once"),
    (lambda: part([0.5, 1, 2, 3]), "whole numbers"),
    (lambda: tacit.LocalProblem(BOX, GOOD.objective), "an objective first"),
    (lambda: tacit.Problem([]), "at least one agent"),
    (lambda: tacit.Problem([part([0, 2, 3, -1])]), "nobody holds 1"),
    (lambda: tacit.Problem([part([-1] * 4)]), "every coupling is -1"),
    (lambda: tacit.Problem([part(), part()]), "'north' twice"),
    (lambda: tacit.Problem([LOSSES[20.0], LOSSES[25]]), "got 20 of .* and 25 of .*public"),
    (lambda: tacit.Problem([GOOD, SMALL]), "variables for 'agent"),
    (lambda: tacit.Problem([part([0, 1, -1, -1]), part([-1, -1, 2, 3], name="b")]), "held by two"),
]


@pytest.mark.parametrize(("build", "words"), REFUSED)
def test_what_is_wrong_is_named(build, words):
    with pytest.raises((tacit.InvalidInput, tacit.InvalidSet), match=words):
        build()


def test_a_result_prints_as_one_line_without_private_numbers():
    result = tacit.solve(problem_of("logistic", "box"), SETTINGS, seed=0)
    assert len(repr(result)) < 200 and "epsilon" in repr(result)
    assert f"{result.trace['objective'][-1]:.6g}" not in repr(result)


def test_one_program_serves_any_number_of_rounds():
    """Compiling takes longer than most runs, seconds on a GPU."""
    problem = problem_of("huber", "ball", records=17)
    program = _compiled(False, False)
    known = program._cache_size()
    for rounds, every in ((7, 3), (1, 1)):
        result = tacit.solve(problem, dataclasses.replace(SETTINGS, rounds=rounds), seed=4)
        blocks = tacit.solve(
            problem, dataclasses.replace(SETTINGS, rounds=rounds), seed=4, evaluate_every=every
        )
        np.testing.assert_array_equal(result.solution, blocks.solution)
        assert result.trace["residual"][-1] == blocks.trace["residual"][-1]
    assert program._cache_size() <= known + 1


@pytest.mark.parametrize(
    ("linear", "every", "batch"), [(True, 4, True), (True, 1, False), (False, 4, False)]
)
def test_ergodic_is_the_average_of_all_rounds(batch, every, linear):
    """Weights t (strongly convex step) or 1, whenever it is evaluated: against NumPy's average."""
    problem = problem_of("least-squares", "box", ridge=0.5)
    step = StronglyConvexStep(0.5) if linear else NonsmoothStep(0.3)
    settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=10, penalty=1.0, step_size=step)
    rounds = []
    tacit.solve(
        problem,
        settings,
        seed=4,
        batch=batch,
        callback=lambda p: rounds.append(np.mean([np.asarray(z) for z in p.averages], axis=0)),
    )
    assert len(rounds) == 10
    weights = np.arange(1, 11) if linear else np.ones(10)
    expected = np.average(rounds, axis=0, weights=weights)
    found = tacit.solve(problem, settings, seed=4, batch=batch, evaluate_every=every).ergodic
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert np.abs(expected - np.mean(rounds, axis=0)).max() > 1e-4 or not linear


def test_ledgers_are_closed_when_a_run_is_over(tmp_path):
    """Without the garbage collector: what a file beside the ledger holds, its copy would lack."""
    tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5).close()
    agents = [dataclasses.replace(problem_of("logistic", "box", agents=1).agents[0], name="a")]
    gc.disable()
    try:
        settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=2)
        tacit.solve(agents, settings, ledgers=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    finally:
        gc.enable()


def test_progress_is_said_on_standard_error(capsys):
    problem = problem_of("logistic", "box")
    plain = tacit.solve(problem, SETTINGS, seed=4)
    assert capsys.readouterr().err == ""
    same(tacit.solve(problem, SETTINGS, seed=4, progress=True), plain)
    assert "round 12 of 12" in capsys.readouterr().err
    found = tacit.solve(
        problem_of("quantile", "box"), tacit.Settings(300, tolerance=1e-4), progress=True
    )
    last = int(found.trace["round"][-1])
    assert f"round {last} of {last}, " in capsys.readouterr().err  # of a bundle method
