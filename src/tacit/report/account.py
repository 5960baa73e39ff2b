"""What agents' ledgers say: the limit, what is spent and left, and what was paid for one run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, TacitError
from tacit.privacy.accounting import Guarantee
from tacit.privacy.ledger import SCHEMA_VERSION, Ledger, Limit, Spend, new_file
from tacit.privacy.mechanisms import mechanism_from
from tacit.protocol.statement import PrivacyStatement

NOT_WRITTEN = "No sheet was written."
PART = 0.99  # of a run's own epsilon: secure noise has a little more noise than settings say


@dataclass(frozen=True)
class Account:
    """A ledger as it is now; all of its entries were checked."""

    name: str
    agent: str | None  # who has paid from it, and alone may; None: nobody has
    budget: Guarantee
    spent: Guarantee
    left: float | None  # epsilon of the largest further Gaussian run that fits, by a formula
    entries: int
    runs: tuple[dict[str, Any], ...]  # ``Ledger.runs``: a summary of each, as they began
    head: str
    limits: tuple[Limit, ...] = ()  # ``Ledger.budgets``: the last is in force

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

    def paid_for(
        self,
        statement: PrivacyStatement,
        run: str,
        own: bool | None = None,
        runs: Sequence[str] = (),
    ) -> float | None:
        """The epsilon that was paid for a run, with its private mean; None where it is not known.

        ``own``: whether the run is known to have paid from this very ledger, or from none.
        ``runs``: all that the statement is about, as the ledger calls them, where they are known.
        Releases are listed under names of their own, which no result has. A run that released once
        is taken for the release that costs what its statement says, or for the most expensive one
        if all cost more; a private mean for the release that costs least with the rounds.
        """
        said, delta = statement.epsilon, statement.delta
        if own is False or not 0 <= delta < 1:
            return 0.0
        if runs:
            known = [r for r in self.runs if r["run"] in runs]
            return _cost(known, delta) if len(known) == len(runs) else 0.0
        releases = [r for r in self.runs if r["read_once"] and r["rounds_charged"]]
        if statement.once:
            costs = [_cost([r], delta) for r in releases]
            alike = [cost for cost in costs if PART * said <= cost <= said / PART]
            if not own:
                return None if alike else 0.0
            more = min(costs, default=0.0) * PART > said
            return alike[0] if alike else max(costs) if more else 0.0
        if (found := self.run(run)) is None:
            return 0.0 if run or _cost(self.runs, delta) < PART * said else None
        means = [[r] for r in releases] if statement.before else []
        return min(_cost([found, *mean], delta) for mean in means or [[]])


def accounts(folder: Path, agents: Sequence[str]) -> dict[str, Account | str]:
    """Accounts of the ledgers AGENT.db in a folder; a text says why one is missing."""
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


def _cost(runs: Iterable[dict[str, Any]], delta: float) -> float:
    """The epsilon of runs together; a release counts once."""
    updates: Counter[Any] = Counter()
    for r in runs:
        rounds = min(1, r["rounds_charged"]) if r["read_once"] else r["rounds_charged"]
        if count := rounds * r["local_updates"]:
            updates[mechanism_from(r["mechanism"]), 0.0] += count
    return Spend(updates).epsilon(delta)


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    """Open a ledger to read; an old version as a copy, since opening it upgrades the file."""
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
