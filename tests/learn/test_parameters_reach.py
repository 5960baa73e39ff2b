"""Every parameter of an estimator, and every argument of ``solve``, has its effect.

A value for each that is not the default, and what it must have changed; one that is in no
table is an error. Planned numbers are compared with their formulas, for agents that differ.
"""

import dataclasses
import inspect
import math

import numpy as np
import pytest

import tacit
from tacit.learn import (
    Box,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from tacit.learn import estimators as module
from tacit.learn.estimators import prepare
from tacit.learn.regressors import KINK, RIDGE, LinearRegressor
from tacit.objectives.losses import of_regression
from tacit.privacy.accounting import calibrate
from tacit.transports import local, solving

OWNER = np.repeat([0, 1, 2], [10, 20, 30])
ROWS = np.random.default_rng(0).uniform(-1, 1, (60, 2))
LABELS = np.arange(60) % 2
NUMBERS = ROWS[:, 0]
PLAIN = {"total_epsilon": 0.5, "total_delta": 1e-3, "mechanism": "laplace", "neighbours": "replace"}
PLAIN |= {"feature_norm": 2.5, "constraint": Box(0.25), "fit_intercept": False, "rounds": 7}
PLAIN |= {"local_updates": 2, "random_state": 5, "noise": "seeded"}
OF_RUNS = {"random_state": ("seed", 5), "noise": ("noise", "seeded")}
# by tests of their own (sums, payments, what is released before): here, or a value in KINDS
ELSEWHERE = {"aggregation", "colluding", "ledgers", "_", "keep_length", "ranges", "narrow_target"}
CLASSES = PLAIN | {"classes": [0, 1, 2], "centring_share": None}
RANGED = PLAIN | {"target_range": (-3.0, 1.0)}
KINDS = {
    PrivateLogisticRegression: CLASSES | {"clip": 0.25, "calibration": "paper"},
    PrivateLinearSVC: CLASSES | {"classes": [0, 1]},
    PrivateHuberRegressor: RANGED | {"threshold": 0.125},
    PrivateRidge: RANGED | {"alpha": 3.5},
    PrivateQuantileRegressor: RANGED | {"level": 0.8},
}
BASE = {"centring_share": None, "target_range": (-1.0, 1.0), "classes": [0, 1], "rounds": 3}


def base(kind, **others):
    fields = {f.name for f in dataclasses.fields(kind)}
    given = {k: v for k, v in BASE.items() if k in fields} | others
    return kind(**given)


def prepared(model):
    y = NUMBERS if isinstance(model, LinearRegressor) else LABELS
    return prepare(model, ROWS, y, OWNER)


def seen(model):
    """All that a fit begins with, as text that tells any two apart."""
    problem, settings = prepared(model)
    parts = [(a.objective, a.feasible_set) for a in problem.agents]
    arrays = [np.asarray(x).tolist() for a in parts for x in vars(a[0]).values() if np.ndim(x)]
    bounds = [(a[0].sensitivity(2, a[1]), a[1].radius(math.inf)) for a in parts]
    return repr([parts, settings, bounds, arrays])


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_changes_a_fit(kind, monkeypatch):
    named = {f.name for f in dataclasses.fields(kind) if f.init}
    assert named - KINDS[kind].keys() <= ELSEWHERE
    plain, given = seen(base(kind)), {}

    def reached(problem, settings, **others):
        given.update(others)
        raise tacit.InvalidInput("Here it would begin.")

    monkeypatch.setattr(module, "solve", reached)
    for name, value in KINDS[kind].items():
        if name in OF_RUNS:
            model = base(kind, **{name: value})
            y = NUMBERS if isinstance(model, LinearRegressor) else LABELS
            with pytest.raises(tacit.InvalidInput, match="begin"):
                model.fit(ROWS, y, OWNER)
            assert given[OF_RUNS[name][0]] == OF_RUNS[name][1]
        elif name not in BASE or BASE[name] != value:
            assert seen(base(kind, **{name: value})) != plain, name


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_what_is_used(kind):
    """All at once, in the objectives, the set and the settings."""
    given = {k: v for k, v in KINDS[kind].items() if k not in ("calibration", *OF_RUNS)}
    problem, s = prepared(kind(**given))
    f, W = problem.agents[2].objective, problem.agents[2].feasible_set
    assert (f.normaliser, f.record_bound, f.feature_norm, f.sample_count) == (60, 30, 2.5, 30)
    assert "replacing" in f.neighbours and [a.objective.sample_count for a in problem.agents] == [
        10,
        20,
        30,
    ]
    outputs = 3 if kind is PrivateLogisticRegression else 1
    assert f.dimension == 2 * outputs and W.radius(math.inf) == 0.25
    assert (s.rounds, s.local_updates, s.delta) == (7, 2, 1e-3)
    assert s.mechanism == calibrate("laplace", 0.5, 1e-3, 14)
    if "target_range" in given:
        largest = 3.0  # without an intercept what is farthest from zero
        np.testing.assert_allclose(f.targets, np.clip(NUMBERS, -3, 1)[OWNER == 2])
        assert getattr(f, "target_bound", largest) == largest
    own = {"threshold": "threshold", "level": "level", "clip": "clip"}
    for name, attribute in own.items():
        if name in given:
            assert getattr(f, attribute) == given[name]
    if "alpha" in given:  # of the sum of squares: each agent has its part of the mean's
        assert f.ridge == pytest.approx(3.5 / (60 * 3))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_planned_ridge_is_that_of_the_noise_of_all_agents(mechanism):
    """RIDGE·e²/(N B²/d), e = √(2dP)·s."""
    model = base(PrivateRidge, mechanism=mechanism, feature_norm=1.5, rounds=None)
    f = prepared(model)[0].agents[0].objective
    s = math.sqrt(
        calibrate(mechanism, 1.0, 1e-5, 1).variance(
            f.statistics().sensitivity({"gaussian": 2, "laplace": 1}[mechanism])
        )
    )
    edge, signal = math.sqrt(2 * 3 * 3) * s, 60 * 1.5**2 / 3
    assert model.alpha_ == pytest.approx(RIDGE * edge**2 / signal, rel=1e-6)
    for other in ({"rounds": 3}, {"local_updates": 2, "rounds": None}, {"total_epsilon": None}):
        known = base(PrivateRidge, **{"rounds": None, **other})
        prepared(known)
        assert known.alpha_ == 1.0


def test_steps_of_quantiles_are_those_of_their_steeper_side():
    models = [base(PrivateQuantileRegressor, level=q) for q in (0.1, 0.9, 0.5)]
    low, high, middle = (prepared(model)[1] for model in models)
    assert low == high != middle
    problem, _ = prepared(models[0])
    B, unit = models[0].feature_norm_, 1.0
    expected = of_regression(B, 30 / 60, unit, 0.9 / (KINK * unit))
    assert models[0]._descent(problem) == pytest.approx(expected)


# --- solve --------------------------------------------------------------------------------------

ARGUMENTS = {
    **{"seed": 3, "run": "x", "evaluate_every": 4, "callback": print, "checkpoint": "c"},
    **{"batch": False, "noise": "seeded", "start": "an answer", "aggregation": "sum"},
    **{"colluding": 1, "workers": 3, "ledgers": {"a": "b"}},
}


def test_every_argument_of_solve_reaches_the_coordinator(monkeypatch):
    found = {}

    def reached(transport, settings, **others):
        found.update(others, transport=transport, settings=settings)
        raise tacit.InvalidInput("Here it would begin.")

    def made(problem, workers, ledgers):
        found.update(workers=workers, ledgers=ledgers)
        return "transport"

    monkeypatch.setattr(solving, "Coordinator", reached)
    monkeypatch.setattr(local.Local, "of", staticmethod(made))
    beside = {"problem", "settings", "progress"}  # progress: tests/transports
    options = inspect.signature(tacit.solve).parameters.keys() - beside
    assert options == ARGUMENTS.keys()
    problem, _ = prepared(base(PrivateHuberRegressor))
    with pytest.raises(tacit.InvalidInput, match="begin"):
        tacit.solve(problem, "settings", **ARGUMENTS)
    assert {name: found[name] for name in ARGUMENTS} == ARGUMENTS
    assert (found["transport"], found["settings"]) == ("transport", "settings")
    assert found["known"] is problem and found["released"] is None and found["batched"] is not None


def test_every_argument_of_release_has_its_effect(monkeypatch):
    found = {}
    monkeypatch.setattr(solving, "read", lambda *a, **k: found.update(k, given=a))
    problem, _ = prepared(base(PrivateRidge))
    given = {"seed": 3, "run": "x", "noise": "seeded", "ledgers": {"a": "b"}}
    more = {"aggregation": "sum", "colluding": 1}
    names = inspect.signature(tacit.release).parameters.keys() - {"problem"}
    assert names == {"total_epsilon", "total_delta", "mechanism", *given, *more}
    tacit.release(problem, 0.5, 1e-3, mechanism="laplace", **given, **more)
    law = calibrate("laplace", 0.5, 1e-3, 1)
    assert found.pop("given") == (problem, law, 1e-3, *given.values()) and found == more
    tacit.release(problem, 0.5, 1e-3)
    assert found["given"][1] == tacit.planning.least_noise(problem, 0.5, 1e-3)
