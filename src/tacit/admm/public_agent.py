"""An agent of a released problem: exact steps on a public copy. Nothing here is private.

    Broadcast(run, round, consensus, instructions)  →  PublicAgent.respond  →  Reply

The agent keeps s = w + λ/ρ of its own coordinates and follows the server's instructions, as the
server does for all (``fixed_point.py``). It needs no ledger: its data were paid for when they were
read (``release.py``), and what it computes from them now is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit._types import Vector
from tacit.admm.fixed_point import PRIVATE_WEIGHT, Instructions, Iterate
from tacit.admm.local_side import start_point
from tacit.admm.messages import Broadcast, Reply
from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.objectives.public import PublicObjective


@dataclass(frozen=True)
class Start:
    """Where exact steps begin, on all global coordinates; public.

    penalty   ρ of each                       group   penalties are adapted group by group
    memory    steps that acceleration uses    point   w of the first round, where known
    """

    penalty: Vector
    group: Vector
    memory: int
    point: Vector | None = None


class PublicAgent:
    """One party of a run on released data. It answers rounds 1, 2, ... in order, each once."""

    def __init__(self, problem: LocalProblem, name: str, run: str, start: Start) -> None:
        if not isinstance(problem.objective, PublicObjective):
            raise InvalidInput(
                f"Expected a public copy as the objective of agent {name!r}, got "
                f"{type(problem.objective).__name__}. Nothing was computed."
            )
        self.problem, self.name, self.run = problem, name, run
        self._coupling = np.asarray(problem.coupling)
        self._held = np.flatnonzero(self._coupling >= 0)
        self._mine = self._coupling[self._held]
        self._start = start
        self._size = len(start.penalty)
        self._step = problem.objective.prox(problem.feasible_set)
        self.point = np.asarray(start_point(problem), np.float64)
        self._iterate: Iterate | None = None
        self._last: tuple[str, Reply] | None = None
        self.rounds_done = 0

    def respond(self, broadcast: Broadcast) -> Reply:
        """The exact local step of one round; the last round again gets the same reply."""
        t, w = self._accept(broadcast)
        if self._last is not None and t == self.rounds_done:
            if broadcast.digest != self._last[0]:
                raise Refused(f"Agent {self.name!r} has answered round {t} of another consensus.")
            return self._last[1]
        iterate = self._next(t, w, broadcast.instructions)
        v, c = self.point.copy(), np.full(self.problem.dimension, PRIVATE_WEIGHT)
        v[self._held], c[self._held] = iterate.s, iterate.penalty
        point = np.asarray(self._step(v, c), np.float64)
        violation = float(self.problem.feasible_set.violation(point))
        if not violation <= self.problem.feasible_set.tolerance(np.float64):
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: the local point lies outside of the feasible set "
                f"by {violation:.2g}."
            )
        reply = Reply(self.run, t, point[self._held])
        self._iterate, self.point, self.rounds_done = iterate, point, t
        self._last = broadcast.digest, reply
        return reply

    def _next(self, t: int, w: Vector, instructions: Vector) -> Iterate:
        mine = self._mine
        if t == 1:
            start = self._start
            return Iterate(w[mine], start.penalty[mine], start.group[mine], start.memory)
        assert self._iterate is not None
        told = Instructions.from_vector(instructions)
        return self._iterate.follow(w[mine], self.point[self._held], told)

    def _accept(self, broadcast: Broadcast) -> tuple[int, Vector]:
        """The round and the consensus of a request that makes sense."""
        if type(broadcast) is not Broadcast or broadcast.run != self.run:
            raise Refused(f"Expected a broadcast of run {self.run!r}. Nothing was computed.")
        t, w = broadcast.round, np.asarray(broadcast.consensus)
        if type(t) is not int or t not in (max(1, self.rounds_done), self.rounds_done + 1):
            raise Refused(
                f"Expected round {self.rounds_done + 1} of run {self.run!r} for agent "
                f"{self.name!r}, got {t!r}. Nothing was computed."
            )
        if w.dtype != np.float64 or w.shape != (self._size,) or not np.isfinite(w).all():
            raise Refused(
                f"Expected {self._size} finite float64 numbers as consensus, got {w.dtype} of "
                f"shape {w.shape}. Nothing was computed."
            )
        return t, w
