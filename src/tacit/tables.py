"""Tables and arrays of users' data, read in one place.

An error names a line and a column, never what is in them.
"""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput
from tacit.reading import lines_of, opened, read_npz, reading

CHUNK = 4096  # records at a time: text takes ten times the memory of numbers
MISSING = {  # cells that pandas takes for missing
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"),
}


@dataclass(frozen=True)
class Table:
    """Records with named columns: numbers, or text where that was asked for."""

    path: Path
    columns: tuple[str, ...]
    text: Mapping[str, list[str]]
    lines: array[int] = field(default_factory=lambda: array("q"))  # of each record in the file
    words: Mapping[str, float] = field(default_factory=dict)  # and the numbers that they stand for
    _numbers: dict[str, list[Vector]] = field(default_factory=dict)
    _faults: dict[str, int] = field(default_factory=dict)  # line of the first that is no number
    _gaps: dict[str, int] = field(default_factory=dict)  # line of the first that is missing

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, columns: Sequence[str], gaps: Collection[str] = ()) -> Vector:
        """Records × columns; all of them finite numbers, or an error.

        In the columns of ``gaps`` ("*": all) a number may be missing, and is NaN.
        """
        if (fault := self.fault(columns, gaps)) is not None:
            line, name = fault
            raise CorruptFile(
                f"Expected a finite number in line {line} of {self.path}, column {name!r}."
            )
        found = np.empty((len(self), len(columns)))
        for j, name in enumerate(columns):
            found[:, j] = np.concatenate(self._numbers[name])
        return found

    def fault(self, columns: Sequence[str], gaps: Collection[str] = ()) -> tuple[int, str] | None:
        """Line and column of the first cell that is no number, or missing outside ``gaps``."""
        faults = [(self._faults[name], name) for name in columns if name in self._faults]
        if "*" not in gaps:
            bare = (name for name in columns if name not in gaps and name in self._gaps)
            faults += [(self._gaps[name], name) for name in bare]
        return min(faults, default=None)

    def _add(self, rows: list[list[str]], lines: list[int]) -> None:
        self.lines.extend(lines)
        for name, cells in zip(self.columns, zip(*rows, strict=True), strict=True):
            if name in self.text:
                self.text[name].extend(cells)
            elif name not in self._faults:
                values = _floats(cells, self.words)
                self._numbers.setdefault(name, []).append(values)
                for i in np.flatnonzero(~np.isfinite(values)).tolist():
                    if cells[i].strip() not in MISSING:
                        self._faults[name] = lines[i]
                        break
                    self._gaps.setdefault(name, lines[i])


def read_csv(
    path: str | Path, text: Sequence[str] = (), words: Mapping[str, float] | None = None
) -> Table:
    """The table in a CSV file with a header; the columns in ``text`` stay as they are written.

    A column that holds something else than numbers is an error only where it is asked for. Those of
    ``words``, such as true and false, are the numbers that they stand for.

    Guarantee: what a cell becomes does not depend on any other cell.
    """
    path = Path(path)
    with reading(path, "a CSV table", own=False), opened(path) as binary:
        return _read(path, csv.reader(lines_of(binary), strict=True), text, words or {})


def read_arrays(
    path: Path, target: str | None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """Arrays by name: all of an .npz, or the columns of a CSV as features and targets.

    ``columns`` are the features of a CSV, in this order; all but the target if left out.
    """
    if path.suffix == ".csv" and target is not None:
        return _features(path, target, columns)
    if path.suffix != ".npz":
        kinds = ".npz or .csv" if target is not None else ".npz"
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
    table = read_csv(path)
    header = [name.strip() for name in table.columns]
    if any(np.isfinite(_float(name)) for name in header):
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


def _read(path: Path, reader: Any, text: Sequence[str], words: Mapping[str, float]) -> Table:
    header: list[str] = next(reader, [])
    # a column without a name gets the one that pandas gives it
    columns = tuple(name or f"Unnamed: {j}" for j, name in enumerate(header))
    if len({name.strip() for name in columns}) != len(columns):
        raise InvalidInput(f"Expected different column names in {path}, got one twice.")
    table = Table(path, columns, {name: [] for name in text if name in columns}, words=words)
    records = ((row, reader.line_num) for row in reader if row)
    while chunk := list(islice(records, CHUNK)):
        for row, line in chunk:
            if len(row) != len(columns):
                raise CorruptFile(
                    f"Expected {len(columns)} cells in line {line} of {path}, got {len(row)}."
                )
        table._add([row for row, _ in chunk], [line for _, line in chunk])
    if not len(table):
        raise InvalidInput(f"Expected a header and records in {path}, got no records.")
    return table


def _floats(cells: Sequence[str], words: Mapping[str, float]) -> Vector:
    """Numbers, each by itself, and NaN for whatever is none; Python's own 1_000 and ٣ are none."""
    try:
        if "_" not in (all_of_them := "".join(cells)) and all_of_them.isascii():
            return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        pass
    return np.array([words[cell] if cell in words else _float(cell) for cell in cells], np.float64)


def _float(cell: str) -> float:
    try:
        return np.nan if "_" in cell or not cell.isascii() else float(cell)
    except ValueError:
        return np.nan
