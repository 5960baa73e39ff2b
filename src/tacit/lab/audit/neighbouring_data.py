"""Neighbouring data on which the privacy statement is as tight as it can be.

An audit compares two worlds: one agent's data without and with a *canary*, the change that the
statement hides. The worse the canary, the more an audit can find.

    records     the canary is as long as a record may be, the agent's others are short, and the box
                is so small that every slope is close to its bound
    zones       both demands of one bus move by the whole of beta: that is the bound itself
    small sets  on an L1 ball and a simplex the canary's target is far from every prediction, so
                that its slope is close to the bound wherever the point is
    moments     for a release of X'X and X'y the canary is long, its target large, and all features
                have a part in it; where it replaces another, the two are 60 degrees apart and
                have opposite targets, which moves both moments most
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.objectives.losses import LeastSquares, SoftmaxRegression
from tacit.objectives.residual import Residual
from tacit.privacy.mechanisms import Mechanism
from tacit.pytree import store
from tacit.sets import Box, FeasibleSet, L1Ball, Simplex

if TYPE_CHECKING:
    from tacit.learn.data import Dataset

OTHERS = 4  # records of the agent besides the canary
SMALL = 0.1  # largest difference of two scores in the box
SHORT = 0.01  # how far a zone's step goes along one deviation of the noise, in per unit
ROOM = 8.0  # half the box, in deviations of the noise that all updates together add


@dataclass(frozen=True)
class Worlds:
    """One agent's problem without and with the canary, and public schedules to audit it with."""

    name: str
    canary: str  # in words
    without: LocalProblem
    with_canary: LocalProblem
    schedules: Callable[[Mechanism, int], tuple[float, float]]  # noise, updates: penalty, step

    def __post_init__(self) -> None:
        pair = self.without, self.with_canary
        if pair[0].objective.neighbours != pair[1].objective.neighbours or (
            not np.array_equal(np.asarray(pair[0].coupling), np.asarray(pair[1].coupling))
        ):
            raise InvalidInput("Expected two worlds that differ in the agent's data only.")

    @property
    def problems(self) -> tuple[LocalProblem, LocalProblem]:
        return self.without, self.with_canary

    def scheduled(self, settings: Settings) -> Settings:
        """The settings with schedules, where they were left out."""
        penalty, step = self.schedules(settings.mechanism, settings.updates)
        return replace(
            settings,
            penalty=settings.penalty or penalty,
            step_size=settings.step_size or step,
        )


def deviation(problem: LocalProblem, mechanism: Mechanism) -> float:
    """The standard deviation of the noise on one entry, from public numbers."""
    Δ = problem.objective.sensitivity(mechanism.norm, problem.feasible_set)
    return math.sqrt(float(mechanism.variance(Δ)))


def record_worlds(data: Dataset, name: str, dtype: Any = np.float64) -> Worlds:
    """Softmax regression on labelled records: is the canary one of them?

    The canary has its whole length, 1 in both norms, in the first feature, so that it reaches the
    sensitivity for Laplace and for Gaussian noise. The agent's other records are the shortest of
    the data: what they are must not matter, and where noise depends on the agent's own data it is
    then most visible.
    """
    lengths = np.abs(data.features).sum(axis=1, dtype=np.float64)
    order = np.argsort(lengths)
    order = order[lengths[order] > 0]
    if len(order) < OTHERS:
        raise InvalidInput(f"Expected at least {OTHERS} records to audit, got {len(order)}.")
    size = data.features.shape[1]
    others = data.features[order[:OTHERS]].astype(np.float64) / lengths.max()
    labels = np.append(data.labels[order[:OTHERS]], 0)
    bound = SMALL / 2  # |x'z_i − x'z_j| ≤ 2‖x‖₁·bound
    feasible_set = Box(-bound, bound, size=size * data.classes)

    def problem(canary: float) -> LocalProblem:
        objective = SoftmaxRegression(
            np.concatenate([others, canary * np.eye(1, size)]).astype(dtype),
            labels,
            data.classes,
            feature_norm=1.0,
            feature_norm_1=1.0,
            normaliser=len(data),
            neighbours="zero-out",
            record_bound=OTHERS + 1,
        )
        return LocalProblem(objective, feasible_set, name=name)

    without, with_canary = problem(0.0), problem(1.0)

    def schedules(mechanism: Mechanism, updates: int) -> tuple[float, float]:
        """Steps so short that the box is never reached: clipping would hide noise and canary."""
        largest = 1.5 * deviation(without, mechanism) * math.sqrt(updates)
        step = bound / (ROOM * largest)
        return 0.2 / step, step

    canary = "a record of length 1 in the first feature, out of the sums or in them"
    return Worlds(name, canary, without, with_canary, schedules)


def ball_worlds(dtype: Any = np.float64) -> Worlds:
    """Least squares on a small L1 ball: is the canary, all of it in one feature, among them?"""
    size, radius = 5, 0.02
    return _target_worlds("l1-ball", L1Ball(radius, size), _alone(np.eye(size)[-1]), radius, dtype)


def simplex_worlds(dtype: Any = np.float64) -> Worlds:
    """Least squares on a small simplex, whose points move in directions of sum zero only."""
    size, total = 5, 0.02
    across = np.array([1.0, -1.0, 0.0, 0.0, 0.0]) / math.sqrt(2)
    return _target_worlds("simplex", Simplex(size, total), _alone(across), total / size, dtype)


def moment_worlds(dtype: Any = np.float64, neighbours: str = "zero-out") -> Worlds:
    """Least squares on a small box: is the canary there, or which of two is it ("replace")?

    One long record moves X'X and X'y, as they are released together, by the whole of their bound:
    √2·B², and by 3/√2·B² where it replaces another (``moments.py``).
    """
    size, bound = 5, 0.004
    row = np.full(size, 1 / math.sqrt(size))
    pair = _alone(row)
    if neighbours == "replace":
        across = np.array([1.0, -1.0, 0.0, 0.0, 0.0]) / math.sqrt(2)  # at a right angle to row
        pair = (row, -1.0), (row / 2 + math.sqrt(3) / 2 * across, 1.0)
    box = Box(-bound, bound, size=size)
    return _target_worlds("least-squares", box, pair, bound, dtype, neighbours)


Record = tuple[Vector, float]


def _alone(row: Vector) -> tuple[Record, Record]:
    """A record with the largest target, out of the sums and in them."""
    return (0 * row, 1.0), (row, 1.0)


def _target_worlds(
    name: str,
    feasible_set: FeasibleSet,
    pair: tuple[Record, Record],
    room: float,
    dtype: Any,
    neighbours: str = "zero-out",
) -> Worlds:
    """Predictions are at most 0.02 and the canary's target is 1: 0.98 of the bound, or more."""
    size = pair[1][0].size
    others = SHORT * np.eye(OTHERS, size)

    def problem(row: Vector, target: float) -> LocalProblem:
        objective = LeastSquares(
            np.concatenate([others, row[None]]).astype(dtype),
            np.append(np.zeros(OTHERS), target),
            feature_norm=1.0,
            feature_norm_1=max(float(np.abs(row).sum()) for row, _ in pair),
            target_bound=1.0,
            normaliser=100.0,
            neighbours=neighbours,
        )
        return LocalProblem(objective, feasible_set, name=name)

    without, with_canary = (problem(*record) for record in pair)

    def schedules(mechanism: Mechanism, updates: int) -> tuple[float, float]:
        """Steps so short that the middle of the set is not left.

        The penalty is a power of two: a hostile server can then cancel a huge dual exactly.
        """
        step = room / (size * deviation(without, mechanism) * (2 + math.sqrt(updates)))
        return 2.0 ** math.floor(math.log2(0.25 / step)), step

    canary = "a record of length 1 with the largest target, out of the sums or in them"
    if neighbours == "replace":
        canary = "a record of length 1, or another at 60 degrees with the opposite target"
    return Worlds(name, canary, without, with_canary, schedules)


def zone_worlds(case: str, zones: int = 3, beta: float = 0.01) -> Worlds:
    """A zone of a power grid: did both demands of a bus move by beta?"""
    from tacit.power import build

    built = build(case, zones, beta=beta)
    agent = max(built.agents, key=lambda a: a.objective.statistic_size)
    buses = built.networks[built.agents.index(agent)].buses
    ends = built.grid.line.loc[built.cut_lines, ["from_bus", "to_bus"]].to_numpy()
    at = next(i for i, bus in enumerate(buses) if bus in ends)  # of which messages tell most
    f = agent.objective
    assert isinstance(f, Residual)
    changed = moved(f, beta * (np.asarray(f.groups) == at))
    with_canary = LocalProblem(changed, agent.feasible_set, agent.coupling, agent.name)

    def schedules(mechanism: Mechanism, updates: int) -> tuple[float, float]:
        """Steps so short that the answer of the solver is nearly linear in the noise."""
        step = SHORT / deviation(agent, mechanism)
        return 0.2 / step, step

    canary = f"both demands of bus {buses[at]} up by {beta:g} per unit, or not"
    return Worlds(case, canary, agent, with_canary, schedules)


def moved(objective: Residual, change: Vector) -> Residual:
    """The same objective with its data moved by ``change``."""
    copy: Residual = jax.tree.map(lambda leaf: leaf, objective)
    store(copy, data=np.asarray(objective.data) + change)
    return copy
