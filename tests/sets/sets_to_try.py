"""One set of each kind, and the same in CVXPY's words, written without the code under test."""

import warnings
from functools import cache

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from tacit.sets import (
    Ball,
    Box,
    Cone,
    ConeSet,
    Conic,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Polyhedron,
    Product,
    Simplex,
    from_cvxpy,
)

CENTER = np.array([0.3, -0.2, 0.1, 0.0])
NORMAL = np.array([1.0, -2.0, 0.0, 0.5])
LOW, HIGH = np.array([-1.0, -1.0, 0.0, -2.0]), np.array([1.0, 0.5, 0.0, 3.0])
BUDGET = np.array([1.0, 2.0, 1.0, 3.0])

# name: the set, and the same set in CVXPY's words
CLOSED = {
    "box": (Box(LOW, HIGH), lambda z: [z >= LOW, z <= HIGH]),
    "non-negative": (NonNegative(4, 2.0), lambda z: [z >= 0, z <= 2]),
    "ball": (Ball(CENTER, 0.8), lambda z: [cp.norm(z - CENTER) <= 0.8]),
    "l1-ball": (L1Ball(0.8, 4, CENTER), lambda z: [cp.norm1(z - CENTER) <= 0.8]),
    "simplex": (Simplex(4, 1.5), lambda z: [z >= 0, cp.sum(z) == 1.5]),
    "half-space": (
        HalfSpace(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z <= -0.4, z >= LOW, z <= HIGH],
    ),
    "budget": (HalfSpace(BUDGET, 1.0, lower=0.0), lambda z: [BUDGET @ z <= 1, z >= 0]),
    "hyperplane": (
        Hyperplane(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z == -0.4, z >= LOW, z <= HIGH],
    ),
    "product": (
        Product([Ball(CENTER[:2], 0.8), Simplex(2)]),
        lambda z: [cp.norm(z[:2] - CENTER[:2]) <= 0.8, z[2:] >= 0, cp.sum(z[2:]) == 1],
    ),
}

A = np.array([[1.0, 1.0, 0.5], [-1.0, 2.0, 0.0], [0.0, -1.0, 1.0]])
B = np.array([1.0, 1.5, 0.8])
F, G, H = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]]), np.array([0.1, -0.2]), np.full(3, 0.1)


def with_equation(z):
    return [A @ z <= B, z[0] + z[1] + z[2] == 0.4, z >= -1, z <= 2]


def cones(z):
    return [cp.norm(F @ z + G) <= H @ z + 0.9, cp.norm(z) <= 1.2, A @ z <= B]


def with_auxiliaries(z):
    return [cp.norm1(z) <= 1.5, cp.sum_squares(z) <= 1, cp.max(z) <= 0.7]


def by_cvxpy(constraints, size=3):
    z = cp.Variable(size)
    return from_cvxpy(z, constraints(z))


# ‖z‖₁ ≤ 1.5 with auxiliary bounds t of |z|, written by hand in columns (t, z)
I = np.eye(3)  # noqa: E741
L1 = Conic(
    np.block([[-I, I], [-I, -I], [np.ones((1, 3)), np.zeros((1, 3))]]),
    np.array([0, 0, 0, 0, 0, 0, 1.5]),
    [("nonneg", 7)],
    variables=[3, 4, 5],
)
CONES = {
    "polyhedron": (
        Polyhedron(A, B, lower=-1, upper=1),
        lambda z: [A @ z <= B, z >= -1, z <= 1],
    ),
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
SETS = CLOSED | CONES


def image_set(rng, rare=()):
    """z = image @ x with x in a box and a ball, and a slack S @ z."""
    image = np.vstack([np.eye(3), rng.normal(size=(4, 3))])
    rows = np.vstack([np.eye(3), -np.eye(3), np.zeros((1, 3)), -np.eye(3)])
    offset = np.concatenate([np.ones(6), [1.2, 0, 0, 0]])
    slack = rng.normal(size=(2, 7))
    blocks = [("nonneg", 6), ("soc", 4)]
    return Conic(rows, offset, blocks, image=image, slack=slack, rare=rare), image, slack


@cache
def projection(name):
    """CVXPY's projection onto a set, as a function of a point and weights."""
    W, constraints = SETS[name]
    size = W.dimension
    z, root, target = cp.Variable(size), cp.Parameter(size, nonneg=True), cp.Parameter(size)
    objective = cp.sum_squares(cp.multiply(root, z) - target)
    problem = cp.Problem(cp.Minimize(objective), constraints(z))

    def project(v, c):
        root.value, target.value = np.sqrt(c), np.sqrt(c) * v
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            problem.solve(cp.CLARABEL, warm_start=False)
        if problem.status != "optimal":  # one of 400 points ends at its limit of iterations
            problem.solve(cp.SCS, eps=1e-10, max_iters=100_000)
        return z.value

    return project


def violation(name, point):
    z = cp.Variable(len(point))
    z.value = point
    return max(float(np.max(c.violation())) for c in SETS[name][1](z))
