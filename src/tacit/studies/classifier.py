"""Studies of a classifier: columns, ranges and classes are public, each party brings its records.

``docs/studies.md`` lists the keys of [learn]. What [algorithm] leaves out is planned as ``tacit
learn`` does. A party's table (CSV or Parquet) has these columns, in any order; others are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput, choice, count, positive, shown
from tacit.learn import Box
from tacit.learn.estimators import PrivateLogisticRegression, adopt, plan, public_classes
from tacit.learn.features import PublicColumns, PublicRange
from tacit.learn.model import save_model
from tacit.planning import Plan
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.party_file import PartyFile
from tacit.studies.study import (
    Kind,
    agents_of,
    names_of,
    refuse_no_delta,
    refuse_unknown,
    spending,
)
from tacit.tables import load_records

SECTION = {
    *("features", "target", "classes", "normaliser", "record_bound", "neighbours"),
    *("feature_norm", "bound", "ranges", "categories", "fill"),
}
ADVICE = (
    "A study takes text by [learn.categories] and missing values by [learn.fill], which its "
    "coordinator sets for all."
)
REQUIRED = ("features", "target", "classes", "normaliser", "record_bound")


@dataclass(frozen=True)
class ClassifierKind(Kind):
    """A classifier without records, and what is asked of a fit."""

    features: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    normaliser: int
    record_bound: int
    mapping: PublicColumns | PublicRange  # of the columns of a table, fitted without records
    estimator: dict[str, Any]  # its public settings
    spending: dict[str, Any]  # arguments of ``tacit.learn.plan``

    KEYS = ("learn", "agents")

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> ClassifierKind:
        section = data["learn"]
        refuse_unknown(section, SECTION, "[learn]")
        if missing := [key for key in REQUIRED if key not in section]:
            raise InvalidInput(f"Expected {missing[0]} in [learn]; not given.")
        agents = tuple(agents_of(data, {"name"}))
        features, target = names_of("features", section["features"]), section["target"]
        if not isinstance(target, str) or not target or target in features:
            raise InvalidInput(
                f"Expected target as the name of a column beside the features, got {shown(target)}."
            )
        norm = positive("feature_norm", section.get("feature_norm", 1.0))
        relations = ("zero-out", "replace")
        neighbours = choice("neighbours", section.get("neighbours", "zero-out"), relations)
        estimator: dict[str, Any] = {"feature_norm": norm, "neighbours": neighbours}
        if "bound" in section:
            estimator["constraint"] = Box(positive("bound", section["bound"]))
        public = tuple(features), target, _classes(section["classes"])
        N, most = (count(key, section[key]) for key in ("normaliser", "record_bound"))
        mapping = _mapping(public[0], section)
        kind = cls(agents, (), *public, N, most, mapping, estimator, _spending(data))
        kind.plan(kind._without_records())
        return kind

    def _model(self) -> PrivateLogisticRegression:
        """The estimator, not fitted, that all parties agree on."""
        model = PrivateLogisticRegression(
            self.spending["total_epsilon"],
            self.spending["total_delta"],
            classes=list(self.classes),
            calibration=self.spending.get("calibration", "certified"),
            centring_share=None,  # a study has one run, and no release before it
            **self.estimator,
        )
        model.classes_ = np.unique(np.asarray(self.classes))
        model.n_features_in_ = self._columns
        sizes = float(self.normaliser), float(self.record_bound)
        model.slope_limit_ = model._limit(self._columns + 1, *sizes)
        return model

    @property
    def _columns(self) -> int:
        """Of a mapped row."""
        return len(self.mapping.get_feature_names_out())

    def _part(self, agent: str, features: Vector, labels: Vector) -> LocalProblem:
        """An agent's problem, of mapped features."""
        model = self._model()
        rows = model._rows(features)
        return model._agent(
            agent,
            rows,
            labels,
            model._set(self._columns),
            normaliser=self.normaliser,
            record_bound=float(self.record_bound),
        )

    def _without_records(self) -> Problem:
        """The problem with one record of zeros at every agent: all of it that is public."""
        row, label = np.zeros((1, self._columns)), np.zeros(1, np.int64)
        return Problem(self._part(agent, row, label) for agent in self.agents)

    def public_part(self) -> LocalProblem:
        return self._without_records().agents[0]

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        known, gaps = (getattr(self.mapping, k, None) or {} for k in ("categories", "fill"))
        records = load_records(
            [party.data],
            party.target or self.target,
            features=self.features,
            categories=known,
            gaps=gaps,
            advice=ADVICE,
        )
        _, labels = public_classes(self.classes, records.targets)
        mapped = self.mapping.transform(pd.DataFrame(dict(records.columns)))
        # record by record in memory, on which the rounding of lengths depends
        return self._part(agent, np.ascontiguousarray(mapped), labels)

    def plan(self, problem: Problem) -> Plan:
        """From the study alone: what ``tacit.learn.plan`` looks at is all in it."""
        known = self._without_records() if len(problem.agents) > 1 else problem  # the sum of all
        settings = plan(known, len(self.classes), **self.spending)
        return Plan(settings, None, settings.delta)

    def stated(self, result: Result) -> Result:
        """The result with what its statement takes for public."""
        model = self._model()
        adopt(model, self.normaliser, result)
        stated: Result = model.result_
        return stated

    def assumed(self, delta: float) -> str:
        return self._model()._assumed(self.normaliser, delta)

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """``model.json``, for ``tacit predict``."""
        model = self._model()
        adopt(model, self.normaliser, result)
        return [save_model(make_pipeline(self.mapping, model), folder).name]

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


def _classes(value: Any) -> tuple[str, ...]:
    """Labels as a table's are read: as text."""
    if not isinstance(value, list) or not all(type(x) in (str, int) for x in value):
        raise InvalidInput(f"Expected classes as a list of names or numbers, got {shown(value)}.")
    classes = tuple(str(x).strip() for x in value)
    if len(classes) < 2 or len(set(classes)) != len(classes) or "" in classes:
        raise InvalidInput("Expected two or more different classes in [learn].")
    return classes


def _mapping(features: Sequence[str], section: dict[str, Any]) -> PublicColumns | PublicRange:
    """Of [learn.ranges], [learn.categories] and [learn.fill]; there is a rule for every column."""
    more = {key: section[key] for key in ("categories", "fill") if key in section}
    for key, value in more.items():
        if not isinstance(value, dict):
            raise InvalidInput(f"Expected a table [learn.{key}] by column, got {shown(value)}.")
        refuse_unknown(value, {*features, "*"}, f"[learn.{key}]")
    ranges = _ranges(section.get("ranges")) if "ranges" in section or not more else {}
    nothing = pd.DataFrame({name: np.zeros(1) for name in features})
    mapping = PublicColumns(ranges, **more) if more else PublicRange(ranges)
    fitted: PublicColumns | PublicRange = mapping.fit(nothing)
    return fitted


def _ranges(value: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(value, dict) or not value:
        raise InvalidInput(f"Expected a table [learn.ranges] by column, got {shown(value)}.")
    for name, pair in value.items():
        if not isinstance(pair, list) or [type(x) in (int, float) for x in pair] != [True, True]:
            raise InvalidInput(f"Expected a range [low, high] of {name!r}, got {shown(pair)}.")
    return {name: (float(low), float(high)) for name, (low, high) in value.items()}


def _spending(data: dict[str, Any]) -> dict[str, Any]:
    """[privacy] and [algorithm] as arguments of ``tacit.learn.plan``."""
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
