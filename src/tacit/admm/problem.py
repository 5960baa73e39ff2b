"""What is to be solved: min Σ_p f_p(z_p) over z_p ∈ W_p, with some coordinates in common.

``coupling[i]`` is the global coordinate that local coordinate i is a copy of, or −1 where it is
private to its agent. Global consensus (federated learning) is ``coupling = 0, 1, ..., n−1`` for
every agent; general consensus (power flow) couples only what zones share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from tacit._types import Vector
from tacit.errors import LENGTHS, InvalidInput, InvalidSet, array, printable, shown
from tacit.objectives.objective import Objective
from tacit.pytree import store
from tacit.sets.feasible_set import FeasibleSet

_compiled_value = jax.jit(lambda objective, z: objective.value(z))


def objective_value(objective: Objective, z: Vector) -> float:
    """f(z). Reads private data: do not publish."""
    return float((objective.value if objective.on_host else partial(_compiled_value, objective))(z))


@dataclass(frozen=True)
class LocalProblem:
    """One agent's part: a private objective f_p, a public compact set W_p, and its coupling.

    ``asked``: of an agent's records, how the objective's data were made of them, in public words. A
    ledger gives what it has released again for the same data and the same ``asked`` only: were
    another question answered for free where its data are the same, that they are would show.
    ``labels``: public names of the coordinates, with their units, such as "price (EUR/MWh)".
    """

    objective: Objective
    feasible_set: FeasibleSet
    coupling: Sequence[int] | Vector | None = None
    name: str = ""
    asked: str = ""
    labels: Sequence[str] = ()
    holds_everything: bool = field(init=False)  # no coupling was given: all of the global vector

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            raise InvalidInput(f"Expected an objective first, got {type(self.objective).__name__}.")
        if not isinstance(self.feasible_set, FeasibleSet):
            raise InvalidInput(
                f"Expected a feasible set second, got {type(self.feasible_set).__name__}."
            )
        who = f"agent {self.name!r}" if self.name else "an agent"
        n = self.objective.dimension
        if self.feasible_set.dimension != n:
            raise InvalidInput(
                f"Expected a feasible set of dimension {n}, as the objective of "
                f"{who} has, got dimension {self.feasible_set.dimension}."
            )
        if self.labels and len(self.labels) != n:
            raise InvalidInput(
                f"Expected a label for each of {n} coordinates of {who}, got {len(self.labels)}."
            )
        object.__setattr__(self, "labels", tuple(printable("a label", x) for x in self.labels))
        if self.objective.slack_size not in (0, self.feasible_set.slack_size):
            raise InvalidInput(
                f"Expected a feasible set with {self.objective.slack_size} slacks, as the "
                f"objective of {who} has, got {self.feasible_set.slack_size}."
            )
        if self.objective.slack_size:
            probe = np.random.default_rng(0).normal(size=n)
            ours, theirs = self.objective.slack_of(probe), self.feasible_set.slack_of(probe)
            if not np.allclose(ours, theirs, rtol=1e-9, atol=1e-9):
                raise InvalidInput(
                    f"Expected the slack of the feasible set of {who} to be that of "
                    "its objective, got another matrix."
                )
        size = width = 0.0
        if self.feasible_set.closed_form:
            with np.errstate(over="ignore"):
                size = float(self.feasible_set.radius(math.inf))
                width = float(self.feasible_set.diameter)
        if not math.isfinite(width):
            raise InvalidSet(
                f"Expected a bounded feasible set for {who}, got an unbounded "
                f"{type(self.feasible_set).__name__}. Add bounds; nothing was solved."
            )
        if size > LENGTHS[1] or 0 < width < LENGTHS[0]:
            raise InvalidSet(
                f"Expected a feasible set for {who} with numbers up to "
                f"{LENGTHS[1]:g} and a diameter of 0 or at least {LENGTHS[0]:g}, got {size:g} "
                f"and {width:g}. Nothing was solved."
            )
        object.__setattr__(self, "holds_everything", self.coupling is None)
        coupling = np.arange(n) if self.coupling is None else np.asarray(self.coupling)
        if coupling.shape != (n,) or not np.issubdtype(coupling.dtype, np.integer):
            raise InvalidInput(
                f"Expected {n} whole numbers as coupling of {who}, got shape "
                f"{coupling.shape} of {coupling.dtype}."
            )
        held = coupling[coupling >= 0]
        alike = self.coupling is not None and len(np.unique(held)) != len(held)
        if (coupling < -1).any() or alike:
            raise InvalidInput(
                f"Expected the coupling of {who} to name each global coordinate at "
                "most once, and -1 for private coordinates."
            )
        object.__setattr__(self, "coupling", coupling.astype(np.int64))

    def with_objective(self, objective: Objective, name: str) -> LocalProblem:
        """The same part of a problem with another objective, such as the released one."""
        return self._with(objective=objective, name=name, asked="")

    def asked_as(self, asked: str) -> LocalProblem:
        """The same part, as the answer to a question."""
        return self._with(asked=asked)

    def _with(self, **changes: Any) -> LocalProblem:
        coupling = None if self.holds_everything else self.coupling
        return replace(self, coupling=coupling, **changes)

    @property
    def dimension(self) -> int:
        return self.objective.dimension

    @cached_property
    def coupled(self) -> Vector:
        """1.0 on coupled coordinates, 0.0 on private ones."""
        return (np.asarray(self.coupling) >= 0).astype(self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if the private data are float32 and the set is closed form, else float64."""
        if not self.feasible_set.closed_form:
            return np.dtype(np.float64)
        leaves = [np.dtype(x.dtype) for x in jax.tree.leaves(self.objective) if hasattr(x, "dtype")]
        floats = {d for d in leaves if np.issubdtype(d, np.floating)}
        single = np.dtype(np.float32)
        return single if floats == {single} else np.dtype(np.float64)


def start_point(agent: LocalProblem) -> Vector:
    """z^1: the feasible point nearest to the origin. Public, as the set is."""
    return np.asarray(agent.feasible_set.project(np.zeros(agent.dimension, agent.dtype)))


@dataclass(frozen=True)
class Problem:
    """All agents' parts together.

    ``penalties``: for every global coordinate where its penalty starts, and its group, for exact
    steps on released objectives (``fixed_point.py``). Left out, they follow from the objectives.
    """

    agents: tuple[LocalProblem, ...]
    names: tuple[str, ...] = field(init=False)
    penalties: tuple[Vector, Vector] | None = None

    def __init__(
        self, agents: Iterable[LocalProblem], penalties: tuple[Vector, Vector] | None = None
    ) -> None:
        if not isinstance(agents, Iterable):
            raise InvalidInput(f"Expected a list of agents, got {shown(agents)}.")
        agents = tuple(agents)
        if not agents:
            raise InvalidInput("Expected at least one agent, got none.")
        for agent in agents:
            if not isinstance(agent, LocalProblem):
                raise InvalidInput(f"Expected LocalProblem objects as agents, got {shown(agent)}.")
        names = tuple(a.name or f"agent {i + 1}" for i, a in enumerate(agents))
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise InvalidInput(f"Expected agents of different names, got {twice!r} twice.")
        store(self, agents=agents, names=names, penalties=penalties)
        held = np.unique(np.concatenate([np.asarray(a.coupling) for a in agents]))
        held = held[held >= 0]
        if not len(held):
            raise InvalidInput("Expected agents that share a coordinate; every coupling is -1.")
        if len(held) != held[-1] + 1:
            missing = int(np.argmax(held != np.arange(len(held))))
            raise InvalidInput(
                f"Expected every global coordinate to be held by an agent; nobody holds {missing}."
            )

        self._check_sharing()
        self._check_normalisers()

    def _check_normalisers(self) -> None:
        """One N for all: with another, an agent's records would weigh more than those of others.

        A normaliser that differs is mostly an agent's own number of records, which is private.
        """
        found = [
            (name, float(np.asarray(a.objective.normaliser)))
            for name, a in zip(self.names, self.agents, strict=True)
            if hasattr(a.objective, "normaliser")
        ]
        for name, N in found[1:]:
            first, expected = found[0]
            if expected != N:
                raise InvalidInput(
                    f"Expected one normaliser for all agents, got {expected:g} of agent {first!r} "
                    f"and {N:g} of agent {name!r}. It is public and the same for all: not an "
                    "agent's own number of records. Nothing was solved."
                )

    def _check_sharing(self) -> None:
        for name, agent in zip(self.names, self.agents, strict=True):
            if agent.holds_everything and agent.dimension != self.size:
                raise InvalidInput(
                    f"Expected {self.size} variables for {name!r}, as others have, got "
                    f"{agent.dimension}. Give couplings where agents hold different variables."
                )
        couplings = np.concatenate([np.asarray(a.coupling) for a in self.agents])
        holders = np.bincount(couplings[couplings >= 0])
        if len(self.agents) > 1 and holders.max() < 2:
            raise InvalidInput("Expected agents that share a coordinate; none is held by two.")

    @cached_property
    def size(self) -> int:
        """The number n of global coordinates."""
        return 1 + max(int(np.asarray(a.coupling).max(initial=-1)) for a in self.agents)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(a.dtype for a in self.agents))

    @property
    def labels(self) -> tuple[str, ...]:
        """Of global coordinates, by the first agent that has one; empty where none has any."""
        found = [""] * self.size
        for agent in self.agents:
            for at, label in zip(np.asarray(agent.coupling), agent.labels, strict=False):
                if at >= 0:
                    found[at] = found[at] or label
        return tuple(found) if any(found) else ()

    @property
    def is_global(self) -> bool:
        """Whether every agent holds the whole global vector and nothing else."""
        everything = np.arange(self.size)
        return all(np.array_equal(np.asarray(a.coupling), everything) for a in self.agents)

    @classmethod
    def of(cls, given: Any) -> Problem:
        """A problem as it is, that of a ``PowerProblem``, or one of a list of agents."""
        inner = getattr(given, "problem", given)
        return inner if isinstance(inner, Problem) else cls(given)

    def value(self, solution: Vector, local: Sequence[Vector] | None = None) -> float:
        """F = Σ_p f_p(z_p), coordinates in common at ``solution``. Where agents keep private ones,
        ``local`` has all of each agent's (``Result.local``). Reads private data: do not publish.
        """
        if local is None and any((np.asarray(a.coupling) < 0).any() for a in self.agents):
            raise InvalidInput(
                "Expected local points too (Result.local): here agents keep private coordinates."
            )
        total, w = 0.0, array("solution", solution, (self.size,), dtype=np.float64)
        for p, agent in enumerate(self.agents):
            at = np.asarray(agent.coupling)
            z = w[at] if local is None else np.where(at >= 0, w[at], np.asarray(local[p]))
            total += objective_value(agent.objective, z)
        return total
