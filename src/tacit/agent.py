"""An agent: the only place where private data are read. One message in, one reply out.

    Broadcast(run, round, consensus)  →  Agent.respond  →  Reply(run, round, primal)

A reply holds the coupled coordinates of the average z^{t+1} and nothing else: no dual, no
objective value, no private coordinate.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tacit.algorithm import Local, Round, dual_step, local_round
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.mechanisms import Noiseless
from tacit.problem import LocalProblem
from tacit.sets import Box
from tacit.settings import Settings

Array = Any


@dataclass(frozen=True)
class Broadcast:
    """Server to agents: the consensus w^{t+1} of this round."""

    run: str
    round: int
    consensus: Array


@dataclass(frozen=True)
class Reply:
    """Agent to server: the coupled part of z^{t+1}, randomised and (objective noise) feasible."""

    run: str
    round: int
    primal: Array


def agent_key(root: Array, run: str, index: int) -> Array:
    """The noise key of agent ``index`` in ``run``; round t uses ``fold_in(agent_key, t)``.

    The run enters as a digest of fixed length, so that no two (run, agent, round, update) share
    a chain of folds.
    """
    for word in np.frombuffer(hashlib.sha256(run.encode()).digest(), dtype="<u4"):
        root = jax.random.fold_in(root, word)
    return jax.random.fold_in(root, index)


def start_point(problem: LocalProblem) -> Array:
    """z^1: the feasible point nearest to the origin. Public, as the set is."""
    return np.asarray(problem.feasible_set.project(np.zeros(problem.dimension, problem.dtype)))


def certified_sensitivity(problem: LocalProblem, settings: Settings) -> float:
    """Δ of what receives the noise: the statistic (objective) or, shaped later, the gradient.

    Plain output noise leaves the set, and the next gradient is taken there, so Δ must then hold
    at every point. For L1 noise on the output of a set that is not separable, the bound in
    ``output_noise_shape`` is in terms of Δ_2.
    """
    mechanism, feasible_set = settings.mechanism, problem.feasible_set
    if isinstance(mechanism, Noiseless) or settings.calibration != "certified":
        return 0.0
    if settings.perturbation == "objective":
        return problem.objective.sensitivity(mechanism.norm, feasible_set)
    norm = mechanism.norm if feasible_set.separable else 2
    if settings.perturbation == "projected-output":
        return problem.objective.output_sensitivity(norm, feasible_set)
    everywhere = Box(-math.inf, math.inf, size=problem.dimension)
    Δ = problem.objective.output_sensitivity(norm, everywhere)
    if not math.isfinite(Δ):
        raise InvalidInput(
            f"Expected an objective whose gradient changes by a bounded amount at every point for "
            f"perturbation='output'; that of {type(problem.objective).__name__} is bounded only "
            "inside the feasible set. Use 'objective' or 'projected-output'. Nothing was released."
        )
    return Δ


def local_side(problem: LocalProblem, settings: Settings, key: Array, dtype: Any) -> Local:
    """What this agent brings to every round, computing in ``dtype``."""
    exact = certified_sensitivity(problem, settings)
    Δ = dtype.type(exact)
    if float(Δ) < exact:  # never less noise than was certified
        Δ = np.nextafter(Δ, dtype.type(math.inf))
    coupled = problem.coupled.astype(dtype)
    return Local(problem.objective, problem.feasible_set, coupled, Δ, settings.mechanism, key)


class Agent:
    """One party of a run, with its data, its dual and its last local point.

    It answers the rounds 1, 2, ..., T of its run in order, each once, and refuses anything else
    before it looks at its data.
    """

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        settings: Settings,
        key: Array,
        run: str,
        size: int,
    ) -> None:
        self.problem, self.name, self.settings, self.run = problem, name, settings, run
        self._size = size
        self._coupling = np.asarray(problem.coupling)
        self._held = np.flatnonzero(self._coupling >= 0)
        self._coupled = problem.coupled
        self._local = local_side(problem, settings, key, problem.dtype)
        self._rule = settings.rule(problem.feasible_set.separable)
        self._round = (
            jax.jit(local_round, static_argnames="rule")
            if problem.feasible_set.closed_form
            else local_round
        )
        self.point = start_point(problem)
        self.average = self.point
        self.dual = np.zeros_like(self.point)
        self.noise = 0.0
        self.rounds_done = 0

    def respond(self, broadcast: Broadcast) -> Reply:
        """Lines 15-23 of Algorithm 1 for one round."""
        w = self._accept(broadcast)
        t, dtype = broadcast.round, self.point.dtype
        (ρ,), (η,) = self.settings.schedule(t, t)
        ρ, η = dtype.type(ρ), dtype.type(η)
        local_w = (w[self._coupling] * self._coupled).astype(dtype)
        try:
            now = Round(t, local_w, self.dual, ρ, η)
            point, average, noise = self._round(self.point, now, self._local, rule=self._rule)
        except SolverFailure as failure:
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: {failure} Nothing of this round was released."
            ) from failure
        self.point, self.average, self.noise = point, np.asarray(average), float(noise)
        self.dual = dual_step(self.dual, ρ, local_w, self.average * self._coupled)
        self.rounds_done = t
        return Reply(self.run, t, self.average[self._held])

    def _accept(self, broadcast: Broadcast) -> Array:
        name = self.name
        if broadcast.run != self.run:
            raise Refused(f"Agent {name!r} is in run {self.run!r}, not in {broadcast.run!r}.")
        expected = self.rounds_done + 1
        if broadcast.round != expected or expected > self.settings.rounds:
            raise Refused(
                f"Agent {name!r} expects round {expected} of {self.settings.rounds}, "
                f"got round {broadcast.round}. Nothing was computed."
            )
        w = np.asarray(broadcast.consensus)
        if w.shape != (self._size,) or not np.isfinite(w).all():
            raise Refused(
                f"Agent {name!r} expects a finite consensus of shape ({self._size},), "
                f"got shape {w.shape}. Nothing was computed."
            )
        return w

    def restore(self, point: Array, average: Array, dual: Array, rounds_done: int) -> None:
        """Continue from a checkpoint."""
        for name, value in (("point", point), ("average", average), ("dual", dual)):
            if np.shape(value) != self.point.shape:
                raise InvalidInput(
                    f"Expected a {name} of shape {self.point.shape}, got {np.shape(value)}."
                )
            setattr(self, name, np.asarray(value, self.point.dtype))
        self.rounds_done = rounds_done
