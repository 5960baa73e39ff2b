"""What a result folder holds, and what of it may be public (``protocol/disclosure.py``).

``Contents.read`` takes any folder of a finished run: of ``tacit solve``, ``tacit power solve`` and
``tacit learn``, of a coordinator of a federation, or of ``Result.save``.
``Contents.public`` is the same without what is not covered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile
from tacit.files import read_json, read_npz, read_rows, read_toml, reading
from tacit.html import plain
from tacit.protocol import disclosure
from tacit.protocol.disclosure import COVERED, PRIVATE, Level, level, may_have
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement

if TYPE_CHECKING:
    from tacit.report.account import Account

Table = Mapping[str, Vector]  # a column of numbers, or of text, by its name

TABLES = ("bus", "line", "generator", "cut_lines", "release")
TEXT = ("zone", "cut")  # columns that are no numbers
# Options that name a place; those that may be one, or a name that everybody knows
PLACES = ("ledgers", "job", "data")
MAYBE_PLACES = ("case", "zones", "nominal", "data_set", "more")
# Kinds of things in a run: their name for readers, the kind of run, and where disclosure.py has it
THINGS = (
    ("the solutions", "", "arrays.npz"),
    ("the model", "model", "model.json"),
    ("what was released", "once", "release.npz"),
    ("coefficients with intervals", "intervals", "intervals.json"),
    ("the released table", "table", "moments.json"),
    ("voltages, flows, loadings and generation", "grid", "line.csv", "p_from"),
    ("residual and violation in the trace", "", "trace.csv", "residual"),
    ("the objective in the trace", "", "trace.csv", "objective"),
    ("the size of the noise in every round", "rounds", "trace.csv", "noise"),
    ("demand and shed load of every bus", "grid", "bus.csv", "p_demand"),
    ("load served, what privacy costs, and AC check", "grid", "check.json"),
    ("errors on test records, what privacy costs, what was clipped", "model", "figures.json"),
    ("times", "", "timing.json"),
    ("the seed, if there was one", "", "result.json", "seed"),
    ("paths, and what ledgers say of this and other runs", "", "run.json", "run"),
)
# Blanks for fields that may not be published
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("solution", "ergodic"), np.zeros(0)),
    **dict.fromkeys(("converged", "seed", "penalty", "step_size", "gap"), None),
    **dict.fromkeys(("plan", "release", "assumed", "before", "after"), ""),
    **dict.fromkeys(("duals", "released"), ()),
    "timing": {},
}


@dataclass(frozen=True)
class Contents:
    """Everything that a result folder holds; what it lacks is empty or None."""

    folder: Path
    result: Result
    command: str = ""  # "solve", "power solve" or "learn"; empty if no command made the folder
    options: Mapping[str, Any] = field(default_factory=dict)  # of that command
    run: str = ""  # what ledgers call the run
    tables: Mapping[str, Table] = field(default_factory=dict)  # by the name of their file
    model: Mapping[str, Any] | None = None  # model.json
    releases: Mapping[str, Vector] = field(default_factory=dict)  # what each agent released
    # of the ledgers that the run was paid from, if they are still there, by agent
    accounts: Mapping[str, Account | str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)  # from private data: figures.json
    check: Mapping[str, Any] = field(default_factory=dict)  # AC power flow at the true loads
    intervals: Mapping[str, Any] = field(default_factory=dict)  # of coefficients
    moments: Any = None  # a released table (``PrivateMoments``)
    evaluation: Any = None  # of records that were held out (``PrivateEvaluation``)
    is_public: bool = False

    @classmethod
    def read(cls, folder: str | Path, then: str = "No report was made.") -> Contents:
        """Read the folder of a finished run. Nothing is written to it, nor to ledgers."""
        folder = Path(folder)
        if not (folder / "result.json").is_file():
            raise CorruptFile(f"{_no_result(folder)} {then}")
        with reading(folder, "files that tacit wrote", then):
            result = Result.load(folder)
            command, options, run = _note(folder)
            if command == "solve":
                options = {**_budget_of(folder / "job.toml"), **options}
            where = options.get("ledgers")
            return cls(
                folder,
                result,
                command,
                options,
                run,
                {n: _table(p) for n in TABLES if (p := folder / f"{n}.csv").is_file()},
                _json(folder / "model.json"),
                _arrays(folder / "release.npz"),
                _accounts(Path(where), result.names) if isinstance(where, str) else {},
                _json(folder / "figures.json") or {},
                _json(folder / "check.json") or {},
                _json(folder / "intervals.json") or {},
                _table_of(folder / "moments.json"),
                _table_of(folder / "evaluation.json"),
            )

    def public(self) -> Contents:
        """The same without any number that the statement does not cover.

        Guarantee: what is left is a function of public things (names, settings, the network) and
        of what the statement covers: of a certified run its points, residuals, violations, models
        and releases (post-processing); if data were released once, the whole trace but seconds.
        Of a run that is not certified nothing is covered: only public things are left, without
        settings that may have been chosen by data. A seed, paths, and what ledgers say of other
        runs are no part of it.
        """
        result, statement = self.result, self.result.privacy

        def kept(found: Mapping[str, Any], levels: Mapping[str, Level]) -> dict[str, Any]:
            return {k: v for k, v in found.items() if may_have(statement, levels.get(k, PRIVATE))}

        def none_of(levels: Mapping[str, Level]) -> dict[str, Any]:
            return {
                k: bare[k] for k, of in levels.items() if k in bare and not may_have(statement, of)
            }

        bare = NOTHING | {
            "local": tuple(np.zeros(0) for _ in result.names),
            "neighbours": (("a change that is left out", result.names),),
        }
        tables = {
            name: kept(table, {column: level(f"{name}.csv", column) for column in table})
            for name, table in self.tables.items()
        }
        options = {k: disclosure.OPTIONS.get(k, COVERED) for k in self.options}
        return replace(
            self,
            folder=Path(),
            result=replace(
                result,
                trace=kept(result.trace, disclosure.TRACE),
                settings=replace(result.settings, **none_of(disclosure.SETTINGS)),
                privacy=replace(statement, **none_of(disclosure.STATEMENT)),
                **none_of(disclosure.RESULT),
            ),
            options={k: _public(k, v) for k, v in kept(self.options, options).items()},
            run="",
            tables={name: table for name, table in tables.items() if table},
            model=self.model if may_have(statement, level("model.json")) else None,
            evaluation=self.evaluation if may_have(statement, level("evaluation.json")) else None,
            releases=self.releases if may_have(statement, level("release.npz")) else {},
            accounts={},
            figures={},
            check={},
            intervals=self.intervals if may_have(statement, level("intervals.json")) else {},
            moments=self.moments if may_have(statement, level("moments.json")) else None,
            is_public=True,
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Kinds of things that are no part of a public edition, whether they were there or not."""
        return tuple(words for words, everybody in self.things.items() if not everybody)

    @property
    def privacy(self) -> PrivacyStatement:
        return self.result.privacy

    @property
    def names(self) -> tuple[str, ...]:
        return self.result.names

    def stem(self, name: str) -> str:
        """The bare name of the file that an option names, if it may be shown."""
        value = self.options.get(name)
        if not isinstance(value, str) or value == name.upper():
            return ""
        return plain(Path(value).stem)

    @property
    def things(self) -> dict[str, bool]:
        """Kinds of things that such a run has, in words, and whether they may be published."""
        statement = self.result.privacy
        kinds = {"", "once" if statement.once else "rounds"}
        kinds |= {"grid"} if "bus" in self.tables else set()
        kinds |= {"intervals"} if self.intervals else set()
        kinds |= {"table"} if self.moments is not None else set()
        kinds |= {"model"} if self.command == "learn" or self.model is not None else set()
        return {
            words: may_have(statement, level(*where))
            for words, kind, *where in THINGS
            if kind in kinds
        }


def _public(name: str, value: Any) -> Any:
    """An option; its name in capitals in place of a path on the machine that ran it."""
    values = value if isinstance(value, list) else [value]
    return name.upper() if any(_is_place(name, v) for v in values) else value


def _is_place(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    file = name in MAYBE_PLACES and (Path(value).name != value or Path(value).suffix != "")
    return name in PLACES or file or Path(value).is_absolute()


def _no_result(folder: Path) -> str:
    if not folder.is_dir():
        return f"Expected a result folder, found none at {folder}."
    begun = any((folder / name).exists() for name in ("run.json", "checkpoint.npz"))
    why = "the run in it is not finished" if begun else "it has no result.json"
    return f"Expected the folder of a finished run, got {folder}: {why}."


def _note(folder: Path) -> tuple[str, dict[str, Any], str]:
    """Command, options and name of the run; empty where no command made the folder."""
    if (about := _json(folder / "run.json")) is None:
        return "", {}, ""
    command, options, run = about["command"], about["options"], about["run"]
    if not (isinstance(command, str) and isinstance(options, dict) and isinstance(run, str)):
        raise TypeError("run.json is not the note of a run")
    return command, options, run


def _budget_of(job: Path) -> dict[str, Any]:
    """The budget that a job names, as ``tacit power solve`` and ``tacit learn`` have it."""
    if not job.is_file():
        return {}
    budget = read_toml(job).get("privacy")
    names = ("total_epsilon", "total_delta")
    return {k: budget[k] for k in names if k in budget} if isinstance(budget, dict) else {}


def _accounts(folder: Path, agents: tuple[str, ...]) -> dict[str, Account | str]:
    from tacit.report.account import accounts  # most runs have no ledgers

    return accounts(folder, agents)


def _table_of(path: Path) -> Any:
    """A released table, if the folder has one."""
    if not path.is_file():
        return None
    from tacit.report.released import load

    return load(path)


def _json(path: Path) -> Any:
    return read_json(path) if path.is_file() else None


def _arrays(path: Path) -> dict[str, Vector]:
    if not path.is_file():
        return {}
    return {name: np.asarray(v, np.float64).ravel() for name, v in read_npz(path).items()}


def _table(path: Path) -> Table:
    header, *rows = read_rows(path)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    if len(columns) != len(header):
        raise ValueError(f"{path.name} has rows of another length")
    named = zip((name.removesuffix("_pu") for name in header), columns, strict=True)
    return {n: np.array(c, str if n in TEXT else np.float64) for n, c in named}
