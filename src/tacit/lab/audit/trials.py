"""Many independent runs of one agent in each world, and what an adversary makes of each.

Every run is the library's own code: ``local_side``, ``agent_key`` and the steps of
``algorithm.py``, for one agent and a silent one whose replies never change. The adversary knows all
but whether the canary is there. In the *white-box* form it sees every local point z^{t,e}, which is
what the privacy statement counts as released, and with it w and λ. From each point and what the
update would have given without noise in either world it estimates the noise, ξ₀ and ξ₁. In the
*black-box* form it sees the coupled part of the last average only.

    likelihood      Σ ‖ξ₀‖² − ‖ξ₁‖² (Laplace: of |·|): the likelihood ratio, if the code is right
    magnitude       Σ ‖ξ₀‖² + ‖ξ₁‖²: does the size of the noise depend on the canary?
    single update   the smallest ‖ξ₀‖ against the smallest ‖ξ₁‖: is an update without noise?
    repetition      the same of differences between two updates: was noise used twice?

Any score is sound. A poor one only finds less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array
from tacit.admm import algorithm, local_side
from tacit.admm.algorithm import Holders, Local, Round, Rule
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.lab.audit.neighbouring_data import Worlds, moved
from tacit.objectives.residual import Residual
from tacit.privacy.mechanisms import Mechanism, Noiseless
from tacit.protocol.keys import agent_key

WHITE = ("likelihood", "magnitude", "single update", "repetition")
BLACK = ("likelihood of the last model", "magnitude of the last model")
RUN = "audit"
BATCH = 6_000_000  # numbers in one array of a batch of runs
FAINT = 0.02  # directions of the noise that a solver's answer hardly shows, against the clearest
TELLING = 32  # entries that are looked at for missing and repeated noise
TINY = 1e-300


class Stage(NamedTuple):
    """What is public and the same in all runs."""

    start: Array
    coupled: Array
    holders: Holders  # of the audited agent and the silent one
    rounds: Array  # t = 1, ..., T
    ρ: Array
    η: Array
    decode: Array  # from a difference of points to noise: one factor per entry, or a matrix
    decode_last: Array  # the same for the last average
    telling: Array  # entries of the noise in which the two worlds differ most


class Seen(NamedTuple):
    """What the adversary keeps of one run."""

    likelihood: Array  # Σ of the two norms' difference
    magnitude: Array  # Σ of their squares
    told: tuple[Array, Array]  # ξ₀ and ξ₁ of every update, in the telling entries
    last: Array  # the coupled part of the last average


Opening = tuple[Array, Array] | None  # the first update without noise in both worlds, if known


def stage_of(worlds: Worlds, settings: Settings) -> Stage:
    """The public side, and how the adversary reads noise off a point.

    While the projection does nothing, a point moves by ξ/c. Noise on a residual reaches it through
    a matrix, and often a solver: that answer is measured once and inverted.
    """
    problem = worlds.without
    n, dtype = problem.dimension, problem.dtype
    ρ, η = (x.astype(dtype) for x in settings.schedule(1, settings.rounds))
    holders = Holders.of([np.arange(n)] * 2, n, dtype)
    start = local_side.start_point(problem)
    rounds = np.arange(1, settings.rounds + 1)
    c = 1 / η[0] + ρ[0] * problem.coupled
    weight = c if problem.feasible_set.separable else np.sqrt(c)  # as noise on the output has it
    last = weight * problem.coupled
    stage = Stage(start, problem.coupled, holders, rounds, ρ, η, weight, last, np.arange(n))
    f = problem.objective
    on_residual = isinstance(f, Residual) and f.noise_on == "residual"
    if on_residual and settings.perturbation == "objective":
        response = _response(problem, settings, stage)
        seen = response * problem.coupled[:, None]
        decode, decode_last = (np.linalg.pinv(x, rcond=FAINT) for x in (response, seen))
        entries = np.arange(f.statistic_size)
        return stage._replace(decode=decode, decode_last=decode_last, telling=entries)
    return stage


def _response(problem: LocalProblem, settings: Settings, stage: Stage) -> Array:
    """How the first update answers noise on each entry of the residual: by differences."""
    f = problem.objective
    assert isinstance(f, Residual)
    side = local_side.local_side(problem, settings, jax.random.key(0), problem.dtype)
    rule = settings.rule(problem.feasible_set.separable)
    now = Round(1, stage.start * stage.coupled, np.zeros_like(stage.start), stage.ρ[0], stage.η[0])
    Δ = f.sensitivity(settings.mechanism.norm, problem.feasible_set)
    step = float(np.sqrt(settings.mechanism.variance(Δ))) / 2

    def update(change: Array) -> Array:
        quiet = side._replace(f=moved(f, change), mechanism=Noiseless())
        return algorithm.local_update(stage.start, 0, now, quiet, rule)[0]

    steps = step * np.eye(f.statistic_size)
    return np.stack([(update(s) - update(-s)) / (4 * step) for s in steps], axis=1)


def observe(
    local: Local, guesses: tuple[Local, Local], stage: Stage, rule: Rule, opening: Opening = None
) -> Seen:
    """One run of ``local``; ``guesses`` are the two worlds without noise."""
    assert isinstance(local.mechanism, Mechanism)
    host, norm = local.W is not None and not local.W.closed_form, local.mechanism.norm

    joined: Any = np.concatenate if host else jnp.concatenate
    stacked: Any = np.stack if host else jnp.stack

    def without_noise(world: int, before: Array, now: Round) -> Array:
        def update(z: Array, e: Array) -> Array:
            return algorithm.local_update(z, e, now, guesses[world], rule)[0]

        updates = np.arange(rule.local_updates)
        if not host:
            return jax.vmap(update)(before, updates)
        known = opening if now.t == 1 else None  # the first update of a run starts where all do
        points = [
            known[world] if known is not None and e == 0 else update(z, e)
            for e, z in zip(updates, before, strict=True)
        ]
        return np.stack(points)

    def one_round(state: tuple[Array, ...], item: tuple[Array, ...]) -> tuple[Any, Any]:
        z, average, λ, silent_λ = state
        t, ρ, η = item
        pair = joined([average * stage.coupled, stage.start * stage.coupled])
        w = algorithm.server_step(pair, joined([λ, silent_λ]), ρ, stage.holders) * stage.coupled
        now = Round(t, w, λ, ρ, η)
        z, average, path = _local_points(z, now, local, rule)
        before, after = stacked(path[:-1]), stacked(path[1:])
        first, second = (
            decoded(after - without_noise(world, before, now), stage.decode) for world in (0, 1)
        )
        found = (
            likelihood(first, second, norm),
            (first * first + second * second).sum(),
            (first[:, stage.telling], second[:, stage.telling]),
        )
        shared = average * stage.coupled
        λ = algorithm.dual_step(λ, ρ, w, shared)
        silent_λ = algorithm.dual_step(silent_λ, ρ, w, stage.start * stage.coupled)
        return (z, average, λ, silent_λ), found

    zero = 0 * stage.start
    state: Any = (stage.start, stage.start, zero, zero)
    items = (stage.rounds, stage.ρ, stage.η)
    if host:
        every = []
        for item in zip(*items, strict=True):
            state, found = one_round(state, item)
            every.append(found)
        found = jax.tree.map(lambda *parts: np.stack(parts), *every)
    else:
        state, found = jax.lax.scan(one_round, state, items)
    ratio, magnitude, told = found
    first, second = (noise.reshape(-1, noise.shape[-1]) for noise in told)
    return Seen(ratio.sum(), magnitude.sum(), (first, second), state[1] * stage.coupled)


def decoded(difference: Array, decode: Array) -> Array:
    return difference @ decode.T if decode.ndim == 2 else decode * difference


def _local_points(
    z: Array, now: Round, local: Local, rule: Rule
) -> tuple[Array, Array, list[Array]]:
    """A round's last point, its average, and z^{t,1}, ..., z^{t,E+1}.

    Shorter rounds have the same noise and end at the points between; the first of them follows
    from the average.
    """
    E = rule.local_updates
    last, average, _ = algorithm.local_round(z, now, local, rule)
    later = [
        algorithm.local_round(z, now, local, rule._replace(local_updates=k))[0] for k in range(2, E)
    ]
    later = [*later, last] if E > 1 else []
    first = E * average - sum(later) if later else last
    return last, average, [z, first, *later]


def scores(seen: Seen, finals: tuple[Array, Array], stage: Stage) -> Array:
    """One number per attack, in the order of WHITE and BLACK."""
    xp: Any = np if isinstance(seen.last, np.ndarray) else jnp

    def smallest(vectors: Array) -> Array:
        return xp.log((vectors * vectors).sum(axis=-1).min(initial=xp.inf) + TINY)

    def differences(noise: Array) -> Array:
        """Between neighbours in the order of one entry: where noise is repeated, they are two."""
        return xp.diff(noise[xp.argsort(noise[:, 0])], axis=0) if len(noise) > 1 else noise

    first, second = seen.told
    last = [decoded(seen.last - final, stage.decode_last) for final in finals]
    return xp.stack(
        [
            seen.likelihood,
            xp.log(seen.magnitude + TINY),
            smallest(first) - smallest(second),
            smallest(differences(first)) - smallest(differences(second)),
            likelihood(last[0], last[1], 2),
            xp.log((last[0] ** 2 + last[1] ** 2).sum() + TINY),
        ]
    )


def likelihood(first: Array, second: Array, norm: int) -> Array:
    if norm == 1:
        return (abs(first) - abs(second)).sum()
    return ((first - second) * (first + second)).sum()


def run_trials(
    worlds: Worlds,
    settings: Settings,
    trials: int,
    root: Array,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Array, Array]:
    """Scores (attacks × trials) in world 0 and in world 1, every run with a key of its own."""
    problem = worlds.without
    rule = settings.rule(problem.feasible_set.separable)
    stage = stage_of(worlds, settings)
    key = jax.random.key(0)  # every run replaces it
    sides = [local_side.local_side(p, settings, key, p.dtype) for p in worlds.problems]
    guesses = (
        sides[0]._replace(mechanism=Noiseless()),
        sides[1]._replace(mechanism=Noiseless()),
    )
    host = not problem.feasible_set.closed_form

    # All numbers are arguments: audits that differ in them alone are one program in JAX's cache.
    def look(
        local: Local, guesses: tuple[Local, Local], stage: Stage, opening: Opening = None
    ) -> Seen:
        return observe(local, guesses, stage, rule, opening)

    def scored(
        key: Array, side: Local, guesses: tuple[Local, Local], finals: Any, stage: Stage
    ) -> Array:
        return scores(look(side._replace(key=key), guesses, stage), finals, stage)

    # compiled anew in every audit, so that it is the code as it is now
    quiet_look = look if host else jax.jit(look)
    quiet = [quiet_look(guess, guesses, stage) for guess in guesses]
    finals = (np.asarray(quiet[0].last), np.asarray(quiet[1].last))
    size = np.abs(np.asarray(quiet[1].told[0])).sum(axis=0)
    stage = stage._replace(telling=np.argsort(-size)[:TELLING])
    every = jax.random.split(root, 2 * trials)
    keys = jax.vmap(lambda k: agent_key(k, RUN, 0))(every).reshape(2, trials)
    if host:
        opening = _opening(guesses, stage, rule)
    else:
        run = jax.jit(jax.vmap(scored, in_axes=(0, None, None, None, None)))
    found: list[Array] = []
    batch = 1 if host else min(trials, max(1, BATCH // (stage.start.size * settings.updates)))
    for mine, side in zip(keys, sides, strict=True):
        rows = []
        for at in range(0, trials, batch):
            if host:
                seen = look(side._replace(key=mine[at]), guesses, stage, opening)
                rows.append(scores(seen, finals, stage)[None])
            else:
                begin = min(at, trials - batch)  # all batches of one size: compiled once
                these = mine[begin : begin + batch]
                rows.append(np.asarray(run(these, side, guesses, finals, stage))[at - begin :])
            progress(len(rows[-1]))
        found.append(np.concatenate(rows).T)
    return found[0], found[1]


def _opening(guesses: tuple[Local, Local], stage: Stage, rule: Rule) -> tuple[Array, Array]:
    """The first update without noise: the same in all runs, and a solver's work saved."""
    zero = np.zeros_like(stage.start)
    now = Round(1, stage.start * stage.coupled, zero, stage.ρ[0], stage.η[0])
    first, second = (algorithm.local_update(stage.start, 0, now, g, rule)[0] for g in guesses)
    return first, second
