"""One small cone program, set up once and solved many times by Clarabel with changed numbers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput, SolverFailure

Blocks = tuple[tuple[str, int], ...]

ACCURACY = 1e-9  # asked of the solver
NEWTON_STEPS = 12
POLISHED_SIZE = 150  # rows and columns up to which Newton steps sharpen an answer
ACCEPTED_VIOLATION = 1e-7  # of an answer that the solver calls almost solved
ACCEPTED_GAP = 1e-6  # relative; a fast program then takes an answer, whatever the solver calls it
LEAST_MARGIN = 1e-12  # margins and duals of a linearised program count as no less
RETRIES: tuple[dict[str, Any], ...] = (  # what to change if a solve fails, one after another
    {"iterative_refinement_enable": True},
    {"iterative_refinement_enable": True, "static_regularization_constant": 1e-10},
    {
        "iterative_refinement_enable": True,
        "equilibrate_enable": False,
        "max_iter": 1000,
        "tol_feas": 1e-8,
        "tol_gap_abs": 1e-8,
        "tol_gap_rel": 1e-8,
    },
)


class Program:
    """min ½x'Px + q'x subject to b − Ax in K, where P, q and b change in place.

    ``P`` is given by its upper triangle; its numbers change, its pattern does not. ``fast`` leaves
    out the refinement of the solver's linear systems (a third of the time) and the polishing of
    its answer; a solve that fails is repeated with refinement. ``rare`` names cones that ``find``
    leaves out at first. One solver serves all calls, one at a time. It is not pickled but set up
    again.
    """

    def __init__(
        self,
        P: Any,
        A: Any,
        b: Vector,
        cones: Blocks,
        q: Vector | None = None,
        *,
        fast: bool = False,
        rare: Sequence[int] = (),
    ) -> None:
        self._P, self._A, self._cones, self._fast = P, A, cones, fast
        self._data = {"P": P.data, "q": np.zeros(P.shape[0]) if q is None else q, "b": b}
        self._solver: Any = None
        self.lock = threading.Lock()
        self.rare: tuple[Any, ...] = ()  # rows, offsets and blocks of the rare cones
        if rare:
            is_rare = np.repeat([k in rare for k in range(len(cones))], [m for _, m in cones])
            often = tuple(block for k, block in enumerate(cones) if k not in rare)
            seldom = tuple(block for k, block in enumerate(cones) if k in rare)
            rows = sp.csr_matrix(A)
            self.rare = rows[is_rare], b[is_rare], seldom
            self._often = Program(P, sp.csc_matrix(rows[~is_rare]), b[~is_rare], often, fast=fast)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_solver", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _solver=None, lock=threading.Lock())

    def minimise(self, or_else: str = "", **changes: Vector) -> tuple[str, Vector, Vector]:
        """The status "Solved", or the other one that is allowed, the point x and its dual."""
        data = self._data | changes
        with self.lock:
            # Set up with the first numbers, whichever come next: answers do not depend on history.
            self._solver = self._solver or self._set_up(self._data, {})
            self._solver.update(**changes)
            solution = self._solver.solve()
            x, status = self._judge(solution, data)
            for settings in RETRIES if self._fast else RETRIES[-1:]:
                if status in ("Solved", or_else):
                    break
                solution = self._set_up(data, settings).solve()
                x, status = self._judge(solution, data)
        if status not in ("Solved", or_else):
            raise SolverFailure(f"Expected a solved cone program, got {status}.")
        return status, x, np.asarray(solution.z)

    def find(self, **changes: Vector) -> Vector:
        """The minimal x; solved without the rare cones, and again with them if x breaks one."""
        if self.rare:
            rows, limits, blocks = self.rare
            _, x, _ = self._often.minimise("", **changes)
            if broken(limits - rows @ x, blocks) <= ACCURACY:
                return x
        return self.minimise("", **changes)[1]

    def curvature(self, P: Vector, x: Vector, y: Vector) -> Vector:
        """H = P + A'W⁻²A at an answer (x, dual y): the answer moves by −H⁻¹dq with q.

        W is the scaling of Nesterov and Todd, for which the solver's own Newton steps linearise
        complementarity: on a cone W⁻² = (2(Jω)(Jω)' − J)/ν², elsewhere y/s.
        """
        s = self._data["b"] - self._A @ x
        H = self._dense_P(P)
        A = sp.csr_matrix(self._A)
        for kind, rows in rows_by_kind(self._cones):
            if kind == "soc":
                weights = _cone_weight(s[rows], y[rows])
                weight: Any = sp.block_diag([sp.coo_matrix(w) for w in weights])
            elif kind == "nonneg":
                dual, margin = (np.maximum(v[rows], LEAST_MARGIN) for v in (y, s))
                weight = sp.diags(dual / margin)
            else:
                weight = sp.identity(len(rows)) / LEAST_MARGIN**0.5
            part = A[np.ravel(rows)]
            H += (part.T @ weight @ part).toarray()
        return H

    def _judge(self, solution: Any, data: dict[str, Vector]) -> tuple[Vector, str]:
        """The point, polished where that pays, and the status it deserves."""
        status, x = str(solution.status), np.asarray(solution.x)
        if "Infeasible" in status or not np.isfinite(x).all():
            return x, status
        if sum(self._A.shape) <= POLISHED_SIZE and not self._fast:
            P = self._dense_P(data["P"])
            # A point that is barely outside has a dual near 0, where interior-point methods get
            # stuck: Newton's method then starts at the point itself.
            nearby = np.linalg.lstsq(P, -data["q"], rcond=None)[0]
            starts = [(x, np.asarray(solution.z))]
            if status != "Solved":
                starts.append((nearby, np.zeros(len(data["b"]))))
            for start, dual in starts:
                A, b = self._A.toarray(), data["b"]
                better, residual = polish(P, data["q"], A, b, self._cones, start, dual)
                if residual <= ACCURACY and self._broken(better, data["b"]) <= ACCURACY:
                    return better, "Solved"
        gap = abs(solution.obj_val - solution.obj_val_dual)
        small = self._fast and gap <= ACCEPTED_GAP * abs(solution.obj_val)
        near = status == "AlmostSolved" or small
        if near and self._broken(x, data["b"]) <= ACCEPTED_VIOLATION:
            status = "Solved"
        return x, status

    def _broken(self, x: Vector, b: Vector) -> float:
        return broken(b - self._A @ x, self._cones)

    def _dense_P(self, values: Vector) -> Vector:
        upper = sp.csc_matrix((values, self._P.indices, self._P.indptr), shape=self._P.shape)
        dense: Vector = (upper + sp.triu(upper, 1).T).toarray()
        return dense

    def _set_up(self, data: dict[str, Vector], changes: dict[str, Any]) -> Any:
        import clarabel

        kinds = {"zero": clarabel.ZeroConeT, "nonneg": clarabel.NonnegativeConeT}
        kinds["soc"] = clarabel.SecondOrderConeT
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.presolve_enable = False  # presolve forbids changes in place
        settings.max_threads = 1
        gap = 1e-10 if any(kind == "soc" for kind, _ in self._cones) else 1e-12
        settings.tol_feas = 1e-8 if self._fast else ACCURACY
        settings.tol_gap_abs = settings.tol_gap_rel = 1e-9 if self._fast else gap
        settings.reduced_tol_feas = ACCEPTED_VIOLATION
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = ACCEPTED_VIOLATION
        settings.iterative_refinement_enable = not self._fast
        for name, value in changes.items():
            setattr(settings, name, value)
        P = sp.csc_matrix((data["P"], self._P.indices, self._P.indptr), shape=self._P.shape)
        cones = [kinds[kind](m) for kind, m in self._cones]
        return clarabel.DefaultSolver(P, data["q"], self._A, data["b"], cones, settings)


def _cone_weight(s: Vector, y: Vector) -> Vector:
    """W⁻² of second-order cones of one size, one per row of margins s and duals y."""
    J = np.append(1.0, -np.ones(s.shape[1] - 1))
    s, y = _into_cone(s), _into_cone(y)
    det_s, det_y = ((v**2 * J).sum(axis=1) for v in (s, y))
    s, y = s / np.sqrt(det_s)[:, None], y / np.sqrt(det_y)[:, None]
    γ = np.sqrt((1 + (s * y).sum(axis=1)) / 2)
    Jω = J * (s + J * y) / (2 * γ)[:, None]
    outer = 2 * Jω[:, :, None] * Jω[:, None, :] - np.diag(J)
    weights: Vector = np.sqrt(det_y / det_s)[:, None, None] * outer
    return weights


def _into_cone(v: Vector) -> Vector:
    """A head that is larger than the length of the rest by at least a little."""
    v = v.copy()
    length = np.sqrt((v[:, 1:] ** 2).sum(axis=1))
    v[:, 0] = np.maximum(v[:, 0], length * (1 + 1e-9) + LEAST_MARGIN)
    return v


def row_scale(matrix: Any, cones: Blocks) -> Vector:
    """One over the length of each row; the rows of a second-order cone share their largest."""
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    start = 0
    for kind, m in cones:
        if kind == "soc":
            length[start : start + m] = length[start : start + m].max()
        start += m
    return 1 / np.where(length > 0, length, 1.0)


def broken(margins: Vector, cones: Blocks) -> float:
    """Largest distance of a row of b − Ax, or of the head of a cone, from where it must be."""
    worst = 0.0
    for kind, rows in rows_by_kind(cones):
        s = margins[rows]
        if kind == "zero":
            worst = max(worst, float(np.abs(s).max()))
        elif kind == "nonneg":
            worst = max(worst, float(-s.min()))
        else:
            worst = max(worst, float((np.sqrt((s[:, 1:] ** 2).sum(axis=1)) - s[:, 0]).max()))
    return worst


@lru_cache(maxsize=256)
def rows_by_kind(cones: Blocks) -> list[tuple[str, Any]]:
    """The rows of equations, of inequalities, and of the second-order cones of each size."""
    groups: dict[tuple[str, int], list[Any]] = {}
    start = 0
    for kind, m in cones:
        rows = np.arange(start, start + m)
        groups.setdefault((kind, m if kind == "soc" else 0), []).append(rows)
        start += m
    return [
        (kind, np.stack(rows) if kind == "soc" else np.concatenate(rows))
        for (kind, _), rows in groups.items()
    ]


def polish(
    P: Vector,
    q: Vector,
    A: Vector,
    b: Vector,
    cones: Sequence[tuple[str, int]],
    x: Vector,
    y: Vector,
) -> tuple[Vector, float]:
    """The best x that Newton steps meet, and the residual of the optimality conditions there.

    An interior-point solver stops on the objective: a gap of 1e-10 leaves 1e-5 in x where the
    boundary is curved. The conditions Px + q + A'y = 0 and s = Proj_K(s − y) are piecewise smooth.
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


def vector_of(name: str, value: Any, size: int) -> Vector:
    return errors.array(name, value, (size,), dtype=np.float64).copy()


def full_vector_of(name: str, value: Any, size: int) -> Vector:
    """A vector; a number stands for a constant one."""
    return vector_of(name, np.full(size, value) if np.ndim(value) == 0 else value, size)


def sparse(name: str, matrix: Any, columns: int | None = None) -> Any:
    """A finite matrix in compressed columns."""
    if not sp.issparse(matrix):
        matrix = errors.array(name, matrix, (None, columns), dtype=np.float64)
    result = sp.csc_matrix(matrix, dtype=np.float64, copy=True)
    errors.array(f"the entries of {name}", result.data, (None,))
    if 0 in result.shape or columns not in (None, result.shape[1]):
        raise InvalidInput(f"Expected {name} with {columns or 'some'} columns, got {result.shape}.")
    return result


def weighted_square(matrix: Any) -> tuple[Any, Any]:
    """The pattern of M'CM (upper triangle) and the matrix that gives its numbers from C's.

    Row k of M adds c_k M_ka M_kb to entry (a, b).
    """
    length = np.diff(matrix.indptr)
    columns = matrix.shape[1]
    # every ordered pair of entries of a row
    first = np.repeat(np.arange(matrix.nnz), np.repeat(length, length))
    start = np.repeat(matrix.indptr[:-1], length**2)
    within = np.arange(len(first)) - np.repeat(np.cumsum(length**2) - length**2, length**2)
    second = start + within % np.repeat(length, length**2)
    row = np.repeat(np.arange(len(length)), length**2)
    a, b = matrix.indices[first], matrix.indices[second]
    upper = a <= b
    key = b[upper].astype(np.int64) * columns + a[upper]  # column-major, as in csc
    keys, entry = np.unique(key, return_inverse=True)
    values = (matrix.data[first] * matrix.data[second])[upper]
    numbers = sp.csr_matrix((values, (entry, row[upper])), shape=(len(keys), len(length)))
    pointer = np.searchsorted(keys // columns, np.arange(columns + 1))
    pattern = sp.csc_matrix((np.ones(len(keys)), keys % columns, pointer), shape=(columns,) * 2)
    return pattern, numbers
