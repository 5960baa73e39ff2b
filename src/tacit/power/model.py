"""A grid in zones as a problem for ``tacit.solve`` (Section 6.1, Appendix D).

Every zone minimises the squared load shedding of its own buses, f_z = ‖balance @ z + d‖², over its
network equations; zones agree on the variables of the lines between them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import SmoothStep
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, choice, positive
from tacit.objectives.residual import Residual
from tacit.power.case import Grid, load_case
from tacit.power.central import solve_centrally
from tacit.power.cost import GenerationCost, price_of_shedding, tariff, worth_of
from tacit.power.expected_loads import ExpectedLoads
from tacit.power.network import FLOWS, Network, demand, network
from tacit.power.served import served
from tacit.power.zones import Zones, grids_of, lines_between, partition

if TYPE_CHECKING:
    import pandas as pd

Beta = float | str | Mapping[int, float]
CHANGE = "the active and the reactive demand of one bus, each"


@dataclass(frozen=True)
class PowerProblem:
    """The agents, one per zone; iterate over it, or give it to ``tacit.solve``."""

    grid: Grid
    zones: Zones
    networks: tuple[Network, ...]
    agents: tuple[LocalProblem, ...]
    shared: tuple[tuple[str, Any], ...]  # what each global coordinate is
    objective: str = "shed"
    shed_price: float | None = None  # of the objective "cost", in $/MWh

    def __iter__(self) -> Iterator[LocalProblem]:
        return iter(self.agents)

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.agents, starting_penalties(self))

    @property
    def cut_lines(self) -> list[int]:
        """Lines between zones."""
        return sorted({key for quantity, key in self.shared if quantity == "p_from"})

    def tables(self, local: tuple[Vector, ...]) -> dict[str, pd.DataFrame]:
        """Tables by bus, line and generator, in per unit, from the zones' solutions.

        ``local`` is ``Result.local``. A cut line has the mean of its two zones' values. Load
        shedding reads the demand: the bus table is for its owners' eyes only.
        """
        import pandas as pd

        values: dict[str, dict[Any, list[float]]] = {}
        for net, z in zip(self.networks, local, strict=True):
            for (quantity, key), value in zip(net.names, np.asarray(z).tolist(), strict=True):
                if quantity != "u" or key in net.buses:
                    values.setdefault(quantity, {}).setdefault(key, []).append(value)
        mean = {q: {key: float(np.mean(v)) for key, v in of.items()} for q, of in values.items()}
        zone_of = {bus: name for name, buses in self.zones.items() for bus in buses}
        bus = pd.DataFrame(index=self.grid.bus.index)
        bus["zone"] = [zone_of[b] for b in bus.index]
        bus["voltage"] = [math.sqrt(max(mean["u"][b], 0.0)) for b in bus.index]
        bus[["p_demand", "q_demand"]] = self.grid.bus[["p_demand", "q_demand"]]
        shed = {
            b: (p, q)
            for net, z in zip(self.networks, local, strict=True)
            for b, p, q in zip(net.buses, *np.split(self._shortage(net, z), 2), strict=True)
        }
        bus[["p_shed", "q_shed"]] = [shed[b] for b in bus.index]
        line = self.grid.line[["from_bus", "to_bus", "limit"]].copy()
        line.insert(2, "cut", line.index.isin(self.cut_lines))
        for quantity in FLOWS:
            line[quantity] = [mean[quantity][k] for k in line.index]
        loading = np.hypot(line["p_from"], line["q_from"]), np.hypot(line["p_to"], line["q_to"])
        line["loading"] = np.maximum(*loading) / line["limit"]
        generator = self.grid.generator[["bus"]].copy()
        for quantity in ("p", "q"):
            generator[quantity] = [mean[quantity][g] for g in generator.index]
        return {"bus": bus, "line": line, "generator": generator}

    def served(self, local: tuple[Vector, ...]) -> dict[str, Any]:
        """The share of load served and what is short (``served.py``). For its owners' eyes."""
        return served(self.tables(local)["bus"], self.grid.base_mva)

    def cost(self, local: tuple[Vector, ...]) -> float:
        """The generation cost in $/h, which is public, without the price of what is short."""
        made, costs = self.tables(local)["generator"]["p"], self.grid.generator["cost"]
        return float(sum(_cost(costs[g], p) for g, p in made.items()))

    def central(self, objectives: Sequence[Any] | None = None) -> tuple[Vector, ...]:
        """Every zone's z at the optimum of the whole grid, solved in one place (``central.py``).

        ``objectives`` are the zones' released ones; without them it is the optimum at the true
        loads, which is not private.
        """
        if objectives is None:
            return solve_centrally(self, [demand(self.grid, net.buses) for net in self.networks])
        return solve_centrally(self, [np.asarray(objective.data) for objective in objectives])

    def _shortage(self, net: Network, z: Vector) -> Vector:
        """Demand that is not served: the balance of eqs. (7), (8)."""
        short: Vector = net.balance @ np.asarray(z, np.float64) + demand(self.grid, net.buses)
        return short


def build(
    case: Grid | str | Path | Any,
    zones: int | str | Path | Mapping[Any, Any] = 3,
    *,
    beta: Beta = 0.01,
    noise_on: str = "residual",
    nominal: Grid | str | Path | None = None,
    nominal_spread: float | None = None,
    objective: str = "shed",
    shed_price: float | None = None,
) -> PowerProblem:
    """The zones' problems.

    ``objective`` is "shed", the squared load shedding, or "cost", the generation cost with a price
    on what is short of, or beyond, the demand (``cost.py``): ``shed_price`` in $/MWh (reactive
    power: per MVArh), by default 100 times the largest marginal cost of the grid's generators.

    ``beta`` says how far one bus's active and reactive demand may each move between neighbours:
    a number in per unit, numbers per bus, "1% of largest" (of all active and reactive loads) or
    "1% of bus" (of each bus's own loads, active and reactive apart). A percentage is taken of the
    public loads of ``nominal`` (a case with the same buses). Without one it is taken of the
    private loads themselves, as the paper does; noise scaled by them gives them away, and results
    say that they are not certified.

    Loads that are read once are drawn towards the public ones of ``nominal``, where given, by
    ``nominal_spread``, a public number (0.1: loads lie within about 10% of the nominal ones), or
    else by as much as the noisy readings themselves suggest (``expected_loads.py``).

    Guarantee: ``Residual``'s, with the two demands of a bus as one group. Loads that the case
    models as generators with negative limits are part of the public set: not certified.
    """
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
    own_parts = zip(grids_of(grid, parts), parts.values(), strict=True)
    networks = tuple(network(part, buses) for part, buses in own_parts)
    bounds, doubt = _bounds(grid, beta, public)
    doubt = doubt or _loads_in_limits(grid)
    shared = _shared(grid, parts, networks)
    place = {name: i for i, name in enumerate(shared)}
    agents = []
    for name, net in zip(parts, networks, strict=True):
        size = len(net.buses)
        limit = bounds if np.ndim(bounds) == 0 else _pick(bounds, grid, net.buses)
        about: dict[str, Any] = {
            "groups": tuple(range(size)) * 2,
            "noise_on": noise_on,
            "slack": True,
            "change": CHANGE,
            "unit": "per unit",
            "doubt": doubt,
        }
        kind: Any = Residual
        if public is not None:
            kind = ExpectedLoads
            about |= {"expected": demand(public, net.buses), "spread": nominal_spread}
        shed = kind(net.balance, demand(grid, net.buses), limit, **about)
        coupling = [place.get(entry, -1) for entry in net.names]
        own = shed if price is None else GenerationCost(shed, tariff(grid, net, price, worth))
        agents.append(LocalProblem(own, net.feasible_set(), coupling, name))
    return PowerProblem(grid, parts, networks, tuple(agents), shared, objective, price)


def noise_deviation(agent: LocalProblem, settings: Settings) -> float:
    """The standard deviation of the noise on one entry of what receives it."""
    Δ = agent.objective.sensitivity(settings.mechanism.norm, agent.feasible_set)
    return float(np.sqrt(settings.mechanism.variance(Δ)))


def scheduled(case: PowerProblem, settings: Settings) -> Settings:
    """The settings with schedules for load shedding, where they were left out.

    In the metric of the local step f has smoothness L = 2, so that η^t = 1/(2 + 4σ√(Et)) with σ,
    the deviation of the noise on the residual; the form is the smooth theorem's (Section 5), the
    factor 4 and the penalties 10 (with noise) and 5 (without) come from trials on case14.
    """
    σ = max(noise_deviation(agent, settings) for agent in case.agents)
    step = SmoothStep(2.0, 4 * σ * math.sqrt(settings.local_updates))
    return dataclasses.replace(
        settings,
        penalty=settings.penalty or (10.0 if σ else 5.0),
        step_size=settings.step_size or step,
    )


def _cost(cost: Any, p: float) -> float:
    """In $/h of p in per unit, of a polynomial or of corners (``Grid``)."""
    return float(np.interp(p, *np.transpose(cost)) if np.ndim(cost[0]) else np.polyval(cost, p))


def starting_penalties(case: PowerProblem) -> tuple[Vector, Vector]:
    """Penalties and their groups, by global coordinate, for exact local steps on released loads.

    0.3 on flows and 30 on c and s, from trials on case118_ieee, case2869_pegase and case10000_goc:
    flows answer to loads with a slope of about 1, c and s with one of about a hundredth. For the
    generation cost 0.1 and 3, from trials on the cases of benchmarks/power_cost.py.
    """
    group = np.array([quantity in ("c", "s") for quantity, _ in case.shared], np.int64)
    flows, products = (0.1, 3.0) if case.objective == "cost" else (0.3, 30.0)
    return np.where(group == 1, products, flows), group


def _shared(grid: Grid, zones: Zones, networks: tuple[Network, ...]) -> tuple[tuple[str, Any], ...]:
    """The consensus vector φ: flows of every cut line, c and s of every pair of buses across."""
    zone_of = {bus: name for name, buses in zones.items() for bus in buses}
    lines = sorted(lines_between(grid, zones))
    pairs = sorted({p for net in networks for p in net.pairs if zone_of[p[0]] != zone_of[p[1]]})
    flows = [(quantity, line) for line in lines for quantity in FLOWS]
    return (*flows, *((quantity, pair) for pair in pairs for quantity in ("c", "s")))


def _bounds(grid: Grid, beta: Beta, nominal: Grid | None) -> tuple[Any, str]:
    """β in per unit, one number or (buses, 2) numbers, and why it is no proven bound."""
    if isinstance(beta, Mapping):
        missing = [b for b in grid.bus.index if b not in beta]
        if missing:
            raise InvalidInput(f"Expected a beta for every bus, got none for bus {missing[0]}.")
        return np.array([[float(beta[b])] * 2 for b in grid.bus.index]), ""
    share = re.fullmatch(r"\s*([0-9.eE+-]+)\s*%\s*of\s+(largest|bus)\s*", str(beta))
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
