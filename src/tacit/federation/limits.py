"""A party's ledger, which agrees to nothing beyond the party's own limits.

Agents and readers agree to a run in one place, ``Ledger.begin``, before anything is paid or read.
There the terms are compared with the limits: whatever a coordinator sends, the comparison is of
what the agent itself is about to spend.
"""

from __future__ import annotations

from tacit.errors import InvalidInput, Refused
from tacit.federation.party_file import Limits, PartyFile
from tacit.privacy.accounting import Guarantee, rounded_up
from tacit.privacy.ledger import Ledger
from tacit.privacy.spending import Spend, Terms


class Disagrees(Refused):
    """A party's own limits forbid what was proposed. ``point`` is all that it tells others."""

    def __init__(self, point: str, words: str) -> None:
        super().__init__(words)
        self.point = point


class LimitedLedger(Ledger):
    """The ledger of a party in one study.

    Guarantee: no run begins whose total cost exceeds ``limits``, whose noise is not secure (but in
    a rehearsal that the party allows), or that hides something else than the party says. All runs
    together stay within the ledger's own budget.
    """

    def __init__(self, party: PartyFile, seeded: bool = False) -> None:
        self.limits, self._seeded = party.limits, seeded
        if seeded and not party.rehearsal:
            raise InvalidInput(
                f"Expected rehearsal = true in {party.path} for seeded noise. Nothing was sent."
            )
        super().__init__(party.ledger)

    def begin(self, run: str, terms: Terms) -> None:
        compare(self.limits, run, terms, "seeded" if self._seeded else "secure")
        super().begin(run, terms)


def compare(limits: Limits, run: str, terms: Terms, noise: str) -> None:
    """Raise ``Disagrees`` where the terms of a run are beyond the limits; it names the first."""
    budget = Guarantee(limits.total_epsilon, limits.total_delta)
    if limits.rounds is not None and terms.rounds > limits.rounds:
        raise Disagrees(
            "rounds",
            f"Expected at most {limits.rounds} rounds, as [limits] says, got {terms.rounds} in run "
            f"{run!r}. Nothing was charged.",
        )
    hidden = terms.neighbours  # in words, and for some a digest of what they leave out
    if limits.hides not in (None, hidden) and not hidden.startswith(f"{limits.hides} ("):
        raise Disagrees(
            "neighbours",
            f"Expected a run that hides {limits.hides!r}, as [limits] says; run {run!r} hides "
            f"{terms.neighbours!r}. Nothing was charged.",
        )
    if terms.noise != noise:
        raise Disagrees(
            "noise",
            f"Expected {noise} noise, got {terms.noise} in run {run!r}. Nothing was charged.",
        )
    cost = Spend().plus(terms, terms.rounds * terms.local_updates)
    if not cost.within(budget):
        raise Disagrees(
            "budget",
            f"Expected a total epsilon of at most {budget.epsilon:g} at delta {budget.delta:g}, as "
            f"[limits] says; run {run!r} would cost "
            f"{rounded_up(cost.epsilon(budget.delta), 6)}. Nothing was charged.",
        )
