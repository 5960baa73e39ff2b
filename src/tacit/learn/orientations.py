"""Where in an image edges of which direction lie: a public feature map for images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tacit._types import Vector
from tacit.errors import InvalidInput, count, positive
from tacit.learn.feature_map import FeatureMap, image_shape, in_parts, part_of

PIXELS = 2**16  # of the images computed at a time: their histograms stay in a processor's cache
LARGEST_COUNT = 1000  # angles, and cells along a side
SIDE = 28  # in pixels of which the width is given
FEWEST_CELLS, MOST_CELLS, PIXELS_OF_A_CELL = 4, 7, 4


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

    def __init__(
        self,
        angles: int = 8,
        cells: int | None = None,
        width: float = 2.4,
        shape: Sequence[int] | None = None,
    ) -> None:
        self.angles = angles
        self.cells = cells
        self.width = width
        self.shape = shape

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
