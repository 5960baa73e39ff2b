"""``solve``: server and agents in one process.

    solve = Server + in-process engine + what only a process that holds all data can add: the
    objective and the size of the noise, columns of the trace that no statement covers

A run with noise in every round ends after the agreed number of rounds and for no other reason:
stopping when some number computed from private data looks good would itself release that number.
Runs on data that were read once, and runs without noise, may end at a tolerance
(``solving_released.py``).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit._types import Array, Vector
from tacit.admm.agent import NOISE_SOURCES, Agent
from tacit.admm.checkpoint import STATE, Checkpoint
from tacit.admm.data_digest import data_digest
from tacit.admm.keys import agent_key, generator, jax_key, root_key
from tacit.admm.local_side import members_of
from tacit.admm.plan import Budget, Plan
from tacit.admm.problem import LocalProblem, Problem, objective_value
from tacit.admm.released import Released
from tacit.admm.result import TRACE, Progress, Result, result_of
from tacit.admm.server import Server
from tacit.admm.settings import Settings
from tacit.engines.batched import BatchedAgents
from tacit.engines.in_process import InProcess
from tacit.engines.ledgers import open_ledgers
from tacit.engines.releasing import Source
from tacit.engines.solving_released import solve_released
from tacit.errors import InvalidInput, choice, count
from tacit.objectives.rounding import require_64_bits
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Mechanism


def solve(
    problem: Problem | Iterable[LocalProblem] | Released,
    settings: Settings | Budget | Plan,
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
    start: Result | None = None,
) -> Result:
    """Solve ``problem`` privately with all agents in this process.

    A released problem, one without noise whose settings have a tolerance, and one whose data a
    ``Budget`` is best spent on reading once, are solved by exact steps (``solving_released.py``).

    seed            Threefry noise from this seed (research); None takes a key of 64 bits, all
                    that Threefry's have, from the operating system. Do not give a seed again under
                    the same run name, unless there is a checkpoint to continue from
    run             a name; noise differs between runs of one seed. Default "run"; with ledgers a
                    fresh one
    evaluate_every  trace row (and callback) every so many rounds, and after the last
    checkpoint      file to save the state to at each evaluation, and to continue from if it is
                    there; the continued run is bit for bit the uninterrupted one. It holds the
                    noise key: guard it like the data, and remove it when the result is safe.
    batch           run all agents as one program; default: if all sets have a projection formula
    workers         agents at work at the same time, if not batched; default: one per core
    noise           "seeded" (Threefry, see ``seed``), or "secure": exact discrete noise from the
                    operating system, number by number, the default with ledgers. Without ledgers
                    such a run cannot be continued.
    ledgers         the agents' ledgers by name, or a folder with NAME.db for every agent: each
                    agent pays there before it answers, and refuses beyond its budget
    block           rounds to pay for at a time (see ``Agent``)
    start           exact steps only: begin at the solution of another result

    Guarantee: the statement in ``Result.privacy`` covers every reply and so every solution in the
    result. The trace's ``objective`` and ``noise`` are computed from private data and noise for
    the researcher's eyes; they are not covered, and publishing them is not private.
    """
    if not isinstance(problem, Released):
        problem = Problem.of(problem)
    if not isinstance(settings, Settings | Budget | Plan):
        raise InvalidInput(f"Expected Settings, got {type(settings).__name__}.")
    require_64_bits()
    count("evaluate_every", evaluate_every)
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    settings, reading, plan = _planned(problem, settings)
    if isinstance(problem, Released) or reading is not None or settings.tolerance is not None:
        if batch is not None or block != 1:
            raise InvalidInput(
                "Expected batch and block left out for exact steps, which have neither, got "
                f"batch={batch!r} and block={block!r}. Nothing was computed."
            )
        source = Source(seed, run, noise, ledgers, checkpoint)
        released = source.released(problem, reading, settings)
        if released is not problem and released.releases and all(r.kept for r in released.releases):
            plan += " All agents had released these data before: nothing was charged."
        return solve_released(
            released,
            settings,
            evaluate_every=evaluate_every,
            callback=callback,
            workers=workers,
            start=start,
            plan=plan,
            true=problem if isinstance(problem, Problem) and reading is None else None,
        )
    if start is not None:
        raise InvalidInput("Expected no start where every round adds noise. Nothing was computed.")
    settings = settings.complete(problem)
    paying = _Paying.of(problem, noise, seed, ledgers, block, checkpoint)
    now = _begin(problem, settings, seed, run, paying, checkpoint)
    if batch is None:
        batch = not paying.alone and all(a.feasible_set.closed_form for a in problem.agents)
    if batch and paying.alone:
        raise InvalidInput("Expected batch=False with ledgers or secure noise, got batch=True.")
    agents: _Batched | _OneByOne = (
        _Batched(problem, settings, now.key, now.run)
        if batch
        else _OneByOne(problem, settings, now.key, now.run, workers, paying)
    )
    if now.state:
        agents.restore(now.state, now.round)
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and not now.state:
        now.at(0, agents.state(), []).save(path)  # the key is there before anything is released
    done, trace = now.round, now.trace.tolist()
    while done < settings.rounds:
        first, done = done + 1, min(done + evaluate_every, settings.rounds)
        w, *numbers = agents.advance(first, done)
        trace.append([done, *agents.evaluate(*numbers)])
        if callback is not None:
            state = agents.state()
            row = dict(zip(TRACE, trace[-1], strict=True))
            callback(Progress(done, w, state["average"], state["point"], state["dual"], row))
        if path is not None:
            now.at(done, agents.state(), trace).save(path)
    charged = paying.updates(now.run, settings)
    secure = paying.noise == "secure"
    result = result_of(problem, settings, agents.state(), trace, seed, secure, charged)
    return dataclasses.replace(result, plan=plan)


def _planned(
    problem: Problem | Released, settings: Settings | Budget | Plan
) -> tuple[Settings, tuple[Mechanism, float] | None, str]:
    """Settings, noise and δ of one reading of the data if they are read once, and why."""
    if isinstance(settings, Settings):
        return settings, None, ""
    if isinstance(problem, Released):
        raise InvalidInput(
            "Expected Settings for a released problem, got a budget: it is spent already."
        )
    if isinstance(settings, Budget):
        settings = settings.plan(problem)
    once = None if settings.reading is None else (settings.reading, settings.delta)
    return settings.settings, once, settings.reason


def _begin(
    problem: Problem,
    settings: Settings,
    seed: int | None,
    run: str | None,
    paying: _Paying,
    path: str | Path | None,
) -> Checkpoint:
    """Where a run begins, or the checkpoint that it continues from."""
    # all that decides which noise a round gets: it must not get other noise when it is asked again
    agreed = {
        **settings.to_dict(),
        "noise": paying.noise,
        "ledgers": paying.ledgers is not None,
        "block": paying.block,
        "generator": generator(),
    }
    if path is not None and not Path(path).resolve().parent.is_dir():
        raise InvalidInput(f"Expected an existing folder for the checkpoint {path}.")
    if path is not None and Path(path).exists():
        saved = Checkpoint.load(path)
        run = saved.run if run is None else run
        saved.check(agreed, run, seed, problem, settings.penalty, settings.step_size)
        return saved
    key = root_key(seed)
    if run is None:
        run = "run" if paying.ledgers is None else f"run-{secrets.token_hex(6)}"
    digest = ""
    if path is not None:
        digest = data_digest(problem, key, settings.penalty, settings.step_size)
    return Checkpoint(0, agreed, run, seed, key, digest, {}, np.zeros((0, len(TRACE))))


@dataclass(frozen=True)
class _Paying:
    """Where noise comes from, and who pays for it."""

    noise: str
    ledgers: Mapping[str, Ledger] | None
    block: int

    @classmethod
    def of(
        cls,
        problem: Problem,
        noise: str | None,
        seed: int | None,
        ledgers: Mapping[str, Ledger | str | Path] | str | Path | None,
        block: int,
        checkpoint: str | Path | None,
    ) -> _Paying:
        opened = open_ledgers(ledgers, problem.names) if ledgers is not None else None
        noise = choice("noise", noise or ("seeded" if opened is None else "secure"), NOISE_SOURCES)
        if noise == "secure" and seed is not None:
            raise InvalidInput(
                f"Expected no seed for secure noise, got seed={seed!r}. For a seeded run with "
                "ledgers give noise='seeded'. Nothing was released."
            )
        if noise == "secure" and opened is None and checkpoint is not None:
            raise InvalidInput(
                "Expected no checkpoint for secure noise without ledgers: a continued run would "
                "release other noise for the same round. Nothing was released."
            )
        return cls(noise, opened, block)

    @property
    def alone(self) -> bool:
        """Whether every agent draws and pays by itself, so that none is batched."""
        return self.noise == "secure" or self.ledgers is not None

    def updates(self, run: str, settings: Settings) -> int:
        """The most updates that an agent paid for: those of rounds that failed, and were paid
        again, too."""
        rounds = [
            sum(last - first + 1 for first, last in ledger.charged(run))
            for ledger in (self.ledgers or {}).values()
        ]
        return max([settings.rounds, *rounds]) * settings.local_updates


SEEDED = _Paying("seeded", None, 1)


class _Batched:
    """All agents as one program (``batched.py``)."""

    def __init__(self, problem: Problem, settings: Settings, key: Vector, run: str) -> None:
        self.settings = settings
        self.program = BatchedAgents(problem, settings, jax_key(key), run)
        self.now = self.program.start()

    def advance(self, first: int, last: int) -> tuple[Vector, float, float]:
        weights = self.settings.averaging_weights(first, last)
        self.now, w, residual, noise = self.program.advance(self.now, first, last, weights)
        return np.asarray(w), float(residual), float(noise)

    def evaluate(self, residual: float, noise: float) -> tuple[float, ...]:
        objective, violation = self.program.evaluate(self.now)
        return float(objective), residual, noise, float(violation)

    def state(self) -> dict[str, list[Vector]]:
        return {name: self.program.unstack(getattr(self.now, name)) for name in STATE}

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        self.now = self.program.restored(state)


class _OneByOne:
    """A server, and agents that it exchanges messages with."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        key: Vector,
        run: str,
        workers: int = 1,
        paying: _Paying = SEEDED,
    ) -> None:
        root = jax_key(key)
        self.settings, self.parts = settings, problem.agents
        self.agents = [
            Agent(
                part,
                name,
                settings,
                agent_key(root, run, i),
                run,
                problem.size,
                ledger=paying.ledgers[name] if paying.ledgers is not None else None,
                noise=paying.noise,
                block=paying.block,
            )
            for i, (name, part) in enumerate(zip(problem.names, problem.agents, strict=True))
        ]
        self.engine = InProcess(self.agents, workers)
        self.held = [np.flatnonzero(np.asarray(part.coupling) >= 0) for part in problem.agents]
        self.server = Server(members_of(problem), settings, run, problem.dtype)
        self.total = [np.zeros(part.dimension, problem.dtype) for part in problem.agents]

    def advance(self, first: int, last: int) -> tuple[Vector, float, float]:
        for weight in self.settings.averaging_weights(first, last):
            for refusal in self.server.step(self.engine).values():
                raise refusal.error()
            self.total = [
                total + np.asarray(weight, total.dtype) * np.asarray(agent.average)
                for total, agent in zip(self.total, self.agents, strict=True)
            ]
        noise = sum(agent.noise_magnitude for agent in self.agents)
        return self.server.w, self.server.residual, noise

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
        for name, known in (("average", self.server.z), ("dual", self.server.λ)):
            for values, held, part in zip(
                state[name], self.held, self.server.parts(known), strict=True
            ):
                values[held] = part
        return {**state, "total": list(self.total)}

    def restore(self, state: dict[str, list[Vector]], rounds_done: int) -> None:
        for p, agent in enumerate(self.agents):
            if agent.ledger is None:  # else the ledger knows where the agent is
                point, average, dual = (state[name][p] for name in ("point", "average", "dual"))
                agent.restore(point, average, dual, rounds_done)

        def shared(values: Sequence[Array]) -> Vector:
            parts = zip(values, self.held, strict=True)
            return np.concatenate([np.asarray(v)[held] for v, held in parts])

        self.server.restore(shared(state["average"]), shared(state["dual"]), rounds_done)
        self.total = list(state["total"])
