"""The privacy statement of a run, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tacit.accounting import exact, rounded_up
from tacit.errors import CorruptFile
from tacit.mechanisms import Noiseless
from tacit.problem import Problem
from tacit.settings import Settings


@dataclass(frozen=True)
class PrivacyStatement:
    """What all messages of a run together reveal about one agent's data.

    ``certified`` is False for calibration="paper" and for noiseless runs: then ``words`` say why
    and nothing is promised. ``seeded``: whoever knows the seed can subtract the noise.
    """

    epsilon: float
    delta: float
    certified: bool
    mechanism: str
    updates: int
    neighbours: tuple[str, ...]
    seeded: bool

    @property
    def words(self) -> str:
        """The statement as a sentence that can stand in a report."""
        if math.isinf(self.epsilon):
            return "Not private: the run adds no noise, and its messages reveal the data."
        change = " or ".join(self.neighbours)
        numbers = f"({rounded_up(self.epsilon, 3)}, {self.delta:g})-DP"
        if not self.certified:
            return (
                "Not certified: the noise follows the paper's calibration, whose sensitivity is "
                f"not a proven bound. If it were one, the {self.updates} updates of an agent would "
                f"be {numbers} for {change}."
            )
        text = (
            f"For {change} in one agent's data, all messages of the run together ({self.updates} "
            f"{self.mechanism} updates per agent) are {numbers} against everyone who sees all "
            "messages, the server and the other agents included. The solutions are covered; the "
            "objective and noise columns of the trace are not, and must not be published."
        )
        if self.seeded:
            text += (
                " The noise came from a seed: the statement holds only while the seed is secret "
                "and never used again, under the same run name, on other data or settings."
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["epsilon"] = None if math.isinf(self.epsilon) else self.epsilon
        data["neighbours"] = list(self.neighbours)
        return {**data, "statement": self.words}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyStatement:
        values = {k: v for k, v in data.items() if k != "statement"}
        try:
            values["epsilon"] = math.inf if values["epsilon"] is None else float(values["epsilon"])
            values["neighbours"] = tuple(values["neighbours"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise CorruptFile(
                f"Expected a privacy statement, got {sorted(data)}: {error}."
            ) from None


def privacy_statement(problem: Problem, settings: Settings, seeded: bool) -> PrivacyStatement:
    """The exact composition of the TE updates that every agent makes (Section 4.3, corrected).

    Agents' data are disjoint, so one agent's record costs what that agent's messages cost.
    """
    neighbours = tuple(dict.fromkeys(a.objective.neighbours for a in problem.agents))
    mechanism, updates = settings.mechanism, settings.updates
    if isinstance(mechanism, Noiseless):
        return PrivacyStatement(
            math.inf, settings.delta, False, mechanism.name, updates, neighbours, seeded
        )
    total = exact(mechanism, updates, settings.delta)
    certified = settings.calibration == "certified"
    return PrivacyStatement(
        total.epsilon, total.delta, certified, mechanism.name, updates, neighbours, seeded
    )
