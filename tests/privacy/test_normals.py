"""Single-precision noise: the generator's own bits, exact quantiles, full tails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from scipy import special, stats

from tacit.privacy import seeded_noise as draws

KEY = jax.random.key(5)
FULL = 2**62 - 1  # the largest value of the 62 bits


def quantile(name, m, negative):
    """The exact quantile at x = ±(2m + 1)/2⁶³."""
    x, rest = (m + 0.5) / 2.0**62, (FULL - m).astype(float) + 0.5
    rest /= 2.0**62
    if name == "normal":
        size = np.sqrt(2) * np.where(x < 0.5, special.erfinv(x), special.erfcinv(rest))
    else:
        size = np.where(x < 0.5, -np.log1p(-np.minimum(x, 0.5)), -np.log(rest))
    return np.where(negative, -size, size)


def values_at(name, m, negative, monkeypatch):
    high = (negative.astype(np.uint64) << np.uint64(31)) | (m >> np.uint64(31))
    low = (m & np.uint64(2**31 - 1)) << np.uint64(1)

    @jax.jit  # many small programs otherwise
    def values(*bits):
        with monkeypatch.context() as patch:
            patch.setattr(draws, "random_bits", lambda key, size: bits)
            return getattr(draws, name)(KEY, m.shape)

    return np.asarray(values(high.astype(np.uint32), low.astype(np.uint32)), dtype=float)


def test_bits_are_those_of_jax():
    high, low = draws.random_bits(KEY, 1001)
    ours = (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    np.testing.assert_array_equal(ours, jax.random.bits(KEY, (1001,), jnp.uint64))


@pytest.mark.parametrize("name", ["normal", "laplace"])
def test_quantiles_are_exact_in_centre_and_tails(name, monkeypatch):
    rng = np.random.default_rng(0)
    anywhere = rng.integers(0, FULL, 200_000, dtype=np.uint64)
    tiny = anywhere >> rng.integers(0, 62, anywhere.size).astype(np.uint64)
    m = np.concatenate([anywhere, tiny, np.uint64(FULL) - tiny, np.uint64([0, FULL])])
    negative = rng.random(m.size) < 0.5
    ours = values_at(name, m, negative, monkeypatch)
    exact = quantile(name, m, negative)
    assert np.abs(ours / exact - 1).max() < 1e-6
    assert np.abs(ours).max() > {"normal": 9.0, "laplace": 43.0}[name]


def test_number_i_depends_on_key_and_i_alone():
    draw = jax.jit(draws.normal, static_argnums=1)
    short, long = (np.asarray(draw(KEY, (n,))) for n in (300, 4096))
    np.testing.assert_array_equal(short, long[:300])
    keys = jax.random.split(KEY, 3)
    batch = jax.jit(jax.vmap(lambda key: draws.normal(key, (300,))))(keys)
    np.testing.assert_allclose(np.asarray(batch)[1], draw(keys[1], (300,)), rtol=1e-6)


@pytest.mark.parametrize(("name", "law"), [("normal", stats.norm), ("laplace", stats.laplace)])
def test_tail_has_its_mass(name, law):
    """Twice the mass beyond 4 or 4.5, within what chance allows (normal: 253 of 4 million)."""
    beyond, count = repeat((4.0, 400_000), (4.5, 8_000_000))
    draw = jax.jit(lambda key: (jnp.abs(getattr(draws, name)(key, (count,))) > beyond).sum())
    seen = sum(int(draw(key)) for key in jax.random.split(KEY, 10))
    expected = 10 * count * 2 * law.sf(beyond)
    low, high = stats.poisson.interval(0.9999, expected)
    assert low <= seen <= high
