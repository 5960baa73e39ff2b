"""A result and a privacy statement as a notebook shows them.

What the statement does not cover stands there only with the words "do not publish" beside it.
Nothing is computed here but the rounding of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tacit import html, svg
from tacit._types import Vector
from tacit.privacy.accounting import rounded_up
from tacit.protocol.statement import PrivacyStatement, promised

if TYPE_CHECKING:
    from tacit.protocol.result import Result

KEEP = "not covered: do not publish"
SHOWN_NUMBERS = 6  # of a solution
WORDS = {
    "objective": "objective",
    "residual": "consensus residual",
    "dual_residual": "dual residual",
    "noise": "noise magnitude of the last round",
    "violation": "largest violation",
}


def numbers(p: PrivacyStatement) -> str:
    """Epsilon and delta, rounded up as in ``PrivacyStatement.words``."""
    return f"ε ≤ {rounded_up(p.epsilon, 3)}, δ ≤ {rounded_up(p.delta, 6)}"


def statement_html(p: PrivacyStatement) -> str:
    return html.card("Privacy statement", _first_line(p), html.table(_rows(p)), _words(p))


def result_html(r: Result) -> str:
    rounds = r.trace.get("round", np.zeros(0))
    done = f"{rounds[-1]:.0f} rounds" if len(rounds) else "no rounds"
    if len(rounds) and not promised(r.privacy):  # where a tolerance ended them, the data did
        done += f" ({KEEP})"
    return html.card(
        f"Result: {len(r.names)} agents, {done}",
        _first_line(r.privacy),
        html.table(_of_result(r)),
        _curve(r),
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


def _words(p: PrivacyStatement) -> str:
    return html.small(p.words if promised(p) else f"{p.words} (Do not publish.)")


def _first_line(p: PrivacyStatement) -> str:
    if math.isinf(p.epsilon):
        return html.box("NOT PRIVATE: no noise was added. Do not publish anything.", loud=True)
    if not p.certified:
        return html.box(f"NOT CERTIFIED, nothing is promised: {p.uncertified}", loud=True)
    if not promised(p):
        return html.box(
            "NOT CERTIFIED, nothing is promised: epsilon or delta is no budget.", loud=True
        )
    return html.box(f"({numbers(p)})-differentially private, against everyone")


def _rows(p: PrivacyStatement) -> Iterator[tuple[str, str]]:
    if not promised(p) and not math.isinf(p.epsilon):
        yield "if it were certified", numbers(p)
    for change, agents in p.neighbours:
        # of what is not certified the size of the change may be a share of private numbers
        yield ("hides", change) if promised(p) else ("would hide", f"{change} ({KEEP})")
        yield "in the data of", html.several(agents)
    if math.isinf(p.epsilon):
        return
    times = "one reading" if p.once else f"{p.updates} updates"
    yield "noise", f"{p.mechanism}, {times}"
    if p.seeded:
        yield "noise from", "a seed, which must stay secret: do not publish it"
    else:
        yield "noise from", "the operating system" + (", exact" if p.secure else "'s key, Threefry")


def _of_result(r: Result) -> Iterator[tuple[str, str]]:
    sound = promised(r.privacy)
    for name, column in r.trace.items():
        if name in WORDS and len(column):
            value = f"{float(column[-1]):.6g}"
            covered = sound and name in r.covered_trace
            yield WORDS[name], value if covered else f"{value} ({KEEP})"
    if r.converged is not None:
        reached = "reached" if r.converged else "NOT reached"
        yield "tolerance", reached if sound else f"{reached} ({KEEP})"
    shown = _numbers(r.solution)
    yield f"solution, {np.size(r.solution)} numbers", shown if sound else f"{shown} ({KEEP})"
    yield from _rows(r.privacy)


def _curve(r: Result) -> str:
    drawn = svg.sparkline(r.trace.get("residual", ()), "consensus residual over the rounds")
    words = "consensus residual over the rounds"
    return drawn and drawn + html.small(words if promised(r.privacy) else f"{words} ({KEEP})")


def _numbers(vector: Vector) -> str:
    flat = np.ravel(vector)
    text = " ".join(f"{float(x):.4g}" for x in flat[:SHOWN_NUMBERS])
    return text + (" …" if flat.size > SHOWN_NUMBERS else "")
