"""Columns brought to one scale by public numbers, as a scikit-learn transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit._types import Vector
from tacit.errors import LENGTHS, InvalidInput


class PublicRange(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Maps every column from a public range to [−1, 1] and clips what is outside.

    ``ranges`` has a pair (low, high) for each column, by name or by position; "*" is for all
    others. (−1, 1) leaves numbers of that size as they are. So a column is centred by its range:
    the middle is mapped to 0, and a row of middles has no length. ``PublicColumns`` takes text and
    missing values too.

    Guarantee: no number is taken from the data, and each row is mapped by itself. So neighbours
    stay neighbours, and the statement of a model fitted on the mapped rows is one about the rows
    that were given here. That the ranges are public is your claim.
    """

    def __init__(self, ranges: Mapping[Any, tuple[float, float]]) -> None:
        self.ranges = ranges

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that every column has a range. Nothing is learnt."""
        checked(self, X)
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        pairs = public_ranges(self.ranges, names)
        self.low_, self.high_ = np.array(pairs, np.float64).T
        return self

    def transform(self, X: Any) -> Vector:
        check_is_fitted(self)
        X = checked(self, X, reset=False)
        inside = np.clip(X, self.low_, self.high_)
        mapped: Vector = 2 * (inside - self.low_) / (self.high_ - self.low_) - 1
        return mapped.astype(X.dtype, copy=False)


def public_ranges(ranges: Any, names: Sequence[Any]) -> list[tuple[float, float]]:
    """The range (low, high) of every column, or an error."""
    if not isinstance(ranges, Mapping):
        raise InvalidInput(f"Expected ranges by column, got ranges={ranges!r}.")
    for name, pair in ranges.items():
        if name != "*" and name not in names:
            shown = ", ".join(map(str, names[:20]))
            raise InvalidInput(f"Expected ranges of the columns {shown}, got one of {name!r}.")
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
            f"({len(bare)} of {len(names)} have none)."
        )
    return [tuple(ranges.get(name, ranges.get("*"))) for name in names]


def checked(estimator: Any, *data: Any, **options: Any) -> Any:
    """scikit-learn's check of data, whose words would show a value that is no number."""
    try:
        return validate_data(estimator, *data, dtype=[np.float64, np.float32], **options)
    except ValueError as error:
        words = str(error)
        if "convert" in words:
            raise InvalidInput("Expected numbers in all records, got something else.") from None
        if "array=" in words or words.startswith("Complex data"):  # records follow
            kind = "a table of real numbers, one row for each record"
            raise InvalidInput(
                f"{words.splitlines()[0].rstrip(':')} (expected {kind}). Reshape your data."
            ) from None
        raise
