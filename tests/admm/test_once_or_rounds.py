"""The choice between one release and noise in every round: public numbers only."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.admm.settings import Asked
from tacit.planning import plan
from tacit.sets import Ball

RNG = np.random.default_rng(0)


def chosen(problem, total_epsilon, total_delta, mechanism="gaussian"):
    return plan(problem, Asked(total_epsilon, total_delta, mechanism))


def problem(radius=2.0, records=300, d=3, agents=3, kind=tacit.LeastSquares, **options):
    x, y = RNG.normal(size=(records, d)), RNG.normal(size=records)
    n = records // agents
    bounds = {"feature_norm": 2.0, "target_bound": 1.0, "normaliser": records, "record_bound": n}
    return tacit.Problem(
        [
            tacit.LocalProblem(
                kind(x[p::agents], y[p::agents], **{**bounds, **options}), Ball(0.0, radius, d)
            )
            for p in range(agents)
        ]
    )


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace"])
def test_least_squares_with_gaussian_noise_is_read_once(relation):
    for radius in (0.02, 2.0):
        for epsilon in (0.5, 8.0):
            assert chosen(problem(radius, neighbours=relation), epsilon, 1e-5).release is not None
    # but for a set far too large for replaced records
    choice = chosen(problem(100.0, d=2, neighbours="replace"), 1.0, 1e-5)
    assert choice.release is None and "times the noise of rounds" in choice.reason


def test_gradients_of_a_release_have_the_deviation_that_is_compared():
    f = problem(d=4).agents[0].objective
    reading, rng, R = f.statistics(), np.random.default_rng(1), 1.3
    z = R * np.array([0.5, -0.5, 0.5, 0.5])
    exact = reading.values + 1e6 * np.r_[1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0]  # no floor
    clean = reading.released_objective(exact, 0.0).gradient(z)
    moved = [
        reading.released_objective(exact + 3 * rng.normal(size=exact.size), 3.0).gradient(z) - clean
        for _ in range(2000)
    ]
    expected = reading.gradient_deviation(3.0, Ball(0.0, R, 4))
    assert np.sqrt(np.mean(np.square(moved))) == pytest.approx(expected, rel=0.03)


def test_what_can_be_read_once_and_what_cannot():
    choice = chosen(problem(kind=tacit.Huber, threshold=1.0), 1.0, 1e-5)
    assert choice.release is None and "Huber" in choice.reason
    assert "2001 columns" in chosen(problem(d=2001, records=3, agents=1), 1.0, 1e-5).reason
    assert "expect little" in chosen(problem(records=30), 0.5, 1e-5).reason
    assert "expect little" not in chosen(problem(records=30000), 0.5, 1e-5).reason
    other = tacit.LocalProblem(tacit.Residual(np.eye(2), np.zeros(2), 0.1), Ball(0.0, 1.0, 2))
    assert chosen(tacit.Problem([other]), 1.0, 1e-5).release is not None


def test_laplace_noise_pays_for_every_value():
    """L1 bounds grow with the number of values, d²; those of a gradient with d."""
    wide = problem(d=200, radius=0.1)
    choice = chosen(wide, 1.0, 1e-5, "laplace")
    assert choice.release is None and "Laplace" in choice.reason
    # pure ε: each of T rounds has T times the noise, and a release has not
    assert chosen(problem(d=40), 1.0, 0.0, "laplace").release is not None


def test_the_noise_of_one_update_is_of_the_calibration_that_was_asked_for():
    for calibration, law in (
        ("certified", tacit.Gaussian.analytic),
        ("paper", tacit.Gaussian.classical),
    ):
        asked = Asked(epsilon=0.5, delta=1e-5, others={"calibration": calibration})
        assert plan(problem(), asked).settings.mechanism == law(0.5, 1e-5)
