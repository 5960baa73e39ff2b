"""A grid in zones as a notebook shows it: what is public of it, and no load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit import html

if TYPE_CHECKING:
    from tacit.power.model import PowerProblem

MOST_ZONES = 12  # that are listed


def power_html(p: PowerProblem) -> str:
    grid = p.grid
    doubt = next((u for a in p.agents if (u := a.objective.uncertified)), "")
    first = html.box("Loads are private; network, limits and costs are taken for public.")
    keep = ""
    if doubt:  # then the size of the change may be a share of private loads
        first = html.box(f"NOT CERTIFIED, nothing is promised: {doubt}", loud=True)
        keep = " (do not publish)"
    changes = dict.fromkeys(a.objective.neighbours for a in p.agents)
    rows = [
        (
            "grid",
            f"{len(grid.bus)} buses, {len(grid.line)} lines, {len(grid.generator)} generators",
        ),
        ("lines between zones", f"{len(p.cut_lines)}, with {len(p.shared)} numbers in common"),
        ("objective", _objective(p)),
        *(("hides", f"{change}{keep}") for change in changes),
    ]
    zones = [
        (name, len(buses), agent.dimension)
        for (name, buses), agent in zip(p.zones.items(), p.agents, strict=False)
    ]
    listed = html.table(zones[:MOST_ZONES], ("zone", "buses", "variables"))
    more = len(zones) - MOST_ZONES
    rest = html.small(f"and {more} other zones") if more > 0 else ""
    return html.card(f"{grid.name} in {len(p.zones)} zones", first, html.table(rows), listed, rest)


def _objective(p: PowerProblem) -> str:
    if p.objective == "shed":
        return "squared load shedding"
    price = "" if p.shed_price is None else f", {p.shed_price:.6g} $/MWh for what is short"
    return f"generation cost{price}"
