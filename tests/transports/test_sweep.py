"""Many configurations at once give what each gives alone."""

import dataclasses

import jax
import numpy as np
import pytest
from conftest import objective_of, repeat, set_of

import tacit
from tacit.errors import InvalidInput

SIZES = repeat((12, 30), (12, 12, 9, 30))  # records of the agents


def problem_of(rng, sizes=SIZES, feasible="box"):
    agents = []
    for records in sizes:
        f = objective_of("softmax", rng, records, normaliser=36)
        agents.append(tacit.LocalProblem(f, set_of(feasible, f.dimension)))
    return agents


EVERY = [
    (name, perturbation)
    for name in ("gaussian", "laplace")
    for perturbation in ("objective", "output", "projected-output")
]
SOME = [("laplace", "output")]


@pytest.mark.parametrize(("name", "perturbation"), repeat(SOME, EVERY))
def test_configurations_are_the_single_runs(rng, name, perturbation):
    """Different noise, schedules and seeds, ragged agents: the same numbers as one by one."""
    agents = problem_of(rng, SIZES, "ball" if perturbation == "projected-output" else "box")
    weighted = tacit.StronglyConvexStep(4.0)  # its mean is another
    chosen = [
        tacit.Settings.for_budget(
            ε, 1e-5, repeat(6, 7), 2, name, perturbation=perturbation, penalty=ρ, step_size=step
        )
        for ε, ρ, step in ((1.0, 0.5, 0.6), (5.0, 0.5, 0.6), (20.0, 2.0, weighted))
    ]
    seeds = [3, 3, 8]
    seen = []
    together = tacit.solve_many(
        agents,
        chosen,
        seeds,
        evaluate_every=3,
        callback=lambda t, w, rows: seen.append((t, w.copy(), rows)),
    )
    assert [t for t, _, _ in seen] == repeat([3, 6], [3, 6, 7])
    assert all(rows.shape == (3, 5) and (rows[:, 0] == t).all() for t, _, rows in seen)
    for one, last in zip(together, seen[-1][1], strict=True):
        np.testing.assert_allclose(last, one.solution, rtol=1e-12)
    for settings, seed, one in zip(chosen, seeds, together, strict=True):
        alone = tacit.solve(agents, settings, seed=seed, evaluate_every=3)
        np.testing.assert_allclose(one.solution, alone.solution, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.ergodic, alone.ergodic, rtol=1e-9, atol=1e-12)
        for column, values in alone.trace.items():
            np.testing.assert_allclose(one.trace[column], values, rtol=1e-8, atol=1e-12)
        assert one.privacy == alone.privacy and one.settings == alone.settings
    assert not np.allclose(together[0].solution, together[1].solution)


@jax.jit  # many small programs otherwise
def gradient(f, z):
    return f.gradient(z)


@pytest.mark.parametrize("kind", ["softmax", "logistic", "least-squares"])
def test_sixteen_bits_are_near_and_covered(rng, kind):
    """The gradient in bfloat16 is near, and its sensitivity is above the one of full precision."""
    f = objective_of(kind, rng, records=400)
    rough = f.in_bfloat16()
    z = rng.uniform(-0.4, 0.4, f.dimension)
    exact, got = np.asarray(gradient(f, z)), np.asarray(gradient(rough, z))
    assert rough.features.dtype == "bfloat16" and f.features.dtype != "bfloat16"
    assert 0 < np.abs(got - exact).max() < 0.01 * np.abs(exact).max() + 1e-4
    W = set_of("ball", f.dimension)
    for norm in (1, 2):
        assert 1.0 < rough.sensitivity(norm, W) / f.sensitivity(norm, W) < 1.04


def test_one_record_moves_a_rounded_gradient_by_no_more_than_the_bound(rng):
    """Records of largest norm with large slopes, all roundings included."""
    W = tacit.Box(-2.0, 2.0, size=15)
    for _ in range(50):
        x = rng.choice([-1.0, 1.0], size=(1, 5)) * rng.uniform(0.3, 1, 5)
        x /= np.linalg.norm(x)
        f = tacit.SoftmaxRegression(x, [0], 3, feature_norm=1.0, normaliser=1).in_bfloat16()
        z = np.outer(np.sign(x[0]), [-2.0, 2.0, -2.0 * rng.random()]).ravel()
        for norm in (1, 2):
            moved = np.linalg.norm(np.asarray(gradient(f, z)), norm)
            assert moved <= f.sensitivity(norm, W)


@pytest.mark.parametrize(
    "other",
    [
        *({"rounds": 6}, {"local_updates": 2}, {"mechanism": tacit.Laplace(2.0)}),
        *({"perturbation": "output"}, {"calibration": "paper"}),
    ],
    ids=str,
)
def test_what_configurations_cannot_share(rng, other):
    """The others would run as the first one does, under a statement of their own."""
    one = tacit.Settings(5, 1, tacit.Gaussian(2.0))
    for pair in (
        [one, dataclasses.replace(one, **other)],
        [dataclasses.replace(one, **other), one],
    ):
        with pytest.raises(InvalidInput, match="differ in noise multiplier and schedules only"):
            tacit.solve_many(problem_of(rng), pair, [0, 1])


def test_whose_seed_is_whose(rng, tmp_path):
    """NumPy's whole numbers are seeds too, and results with them are saved."""
    agents, one = problem_of(rng), tacit.Settings(2, 1, tacit.Gaussian(2.0))
    found = tacit.solve_many(agents, [one] * 3, [*np.arange(3, 5), None])
    for i, seed in enumerate((3, 4, None)):
        assert tacit.Result.load(found[i].save(tmp_path / f"{i}")).seed == seed
    for wrong in (True, 1.0, -1):
        with pytest.raises(InvalidInput, match="seed"):
            tacit.solve_many(agents, [one], [wrong])
    with pytest.raises(InvalidInput, match="one seed for each"):
        tacit.solve_many(agents, [one], [0, 1])
    with pytest.raises(InvalidInput, match="evaluate_every"):
        tacit.solve_many(agents, [one], [0], evaluate_every=0)
