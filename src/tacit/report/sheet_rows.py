"""The first rows of a privacy sheet: whose data, which run, its budget, and what a ledger says.

Guarantee: what bounds a risk is rounded up, what is left is rounded down, and a limit that was
changed says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from tacit.html import plain
from tacit.privacy.accounting import rounded_down, rounded_up
from tacit.privacy.ledger import changed
from tacit.protocol.statement import promised
from tacit.report.account import Account
from tacit.report.subject import Subject

MOST_CHANGES = 2  # of a limit, in words
TOGETHER = "runs together cost less than their sum"


def rows(subject: Subject, who: str) -> Iterator[tuple[str, str]]:
    """Headings and what stands beside them."""
    p = subject.statement
    yield (
        "Whose data",
        who
        + {None: "", 0: "", 1: ", with one other agent"}.get(
            subject.others, f", with {subject.others} other agents"
        ),
    )
    yield "Which run", _which(subject)
    yield "When", subject.when
    if not promised(p):
        yield "Budget of this run", "none that means anything"
    elif subject.overpaid is None:
        yield "Budget of this run", f"ε ≤ {up(p.epsilon)}, δ ≤ {up(p.delta, 6)}"
    else:
        said = f"{paid(subject)} by the ledger; its result says ε ≤ {up(p.epsilon)}"
        yield "Budget of this run", f"{said}; at δ = {up(p.delta, 6)}"
    if (most := subject.limits) is not None:
        rounds = "" if most.rounds is None else f", {most.rounds} rounds"
        words = f"ε = {up(most.total_epsilon, 6)}, δ = {up(most.total_delta, 6)}{rounds}"
        yield "Limit of one run", f"{words}, in the party's own file"
    yield from _ledger(subject)


def paid(subject: Subject) -> str:
    """What the ledger paid for this run; at delta 0, Gaussian noise has no epsilon."""
    return f"ε ≤ {up(subject.epsilon)}" if math.isfinite(subject.epsilon) else "no bound"


def _which(subject: Subject) -> str:
    """By its name in a ledger. Without one a command calls every run alike."""
    known = subject.account is not None and subject.account.run(subject.run) is not None
    if subject.run and (known or subject.run != "run" or not subject.about):
        return plain(subject.run, 80)
    return subject.about or "its name is not recorded"


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
        f"ε ≤ {up(a.spent.epsilon, 4)} of a limit of {up(a.budget.epsilon, 6)}{_changes(a)}, at "
        f"δ = {up(a.budget.delta, 6)}, in {_entries(subject, a)}{over}",
    )
    if a.left is not None:
        words = f"room for a Gaussian run of ε = {rounded_down(a.left)} at this δ"
        yield "Left", f"{words} ({TOGETHER})"
    else:
        less = max(0.0, a.budget.epsilon - a.spent.epsilon)
        yield "Left", f"ε = {rounded_down(less)}: the limit less what is spent ({TOGETHER})"
    words = f"{plain(a.name, 40)}, {a.entries} entries, all consistent; the last is {a.head[:16]}"
    if subject.overpaid is not None:
        words += ". IT PAID MORE FOR THIS RUN THAN THE RESULT SAYS"
    if subject.counted is False:
        words += ". THIS RUN IS NOT IN IT: its totals leave this run out"
    elif subject.counted is None:
        why = "the run did not note this file" if subject.run else "its name is not recorded"
        words += f". Whether this run is in it is not known: {why}"
    yield "Ledger", words


def _changes(account: Account) -> str:
    """How the limit came to be what it is: the last changes, and how many there were before."""
    pairs = list(zip(account.limits, account.limits[1:], strict=False))
    if not pairs:
        return ""
    earlier = len(pairs) - MOST_CHANGES
    said = ["one earlier change" if earlier == 1 else f"{earlier} earlier changes"] * (earlier > 0)
    for before, now in pairs[-MOST_CHANGES:]:
        delta = f" at δ = {up(before.delta, 6)}" if before.delta != now.delta else ""
        words = f"{changed(before, now)} from {up(before.epsilon, 6)}{delta}"
        said.append(f"{words} on {plain(now.when, 40)[:10]}")
    return f" ({', '.join(said)})"


def _entries(subject: Subject, account: Account) -> str:
    """How many runs; a command that first reads a mean has two entries."""
    readings = sum(r["read_once"] for r in account.runs)
    rounds = len(account.runs) - readings
    if (readings, rounds) == (1, 1) and subject.statement.before and subject.counted:
        return "one run (2 entries: the mean, and the rounds)"
    said = ["one reading of the data" if readings == 1 else f"{readings} readings of the data"] * (
        readings > 0
    )
    said += ["one run" if rounds == 1 else f"{rounds} runs"] * (rounds > 0 or not readings)
    return f"{' and '.join(said)}{' of rounds' if len(said) == 2 else ''}"


def shown(epsilon: float, digits: int = 3) -> float:
    """The number that is on the page."""
    return float(rounded_up(epsilon, digits))


def up(value: float, digits: int = 3) -> str:
    """Rounded up, and small numbers without an exponent."""
    text = rounded_up(value, digits)
    return f"{Decimal(text):f}" if 1e-8 <= value < 1e-3 else text
