"""A durable privacy ledger: what one agent may spend, has spent, and has answered.

One SQLite file per agent, in WAL mode with full synchronisation: an entry is on the disk before
``charge`` or a durable ``store`` returns. Entries (``ledger_entries.py``) are only ever added,
and each holds a hash over itself and the one before, so that a changed, removed or reordered entry
shows, unless it was the last.

Spending is composed over all charges of all runs (``accounting``), whatever was answered. Whoever
can write the file can forge all of it, hashes included, or take the last entries away. Whoever
remembers an earlier ``head`` notices (``holds``), and so does a run in progress, as the server
knows the digest of the last reply.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.errors import (
    EPSILONS,
    CorruptFile,
    InvalidInput,
    LedgerFailure,
    Refused,
    digits,
    positive,
    probability,
)
from tacit.html import never_raises
from tacit.privacy.accounting import Guarantee, rounded_up
from tacit.privacy.ledger_entries import USES_PAYMENT, Answer, Entry, Payment, create, fresh_owner
from tacit.privacy.ledger_file import LedgerFile
from tacit.privacy.mechanisms import Laplace, Mechanism
from tacit.privacy.spending import Limit, Spend, Terms, canonical, most_updates


class Ledger(LedgerFile):
    """An open ledger. Several processes may have the same one open."""

    STATE = (*LedgerFile.STATE, "_spend", "_limits", "_first", "_terms")

    def __init__(self, path: str | Path) -> None:
        """Open an existing ledger and check all of it; ``Ledger.create`` makes a new one."""
        self._spend = Spend()
        self._limits: tuple[Limit, ...] = ()
        self._terms: dict[str, Terms] = {}
        self._first: Terms | None = None  # of the first run that was charged
        self._most: tuple[Any, int] = None, 0
        super().__init__(path)
        if not self._limits:
            raise CorruptFile(f"Expected a budget in the ledger {path}, found none.")

    @classmethod
    def create(cls, path: str | Path, total_epsilon: float, total_delta: float) -> Ledger:
        """A new ledger with a budget. An existing file is never touched."""
        budget = _budget(total_epsilon, total_delta)
        try:
            create(Path(path), canonical(asdict(budget)))
        except (sqlite3.Error, OSError) as error:
            raise LedgerFailure(f"Expected to write a ledger at {path}: {error}.") from None
        return cls(path)

    # --- what is in it --------------------------------------------------------------------

    @property
    def budget(self) -> Guarantee:
        self.refresh()
        return self._budget

    @property
    def budgets(self) -> tuple[Limit, ...]:
        """Every budget that there was, in order, the last in force; those set again but once."""
        self.refresh()
        return self._limits

    @property
    def spent(self) -> Guarantee:
        """The total of all charges, at the budget's delta."""
        budget = self.budget
        return Guarantee(self._spend.epsilon(budget.delta), budget.delta)

    @property
    def head(self) -> str:
        """The hash of the last entry: of the whole past."""
        self.refresh()
        return self._head.hex()

    @property
    def left(self) -> float | None:
        """The epsilon of the largest further Gaussian run that fits; None where not a formula."""
        budget = self.budget
        return self._spend.room(budget)

    @property
    def entries(self) -> int:
        self.refresh()
        return self._seen

    @property
    def agent(self) -> str | None:
        """Who has paid from it, and alone may; None as long as nobody has."""
        self.refresh()
        return None if self._first is None else self._first.agent

    @property
    def run_names(self) -> tuple[str, ...]:
        """In the order in which runs were agreed."""
        self.refresh()
        return tuple(self._terms)

    def affords(self, *parts: tuple[Mechanism, int]) -> bool:
        """Whether these mechanisms, each so many times, would fit; costs nothing."""
        budget, spend = self.budget, self._spend
        for mechanism, n in parts:
            spend = Spend(spend.updates + Counter({(mechanism, 0.0): n}))
        return spend.within(budget)

    def holds(self, head: str) -> bool:
        """Whether an entry with this hash (or its beginning) is in the past of the ledger."""
        query = "SELECT COUNT(*) FROM entries WHERE substr(lower(hex(chain)), 1, ?) = ?"
        with self._reading():
            found = self._db.execute(query, (len(head), head.lower())).fetchone()[0]
        return len(head) >= 8 and found > 0

    def terms(self, run: str) -> Terms | None:
        self.refresh()
        return self._terms.get(run)

    def charged(self, run: str) -> list[tuple[int, int]]:
        """The blocks of rounds that were paid for."""
        query = "SELECT first, last FROM entries WHERE kind = 'charge' AND run = ? ORDER BY serial"
        with self._reading():
            return [tuple(row) for row in self._db.execute(query, (run,))]

    def answer(self, run: str, round: int | None = None) -> Answer | None:
        """The stored answer to a round; by default to the last."""
        which = "AND first = ?" if round is not None else ""
        query = (
            "SELECT first, digest, reply, state FROM entries WHERE kind = 'answer' AND run = ? "
            f"{which} ORDER BY first DESC LIMIT 1"
        )
        with self._reading():
            row = self._db.execute(query, (run,) if round is None else (run, round)).fetchone()
        return Answer(*row) if row else None

    def failures(self, run: str, round: int) -> int:
        """How often the computation of a round has failed."""
        query = "SELECT COUNT(*) FROM entries WHERE kind = 'failed' AND run = ? AND first = ?"
        with self._reading():
            return int(self._db.execute(query, (run, round)).fetchone()[0])

    def runs(self) -> list[dict[str, Any]]:
        """A summary of every run, in the order they began."""
        self.refresh()
        query = (
            "SELECT MIN(time), MAX(time), SUM((kind = 'charge') * (last - first + 1)), "
            "SUM(kind = 'answer') FROM entries WHERE run = ?"
        )
        rows = []
        for run, terms in self._terms.items():
            with self._reading():
                began, last, rounds, answers = self._db.execute(query, (run,)).fetchone()
            alone = Spend().plus(terms, rounds * terms.local_updates)
            rows.append(
                {
                    "run": run,
                    "began": began,
                    "last": last,
                    "mechanism": terms.mechanism.to_dict(),
                    "noise": terms.noise,
                    "neighbours": terms.neighbours,
                    "local_updates": terms.local_updates,
                    "rounds_agreed": terms.rounds,
                    "rounds_charged": rounds,
                    "rounds_answered": answers,
                    "read_once": terms.released_as(run),
                    "epsilon": alone.epsilon(self.budget.delta) if rounds else 0.0,
                }
            )
        return rows

    # --- what is added --------------------------------------------------------------------

    def set_budget(self, total_epsilon: float, total_delta: float) -> None:
        """Another budget from now on. What was spent stays spent."""
        budget = _budget(total_epsilon, total_delta)
        with self._writing():
            self._add("budget", event=canonical(asdict(budget)))

    def begin(self, run: str, terms: Terms) -> None:
        """Agree to a run, once; refused if all of it would not fit the budget. Costs nothing."""
        if type(run) is not str:
            raise InvalidInput(f"Expected a run's name as text, got {type(run).__name__}.")
        with self._writing():
            if (known := self._terms.get(run)) is not None:
                if known != terms:
                    raise Refused(
                        f"Run {run!r} was agreed on other terms; nothing was charged. A run's "
                        "settings, bounds, numbers of coordinates and noise cannot change."
                    )
                return
            self._refuse_beyond_budget(run, terms, terms.rounds)
            self._add("run", run, event=terms.to_json())

    def charge(self, run: str, first: int, last: int) -> Payment:
        """Pay for rounds first..last of a run, durably, or refuse.

        Guarantee: when this returns, the entry is on the disk, and all charges together are within
        the budget. If it raises, nothing was charged, or (a failing disk) it may have been.
        """
        if type(first) is not int or type(last) is not int:
            raise InvalidInput("Expected rounds as whole numbers. Nothing was charged.")
        with self._writing():
            terms = self._terms.get(run)
            if terms is None:
                raise Refused(f"Run {run!r} was not agreed; nothing was charged.")
            if not 1 <= first <= last <= terms.rounds:
                raise Refused(
                    f"Expected rounds between 1 and {terms.rounds} of run {run!r}, got "
                    f"{first} to {last}; nothing was charged."
                )
            self._refuse_beyond_budget(run, terms, last - first + 1)
            payment = Payment(run, first, last, self._seen + 1, fresh_owner())
            self._add("charge", run, first, last, owner=payment.owner, payment=payment.serial)
        return payment

    def open_payment(self, run: str, round: int) -> int | None:
        """The first charge for this round alone out of which nothing was shown."""
        query = (
            "SELECT serial FROM entries AS c WHERE kind = 'charge' AND payment = serial AND "
            "run = ? AND first = ? AND last = ? AND NOT EXISTS (SELECT 1 FROM entries WHERE "
            f"payment = c.serial AND first = ? AND {USES_PAYMENT}) ORDER BY serial LIMIT 1"
        )
        with self._reading():
            row = self._db.execute(query, (run, round, round, round)).fetchone()
        return int(row[0]) if row else None

    def take_over(self, run: str, round: int) -> Payment | None:
        """The payment of a round, left open by whoever made it, for the caller alone from now on.

        Durable. Whoever held it can no longer show anything for it. None if nothing is open.
        """
        if self.open_payment(run, round) is None:
            return None
        with self._writing():
            if (serial := self.open_payment(run, round)) is None:
                return None
            payment = Payment(run, round, round, serial, fresh_owner())
            self._add("claim", run, round, round, owner=payment.owner, payment=serial)
        return payment

    def store(
        self,
        payment: Payment,
        round: int,
        request: str,
        reply: bytes,
        state: bytes,
        durable: bool = True,
    ) -> bool:
        """Keep an answer before it is released; False if the round has one already.

        Refused, and nothing kept, if the payment is no longer the caller's to use.
        Not ``durable``: it survives the end of this process, not a failure of power.
        """
        with self._writing(durable):
            if self.answer(payment.run, round) is not None:
                return False
            used = self._use(payment, round)
            self._add("answer", *used, request, reply=reply, state=state, **_paid_by(payment))
        return True

    def fail(self, payment: Payment, round: int) -> bool:
        """Note that a computation failed, before that shows: its payment is used up.

        False, and nothing noted, if the round has an answer: that one is to be shown. Refused, and
        nothing noted, if the payment is no longer the caller's to use: nothing may be shown.
        """
        with self._writing():
            if self.answer(payment.run, round) is not None:
                return False
            self._add("failed", *self._use(payment, round), **_paid_by(payment))
        return True

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, budget {self._budget}, {self._seen} entries)"

    @never_raises
    def _repr_html_(self) -> str:
        from tacit.privacy.jupyter import ledger_html

        return ledger_html(self)

    # --- inside ---------------------------------------------------------------------------

    @property
    def _budget(self) -> Guarantee:
        return Guarantee(*self._limits[-1][1:])

    def _use(self, payment: Payment, round: int) -> tuple[str, int, int]:
        """Run and round, if something may be shown for them out of a payment; within a transaction.

        Refused alike for answers and failures, so that a refusal tells nothing of either.
        """
        run, terms = payment.run, self._terms.get(payment.run)
        holder = (
            "SELECT first, last, owner, (SELECT owner FROM entries WHERE payment = c.serial AND "
            "kind = 'claim' ORDER BY serial DESC LIMIT 1) FROM entries AS c "
            "WHERE serial = ? AND kind = 'charge' AND run = ?"
        )
        found = self._db.execute(holder, (payment.serial, run)).fetchone()
        first, last, payer, claimant = found or (0, 0, "", None)
        used = f"SELECT COUNT(*) FROM entries WHERE payment = ? AND first = ? AND {USES_PAYMENT}"
        mine = payment.owner and payment.owner == (claimant or payer)
        if (
            terms is None
            or not mine
            or not first <= round <= last
            or self._db.execute(used, (payment.serial, round)).fetchone()[0]
        ):
            raise Refused(
                f"Round {round} of run {run!r} is paid for, but another process of the agent has "
                "taken the payment over or used it. Nothing of this round was released here."
            )
        if terms.noise == "seeded" and self.failures(run, round):
            raise Refused(
                f"Round {round} of run {run!r} failed in another process of agent "
                f"{terms.agent!r}, and its seed would repeat the noise. Nothing of this round was "
                "released here."
            )
        return run, round, round

    def _refuse_beyond_budget(self, run: str, terms: Terms, rounds: int) -> None:
        """Refuse if so many more rounds would not fit the budget."""
        budget, spend = self._budget, self._spend
        if (first := self._first) is not None and first.agent != terms.agent:
            raise Refused(
                f"This is the ledger of agent {first.agent!r}; agent {terms.agent!r} cannot pay "
                "from it. Nothing was charged."
            )
        if first is not None and first.neighbours != terms.neighbours:
            raise Refused(
                f"This ledger counts what is spent on hiding {first.neighbours!r}; run {run!r} "
                f"hides {terms.neighbours!r}, which cannot be added to it. Nothing was charged; "
                "use another ledger."
            )
        after = spend.plus(terms, rounds * terms.local_updates)
        if after.slow:  # find once how many updates fit, then only compare
            mine = terms.mechanism, terms.distance
            about = budget, terms, {k: n for k, n in spend.updates.items() if k != mine}
            if self._most[0] != about or after.updates[mine] > self._most[1]:
                self._most = about, most_updates(spend, terms, budget)
            fits = after.updates[mine] <= self._most[1]
        else:
            fits = after.within(budget)
        if fits:
            return
        if budget.delta == 0 and not isinstance(terms.mechanism, Laplace):
            raise Refused(
                f"Run {run!r} has {terms.mechanism.name} noise, which a budget of delta 0 cannot "
                "pay for. Nothing was charged."
            )
        paid = sum(last - first + 1 for first, last in self.charged(run))
        more, which = (
            f"{rounds} more rounds of run {run!r}",
            f"; {paid} rounds of this run are paid",
        )
        if terms.released_as(run):
            more, which = "one more reading of its data", ""
        raise Refused(
            f"Agent {terms.agent!r}: {more} would bring its total to epsilon "
            f"{rounded_up(after.epsilon(budget.delta), 6)} at delta {digits(budget.delta)}, beyond "
            f"the budget of {digits(budget.epsilon)} (spent: "
            f"{rounded_up(spend.epsilon(budget.delta), 6)}{which}). Nothing was charged for it, "
            "and nothing of it computed or released."
        )

    def _apply(self, row: Entry) -> None:
        if row.kind == "budget":
            event = json.loads(row.event)
            budget = _budget(event["epsilon"], event["delta"])
            limit = Limit(row.time, budget.epsilon, budget.delta)
            if not self._limits or self._limits[-1][1:] != limit[1:]:
                self._limits += (limit,)
        elif row.kind == "run":
            self._terms[row.run] = Terms.from_json(row.event)
        elif row.kind == "charge":
            terms = self._terms[row.run]
            self._first = self._first or terms
            self._spend = self._spend.plus(terms, (row.last - row.first + 1) * terms.local_updates)


def _budget(total_epsilon: float, total_delta: float) -> Guarantee:
    delta = 0.0 if total_delta == 0 else probability("total_delta", total_delta)
    return Guarantee(positive("total_epsilon", total_epsilon, EPSILONS), delta)


def _paid_by(payment: Payment) -> dict[str, Any]:
    return {"owner": payment.owner, "payment": payment.serial}
