"""Losses of classes: logistic and softmax regression, support vector machines.

As in ``losses.py``; two of them can limit what one record pulls (``slope_limits.py``).
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, array, choice, count
from tacit.objectives.linear_model import LinearModel
from tacit.objectives.objective import Descent
from tacit.objectives.rounding import gamma
from tacit.objectives.slope_limits import (
    FORMS,
    STEPS,
    largest_softmax_slope,
    limited_sigmoid,
    limited_softplus,
    logistic_curvature,
    softmax_curvature,
    softmax_losses,
    softmax_slopes,
)
from tacit.pytree import later, pytree, static, store

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

RECORDS_DIFFER = 10.0  # steps, times the curvature of records that are alike, that were stable


def _descent(f: LinearModel, curvature: float, unit: float, longest: float) -> Descent:
    """``curvature`` of a record's loss at z = 0; ``unit``: what matters of a score."""
    B, share = f.feature_bound(2), f.most_records / f.normaliser
    return Descent(float(curvature * B**2 * share + f.ridge), float(B / unit), longest)


@pytree
class LogisticRegression(LinearModel):
    """Two classes, labelled 0 and 1 or −1 and +1: loss = ln(1 + exp(−y·x'z)) with y = ±1.

    Guarantee: |slope| = sigmoid(−y·s) ≤ sigmoid(a) for |s| ≤ a; attained on balls and boxes
    around 0. *replace*: twice that, attained in the limits a → 0 and a → ∞; between them the
    bound is up to 1.4 times what can happen.

    ``slope_limit`` c: the loss goes on as a straight line where its slope reaches c
    (``slope_limits.py``), so |slope| ≤ min(c, sigmoid(a)) and, for c < sigmoid(a), NΔ_2 = cB, or
    2cB under *replace*: attained. In a softmax of two classes the same limit is √2·c.
    """

    labels: Array = field(repr=False)

    curvature: ClassVar[float | None] = 0.25
    no_limit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, labels=_signs(self.labels, self.features.shape[1]))

    def losses(self, scores: Array) -> Array:
        u = -self.labels * scores
        if self.slope_limit is None:
            return jax.nn.softplus(u)
        return limited_softplus(u, jnp.asarray(self.slope_limit, u.dtype))

    def slopes(self, scores: Array) -> Array:
        u = -self.labels * scores
        if self.slope_limit is None:
            return -self.labels * jax.nn.sigmoid(u)
        return -self.labels * limited_sigmoid(u, self.slope_limit)

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        largest = 1 / (1 + math.exp(-self.score_bound(feasible_set)))
        return largest if self.slope_limit is None else min(largest, self.slope_limit)

    @property
    def largest_curvature(self) -> float | None:
        limit = self.slope_limit
        return self.curvature if limit is None else logistic_curvature(limit)

    @property
    def descent(self) -> Descent | None:
        """Its score is the difference of two of a softmax, which matter as one of √2."""
        limit = 0.5 if self.slope_limit is None else min(self.slope_limit, 0.5)
        return _descent(self, 0.25 * limit / 0.5, math.sqrt(2), RECORDS_DIFFER)


@pytree
class Hinge(LinearModel):
    """Support vector machine, labels as in logistic regression: loss = max(0, 1 − y·x'z).

    Guarantee: |slope| ≤ 1; attained, and so is 2 under *replace* (at z = 0, with x₂ = −x₁).
    """

    labels: Array = field(repr=False)

    no_limit: ClassVar[str] = STEPS

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, labels=_signs(self.labels, self.features.shape[1]))

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
    more classes not all vertices are within reach (in trials the bound was up to 1.13 times too
    large). *replace*: twice that; approached as D → 0 and as D → ∞, between them (trials with 3
    and 10 classes on boxes) up to 1.26 times too large.

    ``slope_limit`` c: no slope is longer than c (L2), in one of the forms of ``slope_limits.py``;
    if that is less than the bound above, NΔ_2 = cB, or 2cB under *replace*. ``limit_form``
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
    limit_form: str = later(static=True, default="convex")
    lengths: Array = field(init=False, repr=False)  # ‖x_i‖₁ and ‖x_i‖₂, for the paper's Δ

    # v'(diag p − pp')v is the variance of v under p: at most (max v − min v)²/4 ≤ 2‖v‖²/4.
    curvature: ClassVar[float | None] = 0.5
    no_limit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        choice("limit_form", self.limit_form, FORMS)
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
        return self._scores_of(z.reshape(-1, self.classes).T)

    def _is_label(self) -> Array:
        return jnp.arange(self.classes, dtype=self.labels.dtype)[:, None] == self.labels

    @property
    def clipped(self) -> bool:  # type: ignore[override]
        return self.slope_limit is not None and self.limit_form == "norm" and self.classes > 2

    @property
    def largest_curvature(self) -> float | None:
        if self.slope_limit is None:
            return self.curvature
        return softmax_curvature(self.slope_limit, self.limit_form, self.classes)

    @property
    def descent(self) -> Descent | None:
        longest = math.sqrt(1 - 1 / self.classes)  # of slopes at z = 0
        limit = longest if self.slope_limit is None else min(self.slope_limit, longest)
        return _descent(self, limit / longest / self.classes, 1.0, RECORDS_DIFFER)

    def losses(self, scores: Array) -> Array:
        if self.slope_limit is not None and not self.clipped:
            return softmax_losses(scores, self._is_label(), self.slope_limit)
        own = jnp.where(self._is_label(), scores, 0).sum(axis=0)
        return jax.nn.logsumexp(scores, axis=0) - own

    def slopes(self, scores: Array) -> Array:
        if self.slope_limit is not None:
            return softmax_slopes(scores, self._is_label(), self.slope_limit, self.limit_form)
        return jax.nn.softmax(scores, axis=0) - self._is_label().astype(scores.dtype)

    def slope_bound(self, norm: int, feasible_set: FeasibleSet) -> float:
        largest = self._largest_slope(norm, feasible_set)
        if self.slope_limit is None:
            return largest
        c = self.slope_limit
        return min(largest, largest_softmax_slope(norm, c, self.limit_form, self.classes))

    def _largest_slope(self, norm: int, feasible_set: FeasibleSet) -> float:
        """Without a limit."""
        D = min(
            math.sqrt(2) * self.feature_bound(2) * feasible_set.reach(2),
            2 * self.feature_bound(1) * feasible_set.reach(math.inf),
        ) * (1 + 2 * gamma(self._terms, self._unit))
        low, others = math.exp(-D), self.classes - 1  # the high value is 1, before normalising
        if norm == 1:
            return 2 * others / (others + low)

        def squared(j: int) -> float:
            total = j + (others - j + 1) * low
            return (1 - low / total) ** 2 + (j + (others - j) * low**2) / total**2

        return math.sqrt(max(squared(j) for j in range(1, others + 1)))

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


def _signs(labels: Any, records: int) -> Array:
    """Labels 0/1 or −1/+1 as −1/+1 in one byte each."""
    numbers = _whole_numbers(labels, records)
    found = {int(n) for n in np.unique(numbers)}
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise InvalidInput("Expected labels 0 and 1, or -1 and +1, got others, or both kinds.")
    return jax.device_put(np.where(numbers > 0, 1, -1).astype(np.int8))
