"""How to spend a budget: read the data once, or add noise in every round, from public numbers.

    Budget(total_epsilon, total_delta)  ─▶  plan(problem)  ─▶  Plan: settings, noise, and why

Only sizes, bounds, kinds of objectives and the budget are looked at, so the choice costs nothing.

*Once*, where every objective can be read once and that brings no more noise
(``once_or_rounds.py``): the run then takes exact steps and stops at a tolerance. *Every round*
otherwise, as ``descent.py`` plans it where all agents hold all coordinates and say what a score is.
Of other problems: the noise that reaches the answer of such a run hardly depends on the number T of
rounds (each has noise of deviation ~√T, and steps as small as that needs), so T = 200: on breast
cancer and wine, ε = 0.5, 1 and 4, the best of T = 10, 25, 50, 100, 200, 400 was never more than
15 % better. For pure ε each of T rounds has T times the noise, so T = 20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from tacit.admm.descent import DEVIATION, descend, known_descent
from tacit.admm.once_or_rounds import prefers_release
from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism

ROUNDS, PURE_ROUNDS = 200, 20  # with noise in each
MOST_ROUNDS, TOLERANCE, NOISELESS_TOLERANCE = 1000, 1e-4, 1e-6  # of exact steps


@dataclass(frozen=True)
class Plan:
    """What a budget is spent on.

    settings   of the rounds: with noise, or (read once) exact steps to a tolerance
    reading    the noise on the one reading of the data; None: the rounds have it
    reason     what was chosen, and why
    """

    settings: Settings
    reading: Mechanism | None
    delta: float
    reason: str

    @property
    def rounds(self) -> int:
        return self.settings.rounds


@dataclass(frozen=True)
class Budget:
    """A total budget (ε, δ) for every agent, without saying how to spend it.

    ``mechanism`` "gaussian" or "laplace"; None: with noise in every round Gaussian, and for one
    reading the one that adds less (``least_noise``). ``others`` are kept where given:
    ``local_updates``, ``perturbation``, ``step_size`` and the like ask for noise in every round if
    they are not the defaults; ``penalty`` and ``tolerance`` for reading once.
    """

    total_epsilon: float
    total_delta: float
    mechanism: str | None = None
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {f.name: f.default for f in fields(Settings)}
        if unknown := sorted(set(self.others) - set(known) - {"tolerance", "penalty"}):
            raise InvalidInput(f"Expected fields of Settings beside a budget, got {unknown[0]!r}.")
        calibrate(self._law, self.total_epsilon, self.total_delta, 1)  # refuses bad numbers
        Settings(1, **{k: v for k, v in self.others.items() if k in ("tolerance", "penalty")})

    @property
    def _law(self) -> str:
        """Of noise in every round."""
        return self.mechanism or ("laplace" if self.total_delta == 0 else "gaussian")

    def plan(self, problem: Problem, rounds: int = MOST_ROUNDS) -> Plan:
        """The best known way to spend the budget on this problem; ``rounds`` of exact steps."""
        default = {f.name: f.default for f in fields(Settings)}
        of_rounds = sorted(
            name
            for name, value in self.others.items()
            if name not in ("penalty", "tolerance") and value != default[name]
        )
        if of_rounds:
            release, reason = False, f"{of_rounds[0]} was given."
        else:
            budget = self.total_epsilon, self.total_delta, self._law
            release, reason = prefers_release(problem, *budget, self._reading(problem))
        if release:
            return self.once(problem, f"The data are read once, with noise: {reason}", rounds)
        if "tolerance" in self.others:
            raise InvalidInput(
                f"Expected no tolerance where every round adds noise, got "
                f"tolerance={self.others['tolerance']!r}; it does, as {reason}"
            )
        return self.every_round(problem, f"Noise in every round: {reason}")

    def once(
        self,
        problem: Problem,
        reason: str = "The data are read once, with noise.",
        rounds: int = MOST_ROUNDS,
    ) -> Plan:
        noise = self._reading(problem)
        if self.mechanism is None:
            reason += f" {noise.name.capitalize()} noise adds least to them."
        chosen = {"tolerance": TOLERANCE, **self.others}
        return Plan(Settings(rounds, **chosen), noise, self.total_delta, reason)

    def _reading(self, problem: Problem) -> Mechanism:
        """The noise of one reading."""
        if self.mechanism is None:
            return least_noise(problem, self.total_epsilon, self.total_delta)
        return calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)

    def every_round(self, problem: Problem, reason: str = "Noise in every round.") -> Plan:
        budget = self.total_epsilon, self.total_delta
        others: dict[str, Any] = {"mechanism": self._law, **self.others}
        if known_descent(problem) is None or "perturbation" in others:
            T = PURE_ROUNDS if self.total_delta == 0 else ROUNDS
            settings: Settings = Settings.for_budget(*budget, T, **others)
            return Plan(settings, None, self.total_delta, reason)
        settings = descend(problem, *budget, **others)
        T, E = settings.rounds, settings.local_updates
        each = "one update" if E == 1 else f"{E} updates"
        reason += f" {T} rounds of {each}: their noise moves a score by {DEVIATION:g} or less."
        return Plan(settings, None, self.total_delta, reason)


def least_noise(problem: Problem, total_epsilon: float, total_delta: float) -> Mechanism:
    """Gaussian or Laplace noise for one reading of every agent's data: the one of less variance.

    Laplace noise is paid for in the L1 norm, Gaussian in the L2 norm: where few numbers change
    together, as the two demands of a bus, Laplace adds less (at (1, 1e-5) about half the
    deviation), and Gaussian where many do. Looks at sensitivities and sizes, which are public.
    """
    if total_delta == 0:
        return calibrate("laplace", total_epsilon, 0.0, 1)
    try:
        laws = [calibrate(name, total_epsilon, total_delta, 1) for name in ("gaussian", "laplace")]
        return min(laws, key=lambda noise: noise_energy(problem, noise))
    except InvalidInput:  # then nothing is read once
        return calibrate("gaussian", total_epsilon, total_delta, 1)


def noise_energy(problem: Problem, noise: Mechanism) -> float:
    """The expected squared length of the noise on one reading of every agent's data: public."""
    readings = [agent.objective.reading() for agent in problem.agents]
    return math.fsum(
        noise.variance(reading.sensitivity(noise.norm)) * reading.size for reading in readings
    )
