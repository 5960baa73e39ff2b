"""The messages of a run, as values and as bytes.

    Invite       →  Facts (``facts.py``)    who takes part, in public numbers
    Propose      →  Agreed                  settings, which a participant compares with its limits
    ReleaseOnce  →  Curvature, or Masked    where data are released once: pay, measure, keep
    Start        →  Agreed                  exact steps on what was released: penalties
    Keys         →  Agreed                  where parts are only added up: keys for masks (masks.py)
    Broadcast    →  Reply, or Masked        a round
    Finish       →  Agreed                  the solution, for the participant's own files

Any of them may be answered by a ``Refusal``. A reply holds the coupled coordinates of the average
z^{t+1} and nothing else: no dual, no objective value, no private coordinate. (Of exact steps it may
say ``settled``.)

The owner of the data, and nobody else, may also ask. These have no bytes:

    Measure     →  Measured                the objective, the violation, the size of the noise
    Snapshot    →  State                   all that a journal keeps of an agent
    Restore     →  Agreed                  go on from there

As bytes (MessagePack) a message is one map with the format's version, the kind of message and its
fields; a vector is its number format, its length and its numbers, little-endian. Bytes that are not
exactly what ``to_bytes`` writes are refused, so that a digest of the bytes is a digest of the
message; nothing is executed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast

import msgpack
import numpy as np

from tacit._types import Vector
from tacit.admm.settings import Settings
from tacit.errors import (
    DERIVED,
    CorruptFile,
    InvalidInput,
    LedgerFailure,
    Refused,
    SolverFailure,
    TacitError,
)
from tacit.files import typed
from tacit.privacy.mechanisms import Mechanism, mechanism_from

if TYPE_CHECKING:
    from tacit.protocol.release import Release

FORMAT = 1
LARGEST = 2**31  # bytes of a message
MOST_AGENTS = 100_000
Whole: TypeAlias = Vector  # a vector of whole numbers
FLOATS, WHOLE = ("<f4", "<f8"), ("<i8",)
# what a field that is annotated so may hold
PLAIN: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
VECTORS = {"Vector": FLOATS, "Whole": WHOLE}


class Message:
    """A frozen dataclass that goes to bytes and back.

    ``brief``: fields that are left out where they say nothing: empty, false or None.
    """

    kind: ClassVar[str]
    brief: ClassVar[tuple[str, ...]] = ()

    def to_bytes(self) -> bytes:
        content: dict[str, Any] = {"tacit": FORMAT, "kind": self.kind}
        for part in fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            if part.name not in self.brief or not _says_nothing(value):
                content[part.name] = _plain(value)
        data: bytes = msgpack.packb(content, unicode_errors="surrogatepass")
        return data

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def check(self) -> None:
        """Raise ``ValueError`` for values of the right type that this message cannot have."""


M = TypeVar("M", bound=Message)
T = TypeVar("T")


def decode(data: bytes, kinds: Mapping[str, type[M]]) -> M:
    """The message of one of ``kinds`` that ``to_bytes`` wrote; anything else is refused.

    Guarantee: ``decode(data, kinds).to_bytes() == data``. Nothing is executed, no more memory is
    taken than a small multiple of ``len(data)``, and no other exception than ``CorruptFile`` is
    raised.
    """
    try:
        if len(data) > LARGEST:
            raise ValueError("too long")
        content = msgpack.unpackb(
            data,
            unicode_errors="surrogatepass",
            object_pairs_hook=_map,
            max_array_len=3,
            max_map_len=MOST_AGENTS,
            max_ext_len=0,
        )
        if content.pop("tacit") != FORMAT:
            raise ValueError("another version")
        kind = kinds[content.pop("kind")]
        types = {part.name: str(part.type) for part in fields(kind)}  # type: ignore[arg-type]
        message = kind(**{name: _value(types[name], value) for name, value in content.items()})
        message.check()
        if message.to_bytes() != data:
            raise ValueError("not in the one encoding of this message")
    except Exception as error:  # whatever a message does when it is looked at
        raise CorruptFile(
            f"Expected a message of format {FORMAT}, got {len(data)} bytes that are not one "
            f"({type(error).__name__}). Nothing was computed."
        ) from None
    return message


def _map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A map; within one, only text is taken, so that no nesting uses up the memory."""
    if pairs and pairs[0] != ("tacit", FORMAT) and not all(type(v) is str for _, v in pairs):
        raise TypeError("a map of something else than text")
    return dict(pairs)


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or (hasattr(value, "__len__") and not len(value))


def _plain(value: Any) -> Any:
    """What MessagePack can hold; a vector as its number format, length and bytes."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Mapping):
        return {name: value[name] for name in sorted(value)}
    if isinstance(value, str | int | float):  # a bool is an int
        return value
    vector = np.asarray(value)
    if vector.dtype.kind not in "fi" or vector.ndim != 1:
        raise TypeError(f"expected a vector of numbers, got {vector.dtype} of {vector.ndim} axes")
    vector = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return [vector.dtype.str, len(vector), vector.tobytes()]


def _value(annotation: str, value: Any) -> Any:
    """What a field holds, of the type that it must have."""
    kind = annotation.removesuffix(" | None")
    if kind in VECTORS:
        number, length, content = value
        if number not in VECTORS[kind] or len(content) != length * np.dtype(number).itemsize:
            raise ValueError("a vector of another length")
        return np.frombuffer(content, number)
    if type(value) is not PLAIN.get(kind, dict):
        raise TypeError(kind)
    if isinstance(value, dict) and not all(type(v) is str for v in value.values()):
        raise TypeError(kind)
    return value


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
    ``instructions``: how to go on from the last round, in public numbers, after a release
    (``fixed_point.py``) or steps adapt (``adaptive.py``).
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

    ``settled``, of exact steps after a release only: whether the private coordinates, which no
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
    """In place of a reply: one of ``REASONS``, and words."""

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
    its number format. ``one``, ``two``: Δ in the L1 and L2 norm, of the statistic and of a release.
    ``gradient_noise``: the deviation of a gradient's entry for unit noise on a release, where that
    is not the gradient's own.
    """

    kind = "facts"
    brief = (
        *("everything", "closed_form", "separable", "diameter", "radius", "gradient_bound"),
        *("smoothness", "normaliser", "uncertified", "clipped"),
        *("not_once", "size", "read_one", "read_two", "gradient_noise", "feature_bound"),
        *("usual_curvature", "reach", "longest", "uncertified_here", "widths", "deviations"),
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
    not_once: str = ""  # why it cannot be released once, if so
    size: int | None = None  # of a release
    read_one: float | None = None
    read_two: float | None = None
    gradient_noise: float | None = None
    feature_bound: float | None = None
    clipped: bool = False  # no theorem of convergence is about its gradients
    usual_curvature: float | None = None  # this and the next two: ``Descent``
    reach: float | None = None
    longest: float | None = None
    uncertified_here: str = ""  # on the device that computes rounds; a release is the processor's
    # of coupled coordinates, with the sizes: how wide the set is, and ``Objective.deviations``
    widths: Vector = field(default_factory=lambda: np.zeros(0))
    deviations: Vector = field(default_factory=lambda: np.zeros(0))

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
        for values in (self.widths, self.deviations):
            many = 0 if not len(self.widths) else len(self.start)
            if len(values) != many or not ((values >= 0) & np.isfinite(values)).all():
                raise ValueError("no widths of the set")

    @classmethod
    def from_bytes(cls, data: bytes) -> Facts:
        return decode(data, {cls.kind: cls})


@dataclass(frozen=True)
class Invite(Message):
    """To the study with this digest. ``sizes``: also those of sets that take a solver to know."""

    kind = "invitation"
    brief = ("sizes",)
    study: str
    sizes: bool = False


@dataclass(frozen=True)
class Sum:
    """That parts are added up and nobody learns one: what all participants must agree on.

    epoch        of the keys; another one for every start of the run or of a participant
    names        of all, in order       colluding  c, how many may add no noise
    sensitivity  the largest of any participant: every one's noise is for it
    masked       False: of one owner's participants, whose parts may be seen
    """

    epoch: int
    names: tuple[str, ...]
    colluding: int
    sensitivity: float
    masked: bool = True

    @property
    def shares(self) -> int:
        """How many add the noise together."""
        return len(self.names) - self.colluding


class Roster(NamedTuple):
    """Who adds up: names in order, and the identity of each as 32 bytes; none within one owner."""

    names: tuple[str, ...]
    identities: tuple[bytes, ...] = ()

    @property
    def sha256(self) -> str:
        said = json.dumps([self.names, [k.hex() for k in self.identities]], separators=(",", ":"))
        return hashlib.sha256(said.encode("ascii")).hexdigest()

    def identity(self, name: str) -> bytes:
        return self.identities[self.names.index(name)]


@dataclass(frozen=True)
class Own:
    """What only the owner of the data decides: where noise comes from. It never travels.

    noise      "seeded" from ``root`` (``seeded_noise.root_key``), or "secure"
    from_seed  whether ``root`` follows from a seed that somebody knows
    agents     how many there are
    resumed    what is released was paid for before, and comes with ``Restore``: no ledger is asked
    then       only see whether ledgers would pay for a release and this many uses of a mechanism,
               after it: nothing is agreed to
    """

    noise: str
    root: Vector | None
    from_seed: bool
    agents: int
    resumed: bool = False
    then: tuple[Mechanism, int] | None = None


@dataclass(frozen=True)
class Propose:
    """How the coordinator would run the rounds.

    settings   of all rounds          size       of the consensus
    release    the noise of one release of every agent's data, if there is one; δ is ``delta``
    exact      whether steps are exact: on what was released, or without any noise
    own        in the process of the data's owner only
    summed     whether statistics are only added up (``masks.py``), and how
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
    summed: Sum | None = None

    def to_bytes(self) -> bytes:
        masked = self.summed is None or self.summed.masked
        if self.own is not None or self.exact != (self.release is not None) or not masked:
            raise TypeError("what only an owner proposes does not travel")
        said = json.dumps(self.settings.to_dict())
        mechanism = "" if self.release is None else json.dumps(self.release.to_dict())
        about = self.study, self.run, self.size, said, float(self.delta), mechanism
        summed = "" if self.summed is None else json.dumps(astuple(self.summed)[:-1])
        return ProposalInWords(*about, summed).to_bytes()


@dataclass(frozen=True)
class ProposalInWords(Message):
    """A ``Propose`` as it travels: settings and noise as JSON."""

    kind = "proposal"
    brief = ("reading", "summed")
    study: str
    run: str
    size: int
    settings: str
    delta: float
    reading: str = ""
    summed: str = ""

    def understood(self) -> Propose:
        try:
            settings = Settings.from_dict(json.loads(self.settings))
            mechanism = mechanism_from(json.loads(self.reading)) if self.reading else None
            summed = _sum_of(*json.loads(self.summed)) if self.summed else None
        except TacitError:
            raise
        except Exception:  # whatever a text does when it is read
            raise InvalidInput("Expected settings as JSON, got something else.") from None
        about = self.study, self.run, self.size, settings, self.delta, mechanism
        return Propose(*about, exact=mechanism is not None, summed=summed)


def _sum_of(epoch: Any, names: Any, colluding: Any, sensitivity: Any) -> Sum:
    found = typed(Sum(epoch, tuple(names), colluding, sensitivity))
    if not 0 <= epoch < 2**63 or not 0 < sensitivity < math.inf or len(set(names)) < len(names):
        raise InvalidInput("Expected how parts are added up, got something else.")
    return found


@dataclass(frozen=True)
class Keys(Message):
    """For masks (``masks.Epoch``): everybody's public keys, or what others sealed for this one."""

    kind = "keys"
    brief = ("sealed",)
    run: str
    epoch: int
    told: Mapping[str, str]
    sealed: bool = False


@dataclass(frozen=True)
class Masked(Message):
    """A participant's part of a sum, masked, in steps of the grid of the noise."""

    kind = "masked"
    run: str
    round: int
    values: Whole


@dataclass(frozen=True)
class ReleaseOnce(Message):
    """Release the data once, with the noise that was agreed on."""

    kind = "read"
    run: str


@dataclass(frozen=True)
class Curvature(Message):
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
class Finish(Message):
    """The end: the solution on all coordinates."""

    kind = "outcome"
    run: str
    round: int
    solution: Vector


@dataclass(frozen=True)
class Agreed(Message):
    """A participant agrees to a proposal, or has done what it was asked. ``told``: keys for masks,
    to be given to the participants that it names."""

    kind = "agreed"
    brief = ("told",)
    run: str
    told: Mapping[str, str] = field(default_factory=dict)


# --- the owner's, which have no bytes ---------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """What does the last round look like to the owner? No statement covers the answer.
    ``point``: where parts are added up, which the participant itself does not know."""

    run: str
    point: Vector | None = None


@dataclass(frozen=True)
class Measured:
    """f(z^{t+1}), the violation there, and Σ|ξ| of the round."""

    objective: float
    violation: float
    noise: float


@dataclass(frozen=True)
class Snapshot:
    """Everything that a journal keeps. With a ``key``, only the digest of all that the agent
    computes with, keyed with it (``journal.py``), and which ledger it has."""

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


Request = (
    Invite
    | Propose
    | Keys
    | ReleaseOnce
    | Start
    | Broadcast
    | Finish
    | Measure
    | Snapshot
    | Restore
)
Answer = Facts | Agreed | Curvature | Reply | Masked | Refusal | Measured | State | Failure
_ASKED = Invite, ProposalInWords, Keys, ReleaseOnce, Start, Broadcast, Finish
_REQUESTS: dict[str, type[Message]] = {c.kind: c for c in _ASKED}
_ANSWERS = {c.kind: c for c in (Facts, Agreed, Curvature, Reply, Masked, Refusal)}
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


def sorted_answers(
    answers: Mapping[str, Answer], names: Sequence[str], kind: type[T], about: tuple[str, int]
) -> tuple[list[T], dict[str, Refusal]]:
    """Those of this kind in the order of ``names``, and why there are no others. The owner of the
    data gets an error as it is."""
    found: list[T] = []
    refusals: dict[str, Refusal] = {}
    for name in names:
        answer = answers.get(name)
        if isinstance(answer, Failure):
            raise answer.error
        if isinstance(answer, kind):
            found.append(answer)
        elif isinstance(answer, Refusal):
            refusals[name] = answer
        else:
            got, reason = ("none", "missing") if answer is None else ("another", "invalid")
            words = f"Party {name!r} owes a {kind.__name__} as answer; got {got}."
            refusals[name] = Refusal(*about, reason, words)
    return found, refusals
