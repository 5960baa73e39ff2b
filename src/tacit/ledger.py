"""A durable privacy ledger: what one agent may spend, has spent, and has answered.

One SQLite file per agent, in WAL mode with full synchronisation: an entry is on the disk before
``charge`` or a durable ``store`` returns. Entries are only ever added, and each holds a hash over
itself and the one before, so that a changed, removed or reordered entry shows, unless it was the
last.

    kind     what it says
    budget   the agent's own total (epsilon, delta), from now on
    run      the terms of a run: agent, mechanism, rounds, local updates, slack, what it hides
    charge   rounds first..last of a run are paid for
    answer   round ``first`` was answered: digest of the request, and the reply
    failed   the computation of round ``first`` failed after it was paid for

Spending is composed over all charges of all runs (``accounting``), whatever was answered. Whoever
can write the file can forge all of it, hashes included, or take the last entries away. Whoever
remembers an earlier ``head`` notices (``holds``), and so does a run in progress, as the server
knows the digest of the last reply.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tacit.accounting import Guarantee, rounded_up
from tacit.errors import (
    EPSILONS,
    CorruptFile,
    InvalidInput,
    LedgerFailure,
    Refused,
    positive,
    probability,
)
from tacit.mechanisms import Laplace
from tacit.spend import Spend, Terms, canonical, most_updates

APPLICATION = 0x7AC17  # in the file's header, so that no other database is taken for a ledger
VERSION = 1
RESTORE = "Do not start afresh: restore a backup, and lower its budget by what was spent since."
SCHEMA = """
CREATE TABLE entries (
    serial INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, digest TEXT NOT NULL, event TEXT NOT NULL,
    reply BLOB, state BLOB, chain BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_answer ON entries (run, first) WHERE kind = 'answer';
CREATE UNIQUE INDEX one_run ON entries (run) WHERE kind = 'run';
"""


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
    reply: bytes | None = None
    state: bytes | None = None
    chain: bytes = bytes(32)

    def sealed(self, head: bytes) -> Entry:
        """With the hash that follows ``head``."""
        *plain, reply, state, _ = self
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


class Ledger:
    """An open ledger. Several processes may have the same one open."""

    def __init__(self, path: str | Path) -> None:
        """Open an existing ledger and check all of it; ``Ledger.create`` makes a new one."""
        self.path = Path(path)
        if not self.path.is_file():
            raise InvalidInput(
                f"Expected a ledger at {path}, found none. Make one with: tacit ledger budget "
                f"{shlex.quote(str(path))} --total-epsilon E --total-delta D. Nothing was released."
            )
        self._lock = threading.RLock()
        self._seen, self._head, self._spend = 0, bytes(32), Spend()
        self._budget: Guarantee | None = None
        self._terms: dict[str, Terms] = {}
        self._first: Terms | None = None  # of the first run that was charged
        self._most: tuple[Any, int] = None, 0
        with self._reading():
            self._db = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            found = [self._value(f"PRAGMA {name}") for name in ("application_id", "user_version")]
            if found != [APPLICATION, VERSION]:
                raise CorruptFile(
                    f"Expected a ledger of schema {VERSION} in {path}, found another or a damaged "
                    f"file. Nothing was released. {RESTORE}"
                )
            if self._value("PRAGMA integrity_check") != "ok":
                raise sqlite3.DatabaseError("the file is damaged")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
            if self._value("PRAGMA journal_mode") != "wal":
                raise sqlite3.DatabaseError("it is not in WAL mode")
            self._catch_up()
        if self._budget is None:
            raise CorruptFile(f"Expected a budget in the ledger {path}, found none.")

    @classmethod
    def create(cls, path: str | Path, total_epsilon: float, total_delta: float) -> Ledger:
        """A new ledger with a budget. An existing file is never touched."""
        budget = _budget(total_epsilon, total_delta)
        path = Path(path)
        if path.exists():
            raise InvalidInput(f"Expected no file at {path}; there is one. Nothing was written.")
        # made beside its place and linked there whole: no half of a ledger is ever found, and none
        # that is there is replaced
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}.new")
        try:
            fresh.touch(mode=0o600)
            db = sqlite3.connect(fresh, isolation_level=None)
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION};")
            db.execute(f"PRAGMA user_version = {VERSION}")
            first = Entry(1, _now(), "budget", event=canonical(asdict(budget)))
            db.execute(INSERT, first.sealed(bytes(32)))
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode = WAL")
            db.close()
            os.link(fresh, path)
        except (sqlite3.Error, OSError) as error:
            raise LedgerFailure(f"Expected to write a ledger at {path}: {error}.") from None
        finally:
            fresh.unlink(missing_ok=True)
        return cls(path)

    # --- what is in it --------------------------------------------------------------------

    @property
    def budget(self) -> Guarantee:
        self.refresh()
        assert self._budget is not None
        return self._budget

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
        with self._writing():
            if (known := self._terms.get(run)) is not None:
                if known != terms:
                    raise Refused(
                        f"Run {run!r} was agreed on other terms; nothing was charged. A run's "
                        "settings, data size and noise cannot change."
                    )
                return
            self._check(run, terms, terms.rounds)
            self._add("run", run, event=terms.to_json())

    def charge(self, run: str, first: int, last: int) -> None:
        """Pay for rounds first..last of a run, durably, or refuse.

        Guarantee: when this returns, the entry is on the disk, and all charges together are within
        the budget. If it raises, nothing was charged, or (a failing disk) it may have been.
        """
        with self._writing():
            terms = self._terms.get(run)
            if terms is None:
                raise Refused(f"Run {run!r} was not agreed; nothing was charged.")
            if not 1 <= first <= last <= terms.rounds:
                raise Refused(
                    f"Expected rounds between 1 and {terms.rounds} of run {run!r}, got "
                    f"{first} to {last}; nothing was charged."
                )
            self._check(run, terms, last - first + 1)
            self._add("charge", run, first, last)

    def store(
        self, run: str, round: int, request: str, reply: bytes, state: bytes, durable: bool = True
    ) -> bool:
        """Keep an answer before it is released; False if the round has one already.

        Not ``durable``: it survives the end of this process, not a failure of power.
        """
        with self._writing(durable):
            if self.answer(run, round) is not None:
                return False
            self._add("answer", run, round, round, request, reply=reply, state=state)
        return True

    def fail(self, run: str, round: int) -> None:
        """Note that a computation failed, before that shows: its payment is used up."""
        with self._writing():
            self._add("failed", run, round, round)

    def backup(self, path: str | Path) -> None:
        """A copy of the ledger as it is now, while it may be in use."""
        if Path(path).exists():
            raise InvalidInput(f"Expected no file at {path}; there is one. Nothing was written.")
        with self._reading():
            Path(path).touch(mode=0o600)
            copy = sqlite3.connect(path)
            self._db.backup(copy)
            copy.close()

    def refresh(self) -> None:
        """Read what other processes have added."""
        with self._reading():
            self._catch_up()

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, budget {self._budget}, {self._seen} entries)"

    # --- inside ---------------------------------------------------------------------------

    def _check(self, run: str, terms: Terms, rounds: int) -> None:
        """Refuse if so many more rounds would not fit the budget."""
        budget, spend = self._budget, self._spend
        assert budget is not None
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
            mine = terms.mechanism, terms.slack
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
        raise Refused(
            f"Agent {terms.agent!r}: {rounds} more rounds of run {run!r} would bring its total to "
            f"epsilon {rounded_up(after.epsilon(budget.delta), 6)} at delta {budget.delta:g}, "
            f"beyond the budget of {budget.epsilon:g} (spent: "
            f"{rounded_up(spend.epsilon(budget.delta), 6)}; {paid} rounds of this run are paid). "
            "Nothing was charged for these rounds, and nothing of them computed or released."
        )

    def _add(self, kind: str, *values: Any, **others: Any) -> None:
        """An entry after the last: of a kind, then run, first, last, digest as far as given."""
        row = Entry(self._seen + 1, _now(), kind, *values, **others).sealed(self._head)
        self._db.execute(INSERT, row)
        self._apply(row)

    def _apply(self, row: Entry) -> None:
        self._seen, self._head = row.serial, row.chain
        if row.kind == "budget":
            self._budget = Guarantee(**json.loads(row.event))
        elif row.kind == "run":
            self._terms[row.run] = Terms.from_json(row.event)
        elif row.kind == "charge":
            terms = self._terms[row.run]
            self._first = self._first or terms
            self._spend = self._spend.plus(terms, (row.last - row.first + 1) * terms.local_updates)

    def _catch_up(self) -> None:
        """Read and check entries that were not seen yet."""
        query = f"SELECT {COLUMNS} FROM entries WHERE serial > ? ORDER BY serial"
        for row in map(Entry._make, self._db.execute(query, (self._seen,))):
            if row.serial != self._seen + 1 or row.sealed(self._head) != row:
                raise CorruptFile(
                    f"Entry {row.serial} of the ledger {self.path} was changed, or one before it "
                    f"removed. Nothing was released. {RESTORE}"
                )
            self._apply(row)

    def _value(self, query: str) -> Any:
        return self._db.execute(query).fetchone()[0]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.OperationalError as error:
                raise LedgerFailure(
                    f"Expected to read the ledger {self.path}: {error}. Nothing was released."
                ) from None
            except (sqlite3.Error, json.JSONDecodeError, KeyError, TypeError) as error:
                raise CorruptFile(
                    f"Expected a sound ledger in {self.path}: {error}. Nothing was released. "
                    f"{RESTORE}"
                ) from None

    @contextmanager
    def _writing(self, durable: bool = True) -> Iterator[None]:
        """One transaction, alone with the file: what others added is read first."""
        with self._lock:
            kept = self._seen, self._head, self._spend, self._budget, self._first, dict(self._terms)
            try:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._db.execute("BEGIN IMMEDIATE")
                self._catch_up()
                yield
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._seen, self._head, self._spend, self._budget, self._first, self._terms = kept
                if isinstance(error, sqlite3.Error):
                    raise LedgerFailure(
                        f"Expected to write the ledger {self.path}: {error}. Nothing was released."
                    ) from None
                raise


def _budget(total_epsilon: float, total_delta: float) -> Guarantee:
    delta = 0.0 if total_delta == 0 else probability("total_delta", total_delta)
    return Guarantee(positive("total_epsilon", total_epsilon, EPSILONS), delta)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
