"""Classifiers over several agents' private records, as scikit-learn estimators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tacit._types import Vector
from tacit.errors import EXACT, InvalidInput
from tacit.learn.linear import LinearEstimator
from tacit.objectives.losses import Hinge, LogisticRegression, SoftmaxRegression
from tacit.objectives.objective import Objective
from tacit.privacy.accounting import calibrate

# Planned from public numbers: the trials are in docs/learn.md
LIMIT_FORM = "norm"  # of a softmax's slope limit: better than the convex form in all trials
SLOPE_LIMIT, TWO_CLASSES = 0.1, 0.3  # lengths of a softmax's slope
PLENTY = 100.0  # S: from here on a limit on two classes' slopes is wider
SHARES, MEAN_NOISE = (0.02, 0.1), 0.1  # least and most; noise of a mean, of a row's length


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Scores of classes: one of the second where there are two, one of each where there are more.

    ``classes`` is the public list of labels; None: those that occur.
    """

    classes: Any = None
    centring_share: float | str | None = "auto"

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        return self._planned(
            "centring_share",
            lambda: planned_share(columns, *self._planned_for(normaliser, record_bound)),
        )

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
        return self._planned(
            "slope_limit",
            lambda: planned_slope_limit(
                len(self.classes_), columns, *self._planned_for(normaliser, record_bound)
            ),
        )

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
        """The softmax of the scores.

        It is not corrected for the limit on slopes (``docs/objectives.md``): that would be
        right at the optimum, which private fits are far from. Measured (expected calibration error
        in 15 bins): MNIST at ε = 1 0.003, corrected 0.050; digits 0.056 and 0.271, breast cancer
        0.045 and 0.098; fair, where labels are noisy, 0.087 and 0.044.
        """
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
