"""Rounds, local updates, step size and penalty of noisy descent, from public numbers.

The noise of a run adds up along its path. With U updates of step s on P agents, each with noise of
deviation σ on its gradient, a score x'z (‖x‖₂ ≤ B) of the consensus carries noise of deviation

    B s σ √(U/P).

The longer the path sU, the nearer the optimum, and the more noise. The rule takes the path on which
that deviation is DEVIATION, in scores that matter (``Objective.descent``). With Gaussian noise the
path does not depend on how many updates it is cut into (σ grows as √U). So there are as many as
keep the first step at 10/L₀ for classes, for other losses at a third of the longest that is stable,
within UPDATES. L₀ is the curvature at z = 0 of an agent's objective, were all its records alike.
They are not: with d columns of one size the largest curvature is about L₀/d, and 2d/L₀ is stable.
Where the most updates are too few, other losses' steps grow to the longest that is stable, and the
path of classes ends there: steps of 30/L₀ did no harm with many columns, but on 150,000 records of
5 to 15 columns a third to all of what can be learnt was lost. 10/L₀ with 800, 1600 and 2400 updates
were within 0.1 points of one another there; MNIST at ε = 8 needs 1121 (1.44 % with 800, 1.36 %).
On a path shorter than SHORT_PATH/L₀ there is little to learn, and it is made shorter still, for
less noise: an answer should not be worse than one that ignores the data.

With one local update the average of the agents' points moves by s = 1/(1/η + ρ) times the average
gradient, whatever ρ is, where no constraint binds: averages of (1/η + ρ)z' = z/η + ρw + λ − g
(``algorithm.py``) have ρw + λ̄ = ρz̄. ρ decides how near an agent stays to the consensus, where its
gradient is taken. So s falls to a third, and ρ is FIRST_PENALTY times the first 1/η. Of more
updates each is drawn back, by ρs of the way from the average sent last, and noise adds up to no
more than above. They never were better for the same budget, and needed as many rounds (E = 5:
errors 7 % larger on average; with E > 1 points must move further from the consensus,
FIRST_PENALTY_OF_MANY). So E is 1 unless it is given. With Laplace noise σ grows as U, and there are
fewer updates.

Chosen on training data only: MNIST's images (50,000 to learn from, 10,000 to judge by) and a tenth
of them, as pixels and as orientations, at ε = 0.5 to 8; scikit-learn's digits, with 3 and 10
agents, and breast cancer; statsmodels' fair and randhie; FEMNIST, a writer an agent. Not one of
DEVIATION 2.5 to 5, first steps of 5 to 20/L₀, 100 to 300 updates at least, FIRST_PENALTY 1 to 10,
steps that fall to 1/2 or 1/5 was better by more than 1 % of the errors on average; a constant step
was worse by 14 %. SHORT_PATH: on three quarters of the training parts of five tables for regression
(``benchmarks/regression_tables.py``), judged by the rest, ε from 0.05 to 2.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tacit.admm.problem import Problem
from tacit.admm.schedules import ConstantPenalty, SmoothStep
from tacit.admm.settings import Settings
from tacit.errors import DERIVED, InvalidInput, count, positive
from tacit.objectives.objective import Descent

DEVIATION = 3.5  # of a score, in units that matter, were the steps all as long as the first
SHORT_PATH = 10.0  # path, in units of 1/L₀
STABLE, FIRST_STEP = 2.0, 1 / 3  # step that is stable on all data; the first one, of that
UPDATES, PURE_UPDATES = (200, 1600), (50, 800)  # least and most
FIRST_PENALTY, FIRST_PENALTY_OF_MANY = 4.0, 0.2  # ρη, for one local update and for more


def known_descent(problem: Problem) -> Descent | None:
    """What a plan needs of all agents: the largest of each. None: some agent does not say."""
    found = [a.objective.descent if a.holds_everything else None for a in problem.agents]
    known = [d for d in found if d is not None]
    if len(known) < len(found):
        return None
    least = min(d.longest for d in known)
    return Descent(max(d.curvature for d in known), max(d.reach for d in known), least)


def descend(
    problem: Problem,
    total_epsilon: float,
    total_delta: float,
    *,
    rounds: int | None = None,
    local_updates: int | None = None,
    mechanism: str = "gaussian",
    known: Descent | None = None,
    **others: Any,
) -> Settings:
    """Settings for a budget; ``rounds`` and ``local_updates`` are kept where given.

    ``known``: where the objectives do not say it. All that is read is public: sizes, bounds, the
    budget. So the choice costs no privacy.
    """
    found = known or known_descent(problem)
    if found is None:
        raise InvalidInput(
            "Expected agents that hold all coordinates and have losses of scores, to plan steps by."
        )
    L, reach, longest = found
    E = 1 if local_updates is None else count("local_updates", local_updates)

    def budget(updates: int) -> Settings:
        T = rounds or max(1, math.ceil(updates / E))
        return Settings.for_budget(total_epsilon, total_delta, T, E, mechanism, **others)

    def path(settings: Settings) -> float:
        """sU, in units of 1/L₀."""
        σ = max(settings.statistic_noise(problem))
        room = DEVIATION * math.sqrt(settings.updates * len(problem.agents))
        free = float(L * room / (reach * σ))
        return min(free, free * (free / SHORT_PATH))  # a power of a float may raise an error

    least, most = PURE_UPDATES if mechanism == "laplace" else UPDATES
    first = longest if longest > STABLE else FIRST_STEP * longest
    wanted = path(budget(most)) / first
    settings = budget(min(max(math.ceil(min(wanted, most)), least), most))
    step = min(path(settings) / settings.updates, longest) / L
    positive("step of the plan", step, DERIVED)
    return with_schedules(settings, step)


def with_schedules(settings: Settings, step: float) -> Settings:
    """1/η + ρ = (1 + 2√(t/T))/step, of which ρ is a constant part."""
    near = FIRST_PENALTY if settings.local_updates == 1 else FIRST_PENALTY_OF_MANY
    weight = 1 / ((1 + near) * step)
    growth = 2 / (step * math.sqrt(settings.rounds))
    return dataclasses.replace(
        settings,
        step_size=settings.step_size or SmoothStep(weight, growth),
        penalty=settings.penalty or ConstantPenalty(near * weight),
    )
