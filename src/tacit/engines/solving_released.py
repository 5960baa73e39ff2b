"""Solve a problem of public copies: exact steps until both residuals are small."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from tacit._types import Vector
from tacit.admm.exact_server import ExactServer
from tacit.admm.local_side import members_of
from tacit.admm.penalties import starting_penalties
from tacit.admm.problem import Problem, objective_value
from tacit.admm.public_agent import PublicAgent
from tacit.admm.released import Released
from tacit.admm.result import RELEASED_TRACE, Progress, Result, versions
from tacit.admm.schedules import ConstantPenalty
from tacit.admm.settings import Settings
from tacit.engines.in_process import InProcess
from tacit.errors import InvalidInput, count
from tacit.privacy.mechanisms import Noiseless


def solve_released(
    released: Released,
    settings: Settings,
    *,
    evaluate_every: int = 1,
    callback: Callable[[Progress], None] | None = None,
    workers: int | None = None,
    start: Result | None = None,
    plan: str = "",
    true: Problem | None = None,
) -> Result:
    """``solve`` of a released problem, or of one without noise; ``start`` from another's answer.

    ``true``: of a run without noise, the problem whose objective the trace has. Public copies of
    least squares leave out a constant.
    """
    problem = released.problem
    check(settings)
    count("evaluate_every", evaluate_every)
    workers = count("workers", (os.cpu_count() or 1) if workers is None else workers)
    penalties = _penalties(released, settings)
    begin = _check_start(problem, start)
    agents = [
        PublicAgent(part, name, "released", penalties, own, settings.tolerance)
        for name, part, own in zip(problem.names, problem.agents, begin, strict=True)
    ]
    server = ExactServer(members_of(problem), settings, "released", penalties, _first(start))
    trace: list[list[float]] = []
    objectives = [a.objective for a in (true or problem).agents]
    engine = InProcess(agents, workers)
    converged = False
    while server.round < settings.rounds and not converged:
        for refusal in server.step(engine).values():
            raise refusal.error()
        converged = server.converged
        last = converged or server.round == settings.rounds
        if last or server.round % evaluate_every == 0:
            points = [agent.point for agent in agents]
            objective = sum(map(objective_value, objectives, points))
            trace.append([server.round, objective, *_evaluate(engine, server)])
            if callback is not None:
                callback(_progress(server, agents, trace[-1]))
    columns = np.array(trace, dtype=np.float64).T
    return Result(
        solution=server.solution,
        ergodic=server.solution,
        local=tuple(agent.point for agent in agents),
        trace=dict(zip(RELEASED_TRACE, columns, strict=True)),
        settings=settings,
        privacy=released.privacy,
        names=problem.names,
        seed=released.seed,
        versions=versions(),
        converged=converged if settings.tolerance is not None else None,
        plan=plan,
        duals=tuple(server.parts(server.λ)),
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


def _penalties(released: Released, settings: Settings) -> tuple[Vector, Vector]:
    """Where penalties start, and their groups; a given penalty is their geometric mean."""
    penalty, group = starting_penalties(released.problem)
    if isinstance(settings.penalty, ConstantPenalty):
        penalty = penalty * (settings.penalty(1) / float(np.exp(np.log(penalty).mean())))
    return penalty, group


def _check_start(problem: Problem, start: Result | None) -> Sequence[tuple[Vector, Vector] | None]:
    """What each agent starts from: its point and dual in another result of exact steps."""
    if start is None:
        return [None] * len(problem.agents)
    own = list(zip(start.local, start.duals, strict=False))
    sizes = [(a.dimension, int(a.coupled.sum())) for a in problem.agents]
    if [(len(z), len(λ)) for z, λ in own] != sizes:
        raise InvalidInput(
            "Expected a result of exact steps on a problem of the same agents and coordinates to "
            "start from, got another. Nothing was computed."
        )
    return own


def _first(start: Result | None) -> tuple[Vector, Vector] | None:
    return None if start is None else (start.solution, np.concatenate(start.duals))


def _evaluate(engine: InProcess[PublicAgent], server: ExactServer) -> tuple[float, ...]:
    """Both residuals, and the largest violation."""
    violations = engine.for_each(lambda a: float(a.problem.feasible_set.violation(a.point)))
    assert server.residuals is not None
    return server.residuals.primal, server.residuals.dual, max(violations)


def _progress(server: ExactServer, agents: list[PublicAgent], row: list[float]) -> Progress:
    points = [agent.point for agent in agents]
    duals = server.parts(server.λ)
    row_by_name = dict(zip(RELEASED_TRACE, row, strict=True))
    return Progress(server.round, server.w, points, points, duals, row_by_name)
