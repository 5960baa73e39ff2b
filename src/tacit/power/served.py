"""What a person asks first of a dispatch: how much of the load it serves, and where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

LEAST = 1e-3  # per unit: a bus that is short of less counts as served


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
        surplus = float(np.maximum(-shed, 0).sum())
        per_unit = {"load": load, "short": short, "surplus": surplus}
        found[kind] = {
            "share": max(0.0, 1 - short / load) if load > 0 else 1.0,
            "buses": int((shed > LEAST).sum()),
            **per_unit,
            **{f"{name}_{unit}": value * base_mva for name, value in per_unit.items()},
        }
    return found


def in_words(found: dict[str, Any]) -> list[str]:
    """One line for active, one for reactive power."""
    lines = []
    for kind, name, unit in (("p", "active", "MW"), ("q", "reactive", "MVAr")):
        of = found[kind]
        short, load = (f"{of[k]:.4g} p.u." for k in ("short", "load"))
        lines.append(
            f"{name} load served: {100 * of['share']:.4g}% ({short} of {load} short, "
            f"{of[f'short_{unit.lower()}']:.4g} of {of[f'load_{unit.lower()}']:.4g} {unit}), short "
            f"at {of['buses']} of {found['of_buses']} buses; surplus {of['surplus']:.4g} p.u."
        )
    return lines
