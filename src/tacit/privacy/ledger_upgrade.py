"""Ledgers of schema 1, as version 0.1.0 wrote them, become ledgers of schema 2.

Schema 1 did not say who owns a payment, nor out of which payment something was shown. Its entries
keep their places and hashes, so that what was spent stays spent and a ``head`` that was noted then
is still found; they are told by ``payment`` = -``serial``, which no entry of schema 2 has.

Guarantee: that of ``payments.py`` holds for all that is shown after the upgrade. Charges of schema
1 are counted, and used by nobody again: ``open_payment`` and ``_use`` find no owner. Its answers
and failures count as those of their round: they are replayed, and seeded noise is not drawn again.
Before the upgrade it holds as far as it did then: for one process at a time.

The upgrade is one transaction, after which version 0.1.0 can no longer write the file (the new
columns have no default): a process of it that still runs fails before it releases anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from tacit.privacy.ledger_entries import COLUMNS, READ_SCHEMA, SCHEMA, SCHEMA_VERSION, schema

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
    """Write the entries of schema 1 as of schema 2, if ``check`` finds all of them sound."""
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
