"""Which files of a folder may be handed on: those that the privacy statement covers."""

from __future__ import annotations

import re

from tacit.protocol.disclosure import FILES, level, may_have
from tacit.protocol.statement import promised
from tacit.report.subject import Subject

# to be handed over, or said here in full
OWN = re.compile(r"sheet(-.+)?\.(html|pdf)|statement\.json", re.DOTALL)


def may_be_published(subject: Subject) -> str:
    if not promised(subject.statement):
        return "Nothing."
    if subject.disputed:
        return "Nothing, until it is known why the ledger paid more."
    found = [name for name in _known(subject) if _open(subject, name)]
    files = f"{', '.join(found)}, and what" if found else "What"
    return (
        f"{files} is computed from the messages alone, together with the first line of this page."
    )


def must_be_kept(subject: Subject) -> str:
    """Names of ours only: what somebody else called a file may be about its content."""
    things = ["the data", "the ledger and its copies"]
    if subject.statement.seeded:
        things.append("the seed")
    things += [name for name in _known(subject) if not _open(subject, name)]
    if more := sum(name not in FILES and not OWN.fullmatch(name) for name in subject.files):
        what = "one file or folder more" if more == 1 else f"{more} more files and folders"
        things.append(f"{what}, of which this page knows nothing")
    return f"{', '.join(things)}."


def _known(subject: Subject) -> list[str]:
    return [name for name in subject.files if name in FILES and not OWN.fullmatch(name)]


def _open(subject: Subject, name: str) -> bool:
    found = level(name, having=subject.trace)
    return not subject.disputed and may_have(subject.statement, found)
