"""A result and a privacy statement as a notebook shows them.

What the statement does not cover stands there only with the words "do not publish" beside it.
Nothing is computed here but the rounding of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tacit import html
from tacit.privacy.accounting import rounded_up
from tacit.protocol.statement import PrivacyStatement, not_promised, promised

if TYPE_CHECKING:
    from tacit.protocol.result import Result

SHOWN_NUMBERS = 6  # of a solution
WORDS = {
    "objective": "objective",
    "residual": "consensus residual",
    "dual_residual": "dual residual",
    "noise": "noise magnitude of the last round",
    "violation": "largest violation",
}


def statement_html(p: PrivacyStatement) -> str:
    return html.card("Privacy statement", _first_line(p), html.table(_rows(p)), _words(p))


def result_html(r: Result) -> str:
    def told(words: str, covered: bool = True) -> str:
        return words if promised(r.privacy) and covered else _kept(words)

    rounds = r.trace.get("round", np.zeros(0))
    # where a tolerance ended them, the data did
    done = told(f"{rounds[-1]:.0f} rounds") if len(rounds) else "no rounds"
    rows = [
        (WORDS[name], told(f"{float(column[-1]):.6g}", name in r.covered_trace))
        for name, column in r.trace.items()
        if name in WORDS and len(column)
    ]
    if r.converged is not None:
        rows.append(("tolerance", told("reached" if r.converged else "NOT reached")))
    first = list(r.named.items())[:SHOWN_NUMBERS]
    numbers = " ".join(f"{name} {x:.4g}".strip() if r.labels else f"{x:.4g}" for name, x in first)
    more = " …" if np.size(r.solution) > SHOWN_NUMBERS else ""
    rows.append((f"solution, {np.size(r.solution)} numbers", told(numbers + more)))
    return html.card(
        f"Result: {len(r.names)} agents, {done}",
        _first_line(r.privacy),
        html.table([*rows, *_rows(r.privacy)]),
        _words(r.privacy),
    )


def above_model(p: PrivacyStatement) -> str:
    """What stands before scikit-learn's own HTML, which lists fitted attributes and the seed."""
    why = ""
    if not promised(p):
        why = "nothing is promised for this model, and its coefficients are listed."
    elif p.seeded:
        why = "the seed is listed, and whoever has it can subtract the noise."
    warning = html.box(f"Do not publish what is below: {why}", loud=True) if why else ""
    return warning + statement_html(p)


def _first_line(p: PrivacyStatement) -> str:
    if why := not_promised(p):
        kind = "NOT PRIVATE" if math.isinf(p.epsilon) else "NOT CERTIFIED"
        return html.box(f"{kind}, nothing is promised: {why}", loud=True)
    return html.box(f"({_numbers(p)})-differentially private, against everyone{p.unless}")


def _rows(p: PrivacyStatement) -> Iterator[tuple[str, str]]:
    noisy = not math.isinf(p.epsilon)
    if noisy and not promised(p):
        yield "if it were certified", _numbers(p)
    for change, agents in p.neighbours:
        # of what is not certified the size of the change may be a share of private numbers
        yield ("hides", change) if promised(p) else ("would hide", _kept(change))
        yield "in the data of", html.several(agents)
    if noisy:
        yield "noise", f"{p.mechanism}, {'one release' if p.once else f'{p.updates} updates'}"
        system = "the operating system, exact" if p.secure else "the operating system's key"
        seed = "a seed, which must stay secret: do not publish it"
        yield "noise from", seed if p.seeded else system


def _words(p: PrivacyStatement) -> str:
    return html.small(p.words if promised(p) else f"{p.words} (Do not publish.)")


def _numbers(p: PrivacyStatement) -> str:
    """Epsilon and delta, rounded up as in ``PrivacyStatement.words``."""
    return f"ε ≤ {rounded_up(p.epsilon, 3)}, δ ≤ {rounded_up(p.delta, 6)}"


def _kept(words: str) -> str:
    return f"{words} (not covered: do not publish)"
