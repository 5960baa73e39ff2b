"""``solve``: server and agents in one process; ``run_all``: the same, wherever agents are.

    solve = Server + in-process engine + what only a process that holds all data can add: the
    objective and the size of the noise, columns of the trace that no statement covers

A run with noise in every round ends after the agreed number of rounds and for no other reason:
stopping when some number computed from private data looks good would itself release that number.
Runs on data that were read once, and runs without noise, may end at a tolerance
(``solving_released.py``).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, count
from tacit.planning import Plan, plan
from tacit.protocol.checkpoint import Checkpoint
from tacit.protocol.data_digest import joined_digest
from tacit.protocol.keys import generator, root_key
from tacit.protocol.released import Released
from tacit.protocol.result import TRACE, Progress, Result, result_of
from tacit.sets.powers import require_64_bits
from tacit.transports.releasing import Source
from tacit.transports.rounds import Batched, OneByOne, Paying
from tacit.transports.seats import Everyone, Here, Ledgers, Seat
from tacit.transports.solving_released import solve_released


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
    block: int = 1,
    start: Result | None = None,
) -> Result:
    """Solve ``problem`` privately with all agents in this process.

    A released problem, one without noise whose settings have a tolerance, and one whose data a
    budget is best spent on reading once, are solved by exact steps (``solving_released.py``).

    seed            Threefry noise from this seed (research); None takes a key of 64 bits, all
                    that Threefry's have, from the operating system. Do not give a seed again under
                    the same run name, unless there is a checkpoint to continue from
    run             a name; noise differs between runs of one seed. Default "run"; with ledgers a
                    fresh one
    evaluate_every  trace row (and callback) every so many rounds, and after the last
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
    block           rounds to pay for at a time (see ``Agent``)
    start           exact steps only: begin at another answer from the same release. That of other
                    data, or of the same at another time, would cost more than the statement says

    Guarantee: the statement in ``Result.privacy`` covers every reply and so every solution in the
    result. The trace's ``objective`` and ``noise`` are computed from private data and noise for
    the researcher's eyes; they are not covered, and publishing them is not private.
    """
    released = problem if isinstance(problem, Released) else None
    problem = released.problem if released is not None else Problem.of(problem)
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    return run_all(
        Here.of(problem, workers, ledgers),
        settings,
        seed=seed,
        run=run,
        evaluate_every=evaluate_every,
        callback=callback,
        checkpoint=checkpoint,
        batch=batch,
        noise=noise,
        block=block,
        start=start,
        released=released,
    )


def run_all(
    everyone: Everyone,
    settings: Settings | Asked | Plan,
    *,
    seed: int | None = None,
    run: str | None = None,
    evaluate_every: int = 1,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    batch: bool | None = None,
    noise: str | None = None,
    block: int = 1,
    start: Result | None = None,
    released: Released | None = None,
) -> Result:
    """``solve`` with all agents, wherever they are. ``released``: what they hold is public."""
    require_64_bits()
    count("evaluate_every", evaluate_every)
    problem = everyone.problem
    if released is not None and isinstance(settings, Asked):
        raise InvalidInput(
            "Expected Settings for a released problem, got a budget: it is spent already."
        )
    chosen = plan(problem, settings)
    settings, reason = chosen.settings, chosen.reason
    reading = None if chosen.release is None else (chosen.release, chosen.delta)
    if released is not None or reading is not None or settings.tolerance is not None:
        if batch is not None or block != 1:
            raise InvalidInput(
                "Expected batch and block left out for exact steps, which have neither, got "
                f"batch={batch!r} and block={block!r}. Nothing was computed."
            )
        source = Source(everyone, seed, run, noise, checkpoint)
        copies = source.copies(released, reading, settings)
        if reading is not None and all(release.kept for release in copies.releases):
            reason += " All agents had released these data before: nothing was charged."
        return solve_released(
            everyone,
            copies,
            settings,
            evaluate_every=evaluate_every,
            callback=callback,
            start=start,
            plan=reason,
        )
    if start is not None:
        raise InvalidInput("Expected no start where every round adds noise. Nothing was computed.")
    if settings.penalty is None or settings.step_size is None:
        settings = settings.complete(everyone.sized())
    paying = Paying.of(everyone, noise, seed, block, checkpoint)
    if batch and (paying.alone or not isinstance(everyone, Here)):
        raise InvalidInput(
            "Expected batch=False with ledgers, secure noise or agents elsewhere, got batch=True."
        )
    now, batch = _begin(everyone, settings, seed, run, paying, batch, checkpoint)
    agents: Batched | OneByOne = (
        Batched(problem, settings, now.key, now.run)
        if batch
        else OneByOne(everyone, settings, now.key, now.run, paying)
    )
    if now.state:
        agents.restore(now.state, now.round)
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and not now.state:
        now.at(0, agents.state(), []).save(path)  # the key is there before anything is released
    done, trace = now.round, now.trace.tolist()
    while done < settings.rounds:
        first, done = done + 1, min(done + evaluate_every, settings.rounds)
        w = agents.advance(first, done)
        trace.append([done, *agents.evaluate()])
        state = agents.state() if callback is not None or path is not None else {}
        if callback is not None:
            row = dict(zip(TRACE, trace[-1], strict=True))
            callback(Progress(done, w, state["average"], state["point"], state["dual"], row))
        if path is not None:
            now.at(done, state, trace).save(path)
    charged = paying.updates(everyone, now.run, settings)
    secure = paying.noise == "secure"
    result = result_of(problem, settings, agents.state(), trace, seed, secure, charged)
    timing = {} if batch else everyone.clock.read()
    return dataclasses.replace(result, plan=reason, timing=timing)


def _begin(
    everyone: Everyone,
    settings: Settings,
    seed: int | None,
    run: str | None,
    paying: Paying,
    batch: bool | None,
    path: str | Path | None,
) -> tuple[Checkpoint, bool]:
    """Where a run begins, or the checkpoint that it continues from; whether it is one program.

    One program rounds differently than agents one by one do: a run goes on as it was begun.
    """
    closed = all(a.feasible_set.closed_form for a in everyone.problem.agents)
    usual = not paying.alone and closed
    as_begun = usual and isinstance(everyone, Here) if batch is None else batch
    # all that decides which noise a round gets: it must not get other noise when it is asked again
    agreed = {
        **settings.to_dict(),
        "noise": paying.noise,
        "ledgers": paying.ledgers,
        "block": paying.block,
        "generator": generator(),
    }

    def digest_under(key: Vector) -> str:
        agents = everyone.each(Seat.digest, key)
        return joined_digest(agents, key, settings.penalty, settings.step_size)

    if path is not None and not Path(path).resolve().parent.is_dir():
        raise InvalidInput(f"Expected an existing folder for the checkpoint {path}.")
    if path is not None and Path(path).exists():
        saved = Checkpoint.load(path)
        run = saved.run if run is None else run
        noted = "batch" in saved.settings  # not before there were ranks
        begun = saved.settings["batch"] is True if noted else usual
        as_begun = begun if batch is None else batch
        if begun and not isinstance(everyone, Here):
            raise InvalidInput(
                "Expected a run whose agents compute one by one to go on with on other ranks, got "
                "one that was begun as one program, which rounds differently. Nothing was resumed: "
                "continue it in one process."
            )
        if noted:
            agreed["batch"] = as_begun
        saved.check(agreed, run, seed, everyone.problem, lambda: digest_under(saved.key))
        return saved, as_begun
    key = root_key(seed)
    if run is None:
        run = f"run-{secrets.token_hex(6)}" if paying.ledgers else "run"
    digest = digest_under(key) if path is not None else ""
    agreed["batch"] = as_begun
    return Checkpoint(0, agreed, run, seed, key, digest, {}, np.zeros((0, len(TRACE)))), as_begun
