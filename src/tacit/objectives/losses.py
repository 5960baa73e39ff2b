"""The losses of linear models: those of regression here, of classes in ``classification.py``.

    f(z) = (1/N) Σ_i loss(x_i'z, y_i) + (ridge/2)‖z‖²

Each class has its loss, the derivative in the score x'z, and a proven bound of that derivative,
from which ``linear_model.py`` makes gradients and certified sensitivities.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, positive, probability
from tacit.objectives.classification import Hinge, LogisticRegression, SoftmaxRegression
from tacit.objectives.linear_model import LinearModel
from tacit.objectives.objective import RELATIONS, Descent
from tacit.objectives.second_moments import SecondMoments
from tacit.objectives.slope_limits import STEPS
from tacit.pytree import pytree, store

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

__all__ = [
    "Hinge",
    "Huber",
    "LeastSquares",
    "LogisticRegression",
    "Quantile",
    "SoftmaxRegression",
]


@pytree
class LeastSquares(LinearModel):
    """Squared residuals: loss = (x'z − y)²/2, targets clipped to ±``target_bound``.

    With a ridge this is ridge regression. ``neighbours`` may also be ("move", β): one record's
    target moves by at most β, and only targets are private.

    Guarantee: write s = x'z, |s| ≤ a on the set, R = sup‖z‖₂, |y| ≤ Y.
    *add-remove*: |slope| = |s − y| ≤ a + Y; attained on balls and symmetric boxes.
    *move*: one slope changes by at most min(β, 2Y).
    *replace*: NΔ_2 ≤ 2B√(1−q²)(BRq + Y) with q = min{2BR/(Y + √(Y² + 8B²R²)), a/(BR)}, and
    NΔ_1 ≤ √d times that, or twice add-remove if smaller. On balls around 0 and, if d is even, on
    symmetric boxes it is attained (d ≥ 2, no L1 bound on features).
    Proof. (x,y) and (−x,−y) have the same gradient, so let the angle θ of x₁ and x₂ be acute.
    The difference is (x₁x₁' − x₂x₂')z − (y₁x₁ − y₂x₂). The second part is at most Y·w in norm,
    w = ‖x₁ + x₂‖; the first at most a·w, and at most λR where λ is the largest |eigenvalue| of
    the bracket. Say ‖x₁‖ = 1 and ‖x₂‖² = p ≤ 1: λ(λ − 1 + p) = p sin²θ, hence
    w² = 1 + p + 2√((1−λ)(p+λ)), which for a fixed λ grows in p. So ‖x₁‖ = ‖x₂‖ = B is worst,
    where λ = B² sin θ and w = 2B cos(θ/2): maximise over q = sin(θ/2). ∎
    """

    targets: Array = field(repr=False)
    _: KW_ONLY
    target_bound: float
    moved_by: float | None = field(init=False)

    curvature: ClassVar[float | None] = 1.0
    no_limit: ClassVar[str] = "squared residuals with a limited slope are Huber(threshold=...)."

    def __post_init__(self) -> None:
        store(self, target_bound=positive("target_bound", self.target_bound))
        moved_by = None
        if isinstance(self.neighbours, tuple | list) and [*self.neighbours][:-1] == ["move"]:
            moved_by = positive("move", self.neighbours[-1])
            store(self, neighbours="replace")
        super().__post_init__()
        targets = _like_features(self.targets, self.features)
        if moved_by is not None and self.features.dtype == np.float32:
            raise InvalidInput(
                "Expected float64 features where one target moves: in float32 rounding alone may "
                "change a sum by more than that."
            )
        if moved_by is not None:
            store(self, neighbours=f"one target moving by at most {moved_by}")
            # two targets that differ by beta may differ by one unit more once they are rounded
            moved_by += float(np.spacing(targets.dtype.type(self.target_bound)))
        limit = self.target_bound * (1 - 2 * np.finfo(targets.dtype).eps)  # survives rounding
        store(self, targets=jax.device_put(np.clip(targets, -limit, limit)), moved_by=moved_by)

    def in_bfloat16(self) -> Self:
        if self.moved_by is not None:
            raise InvalidInput(
                "Expected neighbours that differ by a record for 16 bits: rounding may make more "
                "of a target that moves a little."
            )
        return super().in_bfloat16()

    def reading(self) -> SecondMoments:
        own = type(self).slopes, type(self).losses
        if own != (LeastSquares.slopes, LeastSquares.losses):
            return super().reading()  # type: ignore[return-value]  # refuses
        if self.moved_by is not None:
            raise InvalidInput(
                "Expected neighbours that differ by a record for least squares to be read once: "
                "where one target moves, features are public, and "
                "Residual(features, -targets, beta) is the objective whose data are the targets."
            )
        return SecondMoments(self)

    def losses(self, scores: Array) -> Array:
        return (scores - self.targets) ** 2 / 2

    def slopes(self, scores: Array) -> Array:
        return scores - self.targets

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        return self.score_bound(feasible_set) + self.target_bound

    @property
    def descent(self) -> Descent | None:
        share = self.most_records / self.normaliser
        found = of_regression(self.feature_bound(2), share, self.target_bound)
        return found._replace(curvature=float(found.curvature + self.ridge))

    def _largest_change(self, norm: int, feasible_set: FeasibleSet) -> float:
        slope = self.slope_bound(norm, feasible_set)
        if self.moved_by is not None:
            return min(self.moved_by, 2 * self.target_bound, 2 * slope) * self.feature_bound(norm)
        single = slope * self.feature_bound(norm)
        if self.neighbours != RELATIONS["replace"]:
            return single
        B, Y, a = self.feature_bound(2), self.target_bound, self.score_bound(feasible_set)
        BR = B * feasible_set.reach(2)
        if math.isinf(BR):
            return 2 * single
        q = 2 * BR / (Y + math.hypot(Y, math.sqrt(8) * BR))
        if a < q * BR:
            q = a / BR
        pair = 2 * B * math.sqrt(1 - q**2) * (BR * q + Y)
        return min(2 * single, pair if norm == 2 else math.sqrt(self.dimension) * pair)


@pytree
class Huber(LeastSquares):
    """Least squares whose slope stops at ±``threshold``, so that outliers pull less.

    loss = r²/2 for |r| ≤ threshold, else threshold·(|r| − threshold/2), with r = x'z − y.

    Guarantee: |slope| ≤ min(threshold, a + Y). *replace*: the smaller of twice that and the bound
    of ``LeastSquares``: a slope κr with κ ≤ 1 is that of the least-squares record (√κx, √κy).
    *move*: a slope changes by no more than the target does.
    """

    _: KW_ONLY
    threshold: float

    no_limit: ClassVar[str] = "its threshold is the limit of its slope."

    def __post_init__(self) -> None:
        store(self, threshold=positive("threshold", self.threshold))
        super().__post_init__()

    def losses(self, scores: Array) -> Array:
        slopes = self.slopes(scores)
        return slopes * (scores - self.targets - slopes / 2)

    def slopes(self, scores: Array) -> Array:
        return jnp.clip(scores - self.targets, -self.threshold, self.threshold)

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        return min(self.threshold, super().slope_bound(norm, feasible_set))


@pytree
class Quantile(LinearModel):
    """Pinball loss, whose minimiser predicts a quantile: max(level·r, (level − 1)·r), r = y − x'z.

    Guarantee: slopes are −level or 1 − level, so |slope| ≤ max(level, 1 − level); attained, and
    so is twice that under *replace* (at z = 0, with x₂ = −x₁). Targets need no bound.
    """

    targets: Array = field(repr=False)
    _: KW_ONLY
    level: float

    no_limit: ClassVar[str] = STEPS

    def __post_init__(self) -> None:
        store(self, level=probability("level", self.level))
        super().__post_init__()
        store(self, targets=jnp.asarray(_like_features(self.targets, self.features)))

    def losses(self, scores: Array) -> Array:
        r = self.targets - scores
        return jnp.maximum(self.level * r, (self.level - 1) * r)

    def slopes(self, scores: Array) -> Array:
        return (scores > self.targets).astype(scores.dtype) - self.level

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        return max(self.level, 1 - self.level)


def of_regression(B: float, share: float, largest: float, curvature: float = 1.0) -> Descent:
    """For rows of length B, an agent's ``share`` of all records, and the ``largest`` target.

    A ninth of it matters in a prediction: chosen on five tables (``learn/regressors.py``).
    """
    return Descent(float(curvature * B**2 * share), float(9 * B / largest), longest=2.0)


def _like_features(targets: Any, features: Array) -> Vector:
    return array("targets", targets, (features.shape[1],), dtype=features.dtype)
