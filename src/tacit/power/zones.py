"""Zones: a partition of the buses into parts that each have an operator of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput
from tacit.power.case import Grid, package
from tacit.tables import read_table

Zones = dict[str, list[int]]  # name of a zone -> its buses


def partition(grid: Grid, zones: int | str | Path | Mapping[Any, Any] = 3) -> Zones:
    """The buses of every zone.

    A number asks METIS for that many balanced and connected zones with few lines between them;
    "area" takes the case's area column; a path to a CSV file with the columns ``bus`` and
    ``zone``, or a mapping from bus to zone, gives them explicitly.

    The paper's three zones are not printed, there or in the case files; three zones of METIS stand
    for them.
    """
    if isinstance(zones, bool) or not isinstance(zones, int | str | Path | Mapping):
        raise InvalidInput(f"Expected a number of zones, 'area', a CSV file or a mapping: {zones}.")
    of_bus: dict[Any, Any]
    if isinstance(zones, int):
        of_bus = _by_metis(grid, zones)
    elif zones == "area":
        of_bus = dict(grid.bus["area"].items())
    elif isinstance(zones, Mapping):
        of_bus = dict(zones)
    else:
        of_bus = _from_csv(Path(zones))
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
    number = np.repeat(np.arange(len(zones)), [len(buses) for buses in zones.values()])
    of_bus = dict(zip((b for buses in zones.values() for b in buses), number, strict=True))
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
        except (KeyError, ValueError):
            raise InvalidInput(
                f"Expected a bus number and a zone in {table.where(i)} of {path}, got none."
            ) from None
        if not zone:
            raise InvalidInput(f"Expected a zone for bus {bus} in {table.where(i)} of {path}.")
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
