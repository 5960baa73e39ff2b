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
1992). Instead of s⁺ the server may choose a combination with earlier ones (``Watch.choose``). It
says so in a few public numbers, and every agent *follows* on its own coordinates: no agent needs
another one's s. Server and agent run the same code, coordinate by coordinate, in float64, without
sums over coordinates: the same bits on both sides.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

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
MEMORY = 10  # rounds that count
RIDGE = 1e-6  # of the least squares for θ, relative
LONGEST_STEP = 1e3  # K: how far an accelerated step may be from the plain one, in units of ‖g‖
ALLOWANCE, DECAY = 10.0, 1.1  # the n-th accelerated step needs ‖g‖ ≤ 10‖g¹‖/n^1.1
SETBACK = 2.0  # one that leads to more than twice the smallest ‖g‖ so far is undone
WINDOW = 5  # rounds whose residuals decide about penalties
BALANCED = 10.0  # primal and dual residuals that differ by less are in balance
LARGEST_CHANGE, MOST_CHANGES = 10.0, 10  # of a penalty at once; of penalties in a run
NEGLIGIBLE = 0.01  # of ‖g‖: a smaller part of a group is no reason to change its penalty
SOLVED = 1e-8  # of the size of s: a g that may be the error of a solver
IN_A_ROW = 3  # rounds that must seem to be near the end


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
        estimated from the last two moves (``way_ahead``): no proof.
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


# --- what a server chooses: mixing, penalties, when to stop --------------------------------------
#
# All of it is a function of the agents' z, of the s that follow from them, and of public numbers:
# it is post-processing of the one release. With noise in every round none of it is done.


@dataclass(frozen=True)
class Residuals:
    """How far z is from an optimum, over all copies (Boyd et al., 2011, Section 3.3).

    ``primal`` is ‖z − z̄‖ and ``size`` ‖z̄‖. ``dual`` is the norm, in the metric 1/ρ, of the mean of
    λ⁺ = ρ(s − z) over the holders; it is ρ times a change of w, hence beside ``dual_size``, ‖z̄‖ in
    the metric ρ. (‖λ⁺‖ is no measure for it: λ⁺ vanishes where all loads can be served.) ``parts``
    are primal (metric ρ) and dual residual by group: the squares of all add up to ‖g‖².
    """

    primal: float
    size: float
    dual: float
    dual_size: float
    least: tuple[float, float]  # √n and its like in the metric ρ
    parts: tuple[Vector, Vector]

    @property
    def relative(self) -> tuple[float, float]:
        """Primal and dual residual, relative to the size of the solution."""
        size = self.size + ABSOLUTE * self.least[0]
        return self.primal / size, self.dual / self.dual_scale

    @property
    def dual_scale(self) -> float:
        """What the dual residual is relative to."""
        return self.dual_size + ABSOLUTE * self.least[1]

    def within(self, tolerance: float) -> bool:
        """‖z − z̄‖ ≤ tolerance·(‖z̄‖ + √n/1000), and the same of the duals in their metric."""
        return max(self.relative) <= tolerance


def residuals(now: Iterate, z: Vector, holders: Holders, index: Vector) -> Residuals:
    """The residuals at z, all copies one after another; ``index`` names their coordinates."""
    mean = average_over_holders(z, holders)[index]
    drift = average_over_holders(now.s - z, holders)[index]
    apart, ρ, groups = z - mean, now.penalty, int(now.group.max(initial=0)) + 1
    parts = [np.sqrt(np.bincount(now.group, ρ * x * x, groups)) for x in (apart, drift)]
    return Residuals(
        primal=float(np.linalg.norm(apart)),
        size=float(np.linalg.norm(mean)),
        dual=float(np.linalg.norm(parts[1])),
        dual_size=_norm(mean, ρ),
        least=(math.sqrt(len(z)), math.sqrt(float(ρ.sum()))),
        parts=(parts[0], parts[1]),
    )


@dataclass(frozen=True)
class Watch:
    """What the server remembers besides the iterate.

    first        ‖g‖ at the start, and after a change of penalties
    best         the smallest so far
    accelerated  how many accelerated steps were taken
    mixed        whether the last one was
    balance      log of primal over dual residual of every group, in the last rounds
    rounds       rounds since the last change of penalties
    changes      how often penalties were changed
    ahead        how far s seemed to be from its fixed point in the last rounds (``way_ahead``)
    """

    first: float = math.inf
    best: float = math.inf
    accelerated: int = 0
    mixed: bool = False
    balance: tuple[Vector, ...] = ()
    rounds: int = 0
    changes: int = 0
    ahead: tuple[float, ...] = (math.inf,) * IN_A_ROW

    def seen(self, found: Residuals) -> Watch:
        """With the balance of this round's residuals; a setback says nothing about penalties."""
        primal, dual = found.parts
        length = math.hypot(np.linalg.norm(primal), np.linalg.norm(dual))
        hidden = ROUNDING * (found.dual_size + ABSOLUTE * found.least[1]) + 1e-300
        least = NEGLIGIBLE * length + hidden
        ratio = np.log((primal + least) / (dual + least))
        setback = length > SETBACK * self.best + hidden
        known = self.balance if setback else (ratio, *self.balance)
        return dataclasses.replace(self, balance=known[:WINDOW], rounds=self.rounds + 1)

    @property
    def ratio(self) -> Vector:
        """Primal over dual residual of every group, geometric mean over the last rounds."""
        found: Vector = np.exp(np.mean(self.balance, axis=0)) if self.balance else np.ones(1)
        return found

    @property
    def balanced(self) -> bool:
        return bool((abs(np.log(self.ratio)) <= math.log(BALANCED)).all())

    def factors(self) -> tuple[float, ...]:
        """By what to multiply penalties, to bring residuals into balance.

        A large primal residual asks for a larger penalty (Boyd et al., 2011, Section 3.4.1), here
        for each group of coordinates. The ratio feels much less than a penalty's whole error,
        hence its square. Changes get rarer, and end: convergence is that of constant penalties.
        """
        ratio = self.ratio
        off = (ratio > BALANCED) | (ratio < 1 / BALANCED)
        factor = np.where(off, (ratio**2).clip(1 / LARGEST_CHANGE, LARGEST_CHANGE), 1.0)
        return tuple(factor.tolist())

    def choose(self, now: Iterate, w: Vector, z: Vector) -> tuple[Instructions, Watch]:
        """Change penalties, if they need it; else Anderson acceleration of type II, safeguarded.

        θ minimises ‖g − Σ_k θ_k (change of g, k rounds ago)‖ in the metric ρ, with a small ridge.
        The accelerated step is taken only where ‖g‖ ≤ 10‖g¹‖/n^1.1 for the n-th one, and it differs
        from the plain one by at most K‖g‖; else s⁺ = s + g. If it leads to a ‖g‖ above twice the
        smallest so far, by more than rounding, it is undone: the plain step is taken from where it
        began.

        So it converges whatever θ is. The plain map T is firmly non-expansive, ‖Ts − s*‖² ≤
        ‖s − s*‖² − ‖g‖² for every fixed point s*, and all accelerated steps together differ from it
        by at most K Σ‖g‖ ≤ 10K‖g¹‖ Σ 1/n^1.1 < ∞. Hence ‖s − s*‖ converges and Σ‖g‖² < ∞, so that
        s converges to a fixed point (quasi-Fejér monotone: Combettes, 2001; acceleration with such
        a safeguard: Zhang, O'Donoghue and Boyd, 2020). What was undone leaves no trace. Private
        coordinates take plain steps always, and are part of s in this argument.
        """
        due = len(self.balance) == WINDOW and self.rounds >= WINDOW + 2 * self.changes
        if due and not self.balanced and self.changes < MOST_CHANGES:
            return Instructions(factors=self.factors()), Watch(changes=self.changes + 1)
        g = w - z
        length = _norm(g, now.penalty)
        first = length if math.isinf(self.first) else self.first
        watch = dataclasses.replace(self, first=first, best=min(self.best, length))
        hidden = ROUNDING * _norm(now.s, now.penalty)  # rounding is no setback
        if self.mixed and length > SETBACK * self.best + hidden:
            kept = self.accelerated - 1
            return Instructions(undo=True), dataclasses.replace(
                watch, accelerated=kept, mixed=False, ahead=Watch.ahead
            )
        now = now.remembering(w, z)
        n = self.accelerated + 1
        θ = mixing(now, g) if now.changes else np.zeros(0)
        difference = sum(x * step for x, step in zip(θ, now.steps, strict=True))
        ahead = (way_ahead(now, g, θ), *self.ahead[:-1])
        watch = dataclasses.replace(watch, mixed=False, ahead=ahead)
        if not now.changes or length > ALLOWANCE * first / n**DECAY:
            return Instructions(), watch
        if not _norm(difference, now.penalty) <= LONGEST_STEP * length:
            return Instructions(), watch
        taken = dataclasses.replace(watch, accelerated=n, mixed=True)
        return Instructions(tuple(θ.tolist())), taken


def mixing(now: Iterate, g: Vector) -> Vector:
    """θ, by least squares; ``now`` remembers the change that led to g."""
    root = np.sqrt(now.penalty)
    changes = np.stack([root * change for change in now.changes], axis=1)
    ridge = RIDGE * np.linalg.norm(changes) * np.eye(changes.shape[1])
    right = np.append(root * g, np.zeros(changes.shape[1]))
    θ: Vector = np.linalg.lstsq(np.vstack([changes, ridge]), right, rcond=None)[0]
    return θ


def way_ahead(now: Iterate, g: Vector, θ: Vector) -> float:
    """How far s seems to be from its fixed point, in the metric ρ: the largest of three estimates.

    The accelerated step, which is as long if g is linear; the secant along the last change; and
    ‖g‖/(1 − r), if ‖g‖ goes on falling by a factor r in every round. ‖g‖ itself says little: where
    a penalty is far above the curvature of f, each round takes a small part of the way. Infinite
    where nothing is known. No proof: it takes three rounds in a row to end a run, as a coordinate
    that hardly moves shows only when the others are at rest.
    """
    ρ = now.penalty
    length, size = _norm(g, ρ), _norm(now.s, ρ)
    if not now.changes or now.last is None:
        return math.inf if now.memory else length
    step, change = now.steps[0], now.changes[0]
    square, before = float(np.sum(ρ * change * change)), _norm(now.last[1], ρ)
    if math.sqrt(square) <= ROUNDING * size:
        return length if length <= 10 * ROUNDING * size else math.inf
    found = [_norm(g - sum(x * y for x, y in zip(θ, now.steps, strict=True)), ρ)]
    found.append(_norm(g - float(np.sum(ρ * change * g)) / square * step, ρ))
    if length > SOLVED * size:
        found.append(length / (1 - length / before) if length < before else math.inf)
    return max(found)


def _norm(x: Vector, penalty: Vector) -> float:
    return float(np.sqrt(np.sum(penalty * x * x)))


@dataclass(frozen=True)
class ServerRounds:
    """The server's side: s on all copies, the consensus w, and what to tell the agents with it."""

    holders: Holders
    index: Vector  # the global coordinate of every copy, agent after agent
    iterate: Iterate
    w: Vector
    instructions: Instructions = field(default_factory=Instructions)
    watch: Watch = field(default_factory=Watch)

    @classmethod
    def start(
        cls,
        coordinates: list[Vector],
        w: Vector,
        penalty: Vector,
        group: Vector | None = None,
        memory: int = MEMORY,
        dual: Vector | float = 0.0,
    ) -> ServerRounds:
        """``coordinates``: the global ones of each agent; w, penalty and group: global vectors;
        dual: of all copies, agent after agent."""
        index = np.concatenate(coordinates)
        group = np.zeros(len(w), np.int64) if group is None else group
        w = np.array(w, np.float64)
        ρ = np.asarray(penalty)[index]
        iterate = Iterate.start(w[index], ρ, group[index], memory, dual)
        return cls(Holders.of(coordinates, len(w), np.float64), index, iterate, w)

    def receive(self, z: Vector) -> tuple[ServerRounds, Residuals]:
        """The next round, given all agents' z on their coupled coordinates; and how good z is."""
        found = residuals(self.iterate, z, self.holders, self.index)
        w = average_over_holders(2 * z - self.iterate.s, self.holders)
        copies = w[self.index]
        instructions, watch = self.watch.seen(found).choose(self.iterate, copies, z)
        following = self.iterate.follow(copies, z, instructions)
        return dataclasses.replace(
            self, iterate=following, w=w, instructions=instructions, watch=watch
        ), found

    def converged(self, found: Residuals, tolerance: float) -> bool:
        """Both residuals are within tolerance, at penalties that need no change, near the end.

        Without the other two, a penalty that is far too large would end a run: then all copies
        agree at once, and w hardly moves.
        """
        steady = self.watch.balanced or self.watch.changes >= MOST_CHANGES
        steady = steady or max(found.relative) <= ROUNDING
        steady = steady and not self.instructions.factors
        near = max(self.watch.ahead) <= AHEAD * tolerance * found.dual_scale
        return found.within(tolerance) and steady and near
