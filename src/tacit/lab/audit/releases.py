"""The audit of releases: one noisy reading of an agent's data (``protocol/release.py``).

Every trial is a ``Reader`` that reads the data of one world, and another one on the same ledger, as
after a restart. The adversary sees every reading and knows all but whether the canary is there, so
it knows the noise as it would have to be in either world, ξ₀ and ξ₁:

    likelihood      Σ ‖ξ₀‖² − ‖ξ₁‖² (Laplace: of |·|) over all readings: the projection on the
                    canary's change, the best attack on correct code. A reading that was kept says
                    the same again and adds nothing; one with fresh noise does
    magnitude       Σ ‖ξ₀‖² + ‖ξ₁‖²: does the size of the noise depend on the canary?
    single entry    the smallest |ξ₀| against the smallest |ξ₁|: is an entry without noise?
    restart         ‖ξ₀ − ξ₀'‖ against ‖ξ₁ − ξ₁'‖ between readings: was noise used for other data?

In the black-box form it sees the least point of the last public copy only, which a run without a
set would end at, and looks in the direction that its own simulations tell it.

The claim is what the ledger says was spent on all readings together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, count
from tacit.lab.audit.bounds import Audit, judged, prepared
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.lab.audit.trials import RUN, TINY, fresh_ledger, likelihood
from tacit.objectives.residual import on_host
from tacit.privacy.accounting import Guarantee, exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Laplace, Mechanism
from tacit.protocol.keys import agent_key, jax_key, root_key
from tacit.protocol.release import Reader

RELEASES = ("likelihood", "magnitude", "single entry", "restart")
SIMULATED = 400  # releases in each world from which the black box learns where to look


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
    progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """``audit`` of readings: so many trials in each world, then lower bounds on ε.

    settings   of one update: its mechanism is the law of a reading, its delta that of the claim
    ledgers    every trial pays from a fresh ledger and has secure noise; without, it has noise from
               a key that follows from ``seed``, and reads once
    starts     with ledgers: so often the same data are read, each time after a restart
    later      data that the agent reads afterwards, one after another; known to the adversary
    claim      by default the largest total that a trial's ledger shows, or that of one reading

    Guarantee: as ``audit``. With ledgers the noise has no seed, so no two audits are the same.
    """
    settings = prepared(worlds, settings, trials, confidence, claim)
    if settings.updates != 1:
        raise InvalidInput(
            f"Expected settings of one update to audit releases, got {settings.updates}: data are "
            "read once. Nothing was run."
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
            seen, total = _trial(problems, settings, None if ledgers else key)
            readings.append(seen)
            spent = max(spent, total)
            progress(1)
        shown.append(np.array(readings))
    if claim is None:
        whole = exact(settings.mechanism, len(plans[0]), settings.delta)
        claim = Guarantee(spent, settings.delta) if ledgers else whole
    found = _scores(plans, settings.mechanism, shown)
    updates = 1 + len(later)
    through = "releases" if ledgers else "readings"
    return judged(worlds, settings, claim, found, RELEASES, updates, confidence, seed, through)


def _trial(
    problems: Sequence[LocalProblem], settings: Settings, key: Array | None
) -> tuple[Array, float]:
    """Everything that an agent shows when it reads these data one after another, and its price."""
    seen, spent, name = [], 0.0, problems[0].name or RUN
    law = (name, settings.mechanism, settings.delta)
    if key is not None:
        return np.array([Reader(*law, "seeded", key).read(p).values for p in problems]), 0.0
    whole = exact(settings.mechanism, len(problems), settings.delta)
    with fresh_ledger(whole.epsilon, settings.delta) as path:
        for problem in problems:
            with Ledger(path) as ledger:
                seen.append(Reader(*law, "secure", None, ledger).read(problem).values)
                spent = ledger.spent.epsilon
    return np.array(seen), spent


def _scores(
    plans: Sequence[Sequence[LocalProblem]], mechanism: Mechanism, shown: Sequence[Array]
) -> tuple[Array, Array]:
    """Scores (attacks × trials) in both worlds, in the order of RELEASES and BLACK."""
    guesses = [np.array([p.objective.reading().values for p in mine]) for mine in plans]
    telling = np.flatnonzero((guesses[0] != guesses[1]).any(axis=0))
    black = _Black.of(plans, mechanism)
    rows = [
        [
            np.append(_white(seen, guesses, telling, mechanism.norm), black.scores(seen[-1]))
            for seen in world
        ]
        for world in shown
    ]
    return np.array(rows[0]).T, np.array(rows[1]).T


def _white(seen: Array, guesses: Sequence[Array], telling: Array, norm: int) -> Vector:
    """The scores of one trial, from all its readings."""
    first, second = (seen - guess for guess in guesses)

    def smallest(noise: Array) -> Any:
        return np.log(np.abs(noise[:, telling]).min(initial=np.inf) + TINY)

    def apart(noise: Array) -> Any:
        return np.log((np.diff(noise, axis=0) ** 2).sum() + TINY)

    return np.array(
        [
            likelihood(first, second, norm),
            np.log((first * first + second * second).sum() + TINY),
            smallest(first) - smallest(second),
            apart(first) - apart(second),
        ]
    )


class _Black(NamedTuple):
    """An adversary that sees the least point of a public copy, and has simulated many."""

    problem: LocalProblem  # of which it knows what is public
    deviation: float
    means: tuple[Vector, Vector]
    whitening: Array  # of the points' deviations from their mean

    @classmethod
    def of(cls, plans: Sequence[Sequence[LocalProblem]], mechanism: Mechanism) -> _Black:
        rng, clouds = np.random.default_rng(0), []
        problem = plans[0][-1]
        Δ = problem.objective.reading().sensitivity(mechanism.norm)
        deviation = float(np.sqrt(mechanism.variance(Δ)))
        for mine in plans:
            values = mine[-1].objective.reading().values
            draw = rng.laplace if isinstance(mechanism, Laplace) else rng.normal
            noise = draw(0.0, mechanism.scale(Δ), (SIMULATED, values.size))
            clouds.append(np.array([_least_point(problem, values + ξ, deviation) for ξ in noise]))
        means = clouds[0].mean(axis=0), clouds[1].mean(axis=0)
        inner = np.concatenate([cloud - mean for cloud, mean in zip(clouds, means, strict=True)])
        spread, axes = np.linalg.eigh(np.cov(inner.T).reshape(inner.shape[1], -1))
        kept = spread > 1e-9 * spread.max()
        return cls(problem, deviation, means, axes[:, kept] / np.sqrt(spread[kept]))

    def scores(self, values: Vector) -> Vector:
        """In the order of BLACK."""
        z = _least_point(self.problem, values, self.deviation)
        first, second = ((z - mean) @ self.whitening for mean in self.means)
        return np.array([likelihood(first, second, 2), np.log((first**2 + second**2).sum() + TINY)])


def _least_point(problem: LocalProblem, values: Vector, deviation: float) -> Vector:
    """Of the public copy ‖Az + d‖² that these values tell, on no set: the shortest such point."""
    copy: Any = problem.objective.reading().public_copy(values, deviation)
    A = on_host(copy.matrix)
    least: Vector = np.linalg.lstsq(A.toarray() if sp.issparse(A) else A, -np.asarray(copy.data))[0]
    return least
