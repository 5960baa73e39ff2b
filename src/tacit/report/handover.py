"""Which files of a folder may be handed on: those that the privacy statement covers.

The same as the table on the page about results, for the files that are there.
"""

from __future__ import annotations

import re

from tacit.protocol.statement import promised
from tacit.report.subject import Subject

# What the statement covers, if it is certified; the trace where data were read once
COVERED = {
    *("arrays.npz", "solution.npz", "model.json", "mean.json", "line.csv", "generator.csv"),
    *("cut_lines.csv", "release.csv", "release.npz", "report-public.html"),
}
OF_A_RELEASE = {"trace.csv", "plot.png"}
KEPT = {
    *("checkpoint.npz", "result.json", "run.json", "job.json", "power.json", "job.toml"),
    *("timing.json", "bus.csv", "grid.png", "figures.json", "check.json", "check.png"),
    *("mean.npz", "report.html"),
    *OF_A_RELEASE,
}
# to be handed over, or said here in full
OWN = re.compile(r"sheet(-.+)?\.(html|pdf)|statement\.json", re.DOTALL)


def may_be_published(subject: Subject) -> str:
    if not promised(subject.statement):
        return "Nothing."
    if subject.disputed:
        return "Nothing, until it is known why the ledger paid more."
    found = [name for name in subject.files if name in _covered(subject)]
    files = f"{', '.join(found)}, and what" if found else "What"
    return (
        f"{files} is computed from the messages alone, together with the first line of this page."
    )


def must_be_kept(subject: Subject) -> str:
    """Names of ours only: what somebody else called a file may be about its content."""
    covered, known = _covered(subject), COVERED | KEPT
    things = ["the data", "the ledger and its copies"]
    if subject.statement.seeded:
        things.append("the seed")
    things += [name for name in subject.files if name in known - covered]
    if more := sum(name not in known and not OWN.fullmatch(name) for name in subject.files):
        what = "one file or folder more" if more == 1 else f"{more} more files and folders"
        things.append(f"{what}, of which this page knows nothing")
    return f"{', '.join(things)}."


def _covered(subject: Subject) -> set[str]:
    """Of a server between organisations the trace has seconds in it, which nothing covers."""
    if not promised(subject.statement) or subject.disputed:
        return set()
    return COVERED | (OF_A_RELEASE if subject.statement.once and not subject.apart else set())
