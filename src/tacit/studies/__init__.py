"""One study between organisations: what is public, what stays with a party, and who says what.

description     what jobs and studies have in common: kinds, keys, names, files that travel
job             the kind [objective] and [set]: jobs of one process, and studies
grid            the kind [power]: a grid in zones
classifier      the kind [learn]: a classifier of tables
study           what all parties know of a study: load, digest, files, plan, what is written
party_file      a party's own file: its data, its ledger, its limits
party           the only process that sees a party's data: bytes in, bytes out
conduct         a study from invitation to result, over a line, and its status
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.studies.party_file import Limits, PartyFile
    from tacit.studies.study import Study

LAZY = {"Limits": "party_file", "PartyFile": "party_file", "Study": "study"}
__all__ = ["Limits", "PartyFile", "Study"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tacit.studies.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
