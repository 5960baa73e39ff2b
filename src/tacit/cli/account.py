"""The command ``tacit account``: what many noisy updates cost, without running anything."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from tacit.cli.console import print_table
from tacit.cli.options import Add, whole
from tacit.errors import InvalidInput, digits


def add_account(add: Add) -> None:
    account = add(
        "account",
        _account,
        "Total privacy of many noisy updates, or the noise for a total budget.",
        "tacit account --mechanism gaussian --epsilon 1 --delta 1e-6 --updates 50000\n"
        "  tacit account --total-epsilon 1 --total-delta 1e-5 --updates 1500",
    )
    account.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    account.add_argument("--epsilon", type=float, help="epsilon of one update")
    account.add_argument(
        "--delta", type=float, help="delta of one gaussian update, or at which to state the total"
    )
    account.add_argument("--total-epsilon", type=float, help="epsilon of all updates together")
    account.add_argument("--total-delta", type=float, help="delta of all updates together")
    account.add_argument("--noise-multiplier", type=float, help="noise in units of the sensitivity")
    account.add_argument("--updates", type=whole, required=True, help="rounds times local updates")


def _account(options: argparse.Namespace) -> int:
    from tacit.privacy import accounting, mechanisms
    from tacit.privacy.accounting import rounded_up

    name, updates = options.mechanism, options.updates
    given = (options.total_epsilon, options.epsilon, options.noise_multiplier)
    if sum(value is not None for value in given) != 1:
        raise InvalidInput(
            "Expected either --epsilon (of one update), --total-epsilon or --noise-multiplier."
        )
    if options.noise_multiplier is not None:
        kind = {"gaussian": mechanisms.Gaussian, "laplace": mechanisms.Laplace}[name]
        delta = options.delta if options.delta is not None else options.total_delta
        if delta is None and name == "gaussian":
            raise InvalidInput("Expected --delta for the gaussian mechanism.")
        total = accounting.exact(kind(options.noise_multiplier), updates, delta or 0.0)
        return _print_account(
            options.json,
            f"{updates} {name} updates of noise multiplier {digits(options.noise_multiplier)}",
            {"mechanism": name, "updates": updates, "exact": _pair(total)},
            [("exact", _words(total))],
        )
    if options.total_epsilon is not None:
        if options.delta is not None:
            raise InvalidInput("Expected --total-delta beside --total-epsilon, got --delta.")
        delta = options.total_delta
        if delta is None:
            if name == "gaussian":
                raise InvalidInput("Expected --total-delta for the gaussian mechanism.")
            delta = 0.0
        mechanism = accounting.calibrate(name, options.total_epsilon, delta, updates)
        total = accounting.exact(mechanism, updates, delta)
        document: dict[str, Any] = {
            "mechanism": name,
            "updates": updates,
            "noise_multiplier": mechanism.noise_multiplier,
            "exact": _pair(total),
        }
        rows = [
            ("noise multiplier of one update", rounded_up(mechanism.noise_multiplier, 6)),
            ("spent in all (exact)", _words(total)),
        ]
        within = f"epsilon {digits(options.total_epsilon)}, delta {digits(delta)}"
        title = f"{updates} {name} updates within {within}"
    else:
        if options.total_delta is not None:
            raise InvalidInput("Expected --delta beside --epsilon, got --total-delta.")
        mechanism = mechanisms.per_update(name, options.epsilon, options.delta, "paper")
        delta = options.delta if options.delta is not None else 0.0
        basic = accounting.basic(options.epsilon, delta if name == "gaussian" else 0.0, updates)
        exact = accounting.exact(mechanism, updates, delta)
        paper = None
        if name == "gaussian":
            paper = accounting.paper(options.epsilon, options.delta, updates)
        document = {
            "mechanism": name,
            "updates": updates,
            "noise_multiplier": mechanism.noise_multiplier,
            "basic": _pair(basic),
            "paper": _pair(paper) if paper else None,
            "exact": _pair(exact),
        }
        formula = "classical" if name == "gaussian" else "1/epsilon"
        document["formula"] = formula
        multiplier = f"noise multiplier ({formula} formula)"
        rows = [(multiplier, rounded_up(mechanism.noise_multiplier, 6))]
        rows.append(("basic composition", _words(basic)))
        if name == "gaussian" and options.epsilon > 1:
            # the classical formula holds for epsilon <= 1 only (Section 4.2)
            document["basic_valid"] = False
            rows[1] = ("basic composition (not valid: epsilon > 1)", _words(basic))
        if paper:
            rows.append(("paper's theorem (understates)", _words(paper)))
        rows.append(("exact", _words(exact)))
        title = f"{updates} {name} updates, each epsilon {digits(options.epsilon)}"
        title += f", delta {digits(options.delta)}" if name == "gaussian" else ""
    return _print_account(options.json, title, document, rows)


def _print_account(as_json: bool, title: str, document: Any, rows: Sequence[Any]) -> int:
    if as_json:
        print(json.dumps(document))
    else:
        print_table(title, ("", ""), rows)
    return 0


def _pair(total: Any) -> dict[str, float]:
    return {"epsilon": total.epsilon, "delta": total.delta}


def _words(total: Any) -> str:
    from tacit.privacy.accounting import rounded_up

    return f"epsilon {rounded_up(total.epsilon, 6)}, delta {rounded_up(total.delta, 6)}"
