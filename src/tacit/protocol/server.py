"""The server of Algorithm 1: the consensus of every round, from public facts and replies alone.

    Server.step(transport):   w  →  Transport.ask  →  one reply, or a refusal, from every agent

A transport carries messages and knows nothing of what they mean: agents in this process, on the
ranks of a cluster, or with other organisations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit._types import Vector
from tacit.admm.adaptive import Ground, Pace, consensus_learned, consensus_steps
from tacit.admm.algorithm import Holders, Round, average_over_holders, dual_step, server_step
from tacit.admm.fixed_point import Residuals, ServerRounds
from tacit.admm.settings import Settings, schedule_in
from tacit.errors import InvalidInput
from tacit.protocol.messages import Answer, Broadcast, Refusal, Reply, Request

# Number formats of replies, and the largest number in them: far beyond any set's
FORMATS = {np.dtype(np.float32): 1e30, np.dtype(np.float64): 1e100}


class Transport(Protocol):
    """Carries requests to participants, by name, and their answers back. It knows nothing.

    own      whether whoever asks owns all the data, and may be told everything
    names    of all participants, in the order of the problem
    """

    own: bool
    names: tuple[str, ...]

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> Mapping[str, Answer]:
        """Everyone's answer; whoever says nothing within ``deadline`` seconds is left out."""


@dataclass(frozen=True)
class Member:
    """What a server knows of an agent before the first round; all of it is public."""

    name: str
    coordinates: Vector  # the global coordinates that it holds, in its own order
    start: Vector  # z^1 there


class Server:
    """Lines 1-8: the consensus, and the server's own copies of the agents' duals.

    It holds z and λ of all agents' coupled coordinates, one after another.

    reminds  whether broadcasts say which reply was the last, as agents with ledgers ask for
    """

    def __init__(
        self,
        members: Sequence[Member],
        settings: Settings,
        run: str,
        dtype: Any = np.float64,
        reminds: bool = True,
    ) -> None:
        self.members, self.settings, self.run = tuple(members), settings, run
        self._reminds = reminds
        self.round = 0  # the last one that was answered by all
        self.dtype = np.dtype(dtype)
        self.index = np.concatenate([m.coordinates for m in members])
        self.size = int(self.index.max()) + 1
        self.holders = Holders.of([m.coordinates for m in members], self.size, self.dtype)
        self.w = np.zeros(self.size, self.dtype)
        self.z = np.concatenate([m.start for m in members]).astype(self.dtype)
        self.λ = np.zeros_like(self.z)
        self._answered: dict[str, Reply] = {}  # those of the last round

    def step(self, transport: Any, deadline: float | None = None) -> dict[str, Refusal]:
        """One round. Returns who did not reply, and why; if anyone, the round is not done.

        The same request may then be made again: agents repeat what they have answered.
        """
        broadcast = self._question()
        answers = transport.ask(dict.fromkeys([m.name for m in self.members], broadcast), deadline)
        replies, refusals = self._sorted(answers, broadcast.round)
        if not refusals:
            refusals = self._take(broadcast, replies)
        if not refusals:
            self.w, self.round, self._answered = broadcast.consensus, broadcast.round, replies
        return refusals

    @property
    def _last(self) -> dict[str, str]:
        """The digests of the last replies."""
        told = self._answered if self._reminds else {}
        return {name: reply.digest for name, reply in told.items()}

    def _question(self) -> Broadcast:
        """Line 5."""
        t = self.round + 1
        ρ = schedule_in(self.dtype, self.settings, t, t)[0][0]
        w = server_step(self.z, self.λ, ρ, self.holders)
        return Broadcast(self.run, t, w, self._last)

    def _take(self, broadcast: Broadcast, replies: Mapping[str, Reply]) -> dict[str, Refusal]:
        """Line 8, given everyone's reply; those that cannot be taken."""
        t = broadcast.round
        return self._taken(broadcast, replies, schedule_in(self.dtype, self.settings, t, t)[0][0])

    def _taken(
        self, broadcast: Broadcast, replies: Mapping[str, Reply], ρ: Vector
    ) -> dict[str, Refusal]:
        t, refusals = broadcast.round, {}
        z = np.concatenate([replies[m.name].primal for m in self.members])
        with np.errstate(over="ignore"):
            λ = dual_step(self.λ, ρ, broadcast.consensus[self.index], z)
        for member, part in zip(self.members, self.parts(λ), strict=True):
            if not np.isfinite(part).all():
                words = f"The reply of agent {member.name!r} to round {t} overflows its dual."
                refusals[member.name] = Refusal(self.run, t, "invalid", words)
        if not refusals:
            self.z, self.λ = z, λ
        return refusals

    def _sorted(
        self, answers: Mapping[str, Answer], t: int
    ) -> tuple[dict[str, Reply], dict[str, Refusal]]:
        """Replies to this round, and everything else as a refusal."""
        replies: dict[str, Reply] = {}
        refusals: dict[str, Refusal] = {}
        for member in self.members:
            answer = answers.get(member.name)
            if type(answer) is Refusal:
                refusals[member.name] = answer
            elif answer is None:
                words = f"Agent {member.name!r} gave no answer to round {t} in time."
                refusals[member.name] = Refusal(self.run, t, "missing", words)
            else:
                reply = self._read(answer, t, member)
                if isinstance(reply, Reply):
                    replies[member.name] = reply
                    continue
                words = f"Expected a reply of agent {member.name!r} to round {t}, got {reply}."
                refusals[member.name] = Refusal(self.run, t, "invalid", words)
        return replies, refusals

    def _read(self, reply: Any, t: int, member: Member) -> Reply | str:
        """The server's own copy of a reply to this round, or what it got instead."""
        if type(reply) is not Reply:
            return type(reply).__name__
        if reply.run != self.run or reply.round != t:
            return f"one to round {reply.round!r} of {reply.run!r}"
        primal = np.array(reply.primal)
        if primal.dtype not in FORMATS or primal.shape != member.coordinates.shape:
            return f"{primal.dtype} of shape {primal.shape}, not {member.coordinates.shape}"
        if not (np.abs(primal) <= FORMATS[primal.dtype]).all():
            return "numbers that are not finite, or larger than any set's"
        return Reply(self.run, t, primal, reply.settled is True)

    @property
    def residual(self) -> float:
        """‖Aw − z‖: how far the agents are from the consensus. Replies tell it to everyone."""
        return float(np.linalg.norm(self.w[self.index] - self.z))

    @property
    def solution(self) -> Vector:
        """The mean of the last replies over the holders of each coordinate."""
        found: Vector = average_over_holders(self.z, self.holders)
        return found

    def parts(self, values: Vector) -> list[Vector]:
        """``values``, such as z or λ, agent by agent."""
        return np.split(values, np.cumsum([len(m.coordinates) for m in self.members])[:-1])

    def restore(self, z: Vector, λ: Vector, rounds_done: int) -> None:
        """Continue after ``rounds_done`` rounds, with what was held then."""
        for name, value in (("z", z), ("λ", λ)):
            if np.shape(value) != self.z.shape or not np.isfinite(value).all():
                raise InvalidInput(f"Expected finite numbers of shape {self.z.shape} as {name}.")
        self.z, self.λ = np.asarray(z, self.dtype), np.asarray(λ, self.dtype)
        self.round, self.w = rounds_done, np.full(self.size, np.nan, self.dtype)  # not known now
        self._answered = {
            m.name: Reply(self.run, rounds_done, part.astype(m.start.dtype))  # as it was sent
            for m, part in zip(self.members, self.parts(self.z), strict=True)
            if rounds_done
        }


class AdaptiveServer(Server):
    """Lines 1-8 where steps adapt to what is public (``adaptive.py``): it tells d, and 1/s of every
    coordinate, for the round that comes."""

    def __init__(self, *about: Any, ground: Ground, **others: Any) -> None:
        super().__init__(*about, **others)
        self.ground = ground
        self.pace = Pace.first(len(self.z), self.size, self.settings)

    def _question(self) -> Broadcast:
        t = self.round + 1
        z = self.z.astype(np.float64)
        reach, c = consensus_steps(self.pace, self.ground, z, t, self.holders)
        w = server_step(self.z, self.λ, self._penalty(c), self.holders)
        return Broadcast(self.run, t, w, self._last, np.append(reach, c))

    def _penalty(self, c: Vector) -> Vector:
        ρ: Vector = (c / 2).astype(self.dtype)[self.index]
        return ρ

    def _take(self, broadcast: Broadcast, replies: Mapping[str, Reply]) -> dict[str, Refusal]:
        told, (z, λ) = broadcast.instructions, (self.z, self.λ)
        ρ = self._penalty(told[1:])
        if refusals := self._taken(broadcast, replies, ρ):
            return refusals
        now = Round(broadcast.round, broadcast.consensus[self.index], λ, ρ, 1 / ρ)
        about = self.pace, self.ground, told[0], now, z, self.z
        self.pace = consensus_learned(*about, self.holders)
        return {}


class ExactServer(Server):
    """Lines 1-8 for agents that take exact steps (``fixed_point.py``).

    What it decides follows from replies and public numbers, so all of it is post-processing of what
    was released. The same rules with noise in every round would look at private data.
    It holds s of all agents' coupled coordinates, one after another, as each agent holds its own.
    ``start``: w of the first round and the duals; by default the mean of where the agents start.
    """

    def __init__(
        self,
        members: Sequence[Member],
        settings: Settings,
        run: str,
        penalties: tuple[Vector, Vector],
        start: tuple[Vector, Vector] | None = None,
        reminds: bool = True,
    ) -> None:
        super().__init__(members, settings, run, reminds=reminds)
        w, dual = start or (average_over_holders(self.z, self.holders), 0.0)
        held = [m.coordinates for m in members]
        self.rounds = ServerRounds.start(held, w, *penalties, dual=dual)
        self.residuals: Residuals | None = None  # of the last round

    @property
    def converged(self) -> bool:
        """Whether both residuals are within the tolerance, at penalties that need no change, and
        all agents say that what the server does not see is at rest."""
        tolerance = self.settings.tolerance
        if self.residuals is None or tolerance is None:
            return False
        settled = all(reply.settled for reply in self._answered.values())
        return settled and self.rounds.converged(self.residuals, tolerance)

    def _question(self) -> Broadcast:
        told = self.rounds.instructions.to_vector() if self.round else np.zeros(0)
        return Broadcast(self.run, self.round + 1, self.rounds.w, self._last, told)

    def _take(self, broadcast: Broadcast, replies: Mapping[str, Reply]) -> dict[str, Refusal]:
        z = np.concatenate([replies[m.name].primal for m in self.members]).astype(np.float64)
        now = self.rounds.iterate
        try:
            self.rounds, self.residuals = self.rounds.receive(z)
        except InvalidInput as error:  # such large numbers that nobody could follow
            words = f"A reply to round {broadcast.round} leads nowhere: {error}"
            farthest = max(self.members, key=lambda m: float(np.abs(replies[m.name].primal).max()))
            return {farthest.name: Refusal(self.run, broadcast.round, "invalid", words)}
        self.z, self.λ = z, now.penalty * (now.s - z)
        return {}
