"""What is refused, by all who refuse: a request of each kind, and no state that it leaves."""

import dataclasses
import json
import re

import numpy as np
import pytest
from clinic import SHORT, Willing, make, part
from conftest import problem_of

import tacit
from tacit.admm.fixed_point import Instructions
from tacit.admm.settings import penalty_from, step_size_from
from tacit.admm.theory import ErgodicAverage, constants
from tacit.errors import CorruptFile, InvalidInput
from tacit.privacy import seeded_noise
from tacit.privacy.ledger import Ledger
from tacit.privacy.seeded_noise import jax_key, root_key
from tacit.protocol import messages
from tacit.protocol.coordinator import Coordinator, Paused
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Curvature,
    Invite,
    Measure,
    Own,
    Propose,
    Refusal,
    ReleaseOnce,
    Reply,
    Restore,
    Snapshot,
    Start,
    answer_from,
)
from tacit.protocol.participant import WORDS, Participant, answer_bytes
from tacit.protocol.result import Progress
from tacit.protocol.statement import PrivacyStatement
from tacit.transports.local import Local

ROUNDS = Propose("", "june", 3, SHORT, 1e-5)
EXACT = tacit.Settings(5, tolerance=1e-3)
ONCE = Propose("", "june", 3, EXACT, 1e-5, tacit.Laplace(2.0), exact=True)
OWNER = Own("seeded", root_key(1), True, 1)


@pytest.fixture
def stranger(tmp_path):
    ledger = Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    return Participant(part(), "a", ledger=ledger, rules=Willing(part()))


def told(one, *requests):
    """The answer to the last of some requests, as words or an error's."""
    for request in requests:
        answer = one.handle(request)
    return answer


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        ([object()], "invalid"),
        ([Measure("june")], "invalid"),
        ([Snapshot("june")], "invalid"),
        ([ROUNDS, Restore("june", 1, ())], "invalid"),
        ([dataclasses.replace(ROUNDS, own=OWNER)], "invalid"),  # an owner's, to a stranger
        ([dataclasses.replace(ONCE, release=None)], "noise"),
        ([Broadcast("june", 1, np.zeros(3))], "not agreed"),
        ([ROUNDS, Broadcast("july", 1, np.zeros(3))], "not agreed"),
        ([ROUNDS, ReleaseOnce("june")], "refused"),  # a run with noise in every round
        ([ROUNDS, Start("june", np.ones(3), np.zeros(3, int))], "refused"),
        ([ROUNDS, Broadcast("june", 2, np.zeros(3))], "refused"),
        ([ONCE], "refused"),  # whose loss cannot be read once
        ([dataclasses.replace(ROUNDS, size=4)], "refused"),
        ([dataclasses.replace(ROUNDS, settings=tacit.Settings(4))], "refused"),
        ([dataclasses.replace(ROUNDS, settings=dataclasses.replace(SHORT, rounds=400))], "terms"),
    ],
)
def test_a_stranger_is_refused_in_words_and_pays_nothing(stranger, requests, code):
    answer = told(stranger, *requests)
    assert isinstance(answer, Refusal) and answer.words == f"Party 'a' {WORDS[code][1]}"
    assert answer.reason == WORDS[code][0]
    assert stranger.ledger.spent.epsilon == 0 and stranger.ledger.entries <= 2


def least_squares():
    f = tacit.LeastSquares(
        np.eye(3), np.ones(3), feature_norm=1.0, target_bound=1.0, normaliser=9.0
    )
    return tacit.LocalProblem(f, tacit.Ball(0.0, 1.0, 3), name="a")


def test_a_first_point_and_a_start_before_reading_are_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    one = Participant(least_squares(), "a", ledger=ledger, rules=Willing(least_squares()))
    penalties = np.ones(3), np.zeros(3, int)
    assert told(one, ONCE) == Agreed("june")
    assert told(one, Start("june", *penalties)).words.endswith("Nothing was computed.")
    assert ledger.spent.epsilon == 0
    assert isinstance(told(one, ReleaseOnce("june")), Curvature) and ledger.spent.epsilon > 0
    first = np.zeros(3), np.zeros(3)
    assert told(one, Start("june", *penalties, first)).words == f"Party 'a' {WORDS['invalid'][1]}"
    assert told(one, Start("june", np.ones(2), np.zeros(2, int))).reason == "refused"
    assert told(one, Start("june", *penalties)) == Agreed("june")
    assert isinstance(told(one, Broadcast("june", 1, np.zeros(3))), Reply)


def test_who_a_participant_belongs_to_is_said():
    for wrong in ({}, {"owner": True, "rules": Willing()}, {"rules": Willing()}):
        with pytest.raises(TypeError, match="either the owner"):
            Participant(part(), "a", **wrong)
    owner = Participant(part(), "a", owner=True)
    with pytest.raises(TypeError, match="not its owner's"):
        told(owner, dataclasses.replace(ROUNDS, own=OWNER))
        answer_bytes(owner, Invite("").to_bytes())
        owner.handle = lambda request: messages.Failure(ValueError("secret"))
        answer_bytes(owner, Invite("").to_bytes())


@pytest.mark.parametrize("name", ["point", "average", "dual"])
def test_an_agent_goes_on_from_arrays_of_its_size(name):
    agent = make(noise="seeded")
    given = {"point": np.zeros(12), "average": np.zeros(12), "dual": np.zeros(12)}
    with pytest.raises(InvalidInput, match=f"{name} of shape"):
        agent.restore(**given | {name: np.zeros(11)}, rounds_done=1)
    for bad in (np.full(12, np.nan), np.full(12, np.inf)):
        with pytest.raises(InvalidInput, match="Nothing was computed"):
            agent.restore(**given | {name: bad}, rounds_done=1)


# --- a coordinator --------------------------------------------------------------------------------


class Elsewhere:
    """Two participants, of whom the second answers what it likes."""

    own, names = True, ("a", "b")

    def __init__(self, answer, own=True):
        agents = [(name, part()) for name in self.names]
        self.here, self.answer, self.own = Local(agents, 1), answer, own

    def ask(self, requests, deadline=None):
        found = dict(self.here.ask(requests, deadline))
        return self.answer(requests, found)


def problem():
    return tacit.Problem([dataclasses.replace(part(), name=n, coupling=None) for n in "ab"])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda asked, found: {"a": found["a"]}, "Party 'b' owes a State as answer; got none"),
        (lambda asked, found: found | {"b": Agreed("x")}, "owes a State as answer; got another"),
        (
            lambda asked, found: (
                found | {"b": messages.State(True)} if isinstance(asked["b"], Snapshot) else found
            ),
            "ledgers on all ranks or on none",
        ),
    ],
)
def test_answers_of_another_kind_end_a_run(answer, words):
    with pytest.raises(tacit.errors.TacitError, match=words):
        Coordinator(Elsewhere(answer), SHORT, known=problem(), seed=1).conduct()


def test_facts_of_another_are_refused():
    def turned(asked, found):
        return dict(zip(found, reversed(found.values()), strict=True))

    with pytest.raises(InvalidInput, match="Expected the facts of party 'a'"):
        Coordinator(Elsewhere(turned, own=False), SHORT).conduct()


def test_who_refuses_is_named_and_all_of_them():
    def both(asked, found):
        return {n: Refusal("", 0, "refused", f"Party {n!r} will not.") for n in asked}

    with pytest.raises(Paused) as pause:
        Coordinator(Elsewhere(both, own=False), SHORT).conduct()
    assert pause.value.parties == {n: f"Party {n!r} will not." for n in "ab"}
    assert "before the first round" in str(pause.value) and "cannot go on" in str(pause.value)


# --- messages, schedules, keys --------------------------------------------------------------------


def test_what_does_not_travel():
    for own in (
        dataclasses.replace(ROUNDS, own=OWNER),
        dataclasses.replace(ROUNDS, exact=True),
        dataclasses.replace(ONCE, exact=False),
    ):
        with pytest.raises(TypeError, match="does not travel"):
            own.to_bytes()
    for vector in (np.zeros((2, 2)), np.array(["x"]), np.zeros(2, bool)):
        with pytest.raises(TypeError, match="a vector of numbers"):
            Broadcast("june", 1, vector).to_bytes()


def test_a_message_is_no_longer_than_the_largest(monkeypatch):
    data = Agreed("june").to_bytes()
    monkeypatch.setattr(messages, "LARGEST", len(data))
    assert answer_from(data) == Agreed("june")
    monkeypatch.setattr(messages, "LARGEST", len(data) - 1)
    with pytest.raises(CorruptFile, match=f"{len(data)} bytes"):
        answer_from(data)


def exact_of(**changes):
    return dataclasses.replace(problem_theory(), **changes)


def problem_theory():
    return tacit.Settings(
        4, 1, tacit.Gaussian(1.0), penalty=0.5, step_size=tacit.NonsmoothStep(0.1)
    )


class Falling(tacit.ConstantPenalty):
    def __call__(self, t):
        return self.value / t


class Growing(tacit.ConstantPenalty):
    def __call__(self, t):
        return self.value * t * t


STRONG = {"step_size": tacit.StronglyConvexStep(0.25)}
WRONG = [
    (lambda: Instructions.from_vector(np.zeros(1)), "instructions of a server"),
    (lambda: Instructions.from_vector(np.array([2.0, 0])), "instructions of a server"),
    (lambda: Instructions.from_vector(np.array([0.0, 2, 1])), "2 factors"),
    (lambda: Instructions.from_vector(np.array([0.0, 0.5, 1, 1])), "instructions of a server"),
    (lambda: root_key(-1), "seed=-1"),
    (lambda: root_key(2**63), "seed=9223372036854775808"),
    (lambda: root_key(True), "seed=True"),
    (lambda: root_key(1.0), "seed=1.0"),
    (lambda: penalty_from({"kind": "nonsmooth"}), "'nonsmooth'"),
    (lambda: step_size_from("constant"), "a kind out of"),
    (lambda: step_size_from({"kind": "smooth", "growth": 1.0}), "smoothness, growth; got growth"),
    (lambda: step_size_from({"kind": "smooth"}), "got nothing"),
    (lambda: tacit.DynamicPenalty(1, 1, 1, 5, factor=0.9), "factor=0.9"),
    (lambda: tacit.DynamicPenalty(1, 1, 1, 5, cap=0.0), "cap"),
    (lambda: tacit.DynamicPenalty(1, 1, 1, 0), "period"),
    (lambda: tacit.DynamicPenalty(1, -1, 1, 5), "privacy"),
    (lambda: tacit.DynamicPenalty(1, 1, 0, 5), "epsilon"),
    (lambda: tacit.Settings(5, penalty=Falling(1e-100)), "in round 5"),
    (lambda: constants(problem_of("logistic", "box"), exact_of(penalty=Falling(1.0))), "nondecr"),
    (
        lambda: constants(
            problem_of("least-squares", "box", ridge=0.5), exact_of(penalty=Growing(1.0), **STRONG)
        ),
        "at most like t",
    ),
    (
        lambda: constants(problem_of("least-squares", "box", ridge=0.125), exact_of(**STRONG)),
        "strongly convex",
    ),
    (
        lambda: ErgodicAverage(problem_of("logistic", "box"), "smooth", 1)(
            Progress(2, np.zeros(4), [], [], [], {})
        ),
        "every round in turn",
    ),
    (lambda: ErgodicAverage(problem_of("logistic", "box"), "rough", 1), "theorem"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_what_is_wrong_is_named(call, words):
    with pytest.raises(InvalidInput, match=re.escape(words)):
        call()


def test_no_more_numbers_in_a_draw_than_there_are_counters():
    with pytest.raises(ValueError, match="fewer than 2\\^32"):
        seeded_noise.random_bits(jax_key(root_key(1)), 2**32)


def test_sensitivities_of_a_vector_are_checked_one_by_one():
    """A bad one gives no number that could pass for noise."""
    found = tacit.Gaussian(2.0).scale(np.array([0.5, 0.0, -1.0, np.inf, np.nan]))
    np.testing.assert_array_equal(found, [1.0, *[np.nan] * 4])


# --- a statement as JSON --------------------------------------------------------------------------


def test_every_field_of_a_statement_is_in_its_json_and_comes_back():
    """A value of its own for each: none is left out, nor put in another's place."""
    own = PrivacyStatement(
        **{"epsilon": 1.5, "delta": 1e-4, "mechanism": "laplace", "updates": 7, "seeded": True},
        **{"neighbours": (("x", ("a", "b")), ("y", ("c",))), "uncertified": "why", "secure": True},
        **{"assumed": "sizes", "once": True, "before": "a mean", "parties": 5, "colluding": 2},
        **{"alone": 9.5, "after": "a histogram"},
    )
    data = own.to_dict()
    assert PrivacyStatement.from_dict(json.loads(json.dumps(data))) == own
    for field in dataclasses.fields(own):
        if field.name != "neighbours":
            assert data[field.name] == getattr(own, field.name), field.name
    assert data["neighbours"] == [
        {"change": "x", "agents": ["a", "b"]},
        {"change": "y", "agents": ["c"]},
    ]
    assert data["certified"] is False and data["statement"] == own.words
    alone = dataclasses.replace(own, parties=1, colluding=0, alone=0.0, before="")
    assert alone.to_dict().keys() == data.keys() - {"parties", "colluding", "alone", "before"}
    assert PrivacyStatement.from_dict(alone.to_dict()) == alone
