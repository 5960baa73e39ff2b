"""The tables of a page and the charts that show them, as plain data for its script.

A table is {"title", "columns", "values"} with one list for each column; a chart names a table and
the columns it draws. Numbers have six digits: a page is for eyes, and every digit makes it longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tacit import html
from tacit.admm.statement import promised
from tacit.errors import digits
from tacit.privacy.accounting import rounded_up
from tacit.report.contents import Contents, Table

MOST_ROWS, MOST_CELLS = 50_000, 500_000  # of a table: of a longer one, the page says so
MOST_POINTS = 20_000  # of a curve: of a longer one, every so many
MOST_SCORES = 50
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
LOADINGS = (  # colours of lines on the map, and what they say
    ("#8fa3b5", "loaded up to 20 %"),
    ("#4f93c4", "up to 50 %"),
    ("#c9a227", "up to 80 %"),
    ("#d9762b", "up to the limit"),
    ("#c0392b", "beyond it"),
)
UNITS = {
    "voltage": "voltage (p.u.)",
    "p_demand": "p demand (p.u.)",
    "q_demand": "q demand (p.u.)",
    "p_shed": "p shed (p.u.)",
    "q_shed": "q shed (p.u.)",
    "limit": "limit (p.u.)",
    "from_bus": "from",
    "to_bus": "to",
}


def tables(contents: Contents) -> dict[str, Any]:
    """By name, in the order of the page."""
    result, found = contents.result, {}
    if result.trace:
        length = len(result.trace["round"])
        kept = np.unique(np.r_[: length : -(-length // MOST_POINTS), length - 1])
        found["trace"] = _table("Trace", {k: _numbers(v[kept]) for k, v in result.trace.items()})
    for name, title in (("bus", "Buses"), ("line", "Lines"), ("generator", "Generators")):
        if name in contents.tables:
            found[name] = _table(title, _columns(contents.tables[name]))
    if "cut_lines" in contents.tables:
        found["cut_lines"] = _table("Cut lines", _columns(contents.tables["cut_lines"]))
    if contents.model is not None:
        found["coefficients"] = _coefficients(contents.model)
    elif result.solution.size and "bus" not in contents.tables:
        found["solution"] = _solution(contents)
    if "release" in contents.tables:
        found["release"] = _table("Loads as released", _columns(contents.tables["release"]))
    if contents.releases:
        found["release"] = _releases(contents)
    return {name: table for name, table in found.items() if table["values"]}


def charts(contents: Contents, tables: dict[str, Any]) -> list[dict[str, Any]]:
    """What to draw, each with words for those who do not see it."""
    found: list[dict[str, Any]] = []
    once = contents.result.privacy.once
    for name, values in list(contents.result.trace.items())[1:]:
        finite = values[np.isfinite(values)]
        if not finite.size:
            continue
        covered = name not in ("objective", "noise") or (once and name == "objective")
        covered = covered and not name.endswith("_seconds")
        covered = covered and promised(contents.result.privacy)
        found.append(
            {
                "id": f"trace-{name}",
                "kind": "line",
                "table": "trace",
                "x": "round",
                "y": name,
                "title": TITLES[name],
                "note": NOTES.get(name, ""),
                "covered": covered,
                # as Result.plot has it
                "log": bool((values > 0).all() and finite.max() > 20 * finite.min()),
                "words": _curve_in_words(TITLES[name], contents.result.trace["round"], values),
            }
        )
    for name, title in (("coefficients", "Largest coefficients"), ("solution", "Solution")):
        if name in tables:
            columns = tables[name]["columns"]
            found.append(
                {
                    "id": name,
                    "kind": "bars",
                    "table": name,
                    "label": columns[0],
                    "columns": columns[1:],
                    "title": title,
                    "words": f"{title}: bars of the largest by size; the table has all of them.",
                }
            )
    return found


def grid_map(contents: Contents) -> dict[str, Any] | None:
    """Places of the buses, in the order of their table; None without a grid to draw."""
    bus, line = contents.tables.get("bus"), contents.tables.get("line")
    if not bus or not line or not len(bus["bus"]) or len(bus["bus"]) > MOST_ROWS:
        return None
    try:
        from tacit.power.plots import places
    except ModuleNotFoundError:
        return None  # the tables are there without the packages that draw
    buses = tuple(bus["bus"].astype(int).tolist())
    known = set(buses)
    ends = np.stack([line["from_bus"], line["to_bus"]], axis=1).astype(int).tolist()
    joined = tuple((a, b) for a, b in ends if a in known and b in known)
    try:
        x, y = places(buses, joined).T
    except ModuleNotFoundError:
        return None
    zones = list(dict.fromkeys(bus["zone"].tolist())) if "zone" in bus else []
    check = contents.check if contents.check.get("converged") else {}
    return {
        "x": _numbers(x, 4),
        "y": _numbers(y, 4),
        "zones": zones,
        "voltages": [row.get("bus") for row in check.get("voltages", [])],
        "overloads": [row.get("line") for row in check.get("overloads", [])],
        "words": _map_in_words(bus, line, zones),
    }


def budget(contents: Contents) -> dict[str, Any] | None:
    """A gauge: epsilon spent of the budget, by the fullest ledger, or of what the run was given."""
    known = [b for b in contents.balances if not b.missing and b.budget > 0]
    privacy = contents.result.privacy
    if known:
        worst = max(known, key=lambda b: b.spent / b.budget)
        return {
            "spent": _short(worst.spent),
            "said": rounded_up(worst.spent, 3),
            "budget": _short(worst.budget),
            "ledgers": True,
            "title": (name := html.plain(worst.agent)),
            "words": f"{name} has spent epsilon {rounded_up(worst.spent, 3)} of "
            f"{digits(worst.budget)}.",
        }
    given = contents.options.get("total_epsilon")
    if isinstance(given, int | float) and given > 0 and promised(privacy):
        spent = rounded_up(privacy.epsilon, 3)
        return {
            "spent": _short(privacy.epsilon),
            "said": rounded_up(privacy.epsilon, 3),
            "budget": _short(float(given)),
            "ledgers": False,
            "title": "this run",
            "words": f"This run spent epsilon {spent} of the {digits(given)} it was given.",
        }
    return None


def _curve_in_words(title: str, rounds: Any, values: Any) -> str:
    first, last = values[0], values[-1]
    return (
        f"{title} over {len(values)} evaluated rounds: {first:.4g} in round {rounds[0]:g}, "
        f"{last:.4g} in round {rounds[-1]:g}, between {np.nanmin(values):.4g} and "
        f"{np.nanmax(values):.4g}."
    )


def _map_in_words(bus: Table, line: Table, zones: list[str]) -> str:
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


def _table(title: str, columns: dict[str, list[Any]]) -> dict[str, Any]:
    length = len(next(iter(columns.values()), []))
    most = min(MOST_ROWS, MOST_CELLS // max(1, len(columns)))
    return {
        "title": title,
        "columns": list(columns),
        "heads": [UNITS.get(name, name.replace("_", " ")) for name in columns],
        "values": [values[:most] for values in columns.values()],
        "rows": length,
    }


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
    """By column of the data, one column for each score; the constant comes first."""
    names, scores = list(model["columns"]), list(model["scores"])[:MOST_SCORES]
    if len(names) * len(scores) > MOST_CELLS:  # the largest, whichever score has them
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
    agents: list[str] = []
    places: list[int] = []
    values: list[Any] = []
    for agent, released in contents.releases.items():
        shown = released[: MOST_ROWS - len(values)]
        agents += [agent] * shown.size
        places += range(1, shown.size + 1)
        values += _numbers(shown)
    table = _table("Released", {"agent": agents, "number": places, "value": values})
    return {**table, "rows": sum(released.size for released in contents.releases.values())}


def _numbers(values: Iterable[Any], digits: int = 6) -> list[Any]:
    return [_short(float(v), digits) for v in values]


def _short(value: float, digits: int = 6) -> float | int | str:
    """A number with few digits; what JSON has no number for, as a word."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
