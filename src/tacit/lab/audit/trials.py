"""Many independent runs of one agent in each world, and what an adversary makes of each.

Every run is the library's own code. ``audit`` runs ``local_side``, ``agent_key`` and the steps of
``algorithm.py``, for one agent and a silent one whose replies never change. ``audit_agents`` runs
agents as users do: ``Agent.respond``, with a fresh ledger file and secure noise in every trial.
There the adversary is the server. What it broadcasts is fixed in advance, a *plan* of one vector a
round, ordinary or hostile, and it sees every reply and every failure; with one local update a round
a reply is the local point itself.

The adversary knows all but whether the canary is there. In the *white-box* form it sees every local
point z^{t,e}, private coordinates too, which is what the privacy statement counts as released, and
with it w and λ. From each point and what the update would have given without noise in either world
it estimates the noise, ξ₀ and ξ₁. In the *black-box* form it sees the coupled part of the last
average only.

    likelihood      Σ ‖ξ₀‖² − ‖ξ₁‖² (Laplace: of |·|): the likelihood ratio, if the code is right
    magnitude       Σ ‖ξ₀‖² + ‖ξ₁‖²: does the size of the noise depend on the canary?
    single update   the smallest ‖ξ₀‖ against the smallest ‖ξ₁‖: is an update without noise?
    repetition      the same of differences between two updates: was noise used twice?
    restart         the same round of two starts, ‖ξ₀ − ξ₀'‖ against ‖ξ₁ − ξ₁'‖: is noise repeated?
    failure         the number of updates that were answered: a failed round is an observation

Any score is sound. A poor one only finds less; the last two say something of agents only.

``audit_releases`` runs ``Reader``: in every trial it reads the data of one world, and another one
does on the same ledger, as after a restart. The adversary sees every release and scores its noise
likewise, with *single entry* (an entry without noise) for single updates, and *restart* between
releases: was noise used for other data? A release that was kept says the same again and adds
nothing to the likelihood; one with fresh noise does. There is no black-box form: whatever follows
from a release says no more than it.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.admm import algorithm
from tacit.admm.algorithm import Holders, Local, Round, Rule
from tacit.admm.problem import LocalProblem, start_point
from tacit.admm.settings import Settings, schedule_in
from tacit.errors import InvalidInput, SolverFailure, count
from tacit.lab.audit.bounds import Audit, judged, prepared
from tacit.lab.audit.neighbouring_data import Worlds, moved
from tacit.objectives.residual import Residual
from tacit.privacy.accounting import Guarantee, exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Noiseless
from tacit.privacy.secure_noise import GridNoise, secure_noise
from tacit.privacy.seeded_noise import agent_key, jax_key, root_key
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast
from tacit.protocol.release import Reader

Begin = Callable[[LocalProblem, Settings, str, Ledger], Agent]
Progress = Callable[[int], None]
WHITE = ("likelihood", "magnitude", "single update", "repetition", "restart", "failure")
RELEASES = ("likelihood", "magnitude", "single entry", "restart")
RUN = "audit"
BATCH = 6_000_000  # numbers in one array of a batch of runs
FAINT = 0.02  # directions of the noise that a solver's answer hardly shows, against the clearest
TELLING = 32  # entries that are looked at for missing and repeated noise
TINY = 1e-300
HUGE = {"float64": 1e55, "float32": 1e30}  # of a hostile consensus; a solver gets 1e6
DIRECTIONS = 512  # in which a hostile server tries to push a projection out
MEMORY = "/dev/shm"  # ledgers of trials lie here if they can: what is audited is no disk


# --- what the adversary sees, and the scores it makes of that -----------------------------------


class Known(NamedTuple):
    """What the adversary knows in every run: all that is public, and the data of both worlds."""

    worlds: tuple[Local, Local]  # without noise
    start: Array
    coupled: Array
    holders: Holders  # of the audited agent and the silent one
    rounds: Array  # t = 1, ..., T
    ρ: Array
    η: Array
    decode: Array  # from a difference of points to noise: one factor per entry, or a matrix
    decode_last: Array  # the same for the last average
    telling: Array  # entries of the noise in which the two worlds differ most
    finals: tuple[Array, Array]  # last averages of runs without noise

    @property
    def host(self) -> bool:
        """Whether projections run a solver, outside of JAX."""
        assert self.worlds[0].W is not None
        return not self.worlds[0].W.closed_form


class Seen(NamedTuple):
    """One run, update by update."""

    before: Array  # where each update began (updates × n); NaN after a failure
    after: Array
    now: Round  # what was public in each update
    last: Array  # the coupled part of the last average


def informed(worlds: Worlds, settings: Settings, rule: Rule, plan: Array | None = None) -> Known:
    """What is known before a run, and how the adversary reads noise off a point.

    While the projection does nothing, a point moves by ξ/c. Noise on a residual reaches it through
    a matrix, and often a solver: that answer is measured once and inverted.
    """
    problem = worlds.without
    n, dtype, f = problem.dimension, problem.dtype, problem.objective
    ρ, η = (x.astype(dtype) for x in settings.schedule(1, settings.rounds))
    c = 1 / η[0] + ρ[0] * problem.coupled
    weight = c if problem.feasible_set.separable else np.sqrt(c)  # as noise on the output has it
    start, silent = start_point(problem), Holders.of([np.arange(n)] * 2, n, dtype)
    quiet, decode, decode_last = _without_noise(worlds, settings), weight, weight * problem.coupled
    residual = isinstance(f, Residual) and f.noise_on == "residual"
    if residual and settings.perturbation == "objective":
        response = _response(problem, settings, quiet[0])
        seen = response * problem.coupled[:, None]
        decode, decode_last = (np.linalg.pinv(x, rcond=FAINT) for x in (response, seen))
    public = (start, problem.coupled, silent, np.arange(1, settings.rounds + 1), ρ, η)
    known = Known(quiet, *public, decode, decode_last, np.arange(1), (start, start))

    def look(side: Local, known: Known, plan: Array | None) -> tuple[Array, Array]:
        seen = run(side, known, rule, plan)
        return seen.last, noise(seen, known, rule)[0]

    # compiled anew in every audit, so that it is the code as it is now
    quiet_look = look if known.host else jax.jit(look)
    (first, _), (second, told) = (quiet_look(side, known, plan) for side in quiet)
    size = np.abs(np.asarray(told)).sum(axis=0)
    finals = np.asarray(first), np.asarray(second)
    return known._replace(telling=np.argsort(-size)[:TELLING], finals=finals)


def _without_noise(worlds: Worlds, settings: Settings) -> tuple[Local, Local]:
    without, with_canary = (_side(p, settings) for p in worlds.problems)
    quiet = Noiseless()
    return without._replace(mechanism=quiet), with_canary._replace(mechanism=quiet)


def _side(problem: LocalProblem, settings: Settings) -> Local:
    return algorithm.local_side(problem, settings, jax.random.key(0), problem.dtype)


def _response(problem: LocalProblem, settings: Settings, quiet: Local) -> Array:
    """How the first update answers noise on each entry of the residual: by differences."""
    f, start = problem.objective, start_point(problem)
    assert isinstance(f, Residual)
    rule = settings.rule(problem.feasible_set.separable)
    ρ, η = (x[0].astype(problem.dtype) for x in settings.schedule(1, 1))
    now = Round(1, start * problem.coupled, np.zeros_like(start), ρ, η)
    Δ = f.sensitivity(settings.mechanism.norm, problem.feasible_set)
    step = float(np.sqrt(settings.mechanism.variance(Δ))) / 2

    def update(change: Array) -> Array:
        return algorithm.local_update(start, 0, now, quiet._replace(f=moved(f, change)), rule)[0]

    steps = step * np.eye(f.statistic_size)
    return np.stack([(update(s) - update(-s)) / (4 * step) for s in steps], axis=1)


def run(local: Local, known: Known, rule: Rule, plan: Array | None = None) -> Seen:
    """One run of ``local`` beside the silent agent, or under a server that broadcasts ``plan``."""
    xp: Any = np if known.host else jnp
    E, start, coupled = rule.local_updates, known.start, known.coupled

    def one_round(state: tuple[Array, ...], item: tuple[Array, ...]) -> tuple[Any, Any]:
        z, average, λ, silent_λ = state
        t, ρ, η, w = item
        if plan is None:
            pair = xp.concatenate([average * coupled, start * coupled])
            duals = xp.concatenate([λ, silent_λ])
            w = algorithm.server_step(pair, duals, ρ, known.holders) * coupled
        now = Round(t, w, λ, ρ, η)
        z, average, path = local_points(z, now, local, rule)
        every = jax.tree.map(lambda x: xp.stack([x] * E), now)
        λ = algorithm.dual_step(λ, ρ, w, average * coupled)
        silent_λ = algorithm.dual_step(silent_λ, ρ, w, start * coupled)
        return (z, average, λ, silent_λ), (xp.stack(path[:-1]), xp.stack(path[1:]), every)

    zero = 0 * start
    state: Any = (start, start, zero, zero)
    items = (known.rounds, known.ρ, known.η, known.ρ if plan is None else plan)
    if known.host:
        each = []
        for item in zip(*items, strict=True):
            state, found = one_round(state, item)
            each.append(found)
        found = jax.tree.map(lambda *parts: np.stack(parts), *each)
    else:
        state, found = jax.lax.scan(one_round, state, items)
    before, after, now = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)
    return Seen(before, after, now, state[1] * coupled)


def local_points(
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


def replied(points: Array, plans: Array, known: Known) -> Seen:
    """A trial through agents: points of every start (starts × rounds + 1 × n) under its plan.

    Duals follow from the replies.
    """
    xp: Any = np if known.host else jnp
    starts, T, n = plans.shape
    duals = [0 * points[:, 0]]
    for t in range(T - 1):
        shared = points[:, t + 1] * known.coupled
        duals.append(algorithm.dual_step(duals[-1], known.ρ[t], plans[:, t], shared))
    t, ρ, η = (xp.tile(x, starts) for x in (known.rounds, known.ρ, known.η))
    now = Round(t, plans.reshape(-1, n), xp.stack(duals, axis=1).reshape(-1, n), ρ, η)
    before, after = points[:, :-1].reshape(-1, n), points[:, 1:].reshape(-1, n)
    return Seen(before, after, now, points[-1, -1] * known.coupled)


def noise(seen: Seen, known: Known, rule: Rule) -> tuple[Array, Array]:
    """The noise of every update as it would have to be in either world; NaN after a failure."""

    def without_noise(world: int) -> Array:
        def update(z: Array, now: Round) -> Array:
            return algorithm.local_update(z, 0, now, known.worlds[world], rule)[0]

        if not known.host:
            return jax.vmap(update)(seen.before, seen.now)
        quiet = np.full_like(seen.after, np.nan)
        for k in np.flatnonzero(np.isfinite(seen.after).all(axis=1)):
            quiet[k] = update(seen.before[k], Round(*(x[k] for x in seen.now)))
        return quiet

    first, second = (decoded(seen.after - without_noise(w), known.decode) for w in (0, 1))
    return first, second


def decoded(difference: Array, decode: Array) -> Array:
    return difference @ decode.T if decode.ndim == 2 else decode * difference


def scores(seen: Seen, known: Known, rule: Rule, norm: int, starts: int = 1) -> Array:
    """One number per attack, in the order of WHITE and BLACK."""
    xp: Any = np if known.host else jnp
    found = noise(seen, known, rule)
    answered = xp.isfinite(found[0]).all(axis=1)
    first, second = (xp.where(answered[:, None], x, 0) for x in found)

    def differences(noise: Array) -> Array:
        """Between neighbours in the order of one entry: where noise is repeated, they are two."""
        return xp.diff(noise[xp.argsort(noise[:, 0])], axis=0) if len(noise) > 1 else noise

    def by_start(noise: Array) -> tuple[Array, Array]:
        return noise.reshape(starts, -1, noise.shape[-1]), answered.reshape(starts, -1, 1)

    with np.errstate(invalid="ignore"):
        told = [xp.where(answered[:, None], x[:, known.telling], xp.inf) for x in (first, second)]
        last = [decoded(seen.last - final, known.decode_last) for final in known.finals]
        return xp.stack(
            [
                likelihood(first, second, norm),
                magnitude(first, second),
                smallest(told[0]) - smallest(told[1]),
                smallest(differences(told[0])) - smallest(differences(told[1])),
                apart(*by_start(first)) - apart(*by_start(second)),
                answered.sum(),
                likelihood(last[0], last[1], 2),
                magnitude(last[0], last[1]),
            ]
        )


def likelihood(first: Array, second: Array, norm: int) -> Array:
    if norm == 1:
        return (abs(first) - abs(second)).sum()
    return ((first - second) * (first + second)).sum()


def magnitude(first: Array, second: Array) -> Array:
    return _log((first * first + second * second).sum())


def smallest(vectors: Array) -> Array:
    """The log of the smallest squared length."""
    sizes = (vectors * vectors).sum(axis=-1)
    xp = jnp if isinstance(sizes, jax.Array) else np
    return _log(xp.where(sizes >= 0, sizes, xp.inf).min(initial=xp.inf))


def apart(noise: Array, answered: Array) -> Array:
    """Between one start and the next, where both answered."""
    xp = jnp if isinstance(noise, jax.Array) else np
    return _log((xp.diff(noise, axis=0) ** 2 * (answered[1:] & answered[:-1])).sum())


def _log(size: Array) -> Array:
    return (jnp if isinstance(size, jax.Array) else np).log(size + TINY)


def _in_batches(score: Callable[..., Array], known: Known, updates: int) -> Callable[..., Array]:
    """``score`` of many runs (attacks × runs), compiled once; on the host one after another.

    All numbers are arguments: audits that differ in them alone are one program in JAX's cache.
    """
    compiled = jax.jit(lambda many, *same: jax.vmap(lambda one: score(one, *same))(many))

    def every(many: Array, *same: Any, progress: Progress = lambda done: None) -> Array:
        trials, rows = len(many), []
        size = 1 if known.host else min(trials, max(1, BATCH // (known.start.size * updates)))
        for at in range(0, trials, size):
            begin = min(at, trials - size)  # all batches of one size
            if known.host:
                rows.append(score(many[at], *same)[None])
            else:
                rows.append(np.asarray(compiled(many[begin : begin + size], *same))[at - begin :])
            progress(len(rows[-1]))
        return np.concatenate(rows).T

    return every


# --- rounds -------------------------------------------------------------------------------------


def audit(
    worlds: Worlds,
    settings: Settings,
    *,
    trials: int = 20_000,
    confidence: float = 0.99,
    claim: Guarantee | None = None,
    seed: int | None = None,
    progress: Progress = lambda done: None,
) -> Audit:
    """Run ``trials`` trials in each world, let the adversary guess, and bound ε from below.

    ``claim`` is by default what Tacit states for the settings: their exact composition.
    ``progress`` is told the number of trials just done.

    Guarantee: if the worlds are neighbours and the claim is true, the audit says "VIOLATED" with
    probability at most 1 − ``confidence``, whatever the attacks do. Tacit's own claims are whole
    trade-off curves. A claim of a single (ε, δ) is also held against the curve of its mechanism,
    which assumes that what is seen is noise of that kind. The other way round nothing is promised:
    what these worlds and attacks do not show is not found.
    """
    settings = prepared(worlds, settings, trials, confidence, claim)
    claim = claim or exact(settings.mechanism, settings.updates, settings.delta)
    found = run_trials(worlds, settings, trials, jax_key(root_key(seed)), progress)
    return judged(worlds, settings, claim, found, WHITE, settings.updates, confidence, seed)


def run_trials(
    worlds: Worlds,
    settings: Settings,
    trials: int,
    root: Array,
    progress: Progress = lambda done: None,
) -> tuple[Array, Array]:
    """Scores (attacks × trials) in world 0 and in world 1, every run with a key of its own."""
    rule = settings.rule(worlds.without.feasible_set.separable)
    known, norm = informed(worlds, settings, rule), settings.mechanism.norm

    def score(key: Array, side: Local, known: Known) -> Array:
        return scores(run(side._replace(key=key), known, rule), known, rule, norm)

    every = jax.random.split(root, 2 * trials)
    keys = jax.vmap(lambda k: agent_key(k, RUN, 0))(every).reshape(2, trials)
    scored = _in_batches(score, known, settings.updates)
    without, with_canary = (
        scored(mine, _side(problem, settings), known, progress=progress)
        for mine, problem in zip(keys, worlds.problems, strict=True)
    )
    return without, with_canary


# --- agents -------------------------------------------------------------------------------------


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
        size, start = problem.objective.statistic_size, start_point(problem)
        sides = []  # as an agent with secure noise computes, with noise that is zero
        for side in _without_noise(worlds, settings):
            about = (settings.mechanism, side.Δ, size, settings.updates, settings.delta)
            zero = GridNoise(
                np.zeros((1, size), np.int64), np.float64(secure_noise(*about).spacing)
            )
            sides.append(side._replace(mechanism=zero))
        found = [_apart(w, sides, settings, start) for w in pulls.astype(dtype)]
        best = int(np.argmax(found))
    plan[0] = far * directions[best]
    plan[1:2] = -plan[0]
    return plan


def _apart(w: Array, sides: Sequence[Local], settings: Settings, start: Array) -> float:
    """How far the points of two worlds are apart after w and −w; infinite if a round fails.

    By the agent's own compiled round: the last bits matter.
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


def paying(problem: LocalProblem, settings: Settings, run: str, ledger: Ledger) -> Agent:
    """An agent as users begin it: with a ledger, hence with secure noise."""
    return Agent(problem, problem.name, settings, None, run, size_of(problem), ledger=ledger)


def audit_agents(
    worlds: Worlds,
    settings: Settings,
    plans: Sequence[Array] = (),
    *,
    trials: int = 1000,
    confidence: float = 0.99,
    claim: Guarantee | None = None,
    begin: Begin = paying,
    progress: Progress = lambda done: None,
) -> Audit:
    """``audit`` through agents: ``trials`` in each world, then lower bounds on ε.

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
    problem, updates = worlds.without, settings.updates * len(plans)
    whole = exact(settings.mechanism, updates, settings.delta)
    watched, spent = [], 0.0
    for mine in worlds.problems:
        points, most = _watch(mine, settings, plans, trials, whole.epsilon, begin, progress)
        watched.append(points)
        spent = max(spent, most)
    if claim is None:
        claim = Guarantee(spent, settings.delta) if spent else whole
    rule, norm = settings.rule(problem.feasible_set.separable), settings.mechanism.norm
    local = np.stack(plans)[:, :, np.asarray(problem.coupling)] * problem.coupled
    local = local.astype(problem.dtype)
    known = informed(worlds, settings, rule, local[-1])

    def score(points: Array, known: Known, plans: Array) -> Array:
        return scores(replied(points, plans, known), known, rule, norm, len(plans))

    scored = _in_batches(score, known, updates)
    without, with_canary = (scored(points, known, local) for points in watched)
    about = (settings, claim, (without, with_canary), WHITE, updates, confidence, None, "agents")
    return judged(worlds, *about)


def _watch(
    problem: LocalProblem,
    settings: Settings,
    plans: Sequence[Array],
    trials: int,
    epsilon: float,
    begin: Begin,
    progress: Progress,
) -> tuple[Array, float]:
    """Local points (trials × plans × rounds + 1 × n), NaN after a failure; and the most spent."""
    shape = (trials, len(plans), settings.rounds + 1, problem.dimension)
    points = np.full(shape, np.nan, problem.dtype)
    totals: dict[int, float] = {}  # by the number of rounds that were paid for
    for i in range(trials):
        with fresh_ledger(epsilon, settings.delta) as path, Ledger(path) as ledger:
            for k, plan in enumerate(plans):
                agent, last = begin(problem, settings, f"trial-{k}", ledger), dict[str, str]()
                points[i, k, 0] = agent.point
                for t, w in enumerate(plan, 1):
                    try:
                        reply = agent.respond(Broadcast(agent.run, t, w, last))
                    except SolverFailure:
                        break
                    points[i, k, t], last = agent.point, {agent.name: reply.digest}
            paid = [block for k in range(len(plans)) for block in ledger.charged(f"trial-{k}")]
            rounds = sum(last - first + 1 for first, last in paid)
            if rounds not in totals:
                totals[rounds] = ledger.spent.epsilon
        progress(1)
    return points, max(totals.values())


@contextmanager
def fresh_ledger(epsilon: float, delta: float) -> Iterator[Path]:
    """A new ledger with just enough for a trial that costs this much."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        path = Path(folder) / "trial.db"
        Ledger.create(path, 1.01 * epsilon, delta).close()
        yield path


# --- releases -----------------------------------------------------------------------------------


def audit_releases(
    worlds: Worlds,
    settings: Settings,
    *,
    ledgers: bool = True,
    starts: int = 2,
    later: Sequence[LocalProblem] = (),
    trials: int = 1000,
    confidence: float = 0.99,
    claim: Guarantee | None = None,
    seed: int | None = None,
    progress: Progress = lambda done: None,
) -> Audit:
    """``audit`` of releases: ``trials`` in each world, then lower bounds on ε.

    settings   of one update: its mechanism is that of a release, its delta that of the claim
    ledgers    every trial pays from a fresh ledger and has secure noise; without, it has noise from
               a key that follows from ``seed``, and reads once
    starts     with ledgers: how often the same data are released, each time after a restart
    later      data that the agent reads afterwards, one after another; known to the adversary
    claim      by default the largest total that a trial's ledger shows, or that of one release

    Guarantee: as ``audit``. With ledgers the noise has no seed, so no two audits are the same.
    """
    settings = prepared(worlds, settings, trials, confidence, claim)
    if settings.updates != 1:
        raise InvalidInput(
            f"Expected settings of one update to audit releases, got {settings.updates}: a "
            "release is one update. Nothing was run."
        )
    count("starts", starts)
    if ledgers and seed is not None:
        raise InvalidInput("Expected no seed with ledgers: their noise has none. Nothing was run.")
    every = jax.random.split(jax_key(root_key(seed)), 2 * trials)
    keys = jax.vmap(lambda key: agent_key(key, RUN, 0))(every).reshape(2, trials)
    plans = [[p] * (starts if ledgers else 1) + list(later) for p in worlds.problems]
    shown, spent = [], 0.0
    for mine, problems in zip(keys, plans, strict=True):
        readings = []
        for key in mine:
            seen, total = _read_and_spent(problems, settings, None if ledgers else key)
            readings.append(seen)
            spent = max(spent, total)
            progress(1)
        shown.append(np.array(readings))
    if claim is None:
        whole = exact(settings.mechanism, len(plans[0]), settings.delta)
        claim = Guarantee(spent, settings.delta) if ledgers else whole
    found = _of_releases(plans, settings.mechanism.norm, shown)
    updates = 1 + len(later)
    through = "releases" if ledgers else "readings"
    return judged(worlds, settings, claim, found, RELEASES, updates, confidence, seed, through)


def _read_and_spent(
    problems: Sequence[LocalProblem], settings: Settings, key: Array | None
) -> tuple[Array, float]:
    """Everything that an agent shows when it reads these data one after another, and its price."""
    seen, spent, name = [], 0.0, problems[0].name or RUN
    noise = (name, settings.mechanism, settings.delta)
    if key is not None:
        return np.array([Reader(*noise, "seeded", key).read(p).values for p in problems]), 0.0
    whole = exact(settings.mechanism, len(problems), settings.delta)
    with fresh_ledger(whole.epsilon, settings.delta) as path:
        for problem in problems:
            with Ledger(path) as ledger:
                seen.append(Reader(*noise, "secure", None, ledger).read(problem).values)
                spent = ledger.spent.epsilon
    return np.array(seen), spent


def _of_releases(
    plans: Sequence[Sequence[LocalProblem]], norm: int, shown: Sequence[Array]
) -> tuple[Array, Array]:
    """Scores (attacks × trials) in both worlds, in the order of RELEASES."""
    guesses = [np.array([p.objective.statistics().values for p in mine]) for mine in plans]
    telling = np.flatnonzero((guesses[0] != guesses[1]).any(axis=0))
    without, with_canary = (
        np.array([_white(seen, guesses, telling, norm) for seen in world]).T for world in shown
    )
    return without, with_canary


def _white(seen: Array, guesses: Sequence[Array], telling: Array, norm: int) -> Vector:
    """The scores of one trial, from all its readings."""
    first, second = (seen - guess for guess in guesses)
    entries = [noise[:, telling, None] for noise in (first, second)]
    answered = np.ones((len(seen), 1), bool)
    return np.array(
        [
            likelihood(first, second, norm),
            magnitude(first, second),
            smallest(entries[0]) - smallest(entries[1]),
            apart(first, answered) - apart(second, answered),
        ]
    )
