"""Digests tell problems apart by data, structure and code, and are the same in every process."""

import dataclasses
import enum
import functools
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import threading
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import tacit
from tacit.protocol.journal import Digest, agent_digest
from tacit.sets.conic import Conic

KEY = bytes(8)


def digest(value):
    return Digest(KEY).of(value)


def scaled(factor, power=2):
    return lambda z, x: factor * jnp.sum((z @ x) ** power)


def with_default(z, x, factor=1.0):
    return factor * (z @ x) ** 2


class Loss:
    """A loss with state and a method of its own."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, z, x):
        return self.factor * (z @ x) ** 2


class Other(Loss):
    def __call__(self, z, x):
        return self.factor * (z @ x) ** 4


@dataclasses.dataclass(frozen=True)
class Written:
    """Whose methods Python wrote."""

    factor: float

    @functools.cached_property
    def square(self):
        return self.factor**2


class Named(typing.NamedTuple):
    factor: float


class Names(dict):
    pass


class Colour(enum.Enum):
    RED, BLUE = 1, 2


def get(self):
    return 1


def put(self, value):
    pass


def made(text, **names):
    """The function ``loss`` of a user's text."""
    space = {"__name__": "user", **names}
    exec(text, space)
    return space["loss"]


def nested(constant):
    """The constant is two functions deep in the code, not in a closure."""
    inner = f"    def inner(v):\n        return (lambda u: u * {constant})(v)\n"
    return made(f"def loss(z, x):\n{inner}    return inner(z @ x)\n")


def keyword(factor):
    return lambda z, x, *, factor=factor: factor * (z @ x)


def attributed(factor):
    def loss(z, x):
        return loss.scale * jnp.sum(z * x)

    loss.scale = factor
    return loss


DIFFERENT = [
    (lambda z, x: (z @ x) ** 2, lambda z, x: (z @ x) ** 4),
    (lambda z, x: jnp.sin(z @ x), lambda z, x: jnp.cos(z @ x)),
    (with_default, functools.partial(with_default, factor=2.0)),
    (Loss(1.0), Other(1.0)),
    (Loss(1.0).__call__, Loss(2.0).__call__),
    (jax.vmap(scaled(1.0)), jax.vmap(scaled(1.0), in_axes=(None, 0))),
    (jnp.tanh, jnp.sinh),
    (np.tanh, np.sinh),
    (jax.nn.relu, jax.nn.softplus),
    (jax.random.key(1), jax.random.key(2)),
    (0.0, -0.0),
    (Colour.RED, Colour.BLUE),
    ([1].append, [2].append),
    ([1].append, [1].extend),
    (functools.partial(get, 1), functools.partial(get, 2)),
    (functools.partial(get, x=1), functools.partial(get, y=1)),
    (functools.partial(get), functools.partial(put, None)),
    (slice(0, 1), slice(0, 2)),
    (range(3), range(4)),
    (slice(0, 3), range(0, 3)),
    (re.compile("a"), re.compile("b")),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (np.dtype("f4"), np.dtype("f8")),
    (np.float32(1), np.float64(1)),
    ((1, 2), [1, 2]),
    ({1, 2}, frozenset({1, 2})),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (None, ...),
]
HELD = [  # in a closure
    (1.0, 1.5),
    (np.ones(3), np.array([1.0, 1.0, 1.0 + 1e-15])),
    (np.ones(3), np.ones(3, np.float32)),
    (np.ones(3, [("x", "f8"), ("y", "f8")]), np.ones(3, [("y", "f8"), ("x", "f8")])),
    (np.zeros(3, [("x", "f8")]), np.zeros(3, [("x", "i8")])),
    (jnp.ones(3), jnp.zeros(3)),
    ([1.0, (2, {"a": 3})], [1.0, (2, {"a": 4})]),
    (1, True),
    ("ab", b"ab"),
    (("a", "bc"), ("ab", "c")),
    ((1, (2, 3)), (1, 2, 3)),
    ({1, 2}, {1, 3}),
    (Names(a=1), Names(a=2)),
]
MAKERS = [nested, keyword, attributed, Loss, Written, Named]
WRAPPERS = [jax.jit, jax.vmap, jax.grad, jax.checkpoint]
DIFFERENT += [(scaled(one), scaled(two)) for one, two in HELD]
DIFFERENT += [(make(1.0), make(2.0)) for make in MAKERS]
DIFFERENT += [(wrap(scaled(1.0)), wrap(scaled(2.0))) for wrap in WRAPPERS]


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_different_things_have_different_digests(one, two):
    assert digest(one) != digest(two)
    assert digest(one) == digest(one)


def test_the_same_made_again_has_the_same_digest():
    makers = [lambda make=make: make(1.0) for make in MAKERS]
    makers += [lambda wrap=wrap: wrap(scaled(1.0)) for wrap in WRAPPERS]
    makers += [lambda: scaled(np.ones(3)), lambda: tacit.Box(-1.0, 1.0, size=3)]
    for make in makers:
        assert digest(make()) == digest(make())
    one, other = Written(1.0), Written(1.0)
    assert other.square == 1 and "square" in vars(other)  # what is computed later is no part
    assert digest(one) == digest(other)
    shared = np.ones(3), (1.0, 2.0)
    assert digest([shared, shared]) == digest([shared, (np.ones(3), (1.0, 2.0))])


NOTHING = [sys.stdout, property(scaled), threading.Lock()]


@pytest.mark.parametrize("thing", NOTHING)
def test_what_has_no_digest_is_refused_and_named(thing):
    with pytest.raises(tacit.InvalidInput, match=r"has no digest \(in scaled"):
        digest(scaled(thing))


def rows(pattern):
    """A set of 60 bounds on sums of neighbours: as many numbers, at other places."""
    n = 60
    far = sp.coo_matrix((np.ones(n), (np.arange(n), (np.arange(n) + pattern) % n)), shape=(n, n))
    matrix = sp.vstack([sp.identity(n) + far, sp.identity(n), -sp.identity(n)])
    return Conic(matrix, np.ones(3 * n), [("nonneg", 3 * n)])


def test_every_part_of_a_conic_set_counts():
    image, wide = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.vstack([np.eye(3), -np.eye(3)])
    matrix, cones = np.vstack([np.eye(2), -np.eye(2), [[1.0, 1.0]]]), [("nonneg", 4), ("nonneg", 1)]
    parts = [{}, {"variables": [1, 0]}, {"variables": [0]}, {"image": image}]
    parts += [
        {"image": np.vstack([np.eye(2), [1.0, -1.0]])},
        {"slack": np.eye(2)},
        {"slack": 2 * np.eye(2)},
        {"rare": [1]},
    ]
    sets = [Conic(matrix, np.ones(5), cones, **options) for options in parts]
    sets += [Conic(wide, np.ones(6), [("nonneg", 6)], variables=[0, k]) for k in (1, 2)]
    sets += [tacit.Polyhedron(np.eye(2), np.ones(2), lower=-1.0, upper=k) for k in (2.0, 3.0)]
    sets += [rows(1), rows(2)]
    assert len({digest(s) for s in sets}) == len(sets)


def per_sample(loss, feasible=None):
    data = np.linspace(-1, 1, 12).reshape(6, 2)
    f = tacit.PerSample(loss, data, clip=1.0, size=2, normaliser=6)
    return tacit.Problem([tacit.LocalProblem(f, feasible or tacit.Box(-1, 1, size=2))])


def test_a_checkpoint_refuses_what_it_cannot_compare(tmp_path):
    lock = threading.Lock()
    problem = per_sample(lambda z, x: bool(lock) * jnp.sum((z @ x) ** 2))
    with pytest.raises(tacit.InvalidInput, match="has no digest"):
        tacit.solve(problem, tacit.Settings(2), seed=0, checkpoint=tmp_path / "c.npz")
    assert not list(tmp_path.iterdir())
    tacit.solve(problem, tacit.Settings(2), seed=0)


PROGRAM = """
import numpy as np, jax, jax.numpy as jnp, tacit
from tacit.protocol.journal import agent_digest
names = {*"abcdefghijklm"}
weights = {"x": np.arange(3.0), "y": frozenset(["p", "q", "r"])}
def loss(z, x):
    return sum(weights["x"]) * jnp.sum((z @ x) ** 2) if "a" in {"a", "b", "c"} else len(names)
f = tacit.PerSample(jax.jit(loss), np.ones((6, 2)), clip=1.0, size=2, normaliser=6)
g = tacit.Residual(np.eye(2), np.ones(2), beta=0.1)
W = tacit.Polyhedron(np.ones((1, 2)), [0.5], lower=-1.0, upper=1.0)
pair = [tacit.LocalProblem(f, tacit.Box(-1, 1, size=2)), tacit.LocalProblem(g, W)]
found = [agent_digest(agent, "a", np.zeros(2, np.uint32)) for agent in pair]
print(list(names), found, sep="\\n", end="")
"""


def test_another_process_finds_the_same_digest():
    """Also with other hashes of text, which decide the order of sets."""
    here = {"__name__": "__main__"}
    exec(PROGRAM, here)
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    order, found = done.stdout.splitlines()
    assert order != str(list(here["names"]))  # the control: sets do have another order there
    assert found == str(here["found"])


def test_the_digest_is_keyed_and_a_run_does_not_change_it():
    problem = per_sample(scaled(1.0), tacit.Polyhedron(np.eye(2), np.ones(2), lower=-1.0))
    key = np.zeros(2, np.uint32)
    before = agent_digest(problem.agents[0], "a", key)
    tacit.solve(problem, tacit.Settings(2), seed=0)
    after, other = (agent_digest(problem.agents[0], "a", k) for k in (key, key + np.uint32(1)))
    assert after == before != other


# --- Tacit's own classes and functions --------------------------------------------------------


def own_things():
    """Every class that a module of Tacit defines, and every function that a room exports."""
    for found in pkgutil.walk_packages(tacit.__path__, "tacit."):
        if "__main__" in found.name:
            continue
        module = importlib.import_module(found.name)
        for value in list(vars(module).values()):
            home = getattr(value, "__module__", None) or ""
            defined = inspect.isclass(value) and home == found.name
            if defined or (inspect.isfunction(value) and home.startswith(f"{found.name}.")):
                yield value


def test_no_two_things_of_tacit_share_a_digest():
    things = {id(thing): thing for thing in own_things()}.values()
    assert {tacit.Box, importlib.import_module("tacit.learn").Box} < set(things)
    assert len({digest(thing) for thing in things}) == len(things) > 100
