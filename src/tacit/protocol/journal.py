"""Where the state of a run is kept: one file, from which it continues bit for bit.

A keyed digest of agents' problems (arrays, settings, and the code of users' functions) decides
whether a run may be continued, that is, whether noise that was used may be used again, for what
must be the same computation.

Guarantee: two values with the same digest are the same, up to collisions of BLAKE2b and to what is
named here: numbers, text, containers, arrays, sets, and objects by what pickle would keep of them.
A user's function is its name, bytecode, constants, defaults, attributes and closure; a user's class
its name and methods. Globals and what else a function reads are not looked at, and of functions and
classes of Python, NumPy, SciPy, JAX and Tacit their names only. What cannot be told apart is
refused, never left out.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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

FORMAT = 5  # another one with every change of a computed bit: noise must not meet other numbers
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
PLAIN = (bool, int, float, complex, str, type(None), type(...))


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
        if type(value) in PLAIN:
            return self._hash(type(value).__name__, [repr(value).encode()])
        if type(value) in (bytes, memoryview):
            return self._hash(type(value).__name__, [value])
        if (known := self._done.get(id(value))) is not None:
            return known[1]
        above = [id(held) for held in self._open]
        if id(value) in above:  # it holds itself: how far up
            return self._hash("above", [str(len(above) - above.index(id(value))).encode()])
        self._open.append(value)
        kind, *parts = self._parts(value)
        found = self._hash(kind, map(self.of, parts))
        self._open.pop()
        self._done[id(value)] = value, found
        return found

    def _hash(self, kind: str, parts: Iterable[Any]) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (kind.encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def _parts(self, value: Any) -> Iterable[Any]:
        """What a value is: a word for its kind, and the values that it consists of."""
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "key", str(jax.random.key_impl(value)), jax.random.key_data(value)
        if isinstance(value, jax.Array | np.generic) or type(value) is np.ndarray:
            array = np.ascontiguousarray(value)
            about = f"{array.dtype!r} {array.dtype.str} {np.shape(value)}"  # fields have names
            if array.dtype.hasobject:
                return "objects", about, array.tolist()
            return "array", about, array.reshape(-1).view(np.uint8).data
        if sp.issparse(value):
            matrix = sp.csc_matrix(value, copy=True)
            matrix.sum_duplicates()
            places = (indices.astype(np.int64) for indices in (matrix.indices, matrix.indptr))
            return "sparse", matrix.shape, matrix.data, *places
        if isinstance(value, Conic):
            return "conic", type(value), *value.parts
        if type(value) in (tuple, list):
            return type(value).__name__, *value
        if type(value) in (set, frozenset):
            return type(value).__name__, *sorted(map(self.of, value))
        if type(value) is dict:
            return "dict", *(part for pair in value.items() for part in pair)
        if isinstance(value, types.CodeType):
            return "code", value.co_code, value.co_names, value.co_consts
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if isinstance(value, type | types.FunctionType):
            return self._named(value)
        if isinstance(value, types.MethodType):
            return "method", value.__self__, value.__func__
        if type(value).__module__.startswith("jaxlib") and hasattr(value, "__wrapped__"):
            return "compiled", value.__wrapped__
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            found = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:
            where = next((v.__qualname__ for v in self._open if hasattr(v, "__qualname__")), "it")
            raise InvalidInput(
                f"Expected a problem that a checkpoint can tell from others; "
                f"{type(value).__qualname__} has no digest (in {where}). Nothing was started: keep "
                "it out of the problem, or solve without a checkpoint."
            ) from None
        how, *held = (found,) if isinstance(found, str) else found
        return "object", type(value), how, *(self._state(type(value), part) for part in held)

    def _named(self, value: Any) -> Iterable[Any]:
        """A class or a function: its name and, if it is no library's, its code."""
        name, top = f"{value.__module__}.{value.__qualname__}", value.__module__.partition(".")[0]
        library = top in LIBRARIES or top in sys.stdlib_module_names
        if isinstance(value, type):
            own = {k: v for k, v in vars(value).items() if isinstance(v, types.FunctionType)}
            return "class", name, *(() if library else (value.__bases__, own))
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        if library and not cells:
            return "function", name
        defaults = value.__defaults__, value.__kwdefaults__
        return "function", name, value.__code__, *defaults, cells, vars(value)

    def _state(self, kind: type, part: Any) -> Any:
        """What pickle would keep of an object, but for what is computed from the rest, later."""
        if isinstance(part, Iterator):
            return list(part)
        if type(part) is not dict:
            return part
        later = {
            k for c in kind.__mro__ for k, v in vars(c).items() if isinstance(v, cached_property)
        }
        return {name: held for name, held in part.items() if name not in later}
