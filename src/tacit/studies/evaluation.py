"""The last step of a study of [learn]: how good the model is, in numbers that may be published.

    records that were held out ─▶ cells, by the model ─▶ one histogram + noise, released once

It begins when all parties have been told the solution, on which its digest depends. What comes of
it is that of ``tacit.learn.PrivateEvaluation``: error, confusion, AUC and calibration.

Guarantee: given the model, which is public then, a record is in one cell by itself and the model
(``cells_of``), so that the histogram has a sensitivity of 1, √2 where a record is replaced
(``Counts``). Which records are held out follows from their places (``Evaluation.held_out``). The
model came from messages before: adaptive composition, and ``with_releases`` states the total, as if
a record were both learnt from and tested on. A party that keeps its folder evaluates one model of
a run; without the folder, every other model is charged anew, within its ledger's budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.learn.evaluation import Cells, PrivateEvaluation, cells_of, in_cells, layout_of
from tacit.learn.released_table import assumed
from tacit.objectives.moments import Counts
from tacit.planning import Plan
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement, with_releases
from tacit.sets import Box
from tacit.studies.classifier import ClassifierKind, Evaluation
from tacit.studies.moments import AT_MOST, EXACT
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Cost, Kind

WORDS = "one noisy histogram of records that were held out"
HELD = (
    "Also which records were held out to test the model: by their places in each table, which "
    "that change keeps."
)


@dataclass(frozen=True, eq=False)
class EvaluationKind(Kind):
    """What is counted of the records that were held out, by a model of this solution."""

    fit: ClassifierKind
    solution: Vector

    STAGE = "evaluation"

    @classmethod
    def of(cls, fit: ClassifierKind, solution: Vector) -> EvaluationKind:
        return cls(fit.agents, fit.files, fit, solution)

    @property
    def about(self) -> Evaluation:
        assert self.fit.evaluation is not None
        return self.fit.evaluation

    @cached_property
    def model(self) -> Any:
        """Of a point of the feasible set (``Study.after``), so that scores are finite, whatever the
        records: none decides whether there is an answer."""
        return self.fit.fitted(self.solution)

    @cached_property
    def cells(self) -> Cells:
        cells: Cells = self._places(*self.fit.nothing)[0]
        return cells

    def _places(self, rows: Vector, targets: Vector) -> Any:
        known = getattr(self.model, "classes_", None)
        return cells_of(self.model, rows, targets if known is None else known[targets])

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        records = self.fit.records(agent, party, held_out=True)
        return self._part(agent, in_cells(*self._places(*records)))

    def public_part(self) -> LocalProblem:
        return self._part(self.agents[0], in_cells(*self._places(*self.fit.nothing)))

    def _part(self, agent: str, rows: Vector) -> LocalProblem:
        most = max(self.about.many(name) for name in self.agents)
        sizes: Any = {"normaliser": float(self._records), "record_bound": float(most)}
        neighbours = self.fit.estimator["neighbours"]
        f = Counts(rows, feature_norm=1.0, neighbours=neighbours, **sizes)
        return LocalProblem(f, Box(-1.0, 1.0, size=f.dimension), name=agent)

    def plan(self, problem: Problem) -> Plan:
        settings = Settings(AT_MOST, tolerance=EXACT)
        return Plan(settings, self.about.noise, self.fit.spending["total_delta"])

    @property
    def _records(self) -> int:
        return sum(self.about.many(name) for name in self.agents)

    def assumed(self, delta: float) -> str:
        return assumed(self._records, delta)

    def total(self, own: Cost, before: Cost | None) -> PrivacyStatement:
        assert before is not None
        said, cells = before.privacy, math.prod(map(len, self.cells.values()))
        releases = [(own.mechanism, own.privacy.updates, cells), *self.model.first_releases_]
        about = before.mechanism, self.fit.size_of(said), releases, said.before
        found = with_releases(said, *about)
        return replace(found, after=WORDS, assumed=f"{said.assumed} {HELD}")

    def _released(self, point: Vector, privacy: PrivacyStatement) -> PrivateEvaluation:
        """What is to be published, of the parties' mean."""
        noise, statistics = self.about.noise, self.public_part().objective.statistics()
        values = np.asarray(point, np.float64) * self._records * len(self.agents)
        found = PrivateEvaluation(self.about.epsilon, self.fit.spending["total_delta"])
        about = noise.variance(statistics.sensitivity(noise.norm)), self._records, self.agents
        adopted: PrivateEvaluation = found.adopt(layout_of(self.cells), values, *about, privacy)
        return adopted

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """``evaluation.json``, whose statement is about this release alone."""
        return [self._released(result.solution, result.privacy).save(folder).name]

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        return [] if privacy is None else [self._released(point, privacy).save(folder).name]
