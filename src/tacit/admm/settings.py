"""The public settings of a run: everything an agent must know besides its own data.

Step sizes and penalties over the rounds t = 1..T are in Section 5 and Appendix E.
Each schedule is a frozen value: call it with the round to get the number, ``to_dict`` to store it.
All parameters are public; a schedule must never be computed from private data.

    step size η^t   ConstantStep · SmoothStep · NonsmoothStep · StronglyConvexStep · AdaptiveStep
    penalty   ρ^t   ConstantPenalty · DynamicPenalty
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, overload

import numpy as np

from tacit._types import Array, Vector
from tacit.admm.algorithm import Calibration, Perturbation, Rule
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import (
    DERIVED,
    EPSILONS,
    InvalidInput,
    choice,
    count,
    non_negative,
    positive,
    probability,
    updates_of,
)
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism, Noiseless, mechanism_from
from tacit.sets.feasible_set import require_64_bits

Averaging = Literal["uniform", "linear"]


@dataclass(frozen=True)
class Schedule:
    """A number for every round t = 1, 2, ...; ``averaging`` is how its theorem weighs rounds."""

    kind: ClassVar[str]
    averaging: ClassVar[Averaging] = "uniform"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            positive(field.name, getattr(self, field.name), DERIVED)

    def __call__(self, t: int) -> float:
        raise NotImplementedError

    def check(self, name: str, rounds: int) -> None:
        """Refuse a schedule with a number that could overflow. Schedules rise or fall: ends do."""
        for t in (1, rounds):
            try:
                value = self(t)
            except (OverflowError, ZeroDivisionError):
                value = math.inf
            if not DERIVED[0] <= value <= DERIVED[1]:
                raise InvalidInput(
                    f"Expected a {name} from {DERIVED[0]:g} to {DERIVED[1]:g} in every round, got "
                    f"{value:g} in round {t}. Nothing was released."
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, read back by ``step_size_from`` or ``penalty_from``."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class _Constant(Schedule):
    value: float
    kind: ClassVar[str] = "constant"
    what: ClassVar[str]

    def __post_init__(self) -> None:
        positive(self.what, self.value, DERIVED)

    def __call__(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class ConstantStep(_Constant):
    """η^t = value. Noiseless and smooth: any value up to 1/L converges."""

    what: ClassVar[str] = "step size"


@dataclass(frozen=True)
class SmoothStep(Schedule):
    """η^t = 1/(L + growth·√t), the rule of the smooth theorem (Section 5).

    The paper takes growth = 1/ε of one update. Growth 0 (no noise) is the constant 1/L.
    """

    smoothness: float
    growth: float = 0.0
    kind: ClassVar[str] = "smooth"

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness, DERIVED)
        non_negative("growth", self.growth, DERIVED)

    def __call__(self, t: int) -> float:
        return 1.0 / (self.smoothness + self.growth * math.sqrt(t))


@dataclass(frozen=True)
class NonsmoothStep(Schedule):
    """η^t = scale/√t, the rule of the nonsmooth theorem (Section 5; there scale = 1)."""

    scale: float = 1.0
    kind: ClassVar[str] = "nonsmooth"

    def __call__(self, t: int) -> float:
        return self.scale / math.sqrt(t)


@dataclass(frozen=True)
class StronglyConvexStep(Schedule):
    """η^t = 2/(α(t + 2)), the rule of the strongly convex theorem; round t weighs t (Section 5)."""

    strong_convexity: float
    kind: ClassVar[str] = "strongly-convex"
    averaging: ClassVar[Averaging] = "linear"

    def __call__(self, t: int) -> float:
        return 2.0 / (self.strong_convexity * (t + 2))


@dataclass(frozen=True)
class AdaptiveStep(Schedule):
    """η and ρ of every coordinate follow from public numbers and noisy messages (``adaptive.py``).

    gradient   a public bound of gradients; ``Settings.complete`` knows it
    reach      how far the answer is from the start, in widths of the set: at first, or altogether
    growth     how much farther than coordinates have come it is taken to be; 0: ``reach`` is it
    """

    gradient: float
    reach: float = 0.003
    growth: float = 2.0
    kind: ClassVar[str] = "adaptive"

    def __post_init__(self) -> None:
        positive("gradient", self.gradient, DERIVED)
        positive("reach", self.reach, (1e-6, 1.0))
        non_negative("growth", self.growth)

    def __call__(self, t: int) -> float:
        return 1.0  # for all to see that rounds have one; what it is they learn on the way


@dataclass(frozen=True)
class ConstantPenalty(_Constant):
    """ρ^t = value."""

    what: ClassVar[str] = "penalty"


@dataclass(frozen=True)
class DynamicPenalty(Schedule):
    """ρ^t = min{cap, base·factor^⌊t/period⌋ + privacy/ε} (Appendix E, eq. (dynamic_rho)).

    MNIST: base 2, privacy 5, period 10000. FEMNIST: base 0.005, privacy 0.05, period 2000.
    """

    base: float
    privacy: float
    epsilon: float
    period: int
    factor: float = 1.2
    cap: float = 1e9
    kind: ClassVar[str] = "dynamic"

    def __post_init__(self) -> None:
        positive("base", self.base, DERIVED)
        non_negative("privacy", self.privacy)
        if self.epsilon != math.inf:  # a noiseless run
            positive("epsilon", self.epsilon, EPSILONS)
        count("period", self.period)
        positive("cap", self.cap, DERIVED)
        if positive("factor", self.factor) < 1:
            raise InvalidInput(
                f"Expected factor >= 1 (penalties may not fall), got factor={self.factor!r}."
            )

    def __call__(self, t: int) -> float:
        exponent = min(t // self.period, 10_000)
        grown = (
            self.base * self.factor**exponent
            if exponent * math.log(self.factor) < 700
            else math.inf
        )
        return min(self.cap, grown + self.privacy / self.epsilon)


STEP_SIZES = (ConstantStep, SmoothStep, NonsmoothStep, StronglyConvexStep, AdaptiveStep)
PENALTIES = (ConstantPenalty, DynamicPenalty)


def step_size_from(data: dict[str, Any]) -> Schedule:
    """The step size described by plain data such as ``{"kind": "nonsmooth", "scale": 0.5}``."""
    return _from("step_size", STEP_SIZES, data)


def penalty_from(data: dict[str, Any]) -> Schedule:
    """The penalty described by plain data such as ``{"kind": "constant", "value": 10}``."""
    return _from("penalty", PENALTIES, data)


def _from(name: str, classes: tuple[type[Schedule], ...], data: dict[str, Any]) -> Schedule:
    kinds = {cls.kind: cls for cls in classes}
    if not isinstance(data, dict) or data.get("kind") not in kinds:
        options = ", ".join(repr(kind) for kind in kinds)
        raise InvalidInput(f"Expected {name} with a kind out of {options}, got {data!r}.")
    cls, arguments = kinds[data["kind"]], {k: v for k, v in data.items() if k != "kind"}
    try:
        return cls(**arguments)
    except TypeError:
        wanted = ", ".join(f.name for f in dataclasses.fields(cls))
        got = ", ".join(arguments) or "nothing"
        raise InvalidInput(
            f"Expected {name} of kind {cls.kind!r} with {wanted}; got {got}."
        ) from None


OF_EXACT_STEPS = ("penalty", "tolerance")  # settings that they have beside rounds
OF_ROUNDS = {  # those of noise in every round alone, and their defaults
    "local_updates": 1,
    "perturbation": "objective",
    "calibration": "certified",
    "step_size": None,
    "reach": None,
}


@dataclass(frozen=True)
class Settings:
    """T rounds of E local updates, schedules, and how the updates are randomised.

    ``penalty`` and ``step_size`` left out are chosen from public quantities (see ``complete``).
    ``delta`` is the δ at which the total is stated; 0 states pure ε (Laplace only).
    ``tolerance``: take exact local steps, and stop when both residuals are that small
    (``fixed_point.py``), after ``rounds`` at the latest. For released problems, and for runs
    without noise; ``penalty`` is then where the penalties start, and E, η are not used.
    ``reach``: how far the answer is from the start, in widths of the set, where that is known: then
    steps adapt to what is public (``adaptive.py``), as far as that.
    """

    rounds: int
    local_updates: int = 1
    mechanism: Mechanism = dataclasses.field(default_factory=Noiseless)
    delta: float = 1e-6
    perturbation: Perturbation = "objective"
    calibration: Calibration = "certified"
    penalty: Schedule | float | None = None  # a number stands for a constant
    step_size: Schedule | float | None = None
    tolerance: float | None = None
    reach: float | None = None

    def __post_init__(self) -> None:
        updates_of(self.rounds, self.local_updates)
        for name in ("rounds", "local_updates"):
            object.__setattr__(self, name, int(getattr(self, name)))  # NumPy's are not plain data
        object.__setattr__(self, "delta", float(self.delta))
        for name, constant in (("penalty", ConstantPenalty), ("step_size", ConstantStep)):
            value = getattr(self, name)
            if isinstance(value, int | float):
                object.__setattr__(self, name, value := constant(value))
            elif value is not None and not hasattr(value, "kind"):
                raise InvalidInput(
                    f"Expected a number or a schedule of Tacit's as {name}, such as "
                    f"NonsmoothStep(0.5) or DynamicPenalty(1.0), got {value!r}: others can be "
                    "neither saved nor sent."
                )
            if value is not None:
                value.check(name, self.rounds)
        choice("perturbation", self.perturbation, get_args(Perturbation))
        choice("calibration", self.calibration, get_args(Calibration))
        if not isinstance(self.mechanism, Mechanism):
            raise InvalidInput(
                f"Expected a mechanism such as Gaussian(2.0), got {self.mechanism!r}."
            )
        if not (self.delta == 0 and self.mechanism.name == "laplace"):
            probability("delta", self.delta)
        if self.reach is not None:
            object.__setattr__(self, "reach", positive("reach", self.reach, (1e-6, 1.0)))
            if self.step_size is not None or self.penalty is not None or not self._adapts:
                raise InvalidInput(
                    "Expected no reach beside a step_size, a penalty, several local updates or "
                    f"noise on the output, got reach={self.reach:g}: it decides the steps."
                )
        if self.tolerance is not None:
            object.__setattr__(
                self, "tolerance", positive("tolerance", self.tolerance, (1e-12, 1.0))
            )
            if not isinstance(self.mechanism, Noiseless):
                raise InvalidInput(
                    f"Expected no tolerance where every round adds noise, got {self.tolerance:g}: "
                    "to stop when a number computed from the data looks good would release that "
                    "number. Read the data once (tacit.release), or give rounds alone."
                )

    @overload
    @classmethod
    def for_budget(
        cls,
        total_epsilon: float,
        total_delta: float,
        rounds: int,
        local_updates: int = 1,
        mechanism: str | None = None,
        **others: Any,
    ) -> Settings: ...

    @overload
    @classmethod
    def for_budget(
        cls, total_epsilon: float, total_delta: float, rounds: None = None, **others: Any
    ) -> Asked: ...

    @classmethod
    def for_budget(
        cls,
        total_epsilon: float,
        total_delta: float,
        rounds: int | None = None,
        local_updates: int = 1,
        mechanism: str | None = None,
        **others: Any,
    ) -> Settings | Asked:
        """The least noise for which all rounds·local_updates together cost at most the budget.

        Without ``rounds``: the budget alone. ``solve`` then chooses whether to release the data
        once or to add noise in every round (``planning.py``), and says so. ``mechanism``:
        "gaussian" or "laplace"; None: Gaussian, and without ``rounds`` as ``Asked`` has it.
        """
        if rounds is None:
            if local_updates != 1:
                others["local_updates"] = local_updates
            return Asked(total_epsilon, total_delta, mechanism, others)
        updates = updates_of(rounds, local_updates)
        noise = calibrate(mechanism or "gaussian", total_epsilon, total_delta, updates)
        return cls(rounds, local_updates, noise, total_delta, **others)

    @property
    def updates(self) -> int:
        """TE: the number of noisy updates each agent makes."""
        return self.rounds * self.local_updates

    def rule(self, separable: bool) -> Rule:
        """What a local update needs to know, for an agent whose set is separable or not."""
        return Rule(self.local_updates, self.perturbation, self.calibration, separable)

    def complete(self, problem: Problem) -> Settings:
        """Fill in schedules from public quantities: smoothness, bounds, diameter, noise scale.

        adaptive    (``adaptive.py``) where ``reach`` is given, or some loss is not planned by
                    scores, for one noisy update per round or a loss with kinks. Else:
        smooth      η^t = 1/(L + κ√t),  κ = σ√(2En)/D    noiseless: 1/L
        nonsmooth   η^t = D/√(2E(G² + nσ²)) / √t
        penalty     ρ = 0.3/η^T (smooth; by experiment) or G/D (nonsmooth)

        with the largest L (smoothness) and G (gradient bound), the smallest diameter D and the
        largest noise nσ² = E‖ξ‖² over the agents. κ and the nonsmooth scale minimise the
        noise-dependent terms of the bounds of Section 5.
        """
        if self.penalty is not None and self.step_size is not None:
            return self
        free = self._adapts and self.penalty is None and self.step_size is None
        if free and (found := self._adaptive(problem)) is not None:
            one = ConstantPenalty(1.0)
            return dataclasses.replace(self, penalty=one, step_size=found, reach=None)
        smoothness = [a.objective.smoothness for a in problem.agents]
        diameter = min(float(a.feasible_set.diameter) for a in problem.agents)
        gradient = max(a.objective.gradient_bound(a.feasible_set) for a in problem.agents)
        noise = math.sqrt(max(self.gradient_noise(problem)))
        E = self.local_updates
        known = [s for s in smoothness if s is not None]
        if len(known) == len(smoothness):
            L = max(known)
            growth = noise * math.sqrt(2 * E) / diameter if diameter > 0 else 0.0
            step: Schedule = SmoothStep(L, growth)
            penalty = ConstantPenalty(0.3 / step(self.rounds))
        else:
            diameter = diameter or 1.0  # a single point: any step will do
            step = NonsmoothStep(diameter / math.sqrt(2 * E * (gradient**2 + noise**2)))
            penalty = ConstantPenalty(gradient / diameter)
        return dataclasses.replace(
            self, penalty=self.penalty or penalty, step_size=self.step_size or step
        )

    @property
    def _adapts(self) -> bool:
        known = self.perturbation == "objective" and self.calibration == "certified"
        return known and self.local_updates == 1

    def _adaptive(self, problem: Problem) -> AdaptiveStep | None:
        """None where scores, or smoothness without noise, say more of steps."""
        agents = problem.agents
        planned = all(a.holds_everything and a.objective.descent is not None for a in agents)
        quiet = isinstance(self.mechanism, Noiseless)
        smooth = quiet and all(a.objective.smoothness is not None for a in agents)
        if self.reach is None and (planned or smooth):
            return None
        bound = max(a.objective.gradient_bound(a.feasible_set) for a in agents)
        assert all(len(a.feasible_set.widths) for a in agents)  # a server may have to ask for them
        if not DERIVED[0] <= bound <= DERIVED[1]:
            return None
        return AdaptiveStep(bound) if self.reach is None else AdaptiveStep(bound, self.reach, 0.0)

    def variance_on(self, agent: LocalProblem) -> float:
        """E of the square of the noise on one entry of the agent's statistic."""
        if isinstance(self.mechanism, Noiseless):
            return 0.0
        Δ = agent.objective.sensitivity(self.mechanism.norm, agent.feasible_set)
        return float(self.mechanism.variance(Δ))

    def gradient_noise(self, problem: Problem) -> list[float]:
        """E‖lift(ξ)‖² for each agent: the noise that reaches the gradient in one update."""
        return [self.variance_on(a) * a.objective.lift_energy for a in problem.agents]

    def statistic_noise(self, problem: Problem) -> list[float]:
        """σ for each agent: the deviation of the noise on one entry of its statistic."""
        return [math.sqrt(self.variance_on(agent)) for agent in problem.agents]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for TOML, JSON and the wire."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("mechanism", "penalty", "step_size"):
            data[name] = data[name].to_dict() if data[name] is not None else None
        if self.tolerance is None:  # as version 0.1.0 has it, whose digests are in ledgers
            del data["tolerance"]
        if self.reach is None:
            del data["reach"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Settings:
        """The settings that ``to_dict`` described."""
        values = dict(data)
        values["mechanism"] = mechanism_from(values["mechanism"])
        for name, read in (("penalty", penalty_from), ("step_size", step_size_from)):
            if values.get(name) is not None:
                values[name] = read(values[name])
        return cls(**values)

    def averaging_weights(self, first: int, last: int) -> Vector:
        """How the ergodic average weighs rounds: equally, or by t (strongly convex theorem)."""
        assert isinstance(self.step_size, Schedule)
        rounds = np.arange(first, last + 1, dtype=np.float64)
        return rounds if self.step_size.averaging == "linear" else np.ones_like(rounds)

    def schedule(self, first: int, last: int) -> tuple[Vector, Vector]:
        """ρ^t and η^t for the rounds first..last (both included)."""
        assert isinstance(self.penalty, Schedule) and isinstance(self.step_size, Schedule)
        rounds = range(first, last + 1)
        return (
            np.array([self.penalty(t) for t in rounds]),
            np.array([self.step_size(t) for t in rounds]),
        )


@dataclass(frozen=True)
class Asked:
    """What a user asks of a run, and what he fixed of it; ``tacit.planning.plan`` adds the rest.

    total_epsilon, total_delta   a budget of all that each agent releases, or
    epsilon, delta   one of each update; with neither, a run without noise
    mechanism   "gaussian" or "laplace"; None: Gaussian with noise in every round (Laplace where δ
                is 0), and for one release the one that adds less
    others      of the fields of ``Settings``: those that exact steps do not have ask for noise in
                every round if they are not the defaults
    rounds      with noise in each; of exact steps the most
    way         "release" (once, then exact steps) or "rounds" (noise in each); None: either
    """

    total_epsilon: float | None = None
    total_delta: float = 0.0
    mechanism: str | None = None
    others: dict[str, Any] = dataclasses.field(default_factory=dict)
    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None
    way: Literal["release", "rounds"] | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.others.items() if value is not None}
        object.__setattr__(self, "others", given)
        if unknown := sorted(set(self.others) - set(OF_EXACT_STEPS) - set(OF_ROUNDS)):
            raise InvalidInput(f"Expected fields of Settings beside a budget, got {unknown[0]!r}.")
        if self.total_epsilon is not None:
            calibrate(
                self.mechanism_of_rounds, self.total_epsilon, self.total_delta, 1
            )  # refuses bad numbers
        elif self.epsilon is not None:
            object.__setattr__(self, "way", "rounds")
        Settings(1 if self.rounds is None else self.rounds, **self.others)

    @property
    def is_free(self) -> bool:
        """Without noise, and without privacy."""
        return self.total_epsilon is None and self.epsilon is None

    @property
    def mechanism_of_rounds(self) -> str:
        """The mechanism of noise in every round."""
        pure = self.total_epsilon is not None and self.total_delta == 0
        return self.mechanism or ("laplace" if pure else "gaussian")

    @property
    def of_rounds(self) -> str:
        """A given field that exact steps do not have; "" if none is."""
        given = [
            name for name in OF_ROUNDS if self.others.get(name, OF_ROUNDS[name]) != OF_ROUNDS[name]
        ]
        return min(given, default="")


def schedule_in(dtype: Any, settings: Settings, first: int, last: int) -> tuple[Array, Array]:
    """ρ^t and η^t in ``dtype``; refused if they, 1/η or 1/η + ρ do not fit it."""
    require_64_bits()
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        ρ, η = (np.asarray(x).astype(dtype) for x in settings.schedule(first, last))
        least, most = np.finfo(dtype).tiny, np.sqrt(np.finfo(dtype).max)
        sizes = np.stack([ρ, η, 1 / η, 1 / η + ρ])
    usable = ((sizes > least) & (sizes < most)).all(axis=0)
    if not usable.all():
        k = int(np.argmin(usable))
        raise InvalidInput(
            f"Expected penalties and step sizes that {np.dtype(dtype)} can hold, with their "
            f"inverses, got penalty {ρ[k]:g} and step size {η[k]:g} in round {first + k}. Nothing "
            "was computed."
        )
    return ρ, η
