"""Whether one release of the data beats noise in every round, from public numbers.

Compared is the noise that reaches a gradient. One release of (X'X, X'y) with deviation s on every
value moves the gradient at z by noise of deviation at most (``SecondMoments.gradient_deviation``)

    (s/N)·√(1/κ² + R²(d + 1)/2d),      R = sup‖z‖₂,

the same in every round. T rounds of deviation σ each leave at least σ/√T, the deviation of their
mean, at every z; with Gaussian noise that does not depend on T. A release is chosen unless it has
more than MARGIN times the noise of rounds. It has an error in X'X besides, but z mostly is shorter
than R, and rounds lose by short steps: with noise 1.2 times that of rounds the errors of a release
were still smaller (by 7 to 13 % on average, records replaced, R = 2).

With Gaussian noise the ratio is at most √2 where records come and go: least squares is read once.
Where they are replaced it is up to 2, and above MARGIN if the set is much larger than the targets
need (B·R ≥ 10Y for up to 3 columns, more for more): rounds are chosen there.
Measured on five real tables and on made ones, with 5 to 100
columns, 300 to 40,000 records, 3 and 10 agents, ε = 0.5 and 2, against the best of 48 schedules,
chosen by its test errors (noisy gradient descent at the consensus): for B·R ≥ 2Y a release was more
than 10 % better in 93 of 264 cells and more than 10 % worse in one; for B·R from Y/5 to 3Y/2 in 23
and 10 of 272, all 10 with 300 records.
With Laplace noise a release pays for all its d(d + 3)/2 values, and rounds may win.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput
from tacit.objectives.objective import Reading
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism

MARGIN = 1.5  # more noise than rounds have, that a release may have
ROUNDS, PURE_ROUNDS = 100, 20  # of the run that a release is compared with
MOST_COLUMNS = 2000  # two million values, and eigenvalues in seconds


class Choice(NamedTuple):
    """Whether to read once, and why."""

    release: bool
    reason: str


def prefers_release(
    problem: Problem,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
    one: Mechanism | None = None,
) -> Choice:
    """Whether to read once, for this budget. Reads sizes, bounds and kinds only: all public.

    ``mechanism`` of noise in every round, and of one reading, unless ``one`` is given.
    """
    readings = []
    for agent in problem.agents:
        try:
            readings.append(agent.objective.reading())
        except InvalidInput as error:
            why = str(error).rpartition(": ")[2]
            return Choice(False, f"{agent.objective.kind} cannot be read once: {why}")
    moments = [
        (reading, agent)
        for reading, agent in zip(readings, problem.agents, strict=True)
        if reading.gradient_deviation(1.0, agent.feasible_set) is not None
    ]
    if not moments:
        return Choice(True, "the data are what each gradient would measure again in every round.")
    columns = max(agent.objective.dimension for _, agent in moments)
    if columns > MOST_COLUMNS:
        return Choice(False, f"X'X of {columns} columns is too large to be released.")
    T = PURE_ROUNDS if total_delta == 0 else ROUNDS
    one = one or calibrate(mechanism, total_epsilon, total_delta, 1)
    many = calibrate(mechanism, total_epsilon, total_delta, T)
    once = math.hypot(*(_of_a_release(reading, agent, one) for reading, agent in moments))
    rounds = math.hypot(*(_of_rounds(agent, many) / math.sqrt(T) for _, agent in moments))
    if once > MARGIN * rounds:
        paid = ": Laplace noise is paid for every value" if one.norm == 1 else ""
        return Choice(
            False,
            f"one release of X'X and X'y would bring {once / rounds:.3g} times the noise of rounds "
            f"into a gradient{paid}.",
        )
    beside = "" if math.isinf(rounds) else f" ({once / rounds:.2g} times the noise of rounds)"
    reason = f"X'X and X'y say all of least squares{beside}, and rounds after a release are free."
    if _drowned(moments, one):
        reason += " X'X is mostly noise, with so few records for its columns: expect little."
    return Choice(True, reason)


def _of_a_release(reading: Reading, agent: LocalProblem, noise: Mechanism) -> float:
    deviation = math.sqrt(noise.variance(reading.sensitivity(noise.norm)))
    return reading.gradient_deviation(deviation, agent.feasible_set) or 0.0


def _of_rounds(agent: LocalProblem, noise: Mechanism) -> float:
    Δ = agent.objective.sensitivity(noise.norm, agent.feasible_set)
    return math.sqrt(noise.variance(Δ)) if math.isfinite(Δ) else math.inf


def _drowned(moments: list[tuple[Reading, LocalProblem]], noise: Mechanism) -> bool:
    """Whether the noise of the sum of X'X reaches further than an eigenvalue on average can."""
    variance = sum(noise.variance(reading.sensitivity(noise.norm)) for reading, _ in moments)
    f: Any = moments[0][1].objective
    d = f.dimension
    return bool(math.sqrt(2 * d * variance) > f.normaliser * f.feature_bound(2) ** 2 / d)
