"""What a run hides, in plain words and then exactly, and what it does not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tacit.errors import InvalidInput
from tacit.html import plain
from tacit.objectives.objective import RELATIONS
from tacit.privacy.accounting import calibrate, rounded_down
from tacit.report.subject import Subject

ROW = "any one record (one row of the table, such as a patient's)"
BUS = re.compile(r"demand of one bus, each moving by at most ([0-9][0-9.e+-]*) per unit")


def hidden(subject: Subject) -> Iterator[str]:
    """Of a run that promises something."""
    exact = plain(changes(subject), 400)
    found = {change for change, _ in subject.statement.neighbours}
    if found <= set(RELATIONS.values()):
        swapped = ", or another in its place," if RELATIONS["replace"] in found else ""
        yield (
            f"Whether {ROW}{swapped} was used; exactly: {exact}. The table says how much doubt is "
            "left. A person with several records is hidden less: ε counts once for each, and δ "
            "grows by more."
        )
        return
    yield (
        f"{begun(exact)}: whether that happened stays in doubt, as the table says. Several such "
        "changes at once are hidden less: ε counts once for each, and δ grows by more."
    )
    if subject.grid and subject.statement.once:
        yield _loads(subject)


def _loads(subject: Subject) -> str:
    """What a reading of a grid's loads shows of them.

    The active and the reactive demand of a bus move by β each: Δ₁ = 2β, Δ₂ = √2·β. The standard
    deviation of the noise is √2·Δ₁ times the multiplier (Laplace) or Δ₂ times it (Gaussian), which
    is public: it follows from ε, δ and β. Rounded down, as less noise shows more.
    """
    p, known = subject.statement, {change for change, _ in subject.statement.neighbours}
    moves = [BUS.search(change) for change in known]
    noise, move = "", "its bound"
    if len(moves) == 1 and moves[0] is not None:
        move = f"{moves[0][1]} per unit"
        try:
            β, law = float(moves[0][1]), calibrate(p.mechanism, subject.epsilon, p.delta, 1)
            Δ = 2 * β if law.norm == 1 else math.sqrt(2) * β
            σ = math.sqrt(float(law.variance(Δ)))
            noise = f", about ±{rounded_down(σ, 2)} per unit (its standard deviation)"
        except (InvalidInput, ValueError, OverflowError):  # of a file that was changed
            pass
    return f"The loads themselves are known to within the noise{noise}; hidden is a move of {move}."


def changes(subject: Subject) -> str:
    return "; or ".join(dict.fromkeys(change for change, _ in subject.statement.neighbours))


def begun(words: str) -> str:
    return words[:1].upper() + words[1:]
