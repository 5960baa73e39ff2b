"""CSV and Parquet files as columns of numbers, labels and categories.

An error names a line and a column, never what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn.data import first_missing
from tacit.reading import check_parquet, reading
from tacit.tables import MISSING, read_csv

BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), True)  # as pandas takes them
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), False)
MOST_NAMED = 30  # columns in one error
EXACT = 2**53  # from here on two whole numbers may be one floating-point number


class Source(Protocol):
    """A table whose columns are numbers, labels or categories.

    In the columns of ``gaps`` ("*": all of numbers) values may be missing: NaN, or as they are.

    Guarantee: what a cell becomes depends on that cell, and in a Parquet file on the type that the
    file declares for its column: never on other records. Whether there is an error does.
    """

    @property
    def path(self) -> Path: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def numbers(self, columns: Sequence[str], gaps: Collection[str] = ()) -> Vector: ...
    def labels(self, column: str) -> list[Any]: ...
    def categories(self, column: str, known: Iterable[str], gaps: Collection[str]) -> Vector: ...
    def written(self, column: str) -> list[str]: ...
    def where(self, record: int) -> str: ...


def of_learning(column: str) -> str:
    """What to do about text and missing values."""
    return (
        f"tacit learn takes text with --categories {column}=A,B,... and missing values with "
        f"--fill {column}=VALUE, both public; --id {column} (an identifier) or --drop {column} "
        "leaves it out."
    )


def read_table(
    path: str | Path,
    labelled: Sequence[str] = (),
    advice: Callable[[str], str] = of_learning,
) -> Source:
    """The table in a CSV or Parquet file; ``labelled`` are the columns that are not asked for
    numbers, ``advice`` says what to do about a column with text or missing values."""
    path = Path(path)
    return _Parquet(path, advice) if path.suffix == ".parquet" else _Csv(path, labelled, advice)


def named(columns: Sequence[str]) -> str:
    """Columns by name, and how many more there are."""
    more = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
    return ", ".join(map(repr, columns[:MOST_NAMED])) + more


def _also(others: Sequence[str]) -> str:
    return f" The same in {named(others)}." if others else ""


def _first_gap(cells: Iterable[Any], known: Iterable[str]) -> int | None:
    """Where the first missing one is; a category may be called NA."""
    missing = MISSING - set(map(str, known))
    return next((i for i, cell in enumerate(cells) if str(cell).strip() in missing), None)


class _Csv:
    def __init__(self, path: Path, labelled: Sequence[str], advice: Callable[[str], str]) -> None:
        self.path, self.table, self.advice = path, read_csv(path, labelled, BOOLEANS), advice
        self.columns = self.table.columns

    def __len__(self) -> int:
        return len(self.table)

    def numbers(self, columns: Sequence[str], gaps: Collection[str] = ()) -> Vector:
        if (fault := self.table.fault(columns, gaps)) is not None:
            line, name = fault
            others = [c for c in columns if c != name and self.table.fault([c], gaps) is not None]
            raise CorruptFile(
                f"Expected a finite number in line {line} of {self.path}, column {name!r}."
                f"{_also(others)} {self.advice(name)}"
            )
        return self.table.numbers(columns, gaps)

    def labels(self, column: str) -> list[Any]:
        self._refuse_gaps(column)
        return [_typed(cell) for cell in self.table.text[column]]

    def categories(self, column: str, known: Iterable[str], gaps: Collection[str]) -> Vector:
        if column not in gaps:
            self._refuse_gaps(column, known, self.advice(column))
        return np.array(self.table.text[column], object)

    def written(self, column: str) -> list[str]:
        return self.table.text[column]

    def where(self, record: int) -> str:
        return f"line {self.table.lines[record]}"

    def _refuse_gaps(self, column: str, known: Iterable[str] = (), advice: str = "") -> None:
        if (row := _first_gap(self.table.text[column], known)) is not None:
            said = (
                f"Expected no missing values in {self.path}, found one in "
                f"{self.where(row)}, column {column!r}. {advice}"
            )
            raise CorruptFile(said.strip())


def _typed(cell: str) -> Any:
    """A whole number, a number or a truth value where a cell is one by itself, else its text.

    Numbers that 64 bits cannot tell apart stay text: they may be names of different agents.
    """
    if cell in BOOLEANS:
        return BOOLEANS[cell]
    for kind, most in ((int, 2**63), (float, EXACT)):
        try:
            if cell.isascii() and "_" not in cell and abs(number := kind(cell)) < most:
                return number
        except ValueError:
            pass
    return cell


class _Parquet:
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
        self.columns: tuple[str, ...] = tuple(self.frame.columns)
        if len(set(self.columns)) != len(self.columns):
            raise InvalidInput(f"Expected different column names in {path}, got one twice.")
        if not len(self.frame):
            raise InvalidInput(f"Expected records in {path}, got no records.")

    def __len__(self) -> int:
        return len(self.frame)

    def numbers(self, columns: Sequence[str], gaps: Collection[str] = ()) -> Vector:
        if text := [c for c in columns if self.frame[c].dtype.kind not in "biuf"]:
            raise InvalidInput(
                f"Expected numbers in column {text[0]!r} of {self.path}.{_also(text[1:])} "
                f"{self.advice(text[0])}"
            )
        series = [self.frame[c].to_numpy(np.float64, na_value=np.nan) for c in columns]
        values = np.stack(series, axis=1) if series else np.empty((len(self), 0))
        fine = np.isfinite(values)
        for j, column in enumerate(columns):
            if column in gaps or "*" in gaps:
                fine[:, j] |= np.isnan(values[:, j])
        if not fine.all():
            row, first = np.argwhere(~fine)[0].tolist()
            others = [c for j, c in enumerate(columns) if j != first and not fine[:, j].all()]
            raise InvalidInput(
                f"Expected finite numbers in {self.path}, found a missing or infinite one in "
                f"{self.where(row)}, column {columns[first]!r}.{_also(others)} "
                f"{self.advice(columns[first])}"
            )
        return values

    def labels(self, column: str) -> list[Any]:
        values = self.frame[column].to_numpy(object)
        if (row := first_missing(values)) is not None:
            self._refuse_gap(row, column)
        if self.frame[column].dtype.kind in "mM":  # dates as NumPy writes them
            values = self.frame[column].to_numpy().astype(str)
        return list(values.tolist())

    def categories(self, column: str, known: Iterable[str], gaps: Collection[str]) -> Vector:
        values: Vector = self.frame[column].astype(object).to_numpy()
        if column not in gaps and (row := _first_gap(values, known)) is not None:
            self._refuse_gap(row, column, self.advice(column))
        return values

    def written(self, column: str) -> list[str]:
        return [str(value) for value in self.frame[column].tolist()]

    def where(self, record: int) -> str:
        return f"record {record + 1}"  # a file without lines

    def _refuse_gap(self, row: int, column: str, advice: str = "") -> None:
        said = (
            f"Expected no missing values in {self.path}, found one in {self.where(row)}, "
            f"column {column!r}. {advice}"
        )
        raise InvalidInput(said.strip())
