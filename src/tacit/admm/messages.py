"""The messages of a run, as values and as bytes.

    Broadcast(run, round, consensus)  →  an agent  →  Reply(run, round, primal) or Refusal

A reply holds the coupled coordinates of the average z^{t+1} and nothing else: no dual, no
objective value, no private coordinate.

The bytes are MessagePack: one map with the format's version, the kind of message and its fields; a
vector is its number format, its length and its numbers, little-endian. Every message has one
encoding, and bytes that are not exactly it are refused, so that a digest of the bytes is a digest
of the message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import msgpack
import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, LedgerFailure, Refused, SolverFailure, TacitError

FORMAT = 1
NUMBERS = ("<f4", "<f8")
LARGEST = 2**31  # bytes of a message
MOST_AGENTS = 100_000
# why an agent gave no reply
REASONS: dict[str, type[TacitError]] = {
    "refused": Refused,  # nothing was computed, nothing was paid
    "failed": SolverFailure,  # the computation failed, and is paid for
    "ledger": LedgerFailure,  # the agent could not pay
    "missing": Refused,  # no word from it in time
    "invalid": Refused,  # its word was no reply to this round
}


class _Message:
    """To bytes and back."""

    kind: ClassVar[str]

    def to_bytes(self) -> bytes:
        content: dict[str, Any] = {"tacit": FORMAT, "kind": self.kind}
        for part in fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            if part.name != "instructions" or len(value):  # as before there were any
                content[part.name] = _plain(value)
        data: bytes = msgpack.packb(content, unicode_errors="surrogatepass")
        return data


@dataclass(frozen=True)
class Broadcast(_Message):
    """Server to agents: the consensus w^{t+1} of this round.

    ``last`` has, for each agent, the digest of the last reply the server got from it.
    ``instructions``, where data were read once: how to go on from the last round, in public numbers
    (``fixed_point.py``).
    """

    kind = "broadcast"
    run: str
    round: int
    consensus: Vector
    last: Mapping[str, str] = field(default_factory=dict)
    instructions: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def digest(self) -> str:
        """Of the question itself: run, round and every bit of the consensus."""
        about = self.run, self.round, self.consensus
        return _sha256(Broadcast(*about, instructions=self.instructions))


@dataclass(frozen=True)
class Reply(_Message):
    """Agent to server: the coupled part of z^{t+1}, randomised and (objective noise) feasible."""

    kind = "reply"
    run: str
    round: int
    primal: Vector

    @property
    def digest(self) -> str:
        return _sha256(self)


@dataclass(frozen=True)
class Refusal(_Message):
    """In place of a reply: why there is none, as one of ``REASONS`` and in words."""

    kind = "refusal"
    run: str
    round: int
    reason: str
    words: str

    @classmethod
    def of(cls, error: TacitError, run: str, round: int) -> Refusal:
        kinds = (name for name, kind in REASONS.items() if isinstance(error, kind))
        return cls(run, round, next(kinds, "refused"), str(error))

    def error(self) -> TacitError:
        """As an exception, for those who cannot continue without the reply."""
        return REASONS[self.reason](self.words)


Message = Broadcast | Reply | Refusal
KINDS: dict[str, type[Message]] = {c.kind: c for c in (Broadcast, Reply, Refusal)}


def from_bytes(data: bytes) -> Message:
    """The message that ``to_bytes`` wrote; anything else is refused.

    Guarantee: ``from_bytes(data).to_bytes() == data``. Nothing is executed, no more memory is taken
    than a small multiple of ``len(data)``, and no other exception than ``CorruptFile`` is raised.
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
        kind = KINDS[content.pop("kind")]
        values = {name: _value(name, value) for name, value in content.items()}
        message = kind(**values)
        if message.to_bytes() != data:
            raise ValueError("not in the one encoding of this message")
    except Exception as error:  # whatever a message does when it is looked at
        raise CorruptFile(
            f"Expected a message of format {FORMAT}, got {len(data)} bytes that are none "
            f"({type(error).__name__}). Nothing was computed."
        ) from None
    return message


def _map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A map; within one, only text is taken, so that no nesting uses up the memory."""
    if pairs and pairs[0] != ("tacit", FORMAT) and not all(type(v) is str for _, v in pairs):
        raise TypeError("a map of something else than text")
    return dict(pairs)


def digest_of(run: str, round: int, values: Vector) -> str:
    """How version 0.1.0 digested requests: those in its ledgers are still known."""
    content = np.ascontiguousarray(values)
    about = json.dumps([run, int(round), content.dtype.str, content.shape])
    return hashlib.sha256(about.encode() + content.tobytes()).hexdigest()


def _sha256(message: _Message) -> str:
    return hashlib.sha256(message.to_bytes()).hexdigest()


def _plain(value: Any) -> Any:
    """What MessagePack can hold; a vector as its number format, length and bytes."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Mapping):
        return {name: value[name] for name in sorted(value)}
    if isinstance(value, str | int):
        return value
    vector = np.asarray(value)
    if vector.dtype.kind != "f" or vector.ndim != 1:
        raise TypeError(f"expected a vector of floats, got {vector.dtype} of {vector.ndim} axes")
    vector = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return [vector.dtype.str, len(vector), vector.tobytes()]


def _value(name: str, value: Any) -> Any:
    """What a field holds, of the type that it must have."""
    if name in ("consensus", "primal", "instructions"):
        number, length, content = value
        if number not in NUMBERS or len(content) != length * np.dtype(number).itemsize:
            raise ValueError("a vector of another length")
        return np.frombuffer(content, number)
    if type(value) is not {"round": int, "last": dict}.get(name, str):
        raise TypeError(name)
    if isinstance(value, dict) and not all(type(v) is str for v in value.values()):
        raise TypeError(name)
    if name == "reason" and value not in REASONS:
        raise ValueError(name)
    return value
