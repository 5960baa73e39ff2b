"""A grid in zones as a problem for ``tacit.solve`` (Section 6.1, Appendix D).

Every zone minimises the squared load shedding of its own buses, f_z = ‖balance @ z + d‖², over its
network equations; zones agree on the variables of the lines between them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import html
from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings, SmoothStep
from tacit.errors import InvalidInput, TacitError, choice, shown
from tacit.planning import TOLERANCE, Known, Plan, noise_energy, plan
from tacit.power.ac_flow import after_slack
from tacit.power.case import Grid
from tacit.power.cost import solve_centrally
from tacit.power.network import FLOWS, Network, demand
from tacit.power.public_model import Beta, Zones, public_model, starting_penalties
from tacit.privacy.mechanisms import Mechanism

if TYPE_CHECKING:
    import pandas as pd

MOST_ZONES = 12  # that a notebook lists
LEAST = 1e-3  # per unit: a bus that is short of less counts as served


@dataclass(frozen=True, repr=False)
class PowerProblem:
    """The agents, one per zone; iterate over it, or give it to ``tacit.solve``."""

    grid: Grid
    zones: Zones
    networks: tuple[Network, ...]
    agents: tuple[LocalProblem, ...]
    shared: tuple[tuple[str, Any], ...]  # what each global coordinate is
    objective: str = "shed"
    shed_price: float | None = None  # of the objective "cost", in $/MWh

    def __repr__(self) -> str:
        """One line: all fields are pages long."""
        return f"PowerProblem({len(self.zones)} zones of {self.grid!r})"

    def __iter__(self) -> Iterator[LocalProblem]:
        return iter(self.agents)

    @html.never_raises
    def _repr_html_(self) -> str:
        """For notebooks: what is public, and no load."""
        grid = self.grid
        doubt = next((u for a in self.agents if (u := a.objective.uncertified)), "")
        first = html.box("Loads are private; network, limits and costs are taken for public.")
        keep = ""
        if doubt:  # then the size of the change may be a share of private loads
            first = html.box(f"NOT CERTIFIED, nothing is promised: {doubt}", loud=True)
            keep = " (do not publish)"
        objective = "squared load shedding"
        if self.shed_price is not None:
            objective = f"generation cost, {self.shed_price:.6g} $/MWh for what is short"
        sizes = f"{len(grid.line)} lines, {len(grid.generator)} generators"
        border = f"{len(self.cut_lines)}, with {len(self.shared)} numbers in common"
        changes = dict.fromkeys(a.objective.neighbours for a in self.agents)
        rows = [
            ("grid", f"{len(grid.bus)} buses, {sizes}"),
            ("lines between zones", border),
            ("objective", objective),
            *(("hides", f"{change}{keep}") for change in changes),
        ]
        zones = [
            (name, len(buses), agent.dimension)
            for (name, buses), agent in zip(self.zones.items(), self.agents, strict=False)
        ]
        listed = html.table(zones[:MOST_ZONES], ("zone", "buses", "variables"))
        more = len(zones) - MOST_ZONES
        rest = html.small(f"and {more} other zones") if more > 0 else ""
        title = f"{grid.name} in {len(zones)} zones"
        return html.card(title, first, html.table(rows), listed, rest)

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

        if not isinstance(local, tuple | list):
            raise InvalidInput(
                f"Expected Result.local, got a value of type {type(local).__name__}."
            )
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
        shed: dict[int, tuple[float, float]] = {}
        for net, z in zip(self.networks, local, strict=True):  # the balance of eqs. (7), (8)
            short = net.balance @ np.asarray(z, np.float64) + demand(self.grid, net.buses)
            shed |= dict(zip(net.buses, zip(*np.split(short, 2), strict=True), strict=True))
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
        """What ``served`` below says. For its owners' eyes."""
        return served(self.tables(local)["bus"], self.grid.base_mva)

    def cost(self, local: tuple[Vector, ...]) -> float:
        """The generation cost in $/h, which is public, without the price of what is short."""
        return self.grid.cost(self.tables(local)["generator"]["p"])

    def price_of_privacy(self, local: tuple[Vector, ...]) -> dict[str, Any] | None:
        """What a private dispatch is worth at the true loads, and what the optimum there would be.

        Of the generation cost: $/h ``after_slack``; else the share of the active load that is
        served. None where one of them is not known. For its owners' eyes.
        """
        found = []
        for one in (local, None):
            try:
                tables = self.tables(one or self.central())
                if self.shed_price is None:
                    found.append(served(tables["bus"], self.grid.base_mva)["p"]["share"])
                    continue
                dispatch = tables["generator"]["p"], tables["bus"]["voltage"]
                found.append(after_slack(self.grid, *dispatch, self.shed_price)[0])
            except TacitError:  # whatever this reads, the run is finished
                return None
        what, unit = "generation cost after slack", "$/h"
        if self.shed_price is None:
            what, unit = "active load served", "share"
        return {"what": what, "unit": unit, "private": found[0], "without_privacy": found[1]}

    def central(self, objectives: Sequence[Any] | None = None) -> tuple[Vector, ...]:
        """Every zone's z at the optimum of the whole grid, solved in one place.

        ``objectives`` are the zones' released ones; without them it is the optimum at the true
        loads, which is not private.
        """
        if objectives is None:
            return solve_centrally(self, [demand(self.grid, net.buses) for net in self.networks])
        return solve_centrally(self, [objective.data for objective in objectives])


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

    Released loads are drawn towards the public ones of ``nominal``, where given, by
    ``nominal_spread``, a public number (0.1: loads lie within about 10% of the nominal ones), or
    else by as much as the released loads themselves suggest (``shrunk``).

    Guarantee: ``Residual``'s, with the two demands of a bus as one group. Loads that the case
    models as generators with negative limits are part of the public set: not certified.
    """
    about = beta, noise_on, nominal, nominal_spread, objective, shed_price
    model = public_model(case, zones, *about)
    networks = tuple(model.network(zone) for zone in model.zones)
    agents = tuple(
        model.agent(zone, net, demand(model.grid, net.buses))
        for zone, net in zip(model.zones, networks, strict=True)
    )
    return PowerProblem(
        model.grid, model.zones, networks, agents, model.shared, objective, model.shed_price
    )


def served(bus: pd.DataFrame, base_mva: float) -> dict[str, Any]:
    """Load and what is short of it, active ("p") and reactive ("q"), in per unit and in MW, MVAr.

    From the bus table of ``PowerProblem.tables``: a bus is short of ``p_shed`` > 0, and has a
    surplus where that is negative. The share served is 1 − (sum of what buses are short of)/(sum of
    demands > 0), at least 0; ``buses`` is the number of buses short of more than 0.001.
    Computed from the private demand: for its owners' eyes only.
    """
    found: dict[str, Any] = {"least": LEAST, "of_buses": len(bus)}
    for kind, unit in (("p", "mw"), ("q", "mvar")):
        demand, shed = (bus[f"{kind}_{what}"].to_numpy() for what in ("demand", "shed"))
        load = float(np.maximum(demand, 0).sum())
        short = float(np.maximum(shed, 0).sum())
        per_unit = {"load": load, "short": short, "surplus": float(np.maximum(-shed, 0).sum())}
        found[kind] = {
            "share": max(0.0, 1 - short / load) if load > 0 else 1.0,
            "buses": int((shed > LEAST).sum()),
            **per_unit,
            **{f"{name}_{unit}": value * base_mva for name, value in per_unit.items()},
        }
    return found


# --- how a run on a grid spends what is asked for ---------------------------------------------

# what only one of the two ways has
OF_ROUNDS = ("local_updates", "step_size", "noise_on", "perturbation", "calibration")
OF_A_RELEASE = ("tolerance", "shed_price", "nominal_spread", "central", "publish")
# of ``Settings``
OTHERS = ("tolerance", "penalty", "local_updates", "step_size", "perturbation", "calibration")


def asked_for(given: Mapping[str, Any], delta: float | None = None) -> Asked:
    """What a run is asked for by options, or a study's keys, that were given.

    One release, unless noise in every round is wished; all that does not fit is refused. ``delta``
    is that of one release with Gaussian noise, where none is given; None: one must be given.
    """
    budgets = [name for name in ("total_epsilon", "epsilon", "no_noise") if name in given]
    if len(budgets) != 1:
        raise InvalidInput(
            "Expected one of total_epsilon, epsilon (of one update) and, where nothing is private, "
            f"no_noise, got {' and '.join(budgets) or 'none of them'}."
        )
    every = "epsilon" in given or given.get("noise_every_round", False)
    odd = [name for name in (OF_A_RELEASE if every else OF_ROUNDS) if name in given]
    if every and given.get("objective", "shed") != "shed":
        odd.append("objective")
    if odd:
        way = "where the loads are released once, without" if every else "beside"
        raise InvalidInput(
            f"Expected {odd[0]} {way} noise_every_round or epsilon of one update, got {odd[0]} = "
            f"{shown(given[odd[0]])}."
        )
    deltas = {name: given.get(name) for name in ("total_delta", "delta")}
    if budgets[0] != "no_noise":
        own, other = "total_delta", "delta"
        if budgets[0] == "epsilon":
            own, other = other, own
        if other in given:
            raise InvalidInput(f"Expected {own} beside {budgets[0]}, got {other}.")
        choice("mechanism", given.get("mechanism"), (None, "gaussian", "laplace"))
        if own not in given and given.get("mechanism") != "laplace":
            if every or delta is None:
                raise InvalidInput(f"Expected {own} for gaussian noise; not given.")
            deltas[own] = delta
    return Asked(
        given.get("total_epsilon"),
        deltas["total_delta"] or 0.0,
        given.get("mechanism"),
        {name: given[name] for name in OTHERS if name in given},
        given.get("epsilon"),
        deltas["delta"],
        given.get("rounds"),
        "rounds" if given.get("noise_every_round") else "release",
    )


def planned(problem: Problem, asked: Asked, nominal: bool = False) -> Plan:
    """How it is spent. ``nominal``: whether released loads are drawn towards public ones."""
    reason = "Loads are released once, with noise; exact steps follow."
    if nominal:
        reason += " Released loads are drawn towards the nominal ones."
    tolerance = None if nominal else worthwhile  # such loads have less noise than that of a release
    return plan(problem, asked, Known(None, 1.0, 100, scheduled, tolerance, reason))


def worthwhile(problem: Problem, noise: Mechanism) -> float:
    """The tolerance below which closer agreement is worth nothing beside the noise.

    ‖z̄‖ is about √n for n copies: ‖noise‖/(30 √n) leaves ‖z − z̄‖ at a thirtieth of the noise, in
    per unit. Public where bounds are: it stays at ``TOLERANCE`` where they are not.
    """
    if any(agent.objective.uncertified for agent in problem.agents):
        return TOLERANCE
    copies = sum(int(np.sum(np.asarray(agent.coupling) >= 0)) for agent in problem.agents)
    tolerance = math.sqrt(noise_energy(problem, noise) / max(copies, 1)) / 30
    return float(f"{min(max(tolerance, TOLERANCE), 1e-2):.2g}")


def noise_deviation(agent: LocalProblem, settings: Settings) -> float:
    """The standard deviation of the noise on one entry of what receives it."""
    Δ = agent.objective.sensitivity(settings.mechanism.norm, agent.feasible_set)
    return float(np.sqrt(settings.mechanism.variance(Δ)))


def scheduled(case: PowerProblem | Problem, settings: Settings) -> Settings:
    """The settings with schedules for load shedding, where they were left out.

    In the metric of the local step f has smoothness L = 2, so that η^t = 1/(2 + 4σ√(Et)) with σ,
    the deviation of the noise on the residual (Section 5, smooth); the factor 4 and the penalties
    10 (with noise) and 5 (without) are by experiment.
    """
    σ = max(noise_deviation(agent, settings) for agent in case.agents)
    step = SmoothStep(2.0, 4 * σ * math.sqrt(settings.local_updates))
    return dataclasses.replace(
        settings,
        penalty=settings.penalty or (10.0 if σ else 5.0),
        step_size=settings.step_size or step,
    )
