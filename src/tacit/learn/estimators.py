"""What all private estimators share: records in, a problem and settings; a result, a model out.

    X, y, agents ─▶ prepare: checked, rows centred and no longer than the norm ─▶ Problem, Settings
    Result       ─▶ adopt:   privacy_, result_, coef_, intercept_

``classifiers.py`` and ``regressors.py`` have the estimators: a loss each, and its targets.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import EXACT, InvalidInput, choice, count, positive, shown
from tacit.html import box, never_raises
from tacit.learn.centring import (
    SQUARE,
    WORDS,
    around,
    mean_and_length,
    scaled_down,
    with_length,
    with_squares,
)
from tacit.learn.constraints import CoefficientBox, Constraint
from tacit.learn.error_bars import aligned
from tacit.learn.features import checked
from tacit.learn.first_releases import Sums, noises_of, shared, sizes, together
from tacit.learn.ranges import (
    BINS,
    SHARE,
    STAGES,
    TARGET_SHARE,
    narrowed,
    of_a_stage,
    private_ranges,
    weights_of,
)
from tacit.learn.ranges import WORDS as RANGES
from tacit.objectives.objective import Descent, Objective
from tacit.planning import Known, Plan, descent_of
from tacit.planning import plan as planned
from tacit.privacy.accounting import rounded_up
from tacit.privacy.mechanisms import Mechanism, Noiseless, check_parties, refuse_no_sum
from tacit.protocol.facts import as_summed
from tacit.protocol.jupyter import above_model
from tacit.protocol.result import Result
from tacit.protocol.statement import PUBLIC, with_releases
from tacit.sets.feasible_set import FeasibleSet
from tacit.transports import solve

DEFAULT_BOX = 32.0  # the box of an unconstrained model, in units of 1/feature_norm
NO_INTERVALS = (
    "No intervals: with noise in every round, clipping and an unfinished path bias coefficients by "
    "amounts that no release bounds. tacit.learn.PrivateMoments gives intervals."
)
PER_UNIT = "Per unit of the data, for rows that are no longer than the norm."
CENTRED = (
    "Coefficients are per half range of a column (of a category: from 0 to 1), of centred rows."
)
UNSAID = "Do not publish what is below: its privacy statement cannot be shown."
RELEASED = "noise", "ledgers", "aggregation", "colluding"  # how a mean is, as the run after it
READ = "ranges_", "target_range_", "mean_", "length_"  # what is released before a run
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
    narrow_target = False
    ranges_ = target_range_ = mean_ = length_ = cast("Any", None)  # where they were released
    centring_share_ = cast("Any", None)
    _y_must_be: ClassVar[dict[str, Any]] = {}  # for scikit-learn's check of targets

    # --- what subclasses say ----------------------------------------------------------------------

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

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        raise NotImplementedError

    def _public(self) -> str:
        """What the statement takes for public, beside numbers of records."""
        raise NotImplementedError

    def _descent(self, problem: Problem) -> Descent | None:
        """What is planned by, where the objectives do not say it."""
        return None

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        """Of the budget, for the mean that rows are centred by."""
        return None

    def _keeps_length(self, columns: int, normaliser: float, record_bound: float) -> bool:
        """Whether centred rows keep their length, as a column of its own."""
        return False

    def _settings(self, problem: Problem, epsilon: float | None, **others: Any) -> Settings | Plan:
        """How the budget that is left is spent, from public numbers; ``others`` of the settings."""
        others |= {"local_updates": self.local_updates}
        if epsilon is not None:
            others["calibration"] = self.calibration
        budget = epsilon, self.total_delta, self.mechanism, others
        asked = Asked(*budget, rounds=self.rounds, way="rounds")
        known = Known(self._descent(problem) or descent_of(problem), largest_of(problem))
        return planned(problem, asked, known).settings

    # --- fit --------------------------------------------------------------------------------------

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

    def __sklearn_clone__(self) -> Any:
        """A copy, whose fits count with those of all other copies: searches make many."""
        found = super().__sklearn_clone__()
        found._fits = self._fits = getattr(self, "_fits", [0])
        return found

    def _fit(
        self, X: Any, y: Any, agents: Any, progress: Callable[[int, int], None] | None
    ) -> Self:
        seed = seed_of(self.random_state)
        fits = getattr(self, "_fits", [0])
        fits[0] += self.total_epsilon is not None
        if fits[0] > 1:
            fixed = isinstance(self.random_state, int | np.integer)
            repeated = " Their noise is the same, which voids it." if fixed else ""
            warnings.warn(
                f"{fits[0]} copies of {type(self).__name__} were fitted, as by cross-validation: "
                f"each spends a total_epsilon of its own.{repeated}",
                stacklevel=3,
            )
        problem, settings = prepare(self, X, y, agents, seed=seed)
        every = settings.rounds if progress is None else max(1, settings.rounds // 20)
        tell = None if progress is None else lambda now: progress(now.round, settings.rounds)
        how: Any = {name: getattr(self, name) for name in RELEASED}
        found = solve(problem, settings, seed=seed, evaluate_every=every, callback=tell, **how)
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

    def summary(self, before: Any = None) -> str:
        """Coefficients by column, why they have no intervals, and how the budget was spent.

        before   the ``PublicRange`` or ``PublicColumns`` that made the rows: columns have its
                 names, and coefficients are shown per unit of the data too. Of rows that are
                 centred, and so all of one length, there is no such number
        """
        check_is_fitted(self, "privacy_")
        names, slopes = self._columns(before)
        head = [str(label) for label in getattr(self, "classes_", ())][-self._outputs :]
        head = head or ["coefficient"]
        table = np.vstack([np.atleast_2d(self.coef_).T, np.atleast_1d(self.intercept_)])
        if self.mean_ is None and (slopes != 1).any():
            head += ["per unit"] if len(head) == 1 else [f"{name} per unit" for name in head]
            table = np.hstack([table, table * np.append(slopes, np.nan)[:, None]])
        cells = [["" if math.isnan(x) else f"{x:.4g}" for x in row] for row in table]
        rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
        said = [NO_INTERVALS, *([PER_UNIT] if len(head) > self._outputs else [])]
        said += [CENTRED] if self.mean_ is not None and (slopes != 1).any() else []
        said += [self.result_.plan] if hasattr(self, "result_") else []
        return "\n".join([*aligned([["", *head], *rows]), *said])

    def _columns(self, before: Any) -> tuple[list[str], Vector]:
        """Names of the columns and the intercept, and what of a column one unit of the data is."""
        own = self._names if before is None else before.get_feature_names_out().tolist()
        if len(own) != self.n_features_in_:
            raise InvalidInput(
                f"Expected the step that made the {self.n_features_in_} columns of the model, got "
                f"one that makes {len(own)}."
            )
        slopes = np.ones(self.n_features_in_) if before is None else before.slopes_
        if self.ranges_ is not None:
            slopes = slopes * 2 / (self.ranges_[:, 1] - self.ranges_[:, 0])
        return [*map(str, own), "(intercept)"], slopes

    @property
    def _names(self) -> list[str]:
        own = [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in getattr(self, "feature_names_in_", own)]

    def _scores(self, X: Any) -> Vector:
        check_is_fitted(self, "privacy_")
        X = checked(self, X, reset=False)
        scores: Vector = self._rows(X) @ self._weights()
        return scores[:, 0] if scores.shape[1] == 1 else scores

    # --- what is said -----------------------------------------------------------------------------

    def _plan_in_words(self, found: Result) -> str:
        """What the budget was spent on: numbers that were given, or planned from public ones."""
        words = []
        if self.ranges_ is not None and self.total_epsilon is not None:
            part = self._range_share() or 0.0
            words.append(f"{100 * part:.2g} % of the budget for ranges")
        if self.centring_share_:
            part = self.centring_share_
            words.append(f"{100 * part:.2g} % of the budget for a mean that rows are centred by")
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

    def _assumed(self, records: int, delta: float) -> str:
        """What the statement takes for public, and where its delta says little."""
        return (
            f"{PUBLIC} Also {self._public()}, the number of records ({records}), every number with "
            "which the rows given to fit were prepared (a scaler fitted on private data is not "
            "covered), and that all records are well formed, as an error would say."
        ) + large_delta(records, delta)

    # --- rows -------------------------------------------------------------------------------------

    @property
    def feature_norm_(self) -> float:
        """The norm that rows have at most, the constant of the intercept included."""
        return positive("feature_norm", self.feature_norm)

    @property
    def _constant(self) -> float:
        """The feature of the intercept."""
        return INTERCEPT_SHARE * self.feature_norm_

    @property
    def longest_row(self) -> float:
        """Longer rows are scaled down to this, and centred ones have this length; the constant of
        the intercept takes the rest."""
        return self.feature_norm_ * (
            math.sqrt(1 - INTERCEPT_SHARE**2) if self.fit_intercept else 1.0
        )

    @property
    def longest_given(self) -> float:
        """Longer rows are scaled down to this before they are centred: where lengths are kept, to
        that of a row whose numbers fill [−1, 1] evenly."""
        root = 1.0 if self.length_ is None else math.sqrt(self.n_features_in_ / 3)
        return self.feature_norm_ * root

    def _narrowed(self, X: Vector) -> Vector:
        """Rows by the ranges that were read, where they were."""
        return X if self.ranges_ is None else narrowed(X, self.ranges_)

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

    # --- what is released first -------------------------------------------------------------------

    def _noises(self, agents: float) -> float:
        """The noise of what all release, in units of one agent's: ``agents``, or a secure sum's."""
        if self.aggregation is None:
            return agents
        return noises_of(self.n_agents_, self.aggregation, self.colluding)

    def _means(self, X: Vector, sums: Sums) -> list[LocalProblem]:
        """The agents, each with the mean of its rows, scaled down to the norm."""
        B = self.longest_given
        rows = scaled_down(self._narrowed(X), B)
        if self.length_ is not None:
            rows, B = with_squares(rows, B), B * math.sqrt(1 + SQUARE**2)
        return sums.parts(rows, B)

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

    def _range_share(self) -> float | None:
        """Of the budget, for ranges that are read; None: none is."""
        share = SHARE * bool(len(self._ranged())) + TARGET_SHARE * self.narrow_target
        return share or None

    def _read_ranges(
        self,
        X: Vector,
        targets: Vector,
        sums: Sums,
        mechanism: Mechanism,
        then: tuple[Mechanism, int],
        folder: Path | None,
    ) -> None:
        """(low, high) of every column, and of the target where it is narrowed: released, and kept
        as ``ranges_`` and ``target_range_``."""
        at, narrow, model = self._ranged(), self.narrow_target, cast("Any", self)
        own: Any = model._range if narrow else None
        parts = [X[:, at].astype(np.float64)]
        parts += [model._in_range(targets)[:, None]] if narrow else []
        asked = json.dumps(([self._names[j] for j in at], at.tolist(), own))
        public = weights_of(len(at), narrow), mechanism, then, asked, folder
        found = private_ranges(sums, np.hstack(parts), *public)
        self.ranges_ = np.array([[-1.0, 1.0]] * X.shape[1])
        self.ranges_[at] = found[: len(at)]
        if narrow:
            low, high = own
            self.target_range_ = tuple(((low + high) / 2 + (high - low) / 2 * found[-1]).tolist())

    # --- the problem ------------------------------------------------------------------------------

    def _problem(self, X: Vector, targets: Vector, names: Vector, owner: Vector) -> Problem:
        rows, public = self._rows(X), sizes(owner)
        feasible_set = self._set(rows.shape[1] - self.fit_intercept)
        owned = [owner == p for p in range(len(names))]
        return Problem(
            self._agent(str(name), rows[mine], targets[mine], feasible_set, **public)
            for name, mine in zip(names, owned, strict=True)
        )

    def _without_records(self, names: Vector, dtypes: Any, **public: float) -> Problem:
        """The same of one record of zeros at each agent."""
        rows = self._rows(np.zeros((1, self.n_features_in_), dtypes[0]))
        feasible_set = self._set(rows.shape[1] - self.fit_intercept)
        target = np.zeros(1, dtypes[1])
        return Problem(
            self._agent(str(name), rows, target, feasible_set, **public) for name in names
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


def prepare(
    model: LinearEstimator,
    X: Any,
    y: Any,
    agents: Any = None,
    *,
    seed: int | None = None,
    folder: str | Path | None = None,
) -> tuple[Problem, Any]:
    """What ``fit`` solves, for those who run it themselves, with a checkpoint say.

    A model that is centred, or whose ``ranges`` are read, releases here what that takes, with noise
    from ``seed`` as ``solve`` has it, and keeps it in files in ``folder``, for a run that is
    continued: without one every call is a release of its own.
    """
    X, y, names, owner = _checked(model, X, y, agents)
    targets, public = model._targets(y), sizes(owner)
    secure = model.noise == "secure" or (model.noise is None and bool(model.ledgers))
    first = first_of(model, X.shape[1], public, secure)

    def settings(problem: Problem) -> Any:
        """Planned for all agents, or for one that has all records, where they are added up."""
        if model.aggregation:
            all_of_it = {"normaliser": len(owner), "record_bound": len(owner)}
            one = model._without_records(names[:1], (X.dtype, targets.dtype), **all_of_it)
            problem = as_summed(one, model.colluding, len(names))
        return model._settings(problem, first.epsilon)

    how = {"seed": seed, **{name: getattr(model, name) for name in RELEASED}}
    sums = Sums(names, owner, model.neighbours, model.total_delta, how)
    if first.of_ranges is not None or first.of_mean is not None:
        # what can be refused is refused before anything is paid
        like = model._without_records(names, (X.dtype, targets.dtype), **public)
        then = _cost(settings(like))
        release_first(model, first, X, targets, sums, then, folder)
        targets = model._targets(y)
    problem = model._problem(X, targets, names, owner)
    chosen = settings(problem)
    model.release_mechanism_ = _cost(chosen)[0]
    return problem, chosen


class First(NamedTuple):
    """The noise of what is released before a run, of each stage of ranges and of a mean, where
    they are, and the ε that is left."""

    of_ranges: Mechanism | None
    of_mean: Mechanism | None
    epsilon: float | None


def first_of(model: LinearEstimator, columns: int, public: dict[str, float], secure: bool) -> First:
    """How a budget is shared, from public numbers; the model's length is 1 until it is known."""

    def first(share: float | None, epsilon: float | None) -> tuple[Mechanism | None, float | None]:
        if share is None or (epsilon is None and model.calibration == "certified"):
            return None if share is None else Noiseless(), epsilon
        if epsilon is None or model.calibration != "certified":
            raise InvalidInput(
                "Expected certified noise for a private mean, got calibration="
                f"{model.calibration!r}. Nothing was fit."
            )
        return shared(model.mechanism, epsilon, model.total_delta, share, secure)

    of_ranges, epsilon = first(model._range_share(), model.total_epsilon)
    model.centring_share_ = share = model._share(columns, **public)
    of_mean, epsilon = first(share, epsilon)
    if of_mean is not None and model._keeps_length(columns, **public):
        model.length_ = 1.0  # for sizes
    return First(None if of_ranges is None else of_a_stage(of_ranges), of_mean, epsilon)


def release_first(
    model: LinearEstimator,
    first: First,
    X: Vector,
    targets: Vector,
    sums: Sums,
    then: tuple[Mechanism, int],
    folder: str | Path | None = None,
) -> None:
    """Release ranges and a mean, and keep them in the model; ledgers are to pay for the run, which
    comes ``then``, too."""
    at = None if folder is None else Path(folder)
    if first.of_ranges is not None:
        after = then if first.of_mean is None else together((first.of_mean, 1), then)
        model._read_ranges(X, targets, sums, first.of_ranges, after, at)
        many = BINS * (X.shape[1] + model.narrow_target)
        model.first_releases_.append((first.of_ranges, STAGES, many))
    if first.of_mean is not None:
        parts, B, d = model._means(X, sums), model.longest_given, X.shape[1]
        checkpoint = None if at is None else at / "mean.npz"
        found = sums.mean(parts, first.of_mean, "centring", then=then, checkpoint=checkpoint)
        kept = model.length_ is not None
        mean = mean_and_length(found, sums.deviation(parts, first.of_mean), B, kept)
        model.mean_, model.length_ = mean[:d], float(mean[-1]) if kept else None
        model.first_releases_.append((first.of_mean, 1, len(mean)))


def rebuilt(model: LinearEstimator, X: Any, y: Any, agents: Any, read: dict[str, Any]) -> Problem:
    """The problem of ``prepare`` on another rank, where it is known what was ``READ``."""
    X, y, names, owner = _checked(model, X, y, agents)
    for name, value in read.items():
        setattr(model, name, np.array(value) if isinstance(value, list) else value)
    return model._problem(X, model._targets(y), names, owner)


def _checked(
    model: LinearEstimator, X: Any, y: Any, agents: Any
) -> tuple[Vector, Vector, Vector, Vector]:
    """Rows, their targets, agents' names and whose each record is; what was fitted is forgotten."""
    for fitted in [name for name in vars(model) if name.endswith("_")]:
        delattr(model, fitted)  # an earlier statement says nothing of what follows, or of a part
    X, y = checked(model, X, y, ensure_min_samples=2, **model._y_must_be)
    choice("neighbours", model.neighbours, ("zero-out", "replace"))
    positive("feature_norm", model.feature_norm_)
    for name in ("rounds", "local_updates"):
        if getattr(model, name) is not None:
            count(name, getattr(model, name))
    names, owner = owners(agents, len(y))
    model.n_agents_, model.first_releases_ = len(names), []
    if choice("aggregation", model.aggregation, (None, "sum")):
        check_parties(len(names), model.colluding)
        known = model.mechanism, model.local_updates or 1, model.calibration
        refuse_no_sum(*known, model.total_epsilon)
    return X, y, names, owner


def _cost(chosen: Settings | Plan) -> tuple[Mechanism, int]:
    """The mechanism that a run with these settings pays for, and how often."""
    if isinstance(chosen, Plan):
        return (chosen.release, 1) if chosen.release else _cost(chosen.settings)
    return chosen.mechanism, chosen.updates


def adopt(model: LinearEstimator, records: Problem | int, found: Result) -> None:
    """Take the result of what was prepared: from here on the model is fitted.

    ``records`` is how many there are in all, or the problem that has them.
    """
    if isinstance(records, Problem):
        records = sum(agent.objective.sample_count for agent in records.agents)
    privacy = found.privacy
    if releases := getattr(model, "first_releases_", []):
        read = [RANGES] * (model.ranges_ is not None)
        read += [WORDS] * (model.mean_ is not None)
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


def largest_of(problem: Problem) -> float:
    """How many times the mean agent's records the largest agent may have: public bounds."""
    found: Any = [agent.objective for agent in problem.agents]
    shares = (getattr(f, "most_records", f.normaliser) / f.normaliser for f in found)  # of a sum 1
    return float(max(1.0, *(share * len(found) for share in shares)))


def large_delta(records: int, delta: float) -> str:
    """What a statement says of a delta that says little."""
    if delta < 1 / records:
        return ""
    return (
        f" A delta of 1/{records} or more would allow publishing a whole record of the "
        f"{records}: choose a smaller one."
    )


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


def seed_of(random_state: Any) -> int | None:
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
