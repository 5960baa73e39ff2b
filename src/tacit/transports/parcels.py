"""Requests, answers and errors between the ranks of one cluster, as bytes.

MessagePack, with arrays as their number format, shape and bytes. Nothing is executed when a parcel
is opened. Ranks belong to one owner and run one program, so that a parcel may hold private values,
and needs no such care as a message between strangers (``protocol/messages.py``).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import msgpack
import numpy as np

from tacit import errors
from tacit.admm.settings import Settings
from tacit.errors import EngineFailure, InvalidInput, TacitError
from tacit.privacy.mechanisms import Mechanism, mechanism_from
from tacit.protocol import messages
from tacit.protocol.release import Release

KIND = "?"  # the key under which a table says what it stands for


def pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, default=_plain, strict_types=True)
    return data


def unpack(data: Any) -> Any:
    """What ``pack`` was given; sequences are tuples, and arrays cannot be written to."""
    return msgpack.unpackb(data, object_hook=_value, use_list=False, strict_map_key=False)


def _plain(value: Any) -> Any:
    """A value as a table; numbers stay where they are until they are written to the parcel."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value)
        numbers = content.data if content.size else b""
        return {KIND: "array", "dtype": value.dtype.str, "shape": value.shape, "numbers": numbers}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Settings):
        return {KIND: "settings", "said": _said(value)}
    if isinstance(value, Mechanism):
        return {KIND: "mechanism", "said": value.to_dict()}
    if isinstance(value, BaseException):
        return {KIND: "error", "told": _told(value)}
    kind = type(value)
    if PARTS.get(kind.__name__) is kind:
        return {KIND: kind.__name__, **{f.name: getattr(value, f.name) for f in fields(value)}}
    raise TypeError(f"expected a value that ranks exchange, got {type(value).__name__}")


_OWN = messages.Own, messages.Sum, Release
_MESSAGES = (*get_args(messages.Request), *get_args(messages.Answer), *_OWN)
PARTS: dict[str, Any] = {kind.__name__: kind for kind in _MESSAGES}


def _value(table: dict[str, Any]) -> Any:
    kind = table.pop(KIND, None)
    if kind is None:
        return table
    if kind == "array":
        return np.frombuffer(table["numbers"], table["dtype"]).reshape(table["shape"])
    if kind == "settings":
        return Settings.from_dict(_lists(table["said"]))
    if kind == "mechanism":
        return mechanism_from(table["said"])
    if kind == "error":
        return _raised(*table["told"])
    return PARTS[kind](**table)


def _said(settings: Settings) -> dict[str, Any]:
    """As other ranks are told them: refused where they would understand another schedule."""
    said = settings.to_dict()
    try:
        same = Settings.from_dict(said) == settings
    except (TacitError, TypeError, KeyError):
        same = False
    if not same:
        raise InvalidInput(
            "Expected schedules of Tacit's own for agents on other ranks, which are told them in "
            f"words, got {settings.penalty!r} and {settings.step_size!r}. Nothing was computed."
        )
    return said


def _lists(value: Any) -> Any:
    """As ``to_dict`` had it, where there are tuples now."""
    if isinstance(value, dict):
        return {name: _lists(part) for name, part in value.items()}
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def _told(error: BaseException) -> list[Any]:
    """The kind of an error, and what it takes to raise it again."""
    notes = list(getattr(error, "__notes__", ()))
    if isinstance(error, TacitError):
        return [type(error).__name__, [str(error)], notes]
    if isinstance(error, ModuleNotFoundError):
        return ["ModuleNotFoundError", [str(error), error.name], notes]
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return ["OSError", [error.errno, error.strerror, str(error.filename)], notes]
    return ["", [f"{type(error).__name__}: {error}"], notes]


def _raised(kind: str, about: tuple[Any, ...], notes: tuple[str, ...]) -> BaseException:
    error: BaseException
    if kind == "OSError":
        error = OSError(*about)
    elif kind == "ModuleNotFoundError":
        error = ModuleNotFoundError(about[0], name=about[1])
    else:
        error = getattr(errors, kind, EngineFailure)(*about)
    for note in notes:
        error.add_note(note)
    return error
