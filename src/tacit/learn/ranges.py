"""Ranges of columns, read privately: three histograms of four bins, each over what the last left.

    column in [−1, 1] ─▶ shares of the records in 4 equal bins, with noise
                      ─▶ bins off both ends that hold next to nothing ─▶ twice more ─▶ (low, high)

A wide public range costs: columns that fill a tenth of it have short rows. From both ends as many
bins are left out as hold together no more than TRIM of the records and half a deviation of their
noise; records beyond count in the bins at the ends. Few bins in stages have little noise each, and
narrow a range up to 64 times.

Guarantee: of ``first_releases.py``: a record is one row of 0 and weights w, with one weight of each
column: a length of √(Σw²), Σ|w| in L1, whatever the record. The bins of a stage follow from public
numbers and from the releases before it. A ledger gives a stage again for the same bins only: that
two stages put all records into the same places is not to be seen. Given the ranges a record is
mapped by itself.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from tacit._types import Vector
from tacit.errors import InvalidInput
from tacit.learn.first_releases import Sums, together
from tacit.privacy.mechanisms import Gaussian, Laplace, Mechanism

STAGES, BINS = 3, 4
SHARE, TARGET_SHARE = 0.10, 0.03  # of the budget, for all stages
TRIM, NOISE = 0.005, 0.5  # of the records, and of a deviation, that is left out at an end
MOST_NOISE = 0.1  # two deviations of a bin, of all records
WORDS = "three noisy histograms of columns"


def of_a_stage(mechanism: Mechanism) -> Mechanism:
    """The noise of each stage, where one release with ``mechanism`` would cost what all do."""
    if isinstance(mechanism, Gaussian):
        return Gaussian(mechanism.noise_multiplier * math.sqrt(STAGES))
    if isinstance(mechanism, Laplace):
        return Laplace(mechanism.noise_multiplier * STAGES)
    return mechanism


def weights_of(columns: int, target: bool) -> Vector:
    """Of the bins of each column, and of the target's, whose part of the budget is smaller."""
    own = math.sqrt(TARGET_SHARE / SHARE * columns) if columns else 1.0
    return np.array([1.0] * columns + [own] * target)


def private_ranges(
    sums: Sums,
    columns: Vector,
    weights: Vector,
    mechanism: Mechanism,
    then: tuple[Mechanism, int],
    asked: str,
    folder: Path | None,
) -> Vector:
    """(low, high) of every column of numbers in [−1, 1]; public from here on.

    ``mechanism`` is the noise of each stage, ``then`` what follows all stages, ``asked`` which
    columns these are; the stages are kept in a ``folder``. Ranges that would follow the noise are
    refused, by public numbers.
    """
    low, high = -np.ones(len(weights)), np.ones(len(weights))
    for stage in range(1, STAGES + 1):
        rows = (in_bins(columns, low, high) * weights[:, None]).reshape(len(columns), -1)
        bins = asked + json.dumps(["bins", low.tolist(), high.tolist()])
        parts = sums.parts(rows, math.sqrt(math.fsum(weights**2)), math.fsum(weights), bins)
        deviation, n = sums.deviation(parts, mechanism), len(columns)
        if 2 * (widest := deviation / float(weights.min())) > MOST_NOISE:
            raise InvalidInput(
                f"Expected counts with less noise for ranges that are read, got a deviation of "
                f"{widest * n:.3g} for {n} records, above {MOST_NOISE / 2:.0%}: give ranges, read "
                "those of fewer columns, or take a larger epsilon. Nothing was fit."
            )
        after = together((mechanism, STAGES - stage), then)
        own = None if folder is None else folder / f"range-{stage}.npz"
        found = sums.mean(parts, mechanism, f"range {stage}", then=after, checkpoint=own)
        shares = found.reshape(-1, BINS) / weights[:, None]
        low, high = trimmed(shares, deviation / weights, low, high)
    return np.stack([low, high], axis=1)


def in_bins(columns: Vector, low: Vector, high: Vector) -> Vector:
    """1 in a number's bin, 0 in the others: records × columns × bins."""
    place = np.floor((columns - low) / (high - low) * BINS)
    place = np.clip(place, 0, BINS - 1)
    found: Vector = (place[:, :, None] == np.arange(BINS)).astype(np.float64)
    return found


def trimmed(shares: Vector, deviation: Vector, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Ranges without the bins at their ends that hold next to nothing. Reads public numbers."""
    bins = np.arange(1, BINS + 1)
    least = TRIM + NOISE * deviation[:, None] * np.sqrt(bins)

    def empty(ordered: Vector) -> Vector:
        """How many bins, from the first on, hold no more together."""
        beyond = np.cumsum(ordered, axis=1) > least
        found: Vector = np.where(beyond.any(axis=1), beyond.argmax(axis=1), 0)
        return found

    left, right = empty(shares), empty(shares[:, ::-1])
    kept = left + right < BINS  # else all of it is noise
    width = (high - low) / BINS
    return low + np.where(kept, left, 0) * width, high - np.where(kept, right, 0) * width


def narrowed(X: Vector, ranges: Vector) -> Vector:
    """Rows with each column's range brought to [−1, 1] and clipped; (−1, 1) leaves it as it is."""
    low, high = ranges.T
    at = (low != -1) | (high != 1)
    found = X.copy()
    inside = np.clip(X[:, at], low[at], high[at])
    found[:, at] = (2 * (inside - low[at]) / (high[at] - low[at]) - 1).astype(X.dtype)
    return found
