"""The private estimators: a loss each, the set of its targets, and its predictions.

    PrivateLogisticRegression, PrivateLinearSVC    classes
    PrivateHuberRegressor      the mean, outliers pulling less: noise in every round
    PrivateRidge               least squares: X'X and X'y are released once, with noise
    PrivateQuantileRegressor   a quantile, by default the median: noise in every round

What they share comes first (``LinearEstimator``):

    X, y, agents ─▶ prepare: checked, rows centred and no longer than the norm ─▶ Problem, Settings
    Result       ─▶ adopt:   privacy_, result_, coef_, intercept_

Numbers are predicted within a public ``target_range``; targets are clipped to it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import (
    EXACT,
    InvalidInput,
    array,
    choice,
    count,
    non_negative,
    positive,
    probability,
    renamed,
    shown,
)
from tacit.html import box, never_raises
from tacit.learn.centring import (
    SQUARE,
    WORDS,
    about_given,
    around,
    first_release,
    given_mean,
    mean_and_length,
    private_mean,
    scaled_down,
    with_length,
    with_squares,
)
from tacit.learn.constraints import CoefficientBox, Constraint
from tacit.learn.error_bars import Regression, aligned, estimate, what_would_do
from tacit.learn.features import checked
from tacit.learn.ranges import (
    BINS,
    SHARE,
    STAGES,
    TARGET_SHARE,
    narrowed,
    of_a_stage,
    private_ranges,
    together,
    weights_of,
)
from tacit.learn.ranges import WORDS as RANGES
from tacit.objectives.losses import (
    Hinge,
    Huber,
    LeastSquares,
    LogisticRegression,
    Quantile,
    SoftmaxRegression,
    of_regression,
)
from tacit.objectives.moments import Mean
from tacit.objectives.objective import Descent, Objective
from tacit.planning import MOST_COLUMNS, Known, Plan, descent_of
from tacit.planning import plan as planned
from tacit.privacy.accounting import calibrate, rounded_up
from tacit.privacy.mechanisms import Mechanism, check_parties, refuse_no_sum
from tacit.protocol.facts import as_summed
from tacit.protocol.jupyter import above_model
from tacit.protocol.result import Result
from tacit.protocol.statement import PUBLIC, with_releases
from tacit.sets import Box
from tacit.sets.feasible_set import FeasibleSet
from tacit.transports import solve

DEFAULT_BOX = 32.0  # the box of an unconstrained model, in units of 1/feature_norm
NO_INTERVALS = (
    "No intervals: with noise in every round, clipping and an unfinished path bias coefficients by "
    "amounts that no release bounds. tacit.learn.PrivateMoments gives intervals."
)
OF_RIDGE = (
    "Intervals are of the free estimate, without ridge and constraint, of rows as they were scaled."
    " The spread of residuals is not released: it counts as the largest that the range allows."
)
UNSAID = "Do not publish what is below: its privacy statement cannot be shown."
RELEASED = "noise", "ledgers", "aggregation", "colluding"  # how a mean is, as the run after it
MISSING = ("", "None", "nan", "<NA>", "NaT")  # names of no agent
INTERCEPT_SHARE = 0.3  # of the feature norm that the constant feature of the intercept takes


@dataclass(eq=False, repr=False)
class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model x'Z + intercept with hard constraints and a privacy budget.

    Subclasses say what targets are (``_targets``), how many scores a record has (``_outputs``),
    and their loss, settings and public words.
    """

    total_epsilon: float | None = 1.0
    total_delta: float = 1e-5
    _: KW_ONLY
    feature_norm: Any = 1.0
    constraint: Constraint | None = None
    fit_intercept: bool = True
    mechanism: str = "gaussian"
    neighbours: str = "zero-out"
    rounds: int | None = None
    local_updates: int | None = None
    random_state: Any = None
    noise: str | None = None
    ledgers: Any = None
    ranges: Any = None
    aggregation: str | None = None
    colluding: int | None = None

    calibration = "certified"  # a parameter of some
    mean_ = length_ = cast("Any", None)  # of those that centre rows, where they do
    keeps_length_ = False
    ranges_ = read_ = cast("Any", None)  # where they were read; with the target's behind them
    narrow_target = False  # a parameter of regressors
    _y_must_be: ClassVar[dict[str, Any]] = {}  # for scikit-learn's check of targets

    @property
    def feature_norm_(self) -> float:
        """The norm that rows have at most, the constant of the intercept included."""
        return positive("feature_norm", self.feature_norm)

    @property
    def _constant(self) -> float:
        """The feature of the intercept."""
        return INTERCEPT_SHARE * self.feature_norm_

    @property
    def _unit(self) -> float:
        """Of scores: the default box is wide in it."""
        return 1.0

    @property
    def _outputs(self) -> int:
        """Scores of a record."""
        return 1

    def _targets(self, y: Vector) -> Vector:
        """Targets, checked, as the loss takes them."""
        raise NotImplementedError

    def _in_range(self, targets: Vector) -> Vector:
        """Targets in [−1, 1], of those whose range is narrowed."""
        raise NotImplementedError

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        raise NotImplementedError

    def _settings(self, problem: Problem, epsilon: float | None, **others: Any) -> Settings | Plan:
        """How the budget that is left is spent, from public numbers; ``others`` of the settings."""
        others |= {"local_updates": self.local_updates}
        if epsilon is not None:
            others["calibration"] = self.calibration
        budget = epsilon, self.total_delta, self.mechanism, others
        asked = Asked(*budget, rounds=self.rounds, way="rounds")
        known = Known(self._descent(problem) or descent_of(problem), largest_of(problem))
        return planned(problem, asked, known).settings

    def _descent(self, problem: Problem) -> Descent | None:
        """What is planned by, where the objectives do not say it."""
        return None

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        """Of the budget, for the mean that rows are centred by."""
        return None

    def _noises(self, agents: float) -> float:
        """How many agents' noise what all release adds up to: of so many, or of a secure sum."""
        if self.aggregation is None:
            return agents
        P: int = self.n_agents_
        return P / (P - check_parties(P, self.colluding))

    def _keeps_length(self, columns: int, normaliser: float, record_bound: float) -> bool:
        """Whether centred rows keep their length, as a column of its own."""
        return False

    def _plan_in_words(self, found: Result) -> str:
        """What the budget was spent on: numbers that were given, or planned from public ones."""
        words = []
        if self.ranges_ is not None and self.total_epsilon is not None:
            part = range_share(len(self._ranged()), self.narrow_target) or 0.0
            words.append(f"{100 * part:.2g} % of the budget for ranges")
        if share := getattr(self, "centring_share_", None):
            words.append(f"{100 * share:.2g} % of the budget for a mean that rows are centred by")
        if (limit := getattr(self, "clip_", None)) is not None:
            words.append(f"per-record gradients clipped at {rounded_up(limit, 3)}")
        T, E = found.settings.rounds, found.settings.local_updates
        if found.settings.tolerance is None:
            words.append(f"{T} rounds of {'one update' if E == 1 else f'{E} updates'}")
        said = [f"Spent as follows: {', '.join(words)}."] if words else []
        if self.n_agents_ == 1 and self.total_epsilon is not None:
            said.append(
                "One party has all records, and is trusted with them (no agents were given)."
            )
        return " ".join(said)

    def _public(self) -> str:
        """What the statement takes for public, beside numbers of records."""
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: Any,
        agents: Any = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Fit on the records of all agents; ``agents`` has one label per record.

        ``progress`` is told the rounds done and in all. A fit that fails or is interrupted leaves
        the model as it was: all of an earlier fit, its statement included, or none.
        """
        before = dict(vars(self))
        try:
            return self._fit(X, y, agents, progress)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(
        self, X: Any, y: Any, agents: Any, progress: Callable[[int, int], None] | None
    ) -> Self:
        seed = _seed(self.random_state)
        problem, settings = prepare(self, X, y, agents, seed=seed)
        every = settings.rounds if progress is None else max(1, settings.rounds // 20)
        tell = None if progress is None else lambda now: progress(now.round, settings.rounds)
        found = solve(
            problem,
            settings,
            seed=seed,
            evaluate_every=every,
            callback=tell,
            noise=self.noise,
            ledgers=self.ledgers,
            aggregation=self.aggregation,
            colluding=self.colluding,
        )
        adopt(self, problem, found)
        return self

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Scikit-learn's, which lists coefficients and the seed; of a fitted model the statement
        stands before it, and first of all a warning where what is listed must be kept."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        privacy = getattr(self, "privacy_", None)
        if "text/html" in shown and privacy is not None:
            before = never_raises(above_model)(privacy) or box(UNSAID, loud=True)
            shown["text/html"] = before + shown["text/html"]
        return shown

    def summary(self) -> str:
        """Coefficients by column, and why they have no intervals."""
        check_is_fitted(self, "privacy_")
        named = [str(label) for label in getattr(self, "classes_", ())][-self._outputs :]
        rows = [("", *(named or ["coefficient"]))]
        columns = zip(self._names, np.atleast_2d(self.coef_).T, strict=True)
        rows += [(name, *(f"{x:.4g}" for x in line)) for name, line in columns]
        rows.append(("(intercept)", *(f"{x:.4g}" for x in np.atleast_1d(self.intercept_))))
        return "\n".join([*aligned(rows), NO_INTERVALS])

    @property
    def _names(self) -> list[str]:
        own = [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in getattr(self, "feature_names_in_", own)]

    def _scores(self, X: Any) -> Vector:
        check_is_fitted(self, "privacy_")
        X = checked(self, X, reset=False)
        scores: Vector = self._rows(X) @ self._weights()
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _assumed(self, records: int, delta: float) -> str:
        """What the statement takes for public, and where its delta says little."""
        words = (
            f"{PUBLIC} Also {self._public()}, the number of records ({records}), every number with "
            "which the rows given to fit were prepared (a scaler fitted on private data is not "
            "covered), and that all records are well formed, as an error would say."
        )
        if getattr(self, "mean_given_", False):
            words += about_given(self.mean_mechanism_)
        if delta >= 1 / records:
            words += (
                f" A delta of 1/{records} or more would allow publishing a whole record of the "
                f"{records}: choose a smaller one."
            )
        return words

    @property
    def longest_given(self) -> float:
        """Longer rows are scaled down to this before they are centred: where lengths are kept, to
        that of a row whose numbers fill [−1, 1] evenly."""
        root = math.sqrt(self.n_features_in_ / 3) if self.keeps_length_ else 1.0
        return self.feature_norm_ * root

    def take_ranges(self, ranges: Vector) -> None:
        """Ranges that were read, of the columns and of a target after them."""
        d = int(self.n_features_in_)
        found = array("ranges", ranges, (d + self.narrow_target, 2), dtype=np.float64)
        if not ((found[:, 0] >= -1) & (found[:, 0] < found[:, 1]) & (found[:, 1] <= 1)).all():
            raise InvalidInput("Expected ranges within [-1, 1] that were read, got others.")
        self.ranges_, self.read_ = found[:d], found.tolist()

    def _means(self, X: Vector, names: Vector, owner: Vector) -> list[LocalProblem]:
        """The agents, each with the mean of its rows, scaled down to the norm."""
        B = self.longest_given
        rows = scaled_down(self._narrowed(X), B)
        if self.keeps_length_:
            rows, B = with_squares(rows, B), B * math.sqrt(1 + SQUARE**2)
        return self._sums(names, owner, rows, B)

    def _sums(
        self,
        names: Vector,
        owner: Vector,
        rows: Vector,
        B: float,
        B1: float | None = None,
        asked: str = "",
    ) -> list[LocalProblem]:
        """The agents, each with the mean of rows of these norms."""
        public: Any = {"feature_norm": B, "feature_norm_1": B1, "neighbours": self.neighbours}
        public |= sizes(owner)
        box = Box(-B, B, size=rows.shape[1])
        return [
            LocalProblem(Mean(rows[owner == p], **public), box, None, str(name), asked)
            for p, name in enumerate(names)
        ]

    def _narrowed(self, X: Vector) -> Vector:
        """Rows by the ranges that were read, where they were."""
        return X if self.ranges_ is None else narrowed(X, self.ranges_)

    def _ranged(self) -> Vector:
        """Positions of the columns whose ranges are read."""
        d = int(self.n_features_in_)
        if self.ranges is None or (isinstance(self.ranges, str) and self.ranges == "auto"):
            return np.arange(0 if self.ranges is None else d)
        names = getattr(self, "feature_names_in_", np.array([], object)).tolist()
        try:
            found = [names.index(c) if c in names else range(d)[c] for c in self.ranges]
        except (TypeError, IndexError):
            raise InvalidInput(
                'Expected ranges as "auto", None, or columns by name or position, got '
                f"{shown(self.ranges)}. Nothing was fit."
            ) from None
        return np.unique(np.array(found, int))

    def _read_ranges(
        self, X: Vector, targets: Vector, *about: Any, checkpoint: Any, **how: Any
    ) -> Vector:
        """(low, high) of every column, and of the target after them where it is narrowed."""
        at, narrow = self._ranged(), self.narrow_target
        parts = [X[:, at].astype(np.float64)]
        if narrow:
            parts.append(self._in_range(targets)[:, None])
        names, owner, mechanism, then = about
        asked = [self._names[j] for j in at], at.tolist(), self._range if narrow else None
        columns = json.dumps(asked)
        found = private_ranges(
            lambda rows, B, B1, bins: self._sums(names, owner, rows, B, B1, columns + bins),
            np.hstack(parts),
            weights_of(len(at), narrow),
            mechanism,
            self.total_delta,
            then,
            None if checkpoint is None else Path(checkpoint),
            **how,
        )
        ranges = np.array([[-1.0, 1.0]] * (X.shape[1] + narrow))
        ranges[[*at, *([X.shape[1]] if narrow else [])]] = found
        return ranges

    def _problem(
        self, X: Vector, targets: Vector, names: Vector, owner: Vector, **public: float
    ) -> Problem:
        rows = self._rows(X)
        feasible_set = self._set(rows.shape[1] - self.fit_intercept)
        owned = [owner == p for p in range(len(names))]
        return Problem(
            self._agent(str(name), rows[mine], targets[mine], feasible_set, **public)
            for name, mine in zip(names, owned, strict=True)
        )

    def _set(self, features: int) -> FeasibleSet:
        """What the coefficients, and the intercepts beside them, may be."""
        wide = DEFAULT_BOX * self._unit / self.feature_norm_
        constraint = CoefficientBox(wide) if self.constraint is None else self.constraint
        if not callable(constraint) or isinstance(constraint, type):
            raise InvalidInput(
                f"Expected a constraint such as Box(0.1), got constraint={constraint!r}. "
                "Nothing was fit."
            )
        intercept = wide / INTERCEPT_SHARE if self.fit_intercept else 0.0
        return constraint(features, self._outputs, intercept)

    def _agent(
        self, name: str, rows: Vector, targets: Vector, feasible_set: FeasibleSet, **public: Any
    ) -> LocalProblem:
        """One agent's problem, of its own ``_rows`` and ``_targets``."""
        public |= {"feature_norm": self.feature_norm_, "neighbours": self.neighbours}
        return LocalProblem(self._loss(rows, targets, **public), feasible_set, name=name)

    @property
    def longest_row(self) -> float:
        """Longer rows are scaled down to this, and centred ones have this length; the constant of
        the intercept takes the rest."""
        return self.feature_norm_ * (
            math.sqrt(1 - INTERCEPT_SHARE**2) if self.fit_intercept else 1.0
        )

    def _rows(self, X: Vector) -> Vector:
        """Rows no longer than the norm, with a constant for the intercept within it."""
        X, mean, R = self._narrowed(X), self.mean_, self.length_
        if mean is None:
            rows = scaled_down(X, self.longest_row)
        elif R is None:
            rows = around(scaled_down(X, self.longest_given), mean, self.longest_row)
        else:
            rows = with_length(scaled_down(X, self.longest_given), mean, R, self.longest_row)
        if not self.fit_intercept:
            return rows
        constant = np.full((len(X), 1), self._constant, X.dtype)
        return np.hstack([rows, constant])

    def _keep(self, solution: Vector) -> None:
        matrix = solution.reshape(-1, self._outputs).astype(np.float64)
        d = self.n_features_in_
        self.coef_ = matrix[:d].T.copy()
        if self.length_ is not None:
            self.length_coef_ = matrix[d].copy()
        self.intercept_: Any = np.zeros(self._outputs)
        if self.fit_intercept:
            self.intercept_ = matrix[-1] * self._constant

    def _weights(self) -> Vector:
        kept = [] if self.length_ is None else [self.length_coef_]
        constant = [self.intercept_ / self._constant] if self.fit_intercept else []
        return np.vstack([self.coef_.T, *kept, *constant])


def prepare(
    model: LinearEstimator,
    X: Any,
    y: Any,
    agents: Any = None,
    *,
    seed: int | None = None,
    mean: Vector | None = None,
    ranges: Vector | None = None,
    checkpoint: str | Path | None = None,
) -> tuple[Problem, Any]:
    """What ``fit`` solves, for those who run it themselves, with a checkpoint say.

    A model with a ``centring_share`` releases its mean here, with noise from ``seed`` as ``solve``
    has it, and keeps what was released in the file ``checkpoint``, for a run that is continued:
    without one every call is a release of its own. So does one whose ``ranges`` are read, in files
    beside that. A ``mean`` and ``ranges`` that are given are nobody's to check, and the statement
    says what a mean is taken for.
    """
    for fitted in [name for name in vars(model) if name.endswith("_")]:
        delattr(model, fitted)  # an earlier statement says nothing of what follows, or of a part
    X, y = checked(model, X, y, ensure_min_samples=2, **model._y_must_be)
    choice("neighbours", model.neighbours, ("zero-out", "replace"))
    positive("feature_norm", model.feature_norm_)
    for name in ("rounds", "local_updates"):
        if getattr(model, name) is not None:
            count(name, getattr(model, name))
    targets = model._targets(y)
    names, owner = owners(agents, len(y))
    model.n_agents_ = len(names)
    sums = choice("aggregation", model.aggregation, (None, "sum"))
    if sums:
        check_parties(len(names), model.colluding)
        known = model.mechanism, model.local_updates or 1, model.calibration
        refuse_no_sum(*known, model.total_epsilon)
    model.mean_, model.mean_mechanism_, model.mean_given_ = None, None, mean is not None
    model.first_releases_ = []
    secure = model.noise == "secure" or (model.noise is None and bool(model.ledgers))
    first, epsilon = first_release(
        range_share(len(model._ranged()), model.narrow_target),
        *(model.calibration, model.mechanism, model.total_epsilon, model.total_delta, secure),
    )
    model.centring_share_ = share = model._share(X.shape[1], **sizes(owner))
    reading, epsilon = first_release(
        share, model.calibration, model.mechanism, epsilon, model.total_delta, secure
    )

    def without_records(names: Vector, **public: float) -> Problem:
        """Of one record of zeros at each."""
        rows = np.zeros((len(names), X.shape[1]), X.dtype)
        labels = np.zeros(len(names), targets.dtype)
        return model._problem(rows, labels, names, np.arange(len(names)), **public)

    def settings(problem: Problem) -> Any:
        """Planned for all agents, or for one that has all records, where they are added up."""
        if sums:
            one = without_records(names[:1], normaliser=len(owner), record_bound=len(owner))
            problem = as_summed(one, model.colluding, len(names))
        return model._settings(problem, epsilon)

    model.keeps_length_ = reading is not None and model._keeps_length(X.shape[1], **sizes(owner))
    how: Any = {"seed": seed, "checkpoint": checkpoint}
    how |= {name: getattr(model, name) for name in RELEASED}
    if first is not None or reading is not None:
        model.length_ = 1.0 if model.keeps_length_ else None  # until it is known: for sizes
        # what can be refused is refused before anything is paid
        then = _cost(settings(without_records(names, **sizes(owner))))
    if first is not None:
        first = of_a_stage(first)
        if ranges is None:
            after = then if reading is None else together((reading, 1), then)
            ranges = model._read_ranges(X, targets, names, owner, first, after, **how)
        model.take_ranges(ranges)
        model.first_releases_.append((first, STAGES, BINS * len(ranges)))
        targets = model._targets(y)
    if reading is not None:
        if mean is not None:
            mean = given_mean(mean, X.shape[1], model.longest_given, model.keeps_length_)
        else:
            means = model._means(X, names, owner)
            found = private_mean(means, reading, model.total_delta, then=then, **how)
            mean = mean_and_length(*found, model.longest_given, model.keeps_length_)
        model.mean_, model.mean_mechanism_ = mean[: X.shape[1]], reading
        model.length_ = float(mean[-1]) if model.keeps_length_ else None
        model.first_releases_.append((reading, 1, len(mean)))
    elif mean is not None:
        raise InvalidInput("Expected no mean without a centring_share. Nothing was fit.")
    problem = model._problem(X, targets, names, owner, **sizes(owner))
    chosen = settings(problem)
    model.release_mechanism_ = _cost(chosen)[0]
    return problem, chosen


def _cost(chosen: Settings | Plan) -> tuple[Mechanism, int]:
    """The mechanism that a run with these settings pays for, and how often."""
    if isinstance(chosen, Plan):
        return (chosen.release, 1) if chosen.release else _cost(chosen.settings)
    return chosen.mechanism, chosen.updates


def range_share(columns: int, target: bool) -> float | None:
    """Of the budget, for ranges that are read; None: none is."""
    return SHARE * bool(columns) + TARGET_SHARE * target or None


def adopt(model: LinearEstimator, records: Problem | int, found: Result) -> None:
    """Take the result of what was prepared: from here on the model is fitted.

    ``records`` is how many there are in all, or the problem that has them.
    """
    if isinstance(records, Problem):
        records = sum(agent.objective.sample_count for agent in records.agents)
    privacy = found.privacy
    if releases := getattr(model, "first_releases_", []):
        read = [RANGES] * (model.ranges_ is not None) + [WORDS] * (model.mean_ is not None)
        noise, size = found.settings.mechanism, int(found.solution.size)
        if privacy.once:  # X'X and X'y
            noise, size = model.release_mechanism_, size * (size + 3) // 2
        privacy = with_releases(privacy, noise, size, releases, " and ".join(read))
    model.privacy_ = replace(privacy, assumed=model._assumed(records, privacy.delta))
    plan = " ".join(filter(None, [found.plan, model._plan_in_words(found)]))
    model.result_ = replace(found, privacy=model.privacy_, plan=plan)
    model.n_records_ = records
    model._keep(model.result_.solution)
    model.n_iter_ = found.summary["round"]


def plan(
    problem: Problem,
    classes: int,
    total_epsilon: float,
    total_delta: float,
    *,
    rounds: int | None = None,
    local_updates: int | None = None,
    mechanism: str = "gaussian",
    **others: Any,
) -> Settings:
    """Settings for a budget (``planning.py``), of agents whose losses know their ``classes``.

    ``rounds`` and ``local_updates`` are kept where given.
    """
    others["local_updates"] = local_updates
    budget = total_epsilon, total_delta, mechanism, others
    asked = Asked(*budget, rounds=rounds, way="rounds")
    return planned(problem, asked, Known(descent_of(problem), largest_of(problem))).settings


def largest_of(problem: Problem) -> float:
    """How many times the mean agent's records the largest agent may have: public bounds."""
    found: Any = [agent.objective for agent in problem.agents]
    shares = (getattr(f, "most_records", f.normaliser) / f.normaliser for f in found)  # of a sum 1
    return float(max(1.0, *(share * len(found) for share in shares)))


def owners(agents: Any, records: int) -> tuple[Vector, Vector]:
    """The agents' names in order, and the position of each record's there, whatever the others'
    agents are: 1 is not 1.0, nor 2^53 + 1 2^53."""
    if agents is None:
        return np.array(["agent 1"]), np.zeros(records, int)
    labels = np.asarray(agents)
    if labels.shape != (records,):
        raise InvalidInput(
            f"Expected one agent per record, {records} in all, got shape {labels.shape}. "
            "Nothing was fit."
        )
    missing = np.isin([str(label).strip() for label in labels.tolist()], MISSING)
    if missing.any():
        row = int(np.argmax(missing)) + 1
        raise InvalidInput(
            f"Expected an agent of every record, got none in row {row}. Nothing was fit."
        )
    kinds = set() if hasattr(agents, "dtype") else {*map(type, agents)}
    if len(kinds) > 1 or (labels.dtype.kind in "fc" and (np.abs(labels) >= EXACT).any()):
        raise InvalidInput("Expected agents of one type, as floats below 2^53. Nothing was fit.")
    names, owner = np.unique(labels, return_inverse=True)
    return names, owner


def sizes(owner: Vector) -> dict[str, float]:
    """Of all records, and of the largest agent's: public."""
    return {"normaliser": float(len(owner)), "record_bound": float(np.bincount(owner).max())}


def _seed(random_state: Any) -> int | None:
    """None, a seed, or one drawn from NumPy's RandomState, as scikit-learn takes them."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return random_state if random_state is None else int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**63 - 1, dtype=np.int64))
    except ValueError:
        raise InvalidInput(
            f"Expected random_state as a whole number, RandomState or None, got {random_state!r}. "
            "Nothing was fit."
        ) from None


# Planned from public numbers: the trials are in docs/learn.md and docs/regression.md
LIMIT_FORM = "norm"  # of a softmax's slope limit: better than the convex form in all trials
SLOPE_LIMIT, FEW_CLASSES = 0.1, 0.6  # lengths of a softmax's slope; of up to MOST_FEW classes
MOST_FEW, PLENTY = 6, 100.0  # S: from here on a limit on slopes of few classes is wider
SHARES, MEAN_NOISE = (0.02, 0.1), 0.1  # least and most; noise of a mean, of a row's length
FEW_COLUMNS = 20  # of tables whose rows keep their length
THRESHOLD = 0.2  # of Huber's loss, in units of half the target range: by experiment
RIDGE = 0.3  # of a planned ridge: by experiment
KINK = 0.1  # over which a kink of the pinball loss counts as rounded off: the same unit

# --- classes ------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Scores of classes: one of the second where there are two, one of each where there are more.

    ``classes`` is the public list of labels; None: those that occur.
    """

    classes: Any = None
    centring_share: float | str | None = "auto"
    keep_length: bool | str = "auto"

    # planned without noise: the reference is centred too, and nothing is clipped
    _FREE: ClassVar[dict[str, float | None]] = {"centring_share": 0.0, "clip": None}

    def _planned(
        self, name: str, default: Callable[..., float | None], *public: Any
    ) -> float | None:
        """A parameter that may be "auto": then ``default`` of public numbers, or None where nothing
        is certified."""
        value = getattr(self, name)
        if value is None or isinstance(value, int | float | np.number):
            return None if value is None else float(value)
        if not isinstance(value, str) or value != "auto":
            raise InvalidInput(
                f'Expected {name} as a number, "auto" or None, got {shown(value)}. Nothing was fit.'
            )
        if self.total_epsilon is None or self.calibration != "certified":
            return self._FREE[name] if self.calibration == "certified" else None
        return default(*public, self.total_epsilon, self.total_delta, self.mechanism)

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        agents = self._noises(equal_agents(normaliser, record_bound))
        return self._planned("centring_share", planned_share, columns, agents, normaliser)

    def _keeps_length(self, columns: int, normaliser: float, record_bound: float) -> bool:
        """Of rows in [−1, 1], by public numbers: those of many columns are about equally long, and
        where noise is large another column costs more than it tells."""
        if self.keep_length not in (True, False, "auto"):
            raise InvalidInput(
                f'Expected keep_length as True, False or "auto", got {shown(self.keep_length)}. '
                "Nothing was fit."
            )
        free = self.constraint is None and self.feature_norm_ == 1.0
        if self.keep_length != "auto" or not free or not 1 < columns <= FEW_COLUMNS:
            return self.keep_length is True
        if self.total_epsilon is None:
            return True
        budget = self.total_epsilon, self.total_delta, self.mechanism
        agents = self._noises(equal_agents(normaliser, record_bound))
        return signal(columns, agents, normaliser, *budget) >= PLENTY

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _targets(self, y: Vector) -> Vector:
        try:
            check_classification_targets(y)
            self.classes_, labels = np.unique(y, return_inverse=True)
        except TypeError:  # text among numbers
            raise InvalidInput(
                "Expected labels of one type, numbers or text. Nothing was fit."
            ) from None
        if self.classes is not None:
            self.classes_, labels = public_classes(self.classes, y)
        if y.dtype.kind == "f" and (np.abs(y) >= EXACT).any():  # one fraction in a list is enough
            raise InvalidInput("Expected labels below 2^53 in floating point. Nothing was fit.")
        if len(self.classes_) < 2:
            raise InvalidInput("Expected two or more classes, got 1 class. Nothing was fit.")
        return labels

    def _public(self) -> str:
        if self.classes is None:  # they were read off the labels: neighbours must have the same
            return "the labels that occur (give classes)"
        return "the list of classes"

    def decision_function(self, X: Any) -> Vector:
        return self._scores(X)

    def predict(self, X: Any) -> Vector:
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        found: Vector = self.classes_[best]
        return found


@renamed(slope_limit="clip")
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(LinearClassifier):
    """Multiclass or binary logistic regression with hard constraints and a privacy budget.

    ``fit(X, y, agents=groups)`` takes the agent of every record; without it there is one agent.
    Rows are scaled down to ``feature_norm``, in ``predict`` too, and the model is of those rows.

    Guarantee: ``privacy_`` states it, for ``neighbours``: one record taken out of the sums or put
    back ("zero-out"), or replaced. It is about the rows given to ``fit``: whatever prepared them
    must have used public numbers only, as ``PublicRange`` does (a scaler fitted on private data
    does not). The numbers of records, of each agent and in all, are public, and so is the list of
    classes: give it as ``classes``, or the labels that occur are taken, and the statement is for
    neighbours with the same ones. ``coef_`` and ``intercept_`` are covered; ``score`` on private
    records is not, nor is ``result_.trace``, which a pickle of the estimator holds too:
    ``save_model`` writes what may be published.

    Every fit spends ``total_epsilon`` again. ``GridSearchCV`` and ``cross_val_score`` fit many
    times, and choose by scores that are not covered; with an integer ``random_state`` all those
    fits share their noise, which voids the statement. Search on public data.

    total_epsilon   of the whole fit; None: no noise, not private
    constraint      of the coefficients (``tacit.learn.constraints``); by default a wide box
    classes         the public list of labels
    rounds, local_updates   by default planned from public numbers
    centring_share  of the budget, for a private mean that rows are centred by (``centring.py``):
                    all rows then get the same length. None: rows are not centred
    ranges          "auto": where the numbers of each column lie within [−1, 1] is read privately,
                    with a tenth of the budget (``ranges.py``), and rows go by that; or a list of
                    columns. For public ranges that are wide; needs many records
    keep_length     whether centred rows keep their length in a column of its own
                    (``length_coef_``). "auto": with up to 20 columns, no constraint, a
                    ``feature_norm`` of 1, as ``PublicRange`` makes rows, and many records
    clip     clipping of the per-record gradient (``objectives/losses.py``), as the
                    length of a softmax's slope, at most √2; None: none. "auto" for both: planned
                    from public numbers; without noise rows are centred and nothing is clipped; with
                    the paper's calibration both are off
    calibration     "paper": the paper's data-dependent sensitivity, not differentially private
    random_state    a seed for the noise, for research; None takes a key from the operating system
    noise, ledgers  as in ``tacit.solve``: "secure" noise, and each agent's ledger
    """

    calibration: str = "certified"
    clip: float | str | None = "auto"

    def _limit(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        """The limit on slopes, in the units of a softmax, for rows of that many columns."""
        agents = self._noises(equal_agents(normaliser, record_bound))
        sizes = len(self.classes_), columns, agents, normaliser
        return self._planned("clip", planned_clip, *sizes)

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        sizes = public["normaliser"], public["record_bound"]
        self.clip_ = c = self._limit(rows.shape[1], *sizes)
        classes = len(self.classes_)
        if classes == 2:  # its two slopes are (−r, r)
            limit = None if c is None else c / math.sqrt(2)
            return LogisticRegression(rows, targets, clip=limit, **public)
        form: Any = {"clip": c, "clip_form": LIMIT_FORM}
        return SoftmaxRegression(rows, targets, classes, **form, **public)

    def predict_proba(self, X: Any) -> Vector:
        """The softmax of the scores, not corrected for clipping: that would be right at
        the optimum, which private fits are far from (``docs/own-problems.md``)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: Vector = powers / powers.sum(axis=1, keepdims=True)
        return shares


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(LinearClassifier):
    """A linear support vector machine of two classes: loss max(0, 1 − y·score), y = ±1.

    Parameters, ``fit`` and the guarantee are those of ``PrivateLogisticRegression``; there are no
    probabilities. More than two classes are refused. The hinge's slope is 1 at most, whatever the
    record.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _targets(self, y: Vector) -> Vector:
        labels = super()._targets(y)
        if (classes := len(self.classes_)) > 2:
            raise InvalidInput(
                "Only binary classification is supported: expected two classes, got "
                f"{classes} classes. Nothing was fit."
            )
        return labels

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        return Hinge(rows, targets, **public)


def public_classes(classes: Any, y: Vector) -> tuple[Vector, Vector]:
    """The public list of labels in order, and the position of each record's there."""
    try:
        known = np.unique(np.asarray(classes))
    except TypeError:  # None, or strings among numbers
        raise InvalidInput(
            f"Expected classes of one type, got classes={classes!r}. Nothing was fit."
        ) from None
    if not np.isin(y, known).all():
        row = int(np.flatnonzero(~np.isin(y, known))[0]) + 1
        raise InvalidInput(
            f"Expected labels of {known.tolist()}, got another one in row {row}. Nothing was fit."
        )
    return known, np.searchsorted(known, y)


def equal_agents(normaliser: float, record_bound: float) -> int:
    """Agents, were they all as large as the largest."""
    return max(1, round(normaliser / record_bound))


def signal(
    columns: int,
    agents: float,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float:
    """S = Nμ/√(2dP) for N records, d columns and P agents (μ: the sensitivity of one release over
    its noise). Where it is large the data say much more than the noise."""
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    return records / math.sqrt(noise.variance(1.0) * 2 * columns * agents)


def planned_clip(
    classes: int,
    columns: int,
    agents: float,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float | None:
    """Clipping of the per-record gradient, in the units of a softmax's slope; None: none.

    Of few classes it is wider by S/PLENTY, with S of ``signal``. Where it is large clipping costs
    where records of one kind have several classes: it makes a median of their mean, and
    probabilities are worse for it.
    """
    if classes > MOST_FEW:
        return SLOPE_LIMIT
    S = signal(columns, agents, records, total_epsilon, total_delta, mechanism)
    limit = FEW_CLASSES * max(1.0, S / PLENTY)
    return limit if limit < math.sqrt(2) else None


def planned_share(
    columns: int,
    agents: float,
    records: float,
    total_epsilon: float,
    total_delta: float,
    mechanism: str = "gaussian",
) -> float:
    """Of the budget, for the mean that rows are centred by: its noise is MEAN_NOISE of a row.

    A row of length 1 has an L1 norm of up to √d, which Laplace noise is paid for; that grows as
    1/share, and Gaussian noise as 1/√share (``centring.shared``).
    """
    noise = calibrate(mechanism, total_epsilon, total_delta, 1)
    power, moved = (2, 1.0) if noise.norm == 2 else (1, math.sqrt(columns))
    all_of_it = math.sqrt(noise.variance(moved) * columns * agents) / records
    return min(max((all_of_it / MEAN_NOISE) ** power, SHARES[0]), SHARES[1])


# --- numbers ------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A linear model of numbers in a public range: what all regressors share.

    With an intercept the middle of the range is taken off targets, and put back in predictions:
    without any record the prediction is the middle. ``feature_norm`` None: √(d/3) for d columns,
    the length of a row whose numbers fill [−1, 1] evenly (``PublicRange``).
    """

    feature_norm: Any = None
    target_range: Any = None
    narrow_target: bool = False

    target_range_ = cast("Any", None)  # where it was read
    _y_must_be: ClassVar[dict[str, Any]] = {"y_numeric": True}

    @property
    def feature_norm_(self) -> float:
        if self.feature_norm is None:
            return math.sqrt(self.n_features_in_ / 3)
        return super().feature_norm_

    @property
    def _range(self) -> tuple[float, float]:
        """The target range, public or read, checked."""
        given = self.target_range if self.target_range_ is None else self.target_range_
        try:
            low, high = (float(x) for x in given)
        except (TypeError, ValueError, OverflowError):
            low, high = math.nan, math.nan
        if not -1e100 < low < high < 1e100:
            raise InvalidInput(
                "Expected target_range=(low, high), the public range of targets, got "
                f"target_range={self.target_range!r}. Nothing was fit."
            )
        return low, high

    @property
    def _offset(self) -> float:
        low, high = self._range
        return low + (high - low) / 2 if self.fit_intercept else 0.0

    @property
    def _unit(self) -> float:
        """The largest target: half the range, or what is farthest from 0."""
        low, high = self._range
        return (high - low) / 2 if self.fit_intercept else max(abs(low), abs(high))

    def _targets(self, y: Vector) -> Vector:
        low, high = self._range
        try:
            numbers = np.asarray(y, np.float64)
        except (TypeError, ValueError):  # whose words would show a target
            raise InvalidInput(
                "Expected numbers as targets, got something else. Nothing was fit."
            ) from None
        targets: Vector = np.clip(numbers, low, high) - self._offset
        return targets

    def _in_range(self, targets: Vector) -> Vector:
        low, high = self._range
        found: Vector = (targets + self._offset - (low + high) / 2) / ((high - low) / 2)
        return found

    def take_ranges(self, ranges: Vector) -> None:
        super().take_ranges(ranges)
        if self.narrow_target:
            low, high = self._range
            read = (low + high) / 2 + (high - low) / 2 * np.asarray(ranges)[-1]
            self.target_range_ = tuple(read.tolist())

    def _public(self) -> str:
        return "the range of targets"

    def _keep(self, solution: Vector) -> None:
        super()._keep(solution)
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0]) + self._offset

    def _weights(self) -> Vector:
        if not self.fit_intercept:
            return np.asarray(self.coef_)[:, None]
        return np.append(self.coef_, (self.intercept_ - self._offset) / self._constant)[:, None]

    def predict(self, X: Any) -> Vector:
        low, high = self._range
        found: Vector = np.clip(self._scores(X) + self._offset, low, high)
        return found


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(LinearRegressor):
    """Linear regression with Huber's loss: squares of small residuals, lengths of large ones.

    Per-record gradients are clipped at ``threshold``, whatever the target: much less noise than
    least squares has, and the first choice where noise matters.

    Guarantee, and ``fit``, as ``PrivateLogisticRegression`` has them; rows longer than
    ``feature_norm`` are scaled down, and targets clipped, each by its own numbers only.

    target_range    (low, high) of targets, public; clipped to it, and predictions too
    narrow_target   whether it is narrowed first, to what is read privately of where targets lie,
                    with 3 % of the budget (``target_range_``); ``ranges`` as there, for columns
    threshold       in the units of targets; None: a fifth of half the range
    feature_norm    None: √(d/3) for d columns, as fits columns in [−1, 1] (``PublicRange``)
    rounds, local_updates   by default planned from public numbers (``planning.py``)
    others          as in ``PrivateLogisticRegression``
    """

    threshold: float | None = None

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        threshold = THRESHOLD * self._unit if self.threshold is None else self.threshold
        public |= {"target_bound": self._unit, "threshold": positive("threshold", threshold)}
        return Huber(rows, targets, **public)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(LinearRegressor):
    """Least squares with a ridge, from one noisy release of X'X and X'y of every agent.

    min ‖y − Xw‖² + alpha‖w‖², as scikit-learn's ``Ridge``, over rows no longer than
    ``feature_norm``; the intercept is a coefficient like the others (of a constant column of 0.3
    ``feature_norm``), and has the ridge too. Where noise drowns a direction of X'X, it is held
    back as by a ridge of the size of the noise (``objectives/moments.py``).

    Released once, the data need no rounds with noise: ``rounds`` None. With ``rounds`` or
    ``local_updates`` given, and with more than 2,000 columns, there is noise in every round, in
    proportion to the largest residual that the constraint allows: give a narrow one, or take
    ``PrivateHuberRegressor``.

    alpha           of the ridge. "auto": as much as the noise needs, from public numbers; without
                    noise, or with noise in every round, 1. ``alpha_`` is what was taken
    others          as in ``PrivateHuberRegressor``

    Where this process has the releases, ``coef_interval_`` has 95 % intervals, rows (low, high), of
    the free estimate, without ridge and constraint (else NaN); ``summary()`` shows them. Squares of
    targets are not released: residuals count as spread as the public range allows, so intervals
    cover at least as often as they say. ``PrivateMoments`` has shorter ones.
    """

    alpha: float | str = "auto"

    @property
    def coef_interval_(self) -> Vector:
        if (bars := self._bars()) is None:
            return np.full((self.n_features_in_, 2), np.nan)
        return bars.interval()

    def summary(self) -> str:
        bars = self._bars()
        return super().summary() if bars is None else bars.summary()

    def _bars(self) -> Regression | None:
        """The free estimate and its intervals, of what was released, if it is known here."""
        check_is_fitted(self, "privacy_")
        found, p = getattr(self, "result_", None), self.privacy_
        private = self.total_epsilon is not None and self.mechanism == "gaussian"
        if found is None or not found.released or not private:
            return None
        d, N, Y = len(self._weights()), self.n_records_, self._unit
        public: Any = {"feature_norm": self.feature_norm_, "neighbours": self.neighbours}
        zero = np.zeros((1, d)), np.zeros(1)
        read = LeastSquares(*zero, target_bound=Y, normaliser=N, **public).statistics()
        s2 = self.release_mechanism_.variance(read.sensitivity(2)) * self._noises(self.n_agents_)
        S, b = read.matrices(np.sum(found.released, axis=0))
        T = np.block([[S, b[:, None]], [b, N * Y**2]])
        W = np.full((d + 1, d + 1), s2 * (Y / self.feature_norm_) ** 2)
        W[:d, :d], W[d, d] = s2 / 2 * (1 + np.eye(d)), 0.0
        free, k = estimate(T, W, N), self.n_features_in_
        L = np.vstack([np.zeros(d), np.eye(k, d)])
        if self.fit_intercept:
            L[0, -1] = self._constant
        doubt = ""
        if free.clear < 1:
            more = what_would_do(free.clear, N, p.epsilon, p.delta)
            doubt = f"No interval: too few records beside the noise. {more}"
        return Regression(
            "target",
            tuple(self._names),
            self.coef_,
            float(self.intercept_),
            L @ free.coef + np.append(self._offset, np.zeros(k)),
            L @ free.sampling @ L.T,
            L @ free.privacy @ L.T,
            free.freedom,
            math.nan,
            math.sqrt(free.variance),
            N,
            doubt,
            said=(OF_RIDGE,),
        )

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        public["target_bound"] = self._unit
        self.alpha_ = self._ridge(LeastSquares(rows[:1], targets[:1], **public))
        # every agent has its part of the ridge of the mean, alpha/N
        ridge = self.alpha_ / (public["normaliser"] * self.n_agents_)
        return LeastSquares(rows, targets, ridge=ridge, **public)

    def _ridge(self, f: LeastSquares) -> float:
        """alpha, or one from public numbers: in proportion to the noise of X'X, and to its share.

        The noise of the sum has eigenvalues up to about e = √(2dP)·s (deviation s of a value), and
        X'X has N‖x‖²/d on average: RIDGE·e·(e/(NB²/d)) is next to nothing where noise is small, and
        holds all back where it is larger than what there is to learn.
        """
        if not isinstance(self.alpha, str):
            return non_negative("alpha", self.alpha)
        if self.alpha != "auto":
            raise InvalidInput(
                f'Expected alpha as a number or "auto", got {self.alpha!r}. Nothing was fit.'
            )
        if self.total_epsilon is None or self._in_rounds:
            return 1.0
        noise = calibrate(self.mechanism, self.total_epsilon, self.total_delta, 1)
        variance = noise.variance(f.statistics().sensitivity(noise.norm))
        edge = math.sqrt(2 * f.dimension * self._noises(self.n_agents_) * variance)
        signal = f.normaliser * f.feature_bound(2) ** 2 / f.dimension
        return RIDGE * edge**2 / signal

    @property
    def _in_rounds(self) -> bool:
        return self.rounds is not None or self.local_updates is not None

    def _settings(self, problem: Problem, epsilon: float | None, **others: Any) -> Settings | Plan:
        if self._in_rounds:
            return super()._settings(problem, epsilon, **others)
        way: Any = None
        if self.mechanism == "gaussian" and problem.size <= MOST_COLUMNS:
            way = "release"
        return planned(problem, Asked(epsilon, self.total_delta, self.mechanism, others, way=way))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateQuantileRegressor(LinearRegressor):
    """Linear regression of a quantile: a share ``level`` of targets is below the prediction.

    level           0.5: the median
    others          as in ``PrivateHuberRegressor``
    """

    level: float = 0.5

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        return Quantile(rows, targets, level=probability("level", self.level), **public)

    def _descent(self, problem: Problem) -> Descent:
        """As if a kink were rounded off over KINK of the range."""
        slope = max(self.level, 1 - self.level) / (KINK * self._unit)
        f: Any = problem.agents[0].objective
        if self.aggregation is not None:  # all records
            return of_regression(self.feature_norm_, 1.0, self._unit, slope)
        share = f.most_records / f.normaliser
        return of_regression(f.feature_bound(2), share, self._unit, slope)
