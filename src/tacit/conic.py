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
from tacit.polish import polish
from tacit.sets import Box, FeasibleSet, Vector, bounds

Blocks = tuple[tuple[str, int], ...]

ACCURACY = 1e-9  # asked of the solver; a point with a smaller violation counts as feasible
POLISHED = 150  # rows and columns up to which Newton steps sharpen an answer
ACCEPTED = 1e-7  # largest violation of an answer that the solver calls almost solved


class Conic(FeasibleSet):
    """The set {z : offset − matrix @ z in K} for a product K of cones; it must be compact.

    ``cones`` lists the blocks of rows in order: ``("zero", m)`` for m equations, ``("nonneg", m)``
    for m inequalities, ``("soc", m)`` for a second-order cone {(t, x) : ‖x‖₂ ≤ t} of m rows.
    ``variables`` names the columns that are z; the other columns are auxiliary variables, free to
    take any value that makes z feasible.

    With numbers of about 1 the violation of a projection is about 1e-9. Its error is below 1e-10
    up to 150 rows and columns, where Newton steps sharpen the answer (``polish.py``); beyond, the
    solver alone leaves 1e-7 on polyhedra and 1e-6 (worst seen 5e-5) on second-order cones. Rows
    are scaled to length 1 first, so that these numbers are distances.

    ``diameter`` and ``radius`` are those of the smallest box around the set (2n solves, on first
    use): bounds above the true ones.
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
        self._offset = _array("offset", offset, rows)
        self._cones: Blocks = tuple(
            (errors.choice("cone", kind, ("zero", "nonneg", "soc")), errors.count("cone size", m))
            for kind, m in cones
        )
        if sum(m for _, m in self._cones) != rows:
            raise InvalidInput(f"Expected cones for {rows} rows, got {self._cones}. {NOT_DONE}")
        self._columns = _column_indices(variables, columns)
        # Another metric than a diagonal one needs only another pattern of P here.
        pattern = np.zeros(columns)
        pattern[self._columns] = 1
        P = sp.csc_matrix(sp.diags(pattern))
        P.eliminate_zeros()
        scale = _row_scale(self._matrix, self._cones)
        self._matrix = sp.csc_matrix(sp.diags(scale) @ self._matrix)
        self._offset = scale * self._offset
        self._own = self._matrix[:, self._columns]
        self._nearest = _Program(P, self._matrix, self._offset, self._cones)
        self._refuse_empty()
        self._refuse_unbounded()

    @property
    def closed_form(self) -> bool:
        return False

    @property
    def dimension(self) -> int:
        return int(self._columns.size)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Vector:
        v = _array("point", point, self.dimension)
        c = _vector("weight", 1.0 if weight is None else weight, self.dimension)
        if not (c > 0).all():
            raise InvalidInput(f"Expected weights > 0, got {weight}. {NOT_DONE}")
        if self.violation(v) <= 0:
            return v
        _, x = self._find_nearest(v, c)
        z: Vector = x[self._columns]
        if "_around" in self.__dict__:  # ``radius`` was asked for, and must hold for every answer
            z = np.clip(z, np.asarray(self._around.lower), np.asarray(self._around.upper))
        return z

    @property
    def constraints(self) -> tuple[Any, Vector, Blocks]:
        """Matrix, offset and cones, rows scaled to length 1."""
        return self._matrix, self._offset, self._cones

    def _find_nearest(self, v: Vector, c: Vector, or_else: str = "") -> tuple[str, Vector]:
        # Scaled to numbers of about 1: Clarabel fails on points that are 1e6 away otherwise.
        scale = max(float(c.max()), float((c * np.abs(v)).max()))
        linear = np.zeros(self._matrix.shape[1])
        linear[self._columns] = -c * v / scale
        in_order = c[np.argsort(self._columns)]
        status, x, _ = self._nearest.minimise(or_else, P=in_order / scale, q=linear)
        return status, x

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a row, scaled to length 1, is broken.

        Auxiliary variables are chosen to make it small.
        """
        z = _array("point", point, self.dimension)
        slack = self._offset - self._own @ z
        if self.dimension == self._matrix.shape[1]:
            return _broken(slack, self._cones)
        program, expand = self._relaxed
        _, x, _ = program.minimise(b=np.append(expand @ slack, 0.0))
        return max(float(x[-1]), 0.0)

    @property
    def diameter(self) -> float:
        return self._around.diameter

    def radius(self, norm: float) -> float:
        return self._around.radius(norm)

    def _refuse_empty(self) -> None:
        n = self.dimension
        status, _ = self._find_nearest(np.zeros(n), np.ones(n), or_else="PrimalInfeasible")
        if status == "PrimalInfeasible":
            raise InvalidSet(f"Expected a set with a point in it: the set is empty. {NOT_DONE}")

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
        rays = _Program(sp.csc_matrix((columns, columns)), matrix, offset, cones)
        direction = np.random.default_rng(0).normal(size=columns)
        for g in (direction, -direction):
            _, x, _ = rays.minimise(q=-g)
            if g @ x > 1e-4:
                _ = self._around
                return

    @cached_property
    def _around(self) -> Box:
        """The smallest box around W, rounded outwards.

        A dual point y in K* with matrix'y + r = e_i proves z_i ≤ offset'y + r'z, so the error r
        of the solver costs at most ‖r‖₁ sup ‖z‖_∞ (auxiliary variables taken to be no larger).
        """
        columns = self._matrix.shape[1]
        program = _Program(
            sp.csc_matrix((columns, columns)), self._matrix, self._offset, self._cones
        )
        proved, error = [], []
        for sign in (1.0, -1.0):
            for i, column in enumerate(self._columns):
                q = np.zeros(columns)
                q[column] = -sign
                status, _, y = program.minimise("DualInfeasible", q=q)
                if status == "DualInfeasible":
                    raise InvalidSet(
                        f"Expected a compact set, got one that is unbounded in coordinate {i}. "
                        f"{NOT_DONE}"
                    )
                proved.append(float(self._offset @ y))
                error.append(float(np.abs(self._matrix.T @ y + q).sum()))
        support = np.array(proved)
        reach = support.max() / (1 - max(error))
        support += np.array(error) * reach + ACCURACY * (1 + reach)
        return Box(-support[self.dimension :], support[: self.dimension])

    @cached_property
    def _relaxed(self) -> tuple[_Program, Any]:
        """Least t ≥ 0 for which the rows, each relaxed by t, hold for some auxiliary variables.

        The second value turns a slack of the rows into that of the relaxed ones, in which an
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
        return _Program(P, matrix, np.zeros(matrix.shape[0]), blocks, q), expansion


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
            raise InvalidSet(f"Expected a constraint: the set is unbounded. {NOT_DONE}")
        matrix = sp.vstack([rows for _, rows, _ in parts])
        offset = np.concatenate([values for *_, values in parts])
        return matrix, offset, [(kind, values.size) for kind, _, values in parts]

    def violation(self, point: ArrayLike) -> float:
        """Largest amount by which a constraint, as it was given, is broken."""
        z = _array("point", point, self.dimension)
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


def from_cvxpy(variable: Any, constraints: Sequence[Any]) -> Conic:
    """The set of values of a CVXPY vector variable that satisfy CVXPY constraints.

    The constraints are brought into standard form once; they must be convex (DCP), without
    parameters or other variables, and need only linear and second-order cones.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise InvalidInput(
            f"Expected CVXPY to be installed: pip install 'tacit[cvxpy]'. {NOT_DONE}"
        ) from None
    constraints = list(constraints)
    if not isinstance(variable, cp.Variable) or variable.ndim != 1:
        raise InvalidInput(f"Expected a cvxpy.Variable with one axis, got {variable!r}. {NOT_DONE}")
    given = [name for name, value in variable.attributes.items() if value not in (None, False)]
    if given:
        raise InvalidInput(
            f"Expected a variable without attributes, got {given}: write them as constraints. "
            f"{NOT_DONE}"
        )
    problem = cp.Problem(cp.Minimize(0), constraints)
    foreign = [v for v in problem.variables() if v.id != variable.id] + problem.parameters()
    if foreign or not problem.variables():
        raise InvalidInput(
            f"Expected constraints on {variable.name()} alone, got others: {foreign}. {NOT_DONE}"
        )
    if not problem.is_dcp():
        wrong = [str(constraint) for constraint in constraints if not constraint.is_dcp()]
        raise InvalidInput(f"Expected convex (DCP) constraints, got {wrong}. {NOT_DONE}")
    data = problem.get_problem_data(cp.CLARABEL)[0]
    dims = data["dims"]
    if dims.exp or dims.psd or dims.p3d or dims.pnd:
        raise InvalidInput(
            f"Expected constraints that need linear and second-order cones only, got {dims}. "
            f"{NOT_DONE}"
        )
    linear = [("zero", int(dims.zero)), ("nonneg", int(dims.nonneg))]
    cones = [block for block in linear if block[1]] + [("soc", int(m)) for m in dims.soc]
    start = data["param_prob"].var_id_to_col[variable.id]
    columns = np.arange(start, start + variable.size)
    return _CvxpySet(variable, constraints, data["A"], data["b"], cones, columns)


class _CvxpySet(Conic):
    """A set in CVXPY's standard form, whose violation is CVXPY's own."""

    def __init__(
        self,
        variable: Any,
        constraints: list[Any],
        matrix: Any,
        offset: Vector,
        cones: list[tuple[str, int]],
        columns: ArrayLike,
    ) -> None:
        # The domain of an expression is a constraint too: x²/y ≤ 1 also means y ≥ 0.
        domain = [d for c in constraints for part in c.args for d in part.domain]
        # A copy, because ``violation`` gives the variable a value.
        self._variable, self._constraints = pickle.loads(
            pickle.dumps((variable, constraints + domain))
        )
        super().__init__(matrix, offset, cones, variables=columns)

    def violation(self, point: ArrayLike) -> float:
        """Largest of CVXPY's violations; infinite where an expression is not defined."""
        z = _array("point", point, self.dimension)
        with self._nearest.lock:
            self._variable.value = z
            broken = max(float(np.max(c.violation())) for c in self._constraints)
        return math.inf if math.isnan(broken) else broken


class _Program:
    """min ½x'Px + q'x subject to b − Ax in K, where P, q and b change in place.

    One solver serves all calls and one call at a time. It is not pickled but set up again.
    """

    def __init__(self, P: Any, A: Any, b: Vector, cones: Blocks, q: Vector | None = None) -> None:
        self._P, self._A, self._cones = P, A, cones
        self._data = {"P": P.data, "q": np.zeros(P.shape[0]) if q is None else q, "b": b}
        self._solver: Any = None
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_solver", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _solver=None, lock=threading.Lock())

    def minimise(self, or_else: str = "", **changes: Vector) -> tuple[str, Vector, Vector]:
        """The status "Solved", or the other one that is allowed, the point x and its dual."""
        data = self._data | changes
        with self.lock:
            # Set up with the first numbers, whichever come next: answers do not depend on history.
            self._solver = self._solver or self._set_up(self._data)
            self._solver.update(**changes)
            solution = self._solver.solve()
            x, status = self._judge(solution, data)
            if status not in ("Solved", or_else):
                solution = self._set_up(data, again=True).solve()
                x, status = self._judge(solution, data)
        if status not in ("Solved", or_else):
            raise SolverFailure(f"Expected a solved cone program, got {status}.")
        return status, x, np.asarray(solution.z)

    def _judge(self, solution: Any, data: dict[str, Vector]) -> tuple[Vector, str]:
        """The point, polished where that pays, and the status it deserves."""
        status, x = str(solution.status), np.asarray(solution.x)
        if "Infeasible" in status or not np.isfinite(x).all():
            return x, status
        if sum(self._A.shape) <= POLISHED:
            P = self._dense_P(data["P"])
            # A point that is barely outside has a dual near 0, where interior-point methods get
            # stuck: Newton's method then starts at the point itself.
            nearby = np.divide(-data["q"], P, out=x.copy(), where=P > 0)
            starts = [(x, np.asarray(solution.z))]
            if status != "Solved":
                starts.append((nearby, np.zeros(len(data["b"]))))
            for start, dual in starts:
                better, residual = polish(
                    P, data["q"], self._dense, data["b"], self._cones, start, dual
                )
                if residual <= ACCURACY and self._broken(better, data["b"]) <= ACCURACY:
                    return better, "Solved"
        if status == "AlmostSolved" and self._broken(x, data["b"]) <= ACCEPTED:
            status = "Solved"
        return x, status

    def _broken(self, x: Vector, b: Vector) -> float:
        return _broken(b - self._A @ x, self._cones)

    @cached_property
    def _dense(self) -> Vector:
        dense: Vector = self._A.toarray()
        return dense

    def _dense_P(self, values: Vector) -> Vector:
        """The diagonal of P, zero on auxiliary variables."""
        diagonal = np.zeros(self._P.shape[0])
        diagonal[self._P.indices] = values
        return diagonal

    @property
    def _curved(self) -> bool:
        return any(kind == "soc" for kind, _ in self._cones)

    def _set_up(self, data: dict[str, Vector], *, again: bool = False) -> Any:
        import clarabel

        kinds = {
            "zero": clarabel.ZeroConeT,
            "nonneg": clarabel.NonnegativeConeT,
            "soc": clarabel.SecondOrderConeT,
        }
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.presolve_enable = False  # presolve forbids changes in place
        settings.max_threads = 1
        settings.tol_feas = ACCURACY
        settings.tol_gap_abs = settings.tol_gap_rel = 1e-10 if self._curved else 1e-12
        settings.reduced_tol_feas = ACCEPTED
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = ACCEPTED
        if again:
            settings.max_iter, settings.equilibrate_enable = 1000, False
            settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-8
        P = sp.csc_matrix((data["P"], self._P.indices, self._P.indptr), shape=self._P.shape)
        cones = [kinds[kind](m) for kind, m in self._cones]
        return clarabel.DefaultSolver(P, data["q"], self._A, data["b"], cones, settings)


def _row_scale(matrix: Any, cones: Blocks) -> Vector:
    """One over the length of each row; the rows of a second-order cone share their largest."""
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    start = 0
    for kind, m in cones:
        if kind == "soc":
            length[start : start + m] = length[start : start + m].max()
        start += m
    return 1 / np.where(length > 0, length, 1.0)


def _broken(slack: Vector, cones: Blocks) -> float:
    """Largest distance of a row, or of the head of a second-order cone, from where it must be."""
    worst, start = 0.0, 0
    for kind, m in cones:
        s = slack[start : start + m]
        start += m
        if kind == "zero":
            worst = max(worst, float(np.abs(s).max()))
        elif kind == "nonneg":
            worst = max(worst, float(-s.min()))
        else:
            worst = max(worst, float(np.linalg.norm(s[1:]) - s[0]))
    return worst


def _array(name: str, value: Any, size: int) -> Vector:
    return errors.array(name, value, (size,), dtype=np.float64).copy()


def _vector(name: str, value: Any, size: int) -> Vector:
    """A vector; a number stands for a constant one."""
    return _array(name, np.full(size, value) if np.ndim(value) == 0 else value, size)


def _sparse(name: str, matrix: Any, columns: int | None = None) -> Any:
    """A finite matrix in compressed columns."""
    if not sp.issparse(matrix):
        matrix = errors.array(name, matrix, (None, columns), dtype=np.float64)
    result = sp.csc_matrix(matrix, dtype=np.float64, copy=True)
    errors.array(f"the entries of {name}", result.data, (None,))
    if 0 in result.shape or columns not in (None, result.shape[1]):
        raise InvalidInput(
            f"Expected {name} with {columns or 'some'} columns, got {result.shape}. {NOT_DONE}"
        )
    return result


def _column_indices(variables: ArrayLike | None, columns: int) -> np.ndarray[Any, np.dtype[Any]]:
    if variables is None:
        return np.arange(columns)
    indices = np.asarray(variables)
    shared = np.intersect1d(indices, np.arange(columns))
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not 0 < indices.size == shared.size:
        raise InvalidInput(
            f"Expected variables to be different columns out of {columns}, got {variables}. "
            f"{NOT_DONE}"
        )
    return indices


def _variables(matrices: Sequence[Any], vectors: Sequence[Any]) -> int:
    """The number of variables that the constraints speak about."""
    for matrix in matrices:
        if matrix is not None and len(np.shape(matrix)) == 2:
            return int(np.shape(matrix)[1])
    for vector in vectors:
        if vector is not None and np.ndim(vector) == 1:
            return int(np.size(vector))
    raise InvalidInput(f"Expected a matrix or a vector of bounds, got none. {NOT_DONE}")


def _rows(name: str, matrix: Any, offset_name: str, offset: Any, n: int) -> tuple[Any, Vector]:
    """Rows of a linear constraint, none where it was left out."""
    if (matrix is None) != (offset is None):
        raise InvalidInput(f"Expected both or neither of {name} and {offset_name}. {NOT_DONE}")
    if matrix is None:
        return sp.csc_matrix((0, n)), np.zeros(0)
    rows = _sparse(name, matrix, n)
    return rows, _array(offset_name, offset, rows.shape[0])


def _cone_data(cone: Cone, n: int) -> tuple[Any, Vector, Vector, float]:
    matrix = _sparse("the matrix of a cone", cone.matrix, n)
    shift = _vector("the shift of a cone", cone.shift, matrix.shape[0])
    slope = _vector("the slope of a cone", cone.slope, n)
    return matrix, shift, slope, float(errors.array("the limit of a cone", cone.limit, ()))
