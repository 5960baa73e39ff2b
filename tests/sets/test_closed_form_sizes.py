"""Sizes of sets, on which sensitivities rest: never too small, exact where they are called so."""

import math

import numpy as np
import pytest
from closed_form_sets import CENTER, EXACT, SETS, every_set, few, points
from hypothesis import given

from tacit.errors import InvalidInput
from tacit.sets import Ball, Box, HalfSpace, Hyperplane, L1Ball, Product, Simplex


@every_set
@few
@given(v=points, u=points)
def test_sizes_bound_every_feasible_pair(name, v, u):
    feasible_set, _ = SETS[name]
    z, w = (np.asarray(feasible_set.project(p)) for p in (v, u))
    assert np.linalg.norm(z - w) <= feasible_set.diameter * (1 + 1e-12)
    for norm in (2, math.inf):
        assert np.linalg.norm(z, norm) <= feasible_set.radius(norm) * (1 + 1e-12)


@every_set
def test_sizes_are_reached_where_they_are_exact(name):
    feasible_set, _ = SETS[name]
    corners = 50.0 * np.array(np.meshgrid(*[[-1, 0, 1]] * 4)).reshape(4, -1).T
    tried = [*corners, *(CENTER + corners), *(CENTER * [1, 1, 0, 0] + corners), 100 * CENTER]
    found = np.array([feasible_set.project(p) for p in tried])
    assert np.abs(found).max() >= (1 - 1e-9) * feasible_set.radius(math.inf)
    if name in EXACT:
        distances = np.linalg.norm(found[:, None] - found[None], axis=2)
        assert distances.max() >= (1 - 1e-9) * feasible_set.diameter
        if name != "product":  # its farthest point pairs the farthest points of the parts
            assert np.linalg.norm(found, axis=1).max() >= (1 - 1e-9) * feasible_set.radius(2)


def test_sizes_by_hand():
    assert Box([-1.0, 0.0], [3.0, 3.0]).diameter == 5.0
    assert Box(-2, 1, 4).radius(2) == 4.0
    assert Ball([3.0, 4.0], 1.0).radius(2) == 6.0
    assert Simplex(1).diameter == 0.0
    assert L1Ball(1.0, center=[3.0, 4.0]).radius(2) == pytest.approx(math.hypot(3, 5))
    assert Product([Ball(0, 1, 2), Simplex(2)]).diameter == pytest.approx(math.sqrt(6))
    assert HalfSpace([1.0, 2.0], 1.0, lower=0.0).radius(math.inf) == pytest.approx(1.0)
    assert Hyperplane([1.0, 1.0], 1.0, 0.0, math.inf).diameter == pytest.approx(math.sqrt(2))
    for unbounded in (Box(0, math.inf, 2), HalfSpace([1.0, 1.0], 0.0), Hyperplane([1.0, 1.0], 0)):
        assert unbounded.diameter == math.inf
        assert unbounded.radius(2) == math.inf
    with pytest.raises(InvalidInput, match="norm"):
        Simplex(2).radius(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SETS)
def test_tolerances_are_a_few_units_in_the_last_place(name, dtype):
    W = SETS[name][0]
    unit = float(np.spacing(dtype(W.magnitude)))
    assert unit <= W.tolerance(dtype) <= 32 * unit


def test_a_plane_has_the_box_of_its_own_points():
    """x + y = 1.5 in the unit square: both between ½ and 1. x + y ≤ 1.5 has all of the square."""
    plane = Hyperplane([1.0, 1.0], 1.5, 0.0, 1.0)
    np.testing.assert_allclose(plane.around.lower, [0.5, 0.5], atol=1e-12)
    assert plane.diameter == pytest.approx(math.sqrt(0.5))
    np.testing.assert_allclose(HalfSpace([1.0, 1.0], 1.5, 0.0, 1.0).around.lower, 0.0, atol=1e-12)
