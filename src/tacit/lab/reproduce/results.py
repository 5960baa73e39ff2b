"""What experiments share: their folder, and whether one curve is clearly below another."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tacit.errors import RUNS, UPDATES, InvalidInput, count
from tacit.files import save_figure, write_atomically
from tacit.protocol.result import versions
from tacit.reading import read_json, read_pandas, read_toml, reading

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def named(kind: type[T], name: str, changes: dict[str, Any]) -> T:
    """The experiment of one of the package's TOML files, with some entries changed."""
    entries = {**read_toml(Path(__file__).with_name(f"{name}.toml")), **changes}
    count("seeds", entries["seeds"], RUNS)
    count("rounds", entries["rounds"], UPDATES)
    return kind(**entries)


def reserve(folder: Path, experiment: Any, **about: Any) -> Path:
    """Note in the folder what is run there, or refuse it if that is another experiment.

    Returns the path of the traces.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "experiment.json"
    described = json.loads(json.dumps(asdict(experiment)))
    if not note.exists():
        document = {"experiment": described, "versions": versions(), **about}
        write_atomically(note, json.dumps(document, indent=2).encode())
    elif _described(folder) != described:
        raise InvalidInput(
            f"{folder} holds another experiment; choose another --out. Nothing was run."
        )
    return folder / "traces.csv"


def read(folder: str | Path, kind: type[T]) -> tuple[T, pd.DataFrame]:
    """What was run, and the traces as a table."""
    folder = Path(folder)
    with reading(folder, "the traces of an experiment"):
        described = _described(folder)
        return kind(**described), read_pandas(folder / "traces.csv", dtype={"penalty": str})


def _described(folder: Path) -> Any:
    what = "the traces of an experiment"
    with reading(folder, what):
        return read_json(folder / "experiment.json", what)["experiment"]


def write_report(folder: Path, figure: Any, **tables: list[dict[str, Any]]) -> Path:
    """The figure as PNG and PDF, and tables as CSV files of their names."""
    save_figure(folder / "figure.png", figure, dpi=130)
    save_figure(folder / "figure.pdf", figure)
    for name, rows in tables.items():
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(folder / f"{name}.csv", table.getvalue().encode())
    return folder


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
