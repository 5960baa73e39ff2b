"""Rows around a private mean: one release of every agent's sum of rows, before the run.

    m = Σ_i x_i/N + noise          a share of the budget, planned (Gaussian noise: of μ²)
    x ─▶ L·(x − m)/‖x − m‖         L: the length that the intercept's constant leaves

What all rows have in common tells no class from another, but takes most of a row's length, and the
noise of a run is in proportion to that length. Without it rows of the same length differ more.

Of tables of few columns the length r = ‖x − m‖ that is lost so is kept in a column of its own:

    x ─▶ L·(√(1 − q²)·(x − m)/r, q·clip(2(r/R − 1), ±1))      q = KEPT
    R² = Σ_i ‖x_i‖²/N + noise − ‖m‖²                          released with m, as one column more

Guarantee: the sums are released by ``release.py``: paid in the agents' ledgers, with secure noise
where that is asked for. Rows are scaled down to a public B first, so Δ = B (``Mean``); with the
square of its length, a·‖x‖²/B, a row has a length of B√(1 + a²) at most (a = SQUARE), to which
``Mean`` scales it down again. Given m and R, which are public then, a row is mapped by its own
numbers only: neighbours stay neighbours, and the mapped rows have a public length. The run that
follows depends on m: adaptive composition, and ``statement.with_releases`` states their total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput, array, probability
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noiseless,
    check_parties,
    gaussian_epsilon,
)
from tacit.transports.solving import read

# relative: the noise of the mean is larger by it, and what is left for a run with secure noise is
# smaller, which pays for that noise's distance (``secure_noise.py``)
ROOM, SECURE_ROOM = 1e-6, 1e-4
WORDS = "one noisy sum of its rows"
KEPT = 0.25  # q: what the column of the length takes of a row
SQUARE = 0.3  # a: the column of squares, in proportion to the longest row: 4 % more noise in m
LEAST = 0.1  # R at least, of the longest row: what is less is noise


def shared(
    mechanism: str, total_epsilon: float, total_delta: float, share: float, secure: bool = False
) -> tuple[Mechanism, float]:
    """The noise of a release that takes a share of a budget, and the ε that is left at the same δ.

    Gaussian: a share of μ², as squares of shifts add up. Laplace: a share of ε.

    Guarantee: the release, and a run that costs at most (ε left, δ), cost at most the total.
    """
    probability("centring_share", share)
    rest = 1 - (SECURE_ROOM if secure and total_delta > 0 else 1e-12)  # sums are rounded up
    if mechanism != "gaussian":
        pure = calibrate(mechanism, share * total_epsilon, 0.0, 1)
        return pure, (1 - share) * total_epsilon * rest
    μ = 1 / calibrate(mechanism, total_epsilon, total_delta, 1).noise_multiplier
    left = gaussian_epsilon(μ * math.sqrt(1 - share), total_delta) * rest
    if left <= 0:  # δ alone would pay for the run; no noise is calibrated to that
        raise InvalidInput(
            f"Expected a smaller centring_share, or a smaller delta, got centring_share={share}: "
            f"of epsilon {total_epsilon:g} at delta {total_delta:g} nothing would be left for the "
            "run. Nothing was fit."
        )
    return Gaussian((1 + ROOM) / (μ * math.sqrt(share))), left


def first_release(
    share: float | None,
    calibration: str,
    mechanism: str,
    total_epsilon: float | None,
    total_delta: float,
    secure: bool = False,
) -> tuple[Mechanism | None, float | None]:
    """The noise of a mean that is released before the run, if one is, and the ε that is left."""
    if share is None or (total_epsilon is None and calibration == "certified"):
        return None if share is None else Noiseless(), total_epsilon
    if total_epsilon is None or calibration != "certified":
        raise InvalidInput(
            f"Expected certified noise for a private mean, got calibration={calibration!r}. "
            "Nothing was fit."
        )
    return shared(mechanism, total_epsilon, total_delta, share, secure)


def given_mean(mean: Any, features: int, longest: float, kept: bool = False) -> Vector:
    """A mean that was released before; no released mean is longer than a row may be. With ``kept``
    lengths R follows it."""
    given: Vector = array("mean", mean, (features + kept,), dtype=np.float64)
    found = given[:features]
    if kept and not 0 < given[-1] <= longest * (1 + 1e-9):
        raise InvalidInput("Expected the released length of rows after the mean, got another.")
    if not (length := math.hypot(*found)) <= longest * (1 + 1e-9):
        raise InvalidInput(
            f"Expected a mean that was released, no longer than feature_norm={longest:g}, got one "
            f"of length {length:g}. Nothing was fit."
        )
    return given


def about_given(reading: Mechanism) -> str:
    """What a statement takes for granted of a mean that was given: nothing here can tell."""
    if not isinstance(reading, Gaussian | Laplace):
        return ""
    return (
        " The mean that rows are centred by was given: it is taken for the one that these agents "
        f"released, from these data, with {reading.name} noise of multiplier "
        f"{reading.noise_multiplier!r} or more; any other mean of private data is not covered."
    )


def private_mean(
    means: Sequence[LocalProblem],
    mechanism: Mechanism,
    delta: float,
    run: str = "centring",
    **how: Any,
) -> tuple[Vector, float]:
    """The mean of all agents' rows, from one noisy sum of each, and the deviation of its noise:
    public from here on.

    ``means`` are the agents with their ``Mean``. Asked again for the same data and budget, an agent
    with a ledger gives what it has given, and so does a ``checkpoint``, which keeps the sums;
    ledgers are to pay for what comes ``then`` too; seeded noise differs with the name of a ``run``.
    A secure sum is kept by its checkpoint alone.
    """
    f: Any = means[0].objective
    if isinstance(mechanism, Noiseless):
        sums = [agent.objective.statistics().values for agent in means]
    else:
        names = "noise", "ledgers", "checkpoint", "then", "aggregation", "colluding"
        others = (how.get(name) for name in names)
        found = read(Problem(means), mechanism, delta, how.get("seed"), run, *others)
        sums = [release.values for release in found.releases]
    return np.sum(sums, axis=0) / f.normaliser, deviation_of(means, mechanism, **how)


def deviation_of(means: Sequence[LocalProblem], mechanism: Mechanism, **how: Any) -> float:
    """Of the noise in the mean of all agents' rows: from public numbers."""
    if isinstance(mechanism, Noiseless):
        return 0.0
    f: Any = means[0].objective
    noises = float(len(means))  # how many agents' noise is in the sum
    if how.get("aggregation"):
        noises /= noises - check_parties(len(means), how.get("colluding"))
    each = mechanism.variance(f.statistics().sensitivity(mechanism.norm))
    return math.sqrt(each * noises) / float(f.normaliser)


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
