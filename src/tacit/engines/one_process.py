"""The driver: run Algorithm 1 for T rounds and return a ``Result``.

A run ends after the agreed number of rounds and for no other reason: stopping when some number
computed from private data looks good would itself release that number.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Vector
from tacit.admm.agent import (
    NOISE,
    Agent,
    Broadcast,
    Reply,
    agent_key,
    digest_of,
    schedule_in,
    start_point,
)
from tacit.admm.algorithm import Holders, average_over_holders, dual_step, server_step
from tacit.admm.checkpoint import STATE, Checkpoint, data_digest
from tacit.admm.problem import LocalProblem, Problem, objective_value
from tacit.admm.result import TRACE, Progress, Result, versions
from tacit.admm.schedules import Schedule
from tacit.admm.settings import Settings
from tacit.admm.statement import privacy_statement
from tacit.engines.batched import Fleet, State
from tacit.errors import InvalidInput, choice, count
from tacit.objectives.rounding import require_64_bits
from tacit.privacy.ledger import Ledger

T = TypeVar("T")
GENERATOR = "threefry2x32"  # of all seeded noise, whatever JAX's default: statements name it


class Engine(Protocol):
    """Carries messages: one broadcast out, one reply back from every agent, in order."""

    def exchange(self, broadcast: Broadcast) -> Sequence[Reply]: ...


class InProcess:
    """Agents of this process, ``workers`` of them at a time.

    Workers are threads: the cone solver runs outside of Python's lock. No number depends on how
    many there are, as agents share nothing.
    """

    def __init__(self, agents: Sequence[Agent], workers: int = 1) -> None:
        self.agents = agents
        self._pool = ThreadPoolExecutor(min(workers, len(agents))) if workers > 1 else None

    def exchange(self, broadcast: Broadcast) -> Sequence[Reply]:
        return self.for_each(lambda agent: agent.respond(broadcast))

    def for_each(self, task: Callable[[Agent], T]) -> list[T]:
        """``task`` of every agent, in order."""
        return list((self._pool.map if self._pool else map)(task, self.agents))


def solve(
    problem: Problem | Iterable[LocalProblem],
    settings: Settings,
    *,
    seed: int | None = None,
    run: str | None = None,
    evaluate_every: int = 1,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    batch: bool | None = None,
    workers: int | None = None,
    noise: str | None = None,
    ledgers: Mapping[str, Ledger | str | Path] | str | Path | None = None,
    block: int = 1,
) -> Result:
    """Solve ``problem`` privately with all agents in this process.

    seed            Threefry noise from this seed (research); None takes a key of 64 bits, all
                    that Threefry's have, from the operating system. Do not give a seed again under
                    the same run name, unless a checkpoint is there to go on from
    run             a name; noise differs between runs of one seed. Default "run"; with ledgers a
                    fresh one
    evaluate_every  trace row (and callback) every so many rounds, and after the last
    checkpoint      file to save the state to at each evaluation, and to continue from if it is
                    there; the continued run is bit for bit the uninterrupted one. It holds the
                    noise key: guard it like the data, and remove it when the result is safe.
    batch           run all agents as one program; default: if all sets are of closed form
    workers         agents at work at the same time, if not batched; default: one per core
    noise           "seeded" (Threefry, see ``seed``), or "secure": exact discrete noise from the
                    operating system, number by number, the default with ledgers. Without ledgers
                    such a run cannot be continued.
    ledgers         the agents' ledgers by name, or a folder with NAME.db for every agent: each
                    agent pays there before it answers, and refuses beyond its budget
    block           rounds to pay for at a time (see ``Agent``)

    Guarantee: the statement in ``Result.privacy`` covers every reply and so every solution in the
    result. The trace's ``objective`` and ``noise`` are computed from private data and noise for
    the researcher's eyes; they are not covered, and publishing them is not private.
    """
    if not isinstance(problem, Problem):
        problem = Problem(problem)
    if not isinstance(settings, Settings):
        raise InvalidInput(f"Expected Settings, got {type(settings).__name__}.")
    require_64_bits()
    count("evaluate_every", evaluate_every)
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    if checkpoint is not None and not Path(checkpoint).resolve().parent.is_dir():
        raise InvalidInput(f"Expected an existing folder for the checkpoint {checkpoint}.")
    settings = settings.complete(problem)
    if ledgers is not None:
        ledgers = open_ledgers(ledgers, problem.names)
    noise = choice("noise", noise or ("seeded" if ledgers is None else "secure"), NOISE)
    if noise == "secure" and seed is not None:
        raise InvalidInput(
            f"Expected no seed for secure noise, got seed={seed!r}. For a seeded run with ledgers "
            "give noise='seeded'. Nothing was released."
        )
    if noise == "secure" and ledgers is None and checkpoint is not None:
        raise InvalidInput(
            "Expected no checkpoint for secure noise without ledgers: a continued run would "
            "release other noise for the same round. Nothing was released."
        )
    # all that decides which noise a round gets: it must not get other noise when it is asked again
    agreed = {
        **settings.to_dict(),
        "noise": noise,
        "ledgers": ledgers is not None,
        "block": block,
        "generator": [GENERATOR, jax.__version__, jax.config.jax_threefry_partitionable],  # type: ignore[attr-defined]
    }
    key, done, trace = root_key(seed), 0, []
    state: dict[str, list[Vector]] = {}
    if checkpoint is not None and Path(checkpoint).exists():
        saved = Checkpoint.load(checkpoint)
        run = saved.run if run is None else run
        saved.check(agreed, run, seed, problem, settings.penalty, settings.step_size)
        key, done, trace, state = saved.key, saved.round, saved.trace.tolist(), saved.state
    if run is None:
        run = "run" if ledgers is None else f"run-{secrets.token_hex(6)}"
    digest = ""
    if checkpoint is not None:
        digest = data_digest(problem, key, settings.penalty, settings.step_size)
    alone = noise == "secure" or ledgers is not None
    if batch is None:
        batch = not alone and all(a.feasible_set.closed_form for a in problem.agents)
    if batch and alone:
        raise InvalidInput("Expected batch=False with ledgers or secure noise, got batch=True.")
    root = jax.random.wrap_key_data(jnp.asarray(key), impl=GENERATOR)
    worker: _Batched | _OneByOne = (
        _Batched(problem, settings, root, run)
        if batch
        else _OneByOne(
            problem, settings, root, run, workers, ledgers=ledgers, noise=noise, block=block
        )
    )
    if state:
        worker.restore(state, done)

    def save() -> None:
        if checkpoint is not None:
            Checkpoint(done, agreed, run, seed, key, digest, worker.state(), np.array(trace)).save(
                checkpoint
            )

    if not state and not done:
        save()  # the key is on disk before anything is released
    while done < settings.rounds:
        first, done = done + 1, min(done + evaluate_every, settings.rounds)
        w, *numbers = worker.advance(first, done)
        trace.append([done, *worker.evaluate(*numbers)])
        if callback is not None:
            state = worker.state()
            row = dict(zip(TRACE, trace[-1], strict=True))
            callback(Progress(done, w, state["average"], state["point"], state["dual"], row))
        save()
    charged = charged_updates(ledgers, run, settings) if ledgers is not None else settings.updates
    return result_of(problem, settings, worker.state(), trace, seed, noise == "secure", charged)


def charged_updates(ledgers: Mapping[str, Ledger], run: str, settings: Settings) -> int:
    """The most updates that an agent paid for: those of rounds that failed, and were paid again,
    too."""
    rounds = [
        sum(last - first + 1 for first, last in ledger.charged(run)) for ledger in ledgers.values()
    ]
    return max([settings.rounds, *rounds]) * settings.local_updates


def result_of(
    problem: Problem,
    settings: Settings,
    state: dict[str, list[Vector]],
    trace: Any,
    seed: int | None,
    secure: bool = False,
    updates: int | None = None,
) -> Result:
    holders = Holders.of([np.asarray(a.coupling) for a in problem.agents], problem.size, np.float64)
    ergodic = np.concatenate(state["total"]).astype(np.float64)
    ergodic = ergodic / ergodic_weights(settings, 1, settings.rounds).sum()
    columns = np.array(trace, dtype=np.float64).T
    return Result(
        solution=average_over_holders(np.concatenate(state["average"]).astype(np.float64), holders),
        ergodic=average_over_holders(ergodic, holders),
        local=tuple(state["average"]),
        trace=dict(zip(TRACE, columns, strict=True)),
        settings=settings,
        privacy=privacy_statement(problem, settings, seed is not None, secure, updates),
        names=problem.names,
        seed=seed,
        versions=versions(),
    )


def open_ledgers(
    ledgers: Mapping[str, Ledger | str | Path] | str | Path, names: Sequence[str]
) -> dict[str, Ledger]:
    """Ledgers or files by name, or those NAME.db in a folder."""
    if isinstance(ledgers, Mapping):
        return {n: v if isinstance(v, Ledger) else Ledger(v) for n, v in ledgers.items()}
    folder = ledgers
    for name in names:
        if Path(name).name != name:
            raise InvalidInput(f"Expected an agent's name that can name a file, got {name!r}.")
    return {name: Ledger(Path(folder) / f"{name}.db") for name in names}


def root_key(seed: int | None) -> Vector:
    """A key of 64 bits, as Threefry takes: from a seed, or from the operating system."""
    if seed is None:
        return np.frombuffer(os.urandom(8), dtype=np.uint32)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InvalidInput(f"Expected a whole number 0 <= seed < 2^63, got seed={seed!r}.")
    return np.asarray(jax.random.key_data(jax.random.key(int(seed), impl=GENERATOR)))


def ergodic_weights(settings: Settings, first: int, last: int) -> Vector:
    """How the ergodic average weighs rounds: equally, or by t (strongly convex theorem)."""
    rounds = np.arange(first, last + 1, dtype=np.float64)
    assert isinstance(settings.step_size, Schedule)
    return rounds if settings.step_size.averaging == "linear" else np.ones_like(rounds)


class _Batched:
    """All agents as one program (``batched.py``)."""

    def __init__(self, problem: Problem, settings: Settings, key: Any, run: str) -> None:
        self.settings = settings
        self.fleet = Fleet(problem, settings, key, run)
        self.now = self.fleet.start()

    def advance(self, first: int, last: int) -> tuple[Vector, float, float]:
        weights = ergodic_weights(self.settings, first, last)
        self.now, w, residual, noise = self.fleet.advance(self.now, first, last, weights)
        return np.asarray(w), float(residual), float(noise)

    def evaluate(self, residual: float, noise: float) -> tuple[float, ...]:
        objective, violation = self.fleet.evaluate(self.now)
        return float(objective), residual, noise, float(violation)

    def state(self) -> dict[str, list[Vector]]:
        return {name: self.fleet.unstack(getattr(self.now, name)) for name in STATE}

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        if self.settings.perturbation != "output":
            self.fleet.refuse_outside(state["point"] + state["average"])
        self.now = State(**{name: self.fleet.stack(state[name]) for name in STATE})


class _OneByOne:
    """Server and agents that exchange messages, one agent after another."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        key: Any,
        run: str,
        workers: int = 1,
        *,
        ledgers: Mapping[str, Ledger] | None = None,
        noise: str = "seeded",
        block: int = 1,
    ) -> None:
        self.problem, self.settings, self.run = problem, settings, run
        if ledgers is not None and (missing := sorted(set(problem.names) - set(ledgers))):
            raise InvalidInput(f"Expected a ledger for agent {missing[0]!r}, got none.")
        self.agents = [
            Agent(
                a,
                name,
                settings,
                agent_key(key, run, i),
                run,
                problem.size,
                ledger=ledgers[name] if ledgers is not None else None,
                noise=noise,
                block=block,
            )
            for i, (name, a) in enumerate(zip(problem.names, problem.agents, strict=True))
        ]
        self.last: dict[str, str] = {}
        self.engine = InProcess(self.agents, workers)
        couplings = [np.asarray(a.coupling) for a in problem.agents]
        self.shared = [np.flatnonzero(c >= 0) for c in couplings]
        held = [c[s] for c, s in zip(couplings, self.shared, strict=True)]
        self.index = np.concatenate(held)
        self.holders = Holders.of(held, problem.size, problem.dtype)
        self.total = [np.zeros(a.dimension, problem.dtype) for a in problem.agents]
        starts = [start_point(a) for a in problem.agents]
        self._meet(starts, [np.zeros_like(z) for z in starts])

    def _meet(self, averages: list[Vector], duals: list[Vector]) -> None:
        """The server's own copies of what agents hold (line 2); later it only gets replies."""
        pairs = list(zip(averages, duals, self.shared, strict=True))
        self.z = np.concatenate([np.asarray(z)[s] for z, _, s in pairs])
        self.λ = np.concatenate([np.asarray(λ)[s] for _, λ, s in pairs])

    def advance(self, first: int, last: int) -> tuple[Vector, float, float]:
        for t, weight in zip(
            range(first, last + 1), ergodic_weights(self.settings, first, last), strict=True
        ):
            ρ = schedule_in(self.z.dtype, self.settings, t, t)[0][0]
            w = server_step(self.z, self.λ, ρ, self.holders)
            replies = self.engine.exchange(Broadcast(self.run, t, w, self.last))
            self.last = {
                a.name: digest_of(r.run, r.round, r.primal)
                for a, r in zip(self.agents, replies, strict=True)
                if a.ledger is not None
            }
            self.z = np.concatenate([r.primal for r in replies])
            self.λ = dual_step(self.λ, ρ, w[self.index], self.z)
            self.total = [
                total + np.asarray(weight, total.dtype) * np.asarray(a.average)
                for total, a in zip(self.total, self.agents, strict=True)
            ]
        noise = sum(a.noise for a in self.agents)
        return w, float(np.linalg.norm(w[self.index] - self.z)), noise

    def evaluate(self, residual: float, noise: float) -> tuple[float, ...]:
        pairs = self.engine.for_each(
            lambda a: (
                objective_value(a.problem.objective, a.average),
                float(a.problem.feasible_set.violation(a.average)),
            )
        )
        objectives, violations = zip(*pairs, strict=True)
        return sum(objectives), residual, noise, max(violations)

    def state(self) -> dict[str, list[Vector]]:
        names = ("point", "average", "dual")
        state = {n: [np.array(getattr(a, n)) for a in self.agents] for n in names}
        # what the server knows is of its own round; an agent with a ledger may be ahead of it
        ends = np.cumsum([len(s) for s in self.shared])[:-1]
        for name, known in (("average", self.z), ("dual", self.λ)):
            for values, s, part in zip(
                state[name], self.shared, np.split(known, ends), strict=True
            ):
                values[s] = part
        return {**state, "total": list(self.total)}

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        for p, agent in enumerate(self.agents):
            point, average, dual = (state[name][p] for name in ("point", "average", "dual"))
            if agent.ledger is None:  # else the ledger knows where the agent is
                agent.restore(point, average, dual, rounds_done)
            elif rounds_done:
                shared = np.asarray(average)[self.shared[p]]
                self.last[agent.name] = digest_of(self.run, rounds_done, shared)
        self.total = list(state["total"])
        self._meet(state["average"], state["dual"])
