"""A grid in zones, and what is public of it: everything but its loads (Section 6.1, Appendix D).

A zone's problem is made of this and of the zone's own loads: of others' loads nothing is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from tacit._types import Array, Vector
from tacit.admm.problem import LocalProblem
from tacit.errors import CorruptFile, InvalidInput, array, choice, non_negative, positive
from tacit.objectives.public import PublicQuadratic
from tacit.objectives.residual import DataStatistics, Residual
from tacit.power.case import Grid, load_case, package
from tacit.power.cost import GenerationCost, price_of_shedding, tariff, worth_of
from tacit.power.network import FLOWS, Network, demand, network
from tacit.pytree import pytree, static, store
from tacit.tables import read_table

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem

Zones = dict[str, list[int]]  # name of a zone -> its buses
Beta = float | str | Mapping[int, float]
CHANGE = "the active and the reactive demand of one bus, each"
BLOCK = 16  # loads that share one factor of ``shrunk``


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
    def _place(self) -> dict[tuple[str, Any], int]:
        return {name: i for i, name in enumerate(self.shared)}

    def network(self, zone: str) -> Network:
        """The equations of one zone."""
        return network(self.grid, self.zones[zone])

    def agent(self, zone: str, net: Network, loads: Vector) -> LocalProblem:
        """One zone's problem; ``loads`` are its own, active then reactive, in per unit."""
        size, grid = len(net.buses), self.grid
        limit = self.bounds
        if np.ndim(limit):
            rows = grid.bus.index.get_indexer(net.buses)
            limit = tuple(limit[rows].T.ravel().tolist())
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
    public = None if nominal is None else load_case(nominal)
    if public is None and nominal_spread is not None:
        raise InvalidInput("Expected nominal_spread beside nominal only.")
    if public is not None and not public.bus.index.equals(grid.bus.index):
        raise InvalidInput(f"Expected the buses of {grid.name} in the nominal case {public.name}.")
    bounds, doubt = _bounds(grid, beta, public)
    doubt = doubt or _loads_in_limits(grid)
    about = (objective, price, worth, bounds, doubt, noise_on, public, nominal_spread)
    return PublicModel(grid, parts, _shared(grid, parts), *about)


def starting_penalties(case: PublicModel | PowerProblem) -> tuple[Vector, Vector]:
    """Penalties and their groups, by global coordinate, for exact local steps on released loads.

    By trials: flows answer to loads with a slope of about 1, c and s with one of about a hundredth.
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
        except (TypeError, ValueError):
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


def _loads_in_limits(grid: Grid) -> str:
    limits = grid.generator
    loads = limits.index[(limits["p_min"] < 0) & (limits["p_max"] <= 0)]
    if not len(loads):
        return ""
    return f"generator {loads[0]} is a dispatchable load, whose size is in the public limits."


# --- zones: a partition of the buses into parts that each have an operator of their own ---------


def partition(grid: Grid, zones: int | str | Path | Mapping[Any, Any] = 3) -> Zones:
    """The buses of every zone.

    A number asks METIS for that many balanced and connected zones with few lines between them;
    "area" takes the case's area column; a path to a CSV file with the columns ``bus`` and
    ``zone``, or a mapping from bus to zone, gives them explicitly.
    """
    of_bus: Mapping[Any, Any]
    if isinstance(zones, Mapping):
        of_bus = zones
    elif isinstance(zones, int) and not isinstance(zones, bool):
        of_bus = _by_metis(grid, zones)
    elif isinstance(zones, str | Path):
        of_bus = grid.bus["area"].to_dict() if zones == "area" else _from_csv(Path(zones))
    else:
        raise InvalidInput(
            f"Expected a number of zones, 'area', a CSV file or a mapping, got {zones!r}."
        )
    known = set(grid.bus.index)
    if missing := sorted(known - of_bus.keys()):
        raise InvalidInput(
            f"Expected a zone for every bus of {grid.name}, got none for {missing[0]}."
        )
    if unknown := sorted(of_bus.keys() - known):
        raise InvalidInput(f"Expected buses of {grid.name} in zones, got {unknown[0]}.")
    parts: dict[Any, list[int]] = {}
    for bus in grid.bus.index:
        parts.setdefault(of_bus[bus], []).append(int(bus))
    if len(parts) < 2:
        raise InvalidInput(f"Expected at least two zones in {grid.name}, got {len(parts)}.")
    named = {f"zone {name}": parts[name] for name in sorted(parts)}
    first, second = ends_of(grid, named)
    bordering = {*first[first != second].tolist(), *second[first != second].tolist()}
    if alone := [name for k, name in enumerate(named) if k not in bordering]:
        raise InvalidInput(f"Expected every zone to border on another; {alone[0]} does not.")
    return named


def ends_of(grid: Grid, zones: Zones) -> tuple[Vector, Vector]:
    """For both ends of every line, which zone it is in."""
    of_bus = {bus: k for k, buses in enumerate(zones.values()) for bus in buses}
    first, second = (
        np.array([of_bus[b] for b in grid.line[side].tolist()], np.int64)
        for side in ("from_bus", "to_bus")
    )
    return first, second


def lines_between(grid: Grid, zones: Zones) -> list[int]:
    """Lines whose ends are in two zones."""
    first, second = ends_of(grid, zones)
    return [int(line) for line in grid.line.index[first != second]]


def _from_csv(path: Path) -> dict[int, str]:
    try:
        table = read_table(path, ("bus", "zone"))
    except CorruptFile as error:
        raise InvalidInput(
            "Expected as zones a number, 'area', or a CSV file with the columns bus and zone. "
            f"{error} Nothing was solved."
        ) from None
    of_bus: dict[int, str] = {}
    for i in range(len(table)):
        try:
            bus, zone = int(table.written("bus")[i]), table.written("zone")[i].strip()
            if not zone:
                raise ValueError
        except (KeyError, ValueError):
            raise InvalidInput(
                f"Expected a bus number and a zone in {table.where(i)} of {path}, got none."
            ) from None
        if of_bus.setdefault(bus, zone) != zone:
            raise InvalidInput(f"Expected one zone for bus {bus} in {path}, got two.")
    return of_bus


def _by_metis(grid: Grid, zones: int) -> dict[int, int]:
    """METIS numbers parts as it likes; here they are numbered by their smallest bus."""
    pymetis = package("pymetis")
    buses = grid.bus.index
    if not 2 <= zones <= len(buses):
        raise InvalidInput(f"Expected between 2 and {len(buses)} zones, got {zones}.")
    ends = [buses.get_indexer(grid.line[side]) for side in ("from_bus", "to_bus")]
    graph = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=(len(buses),) * 2)
    graph = sp.csr_matrix(graph + graph.T)
    _, island = connected_components(graph, directed=False)
    main = np.flatnonzero(island == np.bincount(island).argmax())
    if zones > len(main):
        raise InvalidInput(f"Expected at most {len(main)} zones of connected buses, got {zones}.")
    inner = sp.csr_matrix(graph[main][:, main])
    neighbours = np.split(inner.indices, inner.indptr[1:-1])
    options = pymetis.Options(seed=0, contig=True)
    for recursive in (False, True):  # only the first method keeps zones connected
        _, found = pymetis.part_graph(
            zones, adjacency=neighbours, recursive=recursive, options=options
        )
        if len(set(found)) == zones:  # on tiny grids a zone may come out empty
            break
    else:
        raise InvalidInput(f"Expected METIS to find {zones} zones in {grid.name}; give them.")
    part = np.full(len(buses), np.bincount(found).argmin())  # islands join the smallest zone
    part[main] = found
    first: dict[int, int] = {}
    for p in part.tolist():
        first.setdefault(p, len(first) + 1)
    return {int(bus): first[p] for bus, p in zip(buses, part.tolist(), strict=True)}


# --- released loads, drawn towards public ones -------------------------------------------------


@pytree
class ExpectedLoads(Residual):
    """Load shedding whose loads have public ``expected`` values, and maybe a public ``spread``."""

    _: KW_ONLY
    expected: Array = field(default=(), repr=False)
    spread: float | None = static(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        spread = None if self.spread is None else non_negative("nominal_spread", self.spread)
        expected = array("expected", self.expected, self.data.shape, dtype=np.float64)
        store(self, expected=expected, spread=spread)

    def statistics(self) -> LoadStatistics:
        return LoadStatistics(self)


@dataclass(frozen=True)
class LoadStatistics(DataStatistics):
    """The loads, as in ``Residual``; released ones are drawn towards what is expected.

    Guarantee: ``DataStatistics``'s.
    """

    objective: Any

    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicQuadratic:
        of = self.objective
        loads = shrunk(values, np.asarray(of.expected), deviation, of.spread)
        return PublicQuadratic(of.matrix, loads, slack=of.slack)


def shrunk(
    values: Vector, expected: Vector, deviation: float, spread: float | None = None
) -> Vector:
    """Estimates of loads that are nearer to them than released loads v, at no cost in privacy.

    With a stated spread, loads are taken to be e_i·(1 + spread·(standard normal)), and a released
    load with noise of deviation σ becomes the posterior mean

        e_i + (v_i − e_i) τ_i²/(τ_i² + σ²),     τ_i = spread·|e_i|

    which has the least expected squared error: τ²σ²/(τ² + σ²) in place of σ². With these
    variances, for any distribution, it is best of all linear in v (Bernardo and Smith, 1994).

    Without one the released loads tell how far loads lie from what was expected: in blocks of
    m loads of like expected size, James and Stein's estimate with positive part,

        e + (v − e) max(0, 1 − (m − 2)σ²/‖v − e‖²)

    For Gaussian noise and m ≥ 3 its expected squared error is below mσ², that of released loads,
    whatever the loads are (James and Stein, 1961; Baranchik, 1964), hence that of all blocks too.

    Guarantee: post-processing. Only noisy values and public numbers (expected loads, spread, σ) are
    used, so that what holds for the release holds for the estimates.
    """
    away, σ2 = values - expected, deviation**2
    if σ2 == 0:
        return np.array(values, np.float64)
    if spread is not None:
        τ2 = (spread * expected) ** 2
        return np.asarray(expected + away * τ2 / (τ2 + σ2))
    order = np.argsort(np.abs(expected), kind="stable")
    estimate = np.array(values, np.float64)
    for block in np.array_split(order, max(1, len(order) // BLOCK)):
        if (m := len(block)) >= 3:
            length = max(float(away[block] @ away[block]), 1e-300)
            keep = max(0.0, 1 - (m - 2) * σ2 / length)
            estimate[block] = expected[block] + keep * away[block]
    return estimate
