"""The messages of a run, as values and as bytes (``wire.py``).

    Invitation  →  Facts (``facts.py``)    who takes part, in public numbers
    Proposal    →  Agreed                  settings, which a participant compares with its limits
    Read        →  Copied                  where data are released once: read them, pay, keep
    Start       →  Agreed                  exact steps on what was released: penalties
    Broadcast   →  Reply                   a round
    Outcome     →  Agreed                  the solution, for the participant's own files

Any of them may be answered by a ``Refusal``. A reply holds the coupled coordinates of the average
z^{t+1} and nothing else: no dual, no objective value, no private coordinate. (Of exact steps it may
say ``settled``.)

The owner of the data, and nobody else, may also ask. These have no bytes:

    Measure     →  Measured                the objective, the violation, the size of the noise
    Snapshot    →  State                   all that a journal keeps of an agent
    Restore     →  Agreed                  go on from there
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from tacit._types import Vector
from tacit.admm.settings import Settings
from tacit.errors import DERIVED, InvalidInput, LedgerFailure, Refused, SolverFailure, TacitError
from tacit.privacy.mechanisms import Mechanism, mechanism_from
from tacit.protocol.wire import Message, Whole, decode

if TYPE_CHECKING:
    from tacit.protocol.release import Release

MOST_GROUPS = 100  # of penalties

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


# --- before and after the rounds ------------------------------------------------------------------


@dataclass(frozen=True)
class Facts(Message):
    """An agent, as it introduces itself.

    ``coupling`` of all its coordinates, −1 where private; ``start`` is z^1 on the coupled ones, in
    its number format. ``one``, ``two``: Δ in the L1 and L2 norm, of the statistic and of a reading.
    ``gradient_noise``: the deviation of a gradient's entry for unit noise on a reading, where that
    is not the gradient's own.
    """

    kind = "facts"
    brief = (
        *("everything", "closed_form", "separable", "diameter", "radius", "gradient_bound"),
        *("smoothness", "normaliser", "uncertified", "clipped"),
        *("not_once", "size", "read_one", "read_two", "gradient_noise", "feature_bound"),
        *("usual_curvature", "reach", "longest", "uncertified_here"),
    )
    agent: str
    coupling: Whole
    start: Vector
    objective: str
    strong_convexity: float
    lift_energy: float
    one: float
    two: float
    neighbours: str
    relation: str
    everything: bool = False
    closed_form: bool = False
    separable: bool = False
    diameter: float | None = None
    radius: float | None = None
    gradient_bound: float | None = None
    smoothness: float | None = None
    normaliser: float | None = None
    uncertified: str = ""
    not_once: str = ""  # why it cannot be read once, if so
    size: int | None = None  # of a reading
    read_one: float | None = None
    read_two: float | None = None
    gradient_noise: float | None = None
    feature_bound: float | None = None
    clipped: bool = False  # no theorem of convergence is about its gradients
    usual_curvature: float | None = None  # this and the next two: ``Descent``
    reach: float | None = None
    longest: float | None = None
    uncertified_here: str = ""  # on the device that computes rounds; a release is the processor's

    def check(self) -> None:
        numbers = [v for v in vars(self).values() if type(v) is float]
        if any(math.isnan(v) or v < 0 for v in numbers) or len(self.start) != (
            np.count_nonzero(self.coupling >= 0)
        ):
            raise ValueError("no facts about an agent")
        descent = self.usual_curvature, self.reach, self.longest
        if descent != (None,) * 3 and not all(
            x is not None and DERIVED[0] <= x <= DERIVED[1] for x in descent
        ):
            raise ValueError("no numbers to plan steps by")
        if self.everything and (self.coupling != np.arange(len(self.coupling))).any():
            raise ValueError("another coupling than that of all coordinates")
        if not np.isfinite(self.start).all():
            raise ValueError("no first point")

    @classmethod
    def from_bytes(cls, data: bytes) -> Facts:
        return decode(data, {cls.kind: cls})


@dataclass(frozen=True)
class Invitation(Message):
    """To the study with this digest. ``sizes``: also those of sets that take a solver to know."""

    kind = "invitation"
    brief = ("sizes",)
    study: str
    sizes: bool = False


@dataclass(frozen=True)
class Own:
    """What only the owner of the data decides: where noise comes from. It never travels.

    noise      "seeded" from ``root`` (``keys.root_key``), or "secure"
    from_seed  whether ``root`` follows from a seed that somebody knows
    agents     how many there are
    resumed    what is released was paid for before, and comes with ``Restore``: no ledger is asked
    then       only see whether ledgers would pay for a release and this mechanism, so many times,
               after it: nothing is agreed to
    """

    noise: str
    root: Vector | None
    from_seed: bool
    agents: int
    resumed: bool = False
    then: tuple[Mechanism, int] | None = None


@dataclass(frozen=True)
class Proposal:
    """How the coordinator would run the rounds.

    settings   of all rounds          size       of the consensus
    release    the noise of one release of every agent's data, if there is one; δ is ``delta``
    exact      whether steps are exact: on what was released, or without any noise
    own        in the process of the data's owner only
    """

    kind: ClassVar[str] = "proposal"
    study: str
    run: str
    size: int
    settings: Settings
    delta: float
    release: Mechanism | None = None
    exact: bool = False
    own: Own | None = None

    def to_bytes(self) -> bytes:
        if self.own is not None or self.exact != (self.release is not None):
            raise TypeError("what only an owner proposes does not travel")
        said = json.dumps(self.settings.to_dict())
        law = "" if self.release is None else json.dumps(self.release.to_dict())
        about = self.study, self.run, self.size, said, float(self.delta), law
        return ProposalInWords(*about).to_bytes()


@dataclass(frozen=True)
class ProposalInWords(Message):
    """A ``Proposal`` as it travels: settings and noise as JSON."""

    kind = "proposal"
    brief = ("reading",)
    study: str
    run: str
    size: int
    settings: str
    delta: float
    reading: str = ""

    def understood(self) -> Proposal:
        try:
            settings = Settings.from_dict(json.loads(self.settings))
            law = mechanism_from(json.loads(self.reading)) if self.reading else None
        except TacitError:
            raise
        except Exception:  # whatever a text does when it is read
            raise InvalidInput("Expected settings as JSON, got something else.") from None
        about = self.study, self.run, self.size, settings, self.delta, law
        return Proposal(*about, exact=law is not None)


@dataclass(frozen=True)
class Read(Message):
    """Release the data once, with the noise that was agreed on."""

    kind = "read"
    run: str


@dataclass(frozen=True)
class Copied(Message):
    """There is a released objective. Its ``curvature`` is computed from what was released."""

    kind = "copied"
    run: str
    curvature: float

    def check(self) -> None:
        if not 0 <= self.curvature < math.inf:
            raise ValueError("no curvature")


@dataclass(frozen=True)
class Start(Message):
    """Where the penalties of exact steps start, and their groups, on all coordinates.

    ``first``: the point and the dual that an agent starts from; its owner alone may say.
    """

    kind = "start"
    brief = ("first",)
    run: str
    penalty: Vector
    group: Whole
    first: tuple[Vector, Vector] | None = None

    def check(self) -> None:
        groups = (self.group >= 0) & (self.group < MOST_GROUPS)
        if len(self.penalty) != len(self.group) or not groups.all() or self.first is not None:
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
    """A participant agrees to a proposal, or has done what it was asked."""

    kind = "agreed"
    run: str


# --- the owner's, which have no bytes ---------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """What does the last round look like to the owner? No statement covers the answer."""

    run: str


@dataclass(frozen=True)
class Measured:
    """f(z^{t+1}), the violation there, and Σ|ξ| of the round."""

    objective: float
    violation: float
    noise: float


@dataclass(frozen=True)
class Snapshot:
    """Everything that a journal keeps. With a ``key``, only the digest of all that the agent
    computes with, keyed with it (``data_digest.py``)."""

    run: str
    key: Vector | None = None


@dataclass(frozen=True)
class State:
    """paid     whether the agent has a ledger
    charged  rounds of the run that it paid for, those that failed too
    arrays   of noise in every round: point, average and dual; of exact steps: the point
    release  of a run that releases once; read now, if it was not yet"""

    paid: bool = False
    charged: int = 0
    digest: bytes = b""
    arrays: tuple[Vector, ...] = ()
    release: Release | None = None


@dataclass(frozen=True)
class Restore:
    """Go on after ``round`` with these ``arrays``, or with what was released. ``check``: refuse a
    release of other data, or one of which the agent's ledger does not know."""

    run: str
    round: int = 0
    arrays: tuple[Vector, ...] = ()
    release: Release | None = None
    check: bool = True


@dataclass(frozen=True)
class Failure:
    """In place of an answer: the error itself, for those who may know all about it."""

    error: BaseException


Request = Invitation | Proposal | Read | Start | Broadcast | Outcome | Measure | Snapshot | Restore
Answer = Facts | Agreed | Copied | Reply | Refusal | Measured | State | Failure
_REQUESTS = {c.kind: c for c in (Invitation, ProposalInWords, Read, Start, Broadcast, Outcome)}
_ANSWERS = {c.kind: c for c in (Facts, Agreed, Copied, Reply, Refusal)}
_ROUNDS = {c.kind: c for c in (Broadcast, Reply, Refusal)}


def from_bytes(data: bytes) -> Broadcast | Reply | Refusal:
    """The message of a round that ``to_bytes`` wrote; anything else is refused
    (``wire.decode``)."""
    return cast(Broadcast | Reply | Refusal, decode(data, _ROUNDS))


def request_from(data: bytes) -> Request:
    """The request that ``to_bytes`` wrote."""
    found: Any = decode(data, _REQUESTS)
    return found.understood() if isinstance(found, ProposalInWords) else found


def answer_from(data: bytes) -> Answer:
    """The answer that ``to_bytes`` wrote."""
    return cast(Answer, decode(data, _ANSWERS))


def digest_of(run: str, round: int, values: Vector) -> str:
    """How version 0.1.0 digested requests: those in its ledgers are still known."""
    content = np.ascontiguousarray(values)
    about = json.dumps([run, int(round), content.dtype.str, content.shape])
    return hashlib.sha256(about.encode() + content.tobytes()).hexdigest()
