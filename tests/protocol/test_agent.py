"""An agent's answers: once each, paid before, stored before release, whatever fails."""

import threading

import jax
import numpy as np
import pytest
from clinic import ROUNDS, SHORT, SIZE, ask, make, part

import tacit
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
