"""An engine whose agents are objects of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tacit.admm.agent import Agent
from tacit.admm.messages import Broadcast, Refusal, Reply, from_bytes
from tacit.errors import CorruptFile, LedgerFailure, Refused, SolverFailure

T = TypeVar("T")


def answer(agent: Agent, broadcast: Broadcast) -> Reply | Refusal:
    """The agent's reply, or why there is none."""
    try:
        return agent.respond(broadcast)
    except (Refused, SolverFailure, LedgerFailure) as error:
        return Refusal.of(error, agent.run, broadcast.round)


def answer_bytes(agent: Agent, request: bytes) -> bytes:
    """The same for an agent behind a line: bytes in, bytes out."""
    try:
        message = from_bytes(request)
    except CorruptFile as error:
        return Refusal(agent.run, 0, "refused", str(error)).to_bytes()
    if not isinstance(message, Broadcast):
        words = f"Agent {agent.name!r} expects a broadcast, got a {message.kind}."
        return Refusal(agent.run, message.round, "refused", words).to_bytes()
    return answer(agent, message).to_bytes()


class InProcess:
    """Agents of this process, ``workers`` of them at a time.

    Workers are threads: the cone solver runs outside of Python's lock. No number depends on how
    many there are, as agents share nothing. There is no deadline: what an agent has paid for, it
    computes to the end.

    through_bytes  encode and decode every message, as between processes
    """

    def __init__(
        self, agents: Sequence[Agent], workers: int = 1, through_bytes: bool = False
    ) -> None:
        self.agents, self.through_bytes = agents, through_bytes
        self._pool = ThreadPoolExecutor(min(workers, len(agents))) if workers > 1 else None

    def exchange(
        self, broadcast: Broadcast, deadline: float | None = None
    ) -> dict[str, Reply | Refusal]:
        def one(agent: Agent) -> Reply | Refusal:
            if not self.through_bytes:
                return answer(agent, broadcast)
            message = from_bytes(answer_bytes(agent, broadcast.to_bytes()))
            assert not isinstance(message, Broadcast)
            return message

        return dict(zip((a.name for a in self.agents), self.for_each(one), strict=True))

    def for_each(self, task: Callable[[Agent], T]) -> list[T]:
        """``task`` of every agent, in order."""
        return list((self._pool.map if self._pool else map)(task, self.agents))
