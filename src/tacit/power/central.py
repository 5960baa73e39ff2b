"""The whole grid in one solver: what zones, with the same objectives, can at best agree on.

Whoever has all released loads and all costs may solve the released problem so, in one place: a
baseline for distributed runs, and their limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.power.cost import price_of_shedding, tariff, with_shortage, worth_of
from tacit.power.network import Network, network
from tacit.sets.cone_program import Program, row_scale

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem


def solve_centrally(case: PowerProblem, loads: Sequence[Vector]) -> tuple[Vector, ...]:
    """Every zone's z at the optimum for ``loads``, which are each zone's d in its own order."""
    whole = network(case.grid)
    d = _in_order(case, whole, loads)
    matrix, offset, cones = whole.constraints
    balance, n, m = whole.balance @ whole.image, matrix.shape[1], len(d)
    if case.objective == "cost":
        price = price_of_shedding(case.grid, case.shed_price)
        costs = tariff(case.grid, whole, price, worth_of(case.grid, price))
        A, b, blocks = with_shortage(matrix, offset, cones, balance, d)
        P = np.append(whole.image.T @ (2 * costs.quadratic), np.zeros(2 * m))
        q = np.append(whole.image.T @ costs.linear, np.full(2 * m, costs.price))
    else:  # min y'y over y = balance @ x + d
        unit = sp.identity(m)
        A = sp.block_array([[matrix, None], [balance, -unit]], format="csc")
        b, blocks = np.concatenate([offset, -d]), (*cones, ("zero", m))
        P, q = np.append(np.zeros(n), np.full(m, 2.0)), np.zeros(n + m)
    x = _minimised(P, q, A, b, tuple(blocks))[:n]
    value = dict(zip(whole.names, (whole.image @ x).tolist(), strict=True))
    return tuple(np.array([value[name] for name in net.names]) for net in case.networks)


def _in_order(case: PowerProblem, whole: Network, loads: Sequence[Vector]) -> Vector:
    of: dict[Any, float] = {}
    for net, d in zip(case.networks, loads, strict=True):
        entries = [(kind, bus) for kind in ("p", "q") for bus in net.buses]
        of |= dict(zip(entries, np.asarray(d).tolist(), strict=True))
    return np.array([of[kind, bus] for kind in ("p", "q") for bus in whole.buses])


def _minimised(P: Vector, q: Vector, A: Any, b: Vector, blocks: Any) -> Vector:
    """The least ½x'diag(P)x + q'x: quadratic costs are of generators, entries of z of their own."""
    scale, worth = row_scale(A, blocks), max(float(abs(q).max()), float(P.max()))
    rows = sp.csc_matrix(sp.diags(scale) @ A)
    program = Program(sp.csc_matrix(sp.diags(P / worth)), rows, scale * b, blocks)
    _, x, _ = program.minimise(q=q / worth)
    return x
