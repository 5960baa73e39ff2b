"""The server: lines 1-8 of Algorithm 1 from names, couplings, settings and replies alone."""

import ast
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.protocol import server as module
from tacit.protocol.messages import Broadcast, Refusal, Reply
from tacit.protocol.server import Member, Server

SETTINGS = tacit.Settings(5, penalty=2.0, step_size=0.1)
MEMBERS = [
    Member("a", np.array([0, 1]), np.array([1.0, 2.0])),
    Member("b", np.array([1]), np.array([4.0])),
]


class Scripted:
    """A transport that answers what it was told to."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def ask(self, requests, deadline=None):
        assert list(requests) == ["a", "b"][: len(requests)]
        self.asked.append((next(iter(requests.values())), deadline))
        return self.answers


def reply(*numbers, round=1, run="run"):
    return Reply(run, round, np.array(numbers))


def test_one_round_by_hand():
    server, engine = Server(MEMBERS, SETTINGS, "run"), Scripted(a=reply(1.0, 3.0), b=reply(5.0))
    assert server.step(engine, deadline=7.0) == {}
    ((broadcast, deadline),) = engine.asked
    assert (broadcast.run, broadcast.round, broadcast.last, deadline) == ("run", 1, {}, 7.0)
    np.testing.assert_array_equal(broadcast.consensus, [1.0, 3.0])  # mean of 2 and 4; λ = 0
    np.testing.assert_array_equal(server.λ, [0.0, 0.0, -4.0])  # ρ(w − z)
    np.testing.assert_array_equal(server.solution, [1.0, 4.0])
    assert server.residual == 2.0 and server.round == 1
    second = Scripted(a=reply(1.0, 3.0, round=2), b=reply(5.0, round=2))
    assert server.step(second) == {}
    asked = second.asked[0][0]
    np.testing.assert_array_equal(asked.consensus, [1.0, 5.0])  # mean of z − λ/ρ
    assert asked.last == {n: r.digest for n, r in engine.answers.items()}


@pytest.mark.parametrize("wrong", [np.array([1.0, np.nan, 0.0]), np.full(3, np.inf), np.zeros(2)])
def test_a_server_does_not_go_on_from_what_nobody_sent(wrong):
    server, z = Server(MEMBERS, SETTINGS, "run"), np.array([1.0, 3.0, 5.0])
    for held in ((wrong, z), (z, wrong)):
        with pytest.raises(InvalidInput, match="finite numbers of shape"):
            server.restore(*held, 1)
    assert server.round == 0
    server.restore(z, 0 * z, 1)
    assert server.round == 1 and server.solution.tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "missing"),
        (Refusal("run", 1, "refused", "no"), "refused"),
        (Refusal("run", 1, "failed", "no"), "failed"),
        (reply(5.0, round=2), "invalid"),
        (reply(5.0, run="other"), "invalid"),
        (reply(5.0, 6.0), "invalid"),
        (reply(), "invalid"),
        (reply(np.nan), "invalid"),
        (reply(1.7e308), "invalid"),
        (Reply("run", 1, np.array([5.0], np.float16)), "invalid"),
        (Reply("run", 1, np.array([5])), "invalid"),
        (Reply("run", 1, np.array(["5"])), "invalid"),
        (Broadcast("run", 1, np.array([5.0])), "invalid"),
        ("words", "invalid"),
    ],
)
def test_an_agent_without_a_reply_is_a_value_and_the_round_can_be_asked_again(answer, reason):
    server = Server(MEMBERS, SETTINGS, "run")
    before = [x.copy() for x in (server.z, server.λ, server.w)]
    answers = {"a": reply(1.0, 3.0), "b": answer}
    if answer is None:
        del answers["b"]
    refusals = server.step(Scripted(**answers))
    assert list(refusals) == ["b"] and refusals["b"].reason == reason
    assert isinstance(refusals["b"].error(), tacit.TacitError)
    assert server.round == 0
    for old, new in zip(before, (server.z, server.λ, server.w), strict=True):
        np.testing.assert_array_equal(old, new)
    again = Scripted(a=reply(1.0, 3.0), b=reply(5.0))
    assert server.step(again) == {} and server.round == 1


def test_a_reply_that_would_overflow_a_dual_leaves_the_server_as_it_was():
    members = [Member(m.name, m.coordinates, m.start.astype(np.float32)) for m in MEMBERS]
    server = Server(members, tacit.Settings(5, penalty=1e15, step_size=0.1), "run", np.float32)
    huge = Reply("run", 1, np.array([9e29], np.float32))
    honest = Reply("run", 1, np.array([1.0, 3.0], np.float32))
    assert list(server.step(Scripted(a=honest, b=huge))) == ["b"]
    assert server.round == 0 and not server.λ.any()


def test_strangers_are_not_heard():
    server = Server(MEMBERS, SETTINGS, "run")
    assert server.step(Scripted(a=reply(1.0, 3.0), b=reply(5.0), c=reply(1e9))) == {}
    np.testing.assert_array_equal(server.solution, [1.0, 4.0])


def test_an_agent_s_digests_survive_a_server_of_another_number_format():
    """The server computes in float64; what it says it heard is what a float32 agent sent."""
    members = [Member("a", np.arange(2), np.zeros(2, np.float32))]
    server = Server(members, SETTINGS, "run")
    said = Reply("run", 1, np.array([0.1, 0.2], np.float32))
    assert server.step(Scripted(a=said)) == {}
    again = Server(members, SETTINGS, "run")
    again.restore(server.z, server.λ, 1)
    assert np.isnan(again.residual)  # not known before the next round
    engine = Scripted()
    again.step(engine)
    assert engine.asked[0][0].last == {"a": said.digest}


def test_a_server_imports_nothing_private():
    """Neither agents nor objectives nor data: what it must not know, it cannot name."""
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    ours = {m for m in imported if m.startswith("tacit.")} - {"tacit._types", "tacit.errors"}
    assert ours == {
        "tacit.protocol.messages",
        *(f"tacit.admm.{name}" for name in ("settings", "algorithm", "adaptive", "fixed_point")),
    }
