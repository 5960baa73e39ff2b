"""Random waves with a public seed: a public feature map for tables."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from scipy.special import ndtri

from tacit._types import Vector
from tacit.errors import InvalidInput, count, positive, shown
from tacit.learn.feature_map import FeatureMap, in_parts

PART = 1024  # rows computed at a time
MOST_COLUMNS = 10**6
LARGEST_SEED = 2**128


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

    def __init__(self, columns: int = 256, width: float = 1.0, seed: int = 0) -> None:
        self.columns = columns
        self.width = width
        self.seed = seed

    def _columns(self, given: int) -> int:
        columns = count("columns", self.columns, MOST_COLUMNS)
        if columns % 2:
            raise InvalidInput(f"Expected an even number of columns, got columns={columns}.")
        positive("width", self.width, (1e-6, 1e6))
        seed = self.seed
        if (
            isinstance(seed, bool)
            or not isinstance(seed, Integral)
            or not 0 <= int(seed) < LARGEST_SEED
        ):
            raise InvalidInput(f"Expected a whole number 0 <= seed < 2^128, got {shown(seed)}.")
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
