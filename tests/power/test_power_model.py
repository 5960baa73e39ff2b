"""Zones as agents: the update of Appendix D, its sensitivity, the optimum, feasibility, workers."""

import cvxpy as cp
import jax
import numpy as np
import pytest
from conftest import repeat
from grids import PGLIB, case_file, constraints

import tacit
from tacit.admm.algorithm import Limits, Local, Round, Rule, local_update
from tacit.admm.settings import NonsmoothStep
from tacit.errors import InvalidInput, SolverFailure
from tacit.power import build, load_case, network, scheduled
from tacit.power.network import demand
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.sets.cone_program import Program

CASE14 = PGLIB / "pglib_opf_case14_ieee.m"
CASE118 = PGLIB / "pglib_opf_case118_ieee.m"

NO_LIMITS = Limits(np.inf, np.inf, np.inf)


@pytest.fixture(scope="module")
def case14():
    return build(CASE14)


def test_an_update_is_that_of_the_appendix_with_its_slack_variables(case14):
    """argmin over (z, s): 2⟨s^e, s⟩ + ‖(z, s) − (z^e, s^e)‖²/2η + ρ/2‖w − y + λ/ρ‖², s = Az + d.

    The slack s is a variable of the appendix; in ours it is eliminated.
    """
    rng = np.random.default_rng(0)
    ρ, η = 30.0, 0.4
    for agent, net in zip(case14.agents, case14.networks, strict=True):
        d, A, n = demand(case14.grid, net.buses), net.balance, agent.dimension
        shared = np.asarray(agent.coupling) >= 0
        z_e = np.asarray(agent.feasible_set.project(rng.normal(size=n)))
        w, λ = rng.normal(size=n) * shared, rng.normal(size=n) * shared
        x = cp.Variable(net.image.shape[1])
        z = net.image @ x
        s, s_e = A @ z + d, A @ z_e + d
        near = cp.sum_squares(z - z_e) + cp.sum_squares(s - s_e)
        agree = ρ / 2 * cp.sum_squares(cp.multiply(shared, w - z + λ / ρ))
        cp.Problem(cp.Minimize(2 * s_e @ s + near / (2 * η) + agree), constraints(net, x)).solve(
            cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-10
        )
        noise = (0.0, tacit.Noiseless(), jax.random.key(0))
        local = Local(agent.objective, agent.feasible_set, shared.astype(float), *noise, NO_LIMITS)
        rule = Rule(1, "objective", "certified", False)
        got, _ = local_update(z_e, 0, Round(1, w, λ, ρ, η), local, rule)
        assert got == pytest.approx(net.image @ x.value, abs=2e-5)


@pytest.mark.parametrize("noise_on", ["residual", "gradient"])
@pytest.mark.parametrize("norm", [1, 2])
def test_sensitivity_is_reached_and_never_exceeded(noise_on, norm):
    """One bus moves both demands by at most beta; the worst bus and signs reach the bound."""
    case = build("case14", beta=0.02, noise_on=noise_on)
    rng = np.random.default_rng(1)
    for agent, net in zip(case.agents, case.networks, strict=True):
        f, n = agent.objective, len(net.buses)
        Δ, z = f.sensitivity(norm, agent.feasible_set), rng.normal(size=agent.dimension)
        worst = 0.0
        for bus in range(n):
            for signs in ((1, 1), (1, -1)):
                moved = np.zeros(2 * n)
                moved[[bus, n + bus]] = 0.02 * np.array(signs)
                other = tacit.Residual(
                    net.balance, f.data + moved, 0.02, noise_on=noise_on, slack=True
                )
                change = np.asarray(f.statistic(z)) - np.asarray(other.statistic(z))
                worst = max(worst, np.linalg.norm(change, norm))
        assert worst <= Δ * (1 + 1e-12)
        assert worst >= Δ * (1 - 1e-4)  # the rest is room for rounding


@pytest.mark.parametrize("path", repeat([CASE14], [CASE14, CASE118, "case14", "case118"]))
def test_without_noise_the_central_optimum_is_reached(path):
    """penalty 5, step 1/2, E = 5 (the defaults without noise), T = 300: both within 1e-3."""
    case, rounds = build(path), repeat(130, 300)
    settings = scheduled(case, tacit.Settings(rounds, 5))
    assert settings.penalty(1) == 5.0 and settings.step_size(7) == 0.5
    result = tacit.solve(case, settings, evaluate_every=rounds)
    whole = network(case.grid)
    x = cp.Variable(whole.image.shape[1])
    short = whole.balance @ (whole.image @ x) + demand(case.grid, whole.buses)
    central = cp.Problem(cp.Minimize(cp.sum_squares(short)), constraints(whole, x))
    optimum = central.solve(cp.CLARABEL)
    assert result.trace["objective"][-1] == pytest.approx(optimum, abs=1e-3)
    assert result.trace["residual"][-1] <= 1e-3 * np.linalg.norm(result.solution)
    assert result.trace["violation"][-1] <= 1e-6


def test_every_release_is_feasible_under_heavy_noise(case14):
    """By the rows as built, not by the set's own ``violation``."""
    settings = tacit.Settings(40, 2, Laplace(20.0), penalty=10.0, step_size=0.1)
    seen = []

    def check(progress):
        for net, z in zip(case14.networks, progress.averages, strict=True):
            entries = {name: value for name, value in zip(net.names, z, strict=True)}
            for i, j in net.pairs:
                c, s = entries["c", (i, j)], entries["s", (i, j)]
                seen.append(c**2 + s**2 - entries["u", i] * entries["u", j])
            for line in net.lines:
                limit = case14.grid.line.loc[line, "limit"]
                seen.append(np.hypot(entries["p_from", line], entries["q_from", line]) - limit)
                seen.append(np.hypot(entries["p_to", line], entries["q_to", line]) - limit)
            for bus in net.extended:
                seen.append(entries["u", bus] - case14.grid.bus.loc[bus, "v_max"] ** 2)
                seen.append(case14.grid.bus.loc[bus, "v_min"] ** 2 - entries["u", bus])

    tacit.solve(case14, settings, seed=0, callback=check)
    assert len(seen) > 1000 and max(seen) <= 1e-6


def test_consensus_is_on_the_cut_lines_and_held_by_two_zones(case14):
    holders = np.bincount(
        np.concatenate([c[c >= 0] for c in (np.asarray(a.coupling) for a in case14)])
    )
    assert set(holders) == {2}
    zone_of = {b: name for name, buses in case14.zones.items() for b in buses}
    line = case14.grid.line
    crossing = [k for k, r in line.iterrows() if zone_of[r["from_bus"]] != zone_of[r["to_bus"]]]
    assert case14.cut_lines == crossing
    assert repr(case14) == f"PowerProblem(3 zones of {case14.grid!r})"
    assert len(case14.shared) == 6 * len(crossing)  # no parallel lines here
    for agent, net in zip(case14.agents, case14.networks, strict=True):
        for place, name in zip(np.asarray(agent.coupling), net.names, strict=True):
            assert place < 0 or case14.shared[place] == name


def test_tables_add_up(case14):
    settings = scheduled(case14, tacit.Settings(30, 5))
    result = tacit.solve(case14, settings)
    tables = case14.tables(result.local)
    with pytest.raises(InvalidInput, match=r"Expected Result\.local, got a value of type Result"):
        case14.tables(result)
    bus, line, generator = tables["bus"], tables["line"], tables["generator"]
    assert (bus[["p_shed", "q_shed"]] ** 2).sum().sum() == pytest.approx(
        result.trace["objective"][-1]
    )
    assert len(bus) == 14 and len(line) == 20 and len(generator) == 5
    assert line["cut"].sum() == len(case14.cut_lines)
    # power: what is generated is what is served and lost
    lost = line["p_from"].sum() + line["p_to"].sum()
    shunts = (case14.grid.bus["conductance"] * bus["voltage"] ** 2).sum()
    served = bus["p_demand"].sum() - bus["p_shed"].sum()
    assert generator["p"].sum() == pytest.approx(served + lost + shunts, abs=0.05)
    assert 0 < line["loading"].max() <= 1 + 1e-6


def test_the_voltage_of_a_border_bus_is_its_own_zones(case14):
    """A neighbouring zone has a copy of it, which agrees only at the end."""
    local = [np.zeros(len(net.names)) for net in case14.networks]
    copies = 0
    for net, z in zip(case14.networks, local, strict=True):
        for k, (quantity, bus) in enumerate(net.names):
            if quantity == "u":
                z[k] = (1 + bus / 100) ** 2 if bus in net.buses else 0.25
                copies += bus not in net.buses
    bus = case14.tables(tuple(local))["bus"]
    assert copies > 0
    np.testing.assert_allclose(bus["voltage"], 1 + bus.index / 100)


def test_loading_is_that_of_the_busier_end(case14):
    """Both ends by turns, as if all flows were those numbers."""
    local = [np.zeros(len(net.names)) for net in case14.networks]
    for net, z in zip(case14.networks, local, strict=True):
        for k, (quantity, line) in enumerate(net.names):
            if quantity in ("p_from", "p_to"):
                busier = "p_from" if line % 2 else "p_to"
                z[k] = 0.3 if quantity == busier else -0.1
    line = case14.tables(tuple(local))["line"]
    np.testing.assert_allclose(line["loading"], 0.3 / line["limit"])
    assert np.isinf(line["limit"]).all() or (line["loading"] > 0).any()


@pytest.mark.parametrize(
    ("beta", "deviation", "doubt"),
    [
        (0.01, 0.01, False),
        ("0.01", 0.01, False),
        ("1% of largest", 0.00942, True),
        ("1 % of bus", 0.00942, True),
    ],
)
def test_readings_of_beta(beta, deviation, doubt):
    """A share of the private loads is the paper's reading, and not certified."""
    case = build("case14", beta=beta)
    Δ = max(a.objective.sensitivity(1, a.feasible_set) for a in case.agents)
    assert 4 * deviation * (1 + 1e-4) >= Δ and 2 * deviation <= Δ
    settings = scheduled(case, tacit.Settings.for_budget(1.0, 1e-5, 2))
    statement = tacit.solve(case, settings, seed=0).privacy
    assert statement.certified != doubt
    assert "demand of one bus" in statement.words and "per unit" in statement.words
    if doubt:
        assert "Not certified: beta is a share of the private loads" in statement.words
        public = build("case14", beta=beta, nominal="case14")
        assert tacit.solve(public, settings, seed=0).privacy.certified


def test_beta_per_bus_and_bad_betas():
    buses = load_case("case9").bus.index
    case = build("case9", beta={b: 0.001 * b for b in buses})
    last = next(a for a, net in zip(case.agents, case.networks, strict=True) if 9 in net.buses)
    Δ = last.objective.sensitivity(2, last.feasible_set)
    assert pytest.approx(2 * 0.009 * 2**0.5, rel=1e-4) == Δ  # it has room for rounding
    for beta in (0.0, -1.0, float("nan"), "much", "1% of everything", {1: 0.1}, [0.1]):
        with pytest.raises(InvalidInput):
            build("case9", beta=beta)
    with pytest.raises(InvalidInput, match="buses of case9 in the nominal case case14"):
        build("case9", beta="1% of bus", nominal="case14")


def test_a_dispatchable_load_is_in_the_public_limits(tmp_path):
    change = "30\t-10\t1\t100\t1\t30\t0;", "30\t-10\t1\t100\t1\t0\t-30;"
    case = build(case_file(tmp_path, change), {10: 1, 25: 1, 3: 2})
    settings = scheduled(case, tacit.Settings(1, mechanism=Gaussian(5.0)))
    statement = tacit.solve(case, settings, seed=1).privacy
    assert not statement.certified and "generator 5 is a dispatchable load" in statement.words


def test_a_failed_solve_names_agent_and_round_and_releases_nothing(monkeypatch):
    case, calls, plain, rounds = build(CASE14), [], Program.minimise, []

    def fail(self, *arguments, **changes):
        calls.append(1)
        if len(calls) > 20:
            raise SolverFailure("Expected a solved cone program, got NumericalError.")
        return plain(self, *arguments, **changes)

    monkeypatch.setattr(Program, "minimise", fail)
    settings = tacit.Settings(50, 1, Gaussian(1.0), penalty=10.0, step_size=0.1)
    with pytest.raises(SolverFailure, match=r"Agent 'zone \d', round \d+: .*Nothing .* released"):
        tacit.solve(case, settings, seed=0, workers=1, callback=lambda p: rounds.append(p.round))
    assert len(rounds) < 20


def test_schedules_follow_the_noise_and_keep_what_is_given(case14):
    quiet = scheduled(case14, tacit.Settings.for_budget(10.0, 1e-5, 10))
    loud = scheduled(case14, tacit.Settings.for_budget(0.1, 1e-5, 10))
    assert loud.step_size(5) < quiet.step_size(5) <= 0.5
    own = tacit.Settings(5, 1, Gaussian(1.0), penalty=7.0, step_size=NonsmoothStep(2.0))
    assert scheduled(case14, own) == own


def test_steps_are_short_enough_for_the_noisiest_zone():
    """η^t = 1/(2 + 4σ√(Et)), where the demands of one zone's bus move further than all others'."""
    for bus in (1, 9):
        power = build("case9", 3, beta={b: 0.05 if b == bus else 0.01 for b in range(1, 10)})
        found = scheduled(power, tacit.Settings(10, 2, Gaussian(3.0)))
        σ = 3.0 * 2 * 0.05 * np.sqrt(2)  # both demands, and the residual is doubled
        assert found.step_size(4) == pytest.approx(1 / (2 + 4 * σ * np.sqrt(2 * 4)), rel=1e-3)
