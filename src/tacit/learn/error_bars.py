"""Least squares from noisy second moments, with intervals that count the noise.

    T = Σ w w' + E        w = (1, predictors, target); E symmetric, independent entries, mean 0 and
                          public variances W (0 where an entry is known, as the number of records)
    u(b) = T_xy − T_xx b  at the true b: mean 0, covariance σ²·T_xx + N(v), v = (−b, 1)
    N(v) = diag(W v²) + (W ∘ vv' beside the diagonal), the covariance of E v

    b      solves (T_xx + R) b = T_xy with R = diag(W diag(T_xx⁻¹)) + (W ∘ T_xx⁻¹ beside the
           diagonal): E T_xx⁻¹ E on average, by which noise would draw b away to second order
    Cov b  = T_xx⁻¹ (σ² T_xx + N(v)) T_xx⁻¹, sampling and privacy apart
    σ²     = (v'Tv + tr T_xx⁻¹N(v)) / (n − p), the second term being what the fit takes off

All of it reads the release and public numbers only. Intervals are given where the least eigenvalue
of T_xx is at least ``CLEAR`` edges of the noise; ``benchmarks/error_bars.py`` has their coverage on
real tables. They assume what the usual formula does: that residuals spread alike, whatever the
predictors are.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from tacit._types import Vector
from tacit.errors import InvalidInput, probability
from tacit.files import write_atomically
from tacit.html import card, never_raises, small, table
from tacit.objectives.losses import LeastSquares
from tacit.objectives.moments import FLOOR, SecondMoments
from tacit.privacy.accounting import rounded_up
from tacit.privacy.mechanisms import gaussian_epsilon, gaussian_multiplier
from tacit.protocol.statement import PrivacyStatement
from tacit.tables import named

FILE = "intervals.json"  # of a result folder
OF_BOUNDS = (
    "Intervals are of the free estimate, without ridge and constraint, and cover at least as often "
    "as they say: residuals count as spread as public bounds allow."
)
PARTS = 0.3  # of the largest in a direction: columns with more are named
CLEAR = 2.0  # edges of the noise, from where on intervals cover: by experiment


@dataclass(frozen=True)
class Estimate:
    """A fit in the units of T.

    sampling, privacy   the two parts of the covariance
    variance   of residuals; ``r2``: the share of the target's variance that is explained
    clear      least eigenvalue of T_xx over ``CLEAR`` edges; below 1 there are no intervals, and
               ``coef`` is held back as by a ridge of the size of the noise
    weakest    the direction of the least eigenvalue
    """

    coef: Vector
    sampling: Vector
    privacy: Vector
    variance: float
    r2: float
    freedom: float
    clear: float
    weakest: Vector


def spread(W: Vector, A: Vector) -> Vector:
    """E[E A E] for a symmetric E with independent entries of variances W; of A = vv' the covariance
    of E v."""
    found = W * A
    np.fill_diagonal(found, W @ np.diag(A))
    return found


def edge(W: Vector) -> float:
    """About the norm of a symmetric matrix of noise with variances W."""
    return 2 * math.sqrt(float(W.sum(axis=1).max(initial=0)))


def estimate(T: Vector, W: Vector, records: float, ridge: Vector | float = 0.0) -> Estimate:
    """Least squares of the last column on the others, the first of them the constant.

    With a ``ridge`` on the diagonal of T_xx only ``coef`` is meant.
    """
    p = len(T) - 1
    S, t, noise = T[:p, :p] + np.diag(np.broadcast_to(ridge, p)), T[:p, p], W[:p, :p]
    spectrum, V = np.linalg.eigh(S)
    rounding = 4 * p * float(np.finfo(np.float64).eps * np.abs(spectrum).max())
    least = max(edge(noise), rounding)
    clear = float(spectrum[0]) / (CLEAR * least)
    if clear >= 1:
        inverse = (V / spectrum) @ V.T
        coef = np.linalg.solve(S + spread(noise, inverse), t)
    else:
        inverse = (V / np.maximum(spectrum, FLOOR * least)) @ V.T
        coef = inverse @ t
    v = np.append(-coef, 1.0)
    moved = spread(W, np.outer(v, v))[:p, :p]
    freedom = max(records - p, 1.0)
    squares = max(float(v @ T @ v) + float(np.sum(inverse * moved)), 0.0)
    total = float(T[p, p] - T[0, p] ** 2 / T[0, 0])
    r2 = min(max(1 - squares / total, 0.0), 1.0) if total > 0 else math.nan
    variance = squares / freedom
    parts = variance * inverse, inverse @ moved @ inverse
    return Estimate(coef, *parts, variance, r2, freedom, clear, V[:, 0])


def of_release(
    loss: LeastSquares,
    released: Sequence[Vector],
    variance: float,
    privacy: PrivacyStatement,
    names: Sequence[str],
    coef: Vector,
    intercept: float = 0.0,
    units: Vector | None = None,
    offset: float = 0.0,
    said: tuple[str, ...] = (),
) -> Regression:
    """The coefficients that follow from a release of least squares on the same columns, with bars.

    Squares of targets are not released: all count as large as the public bound allows.

    Arguments:
        loss: an agent's; only what is public is read of it
        released: by every agent, or the sum of all
        variance: of one released number, all agents' noise together
        coef, intercept: the answer, which a ridge or a set may hold back
        units: from the columns of the release to intercept and coefficients; default: no intercept
        offset: what is added to the intercept
        said: other sentences below a summary
    """
    d, N, Y = loss.dimension, loss.normaliser, loss.target_bound
    S, b = SecondMoments(loss).matrices(np.sum(released, axis=0))
    T = np.block([[S, b[:, None]], [b, N * Y**2]])
    W = np.full((d + 1, d + 1), variance * (Y / loss.feature_bound(2)) ** 2)
    W[:d, :d], W[d, d] = variance / 2 * (1 + np.eye(d)), 0.0
    free = estimate(T, W, N)
    L = np.vstack([np.zeros(d), np.eye(d)]) if units is None else units
    return Regression(
        "target",
        tuple(names),
        coef,
        intercept,
        L @ free.coef + np.append(offset, np.zeros(len(names))),
        L @ free.sampling @ L.T,
        L @ free.privacy @ L.T,
        free.freedom,
        math.nan,
        math.sqrt(free.variance),
        N,
        no_interval(free, free.weakest[: len(names)], names, N, privacy),
        said=(OF_BOUNDS, *said),
    )


def no_interval(
    free: Estimate,
    weakest: Vector,
    names: Sequence[str],
    records: float,
    privacy: PrivacyStatement,
) -> str:
    """Why there is none, and what would do: computed from the release. Empty where there is one.

    ``weakest``: the part of ``names`` in the direction of which least is known.
    """
    if free.clear >= 1:
        return ""
    size = np.abs(weakest)
    weak = [name for name, w in zip(names, size, strict=True) if w > PARTS * size.max()]
    why = f"{weak[0]!r} varies too little" if len(weak) == 1 else "too little tells apart "
    why += "" if len(weak) == 1 else named(weak)
    more = what_would_do(free.clear, records, privacy.epsilon, privacy.delta)
    return (
        f"No interval: {why} in {records:g} records beside the noise. {more} (A column that is "
        "constant, or that others add up to, is best left out.)"
    )


def what_would_do(clear: float, records: float, epsilon: float, delta: float) -> str:
    """How many records, or which ε: from public numbers and the release. Where that says little of
    the least eigenvalue, as if it were half an edge."""
    known = clear * CLEAR > 0.5
    lacking = clear if known else 0.5 / CLEAR
    wanted = gaussian_epsilon(1 / gaussian_multiplier(epsilon, delta) / lacking, delta)
    many, total = (float(rounded_up(x, 2)) for x in (records / lacking, wanted))
    about = "About" if known else "At least"
    return f"{about} {many:,.0f} records, or a total epsilon of {total:g}, would do."


@dataclass(frozen=True)
class Row:
    """A number with its interval; ``privacy``: of its squared error, the share of the noise."""

    name: str
    value: float
    error: float
    low: float
    high: float
    p: float = math.nan
    privacy: float = math.nan

    @property
    def cells(self) -> tuple[str, ...]:
        if math.isnan(self.error):
            return self.name, f"{self.value:.4g}", *[""] * len(HEAD[2:])
        p = "" if math.isnan(self.p) else "< 0.001" if self.p < 0.001 else f"{self.p:.3f}"
        ends = f"{self.low:.4g} to {self.high:.4g}"
        return (
            self.name,
            f"{self.value:.4g}",
            f"{float(f'{self.error:.2g}'):g}",
            ends,
            p,
            f"{self.privacy:.0%}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Without numbers that are none."""
        return {k: None if v != v else v for k, v in vars(self).items()}


HEAD = "", "coefficient", "std. error", "95 % interval", "p", "privacy"


@dataclass(frozen=True, repr=False)
class Regression:
    """A regression in the units of the data; ``coef`` in the order of ``on``.

    free        the free estimate, the intercept first; ``coef`` and ``intercept`` differ from it
                where they are ``held`` by a ridge or a constraint
    sampling, privacy   the two parts of its covariance
    r2          share of the target's variance that is explained; NaN where that is not known
    deviation   of residuals
    doubt       why there are no intervals; empty where there are
    said        sentences below a summary
    scale       of each predictor: the length of its public range, in which ``plot`` shows effects
    layout      the table's public rules; ``ends``: the target's range
    """

    target: str
    on: tuple[str, ...]
    coef: Vector
    intercept: float
    free: Vector
    sampling: Vector
    privacy: Vector
    freedom: float
    r2: float
    deviation: float
    records: float
    doubt: str = ""
    held: str = ""
    said: tuple[str, ...] = ()
    scale: Vector | None = None
    layout: Any = None
    ends: tuple[float, float] = (-math.inf, math.inf)

    @property
    def std_error(self) -> Vector:
        """Of every coefficient in ``on``, both parts; NaN where ``doubt`` says why."""
        return self._errors[1:]

    def interval(self, level: float = 0.95) -> Vector:
        """Rows (low, high) in the order of ``on``, of the free estimate; NaN in doubt."""
        return self._intervals(level)[1:]

    @property
    def _errors(self) -> Vector:
        found = np.sqrt(np.diag(self.sampling) + np.diag(self.privacy))
        return np.where((found > 0) & (not self.doubt), found, np.nan)  # 0: no intercept

    def _intervals(self, level: float) -> Vector:
        half = stdtrit(self.freedom, (1 + probability("level", level)) / 2) * self._errors
        return np.stack([self.free - half, self.free + half], axis=1)

    def rows(self, level: float = 0.95) -> list[Row]:
        """The intercept, where there is one, then the coefficients."""
        names, values = ("(intercept)", *self.on), (self.intercept, *self.coef)
        errors, ends = self._errors, self._intervals(level).T
        p = 2 * stdtr(self.freedom, -np.abs(self.free) / errors)
        columns = names, values, errors, *ends, p, np.diag(self.privacy) / errors**2
        found = [Row(name, *map(float, row)) for name, *row in zip(*columns, strict=True)]
        return found if self.sampling[0, 0] > 0 else found[1:]

    def predict(self, new: Any) -> Vector:
        """For the records of a table with the predictors' columns, within the target's range."""
        if self.layout is None:
            raise InvalidInput("Expected a regression of a released table to predict with.")
        X = self.layout.in_units(new, self.on)
        found: Vector = np.clip(self.intercept + X @ self.coef, *self.ends)
        return found

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        named = ("target", "r2", "deviation", "records", "doubt", "held")
        found = {k: None if (v := getattr(self, k)) != v else v for k in named}
        rows = [row.to_dict() for row in self.rows(level)]
        return {**found, "level": level, "coefficients": rows, "said": list(self.said)}

    def save(self, folder: Path) -> None:
        """Write the intervals to a result folder. They follow from a release, and are covered."""
        write_atomically(folder / FILE, json.dumps(self.to_dict(), indent=1).encode())
        os.chmod(folder / FILE, 0o644)

    def plot(self) -> Any:
        """What all of a column's public range does to the target: points, their intervals, and
        thick the part of these that is chance in the data."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 1 + 0.35 * len(self.on)), layout="constrained")
        axes, at = figure.subplots(), np.arange(len(self.on))[::-1]
        scale = np.ones(len(self.on)) if self.scale is None else self.scale
        middle = self.free[1:] * scale
        if not self.doubt:
            half = (self.interval()[:, 1] - self.free[1:]) * scale
            chance = half * np.sqrt(np.diag(self.sampling)[1:]) / self.std_error
            axes.errorbar(middle, at, xerr=half, fmt="none", ecolor="#2c6fbb", capsize=3)
            axes.errorbar(middle, at, xerr=chance, fmt="none", ecolor="#2c6fbb", elinewidth=5)
        axes.plot(middle, at, "o", color="#12365c" if not self.doubt else "#999999")
        axes.axvline(0, color="#999999", lw=0.8)
        axes.set_yticks(at, self.on)
        axes.set_xlabel(f"{self.target}: change over a column's public range, 95 % intervals")
        return figure

    def summary(self, level: float = 0.95) -> str:
        """A table as statistics packages print it, and below it what is to be known of it."""
        head = tuple(h.replace("95", f"{100 * level:g}") for h in HEAD)
        rows = aligned([head, *(row.cells for row in self.rows(level))])
        return "\n".join([self._title, *rows, *self._below])

    @property
    def _title(self) -> str:
        return f"{self.target} on {len(self.on)} columns, {self.records:,.0f} records"

    @property
    def _below(self) -> list[str]:
        fit = f"R² {self.r2:.3f}, deviation of residuals {self.deviation:.4g}. "
        found = "" if math.isnan(self.r2) else fit
        found += "" if self.doubt else "privacy: the noise's share of the squared error."
        return [*filter(None, (found.strip(), self.doubt, self.held)), *self.said]

    def __repr__(self) -> str:
        return self.summary()

    @never_raises
    def _repr_html_(self) -> str:
        rows = table((row.cells for row in self.rows()), HEAD)
        return card(self._title, rows, *map(small, self._below))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text, the first column to the left and the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows
    ]
