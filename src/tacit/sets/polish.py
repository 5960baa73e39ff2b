"""A few Newton steps that sharpen an interior-point solution of a small cone program.

An interior-point solver stops on the objective, which feels only the square of the error in x: a
gap of 1e-10 leaves 1e-5 in x where the boundary is curved. The optimality conditions of

    min ½x'Px + q'x   subject to   s = b − Ax in K

are Px + q + A'y = 0 and s = Proj_K(s − y). They are piecewise smooth, so that Newton's method,
started at the solver's answer, gains the missing digits in one to three steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit._types import Vector

NEWTON_STEPS = 12


def polish(
    P: Vector,
    q: Vector,
    A: Vector,
    b: Vector,
    cones: Sequence[tuple[str, int]],
    x: Vector,
    y: Vector,
) -> tuple[Vector, float]:
    """The best x met on the way and the residual of the optimality conditions there.

    ``P`` and ``A`` are dense, (x, y) the solver's primal and dual answer.
    """
    n = len(x)
    best, least = x, np.inf
    for _ in range(NEWTON_STEPS):
        s = b - A @ x
        projected, J = _project(s - y, cones)
        residual = np.concatenate([P @ x + q + A.T @ y, s - projected])
        size = float(np.abs(residual).max())
        if size < least:
            best, least = x, size
        elif not size < 1e3 * least:  # also NaN
            break
        if size < 1e-14:
            break
        top = np.hstack([P, A.T])
        bottom = np.hstack([J @ A - A, J])
        step = _solve(np.vstack([top, bottom]), -residual)
        x, y = x + step[:n], y + step[n:]
    return best, least


def _solve(matrix: Vector, right: Vector) -> Vector:
    """A solution of the Newton system; the shortest where duals are not unique."""
    try:
        step = np.linalg.solve(matrix, right)
        if np.abs(step).max() <= 1e3 * np.abs(right).max() * len(right):
            return step
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(matrix, right, rcond=1e-10)[0]


def _project(u: Vector, cones: Sequence[tuple[str, int]]) -> tuple[Vector, Vector]:
    """Proj_K(u) and an element of its generalised Jacobian."""
    projected, J = np.zeros_like(u), np.zeros((len(u), len(u)))
    start = 0
    for kind, m in cones:
        rows = slice(start, start + m)
        start += m
        if kind == "nonneg":
            projected[rows] = np.maximum(u[rows], 0.0)
            J[rows, rows] = np.diag((u[rows] > 0).astype(np.float64))
        elif kind == "soc":
            projected[rows], J[rows, rows] = _project_cone(u[rows])
    return projected, J


def _project_cone(u: Vector) -> tuple[Vector, Vector]:
    """Projection onto {(t, w) : ‖w‖ ≤ t} and its Jacobian."""
    t, w = u[0], u[1:]
    length = float(np.linalg.norm(w))
    if length <= t:
        return u, np.eye(len(u))
    if length <= -t:
        return np.zeros_like(u), np.zeros((len(u), len(u)))
    unit, ratio = w / length, t / length
    J = np.empty((len(u), len(u)))
    J[0, 0] = 1.0
    J[0, 1:] = J[1:, 0] = unit
    J[1:, 1:] = (1 + ratio) * np.eye(len(w)) - ratio * np.outer(unit, unit)
    return (t + length) / 2 * np.concatenate([[1.0], unit]), J / 2
