"""Sets that are empty, unbounded or made of numbers that fit nothing."""

import math

import cvxpy as cp
import numpy as np
import pytest
from sets_to_try import CONES, by_cvxpy, image_set

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, InvalidSet, SolverFailure
from tacit.objectives.residual import Residual
from tacit.sets import (
    Ball,
    Box,
    Cone,
    ConeSet,
    Conic,
    HalfSpace,
    Hyperplane,
    L1Ball,
    Polyhedron,
    Product,
    Simplex,
    from_cvxpy,
)

CORNERS = np.vstack([np.eye(2), -np.eye(2)])
IMAGE, _, SLACK = image_set(np.random.default_rng(0))


def refused(kind, words, build):
    """In one sentence or two; a set releases nothing, and does not say so."""
    with pytest.raises(kind, match=words) as caught:
        build()
    message = str(caught.value)
    assert message.startswith("Expected ") and message.endswith(".")
    assert "released" not in message


@pytest.mark.parametrize(
    "build",
    [
        lambda: Box([0.0, 1.0], [1.0, 0.0]),
        lambda: Box(math.inf, math.inf, 2),
        lambda: L1Ball(0.0, 2),
        lambda: Simplex(3, 0.0),
        lambda: HalfSpace([1.0, 1.0], -1.0, lower=0.0),
        lambda: Hyperplane([1.0, 1.0], 3.0, 0.0, 1.0),
        lambda: Polyhedron([[1.0, 1.0], [-1.0, -1.0]], [1.0, -2.0], lower=-5, upper=5),
        lambda: Polyhedron(lower=[0.0, 1.0], upper=[1.0, 0.0]),
        lambda: ConeSet([Cone(np.eye(2), limit=1.0), Cone(np.eye(2), [-5.0, 0.0], limit=1.0)]),
        lambda: by_cvxpy(lambda z: [cp.norm(z) <= 1, z[0] >= 2]),
    ],
)
def test_empty_sets_are_refused(build):
    refused(InvalidSet, "empty|> 0", build)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Polyhedron([[1.0, 1.0]], [1.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0], lower=[0.0, -math.inf], upper=[math.inf, math.inf]),
        lambda: Polyhedron(None, None, [[1.0, 1.0]], [0.0]),
        lambda: ConeSet([Cone([[1.0, 0.0]], limit=1.0)]),
        lambda: ConeSet([Cone([[1.0, 0.0]], slope=[0.0, 1.0])]),
        lambda: by_cvxpy(lambda z: [cp.norm(z[:2]) <= 1, z[2] >= 0]),
        lambda: by_cvxpy(lambda z: [cp.norm1(z[:2]) <= z[2]]),
    ],
)
def test_unbounded_sets_are_refused(build):
    refused(InvalidSet, "unbounded", build)


def test_auxiliary_variables_may_be_unbounded():
    # z ≤ y, −1 ≤ z ≤ 1: y has no upper bound, z has
    free = Conic([[1.0, -1.0], [1.0, 0.0], [-1.0, 0.0]], [0, 1, 1], [("nonneg", 3)], variables=[0])
    np.testing.assert_allclose(free.project([4.0]), [1.0], atol=1e-7)
    # z² ≤ y has no ray in z, and yet z is unbounded
    parabola = [[0.0, -0.5], [0.0, -0.5], [-1.0, 0.0]]
    with pytest.raises((InvalidSet, SolverFailure)):
        Conic(parabola, [0.5, -0.5, 0.0], [("soc", 3)], variables=[0])


@pytest.mark.parametrize(
    "build",
    [
        lambda: Box(0.0, 1.0),
        lambda: Box(math.nan, 1.0, 2),
        lambda: Box(0.0, [1.0, 1.0], size=3),
        lambda: Box(0.0, "one", 2),
        lambda: Box(0, 1, 0),
        lambda: Ball(0.0, 1.0),
        lambda: Ball([math.nan, 0.0], 1.0),
        lambda: Simplex(0),
        lambda: Simplex(2, math.inf),
        lambda: HalfSpace([0.0, 0.0], 1.0),
        lambda: Hyperplane([1.0, 1.0], 1.0, lower=[0.0, 0.0, 0.0]),
        lambda: Product([]),
        lambda: Product([1.0]),
        lambda: Box(0, 1, 2).project([0.0]),
        lambda: Box(0, 1, 2).violation([0.0, 0.0, 0.0]),
        lambda: Box(0, 1, 2).project([0.0, 0.0], [1.0, 1.0, 1.0]),
        lambda: Simplex(2).project([0.0, 0.0], math.nan),
        lambda: Polyhedron(),
        lambda: Polyhedron([[1.0, 1.0]]),
        lambda: Polyhedron([[1.0, math.nan]], [1.0], lower=0, upper=1),
        lambda: Polyhedron([1.0, 1.0], [1.0], lower=[0.0, 0.0]),
        lambda: Polyhedron([[1.0, 1.0]], [1.0, 2.0]),
        lambda: ConeSet([Cone(np.eye(2), [1.0, 1.0, 1.0])]),
        lambda: ConeSet([Cone(np.eye(2), limit=1.0), Cone(np.eye(3), limit=1.0)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 1)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("exp", 2)]),
        lambda: Conic(np.eye(2), [1.0, 1.0], [("nonneg", 2)], variables=[0, 0]),
        lambda: Conic(CORNERS, np.ones(4), [("nonneg", 4)], image=[[1.0, 0.0], [1.0, 1.0]]),
        lambda: Conic(CORNERS, np.ones(4), [("nonneg", 4)], image=np.ones((3, 2)), slack=np.eye(2)),
        lambda: LocalProblem(Residual(5 * SLACK, np.ones(2), 0.1, slack=True), IMAGE),
        lambda: from_cvxpy(cp.Variable(2), [True]),
        lambda: CONES["polyhedron"][0].project([0.0, math.nan, 0.0]),
        lambda: CONES["polyhedron"][0].project([0.0, 0.0, 0.0], [1.0, 0.0, 1.0]),
        lambda: CONES["polyhedron"][0].violation([math.inf, 0.0, 0.0]),
        lambda: CONES["polyhedron"][0].radius(1),
        lambda: from_cvxpy(cp.Variable((2, 2)), []),
        lambda: from_cvxpy("z", []),
        lambda: from_cvxpy(cp.Variable(2, nonneg=True), []),
        lambda: by_cvxpy(lambda z: [cp.norm(z) <= cp.Variable()]),
        lambda: by_cvxpy(lambda z: [cp.norm(z) >= 1]),
        lambda: by_cvxpy(lambda z: [cp.exp(z) <= 1, z >= -1]),
    ],
)
def test_bad_input_is_refused(build):
    refused(InvalidInput, "Expected", build)
