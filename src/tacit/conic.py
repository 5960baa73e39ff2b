"""Feasible sets whose projection is a small cone program, solved by Clarabel on the host.

    Conic                       {z : offset − matrix @ z in a product of cones}
    ├── ConeSet, Polyhedron     built from second-order cones, inequalities, equations and bounds
    └── from_cvxpy              built from CVXPY constraints on one variable

A set is analysed once. A projection then changes only the numbers of the objective in place, so
that the solver keeps its symbolic factorisation (Section 4.2: one projection per update).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from jax.typing import ArrayLike

from tacit import errors
from tacit.errors import NOT_DONE, InvalidInput, InvalidSet, SolverFailure
from tacit.sets import Box, FeasibleSet, Vector, bounds

Cones = tuple[tuple[str, int], ...]

ACCURACY = 1e-9  # what the solver is asked for
ACCEPTED = 1e-7  # largest violation of an answer that the solver calls almost solved
PADDING = 1e-6  # support values are moved outwards by this share of the largest


class Conic(FeasibleSet):
    """The set {z : offset − matrix @ z in K} for a product K of cones; it must be compact.

    ``cones`` lists the blocks of rows in order: ``("zero", m)`` for m equations, ``("nonneg", m)``
    for m inequalities, ``("soc", m)`` for a second-order cone {(t, x) : ‖x‖₂ ≤ t} of m rows.
    ``variables`` names the columns that are z when the others are auxiliary variables, which are
    free to take any value that makes z feasible.

    Projections have the solver's accuracy: the violation is about 1e-9. The distance to the exact
    projection is of that size on flat faces and up to about 1e-5 on curved ones, where
    the solver's error in the objective is the square of the error in z. A point that is feasible to
    1e-9 is returned as it is. ``diameter`` and ``radius`` are those of the smallest box
    around the set (2n solves, on first use): bounds above the true ones.
    """

    def __init__(
        self,
        matrix: Any,
        offset: ArrayLike,
        cones: Sequence[tuple[str, int]],
        *,
        variables: ArrayLike | None = None,
    ) -> None:
        self._matrix = _sparse("matrix", matrix)
        rows, columns = self._matrix.shape
        self._offset = errors.array("offset", offset, (rows,), dtype=np.float64).copy()
        self._cones: Cones = tuple(
            (errors.choice("cone", kind, ("zero", "nonneg", "soc")), errors.count("cone size", m))
            for kind, m in cones
        )
        if sum(m for _, m in self._cones) != rows:
            raise InvalidInput(f"Expected cones for {rows} rows, got {self._cones}. {NOT_DONE}")
        self._columns = _column_indices(variables, columns)
        shape = (columns, columns)
        diagonal = sp.csc_matrix(
            (np.ones(self._columns.size), (self._columns, self._columns)), shape=shape
        )
        self._nearest = _Program(diagonal, self._matrix, self._offset, self._cones)
        self._farthest = _Program(
            sp.csc_matrix(shape), self._matrix, self._offset, self._cones
        )
        self._refuse_empty()
        self._refuse_unbounded()

    @property
    def closed_form(self) -> bool:
        return False

    @property
    def dimension(self) -> int:
        return int(self._columns.size)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Vector:
        v = errors.array("point", point, (self.dimension,), dtype=np.float64)
        c = _weights(weight, self.dimension)
        if self.violation(v) <= ACCURACY:
            return v.copy()
        status, x = self._solve_nearest(v, c)
        if x is None:
            raise SolverFailure(f"Expected a solved projection, got {status}. {NOT_DONE}")
        return x[self._columns]

    def _solve_nearest(self, v: Vector, c: Vector) -> tuple[str, Vector | None]:
        # Clarabel needs an objective of moderate size; far points made it fail without this.
        scale = max(float(np.max(c)), float(np.max(c * np.abs(v))))
        linear = np.zeros(self._matrix.shape[1])
        linear[self._columns] = -c * v / scale
        status, solution = self._nearest.minimise(P=self._order(c / scale), q=linear)
        return status, None if solution is None else np.asarray(solution.x)

    def _order(self, weight: Vector) -> Vector:
        """Weights in the order in which the columns hold them."""
        return weight[np.argsort(self._columns)]

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a row is broken, for the best choice of auxiliary variables."""
        z = errors.array("point", point, (self.dimension,), dtype=np.float64)
        slack = self._offset - self._matrix[:, self._columns] @ z
        if self.dimension == self._matrix.shape[1]:
            return _broken(slack, self._cones)
        status, solution = self._least_broken.minimise(b=self._doubled(slack))
        if solution is None:
            raise SolverFailure(f"Expected a solved violation, got {status}. {NOT_DONE}")
        return max(float(solution.x[-1]), 0.0)
