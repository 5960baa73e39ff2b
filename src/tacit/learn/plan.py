"""What a private linear model is fitted with, from public numbers: slope limit, centring, rounds.

``admm/descent.py`` plans rounds, steps and penalty. Before that the loss gets its slope limit and
the mean of all rows its share of the budget, chosen on the same training data:

*Slope limit* c, of a softmax's slope (at most √2). More than two classes: 0.1 was the best of 0.1,
0.15, 0.2 and 0.25 on average, by 0.7 to 5 %, and a fourth or more better than no limit. Two
classes: 0.3, times S/100 where S > 100, with S = Nμ/√(2dP) for N records, d columns and P agents
(μ: one reading's Δ over the noise). There the data say much more than the noise, and a limit costs
where records of one kind have both classes: it makes a median of their mean.

*Share* of the budget for a private mean: what makes its noise a tenth of a row's length, from 0.02
to 0.1. Beside 0.05, 0.02 was 4 to 13 % worse on digits and breast cancer, where records are few,
and no worse on MNIST; 0.1 was 4 to 5 % better on digits' orientations and on breast cancer, 1 %
worse on digits' pixels and on MNIST.
"""

from __future__ import annotations

import math
from typing import Any

from tacit.admm.descent import descend, known_descent, with_schedules
from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.objectives.objective import Descent
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Noiseless

SLOPE_LIMIT, TWO_CLASSES = 0.1, 0.3  # lengths of a softmax's slope
SHARES, MEAN_NOISE = (0.02, 0.1), 0.1  # least and most; noise of a mean, of a row's length
PLENTY = 100.0  # S: from here on a limit on two classes' slopes is wider
NOISELESS, LOCAL, STEP = 300, 5, 2.0  # rounds without noise, updates of each, first step·L₀


def planned_slope_limit(
    classes: int,
    columns: int,
    agents: int,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float | None:
    """What one record may pull, in the units of a softmax's slope; None: no limit."""
    if classes > 2:
        return SLOPE_LIMIT
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    S = records / math.sqrt(noise.variance(1.0) * 2 * columns * agents)
    limit = TWO_CLASSES * max(1.0, S / PLENTY)
    return limit if limit < math.sqrt(2) else None


def planned_share(
    columns: int,
    agents: int,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float:
    """Of the budget, for the mean that rows are centred by.

    A row of length 1 has an L1 norm of up to √d, which Laplace noise is paid for; that grows as
    1/share, and Gaussian noise as 1/√share (``centring.shared``).
    """
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    power, moved = (2, 1.0) if noise.norm == 2 else (1, math.sqrt(columns))
    all_of_it = math.sqrt(noise.variance(moved) * columns * agents) / records
    return min(max((all_of_it / MEAN_NOISE) ** power, SHARES[0]), SHARES[1])


def plan(
    problem: Problem,
    classes: int,
    total_epsilon: float,
    total_delta: float,
    *,
    rounds: int | None = None,
    local_updates: int | None = None,
    mechanism: str = "gaussian",
    **others: Any,
) -> Settings:
    """Settings for a budget (``admm/descent.py``), of agents whose losses know their ``classes``.

    ``rounds`` and ``local_updates`` are kept where given.
    """
    chosen: Any = {"rounds": rounds, "local_updates": local_updates, "mechanism": mechanism}
    return descend(problem, total_epsilon, total_delta, **chosen, **others)


def without_noise(
    problem: Problem,
    rounds: int | None = None,
    local_updates: int | None = None,
    known: Descent | None = None,
) -> Settings:
    """Settings of a run that is not private: long paths, of several updates a round."""
    found = known or known_descent(problem)
    assert found is not None
    T = NOISELESS if rounds is None else rounds
    E = LOCAL if local_updates is None else local_updates
    return with_schedules(Settings(T, E, Noiseless()), STEP / found.curvature)
