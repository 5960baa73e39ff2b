"""Every local update has noise of its own: read off the points of a run without gradients."""

import jax
import numpy as np
import pytest
from clinic import SIZE, ask, make
from conftest import objective_of, repeat, set_of

import tacit
from tacit.admm.algorithm import Limits, Local, Round, Rule, local_update
from tacit.privacy.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "clinic.db", 1.5, 1e-5)


def test_every_update_of_a_round_has_noise_of_its_own(ledger, monkeypatch):
    agent = make(ledger)
    seen = []
    compute = agent._round

    def watch(point, now, local, rule):
        seen.append(np.array(local.mechanism.values))
        return compute(point, now, local, rule=rule)

    monkeypatch.setattr(agent, "_round", watch)
    for t in (1, 2):
        ask(agent, t)
    drawn = np.concatenate(seen)
    assert drawn.shape == (4, SIZE)
    assert len(np.unique(drawn)) == drawn.size


N, PENALTY, STEP = 400, 2.0, 0.25


def run(rounds, updates, batch, callback):
    """Two agents without a gradient in a huge set: their points tell their noise."""
    bounds = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 3}
    f = tacit.LeastSquares(np.zeros((3, N)), np.zeros(3), **bounds)
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=N))
    schedules = {"penalty": PENALTY, "step_size": STEP}
    settings = tacit.Settings(rounds, updates, tacit.Gaussian(1e-3), **schedules)
    tacit.solve([p, p], settings, seed=5, batch=batch, callback=callback)


def unrelated(noises):
    """Of one size, and none like another."""
    sizes = np.std(noises, axis=1)
    together = np.corrcoef(noises) - np.eye(len(noises))
    return sizes.max() < 1.2 * sizes.min() and np.abs(together).max() < 0.25


# test_batch_and_agents_agree has two updates, batched
@pytest.mark.parametrize("batch", repeat([False], [True, False]))
def test_the_noise_of_every_local_update_is_another(batch):
    """Two updates tell both noises: xi_1 = -c z_2, xi_2 = z_2/eta - c z_3."""
    c, noises = PENALTY + 1 / STEP, []

    def read(now):
        for last, mean in zip(now.points, now.averages, strict=True):
            first = 2 * mean - last
            noises.extend([-c * first, first / STEP - c * last])

    run(1, 2, batch, read)
    assert len(noises) == 4 and unrelated(noises)  # two agents, two updates each


@pytest.mark.parametrize("batch", [True, False])
def test_the_noise_of_every_round_is_another(batch):
    """A round tells its noise: xi = z/eta + rho w + lambda - c z'."""
    noises, z, dual = [], [np.zeros(N)] * 2, [np.zeros(N)] * 2

    def read(now):
        for k, point in enumerate(now.points):
            pull = z[k] / STEP + PENALTY * now.consensus + dual[k]
            noises.append(pull - (PENALTY + 1 / STEP) * point)
        z[:], dual[:] = now.points, now.duals

    run(3, 1, batch, read)
    assert len(noises) == 6 and unrelated(noises)


@pytest.mark.parametrize(("kind", "deviation"), [("ball", 1.0), ("simplex", 0.45)])
def test_noisy_outputs_are_projected_with_the_weights_of_the_update(kind, deviation, rng):
    """A private coordinate has curvature 1/η, a coupled one 1/η + ρ; the set is not separable."""
    n, ρ, η = 4, 5.0, 0.5
    f, W, coupled = objective_of("logistic", rng), set_of(kind, n), np.array([0.0, 1.0, 1.0, 0.0])
    z, w, λ = rng.normal(size=(3, n)) / 10
    limits = Limits(np.inf, np.inf, np.inf)
    local = Local(f, W, coupled, 1.0, tacit.Gaussian(deviation), jax.random.key(3), limits)
    outside, inside = (
        local_update(z, 0, Round(1, w, λ, ρ, η), local, Rule(1, place, "certified", False))[0]
        for place in ("output", "projected-output")
    )
    assert W.violation(outside) > 0.01
    weighted, plain = W.project(outside, 1 / η + ρ * coupled), W.project(outside)
    np.testing.assert_allclose(inside, weighted, atol=1e-12)
    assert np.abs(np.asarray(weighted) - np.asarray(plain)).max() > 1e-2
