"""The audit: correct code passes, broken code is caught, the paper's claims are refuted."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat

from tacit.admm import algorithm
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.lab.audit import (
    audit,
    lower_bounds,
    paper_claim,
    record_worlds,
    zone_worlds,
)
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.lab.audit.trials import local_points
from tacit.learn.data import Dataset
from tacit.objectives.losses import LeastSquares, SoftmaxRegression
from tacit.privacy.accounting import exact, paper
from tacit.privacy.mechanisms import Laplace, per_update
from tacit.sets.closed_form import Box

DELTA = 1e-5


def small_worlds(records=30):
    """The worlds of the applications, on made-up records of four numbers and three classes."""
    rng = np.random.default_rng(0)
    features = rng.uniform(0.05, 1, (records, 1)) * rng.normal(size=(records, 4))
    data = Dataset(features, rng.integers(0, 3, records), ("a", "b", "c"))
    return record_worlds(data, "small")


def moved_worlds(normaliser):
    """One target moves: the gradient then moves by the whole sensitivity wherever z is."""
    x, common = np.array([[1.0, 0.0]]), {"feature_norm": 1.0, "feature_norm_1": 1.0}
    worlds = [
        LocalProblem(
            LeastSquares(
                x,
                [target],
                normaliser=normaliser,
                target_bound=2.0,
                neighbours=("move", 1.0),
                **common,
            ),
            Box(-1e6, 1e6, size=2),
        )
        for target in (0.0, 1.0)
    ]
    return Worlds("moved", "a target moves", *worlds, lambda noise, updates: (1.0, 0.01))


# At 4 few trials tell much: each of the faults below is caught with seeds 0 to 4.
EPSILON, TRIALS = repeat((4, 1_000), (1, 20_000))
MANY = repeat(6_000, TRIALS)


def run(settings=None, trials=TRIALS, seed=0, worlds=None, **options):
    settings = settings or Settings.for_budget(EPSILON, DELTA, 3, 2)
    return audit(worlds or small_worlds(), settings, trials=trials, seed=seed, **options)


# --- correct code ---------------------------------------------------------------------------


def test_correct_code_is_consistent_and_the_bound_is_near():
    about = Settings.for_budget(2.0, DELTA, 3, 2), MANY
    found, again, other = (run(*about, seed=seed) for seed in (0, 0, 1))
    assert again.to_dict() == found.to_dict() and other.white != found.white
    assert not found.violated and found.verdict == "consistent with the claim"
    assert 0.999 * 2.0 < found.claim.epsilon <= 2.0
    assert found.white.curve <= 2.0 and found.white.free <= 2.0
    assert found.white.curve >= 0.6 * 2.0 and found.black.curve >= 0.3 * 2.0
    assert found.white.free >= 0.25 * 2.0


@cache
def zone():
    return zone_worlds("case14")


# ``share`` of the claim is what the curve shows at least. Plain output noise leaves the box, so its
# sensitivity is that of all points. Laplace noise hides a change of several entries, one for each
# class, better than one of the same norm.
@pytest.mark.parametrize(
    ("worlds", "budget", "perturbation", "trials", "share"),
    [
        (small_worlds, (4.0, DELTA, 2, 2), "output", 3_000, 0.3),
        (small_worlds, (4.0, DELTA, 2, 2, "laplace"), "projected-output", 3_000, 0.45),
        (zone, (10.0, DELTA, 1, 1), "objective", 200, 0.5),
    ],
)
def test_every_kind_of_noise_is_consistent_and_seen(worlds, budget, perturbation, trials, share):
    settings = Settings.for_budget(*budget, perturbation=perturbation)
    found = run(settings, trials, worlds=worlds())
    assert not found.violated and found.refutable and found.white.curve >= share * budget[0]
    if worlds is zone:  # through its solver
        assert found.black.curve > 0.4 * budget[0]


def test_one_laplace_update_needs_no_curve():
    """Its worst case is in the middle of the law, where the distribution-free bound is sharp."""
    found = run(Settings(1, 1, Laplace(1.0), 0.0), MANY, worlds=moved_worlds(1.0))
    assert not found.violated and found.refutable and found.claim.delta == 0
    assert found.white.free > 0.85


def test_a_round_is_watched_update_by_update():
    """The points that the adversary is given are those of the updates, one after another."""
    worlds = small_worlds()
    E = repeat(3, 4)
    settings = worlds.scheduled(Settings.for_budget(1.0, DELTA, 2, E))
    problem = worlds.with_canary
    local = algorithm.local_side(problem, settings, jax.random.key(3), problem.dtype)
    rule = settings.rule(True)
    (ρ,), (η,) = settings.schedule(1, 1)
    z = np.zeros(problem.dimension)
    now = algorithm.Round(1, z, z, ρ, η)
    path = [z]
    update, points = (
        jax.jit(f, static_argnames="rule") for f in (algorithm.local_update, local_points)
    )
    for e in range(E):
        path.append(update(path[-1], e, now, local, rule=rule)[0])
    last, average, seen = points(z, now, local, rule=rule)
    np.testing.assert_allclose(seen, path, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(average, np.mean(path[1:], axis=0), rtol=1e-9)
    np.testing.assert_array_equal(last, seen[-1])


# --- broken code ----------------------------------------------------------------------------


def noise_halved(patch):
    right = algorithm.draw
    patch.setattr(algorithm, "draw", lambda *given: right(*given) / 2)


def sensitivity_from_own_data(patch):
    def own(problem, settings):
        f = problem.objective
        return float(f.paper_sensitivity(jnp.zeros(f.dimension), settings.mechanism.norm))

    patch.setattr(algorithm, "certified_sensitivity", own)


def update_without_noise(patch):
    right = algorithm.draw

    def draw(z, c, e, now, local, rule):
        return right(z, c, e, now, local, rule) * ((e != 1) | (now.t != 2))

    patch.setattr(algorithm, "draw", draw)


def key_reused_across_rounds(patch):
    def sample(key, t, e, size, Δ, dtype, mechanism):
        return mechanism.sample(jax.random.fold_in(key, e), (size,), Δ, dtype)

    patch.setattr(algorithm, "_sample", sample)


MUTANTS = {
    noise_halved: "likelihood",
    sensitivity_from_own_data: "magnitude",
    update_without_noise: "single update",
    key_reused_across_rounds: "repetition",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_broken_code_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    found = run()
    assert found.violated
    assert found.verdict.startswith("VIOLATED: epsilon is at least")
    assert f"and not {EPSILON}, at 99 % confidence (white box" in found.verdict
    assert found.white.curve_rates.attack == MUTANTS[mutant]
    assert found.confidence == 0.99


# --- the paper's claims ---------------------------------------------------------------------


def test_the_papers_composition_is_refuted():
    """13.8 is claimed for 200 updates of (1, 0.01) each; the certified sensitivity is right."""
    settings = Settings(100, 2, per_update("gaussian", 1.0, 0.01, "paper"), 0.01)
    claim = paper(1.0, 0.01, settings.updates)
    assert 13.8 <= claim.epsilon < 13.9
    found = run(settings, repeat(1_000, 3_000), worlds=moved_worlds(1.0), claim=claim)
    assert found.violated
    assert 16 < found.white.curve < exact(settings.mechanism, settings.updates, 0.01).epsilon


def test_paper_claim_is_what_the_paper_would_say():
    settings, claim = paper_claim(3.0, DELTA, 5, 2)
    one = math.sqrt(2 * math.log(1.25 / DELTA)) / settings.mechanism.noise_multiplier
    assert paper(one, DELTA, 10).epsilon == pytest.approx(3.0) and claim.epsilon == 3.0
    assert settings.calibration == "paper"
    settings, claim = paper_claim(3.0, DELTA, 5, 2, "laplace")
    assert settings.mechanism.noise_multiplier == pytest.approx(10 / 3) and claim.delta == 0


def test_a_zone_with_half_the_noise_is_caught(monkeypatch):
    noise_halved(monkeypatch)
    epsilon, trials = repeat((8.0, 150), (4.0, 1_000))
    assert run(Settings.for_budget(epsilon, DELTA, 1), trials, worlds=zone()).violated


def with_other_neighbours(problem):
    """The same records, of which one is replaced instead of left out."""
    f = problem.objective
    again = SoftmaxRegression(
        np.asarray(f.features).T,
        np.asarray(f.labels),
        f.classes,
        feature_norm=1.0,
        normaliser=f.normaliser,
        neighbours="replace",
    )
    return LocalProblem(again, problem.feasible_set)


def test_worlds_must_be_neighbours():
    a, b = small_worlds(30), small_worlds(31)
    with pytest.raises(InvalidInput, match="differ in the agent's data only"):
        Worlds("x", "x", a.without, moved_worlds(1.0).without, a.schedules)
    with pytest.raises(InvalidInput, match="differ in the agent's data only"):
        Worlds("x", "x", a.without, with_other_neighbours(a.without), a.schedules)
    with pytest.raises(InvalidInput, match="at least 4 records"):
        small_worlds(3)
    with pytest.raises(InvalidInput, match="a budget alone: give rounds"):
        audit(a, Settings.for_budget(1.0, 1e-5))
    with pytest.raises(InvalidInput, match="mechanism with noise"):
        run(Settings(1))
    assert a.without.objective.normaliser != b.without.objective.normaliser


def test_the_two_forms_share_the_risk(monkeypatch):
    """Four bounds that hold together at 90 %: two at 95 % in each form."""
    asked, noise = [], np.random.default_rng(0).normal(size=(2, 8, 500))

    def spy(*arguments):
        asked.append(arguments[-1])
        return lower_bounds(*arguments)

    monkeypatch.setattr("tacit.lab.audit.bounds.lower_bounds", spy)
    monkeypatch.setattr("tacit.lab.audit.trials.run_trials", lambda *given: noise)
    found = run(trials=500, confidence=0.9)
    assert asked == pytest.approx([0.95, 0.95]) and found.confidence == 0.9
