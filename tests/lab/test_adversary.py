"""A hostile server finds no point where a record does more than Δ; with old faults it does."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from hostile_points import SETS, worst

from tacit.admm import algorithm
from tacit.lab.audit import adversary
from tacit.lab.audit.adversary import search
from tacit.objectives import objective as objectives
from tacit.objectives.losses import LogisticRegression
from tacit.privacy.mechanisms import Laplace
from tacit.pytree import register
from tacit.sets import Box, HalfSpace, Hyperplane, L1Ball, Simplex

SINGLE, DOUBLE = np.float32, np.float64
# every objective, set, format and relation; and whether the bound is called attained there
HUNTS = [
    ("least-squares", "ball", DOUBLE, "replace", True),
    ("logistic", "ball", SINGLE, "zero-out", True),
    ("hinge", "box", SINGLE, "zero-out", True),
    ("clipped-softmax", "ball", SINGLE, "replace", True),
    ("per-sample", "l1-ball", SINGLE, "add-remove", True),
    ("quantile", "simplex", DOUBLE, "replace", True),
    ("move", "product", DOUBLE, "zero-out", True),
    ("residual", "hyperplane", DOUBLE, "zero-out", True),
]
LIKE = [  # code of the others
    ("huber", "half-space", SINGLE, "add-remove", False),
    ("softmax", "box", SINGLE, "zero-out", True),
    ("limited-softmax", "box", SINGLE, "zero-out", True),
    ("in-units", "half-space", SINGLE, "add-remove", True),
]


@pytest.mark.parametrize(
    ("objective", "kind", "dtype", "relation", "attained"), HUNTS + repeat([], LIKE)
)
def test_no_point_breaks_the_bound(objective, kind, dtype, relation, attained):
    found = search(objective, kind, dtype, relation)
    assert found.sound, found
    assert found.points > 20
    if attained:
        assert found.ratio >= 0.9, found


@pytest.mark.parametrize(
    ("objective", "kind"), [("per-sample", "l1-ball"), ("quantile", "simplex")]
)
def test_no_steps_of_a_servers_break_the_bound(objective, kind):
    """Where steps adapt, it tells them."""
    found = search(objective, kind, DOUBLE, "replace", adaptive=True)
    assert found.sound and found.points > 20, found
    assert found.ratio >= 0.9, found


def test_no_point_breaks_the_bound_in_the_other_norm():
    for objective in ("hinge", "residual"):
        found = search(objective, "box", SINGLE, mechanism=Laplace)
        assert found.sound and found.ratio >= 0.9, found


def old_onto_simplex(v, c, total):
    """The projection of 0.1.0: v − μ loses its digits where v is far away."""
    order = jnp.sort(v)[::-1]
    excess = (jnp.cumsum(order) - total) / jnp.arange(1, len(v) + 1)
    count = jnp.sum(order - excess > 0)
    return jnp.maximum(v - excess[count - 1], 0)


def pushed_out(monkeypatch):
    class PushedOut(L1Ball):  # a new class has compiled programs of its own
        def project(self, point, weight=None):
            v = jnp.asarray(point)
            y = old_onto_simplex(jnp.abs(v), weight, jnp.asarray(self.extent))
            far = jnp.sum(jnp.abs(v)) > self.extent
            return jnp.where(far, jnp.sign(v) * y, v).astype(v.dtype)

    register(PushedOut)
    monkeypatch.setitem(adversary.SETS, "l1-ball", lambda n: PushedOut(1.5, n))


def test_control_a_projection_that_can_be_pushed_out_is_found(monkeypatch):
    pushed_out(monkeypatch)  # with the check that does not rest on it rounds fail
    assert search("least-squares", "l1-ball", DOUBLE, "add-remove").failures > 0
    pushed_out(monkeypatch)
    monkeypatch.setattr(algorithm, "admitted", lambda z, local: z)
    found = search("least-squares", "l1-ball", DOUBLE, "add-remove")
    assert found.ratio > 10 and found.violation > 1e6, found


class SingleSum(LogisticRegression):
    """The statistic of 0.1.0: one float32 sum, the ridge inside, one more cast."""

    arithmetic = property(lambda self: self.features.dtype)

    def statistic(self, z):
        slopes = self.slopes(self.scores(z)).astype(self.features.dtype)
        total = jnp.matmul(self.features, slopes.T, precision="highest")
        return (total.reshape(-1) / self.normaliser + self.ridge * z).astype(z.dtype)

    def _rounding(self, *_):
        return 0.0


register(SingleSum)


def test_control_a_float32_sum_is_found(monkeypatch):
    monkeypatch.setitem(adversary.RECORDS, "logistic", lambda x, y, **o: SingleSum(x, y > 0, **o))
    monkeypatch.setitem(adversary.SETS, "box", lambda n: Box(-100.0, 100.0, n))
    found = search("logistic", "box", SINGLE, "zero-out", crowd=40)
    assert found.ratio > 1.5, found


def test_control_a_long_row_is_found(monkeypatch):
    """Rows that are not shortened to their bound."""
    keep = objectives.store

    def store(target, **values):
        if "features" in values and hasattr(target, "feature_norm"):
            values["features"] = values["features"] * 1.2
        keep(target, **values)

    monkeypatch.setattr("tacit.objectives.linear_model.store", store)
    assert search("hinge", "box").ratio > 1.1


# --- projections ----------------------------------------------------------------------------


# what float32 adds is the rounding of the result, as in a simplex and a hyperplane
FORMATS = {"simplex": SINGLE, "hyperplane": SINGLE}


@pytest.mark.parametrize("name", SETS)
def test_projections_of_hostile_points_stay_in_the_set(name):
    """In float32 and float64 in ``make test-all``."""
    for dtype in repeat((FORMATS.get(name, DOUBLE),), (SINGLE, DOUBLE)):
        found = worst(SETS[name], np.random.default_rng(1), 2_000, dtype)
        units, longest, point, weight = found
        assert units <= 8 and longest <= 1, (point, weight)


@pytest.mark.parametrize("size", [1e52, 1e55, 1e58, 1e300])
def test_points_that_left_their_set_in_the_first_version(size):
    n = 5
    v = size * np.array([1.0, 1 + 2e-16, 1 - 1e-16, -1.0, 0.5])
    for W in (
        L1Ball(1.0, n),
        Simplex(n),
        HalfSpace(np.ones(n), 1.0, -3.0, 3.0),
        Hyperplane(np.ones(n), 1.0, -3.0, 3.0),
    ):
        z = W.project(v)
        assert float(W.violation(z)) <= 1e-14
        assert float(np.linalg.norm(z)) <= W.reach(2)
        np.testing.assert_allclose(W.project(np.full(n, size)), W.project(np.ones(n)), atol=1e-12)


# --- rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("norm_1", [None, 0.1])
@pytest.mark.parametrize("norm", [1e-20, 0.1, 7.3, 1e20])
def test_rows_never_exceed_their_norm(dtype, norm, norm_1):
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    low, high = math.log10(info.smallest_subnormal), math.log10(info.max) - 0.01
    with np.errstate(under="ignore"):
        sizes = 10.0 ** rng.uniform(low, high, (3000, 1))
        rows = (rng.uniform(-1, 1, (3000, 9)) * sizes).astype(dtype)
        rows[:1000] = rng.normal(size=(1000, 9)) * norm / 3  # near the bound
        rows[0] = info.max
    one = None if norm_1 is None else norm_1 * norm
    options = {"feature_norm": norm, "feature_norm_1": one, "normaliser": 1e4}
    for kind in ("zero-out", "add-remove"):
        f = LogisticRegression(rows, np.ones(3000), neighbours=kind, **options)
        stored = np.asarray(f.features, np.longdouble).T
        assert np.sqrt((stored**2).sum(axis=1)).max() <= norm
        if one is not None:
            assert np.abs(stored).sum(axis=1).max() <= one
        short = np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1)) <= norm
        if one is None:
            np.testing.assert_array_equal(np.asarray(f.features).T[short], rows[short])
        long_ones = stored[~short]
        assert np.sqrt((long_ones**2).sum(axis=1)).min() > 0.03 * norm  # and no row vanishes
