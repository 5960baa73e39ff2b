"""What was released of a table, as parts of a page: its moments, its counts, errors on it. The
privacy statement covers all of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import html
from tacit.protocol.disclosure import level, may_have
from tacit.protocol.statement import PrivacyStatement
from tacit.report.figures import SHOWN, Block
from tacit.tables import Number

if TYPE_CHECKING:
    from tacit.learn.released_table import TableRelease

TABLES = {"moments.json": "PrivateMoments", "counts.json": "PrivateCounts"}
KINDS = {**TABLES, "evaluation.json": "PrivateEvaluation"}
MOST_BARS = 40


@dataclass(frozen=True)
class Released:
    """A folder of ``tacit moments`` or ``tacit counts``, as ``Contents`` is of a run."""

    folder: Path
    table: TableRelease
    is_public: bool = False

    @classmethod
    def read(cls, folder: str | Path) -> Released | None:
        """None where there is no released table, or a whole run."""
        file = file_of(folder := Path(folder))
        if file is None or (folder / "result.json").exists():
            return None
        return cls(folder, load(folder / file))

    def public(self) -> Released:
        """The same without the folder's name."""
        return replace(self, folder=Path(), is_public=True)

    @property
    def privacy(self) -> PrivacyStatement:
        return self.table.privacy_

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.agents_

    @property
    def things(self) -> dict[str, bool]:
        """Kinds of things that are on the page, and whether they may be published."""
        what = "the released table and all that is computed from it"
        return {what: may_have(self.privacy, level(self.table.FILE)), "times": False}

    @property
    def left_out(self) -> tuple[str, ...]:
        """Kinds of things that are no part of a public edition, whether they were there or not."""
        return tuple(words for words, everybody in self.things.items() if not everybody)

    @property
    def title(self) -> str:
        what = "Counts" if self.table.FILE == "counts.json" else "Moments"
        many = "one agent" if len(self.names) == 1 else f"{len(self.names)} agents"
        return f"{what} of {self.table.records_:,} records from {many}"

    @property
    def blocks(self) -> list[Block]:
        if self.is_public and not may_have(self.privacy, level(self.table.FILE)):
            return []
        return [of_table(self.table), rules(self.table)]

    @property
    def more(self) -> str:
        """A question that costs nothing, as a command."""
        names = self.table.layout_.names
        if self.table.FILE == "counts.json" or len(names) < 2:
            return ""
        folder = "FOLDER" if self.is_public else str(self.folder)
        return f"tacit regress {shlex.quote(folder)} --target {names[-1]} --on {names[0]}"


def file_of(folder: Path) -> str | None:
    """The released table that a folder holds."""
    return next((name for name in TABLES if (folder / name).is_file()), None)


def load(path: Path) -> TableRelease:
    import tacit.learn

    kind = getattr(tacit.learn, KINDS[path.name])
    found: TableRelease = kind.load(path.parent)
    return found


def of_table(table: Any) -> Block:
    """Means within the columns' ranges, or counts, with 95 % intervals."""
    if table.FILE == "counts.json":
        rows = table.rows()
        shown = rows[: len(table.counts_.ravel())][:MOST_BARS]
        names = [cell for cell, *_ in table.cells()[: len(shown)]]
        values = [row["count"] for row in shown]
        ends = [(row["low"], row["high"]) for row in shown]
        words, axis = "Counts, with 95 % intervals", "records"
    else:
        *_, length, low = table.layout_.units
        pairs = zip(table.rows(), length, low, strict=True)
        scaled = [np.subtract((m.value, m.low, m.high), at) / of for (m, _), of, at in pairs]
        shown = np.clip(scaled, 0, 1)[:MOST_BARS].tolist()
        names, values = table.layout_.names[:MOST_BARS], [value for value, _, _ in shown]
        ends = [(a, b) for _, a, b in shown]
        words, axis = (
            "Means, with 95 % intervals",
            "mean, from the low end of the range to the high",
        )
    cells = tuple(table.cells())
    notes = [what_privacy_costs(table)]
    if len(cells) > SHOWN:
        notes.append(f"The first {SHOWN:,} of {len(cells):,} rows: {table.FILE} has all.")
    told = [(row[1], row[2]) for row in cells[: len(names)]]
    picture = html.bars(names, values, f"{words}.", "released", axis, ends, told)
    return Block("released", words, picture, table.HEAD, cells[:SHOWN], tuple(notes))


def of_evaluation(found: Any) -> Block:
    """How good a model is, on records that it never saw."""
    words = "On records that were held out, with 95 % intervals"
    note = found.privacy_.words.splitlines()[2]
    return Block("evaluation", words, "", found.HEAD, tuple(found.cells()), (note,))


def rules(table: Any) -> Block:
    """Of the columns, which are public."""
    rows = []
    for rule in table.layout_.rules:
        known = f"{rule.low:g} to {rule.high:g}" if isinstance(rule, Number) else ""
        known = known or html.several(rule.known, 12)
        fill = "" if rule.fill is None else f"; {rule.fill} where it is missing"
        rows.append((str(rule.name), f"{known}{fill}"))
    note = "Public, and given beforehand: values outside are clipped, or in no category."
    return Block("rules", "Rules of columns", "", ("column", "values"), tuple(rows), (note,))


def what_privacy_costs(table: Any) -> str:
    """How much wider intervals are than without privacy. Covered."""
    if table.FILE == "counts.json":
        half = table.half_width()
        return f"What privacy costs: a cell's count is known to ± {half:,.3g}; without it, exactly."
    shares = [mean.privacy for mean, _ in table.rows() if mean.error > 0]
    most = min(max(shares, default=0.0), 1 - 1e-12)
    return (
        f"What privacy costs: intervals of means are up to {(1 - most) ** -0.5:.3g} times as wide "
        f"as without it; of their squared error the noise is up to {most:.0%}."
    )
