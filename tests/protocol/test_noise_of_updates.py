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


# test_batch_and_agents_agree has two updates, batched
@pytest.mark.parametrize("batch", repeat([False], [True, False]))
def test_the_noise_of_every_local_update_is_another(batch):
    """Without a gradient, two updates tell both noises: xi_1 = -c z_2, xi_2 = z_2/eta - c z_3."""
    n, penalty, step = 400, 2.0, 0.25
    f = tacit.LeastSquares(
        np.zeros((3, n)), np.zeros(3), feature_norm=1.0, target_bound=1.0, normaliser=3
    )
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=n))
    settings = tacit.Settings(1, 2, tacit.Gaussian(1e-3), penalty=penalty, step_size=step)
    seen = {}
    tacit.solve(
        [p, p],
        settings,
        seed=5,
        batch=batch,
        callback=lambda now: seen.update(last=now.points, mean=now.averages),
    )
    c = penalty + 1 / step
    noises = []
    for last, mean in zip(seen["last"], seen["mean"], strict=True):
        first = 2 * mean - last
        noises += [-c * first, first / step - c * last]
    noises = np.array(noises)
    assert noises.std(axis=1).max() < 1.2 * noises.std(axis=1).min()
    for i in range(4):  # two agents, two updates each
        for j in range(i):
            assert abs(np.corrcoef(noises[i], noises[j])[0, 1]) < 0.25, (i, j)


@pytest.mark.parametrize("batch", [True, False])
def test_the_noise_of_every_round_is_another(batch):
    """Without a gradient a round tells its noise: xi = z/eta + rho w + lambda - c z'."""
    n, penalty, step, rounds = 400, 2.0, 0.25, 3
    f = tacit.LeastSquares(
        np.zeros((3, n)), np.zeros(3), feature_norm=1.0, target_bound=1.0, normaliser=3
    )
    p = tacit.LocalProblem(f, tacit.Box(-1e6, 1e6, size=n))
    settings = tacit.Settings(rounds, 1, tacit.Gaussian(1e-3), penalty=penalty, step_size=step)
    noises, z, dual = [], [np.zeros(n)] * 2, [np.zeros(n)] * 2

    def read(now):
        for k, point in enumerate(now.points):
            pull = z[k] / step + penalty * now.consensus + dual[k]
            noises.append(pull - (penalty + 1 / step) * point)
        z[:], dual[:] = now.points, now.duals

    tacit.solve([p, p], settings, seed=5, batch=batch, callback=read)
    assert len(noises) == 2 * rounds
    sizes = np.std(noises, axis=1)
    assert sizes.max() < 1.2 * sizes.min()
    together = np.corrcoef(noises) - np.eye(2 * rounds)
    assert np.abs(together).max() < 0.25


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
