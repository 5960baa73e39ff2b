"""Problems of [objective] and [set] in TOML: jobs of one process, and studies.

[objective]   kind and public bounds          [set]        kind and bounds
[privacy]     budget or mechanism             [algorithm]  may be left out: rounds, tolerance, ...
columns       features of tables, in order: of a study; of a job they may be left out
[[agents]]    name, coupling; may override parts of [objective] and [set]; in a job (``examples/``)
              its data file and the target column too, which in a study are in the party's own file
aggregation   "sum", and ``colluding``: a secure sum (``tacit.solve``)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import sets
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, choice, count, current
from tacit.files import read_toml
from tacit.objectives import losses, residual
from tacit.objectives import objective as objectives
from tacit.planning import MOST_ROUNDS, NOISELESS_TOLERANCE, Plan, plan
from tacit.privacy import mechanisms
from tacit.protocol.facts import as_summed
from tacit.studies.study import (
    Kind,
    agents_of,
    public_name,
    refuse_no_delta,
    refuse_unknown,
    spending,
)
from tacit.tables import list_of, read_arrays, refuse_one_file


def _residual(
    matrix: Any,
    data: Any,
    beta: Any,
    moved: int = 1,
    groups: Any = None,
    noise_on: str = "residual",
    data_bound: float | None = None,
) -> residual.Residual:
    """Neighbours are described by numbers only: words of a file's own could promise more."""
    return residual.Residual(
        matrix, data, beta, moved, groups=groups, noise_on=noise_on, data_bound=data_bound
    )


OBJECTIVES: dict[str, Callable[..., objectives.Objective]] = {
    "least-squares": losses.LeastSquares,
    "softmax": losses.SoftmaxRegression,
    "logistic": losses.LogisticRegression,
    "huber": losses.Huber,
    "hinge": losses.Hinge,
    "quantile": losses.Quantile,
    "residual": _residual,
}
PRIVATE = {"features", "targets", "labels", "matrix", "data"}  # what a data file may hold
# A job describes neighbours by numbers only, never in words of its own; the rest is of grids
NOT_SAID = {"change", "unit", "doubt", "slack"}
SETS: dict[str, Callable[..., sets.FeasibleSet]] = {
    "box": sets.Box,
    "non-negative": sets.NonNegative,
    "ball": sets.Ball,
    "l1-ball": sets.L1Ball,
    "simplex": sets.Simplex,
    "half-space": sets.HalfSpace,
    "hyperplane": sets.Hyperplane,
    "polyhedron": sets.Polyhedron,
}


@dataclass(frozen=True)
class Job:
    """A job file with its data."""

    problem: Problem
    settings: Plan
    seed: int | None
    evaluate_every: int
    aggregation: str | None = None
    colluding: int | None = None
    columns: tuple[str, ...] = ()  # what each coordinate is, where tables say so


def load_job(path: str | Path) -> Job:
    """Read a job file and the data files it names (relative to the job file)."""
    kind = JobKind.of_file(path)
    agents, columns = kind.own(kind.agents)
    named = tuple(next(iter(columns.values()), ())) if len(columns) == len(agents) else ()
    return replace(kind.job(Problem(agents)), columns=named)


@dataclass(frozen=True)
class JobKind(Kind):
    """The sections of a job, and its agents' entries by name; no data are read yet."""

    sections: dict[str, Any]
    entries: dict[str, dict[str, Any]]
    folder: Path

    KEYS = ("objective", "set", "agents", "columns")

    @classmethod
    def of_file(cls, path: str | Path) -> JobKind:
        """A job, whose entries say where their agents' data are."""
        path = Path(path)
        data = read_toml(path, "a job file")
        given = "seed", "evaluate_every", "aggregation", "colluding"
        known = {*cls.KEYS, *given, "privacy", "algorithm"}
        refuse_unknown(data, known, "the job")
        kind = cls._of(data, path.parent, {"data", "target"})
        for name, entry in kind.entries.items():
            if not isinstance(entry.get("data"), str):
                raise InvalidInput(f"Expected a data file as text for agent {name!r}.")
        refuse_one_file([path.parent / entry["data"] for entry in kind.entries.values()])
        return kind

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> JobKind:
        kind = cls._of(data, folder)
        asked_of(data)
        files = set()
        for entry in kind.entries.values():
            if held := sorted((PRIVATE - {"matrix"}) & set(merged("objective", data, entry))):
                raise InvalidInput(
                    f"Expected no data in a study, which is public, got {held[0]} in [objective]."
                )
            description = merged("set", data, entry)
            if "file" in description:
                files.add(public_name(description["file"], "file in [set]"))
        kind._check()
        return replace(kind, files=tuple(sorted(files)))

    @classmethod
    def _of(cls, data: dict[str, Any], folder: Path, own: Iterable[str] = ()) -> JobKind:
        for section in ("objective", "set", "privacy"):
            if not isinstance(data.get(section), dict):
                raise InvalidInput(f"Expected a section [{section}], found none.")
        known = {"name", "coupling", "objective", "set", "columns", *own}
        entries = agents_of(data, known)
        return cls(tuple(entries), (), data, entries, folder)

    def _check(self) -> None:
        """As much as can be told before there are data; all of it, where sizes are known."""
        parts = []
        for name, entry in self.entries.items():
            objective = merged("objective", self.sections, entry)
            kind, _ = arguments_of("objective", OBJECTIVES, objective, dict.fromkeys(PRIVATE))
            choice("[set] kind", merged("set", self.sections, entry).get("kind"), tuple(SETS))
            if kind == "residual" and "matrix" not in objective:
                raise InvalidInput(
                    "Expected the matrix of a residual in the study: it is public, and facts about "
                    "it travel. Not given."
                )
            columns = self._columns(entry)
            arrays: dict[str, Any] = {}
            if kind == "residual":
                arrays = {"data": np.zeros(len(objective["matrix"]))}
            elif columns is not None:
                none = np.zeros(1)
                arrays = {"features": np.zeros((1, len(columns))), "targets": none, "labels": none}
            if arrays:
                parts.append(self._part(name, arrays))
        if len(parts) == len(self.entries):
            Problem(parts)

    def own(self, agents: Iterable[str]) -> tuple[list[LocalProblem], dict[str, list[str]]]:
        """The problems of these agents of a job, and the columns of those with tables. No other
        agent's data file is opened."""
        found: list[LocalProblem] = []
        columns: dict[str, list[str]] = {}
        for name in agents:
            entry = self.entries[name]
            path, target = self.folder / entry["data"], entry.get("target", "target")
            problem, header = self._read(name, path, target, "the job file")
            if header is not None and "coupling" not in entry:
                refuse_other_columns(name, header, *next(iter(columns.items()), (name, header)))
                columns[name] = header
            found.append(problem)
        return found, columns

    def job(self, problem: Problem) -> Job:
        """The whole job, given the problem of all agents or what is known of it."""
        seed, every = self.sections.get("seed"), self.sections.get("evaluate_every", 1)
        if seed is not None and (type(seed) is not int or seed < 0):
            raise InvalidInput(f"Expected a whole number seed >= 0, got seed={seed!r}.")
        how = choice("aggregation", self.sections.get("aggregation"), (None, "sum"))
        colluding = self.sections.get("colluding")
        if how is None and colluding is not None:
            raise InvalidInput(f'Expected aggregation = "sum" beside colluding = {colluding!r}.')
        known = problem if how is None else as_summed(problem, colluding)
        about = count("evaluate_every", every), how, colluding
        return Job(problem, self.plan(known), seed, *about)

    def problem_of(self, agent: str, party: Any) -> LocalProblem:
        if party.data.suffix == ".csv" and self._columns(self.entries[agent]) is None:
            raise InvalidInput(
                "Expected columns = [...] in the study beside data in a CSV table, as they say "
                "what each coordinate is; got none."
            )
        return self._read(agent, party.data, party.target or "target", "the study")[0]

    def public_part(self) -> LocalProblem:
        entry = next(iter(self.entries.values()))
        if (columns := self._columns(entry)) is None or "coupling" in entry:
            return super().public_part()
        none = np.zeros(1)
        nothing = {"features": np.zeros((1, len(columns))), "targets": none, "labels": none}
        return self._part(self.agents[0], nothing)

    def plan(self, problem: Problem) -> Plan:
        return plan(problem, asked_of(self.sections))

    def _columns(self, entry: dict[str, Any]) -> list[str] | None:
        columns = entry.get("columns", self.sections.get("columns"))
        return None if columns is None else [*list_of("columns", columns, "the study")]

    def _read(
        self, agent: str, path: Path, target: str, public: str
    ) -> tuple[LocalProblem, list[str] | None]:
        """An agent's problem with the data in a file, and of a table the feature columns.

        ``public``: where bounds belong, as a data file holds data only.
        """
        columns = self._columns(self.entries[agent])
        if columns is not None and target in columns:
            raise InvalidInput(
                f"Expected a target of agent {agent!r} beside the columns, got {target!r}, which "
                "is one of them."
            )
        arrays = read_arrays(path, target, columns)
        header = None if path.suffix == ".npz" else arrays.pop("columns")
        if unknown := sorted(set(arrays) - PRIVATE):
            raise InvalidInput(
                f"Expected only {', '.join(sorted(PRIVATE))} in {path}; got "
                f"{', '.join(unknown)}. Public bounds belong in {public}."
            )
        features = np.shape(arrays.get("features", ()))
        if columns is not None and len(features) == 2 and features[1] != len(columns):
            raise InvalidInput(
                f"Expected {len(columns)} columns of features in {path}, as {public} names, got "
                f"{features[1]}."
            )
        return self._part(agent, arrays), header

    def _part(self, agent: str, arrays: dict[str, Any]) -> LocalProblem:
        """An agent's problem: the sections, what its entry overrides, its data."""
        entry = self.entries[agent]
        described = merged("objective", self.sections, entry)
        kind, arguments = arguments_of("objective", OBJECTIVES, described, arrays)
        objective = OBJECTIVES[kind](**arguments)
        described = merged("set", self.sections, entry)
        if "file" in described:
            described |= read_arrays(self.folder / str(described.pop("file")), None)
        size = objective.dimension
        if described.get("size", size) != size:
            raise InvalidInput(
                f"Expected size {size} of [set], as the data of agent {agent!r} have, got "
                f"size={described['size']!r}."
            )
        kind, arguments = arguments_of("set", SETS, described, {"size": size})
        coupling = entry.get("coupling")
        if coupling is not None and (
            not isinstance(coupling, list)
            or not all(type(k) is int and abs(k) < 2**31 for k in coupling)
        ):
            raise InvalidInput(f"Expected a list of whole numbers as coupling of agent {agent!r}.")
        return LocalProblem(objective, SETS[kind](**arguments), coupling, agent)


def refuse_other_columns(name: str, header: list[str], other: str, expected: list[str]) -> None:
    """All agents' tables have the same columns in the same order, those of the first."""
    if header != expected:
        raise InvalidInput(
            f"Expected the feature columns of agent {other!r} ({', '.join(expected)}) in this "
            f"order, got {', '.join(header)} for agent {name!r}."
        )


def merged(section: str, job: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The job's section with what the agent overrides."""
    own = entry.get(section, {})
    if not isinstance(own, dict):
        raise InvalidInput(f"Expected a table {section} of an agent, got {own!r}.")
    return {**job[section], **own}


def arguments_of(
    section: str, kinds: dict[str, Any], description: dict[str, Any], supplied: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """A section's kind and all arguments of its constructor: none too many, none missing.

    ``supplied``: what the data give.
    """
    kind = choice(f"[{section}] kind", description.get("kind"), tuple(sorted(kinds)))
    arguments = {name: value for name, value in description.items() if name != "kind"}
    arguments = current({"slope_limit": "clip", "limit_form": "clip_form"}, arguments, section)
    for name, value in arguments.items():
        if name == "neighbours" and isinstance(value, list):  # "move" and by how much
            arguments[name] = tuple(value)
        elif isinstance(value, list):
            try:
                np.asarray(value, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InvalidInput(
                    f"Expected numbers in rows of equal length for {name} in [{section}]."
                ) from None
    parameters = inspect.signature(kinds[kind]).parameters
    accepted = {k: p for k, p in parameters.items() if k not in NOT_SAID}
    arguments = {k: v for k, v in supplied.items() if k in accepted} | arguments
    required = {k for k, p in accepted.items() if p.default is inspect.Parameter.empty}
    refuse_unknown(arguments, set(accepted), f"[{section}] of kind {kind!r}")
    if missing := required - set(arguments):
        raise InvalidInput(
            f"Expected {', '.join(sorted(missing))} for [{section}] of kind {kind!r}; not given."
        )
    return kind, arguments


OF_NOISE = {"perturbation", "calibration"}  # settings that stand in [privacy]
PRIVACY = {"mechanism", "total_epsilon", "total_delta", "epsilon", "delta", *OF_NOISE}
ALGORITHM = {"rounds", "local_updates", "penalty", "step_size", "tolerance", "reach"}


def asked_of(data: dict[str, Any]) -> Settings | Asked:
    """[privacy] and [algorithm], read and checked, before there is a problem."""
    privacy, others = spending(data, PRIVACY, ALGORITHM)
    others |= {key: privacy.pop(key) for key in OF_NOISE & set(privacy)}
    mechanism = privacy.get("mechanism", "gaussian")
    budget = {key: value for key, value in privacy.items() if key != "mechanism"}
    if mechanism == "none":
        refuse_unknown(budget, set(), "[privacy] without noise")
        if "rounds" not in others:
            others = {"rounds": MOST_ROUNDS, "tolerance": NOISELESS_TOLERANCE, **others}
        return Settings(mechanism=mechanisms.Noiseless(), **others)
    if "total_epsilon" in budget:
        refuse_unknown(budget, {"total_epsilon", "total_delta"}, "[privacy] with a total budget")
        refuse_no_delta(privacy)
        total = budget["total_epsilon"], budget.get("total_delta", 0.0)
        if "tolerance" in others or "rounds" not in others:  # rounds are then the most there may be
            rounds = others.pop("rounds", None)
            return Asked(*total, privacy.get("mechanism"), others, rounds=rounds)
        settings: Settings = Settings.for_budget(*total, mechanism=mechanism, **others)
        return settings
    for key, section, given in (("epsilon", "privacy", budget), ("rounds", "algorithm", others)):
        if key not in given:
            raise InvalidInput(
                f"Expected total_epsilon in [privacy], or epsilon of one update and rounds, got no "
                f"{key} in [{section}]."
            )
    refuse_unknown(budget, {"epsilon", "delta"}, "[privacy] with a budget per update")
    calibration = others.get("calibration", "certified")
    noise = mechanisms.per_update(mechanism, budget["epsilon"], budget.get("delta"), calibration)
    delta = budget.get("delta", 0.0 if mechanism == "laplace" else 1e-6)
    return Settings(mechanism=noise, delta=delta, **others)
