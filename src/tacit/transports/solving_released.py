"""Solve a problem of public copies: exact steps until both residuals are small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.admm.schedules import ConstantPenalty
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, shown
from tacit.planning import penalties_of
from tacit.privacy.mechanisms import Noiseless
from tacit.protocol.exact_server import ExactServer
from tacit.protocol.facts import members_of
from tacit.protocol.release import mark
from tacit.protocol.result import RELEASED_TRACE, Progress, Result, versions
from tacit.transports.releasing import Copies
from tacit.transports.seats import EXACT, Everyone, Seat


def solve_released(
    everyone: Everyone,
    copies: Copies,
    settings: Settings,
    *,
    evaluate_every: int = 1,
    callback: Callable[[Progress], None] | None = None,
    start: Result | None = None,
    plan: str = "",
) -> Result:
    """``solve`` of public copies that all agents hold; ``start`` from another's answer."""
    problem = everyone.problem
    check(settings)
    penalties = penalties_of(problem, settings, copies.curvatures)
    begin = _check_start(problem, start, copies)
    own = [(mine,) for mine in begin]
    everyone.each(Seat.begin_exactly, *penalties, settings.tolerance, own=own)
    about = settings, EXACT, penalties, _first(start)
    server = ExactServer(members_of(problem), *about, reminds=False)
    trace: list[list[float]] = []
    converged = False
    while server.round < settings.rounds and not converged:
        for refusal in server.step(everyone).values():
            raise refusal.error()
        converged = server.converged
        last = converged or server.round == settings.rounds
        if last or server.round % evaluate_every == 0:
            trace.append([server.round, *_evaluate(everyone, server)])
            if callback is not None:
                callback(_progress(server, everyone.each(Seat.point), trace[-1]))
    columns = np.array(trace, dtype=np.float64).T
    local, duals = tuple(everyone.each(Seat.point)), tuple(server.parts(server.λ))
    found = (server.solution, *local, *duals)
    return Result(
        solution=server.solution,
        ergodic=server.solution,
        local=local,
        trace=dict(zip(RELEASED_TRACE, columns, strict=True)),
        settings=settings,
        privacy=copies.privacy,
        names=problem.names,
        seed=copies.seed,
        versions=versions(),
        converged=converged if settings.tolerance is not None else None,
        plan=plan,
        duals=duals,
        timing=everyone.clock.read(),
        release=mark(copies.releases, found) if copies.releases else "",
    )


def check(settings: Settings) -> None:
    """Refuse settings that exact steps do not have."""
    if not isinstance(settings.mechanism, Noiseless):
        raise InvalidInput(
            f"Expected settings without noise for a released problem, got "
            f"{settings.mechanism.name}: its noise is in the data already, and paid for."
        )
    if settings.penalty is not None and not isinstance(settings.penalty, ConstantPenalty):
        raise InvalidInput(
            f"Expected a number as penalty for exact steps, where penalties start, got "
            f"{settings.penalty!r}."
        )
    if settings.step_size is not None or settings.local_updates != 1:
        raise InvalidInput(
            "Expected no step_size and local_updates=1 for exact steps, which have neither, got "
            f"step_size={settings.step_size!r} and local_updates={settings.local_updates}."
        )


def _check_start(
    problem: Problem, start: Result | None, copies: Copies
) -> Sequence[tuple[Vector, Vector] | None]:
    """What each agent starts from: its point and dual in another result of exact steps.

    Guarantee: a run that promises anything starts from an answer that is a function of its own
    release and of public numbers, or from none (``mark``): then so is its answer.
    """
    if start is None:
        return [None] * len(problem.agents)
    if not isinstance(start, Result):
        raise InvalidInput(
            f"Expected a Result to start from, got {shown(start)}. Nothing was computed."
        )
    own = list(zip(start.local, start.duals, strict=False))
    sizes = [(a.dimension, int(a.coupled.sum())) for a in problem.agents]
    if [(len(z), len(λ)) for z, λ in own] != sizes:
        raise InvalidInput(
            "Expected a result of exact steps on a problem of the same agents and coordinates to "
            "start from, got another. Nothing was computed."
        )
    answer = (start.solution, *start.local, *start.duals)
    promises = not math.isinf(copies.privacy.epsilon)
    if promises and start.release != mark(copies.releases, answer):
        raise InvalidInput(
            "Expected a start that was computed from the same release, got another answer, whose "
            "own cost the privacy statement would leave out. Leave start out. Nothing was computed."
        )
    return own


def _first(start: Result | None) -> tuple[Vector, Vector] | None:
    return None if start is None else (start.solution, np.concatenate(start.duals))


def _evaluate(everyone: Everyone, server: ExactServer) -> tuple[float, ...]:
    """The objective, both residuals, and the largest violation."""
    objectives, violations, _ = zip(*everyone.each(Seat.measured), strict=True)
    assert server.residuals is not None
    return sum(objectives), server.residuals.primal, server.residuals.dual, max(violations)


def _progress(server: ExactServer, points: list[Vector], row: list[float]) -> Progress:
    duals = server.parts(server.λ)
    row_by_name = dict(zip(RELEASED_TRACE, row, strict=True))
    return Progress(server.round, server.w, points, points, duals, row_by_name)
