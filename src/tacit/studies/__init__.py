"""One study between organisations: what is public, what stays with a party, and who says what.

study           what all parties know of a study: load, digest, files, plan, what is written
party_file      a party's own file: its data, its ledger, its limits
job_study       studies with the sections of a job file
power_study     studies of a grid in zones: the public case, and each party's own loads
learn_study     studies of a classifier: public columns, ranges and classes, each party's own table
job             a job file and its data as a problem and settings
party           the only process that sees a party's data: bytes in, bytes out
coordinator     a study from invitation to result, over a line
progress        where a study is: the state to go on from, and a status
public_files    files that travel with a study, and what they may be called
unsent          one manner of saying that nothing left a party
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
