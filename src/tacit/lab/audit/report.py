"""An audit: a claimed epsilon beside what an adversary shows it to be at least."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, count, digits, positive, probability
from tacit.lab.audit.bounds import Bounds, Rates, largest_bound, lower_bounds, trials_of
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.lab.audit.trials import BLACK, WHITE, run_trials
from tacit.privacy.accounting import Guarantee, exact, paper, rounded_up
from tacit.privacy.mechanisms import Gaussian, Noiseless, per_update
from tacit.protocol.keys import jax_key, root_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMITS = "An audit can refute a claim. It can never prove one."


def rounded_down(bound: float) -> str:
    """A lower bound as text that is never larger, to three decimals."""
    return f"{math.floor(1000 * bound) / 1000:.3f}"


@dataclass(frozen=True)
class Audit:
    """What the trials say about one claim. All four bounds hold together with the confidence."""

    name: str
    canary: str
    settings: Settings
    claim: Guarantee
    white: Bounds  # the adversary sees every local update
    black: Bounds  # it sees the last model only
    trials: int  # in each world
    confidence: float
    seed: int | None
    through: str = "rounds"  # what was run: local rounds alone, or agents with ledgers
    updates: int = 0  # that are seen in a trial; 0: those of the settings

    @property
    def names(self) -> tuple[str, ...]:
        """The four bounds, in the order of ``epsilons``."""
        curve = f"{self.settings.mechanism.name} curve"
        return tuple(
            f"{view} box, {kind}"
            for view in ("white", "black")
            for kind in ("distribution-free", curve)
        )

    @property
    def epsilons(self) -> tuple[float, ...]:
        return self.white.free, self.white.curve, self.black.free, self.black.curve

    @property
    def rates(self) -> tuple[Rates, ...]:
        forms = (self.white, self.black)
        return tuple(r for form in forms for r in (form.free_rates, form.curve_rates))

    @property
    def violated(self) -> bool:
        return max(self.epsilons) > self.claim.epsilon

    @cached_property
    def largest_bound(self) -> float:
        """What an adversary who is never wrong would show in so many trials."""
        updates = self.updates or self.settings.updates
        about = self.settings.mechanism, updates, self.claim.delta
        return largest_bound(self.trials, *about, _of_each_form(self.confidence))

    @property
    def refutable(self) -> bool:
        """Whether so many trials could refute the claim at all."""
        return self.largest_bound > self.claim.epsilon

    @property
    def verdict(self) -> str:
        """In words. Of several bounds above the claim, one that assumes nothing, if there is."""
        if not self.violated:
            most = rounded_down(self.largest_bound)
            few = f"too few trials to refute the claim: {self.trials} show {most} at most"
            return "consistent with the claim" if self.refutable else few
        free = (self.white.free, self.black.free)
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


def audit(
    worlds: Worlds,
    settings: Settings,
    *,
    trials: int = 20_000,
    confidence: float = 0.99,
    claim: Guarantee | None = None,
    seed: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """Run ``trials`` trials in each world, let the adversary guess, and bound ε from below.

    ``claim`` is by default what Tacit states for the settings: their exact composition.
    ``progress`` is told the number of trials just done.

    Guarantee: if the worlds are neighbours and the claim is true, the audit says "VIOLATED" with
    probability at most 1 − ``confidence``, whatever the attacks do. Tacit's own claims are whole
    trade-off curves. A claim of a single (ε, δ) is also held against the curve of its mechanism,
    which assumes that what is seen is noise of that kind. The other way round nothing is promised:
    what these worlds and attacks do not show is not found.
    """
    settings = prepared(worlds, settings, trials, confidence, claim)
    claim = claim or exact(settings.mechanism, settings.updates, settings.delta)
    root = jax_key(root_key(seed))
    scores = run_trials(worlds, settings, trials, root, progress)
    return judged(worlds, settings, claim, scores, WHITE, settings.updates, confidence, seed)


def prepared(
    worlds: Worlds, settings: Settings, trials: int, confidence: float, claim: Guarantee | None
) -> Settings:
    """The settings with schedules, if an audit with these numbers makes sense."""
    trials_of(trials)
    probability("confidence", confidence)
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
    """The audit that follows from scores in both worlds: rows of ``white``, then of BLACK."""
    without, with_canary = scores

    def bounds(rows: slice, names: Sequence[str]) -> Bounds:
        return lower_bounds(
            without[rows],
            with_canary[rows],
            names,
            settings.mechanism,
            updates,
            claim.delta,
            _of_each_form(confidence),
        )

    return Audit(
        worlds.name,
        worlds.canary,
        settings,
        claim,
        bounds(slice(0, len(white)), white),
        bounds(slice(len(white), None), BLACK),
        without.shape[1],
        confidence,
        seed,
        through,
        updates,
    )


def _of_each_form(confidence: float) -> float:
    """White and black box share the risk."""
    return 1 - (1 - confidence) / 2


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
    Guarantee: none; see ``docs/privacy.md``.
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


def plot(audits: Sequence[Audit]) -> Figure:
    """Claimed ε and lower bounds, one group of bars per audit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    first = audits[0]
    for i, label in enumerate(first.names):
        heights = [a.epsilons[i] for a in audits]
        places = [k + 0.18 * (i - 1.5) for k in range(len(audits))]
        axes.bar(places, heights, width=0.17, label=label)
    for k, one in enumerate(audits):
        axes.hlines(one.claim.epsilon, k - 0.42, k + 0.42, color="black", label="claim" * (k == 0))
        if not one.refutable:
            most = one.largest_bound
            axes.hlines(most, k - 0.42, k + 0.42, color="grey", linestyle="dashed")
            axes.annotate("the most these trials can show", (k, most), ha="center", va="bottom")
    axes.set_xticks(range(len(audits)), [f"{a.claim.epsilon:.3g}" for a in audits])
    axes.set(xlabel="claimed epsilon", ylabel=f"lower bound at delta {first.claim.delta:g}")
    axes.set_title(f"{first.name}: {first.trials} trials in each world")
    axes.legend(loc="upper left")  # claims grow to the right
    return figure
