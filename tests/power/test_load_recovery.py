"""The eavesdropper finds the loads without noise, and not with it."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from conftest import repeat

import tacit
from tacit.errors import InvalidInput
from tacit.lab.load_recovery import attack, least_expected, listen
from tacit.power import build, load_case, scheduled
from tacit.privacy.mechanisms import Gaussian, Laplace

ROUNDS, BUDGETS, SEEDS = repeat((6, (1000.0, 1.0), 60), (25, (1000.0, 10.0, 1.0), 200))


@pytest.fixture(scope="module")
def found():
    case = build("case14")
    budgets = [("no privacy", tacit.Settings(ROUNDS))]
    budgets += [(f"epsilon {e:g}", tacit.Settings.for_budget(e, 1e-5, ROUNDS)) for e in BUDGETS]
    chosen = [(label, scheduled(case, settings)) for label, settings in budgets]
    return case, attack(case, chosen, seeds=repeat(1, 2))


def test_without_noise_every_load_is_found(found):
    """28 loads to better than a hundredth of the smallest change that privacy would hide."""
    case, result = found
    assert result.errors["no privacy"] < 1e-4
    wrong = np.abs(result.loads["no privacy"] - result.loads["true"])
    assert wrong.max() < 5e-4 and len(wrong) == 28
    assert result.loads["true"].sum() == pytest.approx(
        case.grid.bus[["p_demand", "q_demand"]].sum().sum()
    )


def test_the_error_grows_with_the_noise_and_stays_above_the_floor(found):
    _, result = found
    error, floor = result.errors, result.floors
    assert list(error) == ["no privacy", *(f"epsilon {e:g}" for e in BUDGETS)]
    assert all(a < b for a, b in pairwise(error.values()))
    for label in list(error)[1:]:
        assert error[label] > floor[label]
    # at epsilon 1 the messages are worth little more than no messages
    assert error["epsilon 1"] > 0.5 * result.prior_error


@pytest.mark.parametrize("law", [Gaussian(2.0), Laplace(2.0)])
def test_a_release_is_its_own_best_attack(law):
    """The error is the noise's, less what the prior knows: a Gaussian one's is the least there is.

    Means of squares over 60 seeds or more of 28 loads as far from the prior's mean as it says.
    """
    τ = 0.03
    rng = np.random.default_rng(0)
    grid = load_case("case14")
    loads = {q: τ * rng.choice([-1.0, 1.0], 14) for q in ("p_demand", "q_demand")}
    case = build(dataclasses.replace(grid, bus=grid.bus.assign(**loads)), 3)
    found = attack(case, [], releases=[("once", law)], seeds=SEEDS, prior_deviation=τ)
    sensitivity = case.agents[0].objective.statistics().sensitivity(law.norm)
    variance = float(law.variance(sensitivity))
    assert variance == pytest.approx({2: 4.0, 1: 8.0}[law.norm] * sensitivity**2)
    known = {2: 1.0, 1: 2.0}[law.norm] / variance
    assert found.floors["once"] == pytest.approx((τ**-2 + known) ** -0.5)
    if law.norm == 2:
        assert found.errors["once"] == pytest.approx(found.floors["once"], rel=0.1)
    assert found.floors["once"] * 0.9 < found.errors["once"] < variance**0.5
    assert len(found.loads["once"]) == 28 and found.labels == ["once"]
    # and with a wide prior it is the noise itself
    wide = attack(case, [], releases=[("once", law)], seeds=SEEDS, prior_deviation=100.0)
    assert wide.errors["once"] == pytest.approx(variance**0.5, rel=0.1)


def test_what_the_attack_cannot_read(found):
    case, _ = found
    for wrong in (
        tacit.Settings(3, 2, Gaussian(1.0), penalty=1.0, step_size=0.1),
        tacit.Settings(3, 1, Gaussian(1.0), perturbation="output", penalty=1.0, step_size=0.1),
    ):
        with pytest.raises(InvalidInput, match="local_updates=1 and objective noise"):
            listen(case, wrong, 0)
    on_gradient = build("case14", 3, noise_on="gradient")
    with pytest.raises(InvalidInput, match="noise on the gradient"):
        listen(on_gradient, scheduled(case, tacit.Settings(2)), 0)


def test_the_least_expected_error_is_that_of_the_noise(found):
    """Averages of d + ξ^t/2 over the rounds, per zone; Laplace noise tells twice as much."""
    case, _ = found
    for mechanism, factor in ((Gaussian(20.0), 1.0), (Laplace(20.0), 2.0)):
        settings = scheduled(case, tacit.Settings(10, mechanism=mechanism))
        variance = mechanism.variance(0.01 * (2 * np.sqrt(2) if mechanism.norm == 2 else 4))
        least = (1 / 0.09 + factor * 40 / variance) ** -0.5
        assert least_expected(case, settings, 0.3) == pytest.approx(least, rel=1e-3)
