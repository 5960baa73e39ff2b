"""What the proofs about rounding rest on."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rounded_models import FEATURES, LOSSES, RECORDS, model, records

import tacit
from tacit.errors import InvalidInput
from tacit.objectives import linear_model
from tacit.objectives.linear_model import BLOCK, ELEMENTARY
from tacit.objectives.rounding import UNIT, cut_point, cut_rows, gamma

SCORES = jax.jit(lambda f, z: f.scores(z))
SLOPES = jax.jit(lambda f, z: f.slopes(f.scores(z)))
CUT = jax.jit(cut_point)


@jax.jit
def block_sum(f, z, start):
    piece = f._piece(start, BLOCK)
    return piece._sum_of(piece.slopes(piece.scores(z)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_one_record_changes_its_own_slope_and_block_only(name, dtype, monkeypatch):
    """The assumption of ``rounding.py``, in both layouts: bit for bit where records stay in place.

    And neighbours differ by no more than is certified.
    """
    x, y = records(dtype)
    other = x.copy()
    other[BLOCK + 7] = 0
    f, g = (model(name, rows, y, "zero-out") for rows in (x, other))
    z = np.random.default_rng(1).normal(size=f.dimension).astype(dtype)
    same_slopes(f, g, z)
    for k in (0, 1):
        sums = [np.asarray(block_sum(h, z, k * BLOCK)) for h in (f, g)]
        assert np.array_equal(*sums) == (k == 0)
    monkeypatch.setattr(linear_model, "on_cpu", lambda: False)
    f, g = f.for_device(), g.for_device()
    same_slopes(f, g, z)
    sums = []
    monkeypatch.setattr(jax.lax, "optimization_barrier", lambda x: sums.append(x) or x)
    moved = f.statistic(z) - g.statistic(z)
    changed = [b for b in range(len(f.features)) if not np.array_equal(sums[0][b], sums[1][b])]
    assert changed == [(BLOCK + 7) // f.features.shape[1]]
    W = tacit.Ball(0.0, float(np.linalg.norm(z)) * 1.001, f.dimension)
    assert 0 < np.linalg.norm(moved) <= f.sensitivity(2, W)


def same_slopes(f, g, z):
    slopes = [np.asarray(SLOPES(h, z)) for h in (f, g)]
    unchanged = np.arange(slopes[0].shape[-1]) != BLOCK + 7
    np.testing.assert_array_equal(slopes[0][..., unchanged], slopes[1][..., unchanged])


@pytest.mark.parametrize("name", ["hinge", "quantile"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_at_kinks_are_exact_where_records_shift(name, dtype):
    x, y = records(dtype)
    f = model(name, x, y, "add-remove")
    z = (np.random.default_rng(1).normal(size=FEATURES) * 7).astype(dtype)
    scores = np.asarray(SCORES(f, z))
    cut = np.asarray(CUT(z))
    np.testing.assert_allclose(cut, z, atol=float(np.linalg.norm(z)) * 2.0**-23)
    stored = np.asarray(f.features).T
    for i in (0, 1, 499, 500, 777, RECORDS - 1):
        exact = sum(
            Fraction(float(a)) * Fraction(float(b)) for a, b in zip(stored[i], cut, strict=True)
        )
        assert Fraction(float(scores[i])) == exact
    shifted = np.asarray(SCORES(model(name, x[1:], y[1:], "add-remove"), z))
    np.testing.assert_array_equal(scores[1:], shifted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_is_reached(dtype):
    """1 + u + u + ... stays 1, as every tie is rounded to even: no smaller bound would do."""
    unit, n = UNIT[np.dtype(dtype).name], 1000
    total = dtype(1)
    for _ in range(n):
        total = total + dtype(unit)
    error = (1 - float(total)) + n * unit
    assert 0.99 * gamma(n, unit) <= error <= gamma(n, unit)
    assert gamma(1e16) == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_err_by_fewer_units_than_the_proof_allows(dtype):
    rng = np.random.default_rng(0)
    scores = np.concatenate(
        [rng.normal(size=4000) * 10.0 ** rng.uniform(-3, 2, 4000), [0, 88, -88]]
    )
    scores = scores.astype(dtype)
    y = rng.integers(0, 2, len(scores))
    wide = scores.astype(np.longdouble)
    x = np.ones((len(scores), 1), dtype)
    logistic = model("logistic", x, y, "zero-out")
    sign = 2 * y - 1
    true = -sign / (1 + np.exp(sign * wide))
    unit = UNIT[np.dtype(dtype).name]
    got = np.asarray(jax.jit(lambda f, s: f.slopes(s))(logistic, scores))
    assert np.abs(got - true).max() <= ELEMENTARY / 4 * unit
    many = rng.normal(size=(4, len(scores))).astype(dtype) * scores
    softmax = model("softmax", x, y, "zero-out")
    got = np.asarray(jax.jit(lambda f, s: f.slopes(s))(softmax, many))
    top = many.astype(np.longdouble) - many.max(axis=0)
    true = np.exp(top) / np.exp(top).sum(axis=0) - (np.arange(4)[:, None] == y)
    assert np.abs(got - true).max() <= ELEMENTARY / 4 * unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cut_rows_never_get_longer(dtype):
    """Cut towards zero, to multiples of a grid, by less than one of its steps."""
    rows = (np.random.default_rng(0).normal(size=(50, 9)) / 3).astype(dtype)
    grid = 2.0 ** (2 - 26)  # g_x for a norm between 2 and 4
    cut = cut_rows(rows, 3.0)
    assert cut.dtype == dtype and (np.abs(cut) <= np.abs(rows)).all()
    np.testing.assert_array_equal(cut / grid, np.round(cut / grid))
    assert np.abs(rows - cut).max() < grid


@pytest.mark.parametrize(
    ("dtype", "norm", "bound"), [(np.float32, 1e10, 1e30), (np.float32, 1e19, 1.0)]
)
def test_bounds_that_overflow_are_refused(dtype, norm, bound):
    """A sum that overflows with a record and not without it shows the record."""
    public = {"target_bound": 1.0, "feature_norm": norm, "normaliser": 60.0}
    f, g = (
        tacit.LeastSquares(np.ones((3, 2), dtype), np.ones(3), neighbours=relation, **public)
        for relation in ("add-remove", "zero-out")
    )
    W = tacit.Box(-bound, bound, 2)
    assert np.isfinite(f.sensitivity(2, W))  # computed in float64
    with pytest.raises(InvalidInput, match="scores and sums fit float32"):
        g.sensitivity(2, W)


def test_numbers_that_are_flushed_to_zero_are_inside_the_bound():
    tiny, norm = 2.0**-126, 2e-29
    x = np.zeros((500, 2), np.float32)
    x[:, 0] = norm
    worst = 0.0
    for run in (1, 4, 32):
        targets = np.where((np.arange(500) // run) % 2 == 0, 1.5, -1.0) * tiny / norm
        for changed in (-2.0, 0.0, 2.0):
            other = targets.copy()
            other[0] = changed * tiny / norm
            f, g = (
                tacit.LeastSquares(
                    x,
                    -t,
                    feature_norm=norm * 1.0001,
                    target_bound=2.02 * tiny / norm,
                    normaliser=1.0,
                    neighbours="replace",
                )
                for t in (targets, other)
            )
            z = jnp.zeros(2, jnp.float32)
            change = np.linalg.norm(np.asarray(f.statistic(z) - g.statistic(z)))
            worst = max(worst, change / f.sensitivity(2, tacit.Box(-1e-12, 1e-12, 2)))
    assert worst <= 1


def test_records_of_16_bits_are_not_computed_with_in_16_bits():
    f = tacit.PerSample(
        lambda z, x: (x @ z) ** 2,
        np.ones((4, 2), np.float16),
        clip=1.0,
        size=2,
        normaliser=1e7,
    )
    part = tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 2))
    assert part.dtype == np.float64
    mixed = tacit.LeastSquares(
        np.ones((4, 2), np.float32), np.ones(4), target_bound=1.0, feature_norm=1.0, normaliser=4
    )
    assert tacit.LocalProblem(mixed, tacit.Box(-1.0, 1.0, 2)).dtype == np.float32


def test_leading_digits_of_wide_laws_reach_as_far_as_the_law():
    from decimal import Decimal

    from tacit.privacy import secure_noise

    for scale in (2**29, 2**30 + 7, 2**33):
        law = secure_noise.discrete_gaussian(Decimal(scale) ** 2)
        reach = sum(-table.first * law.radix**k for k, table in enumerate(law.tables))
        top = -law.tables[-1].first * law.radix ** (len(law.tables) - 1)
        assert top >= 13.4 * scale and reach >= 13.5 * scale
