"""A party's ledger, which agrees to nothing beyond the party's own limits.

Agents and readers agree to a run in one place, ``Ledger.begin``, before anything is paid or read.
There the terms are compared with the limits: whatever a coordinator sends, the comparison is of
what the agent itself is about to spend.
"""

from __future__ import annotations

from tacit.errors import InvalidInput, Refused, digits
from tacit.privacy.accounting import Guarantee, rounded_up
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger_entries import Entry
from tacit.privacy.spending import Spend, Terms
from tacit.studies.party_file import Limits, PartyFile


class Disagrees(Refused):
    """A party's own limits forbid what was proposed. ``point`` is all that it tells others."""

    def __init__(self, point: str, words: str) -> None:
        super().__init__(words)
        self.point = point


class LimitedLedger(Ledger):
    """The ledger of a party in one study.

    Guarantee: no run begins whose total cost exceeds ``limits``, or whose noise is not secure (but
    in a rehearsal that the party allows). Nor does one come to cost more: a round that fails is
    paid again, within the same limits. All runs together stay within the ledger's own budget. What
    a run hides is that of the party's problem, which ``Study.problem_of`` compares with ``hides``.
    """

    STATE = (*Ledger.STATE, "_paid")

    def __init__(self, party: PartyFile, seeded: bool = False) -> None:
        self.limits, self._noise = party.limits, "seeded" if seeded else "secure"
        self._paid: dict[str, int] = {}  # rounds of each run
        if seeded and not party.rehearsal:
            raise InvalidInput(
                f"Expected rehearsal = true in {party.path} for seeded noise. Nothing was sent."
            )
        super().__init__(party.ledger)

    def begin(self, run: str, terms: Terms) -> None:
        self.compare(run, terms)
        super().begin(run, terms)

    def compare(self, run: str, terms: Terms) -> None:
        """Raise ``Disagrees`` where the terms of a run, begun or not, are beyond the limits."""
        compare(self.limits, run, terms, self._noise)

    def _refuse_beyond_budget(self, run: str, terms: Terms, rounds: int) -> None:
        """In the transaction of every charge: what others paid meanwhile is counted."""
        after = self._paid.get(run, 0) + rounds
        if after > terms.rounds:
            refuse_beyond(self.limits, run, terms, after)
        super()._refuse_beyond_budget(run, terms, rounds)

    def _apply(self, row: Entry) -> None:
        super()._apply(row)
        if row.kind == "charge":
            paid = self._paid.get(row.run, 0) + row.last - row.first + 1
            self._paid = {**self._paid, row.run: paid}


def compare(limits: Limits, run: str, terms: Terms, noise: str) -> None:
    """Raise ``Disagrees`` where the terms of a run are beyond the limits; it names the first."""
    if limits.rounds is not None and terms.rounds > limits.rounds:
        raise Disagrees(
            "rounds",
            f"Expected at most {limits.rounds} rounds, as [limits] says, got {terms.rounds} in run "
            f"{run!r}. Nothing was charged.",
        )
    if terms.noise != noise:
        raise Disagrees(
            "noise",
            f"Expected {noise} noise, got {terms.noise} in run {run!r}. Nothing was charged.",
        )
    refuse_beyond(limits, run, terms, terms.rounds)


def refuse_beyond(limits: Limits, run: str, terms: Terms, rounds: int) -> None:
    """Raise ``Disagrees`` where so many rounds of a run cost more than the limits."""
    budget = Guarantee(limits.total_epsilon, limits.total_delta)
    cost = Spend().plus(terms, rounds * terms.local_updates)
    if not cost.within(budget):
        raise Disagrees(
            "budget",
            f"Expected a total epsilon of at most {digits(budget.epsilon)} at delta "
            f"{digits(budget.delta)}, as [limits] says; {rounds} rounds of run {run!r} would cost "
            f"{rounded_up(cost.epsilon(budget.delta), 6)}. Nothing was charged.",
        )
