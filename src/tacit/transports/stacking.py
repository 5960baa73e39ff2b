"""Agents of the same structure as one stack of arrays, for ``batched.py``.

Ragged numbers of records are padded within buckets of similar size and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array
from tacit.admm.algorithm import Local
from tacit.admm.local_side import local_side
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.protocol.keys import agent_key

PADDING = 0.1  # a bucket may hold at most this share of padded records
# On a CPU an agent with more bytes of data than this is not stacked with others, which saves a copy
# and is faster; unless there are more of them than this, as each is compiled by itself.
LARGE_DATA, MOST_PROGRAMS = 4_000_000, 32


class Bucket(NamedTuple):
    """Stacked agents: every leaf has a leading agent axis. A single agent may come without."""

    local: Local
    coupling: Array  # −1 (private) points at the last coordinate; ``local.coupled`` masks it


def buckets_of(agents: Sequence[LocalProblem]) -> list[list[int]]:
    """Indices of agents that can be stacked, with at most PADDING of padded records.

    Whose number of records is private (add-remove) stands alone: in a stack, it would decide on the
    program of other agents, and on the rounding of what they send.
    """
    groups: dict[Any, list[int]] = {}
    alone = _faster_alone(agents)
    for i, agent in enumerate(agents):
        if i in alone:
            continue
        if not agent.objective.in_place:
            groups[i] = [i]
            continue
        unpadded = agent.objective.pad(agent.objective.sample_count)
        leaves, structure = jax.tree.flatten((unpadded, agent.feasible_set))
        shapes = tuple(
            tuple(n if n != agent.objective.sample_count else -1 for n in np.shape(leaf))
            for leaf in leaves
        )
        groups.setdefault((structure, shapes, agent.dimension), []).append(i)
    buckets = [[i] for i in alone]
    for group in groups.values():
        bucket: list[int] = []
        records = 0
        for i in sorted(group, key=lambda i: -agents[i].objective.sample_count):
            size = agents[i].objective.sample_count
            longest = agents[bucket[0]].objective.sample_count if bucket else size
            if bucket and longest * (len(bucket) + 1) * (1 - PADDING) > records + size:
                buckets.append(sorted(bucket))
                bucket, records = [], 0
            bucket.append(i)
            records += size
        buckets.append(sorted(bucket))
    return sorted(buckets)


def _faster_alone(agents: Sequence[LocalProblem]) -> list[int]:
    """Agents that run faster on their own, on a CPU."""
    sizes = [
        sum(leaf.nbytes for leaf in jax.tree.leaves(a.objective) if hasattr(leaf, "nbytes"))
        for a in agents
    ]
    large = [
        i for i, size in enumerate(sizes) if size > LARGE_DATA and agents[i].objective.in_place
    ]
    return large if jax.default_backend() == "cpu" and len(large) <= MOST_PROGRAMS else []


def stack(
    agents: Sequence[tuple[int, LocalProblem]],
    settings: Settings,
    root: Array,
    run: str,
    dtype: Any,
) -> Bucket:
    sides = [local_side(p, settings, agent_key(root, run, i), dtype) for i, p in agents]
    if len(agents) == 1:
        alone = sides[0]._replace(f=sides[0].f.for_device())
        return Bucket(alone, jax.device_put(np.array(agents[0][1].coupling)))
    longest = max(side.f.sample_count for side in sides)
    sides = [side._replace(f=side.f.pad(longest)) for side in sides]
    couplings = jax.device_put(np.stack([np.asarray(p.coupling) for _, p in agents]))
    return Bucket(_stacked(*sides), couplings)


@jax.jit
def _stacked(*sides: Local) -> Local:
    """Compiled, so that stacking makes one copy of the data and no temporary ones."""
    ready = [side._replace(f=side.f.for_device()) for side in sides]
    stacked: Local = jax.tree.map(lambda *leaves: jnp.stack(leaves), *ready)
    return stacked


def with_configurations(
    bucket: Bucket, group: Sequence[int], configurations: Sequence[tuple[Settings, Array]], run: str
) -> Bucket:
    """The bucket with keys and mechanisms of every configuration, on a first axis of their own."""
    alone = bucket.coupling.ndim == 1
    keys = [jnp.stack([agent_key(root, run, i) for i in group]) for _, root in configurations]
    mechanisms = [
        jax.tree.map(lambda m: m if alone else np.full(len(group), m), s.mechanism)
        for s, _ in configurations
    ]
    local = bucket.local._replace(
        key=jnp.stack([k[0] if alone else k for k in keys]),
        mechanism=jax.tree.map(lambda *m: jnp.asarray(m), *mechanisms),
    )
    return bucket._replace(local=local)


def for_each(function: Callable[..., Any], bucket: Bucket, *state: Array) -> Any:
    """``function`` for every agent of a bucket; states and results have an agent axis."""
    if bucket.coupling.ndim == 2:
        return jax.vmap(function)(bucket, *state)
    return jax.tree.map(lambda x: x[None], function(bucket, *(part[0] for part in state)))


# What differs between configurations; data, set and sensitivity are those of all.
DIFFERENT = Bucket(Local(None, None, None, None, 0, 0, None), None)  # type: ignore[arg-type]
