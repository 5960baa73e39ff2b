"""Exact local steps, by their optimality conditions and beside CVXPY."""

from __future__ import annotations

import cvxpy as cp
import jax
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from sets_to_try import CLOSED as WITH_FORMULA
from sets_to_try import CONES
from small_objectives import FEATURES, KINKED, SAMPLED, records, residual, sample

from tacit.errors import InvalidInput
from tacit.objectives import PublicQuadratic
from tacit.objectives.public import WithoutNoise, without_noise
from tacit.sets import Box, Conic, Polyhedron, Product

SMOOTH = [name for name in SAMPLED if name not in KINKED | {"per-sample"}]


def quadratic(rng, size, rows, sparse=False, slack=False):
    A, d = rng.normal(size=(rows, size)), rng.normal(size=rows)
    A *= np.exp(rng.normal(size=size))  # columns of several lengths
    if sparse:
        A *= rng.uniform(size=A.shape) < 0.6
    return PublicQuadratic(sp.csr_matrix(A) if sparse else A, d, slack=slack), A, d


GRADIENT = jax.jit(lambda f, z: f.gradient(z))
VALUED = jax.jit(lambda f, z: (f.value(z), f.gradient(z)))


def apart(f, W, z, v, c, gradient=lambda f, z: f.gradient(z)):
    """How far z is from the projection of a gradient step: 0 at the minimiser over W alone."""
    gradient = np.asarray(gradient(f, z)) + c * (z - v)
    return float(np.abs(z - np.asarray(W.project(z - gradient / (1 + c.max())))).max())


# A ball and a simplex, which is a cut of a box as others are, are the parts of the product
@pytest.mark.parametrize("name", repeat(["box", "product"], WITH_FORMULA))
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from([1, 3, 9]),
    sparse=st.booleans(),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_steps_of_quadratics_on_sets_with_formulas(name, seed, rows, sparse, scale):
    W, rng = WITH_FORMULA[name][0], np.random.default_rng(seed)
    f, *_ = quadratic(rng, 4, rows, sparse)
    v, c = 2 * rng.normal(size=4), scale * rng.uniform(0.1, 10, size=4)
    z = f.prox(W)(v, c)
    assert float(W.violation(z)) <= W.tolerance(np.float64)
    assert apart(f, W, z, v, c) <= 1e-9 * max(1.0, np.abs(np.asarray(f.gradient(z))).max())


@pytest.mark.parametrize("name", CONES)
def test_steps_of_quadratics_on_cone_sets(name):
    W, constraints = CONES[name]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        f, A, d = quadratic(rng, 3, 2 + 2 * seed, sparse=seed == 1)
        step = f.prox(W)
        for _ in range(2):
            v, c = rng.normal(size=3), rng.uniform(0.1, 5, size=3)
            z = cp.Variable(3)
            value = cp.sum_squares(A @ z + d) + cp.sum(cp.multiply(c, cp.square(z - v))) / 2
            cp.Problem(cp.Minimize(value), constraints(z)).solve(cp.CLARABEL)
            found = step(v, c)
            np.testing.assert_allclose(found, z.value, atol=2e-5)
            assert W.violation(found) <= 1e-7


def test_a_slack_weighs_as_the_objective_does():
    """The set's own slack and a cone program with the quadratic in it find the same point."""
    rng = np.random.default_rng(1)
    f, A, d = quadratic(rng, 3, 4)
    matrix, offset = np.vstack([np.eye(3), -np.eye(3), np.ones(3)]), np.append(np.ones(6), 0.5)
    plain, with_slack = (Conic(matrix, offset, [("nonneg", 7)], slack=S) for S in (None, A))
    v, c = rng.normal(size=3), rng.uniform(0.1, 5, size=3)
    by_slack = PublicQuadratic(A, d, slack=True).prox(with_slack)(v, c)
    np.testing.assert_allclose(by_slack, f.prox(plain)(v, c), atol=1e-9)
    polyhedron = Polyhedron(np.ones((1, 3)), [0.5], lower=-1, upper=1)
    assert apart(f, polyhedron, by_slack, v, c) <= 1e-8


def test_an_answer_does_not_depend_on_earlier_ones():
    rng = np.random.default_rng(5)
    f, *_ = quadratic(rng, 4, 3)
    step, fresh = f.prox(WITH_FORMULA["ball"][0]), f.prox(WITH_FORMULA["ball"][0])
    v, c = 3 * rng.normal(size=(5, 4)), rng.uniform(0.1, 5, size=(5, 4))
    before = [step(*pair) for pair in zip(v, c, strict=True)]
    assert (fresh(v[-1], c[-1]) == before[-1]).all()


BOTH = [(kind, name) for kind in ("box", "ball") for name in SMOOTH]
# One code for all, which knows their gradient and smoothness only
FEW = [("box", "logistic"), ("ball", "huber"), ("box", "softmax"), ("box", "clipped-softmax")]


@pytest.mark.parametrize(("kind", "name"), repeat(FEW, BOTH))
def test_steps_of_other_losses_without_noise(name, kind):
    W = WITH_FORMULA[kind][0]
    f = sample(name, *records(2), ridge=0.1)
    if f.dimension != FEATURES:
        W = Box(-0.2, 0.1, f.dimension)
    rng = np.random.default_rng(0)
    v, c = rng.normal(size=f.dimension), rng.uniform(0.01, 1, size=f.dimension)
    z = WithoutNoise(f).prox(W)(v, c)
    assert float(W.violation(z)) <= W.tolerance(np.float64)
    assert apart(f, W, z, v, c, GRADIENT) <= 1e-9


def test_a_run_without_noise_takes_a_quadratic_where_there_is_one():
    rng = np.random.default_rng(0)
    logistic = sample("logistic", *records(2))
    copy = without_noise(logistic)
    assert isinstance(copy, WithoutNoise) and without_noise(copy) is copy
    z = rng.normal(size=FEATURES)
    (value, gradient), (same, other) = VALUED(copy, z), VALUED(logistic, z)
    assert value == same and (gradient == other).all()
    assert isinstance(without_noise(residual()), PublicQuadratic)


def test_what_has_no_exact_step_says_so():
    with pytest.raises(InvalidInput, match="Expected an objective with a smoothness"):
        WithoutNoise(sample("hinge", *records(2))).prox(Box(-1.0, 1.0, FEATURES))
    cone = Polyhedron(lower=-np.ones(FEATURES), upper=1.0)
    with pytest.raises(InvalidInput, match=r"a set with a projection formula .* got Polyhedron"):
        WithoutNoise(sample("logistic", *records(2))).prox(cone)
    f, *_ = quadratic(np.random.default_rng(0), FEATURES + 1, 3)
    with pytest.raises(InvalidInput, match=r"a set with a projection formula .* got Product"):
        f.prox(Product([cone, Box(0.0, 1.0, 1)]))
