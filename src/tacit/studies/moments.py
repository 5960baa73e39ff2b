"""Studies of a table's moments: one release by every party, which all can query on their own.

``docs/files.md`` lists the keys of [moments]. The answer of the run is the sum of all releases,
divided by the number of parties and of records: all have it at the end, in ``moments.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked
from tacit.errors import InvalidInput, choice, count
from tacit.learn.features import PublicColumns
from tacit.learn.released_table import Layout, PrivateMoments, assumed
from tacit.planning import Plan, plan
from tacit.privacy.accounting import calibrate
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.party_file import PartyFile
from tacit.studies.study import (
    Kind,
    agents_of,
    refuse_no_delta,
    refuse_other_number,
    refuse_unknown,
    rules_in,
    spending,
)
from tacit.tables import Rules

EXACT = 1e-10  # residual at which the answer is that of the releases: rounds cost nothing
AT_MOST = 30  # rounds to agree on a mean, which takes about six


@dataclass(frozen=True)
class MomentsKind(Kind):
    """A table without records: ``records`` says how many each agent has."""

    rules: Rules
    layout: Layout
    records: Mapping[str, int]
    neighbours: str
    budget: tuple[float, float]

    KEYS = ("moments", "agents")
    TAKES = ""

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> MomentsKind:
        section = data["moments"]
        keys = {"columns", "features", "drop", "ranges", "categories", "fill", "neighbours"}
        refuse_unknown(section, keys, "[moments]")
        rules, files = rules_in(section, folder, "[moments]")
        rules = rules.with_target_as_a_column()
        rules = replace(rules, features=rules.named())  # of all parties, in this order
        known = {name: np.zeros(1) for name in rules.named()}
        if not known:
            raise InvalidInput("Expected a range or categories by column in [moments], got none.")
        mapping = PublicColumns(rules.ranges, rules.categories, rules.fill).fit(known)
        agents = agents_of(data, {"name", "records"})
        records = {n: count(f"records of {n!r}", e.get("records", 0)) for n, e in agents.items()}
        relations = ("zero-out", "replace")
        neighbours = choice("neighbours", section.get("neighbours", "zero-out"), relations)
        privacy, _ = spending(data, {"total_epsilon", "total_delta"}, set())
        refuse_no_delta(privacy)
        if "total_epsilon" not in privacy:
            raise InvalidInput("Expected total_epsilon in [privacy]; not given.")
        budget = privacy["total_epsilon"], privacy["total_delta"]
        calibrate("gaussian", *budget, 1)  # refuses what is no budget
        return cls(tuple(agents), files, rules, Layout.of(mapping), records, neighbours, budget)

    def _part(self, agent: str, rows: Vector) -> LocalProblem:
        many = self.records.values()
        sizes: Any = {"normaliser": float(sum(many)), "record_bound": float(max(many))}
        return self.layout.problem(agent, rows, neighbours=self.neighbours, **sizes)

    def public_part(self) -> LocalProblem:
        return self._part(self.agents[0], np.zeros((1, len(self.layout.names))))

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        found = self.rules.records([party.data])
        refuse_other_number(agent, len(found), self.records[agent])
        return self._part(agent, self.layout.rows(dict(found.columns)))

    def plan(self, problem: Problem) -> Plan:
        asked = Asked(*self.budget, "gaussian", {"tolerance": EXACT}, way="release")
        return plan(problem, asked)

    def assumed(self, delta: float) -> str:
        return assumed(sum(self.records.values()), delta)

    def _table(self, point: Vector, privacy: PrivacyStatement) -> PrivateMoments:
        mechanism, total = calibrate("gaussian", *self.budget, 1), sum(self.records.values())
        variance = mechanism.variance(self.public_part().objective.statistics().sensitivity(2))
        values = np.asarray(point, np.float64) * total * len(self.agents)
        about = self.layout, values, variance, total, self.agents, privacy
        return PrivateMoments(*self.budget).adopt(*about)

    def stated(self, result: Result) -> Result:
        said = replace(result.privacy, assumed=self.assumed(result.privacy.delta))
        return replace(result, privacy=said)

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        return [self._table(result.solution, result.privacy).save(folder).name]

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        written = super().write_own(folder, problem, point, privacy)
        if privacy is not None:
            written.append(self._table(point, privacy).save(folder).name)
        return written
