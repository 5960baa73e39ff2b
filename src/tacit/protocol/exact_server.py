"""The server of a released problem: exact steps, acceleration, and an end at a tolerance.

What it decides follows from agents' replies and public numbers, so all of it is post-processing of
what was released. The same rules with noise in every round would look at private data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tacit._types import Vector
from tacit.admm.algorithm import average_over_holders
from tacit.admm.fixed_point import Residuals, ServerRounds
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.protocol.messages import Broadcast, Refusal, Reply
from tacit.protocol.server import Member, Server


class ExactServer(Server):
    """Lines 1-8 for agents that take exact steps (``fixed_point.py``).

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
