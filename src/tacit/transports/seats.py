"""All agents of a run, wherever they are: one seat each, and who asks all of them at once.

    solve  ─▶  Everyone.each(Seat.respond, broadcast)  ─▶  every agent's answer, in order

A seat has what only the process with an agent's data and ledger can do. ``Here`` has all seats of
this process; ``mpi.py`` carries the same questions to other ranks. Who asks does not know which.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem, objective_value
from tacit.admm.settings import Settings
from tacit.errors import LedgerFailure, Refused, SolverFailure
from tacit.objectives.public import PublicObjective, without_noise
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.agent import Agent
from tacit.protocol.data_digest import agent_digest
from tacit.protocol.facts import facts_of
from tacit.protocol.keys import agent_key, jax_key
from tacit.protocol.messages import Broadcast, Facts, Refusal, Reply
from tacit.protocol.public_agent import PublicAgent
from tacit.protocol.release import Reader, Release
from tacit.protocol.released import public_part
from tacit.transports.clock import Clock
from tacit.transports.ledgers import open_ledgers

T = TypeVar("T")
Ledgers = Mapping[str, Ledger | str | Path] | str | Path | None


class Seat:
    """One agent's seat in a run: its data, its ledger, and whatever reads them.

    ``index`` is its place among all agents of the run, which its seeded noise depends on.
    """

    def __init__(self, index: int, name: str, problem: LocalProblem) -> None:
        self.index, self.name, self.problem = index, name, problem
        self.ledger: Ledger | None = None
        self._agent: Agent | PublicAgent
        self._total: Vector  # weighted sum of z^{t+1} over the rounds, for the ergodic average
        self._reader: Reader
        self._copy: LocalProblem  # public
        self._valued = problem.objective  # whose value a trace has

    def facts(self, sizes: bool) -> Facts:
        """What a server may know of this agent before the run."""
        return facts_of(self.problem, self.name, sizes)

    def digest(self, key: Vector) -> bytes:
        """Of all that this agent computes with, code included; keyed (``data_digest.py``)."""
        return agent_digest(self.problem, self.name, key)

    # --- noise in every round -----------------------------------------------------------------

    def begin(
        self,
        settings: Settings,
        root: Vector,
        run: str,
        size: int,
        dtype: str,
        noise: str,
        block: int,
    ) -> None:
        """Take part in ``run``: ``root`` is the key of its seeded noise, ``size`` its number n of
        global coordinates, and ``dtype`` the number format of its server."""
        self._agent = Agent(
            self.problem,
            self.name,
            settings,
            agent_key(jax_key(root), run, self.index),
            run,
            size,
            ledger=self.ledger,
            noise=noise,
            block=block,
        )
        self._total = np.zeros(self.problem.dimension, np.dtype(dtype))

    def respond(self, broadcast: Broadcast) -> Reply | Refusal:
        """One round, or why there is none, for those who may know all about the agent."""
        agent = self._agent
        try:
            found = agent.respond(broadcast)
        except (Refused, SolverFailure, LedgerFailure) as error:
            return Refusal.of(error, agent.run, broadcast.round)
        if isinstance(agent, Agent):
            weight = agent.settings.averaging_weights(found.round, found.round)[0]
            weight = np.asarray(weight, self._total.dtype)
            self._total = self._total + weight * np.asarray(agent.average)
        return found

    def measured(self) -> tuple[float, float, float]:
        """f(z^{t+1}), the violation there, and Σ|ξ| of the last round. Of noisy rounds the first
        and the last are not covered by any statement."""
        z, noise = self.point(), 0.0
        if isinstance(self._agent, Agent):
            z, noise = self._agent.average, self._agent.noise_magnitude
        violation = float(self.problem.feasible_set.violation(z))
        return objective_value(self._valued, z), violation, noise

    def point(self) -> Vector:
        """z of exact steps, private coordinates included."""
        return self._agent.point

    def state(self) -> tuple[Vector, ...]:
        """What a checkpoint keeps of this agent (``checkpoint.STATE``)."""
        agent = self._agent
        assert isinstance(agent, Agent)
        found = agent.point, agent.average, agent.dual, self._total
        return tuple(np.asarray(x) for x in found)

    def restore(
        self, point: Vector, average: Vector, dual: Vector, total: Vector, rounds_done: int
    ) -> None:
        assert isinstance(self._agent, Agent)
        if self.ledger is None:  # else the ledger knows where the agent is
            self._agent.restore(point, average, dual, rounds_done)
        self._total = np.asarray(total)

    def charged(self, run: str) -> int:
        """Rounds that this agent's ledger paid for; those that failed, and were paid again, too."""
        if self.ledger is None:
            return 0
        return sum(last - first + 1 for first, last in self.ledger.charged(run))

    # --- one reading, and exact steps ----------------------------------------------------------

    def agree(
        self,
        mechanism: Mechanism,
        delta: float,
        noise: str,
        root: Vector,
        run: str,
        from_seed: bool,
    ) -> None:
        """Be ready to read the data once; refused where they cannot be read, or paid for."""
        self.readable(mechanism, delta, noise, root, run, from_seed)
        self.problem.objective.reading()
        self._reader.agree(self.problem)

    def readable(self, *about: Any) -> None:
        """As ``agree``, without asking the ledger: what is read was paid for before."""
        mechanism, delta, noise, root, run, from_seed = about
        key = agent_key(jax_key(root), run, self.index)
        self._reader = Reader(self.name, mechanism, delta, noise, key, self.ledger, from_seed)

    def afford(self, then: tuple[Mechanism, int]) -> None:
        self._reader.afford(self.problem, then)

    def read(self) -> Release:
        return self._reader.read(self.problem)

    def fits(self, release: Release) -> bool:
        """Whether it was read from these data."""
        reading = self.problem.objective.reading()
        return release.values.shape == reading.values.shape and release.fits(reading)

    def holds(self, release: Release) -> bool:
        """Whether the ledger, if there is one, knows of this release."""
        return self.ledger is None or self._reader.holds(self.problem, release)

    def copy(self, release: Release | None, mechanism: Mechanism, agents: int) -> float:
        """Make a public copy of the problem, and say its mean curvature. Without a release the
        problem itself is taken for public: such a run is not private."""
        objective = self.problem.objective
        if isinstance(objective, PublicObjective):
            self._copy = self.problem
        elif release is None:
            self._copy = self.problem.with_objective(without_noise(objective), self.name)
        else:
            self._copy = public_part(self.problem, self.name, release, mechanism, agents)
            self._valued = self._copy.objective
        copied = self._copy.objective
        assert isinstance(copied, PublicObjective)
        return float(copied.mean_curvature)

    def begin_exactly(
        self,
        start: tuple[Vector, Vector] | None,
        penalty: Vector,
        group: Vector,
        tolerance: float | None,
    ) -> None:
        """Take part in exact steps on the public copy."""
        penalties = penalty, group
        self._agent = PublicAgent(self._copy, self.name, EXACT, penalties, start, tolerance)


EXACT = "released"  # the name of every run of exact steps
TOGETHER = (Seat.respond, Seat.measured)  # what several agents of a process do at the same time
# Seconds of the slowest answer: where all take less, threads wait for one another longer than they
# save.
WORTH_A_THREAD = 3e-3


class Everyone(ABC):
    """All agents of a run. It is also the engine of its server (``protocol/server.py``)."""

    problem: Problem  # as the one who asks knows it: whole, or described
    clock: Clock

    @abstractmethod
    def each(
        self, method: Callable[..., T], *common: Any, own: Sequence[tuple[Any, ...]] | None = None
    ) -> list[T]:
        """What every seat has to say, in the order of agents; ``own``: its first arguments."""

    def sized(self) -> Problem:
        """The problem, with the sizes of sets that only a solver can tell."""
        return self.problem

    @property
    @abstractmethod
    def has_ledgers(self) -> bool:
        """Whether agents are to pay."""

    @abstractmethod
    def open_ledgers(self) -> bool:
        """Open every agent's ledger where it sits; whether there are any."""

    def exchange(
        self, broadcast: Broadcast, deadline: float | None = None
    ) -> dict[str, Reply | Refusal]:
        """Carry one broadcast to all. There is no deadline: what was paid for is computed."""
        return dict(zip(self.problem.names, self.each(Seat.respond, broadcast), strict=True))


class Here(Everyone):
    """Agents of this process, up to ``workers`` of them at a time.

    Workers are threads: the cone solver runs outside of Python's lock. No number depends on how
    many there are, as agents share nothing.

    ``first``: how many agents of the run sit elsewhere before these.
    """

    def __init__(
        self,
        agents: Sequence[tuple[str, LocalProblem]],
        workers: int = 1,
        ledgers: Ledgers = None,
        first: int = 0,
    ) -> None:
        self.seats = [Seat(first + i, name, part) for i, (name, part) in enumerate(agents)]
        self.clock, self._ledgers = Clock(1), ledgers
        several = workers > 1 and len(agents) > 1
        self._pool = ThreadPoolExecutor(min(workers, len(agents))) if several else None
        self._slowest = math.inf  # seconds of the slowest answer in the last round

    @classmethod
    def of(cls, problem: Problem, workers: int = 1, ledgers: Ledgers = None) -> Here:
        """All agents of a problem."""
        found = cls(list(zip(problem.names, problem.agents, strict=True)), workers, ledgers)
        found.problem = problem
        return found

    def each(
        self, method: Callable[..., T], *common: Any, own: Sequence[tuple[Any, ...]] | None = None
    ) -> list[T]:
        took: list[float] = []

        def one(seat: Seat, mine: tuple[Any, ...]) -> T:
            begun = time.perf_counter()
            answer = method(seat, *mine, *common)
            took.append(time.perf_counter() - begun)
            return answer

        begun = time.perf_counter()
        together = method in TOGETHER and self._slowest > WORTH_A_THREAD
        mapping: Any = self._pool.map if self._pool is not None and together else map
        found = list(mapping(one, self.seats, [()] * len(self.seats) if own is None else own))
        if method is Seat.respond:
            spent = time.perf_counter() - begun
            self.clock.round(spent, [spent])
            self._slowest = max(took, default=0.0)
        return found

    @property
    def has_ledgers(self) -> bool:
        return self._ledgers is not None

    def open_ledgers(self) -> bool:
        if self._ledgers is None:
            return False
        opened = open_ledgers(self._ledgers, [seat.name for seat in self.seats])
        for seat in self.seats:
            seat.ledger = opened[seat.name]
        return True
