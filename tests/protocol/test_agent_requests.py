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


@pytest.mark.parametrize(
    "change",
    [{"rounds": ROUNDS - 1}, {"noise": "seeded"}],
    ids=lambda c: next(iter(c)),
)
def test_terms_of_a_run_cannot_change(ledger, change):
    make(ledger)
    with pytest.raises(Refused, match="other terms"):
        make(ledger, **change)


@pytest.mark.parametrize("noise", ["secure", "seeded"])
@pytest.mark.parametrize("change", ["sensitivity", "size", "penalty"])
def test_what_replies_depend_on_is_in_the_terms(ledger, change, noise):
    """Of another bound the same multiplier makes other noise."""
    f, W = problem().objective, problem().feasible_set
    part = tacit.LocalProblem(f, W, np.arange(SIZE), "clinic")  # of more coordinates, perhaps
    other = problem(normaliser=90) if change == "sensitivity" else part
    chosen = settings(penalty=2.0) if change == "penalty" else settings()
    size, key = SIZE + (change == "size"), jax.random.key(3)
    Agent(part, "clinic", settings(), key, "june", SIZE, ledger=ledger, noise=noise)
    with pytest.raises(Refused, match="other terms"):
        Agent(other, "clinic", chosen, key, "june", size, ledger=ledger, noise=noise)


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
