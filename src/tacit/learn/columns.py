"""Columns of a table with numbers, text and gaps, as rows of numbers: a scikit-learn transformer.

a number      ─▶ [−1, 1], by its public range; clipped outside
a category    ─▶ 0 or 1 for each one on a public list (one-hot); all 0 outside the list
missing       ─▶ a public value, then as above
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.errors import EXACT, InvalidInput
from tacit.learn.features import public_ranges
from tacit.tables import MISSING

KINDS = ("clipped", "unknown", "filled")  # what may be done to a value


class PublicColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Maps every column of a table to numbers by public rules, each record by itself.

    ``fit`` and ``transform`` take a pandas DataFrame or a dict of columns, and go by the columns'
    names: their order may be another one in ``transform``, and others may be there. Of an array the
    positions 0, 1, ... are the names. Cells of lists are taken one by one, each with its type.

    ranges          a pair (low, high) for each column of numbers, mapped to [−1, 1] and clipped;
                    "*" is for all others. The middle of a range is mapped to 0.
    categories      a list for each column of categories. Column C with the list A, B becomes two
                    columns C=A and C=B with 1 where the value is that one, else 0. A value that is
                    not on the list has 0 in all of them. Values are compared as text, without
                    blanks around them; 3 and 3.0 are the same.
    fill            a value for each column where one may be missing: a number within the range, or
                    one of the categories; "*" is for all other columns of numbers.

    A category of its own adds 1 to a row's squared length, as a number at an end of its range does.

    Guarantee: no number is taken from the data, and each record is mapped by itself. So neighbours
    stay neighbours, and the statement of a model fitted on the mapped rows is one about the records
    that were given here. That ranges, lists, values to fill in and types of columns are public is
    your claim. Categories that floating point does not tell apart (2^53 and more) are refused.
    """

    def __init__(
        self,
        ranges: Mapping[Any, tuple[float, float]] | None = None,
        categories: Mapping[Any, Any] | None = None,
        fill: Mapping[Any, Any] | None = None,
    ) -> None:
        self.ranges = ranges
        self.categories = categories
        self.fill = fill

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that there is a rule for every column. Nothing is learnt."""
        names = list(_table(X))
        if not names:
            raise InvalidInput("Expected one or more columns to learn from, got none.")
        if len(set(names)) != len(names):
            raise InvalidInput("Expected columns of different names, got one twice.")
        self.rules_ = _rules(names, self.ranges or {}, self.categories or {}, self.fill or {})
        out = [name for rule in self.rules_ for name in rule.names]
        if twice := [name for name, many in Counter(out).items() if many > 1]:
            raise InvalidInput(
                f"Expected categories that give columns of different names, got {twice[0]!r} twice."
            )
        self.n_features_in_ = len(names)
        self._names_out = out
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, object)
        return self

    def transform(self, X: Any) -> Vector:
        return np.hstack([part.values for part in self._parts(X)])

    def changes(self, X: Any) -> dict[str, dict[str, int]]:
        """How many values are clipped, of no known category, and filled in, by column.

        Guarantee: none. These are exact counts of the records, for the owner's eyes.
        """
        parts = dict(zip([str(rule.name) for rule in self.rules_], self._parts(X), strict=True))
        return {
            kind: {name: n for name, part in parts.items() if (n := int(part.marks[kind].sum()))}
            for kind in KINDS
        }

    def changed(self, X: Any) -> Vector:
        """Whether a record has a value that is clipped, of no known category or filled in.

        Guarantee: none. This is about single records, for the owner's eyes.
        """
        marks = [mark for part in self._parts(X) for mark in part.marks.values()]
        return np.asarray(np.any(marks, axis=0))

    def get_feature_names_out(self, input_features: Any = None) -> Vector:
        check_is_fitted(self)
        return np.array(self._names_out, object)

    def _parts(self, X: Any) -> list[_Part]:
        check_is_fitted(self)
        table = _table(X)
        for rule in self.rules_:
            if rule.name not in table:
                raise InvalidInput(f"Expected a column {rule.name!r} in the table, got none.")
        return [rule.part(table[rule.name]) for rule in self.rules_]


@dataclass(frozen=True)
class _Part:
    """A column's numbers, and in which records what was done to make them, by ``KINDS``."""

    values: Vector
    marks: Mapping[str, Vector]


@dataclass(frozen=True)
class _Number:
    name: Any
    low: float
    high: float
    fill: float | None

    @property
    def names(self) -> list[str]:
        return [str(self.name)]

    def part(self, column: pd.Series) -> _Part:
        found = self._numbers(column)
        missing = np.isnan(found)
        if self.fill is not None:
            found = np.where(missing, self.fill, found)
        elif missing.any():
            raise InvalidInput(
                f"Expected no missing value in column {self.name!r}, found one in row "
                f"{int(np.argmax(missing)) + 1}: give a public value to fill in."
            )
        if not np.isfinite(found).all():
            raise InvalidInput(
                f"Expected finite numbers in column {self.name!r}, found an infinite one in row "
                f"{int(np.argmin(np.isfinite(found))) + 1}."
            )
        inside = np.clip(found, self.low, self.high)
        mapped = 2 * (inside - self.low) / (self.high - self.low) - 1
        marks = {"clipped": inside != found, "unknown": np.zeros_like(missing), "filled": missing}
        return _Part(mapped[:, None], marks)

    def _numbers(self, column: pd.Series) -> Vector:
        """Floating-point numbers, NaN where one is missing."""
        if pd.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind in "biuf":
            return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
        cells = column.astype(object).tolist()
        found = np.full(len(cells), np.nan)
        for i, cell in enumerate(cells):
            try:
                if isinstance(cell, int | float | np.number | np.bool_):
                    found[i] = float(cell)
                elif not _is_missing(cell):
                    raise TypeError
            except (TypeError, OverflowError):  # no number, a complex one, one beyond 1e308
                raise InvalidInput(
                    f"Expected numbers in column {self.name!r}, found something else in row "
                    f"{i + 1}: give a public list of its categories, or leave it out."
                ) from None
        return found


@dataclass(frozen=True)
class _Category:
    name: Any
    known: tuple[str, ...]
    fill: str | None

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={category}" for category in self.known]

    def part(self, column: pd.Series) -> _Part:
        position = {category: j for j, category in enumerate(self.known)}
        values = np.zeros((len(column), len(self.known)))
        marks = {kind: np.zeros(len(column), bool) for kind in KINDS}
        for i, cell in enumerate(column.astype(object).tolist()):
            text = _text(cell)
            if isinstance(cell, float | np.floating) and EXACT <= abs(float(cell)) < math.inf:
                raise InvalidInput(
                    f"Expected whole numbers or text as categories of {self.name!r} beyond 2^53, "
                    f"found floating point, which does not tell them apart, in row {i + 1}."
                )
            if text not in position and _is_missing(cell):
                if self.fill is None:
                    raise InvalidInput(
                        f"Expected no missing value in column {self.name!r}, found one in row "
                        f"{i + 1}: give a public value to fill in."
                    )
                text, marks["filled"][i] = self.fill, True
            if text in position:
                values[i, position[text]] = 1.0
            else:
                marks["unknown"][i] = True
        return _Part(values, marks)


def _table(X: Any) -> Mapping[Any, pd.Series] | pd.DataFrame:
    """Columns by name. pandas may not choose a type by what is in them."""
    if isinstance(X, pd.DataFrame):
        return X
    try:
        if not isinstance(X, Mapping):
            return pd.DataFrame(X, copy=False, dtype=_declared(X))
        found = {name: pd.Series(column, dtype=_declared(column)) for name, column in X.items()}
        if len({len(column) for column in found.values()}) <= 1:
            return found
    except (TypeError, ValueError):
        pass
    raise InvalidInput("Expected a table with columns of one length.")


def _declared(cells: Any) -> type | None:
    """What keeps pandas from choosing; None where an array has a type of its own."""
    return None if getattr(cells, "dtype", None) not in (None, object) else object


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip() in MISSING
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


def _text(cell: Any) -> str:
    """Two records with the same value have the same text, whatever others in the column are."""
    if isinstance(cell, float | np.floating) and cell % 1 == 0 and abs(float(cell)) < EXACT:
        return str(int(cell))
    return str(cell).strip()


def _rules(
    names: list[Any], ranges: Any, categories: Any, fill: Any
) -> tuple[_Number | _Category, ...]:
    for word, given in (("categories", categories), ("fill", fill)):
        if not isinstance(given, Mapping):
            raise InvalidInput(f"Expected {word} by column, got {word}={given!r}.")
        for name in given:
            if name not in names and not (name == "*" and word == "fill"):
                shown = ", ".join(map(str, names[:20]))
                raise InvalidInput(f"Expected {word} of the columns {shown}, got of {name!r}.")
    if both := [name for name in categories if name in ranges]:
        raise InvalidInput(f"Expected a range or categories of {both[0]!r}, got both.")
    numbers = [name for name in names if name not in categories]
    pairs = dict(zip(numbers, public_ranges(ranges, numbers), strict=True))
    found: list[_Number | _Category] = []
    for name in names:
        if name in categories:
            known = public_list(name, categories[name])
            value = None if name not in fill else str(fill[name]).strip()
            if value is not None and value not in known:
                raise InvalidInput(
                    f"Expected one of the categories of {name!r} to fill in, got {fill[name]!r}."
                )
            found.append(_Category(name, known, value))
            continue
        low, high = pairs[name]
        number = fill.get(name, fill.get("*"))
        if number is not None and (
            isinstance(number, bool)
            or not isinstance(number, int | float | np.number)
            or not (math.isfinite(number) and low <= number <= high)
        ):
            raise InvalidInput(
                f"Expected a number from {low:g} to {high:g} to fill in for {name!r}, got "
                f"{number!r}."
            )
        found.append(_Number(name, low, high, None if number is None else float(number)))
    return tuple(found)


def public_list(name: Any, given: Any) -> tuple[str, ...]:
    """The categories of a column as text, checked."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InvalidInput(f"Expected a list of categories of {name!r}, got {given!r}.")
    known = tuple(_text(category) for category in given)
    if not known or "" in known or len(set(known)) != len(known):
        raise InvalidInput(
            f"Expected one or more different categories of {name!r}, none of them empty, got "
            f"{list(known)}."
        )
    return known
