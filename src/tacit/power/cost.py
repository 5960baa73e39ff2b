"""Generation cost, with a price on demand that is not met: public costs, private loads.

    f(z) = (Σ_g c₂ p_g² + c₁ p_g + c₀ + price ‖balance @ z + d‖₁) / worth

The price makes every f finite, whatever the noisy loads d are; where it is above the dual
prices of the balance, and all demand can be met, the minimum meets it (an exact penalty). ``worth``
is the largest marginal cost of a generator of the grid in $/h per unit of power, public: f is of
the order of the power in per unit, as the squared load shedding is, and like penalties suit it.

f has kinks, so that it is not solved with noise in every round: loads are released once
(``reading``), and every local step on the released objective is one cone program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, SolverFailure, positive
from tacit.objectives.objective import Objective, Statistics
from tacit.objectives.public import PublicObjective, own
from tacit.objectives.residual import Residual, on_host
from tacit.power.case import Grid, pglib
from tacit.power.network import Network, demand, network
from tacit.pytree import pytree
from tacit.sets.cone_program import Program, row_scale, weighted_square
from tacit.sets.conic import Conic

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem
    from tacit.sets.feasible_set import FeasibleSet

DEFAULT_PRICE = 100  # times the largest marginal cost of a generator: as lost load is valued
BOOST = 30.0  # of a link's cone (``with_shortage``)
RELEASE = (
    "Expected a release (tacit.release) of a problem of generation cost: its objective has kinks, "
    "and noise in every round is for smooth ones. Nothing was solved."
)


@pytree
class Tariff:
    """What z costs, all public: Σ_i quadratic_i z_i² + linear_i z_i + constant, and the price.

    All is divided by ``worth`` ($/h); the price is per unit of power that is short or in excess.
    """

    quadratic: Array = field(repr=False)
    linear: Array = field(repr=False)
    constant: float
    price: float
    worth: float

    def of(self, z: Array, short: Array) -> Array:
        """f at z, if the balance is short by so much."""
        made = (self.quadratic * z**2 + self.linear * z).sum() + self.constant
        return (made + self.price * abs(short).sum()).astype(z.dtype)

    def slope(self, z: Array) -> Array:
        """The gradient of the generation cost."""
        return 2 * self.quadratic * z + self.linear


class _Kinked(Objective):
    """What theory knows of a cost with a price on |shortage|: nothing that a step size needs."""

    smoothness, strong_convexity = None, 0.0

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        return math.inf


@pytree
class GenerationCost(_Kinked):
    """Generation cost of one zone, and the price of its demand that is not met.

    ``demand`` says balance, loads and who counts as neighbours; its value is not part of f.

    Guarantee: the loads are released as those of ``Residual``: d itself, with the groups and
    bounds of ``demand``. Costs and prices are public. Nothing else is offered: no gradient is
    released.
    """

    demand: Residual
    tariff: Tariff
    on_host: ClassVar[bool] = True

    neighbours, relation = own("neighbours", "demand"), own("relation", "demand")
    agreed, uncertified = own("agreed", "demand"), own("uncertified", "demand")
    dimension, data = own("dimension", "demand"), own("data", "demand")

    def value(self, z: Array) -> Array:
        return self.tariff.of(z, self.demand.matrix @ z + self.demand.data)

    def statistics(self) -> CostStatistics:
        return CostStatistics(self)

    def statistic(self, z: Array) -> NoReturn:
        raise InvalidInput(RELEASE)

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        raise InvalidInput(RELEASE)


@dataclass(frozen=True)
class CostStatistics(Statistics):
    """The loads: values and sensitivity are those of ``Residual.statistics()``."""

    objective: GenerationCost

    @property
    def values(self) -> Vector:  # type: ignore[override]
        return self.objective.demand.statistics().values

    def sensitivity(self, norm: int) -> float:
        return self.objective.demand.statistics().sensitivity(norm)

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicCost:
        demand = self.objective.demand
        loads = demand.statistics().released_objective(values, deviation).data
        return PublicCost(demand.matrix, loads, self.objective.tariff)


@pytree
class PublicCost(_Kinked, PublicObjective):
    """Generation cost with loads d that may be read by everyone."""

    matrix: Array = field(repr=False)
    data: Array = field(repr=False)
    tariff: Tariff
    on_host: ClassVar[bool] = True

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[-1])

    def value(self, z: Array) -> Array:
        return self.tariff.of(z, self.matrix @ z + self.data)

    def statistic(self, z: Array) -> Array:
        """A subgradient."""
        signs = np.sign(self.matrix @ z + self.data)
        return self.tariff.slope(z) + self.tariff.price * (self.matrix.T @ signs)

    @property
    def mean_curvature(self) -> float:
        """That of the generation cost; the price has none."""
        return 2 * float(np.mean(self.tariff.quadratic))

    def prox(self, feasible_set: FeasibleSet) -> Callable[[Vector, Vector], Vector]:
        """One cone program in x, with z = image @ x, and in what is short or in excess."""
        if not isinstance(feasible_set, Conic):
            raise InvalidInput(f"Expected a network's cone set, got {type(feasible_set).__name__}.")
        matrix, offset, cones, _, image, *_ = feasible_set.parts
        A, b, blocks = with_shortage(
            matrix, offset, cones, on_host(self.matrix) @ image, np.asarray(self.data)
        )
        pattern, numbers = weighted_square(sp.csr_matrix(image))
        n, size = image.shape[1], A.shape[1]
        pointer = np.append(pattern.indptr, np.full(size - n, pattern.nnz))
        P = sp.csc_matrix((pattern.data, pattern.indices, pointer), shape=(size, size))
        back, tariff = sp.csr_matrix(image.T), self.tariff
        program = Program(P, A, b, blocks, fast=True, rare=feasible_set.rare)

        def step(v: Vector, c: Vector) -> Vector:
            pull = back @ (tariff.linear - c * v)
            q = np.append(pull, np.full(size - n, tariff.price))
            scale = max(float(np.abs(q).max()), float(c.max())) / tariff.price  # most often 1
            changes = {"P": numbers @ (c + 2 * tariff.quadratic) / scale, "q": q / scale}
            return np.asarray(image @ program.find(**changes)[:n])

        return step


def with_shortage(
    matrix: Any, offset: Vector, cones: Any, balance: Any, d: Vector
) -> tuple[Any, Vector, tuple[tuple[str, int], ...]]:
    """Rows on (x, short, excess): a network's constraints, balance @ x + d = short − excess.

    None is longer than 1: admittances reach 1e5. With h := (u_i + u_j)/2 cones h ≥ ‖(c, s, ...)‖
    are met near their boundary, where a solver loses the digits of h − c: a Lorentz boost, which
    maps the cone onto itself, takes (h − c, h + c) to (BOOST (h − c), (h + c)/BOOST).
    """
    link = np.repeat([block == ("soc", 4) for block in cones], [m for _, m in cones])
    first, unit = np.flatnonzero(link)[::4], sp.identity(len(d))
    boost = sp.identity(len(offset), format="lil")
    boost[first, first] = boost[first + 1, first + 1] = (BOOST + 1 / BOOST) / 2
    boost[first, first + 1] = boost[first + 1, first] = -(BOOST - 1 / BOOST) / 2
    rows = [[boost @ matrix, None, None], [None, -unit, None], [None, None, -unit]]
    A = sp.block_array([*rows, [balance, -unit, unit]], format="csc")
    b = np.concatenate([boost @ offset, np.zeros(2 * len(d)), -d])
    blocks = (*cones, ("nonneg", 2 * len(d)), ("zero", len(d)))
    scale = row_scale(A, blocks)
    return sp.csc_matrix(sp.diags(scale) @ A), scale * b, blocks


def tariff(grid: Grid, net: Network, shed_price: float, worth: float) -> Tariff:
    """The costs of a zone's generators, and the price ($/MWh) of what its buses are short of."""
    quadratic, linear = np.zeros(len(net.names)), np.zeros(len(net.names))
    first = len(net.names) - 2 * len(net.generators)  # z ends in p_g and q_g
    costs = np.array(grid.generator.loc[net.generators, "cost"].tolist()).reshape(-1, 3) / worth
    at = slice(first, first + len(net.generators))
    quadratic[at], linear[at] = costs[:, 0], costs[:, 1]
    price = grid.base_mva * shed_price / worth
    return Tariff(quadratic, linear, float(costs[:, 2].sum()), price, worth)


def worth_of(grid: Grid, shed_price: float) -> float:
    """What f counts as 1, in $/h: the largest marginal cost, or the price where all is free."""
    return grid.base_mva * (largest_marginal_cost(grid) or shed_price)


def price_of_shedding(grid: Grid, shed_price: float | None) -> float:
    """In $/MWh: as given, or 100 times the largest marginal cost of a generator of the grid."""
    largest = largest_marginal_cost(grid)
    if shed_price is not None:
        return positive("shed_price", shed_price)
    if largest == 0:
        raise InvalidInput(
            f"Expected costs (gencost) or a shed_price ($/MWh) for {grid.name}, whose generation "
            "costs nothing. Nothing was solved."
        )
    return DEFAULT_PRICE * largest


def largest_marginal_cost(grid: Grid) -> float:
    """In $/MWh, over all generators and the power they can make. Public."""
    largest = 0.0
    for name, row in grid.generator.iterrows():
        cost = row["cost"]
        if np.ndim(cost[0]) or cost[0] < 0:
            raise InvalidInput(
                f"Expected convex quadratic generation costs for the objective 'cost', got another "
                f"one of generator {name} of {grid.name}. Nothing was built."
            )
        slopes = (2 * cost[0] * row[end] + cost[1] for end in ("p_min", "p_max"))
        largest = max(largest, *map(abs, slopes))
    return largest / grid.base_mva


def published_cost(name: str) -> float | None:
    """The AC cost in $/h of a PGLib case, as its BASELINE.md has it; None for others."""
    folder = pglib()
    for table in () if folder is None else folder.rglob("BASELINE.md"):
        for line in table.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) > 5 and cells[1] == name and re.fullmatch(r"[0-9.e+]+", cells[5]):
                return float(cells[5])
    return None


# --- the whole grid in one solver: a bound, and what zones can at best agree on ------------------


def bound(grid: Grid) -> float:
    """The least generation cost in $/h over the relaxation, with all demand served.

    The set of ``network`` with eqs. (7), (8) as equations: no AC power flow that serves the demand
    is cheaper.

    Raises ``InvalidInput`` for a cost that is not convex, ``SolverFailure`` without an optimum.
    """
    whole = network(grid)
    matrix, offset, cones = whole.constraints
    n, generators = matrix.shape[1], len(whole.generators)
    p_g = np.arange(n - 2 * generators, n - generators)
    t = n + np.arange(generators)  # above every piece of a piecewise linear cost
    P, q, constant = np.zeros(n + generators), np.zeros(n + generators), 0.0
    pieces, heights = [sp.csr_matrix((0, n + generators))], [np.zeros(0)]
    for k, (name, cost) in enumerate(grid.generator["cost"].items()):
        if not np.ndim(cost[0]):
            P[p_g[k]], q[p_g[k]] = 2 * cost[0], cost[1]
            constant += cost[2]
            continue
        (p, y), q[t[k]] = np.transpose(cost), 1.0
        slopes = np.diff(y) / np.diff(p)
        if np.diff(slopes).min(initial=0.0) < 0:
            raise InvalidInput(f"Expected a convex cost of generator {name} of {grid.name}.")
        row, m = np.arange(len(slopes)), len(slopes)
        entries = np.concatenate([slopes, -np.ones(m)])
        at = (np.concatenate([row, row]), np.repeat([p_g[k], t[k]], m))
        pieces.append(sp.csr_matrix((entries, at), shape=(m, n + generators)))
        heights.append(slopes * p[:-1] - y[:-1])
    balance = whole.balance @ whole.image
    rows = sp.block_array([[balance, None], [matrix, sp.csr_matrix((len(offset), generators))]])
    b = np.concatenate([-demand(grid, whole.buses), offset, *heights])
    blocks = (("zero", balance.shape[0]), *cones, ("nonneg", sum(map(len, heights))))
    try:
        x = _minimised(P, q, sp.vstack([rows, *pieces], format="csc"), b, blocks)
    except SolverFailure as failure:
        raise SolverFailure(f"{grid.name}: {failure} Is there too much demand?") from None
    return float(P @ x**2 / 2 + q @ x + constant)


def solve_centrally(case: PowerProblem, loads: Sequence[Vector]) -> tuple[Vector, ...]:
    """Every zone's z at the optimum for ``loads``, which are each zone's d in its own order.

    Whoever has all released loads and all costs may solve the released problem so, in one place.
    """
    whole = network(case.grid)
    of: dict[Any, float] = {}
    for net, d in zip(case.networks, loads, strict=True):
        entries = [(kind, bus) for kind in ("p", "q") for bus in net.buses]
        of |= dict(zip(entries, np.asarray(d).tolist(), strict=True))
    d = np.array([of[kind, bus] for kind in ("p", "q") for bus in whole.buses])
    matrix, offset, cones = whole.constraints
    balance, n, m = whole.balance @ whole.image, matrix.shape[1], len(d)
    if case.shed_price is not None:
        worth = worth_of(case.grid, case.shed_price)
        costs = tariff(case.grid, whole, case.shed_price, worth)
        A, b, blocks = with_shortage(matrix, offset, cones, balance, d)
        P = np.append(whole.image.T @ (2 * costs.quadratic), np.zeros(2 * m))
        q = np.append(whole.image.T @ costs.linear, np.full(2 * m, costs.price))
    else:  # min y'y over y = balance @ x + d
        A = sp.block_array([[matrix, None], [balance, -sp.identity(m)]], format="csc")
        b, blocks = np.concatenate([offset, -d]), (*cones, ("zero", m))
        P, q = np.append(np.zeros(n), np.full(m, 2.0)), np.zeros(n + m)
    x = _minimised(P, q, A, b, blocks)[:n]
    value = dict(zip(whole.names, (whole.image @ x).tolist(), strict=True))
    return tuple(np.array([value[name] for name in net.names]) for net in case.networks)


def _minimised(P: Vector, q: Vector, A: Any, b: Vector, blocks: Any) -> Vector:
    """The least ½x'diag(P)x + q'x: quadratic costs are of generators, entries of z of their own."""
    blocks = tuple(block for block in blocks if block[1])
    scale, worth = row_scale(A, blocks), max(abs(q).max(), abs(P).max(), 1e-12)
    rows = sp.csc_matrix(sp.diags(scale) @ A)
    program = Program(sp.csc_matrix(sp.diags(P / worth)), rows, scale * b, blocks)
    _, x, _ = program.minimise(q=q / worth)
    return x
