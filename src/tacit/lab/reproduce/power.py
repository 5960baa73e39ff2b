"""Figures 3 and 4 and Table 1: the four algorithms on power flow, and the paper's claims checked.

All is made from the traces of a folder, which ``power_runs.py`` writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.admm.problem import LocalProblem
from tacit.admm.schedules import NonsmoothStep
from tacit.admm.settings import Settings
from tacit.errors import choice
from tacit.lab.reproduce.results import half_width, named, read, verdict, write_report
from tacit.power.model import PowerProblem, build
from tacit.privacy import accounting
from tacit.privacy.mechanisms import Gaussian, Mechanism, Noiseless, mechanism_from, per_update

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALGORITHMS = {  # perturbation and mechanism
    "ObjG": ("objective", "gaussian"),
    "OutG": ("output", "gaussian"),
    "ObjL": ("objective", "laplace"),
    "OutL": ("output", "laplace"),
}
ONCE = "release"  # not the paper's: one reading, at the total that all updates of ObjG cost
COLOURS = {
    "ObjG": "#1f5f8b",
    "OutG": "#c0392b",
    "ObjL": "#2e86c1",
    "OutL": "#e08e45",
    ONCE: "#222222",
}
COLUMNS = ("algorithm", "epsilon", "local_updates", "seed")
FINAL_ROUNDS = 10  # rounds whose mean stands for the end of a run


class Run(NamedTuple):
    """One curve of one seed; epsilon inf is the run without noise."""

    algorithm: str
    epsilon: float
    local_updates: int
    seed: int


@dataclass(frozen=True)
class Experiment:
    """A figure as data. ``calibration`` "paper" is the paper's noise; "certified" is ours."""

    title: str
    case: str
    zones: int
    beta: float
    rounds: int
    local_updates: list[int]
    penalty: float
    epsilons: list[float]
    delta: float
    seeds: int
    calibration: str = "paper"

    @classmethod
    def named(cls, name: str, **changes: Any) -> Experiment:
        """One of the package's TOML files, with some entries changed."""
        experiment = named(cls, name, changes)
        choice("calibration", experiment.calibration, ("paper", "certified"))
        return experiment

    def runs(self) -> list[Run]:
        """All runs, the long ones first."""
        every = [Run("no noise", math.inf, E, 0) for E in self.local_updates]
        every += [
            Run(algorithm, epsilon, E, seed)
            for seed in range(self.seeds)
            for algorithm in (*ALGORITHMS, ONCE)
            for epsilon in self.epsilons
            for E in self.local_updates
        ]
        return sorted(every, key=lambda run: -run.local_updates)

    def mechanism(self, algorithm: str, epsilon: float) -> Mechanism:
        """The noise of one update, by the formulas of Section 4 (Table 1)."""
        if math.isinf(epsilon):
            return Noiseless()
        name = ALGORITHMS[algorithm][1]
        return per_update(name, epsilon, self.delta if name == "gaussian" else None, "paper")

    def proven(self, algorithm: str, epsilon: float, agents: Iterable[LocalProblem]) -> Mechanism:
        """The noise of one update of Obj as a ratio to the proven Δ, not to the one it was made
        for."""
        mechanism = self.mechanism(algorithm, epsilon)
        Δ = max(a.objective.sensitivity(mechanism.norm, a.feasible_set) for a in agents)
        used = 2 * self.beta if self.calibration == "paper" else Δ
        ratio = float(mechanism.scale(used)) / Δ
        return mechanism_from({**mechanism.to_dict(), "noise_multiplier": ratio})

    def reading(self, run: Run, agents: Iterable[LocalProblem]) -> Mechanism:
        """The noise of one reading that costs as much as all updates of such a run of ObjG."""
        updates = self.rounds * run.local_updates
        noise = self.proven("ObjG", run.epsilon, agents)
        assert isinstance(noise, Gaussian)
        return Gaussian(noise.noise_multiplier / math.sqrt(updates))

    def build(self) -> PowerProblem:
        """The paper adds noise to z; certified noise goes on the residual."""
        on = "gradient" if self.calibration == "paper" else "residual"
        return build(self.case, self.zones, beta=self.beta, noise_on=on)

    def settings(self, run: Run) -> Settings:
        if run.algorithm == ONCE:  # rounds after the one reading
            return Settings(self.rounds, tolerance=1e-6)
        perturbation = ALGORITHMS.get(run.algorithm, ("objective", ""))[0]
        return Settings(
            self.rounds,
            run.local_updates,
            self.mechanism(run.algorithm, run.epsilon),
            self.delta,
            perturbation,  # type: ignore[arg-type]
            self.calibration,  # type: ignore[arg-type]
            self.penalty,
            NonsmoothStep(1.0),
        )


def report(folder: Path) -> Path:
    """Figure, table and claims from the traces of a folder."""
    experiment, table = load(folder)
    figure = draw(experiment, table)
    checked = claims(experiment, table)
    return write_report(folder, figure, table1=table1(experiment), claims=checked)


def load(folder: str | Path) -> tuple[Experiment, pd.DataFrame]:
    """What was run, and a row per round of every run."""
    return read(folder, Experiment)


def draw(experiment: Experiment, table: pd.DataFrame) -> Figure:
    """Columns: epsilon. Rows: noise, objective for each E, residual of ObjG. Bands: 95 %."""
    from matplotlib.figure import Figure

    E = experiment.local_updates
    few, many = E[0], E[-1]
    shown = [a for a in (*ALGORITHMS, ONCE) if (table["algorithm"] == a).any()]
    rows: list[tuple[str, str, list[tuple[str, int, str]]]] = [
        ("noise", "noise magnitude", [(a, few, a) for a in ALGORITHMS]),
        *(("objective", f"objective, E = {n}", [(a, n, a) for a in shown]) for n in E),
        ("residual", "consensus residual", [("ObjG", n, f"ObjG, E = {n}") for n in (few, many)]),
    ]
    figure = Figure(figsize=(15, 2.9 * len(rows)), layout="constrained")
    panels = figure.subplots(
        len(rows), len(experiment.epsilons), sharex=True, sharey="row", squeeze=False
    )
    for epsilon, panel in zip(experiment.epsilons, panels[0], strict=True):
        panel.set_title(f"ε = {epsilon:g} per update")
    for (quantity, title, curves), line in zip(rows, panels, strict=True):
        for epsilon, panel in zip(experiment.epsilons, line, strict=True):
            for k, (algorithm, n, label) in enumerate(curves):
                chosen = table[
                    (table["algorithm"] == algorithm)
                    & (table["epsilon"] == epsilon)
                    & (table["local_updates"] == n)
                ]
                values = chosen.pivot(index="round", columns="seed", values=quantity)
                mean, half = values.mean(axis=1), half_width(values.to_numpy())
                colour = COLOURS[algorithm] if quantity != "residual" else f"C{k}"
                style = "--" if algorithm == ONCE else "-"
                panel.plot(values.index, mean, style, color=colour, label=label)
                low = np.maximum(mean - half, mean.min() / 10)
                panel.fill_between(values.index, low, mean + half, color=colour, alpha=0.25, lw=0)
            panel.set_yscale("log")
            panel.grid(alpha=0.3)
        line[0].set_ylabel(title)
        line[-1].legend(fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("round")
    label = "the paper's noise, not certified"
    if experiment.calibration == "certified":
        label = "Obj certified, Out not"
    figure.suptitle(f"{experiment.title}: {label}, {experiment.seeds} seeds, 95 % bands")
    return figure


def table1(experiment: Experiment) -> list[dict[str, Any]]:
    """Table 1: the variances; then what all updates of a run cost together, for Obj.

    "paper": Δ = 2β (Obj) and β (Out). The cost is for the proven Δ of the gradient,
    which for the demands of one bus is larger than 2β: the noise multiplier is smaller than the
    formula's. "certified": the variances of Obj on the residual.
    """
    agents = experiment.build().agents
    paper = experiment.calibration == "paper"
    rows = []
    for epsilon in experiment.epsilons:
        row: dict[str, Any] = {"epsilon": epsilon}
        for algorithm, (perturbation, _) in ALGORITHMS.items():
            mechanism = experiment.mechanism(algorithm, epsilon)
            proven = max(a.objective.sensitivity(mechanism.norm, a.feasible_set) for a in agents)
            used = experiment.beta * (2 if perturbation == "objective" else 1) if paper else proven
            if paper or perturbation == "objective":
                row[f"variance {algorithm}"] = mechanism.variance(used)
            if perturbation == "objective":
                actual = experiment.proven(algorithm, epsilon, agents)
                for E in experiment.local_updates:
                    total = accounting.exact(actual, experiment.rounds * E, experiment.delta)
                    row[f"proven total epsilon {algorithm}, E = {E}"] = total.epsilon
        rows.append({k: row[k] for k in sorted(row, key=lambda k: "proven" in k)})
    return rows


def claims(experiment: Experiment, table: pd.DataFrame) -> list[dict[str, str]]:
    """The claims of Section 6.1, each with a verdict and the numbers behind it.

    A claim "smaller than" holds if the mean over the seeds is smaller in every case, by paired
    intervals that hold together at 95 % (Bonferroni); it does not hold if some mean is larger by
    one; else the data do not decide. "Sometimes smaller" holds if one mean is, and does not hold
    if all are larger.
    """
    final = _final(experiment, table)
    few, many = experiment.local_updates[0], experiment.local_updates[-1]
    ε = experiment.epsilons
    small, large = [e for e in ε if e <= 0.1], [e for e in ε if e > 0.1]

    def compare(text: str, quantity: str, pairs: Iterable[Any], *, some: bool = False) -> Any:
        return {"claim": text, **verdict(final[quantity], list(pairs), some)}

    rows = [
        compare(
            "The noise grows as epsilon falls.",
            "noise",
            (((a, e, few), (a, f, few)) for a in ALGORITHMS for f, e in pairwise(ε)),
        ),
        compare(
            "Obj needs more noise than Out.",
            "noise",
            ((("Out" + m, e, few), ("Obj" + m, e, few)) for m in "GL" for e in ε),
        ),
        compare(
            "Gaussian noise is larger than Laplace noise.",
            "noise",
            (((p + "L", e, few), (p + "G", e, few)) for p in ("Obj", "Out") for e in ε),
        ),
        compare(
            f"E = {few}: Obj reaches lower objectives than Out, at every epsilon.",
            "objective",
            ((("Obj" + m, e, few), ("Out" + m, e, few)) for m in "GL" for e in ε),
        ),
        compare(
            f"E = {few}: ObjL reaches lower objectives than ObjG.",
            "objective",
            ((("ObjL", e, few), ("ObjG", e, few)) for e in ε),
        ),
        compare(
            f"E = {many}: Obj reaches lower objectives than Out for small epsilon.",
            "objective",
            ((("Obj" + m, e, many), ("Out" + m, e, many)) for m in "GL" for e in small),
        ),
        compare(
            f"E = {many}: Out sometimes reaches lower objectives for larger epsilon.",
            "objective",
            ((("Out" + m, e, many), ("Obj" + m, e, many)) for m in "GL" for e in large),
            some=True,
        ),
        compare(
            "More local updates give a smaller consensus residual (ObjG).",
            "residual",
            ((("ObjG", e, many), ("ObjG", e, few)) for e in ε),
        ),
        compare(
            "More local updates give a smaller consensus residual (ObjL, OutG, OutL).",
            "residual",
            (((a, e, many), (a, e, few)) for a in ("ObjL", "OutG", "OutL") for e in ε),
        ),
    ]
    if (table["algorithm"] == ONCE).any():
        rows.append(
            compare(
                "Not the paper's: reading the loads once, at the same total, reaches lower "
                "objectives than ObjG.",
                "objective",
                (((ONCE, e, E), ("ObjG", e, E)) for e in ε for E in (few, many)),
            )
        )
    rows.append(_noiseless_claim(experiment, table))
    rows.append(_composition_claim(experiment))
    return rows


def _noiseless_claim(experiment: Experiment, table: pd.DataFrame) -> dict[str, str]:
    plain = table[(table["algorithm"] == "no noise") & (table["round"] == experiment.rounds)]
    ends = dict(zip(plain["local_updates"], plain["objective"], strict=True))
    reached = all(value <= 1e-3 for value in ends.values())
    return {
        "claim": "Without noise the objective tends to zero (Section 6.1, in passing).",
        "verdict": "holds" if reached else "not within these rounds",
        "numbers": "; ".join(f"E = {E}: {value:.3g}" for E, value in ends.items())
        + f" after {experiment.rounds} rounds, penalty {experiment.penalty:g}",
    }


def _composition_claim(experiment: Experiment) -> dict[str, str]:
    updates = experiment.rounds * experiment.local_updates[-1]
    pairs = {
        e: (
            accounting.paper(e, experiment.delta, updates).epsilon,
            accounting.exact(experiment.mechanism("ObjG", e), updates, experiment.delta).epsilon,
        )
        for e in experiment.epsilons
    }
    understated = [e for e, (paper, exact) in pairs.items() if paper < exact]
    return {
        "claim": f"The composition theorem bounds the total of {updates} updates (Section 4.3).",
        "verdict": "does not hold" if understated else "holds",
        "numbers": "; ".join(
            f"epsilon {e:g}: theorem {paper:.3g}, exact {exact:.3g}"
            for e, (paper, exact) in pairs.items()
        ),
    }


def _final(experiment: Experiment, table: pd.DataFrame) -> dict[str, dict[Any, Any]]:
    """Mean over the last rounds, per quantity and curve, one number per seed."""
    last = table[table["round"] > experiment.rounds - FINAL_ROUNDS]
    means = last.groupby(list(COLUMNS))[["objective", "residual", "noise"]].mean()
    return {
        quantity: {
            key: values.sort_index(level="seed").to_numpy()
            for key, values in means[quantity].groupby(level=list(COLUMNS[:3]))
        }
        for quantity in means
    }
