"""One study between organisations: what is public, what stays with a party, and who says what.

study           what all parties know of a study: load, digest, files, plan, what is written
party_file      a party's own file: its data, its ledger, its limits
job_study       studies with the sections of a job file
power_study     studies of a grid in zones: the public case, and each party's own loads
learn_study     studies of a classifier: public columns, ranges and classes, each party's own table
messages        what a coordinator and a party say beside the rounds
limits          a party's ledger, which agrees to nothing beyond the party's own limits
party           the only process that sees a party's data: bytes in, bytes out
coordinator     a study from invitation to result, over a line
progress        where a study is: the state to go on from, and a status
public_files    files that travel with a study, and what they may be called
kit             the folder that a party, or the coordinator, works in
kits            init: certificates, keys and policies, one kit for each
provisioning    NVFLARE's provisioning, and what a site allows
signing         the coordinator's signature on every request
job             the one job that a site runs
policy          which refuses any other
guard           what a site does not let the engine's server do
controller      the coordinator in the engine
line            bytes to parties and back, over the engine
executor        a party in the engine
site            the engine's process at a party
server          the engine's server, as a process, and its admin
running         a study to its end, through losses of sites and server
watching        where a study is
checking        what is wrong, in plain words
logs            structured logs, without private values
unsent          one manner of saying that nothing left a party
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.federation.party_file import Limits, PartyFile
    from tacit.federation.study import Study

LAZY = {"Limits": "party_file", "PartyFile": "party_file", "Study": "study"}
__all__ = ["Limits", "PartyFile", "Study"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tacit.federation.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
