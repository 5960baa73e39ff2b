"""The paper's figures: one TOML file each; runs are saved as traces, plots read traces only.

power     Figures 3 and 4 and Table 1
learning  Figures 5, 6 and 7

A folder holds ``experiment.json`` (what was run), ``traces.csv`` (every evaluated round of every
run, from which all else is made), ``figure.png`` and ``.pdf``, ``claims.csv``, and ``table1.csv``
(power) or ``errors.csv`` (learning).
"""

from __future__ import annotations

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.errors import RUNS, UPDATES, InvalidInput, count
from tacit.files import (
    read_json,
    read_pandas,
    read_rows,
    read_toml,
    reading,
    save_figure,
    write_atomically,
)
from tacit.protocol.result import versions

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WHAT = "the traces of an experiment"
CURVE = ["algorithm", "epsilon", "local_updates"]
Rows = list[dict[str, Any]]  # of a CSV file
# Makes the units that are left, with their traces; is given what to tell of local updates done.
Runs = Callable[[list[Any], Callable[[int], None]], Generator[tuple[Any, Iterable[Any]]]]


class Curve(NamedTuple):
    """A line of a figure: the mean over the seeds of the runs with these values."""

    runs: dict[str, Any]
    label: str
    colour: str
    style: str = "-"


@dataclass(frozen=True)
class Experiment(ABC):
    """A figure as data, with what makes its tables from traces.

    Its *units* are run and saved as a whole; each has ``local_updates``.
    """

    title: str
    rounds: int
    local_updates: list[int]
    epsilons: list[float]  # of one update
    delta: float
    seeds: int

    columns: ClassVar[tuple[str, ...]]  # of ``traces.csv``
    last: ClassVar[int] = 1  # rounds whose mean stands for the end of a run

    def __post_init__(self) -> None:
        count("seeds", self.seeds, RUNS)
        count("rounds", self.rounds, UPDATES)

    @classmethod
    def named(cls, name: str, **changes: Any) -> Self:
        """One of the package's TOML files, with some entries changed."""
        return cls(**{**read_toml(Path(__file__).with_name(f"{name}.toml")), **changes})

    @classmethod
    def read(cls, folder: str | Path) -> tuple[Self, pd.DataFrame]:
        """What was run in a folder, and a row per evaluated round of every run."""
        described = _described(Path(folder))
        with reading(folder, WHAT):
            traces = read_pandas(Path(folder) / "traces.csv", dtype={"penalty": str})
            return cls(**described), traces

    @abstractmethod
    def units(self) -> list[Any]:
        """All units in the order in which they are run."""

    @abstractmethod
    def unit(self, row: Sequence[str]) -> Any:
        """The unit that a row of ``traces.csv`` belongs to."""

    @property
    @abstractmethod
    def unit_rows(self) -> int:
        """The number of rows of every unit."""

    @abstractmethod
    def prepare(self, source: Any) -> tuple[Runs, dict[str, Any]]:
        """What runs units, given the data or the number of workers; and what to note of it.

        A wrong experiment is refused here, before anything is written.
        """

    @abstractmethod
    def draw(self, traces: pd.DataFrame) -> Figure: ...

    @abstractmethod
    def tables(self, traces: pd.DataFrame) -> dict[str, Rows]:
        """By the names of their files; one is "claims": the paper's, with verdicts and numbers."""

    def make(
        self,
        folder: Path,
        source: Any = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[str, Rows]:
        """Make all runs and write the folder; its tables. Units that are there are not made again.

        ``progress`` is told local updates done and in all.
        """
        runs, about = self.prepare(source)
        folder.mkdir(parents=True, exist_ok=True)
        note, traces = folder / "experiment.json", folder / "traces.csv"
        described = json.loads(json.dumps(asdict(self)))
        if not note.exists():
            document = {"experiment": described, "versions": versions(), **about}
            write_atomically(note, json.dumps(document, indent=2).encode())
        elif _described(folder) != described:
            raise InvalidInput(
                f"{folder} holds another experiment; choose another --out. Nothing was run."
            )
        done, units = _finished(traces, self), self.units()
        left = [unit for unit in units if unit not in done]
        total, made = (self.rounds * sum(u.local_updates for u in some) for some in (units, done))
        progress(made, total)
        with closing(runs(left, lambda updates: progress(made + updates, total))) as finished:
            for unit, rows in finished:
                with open(traces, "a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
                made += self.rounds * unit.local_updates
                progress(made, total)
        _, table = self.read(folder)
        tables = self.tables(table)
        figure = self.draw(table)
        save_figure(folder / "figure.png", figure, dpi=130)
        save_figure(folder / "figure.pdf", figure)
        for name, rows in tables.items():
            _write_rows(folder / f"{name}.csv", [list(rows[0]), *(row.values() for row in rows)])
        return tables

    def verdicts(self, traces: pd.DataFrame, claims: Sequence[Any]) -> Rows:
        """``verdict`` of each claim: its text, a quantity, and pairs of curves, of which the first
        is said to be lower, in all pairs or (a fourth entry) in some.

        Compared are means over the last rounds, one number per seed.
        """
        ends = traces[traces["round"] > self.rounds - self.last]
        quantities = sorted({quantity for _, quantity, *_ in claims})
        means = ends.groupby([*CURVE, "seed"])[quantities].mean()
        final = {
            quantity: {
                key: values.sort_index(level="seed").to_numpy()
                for key, values in means[quantity].groupby(level=CURVE)
            }
            for quantity in quantities
        }
        return [
            {"claim": text, **verdict(final[quantity], list(pairs), *some)}
            for text, quantity, pairs, *some in claims
        ]

    def panels(
        self, traces: pd.DataFrame, rows: Sequence[tuple[str, str, Sequence[Curve]]], noise: str
    ) -> Figure:
        """One row of panels per quantity (its column and title), a column per ε; 95 % bands."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 1.2 + 2.9 * len(rows)), layout="constrained")
        grid = figure.subplots(
            len(rows), len(self.epsilons), sharex=True, sharey="row", squeeze=False
        )
        for (quantity, title, curves), line in zip(rows, grid, strict=True):
            for epsilon, panel in zip(self.epsilons, line, strict=True):
                for runs, label, colour, style in curves:
                    chosen = traces["epsilon"] == epsilon
                    for name, value in runs.items():
                        chosen &= traces[name] == value
                    values = traces[chosen].pivot(index="round", columns="seed", values=quantity)
                    mean, half = values.mean(axis=1), half_width(values.to_numpy())
                    low = np.maximum(mean - half, mean.min() / 10)
                    panel.plot(values.index, mean, style, color=colour, label=label, lw=1.3)
                    panel.fill_between(
                        values.index, low, mean + half, color=colour, alpha=0.2, lw=0
                    )
                panel.set_yscale("log")
                panel.grid(alpha=0.3)
            line[0].set_ylabel(title)
            line[-1].legend(fontsize=8)
        for epsilon, panel in zip(self.epsilons, grid[0], strict=True):
            panel.set_title(f"ε = {epsilon:g} per update")
        for panel in grid[-1]:
            panel.set_xlabel("round")
        figure.suptitle(f"{self.title}: {noise}, {self.seeds} seeds, 95 % bands")
        return figure


def _described(folder: Path) -> Any:
    with reading(folder, WHAT):
        return read_json(folder / "experiment.json", WHAT)["experiment"]


def _finished(traces: Path, experiment: Experiment) -> set[Any]:
    """Units that are in the file as a whole. What follows, such as half a line, is cut off."""
    rows = read_rows(traces)[1:] if traces.exists() else []
    size, width = experiment.unit_rows, len(experiment.columns)
    whole: list[Iterable[str]] = [experiment.columns]
    done = set()
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        if len(block) < size or any(len(row) != width for row in block):
            break
        with reading(traces, WHAT):
            done.add(experiment.unit(block[0]))
        whole += block
    _write_rows(traces, whole, "\n")
    return done


def _write_rows(path: Path, rows: Iterable[Iterable[Any]], end: str = "\r\n") -> None:
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator=end).writerows(rows)
    write_atomically(path, table.getvalue().encode())


def verdict(values: dict[Any, Any], pairs: list[Any], some: bool = False) -> dict[str, str]:
    """Whether the first of each pair is lower (``some``: in at least one pair).

    It holds if the mean over the seeds is lower in every pair, by paired intervals that hold
    together at 95 % (Bonferroni); it does not hold if some mean is higher by one; else the data do
    not decide. With ``some`` it holds if one mean is lower, and does not if all are higher.
    """
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
