"""How far cone sets reach: proven bounds above the largest norms and distances over them.

For W = {z = Lx : b − Ax in K}, where L picks or combines columns of x, three steps:

1. The smallest box l ≤ z ≤ h around W, by 2n linear programs over the cone, and the box of the
   auxiliary variables by two more each.
2. sup ‖z‖₂² is the largest value of a convex function, which no solver finds. Put τ_i for z_i²:
   linear conditions that every square obeys leave a linear program whose value is at least the
   true one (McCormick 1976; Sherali and Adams 1990):

       τ ≤ (l + h)z − lh     the chord above the square; τ ≥ 2mz − m², tangents
       D'τ + ... ≤ 0         ‖s‖² ≤ t² of a cone (t, s), with a diagonal D below its matrix
       (b_p − a_p'x)(b_q − a_q'x) ≥ 0 for rows |y| ≤ t, and summed over rows −c ≤ a'x ≤ b

3. The diameter likewise, with d_i for (u_i − v_i)² of two points, and z, τ for their averages:

       d ≤ 4τ − 8cz + 4c²    2u² + 2v² − (u + v)², and (u + v)² above its tangent at 2c
       d ≤ 2(h − l)(z − l)   |u − v| ≤ h − l and |u − v| ≤ (u − l) + (v − l); from h alike

The values are exact, up to 1e-8, for boxes, simplices, Euclidean and L1 balls,
budgets, ellipsoids around 0, and products of these; for others they are bounds.

Guarantee: no bound rests on the solver's answer. It is computed from dual points as ``certified``
says, which proves it for any y; a bad y gives a large bound. Rounding is inside. One thing is taken
for granted: an auxiliary variable that is unbounded by itself needs no value larger than all
others. Nothing private is read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.errors import InvalidSet, SolverFailure
from tacit.sets.cone_program import ACCURACY, Blocks, Program, rows_by_kind

UNIT = float(np.finfo(np.float64).eps)
MOST_DENSE = 200  # columns of a cone up to which the smallest eigenvalue of its matrix is computed
Quadratics = tuple[Any, Any, Vector]  # rows D and l, and numbers k


@dataclass(frozen=True, eq=False)
class Rows:
    """The constraints b − Ax in K, and a solver for linear functions over them."""

    matrix: Any
    offset: Vector
    cones: Blocks

    @cached_property
    def _program(self) -> Program:
        nothing = sp.csc_matrix((self.matrix.shape[1],) * 2)
        return Program(nothing, self.matrix, self.offset, self.cones)

    @cached_property
    def _absolute(self) -> Any:
        return abs(self.matrix).T.tocsr()

    def largest(self, q: Vector) -> tuple[float, Vector] | None:
        """A value m and errors r with q'x ≤ m + r'|x| wherever the rows hold; None if unbounded."""
        status, _, y = self._program.minimise("DualInfeasible", q=-q)
        return None if status == "DualInfeasible" else self.certified(q, y)

    def certified(self, q: Vector, y: Vector) -> tuple[float, Vector]:
        """m and r with q'x ≤ m + r'|x| wherever the rows hold, from a dual point, whatever it is.

        y, brought into the dual cone K*, has y'(b − Ax) ≥ 0, so q'x ≤ b'y + (q − A'y)'x. A sum
        of k rounded products is off by at most k units of the sum of their absolute values.
        """
        y = _into_dual_cone(y, self.cones)
        size, units = np.abs(y), (len(y) + 3) * UNIT
        m = float(self.offset @ y + units * (np.abs(self.offset) @ size))
        return m, np.abs(q - self.matrix.T @ y) + units * (np.abs(q) + self._absolute @ size)


def _into_dual_cone(y: Vector, cones: Blocks) -> Vector:
    y = y.copy()
    for kind, rows in rows_by_kind(cones):
        if kind == "nonneg":
            y[rows] = np.maximum(y[rows], 0.0)
        elif kind == "soc":
            length = np.sqrt((y[rows[:, 1:]] ** 2).sum(axis=1))
            y[rows[:, 0]] = np.maximum(y[rows[:, 0]], length * (1 + rows.shape[1] * UNIT))
    return y


@dataclass(frozen=True, eq=False)
class Sizes:
    """The sizes of {z = Lx}, each solved for on first use.

    ``forms`` are the rows of L and of the auxiliary variables, ``places`` says which of them each
    column of x is, and the first ``size`` are z.
    """

    rows: Rows
    forms: Any
    places: Any
    size: int

    @cached_property
    def box(self) -> tuple[Vector, Vector]:
        """The smallest bounds of z and of the auxiliary variables, rounded outwards.

        Every column of x is one of the forms, so that with X = sup ‖x‖_∞ all of them are at most
        m + ‖r‖₁X, hence X ≤ max m/(1 − max ‖r‖₁), and ‖r‖₁X is what the solver's error costs. z
        must be bounded.
        """
        count = self.forms.shape[0]
        value, error = np.full((2, 2 * count), np.inf)
        for k in range(2 * count):
            form = self.forms[[k % count]].toarray()[0]
            found = self.rows.largest(form if k < count else -form)
            if found is not None:
                value[k], error[k] = found[0], found[1].sum()
            elif k % count < self.size:
                raise InvalidSet(
                    f"Expected a compact set, got one that is unbounded in coordinate {k % count}."
                )
        bounded = np.isfinite(value)
        most = error[bounded].max()
        if not most < 0.5:
            raise SolverFailure(
                f"Expected a proof of how far the set reaches, got errors of {most:g}."
            )
        reach = max(value[bounded].max(), 0.0) / (1 - most)
        value[bounded] += error[bounded] * reach + ACCURACY * (1 + reach)
        return -value[count:], value[:count]

    @cached_property
    def longest(self) -> float:
        """sup ‖z‖₂, or a bound above it."""
        lower, upper = (bound[: self.size] for bound in self.box)
        in_box = float(np.linalg.norm(np.maximum(np.abs(lower), np.abs(upper))))
        squares = self.rows.matrix.shape[1]
        return min(self._root(slice(squares, squares + self.size)), in_box)

    @cached_property
    def widest(self) -> float:
        """sup ‖u − v‖₂, or a bound above it."""
        lower, upper = (bound[: self.size] for bound in self.box)
        distances = self.rows.matrix.shape[1] + len(self.box[0])
        in_box = float(np.linalg.norm(upper - lower))
        return min(self._root(slice(distances, None)), 2 * self.longest, in_box)

    @cached_property
    def _lifted(self) -> tuple[Rows, Vector, float]:
        """The linear program over (x, τ, d) of steps 2 and 3, the largest values of these, and the
        largest coordinate, in units of which both are."""
        box, forms, places, size = self.box, self.forms, self.places, self.size
        known = np.isfinite(box[0]) & np.isfinite(box[1])
        scale = float(np.abs(np.stack(box))[:, known].max()) or 1.0
        # what is unbounded by itself has no square, and is taken to be no larger than the scale
        low, high = np.where(known, np.stack(box) / scale, [[-1.0], [1.0]])
        rows = Rows(self.rows.matrix, self.rows.offset / scale, self.rows.cones)
        square = sp.identity(len(low), format="csr")
        # rows, and what they say of x, τ and d
        nothing = sp.csr_matrix((len(rows.offset), len(low) + size))
        blocks = [[rows.matrix, nothing[:, : len(low)], nothing[:, len(low) :]]]
        offsets = [rows.offset]

        def add(on_x: Any, on_squares: Any, on_distances: Any, offset: Vector) -> None:
            blocks.append([on_x, on_squares, on_distances])
            offsets.append(offset)

        lo, hi, L, τ = low[known], high[known], forms[known], square[known]
        add(-times(lo + hi, L), τ, None, -lo * hi)
        for m in (lo, (lo + hi) / 2, hi):
            add(times(2 * m, L), -τ, None, m**2)
        bounds = (bound[places] / scale for bound in box)
        for D, linear, constant in quadratics(rows.matrix, rows.offset, rows.cones, *bounds):
            usable = abs(sp.csr_matrix(D)) @ ~known[places] == 0
            on_squares = sp.csr_matrix(D)[usable] @ square[places]
            add(sp.csr_matrix(linear)[usable], on_squares, None, -constant[usable])
        lo, hi, L, d = low[:size], high[:size], forms[:size], sp.identity(size)
        c = (lo + hi) / 2
        add(times(8 * c, L), -4 * square[:size], d, 4 * c**2)
        add(-times(2 * (hi - lo), L), None, d, -2 * (hi - lo) * lo)
        add(times(2 * (hi - lo), L), None, d, 2 * (hi - lo) * hi)

        offset = np.concatenate(offsets)
        added = ("nonneg", len(offset) - len(rows.offset))
        largest = np.maximum(-low, high)
        most = np.concatenate([largest[places], largest**2, (hi - lo) ** 2])
        return Rows(sp.csc_matrix(sp.bmat(blocks)), offset, (*rows.cones, added)), most, scale

    def _root(self, entries: slice) -> float:
        """The root of the largest sum of some entries of (x, τ, d); inf if the solver fails."""
        rows, most, scale = self._lifted
        q = np.zeros(len(most))
        q[entries] = 1.0
        try:
            found = rows.largest(q)
        except SolverFailure:
            found = None
        if found is None:
            return math.inf
        value = found[0] + float(found[1] @ most) * (1 + len(q) * UNIT)
        return scale * math.sqrt(max(value, 0.0)) * (1 + ACCURACY)


# --- squares -----------------------------------------------------------------------------------


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
        p, q = np.array(opposite).T
        both, values = sp.vstack([A[p], A[q]]), np.concatenate([b[p], b[q]])
        crossed = np.concatenate([b[q], b[p]])
        yield from _diagonal(A[p], -np.ones(len(p)), A[q], crossed, -b[p] * b[q], both, values)
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
