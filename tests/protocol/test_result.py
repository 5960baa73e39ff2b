"""Results survive saving, are plain files, and damaged ones are refused."""

import dataclasses
import json
import math

import numpy as np
import pytest
from clinic import SHORT, part
from conftest import problem_of

import tacit
from tacit.cli.console import print_result
from tacit.cli.main import main
from tacit.errors import SolverFailure
from tacit.privacy.accounting import exact
from tacit.protocol.agent import Agent
from tacit.protocol.statement import PrivacyStatement, not_promised, privacy_statement, promised

SETTINGS = tacit.Settings.for_budget(1.0, 1e-5, rounds=6, local_updates=2)


@pytest.fixture(scope="module")
def result():
    return tacit.solve(problem_of("logistic", "box"), SETTINGS, seed=0)


def test_save_and_load_give_everything_back(result, tmp_path, drawn):
    folder = result.save(tmp_path / "r")
    back = tacit.Result.load(folder)
    np.testing.assert_array_equal(back.solution, result.solution)
    np.testing.assert_array_equal(back.ergodic, result.ergodic)
    for name in result.trace:
        np.testing.assert_array_equal(back.trace[name], result.trace[name])
    assert back.settings == result.settings and back.privacy == result.privacy
    assert back.names == result.names and back.seed == 0 and back.versions == result.versions
    assert {p.name for p in folder.iterdir()} == {
        "arrays.npz",
        "plot.png",
        "result.json",
        "trace.csv",
    }
    assert (folder / "plot.png").read_bytes()[:4] == b"\x89PNG"
    for private in ("trace.csv", "plot.png", "result.json"):
        assert (folder / private).stat().st_mode & 0o077 == 0


def test_noiseless_results_are_valid_json(tmp_path):
    noiseless = tacit.solve(problem_of("logistic", "box"), tacit.Settings(2), seed=0, batch=False)
    text = (noiseless.save(tmp_path) / "result.json").read_text()
    data = json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))
    assert data["privacy"]["epsilon"] is None
    assert tacit.Result.load(tmp_path).privacy.epsilon == math.inf


def test_the_statement_in_words_and_numbers(result):
    p = result.privacy
    assert 0.999 <= p.epsilon <= 1.0 and p.delta == 1e-5 and p.certified
    for words in (
        "adding or removing one record",
        "one agent's data",
        "(1, 1e-05)-DP",
        "everyone who sees all messages",
        "12 gaussian updates",
        "must not be published",
    ):
        assert words in str(p)
    assert p.to_dict()["statement"] == str(p)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(1.001, "(1.01,"), (0.9999, "(1,"), (12.3401, "(12.4,"), (0.00123, "(0.00123,")],
)
def test_words_never_promise_more_than_the_number(epsilon, text):
    change = (("replacing one record", ("a", "b")),)
    p = PrivacyStatement(epsilon, 1e-5, "gaussian", 3, change, False)
    assert text in str(p)
    assert float(str(p).split("-DP")[0].split("(")[-1].split(",")[0]) >= epsilon


def test_seeded_noise_is_threefry_whatever_the_default(result):
    """The statement names the generator, so JAX's default must not decide it."""
    import jax

    with jax.default_prng_impl("rbg"):
        again = tacit.solve(problem_of("logistic", "box"), SETTINGS, seed=0)
    np.testing.assert_array_equal(again.solution, result.solution)


@pytest.mark.parametrize("calibration", ["paper", "paper-tight"])
def test_no_calibration_of_the_paper_is_certified(calibration):
    settings = tacit.Settings(
        2, 1, tacit.Gaussian(9.0), calibration=calibration, perturbation="output"
    )
    statement = privacy_statement(problem_of("softmax", "box"), settings, seeded=False)
    assert not statement.certified and "paper's calibration" in str(statement)


def test_a_budget_covers_all_local_updates():
    settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=6, local_updates=3)
    assert 0.999 <= exact(settings.mechanism, 18, 1e-5).epsilon <= 1.0
    statement = privacy_statement(problem_of("logistic", "box"), settings, seeded=False)
    assert statement.updates == 18 and 0.999 <= statement.epsilon <= 1.0


@pytest.mark.parametrize("once", [False, True])
def test_a_statement_names_what_is_taken_for_public(once):
    """Penalties of one agent's data, say: with them an answer tells these, whatever the noise.
    Only the user knows where such numbers come from, so the statement says what it rests on."""
    f, W = tacit.Residual(np.eye(2), [0.3, 0.7], 0.1), tacit.Box(-1.0, 1.0, size=2)
    agents = [tacit.LocalProblem(f, W, name=name) for name in ("north", "south")]
    problem = tacit.Problem(agents, (np.array([0.3, 0.7]), np.array([0, 1])))
    settings = tacit.Settings.for_budget(1.0, 1e-5, None if once else 2)
    privacy = tacit.solve(problem, settings, seed=1).privacy
    assert privacy.certified and privacy.once == once
    for named in ("feasible sets", "bounds", "nominal values", "penalties", "settings", "numbers"):
        assert named in privacy.assumed
    assert privacy.assumed in str(privacy)


def test_json_has_both_vectors(result, tmp_path, capsys):
    print_result(result, tmp_path, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["solution"] == result.solution.tolist()
    assert document["ergodic"] == result.ergodic.tolist() != document["solution"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"epsilon": 0.0}, ""),
        ({"delta": 0.0}, ""),
        ({"epsilon": math.inf}, "no noise was added."),
        ({"epsilon": math.inf, "uncertified": "the run adds no noise."}, "no noise was added."),
        *(({"epsilon": wrong}, "its epsilon or delta is no budget.") for wrong in (math.nan, -1.0)),
        *(({"delta": wrong}, "its epsilon or delta is no budget.") for wrong in (math.nan, 1.0)),
        ({"uncertified": "it is not."}, "it is not."),
    ],
)
def test_a_statement_promises_something_or_says_why_not(change, why):
    sound = PrivacyStatement(1.0, 1e-5, "gaussian", 4, (("a record", ("a",)),), False)
    found = dataclasses.replace(sound, **change)
    assert (promised(found), not_promised(found)) == (not why, why)


@pytest.mark.parametrize("E", [1, 3])
def test_rounds_that_failed_and_were_paid_again_are_in_the_statement(tmp_path, monkeypatch, E):
    paying = dataclasses.replace(SHORT, local_updates=E)
    agents = [part(), tacit.LocalProblem(part().objective, part().feasible_set, name="b")]
    ledgers = {n: tacit.Ledger.create(tmp_path / f"{n}.db", 9.0, 1e-5) for n in "ab"}
    options = {"ledgers": ledgers, "run": "june", "checkpoint": tmp_path / "c.npz"}
    right, calls = Agent._noisy, []

    def sometimes(self):
        if self.name == "b":
            calls.append(1)
            if len(calls) == 2:
                raise SolverFailure("no answer.")
        return right(self)

    monkeypatch.setattr(Agent, "_noisy", sometimes)
    with pytest.raises(SolverFailure):
        tacit.solve(agents, paying, **options)
    result = tacit.solve(agents, paying, **options)
    assert result.privacy.updates == 5 * E  # four rounds, and the one that failed
    assert result.privacy.epsilon > 1
    assert ledgers["a"].spent.epsilon < ledgers["b"].spent.epsilon
    # secure noise: with the distance of every update that was paid
    paid = ledgers["b"].spent.epsilon
    assert paid <= result.privacy.epsilon <= paid * (1 + 1e-6)


def test_numpy_numbers_in_settings_become_plain(tmp_path):
    settings = tacit.Settings.for_budget(1.0, np.float32(1e-5), np.int64(3), np.int32(2))
    assert type(settings.rounds) is int and type(settings.local_updates) is int
    result = tacit.solve([part()], settings, seed=0)
    assert tacit.Result.load(result.save(tmp_path / "r")).settings.rounds == 3


def test_a_solution_has_the_names_of_its_coordinates(tmp_path, capsys):
    """Of a common vector, and of shared ones of which two agents name some."""
    box, f = tacit.Box(-1, 1, size=2), tacit.Residual(np.eye(2), [0.5, 0.2], 0.1)
    names = ("price (EUR/MWh)", "share")
    found = tacit.solve(
        [tacit.LocalProblem(f, box, labels=names)], tacit.Settings(5, tolerance=0.1)
    )
    assert found.labels == names and "price (EUR/MWh): -0.5" in repr(found)
    again = tacit.Result.load(found.save(tmp_path / "r"))
    assert main(["show", str(tmp_path / "r")]) == 0
    assert "solution: price (EUR/MWh) -0.5, share " in capsys.readouterr().out
    assert again.named == dict(zip(names, found.solution.tolist(), strict=True))
    pair = [
        tacit.LocalProblem(f, box, [0, 1], labels=("flow (MW)", "x")),
        tacit.LocalProblem(f, box, [0, -1]),
    ]
    assert tacit.Problem(pair).labels == ("flow (MW)", "x")
    assert pair[0].with_objective(f, "b").labels == ("flow (MW)", "x")
    assert tacit.Problem(pair[1:]).labels == ()
    for labels, words in ((("x",), "each of 2 coordinates of an agent"), (("a", "b\n"), "a label")):
        with pytest.raises(tacit.InvalidInput, match=words):
            tacit.LocalProblem(f, box, labels=labels)
