"""Secure sums: nobody learns a part, and all add the noise of one."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.admm.settings import Asked
from tacit.errors import InvalidInput
from tacit.objectives import LeastSquares, LogisticRegression
from tacit.sets import Box

BUDGET = Asked(1.0, 1e-5)


def parties(many=4, kind="classes", each=30, size=3):
    """Parties with records of one kind on one common set."""
    rng = np.random.default_rng(0)
    found = []
    for p in range(many):
        X = rng.normal(size=(each, size)) / 2
        common = {"feature_norm": 1.0, "normaliser": many * each, "ridge": 1e-3}
        common["neighbours"] = "zero-out"
        if kind == "classes":
            f = LogisticRegression(X, X @ np.ones(size) > 0, **common)
        else:
            f = LeastSquares(X, X @ np.ones(size), target_bound=1.0, **common)
        found.append(tacit.LocalProblem(f, Box(-3, 3, size=size), name=f"party {p}"))
    return found


def test_masks_change_no_bit():
    given = parties()
    plain, masked = (
        tacit.solve(given, BUDGET, seed=1, aggregation="sum", batch=batch)
        for batch in (None, False)
    )
    assert np.array_equal(plain.solution, masked.solution)
    assert plain.privacy == masked.privacy
    assert plain.privacy.parties == 4 and plain.privacy.colluding == 1
    assert plain.names == tuple(p.name for p in given) and len(plain.local) == 4


@pytest.mark.parametrize("many, colluding", [(2, 1), (4, 0), (4, 3), (4, 4), (4, -1), (4, True)])
def test_sums_that_bring_nothing_are_refused(many, colluding):
    with pytest.raises(InvalidInput, match="Nothing was computed"):
        tacit.solve(parties(many), BUDGET, seed=1, aggregation="sum", colluding=colluding)
