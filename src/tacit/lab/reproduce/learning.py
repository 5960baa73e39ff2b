"""Figures 5, 6 and 7: private classification of MNIST and FEMNIST.

All runs of one algorithm with the same number of local updates are one batched program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import ConstantPenalty, DynamicPenalty, NonsmoothStep, Schedule, Settings
from tacit.errors import choice
from tacit.lab import reproduce
from tacit.lab.reproduce import Curve, Rows, Runs
from tacit.learn.data import Dataset, load_leaf, load_mnist, split
from tacit.objectives.losses import SoftmaxRegression
from tacit.privacy.mechanisms import Gaussian
from tacit.sets.closed_form import Box
from tacit.transports.sweep import solve_many

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALGORITHMS = {  # perturbation and calibration; OutG in the two readings of its sensitivity
    "ObjG": ("objective", "paper"),
    "OutG": ("output", "paper"),
    "OutG, tight": ("output", "paper-tight"),
}
EVALUATIONS = 100  # rounds of a run that are evaluated
RUN = ("algorithm", "penalty", "epsilon", "local_updates", "seed")


class Group(NamedTuple):
    """All penalties, epsilons and seeds of an algorithm with E local updates: run at once."""

    algorithm: str
    local_updates: int


@dataclass(frozen=True)
class Experiment(reproduce.Experiment):
    """``penalties`` are "adaptive", "adaptive/100" or numbers."""

    data: str
    bound: float
    agents: int  # 0: one per writer
    algorithms: list[str]
    penalties: list[str]
    adaptive: dict[str, float]  # base and privacy of the paper's ρ̂, and its period

    columns = (*RUN, "round", "objective", "residual", "noise", "violation", "test_error")

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("data", self.data, ("mnist", "femnist"))

    def units(self) -> list[Group]:
        return [Group(a, E) for E in self.local_updates for a in self.algorithms]

    def unit(self, row: Sequence[str]) -> Group:
        return Group(row[0], int(row[3]))

    @property
    def every(self) -> int:
        """Rounds between two that are evaluated."""
        return max(1, self.rounds // EVALUATIONS)

    @property
    def unit_rows(self) -> int:
        return len(self.runs()) * -(-self.rounds // self.every)

    def runs(self) -> list[tuple[str, float, int]]:
        """Penalty, epsilon and seed of every run of a group."""
        return [
            (penalty, epsilon, seed)
            for penalty in self.penalties
            for epsilon in self.epsilons
            for seed in range(self.seeds)
        ]

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

    def prepare(self, source: str | Path) -> tuple[Runs, dict[str, Any]]:
        train, test = self.load(source)

        def runs(left: list[Group], told: Callable[[int], None]) -> Any:
            problem, test_errors = self.problem(train), _test_errors(test)
            for group in left:
                yield group, _run(self, problem, test_errors, group, told)

        return runs, {"device": jax.devices()[0].device_kind}

    def draw(self, traces: pd.DataFrame) -> Figure:
        """Noise, objective and test error; with several penalties (Figure 7) the test error alone,
        one curve per penalty."""
        several, most = len(self.penalties) > 1, max(self.local_updates)
        curves = [
            Curve(
                {"algorithm": a, "penalty": penalty, "local_updates": E},
                f"penalty {penalty}" if several else f"{a}, E = {E}",
                f"C{k if several else self.algorithms.index(a)}",
                "-" if most == E else "--",
            )
            for a, E in self.units()
            for k, penalty in enumerate(self.penalties)
        ]
        rows = [("test_error", "test error", curves)]
        if not several:
            rows = [
                ("noise", "noise magnitude", curves),
                ("objective", "objective", curves),
                *rows,
            ]
        return self.panels(traces, rows, "the paper's noise, not certified")

    def tables(self, traces: pd.DataFrame) -> dict[str, Rows]:
        return {"claims": self.claims(traces), "errors": final_errors(traces)}

    def claims(self, traces: pd.DataFrame) -> Rows:
        """The claims of Section 6.2 or Appendix E."""
        if len(self.penalties) > 1:
            return [_hyper_claim(traces)]
        ε, few, many = self.epsilons, self.local_updates[0], self.local_updates[-1]
        outs = [a for a in self.algorithms if a != "ObjG"]
        noises = [
            (
                f"The noise of ObjG is greater than that of {out}.",
                "noise",
                [((out, e, E), ("ObjG", e, E)) for e in ε for E in (few, many)],
            )
            for out in outs
        ]
        increases = (
            "The objective increases as epsilon decreases.",
            "objective",
            [((a, e, many), (a, f, many)) for a in self.algorithms for f, e in pairwise(ε)],
        )
        objectives = [
            (
                f"The objective of ObjG is lower than that of {out}.",
                "objective",
                [(("ObjG", e, E), (out, e, E)) for e in ε for E in (few, many)],
            )
            for out in outs
        ]
        updates = (
            f"More local updates (E = {many} instead of {few}) lower the objective.",
            "objective",
            [((a, e, many), (a, e, few)) for a in self.algorithms for e in ε],
        )
        errors = [
            (
                f"ObjG with E = {many} has a lower test error than {out} with any E, and than ObjG "
                f"with E = {few}.",
                "test_error",
                [
                    (("ObjG", e, many), other)
                    for e in ε
                    for other in ((out, e, few), (out, e, many), ("ObjG", e, few))
                ],
            )
            for out in outs
        ]
        return self.verdicts(traces, [*noises, increases, *objectives, updates, *errors])


def final_errors(traces: pd.DataFrame) -> Rows:
    """Test errors after the last round, in per cent: mean over the seeds and deviation."""
    last = traces[traces["round"] == traces["round"].max()]
    grouped = last.groupby(list(RUN[:4]), sort=False)["test_error"]
    return [
        {
            "algorithm": algorithm,
            "penalty": penalty,
            "epsilon": float(epsilon),
            "local_updates": int(E),
            "test_error_percent": 100 * values.mean(),
            "deviation": 100 * values.std(ddof=1) if len(values) > 1 else 0.0,
        }
        for (algorithm, penalty, epsilon, E), values in grouped
    ]


def _hyper_claim(traces: pd.DataFrame) -> dict[str, str]:
    """Figure 7: the spread over penalties beside the spread over epsilons."""
    last = traces[traces["round"] == traces["round"].max()].sort_values("seed")
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


def _run(
    experiment: Experiment,
    problem: Problem,
    test_errors: Callable[[Any], Any],
    group: Group,
    told: Callable[[int], None],
) -> list[tuple[Any, ...]]:
    (algorithm, E), runs = group, experiment.runs()
    rows: list[tuple[Any, ...]] = []

    def note(t: int, solutions: Any, trace: Any) -> None:
        errors = test_errors(solutions)
        for (penalty, epsilon, seed), values, error in zip(runs, trace, errors, strict=True):
            objective, residual, noise, violation = values[1:].tolist()
            noise /= solutions.shape[1]  # the paper's: Σ_p Σ_e of the mean over the coordinates
            about = (algorithm, penalty, epsilon, E, seed, t)
            rows.append((*about, objective, residual, noise, violation, float(error)))
        told(t * E)

    solve_many(
        problem,
        [experiment.settings(algorithm, penalty, epsilon, E) for penalty, epsilon, _ in runs],
        [seed for _, _, seed in runs],
        evaluate_every=experiment.every,
        callback=note,
    )
    return rows


def _test_errors(test: Dataset) -> Callable[[Any], Any]:
    """The test error of each of many weight matrices."""
    X, y = jnp.asarray(test.features), jnp.asarray(test.labels)

    @jax.jit
    def wrong(weights: Any, X: Any, y: Any) -> Any:
        scores = X @ weights.reshape(X.shape[1], -1).astype(X.dtype)
        return (scores.argmax(axis=1) != y).mean()

    return lambda solutions: np.array([float(wrong(w, X, y)) for w in solutions])
