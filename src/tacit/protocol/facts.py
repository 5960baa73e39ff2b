"""What the coordinator knows of an agent: public sizes and bounds, and a problem made of them.

    LocalProblem ── facts_of ──▶ bytes ──▶ described(all facts): Problem

Whatever plans a run, completes its settings or states what it promises looks at public numbers only
(sensitivities, diameters, smoothness, ...), through ``Problem``. A described problem has these
numbers and nothing else, so that the same code decides where a server has seen no objective and no
set. What would need data raises ``NotKnown``.

Guarantee: every number here is public in the sense of ``Objective``: none depends on private data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from tacit._types import Array, Vector
from tacit.admm.problem import LocalProblem, Problem, start_point
from tacit.errors import InvalidInput
from tacit.objectives.objective import Descent, Objective, Statistics
from tacit.privacy.mechanisms import check_parties, refuse_no_sum
from tacit.protocol.messages import Facts
from tacit.protocol.server import Member
from tacit.sets.feasible_set import FeasibleSet

NAME = "sum"  # of the one agent that has the sum of all


class NotKnown(InvalidInput):
    """A server was asked for something that only an agent knows."""


def facts_of(agent: LocalProblem, name: str, sizes: bool = True) -> Facts:
    """An agent, as it introduces itself. ``sizes``: also those of a set that only solvers know.
    Schedules that a run leaves out follow from them."""
    f, W = agent.objective, agent.feasible_set
    if isinstance(f, DescribedObjective):
        return f.facts
    coupling = np.asarray(agent.coupling)
    backend = jax.default_backend()
    about: dict[str, Any] = {}
    try:
        statistics = f.statistics()
        about["size"] = int(statistics.size)
        about["read_one"], about["read_two"] = (float(statistics.sensitivity(k)) for k in (1, 2))
        about["gradient_noise"] = statistics.gradient_deviation(1.0, W)
        if about["gradient_noise"] is not None:
            about["feature_bound"] = float(f.feature_bound(2))  # type: ignore[attr-defined]
    except InvalidInput as error:
        about["not_once"] = str(error)
    if sizes or W.closed_form:
        about["diameter"], about["radius"] = float(W.diameter), float(W.radius(math.inf))
        about["gradient_bound"] = float(f.gradient_bound(W))
    if sizes and (f.descent is None or not agent.holds_everything):  # steps may adapt
        held = coupling >= 0
        about["widths"] = np.asarray(W.widths, "<f8")[held]
        about["deviations"] = np.asarray(f.deviations, "<f8")[held]
    if f.descent is not None:
        about["usual_curvature"], about["reach"], about["longest"] = f.descent
    if hasattr(f, "normaliser"):
        about["normaliser"] = float(np.asarray(f.normaliser))
    return Facts(
        agent=name,
        coupling=coupling.astype("<i8"),
        start=start_point(agent)[coupling >= 0],
        objective=f.kind,
        strong_convexity=float(f.strong_convexity),
        lift_energy=float(f.lift_energy),
        one=_moved(f, W, 1),
        two=_moved(f, W, 2),
        neighbours=f.neighbours,
        relation=f.relation,
        everything=agent.holds_everything,
        closed_form=W.closed_form,
        separable=W.separable,
        smoothness=None if f.smoothness is None else float(f.smoothness),
        uncertified=f.uncertified,
        uncertified_here=f.uncertified_on(backend),
        clipped=f.clipped,
        **about,
    )


def described(facts: Sequence[Facts], penalties: tuple[Vector, Vector] | None = None) -> Problem:
    """The problem of agents that have introduced themselves, for a server that knows no more."""
    agents = []
    for own in facts:
        coupling = None if own.everything else own.coupling
        agents.append(LocalProblem(DescribedObjective(own), DescribedSet(own), coupling, own.agent))
    return Problem(agents, penalties)


def as_summed(problem: Problem, colluding: int | None, parties: int = 0) -> Problem:
    """All agents as one that has the sum of what they know, for planners: of these ``parties``, or
    of others that have these agents' records."""
    facts = [facts_of(a, n, False) for n, a in zip(problem.names, problem.agents, strict=True)]
    parties = parties or len(facts)
    return described([summed(facts, check_parties(parties, colluding), parties)])


def summed(facts: Sequence[Facts], colluding: int, parties: int = 0) -> Facts:
    """The one agent that has the records of all, as a planner sees it, where statistics are only
    added up: its sensitivities are such that noise for them is that of the sum.

    The P − c who add noise make up for the sensitivity of any one party; all P have added theirs.
    """
    parties = parties or len(facts)
    first, more = facts[0], math.sqrt(parties / (parties - colluding))
    public = ("everything", "coupling", "start", "objective", "strong_convexity", "normaliser")
    for own in facts:
        for name in (*public, "size", "neighbours", "relation", "not_once"):
            mine, other = np.asarray(getattr(first, name)), np.asarray(getattr(own, name))
            same = mine.dtype.kind != "f" or mine.dtype == other.dtype  # else requests differ
            same = same and mine.shape == other.shape and (mine == other).all()
            if not same or not own.everything:
                why = f"{name.replace('_', ' ')} is another than that of {first.agent!r}"
                raise InvalidInput(
                    "Expected losses of one kind over records on one common set, alike for all "
                    f"agents, for a secure sum, got agent {own.agent!r}, of which "
                    f"{'not all coordinates are in common' if same else why}. Leave aggregation "
                    "out. Nothing was computed."
                )

    def of(how: Callable[[list[Any]], Any], name: str) -> Any:
        found = [getattr(own, name) for own in facts]
        return None if None in found else how(found)

    return dataclasses.replace(
        first,
        agent=NAME,
        one=math.inf,  # Laplace noise does not add up to its own kind
        two=more * of(max, "two"),
        read_one=None if first.read_one is None else math.inf,
        read_two=None if first.read_two is None else more * of(max, "read_two"),
        strong_convexity=of(sum, "strong_convexity"),
        **{name: of(sum, name) for name in ("smoothness", "gradient_bound", "usual_curvature")},
        **{name: of(max, name) for name in ("reach", "gradient_noise", "feature_bound", "clipped")},
        **{name: of(max, name) for name in ("uncertified", "uncertified_here")},
        longest=of(min, "longest"),
    )


def _told(name: str) -> Any:
    return property(lambda self: getattr(self.facts, name))


class DescribedSet(FeasibleSet):
    """The size of a set, and one point of it."""

    closed_form, separable = _told("closed_form"), _told("separable")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @property
    def dimension(self) -> int:
        return len(self.facts.coupling)

    @property
    def diameter(self) -> float:
        return _known(self.facts, "diameter")

    @property
    def widths(self) -> Vector:
        """Of the coupled coordinates; 1 elsewhere."""
        return _coupled(self.facts, "widths")

    def radius(self, norm: float) -> float:
        if norm != math.inf:
            _not_known(self.facts, "radius of its set")
        return _known(self.facts, "radius")

    def project(self, point: Any, weight: Any = None) -> Vector:
        """Of the origin: z^1, on the coupled coordinates."""
        if np.any(np.asarray(point)):
            _not_known(self.facts, "projection onto its set")
        z = np.zeros(self.dimension, self.facts.start.dtype)
        z[self.facts.coupling >= 0] = self.facts.start
        return z

    def violation(self, point: Any) -> Any:
        _not_known(self.facts, "constraints")


class DescribedObjective(Objective):
    """The public numbers of an objective."""

    kind, relation, clipped = _told("objective"), _told("relation"), _told("clipped")
    smoothness, strong_convexity = _told("smoothness"), _told("strong_convexity")
    lift_energy = _told("lift_energy")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.neighbours, self.doubt = facts.neighbours, facts.uncertified

    def uncertified_on(self, device: str) -> str:
        """Of the agent's own device, whatever the server's is."""
        return self.facts.uncertified_here

    @property
    def dtype(self) -> np.dtype[Any]:
        """As if it were its data: what a run computes in."""
        return self.facts.start.dtype

    @property
    def descent(self) -> Descent | None:
        curvature, reach, longest = self.facts.usual_curvature, self.facts.reach, self.facts.longest
        if curvature is None or reach is None or longest is None:
            return None
        return Descent(curvature, reach, longest)

    @property
    def dimension(self) -> int:
        return len(self.facts.coupling)

    def value(self, z: Array) -> Array:
        _not_known(self.facts, "objective value")

    def statistic(self, z: Array) -> Array:
        _not_known(self.facts, "statistic")

    @property
    def statistic_size(self) -> int:
        return max(self.dimension, self.facts.size or 0)  # an upper bound

    @property
    def deviations(self) -> Vector:
        return _coupled(self.facts, "deviations")

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return _sensitivity(self.facts, norm, self.facts.one, self.facts.two)

    def statistics(self) -> DescribedStatistics:
        if self.facts.not_once:
            raise InvalidInput(self.facts.not_once)
        return DescribedStatistics(self.facts)

    @property
    def normaliser(self) -> float:
        if self.facts.normaliser is None:
            raise AttributeError("normaliser")  # as objectives have it that are no sums
        return self.facts.normaliser

    def feature_bound(self, norm: int) -> float:
        assert norm == 2
        return _known(self.facts, "feature_bound")

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        return _known(self.facts, "gradient_bound")


class DescribedStatistics(Statistics):
    """The size and the sensitivity of a release."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.values = np.broadcast_to(np.nan, (facts.size or 0,))  # as many, none of them known

    def sensitivity(self, norm: int) -> float:
        return _sensitivity(self.facts, norm, self.facts.read_one, self.facts.read_two)

    def gradient_deviation(self, deviation: float, feasible_set: FeasibleSet) -> float | None:
        unit = self.facts.gradient_noise
        return None if unit is None else deviation * unit

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> NoReturn:
        _not_known(self.facts, "released objective")


def _moved(f: Objective, W: FeasibleSet, norm: int) -> float:
    """Δ of the statistic; infinite for a cost with kinks, which is released once or not at all."""
    try:
        return float(f.sensitivity(norm, W))
    except InvalidInput:
        return math.inf


def _sensitivity(facts: Facts, norm: int, one: float | None, two: float | None) -> float:
    if norm == 1 and facts.agent == NAME and one == math.inf:
        refuse_no_sum("laplace")
    return float((one if norm == 1 else two) or 0.0)


def _coupled(facts: Facts, name: str) -> Vector:
    if not len(getattr(facts, name)):
        _not_known(facts, name)
    values = np.ones(len(facts.coupling))
    values[facts.coupling >= 0] = getattr(facts, name)
    return values


def _known(facts: Facts, name: str) -> float:
    value: float | None = getattr(facts, name)
    return _not_known(facts, name) if value is None else value


def _not_known(facts: Facts, what: str) -> NoReturn:
    raise NotKnown(
        f"Expected only what agent {facts.agent!r} has told of itself to be asked for, got its "
        f"{what}. Nothing was computed."
    )


def members_of(problem: Problem) -> list[Member]:
    """The agents of a problem as a server knows them."""
    members = []
    for name, part in zip(problem.names, problem.agents, strict=True):
        coupling = np.asarray(part.coupling)
        held = np.flatnonzero(coupling >= 0)
        members.append(Member(name, coupling[held], start_point(part)[held]))
    return members
