"""One page for a data protection officer: what was shared of an agent's data, and what that means.

A ``Sheet`` is the words, once; ``sheet_pages.py`` puts them on a page of HTML and one of PDF.

Guarantee: every number on it is public (settings, names, sizes), from the statement or from the
agent's own ledger, and none is smaller than it is: a total that does not count this run is not
turned into odds, nor a budget that is less than the ledger paid. Nothing that the statement does
not cover is on it. Where nothing is promised, or the ledger contradicts, the first line says so;
where nothing is promised there are no odds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from tacit.html import plain, several
from tacit.protocol.statement import PUBLIC, PrivacyStatement, promised
from tacit.report.handover import may_be_published, must_be_kept
from tacit.report.hidden import begun, changes, hidden
from tacit.report.odds import exception, guess, hits, next_to_nothing, percent, suspicion
from tacit.report.sheet_rows import paid, rows, shown, up
from tacit.report.subject import Subject

BEFORE = (0.01, 0.1, 0.5)  # suspicions
ALARMS = (0.01, 0.05)  # shares of false alarms
SEED = ", as long as the seed of the noise is secret and never used again"


@dataclass(frozen=True)
class Section:
    """A heading, and sentences below it."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Odds:
    """A table: what it is about, a header, and rows of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class Sheet:
    """The words of the page, in their order."""

    title: str
    promised: bool
    verdict: str
    facts: tuple[tuple[str, str], ...]
    odds: Odds | None
    sections: tuple[Section, ...]
    made: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sheet(subject: Subject, now: datetime | None = None) -> Sheet:
    """The page about a subject."""
    sound, who = promised(subject.statement), _who(subject)
    return Sheet(
        f"Privacy sheet: {who}",
        sound and not subject.disputed,
        _verdict(subject),
        tuple(rows(subject, who)),
        _odds(subject) if sound and math.isfinite(subject.epsilon) else None,
        tuple(_sections(subject)),
        f"Made {now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Tacit {metadata.version('tacit')}"
        f"{_computed_by(subject)}. Numbers that bound a risk are rounded up.",
    )


def _who(subject: Subject) -> str:
    if len(subject.agents) == 1:
        return plain(subject.agents[0], 80)
    return f"each of {len(subject.agents)} agents ({several(subject.agents, 4, 30)})"


def _computed_by(subject: Subject) -> str:
    return f"; the run was computed by version {plain(subject.version, 20)}" * bool(subject.version)


def _verdict(subject: Subject) -> str:
    p = subject.statement
    if math.isinf(p.epsilon):
        return (
            "NOTHING IS PROMISED: no noise was added. The messages of this run reveal the data; "
            "treat them, and all that was computed from them, as the data themselves."
        )
    if not promised(p):
        why = p.uncertified or "its epsilon or delta is no budget."
        return f"NOTHING IS PROMISED: this run is not certified. {begun(plain(why, 250))}"
    if subject.overpaid is not None:
        return _overpaid(subject)
    budget = f"ε = {up(p.epsilon)}, δ = {up(p.delta, 6)}"
    if next_to_nothing(shown(p.epsilon), p.delta):
        return f"Certified, but {budget} promises next to nothing: see the odds below."
    return (
        f"Certified: all that was shared is differentially private with {budget}, against "
        f"everyone, whatever else they know{SEED if p.seeded else ''}."
    )


def _overpaid(subject: Subject) -> str:
    numbers = f"{paid(subject).removeprefix('ε ≤ ')} against {up(subject.statement.epsilon)}"
    why = (
        "its result was changed, or is of another run. Nothing of it is certified until that is "
        "known; the odds below are those of what was paid."
    )
    if not subject.disputed:
        why = (
            "rounds were paid for again, after a crash or a failure. The odds below count all that "
            "was paid."
        )
    return f"THE LEDGER PAID MORE FOR THIS RUN THAN ITS RESULT SAYS ({numbers}): {why}"


# --- odds -------------------------------------------------------------------------------------


def _odds(subject: Subject) -> Odds:
    """From the numbers as they are shown, so that whoever reads them can compute the same."""
    p, account = subject.statement, subject.account
    one = "this run" if subject.overpaid is None else "this run, as paid"
    columns = [(one, shown(subject.epsilon), p.delta)]
    if account is not None and subject.counted:
        delta = account.budget.delta
        # of all runs never less than of this one, which the last digit of its noise could make it
        spent = max(shown(account.spent.epsilon, 4), columns[0][1])
        columns.append(("all runs so far", spent, delta))
        columns.append(("all of the limit", shown(account.budget.epsilon, 6), delta))
    rows = []
    for before in BEFORE:
        words = f"believes it with {percent(before)} before: afterwards with at most"
        rows.append((words, *(percent(suspicion(before, e, d)) for _, e, d in columns)))
    words = "(but for noise that occurs with probability)"
    rows.append((words, *(_failing(d) for *_, d in columns)))
    for share in ALARMS:
        words = f"tests for it, with {percent(share)} false alarms: hits at most"
        rows.append((words, *(percent(hits(share, e, d)) for _, e, d in columns)))
    words = f"guesses at even odds (a coin: {percent(0.5)}): right in at most"
    rows.append((words, *(percent(guess(e, d)) for _, e, d in columns)))
    return Odds(
        ("Someone who ...", *(name for name, *_ in columns)), tuple(rows), _meaning(p, subject)
    )


def _meaning(p: PrivacyStatement, subject: Subject) -> str:
    """What ε and δ say by definition, and who guesses what."""
    factor = math.exp(min(shown(subject.epsilon), 700.0))
    times = f"{up(factor)} times" if factor < 1e6 else "more than a million times"
    more = f", plus {up(p.delta, 6)}" if p.delta else ""
    return (
        f"“It” is that the data are the one and not the other of two that differ by "
        f"{plain(changes(subject), 250)}. Any finding in what was shared is at most {times} as "
        f"probable with the one as with the other{more}: this is what ε and δ say. For someone who "
        "knows all other data and sees all messages, it follows:"
    )


def _failing(delta: float) -> str:
    if delta == 0:
        return "0"
    return "any: nothing" if exception(delta) >= 1 else f"≤ {up(exception(delta), 3)}"


# --- the rest ---------------------------------------------------------------------------------


def _sections(subject: Subject) -> Iterator[Section]:
    p = subject.statement
    sound = promised(p)
    more = plain(p.assumed.removeprefix(PUBLIC).removeprefix("Taken for public: ").strip(), 420)
    yield Section("What was shared, and with whom", tuple(_shared(subject)))
    # of a run that is not certified the size of the change may be a share of private numbers
    said = tuple(hidden(subject)) if sound else ("Nothing, as far as is proven.",)
    yield Section("What is hidden", said)
    yield Section("May be published", (may_be_published(subject),))
    yield Section("Must be kept", (begun(must_be_kept(subject)),))
    yield Section(
        "Taken for public",
        (
            "All that a run takes beside the data, such as feasible sets, bounds, nominal values, "
            "penalties, settings, numbers of records and of coordinates, and who takes part."
            + (f" {begun(more)}" if more else ""),
        ),
    )
    yield Section(
        "Not covered",
        (
            "Facts about everyone (that smoking causes cancer is said of each smoker); how long "
            "computations take; that an agent refuses or fails; whoever reads the agent's own disk"
            + _again(p)
            + ("." if subject.apart else _one_owner(subject)),
        ),
    )
    if sound:
        yield Section("If it is run again", (_run_again(subject),))
    yield Section("How to check", (_check_by(subject),))


def _shared(subject: Subject) -> Iterator[str]:
    p, n = subject.statement, subject.numbers
    sound, sizes = promised(p) and not subject.disputed, ""
    if n is not None:
        sizes = f" of {'' if subject.exactly else 'at most '}{n} numbers each"
    count = "Messages" if subject.rounds is None else f"{subject.rounds} messages"
    law = f"{begun(plain(p.mechanism, 30))} noise"
    where = "points of a public feasible set" if subject.feasible else "points with noise"
    if math.isinf(p.epsilon):
        yield f"{count}{sizes}, without noise."
    elif p.once:
        more = " and told nothing more of the data" if sound else ""
        yield (
            f"The data were read once, with {law}. All else, {count.lower()}{sizes}, "
            f"was computed from that reading{more}."
        )
    else:
        yield (
            f"{count}{sizes}, one in each round: {where}, randomised with {law} before they left "
            f"({p.updates} noisy updates{', all in the budget' if sound else ''})."
        )
    if p.before:
        yield f"Before them, in the same budget: {plain(p.before, 200)}."
    if p.seeded:
        yield "The noise follows from a seed: whoever has it can subtract the noise."
    elif not p.secure and sound:
        yield (
            "The noise follows from a key of 64 bits, which the operating system gave and nobody "
            "keeps: the promise is against those who cannot try 2^64 keys."
        )
    others = (
        "by other agents that share a number, as the mean over those that share it (where two do: "
        "each other's)"
    )
    if subject.apart:
        yield (
            f"Seen by the coordinator's server, in the clear; {others}; by an eavesdropper not, as "
            "TLS encrypts on both sides."
        )
    else:
        yield (
            f"Seen by the server; {others}; by an eavesdropper wherever messages travel "
            "unencrypted."
        )
    if sound:
        yield "The promise holds against all of them together."


def _again(p: PrivacyStatement) -> str:
    if not p.once:
        return ""
    return (
        "; whether the data changed between two runs from one ledger (the same data give the same "
        "numbers)"
    )


def _one_owner(subject: Subject) -> str:
    if subject.others == 0 and len(subject.agents) == 1:
        return "."
    return "; whoever ran the command, which read the data of all agents in one place."


def _run_again(subject: Subject) -> str:
    if subject.account is None:
        return "Another run spends another budget, and no ledger was read that adds them up."
    if subject.statement.once:
        return (
            "From this ledger, the same data and budget cost nothing and give the same numbers; "
            "changed data, or another budget, are charged anew."
        )
    return "Another run spends another budget. The ledger adds up, and refuses beyond its limit."


def _check_by(subject: Subject) -> str:
    a = subject.account
    words = (
        "There is no ledger to check this page against: it says what "
        f"{'statement.json' if subject.apart and subject.others is None else 'result.json'} says."
    )
    if a is not None:
        words = (
            f"tacit ledger show FILE --expect {a.head[:16]} recomputes what is spent and fails if "
            "entries were removed."
        )
    words += (
        " tacit audit attacks the library's own noise. The proofs are in the documentation, on the "
        "pages Privacy and Threat model."
    )
    if subject.apart:
        words += " tacit federation check compares a kit with the party's own limits."
    return words + " Ask whoever runs the agent."
