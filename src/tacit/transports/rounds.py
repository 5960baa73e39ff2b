"""The rounds of Algorithm 1 with noise in each: agents one by one, or as one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit._types import Array, Vector
from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.protocol.checkpoint import STATE
from tacit.protocol.facts import members_of
from tacit.protocol.keys import jax_key, noise_source
from tacit.protocol.server import Server
from tacit.transports.batched import BatchedAgents
from tacit.transports.seats import Everyone, Seat


@dataclass(frozen=True)
class Paying:
    """Where noise comes from, and who pays for it."""

    noise: str
    ledgers: bool
    block: int

    @classmethod
    def of(
        cls,
        everyone: Everyone,
        noise: str | None,
        seed: int | None,
        block: int,
        checkpoint: str | Path | None,
    ) -> Paying:
        opened = everyone.open_ledgers()
        noise = noise_source(noise, opened, seed)
        if noise == "secure" and not opened and checkpoint is not None:
            raise InvalidInput(
                "Expected no checkpoint for secure noise without ledgers: a continued run would "
                "release other noise for the same round. Nothing was released."
            )
        return cls(noise, opened, block)

    @property
    def alone(self) -> bool:
        """Whether every agent draws and pays by itself, so that none is batched."""
        return self.noise == "secure" or self.ledgers

    def updates(self, everyone: Everyone, run: str, settings: Settings) -> int:
        """The most updates that an agent paid for: those of rounds that failed, and were paid
        again, too."""
        rounds = everyone.each(Seat.charged, run) if self.ledgers else []
        return max([settings.rounds, *rounds]) * settings.local_updates


SEEDED = Paying("seeded", False, 1)


class Batched:
    """All agents as one program (``batched.py``)."""

    def __init__(self, problem: Problem, settings: Settings, key: Vector, run: str) -> None:
        self.settings = settings
        self.program = BatchedAgents(problem, settings, jax_key(key), run)
        self.now = self.program.start()
        self.last: tuple[float, float] = 0.0, 0.0  # ‖w − z‖ and Σ|ξ| of the last round

    def advance(self, first: int, last: int) -> Vector:
        """Rounds first..last; the consensus of the last."""
        weights = self.settings.averaging_weights(first, last)
        self.now, w, residual, noise = self.program.advance(self.now, first, last, weights)
        self.last = float(residual), float(noise)
        return np.asarray(w)

    def evaluate(self) -> tuple[float, ...]:
        """The trace's columns after its round."""
        residual, noise = self.last
        objective, violation = self.program.evaluate(self.now)
        return float(objective), residual, noise, float(violation)

    def state(self) -> dict[str, list[Vector]]:
        return {name: self.program.unstack(getattr(self.now, name)) for name in STATE}

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        self.now = self.program.restored(state)


class OneByOne:
    """A server, and agents that it exchanges messages with, wherever they are."""

    def __init__(
        self,
        everyone: Everyone,
        settings: Settings,
        key: Vector,
        run: str,
        paying: Paying = SEEDED,
    ) -> None:
        problem = everyone.problem
        self.everyone, self.settings = everyone, settings
        about = settings, key, run, problem.size, problem.dtype.str, paying.noise, paying.block
        everyone.each(Seat.begin, *about)
        self.held = [np.flatnonzero(np.asarray(part.coupling) >= 0) for part in problem.agents]
        members = members_of(problem)
        self.server = Server(members, settings, run, problem.dtype, paying.ledgers)

    def advance(self, first: int, last: int) -> Vector:
        """Rounds first..last; the consensus of the last."""
        for _ in range(first, last + 1):
            for refusal in self.server.step(self.everyone).values():
                raise refusal.error()
        return self.server.w

    def evaluate(self) -> tuple[float, ...]:
        """The trace's columns after its round. Sums are taken in the order of agents."""
        objectives, violations, noise = zip(*self.everyone.each(Seat.measured), strict=True)
        return sum(objectives), self.server.residual, sum(noise), max(violations)

    def state(self) -> dict[str, list[Vector]]:
        columns = zip(*self.everyone.each(Seat.state), strict=True)
        state = {
            name: list(map(np.array, column)) for name, column in zip(STATE, columns, strict=True)
        }
        # what the server knows is of its own round; an agent with a ledger may be ahead of it
        for name, known in (("average", self.server.z), ("dual", self.server.λ)):
            for values, held, part in zip(
                state[name], self.held, self.server.parts(known), strict=True
            ):
                values[held] = part
        return state

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        own = list(zip(*(state[name] for name in STATE), strict=True))
        self.everyone.each(Seat.restore, rounds_done, own=own)

        def shared(values: Sequence[Array]) -> Vector:
            parts = zip(values, self.held, strict=True)
            return np.concatenate([np.asarray(v)[held] for v, held in parts])

        self.server.restore(shared(state["average"]), shared(state["dual"]), rounds_done)
