"""Section 5: constants, ergodic averages and the bounds of the three convergence theorems.

Each theorem bounds  E[ F(z^(T)) − F* + γ‖A w^(T) − z^(T)‖ ]  for any γ > 0 (strongly convex: for
γ ≥ ‖λ^t‖ in every round), for noise on the gradient and global or general consensus.

One correction. The paper's U_2 is the diameter of one W_p, but its proofs use it for the stacked
vector z = (z_1, ..., z_P), whose diameter is (Σ_p diam(W_p)²)^{1/2}, up to √P larger. We use the
latter; ``constants(..., as_printed=True)`` gives the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import Problem, start_point
from tacit.admm.settings import (
    AdaptiveStep,
    NonsmoothStep,
    Schedule,
    Settings,
    SmoothStep,
    StronglyConvexStep,
)
from tacit.errors import InvalidInput, choice, positive

if TYPE_CHECKING:
    from tacit.protocol.result import Progress

Theorem = Literal["smooth", "nonsmooth", "strongly-convex"]


@dataclass(frozen=True)
class Constants:
    """Public constants of Section 5 (the paper's letters in brackets)."""

    gradient_energy: float  # Σ_p max ‖f_p'‖²   (P·U_1²)
    noise_energy: float  # Σ_p E‖ξ_p‖² of one update   (n·P·U_3/ε²)
    diameter: float  # of the product of all W_p   (U_2, corrected)
    penalty_first: float  # ρ^1
    penalty_last: float  # ρ^max
    rounds: int  # T
    local_updates: int  # E


def constants(problem: Problem, settings: Settings, *, as_printed: bool = False) -> Constants:
    """The constants of a run of ``settings`` on ``problem``; refuses what no theorem covers."""
    settings = settings.complete(problem)
    _check_assumptions(problem, settings)
    diameters = [float(a.feasible_set.diameter) for a in problem.agents]
    ρ, _ = settings.schedule(1, settings.rounds)
    if (np.diff(ρ) < 0).any():
        raise InvalidInput("Expected a nondecreasing penalty (Assumption 1): it falls.")
    return Constants(
        gradient_energy=sum(
            a.objective.gradient_bound(a.feasible_set) ** 2 for a in problem.agents
        ),
        noise_energy=sum(settings.gradient_noise(problem)),
        diameter=max(diameters) if as_printed else math.hypot(*diameters),
        penalty_first=float(ρ[0]),
        penalty_last=float(ρ[-1]),
        rounds=settings.rounds,
        local_updates=settings.local_updates,
    )


def _check_assumptions(problem: Problem, settings: Settings) -> None:
    if settings.perturbation != "objective" or settings.calibration != "certified":
        raise InvalidInput(
            "Expected certified noise on the objective: the theorems are about that."
        )
    if isinstance(settings.step_size, AdaptiveStep):
        raise InvalidInput(
            "Expected a step size and a penalty that are fixed beforehand, which the theorems are "
            "about, got steps that adapt. Give both."
        )
    if any(a.objective.clipped for a in problem.agents):
        raise InvalidInput("Expected (sub)gradients; clipped ones, as in PerSample, are not.")
    step, objectives = settings.step_size, [a.objective for a in problem.agents]
    if isinstance(step, SmoothStep) and any(
        f.smoothness is None or f.smoothness > step.smoothness * (1 + 1e-12) for f in objectives
    ):
        raise InvalidInput(
            f"Expected a step size for the objectives' smoothness, got {step.smoothness}, less "
            "than some objective has."
        )
    if isinstance(step, StronglyConvexStep):
        if any(f.strong_convexity * (1 + 1e-12) < step.strong_convexity for f in objectives):
            raise InvalidInput(
                f"Expected strongly convex objectives, got {step.strong_convexity} for the step "
                "size, more than some objective has."
            )
        ρ, _ = settings.schedule(1, settings.rounds)
        t = np.arange(2, settings.rounds + 1)
        if (ρ[1:] > t / (t - 1) * ρ[:-1] * (1 + 1e-12)).any():
            raise InvalidInput("Expected a penalty growing at most like t (Assumption 2).")


def bound(k: Constants, step_size: Schedule, gamma: float) -> float:
    """Right-hand side of the theorem whose rule ``step_size`` is, for λ^1 = 0.

    smooth (η = 1/(L + κ√t), paper: κ = 1/ε):
        (N/κ + κU²/2E)/√T + (U²(ρ_T + L/E) + γ²/ρ_1)/2T
    nonsmooth (η = s/√t, paper: s = 1):
        (s(N + G) + U²/2Es)/√T + (U²ρ_T + γ²/ρ_1 + 2γU)/2T
    strongly convex (η = 2/(α(t + 2))):
        {2Uγ + U²ρ_T + 4γ²/ρ_1 + αU²/2E + 2(G + N)/α}/(T + 1)
    with U = diameter, N = noise_energy, G = gradient_energy.
    """
    γ = positive("gamma", gamma)
    U, N, G = k.diameter, k.noise_energy, k.gradient_energy
    T, E, ρ1, ρT = k.rounds, k.local_updates, k.penalty_first, k.penalty_last
    if isinstance(step_size, SmoothStep):
        L, κ = step_size.smoothness, step_size.growth
        if N > 0 and κ == 0:
            raise InvalidInput("Expected growth > 0 in SmoothStep for a noisy run, got 0.")
        noisy = (N / κ if N > 0 else 0.0) + κ * U**2 / (2 * E)
        return noisy / math.sqrt(T) + (U**2 * (ρT + L / E) + γ**2 / ρ1) / (2 * T)
    if isinstance(step_size, NonsmoothStep):
        s = step_size.scale
        first = s * (N + G) + U**2 / (2 * E * s)
        return first / math.sqrt(T) + (U**2 * ρT + γ**2 / ρ1 + 2 * γ * U) / (2 * T)
    if isinstance(step_size, StronglyConvexStep):
        α = step_size.strong_convexity
        inner = 2 * U * γ + U**2 * ρT + 4 * γ**2 / ρ1 + α * U**2 / (2 * E) + 2 * (G + N) / α
        return inner / (T + 1)
    raise InvalidInput(
        "Expected the step size of a theorem (SmoothStep, NonsmoothStep, StronglyConvexStep), "
        f"got {type(step_size).__name__}."
    )


class ErgodicAverage:
    """z^(T) and w^(T) exactly as a theorem defines them; a callback for ``solve``.

    smooth: mean of z^{t,e+1}; nonsmooth: mean of z^{t,e}; strongly convex: mean of z^{t,e} with
    weight t. Needs every round (``evaluate_every=1``) and reads the agents' unreleased points, so
    it is for studying convergence; ``Result.ergodic`` is its public cousin.
    """

    def __init__(self, problem: Problem, theorem: Theorem, local_updates: int) -> None:
        choice("theorem", theorem, ("smooth", "nonsmooth", "strongly-convex"))
        self.theorem, self.local_updates = theorem, local_updates
        self.problem = problem
        self._last: list[Vector] | None = None
        self._z = [np.zeros(a.dimension) for a in problem.agents]
        self._w = np.zeros(problem.size)
        self._weight, self._round = 0.0, 0

    def __call__(self, progress: Progress) -> None:
        if progress.round != self._round + 1:
            raise InvalidInput("Expected every round in turn: call solve with evaluate_every=1.")
        self._round = progress.round
        if self._last is None:
            self._last = [start_point(a) for a in self.problem.agents]
        weight = float(progress.round) if self.theorem == "strongly-convex" else 1.0
        for p, average in enumerate(progress.averages):
            if self.theorem == "smooth":
                mean = average
            else:  # Σ_e z^{t,e} = Σ_e z^{t,e+1} + z^{t,1} − z^{t,E+1}
                mean = average + (self._last[p] - progress.points[p]) / self.local_updates
            self._z[p] += weight * mean
        self._w += weight * progress.consensus
        self._last = progress.points
        self._weight += weight

    @property
    def z(self) -> list[Vector]:
        return [z / self._weight for z in self._z]

    @property
    def w(self) -> Vector:
        return self._w / self._weight

    def gap(self, optimum: float, gamma: float) -> float:
        """F(z^(T)) − F* + γ‖A w^(T) − z^(T)‖: what the theorems bound. Reads private data."""
        w, value, square = self.w, 0.0, 0.0
        for agent, z in zip(self.problem.agents, self.z, strict=True):
            shared = np.asarray(agent.coupling) >= 0
            value += float(agent.objective.value(z))
            square += float(((w[np.asarray(agent.coupling)[shared]] - z[shared]) ** 2).sum())
        return value - optimum + gamma * math.sqrt(square)
