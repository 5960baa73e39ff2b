"""The audit: its bounds keep their confidence, correct code passes, broken code is caught."""

import json
import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit.admm import algorithm, local_side
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.audit import (
    Audit,
    audit,
    curve_epsilon,
    free_epsilon,
    lower_bounds,
    paper_claim,
    record_worlds,
    upper_bound,
    zone_worlds,
)
from tacit.audit.bounds import Bounds, Rates
from tacit.audit.neighbouring_data import Worlds
from tacit.audit.trials import _local_points
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.learn.data import Dataset
from tacit.objectives.losses import LeastSquares, SoftmaxRegression
from tacit.objectives.residual import Residual
from tacit.privacy.accounting import Guarantee, exact, gaussian_epsilon, paper
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless, per_update
from tacit.sets.boxes import Box

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


def residual_worlds():
    """A datum of ‖Az + d‖² moves, in a box: the noise goes on the residual."""
    A = np.random.default_rng(0).normal(size=(2, 4))
    worlds = [
        LocalProblem(Residual(A, [0.1 + moved, 0.2], 0.01), Box(-1, 1, size=4))
        for moved in (0.0, 0.01)
    ]
    return Worlds("residual", "a datum moves", *worlds, lambda noise, updates: (1.0, 0.01))


def run(settings=None, trials=20_000, seed=0, worlds=None, **options):
    settings = settings or Settings.for_budget(1.0, DELTA, 3, 2)
    return audit(worlds or small_worlds(), settings, trials=trials, seed=seed, **options)


# --- bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 7, 200])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.97])
def test_clopper_pearson_covers_every_rate(trials, rate):
    errors = np.arange(trials + 1)
    for confidence in (0.9, 0.999):
        bounds = upper_bound(errors, trials, confidence)
        covered = binom.pmf(errors, trials, rate)[bounds >= rate].sum()
        assert covered >= confidence - 1e-12
    assert upper_bound(0, trials, 0.99) == pytest.approx(1 - 0.01 ** (1 / trials))
    assert upper_bound(trials, trials, 0.99) == 1


def test_free_epsilon_of_randomised_response():
    for epsilon in (0.3, 2.0):
        rate = 1 / (1 + math.exp(epsilon))
        assert free_epsilon(rate, rate, 0.0) == pytest.approx(epsilon)
        truth_told = DELTA + (1 - DELTA) * (1 - rate)  # with probability delta all is told
        assert free_epsilon(rate * (1 - DELTA), 1 - truth_told, DELTA) == pytest.approx(epsilon)
    assert free_epsilon(0.5, 0.5, 0.0) == free_epsilon(1.0, 0.9, 0.0) == 0
    assert free_epsilon(0.3, 1e-3, 0.0) == free_epsilon(1e-3, 0.3, 0.0) > 6  # both directions


def test_curve_epsilon_is_exact_on_gaussian_rates():
    for threshold in (-1.0, 0.2, 2.0):
        a, b = norm.sf(threshold), norm.cdf(threshold - 0.7)
        found = curve_epsilon(Gaussian(1.0), 9, DELTA, a, b)
        assert found == pytest.approx(gaussian_epsilon(0.7, DELTA), rel=1e-6)
    assert curve_epsilon(Gaussian(1.0), 9, DELTA, 0.6, 0.5) == 0


@pytest.mark.parametrize("updates", [1, 3])
def test_curve_epsilon_on_laplace_rates(updates):
    one, trials = 0.6, 400_000
    noise = np.random.default_rng(0).laplace(size=(updates, trials)) / one
    ratio = [(abs(x) - abs(x - 1)).sum(axis=0) for x in (noise, noise + 1)]
    rates = np.mean(ratio[0] >= 0.2), np.mean(ratio[1] < 0.2)
    truth = exact(Laplace(1 / one), updates, DELTA).epsilon
    assert 0.97 * truth < curve_epsilon(Laplace(5.0), updates, DELTA, *rates) < 1.01 * truth
    with pytest.raises(InvalidInput, match="noise to audit"):
        curve_epsilon(Noiseless(), 1, DELTA, 0.1, 0.1)


def test_false_alarms_are_as_rare_as_promised():
    """At 90 %: bounds above the truth in at most a tenth of the audits, where it is attained."""
    rng, alarms, found = np.random.default_rng(0), 0, []
    truth = gaussian_epsilon(2.0, DELTA)
    for _ in range(200):
        s0, s1 = rng.normal(size=(3, 400)), rng.normal(size=(3, 400))
        s1[1] += 2.0
        bounds = lower_bounds(s0, s1, ("x", "y", "z"), Gaussian(0.5), 1, DELTA, 0.9)
        assert bounds.curve_rates.attack == bounds.free_rates.attack == "y"
        alarms += max(bounds.free, bounds.curve) > truth
        found.append(bounds.curve / truth)
    assert alarms <= 20
    assert np.mean(found) > 0.7  # and the bound is no empty one


def test_choosing_among_many_attacks_costs_no_confidence():
    """Nothing differs between the worlds; the best of 20 chance findings must not count."""
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(100):
        s0, s1 = rng.normal(size=(2, 20, 200))
        names = [str(i) for i in range(20)]
        bounds = lower_bounds(s0, s1, names, Gaussian(1.0), 1, DELTA, 0.9)
        alarms += max(bounds.free, bounds.curve) > 0
    assert alarms <= 10


def test_scores_that_are_no_numbers_count_as_errors():
    s0, s1 = np.zeros((1, 200)), np.ones((1, 200))
    assert lower_bounds(s0, s1, ["x"], Gaussian(1.0), 1, DELTA).free > 2
    s1[0, 100:] = np.nan
    assert lower_bounds(s0, s1, ["x"], Gaussian(1.0), 1, DELTA).free < 5
    s1[:] = np.nan
    assert lower_bounds(s0, s1, ["x"], Gaussian(1.0), 1, DELTA).free == 0
    with pytest.raises(InvalidInput, match="at least 100 trials"):
        lower_bounds(s0[:, :99], s1[:, :99], ["x"], Gaussian(1.0), 1, DELTA)


@pytest.mark.parametrize("world", [0, 1])
def test_scores_that_are_no_numbers_count_in_their_own_world(world):
    scores = [np.zeros((1, 200)), np.ones((1, 200))]
    scores[world][0, 100:] = np.nan
    found = lower_bounds(*scores, ["x"], Gaussian(1.0), 1, DELTA)
    for rates in (found.free_rates, found.curve_rates):
        assert rates.errors == ((100, 0), (0, 100))[world] and rates.trials == (160, 160)


# --- correct code ---------------------------------------------------------------------------


@cache
def correct(epsilon):
    return run(Settings.for_budget(epsilon, DELTA, 3, 2))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_correct_code_is_consistent_and_the_bound_is_near(epsilon):
    found = correct(epsilon)
    assert not found.violated and found.verdict == "consistent with the claim"
    assert 0.999 * epsilon < found.claim.epsilon <= epsilon
    assert found.white.curve <= epsilon and found.white.free <= epsilon
    if epsilon >= 1:
        assert found.white.curve >= 0.6 * epsilon
        assert found.black.curve >= 0.3 * epsilon
    if epsilon >= 2:
        assert found.white.free >= 0.25 * epsilon


@pytest.mark.parametrize(
    ("mechanism", "perturbation"),
    [
        ("laplace", "objective"),
        ("gaussian", "output"),
        ("gaussian", "projected-output"),
        ("laplace", "projected-output"),
    ],
)
def test_every_kind_of_noise_is_consistent_and_seen(mechanism, perturbation):
    settings = Settings.for_budget(4.0, DELTA, 2, 2, mechanism, perturbation=perturbation)
    found = run(settings, trials=6_000)
    assert not found.violated
    # Plain output noise leaves the box, so its sensitivity is that of all points. Laplace noise
    # hides a change of several entries, one for each class, better than one of the same norm.
    share = 0.3 if perturbation == "output" else {"gaussian": 0.6, "laplace": 0.45}[mechanism]
    assert found.white.curve >= share * 4.0


def test_one_laplace_update_needs_no_curve():
    """Its worst case is in the middle of the law, where the distribution-free bound is sharp."""
    found = run(Settings(1, 1, Laplace(1.0), 0.0), worlds=moved_worlds(1.0))
    assert not found.violated and found.claim.delta == 0
    assert found.white.free > 0.85


def test_noise_on_a_residual_is_seen_through_its_matrix():
    found = run(Settings.for_budget(4.0, DELTA, 2, 2), 4_000, worlds=residual_worlds())
    assert not found.violated and found.white.curve > 0.6 * 4.0


def test_a_round_is_watched_update_by_update():
    """The points that the adversary is given are those of the updates, one after another."""
    worlds = small_worlds()
    settings = worlds.scheduled(Settings.for_budget(1.0, DELTA, 2, 4))
    problem = worlds.with_canary
    local = local_side.local_side(problem, settings, jax.random.key(3), problem.dtype)
    rule = settings.rule(True)
    (ρ,), (η,) = settings.schedule(1, 1)
    z = np.zeros(problem.dimension)
    now = algorithm.Round(1, z, z, ρ, η)
    path = [z]
    update, points = (
        jax.jit(f, static_argnames="rule") for f in (algorithm.local_update, _local_points)
    )
    for e in range(4):
        path.append(update(path[-1], e, now, local, rule=rule)[0])
    last, average, seen = points(z, now, local, rule=rule)
    np.testing.assert_allclose(seen, path, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(average, np.mean(path[1:], axis=0), rtol=1e-9)
    np.testing.assert_array_equal(last, seen[-1])


def test_the_same_seed_gives_the_same_audit():
    again = run(Settings.for_budget(4.0, DELTA, 3, 2))
    assert again.to_dict() == correct(4.0).to_dict()


# --- broken code ----------------------------------------------------------------------------


def variance_as_deviation(patch):
    right = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, Δ: right(self, Δ) ** 2)


def deviation_as_variance(patch):
    right = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, Δ: jnp.sqrt(right(self, Δ)))


def noise_halved(patch):
    right = algorithm.draw
    patch.setattr(algorithm, "draw", lambda *given: right(*given) / 2)


def sensitivity_from_own_data(patch):
    def own(problem, settings):
        f = problem.objective
        return float(f.paper_sensitivity(jnp.zeros(f.dimension), settings.mechanism.norm))

    patch.setattr(local_side, "certified_sensitivity", own)


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
    variance_as_deviation: "likelihood",
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
    assert "and not 1, at 99 % confidence (white box" in found.verdict
    assert found.white.curve_rates.attack == MUTANTS[mutant]
    assert found.confidence == 0.99


def test_the_root_of_a_deviation_above_one_is_caught(monkeypatch):
    """Below one it is the square that makes noise smaller, above one the root."""
    deviation_as_variance(monkeypatch)
    assert run(worlds=moved_worlds(normaliser=0.01)).violated


def test_updates_that_are_not_composed_are_caught():
    few = Settings.for_budget(1.0, DELTA, 3, 1)
    many = Settings(3, 2, few.mechanism, DELTA)
    assert run(many, claim=exact(few.mechanism, few.updates, DELTA)).violated


def flipped_dual(patch):
    right = algorithm.dual_step
    patch.setattr(algorithm, "dual_step", lambda λ, ρ, w, z: right(λ, -ρ, w, z))


def test_a_flipped_dual_is_no_privacy_error_and_not_flagged(monkeypatch):
    flipped_dual(monkeypatch)
    found = run(Settings.for_budget(2.0, DELTA, 3, 2))
    assert not found.violated
    assert found.white.curve >= 0.6 * 2.0  # seen just as well
    assert found.black != correct(2.0).black  # and it did change the run


# --- the paper's claims ---------------------------------------------------------------------


def test_the_papers_sensitivity_is_refuted():
    settings, claim = paper_claim(1.0, DELTA, 2, 2, perturbation="projected-output")
    found = run(settings, 4_000, claim=claim)
    assert found.violated and max(found.white.free, found.black.free) > 3


def test_the_papers_composition_is_refuted():
    """13.8 is claimed for 200 updates of (1, 0.01) each; the certified sensitivity is right."""
    settings = Settings(100, 2, per_update("gaussian", 1.0, 0.01, "paper"), 0.01)
    claim = paper(1.0, 0.01, settings.updates)
    assert 13.8 <= claim.epsilon < 13.9
    found = run(settings, 3_000, worlds=moved_worlds(1.0), claim=claim)
    assert found.violated
    assert 16 < found.white.curve < exact(settings.mechanism, settings.updates, 0.01).epsilon


def test_paper_claim_is_what_the_paper_would_say():
    settings, claim = paper_claim(3.0, DELTA, 5, 2)
    one = math.sqrt(2 * math.log(1.25 / DELTA)) / settings.mechanism.noise_multiplier
    assert paper(one, DELTA, 10).epsilon == pytest.approx(3.0) and claim.epsilon == 3.0
    assert settings.calibration == "paper"
    settings, claim = paper_claim(3.0, DELTA, 5, 2, "laplace")
    assert settings.mechanism.noise_multiplier == pytest.approx(10 / 3) and claim.delta == 0


# --- power zones, where a solver projects ---------------------------------------------------


@pytest.fixture(scope="module")
def zone():
    return zone_worlds("case14")


def test_a_zone_is_consistent_and_seen_through_its_solver(zone):
    found = run(Settings.for_budget(4.0, DELTA, 1), 1_500, worlds=zone)
    assert not found.violated
    assert found.white.curve > 0.5 * 4.0 and found.black.curve > 0.4 * 4.0
    later = run(Settings.for_budget(20.0, DELTA, 2, 2), 100, worlds=zone)
    assert not later.violated and later.white.curve > 0.4 * 20.0


def test_a_zone_with_half_the_noise_is_caught(zone, monkeypatch):
    noise_halved(monkeypatch)
    assert run(Settings.for_budget(4.0, DELTA, 1), 1_000, worlds=zone).violated


# --- the command ----------------------------------------------------------------------------


def test_the_command_on_digits(tmp_path, capsys):
    plot = tmp_path / "audit.png"
    words = "audit digits --total-epsilons 4 --trials 400 --rounds 1 --seed 1 --json --plot"
    assert main([*words.split(), str(plot)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert plot.stat().st_size > 10_000
    assert document["violated"] is False and "never prove" in document["note"]
    (one,) = document["audits"]
    assert one["claim"]["epsilon"] == pytest.approx(4, rel=1e-3)
    assert [b["bound"] for b in one["bounds"]] == [
        "white box, distribution-free",
        "white box, gaussian curve",
        "black box, distribution-free",
        "black box, gaussian curve",
    ]
    assert all(0 <= b["epsilon"] <= 4 for b in one["bounds"])
    assert one["bounds"][1]["epsilon"] > 0.5 and one["bounds"][1]["attack"] == "likelihood"
    assert one["bounds"][0]["confirming_trials"] == [320, 320]
    assert one["settings"]["local_updates"] == 2 and one["verdict"].startswith("consistent")


def test_a_violation_is_an_exit_status_and_words(capsys):
    words = "audit digits --calibration paper --mechanism laplace --trials 300 --rounds 1 --seed 1"
    assert main(words.split()) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "VIOLATED: epsilon is at least" in out and "at 99 % confidence" in out
    assert "An audit can refute a claim. It can never prove one." in out
    assert main([*words.split(), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["violated"]


def test_the_command_on_mnist_files(tmp_path, capsys):
    rng = np.random.default_rng(0)
    header = np.array([2051, 12, 28, 28], ">u4").tobytes()
    images = rng.integers(0, 256, (12, 784), dtype=np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + images.tobytes())
    labels = np.array([2049, 12], ">u4").tobytes() + bytes(range(10)) + b"\1\2"
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    words = f"audit mnist --data {tmp_path} --trials 100 --rounds 1 --local-updates 1 --json"
    assert main(words.split()) == 0
    document = json.loads(capsys.readouterr().out)["audits"][0]
    assert document["name"] == "mnist" and document["trials"] == 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("audit moon", "invalid choice: 'moon'"),
        ("audit mnist", "Expected --data"),
        ("audit mnist --data nowhere", "nowhere"),
        ("audit digits --trials 99", "at least 100 trials"),
        ("audit digits --trials 0", "trials >= 1"),
        ("audit digits --rounds 0", "rounds >= 1"),
        ("audit digits --total-epsilons -1", "total_epsilon > 0"),
        ("audit digits --total-delta 0", "0 < delta < 1"),
        ("audit digits --total-epsilons 1 --confidence 1.5 --trials 100", "0 < confidence < 1"),
        ("audit digits --seed -1 --trials 100", "seed=-1"),
        ("audit digits --total-epsilons", "expected at least one argument"),
        ("audit digits --plot no/such/folder/a.png", "existing folder"),
        ("audit digits --plot a.xyz", ".png"),
    ],
)
def test_bad_input_gets_one_line(words, said, refused):
    message = refused(words)
    lines = [line for line in message.strip().splitlines() if "trials 0:" not in line]
    assert said in lines[-1] and lines[-1].startswith("tacit: ")
    assert sum(line.startswith("tacit:") for line in lines) == 1


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
    with pytest.raises(InvalidInput, match="mechanism with noise"):
        run(Settings(1))
    assert a.without.objective.normaliser != b.without.objective.normaliser


def test_the_two_forms_share_the_risk(monkeypatch):
    """Four bounds that hold together at 90 %: two at 95 % in each form."""
    asked = []

    def spy(*arguments):
        asked.append(arguments[-1])
        return lower_bounds(*arguments)

    monkeypatch.setattr("tacit.audit.report.lower_bounds", spy)
    settings = Settings.for_budget(4.0, DELTA, 1)
    found = audit(small_worlds(), settings, trials=100, confidence=0.9, seed=0)
    assert asked == pytest.approx([0.95, 0.95]) and found.confidence == 0.9


@pytest.mark.parametrize("place", range(4))
def test_any_bound_above_the_claim_refutes_it(place):
    epsilons = [2.5 if k == place else 0.5 for k in range(4)]
    rates = Rates(0.1, 0.1, (1, 1), (80, 80), "likelihood")
    white, black = (Bounds(*epsilons[k : k + 2], rates, rates) for k in (0, 2))
    about = (Settings(1, 1, Gaussian(1.0)), Guarantee(2.0, DELTA), white, black, 100, 0.99, 0)
    found = Audit("name", "canary", *about)
    assert found.violated and "at least 2.500" in found.verdict
    calm = Audit("name", "canary", about[0], Guarantee(3.0, DELTA), *about[2:])
    assert not calm.violated and calm.verdict == "consistent with the claim"
