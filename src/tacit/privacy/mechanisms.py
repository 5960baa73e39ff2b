"""Noise mechanisms: each draws and scales its noise (line 18), and says what to account for.

The distribution and the accounting event of noise live in one frozen value, so they cannot drift
apart. A mechanism knows the ratio of noise to sensitivity (its noise multiplier); the
sensitivity, a public certified number, arrives when noise is drawn.

JAX is imported where noise is drawn: accounts and ledgers hold mechanisms and have no need of it.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import erfcx, ndtr

from tacit.errors import (
    DERIVED,
    EPSILONS,
    MULTIPLIERS,
    NOT_DONE,
    InvalidInput,
    choice,
    count,
    non_negative,
    positive,
    probability,
)
from tacit.pytree import register

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Mechanism(ABC):
    """Additive noise on a vector computed from private data.

    Guarantee: if ``sensitivity`` bounds the ``norm`` of the difference that neighbouring data
    make in the vector, then the vector plus ``sample(...)`` satisfies the (epsilon, delta) that
    ``accounting.py`` states for ``event(1)``, and so does everything computed from that sum
    alone. The claim is about real numbers: floating-point noise approximates them and does not
    withstand attacks on its low-order bits. A sensitivity that is zero, infinite or NaN never
    lets a vector through: it is refused on the host, and inside a traced program the noise is NaN.
    """

    name: ClassVar[str]
    norm: ClassVar[int]

    @abstractmethod
    def scale(self, sensitivity: Any) -> Any:
        """The parameter of the distribution: the standard deviation (Gaussian), b (Laplace)."""

    @abstractmethod
    def variance(self, sensitivity: Any) -> Any:
        """The variance of one coordinate of the noise."""

    @abstractmethod
    def sample(
        self, key: jax.Array, shape: tuple[int, ...], sensitivity: Any, dtype: Any = np.float64
    ) -> jax.Array:
        """Draw noise; traceable in ``key`` and ``sensitivity``.

        For float32 the numbers are those of ``seeded_noise.py``: JAX has no tail beyond about
        one in ten million, which would itself be a visible leak.
        """

    @abstractmethod
    def event(self, updates: int) -> Any:
        """What happened, as a ``dp_accounting`` event: ``updates`` adaptive uses."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``mechanism_from`` reads it back."""
        return {"kind": self.name, **asdict(self)}


@dataclass(frozen=True)
class Scaled(Mechanism):
    """Noise of a scale that is ``noise_multiplier`` times the sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        multiplier = positive("noise_multiplier", self.noise_multiplier, MULTIPLIERS)
        object.__setattr__(self, "noise_multiplier", multiplier)

    def scale(self, sensitivity: Any) -> Any:
        return self.noise_multiplier * _checked(sensitivity)

    def sample(
        self, key: jax.Array, shape: tuple[int, ...], sensitivity: Any, dtype: Any = np.float64
    ) -> jax.Array:
        import jax

        from tacit.privacy import seeded_noise

        distribution = {1: "laplace", 2: "normal"}[self.norm]
        if np.dtype(dtype).itemsize > 4:
            ξ = getattr(jax.random, distribution)(key, shape, np.float64)
        else:
            ξ = getattr(seeded_noise, distribution)(key, shape)
        noise: jax.Array = self.scale(sensitivity) * ξ
        return noise.astype(dtype)

    def event(self, updates: int) -> Any:
        import dp_accounting

        kind = {1: dp_accounting.LaplaceDpEvent, 2: dp_accounting.GaussianDpEvent}[self.norm]
        one = kind(self.noise_multiplier)
        return dp_accounting.SelfComposedDpEvent(one, count("updates", updates))


@dataclass(frozen=True)
class Gaussian(Scaled):
    """Normal noise with standard deviation ``noise_multiplier`` times the L2 sensitivity.

    Guarantee: see ``Mechanism``; L2 norm. One update is exactly as private as telling N(0, 1)
    from N(1/noise_multiplier, 1).
    """

    name: ClassVar[str] = "gaussian"
    norm: ClassVar[int] = 2

    @classmethod
    def classical(cls, epsilon: float, delta: float) -> Gaussian:
        """The paper's multiplier, sqrt(2 ln(1.25/delta)) / epsilon (Section 4.2).

        Guarantee: one update is (epsilon, delta)-private if epsilon <= 1. For a larger epsilon
        the formula is still computed, since the paper's figures may ask for it, but the pair
        (epsilon, delta) is then no guarantee; ``accounting.exact`` states the true one.
        """
        epsilon, delta = positive("epsilon", epsilon, EPSILONS), probability("delta", delta)
        return cls(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)

    @classmethod
    def analytic(cls, epsilon: float, delta: float) -> Gaussian:
        """The smallest multiplier for which one update is (epsilon, delta)-private.

        The analytic Gaussian mechanism (Balle and Wang, 2018); exact for every epsilon.
        """
        return cls(gaussian_multiplier(epsilon, delta))

    def variance(self, sensitivity: Any) -> Any:
        return self.scale(sensitivity) ** 2


@dataclass(frozen=True)
class Laplace(Scaled):
    """Laplace noise with scale b = ``noise_multiplier`` times the L1 sensitivity.

    Guarantee: see ``Mechanism``; L1 norm. One update is (1/noise_multiplier, 0)-private. The
    worst neighbour changes a single coordinate by the whole sensitivity (the lemma in
    docs/theory.md), so a vector costs exactly what a scalar costs.
    """

    name: ClassVar[str] = "laplace"
    norm: ClassVar[int] = 1

    @classmethod
    def of_epsilon(cls, epsilon: float) -> Laplace:
        """The paper's multiplier, 1/epsilon (Section 4.2): one update is (epsilon, 0)-private."""
        return cls(1 / positive("epsilon", epsilon, EPSILONS))

    def variance(self, sensitivity: Any) -> Any:
        return 2 * self.scale(sensitivity) ** 2


@dataclass(frozen=True)
class Noiseless(Mechanism):
    """No noise (the paper's epsilon = infinity). Guarantee: none."""

    name: ClassVar[str] = "noiseless"
    norm: ClassVar[int] = 2

    def scale(self, sensitivity: Any) -> Any:
        return 0.0 * sensitivity

    def variance(self, sensitivity: Any) -> Any:
        return 0.0 * sensitivity

    def sample(
        self, key: jax.Array, shape: tuple[int, ...], sensitivity: Any, dtype: Any = np.float64
    ) -> jax.Array:
        import jax.numpy as jnp

        return jnp.zeros(shape, dtype)

    def event(self, updates: int) -> Any:
        import dp_accounting

        count("updates", updates)
        return dp_accounting.NonPrivateDpEvent()


@cache
def register_with_jax() -> None:
    """Let JAX look into mechanisms: parameters may differ within a batch of runs, the kind is part
    of the compiled program. Done here if JAX is loaded, else by whoever compiles programs."""
    for kind in (Gaussian, Laplace, Noiseless):
        register(kind)


if "jax" in sys.modules:
    register_with_jax()


def mechanism_from(data: dict[str, Any]) -> Mechanism:
    """The mechanism described by plain data such as ``{"kind": "noiseless"}``."""
    kinds: dict[str, type[Mechanism]] = {k.name: k for k in (Gaussian, Laplace, Noiseless)}
    settings = dict(data)
    kind = kinds[choice("mechanism kind", settings.pop("kind", None), tuple(kinds))]
    wanted = [f.name for f in fields(kind)]
    if sorted(settings) != wanted:
        raise InvalidInput(
            f"Expected a mechanism of kind {kind.name!r} with {wanted}, got {sorted(settings)}. "
            f"{NOT_DONE}"
        )
    return kind(**settings)


def per_update(
    name: str, epsilon: float, delta: float | None = None, calibration: str = "certified"
) -> Gaussian | Laplace:
    """The mechanism whose single update has the budget (epsilon, delta) (Section 4.2).

    Laplace noise ignores ``delta``. Gaussian noise is ``analytic``, or ``classical`` under
    ``calibration="paper"`` and ``"paper-tight"``: the paper's formula, a guarantee only for
    epsilon <= 1.
    """
    choice("mechanism name", name, ("gaussian", "laplace"))
    choice("calibration", calibration, ("certified", "paper", "paper-tight"))
    if name == "laplace":
        return Laplace.of_epsilon(epsilon)
    if delta is None:
        raise InvalidInput(f"Expected a delta for gaussian noise, got none. {NOT_DONE}")
    build = Gaussian.analytic if calibration == "certified" else Gaussian.classical
    return build(epsilon, delta)


def _checked(sensitivity: Any) -> Any:
    """The sensitivity if it can be used; NaN where a traced value cannot be refused."""
    import jax
    import jax.numpy as jnp

    if not isinstance(sensitivity, jax.Array):
        if np.ndim(sensitivity) == 0:
            return positive("sensitivity", sensitivity, DERIVED)
        sensitivity = jnp.asarray(sensitivity)
    usable = (sensitivity > 0) & jnp.isfinite(sensitivity)
    return jnp.where(usable, sensitivity, jnp.nan)


# --- secure sums: many add the noise together (``protocol/masks.py``) ---------------------------


def check_parties(parties: int, colluding: int | None) -> int:
    """c, by default just less than half; refused where masks bring nothing."""
    if parties < 3:
        raise InvalidInput(
            f"Expected three parties or more for a secure sum, got {parties}: of two each would "
            "learn the other's part. Leave aggregation out. Nothing was computed."
        )
    found = (parties - 1) // 2 if colluding is None else colluding
    if type(found) is not int or not 1 <= found <= parties - 2:
        raise InvalidInput(
            f"Expected 1 <= colluding <= {parties - 2} for {parties} parties, got {found!r}: every "
            "party can subtract its own noise, and with one honest party left nothing is gained "
            "by a sum. Nothing was computed."
        )
    return found


def refuse_no_sum(
    mechanism: str, local_updates: int = 1, calibration: str = "certified", epsilon: Any = 1.0
) -> None:
    """Gaussian noise alone adds up to its own kind, and statistics at one public point."""
    noise = "no noise" if epsilon is None or mechanism == "noiseless" else f"{mechanism} noise"
    if (noise, local_updates, calibration) != ("gaussian noise", 1, "certified"):
        raise InvalidInput(
            f"Expected certified gaussian noise and local_updates=1 for a secure sum, got {noise}, "
            f"calibration={calibration!r} and local_updates={local_updates}: other noise does not "
            "add up to its own kind, and later updates are at points that are not public. Leave "
            "aggregation out. Nothing was computed."
        )


def share_of(mechanism: Gaussian, shares: int) -> Gaussian:
    """The noise of one of ``shares`` that add up to ``mechanism``; rounded down."""
    return Gaussian(mechanism.noise_multiplier / math.sqrt(shares) * (1 - 1e-15))


# --- the exact trade-off of Gaussian noise ------------------------------------------------------
#
# Telling N(0, 1) from N(mu, 1) is as hard as telling neighbours apart after an update of noise
# multiplier 1/mu (Balle and Wang, 2018):
#
#     delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
#
# Every number is rounded up, so that a statement made from it is never too strong.


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` for telling N(0, 1) from N(mu, 1), rounded up.

    Guarantee: never below the true value, and above it by less than one part in a million for
    delta >= 1e-300 and 1e-6 <= mu.
    """
    mu, epsilon = positive("mu", mu, DERIVED), non_negative("epsilon", epsilon)
    return min(1.0, max(math.exp(_log_delta(mu, epsilon)), math.ulp(0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon at ``delta`` for telling N(0, 1) from N(mu, 1), rounded up."""
    mu, target = positive("mu", mu, DERIVED), math.log(probability("delta", delta)) - 1e-12
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    highest = mu * mu / 2 + mu * math.sqrt(-2 * target)  # the Chernoff bound
    return root_rounded_up(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, highest)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Smallest 1/mu with delta(epsilon) <= delta, rounded up (at most one part in a billion)."""
    epsilon, target = (
        positive("epsilon", epsilon, EPSILONS),
        math.log(probability("delta", delta)) - 1e-12,
    )
    low = high = 1.0
    while _log_delta(1 / high, epsilon) > target:
        high *= 2
    while _log_delta(1 / low, epsilon) <= target:
        low /= 2
    root = root_rounded_up(lambda m: _log_delta(1 / m, epsilon) - target, low, high)
    return root * (1 + 1e-12)  # so that accounting for it, which also rounds up, agrees


def _log_delta(mu: float, epsilon: float) -> float:
    """ln delta(epsilon), rounded up.

    e^epsilon phi(b) = phi(a) with a, b the two arguments of Phi, so that in terms of the Mills
    ratio Phi(-x)/phi(x) = sqrt(pi/2) erfcx(x/sqrt 2) nothing overflows and little cancels.
    """
    a = mu / 2 - epsilon / mu
    log_phi = -a * a / 2 - math.log(2 * math.pi) / 2
    second = math.sqrt(math.pi / 2) * float(erfcx((mu - a) / math.sqrt(2)))
    if a > 0:
        gap = float(ndtr(a)) * (1 + 1e-15) - math.exp(log_phi) * second
        return math.log(gap) + 1e-10
    first = math.sqrt(math.pi / 2) * float(erfcx(-a / math.sqrt(2)))
    return log_phi + math.log(first * (1 + 1e-15) - second) + 1e-10


def root_rounded_up(function: Callable[[float], float], low: float, high: float) -> float:
    """A point just above the root of a decreasing function, where it is <= 0."""
    from scipy.optimize import brentq  # takes as long to import as all else that accounts need

    if not function(low) > 0 >= function(high):
        raise InvalidInput(f"Expected the budget to be met between {low!r} and {high!r}.")
    root, step = float(brentq(function, low, high, xtol=1e-300, rtol=1e-14)), 1e-15
    while not function(root) <= 0:
        root, step = min(high, root * (1 + step)), step * 2
    return root
