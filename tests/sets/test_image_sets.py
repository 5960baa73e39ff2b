"""Images, slacks and rare cones: the sets of power grids."""

import cvxpy as cp
import numpy as np
import pytest
from cone_sets import image_set
from conftest import repeat

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput
from tacit.objectives.residual import Residual
from tacit.sets import Conic


@pytest.mark.parametrize("rare", [(), (0,), (1,)])
def test_projection_onto_an_image_is_that_of_cvxpy(rng, rare):
    W, image, slack = image_set(rng, rare)
    assert W.dimension == 7 and W.slack_size == 2
    for _ in range(repeat(8, 20)):
        v, c = 3 * rng.normal(size=9), rng.uniform(0.1, 10, 9)
        x = cp.Variable(3)
        lifted = np.vstack([image, slack @ image]) @ x
        cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(c, cp.square(lifted - v)))),
            [x <= 1, x >= -1, cp.norm(x) <= 1.2],
        ).solve(cp.CLARABEL)
        z = W.project(v, c)
        assert z == pytest.approx(image @ x.value, abs=1e-4)
        assert W.violation(z) <= 1e-7
        plain = W.project(v[:7], c[:7])  # without the slack
        lifted = image @ x
        cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(c[:7], cp.square(lifted - v[:7])))),
            [x <= 1, x >= -1, cp.norm(x) <= 1.2],
        ).solve(cp.CLARABEL)
        assert plain == pytest.approx(image @ x.value, abs=1e-4)


def test_rare_cones_change_no_answer(rng):
    full, _, _ = image_set(np.random.default_rng(5))
    lazy, _, _ = image_set(np.random.default_rng(5), rare=(1,))
    for _ in range(50):
        v = 2 * rng.normal(size=9)
        assert lazy.project(v) == pytest.approx(full.project(v), abs=1e-5)


def test_violation_of_an_image_sees_both_the_cones_and_the_image(rng):
    W, image, _ = image_set(rng)
    inside = image @ np.array([0.1, 0.2, 0.3])
    assert W.violation(inside) < 1e-15
    bent = inside.copy()
    bent[5] += 0.25
    assert W.violation(bent) == pytest.approx(0.25)
    assert W.violation(image @ np.array([1.1, 0, 0])) == pytest.approx(0.1)


def test_linearised_projection_is_its_derivative(rng):
    W, image, slack = image_set(rng)
    lifted = np.vstack([image, slack @ image])
    checked = 0
    for _ in range(30):
        v, c = 2 * rng.normal(size=9), rng.uniform(0.5, 2, 9)
        x, H = W.linearised(v, c)
        step = 1e-3 * rng.normal(size=9)
        ends = [W.project(v + s * step, c)[:3] for s in (1, -1)]
        measured = (ends[0] - ends[1]) / 2
        predicted = np.linalg.solve(H, lifted.T @ (c * step))
        kink = np.abs(W.project(v + step, c)[:3] + W.project(v - step, c)[:3] - 2 * x).max()
        if kink < 1e-6:  # away from faces, where there is no derivative
            checked += 1
            assert predicted == pytest.approx(measured, abs=0.05 * np.abs(measured).max())
    assert checked >= 10


def test_bad_images(rng):
    rows, offset = np.vstack([np.eye(2), -np.eye(2)]), np.ones(4)
    with pytest.raises(InvalidInput, match="every column to be an entry"):
        Conic(rows, offset, [("nonneg", 4)], image=[[1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(InvalidInput, match=r"slack of shape \(any, 3\)"):
        Conic(rows, offset, [("nonneg", 4)], image=np.vstack([np.eye(2), [1, 1]]), slack=np.eye(2))
    with pytest.raises(InvalidInput, match="as rare"):
        Conic(rows, offset, [("nonneg", 4)], rare=[0])


def test_the_slack_must_be_the_objective_s(rng):
    W, _, slack = image_set(rng)
    LocalProblem(Residual(slack, np.ones(2), 0.1, slack=True), W)
    with pytest.raises(InvalidInput, match="got another matrix"):
        LocalProblem(Residual(5 * slack, np.ones(2), 0.1, slack=True), W)
