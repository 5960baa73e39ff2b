"""The first steps of a study of [learn]: noisy sums of rows, from which ranges and a mean follow.

    Σ x_i/N + noise of every step ─▶ ranges, a mean and a length ─▶ the rows of the fit

What is summed is that of ``tacit learn`` (``learn/first_releases.py``): the same code runs at every
party, with the sums that are known to all, until it asks for one that is not.

Guarantee: of ``Sums``: a row is made of one record and of public numbers, to a public length,
whatever the sums before it are said to be. ``ClassifierKind.total`` states all steps together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.learn.first_releases import Sums
from tacit.planning import Plan
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.moments import AT_MOST, EXACT
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Kind

if TYPE_CHECKING:
    from tacit.studies.classifier import ClassifierKind


class NotYet(Exception):
    """A sum that is not known: a party's part of it, and the noise of its release."""

    def __init__(self, part: LocalProblem, noise: Mechanism) -> None:
        self.part, self.noise = part, noise


@dataclass(frozen=True, kw_only=True)
class Told(Sums):
    """The sums of a study as one party sees them: those that are known, then ``NotYet``."""

    public: Mapping[str, float]
    agents: int
    known: Iterator[Vector] = field(repr=False)

    @property
    def parties(self) -> int:
        return self.agents

    @property
    def sizes(self) -> dict[str, float]:
        return dict(self.public)

    def mean(self, parts: list[LocalProblem], mechanism: Mechanism, run: str, **how: Any) -> Vector:
        for found in self.known:
            return found * self.agents  # what parties agree on is the mean of their sums
        raise NotYet(parts[0], mechanism)


@dataclass(frozen=True, eq=False)
class FirstKind(Kind):
    """The next sum, for a fit that knows the sums before it."""

    fit: ClassifierKind

    KEYS = ("learn", "agents", "evaluation")

    @classmethod
    def of(cls, fit: ClassifierKind) -> FirstKind:
        return cls(fit.agents, fit.files, fit)

    @property
    def STAGE(self) -> str:  # type: ignore[override]
        return f"first-{len(self.fit.known) + 1}"

    @property
    def then(self) -> tuple[tuple[Mechanism, int], ...]:
        later = self.fit.noises[len(self.fit.known) + 1 :]
        return (*((noise, 1) for noise in later), self.fit.cost, *self.fit.then)

    def after(self, solution: Vector) -> Kind:
        return self.fit.knowing(solution)

    def _asked(self, agent: str, rows: Vector, targets: Vector) -> NotYet:
        try:
            self.fit.unfitted(agent, rows, targets)
        except NotYet as asked:
            return asked
        raise AssertionError("unreachable")

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        return self._asked(agent, *self.fit.records(agent, party, held_out=False)).part

    def public_part(self) -> LocalProblem:
        return self._asked(self.agents[0], *self.fit.nothing).part

    def plan(self, problem: Problem) -> Plan:
        noise = self._asked(self.agents[0], *self.fit.nothing).noise
        return Plan(Settings(AT_MOST, tolerance=EXACT), noise, self.fit.spending["total_delta"])

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        return []

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        return []
