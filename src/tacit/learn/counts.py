"""One histogram over the parties, with intervals for cells and for their sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, probability
from tacit.learn.released_table import Layout, TableRelease
from tacit.objectives.moments import Counts
from tacit.sets import Box
from tacit.tables import public_rules

MOST_CELLS = 10_000
MOST_NUMBERS = 2**28  # of cells times records, in memory
GRID = 4000  # points of a distribution


@dataclass(eq=False, repr=False)
class PrivateCounts(TableRelease):
    """How many records there are in every combination of categories, released once.

    categories   the public list of every column that is counted by; a record with another value is
                 in no cell
    others       as in ``PrivateMoments``

    Guarantee: as there, of ``Counts``. Noise is Laplace's or Gaussian, whichever is less.
    """

    FILE = "counts.json"
    HEAD = "", "records", "95 % interval"

    def fit(self, X: Any, y: Any = None, agents: Any = None) -> Self:
        """Release the counts of a DataFrame that has the columns of ``categories``."""
        if not self.categories:
            raise InvalidInput("Expected categories of the columns to count by, got none.")
        rules = public_rules([*self.categories], {}, self.categories, self.fill or {})
        columns, shape = (layout := Layout(rules)).mapped(X), _shape(layout)
        if (cells := math.prod(shape)) > MOST_CELLS or cells * len(columns) > MOST_NUMBERS:
            raise InvalidInput(
                f"Expected at most {MOST_CELLS} cells, and {MOST_NUMBERS:.0e} times records, got "
                f"{cells} cells. Nothing was released."
            )
        rows = np.ones((len(columns), 1))
        for one in np.split(columns, np.cumsum(shape)[:-1], axis=1):
            rows = (rows[:, :, None] * one[:, None, :]).reshape(len(rows), -1)
        return self._release(layout, self._part, rows, agents, None)

    @staticmethod
    def _part(name: str, rows: Vector, **bounds: Any) -> LocalProblem:
        f = Counts(rows, feature_norm=1.0, **bounds)
        return LocalProblem(f, Box(-1.0, 1.0, size=f.dimension), name=name)

    def _keep(self, layout: Layout, values: Vector, *sizes: Any) -> None:
        self.counts_ = values.reshape(_shape(layout))
        super()._keep(layout, values, *sizes)

    def count(self, level: float = 0.95, **cells: str) -> tuple[float, float, float]:
        """How many records have these categories, such as ``sex="f"``, and the interval of that:
        a sum over all cells that have them. A column that is called "level" is in ``rows``."""
        return self._sum(cells, level)

    def _sum(self, cells: Mapping[str, str], level: float) -> tuple[float, float, float]:
        known = self._known
        at: list[Any] = [slice(None)] * len(known)
        for name, value in cells.items():
            if value not in known.get(name, ()):
                raise InvalidInput(f"Expected categories of {known}, got {value!r} of {name!r}.")
            at[[*known].index(name)] = known[name].index(value)
        found = np.asarray(self.counts_[tuple(at)])
        total, half = float(found.sum()), self.half_width(found.size, level)
        # no more than all records, and no fewer than none: of what was released and public numbers
        total, low, high = np.clip((total, total - half, total + half), 0, self.records_).tolist()
        return total, low, high

    @property
    def _known(self) -> dict[str, tuple[str, ...]]:
        """The lists of categories, by column."""
        check_is_fitted(self, "privacy_")
        rules: Any = self.layout_.rules
        return {str(rule.name): rule.known for rule in rules}

    def half_width(self, cells: int = 1, level: float = 0.95) -> float:
        """Half the width of the interval of a sum of cells.

        A sum of k Laplace variables of scale b is b√(2G)Z, G gamma of shape k, Z normal.
        """
        q = (1 + probability("level", level)) / 2
        if self.privacy_.mechanism == "gaussian":
            return float(ndtri(q)) * self.deviation_ * math.sqrt(cells)
        k = cells * len(self.agents_)
        roots = np.sqrt(gammaincinv(k, (np.arange(GRID) + 0.5) / GRID) / k)
        x = float(brentq(lambda x: float(np.mean(ndtr(x / roots))) - q, 0.0, 100.0))
        return x * self.deviation_ * math.sqrt(cells)

    def rows(self, level: float = 0.95) -> list[dict[str, Any]]:
        """Every cell, then what each category adds up to, and all: by column, with intervals."""
        known = self._known
        asked = [dict(zip(known, values, strict=True)) for values in product(*known.values())]
        if len(known) > 1:
            asked += [{name: value} for name, values in known.items() for value in values]
        names = "count", "low", "high"
        return [
            {"cell": one, **dict(zip(names, self._sum(one, level), strict=True))}
            for one in [*asked, {}]
        ]

    def cells(self) -> list[tuple[str, ...]]:
        return [
            (
                ", ".join(f"{name}={value}" for name, value in row["cell"].items()) or "all",
                f"{row['count']:,.0f}",
                f"{row['low']:,.0f} to {row['high']:,.0f}",
            )
            for row in self.rows()
        ]


def _shape(layout: Layout) -> tuple[int, ...]:
    return tuple(len(rule.names) for rule in layout.rules)
