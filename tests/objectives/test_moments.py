"""Sums and second moments, released once: Δ against the worst neighbours, and public copies."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import SAMPLED, B, Y, change, sample

import tacit
from tacit.errors import InvalidInput
from tacit.objectives import LeastSquares, PublicQuadratic
from tacit.objectives.moments import BLOCK, FLOOR, Counts, Mean, Moments, matrix_of

ROOT = math.sqrt(2)
RELATIONS = ["add-remove", "zero-out", "replace"]


def mean_of(x, y=None, relation="add-remove", **options):
    return Mean(np.asarray(x), neighbours=relation, **PUBLIC | options)


def moments_of(x, y=None, relation="add-remove", **options):
    return Moments(np.asarray(x), neighbours=relation, **PUBLIC | options)


def squares(x, y, relation="add-remove", **options):
    common = {"target_bound": Y, "neighbours": relation}
    return LeastSquares(np.asarray(x), np.asarray(y), **PUBLIC | common | options)


PUBLIC = {"feature_norm": B, "normaliser": 12.0}
KINDS = {"mean": mean_of, "least-squares": squares, "moments": moments_of}


def apart(f, g, norm):
    return float(np.linalg.norm(f.statistics().values - g.statistics().values, norm))


def neighbour(x, y, relation, record):
    """The data without their first record, or with another one in its place."""
    if relation == "add-remove":
        return x[1:], y[1:]
    x, y = x.copy(), y.copy()
    x[0], y[0] = (record[:-1], record[-1]) if relation == "replace" else (0, 0)
    return x, y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", RELATIONS)
@settings(deadline=None, max_examples=repeat(10, 40))
@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from(repeat([4], [1, 2, 3, 4, 5])),
    scale=st.sampled_from([1e-320, 0.1, 1.0, 30.0, 1e300]),
    dtype=st.sampled_from([np.float32, np.float64]),
    norm_1=st.sampled_from([None, 1.7, 1.0]),
)
def test_neighbours_never_exceed_the_bound(kind, relation, seed, d, scale, dtype, norm_1):
    rng = np.random.default_rng(seed)
    scale = min(scale, float(np.finfo(dtype).max) / 100)
    x, y = scale * rng.normal(size=(6, d)), 3 * rng.normal(size=6)
    record = np.append(rng.choice([-1, 1]) * x[0] + scale * rng.normal(size=d) / 9, -y[0])
    f, g = (
        KINDS[kind](a.astype(dtype), b.astype(dtype), relation, feature_norm_1=norm_1)
        for a, b in ((x, y), neighbour(x, y, relation, record))
    )
    for norm in (1, 2):
        Δ = f.statistics().sensitivity(norm)
        assert apart(f, g, norm) <= Δ == g.statistics().sensitivity(norm)
        if kind != "least-squares":
            size = f.dimension
            moved = change(f, g, np.zeros(size), norm)
            assert moved <= f.sensitivity(norm, tacit.Box(-1.0, 1.0, size))


# --- the mean -----------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("norm", [1, 2])
def test_the_bound_of_a_mean_is_attained(relation, norm):
    x, y = np.stack([np.full(4, 1e30), np.ones(4)]), np.zeros(2)  # cut to length B
    other, _ = neighbour(x, y, relation, np.append(-x[0], 0))
    f, g = (mean_of(rows, y, relation) for rows in (x, other))
    Δ = (2 if relation == "replace" else 1) * B * (2 if norm == 1 else 1)
    assert apart(f, g, norm) == pytest.approx(f.statistics().sensitivity(norm), rel=1e-6)
    assert f.statistics().sensitivity(norm) == pytest.approx(Δ, rel=1e-6)
    assert f.sensitivity(norm, tacit.Box(-1, 1, 4)) == pytest.approx(Δ / 12, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_a_mean_of_many_is_inside_the_bound(dtype):
    """Rows that shift by one place are added in another order; all in 64 bits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * BLOCK + 5, 3)).astype(dtype)
    f, g = (mean_of(rows, normaliser=20_000.0) for rows in (x, x[1:]))
    exact = [np.asarray(h.features).astype(np.longdouble).sum(axis=1) for h in (f, g)]
    errors = [np.abs(h.statistics().values - e).max() for h, e in zip((f, g), exact, strict=True)]
    room = f.statistics().sensitivity(2) - B
    assert max(errors) <= room / 2 and room < 1e-6
    assert room >= 2 * BLOCK * 2.0**-53 * len(x) * B
    assert max(errors) > 0 or dtype == np.float32  # whose sums are exact here
    assert apart(f, g, 2) <= f.statistics().sensitivity(2)


def test_sums_of_an_unknown_device_are_not_inside_the_proof():
    f = mean_of([[1.0]])
    assert f.uncertified_on("tpu") and not f.uncertified_on("cpu") and not f.uncertified_on("gpu")


def test_the_rows_decide_whether_data_are_the_same():
    """Sums of other rows may be equal, and sums of the same rows differ in their last bits."""
    f, g = mean_of([[0.1, 0.2], [0.3, 0.4]]), mean_of([[0.3, 0.4], [0.1, 0.2]])
    np.testing.assert_allclose(f.statistics().values, g.statistics().values, rtol=1e-15)
    (one,), (other,) = f.statistics().source, g.statistics().source
    assert (one != other).any()


# --- moments of a table, and counts --------------------------------------------------------------


def test_moments_are_sums_and_products_as_numpy_has_them():
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (2 * BLOCK + 3, 3)) / 2
    f = moments_of(x, relation="zero-out", normaliser=float(len(x)))
    w = np.c_[np.ones(len(x)), x]
    values = f.statistics().values
    np.testing.assert_allclose(matrix_of(values, 3, len(x)), w.T @ w, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(f.statistic(np.zeros(9)), -values / len(x), rtol=1e-9, atol=1e-13)
    copy = f.statistics().released_objective(values, 0.0)
    np.testing.assert_allclose(copy.gradient(values / len(x)), 0, atol=1e-12)
    assert f.gradient_bound(tacit.Box(-0.1, 0.1, 9)) >= np.linalg.norm(values / len(x))


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0])
def test_the_bound_of_moments_is_attained(length):
    """Of a record that is taken out, and of one in place of another where 1 + x'y can be 0."""
    x = np.array([[length, 0.0]])
    options = {"feature_norm": length}
    f, g = (moments_of(a, relation="zero-out", **options) for a in (x, 0 * x))
    assert apart(f, g, 2) == pytest.approx(f.statistics().sensitivity(2), rel=1e-6)
    even = np.full((1, 2), length / ROOT)
    f, g = (moments_of(a, relation="zero-out", **options) for a in (even, 0 * even))
    assert apart(f, g, 1) == pytest.approx(f.statistics().sensitivity(1), rel=1e-6)
    cosine = max(-1.0, -1 / length**2)
    other = length * np.array([[cosine, math.sqrt(1 - cosine**2)]])
    f, g = (moments_of(a, relation="replace", **options) for a in (x, other))
    Δ, found = f.statistics().sensitivity(2), apart(f, g, 2)
    assert found <= Δ and (length < 1 or found == pytest.approx(Δ, rel=1e-6))
    assert length < 1 or 1.9 * moments_of(x, **options).statistics().sensitivity(2) > Δ


@pytest.mark.parametrize(("relation", "bounds"), [("zero-out", (1, 1)), ("replace", (2, ROOT))])
def test_the_bound_of_counts_is_attained(relation, bounds):
    rows = {"zero-out": np.zeros(3), "replace": np.eye(3)[1]}[relation]
    f, g = (
        Counts([row], feature_norm=1.0, normaliser=1.0, neighbours=relation)
        for row in (np.eye(3)[0], rows)
    )
    for norm, bound in zip((1, 2), bounds, strict=True):
        assert f.statistics().sensitivity(norm) == pytest.approx(bound, rel=1e-9)
        assert apart(f, g, norm) == pytest.approx(bound)


def test_shares_of_many_in_a_cell_are_rounded_within_the_bound():
    """Two counts that differ by 1, over N, differ by more than 1/N."""
    n = 1e6
    f = Counts([[1.0]], feature_norm=1.0, normaliser=n, record_bound=n)
    box = tacit.Box(-1.0, 1.0, size=1)
    counts = np.arange(n + 1)
    assert np.abs(np.diff(counts / n)).max() > (1 + 1e-12) / n
    assert np.abs(np.diff(counts / n)).max() <= f.sensitivity(1, box) <= (1 + 1e-9) / n


# --- least squares ------------------------------------------------------------------------------


def worst(relation, d, angle=math.pi / 3):
    """Two data sets of one record, furthest apart in L2: equal lengths, 60°, opposite targets."""
    first = np.zeros(d)
    first[0] = B
    if relation != "replace":
        empty = (np.zeros((0, d)), np.zeros(0)) if relation == "add-remove" else ([0 * first], [0])
        return ([first], [Y]), empty
    other = first.copy()
    if d > 1:
        other[:2] = B * math.cos(angle), B * math.sin(angle)
    return ([first], [Y]), ([other], [-Y])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_bound_of_least_squares_is_attained(relation, d):
    one, other = (squares(*data, relation) for data in worst(relation, d))
    Δ = one.statistics().sensitivity(2)
    assert (1 - 1e-9) * Δ <= apart(one, other, 2) <= Δ
    if relation == "replace":
        assert Δ / (2 * ROOT * B**2) < 0.76  # twice one record's norm would be too much
        for angle in (0.7, 1.4) if d > 1 else ():
            turned = squares(*worst(relation, d, angle)[1], relation)
            assert apart(one, turned, 2) < 0.995 * Δ
        return
    for norm_1 in (None, 1.1 * B):  # a row with both norms at their bounds
        if d == 1 and norm_1:
            continue
        row = np.full(d, B / math.sqrt(d))
        if norm_1:
            # (a, c, ..., c): a + (d−1)c = B₁, a² + (d−1)c² = B²
            m = d - 1
            c = (norm_1 * m - math.sqrt(m * (d * B**2 - norm_1**2))) / (m * d)
            row = np.r_[norm_1 - m * c, np.full(m, c)]
        one = squares([row], [Y], relation, feature_norm_1=norm_1)
        other = squares(*worst(relation, d)[1], relation, feature_norm_1=norm_1)
        Δ = one.statistics().sensitivity(1)
        assert (1 - 1e-9) * Δ <= apart(one, other, 1) <= Δ


@pytest.mark.parametrize(("d", "share"), [(2, 0.97), (4, 0.93), (8, 0.93)])
def test_replacing_a_record_comes_near_the_bound_in_L1(d, share):
    """Entries of the difference all of about the same size: two halves with other signs."""
    half = np.repeat([1.0, 0.0], d // 2)
    best = 0.0
    for turn, middle in product(np.linspace(0.3, 0.7, 9), np.linspace(0.2, math.pi / 4, 9)):
        rows = []
        for sign in (1, -1):
            angle = middle + sign * turn
            rows.append(math.cos(angle) * half + math.sin(angle) * half[::-1])
        one, other = (
            squares([B * row / np.linalg.norm(row)], [t], "replace")
            for row, t in zip(rows, (Y, -Y), strict=True)
        )
        best = max(best, apart(one, other, 1))
    Δ = one.statistics().sensitivity(1)
    assert share * Δ <= best <= Δ
    twice = 2 * squares([rows[0]], [Y]).statistics().sensitivity(1)
    assert Δ / twice < 0.76


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_second_moments_of_many_is_inside_the_bound(relation, dtype):
    """More than two blocks; the other records shift by one place where one is removed."""
    rng = np.random.default_rng(3)
    n, d = 2 * BLOCK + 5, 3
    x, y = rng.normal(size=(n, d)).astype(dtype), rng.choice([-Y, Y], n).astype(dtype)
    x[0] = [2 * B, 0, 0]
    x2, y2 = neighbour(x, y, relation, np.array([B / 2, B * math.sqrt(0.75), 0, -y[0]]))
    f, g = (squares(a, b, relation, normaliser=2.0 * n) for a, b in ((x, y), (x2, y2)))
    Δ = f.statistics().sensitivity(2)
    assert (1 - 1e-6) * Δ <= apart(f, g, 2) <= Δ
    alone = squares(x[:1], y[:1], relation, normaliser=1.0).statistics().sensitivity(2)
    assert alone < Δ < alone * (1 + 1e-6)
    exact = np.asarray(f.features, np.longdouble)
    weights = np.where(np.eye(d, dtype=bool), 1, np.sqrt(np.longdouble(2)))
    reference = (weights * (exact @ exact.T))[np.triu_indices(d)]
    error = f.statistics().values[: d * (d + 1) // 2] - reference
    assert np.linalg.norm(error.astype(float)) <= (Δ - alone) / 2


@pytest.mark.parametrize(("make", "about"), [(squares, {"ridge": 0.3}), (mean_of, {})])
def test_without_noise_the_copy_is_the_objective(make, about):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    f = make(x, y, normaliser=30.0, **about)
    copy = f.statistics().released_objective(f.statistics().values, 0.0)
    assert isinstance(copy, PublicQuadratic)
    zero = np.zeros(4)
    for z in rng.normal(size=(5, 4)):
        same = float(f.value(z) - f.value(zero))
        assert float(copy.value(z) - copy.value(zero)) == pytest.approx(same, rel=1e-9)
        assert np.allclose(copy.gradient(z), f.gradient(z), atol=1e-9)


@settings(deadline=None, max_examples=repeat(10, 20))
@given(seed=st.integers(0, 10**6), deviation=st.sampled_from([1e-12, 1.0, 1e6]))
def test_a_copy_of_any_values_is_strongly_convex(seed, deviation):
    rng = np.random.default_rng(seed)
    f = squares(rng.normal(size=(8, 3)), rng.normal(size=8), "zero-out", normaliser=32.0)
    noisy = f.statistics().values + deviation * rng.normal(size=9)
    copy = f.statistics().released_objective(noisy, deviation)
    least = FLOOR * math.sqrt(6 / 4) * deviation / f.normaliser  # a quarter of all records
    one = f.statistics().released_objective(noisy, deviation, agents=1)
    assert one.strong_convexity >= 2 * least * (1 - 1e-6) - 1e-12
    assert copy.strong_convexity >= least * (1 - 1e-6) - 1e-12
    # the linear part is as it was read
    linear = noisy[-3:] * Y / B / f.normaliser
    assert np.allclose(copy.gradient(np.zeros(3)), -linear, rtol=1e-6, atol=1e-9)


def test_rows_that_are_padding_add_nothing():
    for f in (squares([[1.0, 2.0]], [0.5], "zero-out"), mean_of([[1.0, 2.0]])):
        g = f.pad(7)
        assert np.array_equal(f.statistics().values, g.statistics().values)
        assert f.statistics().sensitivity(2) == g.statistics().sensitivity(2)


def test_what_is_not_quadratic_or_not_record_by_record_is_refused():
    for name in SAMPLED:
        if name != "least-squares":
            with pytest.raises(InvalidInput, match="a few numbers say in full, a quadratic one"):
                sample(name, [[1.0]], [1.0]).statistics()
    with pytest.raises(InvalidInput, match="Residual"):
        sample("least-squares", [[1.0]], [1.0], neighbours=("move", 0.1)).statistics()
    for reading in (
        squares([[1.0]], [0.0]).statistics(),
        mean_of([[1.0]]).statistics(),
    ):
        with pytest.raises(InvalidInput, match="norm"):
            reading.sensitivity(3)
        with pytest.raises(InvalidInput, match="values"):
            reading.released_objective(np.zeros(3), 1.0)


@pytest.mark.parametrize("agents", [None, 1, 9])
def test_floors_of_all_agents_add_up_to_the_edge_of_their_noise(agents):
    """Where a release is nothing but noise: FLOOR·√(2d/P)·deviation in every direction."""
    d, deviation = 3, 0.5
    f = squares(np.zeros((4, d)), np.zeros(4), normaliser=12.0, record_bound=4)
    copy = f.statistics().released_objective(np.zeros(d * (d + 3) // 2), deviation, agents)
    P = 3 if agents is None else agents  # a third of all records
    floor = FLOOR * math.sqrt(2 * d / P) * deviation / f.normaliser
    A = np.asarray(copy.matrix)
    np.testing.assert_allclose(2 * A.T @ A, floor * np.eye(d), atol=1e-15)
