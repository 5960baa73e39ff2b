"""Many agents whose sets have a projection formula as one JAX program, on a CPU or a GPU.

Agents whose objectives and sets have the same structure are stacked and run under
``vmap``. The rounds are one loop over the server's step and the agents' rounds of
``algorithm.py``, with the noise of ``agent_key``: the same iterates as agents one by one, up to
rounding, where all have one number format. A batch pays no ledger and draws seeded noise only.

It runs one configuration, or many at once (``solve_many``): settings and keys differ, the data are
read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.admm.adaptive import (
    Ground,
    Pace,
    consensus_learned,
    consensus_steps,
    ground_of_agent,
    ground_of_consensus,
    is_adaptive,
    learned,
    own_steps,
)
from tacit.admm.algorithm import (
    Holders,
    Local,
    Round,
    Rule,
    admitted,
    agent_round,
    average_over_holders,
    local_side,
    server_step,
)
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings, schedule_in
from tacit.errors import InvalidInput, SolverFailure
from tacit.objectives import linear_model
from tacit.objectives.objective import Objective, Records
from tacit.privacy.seeded_noise import agent_key, jax_key
from tacit.protocol.journal import Arrays
from tacit.protocol.messages import Refusal
from tacit.protocol.result import Progress
from tacit.sets.feasible_set import FeasibleSet

# Rounds for which a program takes schedules; it may use fewer. More: up to a power of two
LEAST_ROOM = 64


class State(NamedTuple):
    """What changes from round to round, one array per bucket (agents × coordinates)."""

    point: tuple[Array, ...]  # z^{t,E+1}
    average: tuple[Array, ...]  # z^{t+1}
    dual: tuple[Array, ...]  # λ
    total: tuple[Array, ...]  # weighted sum of z^{t+1} over the rounds, for the ergodic average
    # where steps adapt (``adaptive.py``): of agents, and of the consensus
    paces: tuple[Pace, ...] = ()
    steps: Pace | None = None


class BatchedAgents:
    """All agents of a problem, batched."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        root: Array,
        run: str,
        configurations: Sequence[tuple[Settings, Array]] = (),
    ) -> None:
        for name, agent in zip(problem.names, problem.agents, strict=True):
            if not agent.feasible_set.closed_form:
                raise InvalidInput(
                    f"Expected closed-form sets in a batch; that of {name!r} needs a solver."
                )
        self.settings, self.size, self.names = settings, problem.size, problem.names
        self.configurations = [s for s, _ in configurations]
        self.members = buckets_of(problem.agents)
        self.dtype = problem.dtype
        self.buckets = tuple(
            stack([(i, problem.agents[i]) for i in group], settings, root, run, self.dtype)
            for group in self.members
        )
        self._first = tuple(_first_points(b.local.W, b.local.coupled) for b in self.buckets)
        if configurations:
            self.buckets = tuple(
                with_configurations(bucket, group, configurations, run)
                for bucket, group in zip(self.buckets, self.members, strict=True)
            )
        self.rules = tuple(
            settings.rule(problem.agents[group[0]].feasible_set.separable) for group in self.members
        )
        order = [i for group in self.members for i in group]
        couplings = [np.asarray(problem.agents[i].coupling) for i in order]
        self.holders = Holders.of(couplings, problem.size, self.dtype)
        sixteen = any(
            getattr(x, "dtype", None) == jnp.bfloat16 for x in jax.tree.leaves(self.buckets)
        )
        self._vendor = sixteen and jax.default_backend() == "gpu"
        self.ground = ground_of_consensus(problem, settings) if is_adaptive(settings) else None
        if self.ground is not None:
            places = np.concatenate(couplings)
            self.ground = self.ground._replace(  # of all coordinates, in the order of buckets
                scale=(np.sqrt(self.holders.count) * self.ground.width)[places], variance=None
            )

    def start(self) -> State:
        point = self._first
        zero = tuple(jax.device_put(np.zeros(z.shape, z.dtype)) for z in point)
        state = State(point, point, zero, zero)
        if self.ground is not None:
            first = [Pace.first(n, n, self.settings) for n in (z.shape[-1] for z in point)]
            paces = [
                Pace(*(np.broadcast_to(x, (len(z), *np.shape(x))).copy() for x in pace))
                for pace, z in zip(first, point, strict=True)
            ]
            steps = Pace.first(0, self.size, self.settings)
            state = state._replace(paces=tuple(paces), steps=steps)
        if not self.configurations:
            return state
        number = len(self.configurations)
        many: State = jax.tree.map(lambda x: jnp.repeat(x[None], number, axis=0), state)
        return many

    def advance(
        self, state: State, first: int, last: int, weights: Array
    ) -> tuple[State, Array, Array, Array]:
        """Rounds first..last; returns the state and, of the last round, w, ‖w − z‖ and Σ|ξ|."""
        every = self.configurations or [self.settings]
        each = (schedule_in(self.dtype, s, first, last) for s in every)
        ρ, η = (np.stack(x) for x in zip(*each, strict=True))
        if not self.configurations:
            ρ, η = ρ[0], η[0]
        number = last + 1 - first
        room = max(LEAST_ROOM, 1 << (number - 1).bit_length())
        rounds = (
            np.arange(first, first + room),
            *(_with_room(np.asarray(x, self.dtype), room) for x in (ρ, η, weights)),
        )
        advance = _compiled(bool(self.configurations), self._vendor)
        about = self.buckets, self.holders, self.ground, state, rounds
        state, w, residual, noise = advance(*about, number=number, rules=self.rules)
        self._refuse_breach(state, first, last)
        return state, w, residual, noise

    def _refuse_breach(self, state: State, first: int, last: int) -> None:
        """Points that are not finite, or were outside of their set (``algorithm.admitted``)."""
        for group, average, dual in zip(self.members, state.average, state.dual, strict=True):
            sound = np.asarray(_finite(average, dual))
            if not sound.all():
                agent = group[int(np.argmin(sound.reshape(-1, len(group)).all(axis=0)))]
                raise SolverFailure(
                    f"Agent {self.names[agent]!r}, rounds {first} to {last}: the local point is "
                    "not finite, or outside of the set. Nothing of these rounds was released."
                )

    def restored(self, state: Arrays) -> State:
        """A saved state; refused if a point is outside of where gradients are taken."""
        kept: Any = {name: self.stack(state[name]) for name in State._fields[:4]}
        found = State(**kept)
        if self.ground is not None:
            packed = zip(self.stack(state["pace"], np.float64), found.point, strict=True)
            paces = tuple(Pace.unpacked(x, *(2 * z.shape[1:])) for x, z in packed)
            steps = Pace.unpacked(jnp.asarray(state["steps"][0]), 0, self.size)
            found = found._replace(paces=paces, steps=steps)
        for points in (found.point, found.average):
            for group, bucket, z in zip(self.members, self.buckets, points, strict=True):
                sound = np.isfinite(np.asarray(_admitted(bucket, z))).all(axis=-1)
                if not sound.all():
                    name = self.names[group[int(np.argmin(sound))]]
                    raise InvalidInput(
                        f"Expected points within the feasible set of agent {name!r} to continue "
                        "from, got one outside. Nothing was computed."
                    )
        return found

    def evaluate(self, state: State) -> tuple[Any, Any]:
        """Σ_p f_p(z_p^{t+1}) and the largest violation. The first reads private data."""
        evaluate = _evaluate_many if self.configurations else _evaluate
        value, violation = evaluate(self.buckets, state.average)
        return np.asarray(value), np.asarray(violation)

    def solutions(self, state: State) -> Array:
        """Of every configuration, the mean of z^{t+1} over the holders of each coordinate."""
        z = jnp.concatenate(
            [x.reshape(len(self.configurations), -1) for x in state.average], axis=1
        )
        return np.asarray(jax.vmap(average_over_holders, (0, None))(z, self.holders))

    def unstack(self, stacked: Sequence[Array]) -> list[np.ndarray[Any, Any]]:
        """One array per agent, in the problem's order."""
        result: dict[int, np.ndarray[Any, Any]] = {}
        for group, values in zip(self.members, stacked, strict=True):
            result.update(zip(group, np.asarray(values), strict=True))
        return [result[i] for i in sorted(result)]

    def stack(self, values: Sequence[Array], dtype: Any = None) -> tuple[Array, ...]:
        """The inverse of ``unstack``."""
        dtype = dtype or self.dtype
        return tuple(
            jnp.asarray(np.stack([values[i] for i in group]), dtype) for group in self.members
        )

    def arrays(self, state: State) -> dict[str, list[Vector]]:
        """The state as a journal keeps it."""
        found = {name: self.unstack(getattr(state, name)) for name in State._fields[:4]}
        if state.steps is not None:
            found["pace"] = self.unstack([pace.packed() for pace in state.paces])
            found["steps"] = [state.steps.packed()]
        return found


class Batched:
    """All agents as one program, as a side of the coordinator (``protocol/coordinator.py``)."""

    converged = False

    def __init__(self, problem: Problem, settings: Settings, key: Vector, run: str) -> None:
        self.settings, self.round = settings, 0
        self.program = BatchedAgents(problem, settings, jax_key(key), run)
        self.now = self.program.start()
        self.w: Vector = np.zeros(0)
        self.last = 0.0, 0.0  # ‖w − z‖ and Σ|ξ| of the last round

    def advance(self, last: int) -> dict[str, Refusal]:
        first, self.round = self.round + 1, last
        weights = self.settings.averaging_weights(first, last)
        self.now, w, residual, noise = self.program.advance(self.now, first, last, weights)
        self.w, self.last = np.asarray(w), (float(residual), float(noise))
        return {}

    def evaluate(self) -> list[float]:
        residual, noise = self.last
        objective, violation = self.program.evaluate(self.now)
        return [float(objective), residual, noise, float(violation)]

    def state(self) -> dict[str, list[Vector]]:
        return self.program.arrays(self.now)

    def restore(self, arrays: Arrays, rounds_done: int) -> None:
        self.now, self.round = self.program.restored(arrays), rounds_done

    def progress(self, row: dict[str, float]) -> Progress:
        state = self.state()
        parts = state["average"], state["point"], state["dual"]
        return Progress(self.round, self.w, *parts, row)


@jax.jit
def _finite(average: Array, dual: Array) -> Array:
    """Of every agent, whether its numbers are."""
    return jnp.isfinite(average).all(axis=-1) & jnp.isfinite(dual).all(axis=-1)


@jax.jit
def _admitted(bucket: Bucket, z: Array) -> Array:
    """The points of a bucket's agents, with NaN for those beyond their limits."""
    return for_each(lambda b, z: admitted(z, b.local), bucket, z)


@jax.jit
def _first_points(W: FeasibleSet, coupled: Array) -> Array:
    """z^1 of a bucket's agents, the feasible points nearest to the origin.

    Compiled for a kind of set, whatever is minimised there.
    """

    def point(W: FeasibleSet, coupled: Array) -> Array:
        return W.project(jnp.zeros_like(coupled))

    return jax.vmap(point)(W, coupled) if coupled.ndim == 2 else point(W, coupled)[None]


def _with_room(x: Array, room: int) -> Array:
    """x with its last number repeated up to this length."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, room - x.shape[-1])], mode="edge")


Rounds = tuple[State, Array, Array, Array]  # and w, ‖w − z‖ and Σ|ξ| of the last round


def _advance(
    buckets: tuple[Bucket, ...],
    holders: Holders,
    ground: Ground | None,
    state: State,
    rounds: Array,
    number: Array | int,
    rules: tuple[Rule, ...],
) -> Rounds:
    """The first ``number`` of these rounds; the program is the same for every number."""

    def one_round(i: Array, before: Rounds) -> Rounds:
        state = before[0]
        t, ρ, η, weight = (x[i] for x in rounds)
        z, λ = (jnp.concatenate([x.ravel() for x in s]) for s in (state.average, state.dual))
        everything = holders.positions is None  # every agent holds all of w, in order
        told, of_steps, penalty = None, state.steps, ρ
        if ground is not None and of_steps is not None:
            places = jnp.concatenate([b.coupling.ravel() for b in buckets])
            of_all = ground._replace(variance=jnp.concatenate([b.noise().ravel() for b in buckets]))
            energy = jnp.concatenate([pace.energy.ravel() for pace in state.paces])
            of_steps = of_steps._replace(energy=energy)
            told = consensus_steps(of_steps, of_all, z.astype(float), t, holders)
            penalty = (told[1] / 2).astype(z.dtype)[places]
        w = server_step(z, λ, penalty, holders)

        def one_agent(
            b: Bucket, z: Array, λ: Array, pace: Pace | None = None, *, rule: Rule
        ) -> tuple[Any, ...]:
            coupling, local = None if everything else b.coupling, b.local
            own = w if everything else w[b.coupling] * local.coupled
            at = Round(t, own, λ, ρ, η)
            if told is not None and pace is not None and b.ground is not None:
                known = b.ground._replace(variance=b.noise())
                c = told[1] if everything else told[1][b.coupling]
                reach, *steps = own_steps(pace, known, local.coupled, z, (told[0], c), t)
                at = Round(t, own, λ, *steps)
            about = t, w, at.ρ, at.η, z, λ, coupling, local, rule
            point, average, dual, noise = agent_round(*about)
            square = ((own - average * local.coupled) ** 2).sum()
            if pace is None:
                return point, average, dual, square, noise
            pace = learned(pace, known, reach, at, local.coupled, z, point)
            return point, average, dual, square, noise, pace

        paces: list[Any] = [(pace,) for pace in state.paces] or [()] * len(buckets)
        new = [
            for_each(partial(one_agent, rule=rule), b, z, λ, *pace)
            for b, rule, z, λ, pace in zip(
                buckets, rules, state.point, state.dual, paces, strict=True
            )
        ]
        point, average, dual, square, noise, *after = zip(*new, strict=True)
        total = tuple(s + weight * z for s, z in zip(state.total, average, strict=True))
        residual, magnitude = jnp.sqrt(sum(x.sum() for x in square)), sum(x.sum() for x in noise)
        now = State(point, average, dual, total)
        if told is not None and of_steps is not None:
            at = Round(t, w[places], λ, penalty, 1 / penalty)
            points = jnp.concatenate([x.ravel() for x in average])
            of_steps = consensus_learned(of_steps, of_all, told[0], at, z, points, holders)
            now = now._replace(paces=after[0], steps=of_steps._replace(energy=jnp.zeros(0)))
        return now, w, residual, magnitude

    nothing = jnp.zeros((), holders.count.dtype)
    start = state, jnp.zeros_like(holders.count), nothing, nothing
    result: Rounds = jax.lax.fori_loop(0, number, one_round, start)
    return result


@lru_cache
def _compiled(many: bool, vendor: bool) -> Any:
    """``vendor``: with its matrix products, which are twice as fast for 16 bits; else slower."""
    options = {"xla_gpu_enable_triton_gemm": False} if vendor else None
    function = _advance_many if many else _advance
    return jax.jit(function, static_argnames="rules", compiler_options=options)


def _advance_many(
    buckets: tuple[Bucket, ...],
    holders: Holders,
    ground: Ground | None,
    state: State,
    rounds: Array,
    number: Array | int,
    rules: tuple[Rule, ...],
) -> Rounds:
    axes = (tuple(DIFFERENT for _ in buckets), None, None, 0, (None, 0, 0, 0))
    advance = partial(_advance, number=number, rules=rules)
    result: Rounds = jax.vmap(advance, in_axes=axes)(buckets, holders, ground, state, rounds)
    return result


def _evaluate_plainly(
    buckets: tuple[Bucket, ...], average: tuple[Array, ...]
) -> tuple[Array, Array]:
    def one_agent(b: Bucket, z: Array) -> tuple[Array, Array]:
        assert b.local.W is not None
        return b.local.f.value(z), b.local.W.violation(z)

    pairs = [for_each(one_agent, b, z) for b, z in zip(buckets, average, strict=True)]
    values, violations = zip(*pairs, strict=True)
    return jnp.concatenate(values).sum(), jnp.concatenate(violations).max()


_evaluate = jax.jit(_evaluate_plainly)


@jax.jit
def _evaluate_many(buckets: tuple[Bucket, ...], average: tuple[Array, ...]) -> tuple[Array, Array]:
    axes = (tuple(DIFFERENT for _ in buckets), 0)
    result: tuple[Array, Array] = jax.vmap(_evaluate_plainly, in_axes=axes)(buckets, average)
    return result


PADDING = 0.1  # a bucket may hold at most this share of padded records
# On a CPU an agent with more bytes of data than this is not stacked with others, which saves a copy
# and is faster; unless there are more of them than this, as each is compiled by itself.
LARGE_DATA, MOST_PROGRAMS = 4_000_000, 32
ROOM = 2  # times the normaliser, that bounds on numbers of records may add up to in stacks


class Bucket(NamedTuple):
    """Stacked agents: every leaf has a leading agent axis. A single agent may come without."""

    local: Local
    coupling: Array  # −1 (private) points at the last coordinate; ``local.coupled`` masks it
    ground: Ground | None = None  # where steps adapt; ``variance`` for noise of 1 on the statistic

    def noise(self) -> Array:
        """The variance of the noise on every coordinate of the gradient."""
        assert self.ground is not None
        one = jnp.asarray(self.local.mechanism.variance(self.local.Δ), float)  # type: ignore[union-attr]
        noise: Array = one[..., None] * self.ground.variance
        return noise


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
    grounds = None
    if is_adaptive(settings):
        each = [
            ground_of_agent(p, settings)._replace(variance=np.asarray(p.objective.deviations) ** 2)
            for _, p in agents
        ]
        grounds = Ground(*map(np.stack, zip(*each, strict=True))) if len(agents) > 1 else each[0]
    if len(agents) == 1:
        alone = sides[0]._replace(f=sides[0].f.for_device())
        return Bucket(alone, jax.device_put(np.array(agents[0][1].coupling)), grounds)
    longest = max(_public_records(side.f) for side in sides)
    sides = [side._replace(f=side.f.pad(longest)) for side in sides]
    couplings = jax.device_put(np.stack([np.asarray(p.coupling) for _, p in agents]))
    return Bucket(_stacked(*sides), couplings, grounds)


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
    only = jax.tree.map(lambda x: x[0], state)
    return jax.tree.map(lambda x: x[None], function(bucket, *only))


# What differs between configurations; data, set and sensitivity are those of all.
DIFFERENT = Bucket(Local(None, None, None, None, 0, 0, None), None)  # type: ignore[arg-type]
