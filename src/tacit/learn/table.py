"""Labelled data in a CSV or Parquet table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn.data import Dataset, first_missing
from tacit.tables import read_csv

# Cells that pandas takes for missing, and for truth values
MISSING = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"),
}
BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), True)
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), False)
EXACT = 2**53  # from here on two whole numbers may be one floating-point number


class Source(Protocol):
    """A table whose columns are numbers or labels."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    def numbers(self, columns: Sequence[str]) -> Vector: ...
    def labels(self, column: str) -> Vector: ...


def load_table(
    path: str | Path,
    target: str,
    agent_column: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
) -> Dataset:
    """A CSV or Parquet table: ``target`` has the labels; all other columns must be numbers.

    ``agent_column`` says whose record it is; the columns in ``drop`` are not used. ``features``
    are the columns that are, in this order; left out, all others.
    """
    given = [c for c in (target, agent_column, *drop, *(features or ())) if c is not None]
    labelled = given[: 1 if agent_column is None else 2]
    table = read_table(path, labelled)
    for column in given:
        if column not in table.columns:
            raise InvalidInput(
                f"Expected a column {column!r} in {path}, got none of that name in the first line, "
                f"among {len(table.columns)} columns."
            )
        if given.count(column) > 1:
            raise InvalidInput(f"Expected one use of the column {column!r} of {path}, got more.")
    values, *others = (table.labels(column) for column in labelled)
    if values.dtype.kind == "f":
        if (values % 1 != 0).any():
            raise InvalidInput(
                f"Expected labels in column {target!r} of {path}, got a fraction in row "
                f"{int(np.flatnonzero(values % 1 != 0)[0]) + 1}: a classifier needs classes."
            )
        if (np.abs(values) >= EXACT).any():
            raise InvalidInput(
                f"Expected labels below 2^53 in column {target!r} of {path}: larger ones are not "
                "told apart as floating-point numbers."
            )
        values = values.astype(np.int64)
    names, labels = np.unique(values.astype(str), return_inverse=True)
    rest = tuple(name for name in table.columns if name not in given)
    rest = rest if features is None else tuple(features)
    groups = others[0].astype(str) if others else None
    return Dataset(table.numbers(rest), labels, tuple(names.tolist()), groups, rest)


def read_table(path: str | Path, labelled: Sequence[str] = ()) -> Source:
    """The table in a CSV or Parquet file; ``labelled`` are the columns to ask for labels."""
    path = Path(path)
    return _Parquet(path) if path.suffix == ".parquet" else _Csv(path, labelled)


class _Csv:
    def __init__(self, path: Path, labelled: Sequence[str]) -> None:
        self.table = read_csv(path, labelled, BOOLEANS)
        self.columns = self.table.columns

    def numbers(self, columns: Sequence[str]) -> Vector:
        return self.table.numbers(columns)

    def labels(self, column: str) -> Vector:
        cells = self.table.text[column]
        if (
            row := next((i for i, x in enumerate(cells) if x.strip() in MISSING), None)
        ) is not None:
            raise CorruptFile(
                f"Expected no missing values in {self.table.path}, found one in line "
                f"{self.table.lines[row]}, column {column!r}."
            )
        return _typed(cells)


def _typed(cells: list[str]) -> Vector:
    """Whole numbers, numbers or truth values where all cells are such, else text: as pandas.

    Numbers that 64 bits cannot tell apart stay text: they may be names of different agents.
    """
    text = np.array(cells, object)
    if not all(cell.isascii() and "_" not in cell for cell in cells):  # ٣ is not 3
        return text
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except OverflowError:
        return text
    except ValueError:
        pass
    try:
        numbers = np.array([float(cell) for cell in cells])
        return numbers if (np.abs(numbers) < EXACT).all() else text
    except ValueError:
        pass
    return np.array([BOOLEANS[c] for c in cells]) if set(cells) <= set(BOOLEANS) else text


class _Parquet:
    def __init__(self, path: Path) -> None:
        try:
            import pandas as pd
        except ImportError:
            raise InvalidInput("Expected pandas: pip install 'tacit[learn]'.") from None
        try:
            self.frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            # the error's own words may hold what is in the table
            why = getattr(error, "strerror", None) or "it is none"
            raise CorruptFile(f"Expected a CSV or Parquet table in {path}: {why}.") from None
        self.path = path
        self.frame.columns = self.frame.columns.map(str)
        self.columns: tuple[str, ...] = tuple(self.frame.columns)
        if not len(self.frame):
            raise InvalidInput(f"Expected records in {path}, got no records.")

    def numbers(self, columns: Sequence[str]) -> Vector:
        for column in columns:
            if self.frame[column].dtype.kind not in "biuf":
                raise InvalidInput(
                    f"Expected numbers in column {column!r} of {self.path}; encode or drop it."
                )
        values: Vector = self.frame[list(columns)].to_numpy(np.float64)
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise InvalidInput(
                f"Expected finite numbers in {self.path}, found a missing or infinite one in row "
                f"{row + 1}, column {columns[column]!r}."
            )
        return values

    def labels(self, column: str) -> Vector:
        series: Any = self.frame[column]
        values = series.to_numpy()
        if (row := first_missing(values)) is not None:
            raise InvalidInput(
                f"Expected no missing values in {self.path}, found one in row {row + 1}, column "
                f"{column!r}."
            )
        kind = series.dtype.kind
        numeric = values.dtype == object and kind in "iuf"  # pandas' numbers that may be missing
        return np.asarray(series.to_numpy(f"{kind}8") if numeric else values)
