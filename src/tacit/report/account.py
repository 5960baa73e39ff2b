"""What one agent's ledger says, for a privacy sheet: of all its runs together."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import CorruptFile, InvalidInput, LedgerFailure
from tacit.privacy.accounting import Guarantee, epsilon_of
from tacit.privacy.ledger import SCHEMA_VERSION, Ledger, Limit, Spend, new_file
from tacit.privacy.mechanisms import mechanism_from
from tacit.protocol.statement import PrivacyStatement

NUMBER = re.compile(r"[0-9][0-9.]*(e[-+]?[0-9]+)?")  # ledgers have six digits, and a digest
PART = 0.99  # of a run's own epsilon: secure noise has a little more noise than settings say


class Overpaid(NamedTuple):
    """A run that cost more than its result says: epsilon, at the delta of its statement.

    again   whether what was answered costs no more than that: the rest was paid for again
    """

    epsilon: float
    again: bool


@dataclass(frozen=True)
class Account:
    """A ledger as it is now; all of its entries were checked.

    agent    who has paid from it, and alone may; None: nobody has
    left     epsilon of the largest further Gaussian run that fits; None where not a formula
    runs     ``Ledger.runs``: a summary of every run, in the order they began
    limits   ``Ledger.budgets``: every budget that there was, the last in force
    """

    name: str
    agent: str | None
    budget: Guarantee
    spent: Guarantee
    left: float | None
    entries: int
    runs: tuple[dict[str, Any], ...]
    head: str
    limits: tuple[Limit, ...] = ()

    @classmethod
    def read(cls, path: str | Path, agent: str | None = None) -> Account:
        """The ledger at ``path``, which must be that of ``agent`` if that is given.

        Nothing is written to it, and it may be in use.
        """
        path = Path(path)
        with _opened(path) as ledger:
            found = ledger.agent
            if agent is not None and found is not None and found != agent:
                raise InvalidInput(
                    f"Expected the ledger of agent {agent!r}, got {path}, which is that of agent "
                    f"{found!r}. No sheet was written."
                )
            return cls(
                path.name,
                found,
                ledger.budget,
                ledger.spent,
                ledger.left,
                ledger.entries,
                tuple(ledger.runs()),
                ledger.head,
                ledger.budgets,
            )

    @property
    def hides(self) -> str:
        return str(self.runs[0]["neighbours"]) if self.runs else ""

    def run(self, name: str) -> dict[str, Any] | None:
        return next((r for r in self.runs if r["run"] == name), None)

    def counts(
        self, statement: PrivacyStatement, run: str, paid: bool | None = None
    ) -> bool | None:
        """Whether the total has this run in it; None where that is not known.

        ``paid``: whether the run is known to have paid from this very ledger, or from none.
        A run that read its data once is there as that reading, whose name no result has: other
        runs may have readings like it, so without ``paid`` nothing is known.
        """
        if paid is False:
            return False
        changes = [change for change, _ in statement.neighbours]
        changes += [NUMBER.sub(lambda m: f"{float(m[0]):g}", change) for change in changes]
        if self.hides and not any(
            self.hides == change or self.hides.startswith(f"{change} (") for change in changes
        ):
            return False  # it counts something else
        if self._total(statement.delta) < PART * statement.epsilon:
            return False  # it knows less than this run
        if statement.once:
            alike = any(_is_reading(r, statement) for r in self.runs)
            return (True if paid else None) if alike else False
        if not run:
            return None
        found = self.run(run)
        if found is None or not _same_noise(found, statement):
            return False
        return bool(found["rounds_charged"] * found["local_updates"] >= statement.updates)

    def overpaid(
        self, statement: PrivacyStatement, run: str, paid: bool | None = None
    ) -> Overpaid | None:
        """What was paid for this run, its mean with it, if that is more than the statement says.

        None also where nothing is known (``paid`` as in ``counts``): no reading has the name of a
        run. So a mean is the one that costs least with the run; and a run that read its data once,
        from this ledger, paid for one of the readings, of which all must cost more.
        """
        if paid is False or not 0 <= statement.delta < 1:
            return None
        most, delta = statement.epsilon / PART, statement.delta
        readings = [r for r in self.runs if r["read_once"] and r["rounds_charged"]]
        if statement.once:
            costs = [_cost([r], delta) for r in readings]
            sure = paid and costs and min(costs) > most
            return Overpaid(max(costs), False) if sure else None
        if not run or (found := self.run(run)) is None:
            return None
        means = [[r] for r in readings] if statement.before else []
        cost = min(_cost([found, *mean], delta) for mean in means or [[]])
        sent = min(_cost([found, *mean], delta, "rounds_answered") for mean in means or [[]])
        return Overpaid(cost, sent <= most) if cost > most else None

    def _total(self, delta: float) -> float:
        """The epsilon of all that was charged, at another delta than the budget's."""
        return _cost(self.runs, delta) if 0 <= delta < 1 else self.spent.epsilon


def _cost(runs: Iterable[dict[str, Any]], delta: float, rounds: str = "rounds_charged") -> float:
    """The epsilon of runs together, by the rounds that were charged or answered."""
    updates: Counter[Any] = Counter()
    for r in runs:
        if count := r[rounds] * r["local_updates"]:
            updates[mechanism_from(r["mechanism"]), 0.0] += count
    return Spend(updates).epsilon(delta)


def _same_noise(run: dict[str, Any], statement: PrivacyStatement) -> bool:
    return bool((run["noise"] == "secure") == statement.secure)


def _is_reading(run: dict[str, Any], statement: PrivacyStatement) -> bool:
    """Whether an entry is one reading with the noise and the cost that the statement says."""
    if not (run["read_once"] and run["rounds_charged"] and _same_noise(run, statement)):
        return False
    law = mechanism_from(run["mechanism"])
    if law.name != statement.mechanism or not 0 <= statement.delta < 1:
        return False
    if statement.delta == 0 and law.name != "laplace":
        return False
    epsilon = epsilon_of([(law, 1)], statement.delta)
    return bool(PART * statement.epsilon <= epsilon <= statement.epsilon / PART)


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    """A ledger to read. One of an old version is read as a copy, as opening it writes it anew."""
    if not path.is_file():
        raise InvalidInput(f"Expected a ledger at {path}, found none. No sheet was written.")
    try:
        if schema_of(path) == SCHEMA_VERSION:
            with Ledger(path) as ledger:
                yield ledger
            return
        with tempfile.TemporaryDirectory() as folder:  # for its owner's eyes only
            copy = Path(folder, path.name)
            with _read_only(path) as db, new_file(copy) as copied:
                db.backup(copied)
            with Ledger(copy) as ledger:
                yield ledger
    except (CorruptFile, LedgerFailure) as error:
        raise type(error)(f"{str(error).rstrip('.')}. No sheet was written.") from None


def schema_of(path: Path) -> int:
    with _read_only(path) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
            yield db
    except sqlite3.OperationalError as error:
        raise LedgerFailure(f"Expected to read the ledger {path}: {error}") from None
    except sqlite3.Error as error:
        raise CorruptFile(f"Expected a ledger in {path}: {error}") from None
