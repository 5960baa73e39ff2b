"""``solve`` and ``release``: a coordinator, with all participants in this process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, count
from tacit.planning import Plan, least_noise
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.coordinator import Coordinator
from tacit.protocol.release import Released
from tacit.protocol.result import Progress, Result
from tacit.sets.feasible_set import require_64_bits
from tacit.transports.batched import Batched
from tacit.transports.local import Ledgers, Local


def solve(
    problem: Problem | Iterable[LocalProblem] | Released,
    settings: Settings | Asked | Plan,
    *,
    seed: int | None = None,
    run: str | None = None,
    evaluate_every: int = 1,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    batch: bool | None = None,
    workers: int | None = None,
    noise: str | None = None,
    ledgers: Ledgers = None,
    start: Result | None = None,
    aggregation: str | None = None,
    colluding: int | None = None,
    progress: bool = False,
) -> Result:
    """Solve ``problem`` privately with all agents in this process.

    Exact steps solve a released problem, one without noise whose settings have a tolerance, and
    one whose data are best released once.

    problem         the agents' parts, or what ``release`` returned
    settings        a budget (``Settings.for_budget``), ``Settings`` in full, or a plan
    seed            Threefry noise from this seed (research); None takes a key of 64 bits, all
                    that Threefry's have, from the operating system. Do not give a seed again under
                    the same run name, unless there is a checkpoint to continue from
    run             a name; noise differs between runs of one seed. Default "run"; with ledgers a
                    fresh one
    evaluate_every  rounds between trace rows (and callbacks); the last round has one too
    checkpoint      file to save the state to at each evaluation, and to continue from if it is
                    there; the continued run is bit for bit the uninterrupted one. It holds the
                    noise key: guard it like the data, and remove it when the result is safe.
    batch           run all agents as one program; default: if all sets have a projection formula
    workers         the most agents at work at once, if not batched; default: one per core
    noise           "seeded" (Threefry, see ``seed``), or "secure": exact discrete noise from the
                    operating system, number by number, the default with ledgers. Without ledgers
                    such a run cannot be continued.
    ledgers         the agents' ledgers by name, or a folder with NAME.db for every agent: each
                    agent pays there before it answers, and refuses beyond its budget
    start           exact steps only: a warm start from an answer of the same release. That of other
                    data, or of the same at another time, would cost more than the statement says
    aggregation     "sum": the agents' statistics are only added up (losses over records, one common
                    set, Gaussian noise), and together they add the noise of one, as long as no more
                    than ``colluding`` of them, by default just less than half, collude with the
                    server. Masked as between organisations with ``batch=False``, ledgers or secure
                    noise; else without masks, which gives the same bits
    progress        say on standard error which round the run is at

    Returns the ``Result``: solutions, trace, plan and statement.

    Raises ``InvalidInput`` before anything is spent, ``Refused`` where an agent declines (a ledger
    that cannot pay), ``SolverFailure``, and ``LedgerFailure`` where a charge cannot be stored.

    Guarantee: the statement in ``Result.privacy`` covers every reply and so every solution in the
    result. The trace's ``objective`` and ``noise`` are computed from private data and noise for
    the researcher's eyes; they are not covered, and publishing them is not private.
    """
    released = problem if isinstance(problem, Released) else None
    problem = released.problem if released is not None else Problem.of(problem)
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    run_of_all = Coordinator(
        Local.of(problem, workers, ledgers),
        settings,
        known=problem,
        seed=seed,
        run=run,
        evaluate_every=evaluate_every,
        callback=callback,
        checkpoint=checkpoint,
        batch=batch,
        noise=noise,
        start=start,
        released=released,
        batched=Batched,
        aggregation=aggregation,
        colluding=colluding,
    )
    if progress:
        run_of_all.show = Shown()
    return run_of_all.conduct()


class Shown:
    """The round of a run, a line on standard error every few seconds and at its end."""

    every = 1.0

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()

    def __call__(self, stage: str, done: int = 0, rounds: int = 0, **about: object) -> None:
        now = time.monotonic()
        if not rounds or (done < rounds and now - self._last < self.every):
            return
        self._last = now
        end = "\n" if done == rounds else ""
        line = f"\rround {done} of {rounds}, {now - self._begun:.0f} s"
        print(line, end=end, file=sys.stderr, flush=True)


def release(
    problem: Problem | Iterable[LocalProblem],
    total_epsilon: float,
    total_delta: float = 0.0,
    *,
    mechanism: str | None = None,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Ledgers = None,
    aggregation: str | None = None,
    colluding: int | None = None,
) -> Released:
    """Let every agent release its sufficient statistics once; what is computed from them is free.

    problem     the agents' parts
    total_epsilon, total_delta   the budget of each agent's release; δ = 0 with Laplace noise only
    mechanism   "gaussian" or "laplace"; by default the one that adds less noise, chosen from public
                numbers (``planning.least_noise``)
    seed        Threefry noise from this seed (research); None: from a key of the operating system
    run         a name; seeded noise differs between runs of one seed
    noise       "seeded", or "secure": exact discrete noise from the operating system, number by
                number, the default with ledgers
    ledgers     the agents' ledgers by name, or a folder with NAME.db for every agent. Each agent
                pays there once; asked again for the same data and budget, it gives what it has
                given, at no cost. Data that have changed need, and get, a charge of their own.
    aggregation, colluding   "sum", as in ``solve``: what is released is the sum of all statistics,
                with the noise of one. It is a problem of one agent then, and agents keep nothing

    Returns a ``Released`` problem, which ``solve`` takes as often as you like.

    Raises ``InvalidInput`` for an objective that has no sufficient statistics, ``Refused`` where a
    ledger cannot pay, ``LedgerFailure`` where a charge cannot be stored. Nothing is released then.

    Guarantee: see ``release.py``. ``Released.privacy`` covers all that is computed from it.
    """
    if isinstance(problem, Released):
        raise InvalidInput("Expected a problem of private data, got one that is released already.")
    problem = Problem.of(problem)
    if mechanism is None and aggregation is not None:
        mechanism = "gaussian"  # which alone adds up
    noise_law = (
        least_noise(problem, total_epsilon, total_delta)
        if mechanism is None
        else calibrate(mechanism, total_epsilon, total_delta, 1)
    )
    about = problem, noise_law, total_delta, seed, run, noise, ledgers
    return read(*about, aggregation=aggregation, colluding=colluding)


def read(
    problem: Problem,
    mechanism: Mechanism,
    delta: float,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Ledgers = None,
    checkpoint: str | Path | None = None,
    then: tuple[Mechanism, int] | None = None,
    aggregation: str | None = None,
    colluding: int | None = None,
) -> Released:
    """``release`` with a given mechanism, kept in or taken from a ``checkpoint``, and only where
    ledgers would pay for what comes ``then`` too: a mechanism, and how often."""
    require_64_bits()
    local = Local.of(problem, ledgers=ledgers)
    plan = Plan(Settings(1, tolerance=1.0), mechanism, delta)
    coordinator = Coordinator(
        local,
        plan,
        known=problem,
        seed=seed,
        run=run,
        noise=noise,
        checkpoint=checkpoint,
        aggregation=aggregation,
        colluding=colluding,
    )
    if coordinator.sums is not None:
        problem, plan = coordinator.planned()
    found = coordinator.releases(problem, plan, then)
    about = tuple(found.releases), mechanism, found.privacy, found.seed
    if coordinator.sums is not None:
        return Released(coordinator.sums.released, *about)
    return Released.of(problem, *about)
