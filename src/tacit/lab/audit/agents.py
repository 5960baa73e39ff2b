"""The audit through agents as users run them: ``Agent.respond``, a ledger file, secure noise.

Every trial is a fresh agent that pays from a fresh ledger file. The adversary is the server:
it chooses every consensus, sees every reply and every failure, and knows all but whether the canary
is there. What it broadcasts is fixed in advance, a *plan* of one vector a round, ordinary or
hostile. With one local update a round a reply is the local point itself. On a problem with private
coordinates the adversary is given these too, as the statement counts them as released.

The attacks are those of ``trials.py``, and two more:

    restart     the same round of two starts, ‖ξ₀ − ξ₀'‖ against ‖ξ₁ − ξ₁'‖: was noise repeated?
    failure     the number of rounds that were answered: a failed round is an observation

The claim is what the ledgers say was spent.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit._types import Array
from tacit.admm import algorithm, local_side
from tacit.admm.algorithm import Local, Round, Rule
from tacit.admm.local_side import start_point
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings, schedule_in
from tacit.errors import InvalidInput, SolverFailure
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.lab.audit.report import Audit, judged, prepared
from tacit.lab.audit.trials import (
    BATCH,
    BLACK,
    TELLING,
    TINY,
    WHITE,
    Seen,
    Stage,
    decoded,
    likelihood,
    scores,
)
from tacit.lab.audit.trials import stage_of as public_side
from tacit.privacy.accounting import Guarantee, exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Noiseless
from tacit.privacy.secure_noise import GridNoise, secure_noise
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast

Begin = Callable[[LocalProblem, Settings, str, Ledger], Agent]
Update = Callable[[Local, Array, Round], Array]  # without noise
AGENTS = (*WHITE, "restart", "failure")
HUGE = {"float64": 1e55, "float32": 1e30}  # of a hostile consensus; a solver gets 1e6
DIRECTIONS = 512  # in which a hostile server tries to push a projection out
MEMORY = "/dev/shm"  # ledgers of trials lie here if they can: what is audited is no disk


def size_of(problem: LocalProblem) -> int:
    """The number of global coordinates that the agent takes part in."""
    return 1 + int(np.asarray(problem.coupling).max())


def ordinary(worlds: Worlds, rounds: int) -> Array:
    """A plan that says where the agent starts, in every round."""
    problem = worlds.without
    held = np.flatnonzero(np.asarray(problem.coupling) >= 0)
    w = np.zeros(size_of(problem))
    w[np.asarray(problem.coupling)[held]] = start_point(problem)[held]
    return np.tile(w, (rounds, 1))


def hostile(worlds: Worlds, settings: Settings, seed: int = 0) -> Array:
    """A plan that drives the agent far away, cancels the dual that follows, and goes on as usual.

    The second gradient is taken where the first answer led to. Of many directions the one is taken
    after which the second answers in the two worlds differ most, or in which a round fails.
    """
    settings, problem = worlds.scheduled(settings), worlds.without
    plan, dtype = ordinary(worlds, settings.rounds), problem.dtype
    rng, shape = np.random.default_rng(seed), (DIRECTIONS, plan.shape[1])
    last_bits = 1 + np.finfo(dtype).eps * rng.integers(0, 5, shape)  # ties, or nearly: worst
    directions = rng.uniform(0.1, 1, (DIRECTIONS, 1)) * last_bits
    far, best = 1e6, 0
    if problem.feasible_set.closed_form and settings.rounds > 1:
        far = HUGE[dtype.name]
        pulls = (far * directions)[:, np.asarray(problem.coupling)] * problem.coupled
        sides, start = _silent(worlds, settings), start_point(problem)
        found = [_apart(w, sides, settings, start) for w in pulls.astype(dtype)]
        best = int(np.argmax(found))
    plan[0] = far * directions[best]
    plan[1:2] = -plan[0]
    return plan


def _silent(worlds: Worlds, settings: Settings) -> list[Local]:
    """Both worlds as an agent with secure noise computes them, with noise that is zero."""
    f = worlds.without.objective
    silent = []
    for side in _guesses(worlds, settings):
        secure = secure_noise(
            settings.mechanism, side.Δ, f.statistic_size, settings.updates, settings.delta
        )
        zero = np.zeros((1, f.statistic_size), np.int64)
        silent.append(side._replace(mechanism=GridNoise(zero, np.float64(secure.spacing))))
    return silent


def _apart(w: Array, sides: Sequence[Local], settings: Settings, start: Array) -> float:
    """How far the points of two worlds are apart after w and −w; infinite if a round fails.

    By the agent's own compiled round with noise of zero: the last bits matter.
    """
    compiled = jax.jit(algorithm.local_round, static_argnames="rule")
    ends = []
    for side in sides:
        assert side.W is not None
        rule = settings.rule(side.W.separable)
        z, λ = start, np.zeros_like(start)
        for t, consensus in enumerate((w, -w), 1):
            ρ, η = (x[0] for x in schedule_in(z.dtype, settings, t, t))
            z = np.asarray(compiled(z, Round(t, consensus, λ, ρ, η), side, rule=rule)[0])
            λ = algorithm.dual_step(λ, ρ, consensus, z * side.coupled)
        ends.append(z)
    apart = float(np.abs(ends[1] - ends[0]).max())
    return math.inf if math.isnan(apart) else apart


def _guesses(worlds: Worlds, settings: Settings) -> list[Local]:
    """Both worlds without noise."""
    key = jax.random.key(0)
    sides = [local_side.local_side(p, settings, key, p.dtype) for p in worlds.problems]
    return [side._replace(mechanism=Noiseless()) for side in sides]


def paying(block: int = 1) -> Begin:
    """Agents as users begin them: with a ledger, hence with secure noise."""

    def begin(problem: LocalProblem, settings: Settings, run: str, ledger: Ledger) -> Agent:
        name, size = problem.name, size_of(problem)
        return Agent(problem, name, settings, None, run, size, ledger=ledger, block=block)

    return begin


def audit_agents(
    worlds: Worlds,
    settings: Settings,
    plans: Sequence[Array] = (),
    *,
    trials: int = 1000,
    confidence: float = 0.99,
    claim: Guarantee | None = None,
    begin: Begin | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """``audit`` through agents: so many trials in each world, then lower bounds on ε.

    ``plans`` are what the server broadcasts, one plan for every start of the agent in a trial; by
    default one start and ``ordinary``. ``begin`` makes an agent from problem, settings, run and
    ledger. ``claim`` is by default the largest total that a trial's ledger shows.

    Guarantee: as ``audit``. The noise has no seed, so no two audits are the same.
    """
    settings = prepared(worlds, settings, trials, confidence, claim)
    if settings.local_updates != 1:
        raise InvalidInput(
            f"Expected one local update a round to audit agents, got {settings.local_updates}: "
            "replies are then the local points. Nothing was run."
        )
    plans = [np.asarray(p, np.float64) for p in plans] or [ordinary(worlds, settings.rounds)]
    begin = begin or paying()
    watched, spent = [], 0.0
    for problem in worlds.problems:
        points, most = _watch(problem, settings, plans, trials, begin, progress)
        watched.append(points)
        spent = max(spent, most)
    updates = settings.updates * len(plans)
    if claim is None:
        whole = exact(settings.mechanism, updates, settings.delta)
        claim = Guarantee(spent, settings.delta) if spent else whole
    found = _scores(worlds, settings, plans, watched)
    return judged(worlds, settings, claim, found, AGENTS, updates, confidence, None, "agents")


def _watch(
    problem: LocalProblem,
    settings: Settings,
    plans: Sequence[Array],
    trials: int,
    begin: Begin,
    progress: Callable[[int], None],
) -> tuple[Array, float]:
    """Local points (trials × plans × rounds + 1 × n), NaN after a failure; and the most spent."""
    T, n = settings.rounds, problem.dimension
    points = np.full((trials, len(plans), T + 1, n), np.nan, problem.dtype)
    budget = 1.01 * exact(settings.mechanism, settings.updates * len(plans), settings.delta).epsilon
    totals: dict[int, float] = {}  # by the number of rounds that were paid for
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        for i in range(trials):
            path = Path(folder) / f"{i}.db"
            with Ledger.create(path, budget, settings.delta) as ledger:
                for k, plan in enumerate(plans):
                    party = begin(problem, settings, f"trial-{k}", ledger)
                    seen = _asked(party, plan)
                    points[i, k, : len(seen)] = seen
                paid = _paid(ledger, len(plans))
                if paid not in totals:
                    totals[paid] = ledger.spent.epsilon
            path.unlink()
            progress(1)
    return points, max(totals.values())


def _paid(ledger: Ledger, runs: int) -> int:
    blocks = [block for k in range(runs) for block in ledger.charged(f"trial-{k}")]
    return sum(last - first + 1 for first, last in blocks)


def _asked(party: Agent, plan: Array) -> list[Array]:
    """The agent's points while the server goes through its plan, up to a failure."""
    points, last = [party.point], dict[str, str]()
    for t, w in enumerate(plan, 1):
        try:
            reply = party.respond(Broadcast(party.run, t, w, last))
        except SolverFailure:
            break
        points.append(party.point)
        last = {party.name: reply.digest}
    return points


def _scores(
    worlds: Worlds, settings: Settings, plans: Sequence[Array], watched: Sequence[Array]
) -> tuple[Array, Array]:
    """Scores (attacks × trials) in both worlds, in the order of AGENTS and BLACK."""
    problem = worlds.without
    stage = public_side(worlds, settings)
    rule = settings.rule(problem.feasible_set.separable)
    guesses = _guesses(worlds, settings)
    coupling = np.asarray(problem.coupling)
    local = [(p[:, coupling] * stage.coupled).astype(problem.dtype) for p in plans]
    update: Update = partial(_update, rule=rule)
    if problem.feasible_set.closed_form:
        update = jax.jit(update)  # anew in every audit, so that it is the code as it is now
    finals = [np.asarray(_final(g, stage, update, local[-1])) * stage.coupled for g in guesses]
    recompute = _recompute(stage, rule)
    rows, telling = [], None
    for points in watched:
        starts = range(len(plans))
        after = np.concatenate([points[:, k, 1:] for k in starts], axis=1)
        quiet = [
            np.concatenate([recompute(guess, points[:, k], local[k]) for k in starts], axis=1)
            for guess in guesses
        ]
        first, second = (decoded(after.astype(np.float64) - z, stage.decode) for z in quiet)
        if telling is None:
            size = np.nansum(np.abs(first - second), axis=(0, 1))
            telling = np.argsort(-size)[:TELLING]
        norm = settings.mechanism.norm
        last = points[:, -1, -1] * stage.coupled
        each = zip(first, second, last, strict=True)
        mine = [_score(*one, finals, stage, telling, norm) for one in each]
        rows.append(np.insert(mine, len(WHITE), _restart(first, second, len(plans)), axis=1))
    return np.array(rows[0]).T, np.array(rows[1]).T


def _score(
    first: Array, second: Array, last: Array, finals: Any, stage: Stage, telling: Array, norm: int
) -> Array:
    """The scores of one trial."""
    answered = np.isfinite(first).all(axis=1)
    first, second = first[answered], second[answered]
    if not len(first):
        return np.append(np.zeros(len(WHITE) + 1), np.full(len(BLACK), np.nan))
    told = first[:, telling], second[:, telling]
    size = (first * first + second * second).sum()
    found = scores(Seen(likelihood(first, second, norm), size, told, last), finals, stage)
    return np.insert(found, len(WHITE), len(first))


def _restart(first: Array, second: Array, starts: int) -> Array:
    """Of each trial: how much nearer to each other two starts' noise is in world 0 than in 1."""
    apart = [np.diff(x.reshape(len(x), starts, -1, x.shape[-1]), axis=1) for x in (first, second)]
    sizes = [np.log(np.nansum(x * x, axis=(1, 2, 3)) + TINY) for x in apart]
    return sizes[0] - sizes[1]


def _round(t: int, w: Array, λ: Array, stage: Stage) -> Round:
    return Round(t, w, λ, stage.ρ[t - 1], stage.η[t - 1])


def _update(guess: Local, z: Array, now: Round, rule: Rule) -> Array:
    """An update without noise."""
    return algorithm.local_update(z, 0, now, guess, rule)[0]


def _final(guess: Local, stage: Stage, update: Update, w: Sequence[Array]) -> Array:
    """The last point of a run without noise."""
    z, λ = stage.start, np.zeros_like(stage.start)
    for t in range(1, len(w) + 1):
        now = _round(t, w[t - 1], λ, stage)
        z = update(guess, z, now)
        λ = algorithm.dual_step(λ, now.ρ, w[t - 1], z * stage.coupled)
    return z


def _recompute(stage: Stage, rule: Rule) -> Callable[[Local, Array, Array], Array]:
    """What every update would have given without noise, from where it began: (trials × rounds × n).

    Takes a world, points and the plan. Duals follow from the replies.
    """
    update = partial(_update, rule=rule)
    each = jax.vmap(jax.vmap(update, (None, 0, 0)), (None, 0, Round(None, None, 0, None, None)))
    compiled = jax.jit(each)  # anew in every audit, so that it is the code as it is now

    def recompute(guess: Local, points: Array, w: Array) -> Array:
        before, T = points[:, :-1], len(w)
        λ = np.zeros_like(before)
        for t in range(1, T):
            shared = points[:, t] * stage.coupled
            λ[:, t] = algorithm.dual_step(λ[:, t - 1], stage.ρ[t - 1], w[t - 1], shared)
        assert guess.W is not None
        quiet = np.full_like(before, np.nan)
        if guess.W.closed_form:
            size = min(len(before), max(1, BATCH // before[0].size))
            for at in range(0, len(before), size):
                part = slice(min(at, len(before) - size), at + size)  # all of one size
                now = Round(stage.rounds, w, λ[part], stage.ρ, stage.η)
                quiet[part] = compiled(guess, before[part], now)
            return quiet
        opening = update(guess, stage.start, _round(1, w[0], λ[0, 0], stage))
        quiet[:, 0] = opening  # the same in all trials: a solver's work saved
        for i, t in np.argwhere(np.isfinite(points[:, 2:]).all(axis=2)):
            now = _round(t + 2, w[t + 1], λ[i, t + 1], stage)
            quiet[i, t + 1] = update(guess, before[i, t + 1], now)
        return quiet

    return recompute
