"""The command ``tacit ledger``: what an agent may spend and has spent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.console import tell
from tacit.cli.options import Add
from tacit.errors import CorruptFile, digits

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger, Limit


def add_ledger(add: Add) -> None:
    show = add(
        "show",
        _show,
        "What an agent has spent, on which runs, and what is left. Checks the whole ledger.",
        "tacit ledger show agent.db",
    )
    show.add_argument("ledger", help="the agent's ledger")
    show.add_argument(
        "--expect",
        metavar="HASH",
        help="a hash shown before: fail if it is not in the ledger's past",
    )
    budget = add(
        "budget",
        _budget,
        "Set an agent's total budget; a new ledger is made if needed.",
        "tacit ledger budget agent.db --total-epsilon 4 --total-delta 1e-5",
    )
    budget.add_argument("ledger", help="the agent's ledger")
    budget.add_argument("--total-epsilon", type=float, required=True)
    budget.add_argument("--total-delta", type=float, required=True, help="0: pure epsilon")
    backup = add(
        "backup",
        _backup,
        "Copy a ledger, also while it is in use.",
        "tacit ledger backup agent.db copy.db",
    )
    backup.add_argument("ledger", help="the agent's ledger")
    backup.add_argument("copy", help="a file that is not there yet")


def _show(options: argparse.Namespace) -> int:
    from tacit.privacy.ledger import Ledger

    ledger = Ledger(options.ledger)
    if options.expect is not None and not ledger.holds(options.expect):
        raise CorruptFile(
            f"Expected an entry with the hash {options.expect} in {options.ledger}, found none: "
            "it is an old copy, or entries were removed."
        )
    return _tell(ledger, options.json)


def _budget(options: argparse.Namespace) -> int:
    from tacit.privacy.ledger import Ledger

    wanted = options.total_epsilon, options.total_delta
    if Path(options.ledger).exists():
        ledger = Ledger(options.ledger)
        before = ledger.budgets[-1]
        ledger.set_budget(*wanted)
        if not options.json:
            print(_change(before, ledger.budgets[-1]))
    else:
        Path(options.ledger).parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger.create(options.ledger, *wanted)
    return _tell(ledger, options.json)


def _backup(options: argparse.Namespace) -> int:
    from tacit.privacy.ledger import Ledger

    Ledger(options.ledger).backup(options.copy)
    copy = Ledger(options.copy)
    words = f"{options.copy}: entries up to {copy.head[:16]}..."
    return tell(options.json, {"copy": options.copy, "head": copy.head}, words)


def _tell(ledger: Ledger, as_json: bool) -> int:
    from tacit.privacy.ledger import OF_RUNS, amounts, rows_of

    budget, spent, runs, limits = ledger.budget, ledger.spent, ledger.runs(), ledger.budgets
    document = {
        "ledger": str(ledger.path),
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "spent_alone": {"epsilon": ledger.spent_alone.epsilon, "delta": spent.delta},
        "left": ledger.left,
        "budget_less_spent": max(0.0, budget.epsilon - spent.epsilon),
        "limits": [
            {"since": limit.when, "epsilon": limit.epsilon, "delta": limit.delta}
            for limit in limits
        ],
        "hides": runs[0]["neighbours"] if runs else None,
        "runs": runs,
        "head": ledger.head,
    }
    title = f"{ledger.path} (delta {digits(budget.delta)})"
    parts: list[Any] = [(title, ("", "epsilon"), amounts(ledger))]
    if len(limits) > 1:
        parts.append(f"limits: {', '.join(_since(limit, limits) for limit in limits)}")
    if runs:
        parts.append(f"for {runs[0]['neighbours']}")
        parts.append(("runs, each by itself", OF_RUNS, rows_of(runs)))
    parts.append(f"all entries are sound; the last has the hash {ledger.head[:16]}...")
    return tell(as_json, document, *parts)


def _since(limit: Limit, limits: Sequence[Limit]) -> str:
    """With its delta, unless that was always the same."""
    delta = f" at delta {digits(limit.delta)}" if len({one.delta for one in limits}) > 1 else ""
    return f"{digits(limit.epsilon)}{delta} since {limit.when[:10]}"


def _change(before: Limit, now: Limit) -> str:
    from tacit.privacy.ledger import changed

    if before[1:] == now[1:]:
        return f"as it was: {digits(now.epsilon)}"
    numbers = f"from {digits(before.epsilon)} to {digits(now.epsilon)}"
    if before.delta != now.delta:
        numbers += f", delta from {digits(before.delta)} to {digits(now.delta)}"
    return f"{changed(before, now)} {numbers}"
