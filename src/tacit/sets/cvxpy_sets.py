"""Feasible sets from CVXPY constraints, canonicalised once."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from tacit.errors import InvalidInput
from tacit.sets.cone_program import vector_of
from tacit.sets.conic import Conic


def from_cvxpy(variable: Any, constraints: Sequence[Any]) -> Conic:
    """The set of values of a CVXPY vector variable that satisfy CVXPY constraints.

    The constraints are brought into standard form once; they must be convex (DCP), without
    parameters or other variables, and need only linear and second-order cones.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise InvalidInput("Expected CVXPY to be installed: pip install 'tacit[cvxpy]'.") from None
    if isinstance(constraints, cp.Constraint):
        constraints = [constraints]
    constraints = list(constraints)
    for constraint in constraints:
        if not isinstance(constraint, cp.Constraint):
            raise InvalidInput(f"Expected CVXPY constraints, got {constraint!r}.")
    if not isinstance(variable, cp.Variable) or variable.ndim != 1:
        raise InvalidInput(f"Expected a cvxpy.Variable with one axis, got {variable!r}.")
    given = [name for name, value in variable.attributes.items() if value not in (None, False)]
    if given:
        raise InvalidInput(
            f"Expected a variable without attributes, got {given}: write them as constraints."
        )
    problem = cp.Problem(cp.Minimize(0), constraints)
    foreign = [v for v in problem.variables() if v.id != variable.id] + problem.parameters()
    if foreign or not problem.variables():
        raise InvalidInput(
            f"Expected constraints on {variable.name()} alone, got others: {foreign}."
        )
    if not problem.is_dcp():
        wrong = [str(constraint) for constraint in constraints if not constraint.is_dcp()]
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
    return _CvxpySet(variable, constraints, data["A"], data["b"], cones, columns)


class _CvxpySet(Conic):
    """A set in CVXPY's standard form, whose violation is CVXPY's own."""

    def __init__(
        self,
        variable: Any,
        constraints: list[Any],
        matrix: Any,
        offset: np.ndarray[Any, Any],
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
        z = vector_of("point", point, self.dimension)
        with self._nearest.lock:
            self._variable.value = z
            broken = max(float(np.max(c.violation())) for c in self._constraints)
        return math.inf if math.isnan(broken) else broken
