"""An agent's answers: once each, paid before, stored before release, whatever fails.

And it cannot be talked into anything: terms, budgets, hostile requests.
"""

import logging
import random
import threading

import jax
import numpy as np
import pytest
from clinic import ROUNDS, SHORT, SIZE, ask, make, part, problem, settings
from conftest import objective_of, repeat, set_of

import tacit
from tacit.admm.algorithm import Limits, Local, Round, Rule, local_update
from tacit.errors import InvalidInput, LedgerFailure, Refused, SolverFailure
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.ledger import Ledger
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "clinic.db", 1.5, 1e-5)


def test_the_same_request_gets_the_stored_reply(ledger):
    agent = make(ledger)
    replies = [ask(agent, t).primal for t in (1, 2, 3)]
    spent, head = ledger.spent, ledger.head
    for t in (3, 1, 2):
        np.testing.assert_array_equal(ask(agent, t).primal, replies[t - 1])
    fresh = make(Ledger(ledger.path))  # and so does a restarted agent
    np.testing.assert_array_equal(ask(fresh, 3).primal, replies[2])
    assert (ledger.spent, ledger.head) == (spent, head)
    assert len(ledger.charged("june")) == 3
    ask(fresh, 4)


def test_without_a_ledger_the_last_reply_is_remembered():
    agent = make()
    first = ask(agent, 1).primal
    np.testing.assert_array_equal(ask(agent, 1).primal, first)
    ask(agent, 2)
    for t, w in ((1, None), (2, np.zeros(SIZE))):
        with pytest.raises(Refused, match="another request"):
            ask(agent, t, w)
    for t in range(3, agent.settings.rounds + 1):
        ask(agent, t)
    with pytest.raises(Refused, match="expects no more"):  # than the statement counts
        ask(agent, agent.settings.rounds + 1)


def test_a_restarted_agent_goes_on_with_the_same_numbers(ledger, tmp_path):
    """Seeded, so that both runs can be compared bit by bit."""
    other = Ledger.create(tmp_path / "other.db", 1.5, 1e-5)
    steady = make(other, noise="seeded")
    for t in range(1, ROUNDS + 1):
        agent = make(Ledger(ledger.path), noise="seeded")  # a new one in every round
        np.testing.assert_array_equal(ask(agent, t).primal, ask(steady, t).primal)
    assert ledger.spent == other.spent


def test_payment_comes_before_data_and_storage_before_release(ledger, monkeypatch):
    agent = make(ledger)
    order, compute, store = [], agent._round, ledger.store
    charge = ledger.charge
    monkeypatch.setattr(ledger, "charge", lambda *a: (order.append("pay"), charge(*a))[1])
    monkeypatch.setattr(
        agent, "_round", lambda *a, **k: (order.append("compute"), compute(*a, **k))[1]
    )
    monkeypatch.setattr(ledger, "store", lambda *a: (order.append("store"), store(*a))[1])
    ask(agent, 1)
    assert order == ["pay", "compute", "store"]


@pytest.mark.parametrize("failing", ["charge", "store"])
def test_a_failing_disk_releases_nothing(ledger, monkeypatch, failing):
    agent = make(ledger)
    ask(agent, 1)

    def fail(*arguments):
        raise LedgerFailure("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, failing, fail)
        with pytest.raises(LedgerFailure):
            ask(agent, 2)
    assert agent.rounds_done == 1
    ask(agent, 2)
    assert len(ledger.charged("june")) == 2  # the payment that was made is used


@pytest.mark.parametrize("failure", ["nan", "solver", "refused", "other"])
def test_a_failed_computation_releases_nothing_and_is_paid_for_again(ledger, monkeypatch, failure):
    """That it failed shows, and depends on the data: it is counted as a release. A refusal, of
    which a coordinator takes it that nothing was paid, is none here."""
    agent = make(ledger)
    kinds = {"solver": SolverFailure("no"), "other": ZeroDivisionError(), "refused": Refused("no")}

    def compute(*arguments, **others):
        if failure != "nan":
            raise kinds[failure]
        return np.full(SIZE, np.nan), np.full(SIZE, np.nan), 0.0

    with monkeypatch.context() as patch:
        patch.setattr(agent, "_round", compute)
        with pytest.raises(ZeroDivisionError if failure == "other" else SolverFailure):
            ask(agent, 1)
    assert ledger.answer("june") is None
    agent = make(Ledger(ledger.path))  # a restart does not forget it
    ask(agent, 1)
    assert ledger.charged("june") == [(1, 1), (1, 1)]


def test_a_seeded_agent_does_not_repeat_a_failed_round(ledger, monkeypatch):
    agent = make(ledger, noise="seeded")
    with monkeypatch.context() as patch:
        point = np.full(SIZE, np.nan)
        patch.setattr(agent, "_round", lambda *a, **k: (point, point, 0.0))
        with pytest.raises(SolverFailure, match="not finite"):
            ask(agent, 1)
    head = ledger.head
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with pytest.raises(Refused, match="would repeat the noise"):
        ask(agent, 1)
    assert ledger.head == head  # and nothing was charged for it


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_without_a_ledger_a_failed_round_is_not_tried_again(noise):
    one = Agent(part(), "a", SHORT, jax.random.key(0), "run", 3, noise=noise)
    right = one._round

    def fail(*given, **named):
        raise SolverFailure("no answer.")

    one._round = fail
    with pytest.raises(SolverFailure):
        one.respond(Broadcast("run", 1, np.zeros(3)))
    one._round = right
    with pytest.raises(Refused, match="failed in round 1"):
        one.respond(Broadcast("run", 1, np.ones(3)))


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_noise_that_float32_would_flush_to_zero_is_refused(noise):
    tiny = part(np.float32, feature_norm=1e-8, normaliser=5e29)
    with pytest.raises(InvalidInput, match="noise of scale between 1e-30 and 1e30 for float32"):
        tacit.solve([tiny], SHORT, noise=noise)


def test_an_old_copy_of_the_ledger_is_noticed(ledger, tmp_path):
    agent = make(ledger)
    ask(agent, 1)
    ledger.backup(tmp_path / "old.db")
    ask(agent, 2)
    restored = make(Ledger(tmp_path / "old.db"))
    assert restored.rounds_done == 1
    with pytest.raises(Refused, match="old copy"):  # the honest server says what it knows
        ask(restored, 2, w=np.zeros(SIZE), last={"clinic": agent.last_digest})


@pytest.mark.parametrize("noise", ["secure", "seeded"])
def test_the_ledger_shows_the_whole_cost_of_a_run(tmp_path, noise):
    ledger = Ledger.create(tmp_path / "a.db", 1.5, 1e-5)
    agent = make(ledger, noise=noise)
    for t in range(1, ROUNDS + 1):
        ask(agent, t)
    distance = agent._secure.distance if noise == "secure" else 0.0
    mechanism = agent._secure.mechanism if noise == "secure" else agent.settings.mechanism
    assert (distance > 0) == (noise == "secure")
    updates = 2 * ROUNDS
    assert ledger.spent.epsilon == epsilon_of([(mechanism, updates)], 1e-5, distance * updates)
    assert 0.999 <= ledger.spent.epsilon <= 1.0
    assert ledger._spend.distance == pytest.approx(distance * updates, rel=1e-12)


def test_what_is_durable(ledger):
    """Charges and answers are synchronised with the disk."""
    ask(make(ledger), 1)
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_two_threads_get_one_answer():
    agent, found = make(), []

    def question(w):
        try:
            found.append(ask(agent, 1, w=w))
        except Refused as refusal:
            found.append(refusal)

    threads = [threading.Thread(target=question, args=(np.full(SIZE, 0.1 * i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not isinstance(f, Refused) for f in found) == 1 and len(found) == 6


class Changing(int):
    """One thing when it is compared, another when it is used."""

    def __int__(self):
        return 1 + 2**32

    __index__ = __int__


class Agreeing(str):
    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


class Raising:
    def __array__(self, *given, **named):
        raise RuntimeError("private")

    def __repr__(self):
        raise RuntimeError("private")


W = np.linspace(0, 1, SIZE)
HOSTILE = [  # what is changed of a good request for round 4, and words of its refusal
    ({"round": 3, "consensus": W + 1}, "another request"),
    ({"round": 5}, "expects round 4"),
    ({"round": ROUNDS + 1}, "old copy"),
    ({"round": 4.0}, "expects round"),
    ({"round": Changing(4)}, "expects round"),
    ({"round": 10**5000}, "Agent 'clinic'"),
    ({"round": Raising()}, "expects round"),
    ({"run": "july"}, "not in the one asked for"),
    ({"run": Agreeing("other")}, "not in the one asked for"),
    ({"consensus": W[:-1]}, "shape"),
    ({"consensus": np.where(W > 0.5, np.nan, W)}, "finite"),
    ({"consensus": "a" * SIZE}, "numbers"),
    ({"consensus": Raising()}, "numbers"),
    ({"last": {}}, "old copy"),
    ({"last": {"clinic": "00"}}, "old copy"),
    ({"last": {"clinic": 3}}, "old copy"),
    ({"last": ["clinic"]}, "old copy"),
    ({"last": {"clinic": Agreeing("00")}}, "old copy"),
    ({"last": "abc"}, "old copy"),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_bad_requests_are_refused_logged_and_cost_nothing(
    ledger, change, words, caplog, monkeypatch
):
    agent = make(ledger)
    for t in (1, 2, 3):
        ask(agent, t)
    before = ledger.spent, ledger.head
    good = {"run": "june", "round": 4, "consensus": W, "last": {"clinic": agent.last_digest}}
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with caplog.at_level(logging.WARNING), pytest.raises(Refused, match=words):
        agent.respond(Broadcast(**{**good, **change}))
    assert len(caplog.records) == 1 and words in caplog.text
    assert (ledger.spent, ledger.head) == before


def test_beyond_the_budget_nothing_is_computed(ledger, monkeypatch):
    agent = make(ledger)
    ask(agent, 1)
    ledger.set_budget(0.3, 1e-5)
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with pytest.raises(Refused, match="beyond the budget"):
        ask(agent, 2)
    with pytest.raises(Refused, match="beyond the budget"):  # nor is another run begun
        make(ledger, run="july")


def test_grids_that_hide_other_demands_do_not_share_a_ledger(ledger):
    def grid(beta):
        f = tacit.Residual(np.eye(4), np.ones(4), beta=beta, groups=(0, 0, 1, 1))
        return tacit.LocalProblem(f, tacit.Box(-1, 1, size=4), name="zone")

    some, every = grid((1.0, 0.0, 1.0, 0.0)), grid((1.0, 1.0, 1.0, 1.0))
    assert some.objective.neighbours == every.objective.neighbours
    settings = tacit.Settings.for_budget(0.5, 1e-5, 3, penalty=1.0, step_size=0.1)
    first = Agent(some, "zone", settings, None, "a", 4, ledger=ledger)
    Agent(every, "zone", settings, None, "unused", 4, ledger=ledger)  # no charge, no matter
    first.respond(Broadcast("a", 1, np.zeros(4)))
    with pytest.raises(Refused, match="cannot be added"):
        Agent(every, "zone", settings, None, "b", 4, ledger=ledger)


@pytest.mark.parametrize("noise", ["secure", "seeded"])
@pytest.mark.parametrize("change", ["rounds", "noise", "sensitivity", "size", "penalty"])
def test_what_replies_depend_on_is_in_the_terms(ledger, change, noise):
    """Of another bound the same multiplier makes other noise."""
    f, box = problem().objective, problem().feasible_set
    part = tacit.LocalProblem(f, box, np.arange(SIZE), "clinic")  # of more coordinates, perhaps
    other = problem(normaliser=90) if change == "sensitivity" else part
    chosen = {"rounds": settings(ROUNDS - 1), "penalty": settings(penalty=2.0)}
    size, key = SIZE + (change == "size"), jax.random.key(3)
    Agent(part, "clinic", settings(), key, "june", SIZE, ledger=ledger, noise=noise)
    if change == "noise":
        noise = "seeded" if noise == "secure" else "secure"
    about = chosen.get(change, settings()), key, "june", size
    with pytest.raises(Refused, match="other terms"):
        Agent(other, "clinic", *about, ledger=ledger, noise=noise)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"settings": settings(calibration="paper"), "noise": "seeded"}, Refused, "proven"),
        ({"settings": tacit.Settings.for_budget(0.3, 1e-5, 10)}, InvalidInput, "step size"),
        ({"key": None, "noise": "seeded"}, InvalidInput, "Expected a key"),
        ({"size": SIZE + 2}, InvalidInput, f"to be {SIZE}"),
    ],
)
def test_arguments_of_an_agent_are_checked_first(ledger, change, error, words):
    """Only certified runs are paid for, among others."""
    arguments = {"settings": settings(), "key": jax.random.key(0), "size": SIZE, **change}
    with pytest.raises(error, match=words):
        Agent(problem(), "clinic", run="june", ledger=ledger, **arguments)
    assert ledger.runs() == []


def test_a_ledger_belongs_to_one_agent(ledger):
    ask(make(ledger), 1)
    with pytest.raises(Refused, match="ledger of agent 'clinic'"):
        Agent(problem(), "other", settings(), None, "july", SIZE, ledger=ledger)


def test_solve_needs_a_ledger_for_everyone(ledger):
    pair = [problem(120), tacit.LocalProblem(problem(120).objective, tacit.Box(-1, 1, size=SIZE))]
    with pytest.raises(InvalidInput, match="Expected a ledger for agent 'agent 2'"):
        tacit.solve(pair, settings(), ledgers={"clinic": ledger})


def fuzzed(rng, agent, answered):
    """A request that is wrong in at least one way."""
    w = np.array([rng.uniform(-2, 2) for _ in range(SIZE)])
    rounds = [*range(-2, ROUNDS + 3), 10**30, None, "4", 4.5, float("nan"), np.int64(4), True, 1j]
    arrays = [w, w[:-1], w[None], w * np.nan, np.where(w > 1, np.inf, w), w + 0j, w.astype("U")]
    arrays += [np.full(SIZE, 10**400, dtype=object), np.array(["2020-01-01"] * SIZE, "M8[D]")]
    arrays += [w.astype(bool), [None] * SIZE, [[1], [2, 3]], {}, "w", 3.0, b"\x00" * SIZE, object()]
    mine = {"clinic": agent.last_digest}
    lasts = [mine, {}, {"clinic": ""}, {"clinic": None}, {"clinic": 7}, None, "x", {"other": "ab"}]
    values = {
        "run": ["june", "july", "", None, 5, "june\0", b"june", ["june"]],
        "round": rounds,
        "consensus": arrays,
        "last": lasts,
    }
    choice = {name: rng.choice(options) for name, options in values.items()}
    right = (
        choice["run"] == "june"
        and choice["consensus"] is w
        and type(choice["round"]) in (int, np.int64)
        and choice["round"] == answered + 1
        and choice["last"] == {"clinic": agent.last_digest}
    )
    if right:
        choice["round"] = answered + 2
    if rng.random() < 0.02:
        return rng.choice([None, 5, "request", choice, b"", [], object()])
    return Broadcast(**choice)


def test_thousands_of_hostile_requests(ledger, monkeypatch):
    agent, rng = make(ledger), random.Random(7)
    for t in (1, 2, 3):
        ask(agent, t)
    before, compute = (ledger.spent, ledger.head), agent._round
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    logging.getLogger("tacit.protocol.agent").setLevel(logging.ERROR)
    for _ in range(repeat(1_000, 10_000)):
        with pytest.raises(Refused):
            agent.respond(fuzzed(rng, agent, 3))
    logging.getLogger("tacit.protocol.agent").setLevel(logging.NOTSET)
    assert (ledger.spent, ledger.head) == before
    monkeypatch.setattr(agent, "_round", compute)
    assert ask(agent, 4).round == 4  # and it still works


def test_every_update_of_a_round_has_noise_of_its_own(ledger, monkeypatch):
    agent = make(ledger)
    seen = []
    compute = agent._round

    def watch(point, now, local, rule):
        seen.append(np.array(local.mechanism.values))
        return compute(point, now, local, rule=rule)

    monkeypatch.setattr(agent, "_round", watch)
    for t in (1, 2):
        ask(agent, t)
    drawn = np.concatenate(seen)
    assert drawn.shape == (4, SIZE)
    assert len(np.unique(drawn)) == drawn.size


N, PENALTY, STEP = 400, 2.0, 0.25


def run(rounds, updates, batch, callback):
    """Two agents without a gradient in a huge set: their points tell their noise."""
    bounds = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 3}
    f = tacit.LeastSquares(np.zeros((3, N)), np.zeros(3), **bounds)
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=N))
    schedules = {"penalty": PENALTY, "step_size": STEP}
    settings = tacit.Settings(rounds, updates, tacit.Gaussian(1e-3), **schedules)
    tacit.solve([p, p], settings, seed=5, batch=batch, callback=callback)


def unrelated(noises):
    """Of one size, and none like another."""
    sizes = np.std(noises, axis=1)
    together = np.corrcoef(noises) - np.eye(len(noises))
    return sizes.max() < 1.2 * sizes.min() and np.abs(together).max() < 0.25


# test_one_program_gives_what_unlike_agents_give_one_by_one has two updates, batched
@pytest.mark.parametrize("batch", repeat([False], [True, False]))
def test_the_noise_of_every_local_update_is_another(batch):
    """Two updates tell both noises: xi_1 = -c z_2, xi_2 = z_2/eta - c z_3."""
    c, noises = PENALTY + 1 / STEP, []

    def read(now):
        for last, mean in zip(now.points, now.averages, strict=True):
            first = 2 * mean - last
            noises.extend([-c * first, first / STEP - c * last])

    run(1, 2, batch, read)
    assert len(noises) == 4 and unrelated(noises)  # two agents, two updates each


@pytest.mark.parametrize("batch", [True, False])
def test_the_noise_of_every_round_is_another(batch):
    """A round tells its noise: xi = z/eta + rho w + lambda - c z'."""
    noises, z, dual = [], [np.zeros(N)] * 2, [np.zeros(N)] * 2

    def read(now):
        for k, point in enumerate(now.points):
            pull = z[k] / STEP + PENALTY * now.consensus + dual[k]
            noises.append(pull - (PENALTY + 1 / STEP) * point)
        z[:], dual[:] = now.points, now.duals

    run(3, 1, batch, read)
    assert len(noises) == 6 and unrelated(noises)


@pytest.mark.parametrize(("kind", "deviation"), [("ball", 1.0), ("simplex", 0.45)])
def test_noisy_outputs_are_projected_with_the_weights_of_the_update(kind, deviation, rng):
    """A private coordinate has curvature 1/η, a coupled one 1/η + ρ; the set is not separable."""
    n, ρ, η = 4, 5.0, 0.5
    f, W, coupled = objective_of("logistic", rng), set_of(kind, n), np.array([0.0, 1.0, 1.0, 0.0])
    z, w, λ = rng.normal(size=(3, n)) / 10
    limits = Limits(np.inf, np.inf, np.inf)
    local = Local(f, W, coupled, 1.0, tacit.Gaussian(deviation), jax.random.key(3), limits)
    outside, inside = (
        local_update(z, 0, Round(1, w, λ, ρ, η), local, Rule(1, place, "certified", False))[0]
        for place in ("output", "projected-output")
    )
    assert W.violation(outside) > 0.01
    weighted, plain = W.project(outside, 1 / η + ρ * coupled), W.project(outside)
    np.testing.assert_allclose(inside, weighted, atol=1e-12)
    assert np.abs(np.asarray(weighted) - np.asarray(plain)).max() > 1e-2
