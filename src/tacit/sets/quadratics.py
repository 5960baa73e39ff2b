"""What the constraints of a cone set say about squares: conditions D'x² + l'x + k ≤ 0.

A cone ‖s‖₂ ≤ t gives ‖s‖² ≤ t², two inequalities p ≥ 0 and q ≥ 0 give pq ≥ 0. Both are quadratic
in x; what is not a square in them is bounded by squares: Q ⪰ diag(D) makes x'Qx ≥ D'x².

Guarantee: every x that satisfies the constraints satisfies the conditions. Rounding is inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.sets.cone_program import Blocks

UNIT = float(np.finfo(np.float64).eps)
MOST_DENSE = 200  # columns of a cone up to which the smallest eigenvalue of its matrix is computed
Quadratics = tuple[Any, Any, Vector]  # rows D and l, and numbers k


def quadratics(A: Any, b: Vector, cones: Blocks, low: Vector, high: Vector) -> Iterator[Quadratics]:
    """Conditions D'x² + l'x + k ≤ 0 that follow from b − Ax in K and |x| ≤ 1.

    ``low`` and ``high`` are bounds of x, some of which may be infinite.
    """
    A = sp.csr_matrix(A)
    A.eliminate_zeros()
    A.sort_indices()
    inequalities: list[int] = []
    start = 0
    for kind, m in cones:
        if kind == "nonneg":
            inequalities.extend(range(start, start + m))
        elif kind == "soc":
            yield from _of_a_cone(A[start : start + m], b[start : start + m], low, high)
        start += m
    yield from _of_pairs(A[inequalities], b[inequalities])


def _of_a_cone(A: Any, b: Vector, low: Vector, high: Vector) -> Iterator[Quadratics]:
    """From ‖s‖₂ ≤ t, the rows (t, s) = b − Ax: ‖s‖² − t² ≤ 0.

    Where t is not constant also ‖s‖² ≤ (t₀ + t₁)t − t₀t₁ for 0 ≤ t₀ ≤ t ≤ t₁.
    """
    signs = np.append(-1.0, np.ones(len(b) - 1))
    yield from _diagonal(A, signs, A, -2 * (signs * b), signs * b**2, A, b)
    head = A[[0]]
    ends = head.data * low[head.indices], head.data * high[head.indices]
    if head.nnz and np.isfinite(ends).all():
        least = max(float(b[0] - np.maximum(*ends).sum()), 0.0)
        most = max(float(b[0] - np.minimum(*ends).sum()), least)
        on_rows = np.append(least + most, -2 * b[1:])
        constants = np.append(least * most - (least + most) * b[0], b[1:] ** 2)
        yield from _diagonal(A[1:], np.ones(len(b) - 1), A[1:], on_rows, constants, A, b)


def _of_pairs(A: Any, b: Vector) -> Iterator[Quadratics]:
    """From the products of two inequalities b_p − a_p'x ≥ 0, where little but squares is in them.

    Rows of the same two columns, as |y| ≤ t gives, one by one; rows a and −a summed over all.
    """
    by_columns: dict[Any, list[int]] = defaultdict(list)
    by_line: dict[Any, list[int]] = defaultdict(list)
    for p in range(A.shape[0]):
        entries = slice(A.indptr[p], A.indptr[p + 1])
        columns, values = tuple(A.indices[entries]), A.data[entries]
        if len(columns) == 2:
            by_columns[columns].append(p)
        if len(columns) > 1:  # a bound on one column is in the box
            by_line[columns, tuple(np.round(values * np.sign(values[0]), 9))].append(p)
    sign = {p: np.sign(A.data[A.indptr[p]]) for found in by_line.values() for p in found}
    opposite = [
        (found[0], q) for found in by_line.values() for q in found[1:] if sign[q] != sign[found[0]]
    ]
    if opposite:
        yield from _of_products(A, b, opposite)
    absolute = []
    for found in by_columns.values():
        for p, q in combinations(found[:4], 2):
            (a, c), (e, f) = (A.data[A.indptr[k] : A.indptr[k + 1]] for k in (p, q))
            if abs(a * f + c * e) <= 1e-12 * (abs(a * f) + abs(c * e)):
                absolute.append((p, q))
    if absolute:
        p, q = np.array(absolute).T
        P, Q, ones = A[p], A[q], np.ones(A.shape[1])
        margin = 1e-12 * (abs(P) @ ones) * (abs(Q) @ ones)  # of what is not a square, and rounding
        D = -P.multiply(Q) - times(margin, (abs(P) + abs(Q)).sign())
        given = np.abs(b[p]) * (np.abs(b[q]) + abs(Q) @ ones) + np.abs(b[q]) * (abs(P) @ ones)
        yield D, times(b[p], Q) + times(b[q], P), -b[p] * b[q] - 1e-12 * given


def _of_products(A: Any, b: Vector, pairs: list[tuple[int, int]]) -> Iterator[Quadratics]:
    """−Σ(b_p − a_p'x)(b_q − a_q'x) ≤ 0 over pairs of rows."""
    p, q = np.array(pairs).T
    both, values = sp.vstack([A[p], A[q]]), np.concatenate([b[p], b[q]])
    crossed = np.concatenate([b[q], b[p]])
    yield from _diagonal(A[p], -np.ones(len(p)), A[q], crossed, -b[p] * b[q], both, values)


def _diagonal(
    left: Any, weights: Vector, right: Any, on_rows: Vector, constants: Vector, A: Any, b: Vector
) -> Iterator[Quadratics]:
    """x'Qx + on_rows'Ax + Σ constants ≤ 0 with diagonals D below Q = Σ weights·left·right'.

    Below Q are its diagonal less the sums of the others in a row (Gershgorin), and its smallest
    eigenvalue. What rounding may have taken is given back, for |x| ≤ 1.
    """
    Q = left.T @ sp.diags(weights) @ right
    Q = sp.csr_matrix((Q + Q.T) / 2)
    units = 4 * (sum(A.shape) + 4) * UNIT
    lost = abs(left).T @ (sp.diags(np.abs(weights)) @ abs(right))
    lost = units * np.asarray((lost + lost.T).sum(axis=1)).ravel()
    linear = (A.T @ on_rows)[None]
    given = float(abs(A).T.dot(np.abs(on_rows)).sum() + np.abs(constants).sum() + (b**2).sum())
    constant = np.array([float(constants.sum()) - units * given])
    main = Q.diagonal()
    others = np.asarray(abs(Q).sum(axis=1)).ravel() - np.abs(main)
    if (main - others > 0).any() or not others.any():
        yield main[None] - others - lost, linear, constant
    used = np.flatnonzero(np.diff(Q.indptr))
    if others.any() and len(used) <= MOST_DENSE:
        dense = Q[used][:, used].toarray()
        least = float(np.linalg.eigvalsh(dense)[0]) - units * float(np.abs(dense).sum())
        if least > 0:
            D = np.zeros((1, len(main)))
            D[0, used] = least
            yield D - lost, linear, constant


def times(by: Vector, forms: Any) -> Any:
    return sp.diags(by) @ forms
