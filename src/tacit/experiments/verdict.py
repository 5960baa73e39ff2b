"""Whether one curve is clearly below another, and tables of such verdicts."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np


def verdict(values: dict[Any, Any], pairs: list[Any], some: bool) -> dict[str, str]:
    """Whether the first of each pair is smaller (``some``: in at least one pair)."""
    below, above, numbers = 0, 0, []
    for low, high in pairs:
        a, b = values[low], values[high]
        gap = b - a
        half = float(half_width(gap[None, :], len(pairs))[0]) if len(gap) > 1 else math.inf
        below += bool(gap.mean() > half)
        above += bool(gap.mean() < -half)
        name = f"{low[0]}(ε={low[1]:g},E={low[2]}) {a.mean():.3g}"
        numbers.append(f"{name} vs {high[0]}(ε={high[1]:g},E={high[2]}) {b.mean():.3g}")
    if some:
        found = "holds" if below else ("does not hold" if above == len(pairs) else "not seen")
    else:
        found = "holds" if below == len(pairs) else ("does not hold" if above else "undecided")
    counted = f"{below} of {len(pairs)} clearly so, {above} clearly the other way: "
    return {"verdict": found, "numbers": counted + "; ".join(numbers)}


def half_width(values: Any, intervals: int = 1) -> Any:
    """Half of the interval of the mean along the last axis (Student's t); all hold at 95 %."""
    from scipy.stats import t

    n = values.shape[-1]
    if n < 2:
        return np.zeros(values.shape[:-1])
    return t.ppf(1 - 0.025 / intervals, n - 1) * values.std(axis=-1, ddof=1) / math.sqrt(n)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """A CSV file with one line per row."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
