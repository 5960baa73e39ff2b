"""Payments are owned and used once, whichever process pays, fails, dies or takes over."""

import random
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from clinic import SIZE, ask, counted, make
from conftest import repeat

from tacit.errors import CorruptFile, LedgerFailure, Refused, SolverFailure
from tacit.privacy.ledger import Ledger, Payments, Terms
from tacit.privacy.mechanisms import Gaussian


def terms(noise="secure"):
    return Terms("a", Gaussian(400.0), 3, 1, 0.0, noise, "one record", "digest")


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "clinic.db", 30.0, 1e-5)


def kinds(ledger):
    return [kind for (kind,) in ledger._db.execute("SELECT kind FROM entries ORDER BY serial")]


def fail(*arguments, **others):
    raise SolverFailure("no.")


def in_the_middle(agent, monkeypatch, act, fails):
    """Let ``act`` happen while the agent computes; then it may fail."""
    compute = agent._round

    def acting(*arguments, **others):
        result = compute(*arguments, **others)
        act()
        return fail() if fails else result

    monkeypatch.setattr(agent, "_round", acting)


def failing(agent, monkeypatch, **about):
    """What happens where round 1 fails at this agent."""
    monkeypatch.setattr(agent, "_round", fail)

    def asked():
        with pytest.raises(SolverFailure):
            ask(agent, 1, **about)

    return asked


@pytest.mark.parametrize("fails", [False, True])
def test_who_was_taken_over_shows_nothing(ledger, monkeypatch, fails):
    """The counterexample: the second process used the first one's payment, then the first failed.

    What the first says is the same whether its computation failed or not.
    """
    first, second = make(ledger), make(Ledger(ledger.path))
    in_the_middle(first, monkeypatch, failing(second, monkeypatch), fails)
    with pytest.raises(Refused, match="taken the payment over or used it") as refusal:
        ask(first, 1)
    assert refusal.value.__context__ is None and refusal.value.__cause__ is None
    assert kinds(ledger) == ["budget", "run", "charge", "claim", "failed"]
    assert first.rounds_done == 0 and ledger.answer("june") is None
    monkeypatch.undo()
    ask(first, 1)  # and it pays anew
    assert kinds(ledger)[-2:] == ["charge", "answer"]


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_came_meanwhile_is_the_one_that_is_shown(ledger, monkeypatch, fails):
    first, second = make(ledger), make(Ledger(ledger.path))
    found = []
    in_the_middle(first, monkeypatch, lambda: found.append(ask(second, 1).primal), fails)
    np.testing.assert_array_equal(ask(first, 1).primal, found[0])
    assert kinds(ledger) == ["budget", "run", "charge", "claim", "answer"]


@pytest.mark.parametrize("fails", [False, True])
def test_seeded_noise_is_shown_once(ledger, monkeypatch, fails):
    """Both paid; the noise is the same, so that two payments are not two computations."""
    first, second = (make(Ledger(ledger.path), noise="seeded") for _ in range(2))
    second._payments._may_inherit = False
    in_the_middle(first, monkeypatch, failing(second, monkeypatch, w=np.ones(SIZE)), fails)
    with pytest.raises(Refused, match="seed would repeat the noise"):
        ask(first, 1)
    assert kinds(ledger) == ["budget", "run", "charge", "charge", "failed"]


def test_a_process_takes_over_once_and_then_pays_itself(ledger):
    """Else two processes could take the payment from each other for ever."""
    ledger.begin("r", terms())
    first, second = Payments(ledger, "r"), Payments(ledger, "r")
    assert first.pay(1) and second.pay(1)
    with pytest.raises(Refused):
        first.store(1, "q", b"r", b"s")
    assert first.pay(1)
    assert kinds(ledger)[2:] == ["charge", "claim", "charge"]
    assert first.store(1, "q", b"r", b"s") and not second.fail(1)
    assert not Payments(ledger, "r").pay(1)  # it has an answer: nothing to pay for
    assert kinds(ledger)[2:] == ["charge", "claim", "charge", "answer"]


def test_a_payment_is_used_once_and_only_for_its_rounds(ledger):
    ledger.begin("r", terms())
    payment = ledger.charge("r", 1, 2)
    assert ledger.fail(payment, 1)
    others = ({"owner": "other"}, {"owner": ""}, {"serial": 1}, {"serial": 99}, {"run": "s"})
    wrong = [(payment, 1), (payment, 3), *((payment._replace(**other), 2) for other in others)]
    for used, t in wrong:
        for use in (lambda: ledger.fail(used, t), lambda: ledger.store(used, t, "q", b"r", b"s")):  # noqa: B023
            with pytest.raises(Refused, match="Nothing of this round was released"):
                use()
    assert ledger.store(payment, 2, "q", b"r", b"s")
    assert kinds(ledger)[2:] == ["charge", "failed", "answer"]


@pytest.mark.parametrize("noise", ["secure", "seeded"])
def test_no_order_of_events_shows_more_than_was_paid_for(tmp_path, noise):
    """Three places for processes, 40 random orders of paying, answering, failing and dying."""
    rng = random.Random(noise)
    seen = set()
    for run in range(40):
        ledger = Ledger.create(tmp_path / f"{run}.db", 30.0, 1e-5)
        ledger.begin("r", terms(noise))
        at_work = [None] * 3  # the round each process has paid for and computes
        processes = [Payments(ledger, "r") for _ in at_work]
        shown, t = [], 1
        for _ in range(16):
            i = rng.randrange(3)
            event = rng.choice(["pay", "answer", "fail", "die"])
            try:
                if event == "die":
                    processes[i], at_work[i] = Payments(ledger, "r"), None
                elif event == "pay":
                    at_work[i] = t if processes[i].pay(t) else None
                elif at_work[i] is not None:
                    now, at_work[i] = at_work[i], None
                    if event == "answer" and processes[i].store(now, "q", b"%d" % i, b"s"):
                        shown.append((now, "answer"))
                    elif event == "fail" and processes[i].fail(now):
                        shown.append((now, "failed"))
                    seen.add(event)
            except Refused as refusal:
                seen.add("taken over" if "taken the payment" in str(refusal) else "seed")
            if (t, "answer") in shown and t < 3:
                t += 1
            for u in (1, 2, 3):
                paid = sum(first <= u <= last for first, last in ledger.charged("r"))
                computations = sum(round == u for round, _ in shown)
                assert computations <= (min(paid, 1) if noise == "seeded" else paid)
                assert shown.count((u, "answer")) <= 1
        ledger.close()
    assert {"answer", "fail"} <= seen
    assert "taken over" in seen


def test_a_forked_process_cannot_use_the_ledger(ledger):
    ledger.begin("r", terms())
    ledger._process -= 1  # as it is after a fork
    for use in (lambda: ledger.charge("r", 1, 1), lambda: ledger.answer("r"), lambda: ledger.spent):
        with pytest.raises(LedgerFailure, match="forked"):
            use()


def test_a_ledger_turned_back_in_use_is_noticed(ledger, tmp_path):
    """An owner's payment must not be mistaken for another one of the same number."""
    ledger.begin("r", terms())
    ledger.backup(tmp_path / "old.db")
    payment = ledger.charge("r", 1, 1)
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.backup(sqlite3.connect(ledger.path))
    assert Ledger(ledger.path).charge("r", 1, 1).serial == payment.serial
    with pytest.raises(CorruptFile, match="while in use"):
        ledger.store(payment, 1, "q", b"r", b"s")


def test_two_processes_killed_and_failing():
    """A few runs here; ``python tests/protocol/two_processes.py --runs 100`` for more."""
    runs = repeat(4, 12)
    found = counted("two_processes.py", "--runs", runs)
    assert found["unpaid"] == 0 and found["answered_twice"] == 0
    assert found["kills"] >= 2 * runs and 12 * found["failures"] >= 20 * runs
    assert 12 * found["taken_over"] >= 5 * runs
    assert found["kills_alone"] >= 2 * runs and found["taken_over_alone"] >= 1
