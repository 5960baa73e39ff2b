"""Features by records, as a GPU has them, computed on a CPU: the same sums, the same proofs."""

import jax
import numpy as np
import pytest
from conftest import repeat
from rounded_models import LOSSES, model, records

import tacit
from tacit.objectives import linear_model
from tacit.objectives.linear_model import BLOCK
from tacit.transports import batched

KINDS = [(name, {}) for name in LOSSES] + [
    ("logistic", {"clip": 0.1}),
    ("softmax", {"clip": 0.15}),
    ("softmax", {"clip": 0.15, "clip_form": "norm"}),
]
FORMATS, RELATIONS = (np.float32, np.float64), ("zero-out", "add-remove")
CASES = [(*kind, dtype, way) for kind in KINDS for dtype in FORMATS for way in RELATIONS]
# no kink, a kink, many outputs, a limit; each format and relation twice
FEW = [CASES[1], CASES[14], CASES[16], CASES[31]]
STATISTIC = jax.jit(lambda f, z: f.statistic(z))


@pytest.fixture
def elsewhere(monkeypatch):
    """As if the device were a GPU."""
    monkeypatch.setattr(linear_model, "on_cpu", lambda: False)


def point(f, dtype, seed=1):
    return np.random.default_rng(seed).normal(size=f.dimension).astype(dtype)


@pytest.mark.parametrize(("name", "options", "dtype", "relation"), repeat(FEW, CASES))
def test_both_layouts_give_the_same_sums(name, options, dtype, relation, elsewhere):
    x, y = records(dtype)
    f = model(name, x, y, relation, **options)
    turned = f.for_device()
    assert turned.for_device() is turned
    assert turned.features.dtype == f.arithmetic == turned.arithmetic
    assert turned.features.shape[1] <= BLOCK
    z = point(f, dtype)
    exact = np.asarray(STATISTIC(f, z.astype(np.float64)))
    unit = np.finfo(f.arithmetic).eps
    for each in (f, turned):
        found = np.asarray(STATISTIC(each, z))
        assert found.dtype == np.float64
        assert np.abs(found - exact).max() <= 30 * unit * np.abs(exact).max()
    np.testing.assert_allclose(turned.value(z), f.value(z), rtol=30 * unit)
    for bound in ("dimension", "sample_count", "smoothness"):
        assert getattr(turned, bound) == getattr(f, bound)
    W = tacit.Ball(0.0, 2.0, f.dimension)
    for norm in (1, 2):
        assert turned.sensitivity(norm, W) == f.sensitivity(norm, W)


@pytest.mark.parametrize("number", [0, BLOCK + 1])
def test_any_number_of_records_is_cut_into_blocks(number, elsewhere):
    x, y = records(np.float64)
    f = model("softmax", x[:number], y[:number], "replace", record_bound=2000.0)
    turned = f.for_device()
    blocks, size, _ = turned.features.shape
    assert size <= BLOCK and number <= blocks * size < number + blocks
    z = point(f, np.float64)
    np.testing.assert_allclose(f.statistic(z), turned.statistic(z), atol=1e-15)


def test_sixteen_bits_stay_as_they_are(elsewhere):
    f = model("softmax", *records(np.float32), "zero-out").in_bfloat16()
    assert f.for_device() is f


@pytest.mark.parametrize(("batch", "relation"), [(True, "add-remove"), (False, "zero-out")])
def test_runs_have_the_same_results(batch, relation, elsewhere, monkeypatch):
    """Agents of different sizes in one stack, and agents one by one; several runs at once."""
    parts = agents(relation, (520, 519))
    settings = tacit.Settings(3, 2, tacit.Gaussian(1e-3), penalty=1.0, step_size=0.1)

    def solution():
        batched._stacked.clear_cache()  # it was compiled for another device
        return tacit.solve(parts, settings, seed=1, batch=batch).solution

    found = solution()
    monkeypatch.setattr(linear_model, "on_cpu", lambda: True)
    np.testing.assert_allclose(found, solution(), rtol=1e-12, atol=1e-14)


def agents(relation, sizes, **public):
    x, y = records(np.float64)
    models = [model("softmax", x[:n, :7], y[:n], relation, **public) for n in sizes]
    return [tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, f.dimension)) for f in models]


@pytest.mark.parametrize("sizes", [(1000, 800), (1001, 800), (801, 800)])
def test_who_is_stacked_does_not_depend_on_private_numbers_of_records(sizes):
    """A program that depends on them changes the rounding of other agents' messages."""
    assert batched.buckets_of(agents("add-remove", sizes)) == [[0], [1]]
    assert batched.buckets_of(agents("zero-out", (801, 800))) == [[0, 1]]  # these are public
    data = np.zeros((sizes[0], 2)), np.zeros((sizes[1], 2))
    common = {"clip": 1.0, "size": 2, "normaliser": 6000.0}
    f, g = (tacit.PerSample(lambda z, x: (z @ x) ** 2, d, **common) for d in data)
    box = tacit.Box(-1.0, 1.0, 2)
    assert batched.buckets_of([tacit.LocalProblem(h, box) for h in (f, g)]) == [[0], [1]]


@pytest.mark.parametrize(
    ("bound", "stacks"), [(1040.0, [[0, 1]]), (2600.0, [[0, 1]]), (2601.0, [[0], [1]])]
)
def test_public_bounds_decide_who_is_stacked_where_records_shift(bound, stacks, elsewhere):
    """And how long the stack is: a program must not tell how many records an agent has."""
    lengths = set()
    for sizes in ((520, 780), (1040, 3)):
        parts = agents("add-remove", sizes, normaliser=2600.0, record_bound=bound)
        assert batched.buckets_of(parts) == stacks
        if stacks == [[0, 1]]:
            settings = tacit.Settings(3, 2, tacit.Gaussian(1e-3), penalty=1.0, step_size=0.1)
            named = list(enumerate(parts))
            bucket = batched.stack(named, settings, jax.random.key(0), "run", np.dtype(np.float64))
            lengths.add(bucket.local.f.features.shape)
    assert len(lengths) <= 1
