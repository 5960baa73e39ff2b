"""Many configurations of one problem as one program: a whole figure for little more than a curve.

The data are read once for all of them, whose products with them become one larger product. They
may differ in noise multiplier, schedules and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tacit._types import Vector
from tacit.admm.adaptive import is_adaptive
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, count
from tacit.privacy.seeded_noise import jax_key, root_key
from tacit.protocol.result import TRACE, Result, result_of
from tacit.protocol.statement import privacy_statement
from tacit.transports.batched import BatchedAgents, State


def solve_many(
    problem: Problem | Iterable[LocalProblem],
    settings: Sequence[Settings],
    seeds: Sequence[int | None],
    *,
    run: str = "run",
    evaluate_every: int | None = None,
    callback: Callable[[int, Vector, Vector], None] | None = None,
) -> list[Result]:
    """What ``solve`` returns for every pair of settings and seed, all at once.

    problem         the agents' parts; all sets need a projection formula
    settings        rounds, local updates, perturbation, calibration and kind of mechanism must be
                    the same in all
    seeds           one for each; None takes a key from the operating system
    run             a name; noise differs between runs of one seed
    evaluate_every  rounds between rows of the traces; by default the last round only
    callback        gets the round, all solutions, and the rows (configurations × columns)

    Returns one ``Result`` for each pair. Raises ``InvalidInput`` before anything is computed.

    Guarantee: that of ``solve`` for every configuration alone. Who publishes several spends the
    sum of their budgets, if their seeds differ. Those of one seed have the same noise, scaled:
    together they give the data away.
    """
    if not isinstance(problem, Problem):
        problem = Problem(problem)
    if not settings or len(settings) != len(seeds):
        raise InvalidInput(
            f"Expected one seed for each of the settings, got {len(settings)} settings and "
            f"{len(seeds)} seeds."
        )
    kinds = {
        (s.rounds, s.local_updates, s.perturbation, s.calibration, type(s.mechanism))
        for s in settings
    }
    if len(kinds) > 1:
        raise InvalidInput(
            "Expected settings that differ in noise multiplier and schedules only; got different "
            "rounds, local updates, perturbations, calibrations or mechanisms. Nothing was solved."
        )
    # NumPy's whole numbers are not plain data, as a saved result has them
    seeds = [int(seed) if isinstance(seed, np.integer) else seed for seed in seeds]
    rounds = settings[0].rounds
    step = rounds if evaluate_every is None else count("evaluate_every", evaluate_every)
    filled = [s.complete(problem) for s in settings]
    steps = [s.step_size for s in filled if is_adaptive(s)]
    if steps and steps != [filled[0].step_size] * len(filled):
        raise InvalidInput(
            "Expected steps that adapt, and one reach, for all settings or for none, got others. "
            "Nothing was solved."
        )
    keys = [jax_key(root_key(seed)) for seed in seeds]
    program = BatchedAgents(problem, filled[0], keys[0], run, list(zip(filled, keys, strict=True)))
    now, done, traces = program.start(), 0, []
    while done < rounds:
        first, done = done + 1, min(done + step, rounds)
        weights = np.stack([s.averaging_weights(first, done) for s in filled])
        now, _, residual, noise = program.advance(now, first, done, weights)
        objective, violation = program.evaluate(now)
        columns = np.broadcast_arrays(done, objective, residual, noise, violation)
        traces.append(np.stack(columns, axis=1).astype(np.float64))
        if callback is not None:
            callback(done, program.solutions(now), traces[-1])
    results = []
    for i, (s, seed) in enumerate(zip(filled, seeds, strict=True)):
        state = {
            name: program.unstack([np.asarray(part[i]) for part in getattr(now, name)])
            for name in State._fields[:4]
        }
        trace = dict(zip(TRACE, np.array([rows[i] for rows in traces]).T, strict=True))
        privacy = privacy_statement(problem, s, seed is not None, False)
        results.append(result_of(problem, s, state, trace, privacy, seed))
    return results
