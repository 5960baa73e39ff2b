"""Public maps of rows, as scikit-learn transformers: each row by itself, nothing is learnt.

PublicRange     columns brought to [−1, 1] by their public ranges
PublicColumns   columns of numbers, text and gaps as numbers, by public rules (``tables.py``)
RandomFourier   random waves with a public seed, for tables
Orientations    where in an image edges of which direction lie
Scattering      moduli of an image's wavelet coefficients, of order 2
PublicComponents   principal directions of records that are public
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Integral
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, count, positive, shown
from tacit.tables import CHANGES, Category, Number, Part, public_ranges, public_rules

LARGEST = 1e6  # of the numbers in a row: squares and sums of them stay finite in single precision
FEWEST = 16  # records computed at a time
INSIDE = 1 - 2.0**-22  # more than the roundings of single precision after a length is known


@dataclass(eq=False, repr=False)
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

    ranges: Mapping[Any, tuple[float, float]]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that every column has a range. Nothing is learnt."""
        checked(self, X)
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        pairs = public_ranges(self.ranges, names)
        self.low_, self.high_ = np.array(pairs, np.float64).T
        return self

    @property
    def slopes_(self) -> Vector:
        """What of a mapped column one unit of the data is."""
        return np.asarray(2 / (self.high_ - self.low_))

    def transform(self, X: Any) -> Vector:
        check_is_fitted(self)
        X = checked(self, X, reset=False)
        inside = np.clip(X, self.low_, self.high_)
        mapped: Vector = 2 * (inside - self.low_) / (self.high_ - self.low_) - 1
        return mapped.astype(X.dtype, copy=False)


@dataclass(eq=False, repr=False)
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

    log             columns of numbers, such as money, to replace by ln(1 + x − low)

    A category of its own adds 1 to a row's squared length, as a number at an end of its range does.

    Guarantee: no number is taken from the data, and each record is mapped by itself. So neighbours
    stay neighbours, and the statement of a model fitted on the mapped rows is one about the records
    that were given here. That ranges, lists, values to fill in and types of columns are public is
    your claim. Categories that floating point does not tell apart (2^53 and more) are refused.
    """

    ranges: Mapping[Any, tuple[float, float]] | None = None
    categories: Mapping[Any, Any] | None = None
    fill: Mapping[Any, Any] | None = None
    log: Sequence[Any] | None = None

    def public_parameters(self) -> dict[str, Any]:
        """Without ``log`` where there is none: as 0.2.0 reads them."""
        found: dict[str, Any] = self.get_params(deep=False)
        return {name: value for name, value in found.items() if name != "log" or value}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that there is a rule for every column. Nothing is learnt."""
        names = list(_columns(X))
        if not names:
            raise InvalidInput("Expected one or more columns to learn from, got none.")
        if len(set(names)) != len(names):
            raise InvalidInput("Expected columns of different names, got one twice.")
        rules = self.ranges or {}, self.categories or {}, self.fill or {}, self.log or ()
        self.rules_ = public_rules(names, *rules)
        self.n_features_in_ = len(names)
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
            for kind in CHANGES
        }

    def changed(self, X: Any) -> Vector:
        """Whether a record has a value that is clipped, of no known category or filled in.

        Guarantee: none. This is about single records, for the owner's eyes.
        """
        marks = [mark for part in self._parts(X) for mark in part.marks.values()]
        return np.asarray(np.any(marks, axis=0))

    @property
    def slopes_(self) -> Vector:
        """What of a mapped column one unit of the data is: of a category 1, of a log NaN."""
        return np.array([slope for rule in self.rules_ for slope in rule.slopes])

    def get_feature_names_out(self, input_features: Any = None) -> Vector:
        check_is_fitted(self)
        return np.array([name for rule in self.rules_ for name in rule.names], object)

    def _parts(self, X: Any) -> list[Part]:
        check_is_fitted(self)
        table = _columns(X)
        for rule in self.rules_:
            if rule.name not in table:
                raise InvalidInput(f"Expected a column {rule.name!r} in the table, got none.")
        return [rule.part(_cells(rule, table[rule.name])) for rule in self.rules_]


def _columns(X: Any) -> Any:
    """Columns by name, of pandas, which may not choose a type by what is in them."""
    import pandas as pd

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


def _cells(rule: Number | Category, column: Any) -> Any:
    if isinstance(rule, Number) and column.dtype.kind in "biuf":
        return column.to_numpy(np.float64, na_value=np.nan)
    return column.astype(object).tolist()


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
    """How many records of this length are computed at a time: a power of two, 16 or more."""
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


# --- RandomFourier ----------------------------------------------------------------------------

PART = 1024  # rows computed at a time
MOST_COLUMNS = 10**6
LARGEST_SEED = 2**128


@dataclass(eq=False, repr=False)
class RandomFourier(FeatureMap):
    """Random Fourier features of the Gaussian kernel (Rahimi and Recht, 2007).

    With D ``columns`` and m = D/2 frequencies w_k ~ N(0, I/width²):

        z(x) = (cos w₁·x, ..., cos w_m·x, sin w₁·x, ..., sin w_m·x) / √m,   ||z(x)||₂ = 1,

    and ⟨z(x), z(x')⟩ has the mean exp(−||x − x'||²/(2 width²)) over seeds: a linear model of z is
    one of a Gaussian kernel of that width. It helps where the answer bends with the columns; for
    straight ones it only adds columns, hence noise.

    columns   D, even
    width     of the kernel, in units of the rows: bring columns to [−1, 1] first (``PublicRange``)
    seed      of the frequencies; public. The same seed is the same map on every machine, up to the
              last digits: frequencies are normal quantiles of PCG64's raw numbers, a stream that
              NumPy keeps.

    Guarantee: as ``FeatureMap``: a fixed function of one row, of length at most 1. The frequencies
    come from the seed and the number of columns, never from data. The seed hides nothing.
    """

    columns: int = 256
    width: float = 1.0
    seed: int = 0

    def _columns(self, given: int) -> int:
        columns = count("columns", self.columns, MOST_COLUMNS)
        if columns % 2:
            raise InvalidInput(f"Expected an even number of columns, got columns={columns}.")
        positive("width", self.width, (1e-6, 1e6))
        whole = isinstance(self.seed, Integral) and not isinstance(self.seed, bool)
        if not whole or not 0 <= int(self.seed) < LARGEST_SEED:
            raise InvalidInput(
                f"Expected a whole number 0 <= seed < 2^128, got {shown(self.seed)}."
            )
        return columns

    def _rows(self, X: Vector, columns: int) -> Vector:
        frequencies = self.frequencies(X.shape[1]).T

        def waves(rows: Vector) -> Vector:
            # double precision: a phase may be large, and only its rest counts
            phases = rows.astype(np.float64, copy=False) @ frequencies
            return np.hstack([np.cos(phases), np.sin(phases)]).astype(rows.dtype)

        return in_parts(waves, X, PART, columns)

    def frequencies(self, given: int) -> Vector:
        """w₁, ..., w_m for rows of ``given`` numbers."""
        raw = np.random.PCG64(np.random.SeedSequence(int(self.seed))).random_raw(
            self.columns // 2 * given
        )
        normal: Vector = ndtri(((raw >> 11) + 0.5) * 2.0**-53)
        return normal.reshape(self.columns // 2, given) / self.width


# --- PublicComponents -------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class PublicComponents(FeatureMap):
    """Rows in the principal directions of *public* records, at unit length: fewer columns.

    The noise of a private fit grows with the number of columns. With the ``columns`` eigenvectors
    v₁, v₂, ... of the largest eigenvalues of the public records' covariance a row x becomes
    (v₁'x, v₂'x, ...), scaled to unit length.

    public      rows as this step is given them, of records that are public and like the private
                ones: mapped by the steps before it. At least two
    columns     how many directions, at most as many as a row has numbers
    directions  in place of ``public``: a matrix of directions, a row each, that is public

    Guarantee: as ``FeatureMap``: a fixed function of one row, of length at most 1, given
    ``public``. That those records are public is your claim: records of a party, or of a test set
    that is private too, are not.
    """

    public: Any = None
    columns: int = 150
    directions: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        self.__dict__.pop("_found", None)
        return super().fit(X, y)

    def public_parameters(self) -> dict[str, Any]:
        """All that a saved model needs: the directions, not the records."""
        found = self._matrix()
        return {"columns": len(found), "directions": found}

    def _columns(self, given: int) -> int:
        found = self._matrix()
        if found.shape[1] != given:
            raise InvalidInput(
                f"Expected public records of {given} columns, as the rows have, got "
                f"{found.shape[1]}."
            )
        return len(found)

    def _matrix(self) -> Vector:
        if "_found" not in vars(self):
            self._found = self._of_public() if self.directions is None else self._given()
        return self._found

    def _given(self) -> Vector:
        if self.public is not None:
            raise InvalidInput("Expected public records or directions, got both.")
        return array("directions", self.directions, (None, None), dtype=np.float64)

    def _of_public(self) -> Vector:
        if self.public is None:
            raise InvalidInput("Expected public records, or directions, got neither.")
        rows: Vector = array("public", self.public, (None, None), dtype=np.float64)
        most = rows.shape[1]
        if count("columns", self.columns) > most or len(rows) < 2:
            raise InvalidInput(
                f"Expected two public records or more, and columns <= {most}, got {len(rows)} "
                f"records and columns={self.columns}."
            )
        _, vectors = np.linalg.eigh(np.cov(rows, rowvar=False).reshape(most, most))
        return np.ascontiguousarray(vectors[:, ::-1][:, : self.columns].T)

    def _rows(self, X: Vector, columns: int) -> Vector:
        directions = self._matrix().T

        def projected(rows: Vector) -> Vector:
            return (rows.astype(np.float64, copy=False) @ directions).astype(rows.dtype)

        return in_parts(projected, X, PART, columns)


# --- Orientations -----------------------------------------------------------------------------

PIXELS = 2**16  # of the images computed at a time: their histograms stay in a processor's cache
LARGEST_COUNT = 1000  # angles, and cells along a side
SIDE = 28  # in pixels of which the width is given
FEWEST_CELLS, MOST_CELLS, PIXELS_OF_A_CELL = 4, 7, 4


@dataclass(eq=False, repr=False)
class Orientations(FeatureMap):
    """Histograms of edge directions at a grid of places, as in HOG and SIFT descriptors.

    With central differences g of the pixels (0 outside), a pixel has the weight |g| and the
    direction of g, from 0 to 2π, which is shared linearly between the two nearest of ``angles``
    bins. The weights of each bin are averaged around the places of a grid, by a Gaussian with a
    deviation of ``width`` pixels; then come the square root of each number and scaling to unit
    length. Images of 28 × 28 pixels have 8 × 7 × 7 = 392 features: angle, down, across.
    (Dalal and Triggs, CVPR 2005; Lowe, IJCV 60, 2004; the root: Arandjelović and Zisserman, 2012.)

    angles   bins of directions, 2 or more
    cells    places along each side; None: a quarter of the side's pixels, from 4 to 7
    width    in pixels of a side of 28: it grows with the side
    shape    (height, width) of images that are not square

    Rows are images with pixels in [0, 1], row by row. Other scales and signs are possible: the
    features hardly depend on the scale, as long as edges are far above 1e-6.

    Guarantee: as ``FeatureMap``: a fixed function of one image, of length at most 1.
    """

    angles: int = 8
    cells: int | None = None
    width: float = 2.4
    shape: Sequence[int] | None = None

    def _grid(self, columns: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width in pixels and in cells."""
        sides = image_shape(self.shape, columns)
        cells = (
            tuple(min(max(n // PIXELS_OF_A_CELL, FEWEST_CELLS), MOST_CELLS) for n in sides)
            if self.cells is None
            else (count("cells", self.cells, LARGEST_COUNT),) * 2
        )
        return sides, (cells[0], cells[1])

    def _columns(self, given: int) -> int:
        _, (down, across) = self._grid(given)
        positive("width", self.width, (1e-3, 1e6))
        if count("angles", self.angles, LARGEST_COUNT) < 2:
            raise InvalidInput(f"Expected angles >= 2, got angles={self.angles}.")
        return self.angles * down * across

    def _rows(self, X: Vector, columns: int) -> Vector:
        sides, cells = self._grid(X.shape[1])
        down, across = (
            averages(n, k, self.width * n / SIDE).astype(X.dtype)
            for n, k in zip(sides, cells, strict=True)
        )
        function = partial(histograms, down=down, across=across, angles=int(self.angles))
        return in_parts(function, X.reshape(-1, *sides), part_of(PIXELS, X.shape[1]), columns)


def averages(side: int, cells: int, deviation: float) -> Vector:
    """Gaussian weights (cells × side) around the centres of equal cells; every row sums to 1."""
    centres = (np.arange(cells) + 0.5) * side / cells - 0.5
    squares = (np.arange(side) - centres[:, None]) ** 2
    # the nearest pixel has weight 1 before the division, however narrow the Gaussian
    weights = np.exp(-(squares - squares.min(1, keepdims=True)) / (2 * deviation**2))
    result: Vector = weights / weights.sum(1, keepdims=True)
    return result


def histograms(images: Vector, down: Vector, across: Vector, angles: int) -> Vector:
    """Roots of the averaged weights: images × angles × cells down × cells across.

    NumPy multiplies the matrices of one image at a time: what is beside it cannot change a bit.
    """
    kind = images.dtype.type
    x = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    right = x[:, 1:-1, 2:] - x[:, 1:-1, :-2]
    below = x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    size = np.sqrt(right**2 + below**2 + kind(1e-12))
    turn = np.arctan2(below, right) * kind(angles / (2 * math.pi))
    turn = np.where(turn < 0, turn + kind(angles), turn)  # from 0 to the number of bins
    result = np.empty((len(x), angles, len(down), len(across)), x.dtype)
    for angle in range(angles):
        apart = np.abs(turn - kind(angle))
        if angle == 0:  # which comes after the last bin, too
            apart = np.minimum(apart, kind(angles) - apart)
        share = size * np.maximum(1 - apart, 0)
        result[:, angle] = down @ share @ across.T
    return np.sqrt(result)


# --- Scattering -------------------------------------------------------------------------------

PADDED_PIXELS = 2**14  # of the padded images computed at a time
MOST_SCALES, MOST_ANGLES = 6, 32
SHIFTS = range(-2, 3)  # of a filter that is made periodic
CHANNELS_OF_A_GROUP = 3


@dataclass(eq=False, repr=False)
class Scattering(FeatureMap):
    """Moduli of wavelet coefficients, and of the wavelet coefficients of these, averaged.

    For an image x and Morlet wavelets ψ_{j,l} of scale 2^j, j < J, and L directions:

        S = φ∗x,  φ∗|x∗ψ_{j,l}|,  φ∗||x∗ψ_{j,l}|∗ψ_{j',l'}| for j < j',  at every 2^J-th pixel,

    φ a Gaussian at scale 2^J (Bruna and Mallat, PAMI 35, 2013). The image is mirrored at its edges,
    to a multiple of 2^J that is 2^J pixels larger at least; the convolutions are circular. Then
    groups of at least three neighbouring channels are brought to mean 0 and variance 1 within
    each image (Tramèr and Boneh, ICLR 2021), and the row to unit length. 28 × 28 pixels are padded
    to 32 × 32 and have 81 channels × 8 × 8 = 5,184 features, normalised in 27 groups.

    scales   J
    angles   L
    shape    (height, width) of images that are not square

    Rows are images with pixels in [0, 1], row by row; variances far below 1e-5 count as none.

    Guarantee: as ``FeatureMap``: a fixed function of one image, of length at most 1.
    """

    scales: int = 2
    angles: int = 8
    shape: Sequence[int] | None = None

    def _columns(self, given: int) -> int:
        J = count("scales", self.scales, MOST_SCALES)
        L = count("angles", self.angles, MOST_ANGLES)
        height, width = (padded(side, J) >> J for side in image_shape(self.shape, given))
        channels = 1 + J * L + J * (J - 1) // 2 * L**2
        return channels * height * width

    def _rows(self, X: Vector, columns: int) -> Vector:
        J, L = int(self.scales), int(self.angles)
        sides = image_shape(self.shape, X.shape[1])
        grid = padded(sides[0], J), padded(sides[1], J)
        psi = wavelets(*grid, J, L).astype(X.dtype)
        down, across = (low_pass(n, J).astype(X.dtype) for n in grid)
        rows, lines = (mirrored(side, n) for side, n in zip(sides, grid, strict=True))
        function = partial(normalised, psi=psi, down=down, across=across)
        return in_parts(
            lambda images: function(images[:, rows][:, :, lines]),
            X.reshape(-1, *sides),
            part_of(PADDED_PIXELS, grid[0] * grid[1]),
            columns,
        )


def padded(side: int, J: int) -> int:
    """The least multiple of 2^J that leaves room for 2^J pixels more."""
    return (-(-side >> J) + 1) << J


def mirrored(side: int, length: int) -> Vector:
    """Which pixel of a side stands where after padding."""
    before = (length - side) // 2
    return np.pad(np.arange(side), (before, length - side - before), mode="reflect")


def groups(number: int) -> int:
    """Into how many equal groups channels fall: as many as can be, of at least three channels."""
    return max(n for n in range(1, max(number // CHANNELS_OF_A_GROUP, 1) + 1) if number % n == 0)


def gabor(height: int, width: int, sigma: float, theta: float, xi: float, slant: float) -> Vector:
    """A plane wave under a Gaussian, periodic on the grid, which sums to 1 where ξ = 0."""
    c, s = math.cos(theta), math.sin(theta)
    y = np.arange(SHIFTS[0] * height, (SHIFTS[-1] + 1) * height)[:, None]
    x = np.arange(SHIFTS[0] * width, (SHIFTS[-1] + 1) * width)
    along, beside = c * y + s * x, -s * y + c * x
    wave = np.exp(-(along**2 + (slant * beside) ** 2) / (2 * sigma**2) + 1j * xi * along)
    folded = wave.reshape(len(SHIFTS), height, len(SHIFTS), width).sum((0, 2))
    result: Vector = folded / (2 * math.pi * sigma**2 / slant)
    return result


@lru_cache(maxsize=8)
def wavelets(height: int, width: int, J: int, L: int) -> Vector:
    """Morlet filters (J × L × height × width) at the frequencies of the grid; these are real."""

    def morlet(j: int, angle: int) -> Vector:
        theta, sigma, slant = (L // 2 - 1 - angle) * math.pi / L, 0.8 * 2**j, 4 / L
        wave = gabor(height, width, sigma, theta, 0.75 * math.pi / 2**j, slant)
        bump = gabor(height, width, sigma, theta, 0, slant)
        result: Vector = np.fft.fft2(wave - wave.sum() / bump.sum() * bump).real
        return result

    return np.array([[morlet(j, angle) for angle in range(L)] for j in range(J)])


@lru_cache(maxsize=8)
def low_pass(side: int, J: int) -> Vector:
    """φ along one side at every 2^J-th pixel, a matrix: the Gaussian is a product of two."""
    sigma = 0.8 * 2 ** (J - 1)
    at = np.arange(SHIFTS[0] * side, (SHIFTS[-1] + 1) * side)
    bump = np.exp(-(at**2) / (2 * sigma**2)).reshape(len(SHIFTS), side).sum(0)
    bump /= math.sqrt(2 * math.pi) * sigma
    return np.array([np.roll(bump, place) for place in range(0, side, 2**J)])


@jax.jit
def normalised(images: Array, psi: Array, down: Array, across: Array) -> Array:
    """S of padded images, brought to mean 0 and variance 1 in groups: images × features."""
    S = coefficients(images, psi, down, across)
    grouped = S.reshape(len(S), groups(S.shape[1]), -1)
    spread = jnp.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    return ((grouped - grouped.mean(-1, keepdims=True)) / spread).reshape(len(S), -1)


def coefficients(images: Array, psi: Array, down: Array, across: Array) -> Array:
    """S: images × channels × places down × across.

    A first-order channel stands before the second-order ones that are made of it.
    """

    def low(x: Array) -> Array:
        # full precision: by default a GPU would round float32 to 10 bits before it multiplies
        return jnp.einsum("ip,...pq,jq->...ij", down, x, across, precision="highest")

    J = len(psi)
    X = jnp.fft.fft2(images)
    found = [low(images)[:, None]]
    for j in range(J):
        first = jnp.abs(jnp.fft.ifft2(X[:, None] * psi[j]))
        parts = [low(first)[:, :, None]]
        if j + 1 < J:
            spectra = jnp.fft.fft2(first)[:, :, None]
            parts += [low(jnp.abs(jnp.fft.ifft2(spectra * psi[k]))) for k in range(j + 1, J)]
        both = jnp.concatenate(parts, 2)  # images × L × (1 + L (J − 1 − j)) × down × across
        found.append(both.reshape(len(images), -1, *both.shape[3:]))
    return jnp.concatenate(found, 1)
