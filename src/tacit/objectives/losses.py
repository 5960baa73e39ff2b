"""The losses of linear models: of classes, then of regression.

Each class has its loss, the derivative in the score x'z, and a proven bound of that derivative,
from which ``linear_model.py`` makes gradients and certified sensitivities.

Clipping of per-record gradients: a limit on the slope of a record's loss.

A record of a linear model adds x·r' to the gradient, where r is the slope of its loss in the
scores. Limiting ‖r‖₂ to c gives a sensitivity of cB/N, ten times less noise where c is 0.15. For
softmax regression r = p − e_y = w·d with the weight w = 1 − p_y and the direction d: −1 at y, and
π_k = p_k/(1 − p_y) elsewhere. Σπ = 1, so K/(K − 1) ≤ ‖d‖₂² ≤ 2 and ‖d‖₁ = 2. Two forms:

    convex    d·min(w, c/√2)      the gradient of a convex function h(u) of the scores
    norm      d·min(w, c/‖d‖)     r scaled down to length c; a gradient of no function, if K > 2

with u = ln Σ_{k≠y} exp(s_k − s_y), which is convex in s and has gradient d. Softmax regression has
the loss ln(1 + e^u), with slope w = sigmoid(u). Its limited form goes on as a straight line where
that slope reaches q = c/√2, at u = t = ln(q/(1 − q)); it is convex and never falls, so h(u) is
convex:

    h(u) = ln(1 + exp(min(u, t))) + q·max(u − t, 0)

Logistic regression has one score s, u = −ys for y = ±1, and h with q = c. A softmax of two classes
has scores that differ by s and slopes (−r, r) of length √2·|r|: c there is c/√2 here.

Lipschitz constants of the slopes in the scores (the Hessian H of softmax regression is at most
2 max_k p_k(1 − p_k), by the sums of its rows):
*convex*: where w ≤ q it is H, at most 2q(1 − q) if q ≤ 1/2, as p_y ≥ 1 − q and all others ≤ q.
Elsewhere it is q(diag π − ππ') ≤ q/2, which is less. *logistic*: q(1 − q) if q ≤ 1/2. *norm*:
2q', with q' = c√((K − 1)/K), or 1/2 if that is less. Where ‖r‖ < c, w ≤ q', so H ≤ 2q'(1 − q') or
1/2. Where ‖r‖ ≥ c, a projection makes c/‖r‖·H the most; it is at most 2p_y·q' for p_y ≥ 1/2 (then
H ≤ 2p_y·w) and at most q' otherwise (H ≤ 1/2 and w > 1/2). A projection onto a ball lengthens no
difference, so 1/2 holds too.

Other losses have no such limit. Squared residuals with a bounded slope are Huber's, whose threshold
is the limit. Slopes of hinge and pinball losses are steps: to limit them is to scale the loss.

Rounding. w and π are computed without differences that cancel: they err by a few units relative to
themselves, w by |ln w| more where w < q. So a computed slope errs by at most 128 + 2K units of c as
long as c ≥ 1e-6, and its length exceeds c by no more than that.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, choice, count, positive, probability, renamed
from tacit.objectives.linear_model import LinearModel
from tacit.objectives.moments import SecondMoments
from tacit.objectives.objective import RELATIONS, Descent
from tacit.objectives.rounding import gamma
from tacit.pytree import pytree, static, store

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

FORMS = ("convex", "norm")
RECORDS_DIFFER = 10.0  # steps, times the curvature of records that are alike, that were stable


def _descent(f: LinearModel, curvature: float, unit: float, longest: float) -> Descent:
    """``curvature`` of a record's loss at z = 0; ``unit``: what matters of a score."""
    B, share = f.feature_bound(2), f.most_records / f.normaliser
    return Descent(float(curvature * B**2 * share + f.ridge), float(B / unit), longest)


@pytree
class _TwoClasses(LinearModel):
    """Labels y = ±1, one byte each."""

    labels: Array = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = _whole_numbers(self.labels, self.features.shape[1])
        found = {int(n) for n in np.unique(numbers)}
        if not (found <= {0, 1} or found <= {-1, 1}):
            raise InvalidInput("Expected labels 0 and 1, or -1 and +1, got others, or both kinds.")
        store(self, labels=jax.device_put(np.where(numbers > 0, 1, -1).astype(np.int8)))


@renamed(slope_limit="clip")
@pytree
class LogisticRegression(_TwoClasses):
    """Two classes, labelled 0 and 1 or −1 and +1: loss = ln(1 + exp(−y·x'z)) with y = ±1.

    Guarantee: |slope| = sigmoid(−y·s) ≤ sigmoid(a) for |s| ≤ a; attained on balls and boxes
    around 0. *replace*: twice that, attained in the limits a → 0 and a → ∞.

    ``clip`` c clips: the loss goes on as a straight line where its slope reaches c
    (above), so |slope| ≤ min(c, sigmoid(a)) and, for c < sigmoid(a), NΔ_2 = cB, or
    2cB under *replace*: attained. In a softmax of two classes the same limit is √2·c.
    """

    curvature: ClassVar[float | None] = 0.25
    limited: ClassVar[bool] = True

    def losses(self, scores: Array) -> Array:
        u = -self.labels * scores
        if self.clip is None:
            return jax.nn.softplus(u)
        return limited_softplus(u, jnp.asarray(self.clip, u.dtype))

    def slopes(self, scores: Array) -> Array:
        u = -self.labels * scores
        if self.clip is None:
            return -self.labels * jax.nn.sigmoid(u)
        return -self.labels * jnp.minimum(1 / (1 + jnp.exp(-u)), jnp.asarray(self.clip, u.dtype))

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        largest = 1 / (1 + math.exp(-self.score_bound(feasible_set)))
        return largest if self.clip is None else min(largest, self.clip)

    @property
    def largest_curvature(self) -> float | None:
        return self.curvature if self.clip is None else logistic_curvature(self.clip)

    @property
    def descent(self) -> Descent | None:
        """Its score is the difference of two of a softmax, which matter as one of √2."""
        limit = 0.5 if self.clip is None else min(self.clip, 0.5)
        return _descent(self, 0.25 * limit / 0.5, math.sqrt(2), RECORDS_DIFFER)


@pytree
class Hinge(_TwoClasses):
    """Support vector machine, labels as in logistic regression: loss = max(0, 1 − y·x'z).

    Guarantee: |slope| ≤ 1; attained, and so is 2 under *replace* (at z = 0, with x₂ = −x₁).
    """

    def losses(self, scores: Array) -> Array:
        return jnp.maximum(0, 1 - self.labels * scores)

    def slopes(self, scores: Array) -> Array:
        return -self.labels * (self.labels * scores < 1).astype(scores.dtype)

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        return 1.0

    @property
    def descent(self) -> Descent | None:
        """As if the kink were rounded off over a margin, of which two sevenths matter."""
        return _descent(self, 1.0, 2 / 7, 2.0)


@jax.jit
def _lengths(columns: Array) -> Array:
    """‖x‖₁ and ‖x‖₂ of every column."""
    return jnp.stack([jnp.linalg.norm(columns, ord=n, axis=0) for n in (1, 2)])


@renamed(slope_limit="clip", limit_form="clip_form")
@pytree
class SoftmaxRegression(LinearModel):
    """Multiclass logistic regression (Section 6.2): loss = −ln softmax(x'Z)_y.

    z is the matrix Z of shape (features, classes) in C order; labels are 0, ..., classes − 1.

    Guarantee: a record's gradient is the outer product of x and p − e_y, p = softmax(x'Z), so
    norms multiply. On the set two scores x'z_i, x'z_j differ by at most
    D = min(√2·B sup‖z‖₂, 2B₁ sup‖z‖_∞), for ‖z_i − z_j‖² ≤ 2(‖z_i‖² + ‖z_j‖²). So p is in
    the polytope {p_i ≤ e^D p_j}, whose vertices have entries of two values, of ratio e^D. A norm
    is convex and largest at a vertex; there p_y is low (lowering it raises 1 − p_y and all others)
    and j of the others are high: the L2 bound enumerates j. In L1, ‖p − e_y‖₁ = 2(1 − p_y).
    D → ∞ gives √2 and 2. Attained on symmetric boxes, and on balls for two classes; on balls with
    more classes not all vertices are within reach. *replace*: twice that; approached as D → 0 and
    as D → ∞.

    ``clip`` c clips slopes to length c (L2), in one of the forms above;
    if that is less than the bound above, NΔ_2 = cB, or 2cB under *replace*. ``clip_form``
    "convex" (the default): f is convex, and ``gradient`` is that of ``value``; in L1 slopes are at
    most √2·c. "norm": the slope keeps its direction and loses length, no more than it must.
    For more than two classes that is the gradient of no function: ``value`` is without the limit,
    and the theorems of Section 5 say nothing. In L1 slopes are at most 2c√(1 − 1/K). The
    bounds are attained where scores may be large; the norm form's L2 bound wherever a slope was
    that long. Privacy rests on neither convexity nor ``value``.
    """

    labels: Array = field(repr=False)
    classes: int = static()
    _: KW_ONLY
    clip_form: str = static(default="convex")
    lengths: Array = field(init=False, repr=False)  # ‖x_i‖₁ and ‖x_i‖₂, for the paper's Δ

    # v'(diag p − pp')v is the variance of v under p: at most (max v − min v)²/4 ≤ 2‖v‖²/4.
    curvature: ClassVar[float | None] = 0.5
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choice("clip_form", self.clip_form, FORMS)
        if count("classes", self.classes) < 2:
            raise InvalidInput(f"Expected classes >= 2, got classes={self.classes}.")
        super().__post_init__()
        labels = _whole_numbers(self.labels, self.features.shape[1])
        if labels.size and not (labels.min() >= 0 and labels.max() < self.classes):
            raise InvalidInput(
                f"Expected labels 0, ..., {self.classes - 1}, got another one in row "
                f"{np.flatnonzero((labels < 0) | (labels >= self.classes))[0] + 1}."
            )
        store(
            self,
            labels=jax.device_put(labels.astype(np.min_scalar_type(self.classes - 1))),
            lengths=_lengths(self.features),
        )

    @property
    def dimension(self) -> int:
        return self.feature_count * self.classes

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.classes

    def scores(self, z: Array) -> Array:
        return super().scores(z.reshape(-1, self.classes).T)

    def _is_label(self) -> Array:
        return jnp.arange(self.classes, dtype=self.labels.dtype)[:, None] == self.labels

    @property
    def clipped(self) -> bool:  # type: ignore[override]
        return self.clip is not None and self.clip_form == "norm" and self.classes > 2

    @property
    def largest_curvature(self) -> float | None:
        if self.clip is None:
            return self.curvature
        if self.clip_form == "norm":
            return min(0.5, 2 * self.clip * math.sqrt(1 - 1 / self.classes))
        return 2 * logistic_curvature(self.clip / math.sqrt(2))

    @property
    def descent(self) -> Descent | None:
        longest = math.sqrt(1 - 1 / self.classes)  # of slopes at z = 0
        limit = longest if self.clip is None else min(self.clip, longest)
        return _descent(self, limit / longest / self.classes, 1.0, RECORDS_DIFFER)

    def losses(self, scores: Array) -> Array:
        own = jnp.where(self._is_label(), scores, 0).sum(axis=0)
        if self.clip is not None and not self.clipped:
            u = jax.nn.logsumexp(jnp.where(self._is_label(), -jnp.inf, scores), axis=0) - own
            return limited_softplus(u, jnp.asarray(self.clip, scores.dtype) / math.sqrt(2))
        return jax.nn.logsumexp(scores, axis=0) - own

    def slopes(self, scores: Array) -> Array:
        """With a limit d·min(w, c/√2) or d·min(w, c/‖d‖); exponents are beside the largest score
        of the other classes."""
        is_label = self._is_label()
        if self.clip is None:
            return jax.nn.softmax(scores, axis=0) - is_label.astype(scores.dtype)
        others = jnp.where(is_label, -jnp.inf, scores)
        top = others.max(axis=0)
        powers, own = jnp.exp(others - top), jnp.where(is_label, scores, 0).sum(axis=0) - top
        total = powers.sum(axis=0)
        weight, shares = total / (total + jnp.exp(own)), powers / total
        convex = self.clip_form == "convex"
        length = math.sqrt(2) if convex else jnp.sqrt(1 + (shares**2).sum(axis=0))
        direction = jnp.where(is_label, -1, shares)
        return direction * jnp.minimum(weight, jnp.asarray(self.clip, scores.dtype) / length)

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        limit = math.inf if self.clip is None else self.clip
        if norm == 1:
            convex = self.clip_form == "convex"
            limit *= 2 * (math.sqrt(0.5) if convex else math.sqrt(1 - 1 / self.classes))
        D = min(
            math.sqrt(2) * self.feature_bound(2) * feasible_set.reach(2),
            2 * self.feature_bound(1) * feasible_set.reach(math.inf),
        ) * (1 + 2 * gamma(self._terms, self._unit))
        low, others = math.exp(-D), self.classes - 1  # the high value is 1, before normalising
        if norm == 1:
            return min(2 * others / (others + low), limit)

        def squared(j: int) -> float:
            total = j + (others - j + 1) * low
            return (1 - low / total) ** 2 + (j + (others - j) * low**2) / total**2

        return min(math.sqrt(max(squared(j) for j in range(1, others + 1))), limit)

    def paper_sensitivity(self, z: Array, norm: int) -> Array:
        """max_i ‖x_i‖·‖softmax(x_i'Z) − y_i‖/(N + 1) over the agent's own records (Section 6.2).

        Guarantee: none. The scale of the noise depends on private data and gives them away.
        """
        return self._largest_record(z, norm) / (self.normaliser + 1)

    def paper_output_sensitivity(self, z: Array, norm: int, curvature: Array | float) -> Array:
        """2 max_i ‖x_i‖·‖softmax(x_i'Z) − y_i‖/(N·c), c = 1/η + ρ (Huang et al., no constraints).

        Guarantee: none, as in ``paper_sensitivity``.
        """
        return 2 * self._largest_record(z, norm) / (self.normaliser * curvature)

    def _largest_record(self, z: Array, norm: int) -> Array:
        lengths = self.lengths[choice("norm", norm, (1, 2)) - 1]
        slopes = jnp.linalg.norm(self.slopes(self.scores(z)), ord=norm, axis=0)
        return jnp.max(lengths * slopes, initial=0).astype(z.dtype)


def _whole_numbers(labels: Any, records: int) -> Vector:
    numbers = array("labels", labels, (records,), dtype=np.float64)
    with np.errstate(invalid="ignore"):  # beyond 64 bits: not equal below
        whole = numbers.astype(np.int64)
    if (whole != numbers).any():
        raise InvalidInput("Expected whole numbers as labels, got fractions.")
    return whole


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

    def statistics(self) -> SecondMoments:
        own = type(self).slopes, type(self).losses
        if own != (LeastSquares.slopes, LeastSquares.losses):
            return super().statistics()  # type: ignore[return-value]  # refuses
        if self.moved_by is not None:
            raise InvalidInput(
                "Expected neighbours that differ by a record to release the sufficient statistics "
                "of least squares: where one target moves, features are public, and "
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
    """Least squares whose slope is clipped at ±``threshold``, so that outliers weigh less.

    loss = r²/2 for |r| ≤ threshold, else threshold·(|r| − threshold/2), with r = x'z − y.

    Guarantee: |slope| ≤ min(threshold, a + Y). *replace*: the smaller of twice that and the bound
    of ``LeastSquares``: a slope κr with κ ≤ 1 is that of the least-squares record (√κx, √κy).
    *move*: a slope changes by no more than the target does.
    """

    _: KW_ONLY
    threshold: float

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

    A ninth of it matters in a prediction: chosen on five tables (``learn/estimators.py``).
    """
    return Descent(float(curvature * B**2 * share), float(9 * B / largest), longest=2.0)


def _like_features(targets: Any, features: Array) -> Vector:
    return array("targets", targets, (features.shape[1],), dtype=features.dtype)


# --- clipped slopes and their losses -------------------------------------------------------------


def limited_softplus(u: Array, most: Array) -> Array:
    """ln(1 + e^u), going on as a straight line where its slope is ``most``."""
    below = jnp.where(most < 1, most, 0.5)
    t = jnp.where(most < 1, jnp.log(below) - jnp.log1p(-below), jnp.inf)
    return jax.nn.softplus(jnp.minimum(u, t)) + most * jnp.maximum(u - t, 0)


def logistic_curvature(limit: float) -> float:
    return limit * (1 - limit) if limit <= 0.5 else 0.25
