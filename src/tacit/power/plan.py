"""How a run on a grid spends what is asked for, as ``tacit power solve`` and a study have it.

Loads are read once, with noise, and exact steps follow; or every round adds noise, as in the paper.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.admm.plan import MOST_ROUNDS, NOISELESS_TOLERANCE, TOLERANCE, Budget, Plan, noise_energy
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import SmoothStep
from tacit.admm.settings import Settings
from tacit.privacy.mechanisms import Mechanism, per_update

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem


@dataclass(frozen=True)
class Asked:
    """What is asked of a run: a budget of all that is released, one of each update, or no noise.

    rounds      at most so many (1000); with noise in every round so many (100)
    penalty     where the penalties start; with noise in every round those of all rounds
    nominal     whether the loads that are read are drawn towards public ones
    """

    total_epsilon: float | None = None
    total_delta: float | None = None
    epsilon: float | None = None  # of one update; then every round adds noise
    delta: float | None = None
    mechanism: str | None = None
    noise_every_round: bool = False
    rounds: int | None = None
    tolerance: float | None = None
    penalty: Any = None
    local_updates: int | None = None
    step_size: Any = None
    perturbation: Any = "objective"
    calibration: Any = "certified"
    nominal: bool = False

    @property
    def no_noise(self) -> bool:
        return self.total_epsilon is None and self.epsilon is None

    @property
    def in_every_round(self) -> bool:
        return self.epsilon is not None or self.noise_every_round

    def check(self) -> None:
        """Refuse numbers that no run can have, before there is a problem."""
        if self.in_every_round:
            self._every_round()
        else:
            self._budget(self._exact())

    def plan(self, problem: Problem) -> Settings | Plan:
        """Looks at bounds and sizes only, which are public."""
        if self.in_every_round:
            settings = scheduled(problem, self._every_round())
            why = "as epsilon is that of one update" if self.epsilon else "as asked for"
            return Plan(settings, None, settings.delta, f"Noise in every round, {why}.")
        exact = self._exact()
        budget = self._budget(exact)
        if budget is None:
            return exact
        reason = "The loads are read once, with noise; exact steps follow."
        if self.nominal:
            reason += " What was read is drawn towards the nominal loads."
        plan = budget.once(problem, reason, exact.rounds)
        if self.tolerance is None and not self.nominal:
            tolerance = worthwhile(problem, plan.reading)
            reason = f"{plan.reason} They stop at a tolerance far below the noise: {tolerance:g}."
            settings = dataclasses.replace(plan.settings, tolerance=tolerance)
            plan = dataclasses.replace(plan, settings=settings, reason=reason)
        return plan

    def _exact(self) -> Settings:
        """Exact steps on what was read, or without noise."""
        tolerance = NOISELESS_TOLERANCE if self.no_noise else TOLERANCE
        tolerance = tolerance if self.tolerance is None else self.tolerance
        rounds = MOST_ROUNDS if self.rounds is None else self.rounds
        return Settings(rounds, penalty=self.penalty, tolerance=tolerance)

    def _budget(self, exact: Settings) -> Budget | None:
        if self.total_epsilon is None:
            return None
        others = {"penalty": exact.penalty, "tolerance": exact.tolerance}
        return Budget(self.total_epsilon, self.total_delta or 0.0, self.mechanism, others)

    def _every_round(self) -> Settings:
        """Algorithm 1 as in the paper, for a total budget, that of one update, or no noise."""
        name = self.mechanism or "gaussian"
        others = {
            "perturbation": self.perturbation,
            "calibration": self.calibration,
            "penalty": self.penalty,
            "step_size": self.step_size,
        }
        rounds, updates = (300, 5) if self.no_noise else (100, 1)
        rounds = rounds if self.rounds is None else self.rounds
        updates = updates if self.local_updates is None else self.local_updates
        if self.no_noise:
            return Settings(rounds, updates, **others)
        if self.total_epsilon is not None:
            budget = self.total_epsilon, self.total_delta or 0.0
            settings: Settings = Settings.for_budget(*budget, rounds, updates, name, **others)
            return settings
        assert self.epsilon is not None
        delta = self.delta if name == "gaussian" else None
        mechanism = per_update(name, self.epsilon, delta, self.calibration)
        return Settings(rounds, updates, mechanism, self.delta or 0.0, **others)


def worthwhile(problem: Problem, noise: Mechanism | None) -> float:
    """The tolerance below which copies that agree better are worth nothing beside the noise.

    ‖z̄‖ is about √n for n copies: ‖noise‖/(30 √n) leaves ‖z − z̄‖ at a thirtieth of the noise, in
    per unit. Public where bounds are: it stays at ``TOLERANCE`` where they are not, and where loads
    are drawn towards nominal ones, which leaves less noise.
    """
    if noise is None or any(agent.objective.uncertified for agent in problem.agents):
        return TOLERANCE
    copies = sum(int(np.sum(np.asarray(agent.coupling) >= 0)) for agent in problem.agents)
    tolerance = math.sqrt(noise_energy(problem, noise) / max(copies, 1)) / 30
    return float(f"{min(max(tolerance, TOLERANCE), 1e-2):.2g}")


def noise_deviation(agent: LocalProblem, settings: Settings) -> float:
    """The standard deviation of the noise on one entry of what receives it."""
    Δ = agent.objective.sensitivity(settings.mechanism.norm, agent.feasible_set)
    return float(np.sqrt(settings.mechanism.variance(Δ)))


def scheduled(case: PowerProblem | Problem, settings: Settings) -> Settings:
    """The settings with schedules for load shedding, where they were left out.

    In the metric of the local step f has smoothness L = 2, so that η^t = 1/(2 + 4σ√(Et)) with σ,
    the deviation of the noise on the residual; the form is the smooth theorem's (Section 5), the
    factor 4 and the penalties 10 (with noise) and 5 (without) come from trials on case14.
    """
    σ = max(noise_deviation(agent, settings) for agent in case.agents)
    step = SmoothStep(2.0, 4 * σ * math.sqrt(settings.local_updates))
    return dataclasses.replace(
        settings,
        penalty=settings.penalty or (10.0 if σ else 5.0),
        step_size=settings.step_size or step,
    )
