"""Feasible sets whose projection is a small cone program, solved by Clarabel on the host.

    Conic                {z : offset − matrix @ z in a product of cones}
    ├── ConeSet          second-order cones, inequalities, equations and bounds
    │   └── Polyhedron   the same without cones
    └── from_cvxpy(...)  CVXPY constraints on one variable

A set is analysed once. A projection then changes only the numbers of the objective in place, so
that the solver keeps its symbolic factorisation.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from jax.typing import ArrayLike

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, InvalidSet
from tacit.sets.closed_form import Box, bounds
from tacit.sets.cone_program import (
    Blocks,
    Program,
    broken,
    full_vector_of,
    row_scale,
    sparse,
    vector_of,
    weighted_square,
)
from tacit.sets.feasible_set import FeasibleSet
from tacit.sets.radii import Rows, Sizes


class Conic(FeasibleSet):
    """The set {z : offset − matrix @ z in K} for a product K of cones; it must be compact.

    ``cones`` lists the blocks of rows in order: ``("zero", m)`` for m equations, ``("nonneg", m)``
    for m inequalities, ``("soc", m)`` for a second-order cone {(t, x) : ‖x‖₂ ≤ t} of m rows.
    ``variables`` names the columns that are z; the other columns are auxiliary variables, free to
    take any value that makes z feasible. ``image`` gives z = image @ x instead, for constraints
    that are written in fewer variables x (the columns); each x must itself be an entry of z
    (``entries`` says which).

    ``slack`` is a matrix S whose rows S @ z have weights of their own: ``project`` then also
    takes a point and weights for (z, Sz), and minimises Σ c_i(z_i − v_i)² + Σ c_k((Sz)_k − v_k)².

    ``rare`` names cones (by their place in ``cones``) that seldom bind: a projection leaves them
    out, and is done again with them if its answer breaks one.

    Rows are scaled to length 1. With numbers of about 1 the violation of a projection is then about
    1e-9. Its error is below 1e-10 up to 150 rows and columns (``polish``); beyond, 1e-7 on
    polyhedra and 1e-6 (worst seen 5e-5) on cones; with ``image`` 1e-5 to 1e-4 on power grids.

    ``radius(inf)`` is exact, ``radius(2)`` and ``diameter`` are exact on simple sets and proven
    bounds on others: see ``radii.py``. They take two solves for each variable, on first use.
    """

    _as_given: tuple[Any, ...] = ()

    def __init__(
        self,
        matrix: Any,
        offset: ArrayLike,
        cones: Sequence[tuple[str, int]],
        *,
        variables: ArrayLike | None = None,
        image: Any = None,
        slack: Any = None,
        rare: Sequence[int] = (),
    ) -> None:
        self._matrix = sparse("matrix", matrix)
        rows, columns = self._matrix.shape
        self._offset = vector_of("offset", offset, rows)
        self._cones: Blocks = tuple(
            (errors.choice("cone", kind, ("zero", "nonneg", "soc")), errors.count("cone size", m))
            for kind, m in cones
        )
        if sum(m for _, m in self._cones) != rows:
            raise InvalidInput(f"Expected cones for {rows} rows, got {self._cones}.")
        self._columns = _column_indices(variables, columns)
        self._image, self.entries = _image(image, self._columns, columns)
        slack = None if slack is None else sp.csr_matrix(sparse("slack", slack, self.dimension))
        self._slack = slack
        lifted = [self._image] if self._slack is None else [self._image, self._slack @ self._image]
        self._lifted = sp.vstack(lifted, format="csr")
        self._adjoint = sp.csr_matrix(self._lifted.T)
        P, self._curvature = weighted_square(self._lifted)
        scale = row_scale(self._matrix, self._cones)
        self._matrix = sp.csc_matrix(sp.diags(scale) @ self._matrix)
        self._offset = scale * self._offset
        self._own = self._matrix[:, self._columns]
        self._nearest = Program(
            P, self._matrix, self._offset, self._cones, fast=image is not None, rare=rare
        )
        self.rare = tuple(rare)
        self._around: Box | None = None
        self._longest: float | None = None
        self._refuse_empty()
        self._refuse_unbounded()

    closed_form = False

    @property
    def dimension(self) -> int:
        return int(self._image.shape[0])

    @property
    def slack_size(self) -> int:
        return int(self._lifted.shape[0]) - self.dimension

    def slack_of(self, point: Vector) -> Vector:
        """S @ z."""
        slack: Vector = self._slack @ point
        return slack

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Vector:
        size = self.dimension
        with_slack = self.slack_size > 0 and np.size(point) == size + self.slack_size
        size += self.slack_size if with_slack else 0
        v = vector_of("point", point, size)
        c = full_vector_of("weight", 1.0 if weight is None else weight, size)
        if not (c > 0).all():
            raise InvalidInput(f"Expected weights > 0, got {weight}.")
        if not with_slack and self.violation(v) <= 0:
            return v
        return self._within_sizes(self._image @ self._find_nearest(v, c))

    def _within_sizes(self, z: Vector) -> Vector:
        """z, or where a radius was asked for the nearest point within it: it holds for all answers.

        No point of W is beyond a radius, so that neither step is longer than z is far from W.
        """
        if self._around is not None:
            z = np.clip(z, np.asarray(self._around.lower), np.asarray(self._around.upper))
        if self._longest is not None and (length := float(np.linalg.norm(z))) > self._longest:
            z = z * (self._longest / length * (1 - len(z) * float(np.finfo(z.dtype).eps)))
        return z

    def linearised(self, point: Vector, weight: Vector) -> tuple[Vector, Vector]:
        """The projection's x and the matrix H for which it moves by H⁻¹ lifted'(c dv) with v.

        ``lifted`` is image with slack @ image below it. On the boundary of a face the derivative
        of a projection jumps; this one is smoothed by the solver's barrier.
        """
        scale, numbers = self._numbers(point, weight)
        _, x, y = self._nearest.minimise(**numbers)
        return x, scale * self._nearest.curvature(numbers["P"], x, y)

    @property
    def constraints(self) -> tuple[Any, Vector, Blocks]:
        """Matrix, offset and cones, rows scaled to length 1."""
        return self._matrix, self._offset, self._cones

    @property
    def parts(self) -> tuple[Any, ...]:
        """All that makes this set and its projections: constraints, variables, image, slack, rare,
        and the constraints as they were given, where a subclass keeps them."""
        rare, given = self._nearest.rare, self._as_given
        return *self.constraints, self._columns, self._image, self._slack, rare, given

    def _numbers(self, v: Vector, c: Vector) -> tuple[float, dict[str, Any]]:
        """P and q of Σ c_i((lifted x)_i − v_i)²/2, divided by the first value.

        Numbers of about 1: Clarabel fails on points that are 1e6 away otherwise.
        """
        scale = max(float(c.max()), float((c * np.abs(v)).max()))
        return scale, {"P": self._curvature @ (c / scale), "q": self._adjoint @ (-c * v / scale)}

    def _find_nearest(self, v: Vector, c: Vector) -> Vector:
        """The x of the projection."""
        if len(v) < self._lifted.shape[0]:  # no weight on the slack
            v, c = (np.append(values, np.zeros(self.slack_size)) for values in (v, c))
        _, numbers = self._numbers(v, c)
        return self._nearest.find(**numbers)

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a row, scaled to length 1, is broken.

        Auxiliary variables are chosen to make it small. With ``image``, also by which z differs
        from image @ x.
        """
        z = vector_of("point", point, self.dimension)
        x = z[self.entries]
        margins = self._offset - self._own @ x
        if len(self.entries) < self.dimension:
            apart = float(np.abs(z - self._image @ x).max())
            return max(broken(margins, self._cones), apart)
        if self.dimension == self._matrix.shape[1]:
            return broken(margins, self._cones)
        program, expand = self._relaxed
        _, x, _ = program.minimise(b=np.append(expand @ margins, 0.0))
        return max(float(x[-1]), 0.0)

    @property
    def widths(self) -> Vector:
        return self.around.widths

    @property
    def diameter(self) -> float:
        return self._sizes.widest

    def radius(self, norm: float) -> float:
        """Largest ‖z‖₂ or ‖z‖_∞, or a bound above it. From now on projections end within it."""
        if errors.choice("norm", norm, (2, math.inf)) == math.inf:
            return self.around.radius(norm)
        if self._longest is None:
            self._longest = self._sizes.longest
        return self._longest

    @property
    def around(self) -> Box:
        """The smallest box around W. From its first use on, projections end inside it."""
        if self._around is None:
            n, (lower, upper) = self.dimension, self._sizes.box
            self._around = Box(lower[:n], upper[:n])
        return self._around

    def tolerance(self, dtype: Any) -> float:
        """What the solver may leave: a ten-thousandth of the largest offset, or of 1."""
        return 1e-4 * max(1.0, float(np.abs(self._offset).max(initial=0)))

    def _refuse_empty(self) -> None:
        origin, weight = np.zeros(self._lifted.shape[0]), np.zeros(self._lifted.shape[0])
        weight[: self.dimension] = 1.0
        _, numbers = self._numbers(origin, weight)
        status, *_ = self._nearest.minimise("PrimalInfeasible", **numbers)
        if status == "PrimalInfeasible":
            raise InvalidSet("Expected a set with a point in it: the set is empty.")

    def _refuse_unbounded(self) -> None:
        """W is bounded if no d ≠ 0 has −matrix @ d in K.

        Largest g'd and −g'd over such d in the unit box, for a g in general position: one of them
        is positive unless d = 0 is the only one. A positive value alone does not refuse the set:
        auxiliary variables may grow while z does not, and a long thin set looks unbounded to
        the solver's accuracy. Then the box around the set decides.
        """
        columns = self._matrix.shape[1]
        box = sp.identity(columns)
        matrix = sp.csc_matrix(sp.vstack([self._matrix, box, -box]))
        offset = np.concatenate([np.zeros(self._offset.size), np.ones(2 * columns)])
        cones = (*self._cones, ("nonneg", 2 * columns))
        rays = Program(sp.csc_matrix((columns, columns)), matrix, offset, cones)
        direction = np.random.default_rng(0).normal(size=columns)
        for g in (direction, -direction):
            _, x, _ = rays.minimise(q=-g)
            if g @ x > 1e-4:
                _ = self.around
                return

    @cached_property
    def _sizes(self) -> Sizes:
        auxiliary = np.setdiff1d(np.arange(self._matrix.shape[1]), self._columns)
        columns = np.concatenate([self._columns, auxiliary])
        places = np.concatenate([self.entries, self.dimension + np.arange(len(auxiliary))])
        unit = sp.identity(self._matrix.shape[1], format="csr")
        forms = sp.vstack([self._image, unit[auxiliary]], format="csr")
        return Sizes(Rows(*self.constraints), forms, places[np.argsort(columns)], self.dimension)

    @cached_property
    def _relaxed(self) -> tuple[Program, Any]:
        """Least t ≥ 0 for which the rows, each relaxed by t, hold for some auxiliary variables.

        The second value turns the margins of the rows into those of the relaxed ones, in which an
        equation is two inequalities.
        """
        expand, relax, cones = [], [], []
        for kind, m in self._cones:
            unit = sp.identity(m)
            expand.append(sp.vstack([unit, -unit]) if kind == "zero" else unit)
            cones.append((kind, m) if kind == "soc" else ("nonneg", expand[-1].shape[0]))
            relax.append(np.eye(1, m)[0] if kind == "soc" else np.ones(expand[-1].shape[0]))
        expansion = sp.csc_matrix(sp.block_diag(expand))
        auxiliary = np.setdiff1d(np.arange(self._matrix.shape[1]), self._columns)
        t = np.append(np.concatenate(relax), 1.0)[:, None]
        free = sp.vstack(
            [expansion @ self._matrix[:, auxiliary], sp.csc_matrix((1, auxiliary.size))]
        )
        matrix = sp.csc_matrix(sp.hstack([free, -t]))
        P = sp.csc_matrix((auxiliary.size + 1,) * 2)
        q = np.append(np.zeros(auxiliary.size), 1.0)
        blocks = (*cones, ("nonneg", 1))
        return Program(P, matrix, np.zeros(matrix.shape[0]), blocks, q), expansion


def _column_indices(variables: ArrayLike | None, columns: int) -> np.ndarray[Any, np.dtype[Any]]:
    if variables is None:
        return np.arange(columns)
    indices = np.asarray(variables)
    shared = np.intersect1d(indices, np.arange(columns))
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not 0 < indices.size == shared.size:
        raise InvalidInput(
            f"Expected variables to be different columns out of {columns}, got {variables}."
        )
    return indices


def _image(image: Any, variables: Any, columns: int) -> tuple[Any, Any]:
    """The matrix of z = image @ x, and the entries of z that are the x at ``variables``."""
    if image is None:
        return sp.identity(columns, format="csr")[variables], np.arange(len(variables))
    matrix = sp.csr_matrix(sparse("image", image, columns))
    single = np.flatnonzero(np.diff(matrix.indptr) == 1)
    single = single[matrix.data[matrix.indptr[single]] == 1]
    column, first = np.unique(matrix.indices[matrix.indptr[single]], return_index=True)
    if len(column) != columns or len(variables) != columns:
        missing = np.setdiff1d(np.arange(columns), column).tolist()
        raise InvalidInput(
            f"Expected every column to be an entry of image @ x, got none for {missing}."
        )
    return matrix, single[first]


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
        matrix: Any = None,
        offset: ArrayLike | None = None,
        equality_matrix: Any = None,
        equality_offset: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        n = _variables([matrix, equality_matrix, *(cone.matrix for cone in cones)], [lower, upper])
        less = _rows("matrix", matrix, "offset", offset, n)
        equal = _rows("equality_matrix", equality_matrix, "equality_offset", equality_offset, n)
        ends = -math.inf if lower is None else lower, math.inf if upper is None else upper
        low, high = bounds(*ends, n)
        data = [_cone_data(cone, n) for cone in cones]
        self._as_given = less, equal, low, high, data
        unit = sp.identity(n, format="csr")
        fixed = low == high
        below, above = np.isfinite(low) & ~fixed, np.isfinite(high) & ~fixed
        parts = [
            ("zero", *equal),
            ("zero", unit[fixed], low[fixed]),
            ("nonneg", *less),
            ("nonneg", unit[above], high[above]),
            ("nonneg", -unit[below], -low[below]),
        ]
        for F, g, h, limit in data:
            parts.append(("soc", sp.vstack([-h[None, :], -F]), np.append(limit, g)))
        parts = [part for part in parts if part[2].size]
        if not parts:
            raise InvalidSet("Expected a constraint: the set is unbounded.")
        rows = sp.vstack([rows for _, rows, _ in parts])
        values = np.concatenate([values for *_, values in parts])
        super().__init__(rows, values, [(kind, values.size) for kind, _, values in parts])

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a constraint, as it was given, is broken."""
        z = vector_of("point", point, self.dimension)
        (A, b), (E, e), low, high, cones = self._as_given
        broken = [np.zeros(1), low - z, z - high, A @ z - b, np.abs(E @ z - e)]
        for F, g, h, limit in cones:
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
        super().__init__((), matrix, offset, equality_matrix, equality_offset, lower, upper)


def _variables(matrices: Sequence[Any], vectors: Sequence[Any]) -> int:
    """The number of variables that the constraints speak about."""
    sizes = [np.shape(matrix)[1] for matrix in matrices if len(np.shape(matrix)) == 2]
    sizes += [np.size(vector) for vector in vectors if np.ndim(vector) == 1]
    if not sizes:
        raise InvalidInput("Expected a matrix or a vector of bounds, got none.")
    return int(sizes[0])


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


def from_cvxpy(variable: Any, constraints: Sequence[Any]) -> Conic:
    """The set of values of a CVXPY vector variable that satisfy CVXPY constraints.

    variable     a vector (``cvxpy.Variable``)
    constraints  convex (DCP), on this variable alone, without parameters; linear and second-order
                 cones

    Returns a ``Conic`` in standard form. Raises ``InvalidInput`` for other constraints, and
    ``InvalidSet`` for an empty or unbounded set.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise InvalidInput("Expected CVXPY to be installed: pip install 'tacit[cvxpy]'.") from None
    constraints = [constraints] if isinstance(constraints, cp.Constraint) else list(constraints)
    if odd := [c for c in constraints if not isinstance(c, cp.Constraint)]:
        raise InvalidInput(f"Expected CVXPY constraints, got {odd[0]!r}.")
    if not isinstance(variable, cp.Variable) or variable.ndim != 1:
        raise InvalidInput(f"Expected a cvxpy.Variable with one axis, got {variable!r}.")
    if given := [name for name, value in variable.attributes.items() if value]:
        raise InvalidInput(
            f"Expected a variable without attributes, got {given}: write them as constraints."
        )
    problem = cp.Problem(cp.Minimize(0), constraints)
    foreign = [v for v in problem.variables() if v.id != variable.id] + problem.parameters()
    if foreign or not problem.variables():
        raise InvalidInput(
            f"Expected constraints on {variable.name()} alone, got {foreign or 'none on it'}."
        )
    if wrong := [str(constraint) for constraint in constraints if not constraint.is_dcp()]:
        raise InvalidInput(f"Expected convex (DCP) constraints, got {wrong}.")
    data = problem.get_problem_data(cp.CLARABEL)[0]
    dims = data["dims"]
    if dims.exp or dims.psd or dims.p3d or dims.pnd:
        raise InvalidInput(
            f"Expected constraints that need linear and second-order cones only, got {dims}."
        )
    linear = [("zero", int(dims.zero)), ("nonneg", int(dims.nonneg))]
    cones = [block for block in linear if block[1]] + [("soc", int(m)) for m in dims.soc]
    start = data["param_prob"].var_id_to_col[variable.id]
    columns = np.arange(start, start + variable.size)
    found = _CvxpySet(data["A"], data["b"], cones, variables=columns)
    # The domain of an expression is a constraint too: x²/y ≤ 1 also means y ≥ 0.
    domain = [d for c in constraints for part in c.args for d in part.domain]
    # A copy, because ``violation`` gives the variable a value.
    found.given = pickle.loads(pickle.dumps((variable, constraints + domain)))
    return found


class _CvxpySet(Conic):
    """A set in CVXPY's standard form, whose violation is CVXPY's own."""

    given: tuple[Any, list[Any]]  # variable and constraints

    def violation(self, point: ArrayLike) -> float:
        """Largest of CVXPY's violations; infinite where an expression is not defined."""
        z = vector_of("point", point, self.dimension)
        with self._nearest.lock:
            variable, constraints = self.given
            variable.value = z
            broken = max(float(np.max(c.violation())) for c in constraints)
        return math.inf if math.isnan(broken) else broken
