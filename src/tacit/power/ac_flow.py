"""What would happen if a dispatch were used: an AC power flow at the true loads.

Newton's method of the package pypower. Generators make the active power that they were dispatched
and hold the voltage of their bus, as the dispatch has it; one of them on each island, the largest,
makes up for what is missing (the slack). Limits are not enforced but reported.

It reads the true loads and nothing of it is private: for their owners' eyes only.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._types import Vector
from tacit.errors import InvalidInput, SolverFailure
from tacit.power.case import Grid, package

if TYPE_CHECKING:
    import pandas as pd

BEYOND = 1e-4  # per unit, and of a line's limit: by less no limit counts as broken
SHARED = 5  # power flows at most, until generators have made up for what is missing
PQ, PV, SLACK = 1, 2, 3  # MATPOWER's kinds of buses


@dataclass(frozen=True)
class PowerFlow:
    """An AC power flow in per unit, its tables indexed as the grid's; empty if none was found.

    bus        voltage, angle (radians), v_min, v_max
    line       from_bus, to_bus, p_from, q_from, p_to, q_to, limit, loading (share of the limit)
    generator  bus, dispatched, p, q, q_min, q_max, slack (whether it makes up what is missing)
    """

    grid: Grid
    converged: bool
    bus: pd.DataFrame
    line: pd.DataFrame
    generator: pd.DataFrame

    @property
    def voltages(self) -> pd.DataFrame:
        """Buses whose voltage is beyond its limits."""
        low, high = self.bus["v_min"] - BEYOND, self.bus["v_max"] + BEYOND
        return self.bus[(self.bus["voltage"] < low) | (self.bus["voltage"] > high)]

    @property
    def overloads(self) -> pd.DataFrame:
        """Lines beyond their limits, the worst first."""
        beyond = self.line[self.line["loading"] > 1 + BEYOND]
        return beyond.sort_values("loading", ascending=False)

    @property
    def reactive(self) -> pd.DataFrame:
        """Generators beyond their reactive limits."""
        low, high = self.generator["q_min"] - BEYOND, self.generator["q_max"] + BEYOND
        return self.generator[(self.generator["q"] < low) | (self.generator["q"] > high)]

    def summary(self) -> dict[str, Any]:
        """The numbers that a person asks for; powers in MW."""
        mw, load = self.grid.base_mva, float(self.grid.bus["p_demand"].sum())
        found: dict[str, Any] = {
            "case": self.grid.name,
            "converged": self.converged,
            "load_mw": mw * load,
            "dispatched_mw": mw * float(self.generator["dispatched"].sum()),
        }
        if not self.converged:
            return found
        slack = self.generator[self.generator["slack"]]
        return found | {
            "slack_buses": sorted(set(slack["bus"].tolist())),
            "slack_mw": mw * float((slack["p"] - slack["dispatched"]).sum()),
            "losses_mw": mw * float(self.line[["p_from", "p_to"]].to_numpy().sum()),
            "lowest_voltage": float(self.bus["voltage"].min()),
            "highest_voltage": float(self.bus["voltage"].max()),
            "voltages": _records(self.voltages),
            "highest_loading": float(self.line["loading"].max()),
            "overloads": _records(self.overloads),
            "reactive": _records(self.reactive),
        }


def power_flow(grid: Grid, p: pd.Series, voltage: pd.Series) -> PowerFlow:
    """The power flow with generators at ``p`` and their buses at ``voltage``, both per unit.

    Returns a ``PowerFlow``, which says whether it ``converged``. Raises ``InvalidInput`` for
    numbers of other generators or buses.
    """
    case = _pypower_case(grid, p, voltage)
    api = package("pypower.api")
    quiet = api.ppoption(VERBOSE=0, OUT_ALL=0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old NumPy ways, and of steps that lead nowhere
        start, _ = api.rundcpf(case, quiet)  # angles to begin with
        case["bus"][:, 8] = np.nan_to_num(start["bus"][:, 8])
        found, converged = api.runpf(case, quiet)
    return _tables(grid, p, found, bool(converged))


def after_slack(
    grid: Grid, p: pd.Series, voltage: pd.Series, shed_price: float
) -> tuple[float, float]:
    """What a dispatch costs at the true loads in $/h, and the MW that are not served for it.

    The slack makes up for what is missing or too much, and where it reaches a limit, the other
    generators do, each by its room. What none can make is load that is not served, at its price in
    $/MWh; what none can take off is spilled, at no price.
    """
    low, high = grid.generator["p_min"], grid.generator["p_max"]
    for _ in range(SHARED):
        flow = power_flow(grid, p, voltage)
        if not flow.converged:
            raise SolverFailure(f"{grid.name}: no AC power flow was found for this dispatch.")
        made = flow.generator["p"]
        within = made.clip(low, high)
        beyond = float((made - within).sum())
        room = high - within if beyond > 0 else within - low
        if abs(beyond) <= BEYOND or not room.sum() > 0:
            break
        p = within + beyond * (room / room.sum()).clip(upper=1)
    short = max(beyond, 0.0) * grid.base_mva
    return grid.cost(within) + shed_price * short, short


def _pypower_case(grid: Grid, p: pd.Series, voltage: pd.Series) -> dict[str, Any]:
    """The case in pypower's tables. Charging conductance becomes part of shunts, at either end."""
    mw, bus, line, generator = grid.base_mva, grid.bus, grid.line, grid.generator
    for name, series, index in (("generator", p, generator.index), ("bus", voltage, bus.index)):
        if not series.index.equals(index) or not np.isfinite(series.to_numpy()).all():
            raise InvalidInput(
                f"Expected one number for each {name} of {grid.name}, got other {name}s or none. "
                "Is it another case?"
            )
    g_s, kinds = bus["conductance"].copy(), _kinds(grid)
    for end, tap in (("from_bus", line["tap"]), ("to_bus", 1.0)):
        g_s = g_s.add((line["g"] / 2 / tap**2).groupby(line[end]).sum(), fill_value=0.0)
    unlimited = np.isinf(line["limit"])
    # the reactive power of generators that cannot change it; that of others follows
    fixed = np.where(generator["q_min"] == generator["q_max"], generator["q_max"], 0.0)
    ones, zeros = np.ones(len(bus)), np.zeros(len(bus))
    tables = {
        "bus": [
            *(bus.index, kinds, mw * bus["p_demand"], mw * bus["q_demand"]),
            *(mw * g_s.loc[bus.index], mw * bus["susceptance"], ones, voltage, zeros),
            *(100 * ones, ones, bus["v_max"], bus["v_min"]),
        ],
        "gen": [
            *(generator["bus"], mw * p, mw * fixed, mw * generator["q_max"]),
            *(mw * generator["q_min"], voltage[generator["bus"]], np.full(len(p), mw)),
            *(np.ones(len(p)), mw * generator["p_max"], mw * generator["p_min"]),
            *[np.zeros(len(p))] * 11,
        ],
        "branch": [
            *(line["from_bus"], line["to_bus"], line["r"], line["x"], line["b"]),
            *[np.where(unlimited, 0.0, mw * line["limit"])] * 3,
            *(line["tap"], np.rad2deg(line["shift"]), np.ones(len(line))),
            *(np.rad2deg(line[side]).clip(-360, 360) for side in ("angle_min", "angle_max")),
        ],
    }
    arrays = {
        name: np.column_stack([np.asarray(column, np.float64) for column in columns])
        for name, columns in tables.items()
    }
    return {"version": "2", "baseMVA": mw, **arrays}


def matpower(grid: Grid, p: pd.Series, q: pd.Series, voltage: pd.Series) -> str:
    """A MATPOWER file of the grid, its loads and a dispatch, in per unit.

    For owners' eyes only: the loads are in it.
    """
    case = _pypower_case(grid, p, voltage)
    case["gen"][:, 2] = grid.base_mva * q
    case["bus"][:, 6] = grid.bus["area"]
    rows = []
    for cost in grid.generator["cost"]:
        if np.ndim(cost[0]):
            corners = [(grid.base_mva * at, dollars) for at, dollars in cost]
            rows.append([1, 0, 0, len(cost), *np.ravel(corners)])
        else:
            scale = grid.base_mva ** np.array([2, 1, 0])
            rows.append([2, 0, 0, 3, *np.divide(cost, scale)])
    case["gencost"] = rows
    text = (
        f"function mpc = dispatch\n%% {grid.name}, a dispatch of tacit: Pg, Qg, Vg, Vm. In service "
        "only; iron losses are shunts;\n%% base voltages are not known.\nmpc.version = '2';\n"
        f"mpc.baseMVA = {grid.base_mva!r};\n"
    )
    for table in ("bus", "gen", "branch", "gencost"):
        lines = (
            "\t".join(repr(float(value)).removesuffix(".0") for value in row) for row in case[table]
        )
        text += f"mpc.{table} = [\n" + "".join(f"\t{line};\n" for line in lines) + "];\n"
    return text


def _kinds(grid: Grid) -> Vector:
    """Buses with a generator that can change its reactive power hold their voltage."""
    networkx = package("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from(grid.bus.index)
    graph.add_edges_from(zip(grid.line["from_bus"], grid.line["to_bus"], strict=True))
    able = grid.generator[grid.generator["q_max"] > grid.generator["q_min"]]
    capacity = able.groupby("bus")["p_max"].sum()
    kinds = dict.fromkeys(grid.bus.index, PQ) | dict.fromkeys(capacity.index, PV)
    for island in networkx.connected_components(graph):
        own = capacity[capacity.index.isin(island)]
        if not len(own):
            raise InvalidInput(
                f"Expected a generator with reactive power on the island of bus {min(island)} of "
                f"{grid.name}, got none: it has no AC power flow."
            )
        kinds[own.idxmax()] = SLACK
    return np.array([kinds[bus] for bus in grid.bus.index], dtype=np.float64)


def _tables(grid: Grid, p: pd.Series, found: Any, converged: bool) -> PowerFlow:
    mw, unknown = grid.base_mva, np.nan
    bus = grid.bus[["v_min", "v_max"]].copy()
    bus.insert(0, "voltage", found["bus"][:, 7] if converged else unknown)
    bus.insert(1, "angle", np.deg2rad(found["bus"][:, 8]) if converged else unknown)
    line = grid.line[["from_bus", "to_bus"]].copy()
    for column, name in enumerate(("p_from", "q_from", "p_to", "q_to"), 13):
        line[name] = found["branch"][:, column] / mw if converged else unknown
    line["limit"] = grid.line["limit"]
    power = [np.hypot(line[f"p_{end}"], line[f"q_{end}"]) for end in ("from", "to")]
    line["loading"] = np.maximum(*power) / line["limit"]
    generator = grid.generator[["bus"]].copy()
    generator["dispatched"] = p
    for column, name in ((1, "p"), (2, "q")):
        generator[name] = found["gen"][:, column] / mw if converged else unknown
    generator[["q_min", "q_max"]] = grid.generator[["q_min", "q_max"]]
    slack = grid.bus.index[found["bus"][:, 1] == SLACK]
    generator["slack"] = generator["bus"].isin(slack)
    return PowerFlow(grid, converged, bus, line, generator)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = table.reset_index().to_dict(orient="records")
    return records
