"""Linear models over several agents' private records, as scikit-learn estimators: what all share.

    X, y, agents ─▶ prepare: checked, rows centred and no longer than the norm ─▶ Problem, Settings
    Result       ─▶ adopt:   privacy_, result_, coef_, intercept_

``estimators.py`` adds a loss, the set of its targets, and predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import EXACT, InvalidInput, choice, count, positive
from tacit.html import box, never_raises
from tacit.learn.centring import (
    WORDS,
    about_given,
    around,
    first_release,
    given_mean,
    private_mean,
    scaled_down,
)
from tacit.learn.constraints import CoefficientBox, Constraint
from tacit.learn.features import checked
from tacit.objectives.moments import Mean
from tacit.objectives.objective import Descent, Objective
from tacit.planning import Known, Plan, descent_of
from tacit.planning import plan as planned
from tacit.privacy.accounting import rounded_up
from tacit.protocol.jupyter import above_model
from tacit.protocol.result import Result
from tacit.protocol.statement import PUBLIC, with_reading
from tacit.sets import Box
from tacit.sets.feasible_set import FeasibleSet
from tacit.transports import solve

DEFAULT_BOX = 32.0  # the box of an unconstrained model, in units of 1/feature_norm
UNSAID = "Do not publish what is below: its privacy statement cannot be shown."
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

    calibration = "certified"  # a parameter of some
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

    def _loss(self, rows: Vector, targets: Vector, **public: Any) -> Objective:
        raise NotImplementedError

    def _settings(self, problem: Problem, epsilon: float | None) -> Settings | Plan:
        """How the budget that is left is spent, from public numbers."""
        others: dict[str, Any] = {"local_updates": self.local_updates}
        if epsilon is not None:
            others["calibration"] = self.calibration
        budget = epsilon, self.total_delta, self.mechanism, others
        asked = Asked(*budget, rounds=self.rounds, way="rounds")
        known = Known(self._descent(problem) or descent_of(problem))
        return planned(problem, asked, known).settings

    def _descent(self, problem: Problem) -> Descent | None:
        """What is planned by, where the objectives do not say it."""
        return None

    def _share(self, columns: int, normaliser: float, record_bound: float) -> float | None:
        """Of the budget, for the mean that rows are centred by."""
        return None

    def _plan_in_words(self, found: Result) -> str:
        """What the budget was spent on: numbers that were given, or planned from public ones."""
        words = []
        if (share := getattr(self, "centring_share_", None)) is not None:
            words.append(f"{100 * share:.2g} % of the budget for a mean that rows are centred by")
        if (limit := getattr(self, "slope_limit_", None)) is not None:
            words.append(f"no record pulls more than {rounded_up(limit, 3)}")
        T, E = found.settings.rounds, found.settings.local_updates
        if found.settings.tolerance is None:
            words.append(f"{T} rounds of {'one update' if E == 1 else f'{E} updates'}")
        return f"Spent as follows: {', '.join(words)}." if words else ""

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

    def _scores(self, X: Any) -> Vector:
        check_is_fitted(self, "privacy_")
        X = checked(self, X, reset=False)
        scores: Vector = self._rows(X) @ self._weights()
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _assumed(self, records: int, delta: float) -> str:
        """What the statement takes for public, and where its delta says little."""
        words = (
            f"{PUBLIC} Also {self._public()}, every number with which the rows given to fit "
            "were prepared (a scaler fitted on private data is not covered), and that all records "
            "are well formed, as an error would say."
        )
        if getattr(self, "mean_given_", False):
            words += about_given(self.reading_)
        if delta * records >= 1:
            words += (
                f" A delta of 1/{records} or more would allow publishing a whole record of the "
                f"{records}: choose a smaller one."
            )
        return words

    def _means(self, X: Vector, names: Vector, owner: Vector) -> list[LocalProblem]:
        """The agents, each with the mean of its rows, scaled down to the norm."""
        B = self.feature_norm_
        public: Any = {"feature_norm": B, "neighbours": self.neighbours} | sizes(owner)
        rows, box = scaled_down(X, B), Box(-B, B, size=X.shape[1])
        return [
            LocalProblem(Mean(rows[owner == p], **public), box, name=str(name))
            for p, name in enumerate(names)
        ]

    def _problem(
        self, X: Vector, targets: Vector, names: Vector, owner: Vector, **public: float
    ) -> Problem:
        rows, feasible_set = self._rows(X), self._set(X.shape[1])
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
        mean = getattr(self, "mean_", None)
        if mean is None:
            rows = scaled_down(X, self.longest_row)
        else:
            rows = around(scaled_down(X, self.feature_norm_), mean, self.longest_row)
        if not self.fit_intercept:
            return rows
        constant = np.full((len(X), 1), self._constant, X.dtype)
        return np.hstack([rows, constant])

    def _keep(self, solution: Vector) -> None:
        matrix = solution.reshape(-1, self._outputs).astype(np.float64)
        self.coef_ = matrix[: self.n_features_in_].T.copy()
        self.intercept_: Any = np.zeros(self._outputs)
        if self.fit_intercept:
            self.intercept_ = matrix[-1] * self._constant

    def _weights(self) -> Vector:
        if not self.fit_intercept:
            return np.asarray(self.coef_.T)
        constant = self.intercept_ / self._constant
        return np.vstack([self.coef_.T, constant])


def prepare(
    model: LinearEstimator,
    X: Any,
    y: Any,
    agents: Any = None,
    *,
    seed: int | None = None,
    mean: Vector | None = None,
    checkpoint: str | Path | None = None,
) -> tuple[Problem, Any]:
    """What ``fit`` solves, for those who run it themselves, with a checkpoint say.

    A model with a ``centring_share`` releases its mean here, with noise from ``seed`` as ``solve``
    has it, and keeps what was released in the file ``checkpoint``, for a run that is continued:
    without one every call is a release of its own. A ``mean`` that is given is nobody's to check,
    and the statement says what it is taken for.
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
    model.mean_, model.reading_, model.mean_given_ = None, None, mean is not None
    budget = model.mechanism, model.total_epsilon, model.total_delta
    model.centring_share_ = share = model._share(X.shape[1], **sizes(owner))
    secure = model.noise == "secure" or (model.noise is None and bool(model.ledgers))
    reading, epsilon = first_release(share, model.calibration, *budget, secure)
    if reading is not None:
        # what can be refused is refused before anything is paid
        n, d = len(names), X.shape[1]
        zeros = np.zeros((n, d), X.dtype), np.zeros(n, targets.dtype)
        empty = model._problem(zeros[0], zeros[1], names, np.arange(n), **sizes(owner))
        planned: Any = model._settings(empty, epsilon)
        if mean is not None:
            mean = given_mean(mean, X.shape[1], model.feature_norm_)
        else:
            how: Any = {"seed": seed, "checkpoint": checkpoint}
            how |= {"noise": model.noise, "ledgers": model.ledgers}
            then = planned.mechanism, planned.updates
            means = model._means(X, names, owner)
            mean = private_mean(means, reading, model.total_delta, then=then, **how)
        model.mean_, model.reading_ = mean, reading
    elif mean is not None:
        raise InvalidInput("Expected no mean without a centring_share. Nothing was fit.")
    problem = model._problem(X, targets, names, owner, **sizes(owner))
    return problem, model._settings(problem, epsilon)


def adopt(model: LinearEstimator, records: Problem | int, found: Result) -> None:
    """Take the result of what was prepared: from here on the model is fitted.

    ``records`` is how many there are in all, or the problem that has them.
    """
    if isinstance(records, Problem):
        records = sum(agent.objective.sample_count for agent in records.agents)
    privacy, reading = found.privacy, getattr(model, "reading_", None)
    if reading is not None:
        sizes = int(found.solution.size), int(model.n_features_in_)
        privacy = with_reading(privacy, found.settings.mechanism, reading, WORDS, sizes)
    model.privacy_ = replace(privacy, assumed=model._assumed(records, privacy.delta))
    plan = " ".join(filter(None, [found.plan, model._plan_in_words(found)]))
    model.result_ = replace(found, privacy=model.privacy_, plan=plan)
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
    return planned(problem, asked, Known(descent_of(problem))).settings


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
