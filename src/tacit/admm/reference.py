"""The optimum of a problem in one place, without privacy: what private answers are compared with.

For losses with kinks, and for any loss on sets that only a solver projects onto, which have no
exact local steps. A level bundle method (Lemaréchal, Nemirovskii and Nesterov, 1995) over all
coordinates at once, in units of widths:

    cuts     f_p(z) ≥ f_p(z^k) + g_k'(z − z^k), one of every agent and point: their largest values
             add up to a model below F
    below    the least of the model over the sets: a bound on F* by a cone program
    next     the point nearest to the best one where the model is at most halfway between the two

It ends when best − below is within the tolerance: a certificate for convex losses, whatever the
points were. A loss that is not convex is found out where its cuts lie above its values.

Guarantee: none. It reads the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem, objective_value, start_point
from tacit.errors import InvalidInput, SolverFailure
from tacit.sets import Ball, Box, Conic, L1Ball, Product, Simplex
from tacit.sets.closed_form import CutBox
from tacit.sets.cone_program import Program
from tacit.sets.feasible_set import FeasibleSet

LEVEL = 0.3  # of the way from below to the best value, where the next point is
MOST_COORDINATES = 1000
KEPT = 30  # rounds of cuts that are kept whether they bind or not
BINDS = 1e-7  # a multiplier from which on a cut does

_slope = jax.jit(jax.grad(lambda z, f: f.value(z)))
Rows = tuple[Any, Vector, list[tuple[str, int]], Any]  # A, b, cones and F: z = Fx, b − Ax in K


class Optimum(NamedTuple):
    """The best point of every agent, F there, and how far F* may be below it."""

    points: list[Vector]
    value: float
    gap: float
    rounds: int
    converged: bool


def rows_of(W: FeasibleSet) -> Rows:
    """A set as cones."""
    n = W.dimension
    one, nothing = sp.identity(n, format="csc"), np.zeros(n)
    cones: list[tuple[str, int]]
    if isinstance(W, Conic):
        matrix, offset, blocks = W.constraints
        return matrix, offset, list(blocks), W.parts[4]
    if isinstance(W, Product):
        parts = [rows_of(part) for part in W.sets]
        matrix, form = (sp.block_diag([part[k] for part in parts], "csc") for k in (0, 3))
        cones = [cone for part in parts for cone in part[2]]
        return matrix, np.concatenate([part[1] for part in parts]), cones, form
    if isinstance(W, Box | CutBox):
        lower, upper = np.asarray(W.lower), np.asarray(W.upper)
        high, low = np.isfinite(upper), np.isfinite(lower)
        sides, limits = [one[high], -one[low]], [upper[high], -lower[low]]
        cones = [("nonneg", int(high.sum() + low.sum()))]
        if isinstance(W, CutBox):
            sides, limits = [*sides, np.asarray(W.normal)[None]], [*limits, np.ravel(W.offset)]
            cones.append(("zero" if W.equation else "nonneg", 1))
        return sp.vstack(sides, "csc"), np.concatenate(limits), cones, one
    if isinstance(W, Simplex):
        matrix = sp.vstack([np.ones((1, n)), -one], "csc")
        return matrix, np.append(W.total, nothing), [("zero", 1), ("nonneg", n)], one
    if isinstance(W, Ball):
        matrix = sp.vstack([sp.csc_matrix((1, n)), -one], "csc")
        return matrix, np.append(W.extent, -np.asarray(W.center)), [("soc", n + 1)], one
    if isinstance(W, L1Ball):  # |z − center| ≤ t, Σt ≤ extent
        matrix = sp.bmat([[one, -one], [-one, -one], [None, np.ones((1, n))]], "csc")
        center = np.asarray(W.center)
        offset = np.concatenate([center, -center, [np.asarray(W.extent)]])
        return matrix, offset, [("nonneg", 2 * n + 1)], sp.hstack([one, 0 * one], "csc")
    raise InvalidInput(
        f"Expected sets of Tacit's own for the optimum of losses with kinks, got "
        f"{type(W).__name__}. Nothing was computed."
    )


def places_of(problem: Problem) -> tuple[list[Vector], int]:
    """Where each agent's coordinates are in one vector of all, and its length."""
    places, size = [], problem.size
    for agent in problem.agents:
        at = np.array(agent.coupling)
        private = at < 0
        at[private] = size + np.arange(private.sum())
        size += int(private.sum())
        places.append(at)
    return places, size


def least_over(problem: Problem, places: list[Vector], size: int) -> Callable[[Vector], float]:
    """The least of q'u over all sets together, as a function of q."""
    if size > MOST_COORDINATES:
        raise InvalidInput(f"Expected at most {MOST_COORDINATES} coordinates, got {size}.")
    model = _Model(problem, places, np.ones(size))
    width = model._width
    nothing = sp.csc_matrix((width, width))
    program = Program(nothing, model._matrix[:, :width], model._offset, tuple(model._cones))

    def least(q: Vector) -> float:
        c = np.append(q, np.zeros(width - size))
        _, x, _ = program.minimise(q=c)
        return float(c @ x)

    return least


def optimum(
    problem: Problem,
    tolerance: float,
    rounds: int,
    show: Callable[..., None] = lambda *stage, **about: None,
) -> Optimum:
    """To ``tolerance`` of F's size, or of how much it has fallen if that is more; after ``rounds``
    at the latest. Everything is in one vector: coordinates in common, then those of each agent.
    ``show`` hears of every round."""
    places, size = places_of(problem)
    if size > MOST_COORDINATES:
        raise InvalidInput(
            f"Expected at most {MOST_COORDINATES} coordinates for the optimum of losses with kinks "
            f"or on sets that need a solver, got {size}. Give rounds alone: steps then adapt."
        )
    unit, u = np.ones(size), np.zeros(size)
    for agent, at in zip(problem.agents, places, strict=True):
        width = np.asarray(agent.feasible_set.widths, np.float64)
        unit[at] = np.where(width > 0, width, 1.0)
        u[at] = start_point(agent)
    model = _Model(problem, places, unit)
    best, above, below, scale, done = u, np.inf, -np.inf, 1.0, 0
    while done < rounds:
        show("solving", done=done, rounds=rounds)
        done += 1
        value = model.cut(u)
        if value < above:
            best, above = u, value
        try:
            lower, lowest = model.least()
        except SolverFailure:  # of cuts that are hardly apart: what is known by now is the answer
            break
        below = max(below, lower)
        scale = max(abs(above), model.first - above, 1e-300)
        if lower > above + 1e-6 * scale:
            raise InvalidInput(
                "Expected convex losses, got one whose cuts lie above its values. Nothing is known "
                "of the optimum."
            )
        if above - below <= tolerance * scale:
            break
        try:
            u = model.nearest(best, below + LEVEL * (above - below))
        except SolverFailure:
            u = lowest
    show("solving", done=done, rounds=done)
    gap = max(above - below, 0.0)
    return Optimum([best[at] for at in places], above, gap, done, gap <= tolerance * scale)


class _Model:
    """Cuts of every agent, and the cone programs over them: in (u/unit, x of the sets, r)."""

    def __init__(self, problem: Problem, places: list[Vector], unit: Vector) -> None:
        self.agents, self.places, self.unit = problem.agents, places, unit
        self.first, self.cuts, self.age = np.nan, [], 0  # type: ignore[var-annotated]
        known: dict[Any, Rows] = {}
        for agent, at in zip(problem.agents, places, strict=True):
            key = id(agent.feasible_set), at.tobytes()
            known[key] = known.get(key) or rows_of(agent.feasible_set)
        of_sets = list(known.values())
        where = [np.frombuffer(at, np.int64) for _, at in known]
        links = []
        for at in where:  # Fx = u there
            pick = sp.csc_matrix((unit[at], (np.arange(len(at)), at)), (len(at), len(unit)))
            links.append(pick)
        rows, forms = sp.block_diag([r[0] for r in of_sets]), [r[3] for r in of_sets]
        link = sp.hstack([sp.vstack(links), -sp.block_diag(forms)])
        outer = sp.hstack([sp.csc_matrix((rows.shape[0], len(unit))), rows])
        many, linked = len(problem.agents), link.shape[0]
        self._width = link.shape[1]
        empty = sp.csc_matrix((linked + outer.shape[0], many))
        self._matrix = sp.hstack([sp.vstack([link, outer]), empty], "csc")
        self._offset = np.concatenate([np.zeros(linked), *(r[1] for r in of_sets)])
        self._cones = [("zero", linked), *(cone for r in of_sets for cone in r[2])]

    def cut(self, u: Vector) -> float:
        """F there, and a cut of every agent."""
        total, many = 0.0, len(self.agents)
        for p, (agent, at) in enumerate(zip(self.agents, self.places, strict=True)):
            value, g = _value_and_slope(agent, u[at])
            total += value
            row = np.zeros(self._width + many)
            row[at], row[self._width + p] = g * self.unit[at], -1.0
            self.cuts.append((row, float(g @ u[at]) - value, self.age))
        self.age += 1
        self.first = total if np.isnan(self.first) else self.first
        return total

    def _solved(self, P: Any, q: Vector, more: Any, limit: list[float]) -> tuple[Vector, Vector]:
        cuts = [sp.csc_matrix(np.array([row for row, _, _ in self.cuts])), *more]
        A = sp.vstack([self._matrix, *cuts], "csc")
        b = np.concatenate([self._offset, [at for _, at, _ in self.cuts], limit])
        cones = (*self._cones, ("nonneg", len(self.cuts) + len(limit)))
        _, x, y = Program(P, A, b, cones, q).minimise(q=q)
        return x, y[len(self._offset) :]

    def least(self) -> tuple[float, Vector]:
        """The least value of the model, and where it is."""
        columns = self._width + len(self.agents)
        q = np.zeros(columns)
        q[self._width :] = 1.0
        x, _ = self._solved(sp.csc_matrix((columns, columns)), q, [], [])
        return float(q @ x), x[: len(self.unit)] * self.unit

    def nearest(self, best: Vector, level: float) -> Vector:
        """The point nearest to the best one where the model is at most at ``level``."""
        n, columns = len(self.unit), self._width + len(self.agents)
        P = sp.csc_matrix((np.ones(n), (np.arange(n), np.arange(n))), (columns, columns))
        q, total = np.zeros(columns), np.zeros((1, columns))
        q[:n], total[0, self._width :] = -best / self.unit, 1.0
        x, y = self._solved(P, q, [sp.csc_matrix(total)], [level])
        largest = max(float(np.abs(y[:-1]).max(initial=0.0)), 1e-300)
        self.cuts = [
            cut
            for cut, multiplier in zip(self.cuts, y[:-1], strict=True)
            if cut[2] >= self.age - KEPT or multiplier > BINDS * largest
        ]
        found: Vector = x[:n] * self.unit
        return found


def _value_and_slope(agent: LocalProblem, z: Vector) -> tuple[float, Vector]:
    """f and a subgradient, of the loss itself where gradients are clipped."""
    f = agent.objective
    value = objective_value(f, z)
    g = np.asarray(_slope(z, f) if f.clipped else f.gradient(z), np.float64)
    if not np.isfinite(value) or not np.isfinite(g).all():
        raise SolverFailure("a loss or its gradient is not finite at a point of the set.")
    return value, g
