"""CVXPY constraints as sets."""

import math
import sys

import cvxpy as cp
import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.sets import from_cvxpy


def test_violation_leaves_the_users_variable_alone():
    z = cp.Variable(2)
    z.value = [7.0, 8.0]
    feasible_set = from_cvxpy(z, [z >= 0, cp.sum(z) <= 1])
    assert feasible_set.violation([2.0, 0.0]) == pytest.approx(1.0)
    assert list(z.value) == [7.0, 8.0]


def test_cvxpy_domains_count_in_the_violation():
    z = cp.Variable(2)
    feasible_set = from_cvxpy(z, [cp.quad_over_lin(z[0], z[1]) <= 1, z[1] <= 1])
    assert feasible_set.violation([0.5, 0.5]) == pytest.approx(0.0, abs=1e-12)
    assert feasible_set.violation([0.0, -0.5]) >= 0.5
    assert feasible_set.project([0.0, -0.5])[1] >= -1e-7


def test_projections_stay_within_the_radius_that_sensitivities_use():
    z = cp.Variable(2)
    feasible_set = from_cvxpy(z, [cp.sum_squares(z) <= 1e-10])
    reach = feasible_set.radius(math.inf), feasible_set.radius(2)
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = feasible_set.project(10 ** rng.uniform(-6, 1) * rng.normal(size=2))
        assert np.abs(p).max() <= reach[0] and np.linalg.norm(p) <= reach[1]


def test_one_constraint_needs_no_list_and_other_things_are_refused():
    z = cp.Variable(2)
    assert from_cvxpy(z, cp.norm(z) <= 1).dimension == 2
    with pytest.raises(InvalidInput, match="CVXPY constraints"):
        from_cvxpy(z, [True, cp.norm(z) <= 1])


def test_missing_cvxpy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tacit\[cvxpy\]'"):
        from_cvxpy(None, [])
