"""A digest of agents' problems: of arrays, settings and the code of functions, all the way down.

It decides whether a checkpoint may go on, that is, whether noise that was used may be used again,
for what must be the same computation.

Guarantee: two values with the same digest are the same, up to collisions of BLAKE2b and to what is
named here. Every part is written with its kind and its length, so that no two sequences of parts
are written alike. A function is its bytecode, constants (nested functions too), names, defaults,
closure, and the globals that it loads; of a module that is no library, the attributes that it
names. Functions and classes of Python, NumPy, SciPy, JAX and Tacit are their names: another version
of a library is not noticed. What Tacit's rooms export is named by room, all else by module, so that
a checkpoint outlives a move of modules within a room, and no two things share a name. What a
function reads in other ways (files, ``globals()``, attributes looked up by text) is not seen. What
cannot be digested is refused, never left out.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput
from tacit.sets.conic import Conic

LIBRARIES = ("builtins", "jax", "jaxlib", "numpy", "scipy", "tacit")
STDLIB = sysconfig.get_path("stdlib")
BY_NAME = ("jax.numpy", "jax.nn", "jax.lax", "jax.scipy.special", "numpy", "scipy.special")
# of a class: written by Python or by dataclasses, and says nothing that its functions do not
WRITTEN_BY_PYTHON = re.compile(
    r"__(dict|weakref|doc|module|qualname|annotat\w*|firstlineno|static_attributes|match_args|"
    r"dataclass_\w*|abstractmethods|orig_bases|parameters|type_params|slots)__$|_abc_impl$"
)
DERIVATIVES = ("jvp", "fwd", "bwd")  # of a function whose derivatives are the user's own
CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex)
PLAIN = (bool, int, float, complex, str, bytes, bytearray)


def data_digest(problem: Problem, key: Vector, *public: Any) -> str:
    """A digest of all agents' names, objectives, sets and couplings, code included.

    ``public`` values are digested too: schedules, which may be a user's own code.

    Keyed with the noise key, so that it tells nothing to those who do not know that already.
    """
    agents = zip(problem.names, problem.agents, strict=True)
    return joined_digest([agent_digest(agent, name, key) for name, agent in agents], key, *public)


def agent_digest(agent: LocalProblem, name: str, key: Vector) -> bytes:
    """One agent's part of ``data_digest``: computed where its data are."""
    content = (name, agent.objective, agent.feasible_set, agent.coupling)
    return Digest(np.asarray(key).tobytes()).of(content)


def joined_digest(agents: Iterable[bytes], key: Vector, *public: Any) -> str:
    """``data_digest`` out of the agents' own ones: that of a list of them, and of ``public``."""
    digest = Digest(np.asarray(key).tobytes())
    return digest.joined([digest.joined(agents), *map(digest.of, public)]).hex()


class Digest:
    """Digests of values, keyed: they tell nothing to those who do not know the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._done: dict[int, tuple[Any, bytes]] = {}  # by identity; kept, so that none is reused
        self._open: list[int] = []  # values that hold the present one
        self._where: list[str] = []

    def of(self, value: Any, where: str = "") -> bytes:
        """The digest of one value; ``where`` is for the message if there is none."""
        if value is None or value is Ellipsis or type(value) in PLAIN:
            return self._plain(value)
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return self._array(value)
        if (known := self._done.get(id(value))) is not None:
            return known[1]
        if id(value) in self._open:  # it holds itself: how far up
            return self._hash("above", [len(self._open) - self._open.index(id(value))])
        self._open.append(id(value))
        self._where.append(where)
        found = self._compound(value)
        self._where.pop()
        self._open.pop()
        self._done[id(value)] = value, found
        return found

    def joined(self, parts: Iterable[bytes]) -> bytes:
        """The digest of a list whose values have these digests."""
        return self._hash("list", parts)

    # --- writing --------------------------------------------------------------------------

    def _hash(self, kind: str, parts: Iterable[Any]) -> bytes:
        """One digest of a kind and its parts, each behind its length."""
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (kind, *parts):
            content: Any = part if isinstance(part, bytes | np.ndarray) else str(part).encode()
            size = content.nbytes if isinstance(content, np.ndarray) else len(content)
            digest.update(size.to_bytes(8, "little"))
            digest.update(content)
        return digest.digest()

    def _each(self, kind: str, values: Iterable[Any], where: str = "", *names: Any) -> bytes:
        return self._hash(kind, [*names, *(self.of(v, where) for v in values)])

    def _plain(self, value: Any) -> bytes:
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
            return self._hash("str", [value])
        exact = bytes(value) if isinstance(value, bytes | bytearray) else repr(value)
        return self._hash(type(value).__name__, [exact])

    def _array(self, value: Any) -> bytes:
        if isinstance(value, jax.core.Tracer):
            self._refuse(value)
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return self._each("key", [jax.random.key_data(value)], "", jax.random.key_impl(value))
        if isinstance(value, np.ma.MaskedArray):
            return self._each("masked", [value.data, np.ma.getmaskarray(value)])
        shape, content = np.shape(value), np.ascontiguousarray(value)
        if content.dtype.names or content.dtype.hasobject:
            return self._each("objects", content.tolist(), "an array", content.dtype, shape)
        about = content.dtype.name, content.dtype.str, shape
        return self._hash("array", [*about, content.reshape(-1).view(np.uint8)])

    # --- what there is --------------------------------------------------------------------

    def _compound(self, value: Any) -> bytes:
        if isinstance(value, Conic):
            return self._each("conic", [type(value), *value.parts], "a set")
        if sp.issparse(value):
            matrix = sp.csc_matrix(value, copy=True)
            matrix.sum_duplicates()
            parts = matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
            return self._each("sparse", parts, "", matrix.shape)
        if type(value) in (tuple, list):
            return self._each(type(value).__name__, value)
        if type(value) in (set, frozenset):
            return self._hash(type(value).__name__, sorted(self.of(v) for v in value))
        if type(value) is dict:
            return self._each("dict", (part for pair in value.items() for part in pair))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, enum.Enum):
            return self._each("enum", [type(value), value.name])
        if isinstance(value, types.ModuleType):
            if not _is_library(value.__name__):  # what is read from it is not known here
                self._refuse(value)
            return self._hash("module", [value.__name__])
        if isinstance(value, types.CodeType):
            return self._code(value)
        if callable(value) and (found := self._callable(value)) is not None:
            return found
        if isinstance(value, slice | range | re.Pattern | np.dtype):
            return self._hash(type(value).__name__, [repr(value)])
        return self._object(value)

    def _callable(self, value: Any) -> bytes | None:
        name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        if (home := _room(value, name) or _home(value, name)) is not None:
            return self._hash("library", [home, name])
        if isinstance(value, functools.partial):
            return self._each("partial", [value.func, value.args, value.keywords], "a partial")
        if isinstance(value, types.MethodType):
            return self._each("method", [value.__self__, value.__func__], name)
        if isinstance(value, types.BuiltinMethodType) and value.__self__ is not None:
            return self._each("method", [value.__self__, value.__name__], name)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if _is_library(type(value).__module__) and hasattr(value, "__wrapped__"):  # jit and others
            own = [value.__wrapped__, *(getattr(value, n, None) for n in DERIVATIVES)]
            return self._each("wrapped", [type(value), *own], name)
        return None

    def _function(self, function: types.FunctionType) -> bytes:
        name, code = f"{function.__module__}.{function.__qualname__}", function.__code__
        cells = [_content(cell) for cell in function.__closure__ or ()]
        given = [*(function.__defaults__ or ()), None, function.__kwdefaults__]
        library = function.__globals__.get("__name__", "")
        if _is_library(library):  # a wrapper that a library made: its code is known by its name
            said = self._hash("library code", [library, code.co_qualname])
            loaded: list[Any] = []
        else:
            said = self.of(code, f"the code of {name}")
            loaded = list(_globals(function))
        parts = [
            said,
            self._each("closure", cells, f"the closure of {name} ({code.co_freevars})"),
            self._each("defaults", given, f"a default of {name}"),
            self._each("attributes", [vars(function)], f"an attribute of {name}"),
            *(self._each("global", [g, v], f"{g!r}, which {name} uses") for g, v in loaded),
        ]
        return self._hash("function", [name, *parts])

    def _code(self, code: types.CodeType) -> bytes:
        """All but where it stands: file and line numbers."""
        about = [
            code.co_qualname,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_code,
            code.co_exceptiontable,
        ]
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        return self._each("code", [*names, code.co_consts], "", *about)

    def _class(self, cls: type) -> bytes:
        if _is_library(cls.__module__):
            home = _room(cls, cls.__qualname__) or cls.__module__
            name = f"{home}.{cls.__qualname__}"
            return self._hash("class", [name])
        name = f"{cls.__module__}.{cls.__qualname__}"
        parts: list[bytes] = []
        for attribute, value in sorted(vars(cls).items()):
            if WRITTEN_BY_PYTHON.match(attribute) or (
                inspect.isdatadescriptor(value) and not _own(value)
            ):
                continue
            for function in _functions(value):
                parts.append(self._each("attribute", [attribute, function], f"class {name}"))
        bases = self._each("bases", [*cls.__bases__, type(cls)], f"class {name}")
        return self._hash("own class", [name, bases, *parts])

    def _object(self, value: Any) -> bytes:
        """What JAX sees of a tree of arrays; else, of a class that is no library's, its state."""
        node = jax.tree_util.default_registry.flatten_one_level(value)
        if node is not None:
            children, structure = list(node[0]), node[1]
            parts = [type(value), children, structure]
            return self._each("tree", parts, type(value).__name__)
        cls, state = type(value), dict(getattr(value, "__dict__", {}))
        if cls is object:  # nothing but itself
            return self._hash("object", [])
        slots = sum(len(_slots(c)) for c in cls.__mro__)
        hidden = cls.__basicsize__ > Bare.__basicsize__ + 8 * slots  # state that is not Python's
        known = next((c for c in CONTAINERS if isinstance(value, c)), None)
        foreign = _is_library(cls.__module__) and not cls.__module__.startswith("tacit")
        if foreign or (hidden and known is None):
            self._refuse(value)
        if known is not None:
            state["the container itself"] = known(value)
        for cls in type(value).__mro__:
            for attribute in _slots(cls):
                if hasattr(value, attribute):
                    state[attribute] = getattr(value, attribute)
            for attribute, held in vars(cls).items():  # computed from the rest, now or later
                if isinstance(held, functools.cached_property):
                    state.pop(attribute, None)
        where = f"an object of class {type(value).__qualname__}"
        return self._each("object", [type(value), state], where)

    def _refuse(self, value: Any) -> NoReturn:
        where = ", in ".join(w for w in reversed(self._where) if w) or "the problem"
        raise InvalidInput(
            f"Expected a problem that a checkpoint can tell from others; {type(value).__module__}."
            f"{type(value).__qualname__} has no digest (in {where}). Nothing was started: keep it "
            "out of the problem, or solve without a checkpoint."
        )


class Bare:
    """A class of an own, with nothing in it."""


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_library(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    if top in LIBRARIES:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or STDLIB
    return top in sys.stdlib_module_names and file.startswith(STDLIB)


def _room(value: Any, name: str) -> str | None:
    """The room of Tacit in which a function or class, or its class, is found under its name."""
    top, *rest = str(getattr(value, "__module__", "")).split(".")
    room = ".".join([top, *rest[:1]])
    return room if top == "tacit" and rest and _named(room, name) is value else None


def _home(value: Any, name: str) -> str | None:
    """The library's module in which a function or the like is found under its name."""
    own = getattr(value, "__module__", None) or getattr(value, "__objclass__", type).__module__
    for module in (own, *BY_NAME):
        if isinstance(module, str) and _is_library(module) and _named(module, name) is value:
            return module
    return None


def _named(module: str, name: str) -> Any:
    """What stands under a name, with dots, in a module that was imported."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that a function or one inside it loads, and what they are now."""
    codes, loaded, names = [function.__code__], set(), set()
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        names |= set(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(step.argval)
            if step.opname == "IMPORT_NAME":
                yield f"import {step.argval}", types.ModuleType(step.argval or ".")
    for name in sorted(loaded):
        value = function.__globals__.get(name, vars(builtins).get(name, "nothing"))
        if not isinstance(value, types.ModuleType) or _is_library(value.__name__):
            yield name, value
        else:
            yield name, value.__name__
            for attribute in sorted(names & set(vars(value))):
                yield f"{name}.{attribute}", vars(value)[attribute]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _own(value: Any) -> bool:
    return isinstance(value, property | functools.cached_property)


def _functions(value: Any) -> tuple[Any, ...]:
    """What an attribute of a class consists of."""
    if isinstance(value, staticmethod | classmethod):
        return type(value).__name__, value.__func__
    if isinstance(value, property):
        return "property", value.fget, value.fset, value.fdel
    if isinstance(value, functools.cached_property):
        return "cached", value.func
    return (value,)
