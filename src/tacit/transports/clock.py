"""Where the time of a run goes: the agents' computations, waiting for the slowest, and the way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


class Clock:
    """Adds up, over the rounds of one process, what every rank spent.

    A round lasts from the broadcast to the last reply. In it the slowest rank computes, the others
    wait for it, and the rest is transfer: encoding, carrying and decoding of messages.
    """

    def __init__(self, ranks: int) -> None:
        self._begun = time.perf_counter()
        self._rounds = 0
        self._exchange = self._slowest = 0.0
        self._compute = [0.0] * ranks

    def round(self, seconds: float, compute: Sequence[float]) -> None:
        """One round took so many seconds, and of these every rank computed so many."""
        self._rounds += 1
        self._exchange += seconds
        self._slowest += max(compute)
        self._compute = [a + b for a, b in zip(self._compute, compute, strict=True)]

    def read(self) -> dict[str, Any]:
        """Seconds. ``total`` = ``compute`` (of the slowest rank in each round) + ``transfer`` +
        ``server`` (all else: consensus, evaluations, files). ``wait`` is the mean over the ranks of
        what each waited for the slowest."""
        total = time.perf_counter() - self._begun
        waited = [self._slowest - spent for spent in self._compute]
        return {
            "rounds": self._rounds,
            "total": total,
            "compute": self._slowest,
            "wait": sum(waited) / len(waited),
            "transfer": max(0.0, self._exchange - self._slowest),
            "server": total - self._exchange,
            "ranks": [
                {"compute": spent, "wait": left}
                for spent, left in zip(self._compute, waited, strict=True)
            ],
        }
