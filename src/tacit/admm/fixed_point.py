"""ADMM with exact local steps, as one map whose fixed points are the optimum.

    s   = w + λ/ρ, one number for every copy of a shared coordinate      ρ  penalty, per coordinate
    z   = argmin over W_p of f_p(z) + ½ Σ_i ρ_i (z_i − s_i)²             the exact local step
    w⁺  = average over the holders of 2z − s                             line 5 of Algorithm 1
    g   = w⁺ − z                                                         how far s is from fixed
    s⁺  = s + g                                                          lines 8, 23: λ⁺ = ρ(s − z)

That is Algorithm 1 with its local step solved exactly in place of linearised: w⁺ + λ⁺/ρ = s⁺.
At z the vector λ⁺ = ρ(s − z) is a subgradient of f_p over W_p, so that z is optimal if all copies
of a coordinate agree (primal) and their λ⁺ add up to zero (dual). g is the sum of both errors,

    g = (z̄ − z) + (mean over the holders of z − s),

which are orthogonal: g = 0 if and only if z is an optimum, if there are no private coordinates.
These need no s: they are drawn to their last value with a small weight, which is the same map for a
coordinate with one holder (w⁺ = 2z − s, s⁺ = z), so that fixed points stay what they are: z is an
optimum if g = 0 and private coordinates rest (``LocalRounds.settled``).

s → s + g is firmly non-expansive in the metric ρ (Douglas and Rachford; Eckstein and Bertsekas,
1992). Instead of s⁺ the server may choose a combination with earlier ones (``acceleration.py``). It
says so in a few public numbers, and every agent *follows* on its own coordinates: no agent needs
another one's s. Server and agent run the same code, coordinate by coordinate, in float64, without
sums over coordinates: the same bits on both sides.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tacit._types import Vector
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.errors import DERIVED, InvalidInput
from tacit.objectives.public import Prox

PRIVATE_WEIGHT = 3e-3  # of the least penalty or the mean curvature of f, whichever is less
LARGEST_MIXING, LARGEST_FACTOR = 1e9, 1e3  # what an agent follows
LARGEST = 1e100  # an s beyond it is refused
ABSOLUTE = 1e-3  # of the tolerance: the part that does not depend on the size of the solution
AHEAD = 100.0  # tolerances: a run goes on while it seems to have further to go than that
ROUNDING = 2.0**-48  # of the size of s: a smaller change says nothing
FLAT = 1e-5  # the least tolerance of private coordinates: as exact as a cone program's answer


@dataclass(frozen=True)
class Instructions:
    """What the server tells all agents to do with s: public numbers.

    ``mixing``   θ, one number for each remembered step, latest first; none: s⁺ = s + g
    ``factors``  by what to multiply the penalties, one number for each group; none: they stay
    ``undo``     whether the last mixing was a setback: all goes on from the plain step before it
    """

    mixing: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    undo: bool = False

    def __post_init__(self) -> None:
        if not all(abs(θ) <= LARGEST_MIXING for θ in self.mixing):
            raise InvalidInput(f"Expected mixing numbers up to {LARGEST_MIXING:g}, got others.")
        if not all(1 / LARGEST_FACTOR <= x <= LARGEST_FACTOR for x in self.factors):
            raise InvalidInput(
                f"Expected factors of penalties from {1 / LARGEST_FACTOR:g} to "
                f"{LARGEST_FACTOR:g}, got others."
            )

    def to_vector(self) -> Vector:
        """As numbers, for the wire."""
        return np.array([self.undo, len(self.factors), *self.factors, *self.mixing], np.float64)

    @classmethod
    def from_vector(cls, numbers: Vector) -> Instructions:
        """What ``to_vector`` wrote; anything else is refused."""
        values = np.asarray(numbers, np.float64).tolist()
        if len(values) < 2 or values[0] not in (0.0, 1.0) or values[1] not in range(len(values)):
            raise InvalidInput(f"Expected instructions of a server, got {len(values)} numbers.")
        many = int(values[1])
        if 2 + many > len(values):
            raise InvalidInput(f"Expected {many} factors of penalties, got fewer.")
        return cls(tuple(values[2 + many :]), tuple(values[2 : 2 + many]), bool(values[0]))


@dataclass(frozen=True)
class Iterate:
    """s and what is remembered of earlier ones, on some coordinates: an agent's, or all copies.

    ``group`` numbers the group of each coordinate: penalties are adapted group by group. ``steps``
    are the changes of s + g, and ``changes`` those of g, from round to round, latest first.
    """

    s: Vector
    penalty: Vector
    group: Vector
    memory: int
    last: tuple[Vector, Vector] | None = None  # s + g and g of the round before
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()

    @classmethod
    def start(
        cls, w: Vector, penalty: Vector, group: Vector, memory: int, dual: Vector | float = 0.0
    ) -> Iterate:
        """s = w + λ/ρ, by default without duals λ. ``memory`` rounds are remembered; 0 for plain
        steps only."""
        ρ = np.array(penalty, np.float64)
        _refuse_wild(np.zeros(0), ρ)
        s = np.array(w, np.float64) + dual / ρ
        _refuse_wild(s, ρ)
        return cls(s, ρ, np.asarray(group, np.int64), memory)

    def remembering(self, w: Vector, z: Vector) -> Iterate:
        """The same s, with the change from the round before remembered."""
        if self.last is None or not self.memory:
            return self
        g = w - z
        step, change = self.s + g - self.last[0], g - self.last[1]
        steps = (step, *self.steps[: self.memory - 1])
        return dataclasses.replace(
            self, steps=steps, changes=(change, *self.changes[: self.memory - 1])
        )

    def follow(self, w: Vector, z: Vector, instructions: Instructions) -> Iterate:
        """The next iterate, given w⁺ and z on these coordinates.

            s⁺ = s + g − Σ_k θ_k (change of s + g, k rounds ago)

        A change of penalties from ρ to ρ' leaves λ⁺ as it is: s⁺ = w⁺ + (ρ/ρ')(s + g − w⁺). After
        it, and after a setback, earlier steps are forgotten.
        """
        now = self.remembering(w, z)
        g = w - z
        plain = s = now.s + g
        penalty = now.penalty
        if instructions.undo and now.last is not None:
            s = now.last[0]
        elif 0 < len(instructions.factors) <= now.group.max(initial=0):
            raise InvalidInput("Expected a factor for every group of penalties, got fewer.")
        elif instructions.factors:
            factor = np.asarray(instructions.factors, np.float64)[now.group]
            s, penalty = w + (plain - w) / factor, penalty * factor
        elif len(instructions.mixing) > len(now.steps):
            raise InvalidInput(
                f"Expected mixing numbers for {len(now.steps)} remembered steps at most, got "
                f"{len(instructions.mixing)}."
            )
        else:
            for θ, step in zip(instructions.mixing, now.steps, strict=False):
                s = s - θ * step
        _refuse_wild(s, penalty)
        if instructions.factors or instructions.undo:
            return Iterate(s, penalty, now.group, now.memory)
        return dataclasses.replace(now, s=s, last=(plain, g))


def _refuse_wild(s: Vector, penalty: Vector) -> None:
    low, high = DERIVED
    if not (np.abs(s) <= LARGEST).all() or not ((penalty >= low) & (penalty <= high)).all():
        raise InvalidInput(
            f"Expected targets up to {LARGEST:g} and penalties from {low:g} to {high:g}, got "
            "others."
        )


@dataclass(frozen=True)
class LocalRounds:
    """An agent's side: its exact step, its point z, and its own part of s.

    ``held`` are the places of the coupled coordinates in z; ``penalty`` and ``group`` are those of
    the same coordinates at the start. ``curvature`` is f's ``mean_curvature``.
    """

    step: Prox
    held: Vector
    z: Vector
    penalty: Vector
    group: Vector
    memory: int
    curvature: float
    iterate: Iterate | None = None  # none before the first round
    before: Vector | None = None  # z of the round before the last
    dual: Vector | float = 0.0  # λ at the start
    moves: tuple[Vector, ...] = ()  # of the private coordinates in the last two rounds

    def answer(self, w: Vector, instructions: Instructions) -> LocalRounds:
        """One round, given the consensus on the agent's own coupled coordinates.

        The reply is ``z[held]`` of what is returned.
        """
        now = (
            Iterate.start(w, self.penalty, self.group, self.memory, self.dual)
            if self.iterate is None
            else self.iterate.follow(w, self.z[self.held], instructions)
        )
        curvature = self.curvature if self.curvature > 0 else np.inf  # f may be linear
        least = min(float(now.penalty.min(initial=np.inf)), curvature)
        weight = PRIVATE_WEIGHT * (least if np.isfinite(least) else 1.0)
        near = self.z if self.before is None or not instructions.undo else self.before
        v, c = near.copy(), np.full(len(near), weight)
        v[self.held], c[self.held] = now.s, now.penalty
        z = self.step(v, c)
        moves = (np.delete(z - near, self.held), *self.moves[: 0 if instructions.undo else 1])
        return dataclasses.replace(self, z=z, iterate=now, before=near, moves=moves)

    def settled(self, tolerance: float) -> bool:
        """Whether the private coordinates seem to be at rest; no residual of a server sees them.

        Where f is flat in them each round takes a small part of their way. How much is left is
        estimated from the last two moves (``acceleration.way_ahead``): no proof.
        """
        own = np.delete(self.z, self.held)
        if not own.size:
            return True
        if len(self.moves) < 2:
            return False
        size = float(np.linalg.norm(own)) + ABSOLUTE * np.sqrt(own.size)
        move, change = self.moves[0], self.moves[0] - self.moves[1]
        left, square = float(np.linalg.norm(move)), float(change @ change)
        if np.sqrt(square) > ROUNDING * size:
            left *= abs(1 - float(change @ move) / square)
        elif left > 10 * ROUNDING * size:
            return False
        return bool(left <= AHEAD * max(tolerance, FLAT) * size)


def next_consensus(s: Vector, z: Vector, holders: Holders) -> Vector:
    """w⁺: for each global coordinate the mean of 2z − s over the agents that hold it."""
    w: Vector = average_over_holders(2 * z - s, holders)
    return w
