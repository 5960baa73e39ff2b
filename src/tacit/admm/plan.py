"""How to spend a budget: read the data once, or add noise in every round, from public numbers.

    Budget(total_epsilon, total_delta)  ─▶  plan(problem)  ─▶  Plan: settings, noise, and why

Only sizes, bounds, kinds of objectives and the budget are looked at, so the choice costs nothing.

*Once*, where every objective can be read once and that brings no more noise
(``once_or_rounds.py``): the run then takes exact steps and stops at a tolerance. *Every round*
otherwise. The noise that reaches the answer of such a run hardly depends on the number T of rounds
(each has noise of deviation ~√T, and steps as small as that needs), so T = 200: on breast cancer
and wine, ε = 0.5, 1 and 4, the best of T = 10, 25, 50, 100, 200, 400 was never more than 15 %
better. For pure ε each of T rounds has T times the noise, so T = 20.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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

    ``others`` are kept where given: ``local_updates``, ``perturbation``, ``step_size`` and the like
    ask for noise in every round; ``penalty`` and ``tolerance`` for reading once.
    """

    total_epsilon: float
    total_delta: float
    mechanism: str = "gaussian"
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)  # refuses bad numbers

    def plan(self, problem: Problem, rounds: int = MOST_ROUNDS) -> Plan:
        """The best known way to spend the budget on this problem; ``rounds`` of exact steps."""
        of_rounds = sorted(set(self.others) - {"penalty", "tolerance"})
        if of_rounds:
            release, reason = False, f"{of_rounds[0]} was given."
        else:
            budget = self.total_epsilon, self.total_delta, self.mechanism
            release, reason = prefers_release(problem, *budget)
        if release:
            return self.once(f"The data are read once, with noise: {reason}", rounds)
        if "tolerance" in self.others:
            raise InvalidInput(
                f"Expected no tolerance where every round adds noise, got "
                f"tolerance={self.others['tolerance']!r}; it does, as {reason}"
            )
        return self.every_round(f"Noise in every round: {reason}")

    def once(self, reason: str = "The data are read once.", rounds: int = MOST_ROUNDS) -> Plan:
        noise = calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)
        chosen = {"tolerance": TOLERANCE, **self.others}
        return Plan(Settings(rounds, **chosen), noise, self.total_delta, reason)

    def every_round(self, reason: str = "Noise in every round.", rounds: int | None = None) -> Plan:
        T = rounds or (PURE_ROUNDS if self.total_delta == 0 else ROUNDS)
        others = {"mechanism": self.mechanism, **self.others}
        settings = Settings.for_budget(self.total_epsilon, self.total_delta, T, **others)
        return Plan(settings, None, self.total_delta, reason)
