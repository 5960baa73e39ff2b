"""The server of a released problem: exact steps, acceleration, and an end at a tolerance.

What it decides follows from agents' replies and public numbers, so all of it is post-processing of
what was released. The same rules with noise in every round would look at private data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.admm.acceleration import Progress, Residuals, residuals
from tacit.admm.algorithm import average_over_holders
from tacit.admm.fixed_point import Instructions, Iterate, next_consensus
from tacit.admm.messages import Broadcast, Refusal, Reply
from tacit.admm.public_agent import Start
from tacit.admm.server import Member, Server
from tacit.admm.settings import Settings


class ExactServer(Server):
    """Lines 1-8 for agents that take exact steps (``fixed_point.py``).

    It holds s of all agents' coupled coordinates, one after another, as each agent holds its own.
    """

    def __init__(
        self, members: Sequence[Member], settings: Settings, run: str, start: Start
    ) -> None:
        super().__init__(members, settings, run)
        self._start = start
        self._progress = Progress()
        self._told = Instructions()
        self._next_w = (
            average_over_holders(self.z, self.holders) if start.point is None else start.point
        )
        index = self.index
        self._iterate = Iterate(
            self._next_w[index], start.penalty[index], start.group[index], start.memory
        )
        self.residuals: Residuals | None = None  # of the last round

    @property
    def converged(self) -> bool:
        """Whether both residuals are within the tolerance, absolute and relative."""
        tolerance = self.settings.tolerance
        return (
            self.residuals is not None
            and tolerance is not None
            and self.residuals.within(tolerance, tolerance * 1e-2)
        )

    def _question(self) -> Broadcast:
        told = self._told.to_vector() if self.round else np.zeros(0)
        return Broadcast(self.run, self.round + 1, self._next_w, self._last, told)

    def _take(self, broadcast: Broadcast, replies: Mapping[str, Reply]) -> dict[str, Refusal]:
        z = np.concatenate([replies[m.name].primal for m in self.members]).astype(np.float64)
        now, index = self._iterate, self.index
        self.z, self.λ = z, now.penalty * (now.s - z)
        self.residuals = residuals(now, z, self.holders, index)
        w = next_consensus(now.s, z, self.holders)
        self._told, self._progress = self._progress.choose(now, w[index], z)
        self._iterate, self._next_w = now.follow(w[index], z, self._told), w
        return {}
