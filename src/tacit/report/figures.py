"""The tables of a page, as plain data for its script, and the charts that show them, as SVG.

A table is {"title", "columns", "values"} with one list for each column. Numbers have six digits: a
page is for eyes, and every digit makes it longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from tacit import html, svg
from tacit.errors import digits
from tacit.privacy.accounting import rounded_up
from tacit.protocol.disclosure import level, may_have
from tacit.protocol.statement import promised
from tacit.report.contents import Contents, Table

MOST_ROWS, MOST_CELLS = 50_000, 500_000  # of a table: of a longer one, the page says so
MOST_POINTS = 20_000  # of the trace's table: of a longer one, every so many
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
    result, read = contents.result, contents.tables
    found: dict[str, Any] = {}
    if result.trace:
        length = len(result.trace["round"])
        kept = np.unique(np.r_[: length : -(-length // MOST_POINTS), length - 1])
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
    """The columns of the trace, each with whether the statement covers it."""
    result, found = contents.result, []
    for name, values in result.trace.items():
        if name == "round" or not np.isfinite(values).any():
            continue
        title, rounds = TITLES[name], result.trace["round"]
        words = (
            f"{title} over {len(values)} evaluated rounds: {values[0]:.4g} in round "
            f"{rounds[0]:g}, {values[-1]:.4g} in round {rounds[-1]:g}, between "
            f"{np.nanmin(values):.4g} and {np.nanmax(values):.4g}."
        )
        drawn = svg.curve(rounds.tolist(), values.tolist(), title, words, f"trace-{name}")
        notes = [NOTES.get(name, ""), "logarithmic scale" if svg.Scale.of(values).log else ""]
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
    """Of every column but the first, the largest by size: what it is called, and a picture."""
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
        drawn = svg.bars(names, [v for _, v in shown], words, f"{name}-{len(found)}")
        found.append((str(column), drawn))
    return found


def budget(contents: Contents) -> dict[str, str] | None:
    """A gauge: epsilon spent of the budget, by the fullest ledger, or of what the run was given."""
    privacy, total = contents.result.privacy, contents.options.get("total_epsilon")
    known = {agent: a for agent, a in contents.accounts.items() if not isinstance(a, str)}
    if known:
        agent, fullest = max(known.items(), key=lambda n: n[1].spent.epsilon / n[1].budget.epsilon)
        spent, given, title = fullest.spent.epsilon, fullest.budget.epsilon, html.plain(agent)
        how = "high" if spent > 0.9 * given else "half" if spent > 0.6 * given else "low"
        words = f"{title} has spent epsilon {rounded_up(spent, 3)} of {digits(given)}."
    elif isinstance(total, int | float) and total > 0 and promised(privacy):
        spent, given, title, how = privacy.epsilon, float(total), "this run", ""
        words = (
            f"This run spent epsilon {rounded_up(spent, 3)} of the {digits(given)} it was given."
        )
    else:
        return None
    drawn = svg.gauge(spent, given, rounded_up(spent, 3), title, words, how)
    return {"words": words, "svg": drawn}


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
