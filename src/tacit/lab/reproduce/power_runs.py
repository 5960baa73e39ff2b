"""The runs of Figures 3 and 4, several processes at a time; what is done is not done again.

A folder holds ``experiment.json`` (what was run), ``traces.csv`` (every round of every run, from
which all else is made), ``figure.png`` and ``.pdf``, ``table1.csv`` and ``claims.csv``.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from tacit.admm.problem import objective_value
from tacit.errors import count
from tacit.files import write_atomically
from tacit.lab.reproduce.power import COLUMNS, ONCE, Experiment, Run, report
from tacit.lab.reproduce.results import reserve
from tacit.power.model import PowerProblem
from tacit.protocol.result import TRACE, Progress
from tacit.reading import read_rows, reading
from tacit.transports.releasing import read
from tacit.transports.solving import solve

_problem: PowerProblem | None = None  # of a worker process


def _start(experiment: Experiment) -> None:
    global _problem
    _problem = experiment.build()


def _work(experiment: Experiment, run: Run) -> tuple[Run, dict[str, Any]]:
    assert _problem is not None
    if run.algorithm == ONCE:
        return run, _read_once(_problem, experiment, run)
    result = solve(_problem.problem, experiment.settings(run), seed=run.seed, workers=1)
    return run, {name: result.trace[name].tolist() for name in TRACE}


def _read_once(case: PowerProblem, experiment: Experiment, run: Run) -> dict[str, Any]:
    """A trace like that of the other runs: objective at the true loads, noise of the one reading.

    Rounds after the last, at tolerance, are as that.
    """
    problem, rows = case.problem, []
    noise = experiment.reading(run, problem.agents)
    released = read(problem, noise, experiment.delta, run.seed)
    parts = zip(released.releases, problem.agents, strict=True)
    drawn = sum(float(np.abs(r.values - a.objective.reading().values).sum()) for r, a in parts)

    def note(progress: Progress) -> None:
        pairs = zip(problem.agents, progress.points, strict=True)
        objective = sum(objective_value(a.objective, z) for a, z in pairs)
        row = progress.row
        rows.append([progress.round, objective, row["residual"], drawn, row["violation"]])

    solve(released, experiment.settings(run), callback=note, workers=1)
    rows += [[t, *rows[-1][1:]] for t in range(len(rows) + 1, experiment.rounds + 1)]
    return dict(zip(TRACE, np.array(rows).T.tolist(), strict=True))


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Make all runs, ``workers`` at a time, and write the folder. Finished runs are not repeated.

    ``progress`` is told local updates done and in all. Numbers do not depend on ``workers``.
    """
    experiment.build()  # a wrong case is refused here, before anything is written
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    traces = reserve(folder, experiment, cores=os.cpu_count())
    done = _finished(traces, experiment.rounds)
    left = [run for run in experiment.runs() if run not in done]
    total = sum(run.local_updates for run in experiment.runs()) * experiment.rounds
    made = total - sum(run.local_updates for run in left) * experiment.rounds
    progress(made, total)
    if left:
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
                run, trace = job.result()
                _append(traces, run, trace)
                made += run.local_updates * experiment.rounds
                progress(made, total)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return report(folder)


def _finished(traces: Path, rounds: int) -> set[Run]:
    """Runs that are in the file as a whole; a half-written last one is cut off."""
    if not traces.exists():
        return set()
    rows = read_rows(traces)
    whole: list[list[str]] = []
    done: set[Run] = set()
    width = len(COLUMNS) + len(TRACE)
    for start in range(1, len(rows), rounds):
        block = rows[start : start + rounds]
        if len(block) < rounds or any(len(row) != width for row in block):
            break
        algorithm, epsilon, E, seed = block[0][:4]
        with reading(traces, "traces of an experiment"):
            done.add(Run(algorithm, float(epsilon), int(E), int(seed)))
        whole += block
    _rewrite(traces, whole)
    return done


def _append(traces: Path, run: Run, trace: dict[str, list[float]]) -> None:
    if not traces.exists():
        _rewrite(traces, [])
    with open(traces, "a", newline="") as file:
        writer = csv.writer(file)
        writer.writerows((*run, *row) for row in zip(*(trace[n] for n in TRACE), strict=True))


def _rewrite(traces: Path, rows: list[list[str]]) -> None:
    lines = [",".join(map(str, row)) for row in [(*COLUMNS, *TRACE), *rows]]
    write_atomically(traces, ("\n".join(lines) + "\n").encode())
