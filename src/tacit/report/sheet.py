"""One page for a data protection officer: what was shared of an agent's data, and what that means.

A ``Sheet`` is the words, once; ``sheet_pages.py`` puts them on a page of HTML and one of PDF.

Guarantee: every number on it is public (settings, names, sizes), from the statement or from the
agent's own ledger, and none is smaller than it is: a total that does not count this run is not
turned into odds. Nothing that the statement does not cover is on it. Where nothing is promised, the
first line says so, and there are no odds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Context, Decimal
from importlib import metadata
from typing import Any

from tacit.admm.notebook import promised
from tacit.admm.statement import PrivacyStatement
from tacit.html import plain, several
from tacit.privacy.accounting import rounded_up
from tacit.report.account import Account
from tacit.report.handover import may_be_published, must_be_kept
from tacit.report.odds import exception, guess, hits, next_to_nothing, percent, suspicion
from tacit.report.subject import Subject

BEFORE = (0.01, 0.1, 0.5)  # suspicions
ALARMS = (0.01, 0.05)  # shares of false alarms
PUBLIC = "Taken for public: "  # as a statement may begin what it assumes
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
        return f"NOTHING IS PROMISED: this run is not certified. {_begun(plain(why, 250))}"
    budget = f"ε = {_up(p.epsilon)}, δ = {_up(p.delta, 6)}"
    if next_to_nothing(_shown(p.epsilon), p.delta):
        return f"Certified, but {budget} promises next to nothing: see the odds below."
    return (
        f"Certified: all that was shared is differentially private with {budget}, against "
        f"everyone, whatever else they know{SEED if p.seeded else ''}."
    )


# --- facts ------------------------------------------------------------------------------------


def _facts(subject: Subject, who: str) -> Iterator[tuple[str, str]]:
    p = subject.statement
    yield (
        "Whose data",
        who
        + {None: "", 0: "", 1: ", with one other agent"}.get(
            subject.others, f", with {subject.others} other agents"
        ),
    )
    yield "Which run", plain(subject.run, 80) or "its name is not recorded"
    yield "When", subject.when
    if promised(p):
        yield "Budget of this run", f"ε ≤ {_up(p.epsilon)}, δ ≤ {_up(p.delta, 6)}"
    else:
        yield "Budget of this run", "none that means anything"
    if (most := subject.limits) is not None:
        rounds = "" if most.rounds is None else f", {most.rounds} rounds"
        words = f"ε = {_up(most.total_epsilon, 6)}, δ = {_up(most.total_delta, 6)}{rounds}"
        yield "Limit of one run", f"{words}, in the party's own file"
    yield from _ledger(subject)


def _ledger(subject: Subject) -> Iterator[tuple[str, str]]:
    a = subject.account
    if a is None:
        yield (
            "Ledger",
            f"None was read: {subject.missing or 'none was given (--ledger FILE)'}. Nothing on "
            "this page counts other runs on the same data; their budgets add up.",
        )
        return
    over = ". MORE IS SPENT THAN THE LIMIT" if a.spent.epsilon > a.budget.epsilon else ""
    yield (
        "Spent in all runs",
        f"ε ≤ {_up(a.spent.epsilon, 4)} of a limit of {_up(a.budget.epsilon, 6)}, at "
        f"δ = {_up(a.budget.delta, 6)}, in {_runs(a)}{over}",
    )
    if a.left is not None:
        yield "Left", f"room for a further Gaussian run of ε = {_down(a.left)} at this δ"
    words = f"{plain(a.name, 40)}, {a.entries} entries, all consistent; the last is {a.head[:16]}"
    counted = a.counts(subject.statement, subject.run, subject.paid)
    if counted is False:
        words += ". THIS RUN IS NOT IN IT: its totals leave this run out"
    elif counted is None:
        why = "the run did not note this file" if subject.run else "its name is not recorded"
        words += f". Whether this run is in it is not known: {why}"
    yield "Ledger", words


def _runs(account: Account) -> str:
    return "one run" if (n := len(account.runs)) == 1 else f"{n} runs"


# --- odds -------------------------------------------------------------------------------------


def _odds(subject: Subject) -> Odds:
    """From the numbers as they are shown, so that whoever reads them can compute the same."""
    p, account = subject.statement, subject.account
    columns = [("this run", _shown(p.epsilon), p.delta)]
    if account is not None and account.counts(p, subject.run, subject.paid):
        delta = account.budget.delta
        # of all runs never less than of this one, which the last digit of its noise could make it
        spent = max(_shown(account.spent.epsilon, 4), columns[0][1])
        columns.append(("all runs so far", spent, delta))
        columns.append(("all of the limit", _shown(account.budget.epsilon, 6), delta))
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
    factor = math.exp(min(_shown(p.epsilon), 700.0))
    times = f"{_up(factor)} times" if factor < 1e6 else "more than a million times"
    more = f", plus {_up(p.delta, 6)}" if p.delta else ""
    return (
        f"“It” is that the data are the one and not the other of two that differ by "
        f"{plain(_changes(subject), 250)}. Any finding in what was shared is at most {times} as "
        f"probable with the one as with the other{more}: this is what ε and δ say. For someone who "
        "knows all other data and sees all messages, it follows:"
    )


def _failing(delta: float) -> str:
    if delta == 0:
        return "0"
    return "any: nothing" if exception(delta) >= 1 else f"≤ {_up(exception(delta), 3)}"


def _changes(subject: Subject) -> str:
    return "; or ".join(dict.fromkeys(change for change, _ in subject.statement.neighbours))


# --- the rest ---------------------------------------------------------------------------------


def _sections(subject: Subject) -> Iterator[Section]:
    p = subject.statement
    sound = promised(p)
    yield Section("What was shared, and with whom", tuple(_shared(subject)))
    hidden = (
        f"{_begun(plain(_changes(subject), 400))}: whether that happened stays in doubt, as "
        "the table says. Several such changes at once are hidden less: ε counts once for each, and "
        "δ grows by more.",
    )
    # of a run that is not certified the size of the change may be a share of private numbers
    yield Section("What is hidden", hidden if sound else ("Nothing, as far as is proven.",))
    yield Section("May be published", (may_be_published(subject),))
    yield Section("Must be kept", (_begun(must_be_kept(subject)),))
    yield Section(
        "Taken for public",
        (
            "Feasible sets, bounds, settings, numbers of coordinates, who takes part."
            + (f" {_begun(plain(p.assumed.removeprefix(PUBLIC), 420))}" if p.assumed else ""),
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
    yield Section("How to check", (_check_by(subject),))


def _shared(subject: Subject) -> Iterator[str]:
    p, n = subject.statement, subject.numbers
    sizes = ""
    if n is not None:
        sizes = f" of {'' if subject.exactly else 'at most '}{n} numbers each"
    count = "Messages" if subject.rounds is None else f"{subject.rounds} messages"
    law = f"{_begun(plain(p.mechanism, 30))} noise"
    where = "points of a public feasible set" if subject.feasible else "points with noise"
    if math.isinf(p.epsilon):
        yield f"{count}{sizes}, without noise."
    elif p.once:
        more = " and told nothing more of the data" if promised(p) else ""
        yield (
            f"The data were read once, with {law}. All else, {count.lower()}{sizes}, "
            f"was computed from that reading{more}."
        )
    else:
        yield (
            f"{count}{sizes}, one in each round: {where}, randomised with {law} before they left "
            f"({p.updates} noisy updates{', all in the budget' if promised(p) else ''})."
        )
    if p.before:
        yield f"Before them, in the same budget: {plain(p.before, 200)}."
    if p.seeded:
        yield "The noise follows from a seed: whoever has it can subtract the noise."
    elif not p.secure and promised(p):
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
    if promised(p):
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
    """Rounded up, and small numbers without an exponent."""
    text = rounded_up(value, digits)
    return f"{Decimal(text):f}" if 1e-8 <= value < 1e-3 else text


def _down(value: float) -> str:
    """What is left is never said to be more."""
    down = Context(prec=3, rounding=ROUND_FLOOR)
    return f"{float(down.create_decimal(repr(value))):.3g}"
