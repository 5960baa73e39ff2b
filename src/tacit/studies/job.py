"""Jobs: a problem, its budget and its schedules in one TOML file (see ``examples/``).

[objective]   kind and public bounds          [set]        kind and bounds
[privacy]     budget or mechanism             [algorithm]  may be left out: rounds, tolerance, ...
[[agents]]    name, data file, coupling; may override parts of [objective] and [set]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import sets
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import penalty_from, step_size_from
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, count
from tacit.objectives import losses, residual
from tacit.objectives import objective as objectives
from tacit.planning import MOST_ROUNDS, NOISELESS_TOLERANCE, Plan, plan
from tacit.privacy import mechanisms
from tacit.reading import read_toml
from tacit.tables import read_arrays, refuse_one_file


def _residual(
    matrix: Any,
    data: Any,
    beta: Any,
    moved: int = 1,
    groups: Any = None,
    noise_on: str = "residual",
    data_bound: float | None = None,
) -> residual.Residual:
    """A job describes its neighbours by numbers only, never in words of its own."""
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
    """A job file, read and checked; the data are loaded by ``load_job``."""

    problem: Problem
    settings: Plan
    seed: int | None
    evaluate_every: int


@dataclass(frozen=True)
class JobFile:
    """A job file as it was read, before any of the data files that it names (relative to it)."""

    path: Path
    data: dict[str, Any]
    entries: list[Any]

    @classmethod
    def read(cls, path: str | Path) -> JobFile:
        path = Path(path)
        data = read_toml(path, "a job file")
        known = {"seed", "evaluate_every", "objective", "set", "privacy", "algorithm", "agents"}
        refuse_unknown(data, known, "the job")
        entries = agents_of(data, path)
        named = [e["data"] for e in entries if isinstance(e, dict) and "data" in e]
        refuse_one_file([path.parent / name for name in named if isinstance(name, str)])
        return cls(path, data, entries)

    def agents(self, chosen: Iterable[int]) -> tuple[list[LocalProblem], dict[str, list[str]]]:
        """The problems of these agents, by their number, and the columns of those with tables. No
        other agent's data file is opened."""
        columns: dict[str, list[str]] = {}
        folder = self.path.parent
        found = [_agent(i, self.entries[i], self.data, folder, columns) for i in chosen]
        return found, columns

    def job(self, problem: Problem) -> Job:
        """The whole job, given the problem of all agents or what is known of it."""
        data, seed = self.data, self.data.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise InvalidInput(f"Expected a whole number seed >= 0, got seed={seed!r}.")
        count("evaluate_every", data.get("evaluate_every", 1))
        return Job(problem, plan(problem, asked_of(data)), seed, data.get("evaluate_every", 1))


def load_job(path: str | Path) -> Job:
    """Read a job file and the data files it names (relative to the job file)."""
    file = JobFile.read(path)
    agents, _ = file.agents(range(len(file.entries)))
    return file.job(Problem(agents))


def agents_of(data: dict[str, Any], path: Path) -> list[Any]:
    """The entries [[agents]], where the sections that they need are there too."""
    for section in ("objective", "set", "privacy"):
        if not isinstance(data.get(section), dict):
            raise InvalidInput(f"Expected a section [{section}] in {path}, found none.")
    agents = data.get("agents")
    if not isinstance(agents, list) or not agents:
        raise InvalidInput(f"Expected at least one [[agents]] in {path}, found none.")
    return agents


def refuse_other_columns(name: str, header: list[str], other: str, expected: list[str]) -> None:
    """All agents' tables have the same columns in the same order, those of the first."""
    if header != expected:
        raise InvalidInput(
            f"Expected the feature columns of agent {other!r} ({', '.join(expected)}) in this "
            f"order, got {', '.join(header)} for agent {name!r}."
        )


def _agent(
    index: int, entry: Any, job: dict[str, Any], folder: Path, columns: dict[str, list[str]]
) -> LocalProblem:
    known = {"name", "data", "target", "coupling", "objective", "set"}
    refuse_unknown(entry, known, "[[agents]]")
    name = entry.get("name", f"agent {index + 1}")
    if not isinstance(name, str) or not isinstance(entry.get("data"), str):
        raise InvalidInput(f"Expected a name and a data file as text for agent {name!r}.")
    arrays = read_arrays(folder / entry["data"], entry.get("target", "target"))
    header = arrays.pop("columns", None)
    if header is not None and "coupling" not in entry:
        refuse_other_columns(name, header, *next(iter(columns.items()), (name, header)))
        columns[name] = header
    refuse_public(arrays, entry["data"], "the job file")
    return local_problem(name, entry, job, arrays, folder)


def refuse_public(arrays: dict[str, Any], source: Any, place: str) -> None:
    """Bounds are public, and are said in ``place``; a data file holds data only."""
    if unknown := sorted(set(arrays) - PRIVATE):
        raise InvalidInput(
            f"Expected only {', '.join(sorted(PRIVATE))} in {source}; got "
            f"{', '.join(unknown)}. Public bounds belong in {place}."
        )


def local_problem(
    name: str, entry: dict[str, Any], job: dict[str, Any], arrays: dict[str, Any], folder: Path
) -> LocalProblem:
    """An agent's part of the problem: the sections of a job, what its entry overrides, its data.

    ``folder`` is where the file is that [set] may name.
    """
    objective = _build("objective", OBJECTIVES, merged("objective", job, entry), arrays)
    description = merged("set", job, entry)
    if "file" in description:
        description |= read_arrays(folder / str(description.pop("file")), None)
    if description.get("size", objective.dimension) != objective.dimension:
        raise InvalidInput(
            f"Expected size {objective.dimension} of [set], as the data of agent {name!r} have, "
            f"got size={description['size']!r}."
        )
    feasible_set = _build("set", SETS, description, {"size": objective.dimension})
    coupling = entry.get("coupling")
    if coupling is not None and (
        not isinstance(coupling, list)
        or not all(type(k) is int and abs(k) < 2**31 for k in coupling)
    ):
        raise InvalidInput(f"Expected a list of whole numbers as coupling of agent {name!r}.")
    return LocalProblem(objective, feasible_set, coupling, name)


def merged(section: str, job: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The job's section with what the agent overrides."""
    own = entry.get(section, {})
    if not isinstance(own, dict):
        raise InvalidInput(f"Expected a table {section} of an agent, got {own!r}.")
    return {**job[section], **own}


def _build(
    section: str, kinds: dict[str, Any], description: dict[str, Any], supplied: dict[str, Any]
) -> Any:
    """Call the constructor that ``kind`` names with the section's keys and what the data supply."""
    kind, arguments = arguments_of(section, kinds, description, supplied)
    return kinds[kind](**arguments)


def arguments_of(
    section: str, kinds: dict[str, Any], description: dict[str, Any], supplied: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """A section's kind and all arguments of its constructor: none too many, none missing."""
    arguments = dict(description)
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        options = ", ".join(sorted(kinds))
        raise InvalidInput(f"Expected [{section}] kind to be one of {options}; got {kind!r}.")
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
    accepted = inspect.signature(kinds[kind]).parameters
    arguments = {k: v for k, v in supplied.items() if k in accepted} | arguments
    required = {k for k, p in accepted.items() if p.default is inspect.Parameter.empty}
    refuse_unknown(arguments, set(accepted), f"[{section}] of kind {kind!r}")
    if missing := required - set(arguments):
        raise InvalidInput(
            f"Expected {', '.join(sorted(missing))} for [{section}] of kind {kind!r}; not given."
        )
    return kind, arguments


def asked_of(job: dict[str, Any]) -> Settings | Asked:
    """[privacy] and [algorithm], read and checked, before there is a problem."""
    privacy, algorithm = dict(job["privacy"]), dict(job.get("algorithm", {}))
    known = {"rounds", "local_updates", "penalty", "step_size", "tolerance"}
    refuse_unknown(algorithm, known, "[algorithm]")
    others: dict[str, Any] = dict(algorithm)
    for key, read in (("penalty", penalty_from), ("step_size", step_size_from)):
        if key in others:
            others[key] = read(others[key])
    for key in ("perturbation", "calibration"):
        if key in privacy:
            others[key] = privacy.pop(key)
    given = privacy.pop("mechanism", None)
    name = given or "gaussian"
    if name == "none":
        if "total_epsilon" in job["privacy"]:
            raise InvalidInput('Expected no total_epsilon beside mechanism = "none" in [privacy].')
        refuse_unknown(privacy, set(), "[privacy] without noise")
        if "rounds" not in others:
            others = {"rounds": MOST_ROUNDS, "tolerance": NOISELESS_TOLERANCE, **others}
        return Settings(mechanism=mechanisms.Noiseless(), **others)
    if "total_epsilon" in privacy:
        refuse_unknown(privacy, {"total_epsilon", "total_delta"}, "[privacy] with a total budget")
        if name == "gaussian" and "total_delta" not in privacy:
            raise InvalidInput("Expected total_delta in [privacy] for gaussian noise; not given.")
        budget = privacy["total_epsilon"], privacy.get("total_delta", 0.0)
        if "tolerance" in others or "rounds" not in others:  # rounds are then the most there may be
            rounds = others.pop("rounds", None)
            return Asked(*budget, given, others, rounds=rounds)
        settings: Settings = Settings.for_budget(*budget, mechanism=name, **others)
        return settings
    if "epsilon" not in privacy:
        raise InvalidInput("Expected total_epsilon, or epsilon of one update, in [privacy].")
    if "rounds" not in others:
        raise InvalidInput(
            "Expected rounds in [algorithm] beside epsilon of one update; not given."
        )
    refuse_unknown(privacy, {"epsilon", "delta"}, "[privacy] with a budget per update")
    mechanism = mechanisms.per_update(
        name, privacy["epsilon"], privacy.get("delta"), others.get("calibration", "certified")
    )
    delta = privacy.get("delta", 0.0 if name == "laplace" else 1e-6)
    return Settings(mechanism=mechanism, delta=delta, **others)


def refuse_unknown(data: Any, known: set[str], where: str) -> None:
    if not isinstance(data, dict):
        raise InvalidInput(f"Expected a table in {where}, got {data!r}.")
    if unknown := sorted(set(data) - known):
        options = ", ".join(sorted(known)) or "nothing more"
        raise InvalidInput(f"Expected only {options} in {where}; got {', '.join(unknown)}.")
