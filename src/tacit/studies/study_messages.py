"""What a coordinator and a party say to each other beside the rounds themselves, as bytes.

    Invitation  →  Facts (``protocol/facts.py``)      who takes part, in public numbers
    Proposal    →  Agreed                         settings, compared with the party's limits
    Read        →  Copied                         where data are read once: read them, pay, keep
    Start       →  Agreed                         exact steps on the copy: where penalties start
    Broadcast   →  Reply (``protocol/messages.py``)   a round
    Outcome     →  Agreed                         the solution, for the party's own files

A party answers any of them with a ``Refusal`` in one of a few fixed sentences. The encoding is that
of ``protocol/wire.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit._types import Vector
from tacit.protocol.facts import Facts
from tacit.protocol.messages import Broadcast, Refusal, Reply
from tacit.protocol.wire import Message, Whole, decode

MOST_GROUPS = 100  # of penalties


@dataclass(frozen=True)
class Invitation(Message):
    """To the study with this digest. ``sizes``: also those of sets that take a solver to know."""

    kind = "invitation"
    brief = ("sizes",)
    study: str
    sizes: bool = False


@dataclass(frozen=True)
class Proposal(Message):
    """How the coordinator would run the study.

    settings   of all rounds, as JSON       size    of the consensus
    reading    the noise of one reading as JSON, where data are read once; δ is then ``delta``
    """

    kind = "proposal"
    brief = ("reading",)
    study: str
    run: str
    size: int
    settings: str
    delta: float
    reading: str = ""


@dataclass(frozen=True)
class Read(Message):
    """Read the data once, with the noise that was agreed on."""

    kind = "read"
    run: str


@dataclass(frozen=True)
class Start(Message):
    """Where the penalties of exact steps start, and their groups, on all coordinates."""

    kind = "start"
    run: str
    penalty: Vector
    group: Whole

    def check(self) -> None:
        groups = (self.group >= 0) & (self.group < MOST_GROUPS)
        if len(self.penalty) != len(self.group) or not groups.all():
            raise ValueError("penalties of other groups")
        if not (np.isfinite(self.penalty) & (self.penalty > 0)).all():
            raise ValueError("no penalties")


@dataclass(frozen=True)
class Outcome(Message):
    """The end: the solution on all coordinates."""

    kind = "outcome"
    run: str
    round: int
    solution: Vector


@dataclass(frozen=True)
class Agreed(Message):
    """A party agrees to a proposal, or has done what it was asked."""

    kind = "agreed"
    run: str


@dataclass(frozen=True)
class Copied(Message):
    """The data were read. ``curvature`` of the public copy, computed from what was released."""

    kind = "copied"
    run: str
    curvature: float

    def check(self) -> None:
        if not 0 <= self.curvature < math.inf:
            raise ValueError("no curvature")


Request = Invitation | Proposal | Read | Start | Broadcast | Outcome
Answer = Facts | Agreed | Copied | Reply | Refusal
REQUESTS: dict[str, type[Request]] = {
    c.kind: c for c in (Invitation, Proposal, Read, Start, Broadcast, Outcome)
}
ANSWERS: dict[str, type[Answer]] = {c.kind: c for c in (Facts, Agreed, Copied, Reply, Refusal)}


def request_from(data: bytes) -> Request:
    return decode(data, REQUESTS)


def answer_from(data: bytes) -> Answer:
    return decode(data, ANSWERS)
