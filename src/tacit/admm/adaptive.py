"""Steps that adapt to what is public, for losses whose best step size nobody knows.

In round t of T a coordinate of width D and m holders moves by the mean of their gradients times s,

    1/s = mean over holders of √(Tσ² + max(S, 0)) / (√m·d·D·(1 − (t − 1)/T)),      1/η = ρ = 1/2s

    g    z/η + ρw + λ − (1/η + ρ)z': an agent's noisy gradient, as its step has shown it, with what
         the constraints add to it
    S    Σ g² − σ² over the rounds before: what of the gradient is not noise
    σ²   the variance of the noise on g; that of all T rounds stands there from the first one on, so
         that noise moves a coordinate by about d·D/√3 in all, and no first step is pure noise
    d    how far the answer is, in widths: it starts small, and is at least ``growth`` times as far
         as any coordinate has come from its start beyond k√V; never more than MOST
    V    the variance of where a coordinate is by noise alone; k is what the largest of so many is

Private coordinates have no ρ, w and λ, m = 1, 1/η = 1/s, and a d of their agent's that is not below
that of all. Round 1, before any gradient was seen, takes its public bound for S.

Guarantee: S, V and d of what agents share follow from replies, public numbers and nothing else, and
so do the numbers 1/s that a server tells; those of private coordinates follow from the agent's own
noisy points as well. All of it is post-processing of what the noise covers, whatever a server tells
an agent: no proof of a sensitivity speaks of steps. The theorems of Section 5 do not cover this
rule, as its penalty may fall.

NumPy's arrays and JAX's alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit._types import Array, Vector
from tacit.admm.algorithm import Holders, Round, average_over_holders
from tacit.admm.problem import LocalProblem, Problem, start_point
from tacit.admm.settings import AdaptiveStep, Settings
from tacit.sets.feasible_set import FeasibleSet

MOST = 0.2  # widths
UNSEEN = 1e-12  # of the squared bound of gradients: where none was ever seen, and no noise is
LEAST_WIDTH = 1e-6  # of the largest
RANGE = 1e-15, 1e15  # of 1/s


class Ground(NamedTuple):
    """What is known of some coordinates beforehand. ``scale``: √m·D; ``bound``: of gradients."""

    width: Array
    start: Array
    scale: Array
    variance: Array
    margin: Array  # k
    bound: Array
    rounds: Array
    growth: Array
    most: Array


class Pace(NamedTuple):
    """What a run has learned of them: S, V and d; and what ``gap_of`` takes: sums over the second
    half of the rounds of g (``pull``) and of g'z (``inner``), of the consensus over all agents."""

    energy: Array
    wander: Array
    pull: Array
    inner: Array
    reach: Array

    @classmethod
    def first(cls, many: int, of: int, settings: Settings) -> Pace:
        assert isinstance(settings.step_size, AdaptiveStep)
        reach = np.float64(settings.step_size.reach)
        return cls(np.zeros(many), np.zeros(of), np.zeros(of), np.float64(0), reach)

    @classmethod
    def unpacked(cls, values: Array, many: int, of: int) -> Pace:
        energy, wander = values[..., :many], values[..., many : many + of]
        pull = values[..., many + of : -2]
        return cls(energy, wander, pull, values[..., -2], values[..., -1])

    def packed(self) -> Vector:
        """As a journal and a ledger keep it; of many agents, one after another."""
        return np.concatenate([*self[:3], np.stack(self[3:], axis=-1)], axis=-1)


def ground(
    settings: Settings, width: Vector, start: Vector, variance: Vector, scale: Vector, many: int
) -> Ground:
    """Of coordinates: any of ``many`` may be the one that has come farthest."""
    step = settings.step_size
    assert isinstance(step, AdaptiveStep)
    k = max(0.0, math.sqrt(2 * math.log(2 * max(many, 1))) - 1.5)
    about = k, step.gradient, settings.rounds, step.growth, max(MOST, step.reach)
    return Ground(width, start, scale, variance, *map(np.float64, about))


def ground_of_agent(agent: LocalProblem, settings: Settings) -> Ground:
    """Of all coordinates of an agent, for those that are private."""
    width, start, noise = _known(agent, settings)
    private = np.asarray(agent.coupling) < 0
    return ground(settings, width, start, noise, width, int(private.sum()))


def ground_of_consensus(problem: Problem, settings: Settings) -> Ground:
    """Of all global coordinates: means over the holders. ``scale`` and ``variance`` of what agents
    hold, one after another."""
    held = [np.asarray(agent.coupling) >= 0 for agent in problem.agents]
    index = np.concatenate(
        [np.asarray(a.coupling)[h] for a, h in zip(problem.agents, held, strict=True)]
    )
    holders = Holders.of([index], problem.size, np.float64)
    known = [_known(agent, settings) for agent in problem.agents]
    width, start, noise = (
        np.concatenate([part[h] for part, h in zip(parts, held, strict=True)])
        for parts in zip(*known, strict=True)
    )
    width, start = (average_over_holders(x, holders) for x in (width, start))
    scale = (np.sqrt(holders.count) * width)[index]
    return ground(settings, width, start, noise, scale, problem.size)


def _known(agent: LocalProblem, settings: Settings) -> tuple[Vector, Vector, Vector]:
    """Width, start and variance of the noise on the gradient, of an agent's coordinates."""
    noise = settings.variance_on(agent) * np.asarray(agent.objective.deviations) ** 2
    width = np.asarray(agent.feasible_set.widths, np.float64)
    least = LEAST_WIDTH * (float(width.max(initial=0.0)) or 1.0)  # one that is fixed takes any step
    return np.maximum(width, least), np.asarray(start_point(agent), np.float64), noise


def farther(
    reach: Array, wander: Array, known: Ground, z: Array, mask: Array | float = 1.0
) -> Array:
    """d, now that coordinates are at z."""
    beyond = (abs(z - known.start) - known.margin * wander**0.5) / known.width
    return (known.growth * (beyond * mask).max()).clip(reach, known.most)


def inverse(energy: Array, reach: Array, known: Ground, t: Array) -> Array:
    """1/s of every agent's own: √(Tσ² + max(S, 0)) / (√m·d·D·(1 − (t − 1)/T))."""
    unseen = known.bound**2 * ((t == 1) * 1.0 + UNSEEN)
    seen = known.rounds * known.variance + energy.clip(0) + unseen
    return seen**0.5 / (reach * known.scale * (1 - (t - 1) / known.rounds))


def consensus_steps(
    pace: Pace, known: Ground, z: Array, t: Array, holders: Holders
) -> tuple[Array, Array]:
    """d and 1/s of every global coordinate for round t."""
    reach = farther(pace.reach, pace.wander, known, average_over_holders(z, holders))
    each = inverse(pace.energy, reach, known, t)
    return reach, average_over_holders(each, holders).clip(*RANGE)


def own_steps(
    pace: Pace, known: Ground, coupled: Array, z: Array, told: tuple[Array, Array], t: Array
) -> tuple[Array, Array, Array]:
    """An agent's d, and ρ and η of its coordinates, in its number format. ``told``: d of all, and
    1/s of its coupled coordinates."""
    reach, c = told
    reach = farther(reach.clip(pace.reach), pace.wander, known, z, 1.0 - coupled)
    own = inverse(pace.energy, reach, known, t).clip(*RANGE)
    ρ = coupled * c / 2
    return reach, ρ.astype(z.dtype), (1 / (ρ + (1 - coupled) * own)).astype(z.dtype)


def learned(
    pace: Pace, known: Ground, reach: Array, now: Round, coupled: Array, z: Array, point: Array
) -> Pace:
    """After an agent has moved from z to ``point``."""
    g, late = _shown(now, coupled, z, point), 1.0 * (2 * now.t > known.rounds)
    energy = pace.energy + g**2 - known.variance
    wander = pace.wander + known.variance * now.η.astype(float) ** 2
    return Pace(energy, wander, pace.pull + late * g, pace.inner + late * (g * z).sum(), reach)


def consensus_learned(
    pace: Pace, known: Ground, reach: Array, now: Round, z: Array, points: Array, holders: Holders
) -> Pace:
    """After all agents have: ``now``, z and points of what each holds, one after another."""
    g = _shown(now, 1.0, z, points)
    energy, late = pace.energy + g**2 - known.variance, 1.0 * (2 * now.t > known.rounds)
    wander, pull, inner = (
        average_over_holders(x, holders) * holders.count
        for x in (known.variance / (1 / now.η + now.ρ) ** 2, g, g * z)
    )
    return Pace(
        energy,
        pace.wander + wander / holders.count**2,
        pace.pull + late * pull,
        pace.inner + late * inner.sum(),
        reach,
    )


class Gap(NamedTuple):
    """A public estimate of F − F*, on average over the second half of the rounds.

    bound   Σ_p mean of g_p'z_p, less the least of (Σ_p mean of g_p)'y over y in the set. By
            convexity it is not below the mean of F(z) − F*, on average over the noise, where
            gradients are not clipped and steps ended inside of the set; constraints take a little
            from it, the less the shorter steps have become
    noise   what it would be on average were there no gradient but the noise

    It follows from noisy messages, and costs no privacy.
    """

    bound: float
    noise: float

    @property
    def finished(self) -> bool:
        return self.bound <= 2 * self.noise

    def __str__(self) -> str:
        if self.finished:
            return (
                f"What is left, about {self.bound:.2g} or less if no gradient was clipped, is what "
                "the noise explains."
            )
        return (
            f"Not finished: up to {self.bound:.2g} may be left, if no gradient was clipped; "
            f"the noise explains {self.noise:.2g} of it. More rounds, another reach, or units "
            "in which the coordinates are alike would help."
        )


FAR = 1e4  # widths of a set, from where its points of the least product are seen
DRAWS = 16  # of noise, to learn what it explains


def gap_of(
    pull: Vector,
    inner: float,
    variance: Vector,
    rounds: int,
    least: Callable[[Vector], float],
    middle: Vector,
    draws: int = DRAWS,
) -> Gap:
    """After the last round: of what was summed over its second half, and the variance of the noise
    in a round's pull. ``least``: of q'y over all y that are allowed; ``middle``: one of these."""
    half = rounds - rounds // 2
    rng, deviation = np.random.default_rng(0), np.sqrt(variance / half)
    drawn = deviation * rng.standard_normal((draws, len(pull)))
    noise = float(np.mean([q @ middle - least(q) for q in drawn]))
    return Gap(max(inner / half - least(pull / half), 0.0), noise)


def gap_in_common(pace: Pace, known: Ground, problem: Problem, W: FeasibleSet) -> Gap:
    """Where all agents hold all coordinates; W has the set of all in it."""
    index = np.concatenate([np.asarray(agent.coupling) for agent in problem.agents])
    far, middle = FAR * float(W.diameter), np.asarray(W.project(np.zeros(problem.size)), float)

    def least(q: Vector) -> float:
        size = float(np.linalg.norm(q))
        y = np.asarray(W.project(-far / size * q), np.float64) if size > 0 else middle
        return float(q @ y)

    about = np.asarray(pace.pull), float(pace.inner), np.bincount(index, known.variance)
    return gap_of(*about, int(known.rounds), least, middle)


def gap_apart(paces: Sequence[Vector], problem: Problem, settings: Settings) -> Gap:
    """Where agents keep coordinates: of what each has learned, as its owner knows it."""
    from tacit.admm.reference import least_over, places_of

    places, size = places_of(problem)
    pull, variance, middle, inner = np.zeros(size), np.zeros(size), np.zeros(size), 0.0
    for agent, at, packed in zip(problem.agents, places, paces, strict=True):
        pace = Pace.unpacked(packed, len(at), len(at))
        pull[at] += pace.pull
        inner += float(pace.inner)
        variance[at] += ground_of_agent(agent, settings).variance
        middle[at] = start_point(agent)
    least = least_over(problem, places, size)  # a linear program each time
    return gap_of(pull, inner, variance, settings.rounds, least, middle, DRAWS // 4)


def _shown(now: Round, coupled: Array | float, z: Array, point: Array) -> Array:
    """The gradient that an agent's step has shown, in float64."""
    _, w, λ, ρ, η = (np.float64(1) * x for x in now)
    return z / η + coupled * (ρ * w + λ) - (1 / η + coupled * ρ) * point


def is_adaptive(settings: Any) -> bool:
    return isinstance(settings.step_size, AdaptiveStep)
