"""The scattering transform of order 2: a public feature map for images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import count
from tacit.learn.feature_map import FeatureMap, image_shape, in_parts, part_of

PIXELS = 2**14  # of the padded images computed at a time
MOST_SCALES, MOST_ANGLES = 6, 32
SHIFTS = range(-2, 3)  # of a filter that is made periodic
CHANNELS_OF_A_GROUP = 3


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

    def __init__(
        self, scales: int = 2, angles: int = 8, shape: Sequence[int] | None = None
    ) -> None:
        self.scales = scales
        self.angles = angles
        self.shape = shape

    def _columns(self, given: int) -> int:
        J = count("scales", self.scales, MOST_SCALES)
        L = count("angles", self.angles, MOST_ANGLES)
        height, width = (padded(side, J) >> J for side in image_shape(self.shape, given))
        return channels(J, L) * height * width

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
            part_of(PIXELS, grid[0] * grid[1]),
            columns,
        )


def padded(side: int, J: int) -> int:
    """The least multiple of 2^J that leaves room for 2^J pixels more."""
    return (-(-side >> J) + 1) << J


def mirrored(side: int, length: int) -> Vector:
    """Which pixel of a side stands where after padding."""
    before = (length - side) // 2
    return np.pad(np.arange(side), (before, length - side - before), mode="reflect")


def channels(J: int, L: int) -> int:
    return 1 + J * L + J * (J - 1) // 2 * L**2


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
