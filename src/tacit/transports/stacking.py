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
from tacit.objectives import linear_model
from tacit.objectives.objective import Objective, Records
from tacit.protocol.keys import agent_key

PADDING = 0.1  # a bucket may hold at most this share of padded records
# On a CPU an agent with more bytes of data than this is not stacked with others, which saves a copy
# and is faster; unless there are more of them than this, as each is compiled by itself.
LARGE_DATA, MOST_PROGRAMS = 4_000_000, 32
ROOM = 2  # times the normaliser, that bounds on numbers of records may add up to in stacks


class Bucket(NamedTuple):
    """Stacked agents: every leaf has a leading agent axis. A single agent may come without."""

    local: Local
    coupling: Array  # −1 (private) points at the last coordinate; ``local.coupled`` masks it


def buckets_of(agents: Sequence[LocalProblem]) -> list[list[int]]:
    """Indices of agents that can be stacked, with at most PADDING of padded records.

    A private number of records (add-remove) must not decide on the program of other agents, and so
    on the rounding of what they send: such agents stand alone, or on a GPU, where many small
    programs take longer than the data, are padded to their public bounds if those are near.
    """
    groups: dict[Any, list[int]] = {}
    alone, loose = _faster_alone(agents), _loose(agents)
    sizes = [_public_records(agent.objective) for agent in agents]
    for i, agent in enumerate(agents):
        if i in alone:
            continue
        if loose and not agent.objective.in_place:
            groups[i] = [i]
            continue
        padded = agent.objective.pad(sizes[i])
        leaves, structure = jax.tree.flatten((padded, agent.feasible_set))
        shapes = tuple(tuple(n if n != sizes[i] else -1 for n in np.shape(leaf)) for leaf in leaves)
        groups.setdefault((structure, shapes, agent.dimension), []).append(i)
    buckets = [[i] for i in alone]
    for group in groups.values():
        bucket: list[int] = []
        records = 0
        for i in sorted(group, key=lambda i: -sizes[i]):
            size = sizes[i]
            longest = sizes[bucket[0]] if bucket else size
            if bucket and longest * (len(bucket) + 1) * (1 - PADDING) > records + size:
                buckets.append(sorted(bucket))
                bucket, records = [], 0
            bucket.append(i)
            records += size
        buckets.append(sorted(bucket))
    return sorted(buckets)


def _public_records(f: Objective) -> int:
    """Room for the records of an agent, from public numbers."""
    return f.sample_count if f.in_place or not isinstance(f, Records) else int(f.most_records)


def _loose(agents: Sequence[LocalProblem]) -> bool:
    """Whether agents with private numbers of records stand alone: by public numbers."""
    shifting = [a.objective for a in agents if isinstance(a.objective, Records)]
    shifting = [f for f in shifting if not f.in_place]
    room = ROOM * min((f.normaliser for f in shifting), default=0.0)
    return linear_model.on_cpu() or sum(f.most_records for f in shifting) > room


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
    longest = max(_public_records(side.f) for side in sides)
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
