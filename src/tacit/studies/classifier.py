"""Studies of records: columns and their rules are public, each party brings a table.

``docs/files.md`` lists the keys of [learn]: those of a table's columns are ``tables.Rules``, here
or in a file that travels (``columns``), and the model is that of ``tacit learn``. What [algorithm]
leaves out is planned as there. A party's table (CSV or Parquet) has these columns, in any order;
others are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import tacit.learn
from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput, choice, count, positive
from tacit.learn import MODELS, Box
from tacit.learn.classifiers import public_classes
from tacit.learn.estimators import adopt
from tacit.learn.features import PublicColumns, PublicRange
from tacit.learn.model import save_model
from tacit.planning import Plan
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.party_file import PartyFile
from tacit.studies.study import (
    Kind,
    agents_of,
    refuse_no_delta,
    refuse_unknown,
    rules_in,
    spending,
)
from tacit.tables import RULES, Rules

SECTION = {
    *RULES,
    *("columns", "model", "level", "normaliser", "record_bound", "neighbours"),
    *("feature_norm", "bound"),
}
ADVICE = (
    "A study takes text by [learn.categories] and missing values by [learn.fill], which its "
    "coordinator sets for all."
)
# of [privacy] and [algorithm]; the rest is asked of the planner
OF_ESTIMATORS = ("total_delta", "mechanism", "calibration", "rounds", "local_updates")
REQUIRED = ("normaliser", "record_bound")


@dataclass(frozen=True)
class ClassifierKind(Kind):
    """A model without records, and what is asked of a fit."""

    rules: Rules
    normaliser: int
    record_bound: int
    mapping: PublicColumns | PublicRange  # of the columns of a table, fitted without records
    model: str  # of ``tacit.learn``
    estimator: dict[str, Any]  # its public settings
    spending: dict[str, Any]

    KEYS = ("learn", "agents")

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> ClassifierKind:
        section = data["learn"]
        refuse_unknown(section, SECTION, "[learn]")
        if missing := [key for key in REQUIRED if key not in section]:
            raise InvalidInput(f"Expected {missing[0]} in [learn]; not given.")
        agents = tuple(agents_of(data, {"name"}))
        rules, files = _rules(section, folder)
        number = rules.target_range is not None
        name = section.get("model", "huber" if number else "logistic")
        choice("model", name, tuple(m for m, (_, of) in MODELS.items() if of == number))
        relations = ("zero-out", "replace")
        neighbours = choice("neighbours", section.get("neighbours", "zero-out"), relations)
        sums: dict[str, Any] = {k: data[k] for k in ("aggregation", "colluding") if k in data}
        estimator: dict[str, Any] = {"neighbours": neighbours, **sums}
        if "feature_norm" in section:
            estimator["feature_norm"] = positive("feature_norm", section["feature_norm"])
        if "bound" in section:
            estimator["constraint"] = Box(positive("bound", section["bound"]))
        if "level" in section:
            if name != "quantile":
                raise InvalidInput("Expected level in [learn] for model = 'quantile' only.")
            estimator["level"] = section["level"]
        N, most = (count(key, section[key]) for key in ("normaliser", "record_bound"))
        spent = _spending(data)
        if name != "logistic" and "calibration" in spent:
            raise InvalidInput(f"Expected no calibration of model = {name!r}: it is certified.")
        kind = cls(agents, files, rules, N, most, _mapping(rules), name, estimator, spent)
        kind.plan(kind._without_records())
        return kind

    def _model(self) -> Any:
        """The estimator, not fitted, that all parties agree on."""
        own = dict(self.estimator)
        if self.rules.target_range is not None:
            own["target_range"] = self.rules.target_range
        else:
            own["classes"] = list(self.rules.classes or ())
            own["centring_share"] = None  # a study has one run, and no release before it
        own |= {key: self.spending[key] for key in OF_ESTIMATORS if key in self.spending}
        kind: Any = getattr(tacit.learn, MODELS[self.model][0])
        model = kind(self.spending["total_epsilon"], **own)
        model.n_features_in_, model.n_agents_ = self._columns, len(self.agents)
        if "classes" in own:
            model.classes_ = np.unique(np.asarray(own["classes"]))
        return model

    @property
    def _columns(self) -> int:
        """Of a mapped row."""
        return len(self.mapping.get_feature_names_out())

    def _part(
        self, agent: str, features: Vector, targets: Vector, model: Any = None
    ) -> LocalProblem:
        """An agent's problem, of mapped features."""
        model = model or self._model()
        sizes = {"normaliser": self.normaliser, "record_bound": float(self.record_bound)}
        rows, feasible_set = model._rows(features), model._set(self._columns)
        found: LocalProblem = model._agent(agent, rows, targets, feasible_set, **sizes)
        return found

    def _without_records(self) -> Problem:
        """The problem with one record of zeros at every agent: all of it that is public."""
        return Problem(self._part(agent, *self._nothing) for agent in self.agents)

    @property
    def _nothing(self) -> tuple[Vector, Vector]:
        return np.zeros((1, self._columns)), np.zeros(1, np.int64)

    def public_part(self) -> LocalProblem:
        return self._without_records().agents[0]

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        records = self.rules.records([party.data], target=party.target, advice=ADVICE)
        if self.rules.target_range is None:
            _, targets = public_classes(self.rules.classes, records.targets)
        else:
            targets = self._model()._targets(records.targets)
        mapped = self.mapping.transform(pd.DataFrame(dict(records.columns)))
        # record by record in memory, on which the rounding of lengths depends
        return self._part(agent, np.ascontiguousarray(mapped), targets)

    def plan(self, problem: Problem) -> Plan:
        others = {k: v for k, v in self.spending.items() if k not in OF_ESTIMATORS}
        epsilon = others.pop("total_epsilon")
        known = self._without_records() if len(problem.agents) > 1 else problem  # the sum of all
        found = self._model()._settings(known, epsilon, **others)
        return found if isinstance(found, Plan) else Plan(found, None, found.delta)

    def stated(self, result: Result) -> Result:
        """The result with what its statement takes for public."""
        stated: Result = self._adopted(result).result_
        return stated

    def _adopted(self, result: Result) -> Any:
        model = self._model()
        self._part(self.agents[0], *self._nothing, model)  # which tells what was planned
        adopt(model, self.normaliser, result)
        return model

    def assumed(self, delta: float) -> str:
        words: str = self._model()._assumed(self.normaliser, delta)
        return words

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """``model.json``, for ``tacit predict``."""
        return [save_model(make_pipeline(self.mapping, self._adopted(result)), folder).name]

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        written = super().write_own(folder, problem, point, privacy)
        if privacy is not None:
            model = self._model()
            model.privacy_ = replace(privacy, assumed=self.assumed(privacy.delta))
            model._keep(np.asarray(point))
            written.append(save_model(make_pipeline(self.mapping, model), folder).name)
        return written


def _rules(section: dict[str, Any], folder: Path) -> tuple[Rules, tuple[str, ...]]:
    """Rules of the columns, in [learn] or in a file that travels with the study; and its name."""
    rules, files = rules_in(section, folder, "[learn]")
    if rules.auto:
        raise InvalidInput("Expected public ranges in a study, which has one run, got auto.")
    if rules.target is None:
        raise InvalidInput("Expected target in [learn]; not given.")
    if rules.classes is None and rules.target_range is None:
        raise InvalidInput("Expected classes in [learn], or a target_range; not given.")
    if rules.features is None:  # all parties' are the same ones, in the same order
        rules = replace(rules, features=rules.named())
    if not rules.features:
        raise InvalidInput("Expected features in [learn], or a range or categories by column.")
    return rules, files


def _mapping(rules: Rules) -> PublicColumns | PublicRange:
    """There is a rule for every column."""
    nothing = pd.DataFrame({name: np.zeros(1) for name in rules.features or ()})
    if (
        not rules.categories and not rules.fill and not rules.log
    ):  # a model that the first version reads too
        return PublicRange(rules.ranges).fit(nothing)
    own = rules.ranges, rules.categories, rules.fill, rules.log or None
    return PublicColumns(*own).fit(nothing)


def _spending(data: dict[str, Any]) -> dict[str, Any]:
    """[privacy] and [algorithm], checked."""
    budget = {"mechanism", "total_epsilon", "total_delta", "perturbation", "calibration"}
    counted = {"rounds", "local_updates"}
    privacy, algorithm = spending(data, budget, {*counted, "penalty", "step_size"})
    if "total_epsilon" not in privacy:
        raise InvalidInput("Expected total_epsilon in [privacy]; not given.")
    refuse_no_delta(privacy)
    choice("mechanism", privacy.get("mechanism", "gaussian"), ("gaussian", "laplace"))
    for key in counted & set(algorithm):
        count(key, algorithm[key])
    return {"total_delta": 0.0, **privacy, **algorithm}
