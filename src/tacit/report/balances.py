"""What the ledgers of a run say: the budget of each agent, what is spent and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.privacy.ledger import SCHEMA_VERSION, Ledger
from tacit.report.account import schema_of


@dataclass(frozen=True)
class Balance:
    """What one agent's ledger says now, over all of its runs; nothing is written to it.

    budget   epsilon that the agent may spend, at ``delta``
    spent    the total of all charges, at ``delta``
    left     epsilon of the largest further Gaussian run that fits; None where not a formula
    runs     ``Ledger.runs``: a summary of every run, in the order they began
    head     hash of the last entry
    missing  why nothing is known, or nothing: then all of the above is empty
    """

    agent: str
    path: Path
    budget: float = 0.0
    delta: float = 0.0
    spent: float = 0.0
    left: float | None = None
    runs: tuple[dict[str, Any], ...] = ()
    head: str = ""
    missing: str = ""

    @classmethod
    def read(cls, agent: str, path: Path) -> Balance:
        if not path.is_file():
            return cls(agent, path, missing="its ledger is not there")
        try:
            if (found := schema_of(path)) != SCHEMA_VERSION:  # opening an old one would rewrite it
                return cls(agent, path, missing=f"its ledger has the old schema {found}")
            with Ledger(path) as ledger:
                if ledger.agent not in (None, agent):
                    return cls(agent, path, missing="its ledger is another agent's")
                budget, spent = ledger.budget, ledger.spent
                return cls(
                    agent,
                    path,
                    budget.epsilon,
                    budget.delta,
                    spent.epsilon,
                    ledger.left,
                    tuple(ledger.runs()),
                    ledger.head,
                )
        except TacitError:
            return cls(agent, path, missing="its ledger cannot be read")


def balances(folder: Path, agents: Sequence[str]) -> tuple[Balance, ...]:
    """Of the ledgers AGENT.db in a folder; of none if the folder is no longer there."""
    if not folder.is_dir():
        return ()
    # a name that is no file's name cannot have had a ledger there
    named = [name for name in agents if Path(name).name == name]
    return tuple(Balance.read(name, folder / f"{name}.db") for name in named)
