"""The proof by signs: never for an unbounded set, and found for sets of the usual kinds."""

import numpy as np
import pytest
import scipy.sparse as sp
from cone_sets import SETS
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.sets.radii import bounded_by_signs

PLAIN = ["polyhedron", "equation"]


@pytest.mark.parametrize("name", PLAIN)
def test_bounds_of_all_variables_are_a_proof(name):
    matrix, _, cones = SETS[name][0].constraints
    assert bounded_by_signs(matrix, cones)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_bound_is_no_proof(sign):
    """x ≤ 1 or x ≥ −1 alone, beside a variable with both."""
    rows = [[sign, 0], [0, 1.0], [0, -1.0]]
    assert not bounded_by_signs(sp.csc_matrix(rows), (("nonneg", 3),))
    assert bounded_by_signs(sp.csc_matrix([*rows, [-sign, 0]]), (("nonneg", 4),))


def test_a_cone_is_bounded_by_its_head():
    """‖(c, s)‖ ≤ u with 0 ≤ u ≤ 1; without an upper bound of u it is a cone to infinity."""
    bounds, cone = np.array([[1.0, 0, 0], [-1.0, 0, 0]]), -np.eye(3)
    both = sp.csc_matrix(np.vstack([bounds, cone]))
    assert bounded_by_signs(both, (("nonneg", 2), ("soc", 3)))
    assert not bounded_by_signs(
        sp.csc_matrix(np.vstack([bounds[1:], cone])), (("nonneg", 1), ("soc", 3))
    )
    chain = np.array([[1.0, 0], [0, 1.0], [1.0, 1.0]])  # x = 0 follows, then y from x + y = 1
    assert bounded_by_signs(sp.csc_matrix(chain[[0, 2]]), (("zero", 2),))
    assert not bounded_by_signs(sp.csc_matrix(chain[2:]), (("zero", 1),))


@settings(max_examples=repeat(100, 200))
@given(seed=st.integers(0, 10**6))
def test_no_proof_where_there_is_a_way_to_infinity(seed):
    """Random rows through a chosen d ≠ 0 with −matrix @ d in K: the set is unbounded, if any."""
    rng = np.random.default_rng(seed)
    d = rng.integers(-1, 2, size=4).astype(float)
    d[rng.integers(4)] = 1.0
    rows, cones = [], []
    for _ in range(rng.integers(1, 9)):
        row = rng.integers(-1, 2, size=4).astype(float)
        along = row @ d
        if rng.uniform() < 0.3 and along == 0:
            rows.append(row), cones.append(("zero", 1))
        elif rng.uniform() < 0.5:
            rows.append(-np.sign(along) * row if along else row), cones.append(("nonneg", 1))
        else:
            body = rng.integers(-1, 2, size=(2, 4)).astype(float)
            head = -np.linalg.norm(body @ d) / (d @ d) * d  # −head'd = ‖body @ d‖
            rows.extend([head, *body]), cones.append(("soc", 3))
    assert not bounded_by_signs(sp.csc_matrix(np.array(rows)), tuple(cones))
