"""An agent cannot be talked into anything: terms, budgets, hostile requests."""

import logging
import random

import jax
import numpy as np
import pytest
from clinic import ROUNDS, SIZE, ask, make, problem, settings
from conftest import repeat

import tacit
from tacit.errors import InvalidInput, Refused
from tacit.privacy.ledger import Ledger
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "clinic.db", 1.5, 1e-5)


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
    for _ in range(repeat(3_000, 10_000)):
        with pytest.raises(Refused):
            agent.respond(fuzzed(rng, agent, 3))
    logging.getLogger("tacit.protocol.agent").setLevel(logging.NOTSET)
    assert (ledger.spent, ledger.head) == before
    monkeypatch.setattr(agent, "_round", compute)
    assert ask(agent, 4).round == 4  # and it still works
