"""Losses of the user: every record's gradient is clipped, whatever it is."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from small_objectives import FEATURES, N, pinball, points, records

from tacit import LocalProblem, Settings, solve
from tacit.objectives import PerSample
from tacit.sets import Ball, Box


@pytest.mark.parametrize("clip_norm", [1, 2])
def test_per_sample_clipping(clip_norm: int) -> None:
    X, y = records(0, rows=300)
    options = {"size": FEATURES, "normaliser": 300, "clip_norm": clip_norm}
    f = PerSample(pinball, (X, y), clip=0.7, **options)
    z, _ = points(f, 0)
    slope = jax.jit(jax.grad(pinball))
    gradients = np.stack([slope(z, r) for r in zip(X, y, strict=True)])
    norms = np.linalg.norm(gradients, clip_norm, axis=1)
    clipped = gradients * np.minimum(1, 0.7 / norms)[:, None]
    assert (norms > 0.7).any() and (norms < 0.7).any()
    np.testing.assert_allclose(f.gradient(z), clipped.mean(axis=0), rtol=1e-12)
    W = Ball(0.0, 1.0, FEATURES)
    expected = {1: 0.7 / 300 * (1 if clip_norm == 1 else 2), 2: 0.7 / 300}
    assert all(f.sensitivity(n, W) == pytest.approx(expected[n]) for n in (1, 2))
    replace = PerSample(pinball, (X, y), clip=0.7, neighbours="replace", **options)
    assert replace.sensitivity(2, W) == pytest.approx(2 * f.sensitivity(2, W))


def test_per_sample_bound_survives_broken_records() -> None:
    X, y = records(0)
    X2 = X.copy()
    X2[0], X2[1], X2[2] = math.nan, math.inf, 1e200  # the last: finite, but its square is not
    options = {"clip": 0.7, "size": FEATURES, "normaliser": N}
    f = PerSample(pinball, (X2, y), **options)
    whole = PerSample(pinball, (X[3:], y[3:]), **options)
    z, _ = points(f, 0)
    np.testing.assert_allclose(f.gradient(z), whole.gradient(z), rtol=1e-12)


UNITS = np.array([0.01, 1.0, 30.0])


def test_units_are_another_name_of_the_coordinates() -> None:
    """What is clipped, released and bounded is the gradient of the same loss of z/D."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)) / UNITS, rng.normal(size=40)
    options = {"clip": 0.9, "size": 3, "normaliser": 40}
    f = PerSample(pinball, (X, y), units=UNITS, **options)
    same = PerSample(lambda u, record: pinball(UNITS * u, record), (X, y), **options)
    u, W = rng.normal(size=3), Box(-1.0, 1.0, 3)
    np.testing.assert_allclose(f.statistic(UNITS * u), same.statistic(u), rtol=1e-12)
    np.testing.assert_allclose(f.gradient(UNITS * u), same.gradient(u) / UNITS, rtol=1e-12)
    assert f.sensitivity(2, W) == same.sensitivity(2, W)
    assert f.sensitivity(1, W) == same.sensitivity(1, W)
    for norm in (1, 2):  # one coordinate alone may move: the one whose gradient is stretched most
        most = f.sensitivity(norm, W) / UNITS.min()
        assert most <= f.gradient_sensitivity(norm, W) <= most * (1 + 1e-9)
    np.testing.assert_allclose(f.deviations, 1 / UNITS)
    assert f.lift_energy == pytest.approx((1 / UNITS**2).sum())
    assert f.gradient_bound(W) == pytest.approx(0.9 / 0.01)
    np.testing.assert_allclose(f.lengths(UNITS * u), same.lengths(u), rtol=1e-12)
    assert (f.lengths(UNITS * u) > 0.9).any()
    wide = Box(-UNITS / 2, UNITS / 2)
    of_set = PerSample(pinball, (X, y), units=wide, **options)
    np.testing.assert_allclose(of_set.statistic(u), f.statistic(u), rtol=1e-15)


def test_a_run_in_units_is_a_run_of_the_scaled_loss() -> None:
    """Noise, steps and clip included: the same answer in other coordinates."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)) / UNITS, rng.normal(size=40)
    options = {"clip": 0.9, "size": 3, "normaliser": 40}
    found, scale = [], {"plain": np.ones(3), "units": UNITS}
    for name, D in scale.items():
        box = Box(-D, D)
        loss = pinball if name == "units" else lambda u, record: pinball(UNITS * u, record)
        how = {**options, "units": box if name == "units" else None}
        agents = [LocalProblem(PerSample(loss, (X[p::2], y[p::2]), **how), box) for p in range(2)]
        budget = Settings.for_budget(5.0, 1e-5, rounds=30)
        found.append(solve(agents, budget, seed=1).solution / D)
    # the bound of gradients that round 1 knows differs
    np.testing.assert_allclose(found[0], found[1], atol=0.1)


def test_per_sample_memory_does_not_grow_as_records_times_size() -> None:
    rows, size = 4000, 500
    data = np.zeros((rows, size), np.float32)
    f = PerSample(lambda z, x: (z @ x) ** 2, data, clip=1.0, size=size, normaliser=rows)
    z = jnp.zeros(size, jnp.float32)
    compiled = jax.jit(lambda f, z: f.gradient(z)).lower(f, z).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < rows * size * 4 / 4


def test_float32_per_sample_sums_do_not_round_away_a_record():
    """Half a million clipped gradients in float32: one record more moves the sum by one record."""
    rows = 500_000
    X = np.full((rows + 1, 1), 1.0, np.float32)
    common = {"clip": 1.0, "size": 1, "normaliser": 1.0, "record_bound": rows + 1}

    def loss(z, x):
        return (x @ z) * np.float32(0.7)

    z = jnp.ones(1, jnp.float32)
    more = PerSample(loss, X, **common).statistic(z)
    less = PerSample(loss, X[:-1], **common).statistic(z)
    assert abs(float(more[0]) - float(less[0])) <= 1.0


def test_a_record_adds_the_same_bits_wherever_it_stands():
    """Where records shift neighbours have it at other places, among more or fewer others."""
    rng = np.random.default_rng(0)
    record, z = rng.normal(size=301), jnp.asarray(rng.normal(size=301) / 20)
    common = {"clip": 1e3, "size": 301, "normaliser": 1.0, "record_bound": 300}

    def added(place, rows):
        X = np.zeros((rows, 301))
        X[place] = record
        f = PerSample(lambda z, x: jnp.tanh(x @ z), X, neighbours="add-remove", **common)
        return np.asarray(f.statistic(z))

    alone = added(0, 1)
    assert alone.any()
    for place, rows in [(1, 2), (6, 7), (100, 128), (130, 257)]:
        np.testing.assert_array_equal(added(place, rows), alone)


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize("units", [None, np.full(4, 3.0)])
def test_what_is_clipped_is_what_was_measured(relation, units):
    """Gradients az − b of a b that is az, rounded: 0, or 10⁷ where a compiler does not round az.
    One that computes them twice may measure the 0 and add up the other."""
    rng, z = np.random.default_rng(0), jnp.asarray(np.array([0.3, -0.7, 1.1, 0.9], np.float32))
    a = (1e15 * rng.normal(size=(8, 4))).astype(np.float32)
    data = {"a": a, "b": a * np.asarray(z)}
    f = PerSample(
        lambda z, record: jnp.sum(record["a"] * z * z / 2 - record["b"] * z),
        data,
        clip=1.0,
        normaliser=8.0,
        neighbours=relation,
        size=4,
        units=units,
    )
    for found in (f.statistic(z), jax.jit(lambda f, z: f.statistic(z))(f, z)):
        assert np.linalg.norm(np.asarray(found)) <= 1


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
