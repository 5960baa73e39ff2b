"""The ledgers of all agents of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.privacy.ledger import Ledger


def open_ledgers(
    ledgers: Mapping[str, Ledger | str | Path] | str | Path, names: Sequence[str]
) -> dict[str, Ledger]:
    """Ledgers or files by name, or those NAME.db in a folder."""
    if isinstance(ledgers, Mapping):
        found = {n: v if isinstance(v, Ledger) else Ledger(v) for n, v in ledgers.items()}
        if missing := sorted(set(names) - set(found)):
            raise InvalidInput(f"Expected a ledger for agent {missing[0]!r}, got none.")
        return found
    for name in names:
        if Path(name).name != name:
            raise InvalidInput(f"Expected an agent's name that can name a file, got {name!r}.")
    return {name: Ledger(Path(ledgers) / f"{name}.db") for name in names}
