"""Closed-form sets: one property suite for all of them, and numbers worked out by hand."""

import math
from functools import cache
from itertools import pairwise

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

import tacit  # noqa: F401  (switches JAX to float64)
from tacit.errors import InvalidInput, InvalidSet
from tacit.sets.closed_forms import (
    Ball,
    Box,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Product,
    Simplex,
)
from tacit.sets.conic import Polyhedron

CENTER = np.array([0.3, -0.2, 0.1, 0.0])
NORMAL = np.array([1.0, -2.0, 0.0, 0.5])
LOW, HIGH = np.array([-1.0, -1.0, 0.0, -2.0]), np.array([1.0, 0.5, 0.0, 3.0])

# name: the set, and the same set in CVXPY's words
SETS = {
    "box": (Box(LOW, HIGH), lambda z: [z >= LOW, z <= HIGH]),
    "non-negative": (NonNegative(4, 2.0), lambda z: [z >= 0, z <= 2]),
    "ball": (Ball(CENTER, 0.8), lambda z: [cp.norm(z - CENTER) <= 0.8]),
    "l1-ball": (L1Ball(0.8, 4, CENTER), lambda z: [cp.norm1(z - CENTER) <= 0.8]),
    "simplex": (Simplex(4, 1.5), lambda z: [z >= 0, cp.sum(z) == 1.5]),
    "half-space": (
        HalfSpace(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z <= -0.4, z >= LOW, z <= HIGH],
    ),
    "budget": (
        HalfSpace([1.0, 2.0, 1.0, 3.0], 1.0, lower=0.0),
        lambda z: [z @ np.array([1.0, 2.0, 1.0, 3.0]) <= 1, z >= 0],
    ),
    "hyperplane": (
        Hyperplane(NORMAL, -0.4, LOW, HIGH),
        lambda z: [NORMAL @ z == -0.4, z >= LOW, z <= HIGH],
    ),
    "product": (
        Product([Ball(CENTER[:2], 0.8), Simplex(2)]),
        lambda z: [cp.norm(z[:2] - CENTER[:2]) <= 0.8, z[2:] >= 0, cp.sum(z[2:]) == 1],
    ),
}
EXACT = {"box", "non-negative", "ball", "l1-ball", "simplex", "product"}  # diameter and radius

every_set = pytest.mark.parametrize("name", SETS)
points = st.builds(
    lambda v, scale: v * scale,
    arrays(np.float64, 4, elements=st.floats(-3, 3)),
    st.sampled_from([0.1, 1.0, 300.0]),
)
weights = arrays(np.float64, 4, elements=st.floats(0.1, 10))
few = settings(deadline=None, max_examples=30)


def inside(feasible_set, point):
    assert float(feasible_set.violation(point)) <= 1e-10


@cache
def reference(name):
    """The weighted projection as a CVXPY problem, written without the code under test."""
    z, root, target = cp.Variable(4), cp.Parameter(4, nonneg=True), cp.Parameter(4)
    objective = cp.sum_squares(cp.multiply(root, z) - target)
    problem = cp.Problem(cp.Minimize(objective), SETS[name][1](z))

    def project(v, c):
        root.value, target.value = np.sqrt(c), np.sqrt(c) * v
        problem.solve(cp.CLARABEL)
        return z.value

    return project


@every_set
@few
@given(v=points, c=weights)
def test_projection_is_feasible_and_idempotent(name, v, c):
    feasible_set, _ = SETS[name]
    z = feasible_set.project(v, c)
    inside(feasible_set, z)
    np.testing.assert_allclose(feasible_set.project(z, c), z, atol=1e-12)


@every_set
@few
@given(v=points, u=points, c=weights, share=st.floats(0, 1))
def test_feasible_points_stay(name, v, u, c, share):
    feasible_set, _ = SETS[name]
    between = share * feasible_set.project(v) + (1 - share) * feasible_set.project(u)
    inside(feasible_set, between)
    np.testing.assert_allclose(feasible_set.project(between, c), between, atol=1e-12)


@every_set
@few
@given(v=points, u=points, c=weights)
def test_projection_is_the_nearest_point(name, v, u, c):
    feasible_set, _ = SETS[name]
    z, w = feasible_set.project(v, c), feasible_set.project(u, c)
    size = 1 + np.abs(v).max() + np.abs(u).max()
    # non-expansive in its own metric
    assert np.sum(c * (z - w) ** 2) <= np.sum(c * (v - u) ** 2) + 1e-11 * size
    # variational inequality, for feasible points on and inside the border
    for feasible in (w, (z + w) / 2, feasible_set.project(0.1 * u)):
        assert np.sum(c * (v - z) * (feasible - z)) <= 1e-10 * size


@every_set
@settings(deadline=None, max_examples=10)
@given(v=arrays(np.float64, 4, elements=st.floats(-3, 3)), c=weights)
def test_projection_agrees_with_cvxpy(name, v, c):
    z = SETS[name][0].project(v, c)
    best = reference(name)(v, c)
    np.testing.assert_allclose(z, best, atol=1e-3)
    assert np.sum(c * (z - v) ** 2) <= np.sum(c * (best - v) ** 2) + 1e-7


@every_set
@few
@given(v=points)
def test_one_weight_for_all_coordinates_does_not_matter(name, v):
    feasible_set, _ = SETS[name]
    z = feasible_set.project(v)
    np.testing.assert_allclose(feasible_set.project(v, 7.0), z, atol=1e-12)
    np.testing.assert_allclose(feasible_set.project(v, np.full(4, 7.0)), z, atol=1e-11)


@every_set
@few
@given(v=points)
def test_violation_agrees_with_cvxpy(name, v):
    feasible_set, constraints = SETS[name]
    z = cp.Variable(4)
    z.value = v
    broken = max(float(np.max(c.violation())) for c in constraints(z))
    assert float(feasible_set.violation(v)) == pytest.approx(broken, abs=1e-9)


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


@every_set
@few
@given(v=points, u=points)
def test_sizes_bound_every_feasible_pair(name, v, u):
    feasible_set, _ = SETS[name]
    z, w = (np.asarray(feasible_set.project(p)) for p in (v, u))
    assert np.linalg.norm(z - w) <= feasible_set.diameter * (1 + 1e-12)
    for norm in (2, math.inf):
        assert np.linalg.norm(z, norm) <= feasible_set.radius(norm) * (1 + 1e-12)


@every_set
def test_sizes_are_reached_where_they_are_exact(name):
    feasible_set, _ = SETS[name]
    corners = 50.0 * np.array(np.meshgrid(*[[-1, 0, 1]] * 4)).reshape(4, -1).T
    tried = [*corners, *(CENTER + corners), *(CENTER * [1, 1, 0, 0] + corners), 100 * CENTER]
    found = np.array([feasible_set.project(p) for p in tried])
    assert np.abs(found).max() >= (1 - 1e-9) * feasible_set.radius(math.inf)
    if name in EXACT:
        distances = np.linalg.norm(found[:, None] - found[None], axis=2)
        assert distances.max() >= (1 - 1e-9) * feasible_set.diameter
        if name != "product":  # its farthest point pairs the farthest points of the parts
            assert np.linalg.norm(found, axis=1).max() >= (1 - 1e-9) * feasible_set.radius(2)


def test_sizes_by_hand():
    assert Box([-1.0, 0.0], [3.0, 3.0]).diameter == 5.0
    assert Box(-2, 1, 4).radius(2) == 4.0
    assert Ball([3.0, 4.0], 1.0).radius(2) == 6.0
    assert Simplex(1).diameter == 0.0
    assert L1Ball(1.0, center=[3.0, 4.0]).radius(2) == pytest.approx(math.hypot(3, 5))
    assert Product([Ball(0, 1, 2), Simplex(2)]).diameter == pytest.approx(math.sqrt(6))
    assert HalfSpace([1.0, 2.0], 1.0, lower=0.0).radius(math.inf) == pytest.approx(1.0)
    assert Hyperplane([1.0, 1.0], 1.0, 0.0, math.inf).diameter == pytest.approx(math.sqrt(2))
    for unbounded in (Box(0, math.inf, 2), HalfSpace([1.0, 1.0], 0.0), Hyperplane([1.0, 1.0], 0)):
        assert unbounded.diameter == math.inf
        assert unbounded.radius(2) == math.inf
    with pytest.raises(InvalidInput, match="norm"):
        Simplex(2).radius(1)


FAMILIES = [
    [Box(-1, 1, 3), Box(0.0, [1.0, 2.0, 3.0])],
    [Ball(0, 1, 3), Ball([1.0, 2.0, 3.0], 0.5)],
    [L1Ball(1.0, 3), L1Ball(2.0, 3, 1.0)],
    [Simplex(3), Simplex(3, 2.0)],
    [HalfSpace([1.0, 2.0, 3.0], 1.0), HalfSpace([1.0, -1.0, 0.0], 0.5, -1, 1)],
    [Hyperplane([1.0, 2.0, 3.0], 1.0), Hyperplane([1.0, -1.0, 0.0], 0.5, -1, 1)],
    [Product([Box(-1, 1, 1), Ball(0, 1, 2)]), Product([Box(0, 1, 1), Ball(1, 2, 2)])],
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f[0]).__name__)
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


@every_set
def test_float32_stays_float32(name):
    feasible_set, _ = SETS[name]
    v = np.array([2.0, -1.0, 0.5, 4.0], np.float32)
    z = feasible_set.project(v, np.array([1.0, 2.0, 3.0, 4.0]))
    assert z.dtype == jnp.float32
    assert feasible_set.violation(z).dtype == jnp.float64
    assert feasible_set.violation(z) <= 1e-6
    exact = feasible_set.project(v.astype(np.float64), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(z, exact, atol=1e-5)


@every_set
def test_nan_stays_visible(name):
    feasible_set, _ = SETS[name]
    v = np.array([0.0, math.nan, 0.0, 0.0])
    assert np.isnan(np.asarray(feasible_set.project(v))).any()
    assert np.isnan(float(feasible_set.violation(v)))


def test_only_boxes_are_separable():
    box, ball = Box(0, 1, 2), Ball(0, 1, 2)
    assert box.separable and not ball.separable and not Product([box, ball]).separable
    assert Product([box, box]).separable and Product([box, ball]).closed_form


def test_product_with_a_solver_backed_part():
    triangle = Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, 0.0])
    mixed = Product([Simplex(2), triangle])
    assert not mixed.closed_form and mixed.dimension == 4
    z = mixed.project(np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 3.0, 1.0, 3.0]))
    np.testing.assert_allclose(z, [0.25, 0.75, 0.0, 1.0], atol=1e-7)
    assert mixed.violation(z) <= 1e-7
    assert mixed.violation([2.0, 0.0, 0.0, 0.0]) == pytest.approx(1.0)


def test_a_set_does_not_change_with_the_arrays_it_was_given():
    center, upper = np.zeros(2), np.ones(2)
    ball, box = Ball(center, 1.0), Box(0.0, upper)
    center[:] = upper[:] = 9.0
    assert ball.violation([0.0, 0.0]) == 0 and box.violation([2.0, 0.0]) == 1


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


@pytest.mark.parametrize(
    "build",
    [
        lambda: Box([0.0, 1.0], [1.0, 0.0]),
        lambda: Box(math.inf, math.inf, 2),
        lambda: Ball(0, 0.0, 2),
        lambda: Ball(0, -1.0, 2),
        lambda: L1Ball(0.0, 2),
        lambda: Simplex(3, 0.0),
        lambda: HalfSpace([1.0, 1.0], -1.0, lower=0.0),
        lambda: Hyperplane([1.0, 1.0], 3.0, 0.0, 1.0),
        lambda: Hyperplane([1.0, 1.0], -0.1, 0.0, 1.0),
    ],
)
def test_empty_sets_are_refused(build):
    with pytest.raises(InvalidSet, match="Nothing was released"):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Box(0.0, 1.0),
        lambda: Box(math.nan, 1.0, 2),
        lambda: Box([0.0, 0.0], [1.0, 1.0, 1.0]),
        lambda: Box([[0.0]], [[1.0]]),
        lambda: Box(0.0, [1.0, 1.0], size=3),
        lambda: Box(0.0, "one", 2),
        lambda: Box(0, 1, 0),
        lambda: Ball(0.0, 1.0),
        lambda: Ball([math.nan, 0.0], 1.0),
        lambda: Ball([0.0, 0.0], math.nan),
        lambda: Ball([0.0, 0.0], 1.0, size=3),
        lambda: L1Ball(1.0),
        lambda: Simplex(0),
        lambda: Simplex(2, math.inf),
        lambda: HalfSpace([0.0, 0.0], 1.0),
        lambda: HalfSpace([1.0, math.nan], 1.0),
        lambda: HalfSpace([1.0, 1.0], math.inf),
        lambda: Hyperplane([1.0, 1.0], 1.0, lower=[0.0, 0.0, 0.0]),
        lambda: Product([]),
        lambda: Product([1.0]),
        lambda: Box(0, 1, 2).project([0.0]),
        lambda: Box(0, 1, 2).violation([0.0, 0.0, 0.0]),
        lambda: Box(0, 1, 2).project([0.0, 0.0], [1.0, 1.0, 1.0]),
        lambda: Box(0, 1, 2).project([0.0, 0.0], [1.0, 0.0]),
        lambda: Simplex(2).project([0.0, 0.0], math.nan),
    ],
)
def test_bad_input_is_refused(build):
    with pytest.raises(InvalidInput, match="Nothing was released"):
        build()


@pytest.mark.parametrize("distance", [1e2, 1e6, 1e8])
@pytest.mark.parametrize(
    "feasible_set",
    [
        HalfSpace(np.ones(5), 0.3, -0.5, 0.5),
        Hyperplane(np.ones(5), 0.2, -0.5, 0.5),
        Simplex(5),
        L1Ball(0.8, size=5),
    ],
    ids=lambda s: type(s).__name__,
)
def test_far_float32_points_land_in_the_set(feasible_set, distance):
    rng = np.random.default_rng(0)
    for _ in range(50):
        v = (distance * rng.normal(size=5)).astype(np.float32)
        c = (10 ** rng.uniform(-2, 2, 5)).astype(np.float32)
        z = feasible_set.project(v, c)
        assert z.dtype == np.float32
        assert float(feasible_set.violation(z)) <= 1e-6


def test_float32_boxes_round_inwards():
    """0.3 and −0.1 are no float32, and the nearest ones lie outside."""
    low, high = np.array([-0.1, 0.1]), np.array([0.3, 0.7])
    for far in (9.0, -9.0):
        z = Box(low, high).project(np.full(2, far, np.float32))
        assert z.dtype == np.float32
        exact = np.asarray(z, np.float64)
        assert (low <= exact).all() and (exact <= high).all()
        np.testing.assert_allclose(exact, high if far > 0 else low, rtol=2e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SETS)
def test_tolerances_are_a_few_units_in_the_last_place(name, dtype):
    W = SETS[name][0]
    unit = float(np.spacing(dtype(W.magnitude)))
    assert unit <= W.tolerance(dtype) <= 32 * unit


def test_a_plane_has_the_box_of_its_own_points():
    """x + y = 1.5 in the unit square: both between ½ and 1. x + y ≤ 1.5 has all of the square."""
    plane = Hyperplane([1.0, 1.0], 1.5, 0.0, 1.0)
    np.testing.assert_allclose(plane.around.lower, [0.5, 0.5], atol=1e-12)
    assert plane.diameter == pytest.approx(math.sqrt(0.5))
    np.testing.assert_allclose(HalfSpace([1.0, 1.0], 1.5, 0.0, 1.0).around.lower, 0.0, atol=1e-12)
