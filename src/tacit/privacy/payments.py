"""Who may show a noisy computation: payments that are owned, used once, and can be taken over.

Several processes may answer for one agent out of one ledger, and each may be killed or fail at any
moment. What a process *shows* is a reply, or that a computation failed (which depends on the data).

Guarantee: for every round of a run, the noisy computations ever shown, by all processes of the
agent together, are at most the charges that cover the round; of seeded noise, at most one.

Proof. 1. *Shown means used.* A reply leaves only after ``Ledger.store`` has added it as the
round's ``answer``, or is read from that entry; a round has one answer (a unique index), so all
replies to it are one computation. A failure leaves only after ``Ledger.fail`` has added a
``failed`` entry, one for each. Both entries name a payment: the serial number of a charge that
covers the round.
2. *Used once.* No two such entries name the same payment and round: ``Ledger._use`` looks in the
transaction that adds the entry, transactions are serialised by SQLite's lock, and a unique index
holds it besides. So entries, and what is shown, map one to one into the charges of the round.
3. *Whose it is does not matter to the count*, but taking over must not make a process show what it
has no entry for. A ``claim`` gives a payment to a new owner in a transaction that finds it unused.
From that entry on ``_use`` refuses the old owner. It then shows a refusal, the same whether its
computation succeeded or failed, and pays anew when it is asked again.
4. *After a failure of power.* Charges, claims, answers and failures are on the disk before anything
is shown, so an unused payment in the file was not used.
5. *Seeded noise* of a round is the same in every process. ``_use`` refuses a second failure and an
answer after a failure; ``store`` and ``fail`` give way to an answer.

Nothing here is about liveness of processes: the proof holds if the one taken over is still at work.
What version 0.1.0 wrote is counted and never used again (``ledger.upgrade``).
A process takes over at most once, for its first payment, so that two cannot do it in turns for
ever. A refusal, a failing disk and a killed process are visible too; they are not counted, as they
are caused by the other process, the disk and the killer.
"""

from __future__ import annotations

from tacit.errors import Refused
from tacit.privacy.ledger import Ledger, Payment


class Payments:
    """What one process holds of the payments of its agent's run, each for one round."""

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger, self._run = ledger, run
        self._held: Payment | None = None
        self._may_inherit = True

    def pay(self, t: int) -> bool:
        """See to it that round t is paid for, durably; False if it has an answer already."""
        ledger, run = self._ledger, self._run
        if self._held is not None and self._held.covers(run, t):
            return True
        if ledger.answer(run, t) is not None:
            return False
        terms = ledger.terms(run)
        if terms is not None and terms.noise == "seeded" and ledger.failures(run, t):
            raise Refused(
                f"Agent {terms.agent!r} failed in round {t}, and its seed would repeat the noise. "
                "Nothing was computed."
            )
        left = ledger.take_over(run, t) if self._may_inherit else None
        self._held = left or ledger.charge(run, t, t)
        self._may_inherit = False
        return True

    def store(self, t: int, request: str, reply: bytes, state: bytes) -> bool:
        """Keep the answer to round t; False if there is one already, which counts."""
        try:
            assert self._held is not None
            return self._ledger.store(self._held, t, request, reply, state)
        except Refused:
            self._held = None
            raise

    def fail(self, t: int) -> bool:
        """Note that round t failed; False if it has an answer, which is to be shown instead."""
        assert self._held is not None
        held, self._held = self._held, None
        return self._ledger.fail(held, t)
