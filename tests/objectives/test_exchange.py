"""Exchange problems: what a household draws at a price, and how far any data can move it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.sets import Box, Hyperplane

HOURS, MU = 6, 0.2
BASE = np.array([0.2, 0.4, 0.8, 0.9, 0.5, 0.3])


def draw(z, home):
    return home.project(-z / MU)


def conjugate(z):
    """Of G(s) = |s + BASE|²/2."""
    return z @ z / 2 - BASE @ z


def cost(x, home):
    return MU * x @ x / 2


PUBLIC = {"size": HOURS, "clip": 2.5, "lower": 0.0, "upper": 2.0, "smoothness": 1 / MU + 1}


def homes(many=5, seed=0):
    """By when each is there, and what it needs."""
    rng = np.random.default_rng(seed)
    here = rng.random((many, HOURS)) < 0.7
    here[:, 2:4] = True
    return 2.0 * here, rng.uniform(1.0, 3.0, many)


def agents(most, need, **changes):
    public = {**PUBLIC, "cost": cost, "normaliser": len(need), **changes}
    return [
        tacit.LocalProblem(
            tacit.Exchange(
                draw,
                Hyperplane(np.ones(HOURS), n, np.zeros(HOURS), u),
                conjugate,
                **public,
            ),
            Box(0.0, 4.0, HOURS),
            name=f"home {i}",
        )
        for i, (u, n) in enumerate(zip(most, need, strict=True))
    ]


def optimum(upper, need):
    """The least of the problem itself, and its mean draw."""
    import cvxpy as cp

    x = cp.Variable((len(need), HOURS), nonneg=True)
    mean = cp.sum(x, axis=0) / len(need)
    value = MU * cp.sum_squares(x) / 2 / len(need) + cp.sum_squares(mean + BASE) / 2
    rows = [x <= upper, cp.sum(x, axis=1) == need]
    problem = cp.Problem(cp.Minimize(value), rows)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, np.asarray(x.value)


def test_prices_lead_to_the_optimum_of_cvxpy():
    """Without noise, and in a sum with hardly any: which says whose records it hides."""
    upper, need = homes()
    parts = agents(upper, need)
    least, best = optimum(upper, need)
    found = tacit.solve(parts, tacit.Settings(500, tolerance=1e-9))
    assert found.converged
    assert -tacit.Problem(parts).value(found.solution) == pytest.approx(least, rel=1e-6)
    plans = np.stack([part.objective.plan(found.solution) for part in parts])
    np.testing.assert_allclose(plans, best, atol=1e-3)
    settings = tacit.Settings(60, mechanism=tacit.Gaussian(1e-6), delta=1e-5)
    found = tacit.solve(parts, settings, seed=1, aggregation="sum", evaluate_every=60)
    plans = np.stack([part.objective.plan(found.solution) for part in parts])
    np.testing.assert_allclose(plans.mean(axis=0), best.mean(axis=0), atol=0.02)
    assert found.privacy.parties == 5
    assert [change for change, _ in found.privacy.neighbours] == [parts[0].objective.neighbours]


def test_the_gradient_is_that_of_the_value():
    upper, need = homes()
    f, z = agents(upper, need)[0].objective, jnp.linspace(0.3, 1.2, HOURS)
    value, derivative = jax.jit(f.value), jax.jit(jax.grad(f.value))
    slope = np.array([(value(z + h) - value(z - h)) / 2e-5 for h in 1e-5 * np.eye(HOURS)])
    np.testing.assert_allclose(f.gradient(z), slope, atol=1e-6)
    np.testing.assert_allclose(derivative(z), f.gradient(z), atol=1e-12)
    assert f.statistic(z).sum() == pytest.approx(-f.plan(z).sum() / f.normaliser)


ODD = 1e-300, 1e200, 1e308, math.inf, -math.inf, math.nan, -3.0, 0.4, 2.0, 5.0


FREE = np.array([0.0, -math.inf]), math.inf  # of both signs in one hour


@pytest.mark.parametrize(
    "lower, upper", [(0.0, math.inf), FREE, (-math.inf, math.inf), (-1.0, 0.5)]
)
def test_no_data_move_a_draw_further(lower, upper):
    """Whatever the household says it draws, and at whatever price; and the bound is reached."""
    public = PUBLIC | {"lower": lower, "upper": upper, "size": 2, "normaliser": 3.0, "clip": 2.5}
    said = [np.array([a, b]) for a in ODD for b in (*ODD, 0.0)]
    said += [2.5 * np.array([math.cos(v), math.sin(v)]) for v in np.linspace(0, 2 * math.pi, 33)]
    drawn = jax.jit(lambda f, z: f.statistic(z))
    whatever = lambda z, d: d + 0 * z  # noqa: E731  (one program for all)
    parts = [tacit.Exchange(whatever, x, jnp.sum, **public) for x in said]
    found = np.stack([drawn(f, np.zeros(2)) for f in parts])
    assert np.isfinite(found).all()
    apart = np.linalg.norm(found[:, None] - found, axis=2).max()
    bound = [parts[0].sensitivity(norm, None) for norm in (1, 2)]
    assert apart <= bound[1] and np.linalg.norm(found, axis=1).max() <= bound[1]  # or taken out
    assert apart > 0.99 * bound[1]
    assert np.abs(found[:, None] - found).sum(axis=2).max() <= bound[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": 0.1},
        {"upper": -1.0},
        {"upper": math.nan},
        {"upper": [1.0, 2.0]},
        {"clip": 0.0},
        {"clip": math.inf},
        {"smoothness": math.inf},
        {"neighbours": "add-remove"},
        {"size": HOURS + 1},
        {"cost": lambda x, home: x},
        {"normaliser": -1.0},
    ],
)
def test_what_cannot_be_used_is_refused(changes):
    with pytest.raises(InvalidInput):
        agents(*homes(3), **changes)
