"""What a ledger's file is made of: its entries, their hashes, and the making of a new file.

    kind     what it says
    budget   the agent's own total (epsilon, delta), from now on
    run      the terms of a run: agent, mechanism, rounds, local updates, what it hides, ...
    charge   rounds first..last of a run are paid for, by ``owner``
    claim    the payment is ``owner``'s from now on, and no longer that of who had it
    answer   round ``first`` was answered out of ``payment``: digest of the request, and the reply
    failed   the computation of round ``first``, paid by ``payment``, failed

``payment`` is the serial number of a charge; ``payments.py`` has the rules of who may use one.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import InvalidInput
from tacit.files import open_private, sync_file, sync_folder
from tacit.privacy.spending import canonical

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


def fresh_owner() -> str:
    """A name that no other payment or claim has."""
    return secrets.token_hex(8)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


READ_SCHEMA = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"


@cache
def schema(text: str = SCHEMA) -> tuple[Any, ...]:
    """What SQLite says a ledger is made of."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(text)
        return tuple(db.execute(READ_SCHEMA))


def create(path: Path, budget: str) -> None:
    """A new file with the schema and a first entry."""
    with new_file(path) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute(INSERT, Entry(1, now(), "budget", event=budget).sealed(bytes(32)))
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")


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
