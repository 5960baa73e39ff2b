"""The driver: determinism, entropy, callbacks, checkpoints that continue bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import problem_of

import tacit
from tacit.admm.schedules import NonsmoothStep, StronglyConvexStep

SETTINGS = tacit.Settings(12, 2, tacit.Gaussian(3.0), penalty=tacit.ConstantPenalty(0.3))


class Interrupted(Exception):
    pass


def stop_at(round_):
    def callback(progress):
        if progress.round == round_:
            raise Interrupted

    return callback


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


def test_runs_of_one_seed_and_different_names_have_different_noise():
    problem = problem_of("logistic", "box")
    a = tacit.solve(problem, SETTINGS, seed=4, run="monday")
    b = tacit.solve(problem, SETTINGS, seed=4, run="tuesday")
    assert np.abs(a.solution - b.solution).max() > 1e-6


def test_without_a_seed_noise_comes_from_the_system():
    problem = problem_of("logistic", "box")
    a, b = (tacit.solve(problem, SETTINGS) for _ in range(2))
    assert np.abs(a.solution - b.solution).max() > 1e-6
    assert a.seed is None and a.summary["seed"] == "from the operating system"
    assert "seed" not in a.privacy.words
    assert "seed" in tacit.solve(problem, SETTINGS, seed=1).privacy.words


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("feasible", ["box", "polyhedron"])
def test_a_resumed_run_continues_bit_for_bit(feasible, seed, tmp_path):
    problem = problem_of("logistic", feasible)
    path = tmp_path / "state.npz"
    seen = []
    with pytest.raises(Interrupted):
        tacit.solve(
            problem,
            SETTINGS,
            seed=seed,
            checkpoint=path,
            callback=lambda p: (seen.append(p.averages), stop_at(8)(p)),
        )
    assert path.stat().st_mode & 0o077 == 0  # it holds the noise key
    more = []
    resumed = tacit.solve(
        problem, SETTINGS, seed=seed, checkpoint=path, callback=lambda p: more.append(p)
    )
    assert [p.round for p in more] == list(range(8, 13))  # round 8 was not saved yet
    np.testing.assert_array_equal(more[0].averages, seen[7])  # and is the same when asked again
    assert list(resumed.trace["round"]) == list(range(1, 13))
    again = tacit.solve(problem, SETTINGS, seed=seed, checkpoint=path)
    same(again, resumed)  # a finished checkpoint gives the result again, at no cost
    if seed is not None:
        same(resumed, tacit.solve(problem, SETTINGS, seed=seed))


def test_a_killed_process_resumes_to_the_same_result(tmp_path):
    """SIGKILL at a random moment, several times, then compare with an undisturbed run."""
    path = tmp_path / "state.npz"
    program = f"""
import sys, time, tacit
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from conftest import problem_of
settings = tacit.Settings(40, 2, tacit.Gaussian(3.0), penalty=tacit.ConstantPenalty(0.3))
result = tacit.solve(problem_of("logistic", "box"), settings, seed=7, checkpoint={str(path)!r},
                     callback=lambda p: time.sleep(0.02))
result.save({str(tmp_path / "result")!r})
"""
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(30):
        process = subprocess.Popen([sys.executable, "-c", program])
        if kills < 4:
            deadline = time.time() + 60
            before = path.stat().st_mtime_ns if path.exists() else 0
            while time.time() < deadline and process.poll() is None:
                if path.exists() and path.stat().st_mtime_ns != before:
                    break
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        elif process.wait() == 0:
            break
    settings = tacit.Settings(40, 2, tacit.Gaussian(3.0), penalty=tacit.ConstantPenalty(0.3))
    assert kills == 4
    same(
        tacit.Result.load(tmp_path / "result"),
        tacit.solve(problem_of("logistic", "box"), settings, seed=7),
    )


def test_the_noise_key_is_saved_before_anything_is_released(tmp_path):
    """Otherwise a restart after round 1 would answer it again with fresh noise."""
    problem, path, seen = problem_of("logistic", "box"), tmp_path / "state.npz", []
    for _ in range(2):
        with pytest.raises(Interrupted):
            tacit.solve(
                problem,
                SETTINGS,
                checkpoint=path,
                callback=lambda p: (seen.append(p.averages[0]), stop_at(1)(p)),
            )
    np.testing.assert_array_equal(seen[0], seen[1])


def with_beta(beta, kind="box"):
    rng = np.random.default_rng(0)
    f = tacit.Residual(rng.normal(size=(4, 2)), rng.normal(size=4), beta=beta)
    limit = 1.0 if kind == "box" else 0.9
    W = tacit.Box(-1, 1, size=2) if kind == "box" else tacit.Polyhedron(lower=[-1, -1], upper=limit)
    return [tacit.LocalProblem(f, W)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (with_beta(0.01), with_beta(0.02)),
        (with_beta(0.01, "polyhedron"), [*with_beta(0.01)]),
        (
            with_beta(0.01, "polyhedron"),
            [
                tacit.LocalProblem(
                    with_beta(0.01)[0].objective, tacit.Polyhedron(lower=[-1, -1], upper=0.8)
                )
            ],
        ),
    ],
)
def test_other_public_bounds_or_sets_do_not_resume(first, second, tmp_path):
    settings = tacit.Settings(
        8,
        1,
        tacit.Laplace(2.0),
        step_size=tacit.NonsmoothStep(0.1),
        penalty=tacit.ConstantPenalty(1.0),
    )
    path = tmp_path / "state.npz"
    with pytest.raises(Interrupted):
        tacit.solve(first, settings, seed=3, checkpoint=path, callback=stop_at(5))
    with pytest.raises(tacit.InvalidInput, match="sets and data of the checkpoint"):
        tacit.solve(second, settings, seed=3, checkpoint=path)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 9},
        {"run": "other"},
        {"settings": tacit.Settings(13, 2, tacit.Gaussian(3.0))},
        {"problem": problem_of("logistic", "box", agents=2)},
        {"problem": problem_of("logistic", "box", dimension=5)},
        {"problem": problem_of("logistic", "box", seed=1)},  # other data of the same shape
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    path = tmp_path / "state.npz"
    arguments = {
        "problem": problem_of("logistic", "box"),
        "settings": SETTINGS,
        "seed": 3,
        "run": "run",
        "checkpoint": path,
    }
    with pytest.raises(Interrupted):
        tacit.solve(**arguments, callback=stop_at(5))
    before = path.read_bytes()
    with pytest.raises(tacit.InvalidInput, match="Nothing was resumed"):
        tacit.solve(**(arguments | change))
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x" * 99])
def test_a_damaged_checkpoint_is_refused_and_kept(damage, tmp_path):
    path = tmp_path / "state.npz"
    problem = problem_of("logistic", "box")
    with pytest.raises(Interrupted):
        tacit.solve(problem, SETTINGS, seed=3, checkpoint=path, callback=stop_at(5))
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(tacit.CorruptFile, match="Nothing was resumed"):
        tacit.solve(problem, SETTINGS, seed=3, checkpoint=path)
    assert path.read_bytes() == before


def test_evaluating_less_often_changes_nothing_else():
    problem = problem_of("logistic", "ball")
    every = tacit.solve(problem, SETTINGS, seed=1)
    some = tacit.solve(problem, SETTINGS, seed=1, evaluate_every=5)
    assert list(some.trace["round"]) == [5, 10, 12]
    np.testing.assert_allclose(some.solution, every.solution, atol=1e-12)
    index = [4, 9, 11]
    for name in every.trace:
        np.testing.assert_allclose(some.trace[name], every.trace[name][index], rtol=1e-9)


def test_the_trace_is_what_it_says():
    """Objective, residual and noise recomputed from what the callback saw."""
    problem = problem_of("huber", "box")
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
    expected = 3 * 2 * 4 * 3.0 * Δ * np.sqrt(2 / np.pi)  # agents·updates·coordinates·E|ξ|
    assert result.trace["noise"].mean() == pytest.approx(expected, rel=0.25)
    mean = np.mean(result.local, axis=0)
    np.testing.assert_allclose(result.solution, mean, atol=1e-14)


def test_float32_data_stay_float32(rng):
    X = rng.normal(size=(30, 4)).astype(np.float32)
    agents = [
        tacit.LocalProblem(
            tacit.LogisticRegression(
                X[p::2], (X[p::2, 0] > 0).astype(int), feature_norm=1.0, normaliser=30
            ),
            tacit.Box(-1, 1, size=4),
        )
        for p in range(2)
    ]
    result = tacit.solve(agents, SETTINGS, seed=0)
    assert result.local[0].dtype == np.float32
    one = tacit.solve(agents, SETTINGS, seed=0, batch=False)
    np.testing.assert_allclose(result.solution, one.solution, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tacit.Settings(0), "rounds=0"),
        (lambda: tacit.Settings(5, 0), "local_updates=0"),
        (lambda: tacit.Settings(5, 1, "gaussian"), "mechanism"),
        (lambda: tacit.Settings(5, 1, tacit.Gaussian(1.0), delta=1.2), "delta=1.2"),
        (lambda: tacit.Settings(5, 1, tacit.Gaussian(1.0), delta=0), "delta=0"),
        (lambda: tacit.Settings(5, perturbation="input"), "'input'"),
        (lambda: tacit.Settings(5, calibration="mine"), "'mine'"),
        (lambda: tacit.Settings.for_budget(0, 1e-5, 5), "total_epsilon=0"),
        (lambda: tacit.Settings.for_budget(-1, 1e-5, 5), "total_epsilon=-1"),
        (lambda: tacit.Settings.for_budget(float("nan"), 1e-5, 5), "total_epsilon=nan"),
        (lambda: tacit.Settings.for_budget(1, 0, 5), "delta"),
        (lambda: tacit.Settings.for_budget(1, 1, 5), "delta"),
        (lambda: tacit.Settings.for_budget(1, 1e-5, 5, mechanism="cauchy"), "cauchy"),
        (lambda: tacit.Settings(5, penalty="1"), "penalty"),
        (lambda: tacit.Settings(5, step_size=-0.1), "step size=-0.1"),
        (lambda: tacit.solve(problem_of("huber", "box"), {"rounds": 5}), "Settings"),
        (lambda: tacit.solve(problem_of("huber", "box").agents[0], SETTINGS), "list of agents"),
        (lambda: tacit.solve([1, 2], SETTINGS), "LocalProblem"),
        (
            lambda: tacit.solve(problem_of("huber", "box"), SETTINGS, checkpoint="no/such/file"),
            "existing folder",
        ),
        (lambda: tacit.Problem([]), "at least one agent"),
        (lambda: tacit.solve(problem_of("huber", "box"), SETTINGS, seed=-1), "seed=-1"),
        (lambda: tacit.solve(problem_of("huber", "box"), SETTINGS, seed=1.5), "seed=1.5"),
        (lambda: tacit.solve(problem_of("huber", "box"), SETTINGS, evaluate_every=0), "=0"),
        (
            lambda: tacit.solve(problem_of("huber", "polyhedron"), SETTINGS, batch=True),
            "needs a solver",
        ),
    ],
)
def test_bad_settings_are_named(build, words):
    with pytest.raises(tacit.InvalidInput, match=words):
        build()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"feasible_set": tacit.Box(-1, 1, size=3)}, tacit.InvalidInput, "dimension 4"),
        ({"feasible_set": tacit.Box(-1, np.inf, size=4)}, tacit.InvalidSet, "unbounded"),
        ({"coupling": [0, 1, 2]}, tacit.InvalidInput, "4 whole numbers"),
        ({"coupling": [0, 1, 2, 2]}, tacit.InvalidInput, "at most once"),
        ({"coupling": [0, 1, 2, -2]}, tacit.InvalidInput, "at most once"),
        ({"coupling": [0.5, 1, 2, 3]}, tacit.InvalidInput, "whole numbers"),
    ],
)
def test_bad_local_problems_are_named(change, error, words):
    good = problem_of("huber", "box").agents[0]
    parts = {"objective": good.objective, "feasible_set": good.feasible_set, "name": "north"}
    with pytest.raises(error, match=words) as caught:
        tacit.LocalProblem(**(parts | change))
    assert "north" in str(caught.value)


def test_problems_refuse_gaps_and_equal_names():
    good = problem_of("huber", "box").agents[0]
    part = {"objective": good.objective, "feasible_set": good.feasible_set}
    with pytest.raises(tacit.InvalidInput, match="nobody holds 1"):
        tacit.Problem([tacit.LocalProblem(**part, coupling=[0, 2, 3, -1])])
    with pytest.raises(tacit.InvalidInput, match="'a' twice"):
        tacit.Problem([tacit.LocalProblem(**part, name="a")] * 2)


def test_numbers_stand_for_constant_schedules():
    settings = tacit.Settings(5, penalty=2, step_size=0.1)
    assert settings.penalty == tacit.ConstantPenalty(2)
    assert settings.step_size == tacit.ConstantStep(0.1)


def test_agents_must_fit_together():
    four, five = (problem_of("huber", "box", dimension=d).agents[0].objective for d in (4, 5))
    box = {d: tacit.Box(-1, 1, size=d) for d in (4, 5)}
    with pytest.raises(tacit.InvalidInput, match="5 variables for 'agent 1'"):
        tacit.Problem([tacit.LocalProblem(four, box[4]), tacit.LocalProblem(five, box[5])])
    with pytest.raises(tacit.InvalidInput, match="none is held by two"):
        tacit.Problem(
            [
                tacit.LocalProblem(four, box[4], [0, 1, -1, -1]),
                tacit.LocalProblem(four, box[4], [-1, -1, 2, 3]),
            ]
        )
    with pytest.raises(tacit.InvalidInput, match="every coupling is -1"):
        tacit.Problem([tacit.LocalProblem(four, box[4], [-1] * 4)])
    with pytest.raises(tacit.InvalidInput, match="an objective first"):
        tacit.LocalProblem(box[4], four)


def test_a_result_prints_as_one_line_without_private_numbers():
    result = tacit.solve(problem_of("huber", "box"), SETTINGS, seed=0)
    assert len(repr(result)) < 200 and "epsilon" in repr(result)
    assert f"{result.trace['objective'][-1]:.6g}" not in repr(result)


def test_paper_calibration_runs_and_is_labelled():
    problem = problem_of("softmax", "box")
    mechanism = tacit.Gaussian.classical(0.5, 1e-6)
    for perturbation in ("objective", "output"):
        settings = tacit.Settings(4, 2, mechanism, calibration="paper", perturbation=perturbation)
        result = tacit.solve(problem, settings, seed=0)
        assert not result.privacy.certified
        assert "Not certified" in result.privacy.words
        assert result.trace["noise"].min() > 0
    with pytest.raises(tacit.InvalidInput, match="paper"):
        tacit.solve(problem_of("hinge", "box"), settings, seed=0)


def test_noiseless_runs_promise_nothing():
    result = tacit.solve(problem_of("huber", "box"), tacit.Settings(3), seed=0)
    assert result.privacy.epsilon == np.inf and not result.privacy.certified
    assert "Not private" in result.privacy.words
    assert os.linesep not in result.privacy.words


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("every", [1, 3, 4])
@pytest.mark.parametrize("linear", [True, False])
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


def test_agents_with_different_normalisers_are_refused(rng):
    def agent(name, normaliser):
        f = tacit.LogisticRegression(
            rng.uniform(-1, 1, (5, 2)), [0, 1, 0, 1, 1], feature_norm=1.5, normaliser=normaliser
        )
        return tacit.LocalProblem(f, tacit.Box(-1, 1, size=2), name=name)

    with pytest.raises(tacit.InvalidInput, match=r"got 20 of agent 'a' and 25 of agent 'c'.*publi"):
        tacit.Problem([agent("a", 20), agent("b", 20.0), agent("c", 25)])
    residual = tacit.LocalProblem(
        tacit.Residual(np.eye(2), np.ones(2), beta=0.1), tacit.Box(-1, 1, size=2)
    )
    tacit.Problem([agent("a", 20), residual, agent("b", 20)])  # a residual has none


def test_another_coupling_does_not_resume(tmp_path):
    """The same data and sets, tied together in another way, are another problem."""

    def coupled(order):
        agents = problem_of("logistic", "box", agents=2).agents
        first, second = (tacit.LocalProblem(a.objective, a.feasible_set, name="") for a in agents)
        second = tacit.LocalProblem(second.objective, second.feasible_set, order)
        return tacit.Problem([first, second])

    arguments = {"settings": SETTINGS, "seed": 3, "checkpoint": tmp_path / "state.npz"}
    with pytest.raises(Interrupted):
        tacit.solve(coupled([0, 1, 2, 3]), callback=stop_at(5), **arguments)
    with pytest.raises(tacit.InvalidInput, match="Nothing was resumed"):
        tacit.solve(coupled([1, 0, 2, 3]), **arguments)
    assert tacit.solve(coupled([0, 1, 2, 3]), **arguments).trace["round"][-1] == 12
