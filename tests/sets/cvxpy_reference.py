"""The weighted projection as a CVXPY problem, written without the code under test."""

import cvxpy as cp
import numpy as np


def projection(constraints, size):
    """A function of a point and weights, for the constraints on a variable of ``size`` numbers."""
    z, root, target = cp.Variable(size), cp.Parameter(size, nonneg=True), cp.Parameter(size)
    objective = cp.sum_squares(cp.multiply(root, z) - target)
    problem = cp.Problem(cp.Minimize(objective), constraints(z))

    def project(v, c):
        root.value, target.value = np.sqrt(c), np.sqrt(c) * v
        problem.solve(cp.CLARABEL)
        return z.value

    return project


def violation(constraints, point):
    z = cp.Variable(len(point))
    z.value = point
    return max(float(np.max(c.violation())) for c in constraints(z))
