"""Private classifiers, and what a fit of classes is planned by.

PrivateLogisticRegression    clipped slopes, rows around a private mean, probabilities
PrivateLinearSVC             the hinge, of two classes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tacit._types import Vector
from tacit.errors import EXACT, InvalidInput, renamed, shown
from tacit.learn.estimators import LinearEstimator
from tacit.objectives.losses import Hinge, LogisticRegression, SoftmaxRegression
from tacit.objectives.objective import Objective
from tacit.privacy.accounting import calibrate

# Planned from public numbers: the trials are in docs/learn.md
LIMIT_FORM = "norm"  # of a clipped softmax: better than the convex form in all trials
SLOPE_LIMIT, FEW_CLASSES = 0.1, 0.6  # lengths of a softmax's slope; of up to MOST_FEW classes
MOST_FEW, PLENTY = 6, 100.0  # S: from here on a limit on slopes of few classes is wider
SHARES, MEAN_NOISE = (0.02, 0.1), 0.1  # least and most; noise of a mean, of a row's length
FEW_COLUMNS = 20  # of tables whose rows keep their length


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Scores of classes: one of the second where there are two, one of each where there are more.

    ``classes`` is the public list of labels; None: those that occur.
    """

    classes: Any = None
    centring_share: float | str | None = "auto"
    keep_length: bool | str = "auto"

    # planned without noise: the reference is centred too, and nothing is clipped
    _FREE: ClassVar[dict[str, float | None]] = {"centring_share": 0.0, "clip": None}

    def _planned(
        self, name: str, default: Callable[[Planned], float | None], public: Planned
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
        if self.calibration != "certified":
            return None
        return self._FREE[name] if self.total_epsilon is None else default(public)

    def _numbers(self, columns: int, normaliser: float, record_bound: float) -> Planned:
        """With as many agents as there were, were they all as large as the largest."""
        agents = self._noises(max(1, round(normaliser / record_bound)))
        budget: Any = self.total_epsilon, self.total_delta, self.mechanism
        return Planned(columns, agents, normaliser, *budget)

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        public = self._numbers(columns, normaliser, record_bound)
        return self._planned("centring_share", planned_share, public)

    def _keeps_length(self, columns: int, normaliser: float, record_bound: float) -> bool:
        """Of rows in [−1, 1], by public numbers: those of many columns are about equally long, and
        where noise is large another column costs more than it tells."""
        if self.keep_length not in (True, False, "auto"):
            raise InvalidInput(
                f'Expected keep_length as True, False or "auto", got {shown(self.keep_length)}. '
                "Nothing was fit."
            )
        free = self.constraint is None and self.feature_norm_ == 1.0
        if self.keep_length != "auto" or not free or not 1 < columns <= FEW_COLUMNS:
            return self.keep_length is True
        public = self._numbers(columns, normaliser, record_bound)
        return self.total_epsilon is None or public.signal >= PLENTY

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


@renamed(slope_limit="clip")
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
    ranges          "auto": where the numbers of each column lie within [−1, 1] is read privately,
                    with a tenth of the budget (``ranges.py``), and rows go by that; or a list of
                    columns. For public ranges that are wide; needs many records
    keep_length     whether centred rows keep their length in a column of its own
                    (``length_coef_``). "auto": with up to 20 columns, no constraint, a
                    ``feature_norm`` of 1, as ``PublicRange`` makes rows, and many records
    clip     clipping of the per-record gradient (``objectives/losses.py``), as the
                    length of a softmax's slope, at most √2; None: none. "auto" for both: planned
                    from public numbers; without noise rows are centred and nothing is clipped; with
                    the paper's calibration both are off
    calibration     "paper": the paper's data-dependent sensitivity, not differentially private
    random_state    a seed for the noise, for research; None takes a key from the operating system
    noise, ledgers  as in ``tacit.solve``: "secure" noise, and each agent's ledger
    """

    calibration: str = "certified"
    clip: float | str | None = "auto"

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        numbers = self._numbers(rows.shape[1], public["normaliser"], public["record_bound"])
        classes = len(self.classes_)
        self.clip_ = c = self._planned("clip", lambda known: planned_clip(classes, known), numbers)
        if classes == 2:  # its two slopes are (−r, r)
            limit = None if c is None else c / math.sqrt(2)
            return LogisticRegression(rows, targets, clip=limit, **public)
        form: Any = {"clip": c, "clip_form": LIMIT_FORM}
        return SoftmaxRegression(rows, targets, classes, **form, **public)

    def predict_proba(self, X: Any) -> Vector:
        """The softmax of the scores, not corrected for clipping: that would be right at
        the optimum, which private fits are far from (``docs/own-problems.md``)."""
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


@dataclass(frozen=True)
class Planned:
    """Public numbers that a fit is planned by; ``agents``: how many agents' noise adds up."""

    columns: int
    agents: float
    records: float
    total_epsilon: float
    total_delta: float
    mechanism: str = "gaussian"

    def noise(self, moved: float = 1.0) -> float:
        """The squared deviation of d numbers that one release of all agents' sums has, where a
        record moves them by ``moved``."""
        noise = calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)
        return float(noise.variance(moved) * self.columns * self.agents)

    @property
    def signal(self) -> float:
        """S = Nμ/√(2dP) for N records, d columns and P agents (μ: the sensitivity of one release
        over its noise). Where it is large the data say much more than the noise."""
        return self.records / math.sqrt(2 * self.noise())


def planned_clip(classes: int, known: Planned) -> float | None:
    """Clipping of the per-record gradient, in the units of a softmax's slope; None: none.

    Of few classes it is wider by S/PLENTY. Where S is large clipping costs where records of one
    kind have several classes: it makes a median of their mean, and probabilities are worse for it.
    """
    if classes > MOST_FEW:
        return SLOPE_LIMIT
    limit = FEW_CLASSES * max(1.0, known.signal / PLENTY)
    return limit if limit < math.sqrt(2) else None


def planned_share(known: Planned) -> float:
    """Of the budget, for the mean that rows are centred by: its noise is MEAN_NOISE of a row.

    A row of length 1 has an L1 norm of up to √d, which Laplace noise is paid for; that grows as
    1/share, and Gaussian noise as 1/√share (``first_releases.shared``).
    """
    power, moved = (2, 1.0) if known.mechanism == "gaussian" else (1, math.sqrt(known.columns))
    all_of_it = math.sqrt(known.noise(moved)) / known.records
    share: float = (all_of_it / MEAN_NOISE) ** power
    return min(max(share, SHARES[0]), SHARES[1])
