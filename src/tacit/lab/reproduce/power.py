"""Figures 3 and 4 and Table 1: the four algorithms on power flow, several processes at a time."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.admm.problem import LocalProblem
from tacit.admm.settings import NonsmoothStep, Settings
from tacit.errors import count
from tacit.lab import reproduce
from tacit.lab.reproduce import Curve, Rows, Runs
from tacit.power.model import PowerProblem, build
from tacit.privacy import accounting
from tacit.privacy.mechanisms import Mechanism, Noiseless, mechanism_from, per_update
from tacit.protocol.result import TRACE
from tacit.transports.solving import solve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALGORITHMS = {  # perturbation and mechanism
    "ObjG": ("objective", "gaussian"),
    "OutG": ("output", "gaussian"),
    "ObjL": ("objective", "laplace"),
    "OutL": ("output", "laplace"),
}
COLOURS = dict(zip(ALGORITHMS, ("#1f5f8b", "#c0392b", "#2e86c1", "#e08e45"), strict=True))


class Run(NamedTuple):
    """One curve of one seed; epsilon inf is the run without noise."""

    algorithm: str
    epsilon: float
    local_updates: int
    seed: int


@dataclass(frozen=True)
class Experiment(reproduce.Experiment):
    """Noise as in the paper: not certified."""

    case: str
    zones: int
    beta: float
    penalty: float

    columns = (*Run._fields, *TRACE)
    last = 10

    def units(self) -> list[Run]:
        every = [Run("no noise", math.inf, E, 0) for E in self.local_updates]
        every += [
            Run(algorithm, epsilon, E, seed)
            for seed in range(self.seeds)
            for algorithm in ALGORITHMS
            for epsilon in self.epsilons
            for E in self.local_updates
        ]
        return sorted(every, key=lambda run: -run.local_updates)  # the long ones first

    def unit(self, row: Sequence[str]) -> Run:
        return Run(row[0], float(row[1]), int(row[2]), int(row[3]))

    @property
    def unit_rows(self) -> int:
        return self.rounds

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
        ratio = float(mechanism.scale(2 * self.beta)) / Δ
        return mechanism_from({**mechanism.to_dict(), "noise_multiplier": ratio})

    def build(self) -> PowerProblem:
        return build(self.case, self.zones, beta=self.beta, noise_on="gradient")

    def settings(self, run: Run) -> Settings:
        perturbation = ALGORITHMS.get(run.algorithm, ("objective", ""))[0]
        return Settings(
            self.rounds,
            run.local_updates,
            self.mechanism(run.algorithm, run.epsilon),
            self.delta,
            perturbation,  # type: ignore[arg-type]
            "paper",
            self.penalty,
            NonsmoothStep(1.0),
        )

    def prepare(self, source: int | None) -> tuple[Runs, dict[str, Any]]:
        """``source`` runs at a time, or one for each core. Numbers do not depend on it."""
        self.build()
        workers = count("workers", (os.cpu_count() or 1) if source is None else source)
        return partial(_runs, self, workers), {"cores": os.cpu_count()}

    def draw(self, traces: pd.DataFrame) -> Figure:
        """Rows: noise, objective for each E, residual of ObjG."""
        few, many = self.local_updates[0], self.local_updates[-1]

        def curves(E: int) -> list[Curve]:
            return [Curve({"algorithm": a, "local_updates": E}, a, COLOURS[a]) for a in ALGORITHMS]

        residuals = [
            Curve({"algorithm": "ObjG", "local_updates": E}, f"ObjG, E = {E}", f"C{k}")
            for k, E in enumerate((few, many))
        ]
        rows = [
            ("noise", "noise magnitude", curves(few)),
            *(("objective", f"objective, E = {E}", curves(E)) for E in self.local_updates),
            ("residual", "consensus residual", residuals),
        ]
        return self.panels(traces, rows, "the paper's noise, not certified")

    def tables(self, traces: pd.DataFrame) -> dict[str, Rows]:
        return {"claims": self.claims(traces), "table1": self.table1()}

    def table1(self) -> Rows:
        """Table 1: the variances; then what all updates of a run cost together, for Obj.

        Δ = 2β (Obj) and β (Out). The cost is for the proven Δ of the gradient, which for the
        demands of one bus is larger than 2β: the noise multiplier is smaller than the formula's.
        """
        agents = self.build().agents
        rows = []
        for epsilon in self.epsilons:
            row: dict[str, Any] = {"epsilon": epsilon}
            totals = {}
            for algorithm, (perturbation, _) in ALGORITHMS.items():
                mechanism = self.mechanism(algorithm, epsilon)
                used = self.beta * (2 if perturbation == "objective" else 1)
                row[f"variance {algorithm}"] = mechanism.variance(used)
                if perturbation == "objective":
                    actual = self.proven(algorithm, epsilon, agents)
                    for E in self.local_updates:
                        total = accounting.exact(actual, self.rounds * E, self.delta)
                        totals[f"proven total epsilon {algorithm}, E = {E}"] = total.epsilon
            rows.append({**row, **totals})
        return rows

    def claims(self, traces: pd.DataFrame) -> Rows:
        """The claims of Section 6.1."""
        few, many = self.local_updates[0], self.local_updates[-1]
        ε = self.epsilons
        small, large = [e for e in ε if e <= 0.1], [e for e in ε if e > 0.1]

        def kinds(low: str, high: str, E: int, epsilons: list[float]) -> list[Any]:
            """Obj and Out of either kind of noise."""
            return [((low + m, e, E), (high + m, e, E)) for m in "GL" for e in epsilons]

        claims: list[Any] = [
            (
                "The noise grows as epsilon falls.",
                "noise",
                [((a, e, few), (a, f, few)) for a in ALGORITHMS for f, e in pairwise(ε)],
            ),
            ("Obj needs more noise than Out.", "noise", kinds("Out", "Obj", few, ε)),
            (
                "Gaussian noise is larger than Laplace noise.",
                "noise",
                [((p + "L", e, few), (p + "G", e, few)) for p in ("Obj", "Out") for e in ε],
            ),
            (
                f"E = {few}: Obj reaches lower objectives than Out, at every epsilon.",
                "objective",
                kinds("Obj", "Out", few, ε),
            ),
            (
                f"E = {few}: ObjL reaches lower objectives than ObjG.",
                "objective",
                [(("ObjL", e, few), ("ObjG", e, few)) for e in ε],
            ),
            (
                f"E = {many}: Obj reaches lower objectives than Out for small epsilon.",
                "objective",
                kinds("Obj", "Out", many, small),
            ),
            (
                f"E = {many}: Out sometimes reaches lower objectives for larger epsilon.",
                "objective",
                kinds("Out", "Obj", many, large),
                True,
            ),
            (
                "More local updates give a smaller consensus residual (ObjG).",
                "residual",
                [(("ObjG", e, many), ("ObjG", e, few)) for e in ε],
            ),
            (
                "More local updates give a smaller consensus residual (ObjL, OutG, OutL).",
                "residual",
                [((a, e, many), (a, e, few)) for a in ("ObjL", "OutG", "OutL") for e in ε],
            ),
        ]
        judged = self.verdicts(traces, claims)
        return [*judged, self._noiseless_claim(traces), self._composition_claim()]

    def _noiseless_claim(self, traces: pd.DataFrame) -> dict[str, str]:
        plain = traces[(traces["algorithm"] == "no noise") & (traces["round"] == self.rounds)]
        ends = dict(zip(plain["local_updates"], plain["objective"], strict=True))
        reached = all(value <= 1e-3 for value in ends.values())
        return {
            "claim": "Without noise the objective tends to zero (Section 6.1, in passing).",
            "verdict": "holds" if reached else "not within these rounds",
            "numbers": "; ".join(f"E = {E}: {value:.3g}" for E, value in ends.items())
            + f" after {self.rounds} rounds, penalty {self.penalty:g}",
        }

    def _composition_claim(self) -> dict[str, str]:
        n = self.rounds * self.local_updates[-1]  # updates
        pairs = {
            e: (
                accounting.paper(e, self.delta, n).epsilon,
                accounting.exact(self.mechanism("ObjG", e), n, self.delta).epsilon,
            )
            for e in self.epsilons
        }
        understated = [e for e, (paper, exact) in pairs.items() if paper < exact]
        return {
            "claim": f"The composition theorem bounds the total of {n} updates (Section 4.3).",
            "verdict": "does not hold" if understated else "holds",
            "numbers": "; ".join(
                f"epsilon {e:g}: theorem {paper:.3g}, exact {exact:.3g}"
                for e, (paper, exact) in pairs.items()
            ),
        }


def _runs(
    experiment: Experiment, workers: int, left: list[Run], told: Callable[[int], None]
) -> Generator[tuple[Run, Iterable[Any]]]:
    if not left:
        return
    pool = ProcessPoolExecutor(
        min(workers, len(left)),
        multiprocessing.get_context("spawn"),  # JAX does not survive a fork
        _start,
        (experiment,),
    )
    try:
        # Ctrl-C in a terminal reaches all processes: only this one answers
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        jobs = [pool.submit(_work, experiment, run) for run in left]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for job in as_completed(jobs):
            yield job.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_problem: PowerProblem | None = None  # of a worker process


def _start(experiment: Experiment) -> None:
    global _problem
    _problem = experiment.build()


def _work(experiment: Experiment, run: Run) -> tuple[Run, list[Any]]:
    assert _problem is not None
    found = solve(_problem.problem, experiment.settings(run), seed=run.seed, workers=1).trace
    return run, [
        (*run, *row) for row in zip(*(found[name].tolist() for name in TRACE), strict=True)
    ]
