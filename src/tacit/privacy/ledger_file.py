"""A ledger's file: entries one after another, each checked against the one before."""

from __future__ import annotations

import copy
import os
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from tacit.errors import NOT_DONE, CorruptFile, InvalidInput, LedgerFailure
from tacit.files import mount_points
from tacit.privacy.ledger_entries import (
    APPLICATION_ID,
    COLUMNS,
    INSERT,
    READ_SCHEMA,
    RESTS,
    SCHEMA_VERSION,
    Entry,
    new_file,
    now,
    schema,
)
from tacit.privacy.ledger_upgrade import upgrade

HOW_TO_RESTORE = (
    "Do not start afresh: restore a backup, and lower its budget by what was spent since."
)


class LedgerFile:
    """An open file of entries. What they mean is in ``_apply`` of a subclass.

    Guarantee: what is added within ``_writing`` is added whole or not at all, in a transaction
    that sees all entries of other processes and is alone with the file. What is in memory follows
    the disk, also where a transaction fails.
    """

    STATE: ClassVar[tuple[str, ...]] = ("_seen", "_head")  # what follows from the entries

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if os.path.isdir(path):
            raise InvalidInput(f"Expected a ledger at {path}, got a folder. {NOT_DONE}")
        if not os.path.isfile(path):  # also of a name that no file can have
            raise InvalidInput(
                f"Expected a ledger at {path}, found none. Make one with: tacit ledger budget "
                f"{shlex.quote(str(path))} --total-epsilon E --total-delta D. Nothing was released."
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
                raise CorruptFile(
                    f"Expected a ledger of schema {SCHEMA_VERSION} in {path}, found another or a "
                    f"damaged file. Nothing was released. {HOW_TO_RESTORE}"
                )
            self._refuse_other_schema()
            if self._value("PRAGMA integrity_check") != "ok":
                raise sqlite3.DatabaseError("the file is damaged")
            self._db.execute("PRAGMA synchronous = FULL")
            if self._value("PRAGMA journal_mode") != "wal":
                raise sqlite3.DatabaseError("it is not in WAL mode")
            self._catch_up()

    def _versions(self) -> list[int]:
        return [self._value(f"PRAGMA {name}") for name in ("application_id", "user_version")]

    def _refuse_other_schema(self) -> None:
        """Triggers, views and other tables could undo what is written."""
        if tuple(self._db.execute(READ_SCHEMA)) != schema():
            raise sqlite3.DatabaseError("its schema is not a ledger's")

    def _refuse_other_file(self) -> None:
        """Another file at the path, or none: then nothing written here would be found again."""
        if (found := self._only_name()) is None or found != self._file:
            raise CorruptFile(
                f"The ledger {self.path} was replaced, moved or removed while it was in use. "
                f"Nothing was released. {HOW_TO_RESTORE}"
            )

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

    def _apply(self, row: Entry) -> None:
        raise NotImplementedError

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
            raise CorruptFile(
                f"Entry {self._seen} of the ledger {self.path} was changed or removed while it was "
                f"in use. Nothing was released. {HOW_TO_RESTORE}"
            )
        query = f"SELECT {COLUMNS} FROM entries WHERE serial > ? ORDER BY serial"
        for row in map(Entry._make, self._db.execute(query, (self._seen,))):
            if row.serial != self._seen + 1 or row.sealed(self._head) != row:
                raise CorruptFile(
                    f"Entry {row.serial} of the ledger {self.path} was changed, or one before it "
                    f"removed. Nothing was released. {HOW_TO_RESTORE}"
                )
            self._seen, self._head = row.serial, row.chain
            self._apply(row)

    def _value(self, query: str) -> Any:
        return self._db.execute(query).fetchone()[0]

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
                raise CorruptFile(
                    f"Expected a sound ledger in {self.path}: {error}. Nothing was released. "
                    f"{HOW_TO_RESTORE}"
                ) from None

    @contextmanager
    def _writing(self, durable: bool = True) -> Iterator[None]:
        """One transaction, alone with the file: what others added is read first."""
        with self._alone():
            kept = {name: copy.copy(getattr(self, name)) for name in self.STATE}
            try:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
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
