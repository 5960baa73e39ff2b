"""Hard constraints on the coefficients of a model, as feasible sets.

Each gives a set of z = (coefficients, intercepts) for a number of features and of outputs (the
classes; 1 for two classes). Coefficients are a matrix, features × outputs, in C order. In
``tacit.learn`` the first four are called Box, Ball, Budget and Simplex.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import sets
from tacit.errors import InvalidInput, positive
from tacit.sets.feasible_set import FeasibleSet

Constraint = Callable[[int, int, float], FeasibleSet]


class _Constraint:
    """A set for the coefficients; intercepts, if any, are in a box of their own."""

    def __call__(self, features: int, outputs: int, intercept: float) -> FeasibleSet:
        coefficients = self._set(features, outputs)
        if not intercept:
            return coefficients
        return sets.Product([coefficients, sets.Box(-intercept, intercept, size=outputs)])

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        raise NotImplementedError


@dataclass(frozen=True)
class CoefficientBox(_Constraint):
    """|coefficient| ≤ bound: the paper's constraint."""

    bound: float

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        bound = positive("bound", self.bound)
        return sets.Box(-bound, bound, size=features * outputs)


@dataclass(frozen=True)
class CoefficientBall(_Constraint):
    """The coefficients together have length at most radius."""

    radius: float

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        return sets.Ball(0.0, positive("radius", self.radius), size=features * outputs)


@dataclass(frozen=True)
class CoefficientL1Ball(_Constraint):
    """The absolute values of the coefficients add up to at most total."""

    total: float

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        return sets.L1Ball(positive("total", self.total), size=features * outputs)


@dataclass(frozen=True)
class CoefficientSimplex(_Constraint):
    """Coefficients ≥ 0 that add up to total: shares of a mixture or a portfolio."""

    total: float = 1.0

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        return sets.Simplex(features * outputs, positive("total", self.total))


@dataclass(frozen=True)
class Sign(_Constraint):
    """Monotone effects, for two classes: the coefficient of feature j is ≥ 0 (+1) or ≤ 0 (−1)."""

    signs: Mapping[int, int]
    bound: float

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        bound = positive("bound", self.bound)
        if outputs != 1:
            raise InvalidInput("Expected two classes for sign constraints, got more.")
        if not isinstance(self.signs, Mapping):
            raise InvalidInput(f"Expected signs by feature, such as {{0: 1}}, got {self.signs!r}.")
        lower, upper = np.full(features, -bound), np.full(features, bound)
        for feature, sign in self.signs.items():
            number = isinstance(feature, int | np.integer)
            if not number or not 0 <= feature < features or sign not in (-1, 1):
                raise InvalidInput(
                    f"Expected signs +1 or -1 of features 0 to {features - 1}, got {sign!r} of "
                    f"{feature!r}."
                )
            (lower if sign > 0 else upper)[feature] = 0.0
        return sets.Box(lower, upper)


@dataclass(frozen=True)
class Convex(_Constraint):
    """Any CVXPY constraints: a function of the variable that returns them.

    The variable is features × classes; for two classes features × 1, the score of the second
    against the first. A lambda cannot be pickled: where that matters (``n_jobs``), give a function
    of a module.
    """

    constraints: Callable[[Any], list[Any]]

    def _set(self, features: int, outputs: int) -> FeasibleSet:
        import cvxpy as cp

        from tacit.sets.conic import from_cvxpy

        z = cp.Variable(features * outputs)
        matrix: Any = cp.reshape(z, (features, outputs), order="C")  # type: ignore[attr-defined]
        return from_cvxpy(z, self.constraints(matrix))
