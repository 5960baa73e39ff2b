"""What (ε, δ) means for someone who guesses: exact bounds, without formulas on the page.

Let P and Q be the distributions of all that an agent shows, for two neighbouring states x and x' of
its data, and (ε, δ) such that P(S) ≤ e^ε Q(S) + δ and Q(S) ≤ e^ε P(S) + δ for every event S.
Someone knows all of the data but which of the two it is ("it": a record is there, a load is this),
holds "it" for true with probability π before, and then sees everything.

*Suspicion after* (``suspicion``). By Bayes the odds after seeing y are (π/(1−π))·P(y)/Q(y). Let B
be the set of y with P(y) > e^t Q(y), t > ε. Then P(B) ≤ e^ε Q(B) + δ ≤ e^(ε−t) P(B) + δ, so that
P(B) ≤ δ/(1 − e^(ε−t)), and Q(B) ≤ P(B). With t = ε − ln(1 − δ/η) both are at most η: *whichever is
true, with probability at least 1 − η the odds grow at most by e^t.* For δ = 0: always, and t = ε.
"Except with probability δ the odds grow at most by e^ε" would be wrong: of Gaussian noise P(B) at
t = ε is larger than δ, for ε = 1 and δ = 10⁻⁵ sixteen times. We take η = 10 δ, which costs
0.106 in t. (Kasiviswanathan and Smith 2014, "On the semantics of differential privacy", have the
argument, with other constants. Putting the mass η where P/Q = e^t shows that no smaller t holds
for all mechanisms.) The same holds for "it" being one of many values against many others, all
neighbours of each other: (ε, δ) passes to mixtures.

*A test* (``hits``). Whoever says "it" on S is right, where it is so, with probability P(S) (a hit),
and wrong, where it is not, with probability Q(S) = α (a false alarm). The two inequalities, for S
and for its complement, are P(S) ≤ min(e^ε α + δ, 1 − e^(−ε)(1 − δ − α)): Wasserman and Zhou 2010;
Kairouz, Oh and Viswanath 2015, theorem 2.1, who show that no smaller bound holds for all.

*A guess* between two that are equally likely is right with probability (P(S) + 1 − Q(S))/2, at most
(e^ε + δ)/(e^ε + 1): where the two lines above meet (``guess``).

Guarantee: true for every mechanism that is (ε, δ)-private for these neighbours, whatever else the
adversary knows of the other records, and rounded up. Not for several records at once, nor for
somebody who takes what others' records say for what this one says (facts about everyone).
"""

from __future__ import annotations

import math
from decimal import Decimal

from tacit.privacy.accounting import rounded_up

EXCEPTION = 10  # η/δ: how often the bound on suspicion may fail, in units of delta
LITTLE = 0.99  # a suspicion of 1 % may become as much as this: then next to nothing is promised
SLACK = 1e-12  # more than the rounding of what is computed here


def exception(delta: float) -> float:
    """η, the probability with which ``suspicion`` may fail; 1: it always may."""
    return min(1.0, EXCEPTION * delta)


def loss(epsilon: float, delta: float, failing: float) -> float:
    """t: what is added to the logarithm of odds at most, but with probability ``failing``."""
    if delta == 0:
        return epsilon
    if failing >= 1 or failing <= delta:
        return math.inf  # nothing is left to promise, or nothing follows
    return epsilon - math.log1p(-delta / failing)


def suspicion(before: float, epsilon: float, delta: float) -> float:
    """The largest probability after, for one of ``before``, but with probability ``exception``."""
    if not 0 < before < 1:
        return _up(before)
    grown = math.log(before) - math.log1p(-before) + loss(epsilon, delta, exception(delta))
    return _up(1 / (1 + math.exp(-grown)) if grown > -700 else math.exp(grown))


def hits(false_alarms: float, epsilon: float, delta: float) -> float:
    """The largest share of hits of a test with that share of false alarms."""
    steep = _exp(epsilon) * false_alarms + delta
    flat = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return _up(min(steep, flat))


def guess(epsilon: float, delta: float) -> float:
    """The largest probability of a right guess between two that are equally likely."""
    return _up((1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def next_to_nothing(epsilon: float, delta: float) -> bool:
    """Whether even a faint suspicion may become near certainty."""
    return suspicion(0.01, epsilon, delta) >= LITTLE


def times(epsilon: float, delta: float) -> str:
    """What ε and δ say by definition, in words: the one factor on a report and on a sheet."""
    factor = math.exp(min(float(rounded_up(epsilon, 3)), 700.0))
    words = f"{in_full(factor)} times" if factor < 1e6 else "more than a million times"
    return f"{words} as probable{f' (plus {in_full(delta, 6)})' if delta else ''}"


def in_full(value: float, digits: int = 3) -> str:
    """Rounded up, and small numbers without an exponent."""
    text = rounded_up(value, digits)
    return f"{Decimal(text):f}" if 1e-8 <= value < 1e-3 else text


def percent(share: float) -> str:
    """A share as text, rounded up to a tenth of a per cent; a NaN is 100 %."""
    if not share < 1:
        return "100\u00a0%"  # on one line
    return f"{math.ceil(max(share, 0.0) * 1000 - 1e-9) / 10:g}\u00a0%"


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _up(share: float) -> float:
    """Between 0 and 1, and not smaller for having been computed."""
    return min(1.0, max(0.0, share * (1 + SLACK) + SLACK)) if share == share else 1.0
