"""What travels between the ranks of one cluster, as bytes: questions, answers and errors.

MessagePack, with arrays as their number format, shape and bytes, and messages as ``wire.py`` writes
them. Nothing is executed when a parcel is opened. Ranks belong to one owner and run one program, so
a parcel may hold private values: it is no message of the protocol.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from tacit import errors
from tacit.admm.facts import Facts
from tacit.admm.messages import Broadcast, Refusal, Reply, from_bytes
from tacit.admm.release import Release
from tacit.admm.settings import Settings
from tacit.errors import EngineFailure, InvalidInput, TacitError
from tacit.privacy.mechanisms import Mechanism, mechanism_from

ARRAY, MESSAGE, FACTS, SETTINGS, MECHANISM, RELEASE, ERROR = range(1, 8)


def pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, default=_plain, strict_types=True)
    return data


def unpack(data: Any) -> Any:
    """What ``pack`` was given; sequences are tuples."""
    return msgpack.unpackb(data, ext_hook=_value, use_list=False, strict_map_key=False)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        about = [value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()]
        return msgpack.ExtType(ARRAY, pack(about))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Broadcast | Reply | Refusal):
        return msgpack.ExtType(MESSAGE, value.to_bytes())
    if isinstance(value, Facts):
        return msgpack.ExtType(FACTS, value.to_bytes())
    if isinstance(value, Settings):
        return msgpack.ExtType(SETTINGS, pack(_said(value)))
    if isinstance(value, Mechanism):
        return msgpack.ExtType(MECHANISM, pack(value.to_dict()))
    if isinstance(value, Release):
        return msgpack.ExtType(RELEASE, pack([value.values, value.seal, value.kept]))
    if isinstance(value, BaseException):
        return msgpack.ExtType(ERROR, pack(_told(value)))
    raise TypeError(f"expected a value that ranks exchange, got {type(value).__name__}")


def _value(code: int, data: bytes) -> Any:
    if code == MESSAGE:
        return from_bytes(data)
    if code == FACTS:
        return Facts.from_bytes(data)
    content = unpack(data)
    if code == ARRAY:
        dtype, shape, numbers = content
        return np.frombuffer(numbers, dtype).reshape(shape).copy()
    if code == SETTINGS:
        return Settings.from_dict(_lists(content))
    if code == MECHANISM:
        return mechanism_from(content)
    if code == RELEASE:
        return Release(*content)
    if code == ERROR:
        return _raised(*content)
    raise ValueError(f"expected a known kind of value, got {code}")


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
