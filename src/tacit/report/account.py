"""What agents' ledgers say: the limit, what is spent and left, and what was paid for one run."""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, TacitError
from tacit.privacy.accounting import Guarantee
from tacit.privacy.ledger import SCHEMA_VERSION, Ledger, Limit, Spend, new_file
from tacit.privacy.mechanisms import mechanism_from
from tacit.protocol.statement import PrivacyStatement

NOT_WRITTEN = "No sheet was written."
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
                    f"{found!r}. {NOT_WRITTEN}"
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
    def room(self) -> float:
        """``left``, or where that is not known the budget less what is spent."""
        less = max(0.0, self.budget.epsilon - self.spent.epsilon)
        return less if self.left is None else self.left

    def run(self, name: str) -> dict[str, Any] | None:
        return next((r for r in self.runs if r["run"] == name), None)

    def counts(
        self, statement: PrivacyStatement, run: str, paid: bool | None = None
    ) -> bool | None:
        """Whether the total includes this run; None where that is not known.

        ``paid``: whether the run is known to have paid from this very ledger, or from none.
        A release is in the ledger under its own name, which no result has, and other runs may have
        made releases like it: without ``paid`` nothing is known of it.
        """
        if paid is False or self._hides_something_else(statement):
            return False
        at_delta = _cost(self.runs, statement.delta)
        if at_delta < PART * statement.epsilon:
            return False  # less was paid than this run cost
        if statement.once:
            alike = any(_is_release(r, statement) for r in self.runs)
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

        None also where nothing is known (``paid`` as in ``counts``). Releases have no run's name:
        of means the one counts that costs least with the rounds; and of a run that released once,
        from this ledger, every release must cost more than the statement says.
        """
        if paid is False or not 0 <= statement.delta < 1:
            return None
        most, delta = statement.epsilon / PART, statement.delta
        releases = [r for r in self.runs if r["read_once"] and r["rounds_charged"]]
        if statement.once:
            costs = [_cost([r], delta) for r in releases]
            sure = paid and costs and min(costs) > most
            return Overpaid(max(costs), False) if sure else None
        if not run or (found := self.run(run)) is None:
            return None
        means = [[r] for r in releases] if statement.before else []
        parts = [[found, *mean] for mean in means or [[]]]
        cost = min(_cost(part, delta) for part in parts)
        sent = min(_cost(part, delta, "rounds_answered") for part in parts)
        return Overpaid(cost, sent <= most) if cost > most else None

    def _hides_something_else(self, statement: PrivacyStatement) -> bool:
        """Ledgers write numbers with six digits, and may add a digest in brackets."""
        changes = [change for change, _ in statement.neighbours]
        changes += [NUMBER.sub(lambda m: f"{float(m[0]):g}", change) for change in changes]
        hides = str(self.runs[0]["neighbours"]) if self.runs else ""
        return bool(hides) and not any(f"{hides} (".startswith(f"{c} (") for c in changes)


def accounts(folder: Path, agents: Sequence[str]) -> dict[str, Account | str]:
    """Of the ledgers AGENT.db in a folder, or why there is none; empty without the folder."""
    found: dict[str, Account | str] = {}
    for name in agents if folder.is_dir() else ():
        path = folder / f"{name}.db"
        if Path(name).name != name:  # it cannot have had a ledger there
            continue
        try:
            found[name] = Account.read(path, name) if path.is_file() else "its ledger is not there"
        except InvalidInput:
            found[name] = "its ledger is another agent's"
        except TacitError:
            found[name] = "its ledger cannot be read"
    return found


def _cost(runs: Iterable[dict[str, Any]], delta: float, rounds: str = "rounds_charged") -> float:
    """The epsilon of runs together, by the rounds that were charged or answered."""
    if not 0 <= delta < 1:
        return math.inf
    updates: Counter[Any] = Counter()
    for r in runs:
        if count := r[rounds] * r["local_updates"]:
            updates[mechanism_from(r["mechanism"]), 0.0] += count
    return Spend(updates).epsilon(delta)


def _same_noise(run: dict[str, Any], statement: PrivacyStatement) -> bool:
    return bool((run["noise"] == "secure") == statement.secure)


def _is_release(run: dict[str, Any], statement: PrivacyStatement) -> bool:
    """Whether an entry is one release with the noise and the cost that the statement says."""
    if not (run["read_once"] and run["rounds_charged"] and _same_noise(run, statement)):
        return False
    if mechanism_from(run["mechanism"]).name != statement.mechanism:
        return False
    epsilon = _cost([{**run, "rounds_charged": 1, "local_updates": 1}], statement.delta)
    return bool(PART * statement.epsilon <= epsilon <= statement.epsilon / PART)


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    """A ledger to read. One of an old version is read as a copy, as opening it writes it anew."""
    if not path.is_file():
        raise InvalidInput(f"Expected a ledger at {path}, found none. {NOT_WRITTEN}")
    try:
        with ExitStack() as open_files:
            uri = f"{path.resolve().as_uri()}?mode=ro"
            db = open_files.enter_context(closing(sqlite3.connect(uri, uri=True, timeout=10)))
            place = path
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                place = Path(open_files.enter_context(TemporaryDirectory()), path.name)
                with new_file(place) as copied:
                    db.backup(copied)
            yield open_files.enter_context(Ledger(place))
    except sqlite3.Error as error:
        kind = LedgerFailure if isinstance(error, sqlite3.OperationalError) else CorruptFile
        raise kind(f"Expected to read the ledger {path}: {error}. {NOT_WRITTEN}") from None
    except (CorruptFile, LedgerFailure) as error:
        raise type(error)(f"{str(error).rstrip('.')}. {NOT_WRITTEN}") from None
