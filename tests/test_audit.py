"""The audit: its bounds keep their confidence, correct code passes, broken code is caught."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit import accounting, agent, algorithm, mechanisms
from tacit.accounting import Guarantee, gaussian_epsilon
from tacit.audit import (
    audit,
    curve_epsilon,
    free_epsilon,
    lower_bounds,
    plot,
    record_worlds,
    upper_bound,
    zone_worlds,
)
from tacit.audit.worlds import Worlds
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.learn.data import Dataset
from tacit.losses import LeastSquares
from tacit.mechanisms import Gaussian, Laplace, Noiseless
from tacit.problem import LocalProblem
from tacit.sets import Box
from tacit.settings import Settings

DELTA = 1e-5


def small_worlds(records=30):
    """The worlds of the applications, on made-up records of four numbers and three classes."""
    rng = np.random.default_rng(0)
    features = rng.uniform(0.05, 1, (records, 1)) * rng.normal(size=(records, 4))
    data = Dataset(features, rng.integers(0, 3, records), ("a", "b", "c"))
    return record_worlds(data, "small")


def run(settings=None, trials=20_000, seed=0, worlds=None, **options):
    settings = settings or Settings.for_budget(1.0, DELTA, 3, 2)
    return audit(worlds or small_worlds(), settings, trials=trials, seed=seed, **options)


# --- broken code ----------------------------------------------------------------------------


def variance_as_deviation(patch):
    right = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, Δ: right(self, Δ) ** 2)


def deviation_as_variance(patch):
    right = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, Δ: jnp.sqrt(right(self, Δ)))


def noise_halved(patch):
    right = algorithm.draw
    patch.setattr(algorithm, "draw", lambda *given: right(*given) / 2)


def sensitivity_from_own_data(patch):
    def own(problem, settings):
        f = problem.objective
        return float(f.paper_sensitivity(jnp.zeros(f.dimension), settings.mechanism.norm))

    patch.setattr(agent, "certified_sensitivity", own)


def update_without_noise(patch):
    right = algorithm.draw

    def draw(z, c, e, now, local, rule):
        return right(z, c, e, now, local, rule) * ((e != 1) | (now.t != 2))

    patch.setattr(algorithm, "draw", draw)


def key_reused_across_rounds(patch):
    def sample(key, t, e, size, Δ, dtype, mechanism):
        return mechanism.sample(jax.random.fold_in(key, e), (size,), Δ, dtype)

    patch.setattr(algorithm, "_sample", sample)


def key_reused_across_updates(patch):
    def sample(key, t, e, size, Δ, dtype, mechanism):
        return mechanism.sample(jax.random.fold_in(key, t), (size,), Δ, dtype)

    patch.setattr(algorithm, "_sample", sample)


MUTANTS = [
    variance_as_deviation,
    noise_halved,
    sensitivity_from_own_data,
    update_without_noise,
    key_reused_across_rounds,
    key_reused_across_updates,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_broken_code_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    found = run()
    print(mutant.__name__, found.verdict)
    assert found.violated
    assert found.verdict.startswith("VIOLATED: epsilon is at least")
    assert "99 % confidence" in found.verdict
