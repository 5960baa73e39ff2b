"""Seeded noise: its source and keys, one for a run and one for each agent; and its numbers.

Normal and Laplace numbers in single precision, with full tails, from few operations.

``jax.random.normal`` in float32 has 23 random bits: no value beyond 5.4 and a coarse centre. Here
64 bits of the same generator (Threefry-2x32, Salmon et al., 2011) make one number. With X uniform
on the odd whole numbers between −2⁶³ and 2⁶³ (63 of the bits), x = X/2⁶³ and 1 − |x| are both
rounded from whole numbers, so that neither the centre nor the tail loses digits:

    normal    √2 erfinv(x) = √2 x g(w),   w = −ln((1 − |x|)(1 + |x|))
    Laplace   −sign(x) ln(1 − |x|)

Number i depends on the key and on i alone: draws of different length or in a batch agree.

Guarantee: each number is the exact quantile of x but for a relative error below 1e-6; values reach
9.08 (normal) and 43.6 (Laplace), beyond which the distribution has a mass of 2⁻⁶³.
"""

from __future__ import annotations

import hashlib
import os

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, choice

NOISE_SOURCES = ("seeded", "secure")
GENERATOR = "threefry2x32"  # of all seeded noise, whatever JAX's default: statements name it


def noise_source(noise: str | None, paid: bool, seed: int | None = None) -> str:
    """What is asked for, seeded or secure; by itself secure where a ledger pays."""
    source: str = choice("noise", noise or ("secure" if paid else "seeded"), NOISE_SOURCES)
    if source == "secure" and seed is not None:
        raise InvalidInput(
            f"Expected no seed for secure noise, got seed={seed!r}. For seeded noise with ledgers "
            "give noise='seeded'. Nothing was released."
        )
    return source


def root_key(seed: int | None) -> Vector:
    """A key of 64 bits, as Threefry takes: from a seed, or from the operating system."""
    if seed is None:
        return np.frombuffer(os.urandom(8), dtype=np.uint32)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InvalidInput(f"Expected a whole number 0 <= seed < 2^63, got seed={seed!r}.")
    return np.asarray(jax.random.key_data(jax.random.key(int(seed), impl=GENERATOR)))


def jax_key(root: Vector) -> Array:
    """The root as JAX's generator takes it."""
    return jax.random.wrap_key_data(jnp.asarray(root), impl=GENERATOR)


def generator() -> list[object]:
    """What decides which noise a key gives."""
    return [GENERATOR, jax.__version__, jax.config.jax_threefry_partitionable]  # type: ignore[attr-defined]


def agent_key(root: Array, run: str, index: int) -> Array:
    """The noise key of agent ``index`` in ``run``; round t uses ``fold_in(agent_key, t)``.

    The run enters as a digest of fixed length, so that no two (run, agent, round, update) share
    a chain of folds.
    """
    words = np.frombuffer(hashlib.sha256(run.encode()).digest(), dtype="<u4")
    return _folded(root, np.append(words, np.uint32(index)))


@jax.jit
def _folded(key: Array, words: Array) -> Array:
    return jax.lax.scan(lambda k, word: (jax.random.fold_in(k, word), None), key, words)[0]


# --- numbers in single precision ----------------------------------------------------------------

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
# g(w) = erfinv(x)/x, fitted to 1e-7: in w − 3.125 up to w = 6.25, then in √w − 4.6041 up to w = 45
# fmt: off
CENTRE = (
    1.65365467, 0.240158038, -0.00603427426, -0.000740502278, 0.000187252607, -1.39595979e-05,
    -1.5232208e-06, 4.35588294e-07, -8.72799526e-09, -5.05991803e-09,
)
TAIL = (
    4.44992424, 1.01028575, 0.000200142479, -0.00036407378, 0.000133161878, -4.67361407e-05,
    5.51957133e-06, 4.34870145e-06, 1.51095794e-06, -2.29666466e-06, 4.87125243e-07,
)
# fmt: on


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers (float32)."""
    x, rest = _uniform(key, shape)
    w = -jnp.log(rest * (1 + jnp.abs(x)))
    w = jnp.maximum(w, np.float32(0))
    centre = _polynomial(CENTRE, w - np.float32(3.125))
    tail = _polynomial(TAIL, jnp.sqrt(w) - np.float32(4.604101966))
    return np.float32(np.sqrt(2)) * x * jnp.where(w < np.float32(6.25), centre, tail)


def laplace(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard Laplace numbers (float32)."""
    x, rest = _uniform(key, shape)
    small = jnp.abs(x)
    magnitude = jnp.where(small < np.float32(0.5), -jnp.log1p(-small), -jnp.log(rest))
    return jnp.sign(x) * magnitude


def _uniform(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """x = ±(2m + 1)/2⁶³ for a sign and 62 random bits m, and 1 − |x|, rounded to float32."""
    high, low = random_bits(key, int(np.prod(shape)))
    sign = jnp.where(high >> np.uint32(31) == 1, np.float32(-1), np.float32(1))
    high = high & np.uint32(2**31 - 1)
    x = _fraction(high, low)
    rest = _fraction(high ^ np.uint32(2**31 - 1), ~low)
    return (sign * x).reshape(shape), rest.reshape(shape)


def _fraction(high: Array, low: Array) -> Array:
    """(high + (low + ½)/2³¹)/2³¹ for a ``high`` of 31 bits and the first 31 bits of ``low``."""
    low = (low >> np.uint32(1)).astype(jnp.int32).astype(jnp.float32) + np.float32(0.5)
    whole = high.astype(jnp.int32).astype(jnp.float32)
    return (whole + low * np.float32(2.0**-31)) * np.float32(2.0**-31)


def random_bits(key: Array, size: int) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds at the counters 0, 1, ...: what ``jax.random.bits`` returns.

    Written out, as JAX's own loops over the rounds on a CPU and so moves all numbers five times.
    """
    if size >= 2**32:
        raise ValueError(f"Expected fewer than 2^32 numbers in one draw, got {size}.")
    first, second = jax.random.key_data(key)
    keys = first, second, first ^ second ^ np.uint32(0x1BD11BDA)
    a = jnp.zeros(size, jnp.uint32) + keys[0]
    b = jax.lax.iota(jnp.uint32, size) + keys[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(r)) | (b >> np.uint32(32 - r)))
        a = a + keys[(i + 1) % 3]
        b = b + keys[(i + 2) % 3] + np.uint32(i + 1)
    return a, b


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner's rule on odd and even powers at once: half as long a chain of operations."""
    c = [np.float32(v) for v in coefficients]
    square = x * x
    parts = []
    for first in (0, 1):
        total = jnp.zeros_like(x)
        for value in c[first::2][::-1]:
            total = total * square + value
        parts.append(total)
    return parts[0] + x * parts[1]
