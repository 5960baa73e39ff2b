"""The planner: whether to release once or add noise in every round, and how to spend a budget.

    plan(problem, Asked(total_epsilon, total_delta)) ─▶ Plan: settings, cost and reason, of one of
        release once, then exact steps      where that brings no more noise (``_release_or_rounds``)
        noise in every round                otherwise (``_descend``)

Only sizes, bounds, kinds of objectives and what was asked for are looked at, all of them public: a
plan costs no privacy, and a server that knows facts alone makes the same. ``docs/choosing.md`` has
what the constants were chosen on, and the scripts that repeat it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, ConstantPenalty, Settings, SmoothStep
from tacit.errors import DERIVED, InvalidInput, positive
from tacit.objectives.objective import Descent, Statistics
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism, Noiseless, per_update

MOST_ROUNDS, TOLERANCE, NOISELESS_TOLERANCE = 1000, 1e-4, 1e-6  # of exact steps
NOISELESS_ROUNDS, NOISELESS_UPDATES = 300, 5  # without noise
NOISELESS_DESCENT = 1500  # updates of a descent without noise: a reference for those with it

# One release beside noise in every round
MARGIN = 1.5  # more noise than rounds have, that a release may have
COMPARED, PURE_COMPARED = 100, 20  # rounds of the run that a release is compared with
MOST_COLUMNS = 2000  # two million values, and eigenvalues in seconds

# Noise in every round
ROUNDS, PURE_ROUNDS = 200, 20  # where no objective says what a score is
DEVIATION = 3.5  # of a score, in units that matter, were the steps all as long as the first
SHORT_PATH = 10.0  # path, in units of 1/L₀
STABLE, FIRST_STEP = 2.0, 1 / 3  # step that is stable on all data; the first one, of that
UPDATES, PURE_UPDATES = (200, 1600), (50, 800)  # least and most, of agents of one size
FIRST_PENALTY, FIRST_PENALTY_OF_MANY = 4.0, 0.2  # ρη, for one local update and for more


@dataclass(frozen=True)
class Plan:
    """How a run spends what was asked for.

    settings   of the rounds: with noise in each, or exact steps
    release    the noise of one release that exact steps follow; None: the rounds have the noise,
               or there is none
    delta      the δ at which the cost is stated
    reason     what was chosen, and why; "" where the user chose everything
    """

    settings: Settings
    release: Mechanism | None
    delta: float
    reason: str = ""

    @property
    def rounds(self) -> int:
        return self.settings.rounds


@dataclass(frozen=True)
class Known:
    """What an application knows of its problems beside sizes and bounds; all of it is public.

    descent     what steps are planned by, where the objectives do not say it
    largest     how many times the mean agent's records the largest agent has at most: L₀ is in
                proportion to it, so that steps are shorter, and there are as many more
    rounds      with noise in each, where the user gives none
    schedules   penalty and step size of such rounds
    tolerance   of exact steps after a release with this noise
    reason      of a release
    """

    descent: Descent | None = None
    largest: float = 1.0
    rounds: int | None = None
    schedules: Callable[[Problem, Settings], Settings] | None = None
    tolerance: Callable[[Problem, Mechanism], float] | None = None
    reason: str = "Sufficient statistics are released once, with noise."


def plan(problem: Problem, asked: Asked | Settings | Plan, known: Known | None = None) -> Plan:
    """The best known way to spend what was asked for on this problem.

    problem   its public facts; data are not looked at
    asked     settings are followed as they are, and so is a plan
    known     what an application knows beside them
    """
    if isinstance(asked, Plan):
        return asked
    if isinstance(asked, Settings):
        return Plan(asked, None, asked.delta)
    if not isinstance(asked, Asked):
        raise InvalidInput(f"Expected Settings, got {type(asked).__name__}.")
    known = known or Known()
    if asked.way == "release" or (asked.is_free and asked.way is None):
        return _once(problem, asked, known, known.reason)
    if asked.way == "rounds":
        why = "" if asked.epsilon is None else ", as epsilon is that of one update"
        return _every_round(problem, asked, known, f"Noise in every round{why}.")
    if of_rounds := asked.of_rounds:
        return _every_round(problem, asked, known, f"Noise in every round: {of_rounds} was given.")
    release, reason = _release_or_rounds(problem, asked)
    if release:
        reason = f"{Known.reason[:-1]}: {reason}"
        return _once(problem, asked, known, reason)
    return _every_round(problem, asked, known, f"Noise in every round: {reason}")


# --- release once, then exact steps -----------------------------------------------------------


def _once(problem: Problem, asked: Asked, known: Known, reason: str) -> Plan:
    rounds = MOST_ROUNDS if asked.rounds is None else asked.rounds
    if asked.is_free:
        settings = Settings(rounds, **{"tolerance": NOISELESS_TOLERANCE, **asked.others})
        return Plan(settings, None, settings.delta)
    noise = _noise_of_a_release(problem, asked)
    if asked.mechanism is None:
        reason += f" {noise.name.capitalize()} noise adds least to them."
    chosen = {"tolerance": TOLERANCE, **asked.others}
    if known.tolerance is not None and "tolerance" not in asked.others:
        chosen["tolerance"] = known.tolerance(problem, noise)
        reason += f" They stop at a tolerance far below the noise: {chosen['tolerance']:g}."
    return Plan(Settings(rounds, **chosen), noise, asked.total_delta, reason)


def _noise_of_a_release(problem: Problem, asked: Asked) -> Mechanism:
    assert asked.total_epsilon is not None
    if asked.mechanism is None:
        return least_noise(problem, asked.total_epsilon, asked.total_delta)
    return calibrate(asked.mechanism, asked.total_epsilon, asked.total_delta, 1)


def least_noise(problem: Problem, total_epsilon: float, total_delta: float) -> Mechanism:
    """Gaussian or Laplace noise for one release of every agent's data: the one of less variance.

    Laplace noise scales with the L1 sensitivity, Gaussian with the L2 sensitivity: where few
    numbers change together, as the two demands of a bus, Laplace adds less (at (1, 1e-5) about half
    the deviation), and Gaussian where many do.
    """
    if total_delta == 0:
        return calibrate("laplace", total_epsilon, 0.0, 1)
    try:
        found = [calibrate(name, total_epsilon, total_delta, 1) for name in ("gaussian", "laplace")]
        return min(found, key=lambda noise: noise_energy(problem, noise))
    except InvalidInput:  # then nothing is released once
        return calibrate("gaussian", total_epsilon, total_delta, 1)


def noise_energy(problem: Problem, noise: Mechanism) -> float:
    """The expected squared length of the noise on one release of every agent's data: public."""
    all_statistics = [agent.objective.statistics() for agent in problem.agents]
    return math.fsum(
        noise.variance(statistics.sensitivity(noise.norm)) * statistics.size
        for statistics in all_statistics
    )


def penalties_of(
    problem: Problem, settings: Settings, curvatures: Sequence[float]
) -> tuple[Vector, Vector]:
    """ρ of every global coordinate where exact steps start, and its group.

    They are the problem's own, or in one group 0.3 times the mean curvature of the released
    objectives; a given penalty becomes their geometric mean. Runs adapt them.
    """
    if problem.penalties is not None:
        penalty, group = problem.penalties
    else:
        mean = float(np.mean([c for c in curvatures if math.isfinite(c)] or [1.0]))
        penalty = np.full(problem.size, 0.3 * mean if mean > 0 else 1.0)
        group = np.zeros(problem.size, np.int64)
    if isinstance(settings.penalty, ConstantPenalty):
        penalty = penalty * (settings.penalty(1) / float(np.exp(np.log(penalty).mean())))
    return penalty, group


# --- whether one release beats noise in every round -------------------------------------------


def _release_or_rounds(problem: Problem, asked: Asked) -> tuple[bool, str]:
    """Whether to release once, and why: by the noise that reaches a gradient.

    One release of (X'X, X'y) with deviation s on every value moves the gradient at z by noise of
    deviation at most (``SecondMoments.gradient_deviation``)

        (s/N)·√(1/κ² + R²(d + 1)/2d),      R = sup‖z‖₂,

    the same in every round. T rounds of deviation σ each leave at least σ/√T, the deviation of
    their mean, at every z. A release is chosen unless it has more than MARGIN times that.
    """
    budget = asked.total_epsilon, asked.total_delta
    assert budget[0] is not None
    one, all_statistics = _noise_of_a_release(problem, asked), []
    for agent in problem.agents:
        try:
            all_statistics.append(agent.objective.statistics())
        except InvalidInput as error:
            why = str(error).rpartition(": ")[2]
            return False, f"{agent.objective.kind} has no sufficient statistics to release: {why}"
    moments = [
        (statistics, agent)
        for statistics, agent in zip(all_statistics, problem.agents, strict=True)
        if statistics.gradient_deviation(1.0, agent.feasible_set) is not None
    ]
    if not moments:
        return True, "the data are what each gradient would measure again in every round."
    columns = max(agent.objective.dimension for _, agent in moments)
    if columns > MOST_COLUMNS:
        return False, f"X'X of {columns} columns is too large to be released."
    T = PURE_COMPARED if asked.total_delta == 0 else COMPARED
    many = calibrate(asked.mechanism_of_rounds, budget[0], budget[1], T)
    once = math.hypot(*(_of_a_release(statistics, agent, one) for statistics, agent in moments))
    rounds = math.hypot(*(_of_rounds(agent, many) / math.sqrt(T) for _, agent in moments))
    if once > MARGIN * rounds:
        paid = ": Laplace noise is paid for every value" if one.norm == 1 else ""
        return False, (
            f"one release of X'X and X'y would bring {once / rounds:.3g} times the noise of rounds "
            f"into a gradient{paid}."
        )
    beside = "" if math.isinf(rounds) else f" ({once / rounds:.2g} times the noise of rounds)"
    reason = f"X'X and X'y say all of least squares{beside}, and rounds after a release are free."
    if _drowned(moments, one):
        reason += " X'X is mostly noise, with so few records for its columns: expect little."
    return True, reason


def _of_a_release(statistics: Statistics, agent: LocalProblem, noise: Mechanism) -> float:
    deviation = math.sqrt(noise.variance(statistics.sensitivity(noise.norm)))
    return statistics.gradient_deviation(deviation, agent.feasible_set) or 0.0


def _of_rounds(agent: LocalProblem, noise: Mechanism) -> float:
    Δ = agent.objective.sensitivity(noise.norm, agent.feasible_set)
    return math.sqrt(noise.variance(Δ)) if math.isfinite(Δ) else math.inf


def _drowned(moments: list[tuple[Statistics, LocalProblem]], noise: Mechanism) -> bool:
    """Whether the noise of the sum of X'X reaches further than an eigenvalue on average can."""
    variance = sum(noise.variance(statistics.sensitivity(noise.norm)) for statistics, _ in moments)
    f: Any = moments[0][1].objective
    d = f.dimension
    return bool(math.sqrt(2 * d * variance) > f.normaliser * f.feature_bound(2) ** 2 / d)


# --- noise in every round ---------------------------------------------------------------------


def _every_round(problem: Problem, asked: Asked, known: Known, reason: str) -> Plan:
    if "tolerance" in asked.others:
        raise InvalidInput(
            f"Expected no tolerance where every round adds noise, got "
            f"tolerance={asked.others['tolerance']!r}; it does: {reason}"
        )
    found = known.descent
    if found is None and known.schedules is None and "perturbation" not in asked.others:
        found = descent_of(problem)
    if asked.total_epsilon is not None and found is not None:
        settings = _descend(problem, asked, found, known.largest)
        T, E = settings.rounds, settings.local_updates
        each = "one update" if E == 1 else f"{E} updates"
        reason += f" {T} rounds of {each}: their noise moves a score by {DEVIATION:g} or less."
        return Plan(settings, None, settings.delta, reason)
    if asked.is_free and found is not None and known.schedules is None:
        settings = _noiseless_descent(asked, found)
        return Plan(settings, None, settings.delta)
    settings = _settings(asked, known.rounds)
    if known.schedules is not None:
        settings = known.schedules(problem, settings)
    return Plan(settings, None, settings.delta, "" if asked.is_free else reason)


def _settings(asked: Asked, rounds: int | None) -> Settings:
    """Rounds, updates and noise as asked for; ``rounds`` where no number of them is."""
    others = {"local_updates": NOISELESS_UPDATES if asked.is_free else 1, **asked.others}
    if rounds is None:
        rounds = PURE_ROUNDS if asked.total_delta == 0 else ROUNDS
    T = asked.rounds or (NOISELESS_ROUNDS if asked.is_free else rounds)
    if asked.is_free:
        return Settings(T, mechanism=Noiseless(), **others)
    if asked.total_epsilon is not None:
        return _budgeted(asked, T, others)
    assert asked.epsilon is not None
    calibration = others.get("calibration", "certified")
    noise = per_update(asked.mechanism_of_rounds, asked.epsilon, asked.delta, calibration)
    return Settings(T, mechanism=noise, delta=asked.delta or 0.0, **others)


def _budgeted(asked: Asked, rounds: int, others: dict[str, Any]) -> Settings:
    """The least noise for which these rounds cost at most the budget."""
    assert asked.total_epsilon is not None
    budget = asked.total_epsilon, asked.total_delta
    settings: Settings = Settings.for_budget(
        *budget, rounds, mechanism=asked.mechanism_of_rounds, **others
    )
    return settings


def descent_of(problem: Problem) -> Descent | None:
    """What steps are planned by: the largest of each agent. None: some agent does not say."""
    found = [a.objective.descent if a.holds_everything else None for a in problem.agents]
    known = [d for d in found if d is not None]
    if len(known) < len(found):
        return None
    least = min(d.longest for d in known)
    return Descent(max(d.curvature for d in known), max(d.reach for d in known), least)


def _noiseless_descent(asked: Asked, known: Descent) -> Settings:
    """The longest steps that are stable, of as many updates as 1500 rounds of one have."""
    others = {"local_updates": 1, **asked.others}
    E = others["local_updates"]
    rounds = asked.rounds or max(1, math.ceil(NOISELESS_DESCENT / E))
    step = max(known.longest / E, STABLE) / known.curvature
    return _with_schedules(Settings(rounds, mechanism=Noiseless(), **others), step)


def _descend(problem: Problem, asked: Asked, known: Descent, largest: float) -> Settings:
    """Rounds, local updates, step size and penalty of noisy descent.

    The noise of a run adds up along its path. With U updates of step s on P agents, each with
    noise of deviation σ on its gradient, a score x'z (‖x‖₂ ≤ B) of the consensus carries noise of
    deviation

        B s σ √(U/P).

    The longer the path sU, the nearer the optimum, and the more noise. The rule takes the path on
    which that deviation is DEVIATION, in scores that matter (``Objective.descent``). With Gaussian
    noise the path does not depend on how many updates it is cut into (σ grows as √U); with Laplace
    noise σ grows as U, and there are fewer. So there are as many as keep the first step at 10/L₀
    for classes, for other losses at a third of the longest that is stable, within UPDATES. L₀ is
    the curvature at z = 0 of the largest agent's objective, were all its records alike: where it
    has ``largest`` times the mean agent's records, there may be as many times more updates. Where
    the most updates are too few, other losses' steps grow to the longest that is stable, and the
    path of classes ends there. A path shorter than SHORT_PATH/L₀ is made shorter still, for less
    noise: an answer should not be worse than one that ignores the data.
    """
    L, reach, longest = known
    others = {"local_updates": 1, **asked.others}
    E = others["local_updates"]

    def budget(updates: int) -> Settings:
        return _budgeted(asked, asked.rounds or max(1, math.ceil(updates / E)), others)

    def path(settings: Settings) -> float:
        """sU, in units of 1/L₀."""
        σ = max(settings.statistic_noise(problem))
        room = DEVIATION * math.sqrt(settings.updates * len(problem.agents))
        free = float(L * room / (reach * σ))
        return min(free, free * (free / SHORT_PATH))  # a power of a float may raise an error

    least, most = PURE_UPDATES if asked.mechanism_of_rounds == "laplace" else UPDATES
    most = math.ceil(most * largest)
    first = longest if longest > STABLE else FIRST_STEP * longest
    wanted = path(budget(most)) / first
    settings = budget(min(max(math.ceil(min(wanted, most)), least), most))
    step = min(path(settings) / settings.updates, longest) / L
    positive("step of the plan", step, DERIVED)
    return _with_schedules(settings, step)


def _with_schedules(settings: Settings, step: float) -> Settings:
    """1/η + ρ = (1 + 2√(t/T))/step, of which ρ is a constant part.

    With one local update the average of the agents' points moves by s = 1/(1/η + ρ) times the
    average gradient, whatever ρ is, where no constraint binds: averages of
    (1/η + ρ)z' = z/η + ρw + λ − g (``algorithm.py``) have ρw + λ̄ = ρz̄. ρ decides how near an agent
    stays to the consensus, where its gradient is taken. So s falls to a third, and ρ is
    FIRST_PENALTY times the first 1/η. Of more updates each is drawn back, by ρs of the way from the
    average sent last.
    """
    near = FIRST_PENALTY if settings.local_updates == 1 else FIRST_PENALTY_OF_MANY
    weight = 1 / ((1 + near) * step)
    growth = 2 / (step * math.sqrt(settings.rounds))
    return dataclasses.replace(
        settings,
        step_size=settings.step_size or SmoothStep(weight, growth),
        penalty=settings.penalty or ConstantPenalty(near * weight),
    )
