"""An agent of a released problem: exact steps on a public copy. Nothing here is private.

    Broadcast(run, round, consensus, instructions)  →  PublicAgent.respond  →  Reply

The agent keeps s = w + λ/ρ of its own coordinates and follows the server's instructions, as the
server does for all (``fixed_point.py``). It needs no ledger: its data were paid for when they were
read (``release.py``), and what it computes from them now is post-processing.
"""

from __future__ import annotations

import numpy as np

from tacit._types import Vector
from tacit.admm.fixed_point import MEMORY, Instructions, LocalRounds
from tacit.admm.local_side import start_point
from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.objectives.public import PublicObjective
from tacit.protocol.messages import Broadcast, Reply


class PublicAgent:
    """One party of a run on released data. It answers rounds 1, 2, ... in order, each once.

    penalties  where they start, and their groups, on all global coordinates; public
    start      the point z and the dual λ (on coupled coordinates) to start from
    tolerance  at which private coordinates are at rest, which replies then say
    """

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        run: str,
        penalties: tuple[Vector, Vector],
        start: tuple[Vector, Vector] | None = None,
        tolerance: float | None = None,
    ) -> None:
        if not isinstance(problem.objective, PublicObjective):
            raise InvalidInput(
                f"Expected a public copy as the objective of agent {name!r}, got "
                f"{type(problem.objective).__name__}. Nothing was computed."
            )
        self.problem, self.name, self.run, self._tolerance = problem, name, run, tolerance
        coupling = np.asarray(problem.coupling)
        held = np.flatnonzero(coupling >= 0)
        penalty, group = penalties
        self._mine, self._size = coupling[held], len(penalty)
        point, dual = start or (np.asarray(start_point(problem), np.float64), 0.0)
        self._rounds = LocalRounds(
            problem.objective.prox(problem.feasible_set),
            held,
            point,
            penalty[self._mine],
            group[self._mine],
            MEMORY,
            problem.objective.mean_curvature,
            dual=dual,
        )
        self._last: tuple[Broadcast, Reply] | None = None
        self.rounds_done = 0

    @property
    def point(self) -> Vector:
        """z, private coordinates included."""
        return self._rounds.z

    def respond(self, broadcast: Broadcast) -> Reply:
        """The exact local step of one round; the last round again gets the same reply."""
        t, w = self._accept(broadcast)
        if self._last is not None and t == self.rounds_done:
            if broadcast.digest != self._last[0].digest:
                raise Refused(f"Agent {self.name!r} has answered round {t} of another consensus.")
            return self._last[1]
        try:
            told = Instructions() if t == 1 else Instructions.from_vector(broadcast.instructions)
            rounds = self._rounds.answer(w[self._mine], told)
        except InvalidInput as error:
            raise Refused(
                f"Agent {self.name!r}, round {t}: {error} Nothing was computed."
            ) from None
        except SolverFailure as error:
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: {error} Nothing more was released. The release "
                "can be solved again, at no cost, from another --penalty (Settings(penalty=...))."
            ) from None
        point = np.asarray(rounds.z, np.float64)
        violation = float(self.problem.feasible_set.violation(point))
        if not violation <= self.problem.feasible_set.tolerance(np.float64):
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: the local point lies outside of the feasible set "
                f"by {violation:.2g}."
            )
        at_rest = self._tolerance is not None and rounds.settled(self._tolerance)
        reply = Reply(self.run, t, point[rounds.held], at_rest)
        self._rounds, self.rounds_done = rounds, t
        self._last = broadcast, reply
        return reply

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
        told = np.asarray(broadcast.instructions)
        if told.dtype.kind != "f" or told.ndim != 1:
            raise Refused(
                f"Expected a vector of numbers as instructions, got {told.dtype} of shape "
                f"{told.shape}. Nothing was computed."
            )
        return t, w
