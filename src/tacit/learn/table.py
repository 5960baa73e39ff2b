"""Data in CSV or Parquet tables: one table of all agents, or each agent's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import EXACT, CorruptFile, InvalidInput
from tacit.learn.data import Dataset
from tacit.tables import Table, named, read_table, refuse_one_file

KINDS: dict[type, str] = {int: "numbers", float: "numbers", bool: "truth values"}


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

    def dataset(self, features: Vector, names: Sequence[str]) -> Dataset:
        """The data with these features, whose columns are called ``names``."""
        if self.targets.dtype.kind == "f":
            return Dataset(features, self.targets, (), self.groups, tuple(names))
        classes, labels = np.unique(self.targets, return_inverse=True)
        return Dataset(features, labels, tuple(classes.tolist()), self.groups, tuple(names))


def load_table(
    path: str | Path,
    target: str,
    agent_column: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    *,
    numeric_target: bool = False,
) -> Dataset:
    """A CSV or Parquet table: ``target`` has the labels; all other columns must be numbers.

    ``agent_column`` says whose record it is; the columns in ``drop`` are not used. ``features``
    are the columns that are, in this order; left out, all others. ``numeric_target``: the target's
    own numbers are the labels, and there are no classes.
    """
    read = [target] if not numeric_target else []
    table = read_table(path, [*read, *filter(None, [agent_column])], of_learning)
    used = _used([table], target, agent_column, drop, features)
    targets = _targets([table], target, numeric_target)
    groups = None if agent_column is None else _named([table], agent_column)
    return Records({}, targets, groups).dataset(table.numbers(used), used)


def load_records(
    paths: Sequence[str | Path],
    target: str,
    agent_column: str | None = None,
    drop: Sequence[str] = (),
    *,
    categories: Mapping[str, Collection[str]] | None = None,
    gaps: Collection[str] = (),
    numeric_target: bool = False,
    ranges: Collection[str] = ("*",),
    classes: Collection[str] | None = None,
) -> Records:
    """The records of one table, or of several agents' own tables with the same columns.

    Several tables are matched by the names of their columns, in any order. Each is its agent's,
    who is called as the file is; a column to drop need not be in all of them. Columns of
    ``categories`` may be text; in those of ``gaps`` ("*": all of numbers) values may be missing.
    Columns with neither categories nor a range are all named in one error, before any value is.
    ``classes`` are the labels that the target may have.
    """
    known = categories or {}
    refuse_one_file([*map(Path, paths)])
    names = _agents([Path(path) for path in paths], agent_column)
    labelled = [*known, *([] if numeric_target else [target])]
    labelled += filter(None, [agent_column])
    tables = [read_table(path, labelled, of_learning) for path in paths]
    used = _used(tables, target, agent_column, drop)
    for name in sorted({*known, *gaps} - {*used, "*"}):
        what = "categories" if name in known else "a value to fill in"
        raise InvalidInput(f"Expected {what} of a column that is used, got {what} of {name!r}.")
    numbers = [name for name in used if name not in known]
    if bare := [name for name in numbers if name not in ranges and "*" not in ranges]:
        raise InvalidInput(
            f"Expected a public rule of every column, got none of {named(bare)} ({len(bare)} of "
            f"{len(used)} have none): --range COLUMN=LOW:HIGH for numbers ('*=-1:1' takes all "
            "others as they are, clipped), --categories COLUMN=A,B,... for text, --id COLUMN for "
            "identifiers, --drop COLUMN for what is not to be used. Nothing was fit."
        )
    matrix = _joined([table.numbers(numbers, gaps) for table in tables])
    columns = {name: matrix[:, j] for j, name in enumerate(numbers)}
    for name in known:
        columns[name] = _joined([table.categories(name, known[name], gaps) for table in tables])
    groups = None if agent_column is None else _named(tables, agent_column)
    if len(tables) > 1:
        groups = np.repeat(names, [len(table) for table in tables])
    targets = _targets(tables, target, numeric_target, classes)
    return Records({name: columns[name] for name in used}, targets, groups)


def of_learning(column: str) -> str:
    """What to do about text and missing values."""
    return (
        f"tacit learn takes text with --categories {column}=A,B,... and missing values with "
        f"--fill {column}=VALUE, both public; --id {column} (an identifier) or --drop {column} "
        "leaves it out."
    )


def _agents(paths: Sequence[Path], agent_column: str | None) -> list[str]:
    """What the agents are called whose tables these are."""
    if len(paths) > 1 and agent_column is not None:
        raise InvalidInput(
            "Expected either several tables, one for each agent, or an agent column, got both. "
            "Nothing was fit."
        )
    names = [path.stem for path in paths]
    alike = [name.casefold() for name in names]  # some file systems take ledgers of both for one
    for name, same in zip(names, alike, strict=True):
        if alike.count(same) > 1:
            raise InvalidInput(
                f"Expected tables of different names, as agents are called so, got {name!r} more "
                "than once. Nothing was fit."
            )
    return names


def _used(
    tables: Sequence[Table],
    target: str,
    agent_column: str | None,
    drop: Sequence[str],
    features: Sequence[str] | None = None,
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
        if absent_here := [name for name in first if name not in own]:
            raise InvalidInput(
                f"Expected the columns of {tables[0].path} in {table.path} too, got no "
                f"{absent_here[0]!r}. Nothing was fit."
            )
        if more := [name for name in own if name not in first]:
            raise InvalidInput(
                f"Expected the columns of {tables[0].path} in {table.path} too, and no others, got "
                f"{more[0]!r}: drop it, if it is not to be used. Nothing was fit."
            )
    return first


def _targets(
    tables: Sequence[Table],
    target: str,
    numeric: bool,
    classes: Collection[str] | None = None,
) -> Vector:
    """Numbers, or names of classes: 1 and 1.0 are one class, also in different tables."""
    if numeric:
        try:
            return _joined([table.numbers([target])[:, 0] for table in tables])
        except (CorruptFile, InvalidInput) as error:  # whose advice is about other columns
            what = str(error).partition(" tacit learn takes")[0]
            raise type(error)(
                f"{what} A target with a public range is a number in every record. Nothing was fit."
            ) from None
    found = _named(tables, target, classes=True)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    for table, labels in zip(tables, np.split(found, ends), strict=True):
        if classes is not None and (odd := ~np.isin(labels, list(classes))).any():
            raise InvalidInput(
                f"Expected labels of {list(classes)} in column {target!r} of {table.path}, got "
                f"another one in {table.where(int(np.argmax(odd)))}. Nothing was fit."
            )
    return found


def _named(tables: Sequence[Table], column: str, classes: bool = False) -> Vector:
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
        own = [_name(value, classes) for value in values]
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


def _name(value: Any, classes: bool) -> str:
    whole = classes and type(value) is float and value % 1 == 0 and abs(value) < EXACT
    return str(int(value) if whole else value)


def _joined(parts: Sequence[Vector]) -> Vector:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
