"""The tables of a page, and the charts and map that show them.

A table is {"title", "columns", "values"} with one list for each column.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tacit import html
from tacit._types import Vector
from tacit.errors import digits
from tacit.files import PER_UNIT, reading
from tacit.privacy.accounting import rounded_up
from tacit.protocol.disclosure import level, may_have
from tacit.protocol.statement import promised
from tacit.report.contents import Contents, Table

MOST_ROWS = 50_000  # that are looked at
SHOWN = 1000  # rows of a table on the page, which says so
MOST_SCORES, MOST_BARS = 50, 20
TITLES = {
    "objective": "Objective",
    "residual": "Consensus residual",
    "noise": "Size of the noise",
    "dual_residual": "Dual residual",
    "violation": "Largest violation",
    "server_seconds": "Seconds of the server",
    "wait_seconds": "Seconds until the last reply",
}
NOTES = {
    "objective": "Σ f at the agents' points",
    "residual": "disagreement of consensus and agents, ‖Aw − z‖",
    "noise": "Σ |ξ| of a round",
    "dual_residual": "change of the consensus, scaled",
    "violation": "of a constraint, over all agents",
}
READ = {  # tables of the folder
    "bus": "Buses",
    "line": "Lines",
    "generator": "Generators",
    "cut_lines": "Cut lines",
    "release": "Loads as released",
}
HEADS = {"from_bus": "from", "to_bus": "to"}


@dataclass(frozen=True)
class Block:
    """A picture, a table and notes."""

    name: str
    title: str
    picture: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def blocks(contents: Contents) -> list[Block]:
    """What has error bars."""
    found = []
    if contents.moments is not None or contents.evaluation is not None:
        from tacit.report import released

        if contents.moments is not None:
            found += [released.of_table(contents.moments), released.rules(contents.moments)]
        if contents.evaluation is not None and promised(contents.evaluation.privacy_):
            found.append(released.of_evaluation(contents.evaluation))
    return [*found, *([coefficients(contents.intervals)] if contents.intervals else [])]


def coefficients(found: Mapping[str, Any]) -> Block:
    """Of ``intervals.json``."""
    from tacit.learn.error_bars import HEAD, Row

    with reading("intervals.json", "coefficients with intervals"):
        given: list[dict[str, Any]] = [
            {k: math.nan if v is None else v for k, v in r.items()} for r in found["coefficients"]
        ]
        rows = [Row(**row) for row in given]
        doubt, said = str(found["doubt"]), tuple(map(str, found["said"]))
    words = "Coefficients" if doubt else "Coefficients, with 95 % intervals"
    shown = sorted((r for r in rows if r.name != "(intercept)"), key=lambda r: -abs(r.value))
    shown = shown[:MOST_BARS]
    ends = [] if doubt else [(r.low, r.high) for r in shown]
    names, values = [r.name for r in shown], [r.value for r in shown]
    told = [(r.cells[1], r.cells[3]) for r in shown]
    picture = html.bars(names, values, f"{words}.", "intervals", "coefficient", ends, told)
    share = "" if doubt else "Privacy: of the squared error, the share of the noise."
    notes = tuple(filter(None, (doubt, share, *said)))
    wide = 2 if doubt else len(HEAD)
    cells = tuple(row.cells[:wide] for row in rows)
    return Block("intervals", words, picture, HEAD[:wide], cells, notes)


def tables(contents: Contents) -> dict[str, Any]:
    """All tables by name, in the order of the page."""
    result, read = contents.result, contents.tables
    found: dict[str, Any] = {}
    if result.trace:
        length = len(result.trace["round"])
        kept = np.unique(np.r_[: length : -(-length // SHOWN), length - 1])
        found["trace"] = _table("Trace", {k: _numbers(v[kept]) for k, v in result.trace.items()})
    for name, title in READ.items():
        if name in read:
            found[name] = _table(title, _columns(read[name]))
    if contents.model is not None:
        found["coefficients"] = _coefficients(contents.model)
    elif result.solution.size and "bus" not in read:
        found["solution"] = _solution(contents)
    if contents.releases:
        found["release"] = _releases(contents)
    return {name: table for name, table in found.items() if table["values"]}


def curves(contents: Contents) -> list[dict[str, Any]]:
    """A chart of each column of the trace, and whether the statement covers it."""
    result, found = contents.result, []
    units = {"residual": "p.u."} if "bus" in contents.tables else {}
    if units and contents.options.get("objective", "shed") == "shed":
        units["objective"] = "p.u.²"
    for name, values in result.trace.items():
        if name == "round" or len(values) < 2 or not np.isfinite(values).any():
            continue
        title, rounds = TITLES[name], result.trace["round"]
        words = (
            f"{title} over {len(values)} evaluated rounds: {values[0]:.4g} in round "
            f"{rounds[0]:g}, {values[-1]:.4g} in round {rounds[-1]:g}, between "
            f"{np.nanmin(values):.4g} and {np.nanmax(values):.4g}."
        )
        shown = f"{title} ({units[name]})" if name in units else title
        drawn = html.curve(rounds.tolist(), values.tolist(), shown, words, f"trace-{name}")
        notes = [NOTES.get(name, ""), "logarithmic scale" if html.Scale.of(values).log else ""]
        found.append(
            {
                "title": title,
                "note": "; ".join(filter(None, notes)),
                "covered": may_have(result.privacy, level("trace.csv", name)),
                "svg": drawn,
            }
        )
    return found


def bars(table: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """A bar chart of the largest values of every column but the first, and its name."""
    labels, *columns = table["values"]
    found: list[tuple[str, str]] = []
    for column, values in zip(table["columns"][1:], columns, strict=True):
        shown = [pair for pair in enumerate(values) if not isinstance(pair[1], str)]
        shown = sorted(shown, key=lambda pair: -abs(pair[1]))[:MOST_BARS]
        if name == "solution":
            shown.sort()
        words = f"{table['title']}, {html.plain(column)}: bars of the largest by size; the table "
        words += "has all of them."
        names = [labels[i] for i, _ in shown]
        axis = "coefficient" if name == "coefficients" else "value"
        drawn = html.bars(names, [v for _, v in shown], words, f"{name}-{len(found)}", axis)
        found.append((str(column), drawn))
    return found


def budget(contents: Contents) -> dict[str, Any] | None:
    """Epsilon spent of the budget, by the fullest ledger, or of what the run was given."""
    privacy, total = contents.result.privacy, contents.options.get("total_epsilon")
    known = {agent: a for agent, a in contents.accounts.items() if not isinstance(a, str)}
    if known:
        agent, fullest = max(known.items(), key=lambda n: n[1].spent.epsilon / n[1].budget.epsilon)
        spent, given, who = fullest.spent.epsilon, fullest.budget.epsilon, html.plain(agent)
        words = f"{who} has spent epsilon {rounded_up(spent, 3)} of {digits(given)}."
    elif isinstance(total, int | float) and total > 0 and promised(privacy):
        spent, given = privacy.epsilon, float(total)
        words = f"This run spent epsilon {rounded_up(spent, 3)} of {digits(given)} it was given."
    else:
        return None
    return {"words": words, "spent": spent, "given": given, "meter": bool(known)}


def _table(title: str, columns: dict[str, list[Any]]) -> dict[str, Any]:
    length = len(next(iter(columns.values()), []))
    return {
        "title": title,
        "columns": list(columns),
        "heads": [HEADS.get(name, with_unit(name).replace("_", " ")) for name in columns],
        "values": list(columns.values()),
        "rows": length,
    }


def with_unit(name: str) -> str:
    return f"{name} (p.u.)" if name in PER_UNIT else name


def rows(table: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The first rows, as they are shown."""
    return islice(zip(*table["values"], strict=True), SHOWN)


def cell(value: Any) -> str:
    return html.plain(value) if isinstance(value, str) else html.labels([value])[0]


def _columns(table: Table) -> dict[str, list[Any]]:
    return {
        name: _numbers(values)
        if values.dtype.kind == "f"
        else [{"True": "yes", "False": "no"}.get(v, v) for v in values.tolist()]
        for name, values in table.items()
    }


def _solution(contents: Contents) -> dict[str, Any]:
    result = contents.result
    columns: dict[str, list[Any]] = {
        "coordinate": list(range(1, result.solution.size + 1)),
        "solution": _numbers(result.solution[:MOST_ROWS]),
    }
    if result.ergodic.shape == result.solution.shape:
        columns["ergodic"] = _numbers(result.ergodic[:MOST_ROWS])
    return {**_table("Solution", columns), "rows": int(result.solution.size)}


def _coefficients(model: Any) -> dict[str, Any]:
    """Coefficients: a row for each column of the data, a column for each score."""
    names, scores = list(model["columns"]), list(model["scores"])[:MOST_SCORES]
    if len(names) > SHOWN:  # the largest first, whichever score has them
        size = [max(abs(score["coefficients"][name]) for score in scores) for name in names]
        names = [names[j] for j in np.argsort(-np.array(size), kind="stable").tolist()]
    columns: dict[str, list[Any]] = {"column": ["(intercept)", *map(str, names)]}
    for i, score in enumerate(scores):
        label = str(score["class"]) if "class" in score else "prediction"
        values = [score["intercept"], *(score["coefficients"][name] for name in names)]
        columns[label if label not in columns else f"{label} ({i + 1})"] = _numbers(values)
    return _table("Coefficients", columns)


def _releases(contents: Contents) -> dict[str, Any]:
    """What each agent released, number by number."""
    of = contents.releases
    rows = ((agent, k, _short(float(v))) for agent in of for k, v in enumerate(of[agent], 1))
    columns = map(list, zip(*islice(rows, MOST_ROWS), strict=True))
    named = dict(zip(("agent", "number", "value"), columns, strict=False))
    return {**_table("Released", named), "rows": sum(v.size for v in of.values())}


def _numbers(values: Iterable[Any], digits: int = 6) -> list[Any]:
    return [_short(float(v), digits) for v in values]


def _short(value: float, digits: int = 6) -> float | int | str:
    """A number with few digits; what JSON has no number for, as a word."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


# --- the map of a grid ---------------------------------------------------------------------------

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
    if beyond:
        signs.append(("beyond", f"AC check: beyond the limit (line {html.several(beyond)})"))
    if outside:
        words = f"AC check: voltage outside its limits (bus {html.several(outside)})"
        signs.append(("outside", words))
    return {
        "svg": html.picture(drawn, _in_words(bus, line, zones), WIDTH, HEIGHT, "map", "map"),
        "zones": list(colours.items()) if len(zones) <= MOST_ZONES else [],
        "loadings": [said for _, *said in LOADINGS] if "loading" in line else [],
        "signs": signs,
        "flows": "p_from" in line,
        "told": few,
    }


def _lines(
    line: Table, joined: list[tuple[int, Vector, Vector]], buses: int, titles: Iterator[str] | None
) -> Iterator[Mark]:
    """Lines, as wide as their flow, in the colour of their loading."""
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
    """Buses, in the colour of their zone, as large as what they shed."""
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
    """For each row all its columns, as the title of its mark."""
    first, *others = map(html.text, table["heads"])
    for which, *values in zip(*table["values"], strict=True):
        pairs = (f"{name}: {html.number(v)}" for name, v in zip(others, values, strict=True))
        yield "\n".join((f"{first} {html.number(which)}", *pairs))


def _colours(count: int) -> Iterable[str]:
    if count <= len(ZONES):
        return ZONES[:count]
    return (f"hsl({k * 137.5 % 360:.0f},52%,52%)" for k in range(count))


def _in_words(bus: Table, line: Table, zones: list[str]) -> str:
    cut = int((line["cut"] == "True").sum()) if "cut" in line else 0
    words = f"Map of {len(bus['bus'])} buses in {len(zones)} zones and {len(line['line'])} lines; "
    words += f"{cut} of them join zones."
    return words
