"""A lower bound on epsilon from an adversary's scores on two neighbouring data sets.

    world 0        the canary is not in the data       world 1    it is
    a              false positive rate: the adversary says 1 in world 0
    b              false negative rate: the adversary says 0 in world 1

(ε, δ)-privacy forces 1 − b ≤ e^ε a + δ and 1 − a ≤ e^ε b + δ for every adversary (Kairouz, Oh and
Viswanath, 2015). Clopper-Pearson gives upper bounds of a and b, and these a lower bound on ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtri

from tacit._types import Vector
from tacit.admm.settings import Settings
from tacit.errors import TRIALS, InvalidInput, count, digits, positive, probability
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.privacy.accounting import MOST_GRID_UPDATES, Guarantee, exact, paper, rounded_up
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noiseless,
    gaussian_epsilon,
    per_update,
)

if TYPE_CHECKING:
    pass

LIMITS = "An audit can refute a claim. It can never prove one."
BLACK = ("likelihood of the last model", "magnitude of the last model")
CHOOSING = 0.2  # the share of the trials on which attack and threshold are chosen
THRESHOLDS = 200  # tried for each attack


@dataclass(frozen=True)
class Rates:
    """Upper bounds of the adversary's two error rates, with the counts they come from."""

    false_positive: float
    false_negative: float
    errors: tuple[int, int]  # of each kind, in the trials that confirm
    trials: tuple[int, int]
    attack: str  # the adversary that was chosen, on other trials


@dataclass(frozen=True)
class Bounds:
    """Two lower bounds on ε at the δ of the claim, which hold together."""

    free: float  # whatever the noise is
    curve: float  # through the trade-off curve of the mechanism's family
    free_rates: Rates
    curve_rates: Rates


def upper_bound(errors: Any, trials: Any, confidence: float) -> Any:
    """Clopper and Pearson (1934): a rate is below this with probability ≥ ``confidence``."""
    errors = np.minimum(errors, trials)
    inner = betaincinv(errors + 1.0, np.maximum(trials - errors, 1e-9), confidence)
    return np.where(errors >= trials, 1.0, inner)


def free_epsilon(a: Any, b: Any, delta: float) -> Any:
    """The least ε ≥ 0 that allows error rates a and b at ``delta``; no other assumption."""
    gains = [np.log(np.maximum(1 - delta - y, 1e-300) / x) for x, y in ((a, b), (b, a))]
    return np.maximum(np.maximum(*gains), 0.0)


def shift(a: Any, b: Any) -> Any:
    """μ ≥ 0 such that telling N(0, 1) from N(μ, 1) has error rates a and b (Dong et al., 2022)."""
    return np.maximum(ndtri(1 - np.asarray(a)) - ndtri(b), 0.0)


def curve_epsilon(mechanism: Mechanism, updates: int, delta: float, a: float, b: float) -> float:
    """The least ε at ``delta`` of ``updates`` uses of this kind of noise that allows a and b.

    Gaussian: μ of ``shift``, then the exact ε of μ. Laplace: bisection over the noise multiplier,
    for which the rates must satisfy 1 − b ≤ e^ε a + δ(ε) for all ε.

    Assumes that what is seen has the trade-off curve of the family, with noise of unknown size. As
    a test of Tacit's own claim it assumes nothing: that claim is the whole curve.
    """
    if isinstance(mechanism, Gaussian):
        μ = float(shift(a, b))
        return gaussian_epsilon(μ, delta) if μ > 0 else 0.0
    if not isinstance(mechanism, Laplace):
        raise InvalidInput(f"Expected gaussian or laplace noise to audit, got {mechanism.name}.")
    a, b = min(a, b), max(a, b)  # the curve of Laplace noise is symmetric
    if a + b >= 1:
        return 0.0
    grid = np.linspace(0.0, math.log((1 - b) / a), 50)
    needed = np.maximum(1 - b - np.exp(grid) * a, 1 - a - np.exp(grid) * b)
    low, high = 0.0, 2.0 / updates
    while (needed > _laplace_deltas(high, updates, grid)).any():
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        enough = (needed <= _laplace_deltas(middle, updates, grid)).all()
        low, high = (low, middle) if enough else (middle, high)
    if low == 0:
        return 0.0
    if delta == 0:
        return updates * low
    # ``exact`` rounds up, by 0.1 %, or (Renyi bounds) to twice as much; a lower bound must not
    near = delta >= 1e-9 and updates <= MOST_GRID_UPDATES
    return exact(Laplace(1 / low), updates, delta).epsilon * (0.999 if near else 0.5)


def _laplace_deltas(epsilon: float, updates: int, grid: Vector) -> Vector:
    """δ at every ε of the grid, for updates of ``epsilon`` each; rounded up."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    cell = epsilon / max(64, 1000 / updates)
    one = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=cell)
    return np.asarray(one.self_compose(updates).get_delta_for_epsilon(grid)) + 1e-9


def largest_bound(
    trials: int, mechanism: Mechanism, updates: int, delta: float, confidence: float = 0.99
) -> float:
    """The larger bound for an adversary who is never wrong: the most that these trials can show."""
    rate = float(upper_bound(0, trials - int(CHOOSING * trials), _level(confidence)))
    free = float(free_epsilon(rate, rate, delta))
    return max(free, curve_epsilon(mechanism, updates, delta, rate, rate))


def lower_bounds(
    without: Sequence[Vector],
    with_canary: Sequence[Vector],
    attacks: Sequence[str],
    mechanism: Mechanism,
    updates: int,
    delta: float,
    confidence: float = 0.99,
) -> Bounds:
    """Lower bounds on ε from the scores of several attacks, one row each, in the two worlds.

    An adversary says "world 1" where a score is above (or below) a threshold. Attack, side and
    threshold are chosen on the first fifth of the trials and confirmed on the others, so that
    choosing costs no confidence. The four error rates (two for each bound) share the risk equally.

    Guarantee: for any scores of independent trials, the probability that one of the two bounds is
    above the true ε at ``delta`` is at most 1 − ``confidence``; for ``curve`` under the assumption
    of ``curve_epsilon``. NaN counts as the adversary's error.
    """
    probability("confidence", confidence)
    both = (np.asarray(s, np.float64) for s in (without, with_canary))
    scores = [np.concatenate([s, -s]) for s in both]  # above a threshold, or below
    sizes = [s.shape[1] for s in scores]
    first = [int(CHOOSING * n) for n in sizes]
    if min(first) < 20:
        raise InvalidInput(f"Expected at least 100 trials in each world, got {min(sizes)}.")
    later = [n - k for n, k in zip(sizes, first, strict=True)]
    level = _level(confidence)
    names = [*attacks, *attacks]
    tried = [_tried(s0[: first[0]], s1[: first[1]]) for s0, s1 in zip(*scores, strict=True)]

    def confirmed(gain: Callable[[Any, Any], Any], balanced: bool) -> Rates:
        best, at, threshold = -1.0, 0, math.inf
        for i, (thresholds, wrong) in enumerate(tried):
            a, b = (upper_bound(w, n, level) for w, n in zip(wrong, first, strict=True))
            k = int(np.argmin(abs(a - b)) if balanced else np.argmax(gain(a, b)))
            if (gained := float(gain(a[k], b[k]))) > best:
                best, at, threshold = gained, i, float(thresholds[k])
        errors = (
            int(np.sum(~(scores[0][at, first[0] :] < threshold))),
            int(np.sum(~(scores[1][at, first[1] :] >= threshold))),
        )
        a, b = (float(upper_bound(e, m, level)) for e, m in zip(errors, later, strict=True))
        return Rates(a, b, errors, (later[0], later[1]), names[at])

    free = confirmed(lambda a, b: free_epsilon(a, b, delta), balanced=False)
    curve = confirmed(shift, balanced=True)  # equal rates are known best
    return Bounds(
        float(free_epsilon(free.false_positive, free.false_negative, delta)),
        curve_epsilon(mechanism, updates, delta, curve.false_positive, curve.false_negative),
        free,
        curve,
    )


def _level(confidence: float) -> float:
    """Of each of four error rates."""
    return 1 - (1 - confidence) / 4


def _tried(s0: Vector, s1: Vector) -> tuple[Vector, tuple[Vector, Vector]]:
    """Thresholds between the scores seen, and the errors that each would have made."""
    seen = np.unique(np.concatenate([s0, s1]))
    seen = seen[np.isfinite(seen)]
    if len(seen) < 2:
        return np.array([0.0]), (np.array([len(s0)]), np.array([len(s1)]))
    between = (seen[1:] + seen[:-1]) / 2
    false_positives = len(s0) - np.searchsorted(np.sort(s0), between)
    false_negatives = np.searchsorted(np.sort(s1), between)
    total = false_positives / len(s0) + false_negatives / len(s1)
    places = np.linspace(0, len(between) - 1, THRESHOLDS).astype(int)
    at = np.unique([*places, int(np.argmin(total))])
    return between[at], (false_positives[at], false_negatives[at])


# --- the audit of a claim ---------------------------------------------------------------------


def rounded_down(bound: float) -> str:
    """A lower bound as text that is never larger, to three decimals."""
    return f"{math.floor(1000 * bound) / 1000:.3f}"


@dataclass(frozen=True)
class Audit:
    """What the trials say about one claim. All its bounds hold together with the confidence."""

    name: str
    canary: str
    settings: Settings
    claim: Guarantee
    white: Bounds  # the adversary sees every local update
    black: Bounds | None  # it sees the last model only; None of releases, where that says less
    trials: int  # in each world
    confidence: float
    seed: int | None
    through: str = "rounds"  # what was run: local rounds alone, or agents with ledgers
    updates: int = 0  # that are seen in a trial; 0: those of the settings

    @property
    def names(self) -> tuple[str, ...]:
        """Of the bounds, in the order of ``epsilons``: free and curve of each form."""
        kinds = "distribution-free", f"{self.settings.mechanism.name} curve"
        views = zip(("white", "black"), self._forms, strict=False)
        return tuple(f"{view} box, {kind}" for view, _ in views for kind in kinds)

    @property
    def epsilons(self) -> tuple[float, ...]:
        return tuple(bound for form in self._forms for bound in (form.free, form.curve))

    @property
    def rates(self) -> tuple[Rates, ...]:
        return tuple(r for form in self._forms for r in (form.free_rates, form.curve_rates))

    @property
    def _forms(self) -> tuple[Bounds, ...]:
        return (self.white,) if self.black is None else (self.white, self.black)

    @property
    def violated(self) -> bool:
        return max(self.epsilons) > self.claim.epsilon

    @cached_property
    def largest_bound(self) -> float:
        """What an adversary who is never wrong would show in this number of trials."""
        updates = self.updates or self.settings.updates
        about = self.settings.mechanism, updates, self.claim.delta
        return largest_bound(self.trials, *about, _shared(self.confidence, len(self._forms)))

    @property
    def refutable(self) -> bool:
        """Whether this number of trials could refute the claim at all."""
        return self.largest_bound > self.claim.epsilon

    @property
    def verdict(self) -> str:
        """In words. Of several bounds above the claim, one that assumes nothing, if there is."""
        if not self.violated:
            most = rounded_down(self.largest_bound)
            few = f"too few trials to refute the claim: {self.trials} show {most} at most"
            return "consistent with the claim" if self.refutable else few
        free = self.epsilons[::2]
        above = free if max(free) > self.claim.epsilon else self.epsilons
        at = self.epsilons.index(max(above))
        return (
            f"VIOLATED: epsilon is at least {rounded_down(self.epsilons[at])} at delta "
            f"{digits(self.claim.delta)}, and not {rounded_up(self.claim.epsilon, 3)}, at "
            f"{100 * self.confidence:g} % confidence ({self.names[at]}; attack: "
            f"{self.rates[at].attack})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "canary": self.canary,
            "settings": self.settings.to_dict(),
            "claim": {"epsilon": self.claim.epsilon, "delta": self.claim.delta},
            "bounds": [
                {
                    "bound": name,
                    "epsilon": bound,
                    "attack": rates.attack,
                    "errors": list(rates.errors),
                    "confirming_trials": list(rates.trials),
                }
                for name, bound, rates in zip(self.names, self.epsilons, self.rates, strict=True)
            ],
            "violated": self.violated,
            "refutable": self.refutable,
            "largest_bound": self.largest_bound,
            "verdict": self.verdict,
            "trials": self.trials,
            "confidence": self.confidence,
            "seed": self.seed,
            "through": self.through,
        }


def prepared(
    worlds: Worlds, settings: Settings, trials: int, confidence: float, claim: Guarantee | None
) -> Settings:
    """The settings with schedules, if an audit with these numbers makes sense."""
    if count("trials", trials, TRIALS) < 100:
        raise InvalidInput(f"Expected at least 100 trials in each world, got {trials}.")
    probability("confidence", confidence)
    if not isinstance(settings, Settings):
        raise InvalidInput(
            "Expected Settings to audit, got a budget alone: give rounds. Nothing was run."
        )
    if isinstance(settings.mechanism, Noiseless):
        raise InvalidInput("Expected a mechanism with noise to audit, got none. Nothing was run.")
    if claim is not None and isinstance(settings.mechanism, Gaussian):
        probability("delta", claim.delta)  # the curve has no epsilon at 0
    return worlds.scheduled(settings)


def judged(
    worlds: Worlds,
    settings: Settings,
    claim: Guarantee,
    scores: tuple[Any, Any],
    white: Sequence[str],
    updates: int,
    confidence: float,
    seed: int | None,
    through: str = "rounds",
) -> Audit:
    """The audit that follows from scores in both worlds: rows of ``white``, then of BLACK or none.

    White and black box share the risk.
    """
    without, with_canary = scores
    names = {"white": white, "black": BLACK if len(without) > len(white) else ()}
    parts = {"white": slice(len(white)), "black": slice(len(white), None)}
    level = _shared(confidence, sum(map(bool, names.values())))
    about = settings.mechanism, updates, claim.delta, level
    found = {
        form: lower_bounds(without[parts[form]], with_canary[parts[form]], named, *about)
        for form, named in names.items()
        if named
    }
    said = worlds.name, worlds.canary, settings, claim, found["white"], found.get("black")
    return Audit(*said, without.shape[1], confidence, seed, through, updates)


def _shared(confidence: float, forms: int) -> float:
    return 1 - (1 - confidence) / forms


def paper_claim(
    total_epsilon: float,
    total_delta: float,
    rounds: int,
    local_updates: int,
    mechanism: str = "gaussian",
    **others: Any,
) -> tuple[Settings, Guarantee]:
    """What the paper would run for a total budget, and what it would then claim (Section 4).

    Its noise for one update, its sensitivities, and its composition theorem (Laplace: the sum).
    Guarantee: none; see ``docs/theory.md``.
    """
    total = positive("total_epsilon", total_epsilon)
    updates = count("rounds", rounds) * count("local_updates", local_updates)
    if mechanism == "laplace":
        one, delta = total / updates, 0.0
    else:
        one, delta = total / paper(1.0, total_delta, updates).epsilon, total_delta
    noise = per_update(mechanism, one, delta, "paper")
    settings = Settings(rounds, local_updates, noise, delta, calibration="paper", **others)
    return settings, Guarantee(total, delta)
