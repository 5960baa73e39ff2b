"""Figures 5, 6 and 7: private classification of MNIST and FEMNIST, and the paper's claims checked.

All is made from the traces of a folder, which ``learning_runs.py`` writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import ConstantPenalty, DynamicPenalty, NonsmoothStep, Schedule
from tacit.admm.settings import Settings
from tacit.errors import choice
from tacit.lab.reproduce.results import half_width, named, read, verdict, write_report
from tacit.learn.data import Dataset, load_leaf, load_mnist, split
from tacit.objectives.losses import SoftmaxRegression
from tacit.privacy.mechanisms import Gaussian
from tacit.sets.boxes import Box

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALGORITHMS = {  # perturbation and calibration; OutG in the two readings of its sensitivity
    "ObjG": ("objective", "paper"),
    "OutG": ("output", "paper"),
    "OutG, tight": ("output", "paper-tight"),
}
COLUMNS = ("algorithm", "penalty", "epsilon", "local_updates", "seed", "round")
TRACE = ("objective", "residual", "noise", "violation", "test_error")


@dataclass(frozen=True)
class Experiment:
    """A figure as data. ``penalties`` are "adaptive", "adaptive/100" or numbers."""

    title: str
    data: str
    bound: float
    agents: int  # 0: one per writer
    rounds: int
    local_updates: list[int]
    algorithms: list[str]
    penalties: list[str]
    adaptive: dict[str, float]  # base and privacy of the paper's ρ̂, and its period
    epsilons: list[float]  # of one update
    delta: float
    seeds: int

    @classmethod
    def named(cls, name: str, **changes: Any) -> Experiment:
        """One of the package's TOML files, with some entries changed."""
        experiment = named(cls, name, changes)
        choice("data", experiment.data, ("mnist", "femnist"))
        return experiment

    def load(self, folder: str | Path) -> tuple[Dataset, Dataset]:
        """Training and test data."""
        folder = Path(folder)
        if self.data == "mnist":
            return load_mnist(folder), load_mnist(folder, "test")
        return load_leaf(folder / "train"), load_leaf(folder / "test")

    def problem(self, train: Dataset) -> Problem:
        """Agents with the paper's objective and box. On a GPU with features of 16 bits."""
        rows = split(train, self.agents) if self.agents else split(train, how="group")
        longest = float(np.sqrt(train.features.shape[1]))  # of pixels in [0, 1]
        size = train.features.shape[1] * train.classes
        agents = []
        for mine in rows:
            f = SoftmaxRegression(
                train.features[mine],
                train.labels[mine],
                train.classes,
                feature_norm=longest,
                normaliser=len(train),
                neighbours="zero-out",
            )
            f = f if jax.default_backend() == "cpu" else f.in_bfloat16()
            agents.append(LocalProblem(f, Box(-self.bound, self.bound, size=size)))
        return Problem(agents)

    def penalty(self, name: str, epsilon: float) -> Schedule:
        if not name.startswith("adaptive"):
            return ConstantPenalty(float(name))
        scale = 0.01 if name.endswith("/100") else 1.0
        return DynamicPenalty(
            base=scale * self.adaptive["base"],
            privacy=scale * self.adaptive["privacy"],
            epsilon=epsilon,
            factor=1.2,
            period=int(self.adaptive["period"]),
        )

    def settings(self, algorithm: str, penalty: str, epsilon: float, E: int) -> Settings:
        perturbation, calibration = ALGORITHMS[algorithm]
        return Settings(
            self.rounds,
            E,
            Gaussian.classical(epsilon, self.delta),
            self.delta,
            perturbation,  # type: ignore[arg-type]
            calibration,  # type: ignore[arg-type]
            self.penalty(penalty, epsilon),
            NonsmoothStep(1.0),
        )


def report(folder: Path) -> Path:
    """Figure, errors and claims from the traces of a folder."""
    experiment, table = load(folder)
    figure = draw(experiment, table)
    checked = claims(experiment, table)
    return write_report(folder, figure, errors=final_errors(table), claims=checked)


def load(folder: str | Path) -> tuple[Experiment, pd.DataFrame]:
    """What was run, and a row per evaluated round of every run."""
    return read(folder, Experiment)


def final_errors(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Test errors after the last round, in per cent: mean over the seeds and deviation."""
    last = table[table["round"] == table["round"].max()]
    grouped = last.groupby(list(COLUMNS[:4]), sort=False)["test_error"]
    return [
        {
            **dict(zip(COLUMNS[:4], key, strict=True)),
            "test_error_percent": 100 * values.mean(),
            "deviation": 100 * values.std(ddof=1) if len(values) > 1 else 0.0,
        }
        for key, values in grouped
    ]


def draw(experiment: Experiment, table: pd.DataFrame) -> Figure:
    """Noise, objective and test error (rows) for every epsilon (columns).

    With several penalties (Figure 7): the test error alone, one curve per penalty.
    """
    from matplotlib.figure import Figure

    several = len(experiment.penalties) > 1
    quantities = {"test_error": "test error"}
    if not several:
        quantities = {"noise": "noise magnitude", "objective": "objective", **quantities}
    size = (15, 1.2 + 3.2 * len(quantities))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(
        len(quantities), len(experiment.epsilons), sharex=True, sharey="row", squeeze=False
    )
    for line, (quantity, title) in zip(panels, quantities.items(), strict=True):
        for panel, epsilon in zip(line, experiment.epsilons, strict=True):
            here = table[table["epsilon"] == epsilon]
            curves = here.groupby(["algorithm", "penalty", "local_updates"], sort=False)
            for (algorithm, penalty, E), rows in curves:
                values = rows.pivot(index="round", columns="seed", values=quantity)
                mean, half = values.mean(axis=1), half_width(values.to_numpy())
                label = f"penalty {penalty}" if several else f"{algorithm}, E = {E}"
                style = "-" if max(experiment.local_updates) == E else "--"
                names = experiment.penalties if several else experiment.algorithms
                colour = f"C{names.index(penalty if several else algorithm)}"
                panel.plot(values.index, mean, style, color=colour, label=label, lw=1.3)
                panel.fill_between(
                    values.index, mean - half, mean + half, color=colour, alpha=0.2, lw=0
                )
            panel.set_yscale("log")
            panel.grid(alpha=0.3, which="both")
        line[0].set_ylabel(title)
    for panel, epsilon in zip(panels[0], experiment.epsilons, strict=True):
        panel.set_title(f"ε = {epsilon:g} per update")
    for panel in panels[-1]:
        panel.set_xlabel("round")
    panels[0][-1].legend(fontsize=7)
    figure.suptitle(
        f"{experiment.title}: the paper's noise, not certified, {experiment.seeds} seeds, "
        "95 % bands"
    )
    return figure


def claims(experiment: Experiment, table: pd.DataFrame) -> list[dict[str, str]]:
    """The claims of Section 6.2 or Appendix E, each with a verdict and the numbers behind it.

    See ``verdict``: means over the seeds after the last round, intervals that hold together.
    """
    last = table[table["round"] == table["round"].max()].sort_values("seed")
    ε, few, many = experiment.epsilons, experiment.local_updates[0], experiment.local_updates[-1]
    if len(experiment.penalties) > 1:
        return [_hyper_claim(experiment, last)]
    final = {
        quantity: {
            key: values.to_numpy()
            for key, values in last.groupby(["algorithm", "epsilon", "local_updates"])[quantity]
        }
        for quantity in ("objective", "noise", "test_error")
    }
    outs = [a for a in experiment.algorithms if a != "ObjG"]

    def compare(text: str, quantity: str, pairs: Any) -> dict[str, str]:
        return {"claim": text, **verdict(final[quantity], list(pairs), False)}

    rows = [
        compare(
            f"The noise of ObjG is greater than that of {out}.",
            "noise",
            (((out, e, E), ("ObjG", e, E)) for e in ε for E in (few, many)),
        )
        for out in outs
    ]
    rows.append(
        compare(
            "The objective increases as epsilon decreases.",
            "objective",
            (((a, e, many), (a, f, many)) for a in experiment.algorithms for f, e in pairwise(ε)),
        )
    )
    for out in outs:
        rows.append(
            compare(
                f"The objective of ObjG is lower than that of {out}.",
                "objective",
                ((("ObjG", e, E), (out, e, E)) for e in ε for E in (few, many)),
            )
        )
    rows.append(
        compare(
            f"More local updates (E = {many} instead of {few}) lower the objective.",
            "objective",
            (((a, e, many), (a, e, few)) for a in experiment.algorithms for e in ε),
        )
    )
    for out in outs:
        rows.append(
            compare(
                f"ObjG with E = {many} has a lower test error than {out} with any E, and than ObjG "
                f"with E = {few}.",
                "test_error",
                (
                    (("ObjG", e, many), other)
                    for e in ε
                    for other in ((out, e, few), (out, e, many), ("ObjG", e, few))
                ),
            )
        )
    return rows


def _hyper_claim(experiment: Experiment, last: pd.DataFrame) -> dict[str, str]:
    """Figure 7: the spread over penalties beside the spread over epsilons."""
    means = last.groupby(["penalty", "epsilon"])["test_error"].mean().unstack()
    over_penalties = float((means.max(axis=0) - means.min(axis=0)).max())
    over_epsilons = float((means.max(axis=1) - means.min(axis=1)).max())
    numbers = "; ".join(
        f"penalty {p}: " + ", ".join(f"{100 * v:.1f} % (ε={e:g})" for e, v in row.items())
        for p, row in means.iterrows()
    )
    return {
        "claim": "OutP is not greatly affected by the penalty, but by epsilon (Appendix E).",
        "verdict": "holds" if over_penalties < 0.25 * over_epsilons else "does not hold",
        "numbers": f"largest spread over penalties {100 * over_penalties:.1f} points, over "
        f"epsilons {100 * over_epsilons:.1f} points: {numbers}",
    }
