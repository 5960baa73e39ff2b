"""Tables of users' data, CSV or Parquet, and the public rules that make numbers of them.

    files ─▶ Table: cells ─▶ Records: columns, targets, whose record ─▶ rows, by public rules

    a number     ─▶ [−1, 1], by its public range; clipped outside
    a category   ─▶ 0 or 1 for each one on a public list (one-hot); all 0 outside the list
    missing      ─▶ a public value, then as above

``tacit learn``, ``tacit predict``, jobs, studies and ``tacit.learn.PublicColumns`` share all of it.
Guarantee: what a cell becomes depends on that cell, the public rules, and in a Parquet file the
type that the file declares for its column: never on other records. Whether there is an error does.
An error names a line and a column, never what is in them.
"""

from __future__ import annotations

import csv
import math
import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import EXACT, LENGTHS, CorruptFile, InvalidInput, shown
from tacit.files import check_parquet, lines_of, opened, read_npz, read_toml, reading

CHUNK = 4096  # records at a time: text takes ten times the memory of numbers
MOST_NAMED = 30  # columns in one error
MISSING = {  # cells that pandas takes for missing
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"),
}
BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), True)  # as pandas takes them
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), False)
KINDS: dict[type, str] = {int: "numbers", float: "numbers", bool: "truth values"}  # of labels
CHANGES = ("clipped", "unknown", "filled")  # what public rules may do to a value
ADVICE = (  # about a cell that is no number
    "Text is taken with --categories {0}=A,B,... and missing values with --fill {0}=VALUE,"
    " both public; --id {0} (an identifier) or --drop {0} leaves it out."
)


def named(columns: Sequence[str]) -> str:
    """Columns by name, and how many more there are."""
    more = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
    return ", ".join(map(repr, columns[:MOST_NAMED])) + more


# --- cells of files ------------------------------------------------------------------------------


class Table:
    """Records with named columns of numbers, labels or categories; here of a CSV file.

    It is read without pandas. Columns that were asked for as text stay as they are written; where
    numbers are asked for, true and false are 1 and 0. In the columns of ``gaps`` ("*": all of
    numbers) values may be missing: NaN, or as they are. ``advice`` says what to do about text and
    missing values in a column {0}.
    """

    def __init__(self, path: Path, columns: Sequence[str], text: Sequence[str] = ()) -> None:
        self.path, self.columns = path, tuple(columns)
        self.lines = array("q")  # of each record in the file
        self._text: dict[str, list[str]] = {name: [] for name in text if name in columns}
        self._numbers: dict[str, list[Vector]] = {n: [] for n in columns if n not in text}

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, rows: list[list[str]], lines: list[int]) -> None:
        self.lines.extend(lines)
        for name, cells in zip(self.columns, zip(*rows, strict=True), strict=True):
            if name in self._text:
                self._text[name].extend(cells)
            elif (parts := self._numbers[name]) and np.isinf(parts[-1]).any():
                parts.append(np.full(len(cells), np.inf))  # nobody can ask for its numbers
            else:
                parts.append(_numbers(cells))

    def where(self, record: int) -> str:
        """The line or number of a record, counted from 0."""
        return f"line {self.lines[record]}"

    def cells(self, column: str) -> Sequence[Any]:
        """The column as it is."""
        return self._text[column]

    def written(self, column: str) -> list[str]:
        """The column as text."""
        return self._text[column]

    def _floats(self, column: str) -> Vector:
        """Finite numbers; NaN for what is missing, and infinity for what is no finite number."""
        return np.concatenate(self._numbers[column])

    def _typed(self, column: str) -> list[Any]:
        """The column's numbers, truth values and text."""
        return [_typed(cell) for cell in self.cells(column)]

    def numbers(
        self, columns: Sequence[str], gaps: Collection[str] = (), advice: str = ""
    ) -> Vector:
        """Records × columns; all of them finite numbers, or an error."""
        found = np.empty((len(self), len(columns)))
        for j, name in enumerate(columns):
            found[:, j] = self._floats(name)
        may_miss = np.array([name in gaps or "*" in gaps for name in columns], bool)
        fine = np.isfinite(found) | (np.isnan(found) & may_miss)
        if not fine.all():
            row, first = np.argwhere(~fine)[0].tolist()
            others = [c for j, c in enumerate(columns) if j != first and not fine[:, j].all()]
            also = f" The same in {named(others)}." if others else ""
            name = columns[first]
            raise CorruptFile(
                f"Expected a finite number in {self.where(row)} of {self.path}, column {name!r}."
                f"{also} {advice.format(name)}".rstrip()
            )
        return found

    def labels(self, column: str) -> list[Any]:
        """Classes or agents, none of them missing."""
        self._refuse_gaps(column)
        return self._typed(column)

    def categories(
        self, column: str, known: Iterable[str], gaps: Collection[str], advice: str = ""
    ) -> Vector:
        if column not in gaps:
            self._refuse_gaps(column, known, advice)
        return np.fromiter(self.cells(column), object, len(self))

    def _refuse_gaps(self, column: str, known: Iterable[str] = (), advice: str = "") -> None:
        missing = MISSING - set(map(str, known))  # a category may be called NA
        cells = self.cells(column)
        if (row := next((i for i, c in enumerate(cells) if str(c).strip() in missing), -1)) >= 0:
            raise CorruptFile(
                f"Expected no missing values in {self.path}, found one in {self.where(row)}, "
                f"column {column!r}. {advice.format(column)}".rstrip()
            )


def read_table(path: str | Path, text: Sequence[str] = (), *, strip: bool = False) -> Table:
    """The table in a CSV or Parquet file; columns in ``text`` are not asked for numbers.

    A column that holds something else than numbers is an error only where it is asked for.
    ``strip``: without the blanks around names of columns.
    """
    path = Path(path)
    table = _Parquet(path) if path.suffix == ".parquet" else _read_csv(path, text, strip)
    if len({name.strip() for name in table.columns}) != len(table.columns):
        raise InvalidInput(f"Expected different column names in {path}, got one twice.")
    if not len(table):
        raise InvalidInput(f"Expected a header and records in {path}, got no records.")
    return table


def header(path: str | Path) -> list[str]:
    """The names of a table's columns; no record is read. A first line with a number in it is taken
    for a record, and refused."""
    path = Path(path)
    with reading(path, "a CSV or Parquet table", own=False):
        if path.suffix == ".parquet":
            from pyarrow.parquet import read_schema

            check_parquet(path)
            return [str(name) for name in read_schema(path).names]
        with opened(path) as binary:
            names = next(csv.reader(lines_of(binary), strict=True), [])
    if not names or np.isfinite(_numbers(names)).any():
        raise InvalidInput(f"Expected column names in the first line of {path}, found others.")
    return names


def _read_csv(path: Path, text: Sequence[str], strip: bool) -> Table:
    with reading(path, "a CSV table", own=False), opened(path) as binary:
        reader = csv.reader(lines_of(binary), strict=True)
        # a column without a name gets the one that pandas gives it
        header = [name or f"Unnamed: {j}" for j, name in enumerate(next(reader, []))]
        table = Table(path, [name.strip() if strip else name for name in header], text)
        records = ((row, reader.line_num) for row in reader if row)
        while chunk := list(islice(records, CHUNK)):
            for row, line in chunk:
                if len(row) != len(header):
                    raise CorruptFile(
                        f"Expected {len(header)} cells in line {line} of {path}, got {len(row)}."
                    )
            table.add([row for row, _ in chunk], [line for _, line in chunk])
        return table


def _numbers(cells: Sequence[str]) -> Vector:
    """Each cell by itself: NaN if it is missing, infinity if it is no number."""
    try:
        if not _plain("".join(cells)):
            raise ValueError
        found = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        found = np.array([_number(cell) for cell in cells], np.float64)
    for i in np.flatnonzero(np.isnan(found)).tolist():
        if cells[i].strip() not in MISSING:
            found[i] = np.inf
    return found


def _number(cell: str) -> float:
    try:
        return BOOLEANS[cell] if cell in BOOLEANS else float(cell if _plain(cell) else "nan")
    except ValueError:
        return np.nan


def _plain(cell: str) -> bool:
    """Refuses what only Python takes for a number: 1_000 and ٣."""
    return cell.isascii() and "_" not in cell


def _typed(cell: str) -> Any:
    """A whole number, a number or a truth value where a cell is one by itself, else its text.

    Numbers that 64 bits cannot tell apart stay text: they may be names of different agents.
    """
    if cell in BOOLEANS:
        return BOOLEANS[cell]
    kinds: tuple[tuple[Any, int], ...] = ((int, 2**63), (float, EXACT))
    for kind, most in kinds:
        try:
            if _plain(cell) and abs(number := kind(cell)) < most:
                return number
        except ValueError:
            pass
    return cell


class _Parquet(Table):
    """A Parquet file, whose columns have types of their own."""

    def __init__(self, path: Path) -> None:
        try:
            import pandas as pd
        except ImportError:
            raise InvalidInput("Expected pandas: pip install 'tacit[learn]'.") from None
        with reading(path, "a CSV or Parquet table", own=False):
            check_parquet(path)
            # integers stay integers where one is missing: pandas' own would all become floats
            self.frame = pd.read_parquet(path, dtype_backend="numpy_nullable")
        self.frame.columns = self.frame.columns.map(str)
        super().__init__(path, self.frame.columns)

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, record: int) -> str:
        return f"record {record + 1}"  # a file without lines

    def written(self, column: str) -> list[str]:
        return [str(cell) for cell in self.cells(column)]

    def cells(self, column: str) -> Sequence[Any]:
        return list(self.frame[column].astype(object))

    def _typed(self, column: str) -> list[Any]:
        if self.frame[column].dtype.kind in "mM":  # dates as NumPy writes them
            return list(self.frame[column].to_numpy().astype(str).tolist())
        return list(self.frame[column].to_numpy(object).tolist())

    def _floats(self, column: str) -> Vector:
        cells = self.frame[column]
        if cells.dtype.kind not in "biuf":
            return np.full(len(cells), np.inf)
        return np.asarray(cells.to_numpy(np.float64, na_value=np.nan))


# --- records of one table, or of several agents' own ---------------------------------------------


@dataclass(frozen=True)
class Records:
    """A table's columns by name: numbers, NaN where one is missing, or text of categories; what is
    to be learnt (names of classes, or numbers); and whose record each is."""

    columns: Mapping[str, Vector]
    targets: Vector
    groups: Vector | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def part(self, rows: Vector) -> Records:
        columns = {name: values[rows] for name, values in self.columns.items()}
        groups = None if self.groups is None else self.groups[rows]
        return Records(columns, self.targets[rows], groups)

    def matrix(self) -> Vector:
        """Records × columns, where all are of numbers."""
        found = np.empty((len(self), len(self.columns)))
        for j, values in enumerate(self.columns.values()):
            found[:, j] = values
        return found


@dataclass(frozen=True)
class Rules:
    """What the columns of a table are: public, and the same for all who have such a table.

    The keys of ``columns.toml`` and of [learn] in a study; ``tacit learn`` has them as options.

    target        what is to be predicted: one of ``classes``, or a number in ``target_range``
    features      columns to learn from, in order; None: all but the target and those to ``drop``
    ranges, categories, fill, log   as ``PublicColumns`` has them
    auto          columns of numbers whose range is wide, within which it is read privately; ``"*"``
                  for those without a range of their own, and the target's name
    """

    target: str | None = None
    classes: tuple[str, ...] | None = None
    target_range: tuple[float, float] | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: Mapping[str, Any] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    auto: tuple[str, ...] = ()

    @classmethod
    def of(cls, section: Mapping[str, Any], where: str) -> Rules:
        """Of a section of TOML. Each mistake is named with the key it is in."""
        found = {key: section[key] for key in RULES if key in section}
        for key in {"ranges", "categories", "fill"} & found.keys():
            if not isinstance(found[key], dict):
                raise InvalidInput(
                    f"Expected a table {key} by column in {where}, got {shown(found[key])}."
                )
        for key in ("features", "drop", "classes", "log"):
            if key in found:
                found[key] = list_of(key, found[key], where, (str, int)[: 1 + (key == "classes")])
        target = found.get("target")
        text = isinstance(target, str) and target
        if "target" in found and (not text or target in found.get("features", ())):
            raise InvalidInput(
                f"Expected target as the name of a column beside the features, got {shown(target)}."
            )
        ranges = dict(found.get("ranges", {}))
        wide = [n for n, pair in ranges.items() if isinstance(pair, list) and pair[:1] == ["auto"]]
        ranges |= {name: ranges[name][1:] for name in wide}
        if "target_range" in found:
            ends = found["target_range"]
            if isinstance(ends, list) and ends[:1] == ["auto"]:
                wide, ends = [*wide, str(target)], ends[1:]
            found["target_range"] = _pair("target_range", ends, where)
        found["auto"] = tuple(wide)
        if {"classes", "target_range"} <= found.keys():
            raise InvalidInput(f"Expected classes or a target_range in {where}, got both.")
        if len(found.get("classes", "ab")) < 2:
            raise InvalidInput(f"Expected two or more different classes in {where}.")
        found["ranges"] = {name: _pair(repr(name), pair, where) for name, pair in ranges.items()}
        lists = found.get("categories", {})
        found["categories"] = {name: public_list(name, known) for name, known in lists.items()}
        return cls(**found)

    @staticmethod
    def section(path: str | Path) -> dict[str, Any]:
        """What ``columns.toml`` says, not checked but for its keys."""
        data = read_toml(path, "a file of rules for columns")
        if odd := sorted(set(data) - {*RULES}):
            raise InvalidInput(f"Expected only {', '.join(RULES)} in {path}; got {odd[0]}.")
        return data

    @classmethod
    def load(cls, path: str | Path) -> Rules:
        """``columns.toml``."""
        return cls.of(cls.section(path), str(path))

    def named(self) -> tuple[str, ...]:
        """``features``, or all columns that have a rule of their own but the target."""
        named = [*self.ranges, *(c for c in self.categories if c not in self.ranges)]
        left_out = {"*", self.target, *self.drop}
        return self.features or tuple(name for name in named if name not in left_out)

    def with_target_as_a_column(self) -> Rules:
        """The same where nothing is to be predicted, nor read before."""
        if self.auto or self.log:
            raise InvalidInput(
                f"Expected a public range [low, high] of {[*self.auto, *self.log][0]!r}, got "
                "auto or log, which only tacit learn takes."
            )
        if self.target is None:
            return self
        name, ends, known = self.target, self.target_range, self.classes
        return Rules(
            features=None if self.features is None else (*self.features, name),
            drop=self.drop,
            ranges={**self.ranges, **({} if ends is None else {name: ends})},
            categories={**self.categories, **({} if known is None else {name: known})},
            fill=self.fill,
        )

    def read(self, names: Sequence[str]) -> list[int]:
        """Positions of those columns of mapped rows whose ranges are read."""
        made = {f"{column}={known}" for column, of in self.categories.items() for known in of}
        rest = "*" in self.auto
        return [
            j
            for j, name in enumerate(names)
            if name not in made and (name in self.auto or (rest and name not in self.ranges))
        ]

    def records(
        self,
        paths: Sequence[str | Path],
        *,
        agent_column: str | None = None,
        target: str | None = None,
        strip: bool = False,
        advice: str = ADVICE,
    ) -> Records:
        """The records of one table, or of several agents' own tables with the same columns.

        Several tables are matched by the names of their columns, in any order. Each is its agent's,
        who is called as the file is; a column to drop need not be in all of them.

        target   what the column is called there; without one there is nothing to predict
        strip    names of columns, of blanks around them
        advice   about text and missing values in a column {0}
        """
        known, gaps, target = self.categories, self.fill, target or self.target
        numeric = self.target_range is not None
        refuse_one_file([*map(Path, paths)])
        names = _agents([Path(path) for path in paths], agent_column)
        text = [*known, *filter(None, [None if numeric else target, agent_column])]
        tables = [read_table(path, text, strip=strip) for path in paths]
        drop = self.drop if self.features is None else ()
        used = _used(tables, target, agent_column, drop, self.features)
        for name in sorted({*known, *gaps} - {*used, "*"}):
            what = "categories" if name in known else "a value to fill in"
            raise InvalidInput(f"Expected {what} of a column that is used, got {what} of {name!r}.")
        numbers = [name for name in used if name not in known]
        if bare := [name for name in numbers if name not in self.ranges and "*" not in self.ranges]:
            raise InvalidInput(
                f"Expected a public rule of every column, got none of {named(bare)} ({len(bare)} "
                f"of {len(used)} have none): a range for numbers ('*': all others), categories for "
                "text, or leave it out (--range, --categories, --id, --drop). Nothing was read."
            )
        matrix = _joined([table.numbers(numbers, gaps, advice) for table in tables])
        columns = {name: matrix[:, j] for j, name in enumerate(numbers)}
        for name in known:
            parts = [table.categories(name, known[name], gaps, advice) for table in tables]
            columns[name] = _joined(parts)
        groups = None if agent_column is None else _names(tables, agent_column)
        if len(tables) > 1:
            groups = np.repeat(names, [len(table) for table in tables])
        if target is None:
            targets = np.zeros(len(matrix))
        elif numeric:
            one = "A target with a public range is a number in every record. Nothing was fit."
            targets = _joined([table.numbers([target], advice=one)[:, 0] for table in tables])
        else:
            targets = _names(tables, target, classes=True)
            _refuse_others(tables, target, targets, self.classes)
        return Records({name: columns[name] for name in used}, targets, groups)


def list_of(key: str, value: Any, where: str, kinds: tuple[type, ...] = (str,)) -> tuple[str, ...]:
    """Different names, or numbers, as text."""
    if not isinstance(value, list) or any(type(x) not in kinds for x in value):
        raise InvalidInput(f"Expected {key} as a list of names in {where}, got {shown(value)}.")
    found = tuple(str(x).strip() if int in kinds else x for x in value)
    if len(set(found)) != len(found) or "" in found:
        raise InvalidInput(f"Expected {key} as a list of different names in {where}.")
    return found


def _pair(key: str, value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or [type(x) in (int, float) for x in value] != [True, True]:
        got = "[]: fill it in, or drop the column" if value == [] else shown(value)
        raise InvalidInput(f"Expected [low, high] of {key} in {where}, got {got}.")
    return float(value[0]), float(value[1])


ANY: dict[str, tuple[float, float]] = {"*": (-math.inf, math.inf)}  # ranges of numbers as they are
RULES = tuple(name for name in Rules.__dataclass_fields__ if name != "auto")


def read_arrays(
    path: Path, target: str | None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """Arrays by name: all of an .npz, or the columns of a table as features and targets.

    columns   the features of a table, in this order; left out, all but the target
    """
    if path.suffix == ".npz":
        return read_npz(path, "a table of numbers")
    if target is None or path.suffix not in (".csv", ".parquet"):
        form = ".npz, .csv or .parquet" if target is not None else ".npz"
        raise InvalidInput(f"Expected a {form} file, got {path}.")
    own = Rules(target, None, ANY["*"], tuple(columns or ()) or None, ranges=ANY)
    found = own.records([path], strip=True, advice="")
    names, targets = [*found.columns], found.targets
    if np.isfinite(_numbers(names)).any():
        raise InvalidInput(f"Expected column names in the first line of {path}, found numbers.")
    return {"features": found.matrix(), "targets": targets, "labels": targets, "columns": names}


def refuse_one_file(paths: Sequence[Path]) -> None:
    """Refuse one file, by any name or link, for two agents: records would be released twice."""
    files = [os.stat(p)[1:3] if os.path.exists(p) else p for p in paths]  # device and inode
    if twice := [path for path, file in zip(paths, files, strict=True) if files.count(file) > 1]:
        raise InvalidInput(
            f"Expected a data file of its own for every agent, got {twice[0]} for two: its records "
            "would count twice. Nothing was read."
        )


def _agents(paths: Sequence[Path], agent_column: str | None) -> list[str]:
    """What the agents are called whose tables these are."""
    if len(paths) > 1 and agent_column is not None:
        raise InvalidInput("Expected a table for each agent, or an agent column, got both.")
    names = [path.stem for path in paths]
    alike = [name.casefold() for name in names]  # some file systems take ledgers of both for one
    if twice := [n for n, same in zip(names, alike, strict=True) if alike.count(same) > 1]:
        raise InvalidInput(
            f"Expected tables of different names, as agents are called so, got {twice[0]!r} more "
            "than once. Nothing was fit."
        )
    return names


def _used(
    tables: Sequence[Table],
    target: str | None,
    agent_column: str | None,
    drop: Sequence[str],
    features: Sequence[str] | None,
) -> list[str]:
    """The columns to learn from, in the first table's order; the same in all tables."""
    needed = [c for c in (target, agent_column, *(features or ())) if c is not None]
    given = [*needed, *drop]
    for column in given:
        absent = [table for table in tables if column not in table.columns]
        if absent and (column in needed or len(absent) == len(tables)):
            raise InvalidInput(
                f"Expected a column {column!r} in {absent[0].path}, got none of that name in the "
                f"first line, among {len(absent[0].columns)} columns."
            )
        if given.count(column) > 1:
            raise InvalidInput(
                f"Expected one use of the column {column!r} of {tables[0].path}, got more."
            )
    if features is not None:
        return list(features)
    first, *others = ([name for name in t.columns if name not in given] for t in tables)
    for table, own in zip(tables[1:], others, strict=True):
        if odd := sorted({*first} ^ {*own}):
            where = table if odd[0] in first else tables[0]
            raise InvalidInput(
                f"Expected the same columns in {tables[0].path} and {table.path}, got no "
                f"{odd[0]!r} in {where.path}. Nothing was fit."
            )
    return first


def _refuse_others(
    tables: Sequence[Table], target: str, found: Vector, classes: Collection[str] | None
) -> None:
    """Refuse labels that are not on the public list."""
    ends = np.cumsum([len(table) for table in tables])[:-1]
    for table, labels in zip(tables, np.split(found, ends), strict=True):
        if classes is not None and (odd := ~np.isin(labels, list(classes))).any():
            raise InvalidInput(
                f"Expected labels of {list(classes)} in column {target!r} of {table.path}, got "
                f"another one in {table.where(int(np.argmax(odd)))}. Nothing was fit."
            )


def _names(tables: Sequence[Table], column: str, classes: bool = False) -> Vector:
    """The names of classes, where 1 and 1.0 are one, or of agents.

    Guarantee: each from its own cell. Names that could be meant otherwise beside others in their
    column, such as 01 among words, are refused: a record never changes what another one is called.
    """
    kinds, names = [], []
    for table in tables:
        values, where = table.labels(column), f"column {column!r} of {table.path}"
        types = {type(value) for value in values}
        said = {KINDS.get(t, "text") for t in types}
        kinds.append(kind := said.pop() if len(said) == 1 else "text")
        own = [_whole(value) if classes else str(value) for value in values]
        names += own
        if classes and kind == "numbers":
            odd = next((i for i, name in enumerate(own) if not name.lstrip("-").isdigit()), None)
            if odd is not None:
                raise InvalidInput(
                    f"Expected whole labels below 2^53 in {where}, got a fraction in "
                    f"{table.where(odd)}, or more: a classifier needs classes, and a number to "
                    "predict its public range (--target-range LOW:HIGH). Nothing was fit."
                )
        elif len(types) > 1 and (kind == "numbers" or own != table.written(column)):
            raise InvalidInput(
                f"Expected names written in one way in {where}, got 7 beside 7.0, or 07, 7.0 or "
                "true beside text: among their like they have other names. Nothing was fit."
            )
    if other := next((i for i, kind in enumerate(kinds) if kind != kinds[0]), 0):
        raise InvalidInput(
            f"Expected labels of one kind in column {column!r}, got {kinds[0]} in "
            f"{tables[0].path} and {kinds[other]} in {tables[other].path}. Nothing was fit."
        )
    return np.array(names)


def _joined(parts: Sequence[Vector]) -> Vector:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


# --- public rules --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A column's numbers, and in which records what was done to make them, by ``CHANGES``."""

    values: Vector
    marks: Mapping[str, Vector]


@dataclass(frozen=True)
class Number:
    """A column of numbers, its public range, what is filled in, and whether x counts as
    ln(1 + x − low), as money does."""

    name: Any
    low: float
    high: float
    fill: float | None
    log: bool = False

    @property
    def names(self) -> list[str]:
        return [str(self.name)]

    @property
    def slopes(self) -> list[float]:
        return [math.nan if self.log else 2 / (self.high - self.low)]

    def part(self, cells: Any) -> Part:
        """Of an array of numbers, or of cells of any type."""
        number = isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf"
        found = cells.astype(np.float64) if number else self._floats(list(cells))
        missing = np.isnan(found)
        if self.fill is not None:
            found = np.where(missing, self.fill, found)
        elif missing.any():
            raise _gap(self.name, int(np.argmax(missing)))
        if not np.isfinite(found).all():
            raise InvalidInput(
                f"Expected finite numbers in column {self.name!r}, found an infinite one in row "
                f"{int(np.argmin(np.isfinite(found))) + 1}."
            )
        inside = np.clip(found, self.low, self.high)
        above, most = inside - self.low, self.high - self.low
        if self.log:
            above, most = np.log1p(above), math.log1p(most)
        mapped = 2 * above / most - 1
        marks = {"clipped": inside != found, "unknown": np.zeros_like(missing), "filled": missing}
        return Part(mapped[:, None], marks)

    def _floats(self, cells: list[Any]) -> Vector:
        """Floating-point numbers, NaN where one is missing."""
        found = np.full(len(cells), np.nan)
        for i, cell in enumerate(cells):
            try:
                if isinstance(cell, int | float | np.number | np.bool_):
                    found[i] = float(cell)
                elif not is_missing(cell):
                    raise TypeError
            except (TypeError, OverflowError):  # no number, a complex one, one beyond 1e308
                raise InvalidInput(
                    f"Expected numbers in column {self.name!r}, found something else in row "
                    f"{i + 1}: give a public list of its categories, or leave it out."
                ) from None
        return found


@dataclass(frozen=True)
class Category:
    """A column of categories, the public list of them, and what is filled in."""

    name: Any
    known: tuple[str, ...]
    fill: str | None

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={category}" for category in self.known]

    @property
    def slopes(self) -> list[float]:
        return [1.0] * len(self.known)

    def part(self, cells: Any) -> Part:
        position = {category: j for j, category in enumerate(self.known)}
        values = np.zeros((len(cells), len(self.known)))
        marks = {kind: np.zeros(len(cells), bool) for kind in CHANGES}
        for i, cell in enumerate(cells):
            if isinstance(cell, float | np.floating) and EXACT <= abs(float(cell)) < math.inf:
                raise InvalidInput(
                    f"Expected whole numbers or text as categories of {self.name!r} beyond 2^53, "
                    f"found floating point, which does not tell them apart, in row {i + 1}."
                )
            text = _category(cell)
            if text not in position and is_missing(cell):
                if self.fill is None:
                    raise _gap(self.name, i)
                text, marks["filled"][i] = self.fill, True
            if text in position:
                values[i, position[text]] = 1.0
            else:
                marks["unknown"][i] = True
        return Part(values, marks)


def public_rules(
    names: Sequence[Any], ranges: Any, categories: Any, fill: Any, log: Collection[Any] = ()
) -> tuple[Number | Category, ...]:
    """The rule of every column, checked. As ``tacit.learn.PublicColumns`` takes them."""
    for word, given in (("categories", categories), ("fill", fill)):
        if not isinstance(given, Mapping):
            raise InvalidInput(f"Expected {word} by column, got {word}={given!r}.")
        for name in given:
            if name not in names and not (name == "*" and word == "fill"):
                some = ", ".join(map(str, names[:20]))
                raise InvalidInput(f"Expected {word} of the columns {some}, got of {name!r}.")
    if both := [name for name in categories if name in ranges]:
        raise InvalidInput(f"Expected a range or categories of {both[0]!r}, got both.")
    numbers = [name for name in names if name not in categories]
    if odd := [name for name in log if name not in numbers]:
        raise InvalidInput(f"Expected log of columns of numbers, got of {odd[0]!r}.")
    pairs = dict(zip(numbers, public_ranges(ranges, numbers), strict=True))
    rules: list[Number | Category] = []
    for name in names:
        if name in categories:
            known = public_list(name, categories[name])
            text = None if name not in fill else str(fill[name]).strip()
            if text is not None and text not in known:
                raise InvalidInput(
                    f"Expected one of the categories of {name!r} to fill in, got {fill[name]!r}. "
                    "If what is missing is a category of its own, list it too."
                )
            rules.append(Category(name, known, text))
            continue
        low, high = pairs[name]
        value = fill.get(name, fill.get("*"))
        right = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (right and low <= value <= high):
            raise InvalidInput(
                f"Expected a number from {low:g} to {high:g} to fill in for {name!r}, got "
                f"{value!r}."
            )
        filled = None if value is None else float(value)
        rules.append(Number(name, low, high, filled, name in log))
    out = Counter(name for rule in rules for name in rule.names)
    if twice := [name for name, many in out.items() if many > 1]:
        raise InvalidInput(
            f"Expected categories that give columns of different names, got {twice[0]!r} twice."
        )
    return tuple(rules)


def public_ranges(ranges: Any, names: Sequence[Any]) -> list[tuple[float, float]]:
    """The range (low, high) of every column, or an error."""
    if not isinstance(ranges, Mapping):
        raise InvalidInput(f"Expected ranges by column, got ranges={ranges!r}.")
    for name, pair in ranges.items():
        if name != "*" and name not in names:
            some = ", ".join(map(str, names[:20]))
            raise InvalidInput(f"Expected ranges of the columns {some}, got one of {name!r}.")
        if not (len(pair) == 2 and -math.inf < pair[0] < pair[1] < math.inf):
            raise InvalidInput(f"Expected a range low < high of {name!r}, got {tuple(pair)}.")
        if max(map(abs, pair)) > LENGTHS[1] or pair[1] - pair[0] < LENGTHS[0]:
            raise InvalidInput(
                f"Expected a range of {name!r} within {LENGTHS[1]:g} and at least "
                f"{LENGTHS[0]:g} wide, got {tuple(pair)}."
            )
    bare = [name for name in names if name not in ranges]
    if bare and "*" not in ranges:
        raise InvalidInput(
            f"Expected a public range of every column, got none of {bare[0]!r} "
            f"({len(bare)} of {len(names)} have none). Text takes categories; leave out what is "
            "not to be used."
        )
    return [tuple(ranges.get(name, ranges.get("*"))) for name in names]


def public_list(name: Any, given: Any) -> tuple[str, ...]:
    """The categories of a column as text, checked."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InvalidInput(f"Expected a list of categories of {name!r}, got {given!r}.")
    known = tuple(_category(category) for category in given)
    if not known or "" in known or len(set(known)) != len(known):
        raise InvalidInput(
            f"Expected one or more different categories of {name!r}, none of them empty, got "
            f"{list(known)}."
        )
    return known


def is_missing(cell: Any) -> bool:
    if cell is None or isinstance(cell, str):
        return cell is None or cell.strip() in MISSING
    try:
        return bool(cell != cell)  # NaN and NaT
    except (TypeError, ValueError):
        return type(cell).__name__ == "NAType"  # of pandas, which need not be there


def _gap(name: Any, row: int) -> InvalidInput:
    return InvalidInput(
        f"Expected no missing value in column {name!r}, found one in row {row + 1}: give a public "
        "value to fill in (fill)."
    )


def _whole(value: Any) -> str:
    """1 and 1.0 are one."""
    whole = isinstance(value, float | np.floating) and abs(float(value)) < EXACT and value % 1 == 0
    return str(int(value) if whole else value)


def _category(cell: Any) -> str:
    """Two records with the same value have the same text, whatever others in the column are."""
    return _whole(cell).strip()
