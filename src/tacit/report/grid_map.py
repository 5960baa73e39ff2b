"""The map of a grid: buses by zone and shed load, lines by loading and flow, as one SVG.

Of a small grid every bus and line has its numbers to hover. Of a large one those that look alike
are one path, which a browser draws, moves and zooms at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tacit import svg
from tacit._types import Vector
from tacit.html import several
from tacit.report.contents import Contents, Table

MOST_BUSES = 50_000
MOST_MARKS = 10_000  # buses and lines that are one element each
MOST_NAMES, MOST_ZONES = 150, 12  # on the map, in its legend
WIDTH, HEIGHT, EDGE = 10_000, 6400, (400, 600)  # whole numbers are short, and fine enough
LOADINGS = (  # upper ends, colours of lines, and what they say
    (0.2, "#8fa3b5", "loaded up to 20 %"),
    (0.5, "#4f93c4", "up to 50 %"),
    (0.8, "#c9a227", "up to 80 %"),
    (1.0, "#d9762b", "up to the limit"),
    (math.inf, "#c0392b", "beyond it"),
)
ZONES = (
    *("#3b7dbf", "#d98324", "#3f9b6c", "#b2558f", "#7a6bc4", "#8a8f2a"),
    *("#c2554d", "#2f9aa0", "#a0723f", "#5b74a8", "#c76fa8", "#6d9a3c"),
)
Mark = tuple[tuple[Any, ...], str, str]  # how it looks, its path, and its title


def grid_map(contents: Contents, tables: dict[str, Any]) -> dict[str, Any] | None:
    """The picture and its legend: zones, loadings, signs; None without a grid to draw."""
    bus, line = contents.tables.get("bus"), contents.tables.get("line")
    if not bus or not line or not len(bus["bus"]) or len(bus["bus"]) > MOST_BUSES:
        return None
    try:
        from tacit.power.plots import places

        buses = tuple(bus["bus"].astype(int).tolist())
        row = {number: k for k, number in enumerate(buses)}
        ends = np.stack([line["from_bus"], line["to_bus"]], axis=1).astype(int).tolist()
        known = [k for k, (a, b) in enumerate(ends) if a in row and b in row]
        place = places(buses, tuple((ends[k][0], ends[k][1]) for k in known))
    except ModuleNotFoundError:
        return None  # the tables are there without the packages that draw
    low, high = place.min(axis=0), place.max(axis=0)
    share = (place - low) / np.where(high > low, high - low, 1) * (1, -1) + (0, 1)  # y is down
    at = np.rint(EDGE + share * np.subtract((WIDTH, HEIGHT), np.multiply(2, EDGE))).astype(int)
    joined = [(k, at[row[ends[k][0]]], at[row[ends[k][1]]]) for k in known]
    zones = list(dict.fromkeys(bus["zone"].tolist())) if "zone" in bus else []
    colours = dict(zip(zones, _colours(len(zones)), strict=True))
    check = contents.check if contents.check.get("converged") else {}
    beyond = [found.get("line") for found in check.get("overloads", [])]
    outside = [found.get("bus") for found in check.get("voltages", [])]
    few = len(buses) + len(line["line"]) <= MOST_MARKS
    told = {name: _titles(tables[name]) if few else None for name in ("bus", "line")}
    loaded = np.isin(line["line"], beyond)
    over = [k for k in joined if loaded[k[0]]]
    off = [at[row[number]] for number in outside if number in row]
    drawn = _drawn("beyond", [((), _path(a, b), "") for _, a, b in over], False)
    drawn += _drawn("line", _lines(line, joined, len(buses), told["line"]), few)
    drawn += _drawn("outside", [((), _path(a), "") for a in off], False)
    drawn += _drawn("bus", _dots(bus, at, colours, told["bus"]), few)
    if len(buses) <= MOST_NAMES:
        drawn += f'<g class="names{" many" if len(buses) > 60 else ""}">'
        drawn += "".join(
            f'<text x="{x}" y="{y}" dy="-.9em">{n}</text>'
            for n, (x, y) in zip(buses, at.tolist(), strict=True)
        )
        drawn += "</g>"
    signs = [("cut", "cut line between zones")] if "cut" in line and "True" in line["cut"] else []
    signs += [("beyond", f"AC check: beyond the limit (line {several(beyond)})")] if beyond else []
    signs += (
        [("outside", f"AC check: voltage outside its limits (bus {several(outside)})")]
        if outside
        else []
    )
    return {
        "svg": svg.picture(drawn, _in_words(bus, line, zones), WIDTH, HEIGHT, "map", "map"),
        "zones": list(colours.items()) if len(zones) <= MOST_ZONES else [],
        "loadings": [said for _, *said in LOADINGS] if "loading" in line else [],
        "signs": signs,
        "flows": "p_from" in line,
        "told": few,
    }


def _lines(
    line: Table, joined: list[tuple[int, Vector, Vector]], buses: int, titles: Iterator[str] | None
) -> Iterator[Mark]:
    """As wide as their flow, in the colour of their loading."""
    nothing = np.zeros(len(line["line"]))
    loading = np.nan_to_num(line.get("loading", nothing), posinf=9.0)
    flow = np.abs(np.nan_to_num(line.get("p_from", nothing + 0.2), posinf=0, neginf=0))
    most = max(1e-9, flow.max(initial=0)) if "p_from" in line else 1
    wide = 0.8 + np.rint(8 * flow / most) / 2 if buses <= 2000 else nothing + 0.7
    colour = np.searchsorted([end for end, *_ in LOADINGS], loading)
    cut = line["cut"] == "True" if "cut" in line else nothing > 0
    said = list(titles or ())
    for k, a, b in joined:
        look = LOADINGS[colour[k]][1], wide[k], "cut" if cut[k] else ""
        yield look, _path(a, b), said[k] if said else ""


def _dots(
    bus: Table, at: Vector, colours: dict[str, str], titles: Iterator[str] | None
) -> Iterator[Mark]:
    """In the colour of their zone, as large as what they shed."""
    nothing = np.zeros(len(at))
    shed = np.hypot(*(np.nan_to_num(bus.get(n, nothing), posinf=0) for n in ("p_shed", "q_shed")))
    least = min(11.0, max(2.5, 110 / math.sqrt(len(at))))
    size = least * (1 + np.rint(12 * shed / max(1e-2, shed.max())) / 10)
    zone = bus["zone"].tolist() if "zone" in bus else [""] * len(at)
    said = list(titles or ())
    for k, place in enumerate(at):
        look = colours.get(zone[k], ZONES[0]), size[k], ""
        yield look, _path(place), said[k] if said else ""


def _drawn(of: str, marks: Iterable[Mark], apart: bool) -> str:
    """Marks by how they look; each is its own element with a title if they stand ``apart``."""
    looks: dict[tuple[Any, ...], list[tuple[str, str]]] = defaultdict(list)
    for look, path, title in marks:
        looks[look].append((path, title))
    found = ""
    for look, same in looks.items():
        style = ""
        if look:
            colour, width, more = look
            style = f' stroke="{colour}" stroke-width="{width:.3g}"'
            style += f' class="{more}"' if more else ""
        if apart:
            each = "".join(f'<path d="{p}"><title>{t}</title></path>' for p, t in same)
        else:
            each = f'<path d="{"".join(path for path, _ in same)}"/>'
        found += f"<g{style}>{each}</g>"
    return f'<g class="{of}">{found}</g>' if found else ""


def _path(start: Vector, end: Vector | None = None) -> str:
    """A line; of no length, with its round ends, a dot that has the same size at every zoom."""
    x, y = start.tolist()
    if end is None:
        return f"M{x} {y}h0"
    dx, dy = (end - start).tolist()
    return f"M{x} {y}l{dx} {dy}"


def _titles(table: dict[str, Any]) -> Iterator[str]:
    """All columns of every row."""
    first, *others = map(svg.text, table["heads"])
    for which, *values in zip(*table["values"], strict=True):
        pairs = (f"{name}: {svg.number(v)}" for name, v in zip(others, values, strict=True))
        yield "\n".join((f"{first} {svg.number(which)}", *pairs))


def _colours(count: int) -> Iterable[str]:
    if count <= len(ZONES):
        return ZONES[:count]
    return (f"hsl({k * 137.5 % 360:.0f},52%,52%)" for k in range(count))


def _in_words(bus: Table, line: Table, zones: list[str]) -> str:
    cut = int((line["cut"] == "True").sum()) if "cut" in line else 0
    words = f"Map of {len(bus['bus'])} buses in {len(zones)} zones and {len(line['line'])} lines, "
    words += f"of which {cut} join zones."
    if "loading" in line and len(line["loading"]):
        most = int(np.nanargmax(line["loading"])) if np.isfinite(line["loading"]).any() else 0
        loading = 100 * line["loading"][most]
        words += f" The most loaded line is {line['line'][most]:g}, at {loading:.4g} per cent."
    if "p_shed" in bus and len(bus["p_shed"]):
        most = int(np.argmax(np.nan_to_num(np.abs(bus["p_shed"]))))
        words += f" Bus {bus['bus'][most]:g} sheds most active load, "
        words += f"{bus['p_shed'][most]:.4g} per unit."
    return words
