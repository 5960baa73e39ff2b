"""What certified bounds count for rounding, term by term: the formulas of ``rounding.py``."""

import math

import numpy as np
import pytest
from small_objectives import CLASSES, FEATURES, N, sample

from tacit.objectives import Residual
from tacit.sets import Ball, Box

# L of the loss, scores of a record, and units beside the 64 of elementary functions
OF_LOSSES = {
    "least-squares": (1.0, 1, 0),
    "huber": (1.0, 1, 0),
    "quantile": (None, 1, 0),
    "hinge": (None, 1, 0),
    "logistic": (0.25, 1, 0),
    "softmax": (0.5, CLASSES, 0),
    "limited-logistic": (None, 1, 64),
    "limited-softmax": (None, CLASSES, 64),
}


@pytest.mark.parametrize("name", OF_LOSSES)
@pytest.mark.parametrize("relation", ["add-remove", "replace", "zero-out"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_counted_for_rounding_is_the_formula(name, relation, dtype):
    """Each term of ``rounding.py`` written out: no measured error would miss a factor of two."""
    W = Ball(0.0, 1.5, FEATURES * (CLASSES if "softmax" in name else 1))
    lipschitz, scores, more = OF_LOSSES[name]
    for most in (1, 400, 501, 20_000):
        X = np.zeros((1, FEATURES), dtype)
        f = sample(name, X, np.zeros(1), neighbours=relation, record_bound=most)
        shifting = relation == "add-remove"
        double = 2.0**-53
        unit = double if shifting or dtype is np.float64 else 2.0**-24
        margin = (64 + more + 2 * scores) * unit

        def γ(n, u=double):
            return n * u / (1 - n * u)

        L = f.largest_curvature if more else lipschitz
        for norm in (1, 2):
            S = f.slope_bound(norm, W) * (1 + margin)
            b, largest = (
                f.feature_bound(norm),
                min(
                    f.feature_bound(2) * W.reach(2),
                    math.sqrt(scores) * f.feature_bound(1) * W.reach(math.inf),
                ),
            )
            e = 0.0
            if L is not None and not (more and not shifting):
                wide = math.sqrt(scores) if norm == 1 else 1.0
                e = L * wide * γ(FEATURES + 1, unit) * largest + margin * S
            if shifting:
                expected = 2 * e * b * most + 2 * γ(most + 2) * most * S * b
            else:
                block = min(500, most)
                expected = 2 * e * b + 2 * γ(block + 2, unit) * block * S * b
                expected += 2 * γ(most / 500 + 2) * most * S * b
            assert f._rounding(norm, W) == pytest.approx(expected, rel=1e-9)
            exact = f._largest_change(norm, W)
            plain = f.slope_bound(norm, W) * b * (2 if relation == "replace" else 1)
            if name != "least-squares" or relation != "replace":
                assert exact == pytest.approx(plain, rel=1e-13)
            total = (exact * (1 + margin) + expected) * (1 + 1e-12) / N
            assert f.sensitivity(norm, W) == pytest.approx(total, rel=1e-15)


@pytest.mark.parametrize("norm", [1, 2])
def test_what_is_counted_for_rounding_of_a_residual_is_the_formula(norm):
    """2β and 2u·|largest| of each entry that moves, the norms of both added."""
    A, β = np.array([[1.0, -2.0], [0.5, 3.0], [0.0, 1.0]]), [0.1, 0.0, 0.3]
    parts_of = {(1, None): [0, 2], (2, None): [[0, 2]], (1, (0, 0, 1)): [[0, 1], [2]]}
    for (moved, groups), parts in parts_of.items():
        f = Residual(A, np.zeros(3), β, moved, groups=groups, data_bound=7.0)
        rounded = 2 * 2.0**-53 * f._largest * (np.array(β) > 0)
        expected = 0.0
        for own in 2 * np.array(β), rounded:
            expected += max(np.linalg.norm(np.atleast_1d(own[part]), norm) for part in parts)
        assert rounded.max() > 0
        expected *= 1 + 1e-12
        assert f.sensitivity(norm, Box(-1.0, 1.0, 2)) == pytest.approx(expected, rel=1e-14)
