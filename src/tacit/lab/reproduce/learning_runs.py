"""The runs of Figures 5, 6 and 7: all of one algorithm and one E are one batched program.

A folder holds ``experiment.json`` (what was run), ``traces.csv`` (every evaluated round of every
run, from which all else is made), ``figure.png`` and ``.pdf``, ``errors.csv`` (test errors at the
end) and ``claims.csv``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.admm.problem import Problem
from tacit.files import write_atomically
from tacit.lab.reproduce.learning import COLUMNS, TRACE, Experiment, report
from tacit.lab.reproduce.results import reserve
from tacit.learn.data import Dataset
from tacit.reading import read_pandas, read_text, reading
from tacit.transports.sweep import solve_many

EVALUATIONS = 100  # rounds of a run that are evaluated


def run_experiment(
    experiment: Experiment,
    data: str | Path,
    folder: Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Make all runs and write the folder. Finished groups of runs are not repeated."""
    train, test = experiment.load(data)
    traces = reserve(folder, experiment, device=jax.devices()[0].device_kind)
    groups = [(a, E) for E in experiment.local_updates for a in experiment.algorithms]
    done = _finished(traces)
    total = experiment.rounds * sum(E for _, E in groups)
    made = experiment.rounds * sum(E for a, E in groups if (a, E) in done)
    progress(made, total)
    problem = experiment.problem(train)
    test_errors = _test_errors(test)
    for algorithm, E in groups:
        if (algorithm, E) in done:
            continue

        def told(updates: int, before: int = made) -> None:
            progress(before + updates, total)

        _append(traces, _run(experiment, problem, test_errors, algorithm, E, told))
        made += experiment.rounds * E
    return report(folder)


def _run(
    experiment: Experiment,
    problem: Problem,
    test_errors: Callable[[Any], Any],
    algorithm: str,
    E: int,
    progress: Callable[[int], None],
) -> list[tuple[Any, ...]]:
    """All penalties, epsilons and seeds of an algorithm with E local updates, at once."""
    runs = [
        (penalty, epsilon, seed)
        for penalty in experiment.penalties
        for epsilon in experiment.epsilons
        for seed in range(experiment.seeds)
    ]
    rows: list[tuple[Any, ...]] = []

    def note(t: int, solutions: Any, trace: Any) -> None:
        errors = test_errors(solutions)
        for (penalty, epsilon, seed), values, error in zip(runs, trace, errors, strict=True):
            objective, residual, noise, violation = values[1:].tolist()
            noise /= solutions.shape[1]  # the paper's: Σ_p Σ_e of the mean over the coordinates
            about = (algorithm, penalty, epsilon, E, seed, t)
            rows.append((*about, objective, residual, noise, violation, float(error)))
        progress(t * E)

    solve_many(
        problem,
        [experiment.settings(algorithm, penalty, epsilon, E) for penalty, epsilon, _ in runs],
        [seed for _, _, seed in runs],
        evaluate_every=max(1, experiment.rounds // EVALUATIONS),
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


def _finished(traces: Path) -> set[tuple[str, int]]:
    """Groups in the file: each is appended as a whole, when it is done."""
    if not traces.exists():
        write_atomically(traces, (",".join((*COLUMNS, *TRACE)) + "\n").encode())
    with reading(traces, "traces of an experiment"):
        rows = read_pandas(traces)
        return set(zip(rows["algorithm"], map(int, rows["local_updates"]), strict=True))


def _append(traces: Path, rows: list[tuple[Any, ...]]) -> None:
    content = read_text(traces).splitlines()
    lines = [",".join(f'"{v}"' if isinstance(v, str) else repr(v) for v in row) for row in rows]
    write_atomically(traces, ("\n".join([*content, *lines]) + "\n").encode())
