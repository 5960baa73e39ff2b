"""What a run found, from private data and in words: on the screen and in its owners' report.

None of it is covered by a privacy statement. ``figures.json`` and ``check.json`` hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = list[tuple[str, str]]


def outcome(said: Mapping[str, Any]) -> Facts:
    """Errors on test records, the load that is served and its cost, and what privacy costs."""
    facts: Facts = []
    if (error := said.get("test_error")) is not None:
        share = said.get("classes") is not None
        word = "Error on test records" if share else "Mean absolute error on test records"
        facts += [
            (word, _error(error, share)),
            ("The same for a constant guess", _error(said.get("test_error_of_a_guess"), share)),
        ]
    for name, word in (("answer", "Zones together: "), ("central", "One solver: ")):
        if isinstance(found := said.get(name), dict):
            facts += _of_dispatch(found, word if "central" in said else "")
    if isinstance(found, dict) and "bound" in found:
        ac = found.get("published")
        beside = "" if ac is None else f"; PGLib's AC cost {ac:,.2f} $/h"
        facts.append(("All load served, true loads", f"at least {found['bound']:,.2f} $/h{beside}"))
    if isinstance(price := said.get("what_privacy_costs"), dict):
        facts.append(("What privacy costs", price_in_words(price)))
    if isinstance(said.get("shed_price"), int | float):
        facts.append(("Price of load that is short", f"{said['shed_price']:g} $/MWh"))
    return facts


def price_in_words(found: Mapping[str, Any]) -> str:
    """A number of a private run beside the same without privacy."""

    def said(value: Any) -> str:
        if found["unit"] == "$/h":
            return f"{value:,.2f} $/h"
        return f"{100 * value:.4g} %" if found["unit"] == "share" else f"{value:.4g}"

    private, without = found["private"], found["without_privacy"]
    more = f" ({found['by']})" if "by" in found else ""
    if found["unit"] == "$/h" and without > 0:
        more = f" ({100 * (private / without - 1):+.2g} %)"
    return f"{found['what']} {said(private)}, without privacy {said(without)}{more}"


def ac_check(found: Mapping[str, Any]) -> Facts:
    """The AC power flow of a dispatch at the true loads: ``PowerFlow.summary()``."""
    facts = [
        (name.capitalize(), f"{found[f'{name}_mw']:.6g} MW") for name in ("load", "dispatched")
    ]
    if not found["converged"]:
        return [*facts, ("AC power flow", "none was found: the dispatch cannot be used")]
    buses = ", ".join(map(str, found["slack_buses"]))
    return [
        *facts,
        (f"More at the slack bus {buses}", f"{found['slack_mw']:+.4g} MW"),
        ("Losses", f"{found['losses_mw']:.4g} MW"),
        ("Voltages", f"{found['lowest_voltage']:.4f} to {found['highest_voltage']:.4f} per unit"),
        ("Voltages beyond limits", str(len(found["voltages"]))),
        ("Highest loading of a line", f"{100 * found['highest_loading']:.4g} %"),
        ("Lines beyond limits", str(len(found["overloads"]))),
        ("Generators beyond reactive limits", str(len(found["reactive"]))),
    ]


def _error(value: Any, share: bool) -> str:
    if not isinstance(value, int | float):
        return "unknown"
    return f"{100 * value:.2f} %" if share else f"{value:.4g}"


def _of_dispatch(found: Mapping[str, Any], prefix: str) -> Facts:
    """The load that a dispatch serves, and what it costs."""
    facts: Facts = []
    served = found.get("served") or {}
    for key, kind, unit in (("p", "active", "MW"), ("q", "reactive", "MVAr")):
        if isinstance(part := served.get(key), dict):
            short, load, surplus = (
                f"{part[f'{name}_{unit.lower()}']:,.4g}" for name in ("short", "load", "surplus")
            )
            words = f"{100 * part['share']:.4g} % ({short} of {load} {unit} short, at "
            words += f"{part['buses']} of {served['of_buses']} buses; surplus {surplus} {unit})"
            facts.append((f"{prefix}{kind} load served", words))
    if "objective_at_true_loads" in found and "cost" not in found:
        worth = f"{found['objective_at_true_loads']:.6g} p.u.²"
        facts.append((f"{prefix}squared load shedding", worth))
    if "cost" in found:
        facts.append((f"{prefix}generation cost", f"{found['cost']:,.2f} $/h"))
    return [(name[0].upper() + name[1:], value) for name, value in facts]
