"""Step sizes and penalties over the rounds t = 1..T (Section 5 and Appendix E).

Each schedule is a frozen value: call it with the round to get the number, ``to_dict`` to store it.
All parameters are public; a schedule must never be computed from private data.

    step size η^t   ConstantStep · SmoothStep · NonsmoothStep · StronglyConvexStep
    penalty   ρ^t   ConstantPenalty · DynamicPenalty
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tacit.errors import DERIVED, EPSILONS, InvalidInput, count, non_negative, positive

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


STEP_SIZES = (ConstantStep, SmoothStep, NonsmoothStep, StronglyConvexStep)
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
