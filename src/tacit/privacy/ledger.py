"""A durable privacy ledger: what an agent has spent and answered; it refuses what is too much.

One SQLite file per agent, in WAL mode with full synchronisation: an entry is on the disk before
``charge`` or ``store`` returns. Entries are only ever added, and each holds a hash over
itself and the one before, so that a changed, removed or reordered entry shows, unless it was the
last.

    kind     what it says
    budget   the agent's own total (epsilon, delta), from now on
    run      the terms of a run: agent, mechanism, rounds, local updates, what it hides, ...
    charge   rounds first..last of a run are paid for, by ``owner``
    claim    the payment is ``owner``'s from now on, and no longer that of who had it
    answer   round ``first`` was answered out of ``payment``: digest of the request, and the reply
    failed   the computation of round ``first``, paid by ``payment``, failed

``payment`` is the serial number of a charge; ``Payments`` has the rules of who may use one.

Spending is composed over all charges of all runs (``accounting``), whatever was answered. Whoever
can write the file can forge all of it, hashes included, or take the last entries away. Whoever
remembers an earlier ``head`` notices (``holds``), and so does a run in progress, as the server
knows the digest of the last reply.

Who may show a noisy computation: payments that are owned, used once, and can be taken over.

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

import copy
import hashlib
import json
import math
import os
import secrets
import shlex
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from tacit import html
from tacit.errors import (
    EPSILONS,
    NOT_DONE,
    CorruptFile,
    InvalidInput,
    LedgerFailure,
    Refused,
    TacitError,
    digits,
    positive,
    probability,
)
from tacit.files import mount_points, open_private, sync_file, sync_folder, typed
from tacit.privacy.accounting import Guarantee, delta_of, epsilon_of, rounded_down, rounded_up
from tacit.privacy.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    gaussian_epsilon,
    mechanism_from,
    share_of,
)

RESTS = ("", "-wal", "-shm")  # what SQLite adds to a file's name
APPLICATION_ID = 0x7AC17  # in the file's header, so that no other database is taken for a ledger
SCHEMA_VERSION = 2
USES_PAYMENT = "kind IN ('answer', 'failed')"  # what uses up a payment for its round
SCHEMA = f"""
CREATE TABLE entries (
    serial INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, digest TEXT NOT NULL, event TEXT NOT NULL,
    owner TEXT NOT NULL, payment INTEGER NOT NULL, reply BLOB, state BLOB, chain BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_answer ON entries (run, first) WHERE kind = 'answer';
CREATE UNIQUE INDEX one_run ON entries (run) WHERE kind = 'run';
CREATE UNIQUE INDEX one_use ON entries (payment, first) WHERE {USES_PAYMENT};
CREATE INDEX claims ON entries (payment) WHERE kind = 'claim';
CREATE INDEX failures ON entries (run, first) WHERE kind = 'failed';
"""


class Limit(NamedTuple):
    """What an agent may spend in all, from the time ``when`` (UTC) on."""

    when: str
    epsilon: float
    delta: float


def changed(before: Limit, now: Limit) -> str:
    """In words: more of either number is a raise."""
    if (more := now.epsilon > before.epsilon or now.delta > before.delta) == (
        now.epsilon < before.epsilon or now.delta < before.delta
    ):
        return "changed"
    return "raised" if more else "lowered"


@dataclass(frozen=True)
class Terms:
    """What an agent agrees to at the start of a run."""

    agent: str
    mechanism: Mechanism
    rounds: int
    local_updates: int
    distance: float  # of one update of discrete noise from continuous, see secure_noise.py
    noise: str  # "secure" or "seeded"
    neighbours: str  # what is hidden; totals make sense only if it is the same in all runs
    settings: str  # digest of all that is public in the run
    parties: int = 1  # of a secure sum, and how many of them may collude: ``mechanism`` is the
    colluding: int = 0  # noise that the others add together

    @property
    def alone(self) -> tuple[Mechanism, float]:
        """The agent's own noise, which counts on nobody, and its distance."""
        if (shares := self.parties - self.colluding) == 1:
            return self.mechanism, self.distance
        assert isinstance(self.mechanism, Gaussian)
        return share_of(self.mechanism, shares), self.distance * shares

    def release(self, n: int) -> str:
        """The run's name of the n-th release on these terms: one for every state of the data."""
        return f"release-{self.settings[:12]}-{n}"

    def released_as(self, run: str) -> bool:
        """Whether a run is a release: one charge, and no rounds."""
        return self.rounds == 1 and run.startswith(self.release(0)[:-1])

    def to_json(self) -> str:
        data = {**asdict(self), "mechanism": self.mechanism.to_dict()}
        data["slack"] = data.pop("distance")  # as ledgers have always had it
        if self.parties == 1:
            del data["parties"], data["colluding"]
        return canonical(data)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        data = json.loads(text)
        data["distance"] = data.pop("slack")
        return typed(cls(**{**data, "mechanism": mechanism_from(data["mechanism"])}))


class Spend:
    """Charges so far, merged: as many numbers as there are different mechanisms and distances.

    ``alone``: of the agent's own noise, where others add to it in secure sums; what it spends
    whatever they do.
    """

    def __init__(
        self, updates: Counter[tuple[Mechanism, float]] | None = None, alone: Spend | None = None
    ) -> None:
        self.updates = updates or Counter()
        self._alone = alone

    @property
    def alone(self) -> Spend:
        return self._alone or self

    def plus(self, terms: Terms, updates: int) -> Spend:
        more = self.updates + Counter({(terms.mechanism, terms.distance): updates})
        if self._alone is None and terms.parties == 1:
            return Spend(more)
        return Spend(more, Spend(self.alone.updates + Counter({terms.alone: updates})))

    def and_then(self, parts: Iterable[tuple[Mechanism, int]]) -> Spend:
        """With what is planned, each mechanism with its count."""
        more: Counter[tuple[Mechanism, float]] = Counter()
        for mechanism, n in parts:
            more[mechanism, 0.0] += n
        alone = None if self._alone is None else self._alone.and_then(parts)
        return Spend(self.updates + more, alone)

    @property
    def parts(self) -> list[tuple[Mechanism, int]]:
        return [(mechanism, n) for (mechanism, _), n in self.updates.items()]

    @property
    def distance(self) -> float:
        return math.fsum(distance * n for (_, distance), n in self.updates.items())

    def within(self, budget: Guarantee) -> bool:
        if self.updates and budget.delta > 0:  # one formula; too strict for some discrete noise
            if delta_of(self.parts, budget.epsilon, self.distance) <= budget.delta:
                return True
            if self.distance == 0:
                return False
        return self.epsilon(budget.delta) <= budget.epsilon

    def room(self, budget: Guarantee) -> float | None:
        """The epsilon, at the budget's delta, of the largest further Gaussian run that fits.

        None where that takes more than a formula.
        """
        if budget.delta == 0 or any(isinstance(mechanism, Laplace) for mechanism, _ in self.parts):
            return None
        square = sum(n / m.noise_multiplier**2 for m, n in self.parts if isinstance(m, Gaussian))
        most = Gaussian.analytic(budget.epsilon, budget.delta).noise_multiplier ** -2
        left = math.sqrt(max(0.0, most - square)) * (1 - 1e-6)
        return gaussian_epsilon(left, budget.delta) if left > 0 else 0.0

    def epsilon(self, delta: float) -> float:
        if not self.updates:
            return 0.0
        if delta == 0 and not all(isinstance(m, Laplace) for m, _ in self.parts):
            return math.inf
        return epsilon_of(self.parts, delta, self.distance)


def canonical(data: Any) -> str:
    """JSON that is the same for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


# --- entries -----------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A row. ``chain`` is a hash over the row before and everything in this one."""

    serial: int = 0
    time: str = ""
    kind: str = ""
    run: str = ""
    first: int = 0
    last: int = 0
    digest: str = ""
    event: str = "{}"
    owner: str = ""
    payment: int = 0
    reply: bytes | None = None
    state: bytes | None = None
    chain: bytes = bytes(32)

    def sealed(self, head: bytes) -> Entry:
        """With the hash that follows ``head``."""
        *plain, reply, state, _ = self
        if not self.owner and self.payment == -self.serial:  # of schema 1: it had neither
            plain = plain[:-2]
        blobs = [hashlib.sha256(b).hexdigest() if b is not None else None for b in (reply, state)]
        said = canonical([*plain, *blobs])
        return self._replace(chain=hashlib.sha256(head + said.encode()).digest())


COLUMNS = ", ".join(Entry._fields)
INSERT = f"INSERT INTO entries ({COLUMNS}) VALUES ({', '.join('?' * len(Entry._fields))})"


@dataclass(frozen=True)
class Answer:
    """A stored reply. ``state`` is the agent's own and stays there."""

    round: int
    request: str
    reply: bytes
    state: bytes


class Payment(NamedTuple):
    """The right to show one noisy computation for each of the rounds first..last of a run.

    It is a right only as long as the ledger says that ``owner`` holds the charge ``serial``.
    """

    run: str
    first: int
    last: int
    serial: int
    owner: str

    def covers(self, run: str, round: int) -> bool:
        return self.run == run and self.first <= round <= self.last


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


READ_SCHEMA = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"


@cache
def schema(text: str = SCHEMA) -> tuple[Any, ...]:
    """What SQLite says a ledger is made of."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(text)
        return tuple(db.execute(READ_SCHEMA))


def unsound(words: str) -> CorruptFile:
    return CorruptFile(
        f"{words} Nothing was released. Do not start afresh: restore a backup, and lower its "
        "budget by what was spent since."
    )


class Ledger:
    """An open ledger. Several processes may have the same one open.

    Guarantee: what is added within ``_writing`` is added whole or not at all, in a transaction
    that sees all entries of other processes and is alone with the file. What is in memory follows
    the disk, also where a transaction fails.
    """

    # what follows from the entries
    STATE: ClassVar[tuple[str, ...]] = ("_seen", "_head", "_spend", "_limits", "_first", "_terms")

    def __init__(self, path: str | Path) -> None:
        """Open an existing ledger and check all of it; ``Ledger.create`` makes a new one."""
        self.path = Path(path)
        self._spend = Spend()
        self._limits: tuple[Limit, ...] = ()
        self._terms: dict[str, Terms] = {}
        self._first: Terms | None = None  # of the first run that was charged
        if os.path.isdir(path):
            raise InvalidInput(f"Expected a ledger at {path}, got a folder. {NOT_DONE}")
        if not os.path.isfile(path):  # also of a name that no file can have
            raise InvalidInput(
                f"Expected a ledger at {path}, found none. Make one with: tacit ledger budget "
                f"{shlex.quote(str(path))} --total-epsilon E --total-delta D. If there was "
                f"one, bring it back: a new one forgets what is spent. {NOT_DONE}"
            )
        self._lock, self._process = threading.RLock(), os.getpid()
        self._seen, self._head = 0, bytes(32)
        self._place = os.path.realpath(self.path)  # where SQLite looks for -wal and -shm
        self._file, self._schema = self._only_name(), -1
        if mounted := {self._place + rest for rest in RESTS} & mount_points():
            raise CorruptFile(
                f"Expected a folder that is mounted, got {min(mounted)} mounted by itself: charges "
                f"under its other name are not seen here. {NOT_DONE} Mount the ledger's folder."
            )
        with self._reading():
            self._db = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._db.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
            if self._versions() == [APPLICATION_ID, 1]:
                upgrade(self._db, self._catch_up)
            if self._versions() != [APPLICATION_ID, SCHEMA_VERSION]:
                raise unsound(
                    f"Expected a ledger of schema {SCHEMA_VERSION} in {path}, found another or a "
                    "damaged file."
                )
            self._refuse_other_schema()
            if self._value("PRAGMA integrity_check") != "ok":
                raise sqlite3.DatabaseError("the file is damaged")
            self._db.execute("PRAGMA synchronous = FULL")
            if self._value("PRAGMA journal_mode") != "wal":
                raise sqlite3.DatabaseError("it is not in WAL mode")
            self._catch_up()
        if not self._limits:
            raise CorruptFile(f"Expected a budget in the ledger {path}, found none.")

    @classmethod
    def create(cls, path: str | Path, total_epsilon: float, total_delta: float) -> Ledger:
        """A new ledger with a budget. An existing file is never touched."""
        budget = canonical(asdict(_budget(total_epsilon, total_delta)))
        try:
            with new_file(Path(path)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.executescript(f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute(INSERT, Entry(1, now(), "budget", event=budget).sealed(bytes(32)))
                db.execute("COMMIT")
                db.execute("PRAGMA journal_mode = WAL")
        except (sqlite3.Error, OSError) as error:
            raise LedgerFailure(f"Expected to write a ledger at {path}: {error}.") from None
        return cls(path)

    def backup(self, path: str | Path) -> None:
        """A copy as it is now, while it may be in use: whole and on the disk, or none."""
        try:
            with new_file(Path(path)) as copied, self._reading():
                self._db.backup(copied)
        except OSError as error:
            raise LedgerFailure(f"Expected to write a backup at {path}: {error}.") from None

    def refresh(self) -> None:
        """Read what other processes have added."""
        with self._reading():
            self._catch_up()

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        if "_db" in self.__dict__:  # else opening failed
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
    def spent_alone(self) -> Guarantee:
        """The same, counting on the agent's own noise only: more where there were secure sums."""
        budget = self.budget
        return Guarantee(self._spend.alone.epsilon(budget.delta), budget.delta)

    @property
    def head(self) -> str:
        """The hash of the last entry: of the whole past."""
        self.refresh()
        return self._head.hex()

    @property
    def origin(self) -> bytes:
        """The hash of the first entry: a backup has the same, another ledger another."""
        [[first]] = self._rows("SELECT chain FROM entries WHERE serial = 1")
        return bytes(first)

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
        """Whether these mechanisms, each with its count, would fit; costs nothing."""
        budget, spend = self.budget, self._spend
        for mechanism, n in parts:
            spend = Spend(spend.updates + Counter({(mechanism, 0.0): n}))
        return spend.within(budget)

    def holds(self, head: str) -> bool:
        """Whether an entry with this hash (or its beginning) is in the past of the ledger."""
        query = "SELECT COUNT(*) FROM entries WHERE substr(lower(hex(chain)), 1, ?) = ?"
        [[found]] = self._rows(query, len(head), head.lower())
        return len(head) >= 8 and found > 0

    def terms(self, run: str) -> Terms | None:
        self.refresh()
        return self._terms.get(run)

    def charged(self, run: str) -> list[tuple[int, int]]:
        """The blocks of rounds that were paid for."""
        query = "SELECT first, last FROM entries WHERE kind = 'charge' AND run = ? ORDER BY serial"
        return self._rows(query, run)

    def answer(self, run: str, round: int | None = None) -> Answer | None:
        """The stored answer to a round; by default to the last."""
        which = "AND first = ?" if round is not None else ""
        query = (
            "SELECT first, digest, reply, state FROM entries WHERE kind = 'answer' AND run = ? "
            f"{which} ORDER BY first DESC LIMIT 1"
        )
        rows = self._rows(query, *((run,) if round is None else (run, round)))
        return Answer(*rows[0]) if rows else None

    def failures(self, run: str, round: int) -> int:
        """How often the computation of a round has failed."""
        query = "SELECT COUNT(*) FROM entries WHERE kind = 'failed' AND run = ? AND first = ?"
        [[failed]] = self._rows(query, run, round)
        return int(failed)

    def runs(self) -> list[dict[str, Any]]:
        """A summary of every run, in the order they began."""
        self.refresh()
        query = (
            "SELECT MIN(time), MAX(time), SUM((kind = 'charge') * (last - first + 1)), "
            "SUM(kind = 'answer') FROM entries WHERE run = ?"
        )
        rows = []
        for run, terms in self._terms.items():
            [[began, last, rounds, answers]] = self._rows(query, run)
            own = Spend().plus(terms, rounds * terms.local_updates)
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
                    "epsilon": own.epsilon(self.budget.delta) if rounds else 0.0,
                    "epsilon_alone": own.alone.epsilon(self.budget.delta) if rounds else 0.0,
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
                        "settings, bounds, numbers of coordinates and noise cannot change; another "
                        "study needs another name."
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
            payment = Payment(run, first, last, self._seen + 1, secrets.token_hex(8))
            self._add("charge", run, first, last, owner=payment.owner, payment=payment.serial)
        return payment

    def open_payment(self, run: str, round: int) -> int | None:
        """The first charge for this round alone whose answer was never shown."""
        query = (
            "SELECT serial FROM entries AS c WHERE kind = 'charge' AND payment = serial AND "
            "run = ? AND first = ? AND last = ? AND NOT EXISTS (SELECT 1 FROM entries WHERE "
            f"payment = c.serial AND first = ? AND {USES_PAYMENT}) ORDER BY serial LIMIT 1"
        )
        rows = self._rows(query, run, round, round, round)
        return int(rows[0][0]) if rows else None

    def take_over(self, run: str, round: int) -> Payment | None:
        """The payment of a round, left open by whoever made it, for the caller alone from now on.

        Durable. Whoever held it can no longer show anything for it. None if nothing is open.
        """
        with self._writing():
            if (serial := self.open_payment(run, round)) is None:
                return None
            payment = Payment(run, round, round, serial, secrets.token_hex(8))
            self._add("claim", run, round, round, owner=payment.owner, payment=serial)
        return payment

    def store(
        self,
        payment: Payment,
        round: int,
        request: str,
        reply: bytes,
        state: bytes,
    ) -> bool:
        """Keep an answer before it is released; False if the round has one already.

        Refused, and nothing kept, if the payment is no longer the caller's to use.
        """
        kept = {"digest": request, "reply": reply, "state": state}
        return self._use("answer", payment, round, **kept)

    def fail(self, payment: Payment, round: int) -> bool:
        """Note that a computation failed, before that shows: its payment is used up.

        False, and nothing noted, if the round has an answer: that one is to be shown. Refused, and
        nothing noted, if the payment is no longer the caller's to use: nothing may be shown.
        """
        return self._use("failed", payment, round)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, budget {self._budget}, {self._seen} entries)"

    @html.never_raises
    def _repr_html_(self) -> str:
        return ledger_html(self)

    # --- inside ---------------------------------------------------------------------------

    @property
    def _budget(self) -> Guarantee:
        return Guarantee(*self._limits[-1][1:])

    def _use(self, kind: str, payment: Payment, round: int, **shown: Any) -> bool:
        """Note what is shown for a round, out of a payment; False if the round has an answer."""
        with self._writing():
            if self.answer(payment.run, round) is not None:
                return False
            self._refuse_to_use(payment, round)
            about = {"owner": payment.owner, "payment": payment.serial, **shown}
            self._add(kind, payment.run, round, round, **about)
        return True

    def _refuse_to_use(self, payment: Payment, round: int) -> None:
        """Unless something may be shown for the round out of the payment; within a transaction.

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

    def _refuse_beyond_budget(self, run: str, terms: Terms, rounds: int) -> None:
        """Refuse if ``rounds`` more rounds would not fit the budget."""
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
        if after.within(budget):
            return
        if budget.delta == 0 and not isinstance(terms.mechanism, Laplace):
            raise Refused(
                f"Run {run!r} has {terms.mechanism.name} noise, which a budget of delta 0 cannot "
                "pay for. Nothing was charged."
            )
        paid = sum(last - first + 1 for first, last in self.charged(run))
        more = f"{rounds} more rounds of run {run!r}"
        which = f"; {paid} rounds of this run are paid"
        if terms.released_as(run):
            more, which = "one more release of its data", ""
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

    # --- the file --------------------------------------------------------------------------

    def _versions(self) -> list[int]:
        return [self._value(f"PRAGMA {name}") for name in ("application_id", "user_version")]

    def _refuse_other_schema(self) -> None:
        """Triggers, views and other tables could undo what is written."""
        if tuple(self._db.execute(READ_SCHEMA)) != schema():
            raise sqlite3.DatabaseError("its schema is not a ledger's")

    def _refuse_other_file(self) -> None:
        """Another file at the path, or none: then nothing written here would be found again."""
        if (found := self._only_name()) is None or found != self._file:
            raise unsound(f"The ledger {self.path} was replaced, moved or removed while in use.")

    def _only_name(self) -> tuple[int, int] | None:
        """Device and number of the file at the path, if that is its only name: under a second one
        SQLite does not see charges that are in ``-wal`` only, and loses them if both are used."""
        for path in (self._place + rest for rest in RESTS):
            with suppress(FileNotFoundError):
                if (names := os.lstat(path).st_nlink) > 1:
                    raise CorruptFile(
                        f"Expected one name of the file {path}, got {names} hard links: charges "
                        f"under one are not seen under another. {NOT_DONE} Remove the others."
                    )
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        here = os.path.realpath(self.path) == self._place  # else moved, with a link in its place
        return (found.st_dev, found.st_ino) if here else None

    def _add(self, kind: str, *values: Any, **others: Any) -> None:
        """An entry after the last: of a kind, then run, first, last, digest as far as given."""
        row = Entry(self._seen + 1, now(), kind, *values, **others).sealed(self._head)
        self._db.execute(INSERT, row)
        self._seen, self._head = row.serial, row.chain
        self._apply(row)

    def _catch_up(self) -> None:
        """Read and check entries that were not seen yet, after the last that was."""
        if (version := self._value("PRAGMA schema_version")) != self._schema:
            self._refuse_other_schema()
            self._schema = version
        known = "SELECT COUNT(*) FROM entries WHERE serial = ? AND chain = ?"
        if self._seen and not self._db.execute(known, (self._seen, self._head)).fetchone()[0]:
            raise unsound(
                f"Entry {self._seen} of the ledger {self.path} was changed or removed while in use."
            )
        query = f"SELECT {COLUMNS} FROM entries WHERE serial > ? ORDER BY serial"
        for row in map(Entry._make, self._db.execute(query, (self._seen,))):
            if row.serial != self._seen + 1 or row.sealed(self._head) != row:
                raise unsound(
                    f"Entry {row.serial} of the ledger {self.path} was changed, or one before it "
                    "removed."
                )
            self._seen, self._head = row.serial, row.chain
            self._apply(row)

    def _value(self, query: str) -> Any:
        return self._db.execute(query).fetchone()[0]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._reading():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, in the process that opened the file: SQLite survives no fork."""
        if os.getpid() != self._process:
            raise LedgerFailure(
                f"Expected the ledger {self.path} to be used by the process that opened it, got "
                "one forked from it. Open it there. Nothing was released."
            )
        with self._lock:
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._alone():
            try:
                yield
            except sqlite3.OperationalError as error:
                raise LedgerFailure(
                    f"Expected to read the ledger {self.path}: {error}. Nothing was released."
                ) from None
            except (CorruptFile, LedgerFailure):
                raise
            except Exception as error:  # also a number that no ledger has
                raise unsound(f"Expected a sound ledger in {self.path}: {error}.") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, alone with the file: what others added is read first."""
        with self._alone():
            kept = {name: copy.copy(getattr(self, name)) for name in self.STATE}
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._refuse_other_file()
                self._catch_up()
                yield
                self._db.execute("COMMIT")
                self._refuse_other_file()
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self.__dict__.update(kept)
                if isinstance(error, sqlite3.Error):
                    raise LedgerFailure(
                        f"Expected to write the ledger {self.path}: {error}. Nothing was released."
                    ) from None
                raise


@contextmanager
def new_file(path: Path) -> Iterator[sqlite3.Connection]:
    """A database that appears at ``path`` whole and on the disk, or not at all.

    Made beside its place, mode 0600 (SQLite gives it to ``-wal``, ``-shm`` and ``-journal`` too),
    and linked there: no half of a ledger is ever found, and none that is there is replaced.
    """
    if "\0" in str(path) or os.path.lexists(path):
        raise InvalidInput(f"Expected no file at {path}; there is one. Nothing was written.")
    for rest in RESTS[1:]:
        if (left := path.with_name(path.name + rest)).exists():
            raise InvalidInput(
                f"Expected nothing left of another ledger at {path}, found {left.name}: it would "
                "be read into the new one. Nothing was written."
            )
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}.new")
    try:
        open_private(fresh).close()
        db = sqlite3.connect(fresh, isolation_level=None)
        try:
            yield db
        finally:
            db.close()
        sync_file(fresh)
        os.link(fresh, path)
        sync_folder(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def _budget(total_epsilon: float, total_delta: float) -> Guarantee:
    delta = 0.0 if total_delta == 0 else probability("total_delta", total_delta)
    return Guarantee(positive("total_epsilon", total_epsilon, EPSILONS), delta)


# --- what it says, as rows: for ``tacit ledger show`` and for notebooks --------------------------

MOST_RUNS = 20  # that a notebook lists
OF_RUNS = ("run", "began", "noise", "paid for", "answered", "epsilon")  # header of ``rows_of``


def amounts(ledger: Ledger) -> list[tuple[str, str]]:
    """What may be spent, is spent and is left, over all runs: epsilon, at the budget's delta."""
    budget, spent = ledger.budget, ledger.spent
    words, left = "largest further Gaussian run that fits", ledger.left
    if left is None:
        words, left = "left: budget less spent", max(0.0, budget.epsilon - spent.epsilon)
    rows = [
        ("budget", digits(budget.epsilon)),
        ("spent, all runs together", rounded_up(spent.epsilon, 4)),
        (words, rounded_down(left, 4)),
    ]
    if (alone := ledger.spent_alone) != spent:  # there were secure sums
        rows.insert(2, ("spent, whatever other parties do", rounded_up(alone.epsilon, 4)))
    return rows


def rows_of(found: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each of ``Ledger.runs``."""
    return [
        (
            r["run"],
            r["began"][:10],
            f"{r['mechanism']['kind']}, {r['noise']}",
            *_paid(r),
            rounded_up(r["epsilon"], 4),
        )
        for r in found
    ]


def _paid(run: dict[str, Any]) -> tuple[str, str]:
    """What was paid for in a run, and what was answered: rounds, or a release."""
    charges, answers = run["rounds_charged"], run["rounds_answered"]
    if not run["read_once"]:
        return f"{charges} of {run['rounds_agreed']} rounds", str(answers)
    paid = {0: "no release", 1: "one release"}.get(charges, f"{charges} releases")
    return paid, "kept" if answers else "nothing kept"


def ledger_html(ledger: Ledger) -> str:
    title = f"Ledger {html.plain(ledger.path.name)}"
    try:
        rows, few = amounts(ledger), len(ledger.run_names) <= MOST_RUNS
        listed = ledger.runs() if few else []
        more = [("delta", digits(ledger.budget.delta))]
        more.append(("entries", f"{ledger.entries}, all sound; runs: {len(ledger.run_names)}"))
    except TacitError as error:  # it says so in place of numbers of before
        return html.card(title, html.box(f"Cannot be read: {error}", loud=True))
    over = ledger.spent.epsilon > ledger.budget.epsilon
    return html.card(
        title,
        html.box("More is spent than the budget allows.", loud=True) if over else "",
        html.table([*rows, *more, *(("hides", r["neighbours"]) for r in listed[:1])]),
        html.table(rows_of(listed), OF_RUNS) if listed else "",
        html.small("The file is as private as the data: do not publish it."),
    )


# --- ledgers of 0.1.0 -----------------------------------------------------------------------------

SCHEMA_1 = """
CREATE TABLE entries (
    serial INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, digest TEXT NOT NULL, event TEXT NOT NULL,
    reply BLOB, state BLOB, chain BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_answer ON entries (run, first) WHERE kind = 'answer';
CREATE UNIQUE INDEX one_run ON entries (run) WHERE kind = 'run';
"""


def upgrade(db: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Write the entries of schema 1 as of schema 2, if ``check`` finds all of them sound.

    Schema 1 did not say who owns a payment, nor out of which payment something was shown. Its
    entries keep their places and hashes, and are told by ``payment`` = -``serial``.

    Guarantee: what was spent stays spent. Old charges are used by nobody again (they have no
    owner); old answers are replayed. It is one transaction, after which 0.1.0 cannot write.
    """
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] != 1:  # another process was faster
            return
        if tuple(db.execute(READ_SCHEMA)) != schema(SCHEMA_1):
            raise sqlite3.DatabaseError("its schema is not a ledger's")
        if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the file is damaged")
        values = COLUMNS.replace("owner, payment", "'', -serial")
        for statement in (
            "DROP INDEX one_answer",
            "DROP INDEX one_run",
            "ALTER TABLE entries RENAME TO entries_1",
            *SCHEMA.split(";"),
            f"INSERT INTO entries ({COLUMNS}) SELECT {values} FROM entries_1",
            "DROP TABLE entries_1",
            f"PRAGMA user_version = {SCHEMA_VERSION}",
        ):
            db.execute(statement)
        check()
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


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
