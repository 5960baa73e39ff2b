"""What may be public of all that Tacit writes: one table, for every file, column and field.

    public     known before any run, or made of what is
    covered    computed from messages: it may be published where the privacy statement is certified
    once       covered if data were released once, as it is computed from the release then
    private    computed from data without noise, or a secret: for its owner's eyes only

Guarantee: what is not in the table counts as private. A file with parts is as private as the most
private of those that it has. Which numbers are covered is proven elsewhere (docs/privacy.md). The
report, the sheet, ``--public`` and ``not_covered`` in documents are computed from this table, tests
compare the documentation with it, and ``tests/blind.py`` looks for anything that it opens although
it depends on data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from tacit.protocol.statement import PrivacyStatement, promised


class Level(StrEnum):
    """From what everybody may have to what nobody may."""

    PUBLIC = "public"
    COVERED = "covered"
    ONCE = "covered if released once"
    PRIVATE = "private"


PUBLIC, COVERED, ONCE, PRIVATE = Level
ORDER = tuple(Level)
Parts = Mapping[str, "Level | Mapping[str, Level]"]

FLOWS = dict.fromkeys(("p_from", "q_from", "p_to", "q_to"), COVERED)
RESULT = {  # fields of a ``Result``, beside trace, settings and statement
    **dict.fromkeys(
        ("solution", "ergodic", "local", "duals", "converged", "release", "released", "gap"),
        COVERED,
    ),
    "labels": PUBLIC,
    "plan": COVERED,  # of a run that is not certified, data may have chosen it
    "seed": PRIVATE,
    "timing": PRIVATE,
}
TRACE = {
    "round": COVERED,  # a tolerance may have ended them
    "objective": ONCE,
    "residual": COVERED,
    "noise": PRIVATE,  # its size helps to remove it
    "dual_residual": COVERED,
    "violation": COVERED,
    "server_seconds": PRIVATE,
    "wait_seconds": PRIVATE,
}
STATEMENT = {  # what is left of one that is not certified: that it is not, and why
    **dict.fromkeys(("epsilon", "delta", "certified", "uncertified", "mechanism"), PUBLIC),
    **dict.fromkeys(("updates", "seeded", "secure", "once"), PUBLIC),
    # without certainty the size of a change may be a share of private numbers
    **dict.fromkeys(("neighbours", "assumed", "before", "after", "statement"), COVERED),
}
SETTINGS = {"penalty": COVERED, "step_size": COVERED}  # which data may have chosen; else public
OPTIONS = {  # of a command; covered if not named here
    **dict.fromkeys(("case", "zones", "objective", "job"), PUBLIC),
    **dict.fromkeys(("data_set", "more", "target"), PUBLIC),
    **dict.fromkeys(("seed", "out", "workers", "device"), PRIVATE),
}

FILES: dict[str, Level | Parts] = {
    # a result folder
    "arrays.npz": COVERED,
    "trace.csv": TRACE,
    "plot.png": TRACE,
    "timing.json": PRIVATE,  # how long a computation takes may depend on data
    "result.json": {
        "format": PUBLIC,
        "summary": PRIVATE,  # it repeats the last row of the trace
        "privacy": STATEMENT,
        "settings": SETTINGS,
        "agents": PUBLIC,
        "noise_source": PRIVATE,  # it names the seed
        "versions": PUBLIC,
        **{n: RESULT[n] for n in ("seed", "converged", "plan", "release", "gap", "labels")},
    },
    "run.json": {
        "command": PUBLIC,
        "options": OPTIONS,
        "run": PRIVATE,
        "once": PUBLIC,
    },
    "job.toml": PRIVATE,  # a seed may be in it
    "model.json": COVERED,
    "evaluation.json": COVERED,
    "intervals.json": COVERED,  # of coefficients, from what was released
    "moments.json": COVERED,
    "counts.json": COVERED,
    "release.npz": COVERED,
    "release.csv": dict.fromkeys(("bus", "p_demand", "q_demand"), COVERED),
    "bus.csv": {
        "bus": PUBLIC,
        "zone": PUBLIC,
        "voltage": COVERED,
        **dict.fromkeys(("p_demand", "q_demand", "p_shed", "q_shed"), PRIVATE),
    },
    "line.csv": {
        **dict.fromkeys(("line", "from_bus", "to_bus", "cut", "limit"), PUBLIC),
        **FLOWS,
        "loading": COVERED,
    },
    "generator.csv": {"generator": PUBLIC, "bus": PUBLIC, "p": COVERED, "q": COVERED},
    **dict.fromkeys(("grid.png", "dispatch.m", "dispatch.json"), PRIVATE),  # loads are in them
    "figures.json": PRIVATE,  # errors on test records, load served, what privacy costs
    "check.json": PRIVATE,  # the AC power flow at the true loads
    "check.png": PRIVATE,
    "checkpoint.npz": PRIVATE,  # the noise key, or releases with a seal of the data
    **dict.fromkeys(("mean.npz", "range-1.npz", "range-2.npz", "range-3.npz"), PRIVATE),
    "mean.json": COVERED,  # of 0.2.0: the mean alone
    "report.html": PRIVATE,
    "report-public.html": COVERED,
    "sheet.html": PRIVATE,  # what a ledger says of other runs
    "sheet.pdf": PRIVATE,
    # between organisations: a coordinator's folder, and a party's
    "cut_lines.csv": {
        **dict.fromkeys(("line", "from_bus", "to_bus", "limit"), PUBLIC),
        **FLOWS,
        **dict.fromkeys(("c", "s"), COVERED),
    },
    **dict.fromkeys(("state.npz", "state-evaluation.npz"), PRIVATE),
    "released.json": PRIVATE,
    "status.json": PRIVATE,
    "solution.npz": COVERED,
    "statement.json": {**STATEMENT, "run": COVERED, "runs": COVERED, "study": PUBLIC},
    # attacks
    "attack.png": PRIVATE,
    "loads.csv": PRIVATE,
}
# What a command prints as JSON: what is not named here has no number of a run, or is as its file
DOCUMENTS: dict[str, dict[str, Level]] = {
    "power solve": dict.fromkeys(
        ("tables.bus", "answer", "central", "what_privacy_costs"), PRIVATE
    ),
    "learn": {
        **dict.fromkeys(("records", "longest_row", "scaled_down"), PRIVATE),
        **dict.fromkeys(("clipped", "unknown", "filled", "targets_clipped"), PRIVATE),
        **dict.fromkeys(("test_error", "test_error_of_a_guess", "what_privacy_costs"), PRIVATE),
        "train_objective": ONCE,
    },
}


def level(file: str, *parts: str, having: Iterable[str] = ()) -> Level:
    """The level of a file, or of a column or field of it.

    Arguments:
        parts: names of the field, from outside in
        having: the columns of a trace that there are, if not all of the table
    """
    found: Level | Parts | None = FILES.get(file)
    for part in parts:
        part = part.removesuffix("_pu")  # the unit of a column
        found = found.get(part) if isinstance(found, Mapping) else None
    if found is TRACE and having:
        found = {name: TRACE.get(name, PRIVATE) for name in having}
    return PRIVATE if found is None else strictest(found)


def strictest(found: Level | Parts) -> Level:
    """Of all parts together."""
    if isinstance(found, Level):
        return found
    return max(map(strictest, found.values()), key=ORDER.index)


def may_have(statement: PrivacyStatement, found: Level) -> bool:
    """Whether everybody may have what is of this level, of a run with this statement."""
    if found is PUBLIC or not promised(statement):
        return found is PUBLIC
    return found is COVERED or (found is ONCE and statement.once)


def not_covered(once: bool, names: Iterable[str], of: Mapping[str, Level]) -> list[str]:
    """Which of these names a certified statement does not cover."""
    hidden = (PRIVATE,) if once else (PRIVATE, ONCE)
    return [name for name in names if of.get(name, PRIVATE) in hidden]
