"""Guarantees that hang on one number: splits of a risk, scales of noise, last bits, tolerances."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from conftest import repeat
from scipy.special import betainc
from test_audit import DELTA

from tacit.admm import algorithm
from tacit.admm.algorithm import Limits, Local, Round, Rule
from tacit.lab.audit import lower_bounds
from tacit.objectives.per_sample import PerSample
from tacit.objectives.residual import Residual
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.sets.conic import Conic


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_four_error_rates_share_the_risk(confidence):
    """Clopper and Pearson's bound of e errors in n is where betainc(e + 1, n − e) is the level."""
    s0, s1 = np.random.default_rng(0).normal(size=(2, 1, 500))
    found = lower_bounds(s0, s1 + 1, ["x"], Gaussian(1.0), 1, DELTA, confidence)
    for rates in (found.free_rates, found.curve_rates):
        bounds = rates.false_positive, rates.false_negative
        for bound, errors, trials in zip(bounds, rates.errors, rates.trials, strict=True):
            assert 0 < errors < trials
            risk = 1 - betainc(errors + 1, trials - errors, bound)
            assert risk == pytest.approx((1 - confidence) / 4, rel=1e-6)


@pytest.mark.parametrize("mechanism", [Gaussian(2.0), Laplace(2.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("coupled", [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]], ids=["all", "some"])
def test_output_noise_with_a_slack_is_scaled_by_the_step(mechanism, coupled):
    """The least curvature is that of the slack, 1/η, also where every coordinate has a ρ on top."""
    A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    f, key, Δ, η, ρ = Residual(A, [0.1, 0.2], 0.01, slack=True), jax.random.key(1), 0.3, 0.5, 7.0
    z, coupled = np.zeros(3), np.array(coupled)
    c = 1 / η + ρ * coupled
    local = Local(f, None, coupled, Δ, mechanism, key, Limits(1.0, 1.0, 1.0))
    rule = Rule(1, "output", "certified", separable=False)
    drawn = algorithm.draw(z, c, 0, Round(1, z, z, ρ, η), local, rule)
    plain = algorithm.sample_on_host(key, 1, 0, 3, Δ, z.dtype, mechanism)
    root = np.sqrt(3) if mechanism.norm == 1 else 1.0
    np.testing.assert_allclose(drawn, plain * root * np.sqrt(η / c), rtol=1e-12)


@pytest.mark.parametrize("norm", [1, 2])
def test_a_clipped_float32_gradient_is_no_longer_than_clip(norm):
    """In exact arithmetic, without any tolerance."""
    rng = np.random.default_rng(norm)
    size, records = 7, repeat(600, 1500)
    rows = rng.normal(size=(records, size)) * 10.0 ** rng.uniform(-3, 20, (records, 1))
    z = np.zeros(size, np.float32)

    def loss(z, row):
        return z @ row

    @jax.jit
    def all_clipped(f):
        return jax.vmap(lambda row: f._clipped(f._scaled(z, row)))(f.data)

    for clip in (0.1, 1.0, 3.3):
        f = PerSample(
            loss,
            rows.astype(np.float32),
            clip=clip,
            size=size,
            clip_norm=norm,
            normaliser=1.0,
            record_bound=records,
        )
        clipped = np.asarray(all_clipped(f))
        worst = max(sum(abs(Fraction(x)) ** norm for x in row.tolist()) for row in clipped)
        assert (1 - 1e-12) * clip**norm < worst <= Fraction(clip) ** norm


@pytest.mark.parametrize("broken", [1e-8, 1e-7, 1e-6, 3e-6, 1e-5])
def test_a_rare_cone_that_is_hardly_broken_counts(broken):
    """The unit disc as a rare cone within a box: a point just outside is projected again."""
    rows = np.concatenate([np.eye(2), -np.eye(2), np.zeros((1, 2)), np.eye(2)])
    offset = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0])
    disc = Conic(rows, offset, [("nonneg", 4), ("soc", 3)], rare=[1])
    for angle in np.linspace(0, 6, 7):
        point = (1 + broken) * np.array([np.cos(angle), np.sin(angle)])
        assert disc.violation(point) == pytest.approx(broken, rel=1e-3)
        assert disc.violation(disc.project(point)) <= 5e-9
