"""Where the state of a run is kept: one file, from which it continues bit for bit.

A keyed digest of agents' problems (arrays, settings, and the code of users' functions) decides
whether a run may be continued, that is, whether noise that was used may be used again, for what
must be the same computation.

Guarantee: two values with the same digest are the same, up to collisions of BLAKE2b and to what is
named here. A function of a user is its bytecode, constants (nested functions too), defaults,
closure, attributes, and the globals that it loads; of a module that is no library, the attributes
that it names. Functions and classes of Python, NumPy, SciPy, JAX and Tacit are their names: another
version of a library is not noticed. What a function reads in other ways (files, ``globals()``,
attributes looked up by text) is not seen. What cannot be taken apart is refused, never left out.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import inspect
import io
import json
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import parse_json, read_npz, reading, typed, write_atomically
from tacit.sets.conic import Conic

FORMAT = 4  # another one with every change of a computed bit: noise must not meet other numbers
WHAT = "a checkpoint that tacit saved"
Arrays = Mapping[str, Sequence[Vector]]  # by name, one array of each agent


@dataclass(frozen=True)
class Journal:
    """Where a run stands. What continues it asks each agent the same questions as before, which
    get the same answers, so it releases nothing new.

    agreed   what decides the answers and their noise: a run continues with the same only
    key      the root of the noise, where the coordinator's owner owns all data: a secret
    digest   of the agents' data, keyed with ``key``, and of which ledgers they have
    arrays   of the server, and for their owner of all agents, after ``round``
    failed   how often a party's round failed, and is paid for again
    """

    path: Path | None  # None: nothing is kept
    run: str
    agreed: dict[str, Any]
    key: Vector = field(default_factory=lambda: np.zeros(0, np.uint32), repr=False)
    digest: str = ""
    round: int = 0
    arrays: Arrays = field(default_factory=dict)
    trace: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    failed: dict[str, int] = field(default_factory=dict)

    def after(self, round: int, arrays: Arrays, trace: Any) -> Journal:
        """The same run, further on; in the file when this returns."""
        now = replace(self, round=round, arrays=dict(arrays), trace=np.array(trace))
        now.save()
        return now

    def with_failures(self, parties: Sequence[str]) -> Journal:
        """These parties computed a round in vain, and will pay for it again."""
        failed = {name: self.failed.get(name, 0) + 1 for name in parties}
        now = replace(self, failed={**self.failed, **failed})
        now.save()
        return now

    def save(self) -> None:
        """Replace the file in one step, readable by its owner only."""
        if self.path is None:
            return
        header = {
            "format": FORMAT,
            "run": self.run,
            "agreed": self.agreed,
            "digest": self.digest,
            "round": self.round,
            "agents": {name: len(parts) for name, parts in self.arrays.items()},
            "failed": self.failed,
        }
        arrays: dict[str, Any] = {
            f"{name}_{p}": part
            for name, parts in self.arrays.items()
            for p, part in enumerate(parts)
        }
        content = io.BytesIO()
        about = np.array(json.dumps(header))
        np.savez(content, header=about, key=self.key, trace=self.trace, **arrays)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Journal:
        with reading(path, WHAT, "Nothing was resumed."):
            data = read_npz(path, WHAT)
            header = parse_json(str(data["header"]))
            if header["format"] == FORMAT:
                arrays = {
                    name: [data[f"{name}_{p}"] for p in range(int(many))]
                    for name, many in header["agents"].items()
                }
                about = header["run"], header["agreed"], data["key"], header["digest"]
                now = header["round"], arrays, data["trace"], header["failed"]
                return typed(cls(path, *about, *now))
        raise InvalidInput(
            f"Expected a checkpoint of this version in {path}, got one of another version, which "
            "rounds differently: the same noise on other numbers could give data away. Nothing was "
            "resumed. Start anew in another folder, with another seed if there is one; what was "
            "released so far counts too."
        )

    def check(self, agreed: Mapping[str, Any], digest: Callable[[], str]) -> None:
        """Refuse to continue a different run: it would use this one's noise a second time.

        ``digest`` of the agents' data is asked for last: it reads all of them.
        """
        wanted = json.loads(json.dumps(agreed))  # as the saved values went
        differing = [k for k in {**wanted, **self.agreed} if wanted.get(k) != self.agreed.get(k)]
        if differing:
            raise InvalidInput(
                f"Expected to go on with run {self.run!r} in {self.path}, but since it began the "
                f"{', '.join(differing)} changed. Give it back, or start anew in another folder, "
                "with another seed if there is one: a new run is charged anew. Nothing was resumed."
            )
        if self.digest != digest():
            raise InvalidInput(
                "Expected the ledgers, agents, objectives, sets and data of the checkpoint, the "
                "code of functions included; they differ. Nothing was resumed."
            )

    def check_arrays(self, arrays: Arrays, rounds: int) -> None:
        """Refuse what is no state of such a run: ``arrays`` has the shapes of one."""
        sound = 0 <= self.round <= rounds and self.arrays.keys() == arrays.keys()
        for name, parts in self.arrays.items():
            sound = sound and [np.shape(x) for x in parts] == [np.shape(x) for x in arrays[name]]
            sound = sound and all(np.isfinite(x).all() for x in parts)
        if not sound:
            raise CorruptFile(
                "Expected the state of a round of the run in the checkpoint: finite arrays of the "
                "agents' sizes. Nothing was resumed."
            )


LIBRARIES = ("builtins", "jax", "jaxlib", "numpy", "scipy", "tacit")
STDLIB = sysconfig.get_path("stdlib")
BY_NAME = ("jax.numpy", "jax.nn", "jax.lax", "jax.scipy.special", "numpy", "scipy.special")
# of a class: written by Python or by dataclasses, and says nothing that its functions do not
WRITTEN_BY_PYTHON = re.compile(
    r"__(dict|weakref|doc|module|qualname|annotat\w*|firstlineno|static_attributes|match_args|"
    r"dataclass_\w*|abstractmethods|orig_bases|parameters|type_params|slots)__$|_abc_impl$"
)
CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex)
NUMBERS = (bool, int, float, complex, type(None), type(...), type(NotImplemented))


def agent_digest(agent: LocalProblem, name: str, key: Vector) -> bytes:
    """A digest of an agent's name, objective, set and coupling, code included.

    Keyed with the noise key, so that it tells nothing to those who do not know that already.
    """
    content = (name, agent.objective, agent.feasible_set, agent.coupling)
    return Digest(np.asarray(key).tobytes()).of(content)


def joined_digest(agents: Iterable[bytes], key: Vector, *public: Any) -> str:
    """A digest of agents' own ones and of schedules, which may be a user's own code too."""
    return Digest(np.asarray(key).tobytes()).of([*agents, public]).hex()


class Digest:
    """Digests of values, under a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._done: dict[int, tuple[Any, bytes]] = {}  # by identity; kept, so that none is reused
        self._open: list[Any] = []  # values that hold the present one

    def of(self, value: Any) -> bytes:
        """The digest of one value: of its kind and its parts, each behind its length."""
        if type(value) in NUMBERS:
            return self._hash(type(value).__name__, [repr(value).encode()])
        if type(value) in (str, bytes, bytearray):
            text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            return self._hash(type(value).__name__, [bytes(text)])
        if (known := self._done.get(id(value))) is not None:
            return known[1]
        above = [id(held) for held in self._open]
        if id(value) in above:  # it holds itself: how far up
            return self._hash("above", [str(len(above) - above.index(id(value))).encode()])
        self._open.append(value)
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            found = self._array(value)
        else:
            kind, *parts = self._parts(value)
            found = self._hash(kind, map(self.of, parts))
        self._open.pop()
        self._done[id(value)] = value, found
        return found

    def _hash(self, kind: str, parts: Iterable[Any]) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (kind.encode(), *parts):
            digest.update(memoryview(part).nbytes.to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def _array(self, value: Any) -> bytes:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            parts = str(jax.random.key_impl(value)), jax.random.key_data(value)
            return self._hash("key", map(self.of, parts))
        if isinstance(value, jax.core.Tracer | np.ma.MaskedArray) or value.dtype.hasobject:
            raise self._refusal()
        content = np.ascontiguousarray(value)
        about = f"{content.dtype!r} {content.dtype.str} {np.shape(value)}"  # fields have names
        return self._hash("array", [about.encode(), content.reshape(-1).view(np.uint8)])

    def _parts(self, value: Any) -> Iterable[Any]:
        """What a value is: a word for its kind, and the values that it consists of."""
        if isinstance(value, Conic):
            return "conic", type(value), *value.parts
        if sp.issparse(value):
            matrix = sp.csc_matrix(value, copy=True)
            matrix.sum_duplicates()
            places = (indices.astype(np.int64) for indices in (matrix.indices, matrix.indptr))
            return "sparse", matrix.shape, matrix.data, *places
        if type(value) in (tuple, list):
            return type(value).__name__, *value
        if type(value) in (set, frozenset):
            return type(value).__name__, *sorted(map(self.of, value))
        if type(value) is dict:
            return "dict", *(part for pair in value.items() for part in pair)
        if (name := library_name(value)) is not None:
            return "library", name
        if isinstance(value, types.FunctionType):
            return "function", *function_parts(value)
        if isinstance(value, types.CodeType):
            return "code", *code_parts(value)
        if isinstance(value, type):
            return "class", *class_parts(value)
        if isinstance(value, enum.Enum):
            return "enum", type(value), value.name
        if isinstance(value, functools.partial):
            return "partial", value.func, value.args, value.keywords
        if isinstance(value, types.MethodType):
            return "method", value.__self__, value.__func__
        if isinstance(value, types.BuiltinMethodType) and value.__self__ is not None:
            return "method", value.__self__, value.__name__
        if isinstance(value, staticmethod | classmethod):
            return type(value).__name__, value.__func__
        if isinstance(value, property):
            return "property", value.fget, value.fset, value.fdel
        if isinstance(value, functools.cached_property):
            return "cached property", value.func
        if isinstance(value, slice | range | re.Pattern | np.dtype):
            return type(value).__name__, repr(value)
        if type(value) is object:  # nothing but itself
            return ("object",)
        library = is_library(type(value).__module__)
        if library and hasattr(value, "__wrapped__"):  # jit and others, with derivatives if given
            own = (getattr(value, name, None) for name in ("jvp", "fwd", "bwd"))
            return "wrapped", type(value), value.__wrapped__, *own
        if library and not type(value).__module__.startswith("tacit"):
            raise self._refusal()
        return "object", type(value), *self._state(value)

    def _state(self, value: Any) -> Iterator[Any]:
        """What an object holds, but for what is computed from the rest, now or later."""
        classes = type(value).__mro__
        slots = [name for cls in classes for name in slots_of(cls)]
        container = next((c for c in CONTAINERS if isinstance(value, c)), None)
        if container is not None:
            yield container(value)
        elif type(value).__basicsize__ > Bare.__basicsize__ + 8 * len(slots):
            raise self._refusal()  # it has state that is not Python's
        state = dict(getattr(value, "__dict__", {}))
        state |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
        for cls in classes:
            for name, held in vars(cls).items():
                if isinstance(held, functools.cached_property):
                    state.pop(name, None)
        yield state

    def _refusal(self) -> InvalidInput:
        value, where = self._open[-1], "the problem"
        for held in self._open:
            if isinstance(held, types.FunctionType | type):
                where = held.__qualname__
        return InvalidInput(
            f"Expected a problem that a checkpoint can tell from others; {type(value).__module__}."
            f"{type(value).__qualname__} has no digest (in {where}). Nothing was started: keep it "
            "out of the problem, or solve without a checkpoint."
        )


class Bare:
    """A class of an own, with nothing in it."""


def slots_of(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_library(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    if top in LIBRARIES:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or STDLIB
    return top in sys.stdlib_module_names and file.startswith(STDLIB)


def library_name(value: Any) -> str | None:
    """The name under which a library has a module, a class, a function or the like."""
    if isinstance(value, types.ModuleType):
        return value.__name__ if is_library(value.__name__) else None
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}" if is_library(value.__module__) else None
    name = getattr(value, "__qualname__", getattr(value, "__name__", None))
    own = getattr(value, "__module__", None) or getattr(value, "__objclass__", type).__module__
    for module in (own, *BY_NAME):
        if not (isinstance(name, str) and isinstance(module, str)):
            continue
        if is_library(module) and module in sys.modules:
            try:
                if attrgetter(name)(sys.modules[module]) is value:
                    return f"{module}.{name}"
            except AttributeError:
                pass
    return None


def function_parts(function: types.FunctionType) -> Iterator[Any]:
    """Its code (that of a wrapper that a library made is its name) and all that this uses."""
    library = function.__globals__.get("__name__", "")
    yield from (function.__module__, function.__qualname__)
    yield from (function.__defaults__, function.__kwdefaults__, vars(function))
    yield [contents_of(cell) for cell in function.__closure__ or ()]
    if is_library(library):
        yield from (library, function.__code__.co_qualname)
    else:
        yield function.__code__
        yield from globals_of(function)


def code_parts(code: types.CodeType) -> Iterator[Any]:
    """All but where it stands: file and line numbers."""
    yield from (code.co_qualname, code.co_flags, code.co_code, code.co_exceptiontable)
    yield from (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    yield from (code.co_consts, code.co_names)
    yield from (code.co_varnames, code.co_freevars, code.co_cellvars)


def class_parts(cls: type) -> Iterator[Any]:
    yield from (cls.__module__, cls.__qualname__, type(cls), *cls.__bases__)
    for name, value in sorted(vars(cls).items()):
        slot = inspect.isdatadescriptor(value) and not isinstance(value, property)
        if not (slot and is_library(type(value).__module__)) and not WRITTEN_BY_PYTHON.match(name):
            yield from (name, value)


def globals_of(function: types.FunctionType) -> Iterator[Any]:
    """Names that a function or one inside it loads, and what they are now."""
    codes, loaded, names = [function.__code__], set(), set()
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        names |= set(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(step.argval)
            if step.opname == "IMPORT_NAME":  # refused, if it is no library's
                yield types.ModuleType(step.argval or ".")
    for name in sorted(loaded):
        value = function.__globals__.get(name, vars(builtins).get(name, "nothing"))
        if isinstance(value, types.ModuleType) and not is_library(value.__name__):
            used = {k: v for k, v in vars(value).items() if k in names}
            value = value.__name__, dict(sorted(used.items()))
        yield from (name, value)


def contents_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
