"""What a server chooses from round to round where data were read once: mixing, penalties, the end.

All of it is computed from public numbers, agents' z and the s that follow from them, so it is
post-processing of the one release. With noise in every round none of it is allowed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from tacit._types import Vector
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.admm.fixed_point import Instructions, Iterate

MEMORY = 10  # steps that count
RIDGE = 1e-6  # of the least squares for θ, relative
LONGEST_STEP = 1e3  # K: an accelerated step in units of the plain one
ALLOWANCE, DECAY = 10.0, 1.1  # an accelerated step needs ‖g‖ ≤ 10‖g¹‖/(steps so far)^1.1
SETBACK = 2.0  # and no more than twice the smallest ‖g‖ so far


@dataclass(frozen=True)
class Residuals:
    """How far z is from an optimum (Boyd et al., 2011, Section 3.3.1), over all copies.

    ``primal`` is ‖z − z̄‖, ``dual`` the norm of the mean of λ⁺ = ρ(s − z) over the holders; both
    are zero at an optimum only (``fixed_point.py``). By group too, for adapting penalties.
    """

    primal: float
    dual: float
    size: float  # ‖z̄‖
    multiplier: float  # ‖λ⁺‖
    copies: int
    primal_of: Vector
    dual_of: Vector

    @property
    def relative(self) -> float:
        """‖z − z̄‖/‖z̄‖."""
        return self.primal / self.size if self.size > 0 else math.inf if self.primal else 0.0

    def within(self, tolerance: float, absolute: float) -> bool:
        """‖z − z̄‖ ≤ √n·absolute + tolerance·‖z̄‖ and the same of the duals."""
        least = math.sqrt(self.copies) * absolute
        return (
            self.primal <= least + tolerance * self.size
            and self.dual <= least + tolerance * self.multiplier
        )


def residuals(now: Iterate, z: Vector, holders: Holders, index: Vector) -> Residuals:
    """The residuals at z, all copies one after another; ``index`` names their coordinates."""
    mean = average_over_holders(z, holders)[index]
    λ = now.penalty * (now.s - z)
    unbalanced = average_over_holders(λ, holders)[index]
    apart, groups = z - mean, int(now.group.max(initial=0)) + 1
    return Residuals(
        float(np.linalg.norm(apart)),
        float(np.linalg.norm(unbalanced)),
        float(np.linalg.norm(mean)),
        float(np.linalg.norm(λ)),
        len(z),
        np.sqrt(np.bincount(now.group, apart**2, groups)),
        np.sqrt(np.bincount(now.group, unbalanced**2, groups)),
    )


@dataclass(frozen=True)
class Progress:
    """What the server remembers besides the iterate, to keep acceleration safe."""

    first: float = math.inf  # ‖g‖ at the start, and after every change of penalties
    best: float = math.inf
    accelerated: int = 0

    def choose(self, now: Iterate, w: Vector, z: Vector) -> tuple[Instructions, Progress]:
        """Anderson acceleration of type II with safeguards.

        θ minimises ‖g − Σ_k θ_k (change of g, k steps ago)‖ in the metric ρ, with a small ridge.

        The accelerated step is taken only where ‖g‖ ≤ 10‖g¹‖/n^1.1 for the n-th one, ‖g‖ is at most
        twice the smallest so far, and the step differs from the plain one by at most K‖g‖;
        otherwise s⁺ = s + g, and if ‖g‖ has grown earlier steps are forgotten.
        So it converges whatever θ is: the plain map is firmly non-expansive, ‖Ts − s*‖² ≤
        ‖s − s*‖² − ‖g‖² for every fixed point s*, and the accelerated steps differ from it by
        Σ K‖g‖ ≤ 10K‖g¹‖ Σ 1/n^1.1 < ∞. Hence ‖s − s*‖ converges (quasi-Fejér), Σ‖g‖² < ∞, and s
        converges to a fixed point (Combettes, 2001; Zhang, O'Donoghue and Boyd, 2020).
        """
        g = w - z
        length = _norm(g, now.penalty)
        first = length if math.isinf(self.first) else self.first
        now = now.remembering(w, z)
        progress = Progress(first, min(self.best, length), self.accelerated)
        if not now.residuals:
            return Instructions(), progress
        if length > SETBACK * self.best:
            return Instructions(forget=True), progress
        if length > ALLOWANCE * first / (self.accelerated + 1) ** DECAY:
            return Instructions(), progress
        θ = _mixing(now, g)
        step = sum(a * b for a, b in zip(θ, now.steps, strict=True))
        if not _norm(step, now.penalty) <= LONGEST_STEP * length:
            return Instructions(forget=True), progress
        progress = dataclasses.replace(progress, accelerated=self.accelerated + 1)
        return Instructions(tuple(θ.tolist())), progress


def _mixing(now: Iterate, g: Vector) -> Vector:
    root = np.sqrt(now.penalty)
    changes = np.stack([root * change for change in now.residuals], axis=1)
    ridge = RIDGE * np.linalg.norm(changes) * np.eye(changes.shape[1])
    right = np.concatenate([root * g, np.zeros(changes.shape[1])])
    θ: Vector = np.linalg.lstsq(np.vstack([changes, ridge]), right, rcond=None)[0]
    return θ


def _norm(x: Vector, penalty: Vector) -> float:
    return float(np.sqrt(np.sum(penalty * x * x)))
