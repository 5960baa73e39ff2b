"""Rows around a private mean: one release of every agent's sum of rows, before the run.

    m = Σ_i x_i/N + noise          a share of the budget, planned (Gaussian noise: of μ²)
    x ─▶ L·(x − m)/‖x − m‖         L: the length that the intercept's constant leaves

What all rows have in common tells no class from another, but takes most of a row's length, and the
noise of a run is in proportion to that length. Without it rows of the same length differ more.

Of tables of few columns the length r = ‖x − m‖ that is lost so is kept in a column of its own:

    x ─▶ L·(√(1 − q²)·(x − m)/r, q·clip(2(r/R − 1), ±1))      q = KEPT
    R² = Σ_i ‖x_i‖²/N + noise − ‖m‖²                          released with m, as one column more

Guarantee: of ``first_releases.py``: rows are scaled down to a public B first. With the square of
its length, a·‖x‖²/B, a row has a length of B√(1 + a²) at most (a = SQUARE), to which ``Mean``
scales it down again. Given m and R, which are public then, a row is mapped by its own numbers
only: neighbours stay neighbours, and the mapped rows have a public length.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._types import Vector

WORDS = "one noisy sum of its rows"
KEPT = 0.25  # q: what the column of the length takes of a row
SQUARE = 0.3  # a: the column of squares, in proportion to the longest row: 4 % more noise in m
LEAST = 0.1  # R at least, of the longest row: what is less is noise


def with_squares(rows: Vector, longest: float) -> Vector:
    """Rows with a·‖x‖²/B behind them."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)[:, None]
    return np.hstack([rows, (SQUARE / longest * squares).astype(rows.dtype)])


def mean_and_length(found: Vector, deviation: float, longest: float, kept: bool) -> Vector:
    """m out of a noisy mean, and R behind it where lengths are ``kept``. Reads public numbers."""
    if not kept:
        return shrunk(found, deviation, longest)
    m = shrunk(found[:-1], deviation, longest)
    square = found[-1] * longest / SQUARE - float(m @ m)
    R = min(math.sqrt(max(square, (LEAST * longest) ** 2)), longest)
    return np.append(m, R)


def with_length(rows: Vector, mean: Vector, R: float, length: float) -> Vector:
    """Centred rows, and how long they were, within ``length`` together."""
    apart = rows.astype(np.float64) - mean
    r = np.sqrt(np.einsum("ij,ij->i", apart, apart))[:, None]
    column = length * KEPT * np.clip(2 * (r / R - 1), -1, 1)
    centred = around(rows, mean, length * math.sqrt(1 - KEPT**2))
    return np.hstack([centred, column.astype(rows.dtype)])


def shrunk(mean: Vector, deviation: float, longest: float) -> Vector:
    """A noisy mean, drawn towards 0 as far as it may be noise, and no longer than a row may be.

    The factor 1 − dσ²/‖m‖², or 0, of James and Stein (1961). Reads public numbers only.
    """
    square = float(mean @ mean)
    factor = max(0.0, 1 - mean.size * deviation**2 / square) if square > 0 else 0.0
    if (length := factor * math.sqrt(square)) > longest:
        factor *= longest / length
    return factor * mean


def scaled_down(X: Vector, norm: float) -> Vector:
    """Rows longer than ``norm`` scaled to it, each by its own numbers only."""
    with np.errstate(over="ignore"):
        length = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
        factor = np.minimum(1.0, norm / np.maximum(length, np.finfo(np.float64).tiny))
    rows: Vector = X * factor[:, None].astype(X.dtype)
    for i in np.flatnonzero(np.isinf(length)):  # the square is too large a number
        row = X[i] / np.abs(X[i]).max()
        rows[i] = row * (norm / np.linalg.norm(row))
    return rows


def around(rows: Vector, mean: Vector, length: float) -> Vector:
    """length·(x − m)/‖x − m‖ of every row; 0 for a row that is the mean. In units of the largest
    entry no row under- or overflows."""
    apart = rows.astype(np.float64) - mean
    largest = np.abs(apart).max(axis=1, initial=0)[:, None]
    unit = apart / np.where(largest > 0, largest, 1)
    lengths = np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    found: Vector = (unit * (length / np.maximum(lengths, 1))).astype(rows.dtype)
    return found
