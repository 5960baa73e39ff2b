"""Projections and violations worked out by hand, and by the equations that they must solve."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import optimize

from tacit.sets import (
    Ball,
    Box,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Polyhedron,
    Product,
    Simplex,
)


@pytest.mark.parametrize(
    ("feasible_set", "point", "broken"),
    [
        (Box(-1, [1.0, 2.0]), [1.5, -3.0], 2.0),
        (Box(-1, 1, 2), [0.0, 1.0], 0.0),
        (NonNegative(2), [5.0, -0.25], 0.25),
        (Ball([1.0, 0.0], 1.0), [4.0, 4.0], 4.0),
        (L1Ball(1.0, 2), [2.0, -3.0], 4.0),
        (Simplex(2), [2.0, -0.5], 0.5),
        (Simplex(2), [2.0, 0.0], 1.0),
        (HalfSpace([1.0, 2.0], 1.0, -1, 5), [1.0, 4.0], 8.0),
        (HalfSpace([1.0, 2.0], 1.0, -1, 5), [-3.0, 0.0], 2.0),
        (Hyperplane([1.0, 2.0], 1.0), [0.0, 0.0], 1.0),
        (Product([Box(0, 1, 1), Ball(0, 1, 2)]), [3.0, 0.0, 2.0], 2.0),
    ],
)
def test_violation_by_hand(feasible_set, point, broken):
    assert float(feasible_set.violation(point)) == pytest.approx(broken)


@pytest.mark.parametrize(
    ("feasible_set", "point", "weight", "projection"),
    [
        (Simplex(3), [1.0, 0.5, -1.0], None, [0.75, 0.25, 0.0]),
        (Simplex(2), [1.0, 1.0], [1.0, 3.0], [0.25, 0.75]),
        (L1Ball(1.0, 2), [-2.0, 1.0], None, [-1.0, 0.0]),
        (Ball(0, 1.0, 2), [3.0, 4.0], None, [0.6, 0.8]),
        (HalfSpace([1.0, 1.0], 0.0), [1.0, 1.0], [1.0, 3.0], [-0.5, 0.5]),
        (HalfSpace([1.0, 1.0], 0.0), [-0.02, 0.01], [1.0, 3.0], [-0.02, 0.01]),
        (Hyperplane([1.0, 1.0], 2.0, 0, 1), [9.0, -9.0], None, [1.0, 1.0]),
        (Hyperplane([1.0, 0.0], 2.0, upper=[3.0, 1.0]), [0.0, 7.0], None, [2.0, 1.0]),
    ],
)
def test_projection_by_hand(feasible_set, point, weight, projection):
    np.testing.assert_allclose(feasible_set.project(point, weight), projection, atol=1e-14)


def test_ball_solves_its_equation_for_weights_of_very_different_size():
    rng = np.random.default_rng(0)
    for span in (2, 6, 12):
        for distance in (1.01, 30.0, 1e8):
            v = rng.normal(size=20)
            v *= distance / np.linalg.norm(v)
            c = 10 ** rng.uniform(0, span, 20)
            z = np.asarray(Ball(0, 1.0, 20).project(v, c))
            # the optimum has c (v − z) = μ z; an error in z counts c times
            push = c * (v - z)
            np.testing.assert_allclose(push, (push @ z) * z, atol=1e-14 * c.max() * distance)
            assert Ball(0, 1.0, 20).violation(z) <= 1e-12


def test_a_far_point_loses_no_digits_of_the_sum():
    rng = np.random.default_rng(2)
    v, c = 1e9 + rng.uniform(size=40), 1 + 1e-10 * rng.uniform(size=40)
    for feasible_set in (Simplex(40), L1Ball(1.0, 40), HalfSpace(np.ones(40), 1.0, 0.0, 1.0)):
        assert feasible_set.violation(feasible_set.project(v, c)) <= 1e-12


@pytest.mark.parametrize("kind", ["polyhedron", "ball"])
def test_softplus_penalty_tends_to_the_projection(kind):
    """Section 4.1: argmin G(z) + Σ_m ln(1 + exp(ℓ h_m(z))) tends to the constrained minimiser."""
    v, c = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    if kind == "polyhedron":
        A, b = np.array([[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]]), np.array([1.0, 1.0, 1.0])
        target = Polyhedron(A, b).project(v, c)
        h, slopes = lambda z: A @ z - b, lambda z: A
    else:
        target = np.asarray(Ball(0, 1.0, 2).project(v, c))
        h, slopes = lambda z: np.array([z @ z - 1]), lambda z: 2 * z[None]

    def penalised(z, sharpness):
        value = np.sum(c * (z - v) ** 2) / 2 + np.logaddexp(0, sharpness * h(z)).sum()
        gate = sharpness / (1 + np.exp(-np.clip(sharpness * h(z), -700, 700)))
        return value, c * (z - v) + gate @ slopes(z)

    z, distances = np.zeros(2), []
    for sharpness in (1.0, 10.0, 100.0, 1e3, 1e4):
        z = optimize.minimize(penalised, z, args=(sharpness,), jac=True, method="BFGS").x
        distances.append(np.linalg.norm(z - target))
    assert all(later < earlier for earlier, later in pairwise(distances))
    assert distances[-1] < 3e-3
