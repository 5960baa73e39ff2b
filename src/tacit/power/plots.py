"""The grid as a picture: zones, flows and load shedding, and an AC power flow with its limits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tacit._types import Vector
from tacit.power.case import Grid, package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.power.ac_flow import PowerFlow
    from tacit.power.model import PowerProblem
    from tacit.protocol.result import Result

CUT = "#c0392b"


def plot_grid(case: PowerProblem, result: Result) -> Figure:
    """Buses coloured by zone and sized by what they shed, lines as wide as their active flow.

    Load shedding is computed from the private demand: the picture is for its owners' eyes.
    """
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    tables = case.tables(result.local)
    bus, line = tables["bus"], tables["line"]
    flow = np.abs(line["p_from"].to_numpy())
    figure, axes, place, small = _lines(
        case.grid, 0.4 + 4 * flow / max(flow.max(), 1e-9), line["cut"]
    )
    names = list(case.zones)
    colour = {
        name: colormaps["hsv"](k / len(names)) if len(names) > 20 else colormaps["tab20"](k)
        for k, name in enumerate(names)
    }
    shed = np.hypot(bus["p_shed"], bus["q_shed"]).to_numpy()
    size = small * (110 + 450 * shed / max(shed.max(), 1e-2))
    inside = [colour[zone] for zone in bus["zone"]]
    axes.scatter(*place.T, size, inside, edgecolors="black", lw=0.5, zorder=2)
    _numbers(axes, bus.index, place, inside)
    dot: dict[str, Any] = {"marker": "o", "ls": "", "markeredgecolor": "black"}
    keys = [Line2D([], [], color=colour[name], label=name, **dot) for name in names[:12]]
    keys += [Line2D([], [], color=CUT, lw=2, label="cut line")]
    if len(names) > 12:
        keys += [Line2D([], [], ls="", label="…")]
    axes.legend(handles=keys, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    axes.set_title(
        f"{case.grid.name}: width = active flow (largest {flow.max():.2f} p.u.), "
        f"size = load shedding (largest {shed.max():.2g} p.u.)",
        fontsize=10,
    )
    axes.autoscale()
    return figure


def plot_power_flow(flow: PowerFlow) -> Figure:
    """Buses coloured by voltage, lines as wide as their loading; whatever breaks a limit is red.

    Computed from the private demand: the picture is for its owners' eyes.
    """
    grid, summary = flow.grid, flow.summary()
    loading = np.nan_to_num(flow.line["loading"].to_numpy())
    red = flow.line.index.isin(flow.overloads.index)
    figure, axes, place, small = _lines(grid, 0.4 + 3 * np.minimum(loading, 2), red)
    if not flow.converged:
        axes.set_title(f"{grid.name}: no AC power flow was found for this dispatch", fontsize=10)
        return figure
    beyond = flow.bus.index.isin(flow.voltages.index)
    how: dict[str, Any] = {"edgecolors": np.where(beyond, CUT, "black"), "cmap": "viridis"}
    how["lw"] = np.where(beyond, 2.0, 0.5)
    shown = axes.scatter(*place.T, 110 * small, flow.bus["voltage"], zorder=2, **how)
    _numbers(axes, flow.bus.index, place, shown.to_rgba(flow.bus["voltage"]))
    figure.colorbar(shown, ax=axes, label="voltage (per unit)", shrink=0.6)
    axes.set_title(
        f"{grid.name}: slack {summary['slack_mw']:+.3g} MW, losses {summary['losses_mw']:.3g} MW; "
        f"width = loading; beyond limits, in red: lines {len(flow.overloads)}, "
        f"voltages {len(flow.voltages)}",
        fontsize=10,
    )
    axes.autoscale()
    return figure


def _lines(grid: Grid, widths: Vector, red: Any) -> tuple[Figure, Any, Vector, float]:
    """A figure with all lines, its axes, places of the buses, and how small a bus is drawn."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    joined = zip(grid.line["from_bus"].tolist(), grid.line["to_bus"].tolist(), strict=True)
    place = np.array(places(tuple(grid.bus.index.tolist()), tuple(joined)))
    ends = place[[grid.bus.index.get_indexer(grid.line[e]) for e in ("from_bus", "to_bus")]]
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    colours = np.where(red, CUT, "#9aa5b1")
    lines = LineCollection(list(ends.swapaxes(0, 1)), linewidths=widths, colors=colours, zorder=1)
    axes.add_collection(lines)
    return figure, axes, place, min(1.0, 20 / np.sqrt(len(grid.bus)))


def _numbers(axes: Any, buses: Any, place: Vector, inside: Any) -> None:
    """The numbers of buses, in ink that is seen on their colours, where there are not too many."""
    for b, at, (red, green, blue, _) in zip(buses, place, inside, strict=True):
        if len(buses) <= 150:
            ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
            how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6, "color": ink}
            axes.annotate(str(b), at, zorder=3, **how)


@lru_cache(maxsize=4)  # a picture and a page draw the same grid
def places(buses: tuple[int, ...], ends: tuple[tuple[int, int], ...]) -> Vector:
    """Positions of buses, the same for the same lines (pairs of buses); not to be changed.

    Cases have no coordinates.
    """
    networkx = package("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from(buses)
    graph.add_edges_from(ends)
    if len(buses) <= 300 and networkx.is_connected(graph):
        place = networkx.kamada_kawai_layout(graph)
    elif len(buses) <= 2000:
        place = networkx.spring_layout(graph, seed=0)
    else:
        return _spectral(networkx.to_scipy_sparse_array(graph, format="csr", dtype=float))
    return np.array([place[b] for b in buses])


def _spectral(adjacency: Any) -> Vector:
    """Two smooth coordinates of a large graph: random ones, averaged over neighbours many times."""
    degree = np.maximum(np.asarray(adjacency.sum(axis=1)).ravel(), 1)
    walk = sp.diags(1 / degree) @ adjacency
    place = np.random.default_rng(0).normal(size=(len(degree), 2))
    for _ in range(300):
        place = (place + walk @ place) / 2
        place -= (degree @ place) / degree.sum()
        q, _ = np.linalg.qr(place * np.sqrt(degree)[:, None])
        place = q / np.sqrt(degree)[:, None]
    rank = np.argsort(np.argsort(place, axis=0), axis=0)  # spread out: spectral places crowd
    return rank / len(degree)
