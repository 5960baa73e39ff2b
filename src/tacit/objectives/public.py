"""Released objectives, made of what was released; and those of runs without noise.

An agent with such an objective may take exact local steps, as many and with as many settings as it
likes: all of it is post-processing of the one release (``Objective.statistics``). A step is
argmin over z in W of f(z) + ½ Σ_i c_i (z_i − v_i)²:

    set                       quadratic f                          other smooth f
    Conic with slack A        one weighted projection of (z, Az)   not offered
    other Conic               one cone program                     not offered
    with a formula            linear system, if its answer is in   accelerated projected gradient
                              W; else as on the right

Each step is a function of (v, c) alone: what was computed before leaves no trace in its answer.
Not offered: losses with kinks (no bound on the curvature), other losses than quadratics on cone
sets, and products of cone sets with others. ``admm/reference.py`` solves these in one place, and
linearised steps (Algorithm 1) with noise.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, SolverFailure, array
from tacit.objectives.objective import Objective
from tacit.objectives.residual import (
    SparseMatrix,
    SquaredResidual,
    on_host,
    public_matrix,
    singular_bounds,
)
from tacit.pytree import pytree, static, store
from tacit.sets.cone_program import Program, weighted_square
from tacit.sets.conic import Conic
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

Prox = Callable[[Vector, Vector], Vector]

ACCURACY = 1e-10  # relative error of an iterative answer
UNITS = 1e-15  # a relative step that rounding hides
MOST_STEPS = 100_000
MOST_DENSE = 2**20  # entries of a sparse matrix that is written out


class PublicObjective(Objective):
    """A public objective: it was released, or the run has no noise.

    Guarantee: none of its own. It is as private as the release that it was computed from; Δ = 0,
    as neighbours have the same released objective.
    """

    neighbours = "nothing: the data in it are public"
    everywhere: ClassVar[bool] = True

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return 0.0

    def statistics(self) -> NoReturn:
        raise InvalidInput(
            "Expected an objective of private data to release, got "
            f"{type(self).__name__}: all in it is public already."
        )

    @property
    @abstractmethod
    def mean_curvature(self) -> float:
        """The mean of the diagonal of f'', or a bound above it: penalties near it suit f."""

    @abstractmethod
    def prox(self, feasible_set: FeasibleSet) -> Prox:
        """The exact local step (v, c) → argmin over z in W of f(z) + ½ Σ_i c_i (z_i − v_i)².

        All c_i > 0. Made once for an agent: what does not change from step to step is set up here.
        The table above says which sets go with which objectives; others are refused here.
        """


@pytree
class PublicQuadratic(SquaredResidual, PublicObjective):
    """f(z) = ‖Az + d‖² + ``constant`` with public A (``matrix``, dense or sparse) and d (``data``).

    ``slack``: the set has A as its slack (``Residual``, ``Conic``).
    """

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    _: KW_ONLY
    slack: bool = static(default=False)
    constant: float = 0.0

    def __post_init__(self) -> None:
        require_64_bits()
        A = public_matrix(self.matrix)
        data = array("data", self.data, (A.shape[0],), dtype=np.float64)
        store(self, matrix=A, data=data)

    def statistic(self, z: Array) -> Array:
        """The gradient 2A'(Az + d)."""
        return self.matrix.T @ (2 * self._residual(z))

    @property
    def _length(self) -> float:
        return float(np.linalg.norm(self.data))

    @property
    def mean_curvature(self) -> float:
        """2‖A‖_F²/n."""
        A = self.matrix.values if isinstance(self.matrix, SparseMatrix) else self.matrix
        return 2 * float(np.sum(np.square(A))) / self.dimension

    def prox(self, feasible_set: FeasibleSet) -> Prox:
        if isinstance(feasible_set, Conic):
            d = np.asarray(self.data)
            if not (self.slack and feasible_set.slack_size):
                return _cone_program(on_host(self.matrix), d, feasible_set)
            weight = -d, np.full(len(d), 2.0)  # f is the slack's distance from −d, with weight 2
            return lambda *v_and_c: feasible_set.project(*map(np.append, v_and_c, weight))
        _require_formula(feasible_set, "a quadratic objective")
        f = _fewer_rows(self)
        unconstrained, smooth = _linear_system(f), _projected_gradient(f, feasible_set, *_jacobi(f))

        def step(v: Vector, c: Vector) -> Vector:
            z = unconstrained(v, c)
            if feasible_set.violation(z) <= feasible_set.tolerance(np.float64):
                return np.asarray(feasible_set.project(z, c))  # in W in every last bit
            return smooth(v, c)

        return step


def own(name: str, of: str = "objective") -> Any:
    """What an objective has in common with the one that it holds."""
    return property(lambda self: getattr(getattr(self, of), name))


@pytree
class WithoutNoise(PublicObjective):
    """Any smooth objective in a run without noise, for exact local steps.

    Guarantee: none. The data in it are as they were given.
    """

    objective: Objective

    on_host, dimension, sample_count = own("on_host"), own("dimension"), own("sample_count")
    value, statistic, lift = own("value"), own("statistic"), own("lift")
    public_gradient, gradient_bound = own("public_gradient"), own("gradient_bound")
    smoothness, strong_convexity = own("smoothness"), own("strong_convexity")

    @property
    def mean_curvature(self) -> float:
        return math.inf if self.smoothness is None else self.smoothness

    def prox(self, feasible_set: FeasibleSet) -> Prox:
        f = self.objective
        _require_formula(feasible_set, type(f).__name__)
        if f.smoothness is None:
            raise InvalidInput(
                f"Expected an objective with a smoothness for exact local steps, got "
                f"{type(f).__name__}, which has kinks or no known curvature."
            )
        return _projected_gradient(f, feasible_set, np.full(f.dimension, f.smoothness), 1.0)


def has_exact_step(objective: Objective, feasible_set: FeasibleSet) -> bool:
    """Whether ``without_noise`` of it has a ``prox`` on this set."""
    if feasible_set.closed_form:
        return objective.smoothness is not None
    if not isinstance(feasible_set, Conic):
        return False
    try:
        objective.statistics()
    except InvalidInput:
        return isinstance(objective, PublicObjective)
    return True


def without_noise(objective: Objective) -> PublicObjective:
    """The objective for exact local steps in a run without noise: a quadratic where it is one.

    Guarantee: none. Nothing computed from it is private.
    """
    if isinstance(objective, PublicObjective):
        return objective
    try:
        statistics = objective.statistics()
    except InvalidInput:
        return WithoutNoise(objective)
    return statistics.released_objective(statistics.values, 0.0)


# --- what is known where parts are only added up (``protocol/masks.py``) -------------------------


@pytree
class KnownSum(Objective):
    """The sum of ``agents`` objectives, known only by the noisy ``sum`` of their statistics at one
    point. ``part``: any of them, for its lift and public gradient, which all have."""

    neighbours = "nothing: what is known of it was added up with noise"
    everywhere: ClassVar[bool] = True
    sum: Array
    part: Objective
    agents: int = static()

    @property
    def dimension(self) -> int:
        return self.part.dimension

    def value(self, z: Array) -> NoReturn:
        raise InvalidInput("Expected what is known of a sum to be asked for, got its value.")

    def statistic(self, z: Array) -> Array:
        return self.sum

    def lift(self, statistic: Array) -> Array:
        return self.part.lift(statistic)

    def public_gradient(self, z: Array) -> Array:
        return self.agents * self.part.public_gradient(z)

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        return 0.0

    smoothness, strong_convexity = None, 0.0

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        return math.inf


def of_sum(part: Any, agents: int) -> Any:
    """One of ``agents`` objectives that are released once, as if it had the data of all: with their
    ridges, or for means, which have no ridge, with the same minimiser."""
    whole = jax.tree.map(lambda leaf: leaf, part)
    name = "ridge" if hasattr(part, "ridge") else "normaliser"
    store(whole, **{name: agents * getattr(part, name)})
    return whole


# --- exact steps -------------------------------------------------------------------------------


def _require_formula(feasible_set: FeasibleSet, what: str) -> None:
    if not feasible_set.closed_form:
        raise InvalidInput(
            f"Expected a set with a projection formula for exact local steps of {what}, got "
            f"{type(feasible_set).__name__}."
        )


# --- cone sets ------------------------------------------------------------------------------


def _cone_program(A: Any, d: Vector, feasible_set: Conic) -> Prox:
    """min ½z'(2A'A + C)z + (2A'd − Cv)'z over z = image @ x in W, by Clarabel."""
    matrix, offset, cones, _, image, *_ = feasible_set.parts
    A, size = sp.csr_matrix(A) @ image, image.shape[1]
    fixed = sp.triu(2 * (A.T @ A), format="csc")
    fixed.sort_indices()
    pattern, numbers = weighted_square(sp.csr_matrix(image))
    keys = [_keys(part) for part in (fixed, pattern)]
    entries = np.union1d(*keys)
    base = np.zeros(len(entries))
    base[np.searchsorted(entries, keys[0])] = fixed.data
    where = np.searchsorted(entries, keys[1])
    spread = sp.csr_matrix(
        (np.ones(len(where)), (where, np.arange(len(where)))), shape=(len(entries), len(where))
    )
    varying = spread @ numbers
    pointer = np.searchsorted(entries // size, np.arange(size + 1))
    P = sp.csc_matrix((np.ones(len(entries)), entries % size, pointer), shape=(size, size))
    program = Program(P, matrix, offset, cones, fast=image.shape[0] > size)
    linear, back = A.T @ (2 * d), sp.csr_matrix(image.T)

    def step(v: Vector, c: Vector) -> Vector:
        curvature, q = base + varying @ c, linear - back @ (c * v)
        scale = max(float(curvature.max()), float(np.abs(q).max()))
        _, x, _ = program.minimise(P=curvature / scale, q=q / scale)
        return np.asarray(image @ x)

    return step


def _keys(matrix: Any) -> Vector:
    """Where the entries of a matrix in compressed columns are, column by column."""
    columns = np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))
    keys: Vector = columns.astype(np.int64) * matrix.shape[0] + matrix.indices
    return keys


# --- sets with a formula --------------------------------------------------------------------


def _fewer_rows(f: PublicQuadratic) -> PublicQuadratic:
    """The same function, up to a constant, with as many rows as columns: A = QR, d → Q'd.

    So that agents with different numbers of rows share a compiled program. A large sparse matrix
    stays as it is.
    """
    A, (rows, columns) = on_host(f.matrix), f.matrix.shape
    if sp.issparse(A):
        if A.shape[0] * A.shape[1] > MOST_DENSE:
            return f
        A = A.toarray()
    d = np.asarray(f.data)
    if rows > columns:
        Q, A = np.linalg.qr(A)
        return type(f)(A, Q.T @ d)
    return type(f)(
        np.vstack([A, np.zeros((columns - rows, columns))]), np.append(d, np.zeros(columns - rows))
    )


def _linear_system(f: PublicQuadratic) -> Prox:
    """(2A'A + C)z = Cv − 2A'd, factorised again when c changes."""
    A = on_host(f.matrix)
    square, linear = 2 * (A.T @ A), 2 * (A.T @ np.asarray(f.data))

    @functools.lru_cache(maxsize=1)
    def factorised(numbers: bytes) -> Any:
        c = np.frombuffer(numbers)
        if sp.issparse(square):
            from scipy.sparse.linalg import splu  # slow to import, and seldom needed

            return splu(sp.csc_matrix(square + sp.diags(c))).solve
        from scipy.linalg import cho_factor, cho_solve

        return functools.partial(cho_solve, cho_factor(square + np.diag(c)))

    def step(v: Vector, c: Vector) -> Vector:
        return np.asarray(factorised(np.asarray(c, np.float64).tobytes())(c * v - linear))

    return step


def _jacobi(f: PublicQuadratic) -> tuple[Vector, float]:
    """Numbers h and a factor with 2A'A ≤ factor · diag(h): h is the diagonal of 2A'A."""
    A = on_host(f.matrix)
    squares = A.multiply(A).sum(axis=0) if sp.issparse(A) else (A**2).sum(axis=0)
    h = 2 * np.asarray(squares).ravel()
    root = np.where(h > 0, h, 1.0) ** -0.5
    scaled = SparseMatrix.of(A @ sp.diags(root)) if sp.issparse(A) else A * root
    return h, 2 * singular_bounds(scaled)[0] ** 2 if h.any() else 1.0


def _projected_gradient(f: Objective, W: FeasibleSet, h: Vector, factor: float) -> Prox:
    def step(v: Vector, c: Vector) -> Vector:
        v, c = np.asarray(v, np.float64), np.asarray(c, np.float64)
        z, steps = _accelerated(f, W, v, c, c + factor * h)
        if not steps < MOST_STEPS:  # also NaN
            raise SolverFailure(f"Expected a local step of fewer than {MOST_STEPS} iterations.")
        return np.asarray(z)

    return step


class _Climb(NamedTuple):
    z: Array
    y: Array
    t: Array
    moved: Array
    steps: Array


@jax.jit
def _accelerated(f: Objective, W: FeasibleSet, v: Array, c: Array, m: Array) -> tuple[Array, Array]:
    """Minimise F = f + ½Σc(z − v)² over W by accelerated projected gradients in the metric m.

    Beck and Teboulle (2009), started anew where momentum points uphill (O'Donoghue and Candès,
    2015). m is such that F'' ≤ diag(m). A step of length δ from y leaves an error of at most
    2δ/μ, μ = min c/m, all in the metric m: the loop ends when that is ``ACCURACY`` of the
    length of z, or δ is rounding. One compiled program serves all agents of one shape.
    """
    μ = jnp.min(c / m)

    def length(x: Array) -> Array:
        return jnp.sqrt(jnp.sum(m * x * x))

    def go_on(now: _Climb) -> Array:
        small = jnp.maximum(ACCURACY * μ / 2, UNITS) * jnp.maximum(length(now.z), 1e-300)
        return (now.moved > small) & (now.steps < MOST_STEPS)

    def step(now: _Climb) -> _Climb:
        z = W.project(now.y - (f.gradient(now.y) + c * (now.y - v)) / m, m)
        uphill = jnp.sum(m * (now.y - z) * (z - now.z)) > 0
        t = (1 + jnp.sqrt(1 + 4 * now.t**2)) / 2
        y = jnp.where(uphill, z, z + (now.t - 1) / t * (z - now.z))
        return _Climb(z, y, jnp.where(uphill, 1.0, t), length(z - now.y), now.steps + 1)

    start = W.project(v, m)
    end = jax.lax.while_loop(
        go_on, step, _Climb(start, start, jnp.asarray(1.0), jnp.asarray(jnp.inf), jnp.asarray(0))
    )
    return end.z, jnp.where(jnp.isnan(end.moved), MOST_STEPS, end.steps)
