"""What the public feature maps share: rows are mapped one by one, and nothing is learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, count, shown
from tacit.learn.ranges import checked

LARGEST = 1e6  # of the numbers in a row: squares and sums of them stay finite in single precision
FEWEST = 16  # records computed at a time
INSIDE = 1 - 2.0**-22  # more than the roundings of single precision after a length is known


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that maps each row by its own numbers.

    ``fit`` notes how many columns there are and learns nothing else; ``get_params`` is all that
    must be kept. float32 stays float32 and everything else becomes float64.

    Guarantee: row i of the result is f(row i) for one f that is fixed by public parameters and the
    number of columns. So if two data sets differ in one record, which is replaced or taken out of
    the sums ("zero-out"), the mapped ones differ in that record alone, in the same way, to the last
    bit; and what a statement says of the mapped rows it says of the rows given here. Every row of
    the result has an L2 norm of at most 1, in floating point too. A row with a NaN, an infinity or
    a number beyond ±1e6 is an error before anything is computed.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and the number of columns. Nothing is learnt."""
        X = checked(self, X)
        count("columns of features", self._columns(X.shape[1]), 10**7)
        return self

    def transform(self, X: Any) -> Vector:
        """The features of every row."""
        X = checked(self, X, reset=False)
        columns = self._columns(X.shape[1])
        if max(X.max(), -X.min()) > LARGEST:
            raise InvalidInput(
                f"Expected numbers within ±{LARGEST:g}, got a larger one. Bring columns to one "
                "scale first, by PublicRange say."
            )
        return self._rows(X, columns)

    def _columns(self, given: int) -> int:
        """The number of features of a row of ``given`` numbers, or an error."""
        raise NotImplementedError

    def _rows(self, X: Vector, columns: int) -> Vector:
        raise NotImplementedError

    @property
    def _n_features_out(self) -> int:
        return self._columns(self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def image_shape(shape: Sequence[int] | None, columns: int) -> tuple[int, int]:
    """Height and width of images that are rows of ``columns`` numbers: given, or square."""
    if shape is None:
        side = math.isqrt(columns)
        if side**2 != columns:
            raise InvalidInput(
                f"Expected square images, or shape=(height, width), got rows of {columns} numbers."
            )
        return side, side
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) != 2:
        raise InvalidInput(f"Expected shape=(height, width), got shape={shown(shape)}.")
    height, width = count("height", shape[0]), count("width", shape[1])
    if height * width != columns:
        raise InvalidInput(
            f"Expected rows of {height} × {width} = {height * width} numbers, got {columns}."
        )
    return height, width


def part_of(most: int, numbers: int) -> int:
    """How many records of so many numbers are computed at a time: a power of two, 16 or more."""
    return max(FEWEST, 1 << (most // numbers).bit_length() >> 1)


def in_parts(
    function: Callable[[Vector], Array], records: Vector, part: int, columns: int
) -> Vector:
    """``function`` of all records, ``part`` at a time, scaled to unit length.

    Every part has the same shape (the last is filled with zeros), so that it is compiled once, and
    a record meets the same arithmetic whatever is beside it. A power of two, for the same reason:
    what is left over of vector instructions at the end would be computed in another way.
    """
    result = np.empty((len(records), columns), records.dtype)
    for start in range(0, len(records), part):
        piece = records[start : start + part]
        blank = np.zeros((part - len(piece), *records.shape[1:]), records.dtype)
        rows = np.asarray(function(np.concatenate([piece, blank]) if len(blank) else piece))
        result[start : start + part] = of_unit_length(rows.reshape(part, columns)[: len(piece)])
    return result


def of_unit_length(rows: Vector) -> Vector:
    """Rows scaled to a length just below 1; a row of zeros stays one.

    In units of its largest entry no square of a row that counts is too small a number. The length s̃
    is summed in double precision: |s̃/s − 1| ≤ (d + 2) 2⁻⁵³ for d columns. The entries, the factor
    and each product are rounded once more, by 2⁻²⁴ at most, so the exact length of the result is
    below (1 − 2⁻²²)(1 + 2⁻²⁴)(1 + 2⁻⁵³)²(1 + (d + 2) 2⁻⁵²) < 1 for d < 2²⁷.
    """
    wide = rows.astype(np.float64, copy=False)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0)
    unit = wide / np.where(largest > 0, largest, 1)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    factors = INSIDE / np.where(lengths > 0, lengths, 1)
    return (unit * factors).astype(rows.dtype)
