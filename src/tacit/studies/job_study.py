"""Studies with the sections of a job file: [objective], [set], [privacy], [algorithm], [[agents]].

They are read by ``studies/job.py``; instead of naming its data, an agent's entry has a name only
(and ``coupling``, and what it overrides), and the data are in the party's own file. A CSV table has
no order of columns that others could know, so the study names them: ``columns``, for all agents or
in an agent's entry.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput, printable, shown
from tacit.files import write_atomically
from tacit.planning import Plan, plan
from tacit.protocol.result import Result
from tacit.protocol.statement import PUBLIC, PrivacyStatement
from tacit.studies.job import (
    OBJECTIVES,
    PRIVATE,
    SETS,
    agents_of,
    arguments_of,
    asked_of,
    local_problem,
    merged,
    refuse_public,
    refuse_unknown,
)
from tacit.studies.party_file import PartyFile
from tacit.studies.public_files import public_name
from tacit.tables import read_arrays

KEYS = {"objective", "set", "agents", "columns"}
ENTRY = {"name", "coupling", "objective", "set", "columns"}
DATA = PRIVATE - {"matrix"}  # a residual's matrix is public


@dataclass(frozen=True)
class JobStudy:
    """The sections of a job without data."""

    sections: dict[str, Any]
    entries: dict[str, dict[str, Any]]  # by name
    folder: Path
    files: tuple[str, ...]
    penalties: tuple[Vector, Vector] | None = None

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> JobStudy:
        entries = {name_of(entry, ENTRY): entry for entry in agents_of(data, folder / "study.toml")}
        if len(entries) != len(data["agents"]):
            raise InvalidInput("Expected agents of different names, got one name twice.")
        asked_of(data)
        files = set()
        for entry in entries.values():
            if held := sorted(DATA & set(merged("objective", data, entry))):
                raise InvalidInput(
                    f"Expected no data in a study, which is public, got {held[0]} in [objective]."
                )
            description = merged("set", data, entry)
            if "file" in description:
                files.add(public_name(description["file"], "file in [set]"))
        study = cls(data, entries, folder, tuple(sorted(files)))
        study._check()
        return study

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.entries)

    def digested(self) -> Any:
        return None

    def _check(self) -> None:
        """As much as can be told before there are data; all of it, where sizes are known."""
        parts = []
        for name, entry in self.entries.items():
            objective = merged("objective", self.sections, entry)
            kind, _ = arguments_of("objective", OBJECTIVES, objective, dict.fromkeys(PRIVATE))
            set_kind = merged("set", self.sections, entry).get("kind")
            if not isinstance(set_kind, str) or set_kind not in SETS:
                options = ", ".join(sorted(SETS))
                raise InvalidInput(
                    f"Expected [set] kind to be one of {options}; got {shown(set_kind)}."
                )
            if kind == "residual" and "matrix" not in objective:
                raise InvalidInput(
                    "Expected the matrix of a residual in the study: it is public, and facts about "
                    "it travel. Not given."
                )
            columns = self._columns(name)
            arrays: dict[str, Any] = {}
            if kind == "residual":
                arrays = {"data": np.zeros(len(objective["matrix"]))}
            elif columns is not None:
                none = np.zeros(1)
                arrays = {"features": np.zeros((1, len(columns))), "targets": none, "labels": none}
            if arrays:
                parts.append(local_problem(name, entry, self.sections, arrays, self.folder))
        if len(parts) == len(self.entries):
            Problem(parts)

    def _columns(self, agent: str) -> list[str] | None:
        columns = self.entries[agent].get("columns", self.sections.get("columns"))
        if columns is None:
            return None
        return names_of("columns", columns)

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        if party.unit is not None:
            raise InvalidInput(f"Expected no unit in {party.path}, which is for loads of a grid.")
        entry, columns = self.entries[agent], self._columns(agent)
        if party.data.suffix == ".csv" and columns is None:
            raise InvalidInput(
                "Expected columns = [...] in the study beside data in a CSV table, as they say "
                "what each coordinate is; got none."
            )
        target = party.target or "target"
        if columns is not None and target in columns:
            raise InvalidInput(
                f"Expected a target beside the study's columns in {party.path}, got {target!r}, "
                "which is one of them."
            )
        arrays = read_arrays(party.data, target, columns)
        arrays.pop("columns", None)
        refuse_public(arrays, party.data, "the study")
        features = np.shape(arrays.get("features", ()))
        if columns is not None and len(features) == 2 and features[1] != len(columns):
            raise InvalidInput(
                f"Expected {len(columns)} columns of features in {party.data}, as the study "
                f"names, got {features[1]}."
            )
        return local_problem(agent, entry, self.sections, arrays, self.folder)

    def plan(self, problem: Problem) -> Plan:
        return plan(problem, asked_of(self.sections))

    def stated(self, result: Result) -> Result:
        return result

    def assumed(self, delta: float) -> str:
        return PUBLIC

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        return []

    def write_own(
        self,
        folder: Path,
        agent: str,
        party: PartyFile,
        problem: LocalProblem,
        point: Vector,
        privacy: PrivacyStatement | None,
    ) -> list[str]:
        return [write_point(folder, problem, point)]


def write_point(folder: Path, problem: LocalProblem, point: Vector) -> str:
    """``solution.npz``: the party's own point, and the global coordinate of each entry or −1."""
    content = io.BytesIO()
    np.savez(content, solution=np.asarray(point), coupling=np.asarray(problem.coupling))
    write_atomically(folder / "solution.npz", content.getvalue())
    return "solution.npz"


def name_of(entry: Any, known: set[str]) -> str:
    """The name in an entry of [[agents]] of a study."""
    if isinstance(entry, dict) and (held := sorted({"data", "target"} & set(entry))):
        raise InvalidInput(
            f"Expected no {held[0]} in [[agents]] of a study: a party says in its own file where "
            "its data are."
        )
    refuse_unknown(entry, known, "[[agents]] of a study")
    return printable("a name in [[agents]]", entry.get("name"))


def names_of(key: str, value: Any) -> list[str]:
    """A list of different names."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(name, str) and name for name in value)
        or len(set(value)) != len(value)
    ):
        raise InvalidInput(f"Expected {key} as a list of different names, got {shown(value)}.")
    return value
