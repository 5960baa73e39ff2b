"""The second-order cone relaxation of AC power flow (Appendix D), for a zone or a whole grid.

With u_i = |V_i|², c_ij = Re V_i V_j*, s_ij = Im V_i V_j* in place of the paper's w^RR, w^II, w^RI
(c = w^RR_ij + w^II_ij, s = w^RI_ji − w^RI_ij, u_i = w^RR_ii + w^II_ii): the same set, compact and
smaller. The appendix prints w^RI_ji + w^RI_ij in its four flow equations; the right sign is minus.

Demand is in none of these equations: the set is public.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.power.case import Grid
from tacit.sets.conic import Conic

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[int, int]
FLOWS = ("p_from", "q_from", "p_to", "q_to")


@dataclass(frozen=True)
class Network:
    """The equations of one zone, over x = (u, c, s, p_g, q_g).

    ``image @ x`` is z = (p_from, q_from, p_to, q_to, c, s, u, p_g, q_g), the zone's variables.
    ``constraints`` on x are rows, offsets and cones (``Conic``). ``balance @ z`` is the power that
    leaves each own bus less what is generated there: first active, then reactive.
    """

    buses: list[int]  # own: N_z
    extended: list[int]  # V_z
    lines: list[int]  # L_z
    pairs: list[Pair]  # of buses that a line of L_z joins
    generators: list[int]
    image: Any
    balance: Any
    constraints: tuple[Any, Vector, list[tuple[str, int]]]
    rare: list[int]  # cones that seldom bind: limits of angles and flows

    @property
    def names(self) -> list[tuple[str, Any]]:
        """What each entry of z is: a quantity and the line, pair, bus or generator it is of."""
        return [
            *((quantity, line) for quantity in FLOWS for line in self.lines),
            *((quantity, pair) for quantity in ("c", "s") for pair in self.pairs),
            *(("u", bus) for bus in self.extended),
            *((quantity, g) for quantity in ("p", "q") for g in self.generators),
        ]

    def feasible_set(self) -> Conic:
        """F_z, with the balance as its slack."""
        matrix, offset, cones = self.constraints
        return Conic(matrix, offset, cones, image=self.image, slack=self.balance, rare=self.rare)


def network(grid: Grid, buses: Iterable[int] | None = None) -> Network:
    """The relaxation for the zone of these buses and the lines that touch it (Appendix D).

    Returns a ``Network``, its constraints by name. Without ``buses`` it is that of the whole grid.
    """
    own = list(grid.bus.index) if buses is None else sorted(buses)
    line = grid.line[grid.line["from_bus"].isin(own) | grid.line["to_bus"].isin(own)]
    generator = grid.generator[grid.generator["bus"].isin(own)]
    extended = sorted({*own, *line["from_bus"], *line["to_bus"]})
    bus = grid.bus.loc[extended]
    ends = line[["from_bus", "to_bus"]].to_numpy()
    pair_of = [(int(min(pair)), int(max(pair))) for pair in ends]
    pairs = sorted(set(pair_of))

    # The variables, each a row of the identity; then those at the ends i, j of every line.
    sizes = (len(extended), len(pairs), len(pairs), len(generator), len(generator))
    unit = sp.identity(sum(sizes), format="csr")
    u, c, s, p_g, q_g = (unit[k - n : k] for k, n in zip(np.cumsum(sizes), sizes, strict=True))
    i, j = (_positions(extended, line[end]) for end in ("from_bus", "to_bus"))
    pair = _positions(pairs, pair_of)
    turned = np.where(line["from_bus"] < line["to_bus"], 1.0, -1.0)  # s_ji = −s_ij
    u_i, u_j, c_ij, s_ij = u[i], u[j], c[pair], _times(turned, s[pair])

    # Power flow, eqs. (1)-(4): S_ij = (Y^ff)* u_i + (Y^ft)* (c_ij + i s_ij), S_ji likewise.
    ff, ft, tf, tt = _admittance(line)
    p_from = _times(ft.real, c_ij) + _times(ft.imag, s_ij) + _times(ff.real, u_i)
    q_from = _times(ft.real, s_ij) - _times(ft.imag, c_ij) - _times(ff.imag, u_i)
    p_to = _times(tf.real, c_ij) - _times(tf.imag, s_ij) + _times(tt.real, u_j)
    q_to = -_times(tf.real, s_ij) - _times(tf.imag, c_ij) - _times(tt.imag, u_j)
    z = (p_from, q_from, p_to, q_to, c, s, u, p_g, q_g)

    # Power balance, eqs. (7), (8), without the demand.
    leaves, arrives = _at(own, line["from_bus"]), _at(own, line["to_bus"])
    shunt, made = _at(own, extended), _at(own, generator["bus"])
    g_s, b_s = sp.diags(bus["conductance"].to_numpy()), sp.diags(bus["susceptance"].to_numpy())
    active = (leaves, None, arrives, None, None, None, shunt @ g_s, -made, None)
    reactive = (None, leaves, None, arrives, None, None, -shunt @ b_s, None, -made)
    balance = sp.vstack([_row_of_blocks(coefficients, z) for coefficients in (active, reactive)])

    # Limits of voltages and generators, eqs. (9), (10), and of angle differences, eq. (6).
    within = sp.vstack([u, p_g, q_g], format="csr")
    upper = np.concatenate([bus["v_max"] ** 2, generator["p_max"], generator["q_max"]])
    lower = np.concatenate([bus["v_min"] ** 2, generator["p_min"], generator["q_min"]])
    fixed, free = lower == upper, lower < upper
    low, high = (np.isfinite(line[side].to_numpy()) for side in ("angle_min", "angle_max"))
    angle_min, angle_max = line["angle_min"].to_numpy()[low], line["angle_max"].to_numpy()[high]
    turn_left = _times(np.tan(angle_min), c_ij[low]) - s_ij[low]
    turn_right = s_ij[high] - _times(np.tan(angle_max), c_ij[high])
    u_a, u_b = (u[_positions(extended, ends)] for ends in zip(*pairs, strict=True))
    cuts, heights = _lifted_cuts(grid, line, pairs, pair, turned, (u_a, u_b, c, s))
    turns = sp.vstack([turn_left, turn_right, cuts])

    # Thermal limits, eq. (5), of lines that could exceed them at all.
    v_i, v_j = (bus["v_max"].to_numpy()[at] for at in (i, j))
    limit, zero = line["limit"].to_numpy(), sp.csr_matrix((len(line), unit.shape[1]))
    begins = limit < v_i * (abs(ff) * v_i + abs(ft) * v_j)
    finishes = limit < v_j * (abs(tt) * v_j + abs(tf) * v_i)
    thermal = [
        _interleave([zero[at], -p[at], -q[at]])
        for p, q, at in ((p_from, q_from, begins), (p_to, q_to, finishes))
    ]
    limits = np.concatenate([limit[begins], limit[finishes]])

    # The link c² + s² ≤ u_i u_j, eq. (11), as a cone.
    link = _interleave([-(u_a + u_b) / 2, -c, -s, -(u_a - u_b) / 2])

    matrix = sp.vstack(
        [within[fixed], within[free], -within[free], turns, *thermal, link], format="csc"
    )
    straight, head = np.zeros(turns.shape[0] - len(heights)), np.kron(limits, (1.0, 0.0, 0.0))
    last = np.zeros(4 * len(pairs))
    offset = np.concatenate(
        [upper[fixed], upper[free], -lower[free], straight, heights, head, last]
    )
    cones = [("zero", int(fixed.sum())), ("nonneg", 2 * int(free.sum()))]
    cones = [block for block in cones if block[1]]
    rare = list(range(len(cones), len(cones) + (turns.shape[0] > 0) + len(limits)))
    cones += [("nonneg", turns.shape[0])] * (turns.shape[0] > 0)
    cones += [("soc", 3)] * len(limits) + [("soc", 4)] * len(pairs)
    return Network(
        own,
        extended,
        list(line.index),
        pairs,
        list(generator.index),
        sp.vstack(z, format="csr"),
        sp.csr_matrix(balance),
        (matrix, offset, cones),
        rare,
    )


def _lifted_cuts(
    grid: Grid, line: pd.DataFrame, pairs: list[Pair], pair: Vector, turned: Vector, at: Any
) -> tuple[Any, Vector]:
    """What limits of voltages and angles imply for V_i V_j*, as rows and offsets.

    The lifted nonlinear cuts of Coffrin, Hijazi and Van Hentenryck (2015, arXiv:1512.04644), which
    PowerModels has in its relaxation too. For limits φ − δ, φ + δ of the angle and l, h of the
    voltages, with σ = l + h at either end,

        σ_i σ_j (cos φ c + sin φ s)/cos δ ≥ h_j σ_j u_i + h_i σ_i u_j + h_i h_j (l_i l_j − h_i h_j)

    and likewise with l in place of h outside the bracket, whose sign then changes. They imply the
    bounds on c and s alone (PowerModels' ``ref_calc_voltage_product_bounds``): at u = l² the second
    is cos φ c + sin φ s ≥ l_i l_j cos δ, the chord between the corners of the sector.
    Pairs without limits of the angle to both sides have no cuts.
    """
    low, high = np.full(len(pairs), -np.inf), np.full(len(pairs), np.inf)
    one, other = line["angle_min"].to_numpy(), line["angle_max"].to_numpy()
    np.maximum.at(low, pair, np.where(turned > 0, one, -other))
    np.minimum.at(high, pair, np.where(turned > 0, other, -one))
    chosen = np.flatnonzero(np.isfinite(low) & np.isfinite(high) & (low <= high))
    low, high = low[chosen], high[chosen]
    φ, δ = (high + low) / 2, (high - low) / 2
    u_i, u_j, c, s = (rows[chosen] for rows in at)
    ends = np.array(pairs).reshape(-1, 2)[chosen].T
    (l_i, h_i), (l_j, h_j) = (grid.bus.loc[end, ["v_min", "v_max"]].to_numpy().T for end in ends)
    σ_i, σ_j = l_i + h_i, l_j + h_j
    middle = _times(σ_i * σ_j * np.cos(φ), c) + _times(σ_i * σ_j * np.sin(φ), s)
    rows, offsets = [], []
    for v_i, v_j, sign in ((h_i, h_j, 1.0), (l_i, l_j, -1.0)):
        ends_part = _times(np.cos(δ) * v_j * σ_j, u_i) + _times(np.cos(δ) * v_i * σ_i, u_j)
        rows.append(ends_part - middle)
        offsets.append(-sign * np.cos(δ) * v_i * v_j * (l_i * l_j - h_i * h_j))
    return sp.vstack(rows, format="csr"), np.concatenate(offsets)


def demand(grid: Grid, buses: Iterable[int]) -> Vector:
    """d: active, then reactive demand of the buses. Private."""
    at = grid.bus.loc[list(buses)]
    return np.concatenate([at["p_demand"], at["q_demand"]])


def _admittance(line: pd.DataFrame) -> tuple[Vector, Vector, Vector, Vector]:
    """Y^ff, Y^ft, Y^tf, Y^tt of every line."""
    y = 1 / (line["r"].to_numpy() + 1j * line["x"].to_numpy())
    charging = (line["g"].to_numpy() + 1j * line["b"].to_numpy()) / 2
    tap = line["tap"].to_numpy()
    turn = np.exp(1j * line["shift"].to_numpy())
    return (y + charging) / tap**2, -y * turn / tap, -y / (tap * turn), y + charging


def _times(factors: Vector, rows: Any) -> Any:
    product = rows.copy()
    product.data *= np.repeat(factors, np.diff(rows.indptr))
    product.eliminate_zeros()
    return product


def _interleave(blocks: list[Any]) -> Any:
    """Row 1 of every block, then row 2 of every block, and so on."""
    order = np.arange(sum(b.shape[0] for b in blocks)).reshape(len(blocks), -1).T.ravel()
    return sp.vstack(blocks, format="csr")[order]


def _row_of_blocks(coefficients: Iterable[Any], variables: Iterable[Any]) -> Any:
    """The coefficients of each kind of variable side by side; None is zero."""
    pairs = list(zip(coefficients, variables, strict=True))
    height = next(k.shape[0] for k, _ in pairs if k is not None)
    return sp.hstack([sp.csr_matrix((height, v.shape[0])) if k is None else k for k, v in pairs])


def _positions(items: list[Any], wanted: Iterable[Any]) -> Vector:
    where = {item: k for k, item in enumerate(items)}
    return np.array([where[item] for item in wanted], dtype=np.int64)


def _at(buses: list[int], of: Any) -> Any:
    """1 where the bus (row) is that of the line end or generator (column)."""
    where = {bus: k for k, bus in enumerate(buses)}
    entries = [(where[bus], k) for k, bus in enumerate(of) if bus in where]
    at = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return sp.csr_matrix((np.ones(len(at)), at.T), shape=(len(buses), len(of)))
