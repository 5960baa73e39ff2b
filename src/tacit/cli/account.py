"""The command ``tacit account``: what many noisy updates cost, without running anything."""

from __future__ import annotations

import argparse
import math
from typing import Any

from tacit.cli.console import tell
from tacit.cli.options import Add, whole
from tacit.errors import InvalidInput, digits


def add_account(add: Add) -> None:
    account = add(
        "account",
        _account,
        "Total privacy of many noisy updates, or the noise for a total budget.",
        "tacit account --mechanism gaussian --epsilon 1 --delta 1e-6 --updates 50000\n"
        "  tacit account --total-epsilon 1 --total-delta 1e-5 --updates 1500\n"
        "  tacit account --total-epsilon 1 --total-delta 1e-5 --updates 200 --parties 10",
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
    account.add_argument("--parties", type=int, help="number of parties in a secure sum")
    account.add_argument(
        "--colluding", type=int, help="parties that may collude (default: just less than half)"
    )


def _account(options: argparse.Namespace) -> int:
    from tacit.privacy import accounting, mechanisms
    from tacit.privacy.accounting import rounded_up

    name, updates = options.mechanism, options.updates
    given = (options.total_epsilon, options.epsilon, options.noise_multiplier)
    if sum(value is not None for value in given) != 1:
        raise InvalidInput(
            "Expected either --epsilon (of one update), --total-epsilon or --noise-multiplier."
        )
    if options.total_epsilon is not None and options.delta is not None:
        raise InvalidInput("Expected --total-delta beside --total-epsilon, got --delta.")
    if options.epsilon is not None and options.total_delta is not None:
        raise InvalidInput("Expected --delta beside --epsilon, got --total-delta.")
    delta = options.total_delta if options.delta is None else options.delta
    if delta is None and name == "gaussian" and options.epsilon is None:
        which = "--delta" if options.total_epsilon is None else "--total-delta"
        raise InvalidInput(f"Expected {which} for the gaussian mechanism.")
    title = f"{updates} {name} updates"
    document: dict[str, Any] = {"mechanism": name, "updates": updates}
    rows: list[tuple[str, str]] = []
    if options.noise_multiplier is not None:
        kind = {"gaussian": mechanisms.Gaussian, "laplace": mechanisms.Laplace}[name]
        mechanism = kind(options.noise_multiplier)
        total = accounting.exact(mechanism, updates, delta or 0.0)
        title += f" of noise multiplier {digits(options.noise_multiplier)}"
    elif options.total_epsilon is not None:
        budget = options.total_epsilon, delta or 0.0
        mechanism = accounting.calibrate(name, *budget, updates)
        total = accounting.exact(mechanism, updates, budget[1])
        document["noise_multiplier"] = mechanism.noise_multiplier
        multiplier = rounded_up(mechanism.noise_multiplier, 6)
        rows.append(("noise multiplier of one update", multiplier))
        title += f" within epsilon {digits(budget[0])}, delta {digits(budget[1])}"
    else:
        mechanism = mechanisms.per_update(name, options.epsilon, delta, "paper")
        total = accounting.exact(mechanism, updates, delta or 0.0)
        gaussian = name == "gaussian"
        basic = accounting.basic(options.epsilon, delta if gaussian else 0.0, updates)
        formula = "classical" if gaussian else "1/epsilon"
        document |= {"noise_multiplier": mechanism.noise_multiplier, "formula": formula}
        document |= {"basic": _pair(basic), "paper": None}
        multiplier = rounded_up(mechanism.noise_multiplier, 6)
        rows.append((f"noise multiplier ({formula} formula)", multiplier))
        rows.append(("basic composition", _words(basic)))
        if name == "gaussian" and options.epsilon > 1:
            # the classical formula holds for epsilon <= 1 only (Section 4.2)
            document["basic_valid"] = False
            rows[1] = ("basic composition (not valid: epsilon > 1)", _words(basic))
        if gaussian:
            paper = accounting.paper(options.epsilon, delta, updates)
            document["paper"] = _pair(paper)
            rows.append(("paper's theorem (understates)", _words(paper)))
        title += f", each epsilon {digits(options.epsilon)}"
        title += f", delta {digits(delta)}" if gaussian else ""
    document["exact"] = _pair(total)
    rows.append(
        ("exact" if options.total_epsilon is None else "spent in all (exact)", _words(total))
    )
    if options.parties is not None:
        title += f", sums of {options.parties} parties"
        _of_sum(options, document, rows, mechanism, total.delta)
    elif options.colluding is not None:
        raise InvalidInput("Expected --parties beside --colluding, got none.")
    return tell(options.json, document, (title, ("", ""), rows))


def _of_sum(
    options: argparse.Namespace,
    document: dict[str, Any],
    rows: list[tuple[str, str]],
    mechanism: Any,
    delta: float,
) -> None:
    """What is left where more parties collude or ciphers fail, and what noise is spared."""
    from tacit.privacy.accounting import exact
    from tacit.privacy.mechanisms import check_parties, refuse_no_sum, share_of

    refuse_no_sum(mechanism.name)
    P, c = options.parties, check_parties(options.parties, options.colluding)
    rows[-1] = f"{rows[-1][0]}, if at most {c} of {P} collude", rows[-1][1]
    alone, more = exact(share_of(mechanism, P - c), options.updates, delta), math.sqrt(P / (P - c))
    document["sum"] = {"parties": P, "colluding": c, "alone": _pair(alone), "noise": more}
    rows += [
        ("whatever others do: each party alone", _words(alone)),
        ("noise of the sum, times a curator's", f"{more:.4g}"),
        ("without a secure sum", f"{math.sqrt(P):.4g}"),
    ]


def _pair(total: Any) -> dict[str, float]:
    return {"epsilon": total.epsilon, "delta": total.delta}


def _words(total: Any) -> str:
    from tacit.privacy.accounting import rounded_up

    return f"epsilon {rounded_up(total.epsilon, 6)}, delta {rounded_up(total.delta, 6)}"
