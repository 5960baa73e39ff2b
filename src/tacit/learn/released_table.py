"""One release of an agreed table, and all that follows from it at no further cost.

    records ─▶ rows u by public rules ─▶ Σ (1, u)(1, u)' + noise ─▶ means, deviations, correlations,
               of every agent            released once (``Moments``)  any regression, with intervals

A number is mapped to [−1, 1] by its public range, and clipped there; a category is 0 or 1 less the
share that all have on average were they alike, 1/K for K of them: so a row's squared length is at
most the number of columns of numbers, and 1 − 1/K for each of categories. No row is shortened, so
that what is estimated is the regression of the table itself.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.errors import (
    InvalidInput,
    array,
    choice,
    count,
    non_negative,
    positive,
    probability,
)
from tacit.files import read_json, reading, write_atomically
from tacit.html import card, never_raises, table
from tacit.learn.constraints import Constraint
from tacit.learn.error_bars import (
    CLEAR,
    Regression,
    Row,
    aligned,
    edge,
    estimate,
    no_interval,
)
from tacit.learn.estimators import large_delta, owners, seed_of
from tacit.learn.features import PublicColumns
from tacit.learn.first_releases import noises_of, sizes
from tacit.objectives.moments import FLOOR, Moments, matrix_of
from tacit.objectives.public import PublicQuadratic
from tacit.privacy.accounting import calibrate, rounded_up
from tacit.protocol.jupyter import statement_html
from tacit.protocol.statement import PUBLIC, PrivacyStatement, not_promised, promised
from tacit.sets import Box
from tacit.tables import Category, Number, named, public_rules
from tacit.transports import release

WHAT = "a released table that tacit saved"
MOST_COLUMNS = 200
TYPICAL = 0.2  # of its range: the deviation of a column, where nothing is known
CORRELATED = 0.1  # least eigenvalue of correlations then (``benchmarks/error_bars.py --expected``)
WEIGHT = 1e-9  # relative: of the distance from 0, in a constrained optimum


@dataclass(frozen=True)
class Layout:
    """Public rules of a table's columns, and from them those of u: X = middle + half·u."""

    rules: tuple[Number | Category, ...]

    @classmethod
    def of(cls, mapping: PublicColumns) -> Layout:
        found = cls(mapping.rules_)
        if (many := len(found.names)) > MOST_COLUMNS:
            raise InvalidInput(
                f"Expected at most {MOST_COLUMNS} columns, each category counted, got {many}: the "
                "noise grows with their number. Leave out what no question needs, or release two "
                "tables, each with a part of the budget. Nothing was released."
            )
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Layout:
        rules = (data[key] for key in ("columns", "ranges", "categories", "fill"))
        return cls(public_rules(*rules))

    def to_dict(self) -> dict[str, Any]:
        numbers = [r for r in self.rules if isinstance(r, Number)]
        texts = [r for r in self.rules if isinstance(r, Category)]
        return {
            "columns": [str(r.name) for r in self.rules],
            "ranges": {str(r.name): [float(r.low), float(r.high)] for r in numbers},
            "categories": {str(r.name): list(r.known) for r in texts},
            "fill": {str(r.name): r.fill for r in self.rules if r.fill is not None},
        }

    @property
    def names(self) -> list[str]:
        return [name for rule in self.rules for name in rule.names]

    @property
    def units(self) -> tuple[Vector, ...]:
        """By column: what is taken off u; of X's range middle, half, length and low end."""
        found: list[tuple[float, ...]] = []
        for r in self.rules:
            if isinstance(r, Number):
                found.append(
                    (0.0, r.low / 2 + r.high / 2, (r.high - r.low) / 2, r.high - r.low, r.low)
                )
            else:
                found += [(1 / len(r.known), 1 / len(r.known), 1.0, 1.0, 0.0)] * len(r.known)
        return tuple(np.array(found).T)

    @property
    def row_norm(self) -> float:
        """The largest length of a row u; of K categories 1 − 1/K, or 1/K where it is none."""
        many = [len(r.known) for r in self.rules if isinstance(r, Category)]
        squares = sum(max(1 - 1 / K, 1 / K) for K in many) + len(self.rules) - len(many)
        return math.sqrt(squares)

    def problem(self, name: str, rows: Vector, **bounds: Any) -> LocalProblem:
        """An agent's part, of its rows u: what is released of it, once."""
        f = Moments(rows, feature_norm=self.row_norm, **bounds)
        return LocalProblem(f, Box(-(R := f.longest(2)), R, size=f.dimension), name=name)

    def mapped(self, X: Any) -> Vector:
        """Numbers in [−1, 1], and 0 or 1 of categories, of a table's records."""
        mapping = PublicColumns()
        mapping.rules_ = self.rules
        found = mapping.transform(X)
        count("records", len(found))
        return found

    def rows(self, X: Any) -> Vector:
        """u of a table's records."""
        return self.mapped(X) - self.units[0]

    def in_units(self, X: Any, names: Sequence[str]) -> Vector:
        """These columns of a table, in units of the data and within their ranges; others need not
        be there."""
        part = Layout(tuple(r for r in self.rules if {*r.names} & {*names}))
        _, middle, half, *_ = part.units
        found: Vector = (part.rows(X) * half + middle)[:, [part.names.index(n) for n in names]]
        return found


@dataclass(eq=False, repr=False)
class TableRelease(BaseEstimator):  # type: ignore[misc]
    """What all releases of tables share: how they are made, kept in a file and shown."""

    total_epsilon: float = 1.0
    total_delta: float = 1e-5
    _: KW_ONLY
    categories: Mapping[Any, Any] | None = None
    fill: Mapping[Any, Any] | None = None
    neighbours: str = "zero-out"
    random_state: Any = None
    noise: str | None = None
    ledgers: Any = None
    aggregation: str | None = None
    colluding: int | None = None

    FILE: ClassVar[str]
    HEAD: ClassVar[tuple[str, ...]]

    def _release(
        self,
        layout: Layout,
        part: Callable[..., LocalProblem],
        rows: Vector,
        agents: Any,
        mechanism: str | None,
    ) -> Self:
        """Of all agents' rows, each ``part``'s problem."""
        choice("neighbours", self.neighbours, ("zero-out", "replace"))
        names, owner = owners(agents, len(rows))
        bounds: Any = {"neighbours": self.neighbours, **sizes(owner)}
        parts = [
            part(str(name), rows[owner == p], **bounds).asked_as(self._asked(layout))
            for p, name in enumerate(names)
        ]
        how = ("noise", "ledgers", "aggregation", "colluding")
        found = release(
            parts,
            self.total_epsilon,
            self.total_delta,
            mechanism=mechanism,
            seed=seed_of(self.random_state),
            **{name: getattr(self, name) for name in how},
        )
        values = np.sum([one.values for one in found.releases], axis=0)
        noise, statistics = found.mechanism, parts[0].objective.statistics()
        each = noise.variance(statistics.sensitivity(noise.norm))
        return self.adopt(layout, values, each, len(rows), list(map(str, names)), found.privacy)

    def _asked(self, layout: Layout) -> str:
        """The question, of all tables that there may be: which columns, by which rules."""
        return json.dumps(layout.to_dict())

    def adopt(
        self,
        layout: Layout,
        values: Vector,
        variance: float,
        records: int,
        agents: Sequence[str],
        privacy: PrivacyStatement,
    ) -> Self:
        """Take what was released, with noise of this variance for one agent: all else is free."""
        shares = len(agents) - privacy.colluding if privacy.parties > 1 else 1
        said = replace(privacy, assumed=assumed(records, privacy.delta))
        self._keep(layout, values, math.sqrt(variance * len(agents) / shares), records)
        self.agents_, self.privacy_ = tuple(agents), said
        return self

    def _keep(self, layout: Layout, values: Vector, deviation: float, records: int) -> None:
        self.layout_, self.values_ = layout, values
        self.deviation_, self.records_ = deviation, records

    def to_dict(self) -> dict[str, Any]:
        """All of it, as in the file: everything is covered by the statement."""
        check_is_fitted(self, "privacy_")
        return {
            "format": 1,
            **self.layout_.to_dict(),
            "records": self.records_,
            "agents": list(self.agents_),
            "deviation": self.deviation_,
            "values": self.values_.tolist(),
            "privacy": self.privacy_.to_dict(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write it to a file in a folder; the privacy statement covers what is in it."""
        document, path = json.dumps(self.to_dict(), indent=1).encode(), Path(folder) / self.FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, document)
        if self.privacy_.certified:
            os.chmod(path, 0o644)  # what the statement covers may be read
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What ``save`` wrote to a folder."""
        path = Path(folder) / cls.FILE
        with reading(path, WHAT):
            data = read_json(path, WHAT)
            if data["format"] != 1:
                raise ValueError(f"format {data['format']}")
            privacy = PrivacyStatement.from_dict(data["privacy"])
            found = cls(float(f"{privacy.epsilon:.9g}"), privacy.delta)
            values = array("values", data["values"], (None,), dtype=np.float64)
            sizes = non_negative("deviation", data["deviation"]), count("records", data["records"])
            found._keep(Layout.from_dict(data), values, *sizes)
            found.agents_, found.privacy_ = tuple(map(str, data["agents"])), privacy
            return found

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of a summary."""
        raise NotImplementedError

    def summary(self) -> str:
        """A table with 95 % intervals."""
        return "\n".join([self._title, *aligned([self.HEAD, *self.cells()]), self._from])

    @property
    def _title(self) -> str:
        check_is_fitted(self, "privacy_")
        many = len(self.agents_)
        return f"{self.records_:,} records of {many} agent{'s' * (many != 1)}"

    @property
    def _from(self) -> str:
        p = self.privacy_
        if not promised(p):
            return f"NOT PRIVATE: {not_promised(p)}"
        spent = f"({rounded_up(p.epsilon, 3)}, {rounded_up(p.delta, 6)})-DP"
        return f"From one release, {spent}; this answer costs nothing more."

    @never_raises
    def _repr_html_(self) -> str:
        if not hasattr(self, "privacy_"):
            return card(repr(self))
        return card(self._title, table(self.cells(), self.HEAD), statement_html(self.privacy_))

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        html = self._repr_html_()
        return {"text/plain": repr(self), **({} if html is None else {"text/html": html})}


@dataclass(eq=False, repr=False)
class PrivateMoments(TableRelease):
    """First and second moments of a table, released once by every agent.

    total_epsilon, total_delta   of the release, and so of everything computed from it
    ranges, categories, fill     public rules of the columns, as in ``PublicColumns``. A column C
                    with the categories A, B is two columns, "C=A" and "C=B"
    neighbours      "zero-out": whether a record is in; "replace": what is in it
    random_state    a seed for the noise, for research; None takes a key from the operating system
    noise, ledgers, aggregation, colluding   as in ``tacit.release``

    Guarantee: ``privacy_`` covers the release of ``Moments`` of every agent's mapped rows, whose
    length is bounded by the rules alone, and all that this object gives after ``fit``. Numbers of
    records are public. That the rules are is your claim.
    """

    _: KW_ONLY
    ranges: Mapping[Any, tuple[float, float]] | None = None

    FILE = "moments.json"
    HEAD = "", "mean", "95 % interval", "deviation", "95 % interval"

    def fit(self, X: Any, y: Any = None, agents: Any = None) -> Self:
        """Release the moments of a DataFrame, every column of which has a rule; ``agents`` has one
        label per record."""
        layout = Layout.of(PublicColumns(self.ranges, self.categories, self.fill).fit(X))
        return self._release(layout, layout.problem, layout.rows(X), agents, "gaussian")

    def _keep(self, layout: Layout, values: Vector, deviation: float, records: int) -> None:
        self.matrix_ = matrix_of(values, m := len(layout.names), records)
        self.variances_ = deviation**2 / 2 * (np.ones((m + 1, m + 1)) + np.eye(m + 1))
        self.variances_[0, 0] = 0.0  # the number of records is public
        super()._keep(layout, values, deviation, records)

    # --- what follows ---------------------------------------------------------------------------

    def regress(
        self,
        target: str,
        on: Sequence[str],
        *,
        l2: float = 0.0,
        constraint: Constraint | None = None,
    ) -> Regression:
        """Least squares of one column on others and a constant, in the units of the data.

        l2          of a ridge on the coefficients: Σ(y − xb)² + l2‖b‖²
        constraint  on the coefficients (``tacit.learn.Box`` and others)

        Intervals are of the free estimate, without either.
        """
        names, kind = self._checked(target, on), self.layout_
        x = np.array([kind.names.index(name) for name in (*names, target)])
        at = np.append(0, x + 1)
        T, W = (M[np.ix_(at, at)] for M in (self.matrix_, self.variances_))
        free = estimate(T, W, self.records_)
        _, middle, half, length, low = (unit[x] for unit in kind.units)
        # slopes by half ranges, and the intercept by what the middles add
        L = np.diag(np.append(half[-1], slopes := half[-1] / half[:-1]))
        L[0, 1:] = -slopes * middle[:-1]
        shift = np.append(middle[-1], np.zeros(len(names)))
        found, held = free.coef, ""
        if l2 or constraint is not None:
            ridge = np.append(0.0, non_negative("l2", l2) / half[:-1] ** 2)
            found = estimate(T, W, self.records_, ridge).coef
            if constraint is not None:
                found = _constrained(T, W, ridge, constraint, slopes)
            held = "l2 or a constraint holds coefficients; intervals are of the free estimate."
        coef = L @ found + shift
        return Regression(
            target,
            names,
            coef[1:],
            float(coef[0]),
            L @ free.coef + shift,
            L @ free.sampling @ L.T,
            L @ free.privacy @ L.T,
            free.freedom,
            free.r2,
            math.sqrt(free.variance) * float(half[-1]),
            self.records_,
            no_interval(free, free.weakest[1:], names, self.records_, self.privacy_),
            held,
            (self._from,),
            length[:-1],
            kind,
            (float(low[-1]), float(low[-1] + length[-1])),
        )

    def _checked(self, target: str, on: Sequence[str]) -> tuple[str, ...]:
        check_is_fitted(self, "privacy_")
        names = (on,) if isinstance(on, str) else tuple(on)
        known = self.layout_.names
        for name in (target, *names):
            if name not in known:
                parts = [one for one in known if one.startswith(f"{name}=")]
                hint = f" Each category is a column: {','.join(parts[1:])}." if parts else ""
                raise InvalidInput(
                    f"Expected columns of the released table, {named(known)}, got {name!r}.{hint}"
                )
        if target in names:
            raise InvalidInput(f"Expected predictors beside the target, got {target!r} among them.")
        if not names or len({*names}) < len(names):
            raise InvalidInput(f"Expected one or more different predictors, got {list(names)}.")
        for rule in self.layout_.rules:
            if isinstance(rule, Category) and {*rule.names} <= {*names, target}:
                raise InvalidInput(
                    f"Expected all categories of {rule.name!r} but one, with which the others are "
                    f"compared, got all {len(rule.known)}: beside a constant they are collinear."
                )
        return names

    def rows(self, level: float = 0.95) -> list[tuple[Row, Row]]:
        """The mean and the standard deviation of every column, in its units.

        The interval of a deviation covers at least as often as it says: the fourth moment is not
        released, and counts as the largest that the range allows.
        """
        check_is_fitted(self, "privacy_")
        z = float(ndtri((1 + probability("level", level)) / 2))
        n, kind = self.records_, self.layout_
        centre, middle, half, *_ = kind.units
        m, noise = self.matrix_[0, 1:] / n, self.variances_[0, 1:] / n**2
        v = np.diag(self.matrix_)[1:] / n - m**2 + noise
        reach = np.abs(m) + np.maximum(centre, 1 - centre)
        chance = np.maximum(v, 0) / n, np.maximum(reach**2 * v - v**2, 0) / n
        errors = np.sqrt(chance[0] + noise)
        of_v = z * np.sqrt(chance[1] + np.diag(self.variances_)[1:] / n**2 + 4 * m**2 * noise)
        found = []
        ends = np.sqrt(np.maximum([v, v - of_v, v + of_v], 0)) * half
        numbers = middle + half * m, half * errors, noise / errors**2, *ends
        for name, mean, e, part, value, low, high in zip(kind.names, *numbers, strict=True):
            one = Row(name, mean, e, mean - z * e, mean + z * e, privacy=part)
            found.append((one, Row(name, value, (high - low) / (2 * z), low, high)))
        return found

    def cells(self) -> list[tuple[str, ...]]:
        return [
            (mean.name, mean.cells[1], mean.cells[3], deviation.cells[1], deviation.cells[3])
            for mean, deviation in self.rows()
        ]

    def correlation(self) -> Any:
        """Correlations of all columns, as a DataFrame; NaN where a column's variance is lost in the
        noise."""
        import pandas as pd

        check_is_fitted(self, "privacy_")
        C, n = self._covariance(), self.records_
        v, lost = np.diag(C), 2 * np.sqrt(np.diag(self.variances_)[1:]) / n
        root = np.sqrt(np.where(v > lost, v, np.nan))
        found = np.clip(C / np.outer(root, root), -1, 1)
        return pd.DataFrame(found, self.layout_.names, self.layout_.names)

    def principal_components(self, k: int) -> Any:
        """The k directions of largest variance of columns in units of half their range, as a
        DataFrame: a row for each, ``share`` of all variance first."""
        import pandas as pd

        check_is_fitted(self, "privacy_")
        C = self._covariance()
        spectrum, V = np.linalg.eigh(C)
        seen = int((spectrum > edge(self.variances_[1:, 1:]) / self.records_).sum())
        if count("k", k) > seen:
            raise InvalidInput(
                f"Expected at most {seen} components, as others are lost in the noise, got k={k}."
            )
        top = V[:, ::-1][:, :k].T
        top *= np.where(top[np.arange(k), np.abs(top).argmax(axis=1)] < 0, -1, 1)[:, None]
        found = pd.DataFrame(top, [f"pc{i + 1}" for i in range(k)], self.layout_.names)
        found.insert(0, "share", spectrum[::-1][:k] / np.trace(C))
        return found

    def _covariance(self) -> Vector:
        n, T = self.records_, self.matrix_
        found: Vector = T[1:, 1:] / n - np.outer(T[0, 1:], T[0, 1:]) / n**2
        return found


def assumed(records: int, delta: float) -> str:
    """What a statement takes for public, and where its delta says little."""
    return (
        f"{PUBLIC} Also the rules of all columns, and that all records are well formed, as an "
        "error would say."
    ) + large_delta(records, delta)


def expected(
    columns: int,
    records: int,
    agents: int,
    total_epsilon: float,
    total_delta: float = 1e-5,
    aggregation: str | None = None,
    colluding: int | None = None,
    least_eigenvalue: float = CORRELATED,
) -> dict[str, float]:
    """Half widths of 95 % intervals to expect, from public numbers alone: nothing is released.

    For columns of numbers whose deviation is a fifth of their range, and whose correlation matrix
    has this least eigenvalue: 1 where they are independent. ``mean`` in ranges; ``coefficient`` in
    deviations of the target for one of the predictor, with all other columns as predictors, in the
    worst direction; ``clear``: below 1 there would be no interval.
    """
    m, n = count("columns", columns, MOST_COLUMNS), count("records", records)
    choice("aggregation", aggregation, (None, "sum"))
    noises = noises_of(count("agents", agents), aggregation, colluding)
    noise = calibrate("gaussian", total_epsilon, total_delta, 1)
    s2 = noise.variance(math.sqrt(m * m + 2 * m)) * noises
    v, least = (2 * TYPICAL) ** 2, positive("least_eigenvalue", least_eigenvalue, (1e-6, 1.0))
    mean = math.sqrt(v / n + s2 / 2 / n**2) / 2
    worst = n * v * least
    coefficient = math.sqrt(v / worst + s2 / worst**2) if m > 1 else math.nan
    clear = worst / (CLEAR * edge(np.full((m, m), s2 / 2)))
    return {"mean": 1.96 * mean, "coefficient": 1.96 * coefficient, "clear": clear}


def _constrained(
    T: Vector, W: Vector, ridge: Vector, constraint: Constraint, slopes: Vector
) -> Vector:
    """Least squares under a constraint on the coefficients in units of the data: those of T times
    ``slopes``. The constant is free."""
    if not callable(constraint) or isinstance(constraint, type):
        raise InvalidInput(f"Expected a constraint such as Box(0.1), got {constraint!r}.")
    n, means = T[0, 0], T[0, 1:-1] / T[0, 0]
    S = (T + np.diag(np.append(ridge, 0)))[1:-1, 1:-1] / n - np.outer(means, means)
    t = T[1:-1, -1] / n - means * T[0, -1] / n
    spectrum, V = np.linalg.eigh(S)
    floor = max(FLOOR * edge(W[1:-1, 1:-1]) / n, 1e-12 * float(np.abs(spectrum).max()))
    roots = np.sqrt(np.maximum(spectrum, floor) / 2)
    A = roots[:, None] * V.T / slopes
    f = PublicQuadratic(A, -(V.T @ t) / (2 * roots))
    step = f.prox(constraint(len(slopes), 1, 0.0))
    b = np.asarray(step(np.zeros(len(slopes)), WEIGHT * np.sum(A * A, axis=0))) / slopes
    return np.append(T[0, -1] / n - means @ b, b)
