"""The messages of a run, as values and as bytes (``wire.py``).

    Broadcast(run, round, consensus)  →  an agent  →  Reply(run, round, primal) or Refusal

A reply holds the coupled coordinates of the average z^{t+1} and nothing else: no dual, no
objective value, no private coordinate. (Of exact steps on a public copy it may say ``settled``.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tacit._types import Vector
from tacit.errors import LedgerFailure, Refused, SolverFailure, TacitError
from tacit.protocol.wire import Message, decode

# why an agent gave no reply
REASONS: dict[str, type[TacitError]] = {
    "refused": Refused,  # nothing was computed, nothing was paid
    "failed": SolverFailure,  # the computation failed, and is paid for
    "ledger": LedgerFailure,  # the agent could not pay
    "missing": Refused,  # no word from it in time
    "invalid": Refused,  # its word was no reply to this round
}


@dataclass(frozen=True)
class Broadcast(Message):
    """Server to agents: the consensus w^{t+1} of this round.

    ``last`` has, for each agent, the digest of the last reply the server got from it.
    ``instructions``, where data were read once: how to go on from the last round, in public numbers
    (``fixed_point.py``).
    """

    kind = "broadcast"
    brief = ("instructions",)  # as before there were any
    run: str
    round: int
    consensus: Vector
    last: Mapping[str, str] = field(default_factory=dict)
    instructions: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def digest(self) -> str:
        """Of the question itself: run, round and every bit of the consensus."""
        about = self.run, self.round, self.consensus
        return Broadcast(*about, instructions=self.instructions).sha256


@dataclass(frozen=True)
class Reply(Message):
    """Agent to server: the coupled part of z^{t+1}, randomised and (objective noise) feasible.

    ``settled``, of exact steps on a public copy only: whether the private coordinates, which no
    server sees, are at rest too. It follows from what was released.
    """

    kind = "reply"
    brief = ("settled",)
    run: str
    round: int
    primal: Vector
    settled: bool = False

    @property
    def digest(self) -> str:
        return self.sha256


@dataclass(frozen=True)
class Refusal(Message):
    """In place of a reply: why there is none, as one of ``REASONS`` and in words."""

    kind = "refusal"
    run: str
    round: int
    reason: str
    words: str

    def check(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(self.reason)

    @classmethod
    def of(cls, error: TacitError, run: str, round: int) -> Refusal:
        kinds = (name for name, kind in REASONS.items() if isinstance(error, kind))
        return cls(run, round, next(kinds, "refused"), str(error))

    def error(self) -> TacitError:
        """As an exception, for those who cannot continue without the reply."""
        return REASONS[self.reason](self.words)


KINDS: dict[str, type[Broadcast | Reply | Refusal]] = {
    c.kind: c for c in (Broadcast, Reply, Refusal)
}


def from_bytes(data: bytes) -> Broadcast | Reply | Refusal:
    """The message that ``to_bytes`` wrote; anything else is refused (``wire.decode``)."""
    return decode(data, KINDS)


def digest_of(run: str, round: int, values: Vector) -> str:
    """How version 0.1.0 digested requests: those in its ledgers are still known."""
    content = np.ascontiguousarray(values)
    about = json.dumps([run, int(round), content.dtype.str, content.shape])
    return hashlib.sha256(about.encode() + content.tobytes()).hexdigest()
