"""Sets with a projection formula, one of each kind, and points and weights to try."""

import cvxpy as cp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.sets import Ball, Box, HalfSpace, Hyperplane, L1Ball, NonNegative, Product, Simplex

CENTER = np.array([0.3, -0.2, 0.1, 0.0])
NORMAL = np.array([1.0, -2.0, 0.0, 0.5])
LOW, HIGH = np.array([-1.0, -1.0, 0.0, -2.0]), np.array([1.0, 0.5, 0.0, 3.0])

# name: the set, and the same set in CVXPY's words
SETS = {
    "box": (Box(LOW, HIGH), lambda z: [z >= LOW, z <= HIGH]),
    "non-negative": (NonNegative(4, 2.0), lambda z: [z >= 0, z <= 2]),
    "ball": (Ball(CENTER, 0.8), lambda z: [cp.norm(z - CENTER) <= 0.8]),
    "l1-ball": (L1Ball(0.8, 4, CENTER), lambda z: [cp.norm1(z - CENTER) <= 0.8]),
    "simplex": (Simplex(4, 1.5), lambda z: [z >= 0, cp.sum(z) == 1.5]),
    "half-space": (
        HalfSpace(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z <= -0.4, z >= LOW, z <= HIGH],
    ),
    "budget": (
        HalfSpace([1.0, 2.0, 1.0, 3.0], 1.0, lower=0.0),
        lambda z: [z @ np.array([1.0, 2.0, 1.0, 3.0]) <= 1, z >= 0],
    ),
    "hyperplane": (
        Hyperplane(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z == -0.4, z >= LOW, z <= HIGH],
    ),
    "product": (
        Product([Ball(CENTER[:2], 0.8), Simplex(2)]),
        lambda z: [cp.norm(z[:2] - CENTER[:2]) <= 0.8, z[2:] >= 0, cp.sum(z[2:]) == 1],
    ),
}
EXACT = {"box", "non-negative", "ball", "l1-ball", "simplex", "product"}  # diameter and radius

every_set = pytest.mark.parametrize("name", SETS)
points = st.builds(
    lambda v, scale: v * scale,
    arrays(np.float64, 4, elements=st.floats(-3, 3)),
    st.sampled_from([0.1, 1.0, 300.0]),
)
weights = arrays(np.float64, 4, elements=st.floats(0.1, 10))
few = settings(deadline=None, max_examples=repeat(10, 30))
