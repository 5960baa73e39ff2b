"""One page for a data protection officer: what was shared of an agent's data, and what that means.

A ``Sheet`` is the words, once; ``sheet_pages.py`` puts them on a page of HTML and one of PDF.

Guarantee: every number on it is public (settings, names, sizes), from the statement or from the
agent's own ledger, and none is smaller than it is: a total that does not count this run is not
turned into odds. Nothing that the statement does not cover is on it. Where nothing is promised, the
first line says so, and there are no odds.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Context
from importlib import metadata
from typing import Any

from tacit.admm.notebook import promised
from tacit.html import plain, several
from tacit.privacy.accounting import rounded_up
from tacit.report.account import Account
from tacit.report.odds import exception, guess, hits, next_to_nothing, percent, suspicion
from tacit.report.subject import Subject

BEFORE = (0.01, 0.1, 0.5)  # suspicions
ALARMS = (0.01, 0.05)  # shares of false alarms
# What the statement covers, if it is certified; the trace where data were read once
COVERED = {
    *("arrays.npz", "solution.npz", "model.json", "mean.json", "line.csv", "generator.csv"),
    *("cut_lines.csv", "release.csv", "release.npz"),
}
OF_A_RELEASE = {"trace.csv", "plot.png"}
SECRET = {
    *("checkpoint.npz", "result.json", "run.json", "job.json", "power.json", "job.toml"),
    *("timing.json", "bus.csv", "grid.png", "figures.json", "check.json", "log.jsonl"),
    *OF_A_RELEASE,
}
OWN = {"sheet.html", "sheet.pdf", "statement.json"}  # to be handed over, or said here in full


@dataclass(frozen=True)
class Section:
    """A heading, and sentences below it."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Odds:
    """A table: a header, rows of text, and what must be read with it."""

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
        sound,
        _verdict(subject),
        tuple(_facts(subject, who)),
        _odds(subject) if sound else None,
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
        return f"NOTHING IS PROMISED: this run is not certified. {plain(why, 250)}"
    budget = f"ε = {_up(p.epsilon)}, δ = {_up(p.delta, 6)}"
    if next_to_nothing(_shown(p.epsilon), p.delta):
        return f"Certified, but {budget} promises next to nothing: see the odds below."
    return (
        f"Certified: all that was shared is differentially private with {budget}, against "
        "everyone, whatever else they know."
    )


# --- facts ------------------------------------------------------------------------------------


def _facts(subject: Subject, who: str) -> Any:
    p = subject.statement
    yield "Whose data", who + {None: "", 0: "", 1: ", with one other agent"}.get(
        subject.others, f", with {subject.others} other agents"
    )
    yield "Which run", plain(subject.run, 80) or "its name is not recorded"
    yield "When", subject.when
    if promised(p):
        yield "Budget of this run", f"ε ≤ {_up(p.epsilon)}, δ ≤ {_up(p.delta, 6)}"
    else:
        yield "Budget of this run", "none that means anything"
    if subject.limits:
        yield "Most that one run may cost", f"{subject.limits} (the party's own limit)"
    yield "Ledger", _ledger(subject)


def _ledger(subject: Subject) -> str:
    a = subject.account
    if a is None:
        return (
            f"none was read: {subject.missing or 'none was given (--ledger FILE)'}. Nothing on "
            "this page counts other runs on the same data; their budgets add up."
        )
    left = "" if a.left is None else f"; room for a further Gaussian run of ε = {_down(a.left)}"
    words = (
        f"{plain(a.name, 40)}: spent in {_runs(a)} ε ≤ {_up(a.spent.epsilon, 4)} of "
        f"{_up(a.budget.epsilon, 6)}, at δ = {_up(a.budget.delta, 6)}{left}. "
        f"All {a.entries} entries are consistent, up to {a.head[:16]}."
    )
    counted = a.counts(subject.statement, subject.run)
    if a.spent.epsilon > a.budget.epsilon:
        words += " MORE IS SPENT THAN THE LIMIT."
    if counted is False:
        return f"{words} THIS RUN IS NOT IN IT: what it says of totals leaves this run out."
    if counted is None:
        return f"{words} Whether this run is in it is not known, as its name is not recorded."
    return words


def _runs(account: Account) -> str:
    return "one run" if (n := len(account.runs)) == 1 else f"{n} runs"


# --- odds -------------------------------------------------------------------------------------


def _odds(subject: Subject) -> Odds:
    """From the numbers as they are shown, so that whoever reads them can compute the same."""
    p, account = subject.statement, subject.account
    columns = [("after this run", _shown(p.epsilon), p.delta)]
    if account is not None and account.counts(p, subject.run):
        delta = account.budget.delta
        columns.append((f"after {_runs(account)} so far", _shown(account.spent.epsilon, 4), delta))
        columns.append(("if the limit is spent", _shown(account.budget.epsilon, 6), delta))
    rows = []
    for before in BEFORE:
        words = f"holds it for true with probability {percent(before)}: afterwards at most"
        rows.append((words, *(percent(suspicion(before, e, d)) for _, e, d in columns)))
    rows.append(("but for noise that occurs with probability", *(_failing(d) for *_, d in columns)))
    for share in ALARMS:
        words = f"tests for it, with {percent(share)} false alarms: hits at most"
        rows.append((words, *(percent(hits(share, e, d)) for _, e, d in columns)))
    rows.append(
        (
            "guesses at even odds (a coin is right in 50 %): right in at most",
            *(percent(guess(e, d)) for _, e, d in columns),
        )
    )
    note = (
        f"“It”: that the data are in one and not in the other of two states that differ by "
        f"{plain(_changes(subject), 300)}. “Someone” knows all other data, and sees all messages."
    )
    return Odds(("Someone who ...", *(name for name, *_ in columns)), tuple(rows), note)


def _failing(delta: float) -> str:
    if delta == 0:
        return "0"
    return "any: nothing" if exception(delta) >= 1 else f"≤ {_up(exception(delta), 3)}"


def _changes(subject: Subject) -> str:
    return "; or ".join(dict.fromkeys(change for change, _ in subject.statement.neighbours))


# --- the rest ---------------------------------------------------------------------------------


def _sections(subject: Subject) -> Any:
    p = subject.statement
    sound = promised(p)
    yield Section("What was shared, and with whom", tuple(_shared(subject)))
    hidden = (
        f"{_begun(plain(_changes(subject), 400))}: whether that happened stays in doubt, as "
        "the table says. Several such changes at once are hidden less: ε counts once for each.",
    )
    yield Section("What is hidden", hidden if sound else ("Nothing, as far as is proven.",))
    yield Section("May be published", (_published(subject),))
    yield Section("Must be kept", (_kept(subject),))
    yield Section(
        "Taken for public",
        (
            "Feasible sets, bounds, settings, numbers of coordinates, who takes part."
            + (f" {plain(p.assumed, 420)}" if p.assumed else ""),
        ),
    )
    yield Section(
        "Not covered",
        (
            "Facts about everyone (that smoking causes cancer is said of each smoker); how long "
            "computations take; that an agent refuses or fails; whoever reads the agent's own disk."
            + ("" if subject.apart else _one_owner(subject)),
        ),
    )
    yield Section("How to check", (_check_by(subject),))


def _shared(subject: Subject) -> Any:
    p, n = subject.statement, subject.numbers
    sizes = ""
    if n is not None:
        sizes = f" of {'' if subject.exactly else 'at most '}{n} numbers each"
    count = "Messages" if subject.rounds is None else f"{subject.rounds} messages"
    law = f"{plain(p.mechanism, 30)} noise"
    where = "points of a public feasible set" if subject.feasible else "points with noise"
    if math.isinf(p.epsilon):
        yield f"{count}{sizes}, without noise."
    elif p.once:
        yield (
            f"The data were read once, with {law}. All else, {count.lower()}{sizes}, "
            "was computed from that reading and told nothing more of the data."
        )
    else:
        yield (
            f"{count}{sizes}, one in each round: {where}, randomised with {law} before they left "
            f"({p.updates} noisy updates, all in the budget)."
        )
    if p.before:
        yield f"Before them, in the same budget: {plain(p.before, 200)}."
    if p.seeded:
        yield "The noise follows from a seed: whoever has it can subtract the noise."
    if subject.apart:
        yield (
            "Seen by the coordinator's server, in the clear; by other agents as the mean of all "
            "(of two: each other's); by an eavesdropper not, as TLS encrypts on both sides."
        )
    else:
        yield (
            "Seen by the server; by other agents as the mean of all (of two: each other's); by an "
            "eavesdropper wherever messages travel unencrypted."
        )
    if promised(p):
        yield "The promise holds against all of them together."


def _one_owner(subject: Subject) -> str:
    if subject.others == 0 and len(subject.agents) == 1:
        return ""
    return "; whoever ran the command, which read the data of all agents in one place"


def _published(subject: Subject) -> str:
    p = subject.statement
    if not promised(p):
        return "Nothing."
    covered = COVERED | (OF_A_RELEASE if p.once and not subject.apart else set())
    found = [name for name in subject.files if name in covered]
    files = f"{', '.join(found)}, and what" if found else "What"
    return f"{files} is computed from the messages alone, with this page's first line."


def _kept(subject: Subject) -> str:
    p = subject.statement
    free = COVERED | (OF_A_RELEASE if p.once and not subject.apart else set())
    if not promised(p):
        free = set()
    known = COVERED | SECRET
    found = [name for name in subject.files if name in known and name not in free]
    unknown = sum(name not in known | OWN for name in subject.files)
    things = ["the data", "the ledger and its copies"]
    if p.seeded:
        things.append("the seed")
    things += found
    if unknown:
        things.append(f"{unknown} more files and folders, which this page knows nothing of")
    return _begun(f"{', '.join(things)}.")


def _check_by(subject: Subject) -> str:
    a = subject.account
    expect = f" --expect {a.head[:16]}" if a is not None else ""
    words = (
        f"tacit ledger show FILE{expect} recomputes what is spent and fails if entries were "
        "removed. tacit audit attacks the library's own noise. The proofs are in the "
        "documentation, on the pages Privacy and Threat model."
    )
    if subject.apart:
        words += " tacit federation check compares a kit with the party's own limits."
    return words + " Ask whoever runs the agent."


def _begun(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shown(epsilon: float, digits: int = 3) -> float:
    return float(rounded_up(epsilon, digits))


def _up(value: float, digits: int = 3) -> str:
    return rounded_up(value, digits)


def _down(value: float) -> str:
    """What is left is never said to be more."""
    down = Context(prec=3, rounding=ROUND_FLOOR)
    return f"{float(down.create_decimal(repr(value))):.3g}"
