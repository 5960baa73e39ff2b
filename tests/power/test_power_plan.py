"""When a run on a grid stops: a tolerance that follows from the noise, which is public."""

import math

import pytest

import tacit
from tacit.errors import SolverFailure
from tacit.power import build
from tacit.power.model import asked_for, planned


@pytest.fixture(scope="module")
def case():
    return build("case118_ieee", 3)


def chosen(case, nominal=False, **options):
    budget = {"total_delta": 1e-5} if "total_epsilon" in options else {"no_noise": True}
    return planned(case.problem, asked_for(budget | options), nominal)


def test_the_tolerance_follows_from_the_noise(case):
    """A thirtieth of the length of the noise, for copies of about 1."""
    copies = sum(int(agent.coupled.sum()) for agent in case.agents)
    for epsilon in (0.3, 1.0, 3.0):
        plan = chosen(case, total_epsilon=epsilon, mechanism="laplace")
        sigma = math.sqrt(2) * 0.02 / epsilon  # Laplace of scale (0.01 + 0.01)/epsilon on a load
        noise = sigma * math.sqrt(2 * len(case.grid.bus))
        assert plan.settings.tolerance == pytest.approx(noise / 30 / math.sqrt(copies), rel=0.05)
        assert f"{plan.settings.tolerance:g}" in plan.reason


def test_what_is_asked_for_wins_and_no_noise_or_weak_noise_is_exact(case):
    assert chosen(case, total_epsilon=1.0, tolerance=1e-5).settings.tolerance == 1e-5
    assert chosen(case, total_epsilon=1.0, nominal=True).settings.tolerance == 1e-4
    assert chosen(case, total_epsilon=1e3).settings.tolerance == 1e-4
    assert chosen(case, total_epsilon=1e-3).settings.tolerance == 1e-2
    assert chosen(case).settings.tolerance == 1e-6


def test_stopping_at_the_noise_loses_nothing_of_worth():
    """At the true loads, beside the optimum at the released ones, which no run can go below."""
    case = build("case118_ieee", 3, objective="cost")
    released = tacit.release(case, 1.0, 1e-5, seed=3)
    settings = chosen(case, total_epsilon=1.0).settings
    assert settings.tolerance > 1e-3
    zones = tacit.solve(released, settings).local
    best = case.central([agent.objective for agent in released.problem.agents])
    ours, least = (
        sum(float(a.objective.value(z)) for a, z in zip(case.agents, local, strict=True))
        for local in (zones, best)
    )
    assert ours == pytest.approx(least, rel=0.02)


def test_a_failed_step_names_zone_and_round_and_what_helps(monkeypatch):
    case = build("case14_ieee", 3, objective="cost")

    def fails(*_):
        raise SolverFailure("Expected a solved cone program, got NumericalError.")

    monkeypatch.setattr("tacit.power.cost.PublicCost.prox", lambda *_: fails)
    with pytest.raises(SolverFailure, match=r"'zone 1', round 1: .*NumericalError.*--penalty"):
        tacit.solve(case.problem, tacit.Settings(3, tolerance=1e-3))
