"""Logistic regression over several agents' private records, as a scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.result import Result
from tacit.admm.settings import Settings
from tacit.admm.statement import with_reading
from tacit.engines import solve
from tacit.errors import InvalidInput, choice, count, positive
from tacit.learn.centring import (
    WORDS,
    about_given,
    around,
    first_reading,
    given_mean,
    private_mean,
)
from tacit.learn.constraints import Box, Constraint
from tacit.learn.data import first_missing
from tacit.learn.plan import plan, without_noise
from tacit.learn.ranges import checked
from tacit.objectives.losses import LogisticRegression, SoftmaxRegression
from tacit.privacy.mechanisms import Mechanism
from tacit.sets.feasible_set import FeasibleSet

DEFAULT_BOX = 32.0  # the box of an unconstrained model, in units of 1/feature_norm
INTERCEPT_SHARE = 0.3  # of the feature norm that the constant feature of the intercept takes


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
    rounds, local_updates   by default chosen by ``tacit.learn.plan``
    centring_share  of the budget, for a private mean that rows are centred by (``centring.py``),
                    0.05 say: all rows then get the same length. None: rows are not centred
    calibration     "paper": the paper's data-dependent sensitivity, not differentially private
    random_state    a seed for the noise, for research; None takes a key from the operating system
    noise, ledgers  as in ``tacit.solve``: "secure" noise, and each agent's ledger
    """

    def __init__(
        self,
        total_epsilon: float | None = 1.0,
        total_delta: float = 1e-5,
        *,
        feature_norm: float = 1.0,
        constraint: Constraint | None = None,
        fit_intercept: bool = True,
        mechanism: str = "gaussian",
        neighbours: str = "zero-out",
        classes: Any = None,
        rounds: int | None = None,
        local_updates: int | None = None,
        calibration: str = "certified",
        random_state: Any = None,
        noise: str | None = None,
        ledgers: Any = None,
        centring_share: float | None = None,
    ) -> None:
        self.total_epsilon = total_epsilon
        self.total_delta = total_delta
        self.feature_norm = feature_norm
        self.constraint = constraint
        self.fit_intercept = fit_intercept
        self.mechanism = mechanism
        self.neighbours = neighbours
        self.classes = classes
        self.rounds = rounds
        self.local_updates = local_updates
        self.calibration = calibration
        self.random_state = random_state
        self.noise = noise
        self.ledgers = ledgers
        self.centring_share = centring_share

    def fit(
        self,
        X: Any,
        y: Any,
        agents: Any = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Fit on the records of all agents; ``agents`` has one label per record.

        ``progress`` is told the rounds done and in all.
        """
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

    def decision_function(self, X: Any) -> Vector:
        check_is_fitted(self)
        X = checked(self, X, reset=False)
        scores: Vector = self._rows(X) @ self._weights()
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Vector:
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        found: Vector = self.classes_[best]
        return found

    def predict_proba(self, X: Any) -> Vector:
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: Vector = powers / powers.sum(axis=1, keepdims=True)
        return shares

    def _settings(self, problem: Problem, epsilon: float | None) -> Settings:
        outputs = len(self.classes_)
        if epsilon is None:
            return without_noise(problem, outputs, self.rounds, self.local_updates)
        return plan(
            problem,
            outputs,
            epsilon,
            self.total_delta,
            rounds=self.rounds,
            local_updates=self.local_updates,
            mechanism=self.mechanism,
            calibration=self.calibration,
        )

    def _assumed(self, records: int, delta: float) -> str:
        """What the statement takes for public, and where its delta says little."""
        classes = "the list of classes"
        if self.classes is None:  # they were read off the labels: neighbours must have the same
            classes = "the labels that occur (give classes)"
        words = (
            f"Taken for public: the numbers of records, {classes}, and every number with which the "
            "rows given to fit were prepared (a scaler fitted on private data is not covered)."
        )
        if getattr(self, "mean_given_", False):
            words += about_given(self.reading_)
        if delta * records >= 1:
            words += (
                f" A delta of 1/{records} or more would allow publishing a whole record of the "
                f"{records}: choose a smaller one."
            )
        return words

    def _centre(
        self, X: Vector, names: Vector, owner: Vector, reading: Mechanism, seed: int | None
    ) -> Vector:
        """Release the mean of all rows, scaled down to the norm."""
        rows = scaled_down(X, self.feature_norm)
        return private_mean(
            [rows[owner == p] for p in range(len(names))],
            [str(name) for name in names],
            reading,
            self.total_delta,
            feature_norm=self.feature_norm,
            neighbours=self.neighbours,
            seed=seed,
            noise=self.noise,
            ledgers=self.ledgers,
            **_sizes(owner),
        )

    def _problem(self, X: Vector, labels: Vector, names: Vector, owner: Vector) -> Problem:
        rows, feasible_set = self._rows(X), self._set(X.shape[1])
        public = _sizes(owner)
        owned = [owner == p for p in range(len(names))]
        return Problem(
            self._agent(str(name), rows[mine], labels[mine], feasible_set, **public)
            for name, mine in zip(names, owned, strict=True)
        )

    def _set(self, features: int) -> FeasibleSet:
        """What the coefficients, and the intercepts beside them, may be."""
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        wide = DEFAULT_BOX / self.feature_norm
        constraint = Box(wide) if self.constraint is None else self.constraint
        if not callable(constraint) or isinstance(constraint, type):
            raise InvalidInput(
                f"Expected a constraint such as Box(0.1), got constraint={constraint!r}. "
                "Nothing was fit."
            )
        intercept = wide / INTERCEPT_SHARE if self.fit_intercept else 0.0
        return constraint(features, outputs, intercept)

    def _agent(
        self, name: str, rows: Vector, labels: Vector, feasible_set: FeasibleSet, **public: Any
    ) -> LocalProblem:
        """One agent's problem, of its own ``_rows`` and the numbers of their classes."""
        public |= {"feature_norm": self.feature_norm, "neighbours": self.neighbours}
        classes = len(self.classes_)
        loss = (
            LogisticRegression(rows, labels, **public)
            if classes == 2
            else SoftmaxRegression(rows, labels, classes, **public)
        )
        return LocalProblem(loss, feasible_set, name=name)

    @property
    def longest_row(self) -> float:
        """Longer rows are scaled down to this, and centred ones have this length; the constant of
        the intercept takes the rest."""
        return self.feature_norm * (
            math.sqrt(1 - INTERCEPT_SHARE**2) if self.fit_intercept else 1.0
        )

    def _rows(self, X: Vector) -> Vector:
        """Rows no longer than the norm, with a constant for the intercept within it."""
        mean = getattr(self, "mean_", None)
        if mean is None:
            rows = scaled_down(X, self.longest_row)
        else:
            rows = around(scaled_down(X, self.feature_norm), mean, self.longest_row)
        if not self.fit_intercept:
            return rows
        constant = np.full((len(X), 1), INTERCEPT_SHARE * self.feature_norm, X.dtype)
        return np.hstack([rows, constant])

    def _keep(self, solution: Vector) -> None:
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        matrix = solution.reshape(-1, outputs).astype(np.float64)
        self.coef_ = matrix[: self.n_features_in_].T.copy()
        self.intercept_ = np.zeros(outputs)
        if self.fit_intercept:
            self.intercept_ = matrix[-1] * INTERCEPT_SHARE * self.feature_norm

    def _weights(self) -> Vector:
        if not self.fit_intercept:
            return np.asarray(self.coef_.T)
        constant = self.intercept_ / (INTERCEPT_SHARE * self.feature_norm)
        return np.vstack([self.coef_.T, constant])


def prepare(
    model: PrivateLogisticRegression,
    X: Any,
    y: Any,
    agents: Any = None,
    *,
    seed: int | None = None,
    mean: Vector | None = None,
) -> tuple[Problem, Settings]:
    """What ``fit`` solves, for those who run it themselves, with a checkpoint say.

    A model with a ``centring_share`` releases its mean here, with noise from ``seed`` as ``solve``
    has it: keep ``model.mean_``, and give it as ``mean`` where a run is continued. Without it every
    call is a release of its own; with it the statement says what is taken for granted.
    """
    X, y = checked(model, X, y, ensure_min_samples=2)
    check_classification_targets(y)
    choice("neighbours", model.neighbours, ("zero-out", "replace"))
    positive("feature_norm", model.feature_norm)
    for name in ("rounds", "local_updates"):
        if getattr(model, name) is not None:
            count(name, getattr(model, name))
    model.classes_, labels = np.unique(y, return_inverse=True)
    if model.classes is not None:
        model.classes_, labels = public_classes(model.classes, y)
    if len(model.classes_) < 2:
        raise InvalidInput("Expected two or more classes, got 1 class. Nothing was fit.")
    names, owner = _owners(agents, len(y))
    model.mean_, model.reading_, model.mean_given_ = None, None, mean is not None
    budget = model.mechanism, model.total_epsilon, model.total_delta
    reading, epsilon = first_reading(model.centring_share, model.calibration, *budget)
    if reading is not None:
        model._set(X.shape[1])  # what can be refused is refused before anything is paid
        if mean is not None:
            mean = given_mean(mean, X.shape[1], model.feature_norm)
        model.mean_ = model._centre(X, names, owner, reading, seed) if mean is None else mean
        model.reading_ = reading
    elif mean is not None:
        raise InvalidInput("Expected no mean without a centring_share. Nothing was fit.")
    problem = model._problem(X, labels, names, owner)
    return problem, model._settings(problem, epsilon)


def _sizes(owner: Vector) -> dict[str, float]:
    """Of all records, and of the largest agent's: public."""
    return {"normaliser": float(len(owner)), "record_bound": float(np.bincount(owner).max())}


def adopt(model: PrivateLogisticRegression, problem: Problem, found: Result) -> None:
    """Take the result of what was prepared: from here on the model is fitted."""
    adopt_result(model, sum(a.objective.sample_count for a in problem.agents), found)


def adopt_result(model: PrivateLogisticRegression, records: int, found: Result) -> None:
    """The same, where the public number of records is known, and not the problem."""
    privacy, reading = found.privacy, getattr(model, "reading_", None)
    if reading is not None:
        sizes = int(found.solution.size), int(model.n_features_in_)
        privacy = with_reading(privacy, found.settings.mechanism, reading, WORDS, sizes)
    model.privacy_ = replace(privacy, assumed=model._assumed(records, privacy.delta))
    model.result_ = replace(found, privacy=model.privacy_)
    model._keep(model.result_.solution)
    model.n_iter_ = found.settings.rounds


def public_classes(classes: Any, y: Vector) -> tuple[Vector, Vector]:
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


def scaled_down(X: Vector, norm: float) -> Vector:
    """Rows longer than ``norm`` scaled to it, each by its own numbers only."""
    with np.errstate(over="ignore"):
        length = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
        factor = np.minimum(1.0, norm / np.maximum(length, np.finfo(np.float64).tiny))
    rows: Vector = X * factor[:, None].astype(X.dtype)
    for i in np.flatnonzero(np.isinf(length)):  # the square is too large a number
        row = X[i] / np.abs(X[i]).max()
        rows[i] = row * (norm / np.linalg.norm(row))
    return rows


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


def _owners(agents: Any, records: int) -> tuple[Vector, Vector]:
    if agents is None:
        return np.array(["agent 1"]), np.zeros(records, int)
    labels = np.asarray(agents)
    if labels.shape != (records,):
        raise InvalidInput(
            f"Expected one agent per record, {records} in all, got shape {labels.shape}. "
            "Nothing was fit."
        )
    if (row := first_missing(labels)) is not None:
        raise InvalidInput(
            f"Expected an agent of every record, got none in row {row + 1}. Nothing was fit."
        )
    names, owner = np.unique(labels, return_inverse=True)
    return names, owner
