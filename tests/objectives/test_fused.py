"""The kernel for a GPU, interpreted: what it computes, and who gets it. No GPU runs it here."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from conftest import repeat
from rounded_models import LOSSES, model

import tacit
from tacit.objectives import fused
from tacit.objectives.linear_model import BLOCK, LinearModel
from tacit.objectives.rounding import UNIT, gamma

KERNEL = jax.jit(partial(fused.sums, interpret=True))
PRODUCTS = jax.jit(lambda f, z: f._products(z))
SLOPES = jax.jit(lambda f, scores: f.slopes(scores))
SIZES = (300, 45)  # two tiles and a part of one, one step and a part of one


def data(shape=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape).astype(np.float32), rng.integers(0, 2, shape[0])


def point(f, seed=1, format_=np.float32):
    return np.random.default_rng(seed).normal(size=f.dimension).astype(format_)


def exactly(f, z):
    """The sum in float64, by NumPy."""
    x, z = np.asarray(f.features, np.float64), np.asarray(z, np.float64)
    scores = z.reshape(len(x), -1).T @ x
    slopes = SLOPES(f, scores if f.outputs > 1 else scores[0])
    return x @ np.asarray(slopes).T


CASES = [(name, {}) for name in LOSSES] + [
    ("huber", {}),
    ("logistic", {"slope_limit": 0.1}),
    ("softmax", {"slope_limit": 0.15}),
    ("softmax", {"slope_limit": 0.15, "limit_form": "norm"}),
]


def made(name, x, y, **options):
    if name == "huber":
        common = {"feature_norm": 2.0, "normaliser": 6000.0, "neighbours": "zero-out"}
        return tacit.Huber(x, 3.0 * y, target_bound=3.0, threshold=0.5, **common)
    return model(name, x, y, "zero-out", **options)


# Others are lowered below: the kernel has their slopes from the loss itself
@pytest.mark.parametrize(("name", "options"), repeat([*CASES[:3], CASES[4], CASES[8]], CASES))
def test_the_kernel_gives_the_sum_of_every_loss(name, options):
    f = made(name, *data(), **options)
    z = point(f)
    computed, exact = np.asarray(KERNEL(f, z)), exactly(f, z)
    products = np.asarray(PRODUCTS(f, z))
    assert computed.shape == products.shape
    assert computed.dtype == np.float64
    assert np.abs(computed - exact).max() <= 3e-7 * np.abs(exact).max()
    assert np.abs(products - exact).max() <= 1e-6 * np.abs(exact).max()


@pytest.mark.parametrize("shape", [(1, 1), (128, 32), (129, 33)])
def test_sizes_need_not_fit_tiles(shape):
    f = made("softmax", *data(shape))
    z = point(f)
    np.testing.assert_allclose(KERNEL(f, z), exactly(f, z), rtol=1e-5, atol=1e-6)


def test_neighbours_differ_by_rounding_as_proven():
    x, y = data()
    other = x.copy()
    other[177] = 0
    f, g = made("softmax", x, y), made("softmax", other, y)
    z = point(f)
    error = (KERNEL(f, z) - KERNEL(g, z)) - (exactly(f, z) - exactly(g, z))
    bound = f._rounding(2, tacit.Box(-4.0, 4.0, f.dimension))
    assert 1e-10 < np.linalg.norm(error) <= bound  # it is float32 that computes


def test_tiles_round_less_than_blocks():
    """The inequality of the docstring; beyond the largest number of records it would not hold."""
    u, R = UNIT["float32"], fused.TILE.records

    def margins(n):
        K = min(BLOCK, n)
        tiles = 2 * 2 * u * min(R, n) + 2 * gamma(n / R + 2) * n
        blocks = 2 * gamma(K + 2, u) * K + 2 * gamma(n / BLOCK + 2) * n
        return tiles, blocks

    for n in (1, 2, R, R + 1, BLOCK - 1, BLOCK, BLOCK + 1, 6000, 10**6, fused.MOST_RECORDS):
        tiles, blocks = margins(n)
        assert tiles <= blocks
    tiles, blocks = margins(100 * fused.MOST_RECORDS)
    assert tiles > blocks
    assert R <= BLOCK


def test_agents_share_a_kernel_and_many_points_share_the_data():
    calls = []

    def products(f, z):
        calls.append("products")
        return f._products(z)

    def kernel(f, z):
        calls.append("kernel")
        return KERNEL(f, z)

    agents = [made("logistic", *data((150, 5), seed)) for seed in (1, 2)]
    z = [point(f, seed) for seed, f in enumerate(agents)]
    alone = np.stack([PRODUCTS(f, point) for f, point in zip(agents, z, strict=True)])
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *agents)
    total = jax.vmap(lambda f, z: fused.total(f, z, products, kernel))
    together = jax.jit(total)(batch, np.stack(z))
    assert set(calls) == {"kernel"}
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    calls.clear()
    many = jax.jit(jax.vmap(total, in_axes=(None, 0)))(batch, np.stack([z, 2 * np.stack(z)]))
    assert calls[-1] == "products"
    np.testing.assert_allclose(many[0], alone, rtol=1e-5)
    one = jax.jit(lambda f, z: fused.total(f, z, products, kernel))(agents[0], z[0])
    np.testing.assert_allclose(one, alone[0], rtol=1e-5)


class Own(tacit.LogisticRegression):
    """A user's loss: nobody knows whether a kernel can have it."""


def test_who_gets_the_kernel(monkeypatch):
    x, y = data()
    f = made("softmax", x, y)
    assert not fused.serves(f)  # few numbers, and no GPU
    monkeypatch.setattr(fused, "FEWEST", 1)
    assert not fused.serves(f)

    def device(capability):
        monkeypatch.setattr(
            jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)]
        )

    device("9.0")
    assert fused.serves(f)
    assert all(fused.serves(made(name, x, y)) for name, _ in CASES)
    assert not fused.serves(f.in_bfloat16())
    assert not fused.serves(made("softmax", x.astype(float), y))
    assert not fused.serves(model("softmax", x, y, "add-remove"))
    common = {"feature_norm": 2.0, "normaliser": 300.0, "neighbours": "zero-out"}
    assert not fused.serves(Own(x, y, **common))
    assert not fused.serves(tacit.SoftmaxRegression(x, y, 17, **common))
    for other in ("8.6", "gfx90a", ""):
        device(other)
        assert not fused.serves(f)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_kernel_can_be_lowered_for_a_gpu(name, options):
    f = made(name, *data(), **options)
    traced = jax.jit(lambda f, z: fused.total(f, z, LinearModel._products)).trace(f, point(f))
    try:
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    except RuntimeError as error:  # some versions of JAX ask a GPU what it is
        pytest.skip(str(error))
    assert "triton" in text
