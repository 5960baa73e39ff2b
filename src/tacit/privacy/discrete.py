"""Discrete Gaussian and Laplace numbers from the operating system's generator, by tables.

On the whole numbers, with scale s:

    Gaussian   P[X = k] ∝ exp(−k²/2s²)      (Canonne, Kamath and Steinke, 2020)
    Laplace    P[X = k] ∝ exp(−|k|/s)

A table holds the distribution function in 256 bits; one uniform number of 64 bits finds the
outcome, and 192 more are drawn in the rare case that the first do not decide. A wide law is a sum
of narrow ones, so that tables stay in the processor's cache:

    Gaussian   X = A + K·B,  A of scale 2K and B of scale √(s² − 4K²)/K. The sum has the law of
               scale s up to a factor 1 ± 2exp(−2π²/(¼ + K²/(s² − 4K²))), which is
               1 ± 1e-25 or nearer for s > 2048, in every mass (Micciancio and Walter, 2017;
               Poisson summation over the line A + K·B = k).
    Laplace    |X| = A + K·B for the digit A = |X| mod K: exact, A and B are independent.

Guarantee: masses up to 13 scales (Gaussian) or 105 scales (Laplace) have a relative error below
1e-24; beyond, where the laws have 2e-38 and 3e-46, tables end. All random bits come from
``random_bytes``, the generator of the operating system.
"""

from __future__ import annotations

import os
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

Whole = np.ndarray[Any, np.dtype[np.int64]]
random_bytes = os.urandom

DIGITS = 100  # of the decimal arithmetic that makes the tables
LOW_BITS = 192  # of a threshold, beyond the first 64
REACH = 13.5, 110.0  # scales after which tables end: Gaussian, Laplace
WIDEST_TABLE = 2048, 256  # the largest scale of one table
RADIX = 512, 2048


class Table(NamedTuple):
    """A law on first, first + 1, ...: outcome i if the 256-bit number is below threshold i."""

    first: int
    high: np.ndarray[Any, np.dtype[np.uint64]]
    low: tuple[int, ...]  # the other LOW_BITS of each threshold


class Law(NamedTuple):
    """A sum Σ radixᵈ·(number of table d), with a random sign if the tables are one-sided."""

    tables: tuple[Table, ...]
    radix: int
    one_sided: bool


@lru_cache(maxsize=64)
def gaussian(variance: Decimal) -> Law:
    """The discrete Gaussian with parameter s² = ``variance``."""
    K, tables = RADIX[0], []
    with localcontext(prec=DIGITS):
        while variance > WIDEST_TABLE[0] ** 2:
            tables.append(_gaussian_table(Decimal(4 * K * K)))
            variance = (variance - 4 * K * K) / (K * K)
        tables.append(_gaussian_table(variance, leading=bool(tables)))
    return Law(tuple(tables), K, one_sided=False)


@lru_cache(maxsize=64)
def laplace(scale: Decimal) -> Law:
    """The discrete Laplace law with scale s."""
    K, tables = RADIX[1], []
    with localcontext(prec=DIGITS):
        while scale > WIDEST_TABLE[1]:
            tables.append(_geometric_table(scale, K))
            scale = scale / K
        tables.append(_geometric_table(scale, int(REACH[1] * float(scale)) + 2))
    return Law(tuple(tables), K, one_sided=True)


@lru_cache(maxsize=256)
def _gaussian_table(variance: Decimal, leading: bool = False) -> Table:
    with localcontext(prec=DIGITS):
        # a leading digit reaches as far as the law, which is wider by the digits below
        last = int(REACH[0] * (float(variance) + 4 * leading) ** 0.5) + (20 if leading else 2)
        factor = (-1 / (2 * variance)).exp()
        square, mass, masses = factor * factor, Decimal(1), [Decimal(1)]
        for _ in range(last):  # exp(−(k+1)²/2s²) = exp(−k²/2s²) · exp(−(2k+1)/2s²)
            mass, factor = mass * factor, factor * square
            masses.append(mass)
        return _table(-last, masses[:0:-1] + masses)


def _geometric_table(scale: Decimal, size: int) -> Table:
    with localcontext(prec=DIGITS):
        factor = (-1 / scale).exp()
        mass, masses = Decimal(1), [Decimal(1)]
        for _ in range(size - 1):
            mass = mass * factor
            masses.append(mass)
        return _table(0, masses)


def _table(first: int, masses: list[Decimal]) -> Table:
    sums = list(accumulate(masses))
    unit = Decimal(2) ** (64 + LOW_BITS) / sums[-1]
    whole = [int(s * unit) for s in sums[:-1]]  # the last outcome needs no threshold
    high = np.array([w >> LOW_BITS for w in whole], dtype=np.uint64)
    return Table(first, high, tuple(w & (2**LOW_BITS - 1) for w in whole))


def sample(law: Law, size: int) -> Whole:
    """``size`` independent numbers."""
    result = _sizes(law, size)
    if not law.one_sided:
        return result
    negative = _coins(size)
    while (again := negative & (result == 0)).any():  # −0 would count zero twice
        result[again], negative[again] = _sizes(law, again.sum()), _coins(again.sum())
    return np.where(negative, -result, result)


def _sizes(law: Law, size: int) -> Whole:
    result = np.zeros(size, np.int64)
    for power, table in enumerate(law.tables):
        result += law.radix**power * _draw(table, size)
    return result


def _coins(size: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    coins: np.ndarray[Any, np.dtype[np.bool_]] = (
        np.frombuffer(random_bytes(int(size)), np.uint8) & 1 == 1
    )
    return coins


def _draw(table: Table, size: int) -> Whole:
    uniform = np.frombuffer(random_bytes(8 * int(size)), np.uint64)
    index = np.searchsorted(table.high, uniform)
    unsure = np.flatnonzero(table.high[np.minimum(index, len(table.high) - 1)] == uniform)
    for i in unsure:  # one in 2⁵⁰
        rest = int.from_bytes(random_bytes(LOW_BITS // 8), "little")
        while index[i] < len(table.high) and (
            table.high[index[i]] == uniform[i] and table.low[index[i]] <= rest
        ):
            index[i] += 1
    return table.first + index
