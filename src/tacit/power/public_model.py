"""What is public of a grid in zones: everything but its loads (Section 6.1, Appendix D).

A zone's problem is made of this and of the zone's own loads: of others' loads nothing is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, choice, positive
from tacit.objectives.residual import Residual
from tacit.power.case import Grid, load_case
from tacit.power.cost import GenerationCost, price_of_shedding, tariff, worth_of
from tacit.power.expected_loads import ExpectedLoads
from tacit.power.network import FLOWS, Network, demand, network
from tacit.power.zones import Zones, grids_of, lines_between, partition

Beta = float | str | Mapping[int, float]
CHANGE = "the active and the reactive demand of one bus, each"


@dataclass(frozen=True)
class PublicModel:
    """A grid in zones, and all that decides the zones' problems beside their loads.

    bounds   β in per unit, one number or (buses, 2) numbers; ``doubt``: why it is no proven bound
    worth    what the generation cost counts as 1 (``cost.py``)
    nominal  public loads; ``spread``: how far the true ones lie from them
    """

    grid: Grid  # no loads are read of it, where beta is a number or nominal is given
    zones: Zones
    shared: tuple[tuple[str, Any], ...]  # what each global coordinate is
    objective: str
    shed_price: float | None
    worth: float
    bounds: Any
    doubt: str
    noise_on: str
    nominal: Grid | None
    spread: float | None

    @cached_property
    def _parts(self) -> dict[str, Grid]:
        return dict(zip(self.zones, grids_of(self.grid, self.zones), strict=True))

    @cached_property
    def _place(self) -> dict[tuple[str, Any], int]:
        return {name: i for i, name in enumerate(self.shared)}

    def network(self, zone: str) -> Network:
        """The equations of one zone."""
        return network(self._parts[zone], self.zones[zone])

    def agent(self, zone: str, net: Network, loads: Vector) -> LocalProblem:
        """One zone's problem; ``loads`` are its own, active then reactive, in per unit."""
        size, grid = len(net.buses), self.grid
        bounds = self.bounds
        limit = bounds if np.ndim(bounds) == 0 else _pick(bounds, grid, net.buses)
        about: dict[str, Any] = {
            "groups": tuple(range(size)) * 2,
            "noise_on": self.noise_on,
            "slack": True,
            "change": CHANGE,
            "unit": "per unit",
            "doubt": self.doubt,
        }
        kind: Any = Residual
        if self.nominal is not None:
            kind = ExpectedLoads
            about |= {"expected": demand(self.nominal, net.buses), "spread": self.spread}
        own = kind(net.balance, loads, limit, **about)
        if self.shed_price is not None:
            own = GenerationCost(own, tariff(grid, net, self.shed_price, self.worth))
        coupling = [self._place.get(entry, -1) for entry in net.names]
        return LocalProblem(own, net.feasible_set(), coupling, zone)


def public_model(
    case: Grid | str | Path | Any,
    zones: int | str | Path | Mapping[Any, Any] = 3,
    *,
    beta: Beta = 0.01,
    noise_on: str = "residual",
    nominal: Grid | str | Path | None = None,
    nominal_spread: float | None = None,
    objective: str = "shed",
    shed_price: float | None = None,
) -> PublicModel:
    """The model of ``build``, which says what these are."""
    grid = load_case(case)
    parts = partition(grid, zones)
    choice("objective", objective, ("shed", "cost"))
    if objective == "shed" and shed_price is not None:
        raise InvalidInput("Expected shed_price beside objective='cost' only.")
    price = price_of_shedding(grid, shed_price) if objective == "cost" else None
    worth = 0.0 if price is None else worth_of(grid, price)
    public = None if nominal is None else _same_buses(grid, load_case(nominal))
    if public is None and nominal_spread is not None:
        raise InvalidInput("Expected nominal_spread beside nominal only.")
    bounds, doubt = _bounds(grid, beta, public)
    doubt = doubt or _loads_in_limits(grid)
    about = (objective, price, worth, bounds, doubt, noise_on, public, nominal_spread)
    return PublicModel(grid, parts, _shared(grid, parts), *about)


class _Shared(Protocol):
    @property
    def shared(self) -> tuple[tuple[str, Any], ...]: ...
    @property
    def objective(self) -> str: ...


def starting_penalties(case: _Shared) -> tuple[Vector, Vector]:
    """Penalties and their groups, by global coordinate, for exact local steps on released loads.

    0.3 on flows and 30 on c and s, from trials on case118_ieee, case2869_pegase and case10000_goc:
    flows answer to loads with a slope of about 1, c and s with one of about a hundredth. For the
    generation cost 0.1 and 3, from trials on the cases of benchmarks/power_cost.py.
    """
    group = np.array([quantity in ("c", "s") for quantity, _ in case.shared], np.int64)
    flows, products = (0.1, 3.0) if case.objective == "cost" else (0.3, 30.0)
    return np.where(group == 1, products, flows), group


def is_share(beta: Any) -> bool:
    """Whether beta is a percentage, of public loads or of private ones."""
    return _share(beta) is not None


def _share(beta: Any) -> re.Match[str] | None:
    return re.fullmatch(r"\s*([0-9.eE+-]+)\s*%\s*of\s+(largest|bus)\s*", str(beta))


def _shared(grid: Grid, zones: Zones) -> tuple[tuple[str, Any], ...]:
    """The consensus vector φ: flows of every cut line, c and s of every pair of buses across."""
    lines = sorted(lines_between(grid, zones))
    ends = grid.line.loc[lines, ["from_bus", "to_bus"]].to_numpy()
    pairs = sorted({(int(min(pair)), int(max(pair))) for pair in ends})
    flows = [(quantity, line) for line in lines for quantity in FLOWS]
    return (*flows, *((quantity, pair) for pair in pairs for quantity in ("c", "s")))


def _bounds(grid: Grid, beta: Beta, nominal: Grid | None) -> tuple[Any, str]:
    """β in per unit, one number or (buses, 2) numbers, and why it is no proven bound."""
    if isinstance(beta, Mapping):
        missing = [b for b in grid.bus.index if b not in beta]
        if missing:
            raise InvalidInput(f"Expected a beta for every bus, got none for bus {missing[0]}.")
        return np.array([[float(beta[b])] * 2 for b in grid.bus.index]), ""
    share = _share(beta)
    if share is None:
        try:
            return positive("beta", float(beta)), ""
        except ValueError:
            raise InvalidInput(
                f"Expected beta as a positive number in per unit, '1% of largest' or '1% of bus', "
                f"got {beta!r}. Nothing was solved."
            ) from None
    part = positive("beta", float(share[1])) / 100  # of public loads, or of the private ones
    loads = np.abs((grid if nominal is None else nominal).bus[["p_demand", "q_demand"]].to_numpy())
    doubt = (
        ""
        if nominal is not None
        else "beta is a share of the private loads themselves, so its scale tells them."
    )
    return (float(part * loads.max()) if share[2] == "largest" else part * loads), doubt


def _same_buses(grid: Grid, nominal: Grid) -> Grid:
    if not nominal.bus.index.equals(grid.bus.index):
        raise InvalidInput(f"Expected the buses of {grid.name} in the nominal case {nominal.name}.")
    return nominal


def _loads_in_limits(grid: Grid) -> str:
    limits = grid.generator
    loads = limits.index[(limits["p_min"] < 0) & (limits["p_max"] <= 0)]
    if not len(loads):
        return ""
    return f"generator {loads[0]} is a dispatchable load, whose size is in the public limits."


def _pick(bounds: Vector, grid: Grid, buses: list[int]) -> tuple[float, ...]:
    rows = bounds[grid.bus.index.get_indexer(buses)]
    return tuple(rows.T.ravel().tolist())
