"""The source of noise, and the keys of seeded noise: one for a run, and one for each agent."""

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
