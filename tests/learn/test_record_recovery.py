"""The eavesdropper finds images and labels without noise, and no more than a guess with it."""

import json

import jax
import numpy as np
import pytest
from conftest import drawing, repeat

import tacit
from tacit.admm.settings import Asked
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.lab.record_recovery import (
    Prior,
    _room,
    attack,
    gradients,
    listen,
    small_agents,
)
from tacit.learn import PrivateLogisticRegression, load_digits
from tacit.learn.centring import scaled_down
from tacit.learn.estimators import INTERCEPT_SHARE
from tacit.planning import plan as planned

CLASSES = 10
AGENTS = repeat(3, 5)


def without_noise(problem, rounds):
    others = {"local_updates": 1}
    return planned(problem, Asked(others=others, rounds=rounds, way="rounds")).settings


def spent(problem, epsilon, rounds):
    budget = epsilon, 1e-5, "gaussian", {"local_updates": 1}
    return planned(problem, Asked(*budget, rounds=rounds, way="rounds")).settings


@pytest.fixture(scope="module")
def digits():
    return load_digits(), load_digits("test")


@pytest.fixture(scope="module")
def prior(digits):
    public = digits[1]
    known = scaled_down(public.features.astype(float), _room(1.0))
    return Prior.of(known, public.labels, CLASSES, INTERCEPT_SHARE)


@pytest.fixture(scope="module")
def found(digits):
    return attack(*digits, [100.0, 10.0, 1.0], records=4, agents=AGENTS, rounds=30, seeds=2)


def test_without_noise_every_image_and_label_is_found(found):
    """Some of one agent with the same label, to the rounding of 32 bits."""
    one = found.found["no privacy"]
    assert one.error < 1e-5 and one.label_accuracy == 1 and one.correlation > 0.999999
    assert np.abs(one.images - found.images).max() < 1e-5
    assert any(len(set(part)) < 4 for part in found.labels.reshape(-1, 4).tolist())
    assert not one.privacy.certified


def test_with_noise_less_is_found_and_at_epsilon_1_no_more_than_by_a_guess(found):
    scores = found.found
    errors = [scores[name].error for name in ("epsilon 100", "epsilon 10", "epsilon 1")]
    assert 1000 * scores["no privacy"].error < errors[0] < errors[1] < errors[2] + 0.005
    assert scores["epsilon 100"].label_accuracy > 0.9
    assert errors[2] > 0.97 * found.guess_error
    assert scores["epsilon 1"].correlation < 0.25
    # of the labels, in two runs: four deviations of their share
    chance, labels = found.guess_label_accuracy, 2 * found.labels.size
    assert scores["epsilon 1"].label_accuracy < chance + 4 * np.sqrt(chance * (1 - chance) / labels)


def test_the_gradient_is_read_off_the_messages(digits):
    """What is solved for is f'(z) where nothing was added, and f'(z) + ξ where it was."""
    problem, _, _ = small_agents(digits[0], 2, 3, 1.0)
    private = spent(problem, 10.0, 20)
    gradient = jax.jit(lambda f, z: f.gradient(z))
    for settings in (without_noise(problem, 20), private):
        messages = listen(problem, settings, 0, "run")
        agent = problem.agents[1]
        heard = gradients(agent, settings, messages.consensus, messages.replies[:, 1], CLASSES)
        points = [np.zeros(agent.dimension), *messages.replies[:-1, 1]]
        for t, z in enumerate(points):
            columns = slice(CLASSES * t, CLASSES * (t + 1))
            assert np.array_equal(heard.points[:, columns], z.reshape(-1, CLASSES))
            true = 6 * np.asarray(gradient(agent.objective, z)).reshape(-1, CLASSES)
            wrong = heard.sums[:, columns] - true
            assert np.sqrt(np.mean(wrong**2)) == pytest.approx(
                heard.deviation, rel=0.2, abs=1e-6 if heard.exact else 0
            )


def test_the_attacked_run_is_that_of_the_classifier(digits):
    """The same messages lead to the coefficients that ``fit`` finds."""
    problem, _, _ = small_agents(digits[0], 4, AGENTS, 1.0)
    part = digits[0].part(np.random.default_rng(0).permutation(len(digits[0]))[: 4 * AGENTS])
    plain = {"centring_share": None, "clip": None, "rounds": 6, "local_updates": 1}
    model = PrivateLogisticRegression(3.0, 1e-5, classes=range(CLASSES), random_state=7, **plain)
    model.fit(part.features, part.labels, agents=np.repeat(np.arange(AGENTS), 4))
    settings = spent(problem, 3.0, 6)
    assert settings == model.result_.settings
    last = listen(problem, settings, 7, "run").replies[-1].mean(axis=0)
    assert last == pytest.approx(model.result_.solution, abs=1e-5)


def test_what_the_attack_cannot_read(digits):
    problem, _, _ = small_agents(digits[0], 2, 2, 1.0)
    replies = np.zeros((2, problem.size))
    for wrong in (
        tacit.Settings(2, 2, penalty=1.0, step_size=1.0),
        tacit.Settings(2, perturbation="output", penalty=1.0, step_size=1.0),
    ):
        with pytest.raises(InvalidInput, match="local_updates=1 and objective noise"):
            gradients(problem.agents[0], wrong, replies, replies, CLASSES)
    ball = tacit.LocalProblem(problem.agents[0].objective, tacit.Ball(0.0, 1.0, size=problem.size))
    settings = tacit.Settings(2, penalty=1.0, step_size=1.0)
    with pytest.raises(InvalidInput, match="Expected a box"):
        gradients(ball, settings, replies, replies, CLASSES)
    with pytest.raises(InvalidInput, match="at most 1347 records"):
        small_agents(digits[0], 8, 1000, 1.0)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "learn attack digits --records 2 --agents 3 --rounds 10 --seeds 1"
    with drawing():
        assert main([*words.split(), "--total-epsilon", "5", "--json"]) == 0
    assert (tmp_path / "digits-attack" / "attack.png").stat().st_size > 10_000
    document = json.loads(capsys.readouterr().out)
    assert set(document["found"]) == {"no privacy", "epsilon 5"} and document["agents"] == 3
    assert document["found"]["no privacy"]["error"] < 1e-4
    assert document["found"]["no privacy"]["privacy"]["epsilon"] is None
    assert document["found"]["epsilon 5"]["privacy"]["epsilon"] <= 5
    assert document["found"]["no privacy"]["labels"] == document["labels"]


def test_refused_commands(refused):
    for wrong, words in (
        ("learn attack", "arguments are required: attacked"),
        ("learn attack femnist", "invalid choice: 'femnist'"),
        ("learn attack mnist", "--data"),
        ("learn attack mnist --data absent", "train-images"),
        ("learn attack digits --records 9", "1 to 8 records"),
        ("learn attack digits --agents 400", "at most 1347 records"),
        ("learn attack digits --total-epsilons 1 --total-epsilon 2", "without --total-epsilon"),
        ("learn attack digits --no-noise", "unrecognized arguments: --no-noise"),
        ("learn attack digits --local-updates 5", "unrecognized arguments: --local-updates 5"),
        ("learn digits --total-epsilon 1 --records 2", "unrecognized arguments: --records 2"),
        ("learn digits mnist --total-epsilon 1", "Expected digits alone, got 'mnist' beside it"),
    ):
        *bar, message = refused(wrong).splitlines()
        assert words in message and message.startswith("tacit: "), message
        assert not any("Traceback" in line or line.startswith("tacit") for line in bar)
