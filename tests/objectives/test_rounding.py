"""What the proofs about rounding rest on, and that runs which they do not cover say so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tacit
from tacit.admm.agent import Agent
from tacit.admm.algorithm import Round, local_update
from tacit.admm.local_side import local_side
from tacit.admm.messages import Broadcast
from tacit.admm.statement import privacy_statement
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.objectives.linear_model import BLOCK, ELEMENTARY
from tacit.objectives.rounding import DOUBLE, UNIT, cut_point, cut_rows, gamma
from tacit.sets.closed_forms import L1Ball

RECORDS, FEATURES = 1300, 23


def records(dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, FEATURES)) * 10.0 ** rng.uniform(-3, 1, (RECORDS, 1))
    return x.astype(dtype), rng.integers(0, 2, RECORDS)


LOSSES = {
    "least-squares": lambda x, y, **o: tacit.LeastSquares(x, 3.0 * y, target_bound=3.0, **o),
    "quantile": lambda x, y, **o: tacit.Quantile(x, 3.0 * y, level=0.3, **o),
    "logistic": lambda x, y, **o: tacit.LogisticRegression(x, y, **o),
    "hinge": lambda x, y, **o: tacit.Hinge(x, y, **o),
    "softmax": lambda x, y, **o: tacit.SoftmaxRegression(x, y, 4, **o),
}


def model(name, x, y, relation, **options):
    common = {"feature_norm": 2.0, "normaliser": 6000.0, "neighbours": relation, **options}
    return LOSSES[name](x, y, **common)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_other_records_are_the_same_bit_for_bit_where_they_stay_in_place(name, dtype):
    """The assumption of ``rounding.py``, and that only the block of a changed record changes."""
    x, y = records(dtype)
    other = x.copy()
    other[BLOCK + 7] = 0
    f, g = (model(name, rows, y, "zero-out") for rows in (x, other))
    z = jnp.asarray(np.random.default_rng(1).normal(size=f.dimension), dtype)
    slopes = [np.asarray(jax.jit(lambda h: h.slopes(h.scores(z)))(h)) for h in (f, g)]
    unchanged = np.arange(RECORDS) != BLOCK + 7
    np.testing.assert_array_equal(slopes[0][..., unchanged], slopes[1][..., unchanged])

    def block(h, k):
        piece = h._piece(k * BLOCK, BLOCK)
        return piece._sum_of(piece.slopes(piece.scores(z)))

    for k in (0, 1):
        sums = [np.asarray(jax.jit(block, static_argnums=1)(h, k)) for h in (f, g)]
        assert np.array_equal(*sums) == (k == 0)


@pytest.mark.parametrize("name", ["hinge", "quantile"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_at_kinks_are_exact_where_records_shift(name, dtype):
    from fractions import Fraction

    x, y = records(dtype)
    f = model(name, x, y, "add-remove")
    z = jnp.asarray(np.random.default_rng(1).normal(size=FEATURES) * 7, dtype)
    scores = np.asarray(jax.jit(lambda f, z: f.scores(z))(f, z))
    cut = np.asarray(cut_point(z))
    np.testing.assert_allclose(cut, z, atol=float(jnp.linalg.norm(z)) * 2.0**-23)
    stored = np.asarray(f.features).T
    for i in (0, 1, 499, 500, 777, RECORDS - 1):
        exact = sum(
            Fraction(float(a)) * Fraction(float(b)) for a, b in zip(stored[i], cut, strict=True)
        )
        assert Fraction(float(scores[i])) == exact
    shifted = np.asarray(
        jax.jit(lambda f, z: f.scores(z))(model(name, x[1:], y[1:], "add-remove"), z)
    )
    np.testing.assert_array_equal(scores[1:], shifted)


def test_gamma_bounds_sums_in_any_order():
    rng = np.random.default_rng(0)
    for unit, dtype in ((UNIT["float32"], np.float32), (DOUBLE, np.float64)):
        for _ in range(20):
            a, b = (rng.normal(size=3000).astype(dtype) for _ in range(2))
            exact = np.sum(a.astype(np.longdouble) * b.astype(np.longdouble))
            size = np.abs(a.astype(np.float64) * b).sum()
            for order in (np.arange(3000), rng.permutation(3000)):
                got = np.cumsum(a[order] * b[order], dtype=dtype)[-1]
                assert abs(float(np.longdouble(got) - exact)) <= gamma(3000, unit) * size
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


def test_the_ridge_is_public_and_no_part_of_the_statistic():
    x, y = records(np.float32)
    z = jnp.ones(FEATURES, jnp.float32) * 50
    f, g = (model("logistic", x, y, "zero-out", ridge=r) for r in (0.0, 10.0))
    np.testing.assert_array_equal(f.statistic(z), g.statistic(z))
    assert f.statistic(z).dtype == jnp.float64
    np.testing.assert_allclose(g.gradient(z) - f.gradient(z), 10 * z, rtol=1e-5)


# --- runs that are not covered ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_is_reached(dtype):
    """1 + u + u + ... stays 1, as every tie is rounded to even: no smaller bound would do."""
    unit, n = UNIT[np.dtype(dtype).name], 1000
    total = dtype(1)
    for _ in range(n):
        total = total + dtype(unit)
    error = (1 - float(total)) + n * unit
    assert 0.99 * gamma(n, unit) <= error <= gamma(n, unit)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cut_rows_never_get_longer(dtype):
    """Cut towards zero, to multiples of a grid, by less than one of its steps."""
    rows = (np.random.default_rng(0).normal(size=(50, 9)) / 3).astype(dtype)
    grid = 2.0 ** (2 - 26)  # g_x for a norm between 2 and 4
    cut = cut_rows(rows, 3.0)
    assert cut.dtype == dtype and (np.abs(cut) <= np.abs(rows)).all()
    np.testing.assert_array_equal(cut / grid, np.round(cut / grid))
    assert np.abs(rows - cut).max() < grid


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sensitivities_have_room_for_the_rounding_of_a_block(dtype):
    """NΔ ≥ SB + 2γ_K·K·SB for records that stay in place, K = 500 (hinge: S = 1, scores exact)."""
    x, y = records(dtype)
    f = model("hinge", x, y, "zero-out")
    unit = {np.float32: 2.0**-24, np.float64: 2.0**-53}[dtype]
    block = 2 * 500 * unit / (1 - 500 * unit) * 500 * 2.0
    found = 6000 * f.sensitivity(2, tacit.Box(-1.0, 1.0, FEATURES)) - 2.0
    assert block <= found <= block * 1.1 + 1e-9


def problem(dtype=np.float64, sixteen=False, W=None, **options):
    x, y = records(dtype)
    f = model("logistic", x[:40], y[:40], "zero-out", **options)
    f = f.in_bfloat16() if sixteen else f
    return tacit.LocalProblem(f, W or tacit.Box(-1.0, 1.0, FEATURES), name="a")


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_sixteen_bits_are_not_certified(noise, tmp_path):
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2)
    result = tacit.solve([problem(np.float32, sixteen=True)], settings, noise=noise)
    assert not result.privacy.certified
    assert "16 bits" in result.privacy.words and "Not certified" in result.privacy.words
    assert tacit.solve([problem(np.float32)], settings, noise=noise).privacy.certified
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    with pytest.raises(Refused, match="only for what is proven"):
        tacit.solve([problem(np.float32, sixteen=True)], settings, ledgers={"a": ledger})
    assert ledger.spent.epsilon == 0


def test_one_agent_of_sixteen_bits_is_enough():
    """A statement is about every agent: certified only if all are."""
    x, y = records(np.float32)
    exact = model("logistic", x[:40], y[:40], "zero-out")
    box = tacit.Box(-1.0, 1.0, FEATURES)
    parts = [tacit.LocalProblem(f, box) for f in (exact, exact.in_bfloat16())]
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2)
    for order in (parts, parts[::-1]):
        assert not privacy_statement(tacit.Problem(order), settings, seeded=False).certified
    assert privacy_statement(tacit.Problem(parts[:1]), settings, seeded=False).certified


def test_numbers_of_32_bits_only_are_noticed():
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2, penalty=1.0, step_size=0.1)
    part = problem()
    agent = Agent(part, "a", settings, jax.random.key(0), "run", FEATURES)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            agent.respond(Broadcast("run", 1, np.zeros(FEATURES)))
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            tacit.solve([part], settings, seed=0)
    finally:
        jax.config.update("jax_enable_x64", True)
    assert agent.rounds_done == 0


# --- batched runs are checked as single agents are -------------------------------------------


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize(
    ("dtype", "penalty", "step"),
    [(np.float32, 1e-50, 1.0), (np.float32, 1e30, 1.0), (np.float32, 1.0, 1e-40)],
)
def test_penalties_and_steps_that_the_format_cannot_hold_are_refused(dtype, penalty, step, batch):
    settings = tacit.Settings(2, 1, tacit.Gaussian(1.0), penalty=penalty, step_size=step)
    with pytest.raises(InvalidInput, match="penalties and step sizes that float32 can hold"):
        tacit.solve([problem(dtype)], settings, seed=0, batch=batch)


@pytest.mark.parametrize("batch", [True, False])
def test_a_point_outside_of_the_set_ends_a_run_without_a_result(monkeypatch, batch):
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)
    part = problem(W=L1Ball(1.0, FEATURES))
    ordinary = L1Ball.project

    def beyond(self, point, weight=None):  # right at the start, wrong afterwards
        z = ordinary(self, point, weight)
        return z if weight is None else z + 1.5

    monkeypatch.setattr(L1Ball, "project", beyond)
    jax.clear_caches()
    seen = []
    with pytest.raises(SolverFailure, match=r"'a', round.* outside of the set\. Nothing of"):
        tacit.solve([part], settings, seed=0, batch=batch, callback=seen.append)
    jax.clear_caches()
    assert not seen


def test_an_agent_does_not_go_on_from_a_point_outside_of_its_set():
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)
    agent = Agent(problem(), "a", settings, jax.random.key(0), "run", FEATURES)
    inside, outside = np.zeros(FEATURES), np.full(FEATURES, 1.0 + 1e-9)
    for point, average in ((outside, inside), (inside, outside)):
        with pytest.raises(InvalidInput, match="within the feasible set"):
            agent.restore(point, average, inside, 1)
    assert agent.rounds_done == 0
    agent.restore(inside, inside, inside, 1)
    assert agent.rounds_done == 1


def test_no_gradient_is_taken_outside_of_the_set():
    """Whatever the projection did before: compiled code gives NaN, the host an error."""
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)
    zero = np.zeros(FEATURES)
    now = Round(1, zero, zero, 1.0, 0.1)
    box = problem()
    solved = problem(W=tacit.Polyhedron(lower=zero - 1, upper=zero + 1))
    sides = [local_side(p, settings, jax.random.key(0), zero.dtype) for p in (box, solved)]
    rule = settings.rule(True)
    assert np.isfinite(local_update(jnp.asarray(zero), 0, now, sides[0], rule)[0]).all()
    assert np.isnan(local_update(jnp.asarray(zero + 1 + 1e-9), 0, now, sides[0], rule)[0]).all()
    assert np.isfinite(local_update(zero, 0, now, sides[1], rule)[0]).all()
    with pytest.raises(SolverFailure, match="outside of the feasible set"):
        local_update(zero + 1.001, 0, now, sides[1], rule)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_average_of_many_points_stays_in_the_set(dtype):
    """A thousand points at a corner: their float32 sum would leave the set by its rounding."""
    x, y = records(dtype)
    W = tacit.Simplex(FEATURES, 1.0)
    f = model("logistic", x[:5], y[:5], "zero-out")
    settings = tacit.Settings(1, 1000, tacit.Gaussian(1e-3), penalty=1.0, step_size=0.1)
    result = tacit.solve([tacit.LocalProblem(f, W)], settings, seed=0)
    assert result.trace["violation"][-1] <= W.tolerance(dtype)


# --- counterexamples of a hostile review ------------------------------------------------------


def test_who_is_stacked_does_not_depend_on_private_numbers_of_records():
    """A program that depends on them changes the rounding of other agents' messages."""
    from tacit.engines.stacking import buckets_of

    def loss(z, record):
        return jnp.sum(jnp.maximum(record[0] * z - record[1], 0))

    def agents(relation, *sizes):
        rng = np.random.default_rng(0)
        models = [
            model("logistic", rng.normal(size=(n, 3)), np.ones(n), relation) for n in sizes
        ] + [
            tacit.PerSample(
                loss,
                rng.normal(size=(n, 2)),
                clip=1.0,
                size=3,
                normaliser=6000.0,
                neighbours=relation,
            )
            for n in sizes
        ]
        return [tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 3)) for f in models]

    for sizes in ((1000, 800), (1001, 800), (801, 800)):
        assert buckets_of(agents("add-remove", *sizes)) == [[0], [1], [2], [3]]
    assert buckets_of(agents("zero-out", 801, 800)) == [[0, 1], [2, 3]]  # these are public


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


def test_the_scale_of_float32_noise_is_never_less_than_certified():
    from tacit.admm.local_side import certified_sensitivity, local_side

    rng = np.random.default_rng(0)
    for _ in range(200):
        multiplier, norm = 10.0 ** rng.uniform(-2, 3), 10.0 ** rng.uniform(-3, 3)
        part = problem(np.float32, feature_norm=norm)
        settings = tacit.Settings(1, 1, tacit.Gaussian(multiplier), penalty=1.0, step_size=0.1)
        side = local_side(part, settings, jax.random.key(0), part.dtype)
        scale = np.float32(multiplier) * side.Δ
        assert float(scale) >= multiplier * certified_sensitivity(part, settings) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("dtype", "norm", "bound"), [(np.float32, 1e10, 1e30), (np.float32, 1e19, 1.0)]
)
def test_bounds_that_overflow_are_refused(dtype, norm, bound):
    """A sum that overflows with a record and not without it shows the record."""
    f = tacit.LeastSquares(
        np.ones((3, 2), dtype), np.ones(3), target_bound=1.0, feature_norm=norm, normaliser=60.0
    )
    g = tacit.LeastSquares(
        np.ones((3, 2), dtype),
        np.ones(3),
        target_bound=1.0,
        feature_norm=norm,
        normaliser=60.0,
        neighbours="zero-out",
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


def test_data_that_float64_cannot_hold_are_refused():
    for data in (np.array([2**62 + 512, 2**62 + 513]), np.array([1, 2**53 + 1])):
        with pytest.raises(InvalidInput, match="data that float64 holds exactly"):
            tacit.Residual(np.eye(2), data, 1.0)
    assert tacit.Residual(np.eye(2), np.array([1, 2]), 1.0).data.dtype == np.float64


def test_tiny_points_are_cut_too():
    for size in (1e-300, 1e-150, 1.0, 1e150):
        z = np.array([1.0, 1 / 3, -0.1]) * size
        cut = np.asarray(cut_point(z))
        assert cut[1] != z[1] or size == 1e-300
        np.testing.assert_allclose(cut, z, atol=size * 1e-6)


def test_leading_digits_of_wide_laws_reach_as_far_as_the_law():
    from decimal import Decimal

    from tacit.privacy import discrete

    for scale in (2**29, 2**30 + 7, 2**33):
        law = discrete.gaussian(Decimal(scale) ** 2)
        reach = sum(-table.first * law.radix**k for k, table in enumerate(law.tables))
        top = -law.tables[-1].first * law.radix ** (len(law.tables) - 1)
        assert top >= 13.4 * scale and reach >= 13.5 * scale


def test_no_records_are_records_too():
    f = tacit.PerSample(
        lambda z, x: (x @ z) ** 2, np.ones((0, 2)), clip=1.0, size=2, normaliser=10.0
    )
    np.testing.assert_array_equal(f.statistic(jnp.ones(2)), np.zeros(2))
