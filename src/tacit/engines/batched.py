"""Many agents of closed form as one batched JAX program, on a CPU or a GPU.

Agents whose objectives and sets have the same structure are stacked and run under ``vmap``;
ragged numbers of records are padded within buckets of similar size and masked. Server step, local
updates and dual step of many rounds are one ``scan``. The arithmetic is that of ``algorithm.py``
and the noise that of ``agent_key``: the same iterates as agents one by one, up to rounding.

A fleet runs one configuration, or many *lanes* at once (``solve_many``): settings and keys differ,
the data are read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array
from tacit.admm.agent import agent_key, local_side, schedule_in
from tacit.admm.algorithm import (
    Holders,
    Local,
    Round,
    Rule,
    average_over_holders,
    dual_step,
    local_round,
    server_step,
)
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, SolverFailure

PADDING = 0.1  # a bucket may hold at most this share of padded records
LARGE = 4_000_000  # bytes; on a CPU, an agent with more data is not stacked with others: that
MOST = 32  # saves a copy of the data and is faster. Up to this many, as each is compiled.


class Bucket(NamedTuple):
    """Stacked agents: every leaf has a leading agent axis. A single agent may come without."""

    local: Local
    coupling: Array  # −1 (private) points at the last coordinate; ``local.coupled`` masks it


class State(NamedTuple):
    """What changes from round to round, one array per bucket (agents × coordinates)."""

    point: tuple[Array, ...]  # z^{t,E+1}
    average: tuple[Array, ...]  # z^{t+1}
    dual: tuple[Array, ...]  # λ
    total: tuple[Array, ...]  # weighted sum of z^{t+1} over the rounds, for the ergodic average


class Fleet:
    """All agents of a problem, batched."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        root: Array,
        run: str,
        lanes: Sequence[tuple[Settings, Array]] = (),
    ) -> None:
        for name, agent in zip(problem.names, problem.agents, strict=True):
            if not agent.feasible_set.closed_form:
                raise InvalidInput(
                    f"Expected closed-form sets in a fleet; that of {name!r} needs a solver."
                )
        self.settings, self.size, self.names = settings, problem.size, problem.names
        self.sets = [agent.feasible_set for agent in problem.agents]
        self.lanes = [s for s, _ in lanes]
        self.members = _bucket(problem.agents)
        self.dtype = problem.dtype
        self.buckets = tuple(
            _stack([(i, problem.agents[i]) for i in group], settings, root, run, self.dtype)
            for group in self.members
        )
        self._first = _first_points(self.buckets)
        if lanes:
            self.buckets = tuple(
                _laned(bucket, group, lanes, run)
                for bucket, group in zip(self.buckets, self.members, strict=True)
            )
        self.rules = tuple(
            settings.rule(problem.agents[group[0]].feasible_set.separable) for group in self.members
        )
        order = [i for group in self.members for i in group]
        couplings = [np.asarray(problem.agents[i].coupling) for i in order]
        self.holders = Holders.of(couplings, problem.size, self.dtype)

    def start(self) -> State:
        point = self._first
        zero = tuple(jnp.zeros_like(z) for z in point)
        state = State(point, point, zero, zero)
        if not self.lanes:
            return state
        lanes: State = jax.tree.map(lambda x: jnp.repeat(x[None], len(self.lanes), axis=0), state)
        return lanes

    def advance(
        self, state: State, first: int, last: int, weights: Array
    ) -> tuple[State, Array, Array, Array]:
        """Rounds first..last; returns the state and, of the last round, w, ‖w − z‖ and Σ|ξ|."""
        every = self.lanes or [self.settings]
        each = (schedule_in(self.dtype, s, first, last) for s in every)
        ρ, η = (np.stack(x) for x in zip(*each, strict=True))
        if not self.lanes:
            ρ, η = ρ[0], η[0]
        rounds = (
            jnp.asarray(np.arange(first, last + 1)),
            *(jnp.asarray(np.asarray(x, self.dtype)) for x in (ρ, η, weights)),
        )
        advance = _compiled(bool(self.lanes), jax.default_backend())
        state, w, residual, noise = advance(
            self.buckets, self.holders, state, rounds, rules=self.rules
        )
        self._refuse_breach(state, first, last)
        return state, w, residual, noise

    def _refuse_breach(self, state: State, first: int, last: int) -> None:
        """Points that are not finite, or were outside of their set (``algorithm.admitted``)."""
        for group, average, dual in zip(self.members, state.average, state.dual, strict=True):
            sound = np.asarray(jnp.isfinite(average).all(axis=-1) & jnp.isfinite(dual).all(axis=-1))
            if not sound.all():
                agent = group[int(np.argmin(sound.reshape(-1, len(group)).all(axis=0)))]
                raise SolverFailure(
                    f"Agent {self.names[agent]!r}, rounds {first} to {last}: the local point is "
                    "not finite, or outside of the set. Nothing of these rounds was released."
                )

    def refuse_outside(self, points: Sequence[Array]) -> None:
        """Points of all agents, in the problem's order and again: refused outside of their sets."""
        for i, z in enumerate(points):
            agent = i % len(self.sets)
            W, name = self.sets[agent], self.names[agent]
            if not float(W.violation(np.asarray(z, self.dtype))) <= W.tolerance(self.dtype):
                raise InvalidInput(
                    f"Expected points within the feasible set of agent {name!r} to go on from, got "
                    "one outside. Nothing was computed."
                )

    def evaluate(self, state: State) -> tuple[Any, Any]:
        """Σ_p f_p(z_p^{t+1}) and the largest violation. The first reads private data."""
        evaluate = _evaluate_lanes if self.lanes else _evaluate
        value, violation = evaluate(self.buckets, state.average)
        return np.asarray(value), np.asarray(violation)

    def solutions(self, state: State) -> Array:
        """Of every lane, the mean of z^{t+1} over the holders of each coordinate."""
        z = jnp.concatenate([x.reshape(len(self.lanes), -1) for x in state.average], axis=1)
        return np.asarray(jax.vmap(average_over_holders, (0, None))(z, self.holders))

    def unstack(self, stacked: Sequence[Array]) -> list[np.ndarray[Any, Any]]:
        """One array per agent, in the problem's order."""
        result: dict[int, np.ndarray[Any, Any]] = {}
        for group, values in zip(self.members, stacked, strict=True):
            result.update(zip(group, np.asarray(values), strict=True))
        return [result[i] for i in sorted(result)]

    def stack(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """The inverse of ``unstack``."""
        return tuple(
            jnp.asarray(np.stack([values[i] for i in group]), self.dtype) for group in self.members
        )


def _bucket(agents: Sequence[LocalProblem]) -> list[list[int]]:
    """Indices of agents that can be stacked, with at most PADDING of padded records.

    Whose number of records is private (add-remove) stands alone: in a stack, it would decide on the
    program of other agents, and on the rounding of what they send.
    """
    groups: dict[Any, list[int]] = {}
    alone = _large(agents)
    for i, agent in enumerate(agents):
        if i in alone:
            continue
        if not agent.objective.in_place:
            groups[i] = [i]  # its number of records is private: no program may depend on it but
            continue  # its own
        slim = agent.objective.pad(agent.objective.sample_count)
        leaves, structure = jax.tree.flatten((slim, agent.feasible_set))
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


def _large(agents: Sequence[LocalProblem]) -> list[int]:
    """Agents that run faster on their own, on a CPU."""
    sizes = [
        sum(leaf.nbytes for leaf in jax.tree.leaves(a.objective) if hasattr(leaf, "nbytes"))
        for a in agents
    ]
    large = [i for i, size in enumerate(sizes) if size > LARGE and agents[i].objective.in_place]
    return large if jax.default_backend() == "cpu" and len(large) <= MOST else []


def _stack(
    agents: Sequence[tuple[int, LocalProblem]],
    settings: Settings,
    root: Array,
    run: str,
    dtype: Any,
) -> Bucket:
    sides = [local_side(p, settings, agent_key(root, run, i), dtype) for i, p in agents]
    if len(agents) == 1:
        return Bucket(sides[0], jnp.asarray(agents[0][1].coupling))
    longest = max(side.f.sample_count for side in sides)
    sides = [side._replace(f=side.f.pad(longest)) for side in sides]
    couplings = jnp.asarray(np.stack([np.asarray(p.coupling) for _, p in agents]))
    return Bucket(_stacked(*sides), couplings)


@jax.jit
def _first_points(buckets: tuple[Bucket, ...]) -> tuple[Array, ...]:
    """z^1 of every agent, the feasible point nearest to the origin."""

    def point(b: Bucket) -> Array:
        assert b.local.W is not None
        return b.local.W.project(jnp.zeros_like(b.local.coupled))

    return tuple(_each(point, b) for b in buckets)


@jax.jit
def _stacked(*sides: Local) -> Local:
    """Compiled, so that stacking makes one copy of the data and no temporary ones."""
    stacked: Local = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sides)
    return stacked


def _laned(
    bucket: Bucket, group: Sequence[int], lanes: Sequence[tuple[Settings, Array]], run: str
) -> Bucket:
    """The bucket with keys and mechanisms of every lane, on a first axis of their own."""
    alone = bucket.coupling.ndim == 1
    keys = [jnp.stack([agent_key(root, run, i) for i in group]) for _, root in lanes]
    mechanisms = [
        jax.tree.map(lambda m: m if alone else np.full(len(group), m), s.mechanism)
        for s, _ in lanes
    ]
    local = bucket.local._replace(
        key=jnp.stack([k[0] if alone else k for k in keys]),
        mechanism=jax.tree.map(lambda *m: jnp.asarray(m), *mechanisms),
    )
    return bucket._replace(local=local)


def _each(function: Callable[..., Any], bucket: Bucket, *state: Array) -> Any:
    """``function`` for every agent of a bucket; states and results have an agent axis."""
    if bucket.coupling.ndim == 2:
        return jax.vmap(function)(bucket, *state)
    return jax.tree.map(lambda x: x[None], function(bucket, *(part[0] for part in state)))


def _advance(
    buckets: tuple[Bucket, ...],
    holders: Holders,
    state: State,
    rounds: Array,
    rules: tuple[Rule, ...],
) -> tuple[State, Array, Array, Array]:
    def one_round(state: State, item: Array) -> tuple[State, tuple[Array, Array, Array]]:
        t, ρ, η, weight = item
        z, λ = (jnp.concatenate([x.ravel() for x in s]) for s in (state.average, state.dual))
        w = server_step(z, λ, ρ, holders)
        new = [
            _bucket_round(b, t, w, ρ, η, rule, z, λ, holders.positions is None)
            for b, rule, z, λ in zip(buckets, rules, state.point, state.dual, strict=True)
        ]
        point, average, dual, square, noise = zip(*new, strict=True)
        total = tuple(s + weight * z for s, z in zip(state.total, average, strict=True))
        return State(point, average, dual, total), (w, jnp.sqrt(sum(square)), sum(noise))

    state, (w, residual, noise) = jax.lax.scan(one_round, state, rounds)
    return state, w[-1], residual[-1], noise[-1]


# What differs between lanes; data, set and sensitivity are those of all.
_LANES = Bucket(Local(None, None, None, None, 0, 0, None), None)  # type: ignore[arg-type]


@lru_cache
def _compiled(lanes: bool, backend: str) -> Any:
    """On a GPU the vendor's matrix products: twice as fast as those the compiler would write."""
    options = {"xla_gpu_enable_triton_gemm": False} if backend == "gpu" else None
    function = _advance_lanes if lanes else _advance
    return jax.jit(function, static_argnames="rules", compiler_options=options)


def _advance_lanes(
    buckets: tuple[Bucket, ...],
    holders: Holders,
    state: State,
    rounds: Array,
    rules: tuple[Rule, ...],
) -> tuple[State, Array, Array, Array]:
    axes = (tuple(_LANES for _ in buckets), None, 0, (None, 0, 0, 0))
    result: tuple[State, Array, Array, Array] = jax.vmap(
        partial(_advance, rules=rules), in_axes=axes
    )(buckets, holders, state, rounds)
    return result


def _bucket_round(
    bucket: Bucket,
    t: Array,
    w: Array,
    ρ: Array,
    η: Array,
    rule: Rule,
    z: Array,
    λ: Array,
    everything: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    def one_agent(b: Bucket, z: Array, λ: Array) -> tuple[Array, Array, Array, Array, Array]:
        coupled = b.local.coupled
        local_w = w if everything else w[b.coupling] * coupled
        point, average, noise = local_round(z, Round(t, local_w, λ, ρ, η), b.local, rule)
        shared = average * coupled
        dual = dual_step(λ, ρ, local_w, shared)
        return point, average, dual, ((local_w - shared) ** 2).sum(), noise

    point, average, dual, square, noise = _each(one_agent, bucket, z, λ)
    return point, average, dual, square.sum(), noise.sum()


def _evaluate_plainly(
    buckets: tuple[Bucket, ...], average: tuple[Array, ...]
) -> tuple[Array, Array]:
    def one_agent(b: Bucket, z: Array) -> tuple[Array, Array]:
        assert b.local.W is not None
        return b.local.f.value(z), b.local.W.violation(z)

    pairs = [_each(one_agent, b, z) for b, z in zip(buckets, average, strict=True)]
    values, violations = zip(*pairs, strict=True)
    return jnp.concatenate(values).sum(), jnp.concatenate(violations).max()


_evaluate = jax.jit(_evaluate_plainly)


@jax.jit
def _evaluate_lanes(buckets: tuple[Bucket, ...], average: tuple[Array, ...]) -> tuple[Array, Array]:
    axes = (tuple(_LANES for _ in buckets), 0)
    result: tuple[Array, Array] = jax.vmap(_evaluate_plainly, in_axes=axes)(buckets, average)
    return result
