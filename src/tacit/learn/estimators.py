"""The private estimators: a loss each, the set of its targets, and its predictions.

    PrivateLogisticRegression, PrivateLinearSVC    classes
    PrivateHuberRegressor      the mean, outliers pulling less: noise in every round
    PrivateRidge               least squares: X'X and X'y are released once, with noise
    PrivateQuantileRegressor   a quantile, by default the median: noise in every round

What they share is in ``linear.py``. Numbers are predicted within a public ``target_range``; targets
are clipped to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import EXACT, InvalidInput, non_negative, positive, probability, shown
from tacit.learn.linear import LinearEstimator
from tacit.objectives.losses import (
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Quantile,
    SoftmaxRegression,
    of_regression,
)
from tacit.objectives.objective import Descent, Objective
from tacit.planning import MOST_COLUMNS, Plan, plan
from tacit.privacy.accounting import calibrate

# Planned from public numbers: the trials are in docs/learn.md and docs/regression.md
LIMIT_FORM = "norm"  # of a softmax's slope limit: better than the convex form in all trials
SLOPE_LIMIT, TWO_CLASSES = 0.1, 0.3  # lengths of a softmax's slope
PLENTY = 100.0  # S: from here on a limit on two classes' slopes is wider
SHARES, MEAN_NOISE = (0.02, 0.1), 0.1  # least and most; noise of a mean, of a row's length
THRESHOLD = 0.2  # of Huber's loss, in units of half the target range: by experiment
RIDGE = 0.3  # of a planned ridge: by experiment
KINK = 0.1  # over which a kink of the pinball loss counts as rounded off: the same unit

# --- classes ------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Scores of classes: one of the second where there are two, one of each where there are more.

    ``classes`` is the public list of labels; None: those that occur.
    """

    classes: Any = None
    centring_share: float | str | None = "auto"

    def _planned(
        self, name: str, default: Callable[..., float | None], *public: Any
    ) -> float | None:
        """A parameter that may be "auto": then ``default`` of public numbers, or None where nothing
        is certified."""
        value = getattr(self, name)
        if value is None or isinstance(value, int | float | np.number):
            return None if value is None else float(value)
        if not isinstance(value, str) or value != "auto":
            raise InvalidInput(
                f'Expected {name} as a number, "auto" or None, got {shown(value)}. Nothing was fit.'
            )
        if self.total_epsilon is None or self.calibration != "certified":
            return None
        return default(*public, self.total_epsilon, self.total_delta, self.mechanism)

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        agents = equal_agents(normaliser, record_bound)
        return self._planned("centring_share", planned_share, columns, agents, normaliser)

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _targets(self, y: Vector) -> Vector:
        try:
            check_classification_targets(y)
            self.classes_, labels = np.unique(y, return_inverse=True)
        except TypeError:  # text among numbers
            raise InvalidInput(
                "Expected labels of one type, numbers or text. Nothing was fit."
            ) from None
        if self.classes is not None:
            self.classes_, labels = public_classes(self.classes, y)
        if y.dtype.kind == "f" and (np.abs(y) >= EXACT).any():  # one fraction in a list is enough
            raise InvalidInput("Expected labels below 2^53 in floating point. Nothing was fit.")
        if len(self.classes_) < 2:
            raise InvalidInput("Expected two or more classes, got 1 class. Nothing was fit.")
        return labels

    def _public(self) -> str:
        if self.classes is None:  # they were read off the labels: neighbours must have the same
            return "the labels that occur (give classes)"
        return "the list of classes"

    def decision_function(self, X: Any) -> Vector:
        return self._scores(X)

    def predict(self, X: Any) -> Vector:
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        found: Vector = self.classes_[best]
        return found


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(LinearClassifier):
    """Multiclass or binary logistic regression with hard constraints and a privacy budget.

    ``fit(X, y, agents=groups)`` takes the agent of every record; without it there is one agent.
    Rows are scaled down to ``feature_norm``, in ``predict`` too, and the model is of those rows.

    Guarantee: ``privacy_`` states it, for ``neighbours``: one record taken out of the sums or put
    back ("zero-out"), or replaced. It is about the rows given to ``fit``: whatever prepared them
    must have used public numbers only, as ``PublicRange`` does (a scaler fitted on private data
    does not). The numbers of records, of each agent and in all, are public, and so is the list of
    classes: give it as ``classes``, or the labels that occur are taken, and the statement is for
    neighbours with the same ones. ``coef_`` and ``intercept_`` are covered; ``score`` on private
    records is not, nor is ``result_.trace``, which a pickle of the estimator holds too:
    ``save_model`` writes what may be published.

    Every fit spends ``total_epsilon`` again. ``GridSearchCV`` and ``cross_val_score`` fit many
    times, and choose by scores that are not covered; with an integer ``random_state`` all those
    fits share their noise, which voids the statement. Search on public data.

    total_epsilon   of the whole fit; None: no noise, not private
    constraint      of the coefficients (``tacit.learn.constraints``); by default a wide box
    classes         the public list of labels
    rounds, local_updates   by default planned from public numbers
    centring_share  of the budget, for a private mean that rows are centred by (``centring.py``):
                    all rows then get the same length. None: rows are not centred
    slope_limit     what one record can pull (``objectives/slope_limits.py``), as the length of a
                    softmax's slope, at most √2. None: no limit. "auto" for both: planned from
                    public numbers; off without noise and with the paper's calibration
    calibration     "paper": the paper's data-dependent sensitivity, not differentially private
    random_state    a seed for the noise, for research; None takes a key from the operating system
    noise, ledgers  as in ``tacit.solve``: "secure" noise, and each agent's ledger
    """

    calibration: str = "certified"
    slope_limit: float | str | None = "auto"

    def _limit(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        """The limit on slopes, in the units of a softmax, for rows of that many columns."""
        sizes = len(self.classes_), columns, equal_agents(normaliser, record_bound), normaliser
        return self._planned("slope_limit", planned_slope_limit, *sizes)

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        sizes = public["normaliser"], public["record_bound"]
        self.slope_limit_ = c = self._limit(rows.shape[1], *sizes)
        classes = len(self.classes_)
        if classes == 2:  # its two slopes are (−r, r)
            limit = None if c is None else c / math.sqrt(2)
            return LogisticRegression(rows, targets, slope_limit=limit, **public)
        form: Any = {"slope_limit": c, "limit_form": LIMIT_FORM}
        return SoftmaxRegression(rows, targets, classes, **form, **public)

    def predict_proba(self, X: Any) -> Vector:
        """The softmax of the scores, not corrected for the limit on slopes: that would be right at
        the optimum, which private fits are far from (``docs/objectives.md``)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: Vector = powers / powers.sum(axis=1, keepdims=True)
        return shares


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(LinearClassifier):
    """A linear support vector machine of two classes: loss max(0, 1 − y·score), y = ±1.

    Parameters, ``fit`` and the guarantee are those of ``PrivateLogisticRegression``; there are no
    probabilities. More than two classes are refused. The hinge's slope is 1 at most, whatever the
    record.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _targets(self, y: Vector) -> Vector:
        labels = super()._targets(y)
        if (classes := len(self.classes_)) > 2:
            raise InvalidInput(
                "Only binary classification is supported: expected two classes, got "
                f"{classes} classes. Nothing was fit."
            )
        return labels

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        return Hinge(rows, targets, **public)


def public_classes(classes: Any, y: Vector) -> tuple[Vector, Vector]:
    """The public list of labels in order, and the position of each record's there."""
    try:
        known = np.unique(np.asarray(classes))
    except TypeError:  # None, or strings among numbers
        raise InvalidInput(
            f"Expected classes of one type, got classes={classes!r}. Nothing was fit."
        ) from None
    if not np.isin(y, known).all():
        row = int(np.flatnonzero(~np.isin(y, known))[0]) + 1
        raise InvalidInput(
            f"Expected labels of {known.tolist()}, got another one in row {row}. Nothing was fit."
        )
    return known, np.searchsorted(known, y)


def equal_agents(normaliser: float, record_bound: float) -> int:
    """Agents, were they all as large as the largest."""
    return max(1, round(normaliser / record_bound))


def planned_slope_limit(
    classes: int,
    columns: int,
    agents: int,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float | None:
    """Clipping of the per-record gradient, in the units of a softmax's slope; None: none.

    Of two classes it is wider by S/PLENTY, with S = Nμ/√(2dP) for N records, d columns and P agents
    (μ: the sensitivity of one release over its noise). Where S is large the data say much more than
    the noise, and clipping costs where records of one kind have both classes: it makes a median of
    their mean.
    """
    if classes > 2:
        return SLOPE_LIMIT
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    S = records / math.sqrt(noise.variance(1.0) * 2 * columns * agents)
    limit = TWO_CLASSES * max(1.0, S / PLENTY)
    return limit if limit < math.sqrt(2) else None


def planned_share(
    columns: int,
    agents: int,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float:
    """Of the budget, for the mean that rows are centred by: its noise is MEAN_NOISE of a row.

    A row of length 1 has an L1 norm of up to √d, which Laplace noise is paid for; that grows as
    1/share, and Gaussian noise as 1/√share (``centring.shared``).
    """
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    power, moved = (2, 1.0) if noise.norm == 2 else (1, math.sqrt(columns))
    all_of_it = math.sqrt(noise.variance(moved) * columns * agents) / records
    return min(max((all_of_it / MEAN_NOISE) ** power, SHARES[0]), SHARES[1])


# --- numbers ------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A linear model of numbers in a public range: what all regressors share.

    With an intercept the middle of the range is taken off targets, and put back in predictions:
    without any record the prediction is the middle. ``feature_norm`` None: √(d/3) for d columns,
    the length of a row whose numbers fill [−1, 1] evenly (``PublicRange``).
    """

    feature_norm: Any = None
    target_range: Any = None

    _y_must_be: ClassVar[dict[str, Any]] = {"y_numeric": True}

    @property
    def feature_norm_(self) -> float:
        if self.feature_norm is None:
            return math.sqrt(self.n_features_in_ / 3)
        return super().feature_norm_

    @property
    def _range(self) -> tuple[float, float]:
        """The public target range, checked."""
        try:
            low, high = (float(x) for x in self.target_range)
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

    No record pulls more than ``threshold``, whatever its target, so there is much less noise than
    least squares has: the first choice where noise matters.

    Guarantee, and ``fit``, as ``PrivateLogisticRegression`` has them; rows longer than
    ``feature_norm`` are scaled down, and targets clipped, each by its own numbers only.

    target_range    (low, high) of targets, public; clipped to it, and predictions too
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
    """Least squares with a ridge, from one noisy reading of X'X and X'y of every agent.

    min ‖y − Xw‖² + alpha‖w‖², as scikit-learn's ``Ridge``, over rows no longer than
    ``feature_norm``; the intercept is a coefficient like the others (of a constant column of 0.3
    ``feature_norm``), and has the ridge too. Where noise drowns a direction of X'X, it is held
    back as by a ridge of the size of the noise (``objectives/moments.py``).

    Read once, the data need no rounds with noise: ``rounds`` None. With ``rounds`` or
    ``local_updates`` given, and with more than 2,000 columns, there is noise in every round, in
    proportion to the largest residual that the constraint allows: give a narrow one, or take
    ``PrivateHuberRegressor``.

    alpha           of the ridge. "auto": as much as the noise needs, from public numbers; without
                    noise, or with noise in every round, 1. ``alpha_`` is what was taken
    others          as in ``PrivateHuberRegressor``
    """

    alpha: float | str = "auto"

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
        variance = noise.variance(f.reading().sensitivity(noise.norm))
        edge = math.sqrt(2 * f.dimension * self.n_agents_ * variance)
        signal = f.normaliser * f.feature_bound(2) ** 2 / f.dimension
        return RIDGE * edge**2 / signal

    @property
    def _in_rounds(self) -> bool:
        return self.rounds is not None or self.local_updates is not None

    def _settings(self, problem: Problem, epsilon: float | None) -> Settings | Plan:
        if self._in_rounds:
            return super()._settings(problem, epsilon)
        way: Any = None
        if self.mechanism == "gaussian" and problem.size <= MOST_COLUMNS:
            way = "release"
        return plan(problem, Asked(epsilon, self.total_delta, self.mechanism, way=way))


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
        share = f.most_records / f.normaliser
        return of_regression(f.feature_bound(2), share, self._unit, slope)
