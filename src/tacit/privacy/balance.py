"""What a ledger says, as rows: for ``tacit ledger show`` and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tacit import html
from tacit.errors import TacitError, digits
from tacit.privacy.accounting import rounded_down, rounded_up

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

MOST_RUNS = 20  # that a notebook lists
OF_RUNS = ("run", "began", "noise", "paid for", "answered", "epsilon")  # header of ``runs``


def amounts(ledger: Ledger) -> list[tuple[str, str]]:
    """What may be spent, is spent and is left, over all runs: epsilon, at the budget's delta."""
    budget, spent = ledger.budget, ledger.spent
    words, left = "largest further Gaussian run that fits", ledger.left
    if left is None:
        words, left = "left: budget less spent", max(0.0, budget.epsilon - spent.epsilon)
    return [
        ("budget", digits(budget.epsilon)),
        ("spent, all runs together", rounded_up(spent.epsilon, 4)),
        (words, rounded_down(left, 4)),
    ]


def runs(found: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each of ``Ledger.runs``."""
    return [
        (
            r["run"],
            r["began"][:10],
            f"{r['mechanism']['kind']}, {r['noise']}",
            *_paid(r),
            rounded_up(r["epsilon"], 4),
        )
        for r in found
    ]


def _paid(run: dict[str, Any]) -> tuple[str, str]:
    """What was paid for in a run, and what was answered: rounds, or a release."""
    charges, answers = run["rounds_charged"], run["rounds_answered"]
    if not run["read_once"]:
        return f"{charges} of {run['rounds_agreed']} rounds", str(answers)
    paid = {0: "no release", 1: "one release"}.get(charges, f"{charges} releases")
    return paid, "kept" if answers else "nothing kept"


def ledger_html(ledger: Ledger) -> str:
    title = f"Ledger {html.plain(ledger.path.name)}"
    try:
        rows, few = amounts(ledger), len(ledger.run_names) <= MOST_RUNS
        listed = ledger.runs() if few else []
        more = [("delta", digits(ledger.budget.delta))]
        more.append(("entries", f"{ledger.entries}, all sound; runs: {len(ledger.run_names)}"))
    except TacitError as error:  # it says so in place of numbers of before
        return html.card(title, html.box(f"Cannot be read: {error}", loud=True))
    over = ledger.spent.epsilon > ledger.budget.epsilon
    return html.card(
        title,
        html.box("More is spent than the budget allows.", loud=True) if over else "",
        html.table([*rows, *more, *(("hides", r["neighbours"]) for r in listed[:1])]),
        html.table(runs(listed), OF_RUNS) if listed else "",
        html.small("The file is as private as the data: do not publish it."),
    )
