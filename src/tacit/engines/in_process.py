"""An engine whose agents are objects of this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from tacit.admm.messages import Broadcast, Refusal, Reply, from_bytes
from tacit.errors import CorruptFile, LedgerFailure, Refused, SolverFailure

T = TypeVar("T")


class Responder(Protocol):
    """An agent: of private data (``Agent``), or of a released problem (``PublicAgent``)."""

    name: str
    run: str

    def respond(self, broadcast: Broadcast) -> Reply: ...


A = TypeVar("A", bound=Responder)
log = logging.getLogger("tacit.agent")


def answer(agent: Responder, broadcast: Broadcast) -> Reply | Refusal:
    """The agent's reply, or why there is none, for those who may know all about the agent."""
    try:
        return agent.respond(broadcast)
    except (Refused, SolverFailure, LedgerFailure) as error:
        return Refusal.of(error, agent.run, broadcast.round)


# What a server is told. Why is in the agent's log: it may name files, budgets and other runs.
WORDS = {
    "refused": "refused the request. Nothing was computed.",
    "failed": "failed in this round. Nothing of it was released.",
    "ledger": "could not pay. Nothing was released.",
}


def answer_bytes(agent: Responder, request: bytes) -> bytes:
    """The answer of an agent behind a line: bytes in, bytes out.

    Guarantee: every answer is a reply that ``Agent.respond`` gave, or a refusal in one of three
    sentences; no exception leaves, whatever the request and whatever happens inside.
    """
    round = 0
    try:
        message = _broadcast(agent, request)
        round = message.round
        return agent.respond(message).to_bytes()
    except Refused:  # which the agent has logged
        reason = "refused"
    except (LedgerFailure, CorruptFile) as error:
        reason = "ledger"
        log.error("Agent %r, round %s: %s", agent.name, round, error)
    except Exception as error:  # its words may be about the data
        reason = "failed"
        log.error("Agent %r, round %s: %s", agent.name, round, type(error).__name__)
    return Refusal(agent.run, round, reason, f"Agent {agent.name!r} {WORDS[reason]}").to_bytes()


def _broadcast(agent: Responder, request: bytes) -> Broadcast:
    try:
        message = from_bytes(request)
        if isinstance(message, Broadcast):
            return message
        words = f"expects a broadcast, got a {message.kind}."
    except CorruptFile as error:
        words = f"got no message. {error}"
    log.warning("Agent %r %s", agent.name, words)
    raise Refused(words)


class InProcess(Generic[A]):
    """Agents of this process, ``workers`` of them at a time.

    Workers are threads: the cone solver runs outside of Python's lock. No number depends on how
    many there are, as agents share nothing. There is no deadline: what an agent has paid for, it
    computes to the end.

    through_bytes  encode and decode every message, as between processes
    """

    def __init__(self, agents: Sequence[A], workers: int = 1, through_bytes: bool = False) -> None:
        self.agents, self.through_bytes = agents, through_bytes
        self._pool = ThreadPoolExecutor(min(workers, len(agents))) if workers > 1 else None

    def exchange(
        self, broadcast: Broadcast, deadline: float | None = None
    ) -> dict[str, Reply | Refusal]:
        def one(agent: A) -> Reply | Refusal:
            if not self.through_bytes:
                return answer(agent, broadcast)
            message = from_bytes(answer_bytes(agent, broadcast.to_bytes()))
            assert not isinstance(message, Broadcast)
            return message

        return dict(zip((a.name for a in self.agents), self.for_each(one), strict=True))

    def for_each(self, task: Callable[[A], T]) -> list[T]:
        """``task`` of every agent, in order."""
        return list((self._pool.map if self._pool else map)(task, self.agents))
