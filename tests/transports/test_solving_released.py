"""Problems of public copies: exact steps end at the optimum, cost nothing, and say so."""

import dataclasses
import json

import cvxpy as cp
import numpy as np
import pytest
from conftest import repeat
from test_releasing import DATA, ledgers, zones

import tacit
from tacit.errors import CorruptFile, InvalidInput, Refused
from tacit.planning import penalties_of
from tacit.protocol.agent import ExactRounds
from tacit.protocol.messages import Broadcast
from tacit.transports import local

EXACT = tacit.Settings(rounds=300, tolerance=1e-8)


def coupled():
    """Two agents that share the last two of their three variables, over a cone set each."""
    rng = np.random.default_rng(1)
    z = cp.Variable(3)
    W = tacit.from_cvxpy(z, [cp.norm(z, 2) <= 1.0, z[0] + z[1] <= 0.8])
    return tacit.Problem(
        tacit.LocalProblem(tacit.Residual(rng.normal(size=(5, 3)), rng.normal(size=5), 0.1), W, c)
        for c in ([-1, 0, 1], [-1, 1, 0])
    )


def starting_penalties(released):
    curvatures = [agent.objective.mean_curvature for agent in released.problem.agents]
    return penalties_of(released.problem, EXACT, curvatures)


def stiff(k, rows, low=1.0):
    """Agents with a quadratic that is k times as steep in one direction as in another."""
    W = tacit.Box(low, 10.0, size=2)
    return [
        tacit.LocalProblem(tacit.Residual(np.array(A) * [[k], [1]], d, 0.1), W) for A, d in rows
    ]


EVERY = [(k, tolerance) for k in (1e2, 1e3, 1e4) for tolerance in (1e-3, 1e-4, 1e-6)]


SOME = [(1e2, 1e-6), (1e3, 1e-3), (1e4, 1e-4)]


@pytest.mark.parametrize(("k", "tolerance"), repeat(SOME, EVERY))
def test_small_steps_do_not_end_a_run(k, tolerance):
    """Penalties near the mean curvature are far above the least: a round moves hardly anything."""
    settings = tacit.Settings(rounds=300, tolerance=tolerance)
    A = [[1, -1], [1, 1]]
    result = tacit.solve(stiff(k, [(A, [0, -8]), (A, [0, -12])]), settings)
    assert result.trace["objective"][-1] == pytest.approx(8.0, rel=0.02) or not result.converged
    A = np.eye(2)
    result = tacit.solve(stiff(k, [(A, [-2 * k, -4]), (A, [-2.2 * k, -12])]), settings)
    np.testing.assert_allclose(result.solution, [2.1, 8.0], rtol=0.02)


@pytest.mark.parametrize(("own", "ends"), [(1.0, False), (100.0, True)])
def test_private_coordinates_that_have_not_arrived_do_not_end_a_run(own, ends):
    """No residual of a server sees them: both were zero here with an objective of 24, not 0."""
    both = tacit.Residual(np.diag([1000.0, own]), [-1000.0, -5.0 * own], 0.1)
    one = tacit.Residual([[1000.0]], [-1000.0], 0.1)
    agents = [
        tacit.LocalProblem(both, tacit.Box(-10.0, 10.0, size=2), [0, -1]),
        tacit.LocalProblem(one, tacit.Box(-10.0, 10.0, size=1), [0]),
    ]
    result = tacit.solve(agents, tacit.Settings(rounds=50, tolerance=1e-4))
    assert result.converged is ends
    assert (result.trace["objective"][-1] < 1e-3) == ends


@pytest.fixture(scope="module")
def released():
    return tacit.release(zones(), 1.0, 1e-5, seed=1)


def test_what_a_run_of_released_data_says(released, tmp_path):
    result = tacit.solve(released, tacit.Settings(rounds=200, tolerance=1e-6))
    assert result.privacy is released.privacy and result.converged
    assert result.summary["not_covered"] == [] and result.summary["converged"]
    assert "further runs" in result.privacy.words
    values = [a.objective.value(result.solution) for a in released.problem.agents]
    assert result.trace["objective"][-1] == pytest.approx(sum(values), rel=1e-4)
    short = tacit.solve(released, tacit.Settings(rounds=2, tolerance=1e-12))
    assert short.converged is False and len(short.trace["round"]) == 2
    open_end = tacit.solve(released, tacit.Settings(rounds=3))
    assert open_end.converged is None
    loaded = tacit.Result.load(result.save(tmp_path / "r"))
    assert loaded.converged and loaded.privacy == result.privacy
    np.testing.assert_array_equal(loaded.trace["dual_residual"], result.trace["dual_residual"])
    document = json.loads((tmp_path / "r" / "result.json").read_text())
    assert document["privacy"]["once"] and document["settings"]["tolerance"] == 1e-6


def test_started_from_an_answer_it_ends_sooner(released):
    settings = tacit.Settings(rounds=200, tolerance=1e-6)
    cold = tacit.solve(released, settings)
    warm = tacit.solve(released, settings, start=cold)
    assert warm.trace["round"][-1] < cold.trace["round"][-1] / 2
    np.testing.assert_allclose(warm.solution, cold.solution, atol=1e-4)


def test_an_agent_answers_each_round_once(released):
    """What it refuses leaves it as it was."""
    penalty, _ = starting_penalties(released)
    penalties = penalty, np.array([0, 0, 1, 1])
    agent = ExactRounds(released.problem.agents[0], "north", "run", penalties)
    w, plain = np.zeros(4), np.zeros(2)
    reply = agent.respond(Broadcast("run", 1, w))
    assert agent.respond(Broadcast("run", 1, w)) is reply
    for t in (2, 3):
        agent.respond(Broadcast("run", t, w, {}, plain))
    point = agent.point
    hostile = [
        Broadcast("run", 3, w + 1),
        Broadcast("run", 3, w, {}, np.array([0.0, 1.0, 2.0])),  # other instructions
        Broadcast("run", 5, w),
        Broadcast("other", 4, w),
        Broadcast("run", 4, np.full(4, np.nan)),
        Broadcast("run", 4, np.zeros(3)),
        Broadcast("run", 4, w.astype(np.float32)),
        Broadcast("run", 4, w),  # without instructions
    ]
    told = [[0.5, 0.0, 1.0], [0.0, 9.0, 1.0, 1.0], [0.0, 1.0, -1.0], [0.0, 0.0, np.inf], 0.0]
    told += [[0.0, 1.0, 2.0], np.array([1, 0], object), np.array(["1", "0"]), np.zeros((1, 2))]
    hostile += [Broadcast("run", 4, w + 1, {}, np.asarray(numbers)) for numbers in told]
    for request in hostile:
        with pytest.raises(Refused):
            agent.respond(request)
        assert agent.rounds_done == 3 and agent.point is point
    agent.respond(Broadcast("run", 4, w + 1, {}, plain))
    with pytest.raises(InvalidInput, match="released objective"):
        ExactRounds(zones().agents[0], "north", "run", penalties)


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        (tacit.Settings(5, mechanism=tacit.Gaussian(1.0)), {}, "without noise for a released"),
        (tacit.Settings(5, local_updates=2), {}, "local_updates=1"),
        (tacit.Settings(5, step_size=0.1), {}, "no step_size"),
        (tacit.Settings(5, penalty=tacit.DynamicPenalty(1, 0.1, 1, 2)), {}, "a number as penalty"),
        (tacit.Settings(5), {"seed": 1}, "no seed for a released"),
        (tacit.Settings(5), {"ledgers": "x"}, "ledgers"),
        (tacit.Settings(5), {"noise": "secure"}, "no noise for a released"),
        (tacit.Settings(5), {"batch": True}, "batch"),
        (tacit.Settings(5), {"batch": False}, "batch"),
        (tacit.Settings(5), {"run": "x"}, "no run for a released"),
        (tacit.Settings(5), {"checkpoint": "c"}, "no checkpoint for a released"),
        (tacit.Settings.for_budget(1.0, 1e-5), {}, "it is spent already"),
    ],
)
def test_what_does_not_apply_is_refused(released, settings, options, words):
    with pytest.raises(InvalidInput, match=words):
        tacit.solve(released, settings, **options)


def test_a_tolerance_is_refused_where_rounds_have_noise():
    with pytest.raises(InvalidInput, match="would release that"):
        tacit.Settings.for_budget(1.0, 1e-5, rounds=10, tolerance=1e-3)


def test_a_budget_is_spent_as_the_problem_allows():
    budget = tacit.Settings.for_budget(1.0, 1e-5)
    result = tacit.solve(zones(), budget, seed=2)
    assert result.plan.startswith("Sufficient statistics are released once") and result.privacy.once
    assert result.privacy.epsilon <= 1.0 and result.converged
    X = np.full((4, 2), 0.5)
    f = tacit.LogisticRegression(X, [0, 1, 0, 1], feature_norm=1.0, normaliser=4)
    agents = [tacit.LocalProblem(f, tacit.Box(-1, 1, size=2))]
    result = tacit.solve(agents, budget, seed=2, batch=False)  # compiles less
    assert (
        "every round: LogisticRegression has no sufficient statistics" in result.plan
        and not result.privacy.once
    )
    assert result.privacy.epsilon <= 1.0 and result.settings.rounds == 200
    assert "Laplace noise adds least" in tacit.solve(zones(), budget, seed=2).plan
    wish = tacit.Settings.for_budget(1.0, 1e-5, mechanism="gaussian")
    assert tacit.solve(zones(), wish, seed=2).privacy.mechanism == "gaussian"
    plain = tacit.Settings.for_budget(1.0, 1e-5, perturbation="objective", calibration="certified")
    assert tacit.solve(zones(), plain, seed=2).privacy.once  # defaults, written out
    for wrong in ({"tolerence": 1e-3}, {"tolerance": 0.0}, {"penalty": -1.0}):
        with pytest.raises(InvalidInput, match=r"tolerence|tolerance|penalty"):
            tacit.Settings.for_budget(1.0, 1e-5, **wrong)
    chosen = tacit.Settings.for_budget(1.0, 1e-5, local_updates=2)
    assert "local_updates was given" in tacit.solve(zones(), chosen, seed=2, batch=False).plan


def test_that_nothing_was_charged_is_said_where_no_agent_paid(tmp_path):
    budget, books = tacit.Settings.for_budget(1.0, 1e-5), ledgers(tmp_path, epsilon=3.0)
    changed = DATA + np.array([[0.0], [1.0]])  # at the second agent
    for data, free in [(DATA, False), (DATA, True), (changed, False), (changed, True)]:
        before = [book.spent for book in books.values()]
        result = tacit.solve(zones(data), budget, ledgers=books)
        assert ("nothing was charged" in result.plan) == free
        assert ([book.spent for book in books.values()] == before) == free


def test_the_checkpoint_is_the_release(tmp_path, monkeypatch):
    path, budget = tmp_path / "c.npz", tacit.Settings.for_budget(1.0, 1e-5)
    first = tacit.solve(zones(), budget, checkpoint=path)
    assert path.stat().st_mode & 0o077 == 0

    def measured(*_):
        raise AssertionError("the data were read again")

    monkeypatch.setattr("tacit.protocol.release.Reader._measured", measured)
    again = tacit.solve(zones(), budget, checkpoint=path)
    np.testing.assert_array_equal(first.solution, again.solution)
    with pytest.raises(InvalidInput, match="Expected the budget of the release"):
        tacit.solve(zones(), tacit.Settings.for_budget(2.0, 1e-5), checkpoint=path)
    with pytest.raises(InvalidInput, match="others by now"):
        tacit.solve(zones(beta=0.1, data=np.zeros((2, 6))), budget, checkpoint=path)


def test_workers_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(local, "WORTH_A_THREAD", 0.0)
    one, two = (tacit.solve(coupled(), EXACT, workers=w).solution for w in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_checkpoint_is_of_one_source_of_noise(tmp_path):
    """Another seed, secure noise or ledgers are another release, and get none of this one."""
    budget, path = tacit.Settings.for_budget(1.0, 1e-5), tmp_path / "checkpoint.npz"
    tacit.solve(zones(), budget, checkpoint=path, seed=1)
    known, whole = ledgers(tmp_path), path.read_bytes()
    seeded = {"noise": "seeded", "seed": 1}
    for other in ({}, {"seed": 2}, {"noise": "secure"}, {"ledgers": known}):
        with pytest.raises(InvalidInput, match="Expected the seed"):
            tacit.solve(zones(), budget, checkpoint=path, **other)
    with pytest.raises(InvalidInput, match="knows nothing of it"):
        tacit.solve(zones(), budget, checkpoint=path, ledgers=known, **seeded)
    assert path.read_bytes() == whole
    assert all(ledger.spent.epsilon == 0 for ledger in known.values())
    path.unlink()
    first = tacit.solve(zones(), budget, checkpoint=path, ledgers=known)
    again = tacit.solve(zones(), budget, checkpoint=path, ledgers=known)
    np.testing.assert_array_equal(first.solution, again.solution)
    assert all(len(ledger.runs()) == 1 for ledger in known.values())


def test_a_run_without_noise_writes_over_no_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.npz"
    for settings in (tacit.Settings.for_budget(1.0, 1e-5), tacit.Settings.for_budget(1.0, 1e-5, 2)):
        tacit.solve(zones(), settings, checkpoint=path)
        whole = path.read_bytes()
        with pytest.raises((InvalidInput, CorruptFile), match=r"would be lost|Expected a release"):
            tacit.solve(zones(), EXACT, checkpoint=path)
        assert path.read_bytes() == whole
        path.unlink()
    for _ in range(2):  # its own it does
        tacit.solve(zones(), EXACT, checkpoint=path)


@pytest.mark.parametrize("seed", [2, 51])
def test_rounding_does_not_keep_a_run_from_its_end(seed):
    """At a corner all copies agree exactly, and the dual residual is 1e-17: that is an optimum."""
    data = 1.2 + 0.3 * np.random.default_rng(seed).normal(size=(2, 1))
    W = tacit.Box(-1.0, 1.0, size=1)
    agents = [tacit.LocalProblem(tacit.Residual(np.ones((1, 1)), d, 0.05), W) for d in data]
    result = tacit.solve(agents, tacit.Settings(rounds=300, tolerance=1e-4))
    assert result.converged and result.trace["round"][-1] < 100


# --- what a run may start from: an answer from the same release, or none ------------------------


def exact_of(problem):
    """The answer without noise."""
    return tacit.solve(problem, EXACT)


def world(k):
    """``zones`` with loads of their own; neighbours for the statement of ``release``."""
    return zones(data=np.random.default_rng(k).normal(size=(2, 6)))


OTHERS = ["no release", "other budget", "other data", "other numbers", "from a file"]


@pytest.mark.parametrize("change", OTHERS)
def test_whose_start_it_is_is_checked_number_by_number(change, tmp_path):
    released = tacit.release(zones(), 1.0, 1e-5, seed=1)
    settings = tacit.Settings(rounds=20)
    own = tacit.solve(released, settings)
    again = tacit.Result.load(own.save(tmp_path / "own"))  # the next day, from files
    np.testing.assert_array_equal(
        tacit.solve(released, settings, start=again).solution,
        tacit.solve(released, settings, start=own).solution,
    )
    exact = exact_of(zones())
    wrong = {
        "no release": exact,  # one round at a huge penalty gave it back, whatever it was made from
        "other budget": tacit.solve(tacit.release(zones(), 9.0, 1e-5, seed=1), settings),
        "other data": tacit.solve(tacit.release(world(1), 1.0, 1e-5, seed=1), settings),
        "other numbers": dataclasses.replace(own, local=exact.local),
        "from a file": dataclasses.replace(exact, release=again.release),
    }[change]
    with pytest.raises(InvalidInput, match="from the same release"):
        tacit.solve(released, settings, start=wrong)
    with pytest.raises(InvalidInput, match="Expected a Result"):
        tacit.solve(released, settings, start=np.zeros(6))
    tacit.solve(zones(), EXACT, start=wrong)  # promises nothing, and may start anywhere


@pytest.mark.parametrize("part", ["solution", "local", "duals"])
def test_a_start_is_known_by_each_of_its_numbers(part):
    """The last digit of the last one is another."""
    released = tacit.release(zones(), 1.0, 1e-5, seed=1)
    settings = tacit.Settings(rounds=5)
    own = tacit.solve(released, settings)
    tacit.solve(released, settings, start=own)
    value = getattr(own, part)
    *parts, last = (value,) if part == "solution" else value
    moved = np.append(last[:-1], np.nextafter(last[-1], np.inf))
    other = moved if part == "solution" else (*parts, moved)
    with pytest.raises(InvalidInput, match="from the same release"):
        tacit.solve(released, settings, start=dataclasses.replace(own, **{part: other}))


def test_a_start_may_follow_a_start_and_a_budget():
    """Answers of one release are of one kind, however often they start from each other."""
    budget, settings = tacit.Settings.for_budget(1.0, 1e-5), tacit.Settings(rounds=3)
    released = tacit.release(zones(), 1.0, 1e-5, mechanism="laplace", seed=2)
    first = tacit.solve(zones(), budget, seed=2)
    np.testing.assert_array_equal(  # the same release, made by ``solve``
        first.solution, tacit.solve(released, first.settings).solution
    )
    second = tacit.solve(released, settings, start=first)
    assert tacit.solve(released, settings, start=second).privacy == released.privacy
    with pytest.raises(InvalidInput, match="from the same release"):
        tacit.solve(zones(), budget, seed=3, start=first)  # read again, with other noise


def test_a_release_answers_for_the_private_problem_too():
    """Its statement is of what was released: the data themselves are not read beside it."""
    released = tacit.release(zones(), 0.01, 1e-6, seed=1)
    settings = tacit.Settings(rounds=20)
    swapped = dataclasses.replace(released, problem=tacit.Problem.of(zones()))
    found, own = (tacit.solve(of, settings) for of in (swapped, released))
    assert found.privacy == own.privacy
    np.testing.assert_array_equal(found.solution, own.solution)
