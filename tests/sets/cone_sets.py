"""Sets on which a solver projects, one of each kind, and the same in CVXPY's words."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from tacit.sets import Cone, ConeSet, Conic, Polyhedron, from_cvxpy

A = np.array([[1.0, 1.0, 0.5], [-1.0, 2.0, 0.0], [0.0, -1.0, 1.0]])
B = np.array([1.0, 1.5, 0.8])
F, G, H = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]]), np.array([0.1, -0.2]), np.full(3, 0.1)


def polyhedron(z):
    return [A @ z <= B, z >= -1, z <= 1]


def with_equation(z):
    return [A @ z <= B, z[0] + z[1] + z[2] == 0.4, z >= -1, z <= 2]


def cones(z):
    return [cp.norm(F @ z + G) <= H @ z + 0.9, cp.norm(z) <= 1.2, A @ z <= B]


def with_auxiliaries(z):
    return [cp.norm1(z) <= 1.5, cp.sum_squares(z) <= 1, cp.max(z) <= 0.7]


def by_cvxpy(constraints):
    z = cp.Variable(3)
    return from_cvxpy(z, constraints(z))


# ‖z‖₁ ≤ 1.5 with auxiliary bounds t of |z|, written by hand in columns (t, z)
I, O = np.eye(3), np.zeros((3, 3))  # noqa: E741
L1 = Conic(
    np.block([[-I, I], [-I, -I], [np.ones((1, 3)), np.zeros((1, 3))]]),
    np.array([0, 0, 0, 0, 0, 0, 1.5]),
    [("nonneg", 7)],
    variables=[3, 4, 5],
)

# name: the set, the same set in CVXPY's words
SETS = {
    "polyhedron": (Polyhedron(A, B, lower=-1, upper=1), polyhedron),
    "equation": (
        Polyhedron(sp.csr_matrix(A), B, [[1.0, 1.0, 1.0]], [0.4], lower=-1, upper=2),
        with_equation,
    ),
    "cones": (
        ConeSet([Cone(F, G, H, 0.9), Cone(np.eye(3), limit=1.2)], matrix=A, offset=B),
        cones,
    ),
    "auxiliaries": (L1, lambda z: [cp.norm1(z) <= 1.5]),
    "cvxpy-linear": (by_cvxpy(with_equation), with_equation),
    "cvxpy-cones": (by_cvxpy(cones), cones),
    "cvxpy-auxiliaries": (by_cvxpy(with_auxiliaries), with_auxiliaries),
}
CURVED = {"cones", "cvxpy-cones", "cvxpy-auxiliaries"}


def image_set(rng, rare=()):
    """z = image @ x with x in a box and a ball, and a slack S @ z."""
    image = np.vstack([np.eye(3), rng.normal(size=(4, 3))])
    rows = np.vstack([np.eye(3), -np.eye(3), np.zeros((1, 3)), -np.eye(3)])
    offset = np.concatenate([np.ones(6), [1.2, 0, 0, 0]])
    slack = rng.normal(size=(2, 7))
    cones = [("nonneg", 6), ("soc", 4)]
    return Conic(rows, offset, cones, image=image, slack=slack, rare=rare), image, slack
