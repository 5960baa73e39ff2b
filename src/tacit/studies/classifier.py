"""Studies of records: columns and their rules are public, each party brings a table.

``docs/files.md`` lists the keys of [learn]: those of a table's columns are ``tables.Rules``, here
or in a file that travels (``columns``), and the model is that of ``tacit learn``. What [algorithm]
leaves out is planned as there. A party's table (CSV or Parquet) has these columns, in any order;
others are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import tacit.learn
from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import EPSILONS, InvalidInput, choice, count, positive, probability
from tacit.files import read_npz
from tacit.learn import MODELS, Box
from tacit.learn.centring import WORDS as MEAN
from tacit.learn.classifiers import public_classes
from tacit.learn.estimators import First, adopt, first_of, release_first
from tacit.learn.features import PublicColumns, PublicComponents, PublicRange, RandomFourier
from tacit.learn.first_releases import shared
from tacit.learn.model import save_model
from tacit.learn.ranges import STAGES
from tacit.learn.ranges import WORDS as RANGES
from tacit.planning import Plan
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism, Noiseless
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement, with_releases
from tacit.studies.first import FirstKind, Told
from tacit.studies.party_file import PartyFile
from tacit.studies.study import (
    Cost,
    Kind,
    agents_of,
    public_name,
    refuse_no_delta,
    refuse_other_number,
    refuse_unknown,
    rules_in,
    spending,
)
from tacit.tables import RULES, Rules

SECTION = {
    *RULES,
    *("columns", "model", "level", "normaliser", "record_bound", "neighbours"),
    *("feature_norm", "bound", "feature_map", "centring_share"),
}
ADVICE = (
    "A study takes text by [learn.categories] and missing values by [learn.fill], which its "
    "coordinator sets for all."
)
# of [privacy] and [algorithm]; the rest is asked of the planner
OF_ESTIMATORS = ("total_delta", "mechanism", "calibration", "rounds", "local_updates")


@dataclass(frozen=True)
class Evaluation:
    """[evaluation]: the share of each party's records that is held out, and the noise of their
    histogram; and how many records each party has in all."""

    epsilon: float
    share: float
    noise: Mechanism
    records: Mapping[str, int]

    def held_out(self, agent: str) -> Vector:
        """Which of the party's records are held out.

        Guarantee: it follows from the party's name, the public number of its records and the
        share: from no record, and from nothing that whoever writes studies can choose beside them.
        """
        many = self.records[agent]
        places = sorted(range(many), key=lambda i: sha256(f"{i} {agent}".encode()).digest())
        found = np.zeros(many, bool)
        found[places[: self.many(agent)]] = True
        return found

    def many(self, agent: str) -> int:
        return round(self.share * self.records[agent])


@dataclass(frozen=True)
class ClassifierKind(Kind):
    """A model without records, and what is asked of a fit."""

    rules: Rules
    normaliser: int
    record_bound: int
    steps: tuple[Any, ...]  # public maps of the columns of a table, fitted without records
    model: str  # of ``tacit.learn``
    estimator: dict[str, Any]  # its public settings
    spending: dict[str, Any]
    evaluation: Evaluation | None
    first: First
    known: tuple[Vector, ...] = ()  # solutions of the first steps (``first.py``)

    KEYS = ("learn", "agents", "evaluation")

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> Kind:
        section = data["learn"]
        refuse_unknown(section, SECTION, "[learn]")
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
        if not number:
            estimator["centring_share"] = _share(section.get("centring_share", "auto"))
        elif "centring_share" in section:
            raise InvalidInput("Expected centring_share in [learn] with classes only.")
        spent = _spending(data)
        if name != "logistic" and "calibration" in spent:
            raise InvalidInput(f"Expected no calibration of model = {name!r}: it is certified.")
        agents = agents_of(data, {"name", "records"})
        evaluation = _evaluation(data, agents, spent)
        sizes, maps = _sizes(section, agents, evaluation), _steps(rules, section, folder)
        public = tuple(agents), (*files, *_map_file(section)), rules
        if rules.auto:
            if len(maps) > 1:
                raise InvalidInput("Expected ranges [low, high] with a feature_map, got auto.")
            estimator["ranges"] = rules.read(maps[0].get_feature_names_out().tolist())
            estimator |= {"narrow_target": rules.target in rules.auto} if number else {}
        first = First(None, None, spent["total_epsilon"])
        kind = cls(*public, *sizes, maps, name, estimator, spent, evaluation, first)
        kind = replace(kind, first=first_of(kind._estimator(), kind._columns, kind._sizes, True))
        kind.plan(kind._without_records())
        found = kind.knowing()
        found.public_part()  # what can be refused is refused here
        return found

    def knowing(self, *solutions: Vector) -> Kind:
        """The same with these solutions too: the fit, or what comes before it."""
        kind = replace(self, known=(*self.known, *solutions))
        return kind if len(kind.known) == len(self.noises) else FirstKind.of(kind)

    @property
    def noises(self) -> tuple[Mechanism, ...]:
        """Of the first steps."""
        ranges, mean, _ = self.first
        return (*([ranges] * STAGES if ranges else ()), *([mean] if mean else ()))

    @property
    def then(self) -> tuple[tuple[Mechanism, int], ...]:
        return () if self.evaluation is None else ((self.evaluation.noise, 1),)

    @property
    def cost(self) -> tuple[Mechanism, int]:
        """Of the fit alone."""
        plan = self.plan(self._without_records())
        run = plan.settings.mechanism, plan.settings.updates
        return (plan.release, 1) if plan.release else run

    def after(self, solution: Vector) -> Kind | None:
        from tacit.studies.evaluation import EvaluationKind

        return None if self.evaluation is None else EvaluationKind.of(self, solution)

    def unfitted(
        self, agent: str = "", rows: Vector | None = None, targets: Vector | None = None
    ) -> Any:
        """The estimator that all parties agree on, with what is known of ranges and a mean. With an
        agent's records it raises ``NotYet`` where a sum is not known."""
        model = self._estimator()
        first_of(model, self._columns, self._sizes, True)  # which the length follows from
        if agent or (self.noises and len(self.known) == len(self.noises)):
            rows, targets = self.nothing if rows is None or targets is None else (rows, targets)
            how = {k: self.estimator.get(k) for k in ("aggregation", "colluding")}
            whose = np.array([agent]), np.zeros(len(rows), int), model.neighbours, model.total_delta
            about: Any = {"public": self._sizes, "agents": len(self.agents)}
            if self.rules.target_range is not None:
                targets = model._targets(targets)
            told = Told(*whose, how, **about, known=iter(self.known))
            release_first(model, self.first, rows, targets, told, (Noiseless(), 0))
        return model

    @property
    def _sizes(self) -> dict[str, float]:
        return {"normaliser": float(self.normaliser), "record_bound": float(self.record_bound)}

    def _estimator(self) -> Any:
        own = dict(self.estimator)
        if self.rules.target_range is not None:
            own["target_range"] = self.rules.target_range
        else:
            own["classes"] = list(self.rules.classes or ())
        own |= {key: self.spending[key] for key in OF_ESTIMATORS if key in self.spending}
        kind: Any = getattr(tacit.learn, MODELS[self.model][0])
        model = kind(self.spending["total_epsilon"], **own)
        model.n_features_in_, model.n_agents_ = self._columns, len(self.agents)
        model.first_releases_ = []
        if "classes" in own:
            model.classes_ = np.unique(np.asarray(own["classes"]))
        return model

    def fitted(self, solution: Vector, privacy: PrivacyStatement | None = None) -> Any:
        """The same with a solution, and its statement."""
        model = self.unfitted()
        model.privacy_ = privacy
        model._keep(np.asarray(solution))
        return model

    @property
    def _columns(self) -> int:
        """Of a mapped row."""
        return len(self.steps[-1].get_feature_names_out())

    def _without_records(self) -> Problem:
        """The problem with one record of zeros at every agent: all of it that is public."""
        return self._empty(self.unfitted())

    def _empty(self, model: Any) -> Problem:
        kinds = np.float64, np.int64
        found: Problem = model._without_records(np.array(self.agents), kinds, **self._sizes)
        return found

    @property
    def nothing(self) -> tuple[Vector, Vector]:
        """A record of zeros, mapped."""
        return np.zeros((1, self._columns)), np.zeros(1, np.int64)

    def public_part(self) -> LocalProblem:
        return self._without_records().agents[0]

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        features, targets = self.records(agent, party, held_out=False)
        model: Any = self.unfitted()
        if self.rules.target_range is not None:
            targets = model._targets(targets)
        feasible_set = self.public_part().feasible_set
        found: LocalProblem = model._agent(
            agent, model._rows(features), targets, feasible_set, **self._sizes
        )
        return found

    def records(self, agent: str, party: PartyFile, held_out: bool) -> tuple[Vector, Vector]:
        """A party's mapped records, and places in the list of classes, or numbers: of those that
        were held out, or of all others."""
        found = self.rules.records([party.data], target=party.target, advice=ADVICE)
        kept: Any = slice(None)
        if self.evaluation is not None:
            refuse_other_number(agent, len(found), self.evaluation.records[agent])
            kept = self.evaluation.held_out(agent) == held_out
        targets = found.targets
        if self.rules.target_range is None:
            _, targets = public_classes(self.rules.classes, targets)
        rows: Any = pd.DataFrame(dict(found.columns))
        for step in self.steps:  # of all records: what is wrong with one is said at once
            rows = step.transform(rows)
        # record by record in memory, on which the rounding of lengths depends
        return np.ascontiguousarray(rows[kept]), targets[kept]

    def plan(self, problem: Problem) -> Plan:
        others = {k: v for k, v in self.spending.items() if k not in OF_ESTIMATORS}
        del others["total_epsilon"]
        known = self._without_records() if len(problem.agents) > 1 else problem  # the sum of all
        found = self.unfitted()._settings(known, self.first.epsilon, **others)
        return found if isinstance(found, Plan) else Plan(found, None, found.delta)

    def stated(self, result: Result) -> Result:
        """The result with what its statement takes for public."""
        stated: Result = self._adopted(result).result_
        return stated

    def _adopted(self, result: Result) -> Any:
        model = self.unfitted()
        self._empty(model)  # which tells what was planned
        adopt(model, self.normaliser, result)
        return model

    def total(self, own: Cost, before: Cost | None) -> PrivacyStatement:
        said, model = super().total(own, before), self.unfitted()
        if not model.first_releases_:
            return said
        words = [RANGES] * (model.ranges_ is not None) + [MEAN] * (model.mean_ is not None)
        about = own.mechanism, self.size_of(said), model.first_releases_, " and ".join(words)
        return with_releases(said, *about)

    def size_of(self, said: PrivacyStatement) -> int:
        """How many numbers one message of the fit has."""
        f: Any = self.public_part().objective
        return int(f.statistics().size if said.once else f.statistic_size)

    def assumed(self, delta: float) -> str:
        words: str = self.unfitted()._assumed(self.normaliser, delta)
        return words

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """``model.json``, for ``tacit predict``."""
        return [save_model(make_pipeline(*self.steps, self._adopted(result)), folder).name]

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        written = super().write_own(folder, problem, point, privacy)
        if privacy is not None:
            said = replace(privacy, assumed=self.assumed(privacy.delta))
            model = make_pipeline(*self.steps, self.fitted(point, said))
            written.append(save_model(model, folder).name)
        return written


def _rules(section: dict[str, Any], folder: Path) -> tuple[Rules, tuple[str, ...]]:
    """Rules of the columns, in [learn] or in a file that travels with the study; and its name."""
    rules, files = rules_in(section, folder, "[learn]")
    if rules.target is None:
        raise InvalidInput("Expected target in [learn]; not given.")
    if rules.classes is None and rules.target_range is None:
        raise InvalidInput("Expected classes in [learn], or a target_range; not given.")
    if rules.features is None:  # all parties' are the same ones, in the same order
        rules = replace(rules, features=rules.named())
    if not rules.features:
        raise InvalidInput("Expected features in [learn], or a range or categories by column.")
    return rules, files


def _share(value: Any) -> Any:
    """Of the budget, for a mean that rows are centred by."""
    if value in ("auto", "none"):
        return "auto" if value == "auto" else None
    return probability("centring_share in [learn]", value)


def _steps(rules: Rules, section: dict[str, Any], folder: Path) -> tuple[Any, ...]:
    """Public maps of a record: a rule for every column, and a feature map."""
    nothing = pd.DataFrame({name: np.zeros(1) for name in rules.features or ()})
    columns: Any = PublicRange(rules.ranges)  # a model that the first version reads too
    if rules.categories or rules.fill or rules.log:
        own = rules.ranges, rules.categories, rules.fill, rules.log or None
        columns = PublicColumns(*own)
    columns.fit(nothing)
    if (kind := section.get("feature_map")) is None:
        return (columns,)
    if files := _map_file(section):
        arrays = read_npz(folder / files[0], "directions of a feature map")
        step: Any = PublicComponents(directions=arrays.get("directions"))
    else:
        choice("feature_map", kind, ("fourier",))
        step = RandomFourier()
    return columns, step.fit(np.zeros((1, len(columns.get_feature_names_out()))))


def _map_file(section: dict[str, Any]) -> tuple[str, ...]:
    """The file with the directions of a feature map, which travels."""
    name = section.get("feature_map")
    if not isinstance(name, str) or not name.endswith(".npz"):
        return ()
    return (public_name(name, "feature_map in [learn]"),)


def _evaluation(
    data: dict[str, Any], agents: Mapping[str, dict[str, Any]], spent: dict[str, Any]
) -> Evaluation | None:
    """[evaluation]; its part of the budget is taken off what is ``spent`` on the fit."""
    if "evaluation" not in data:
        return None
    section = data["evaluation"]
    refuse_unknown(section, {"epsilon", "share"}, "[evaluation]")
    if any("records" not in entry for entry in agents.values()):
        raise InvalidInput(
            "Expected records, how many there are, of every one of [[agents]] with [evaluation]: "
            "they say which are held out. Not given."
        )
    records = {n: count(f"records of {n!r}", entry["records"]) for n, entry in agents.items()}
    share = probability("share in [evaluation]", section.get("share", 0.2))
    own = positive("epsilon in [evaluation]", section.get("epsilon"), EPSILONS)
    total, δ, kind = spent["total_epsilon"], spent["total_delta"], spent.get("mechanism")
    part = own / positive("total_epsilon", total, EPSILONS)
    if kind != "laplace":  # of the squares of shifts, which add up
        one, all_of_it = (calibrate("gaussian", ε, δ, 1).noise_multiplier for ε in (own, total))
        part = (all_of_it / one) ** 2
    if not part < 1:
        raise InvalidInput(
            f"Expected epsilon in [evaluation] below the study's total_epsilon, {total:g}, which "
            f"it is a part of, got {own:g}."
        )
    noise, spent["total_epsilon"] = shared(kind or "gaussian", total, δ, part, True)
    found = Evaluation(own, share, noise, records)
    if few := [n for n in records if not 1 <= found.many(n) < records[n]]:
        raise InvalidInput(
            f"Expected a share in [evaluation] that leaves records of {few[0]!r} to learn from and "
            f"to test on, got {share:g} of {records[few[0]]}."
        )
    return found


def _sizes(
    section: dict[str, Any], agents: Mapping[str, dict[str, Any]], held: Evaluation | None
) -> tuple[int, int]:
    """How many records there are to learn from, and how many one agent may have."""
    given = [key for key in ("normaliser", "record_bound") if key in section]
    if any("records" in entry for entry in agents.values()):
        if given:
            raise InvalidInput(
                f"Expected {given[0]} in [learn] or records of [[agents]], which say it, got both."
            )
        many = [count(f"records of {n!r}", e.get("records", 0)) for n, e in agents.items()]
        if held is not None:
            many = [n - held.many(name) for name, n in zip(agents, many, strict=True)]
        return sum(many), max(many)
    if len(given) < 2:
        raise InvalidInput(
            "Expected normaliser and record_bound in [learn], or records of every one of "
            f"[[agents]]; got {given[0] if given else 'none'}."
        )
    normaliser, most = (count(key, section[key]) for key in given)
    return normaliser, most


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
