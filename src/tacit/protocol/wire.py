"""Messages as bytes: MessagePack, one encoding for each message, nothing executed.

A message is one map with the format's version, the kind of message and its fields; a vector is its
number format, its length and its numbers, little-endian. Bytes that are not exactly what
``to_bytes`` writes are refused, so that a digest of the bytes is a digest of the message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgpack
import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile

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
            f"Expected a message of format {FORMAT}, got {len(data)} bytes that are none "
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
