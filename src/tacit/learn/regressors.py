"""Private regressors: numbers are predicted within a public ``target_range``.

PrivateHuberRegressor      the mean, outliers pulling less: noise in every round
PrivateRidge               least squares: X'X and X'y are released once, with noise
PrivateQuantileRegressor   a quantile, by default the median: noise in every round
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, non_negative, positive, probability
from tacit.learn.error_bars import Regression, of_release
from tacit.learn.estimators import LinearEstimator
from tacit.objectives.losses import Huber, LeastSquares, Quantile, of_regression
from tacit.objectives.objective import Descent, Objective
from tacit.planning import MOST_COLUMNS, Plan
from tacit.planning import plan as planned
from tacit.privacy.accounting import calibrate

OF_UNITS = "Coefficients are per unit of the data, the intercept is at the middle of all ranges."
# Planned from public numbers: the trials are in docs/regression.md
THRESHOLD = 0.2  # of Huber's loss, in units of half the target range: by experiment
RIDGE = 0.3  # of a planned ridge: by experiment
KINK = 0.1  # over which a kink of the pinball loss counts as rounded off: the same unit


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A linear model of numbers in a public range: what all regressors share.

    With an intercept the middle of the range is taken off targets, and put back in predictions:
    without any record the prediction is the middle. ``feature_norm`` None: √(d/3) for d columns,
    the length of a row whose numbers fill [−1, 1] evenly (``PublicRange``).
    """

    feature_norm: Any = None
    target_range: Any = None
    narrow_target: bool = False

    _y_must_be: ClassVar[dict[str, Any]] = {"y_numeric": True}

    @property
    def feature_norm_(self) -> float:
        if self.feature_norm is None:
            return math.sqrt(self.n_features_in_ / 3)
        return super().feature_norm_

    @property
    def _range(self) -> tuple[float, float]:
        """The target range, public or read, checked."""
        given = self.target_range if self.target_range_ is None else self.target_range_
        try:
            low, high = (float(x) for x in given)
        except (TypeError, ValueError, OverflowError):
            low, high = math.nan, math.nan
        if not -1e100 < low < high < 1e100:
            raise InvalidInput(
                "Expected target_range=(low, high), the public range of targets, got "
                f"target_range={self.target_range!r}. Nothing was fit."
            )
        return low, high

    @property
    def _offset(self) -> float:
        low, high = self._range
        return low + (high - low) / 2 if self.fit_intercept else 0.0

    @property
    def _unit(self) -> float:
        """The largest target: half the range, or what is farthest from 0."""
        low, high = self._range
        return (high - low) / 2 if self.fit_intercept else max(abs(low), abs(high))

    def _targets(self, y: Vector) -> Vector:
        low, high = self._range
        try:
            numbers = np.asarray(y, np.float64)
        except (TypeError, ValueError):  # whose words would show a target
            raise InvalidInput(
                "Expected numbers as targets, got something else. Nothing was fit."
            ) from None
        targets: Vector = np.clip(numbers, low, high) - self._offset
        return targets

    def _in_range(self, targets: Vector) -> Vector:
        low, high = self._range
        found: Vector = (targets + self._offset - (low + high) / 2) / ((high - low) / 2)
        return found

    def _public(self) -> str:
        return "the range of targets"

    def _keep(self, solution: Vector) -> None:
        super()._keep(solution)
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0]) + self._offset

    def _weights(self) -> Vector:
        if not self.fit_intercept:
            return np.asarray(self.coef_)[:, None]
        return np.append(self.coef_, (self.intercept_ - self._offset) / self._constant)[:, None]

    def predict(self, X: Any) -> Vector:
        low, high = self._range
        found: Vector = np.clip(self._scores(X) + self._offset, low, high)
        return found


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(LinearRegressor):
    """Linear regression with Huber's loss: squares of small residuals, lengths of large ones.

    Per-record gradients are clipped at ``threshold``, whatever the target: much less noise than
    least squares has, and the first choice where noise matters.

    Guarantee, and ``fit``, as ``PrivateLogisticRegression`` has them; rows longer than
    ``feature_norm`` are scaled down, and targets clipped, each by its own numbers only.

    target_range    (low, high) of targets, public; clipped to it, and predictions too
    narrow_target   whether it is narrowed first, to what is read privately of where targets lie,
                    with 3 % of the budget (``target_range_``); ``ranges`` as there, for columns
    threshold       in the units of targets; None: a fifth of half the range
    feature_norm    None: √(d/3) for d columns, as fits columns in [−1, 1] (``PublicRange``)
    rounds, local_updates   by default planned from public numbers (``planning.py``)
    others          as in ``PrivateLogisticRegression``
    """

    threshold: float | None = None

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        threshold = THRESHOLD * self._unit if self.threshold is None else self.threshold
        public |= {"target_bound": self._unit, "threshold": positive("threshold", threshold)}
        return Huber(rows, targets, **public)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(LinearRegressor):
    """Least squares with a ridge, from one noisy release of X'X and X'y of every agent.

    min ‖y − Xw‖² + alpha‖w‖², as scikit-learn's ``Ridge``, over rows no longer than
    ``feature_norm``; the intercept is a coefficient like the others (of a constant column of 0.3
    ``feature_norm``), and has the ridge too. Where noise drowns a direction of X'X, it is held
    back as by a ridge of the size of the noise (``objectives/moments.py``).

    Released once, the data need no rounds with noise: ``rounds`` None. With ``rounds`` or
    ``local_updates`` given, and with more than 2,000 columns, there is noise in every round, in
    proportion to the largest residual that the constraint allows: give a narrow one, or take
    ``PrivateHuberRegressor``.

    alpha           of the ridge. "auto": as much as the noise needs, from public numbers; without
                    noise, or with noise in every round, 1. ``alpha_`` is what was taken
    others          as in ``PrivateHuberRegressor``

    Where this process has the releases, ``coef_interval_`` has 95 % intervals, rows (low, high), of
    the free estimate, without ridge and constraint (else NaN); ``summary()`` shows them. Squares of
    targets are not released: residuals count as spread as the public range allows, so intervals
    cover at least as often as they say. ``PrivateMoments`` has shorter ones.
    """

    alpha: float | str = "auto"

    @property
    def coef_interval_(self) -> Vector:
        if (bars := self.bars()) is None:
            return np.full((self.n_features_in_, 2), np.nan)
        return bars.interval()

    def summary(self, before: Any = None) -> str:
        bars = self.bars(before)
        return super().summary(before) if bars is None else bars.summary()

    def bars(self, before: Any = None) -> Regression | None:
        """The free estimate and its intervals, of what was released, if it is known here."""
        check_is_fitted(self, "privacy_")
        found, p = getattr(self, "result_", None), self.privacy_
        private = self.total_epsilon is not None and self.mechanism == "gaussian"
        if found is None or not found.released or not private:
            return None
        d, k = len(self._weights()), self.n_features_in_
        public: Any = {"feature_norm": self.feature_norm_, "neighbours": self.neighbours}
        public |= {"target_bound": self._unit, "normaliser": self.n_records_}
        loss = LeastSquares(np.zeros((1, d)), np.zeros(1), **public)
        Δ, noises = loss.statistics().sensitivity(2), self._noises(self.n_agents_)
        names, slopes = self._columns(before)
        slopes = np.nan_to_num(slopes, nan=1.0)
        units = np.vstack([np.zeros(d), np.eye(k, d) * slopes[:, None]])
        if self.fit_intercept:
            units[0, -1] = self._constant
        return of_release(
            loss,
            found.released,
            self.release_mechanism_.variance(Δ) * noises,
            p,
            names[:-1],
            self.coef_ * slopes,
            float(self.intercept_),
            units,
            self._offset,
            () if before is None else (OF_UNITS,),
        )

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        public["target_bound"] = self._unit
        self.alpha_ = self._ridge(LeastSquares(rows[:1], targets[:1], **public))
        # every agent has its part of the ridge of the mean, alpha/N
        ridge = self.alpha_ / (public["normaliser"] * self.n_agents_)
        return LeastSquares(rows, targets, ridge=ridge, **public)

    def _ridge(self, f: LeastSquares) -> float:
        """alpha, or one from public numbers: in proportion to the noise of X'X, and to its share.

        The noise of the sum has eigenvalues up to about e = √(2dP)·s (deviation s of a value), and
        X'X has N‖x‖²/d on average: RIDGE·e·(e/(NB²/d)) is next to nothing where noise is small, and
        holds all back where it is larger than what there is to learn.
        """
        if not isinstance(self.alpha, str):
            return non_negative("alpha", self.alpha)
        if self.alpha != "auto":
            raise InvalidInput(
                f'Expected alpha as a number or "auto", got {self.alpha!r}. Nothing was fit.'
            )
        if self.total_epsilon is None or self._in_rounds:
            return 1.0
        noise = calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)
        variance = noise.variance(f.statistics().sensitivity(noise.norm))
        edge = math.sqrt(2 * f.dimension * self._noises(self.n_agents_) * variance)
        signal = f.normaliser * f.feature_bound(2) ** 2 / f.dimension
        return RIDGE * edge**2 / signal

    @property
    def _in_rounds(self) -> bool:
        return self.rounds is not None or self.local_updates is not None

    def _settings(self, problem: Problem, epsilon: float | None, **others: Any) -> Settings | Plan:
        if self._in_rounds:
            return super()._settings(problem, epsilon, **others)
        way: Any = None
        if self.mechanism == "gaussian" and problem.size <= MOST_COLUMNS:
            way = "release"
        return planned(problem, Asked(epsilon, self.total_delta, self.mechanism, others, way=way))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateQuantileRegressor(LinearRegressor):
    """Linear regression of a quantile: a share ``level`` of targets is below the prediction.

    level           0.5: the median
    others          as in ``PrivateHuberRegressor``
    """

    level: float = 0.5

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        return Quantile(rows, targets, level=probability("level", self.level), **public)

    def _descent(self, problem: Problem) -> Descent:
        """As if a kink were rounded off over KINK of the range."""
        slope = max(self.level, 1 - self.level) / (KINK * self._unit)
        f: Any = problem.agents[0].objective
        if self.aggregation is not None:  # all records
            return of_regression(self.feature_norm_, 1.0, self._unit, slope)
        share = f.most_records / f.normaliser
        return of_regression(f.feature_bound(2), share, self._unit, slope)
