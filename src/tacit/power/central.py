"""The whole grid in one solver: a bound on the cost of power flows, and a baseline for zones.

Whoever has all released loads and all costs may solve the released problem so, in one place: that
is what zones, with the same objectives, can at best agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.errors import InvalidInput, SolverFailure
from tacit.power.case import Grid
from tacit.power.cost import tariff, with_shortage, worth_of
from tacit.power.network import demand, network
from tacit.sets.cone_program import Program, row_scale

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem


def bound(grid: Grid) -> float:
    """The least generation cost in $/h over the relaxation, with all demand served.

    The set of ``network`` with eqs. (7), (8) as equations: no AC power flow that serves the demand
    is cheaper.
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
    """Every zone's z at the optimum for ``loads``, which are each zone's d in its own order."""
    whole = network(case.grid)
    of: dict[Any, float] = {}
    for net, own in zip(case.networks, loads, strict=True):
        entries = [(kind, bus) for kind in ("p", "q") for bus in net.buses]
        of |= dict(zip(entries, np.asarray(own).tolist(), strict=True))
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
