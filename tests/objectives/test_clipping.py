"""Limited slopes: no record pulls more than the limit, as computed; and what a limited model says.

Records and losses in general are tested with all others, in the files beside this one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from small_objectives import FEATURES, B, N, change, records, sample, unit

from tacit.objectives import LogisticRegression, SoftmaxRegression, linear_model
from tacit.objectives.losses import FORMS
from tacit.sets import Box

SLOPES = jax.jit(lambda f, s: f.slopes(s))
LOSSES = jax.jit(lambda f, s: f.losses(s))
BOTH = jax.jit(lambda f, z: (f.value(z), f.gradient(z)))
FORMATS = [np.float32, np.float64]
RELATIONS = ["add-remove", "zero-out", "replace"]


def softmax_of(labels: Any, K: int, dtype: Any = np.float64, **options: Any) -> SoftmaxRegression:
    """A model whose scores are given: one feature, one record for each."""
    common = {"feature_norm": 1.0, "normaliser": 9e9, "neighbours": "zero-out"}
    return SoftmaxRegression(np.ones((len(labels), 1), dtype), labels, K, **common, **options)


def hostile_scores(K: int, records: int, dtype: Any) -> Any:
    rng = np.random.default_rng(K)
    sizes = 10.0 ** np.r_[rng.uniform(-3, 2, records - 60), rng.uniform(2, 30, 60)]
    return (rng.normal(size=(K, records)) * sizes).astype(dtype)


def true_slopes(scores: Any, labels: Any, c: float, form: str) -> Any:
    """In the longest format there is, straight from the definition."""
    s = scores.astype(np.longdouble)
    e_y = np.arange(len(s))[:, None] == labels
    top = np.where(e_y, -np.inf, s).max(axis=0)
    powers = np.where(e_y, 0, np.exp(np.where(e_y, 0, s - top)))
    own = np.exp(np.minimum(np.where(e_y, s - top, 0).sum(axis=0), 11_000))
    w = powers.sum(axis=0) / (powers.sum(axis=0) + own)
    r = np.where(e_y, -w, w * powers / powers.sum(axis=0))
    length = np.sqrt((r**2).sum(axis=0)) if form == "norm" else math.sqrt(2) * w
    return r * np.minimum(1, c / np.maximum(length, np.finfo(np.longdouble).tiny))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("form", FORMS)
def test_no_computed_slope_is_longer_than_the_bound(form: str, dtype: Any) -> None:
    """Nor further from the true one than the proof says; without a margin the limit is exceeded."""
    beyond = 0.0
    for K, c in itertools.product((2, 3, 10), (1e-6, 0.15, 0.9)):
        labels = np.random.default_rng(0).integers(0, K, 3000)
        scores = hostile_scores(K, len(labels), dtype)
        f = softmax_of(labels, K, dtype, clip=c, clip_form=form)
        got = np.asarray(SLOPES(f, scores)).astype(np.longdouble)
        everywhere, room = Box(-math.inf, math.inf, f.dimension), 1 + f._slope_margin()
        for norm in (1, 2):
            longest = float(np.linalg.norm(got.astype(np.float64), norm, axis=0).max())
            bound = f.slope_bound(norm, everywhere)
            assert longest <= bound * room
        assert longest >= 0.999 * c  # in L2, the last
        beyond = max(beyond, longest / c - 1)
        apart = np.abs(got - true_slopes(scores, labels, c, form)).max()
        assert apart <= f._slope_margin() * c / 2
    assert beyond > 0 or (form == "convex" and dtype == np.float64)


@pytest.mark.parametrize("by_records", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_scores_that_a_compiler_may_compute_twice(
    form: str, by_records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one feature a score is a product: cheap enough to be computed where a slope is measured
    and again where it is scaled. Float32 scores of 1e3 to 1e8 here, whose differences are rounding;
    one record of seven counts."""
    monkeypatch.setattr(linear_model, "on_cpu", lambda: not by_records)
    rng, c = np.random.default_rng(0), 0.1
    run = jax.jit(lambda f, z: jax.vmap(f.statistic)(z))
    for K in (3, 10):
        X, labels = np.zeros((7, 1), np.float32), rng.integers(0, K, 7)
        X[3] = 0.7
        f = SoftmaxRegression(
            X, labels, K, feature_norm=1.0, normaliser=1.0, record_bound=7,
            neighbours="zero-out", clip=c, clip_form=form,
        )  # fmt: skip
        sizes = rng.normal(size=(300, 1)) * 10.0 ** rng.uniform(3, 8, (300, 1))
        z = (sizes * (1 + 1e-7 * rng.normal(size=(300, K)))).astype(np.float32)
        lengths = np.linalg.norm(np.asarray(run(f.for_device(), z), np.float64), axis=1)
        assert 0.5 * c < lengths.max() / float(X[3, 0]) <= c * (1 + f._slope_margin())


@pytest.mark.parametrize("dtype", FORMATS)
def test_logistic_slopes_err_by_no_more_than_the_proof_says(dtype: Any) -> None:
    scores = hostile_scores(2, 3000, dtype)[0]
    y = np.random.default_rng(0).integers(0, 2, len(scores))
    common = {"feature_norm": 1.0, "normaliser": 9e9, "neighbours": "zero-out"}
    with np.errstate(over="ignore"):
        weight = 1 / (1 + np.exp((2 * y - 1) * scores.astype(np.longdouble)))
    for c in (1e-6, 0.1, 0.7, 3.0):
        f = LogisticRegression(np.ones((len(y), 1), dtype), y, clip=c, **common)
        got = np.asarray(SLOPES(f, scores)).astype(np.longdouble)
        most = f.slope_bound(2, Box(-math.inf, math.inf, 1))
        assert most == min(c, 1) and np.abs(got).max() <= most * (1 + f._slope_margin())
        true = (1 - 2 * y) * np.minimum(weight, c)
        assert np.abs(got - true).max() <= f._slope_margin() * most / 2


CASES = list(itertools.product(FORMS, FORMATS, RELATIONS))
FEW = [case for case in CASES if case[:2] in (("convex", np.float32), ("norm", np.float64))]


@pytest.mark.parametrize(("form", "dtype", "relation"), repeat(FEW, CASES))
def test_the_sensitivity_is_the_limit(form: str, dtype: Any, relation: str) -> None:
    """cB/N, twice that for a replaced record, in both norms; attained where scores are large."""
    K, c, u = 3, 0.15, 40.0
    common: Any = {"feature_norm": B, "normaliser": N, "neighbours": relation}
    common |= {"clip": c, "clip_form": form, "record_bound": 4}
    rows = np.stack([1e30 * unit, 1e-3 * unit]).astype(dtype)  # the first is cut to length B
    other = {"add-remove": rows[1:], "zero-out": rows * [[0], [1]], "replace": rows * [[-1], [1]]}
    left = other[relation].astype(dtype)
    f = SoftmaxRegression(rows, [0, 1], K, **common)
    flat = np.zeros((FEATURES, K))
    one = flat + np.array(
        [-u, u, -u]
    )  # one other class: ‖d‖₂ = √2; at 0 all others: ‖d‖₁/‖d‖₂ largest
    W = Box(-u, u, f.dimension)
    twice = 2 if relation == "replace" else 1
    bounds = {2: c, 1: 2 * c * math.sqrt(0.5 if form == "convex" else 1 - 1 / K)}
    for norm, length in bounds.items():
        Δ = f.sensitivity(norm, W)
        features = f.feature_bound(norm)
        assert twice * length * features / N < Δ <= twice * length * features / N * (1 + 2e-5)
        reached = 0.0
        # where scores change sign with x, the label at the other end is the one that pulls
        for Z, label in itertools.product((flat, one, -one), range(K)):
            g = SoftmaxRegression(left, [label, 1][-len(left) :], K, **common)
            z = jnp.asarray(Z.ravel(), dtype)
            reached = max(reached, change(f, g, z, norm))
        assert reached <= Δ
        tight = form == "norm" or relation != "replace" or norm == 1
        assert reached >= (0.998 if tight else 0.8) * Δ


def test_the_bound_of_a_set_is_kept_where_it_is_smaller() -> None:
    X, y = records(0)
    for name in ("logistic", "softmax"):
        f = sample(name, X, y)
        W = Box(-1e-3, 1e-3, f.dimension)
        wide, without = sample(name, X, y, clip=1.4), sample(name, X, y)
        for norm in (1, 2):
            assert wide.slope_bound(norm, W) == without.slope_bound(norm, W)
        z = jnp.zeros(f.dimension)
        for one, other in zip(BOTH(wide, z), BOTH(without, z), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@settings(deadline=None, max_examples=repeat(20, 40))
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([0.1, 1.0, 10.0]),
    c=st.sampled_from([0.01, 0.3, 0.8, 1.2]),
    K=st.sampled_from(repeat([2, 3], [2, 3, 6])),
)
def test_convex_slopes_are_monotone_and_all_are_lipschitz(
    seed: int, size: float, c: float, K: int
) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, K, 30)) * size
    labels = np.arange(30) % K
    for form in FORMS:
        f = softmax_of(labels, K, clip=c, clip_form=form)
        first, second = (np.asarray(SLOPES(f, s)) for s in (a, b))
        along = ((first - second) * (a - b)).sum(axis=0)
        moved = np.linalg.norm(first - second, axis=0)
        assert f.largest_curvature is not None
        assert (moved <= f.largest_curvature * np.linalg.norm(a - b, axis=0) + 1e-12).all()
        if form == "convex":
            assert (along >= -1e-12).all()
            values = [np.asarray(LOSSES(f, s)) for s in (a, b)]
            assert (values[0] - values[1] - (second * (a - b)).sum(axis=0) >= -1e-10).all()


def test_only_the_convex_form_is_a_gradient() -> None:
    """A gradient has a symmetric derivative; the other form says that it is none."""
    scores = jnp.asarray([[0.3], [1.0], [-0.4]])
    twist = {}
    for form in FORMS:
        f = softmax_of([0], 3, clip=0.2, clip_form=form)
        J = np.asarray(jax.jit(jax.jacobian(lambda s, f=f: f.slopes(s)[:, 0]))(scores))[:, :, 0]
        twist[form] = np.abs(J - J.T).max()
    assert twist["convex"] < 1e-15 and twist["norm"] > 1e-3
    for form, K in itertools.product(FORMS, (2, 3)):
        f = softmax_of([0], K, clip=0.2, clip_form=form)
        assert f.clipped == (form == "norm" and K == 3)
    assert not softmax_of([0], 3, clip_form="norm").clipped
