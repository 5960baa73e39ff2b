"""A ledger as a notebook shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit import html
from tacit.errors import TacitError, digits
from tacit.privacy.accounting import rounded_down, rounded_up

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

MOST_RUNS = 20  # that are listed


def ledger_html(ledger: Ledger) -> str:
    """What may be spent, is spent and is left, over all runs, and the runs where they are few."""
    title = f"Ledger {html.plain(ledger.path.name)}"
    try:
        budget, spent, left = ledger.budget, ledger.spent, ledger.left
        entries, names = ledger.entries, ledger.run_names
        runs = ledger.runs() if len(names) <= MOST_RUNS else []
    except TacitError as error:  # it says so in place of numbers of before
        return html.card(title, html.box(f"Cannot be read: {error}", loud=True))
    parts = []
    if spent.epsilon > budget.epsilon:
        parts.append(html.box("More is spent than the budget allows.", loud=True))
    rows = [
        ("budget", f"ε = {digits(budget.epsilon)}, δ = {digits(budget.delta)}"),
        ("spent, all runs together", f"ε ≤ {rounded_up(spent.epsilon, 4)}"),
        ("entries", f"{entries}, all sound; runs: {len(names)}"),
    ]
    if left is not None:
        rows.insert(2, ("largest further Gaussian run that fits", f"ε = {rounded_down(left, 4)}"))
    if runs:
        rows.append(("hides", runs[0]["neighbours"]))
    parts.append(html.table(rows))
    if runs:
        listed = [
            (
                r["run"],
                r["began"][:10],
                f"{r['mechanism']['kind']}, {r['noise']}",
                "one reading" if r["read_once"] else f"{r['rounds_charged']} rounds",
                f"ε ≤ {rounded_up(r['epsilon'], 4)}",
            )
            for r in runs
        ]
        parts.append(html.table(listed, ("run", "began", "noise", "paid for", "by itself")))
    parts.append(html.small("The file is as private as the data: do not publish it."))
    return html.card(title, *parts)
