"""Every set: its projection is the nearest feasible point, its violation is CVXPY's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sets_to_try import CLOSED, CURVED, L1, SETS, projection, violation

from tacit.sets import (
    Ball,
    Box,
    Cone,
    ConeSet,
    Conic,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Polyhedron,
    Product,
    Simplex,
)

every_set = pytest.mark.parametrize("name", SETS)
every_closed_set = pytest.mark.parametrize("name", CLOSED)
points = st.builds(
    lambda v, scale: v * scale,
    arrays(np.float64, 4, elements=st.floats(-3, 3)),
    st.sampled_from([0.1, 1.0, 300.0]),
)
weights = arrays(np.float64, 4, elements=st.floats(0.1, 10))
few = settings(deadline=None, max_examples=repeat(10, 30))


def accuracy(name):
    """Of a projection: rounding alone, or what a solver leaves, also where its set is curved."""
    return 1e-11 if name in CLOSED else 1e-4 if name in CURVED else 1e-6


# --- what holds of every set -------------------------------------------------------------------


@every_set
@few
@given(v=points, u=points, c=weights, share=st.floats(0, 1))
def test_projection_is_the_nearest_feasible_point(name, v, u, c, share):
    W, slack = SETS[name][0], accuracy(name)
    v, u, c = (x[: W.dimension] for x in (v, u, c))
    z, w = W.project(v, c), W.project(u, c)
    assert z.dtype == np.float64
    between = share * z + (1 - share) * w
    for feasible in (z, between):  # feasible points stay
        assert float(W.violation(feasible)) <= (1e-10 if name in CLOSED else 1e-7)
        np.testing.assert_allclose(W.project(feasible, c), feasible, atol=slack)
    size = (1 + np.abs(v).max() + np.abs(u).max()) * max(1, c.max())
    # non-expansive in its own metric
    assert np.sum(c * (z - w) ** 2) <= np.sum(c * (v - u) ** 2) + slack * size
    # variational inequality, for feasible points on and inside the border
    for feasible in (w, between, W.project(0.1 * u)):
        assert np.sum(c * (v - z) * (feasible - z)) <= 10 * slack * size


@every_set
@settings(deadline=None, max_examples=10)
@given(v=arrays(np.float64, 4, elements=st.floats(-3, 3)), c=weights)
def test_projection_agrees_with_cvxpy(name, v, c):
    W = SETS[name][0]
    v, c = v[: W.dimension], c[: W.dimension]
    z, best = W.project(v, c), projection(name)(v, c)
    np.testing.assert_allclose(z, best, atol=1e-3)
    more = 1e-7 if name in CLOSED else 1e-6
    assert np.sum(c * (z - v) ** 2) <= np.sum(c * (best - v) ** 2) + more


@every_set
@few
@given(v=points)
def test_violation_agrees_with_cvxpy(name, v):
    W = SETS[name][0]
    v = v[: W.dimension]
    ours, broken = float(W.violation(v)), violation(name, v)
    if name == "auxiliaries":  # seven rows share the violation of one norm
        assert (ours > 1e-8) == (broken > 1e-7)
    else:
        assert ours == pytest.approx(broken, abs=1e-9 if name in CLOSED else 1e-8)


@every_closed_set
@few
@given(v=points)
def test_one_weight_for_all_coordinates_does_not_matter(name, v):
    W = CLOSED[name][0]
    z = W.project(v)
    np.testing.assert_allclose(W.project(v, 7.0), z, atol=1e-12)
    np.testing.assert_allclose(W.project(v, np.full(4, 7.0)), z, atol=1e-11)


@every_closed_set
def test_float32_stays_float32_and_nan_stays_visible(name):
    W = CLOSED[name][0]
    v = np.array([2.0, -1.0, 0.5, 4.0], np.float32)
    z = W.project(v, np.array([1.0, 2.0, 3.0, 4.0]))
    assert z.dtype == jnp.float32 and W.violation(z).dtype == jnp.float64
    assert W.violation(z) <= 1e-6
    exact = W.project(v.astype(np.float64), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(z, exact, atol=1e-5)
    v = np.array([0.0, math.nan, 0.0, 0.0])
    assert np.isnan(np.asarray(W.project(v))).any() and np.isnan(float(W.violation(v)))


@pytest.mark.parametrize(
    "family",
    [
        [L1Ball(1.0, 3), L1Ball(2.0, 3, 1.0)],
        [Simplex(3), Simplex(3, 2.0)],
        [HalfSpace([1.0, 2.0, 3.0], 1.0), HalfSpace([1.0, -1.0, 0.0], 0.5, -1, 1)],
        [Product([Box(-1, 1, 1), Ball(0, 1, 2)]), Product([Box(0, 1, 1), Ball(1, 2, 2)])],
    ],
    ids=lambda f: type(f[0]).__name__,
)
def test_stacked_sets_under_vmap_are_a_loop(family):
    rng = np.random.default_rng(1)
    v, c = 3 * rng.normal(size=(2, 3)), rng.uniform(0.5, 2, (2, 3))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *family)

    @jax.jit
    def together(sets, v, c):
        z = jax.vmap(lambda s, v, c: s.project(v, c))(sets, v, c)
        return z, jax.vmap(lambda s, v: s.violation(v))(sets, v)

    z, broken = together(stacked, v, c)
    for k, alone in enumerate(family):
        np.testing.assert_allclose(z[k], alone.project(v[k], c[k]), atol=1e-14)
        np.testing.assert_allclose(broken[k], alone.violation(v[k]), atol=1e-14)


# --- by hand -----------------------------------------------------------------------------------

SLOPE = Polyhedron([[1.0, 2.0]], [1.0], lower=[-1.0, -1.0], upper=1)


@pytest.mark.parametrize(
    ("W", "point", "broken"),
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
        (Product([Simplex(2), SLOPE]), [2.0, 0.0, 0.0, 0.0], 1.0),
        (SLOPE, [1.0, 1.0], 2.0),
        (SLOPE, [-4.0, 0.0], 3.0),
        (Polyhedron(None, None, [[1.0, 1.0]], [1.0], [0.0, 0.0]), [0.0, 0.25], 0.75),
        (ConeSet([Cone(np.eye(2), [1.0, 0.0], [0.0, 0.5], 2.0)]), [2.0, 4.0], 1.0),
        (Conic(np.vstack([np.zeros((1, 2)), -np.eye(2)]), [1, 0, 0], [("soc", 3)]), [3, 4], 4.0),
        (L1, [1.5, 0.0, 0.0], 0.0),
        # rows of length 1: t₁ ≥ 3.1 − √2s, t₂ and t₃ ≥ −√2s, Σ t ≤ 1.5 + √3s
        (L1, [3.1, 0.0, 0.0], 1.6 / (3 * math.sqrt(2) + math.sqrt(3))),
    ],
)
def test_violation_by_hand(W, point, broken):
    assert float(W.violation(point)) == pytest.approx(broken, abs=1e-8)


TRIANGLE = Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, 0.0])


@pytest.mark.parametrize(
    ("W", "point", "weight", "nearest"),
    [
        (Simplex(3), [1.0, 0.5, -1.0], None, [0.75, 0.25, 0.0]),
        (Simplex(2), [1.0, 1.0], [1.0, 3.0], [0.25, 0.75]),
        (L1Ball(1.0, 2), [-2.0, 1.0], None, [-1.0, 0.0]),
        (Ball(0, 1.0, 2), [3.0, 4.0], None, [0.6, 0.8]),
        (HalfSpace([1.0, 1.0], 0.0), [1.0, 1.0], [1.0, 3.0], [-0.5, 0.5]),
        (HalfSpace([1.0, 1.0], 0.0), [-0.02, 0.01], [1.0, 3.0], [-0.02, 0.01]),
        (Hyperplane([1.0, 1.0], 2.0, 0, 1), [9.0, -9.0], None, [1.0, 1.0]),
        (Hyperplane([1.0, 0.0], 2.0, upper=[3.0, 1.0]), [0.0, 7.0], None, [2.0, 1.0]),
        # x three times as heavy: x falls by 3/4, y by 9/4
        (Polyhedron([[1.0, 1.0]], [1.0], lower=[-9.0, -9.0]), [2, 2], [3.0, 1.0], [1.25, -0.25]),
        (Polyhedron(lower=[1.0, -2.0], upper=[1.0, -2.0]), [5.0, 5.0], None, [1.0, -2.0]),
        (Product([Simplex(2), TRIANGLE]), [1.0, 1, 2, 2], [1.0, 3, 1, 3], [0.25, 0.75, 0.0, 1.0]),
    ],
)
def test_projection_by_hand(W, point, weight, nearest):
    atol = 1e-14 if W.closed_form else 1e-7
    np.testing.assert_allclose(W.project(np.array(point, float), weight), nearest, atol=atol)


def test_separable_closed_form_and_copied_arrays():
    box, ball = Box(0, 1, 2), Ball(0, 1, 2)
    assert box.separable and not ball.separable and not Product([box, ball]).separable
    assert Product([box, box]).separable and Product([box, ball]).closed_form
    assert not Product([box, TRIANGLE]).closed_form
    center, upper = np.zeros(2), np.ones(2)
    ball, box = Ball(center, 1.0), Box(0.0, upper)
    center[:] = upper[:] = 9.0
    assert ball.violation([0.0, 0.0]) == 0 and box.violation([2.0, 0.0]) == 1


# --- rounding ----------------------------------------------------------------------------------


def test_float32_boxes_round_inwards():
    """0.3 and −0.1 are no float32, and the nearest ones lie outside."""
    low, high = np.array([-0.1, 0.1]), np.array([0.3, 0.7])
    for far in (9.0, -9.0):
        z = Box(low, high).project(np.full(2, far, np.float32))
        assert z.dtype == np.float32
        exact = np.asarray(z, np.float64)
        assert (low <= exact).all() and (exact <= high).all()
        np.testing.assert_allclose(exact, high if far > 0 else low, rtol=2e-7)


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


# --- cone sets ---------------------------------------------------------------------------------


def test_auxiliary_equations_and_cones_count_in_the_violation():
    # z₁ = y, ‖(z₂, y)‖ ≤ 1 with the auxiliary y in the middle column
    matrix = np.array([[1.0, -1.0, 0.0], [0, 0, 0], [0, 0, -1.0], [0, -1.0, 0]])
    disc = Conic(matrix, [0.0, 1.0, 0.0, 0.0], [("zero", 1), ("soc", 3)], variables=[0, 2])
    np.testing.assert_allclose(disc.project([3.0, 4.0]), [0.6, 0.8], atol=1e-5)
    best = Ball(0, 1, 2).project([2.0, 1.0], [1.0, 3.0])
    np.testing.assert_allclose(disc.project([2.0, 1.0], [1.0, 3.0]), best, atol=1e-4)
    assert disc.violation([0.6, 0.7]) == pytest.approx(0.0, abs=1e-8)
    # rows of length 1: y = 1 + s breaks the disc by s and the equation by (2 − s)/√2 = s
    assert disc.violation([3.0, 0.0]) == pytest.approx(2 / (1 + math.sqrt(2)), abs=1e-7)


def test_order_of_variables():
    box = Polyhedron([[1.0, 0.0], [0.0, 1.0]], [1.0, 5.0], lower=[0.0, 0.0])
    for W, point, weight, nearest in (
        (box, [9.0, 9.0], [1.0, 50.0], [5.0, 1.0]),
        (TRIANGLE, [1.0, 1.0], [1.0, 3.0], [0.25, 0.75]),
    ):
        swapped = Conic(*W.constraints, variables=[1, 0])
        np.testing.assert_allclose(swapped.project(point, weight), nearest, atol=1e-7)


def test_badly_scaled_rows_do_not_let_points_escape():
    """Tolerances are distances, not margins of whatever scale the rows were written in."""
    for scale in (1e-12, 1e-9, 1.0, 1e9):
        W = Polyhedron(scale * np.array([[1.0], [-1.0]]), scale * np.ones(2))
        assert abs(W.project([1.9])[0] - 1.0) < 1e-8
        assert abs(W.project([-901.0])[0] + 1.0) < 1e-8
