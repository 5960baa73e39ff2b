"""Second-order cones, linear constraints and bounds, as a model states them; polyhedra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.sets.boxes import bounds
from tacit.sets.conic import Conic
from tacit.sets.matrices import full_vector_of, sparse, vector_of


@dataclass(frozen=True)
class Cone:
    """One second-order cone constraint: ‖matrix @ z + shift‖₂ ≤ slope'z + limit.

    A number for ``shift`` or ``slope`` stands for a constant vector.
    """

    matrix: ArrayLike
    shift: ArrayLike = 0.0
    slope: ArrayLike = 0.0
    limit: float = 0.0


class ConeSet(Conic):
    """Second-order cones together with linear constraints; the set must be compact.

    {z : ‖F_k z + g_k‖₂ ≤ h_k'z + e_k for every cone k, matrix @ z ≤ offset,
    equality_matrix @ z = equality_offset, lower ≤ z ≤ upper}. Bounds may be numbers or vectors
    with infinite entries.
    """

    def __init__(
        self,
        cones: Sequence[Cone],
        *,
        matrix: Any = None,
        offset: ArrayLike | None = None,
        equality_matrix: Any = None,
        equality_offset: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        n = _variables([matrix, equality_matrix, *(cone.matrix for cone in cones)], [lower, upper])
        self._less = _rows("matrix", matrix, "offset", offset, n)
        self._equal = _rows(
            "equality_matrix", equality_matrix, "equality_offset", equality_offset, n
        )
        self._lower, self._upper = bounds(
            -math.inf if lower is None else lower, math.inf if upper is None else upper, n
        )
        self._cone_data = [_cone_data(cone, n) for cone in cones]
        super().__init__(*self._standard_form(n))

    def _standard_form(self, n: int) -> tuple[Any, Vector, list[tuple[str, int]]]:
        unit = sp.identity(n, format="csr")
        low, high = self._lower, self._upper
        fixed = low == high
        below, above = np.isfinite(low) & ~fixed, np.isfinite(high) & ~fixed
        parts = [
            ("zero", *self._equal),
            ("zero", unit[fixed], low[fixed]),
            ("nonneg", *self._less),
            ("nonneg", unit[above], high[above]),
            ("nonneg", -unit[below], -low[below]),
        ]
        for F, g, h, limit in self._cone_data:
            parts.append(("soc", sp.vstack([-h[None, :], -F]), np.append(limit, g)))
        parts = [part for part in parts if part[2].size]
        if not parts:
            raise InvalidSet("Expected a constraint: the set is unbounded.")
        matrix = sp.vstack([rows for _, rows, _ in parts])
        offset = np.concatenate([values for *_, values in parts])
        return matrix, offset, [(kind, values.size) for kind, _, values in parts]

    @property
    def _as_given(self) -> tuple[list[Any], Any]:
        return [self._less, self._equal, self._lower, self._upper], self._cone_data

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a constraint, as it was given, is broken."""
        z = vector_of("point", point, self.dimension)
        broken = [np.zeros(1), self._lower - z, z - self._upper]
        broken.append(self._less[0] @ z - self._less[1])
        broken.append(np.abs(self._equal[0] @ z - self._equal[1]))
        for F, g, h, limit in self._cone_data:
            broken.append(np.array([np.linalg.norm(F @ z + g) - h @ z - limit]))
        return float(np.concatenate(broken).max())


class Polyhedron(ConeSet):
    """The compact set {z : matrix @ z ≤ offset, equality_matrix @ z = equality_offset,
    lower ≤ z ≤ upper}; every part may be left out."""

    def __init__(
        self,
        matrix: Any = None,
        offset: ArrayLike | None = None,
        equality_matrix: Any = None,
        equality_offset: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        super().__init__(
            (),
            matrix=matrix,
            offset=offset,
            equality_matrix=equality_matrix,
            equality_offset=equality_offset,
            lower=lower,
            upper=upper,
        )


def _variables(matrices: Sequence[Any], vectors: Sequence[Any]) -> int:
    """The number of variables that the constraints speak about."""
    for matrix in matrices:
        if matrix is not None and len(np.shape(matrix)) == 2:
            return int(np.shape(matrix)[1])
    for vector in vectors:
        if vector is not None and np.ndim(vector) == 1:
            return int(np.size(vector))
    raise InvalidInput("Expected a matrix or a vector of bounds, got none.")


def _rows(name: str, matrix: Any, offset_name: str, offset: Any, n: int) -> tuple[Any, Vector]:
    """Rows of a linear constraint, none where it was left out."""
    if (matrix is None) != (offset is None):
        raise InvalidInput(f"Expected both or neither of {name} and {offset_name}.")
    if matrix is None:
        return sp.csc_matrix((0, n)), np.zeros(0)
    rows = sparse(name, matrix, n)
    return rows, vector_of(offset_name, offset, rows.shape[0])


def _cone_data(cone: Cone, n: int) -> tuple[Any, Vector, Vector, float]:
    matrix = sparse("the matrix of a cone", cone.matrix, n)
    shift = full_vector_of("the shift of a cone", cone.shift, matrix.shape[0])
    slope = full_vector_of("the slope of a cone", cone.slope, n)
    return matrix, shift, slope, float(errors.array("the limit of a cone", cone.limit, ()))
