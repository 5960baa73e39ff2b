"""Tables and arrays of users' data, CSV, Parquet or .npz, read in one place.

An error names a line and a column, never what is in them.
"""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import EXACT, CorruptFile, InvalidInput, TacitError
from tacit.reading import check_parquet, lines_of, opened, read_npz, reading

CHUNK = 4096  # records at a time: text takes ten times the memory of numbers
MOST_NAMED = 30  # columns in one error
MISSING = {  # cells that pandas takes for missing
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"),
}
BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), True)  # as pandas takes them
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), False)


class Table:
    """Records with named columns of numbers, labels or categories.

    In the columns of ``gaps`` ("*": all of numbers) values may be missing: NaN, or as they are.
    ``advice`` says what to do about a column with text or missing values.

    Guarantee: what a cell becomes depends on that cell, and in a Parquet file on the type that the
    file declares for its column: never on other records. Whether there is an error does.
    """

    path: Path
    columns: tuple[str, ...]
    advice: Callable[[str], str]
    wrong: type[TacitError]  # what a cell that is not as expected raises

    def __len__(self) -> int:
        raise NotImplementedError

    def where(self, record: int) -> str:
        """The line or number of a record, counted from 0."""
        raise NotImplementedError

    def written(self, column: str) -> list[str]:
        """The column as text."""
        raise NotImplementedError

    def _floats(self, column: str) -> Vector:
        """Finite numbers; NaN for what is missing, and infinity for what is no finite number."""
        raise NotImplementedError

    def _cells(self, column: str) -> Sequence[Any]:
        """The column as it is."""
        raise NotImplementedError

    def _labels(self, column: str) -> list[Any]:
        """The column's numbers, truth values and text."""
        raise NotImplementedError

    def numbers(self, columns: Sequence[str], gaps: Collection[str] = ()) -> Vector:
        """Records × columns; all of them finite numbers, or an error."""
        found = np.empty((len(self), len(columns)))
        for j, name in enumerate(columns):
            found[:, j] = self._floats(name)
        fine = np.isfinite(found)
        for j, name in enumerate(columns):
            if name in gaps or "*" in gaps:
                fine[:, j] |= np.isnan(found[:, j])
        if not fine.all():
            row, first = np.argwhere(~fine)[0].tolist()
            others = [c for j, c in enumerate(columns) if j != first and not fine[:, j].all()]
            also = f" The same in {named(others)}." if others else ""
            name = columns[first]
            raise self.wrong(
                f"Expected a finite number in {self.where(row)} of {self.path}, column {name!r}."
                f"{also} {self.advice(name)}".rstrip()
            )
        return found

    def labels(self, column: str) -> list[Any]:
        """Classes or agents, none of them missing."""
        self._refuse_gaps(column)
        return self._labels(column)

    def categories(self, column: str, known: Iterable[str], gaps: Collection[str]) -> Vector:
        if column not in gaps:
            self._refuse_gaps(column, known, self.advice(column))
        return np.fromiter(self._cells(column), object, len(self))

    def _refuse_gaps(self, column: str, known: Iterable[str] = (), advice: str = "") -> None:
        missing = MISSING - set(map(str, known))  # a category may be called NA
        cells = self._cells(column)
        if (row := next((i for i, c in enumerate(cells) if str(c).strip() in missing), -1)) >= 0:
            raise self.wrong(
                f"Expected no missing values in {self.path}, found one in {self.where(row)}, "
                f"column {column!r}. {advice}".rstrip()
            )


def read_table(
    path: str | Path, text: Sequence[str] = (), advice: Callable[[str], str] = lambda column: ""
) -> Table:
    """The table in a CSV or Parquet file; the columns in ``text`` are not asked for numbers.

    A column that holds something else than numbers is an error only where it is asked for.
    """
    path = Path(path)
    return _Parquet(path, advice) if path.suffix == ".parquet" else read_csv(path, text, advice)


def named(columns: Sequence[str]) -> str:
    """Columns by name, and how many more there are."""
    more = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
    return ", ".join(map(repr, columns[:MOST_NAMED])) + more


# --- CSV ---------------------------------------------------------------------------------------


class CsvTable(Table):
    """A CSV file with a header, without pandas. The columns of ``text`` stay as they are written.

    True and false are the numbers 1 and 0 where numbers are asked for.
    """

    wrong = CorruptFile

    def __init__(
        self, path: Path, header: list[str], text: Sequence[str], advice: Callable[[str], str]
    ) -> None:
        # a column without a name gets the one that pandas gives it
        self.path, self.advice = path, advice
        self.columns = tuple(name or f"Unnamed: {j}" for j, name in enumerate(header))
        if len({name.strip() for name in self.columns}) != len(self.columns):
            raise InvalidInput(f"Expected different column names in {path}, got one twice.")
        self.text: dict[str, list[str]] = {name: [] for name in text if name in self.columns}
        self.lines = array("q")  # of each record in the file
        self._numbers: dict[str, list[Vector]] = {n: [] for n in self.columns if n not in text}

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, record: int) -> str:
        return f"line {self.lines[record]}"

    def written(self, column: str) -> list[str]:
        return self.text[column]

    _cells = written

    def _labels(self, column: str) -> list[Any]:
        return [_typed(cell) for cell in self.text[column]]

    def _floats(self, column: str) -> Vector:
        return np.concatenate(self._numbers[column])

    def add(self, rows: list[list[str]], lines: list[int]) -> None:
        self.lines.extend(lines)
        for name, cells in zip(self.columns, zip(*rows, strict=True), strict=True):
            if name in self.text:
                self.text[name].extend(cells)
            elif (parts := self._numbers[name]) and np.isinf(parts[-1]).any():
                parts.append(np.full(len(cells), np.inf))  # nobody can ask for its numbers
            else:
                parts.append(_numbers(cells))


def read_csv(
    path: str | Path, text: Sequence[str] = (), advice: Callable[[str], str] = lambda column: ""
) -> CsvTable:
    path = Path(path)
    with reading(path, "a CSV table", own=False), opened(path) as binary:
        reader = csv.reader(lines_of(binary), strict=True)
        table = CsvTable(path, next(reader, []), text, advice)
        records = ((row, reader.line_num) for row in reader if row)
        while chunk := list(islice(records, CHUNK)):
            for row, line in chunk:
                if len(row) != len(table.columns):
                    raise CorruptFile(
                        f"Expected {len(table.columns)} cells in line {line} of {path}, "
                        f"got {len(row)}."
                    )
            table.add([row for row, _ in chunk], [line for _, line in chunk])
        if not len(table):
            raise InvalidInput(f"Expected a header and records in {path}, got no records.")
        return table


def _numbers(cells: Sequence[str]) -> Vector:
    """Each by itself: NaN for what is missing, infinity for whatever else is no number."""
    try:
        if "_" in (all_of_them := "".join(cells)) or not all_of_them.isascii():
            raise ValueError  # Python's own 1_000 and ٣ are none
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
    return cell.isascii() and "_" not in cell


def _typed(cell: str) -> Any:
    """A whole number, a number or a truth value where a cell is one by itself, else its text.

    Numbers that 64 bits cannot tell apart stay text: they may be names of different agents.
    """
    if cell in BOOLEANS:
        return BOOLEANS[cell]
    for kind, most in ((int, 2**63), (float, EXACT)):
        try:
            if _plain(cell) and abs(number := kind(cell)) < most:
                return number
        except ValueError:
            pass
    return cell


# --- Parquet -----------------------------------------------------------------------------------


class _Parquet(Table):
    wrong = InvalidInput

    def __init__(self, path: Path, advice: Callable[[str], str]) -> None:
        try:
            import pandas as pd
        except ImportError:
            raise InvalidInput("Expected pandas: pip install 'tacit[learn]'.") from None
        with reading(path, "a CSV or Parquet table", own=False):
            check_parquet(path)
            # integers stay integers where one is missing: pandas' own would all become floats
            self.frame = pd.read_parquet(path, dtype_backend="numpy_nullable")
        self.path, self.advice = path, advice
        self.frame.columns = self.frame.columns.map(str)
        self.columns = tuple(self.frame.columns)
        if len(set(self.columns)) != len(self.columns):
            raise InvalidInput(f"Expected different column names in {path}, got one twice.")
        if not len(self.frame):
            raise InvalidInput(f"Expected records in {path}, got no records.")

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, record: int) -> str:
        return f"record {record + 1}"  # a file without lines

    def written(self, column: str) -> list[str]:
        return [str(value) for value in self.frame[column].tolist()]

    def _cells(self, column: str) -> Sequence[Any]:
        return list(self.frame[column].astype(object))

    def _labels(self, column: str) -> list[Any]:
        if self.frame[column].dtype.kind in "mM":  # dates as NumPy writes them
            return list(self.frame[column].to_numpy().astype(str).tolist())
        return list(self.frame[column].to_numpy(object).tolist())

    def _floats(self, column: str) -> Vector:
        cells = self.frame[column]
        if cells.dtype.kind not in "biuf":
            return np.full(len(cells), np.inf)
        return np.asarray(cells.to_numpy(np.float64, na_value=np.nan))


# --- data of a job -----------------------------------------------------------------------------


def read_arrays(
    path: Path, target: str | None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """Arrays by name: all of an .npz, or the columns of a table as features and targets.

    ``columns`` are the features of a table, in this order; all but the target if left out.
    """
    if path.suffix in (".csv", ".parquet") and target is not None:
        return _features(path, target, columns)
    if path.suffix != ".npz":
        kinds = ".npz, .csv or .parquet" if target is not None else ".npz"
        raise InvalidInput(f"Expected a {kinds} file, got {path}.")
    return read_npz(path, "a table of numbers")


def refuse_one_file(paths: Sequence[Path]) -> None:
    """Refuse one file, by any name or link, for two agents: records would be released twice."""
    files = [os.stat(p)[1:3] if os.path.exists(p) else p for p in paths]  # device and inode
    if twice := [path for path, file in zip(paths, files, strict=True) if files.count(file) > 1]:
        raise InvalidInput(
            f"Expected a data file of its own for every agent, got {twice[0]} for two: its records "
            "would count twice. Nothing was read."
        )


def _features(path: Path, target: str, columns: Sequence[str] | None) -> dict[str, Any]:
    """Features, targets and feature columns."""
    table = read_table(path)
    header = [name.strip() for name in table.columns]
    if np.isfinite(_numbers(header)).any():
        raise InvalidInput(f"Expected column names in the first line of {path}, found numbers.")
    for name in (target, *(columns or ())):
        if name not in header:
            raise InvalidInput(
                f"Expected a column {name!r} in {path}, found none of that name in the first line, "
                f"among {len(header)} columns."
            )
    used = header if columns is None else [*columns, target]
    column = used.index(target)
    values = table.numbers([table.columns[header.index(name)] for name in used])
    return {
        "features": np.delete(values, column, axis=1),
        "targets": values[:, column],
        "labels": values[:, column],
        "columns": used[:column] + used[column + 1 :],
    }
