"""How good a model is, in numbers that may be published: one histogram of records it never saw.

    two classes    class × tenth of the probability      error, confusion, AUC, calibration
    more           class × predicted class               error, confusion
    a number       distance from the truth, of the public range of targets

Guarantee: of ``PrivateCounts``: a record is in one cell. The model is public here: covered by its
own statement, which is about other records where these were held out. A record that was in both
spends both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.errors import InvalidInput, array
from tacit.learn.counts import PrivateCounts
from tacit.learn.model import digest_of
from tacit.learn.released_table import Layout
from tacit.tables import public_rules

TENTHS = tuple(f"{10 * k} to {10 * k + 10} %" for k in range(10))
MOST_CONFUSED = 10  # classes of which all pairs are counted
RIGHT = ("wrong", "right")
WITHIN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the range of targets
Cells = dict[str, tuple[str, ...]]
FAR = tuple(f"within {100 * x:g} %" for x in WITHIN)


def cells_of(model: Any, X: Any, y: Any) -> tuple[Cells, tuple[Vector, ...]]:
    """The cells that a fitted model's records are counted in, and each record's place by each list.

    Guarantee: the cells follow from the model alone, and a place from the model and that record:
    scores are products of one row each, and whatever they come to is in a cell.
    """
    last = model[-1] if hasattr(model, "steps") else model
    if not hasattr(last, "classes_"):
        return _cells_of_numbers(last, y, model.predict(X))
    known = last.classes_
    if not np.isin(y, known).all():
        raise InvalidInput(f"Expected labels of {known.tolist()}, got another one.")
    names = tuple(map(str, known.tolist()))
    truth, found = (np.searchsorted(known, labels) for labels in (y, model.predict(X)))
    cells = {"class": names}
    if len(names) == 2 and hasattr(model, "predict_proba"):
        # as decided: at a half exactly it is the first class
        tenths = np.nan_to_num(np.ceil(10 * model.predict_proba(X)[:, 1]) - 1)
        place = np.where(found == 1, np.clip(tenths, 5, 9), np.clip(tenths, 0, 4)).astype(int)
        return {**cells, "probability": TENTHS}, (truth, place)
    if len(names) <= MOST_CONFUSED:
        return {**cells, "predicted": names}, (truth, found)
    return {**cells, "right": RIGHT}, (truth, (truth == found).astype(int))


def _cells_of_numbers(last: Any, y: Any, found: Vector) -> tuple[Cells, tuple[Vector, ...]]:
    if not hasattr(last, "_range"):
        raise InvalidInput("Expected a regressor of Tacit's, which has a public range, got none.")
    low, high = last._range
    y = array("targets", y, found.shape, dtype=np.float64)
    apart = np.abs(np.clip(y, low, high) - found) / (high - low)
    place = np.minimum(np.searchsorted(WITHIN, apart), len(WITHIN) - 1)
    return {"distance": FAR}, (place,)


def in_cells(cells: Cells, places: tuple[Vector, ...]) -> Vector:
    """Rows with a 1 in one cell."""
    shape = tuple(map(len, cells.values()))
    rows = np.zeros((len(places[0]), math.prod(shape)))
    rows[np.arange(len(rows)), np.ravel_multi_index(places, shape)] = 1.0
    return rows


def layout_of(cells: Cells) -> Layout:
    return Layout(public_rules([*cells], {}, cells, {}))


@dataclass(eq=False, repr=False)
class PrivateEvaluation(PrivateCounts):
    """A model's errors on records that were held out at each party, released once.

    ``fit(X, y, agents)`` counts; ``model`` is fitted, with or without privacy. Other parameters and
    the guarantee are those of ``PrivateCounts``; ``categories`` follow from the model.
    """

    model: Any = None

    FILE = "evaluation.json"
    HEAD = "", "share", "95 % interval"

    def fit(self, X: Any, y: Any = None, agents: Any = None) -> Any:
        check_is_fitted(self.model)
        self.categories, places = cells_of(self.model, X, y)
        rows = in_cells(self.categories, places)
        return self._release(layout_of(self.categories), self._part, rows, agents, None)

    def _asked(self, layout: Layout) -> str:
        """The model too: nobody may see that two models agree on all records."""
        return super()._asked(layout) + digest_of(self.model)

    @property
    def table(self) -> Vector:
        """The noisy counts, by the columns of ``categories``."""
        check_is_fitted(self, "privacy_")
        return np.asarray(self.counts_)

    @property
    def confusion(self) -> Vector | None:
        """Of every class as it was predicted; None for numbers, and where only errors are known."""
        if self._kind == "probability":
            return np.add.reduceat(self.table, [0, 5], axis=1)
        return self.table if self._kind == "predicted" else None

    @property
    def _kind(self) -> str:
        return str(self.layout_.rules[-1].name)

    def error(self, level: float = 0.95) -> tuple[float, float, float]:
        """The share of wrong classes, and its interval: of the noise, and of the records as a
        sample. All records less those that are right, as these are in fewer cells."""
        table, kind = self.table, self._kind
        if kind == "distance":
            raise InvalidInput("Expected a model of classes; of numbers see within().")
        right = np.eye(len(table), dtype=bool)
        if kind == "probability":
            right = np.repeat(right, 5, axis=1)
        many = table[:, 1] if kind == "right" else table[right]
        return self._share(self.records_ - float(many.sum()), many.size, level)

    def within(self, level: float = 0.95) -> dict[str, tuple[float, float, float]]:
        """Shares of the predictions that are so near, of the range of targets."""
        sums = np.cumsum(self.table)
        return {
            n: self._share(float(s), k + 1, level)
            for k, (n, s) in enumerate(zip(FAR, sums, strict=True))
        }

    def _share(self, many: float, cells: int, level: float) -> tuple[float, float, float]:
        n = self.records_
        share = min(max(many / n, 0.0), 1.0)
        sample = ndtri((1 + level) / 2) * np.sqrt(share * (1 - share) / n)
        half = float(np.hypot(self.half_width(cells, level) / n, sample))
        return share, max(share - half, 0.0), min(share + half, 1.0)

    @property
    def auc(self) -> float | None:
        """The probability that of two records of different classes the right one has the larger
        probability, with ties at a half; of two classes."""
        if self._kind != "probability":
            return None
        first, second = np.maximum(self.table, 0)
        pairs = float(first.sum() * second.sum())
        below = np.cumsum(first) - first / 2
        return float(below @ second) / pairs if pairs else None

    @property
    def calibration(self) -> list[tuple[str, float, float]] | None:
        """Each tenth of the probability, the share of records there that are of the second class,
        and how many there are; of two classes."""
        if self._kind != "probability":
            return None
        many = np.maximum(self.table, 0)
        total = many.sum(axis=0)
        share = np.divide(many[1], total, out=np.full(10, np.nan), where=total > 0)
        return list(zip(TENTHS, share.tolist(), total.tolist(), strict=True))

    def cells(self) -> list[tuple[str, ...]]:
        if self._kind == "distance":
            near = [*self.within().items()][:-1]  # all are within 100 %
            shares = {f"{name} of the target's range": share for name, share in near}
        else:
            shares = {"error": self.error()}
        rows: list[tuple[str, ...]] = [
            (name, f"{100 * x:.1f} %", f"{100 * low:.1f} to {100 * high:.1f} %")
            for name, (x, low, high) in shares.items()
        ]
        if self.auc is not None:
            rows.append(("AUC", f"{self.auc:.3f}", ""))
        if self.confusion is not None:
            names = self._known["class"]
            for name, line in zip(names, self.confusion, strict=True):
                for other, many in zip(names, np.maximum(line, 0).tolist(), strict=True):
                    rows.append((f"{name}, predicted {other}", f"{many:,.0f} records", ""))
        for name, share, many in self.calibration or ():
            if many:
                of = self._known["class"][1]
                rows.append(
                    (f"{of}, where {name} was predicted", f"{100 * share:.0f} % of {many:,.0f}", "")
                )
        return rows

    def figures(self) -> dict[str, Any]:
        """All of it as numbers and lists."""
        found: dict[str, Any] = {"records": self.records_}
        if self._kind == "distance":
            found["within"] = {name: list(v) for name, v in self.within().items()}
        else:
            value, low, high = self.error()
            found |= {"error": value, "error_interval": [low, high], "auc": self.auc}
            confused = self.confusion
            found["confusion"] = None if confused is None else confused.tolist()
            found["calibration"] = self.calibration
        return {**found, "epsilon": self.privacy_.epsilon, "delta": self.privacy_.delta}
