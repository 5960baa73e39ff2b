"""The ledgers of all agents of a run."""

from __future__ import annotations

import os
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
            agents = ", ".join(map(repr, missing))
            raise InvalidInput(f"Expected a ledger for agent {agents}, got none.")
        return found
    if not isinstance(ledgers, str | os.PathLike):
        raise InvalidInput(
            "Expected ledgers as a folder, or by the agents' names, got a value of type "
            f"{type(ledgers).__name__}. Nothing was released."
        )
    for name in names:
        if Path(name).name != name:
            raise InvalidInput(f"Expected an agent's name that can name a file, got {name!r}.")
    absent = [name for name in names if not (Path(ledgers) / f"{name}.db").is_file()]
    if len(absent) > 1:  # of a single one its ledger says how to make it
        raise InvalidInput(
            f"Expected the ledgers of {len(names)} agents in {ledgers}, found none of "
            f"{', '.join(map(repr, absent[:10]))}{', ...' if absent[10:] else ''}. Make each with: "
            "tacit ledger budget AGENT.db --total-epsilon E --total-delta D. Nothing was released."
        )
    return {name: Ledger(Path(ledgers) / f"{name}.db") for name in names}
