"""Private records as they are kept: scaled to bounds, padded, batched, counted; and refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from small_objectives import (
    BOX,
    FEATURES,
    LINEAR,
    SAMPLED,
    B,
    N,
    Y,
    points,
    records,
    residual,
    sample,
)

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput
from tacit.objectives import (
    Hinge,
    LeastSquares,
    LogisticRegression,
    Objective,
    PerSample,
    PublicQuadratic,
    Quantile,
    Residual,
    SoftmaxRegression,
)
from tacit.objectives.moments import Counts
from tacit.sets import Ball, Box

SIZES = (3, 5, 8)


def stack_of(*agents: Objective) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)


def test_rows_are_scaled_to_their_bounds_and_short_ones_kept() -> None:
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1.0, 1.0]])
    options = {"level": 0.5, "feature_norm": 2.0, "feature_norm_1": 1.5, "normaliser": 4}
    f = Quantile(X, np.zeros(4), neighbours="replace", **options)
    expected = np.array([[3 * 1.5 / 7, 4 * 1.5 / 7], [0.3, 0.4], [0, 0], [0.75, 0.75]])
    np.testing.assert_allclose(f.features, expected.T, rtol=2e-15)
    np.testing.assert_array_equal(f.features[:, 1], X[1])
    cut = Quantile(X, np.zeros(4), **options)  # where scores must be exact: multiples of 2⁻²⁵
    np.testing.assert_allclose(cut.features, expected.T, atol=2.0**-25)
    assert (np.asarray(cut.features) * 2.0**25 % 1 == 0).all()


def test_targets_are_clipped_to_their_bound():
    for name in ("least-squares", "huber"):
        f = sample(name, np.eye(3), [9.0, -9.0, 0.25])
        assert np.abs(f.targets).max() <= Y
        np.testing.assert_allclose(f.targets, [Y, -Y, 0.25], rtol=1e-15)


def test_rounding_does_not_break_the_bounds_in_float32() -> None:
    X, y = np.random.default_rng(0).normal(size=(2, 2000, 7)).astype(np.float32)
    f = LeastSquares(X, 9 * y[:, 0], target_bound=0.1, feature_norm=0.1, normaliser=2000)
    assert np.linalg.norm(np.asarray(f.features, np.float64), axis=0).max() <= 0.1
    assert np.abs(np.asarray(f.targets, np.float64)).max() <= 0.1


PADDED = ["least-squares", "logistic", "softmax", "clipped-softmax", "per-sample"]


@pytest.mark.parametrize("name", repeat(PADDED, SAMPLED))  # others: a mask of the same code
def test_padding_and_batching_change_nothing(name: str) -> None:
    agents = [sample(name, *records(n, rows=n), normaliser=9.0 + n) for n in repeat((3, 5), SIZES)]
    z, _ = points(agents[0], 0)
    padded = [f.pad(8) for f in agents]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *padded)

    def both(f: Objective) -> Any:
        return f.value(z), f.gradient(z)

    @jax.jit
    def every(alone: Any, padded: Any, stacked: Any) -> Any:  # one program
        return [both(f) for f in alone], [both(f) for f in padded], jax.vmap(both)(stacked)

    alone, with_padding, (values, gradients) = every(agents, padded, stacked)
    for i, (f, g) in enumerate(zip(agents, padded, strict=True)):
        assert f.sample_count == g.sample_count
        assert g.present.shape == (8,)
        (value, gradient), (other_value, other_gradient) = alone[i], with_padding[i]
        np.testing.assert_allclose(value, other_value, rtol=1e-14)
        np.testing.assert_allclose(gradient, other_gradient, rtol=1e-13, atol=1e-16)
        W = Box(-1.0, 1.0, f.dimension)
        assert f.sensitivity(2, W) == g.sensitivity(2, W)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(values[i], value, rtol=1e-12)
    with pytest.raises(InvalidInput, match=f"rows >= {len(agents[-1].present)}"):
        agents[-1].pad(2)
    assert residual().pad(99).sample_count == 0


@pytest.mark.parametrize("name", [*SAMPLED, "residual"])
def test_float32_stays_float32(name: str) -> None:
    def build(seed: int) -> Objective:
        X, y = (a.astype(np.float32) for a in records(seed))
        return Residual(X, y, 0.1) if name == "residual" else sample(name, X, y)

    f = build(0)
    z = points(f, 0)[0].astype(jnp.float32)
    stacked = jax.eval_shape(stack_of, f, build(1))
    calls: list[Callable[[Any, Any], Any]] = [lambda f, z: f.gradient(z), lambda f, z: f.value(z)]
    for call in calls:  # traced: nothing needs to be computed
        assert jax.eval_shape(call, f, z).dtype == jnp.float32
        assert jax.eval_shape(call, f, z.astype(jnp.float64)).dtype == jnp.float64
        assert jax.eval_shape(jax.vmap(call, (0, None)), stacked, z).dtype == jnp.float32


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_float32_data_are_never_copied_to_float64(name: str, dtype: Any) -> None:
    X, y = (a.astype(np.float32) for a in records(0, rows=77))
    f = sample(name, X, y, normaliser=77, neighbours="replace")
    stacked = jax.eval_shape(stack_of, f, f)
    gradient = jax.vmap(lambda f, z: f.gradient(z), (0, None))
    program = str(jax.make_jaxpr(gradient)(stacked, jnp.zeros(f.dimension, dtype)))
    assert f"f64[2,{FEATURES},77]" not in program
    assert f"f32[2,{FEATURES},77]" in program
    if hasattr(f, "labels"):
        assert f.labels.dtype.itemsize == 1


def test_records_are_bounded() -> None:
    X, y = records(0)
    assert sample("hinge", X, y).neighbours == "adding or removing one record"
    assert sample("hinge", X, y, neighbours="replace").neighbours == "replacing one record"
    assert sample("logistic", X, y).smoothness == pytest.approx(B**2 / 4)
    replace = sample("logistic", X, y, neighbours="replace")
    assert replace.smoothness == pytest.approx(B**2 / 4 * 8 / N)
    fewer = sample("logistic", X, y, record_bound=10)
    assert fewer.smoothness == pytest.approx(B**2 / 4 * 10 / N)
    share = sample("logistic", X, y, normaliser=4, record_bound=10)
    assert share.smoothness == pytest.approx(B**2 / 4 * 10 / 4)
    with pytest.raises(InvalidInput, match=r"at most 4 records .* got more. Give a public"):
        sample("logistic", X, y, normaliser=4)


X0, y0 = records(0)
NAN = X0.copy()
NAN[2, 1] = math.nan


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: sample("hinge", NAN, y0),
            r"finite numbers in features, not so at index \(2, 1\)",
        ),
        (lambda: sample("hinge", X0[0], y0), "features of shape"),
        (lambda: sample("hinge", X0, y0[1:]), "labels of shape"),
        (lambda: sample("quantile", X0, y0[1:]), "targets of shape"),
        (lambda: sample("huber", X0, y0 * math.inf), "finite numbers in targets"),
        (lambda: LogisticRegression(X0, range(8), feature_norm=B, normaliser=N), "0 and 1, or -1"),
        (lambda: Hinge(X0, y0, feature_norm=B, normaliser=N), "whole numbers as labels"),
        (lambda: SoftmaxRegression(X0, range(8), 7, feature_norm=B, normaliser=N), "0, ..., 6"),
        (lambda: SoftmaxRegression(X0, -y0 // 9, 7, feature_norm=B, normaliser=N), "0, ..., 6"),
        (lambda: SoftmaxRegression(X0, y0 > 0, 1, feature_norm=B, normaliser=N), "classes >= 2"),
        (lambda: sample("hinge", X0, y0, neighbours="swap"), "neighbours to be one of"),
        (lambda: sample("hinge", X0, y0, neighbours=("move", 1.0)), "neighbours to be one of"),
        (lambda: sample("huber", X0, y0, neighbours=("move", -1.0)), "finite move > 0"),
        (lambda: sample("huber", X0, y0, neighbours=("move",)), "neighbours to be one of"),
        (lambda: sample("hinge", X0, y0, normaliser=0), "normaliser > 0"),
        (lambda: sample("hinge", X0, y0, record_bound=math.nan), "record_bound > 0"),
        (lambda: sample("hinge", X0, y0, feature_norm=math.inf), "feature_norm > 0"),
        (lambda: sample("hinge", X0, y0, feature_norm_1=-1), "feature_norm_1 > 0"),
        (lambda: sample("hinge", X0, y0, ridge=-1), "ridge >= 0"),
        (lambda: Quantile(X0, y0, level=1.0, feature_norm=B, normaliser=N), "0 < level < 1"),
        (lambda: sample("hinge", X0, y0).sensitivity(3, BOX), "norm to be one of 1, 2"),
        (lambda: sample("per-sample", X0, y0).sensitivity(3, BOX), "norm to be one of 1, 2"),
        (lambda: sample("per-sample", X0, y0[1:]), "same number of records"),
        (lambda: sample("per-sample", X0, y0, clip_norm=3), "clip_norm to be one of"),
        (lambda: residual().sensitivity(0, BOX), "norm to be one of 1, 2"),
        (lambda: residual(moved=7), "moved <= 6"),
        (lambda: residual(noise_on="output"), "noise_on to be one of"),
        (lambda: residual(data_bound=1e-3), "data_bound=0.001, got more"),
        (lambda: Residual(np.eye(2), [0.0, math.nan], 1.0), "finite numbers in data"),
        (lambda: Residual(np.eye(2), np.zeros(3), 1.0), "data of shape"),
        (lambda: Residual(np.eye(2), np.zeros(2), 0.0), "beta > 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [1.0, -1.0]), "beta >= 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [0.0, 0.0]), "the largest beta > 0"),
        (lambda: Residual(np.eye(2), np.zeros(2), [1.0]), "beta of shape"),
        *(
            (lambda name=name: sample(name, X0, y0, clip=0.1), "no clip for")
            for name in ("least-squares", "huber", "hinge", "quantile")
        ),
        *(
            (lambda c=c: sample("softmax", X0, y0, clip=c), r"<= clip|clip >")
            for c in (0.0, math.nan, 1e-9)
        ),
        (lambda: sample("softmax", X0, y0, clip_form="both"), "clip_form to be one of"),
        (lambda: PublicQuadratic(np.ones((3, 2)), np.ones(2)), r"data of shape \(3\)"),
        (lambda: PublicQuadratic(np.ones((1, 1)), [math.nan]), "finite"),
        (lambda: sample("hinge", [[1j, 2.0]], [1.0]), "to hold numbers"),
        (lambda: sample("hinge", [["1", "2"]], [1.0]), "to hold numbers"),
        (
            lambda: sample("huber", np.float32(X0), y0, neighbours=("move", 0.1)),
            "float64 features where one target moves",
        ),
        # rounding turns a small move into a large one: no factor covers that
        (lambda: sample("huber", X0, y0, neighbours=("move", 0.1)).in_bfloat16(), "16 bits"),
        (
            lambda: LocalProblem(Residual(np.eye(2), np.zeros(2), 1.0, slack=True), Ball(0, 1, 2)),
            "a feasible set with 2 slacks",
        ),
        (lambda: Residual(np.eye(2), [1, 2**53 + 1], 1.0), "data that float64 holds exactly"),
        *(
            (lambda row=row: Counts([row], feature_norm=9.0, normaliser=1.0), "Expected")
            for row in ([0.5, 0.5], [1, 1], [2, 0], [-1, 0])
        ),
        *(
            (lambda units=units: sample("per-sample", X0, y0, units=units), "units")
            for units in ([1.0, 2.0], [1.0, 0.0, 2.0, 1.0], [1, math.nan, 1, 1], "abc", -np.ones(4))
        ),
        *(
            (lambda loss=loss: PerSample(loss, X0, clip=1.0, size=4, normaliser=8.0), words)
            for loss, words in (
                (lambda z, x: z * 1.0, "one floating"),
                (lambda z, x: (x[:3] @ z) ** 2, "failed"),
                (lambda z: z.sum(), "failed"),
                (lambda z, x: -z[0] if z[0] < 0 else z[0], "jnp.where"),
                (lambda z, x: 1, "floating-point"),
            )
        ),
    ],
)
def test_bad_input_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        build()
    assert "released" not in str(caught.value)  # an objective releases nothing
