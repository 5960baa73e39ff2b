"""An agent cannot be talked into anything: rules, hostile requests, old backups, kills."""

import json
import logging
import random
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

import tacit
from tacit.admm.agent import Agent
from tacit.admm.messages import Broadcast
from tacit.errors import InvalidInput, LedgerFailure, Refused, SolverFailure
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.ledger import Ledger

SIZE, ROUNDS = 12, 8


def problem(normaliser=60):
    rng = np.random.default_rng(2)
    return tacit.LocalProblem(
        tacit.SoftmaxRegression(
            rng.uniform(0, 0.5, (60, 4)),
            rng.integers(0, 3, 60),
            3,
            feature_norm=1.0,
            normaliser=normaliser,
        ),
        tacit.Box(-1, 1, size=SIZE),
        name="clinic",
    )


def settings(rounds=ROUNDS, **others):
    others = {"penalty": 1.0, "step_size": 0.5, **others}
    return tacit.Settings.for_budget(1.0, 1e-5, rounds, 2, **others)


def make(ledger=None, rounds=ROUNDS, run="june", **others):
    return Agent(
        problem(), "clinic", settings(rounds), jax.random.key(3), run, SIZE, ledger=ledger, **others
    )


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "clinic.db", 1.5, 1e-5)


def ask(agent, t, w=None, run="june", last=None):
    w = np.linspace(-0.1, 0.1, SIZE) * t if w is None else w
    last = {"clinic": agent.last_digest} if last is None else last
    return agent.respond(Broadcast(run, t, w, last))


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


def test_a_restarted_agent_goes_on_with_the_same_numbers(ledger, tmp_path):
    """Seeded, so that both runs can be compared bit by bit."""
    other = Ledger.create(tmp_path / "other.db", 1.5, 1e-5)
    steady = make(other, noise="seeded")
    for t in range(1, ROUNDS + 1):
        agent = make(Ledger(ledger.path), noise="seeded")  # a new one in every round
        np.testing.assert_array_equal(ask(agent, t).primal, ask(steady, t).primal)
    assert ledger.spent == other.spent


def hostile(w):
    """Name, request and the words of its refusal; the agent has answered rounds 1 to 3."""
    good = {"run": "june", "round": 4, "consensus": w}
    nan, inf = w.copy(), w.copy()
    nan[3], inf[0] = np.nan, np.inf
    return [
        ("another request for an answered round", {"round": 3, "consensus": w + 1}, "another req"),
        ("an older round", {"round": 1, "consensus": w}, "another request"),
        ("a later round", {"round": 5}, "expects round 4"),
        ("beyond the agreed rounds", {"round": ROUNDS + 1}, "old copy"),
        ("round 0", {"round": 0}, "expects round"),
        ("a negative round", {"round": -3}, "expects round"),
        ("a round of text", {"round": "4"}, "expects round"),
        ("a fractional round", {"round": 4.0}, "expects round"),
        ("a true round", {"round": True}, "expects round"),
        ("another run", {"run": "july"}, "not in the one asked for"),
        ("no run", {"run": None}, "not in the one asked for"),
        ("another run's consensus", {"run": "june", "consensus": np.zeros(SIZE + 2)}, "shape"),
        ("too short", {"consensus": w[:-1]}, "shape"),
        ("a matrix", {"consensus": w.reshape(3, 4)}, "shape"),
        ("NaN", {"consensus": nan}, "finite"),
        ("infinity", {"consensus": inf}, "finite"),
        ("complex", {"consensus": w + 1j}, "numbers"),
        ("objects", {"consensus": [object()] * SIZE}, "numbers"),
        ("text", {"consensus": "a" * SIZE}, "numbers"),
        ("nothing", {"consensus": None}, "numbers"),
        ("ragged", {"consensus": [[1.0], [2.0, 3.0]]}, "numbers"),
        ("no digest of the last reply", {"last": {}}, "old copy"),
        ("a wrong digest", {"last": {"clinic": "00"}}, "old copy"),
        ("digests of the wrong type", {"last": "abc"}, "old copy"),
    ], good


@pytest.mark.parametrize("index", range(24))
def test_bad_requests_are_refused_logged_and_cost_nothing(ledger, index, caplog, monkeypatch):
    agent = make(ledger)
    for t in (1, 2, 3):
        ask(agent, t)
    before = ledger.spent, ledger.head
    cases, good = hostile(np.linspace(0, 1, SIZE))
    _, change, words = cases[index]
    request = {**good, "last": {"clinic": agent.last_digest}, **change}
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with caplog.at_level(logging.WARNING), pytest.raises(Refused, match=words):
        agent.respond(Broadcast(**request))
    assert words in caplog.text
    assert (ledger.spent, ledger.head) == before


def test_every_hostile_case_was_run():
    assert len(hostile(np.zeros(SIZE))[0]) == 24


def test_beyond_the_budget_nothing_is_computed(ledger, monkeypatch):
    agent = make(ledger)
    ask(agent, 1)
    ledger.set_budget(0.3, 1e-5)
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    with pytest.raises(Refused, match="beyond the budget"):
        ask(agent, 2)
    with pytest.raises(Refused, match="beyond the budget"):  # nor is another run begun
        make(ledger, run="july")


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


@pytest.mark.parametrize("failure", ["nan", "solver", "other"])
def test_a_failed_computation_releases_nothing_and_is_paid_for_again(ledger, monkeypatch, failure):
    """That it failed shows, and depends on the data: it is counted as a release."""
    agent = make(ledger)
    kinds = {"solver": SolverFailure("no"), "other": ZeroDivisionError()}

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


def test_a_huge_consensus_does_no_harm(ledger):
    agent = make(ledger)
    with pytest.raises(SolverFailure, match="not finite"), np.errstate(over="ignore"):
        ask(agent, 1, w=np.full(SIZE, 1.7e308))
        ask(agent, 2, w=np.full(SIZE, 1.7e308))
    assert ledger.answer("june") is None or ledger.answer("june").round == 1


def test_an_old_copy_of_the_ledger_is_noticed(ledger, tmp_path):
    agent = make(ledger)
    ask(agent, 1)
    ledger.backup(tmp_path / "old.db")
    ask(agent, 2)
    restored = make(Ledger(tmp_path / "old.db"))
    assert restored.rounds_done == 1
    with pytest.raises(Refused, match="old copy"):  # the honest server says what it knows
        ask(restored, 2, w=np.zeros(SIZE), last={"clinic": agent.last_digest})


def test_two_processes_of_one_agent_give_one_answer(ledger):
    first, second = make(ledger), make(Ledger(ledger.path))
    a = ask(first, 1).primal
    np.testing.assert_array_equal(ask(second, 1).primal, a)  # it had begun before the answer
    ask(second, 2)
    with pytest.raises(Refused, match="another request"):
        ask(first, 2, w=np.zeros(SIZE))


def test_blocks_pay_ahead_and_a_restart_pays_again(ledger):
    agent = make(ledger, block=4)
    first = [ask(agent, t).primal for t in (1, 2)]
    assert ledger.charged("june") == [(1, 4)]
    again = make(Ledger(ledger.path), block=4)
    np.testing.assert_array_equal(ask(again, 2).primal, first[1])
    ask(again, 3)
    assert ledger.charged("june") == [(1, 4), (3, 6)]
    ask(again, 4)
    assert len(ledger.charged("june")) == 2


def test_an_unfinished_block_counts_as_spent(ledger):
    """Paid for and not answered, as far as the ledger knows: a power failure may have taken it."""
    agent = make(ledger, block=3)
    for t in (1, 2, 3):
        ask(agent, t)
    ledger.charge("june", 4, 6)  # the agent of before stopped here
    again = make(Ledger(ledger.path), block=3)
    ask(again, 4)
    assert ledger.charged("june") == [(1, 3), (4, 6), (4, 6)]


def test_blocks_need_secure_noise(ledger):
    with pytest.raises(InvalidInput, match="paid for again needs other noise"):
        make(ledger, noise="seeded", block=2)
    with pytest.raises(InvalidInput, match="block >= 1"):
        make(ledger, block=0)


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
    """Charges are synchronised with the disk, answers too unless they come in blocks."""
    said = []
    ledger._db.set_trace_callback(said.append)
    ask(make(ledger), 1)
    modes = [s.split("= ")[1] for s in said if "PRAGMA synchronous" in s]
    assert modes == ["FULL"] * 3  # run, charge, answer
    other = Ledger.create(ledger.path.with_name("b.db"), 3.0, 1e-5)
    said.clear()
    other._db.set_trace_callback(said.append)
    agent = make(other, block=4)
    for t in (1, 2):
        ask(agent, t)
    modes = [s.split("= ")[1] for s in said if "PRAGMA synchronous" in s]
    assert modes == ["FULL", "FULL", "NORMAL", "NORMAL"]  # run, charge; two answers


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


def test_a_run_stopped_before_its_first_evaluation_goes_on(tmp_path):
    folder = tmp_path / "ledgers"
    folder.mkdir()
    names = ("a", "b")
    for name in names:
        Ledger.create(folder / f"{name}.db", 1.5, 1e-5)
    pair = [
        tacit.LocalProblem(problem(120).objective, tacit.Box(-1, 1, size=SIZE), name=name)
        for name in names
    ]
    chosen, file = settings(rounds=12), tmp_path / "checkpoint.npz"

    class Stop(Exception):
        pass

    store, calls = Ledger.store, []

    def stopping(self, *arguments):
        calls.append(arguments)
        if len(calls) == 12:  # in round 6; the second agent's answer is not kept
            raise Stop
        return store(self, *arguments)

    options = {"ledgers": folder, "checkpoint": file, "evaluate_every": 10, "workers": 1}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Ledger, "store", stopping)
        tacit.solve(pair, chosen, **options)
    result = tacit.solve(pair, chosen, **options)
    assert result.trace["round"].tolist() == [10, 12]
    for name in names:
        (run,) = Ledger(folder / f"{name}.db").runs()
        assert (run["rounds_charged"], run["rounds_answered"]) == (12, 12)


@pytest.mark.parametrize(
    "change",
    [{"rounds": ROUNDS - 1}, {"block": 2}, {"noise": "seeded"}],
    ids=lambda c: next(iter(c)),
)
def test_terms_of_a_run_cannot_change(ledger, change):
    make(ledger)
    with pytest.raises(Refused, match="other terms"):
        make(ledger, **change)


def test_only_certified_runs_are_paid_for(ledger):
    paper = settings(calibration="paper")
    with pytest.raises(Refused, match="proven"):
        Agent(
            problem(), "clinic", paper, jax.random.key(0), "r", SIZE, ledger=ledger, noise="seeded"
        )
    assert ledger.runs() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": tacit.Settings.for_budget(0.3, 1e-5, 10)}, "penalty and a step size"),
        ({"key": None, "noise": "seeded"}, "Expected a key"),
        ({"size": -1}, "size >= 1"),
        ({"size": SIZE - 1}, f"to be {SIZE}"),
        ({"size": SIZE + 2}, f"to be {SIZE}"),
    ],
)
def test_arguments_of_an_agent_are_checked_first(ledger, change, words):
    arguments = {"settings": settings(), "key": jax.random.key(0), "size": SIZE, **change}
    with pytest.raises(InvalidInput, match=words):
        Agent(problem(), "clinic", run="june", ledger=ledger, **arguments)
    assert ledger.runs() == []


def test_a_ledger_belongs_to_one_agent(ledger):
    ask(make(ledger), 1)
    with pytest.raises(Refused, match="ledger of agent 'clinic'"):
        Agent(problem(), "other", settings(), None, "july", SIZE, ledger=ledger)


def test_refusals_are_logged_once(ledger, caplog):
    agent = make(ledger)
    ask(agent, 1)
    with caplog.at_level(logging.WARNING), pytest.raises(Refused):
        ask(agent, 1, w=np.ones(SIZE))
    assert len(caplog.records) == 1
    ledger.set_budget(0.1, 1e-5)
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(Refused, match="Agent 'clinic'"):
        make(ledger, run="july")
    assert len(caplog.records) == 1


def test_solve_needs_a_ledger_for_everyone(ledger):
    pair = [problem(120), tacit.LocalProblem(problem(120).objective, tacit.Box(-1, 1, size=SIZE))]
    with pytest.raises(InvalidInput, match="Expected a ledger for agent 'agent 2'"):
        tacit.solve(pair, settings(), ledgers={"clinic": ledger})


# --- ten thousand hostile requests -----------------------------------------------------------


def fuzzed(rng, agent, answered):
    """A request that is wrong in at least one way."""
    w = np.array([rng.uniform(-2, 2) for _ in range(SIZE)])
    values = {
        "run": ["june", "july", "", None, 5, "june\0", b"june", ["june"]],
        "round": [
            *range(-2, ROUNDS + 3),
            10**30,
            None,
            "4",
            4.5,
            float("nan"),
            np.int64(4),
            np.float64(4),
            True,
            [4],
            1j,
        ],
        "consensus": [
            w,
            w[:-1],
            np.append(w, 0.0),
            w[None],
            w * np.nan,
            np.where(w > 1, np.inf, w),
            w + 0j,
            w.astype("U"),
            [None] * SIZE,
            {},
            "w",
            3.0,
            b"\x00" * SIZE,
            np.array([], float),
            np.zeros((SIZE, SIZE)),
            object(),
            [[1], [2, 3]],
            np.array(["2020-01-01"] * SIZE, dtype="datetime64[D]"),
            np.full(SIZE, 10**400, dtype=object),
            w.astype(bool),
        ],
        "last": [
            {"clinic": agent.last_digest},
            {},
            {"clinic": ""},
            {"clinic": None},
            {"clinic": 7},
            None,
            "x",
            {"other": "ab"},
            [("clinic", agent.last_digest)],
        ],
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


def test_ten_thousand_hostile_requests(ledger, monkeypatch):
    agent, rng = make(ledger), random.Random(7)
    for t in (1, 2, 3):
        ask(agent, t)
    before, compute = (ledger.spent, ledger.head), agent._round
    monkeypatch.setattr(agent, "_round", lambda *a, **k: pytest.fail("data were touched"))
    logging.getLogger("tacit.admm.agent").setLevel(logging.ERROR)
    for _ in range(10_000):
        with pytest.raises(Refused):
            agent.respond(fuzzed(rng, agent, 3))
    logging.getLogger("tacit.admm.agent").setLevel(logging.NOTSET)
    assert (ledger.spent, ledger.head) == before
    monkeypatch.setattr(agent, "_round", compute)
    assert ask(agent, 4).round == 4  # and it still works


# --- kills -------------------------------------------------------------------------------------


def test_two_hundred_kills(tmp_path):
    program = Path(__file__).with_name("killed_agent.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "200"],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    calm = outcome["calm"]
    for name in ("killed", "fresh", "blocks"):
        killed = outcome[name]
        assert killed["refusals"] == []
        assert killed["lives"] == (40 if name == "blocks" else 200)
        assert len(killed["replies"]) == 50
        assert killed["short"] == 0  # the ledger never knew less than was answered
        assert killed["twice"] == 0  # no round was answered twice with different noise
    assert outcome["killed"]["replies"] == calm["replies"]
    assert outcome["killed"]["spent"] == outcome["fresh"]["spent"] == calm["spent"] <= 3.0
    assert outcome["fresh"]["replies"] != calm["replies"]
    # kills did fall between payment and answer
    assert outcome["killed"]["between"] >= 3 and outcome["fresh"]["between"] >= 3
    assert outcome["blocks"]["rounds_paid"] > 50
    assert np.abs(calm["replies"]).max() <= 1 + 1e-6


def test_digests_tell_messages_apart():
    w = np.arange(3.0)
    seen = {
        Broadcast("a", 1, w).digest,
        Broadcast("b", 1, w).digest,
        Broadcast("a", 2, w).digest,
        Broadcast("a", 1, w + 1e-16 + np.array([1e-9, 0, 0])).digest,
        Broadcast("a", 1, w.astype(np.float32)).digest,
        Broadcast("a", 1, w[:2]).digest,
    }
    assert len(seen) == 6


@pytest.mark.parametrize("batch", [True, False])
def test_the_noise_of_every_local_update_is_another(batch):
    """Without a gradient, two updates tell both noises: xi_1 = -c z_2, xi_2 = z_2/eta - c z_3."""
    n, penalty, step = 400, 2.0, 0.25
    f = tacit.LeastSquares(
        np.zeros((3, n)), np.zeros(3), feature_norm=1.0, target_bound=1.0, normaliser=3
    )
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=n))
    settings = tacit.Settings(1, 2, tacit.Gaussian(1e-3), penalty=penalty, step_size=step)
    seen = {}
    tacit.solve(
        [p, p],
        settings,
        seed=5,
        batch=batch,
        callback=lambda now: seen.update(last=now.points, mean=now.averages),
    )
    c = penalty + 1 / step
    noises = []
    for last, mean in zip(seen["last"], seen["mean"], strict=True):
        first = 2 * mean - last
        noises += [-c * first, first / step - c * last]
    noises = np.array(noises)
    assert noises.std(axis=1).max() < 1.2 * noises.std(axis=1).min()
    for i in range(4):  # two agents, two updates each
        for j in range(i):
            assert abs(np.corrcoef(noises[i], noises[j])[0, 1]) < 0.25, (i, j)


@pytest.mark.parametrize("batch", [True, False])
def test_the_noise_of_every_round_is_another(batch):
    """Without a gradient a round tells its noise: xi = z/eta + rho w + lambda - c z'."""
    n, penalty, step, rounds = 400, 2.0, 0.25, 3
    f = tacit.LeastSquares(
        np.zeros((3, n)), np.zeros(3), feature_norm=1.0, target_bound=1.0, normaliser=3
    )
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=n))
    settings = tacit.Settings(rounds, 1, tacit.Gaussian(1e-3), penalty=penalty, step_size=step)
    noises, z, dual = [], [np.zeros(n)] * 2, [np.zeros(n)] * 2

    def read(now):
        for k, point in enumerate(now.points):
            pull = z[k] / step + penalty * now.consensus + dual[k]
            noises.append(pull - (penalty + 1 / step) * point)
        z[:], dual[:] = now.points, now.duals

    tacit.solve([p, p], settings, seed=5, batch=batch, callback=read)
    assert len(noises) == 2 * rounds
    sizes = np.std(noises, axis=1)
    assert sizes.max() < 1.2 * sizes.min()
    together = np.corrcoef(noises) - np.eye(2 * rounds)
    assert np.abs(together).max() < 0.25
