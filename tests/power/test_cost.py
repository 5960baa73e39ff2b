"""Generation cost: its steps, what is read of it, and the optimum of the relaxation."""

import dataclasses

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from grids import case_file, constraints

from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.power import bound, build, load_case
from tacit.power.cost import largest_marginal_cost, published_cost, solve_centrally
from tacit.power.model import served
from tacit.power.network import demand
from tacit.privacy.mechanisms import Gaussian
from tacit.report.page import outcome, price_in_words
from tacit.transports.solving import solve


def public(case):
    """The zones' public copies, without noise."""
    readings = [agent.objective.statistics() for agent in case.agents]
    return [reading.released_objective(reading.values, 0.0) for reading in readings]


def curved(name):
    """The grid with quadratic costs that decide who generates: PGLib's are mostly linear."""
    grid = load_case(name)
    costs = [(900.0 + 400.0 * k, 100.0 + 50.0 * k, 7.0) for k in range(len(grid.generator))]
    return dataclasses.replace(grid, generator=grid.generator.assign(cost=costs))


@pytest.mark.parametrize(
    ("grid", "tolerance"),
    [
        ("case5_pjm", 1e-5),
        ("case14_ieee", 1e-5),
        ("case57_ieee", 1e-5),
        (curved("case14_ieee"), 1e-5),
        ("case200_activ", 3e-4),  # local problems of its scale failed once
    ],
    ids=str,
)
def test_without_noise_zones_find_the_least_cost_of_the_relaxation(grid, tolerance):
    """Rows of a table; larger cases are in benchmarks/power_cost.py."""
    case = build(grid, 3, objective="cost")
    result = solve(case.problem, Settings(1000, tolerance=tolerance))
    least, z = bound(case.grid), result.local
    assert result.converged
    assert case.cost(z) == pytest.approx(least, rel=max(1e-4, tolerance))
    if tolerance <= 1e-5:  # all demand is met: the price is paid
        worth = case.agents[0].objective.tariff.worth
        value = sum(float(a.objective.value(x)) for a, x in zip(case.agents, z, strict=True))
        assert worth * value == pytest.approx(least, rel=1e-4)


def test_published_cost_of_a_grid_with_quadratic_costs():
    """case3_lmbd: its AC cost less the gap of the relaxation, which PGLib rounds up to 1.32 %."""
    case = build("case3_lmbd", 3, objective="cost")
    assert max(quadratic for quadratic, _, _ in case.grid.generator["cost"]) > 1000
    published = published_cost("pglib_opf_case3_lmbd") * (1 - 0.0132)
    local = solve(case.problem, Settings(300, tolerance=1e-5)).local
    assert case.cost(local) == pytest.approx(published, rel=2e-4)
    assert case.cost(case.central()) == pytest.approx(published, rel=2e-4)


@pytest.mark.parametrize("grid", ["case14_ieee", curved("case14_ieee")], ids=["linear", "curved"])
def test_one_step_is_the_optimum_that_cvxpy_finds(grid):
    case = build(grid, 3, objective="cost", shed_price=30.0)
    rng = np.random.default_rng(0)
    for agent, net, f in zip(case.agents, case.networks, public(case), strict=True):
        n, costs = agent.dimension, f.tariff
        v, c = rng.normal(size=n), rng.uniform(0.1, 3.0, n)
        z = f.prox(agent.feasible_set)(v, c)
        assert agent.feasible_set.violation(z) <= 1e-7
        x = cp.Variable(net.image.shape[1])
        y = net.image @ x
        made = costs.quadratic @ cp.square(y) + costs.linear @ y + costs.constant
        value = made + costs.price * cp.norm1(net.balance @ y + np.asarray(f.data))
        value += c @ cp.square(y - v) / 2
        whole = cp.Problem(cp.Minimize(value), constraints(net, x))
        ours = float(f.value(z)) + c @ (z - v) ** 2 / 2
        assert ours == pytest.approx(whole.solve(cp.CLARABEL), rel=1e-6)
        assert z == pytest.approx(y.value, abs=1e-4)


def test_value_is_the_cost_in_dollars_and_the_price_of_all_that_is_short():
    case = build("case14_ieee", 3, objective="cost", shed_price=1000.0)
    z = [np.random.default_rng(1).normal(size=agent.dimension) for agent in case.agents]
    worth = case.agents[0].objective.tariff.worth
    assert worth == pytest.approx(100 * largest_marginal_cost(case.grid))
    short = np.abs(case.tables(tuple(z))["bus"][["p_shed", "q_shed"]].to_numpy()).sum()
    dollars = case.cost(z) + 1000.0 * 100 * short
    total = sum(float(a.objective.value(x)) for a, x in zip(case.agents, z, strict=True))
    assert worth * total == pytest.approx(dollars)
    for f, agent, x in zip(public(case), case.agents, z, strict=True):
        assert float(f.value(x)) == pytest.approx(float(agent.objective.value(x)))
        other = x + 0.1 * np.random.default_rng(2).normal(size=len(x))
        below = float(f.value(x)) + f.gradient(x) @ (other - x)  # a subgradient
        assert float(f.value(other)) >= below - 1e-9


def test_loads_are_read_as_for_load_shedding():
    cost, shed = (build("case14_ieee", 3, objective=o, beta=0.02) for o in ("cost", "shed"))
    for a, b in zip(cost.agents, shed.agents, strict=True):
        ours, theirs = a.objective.statistics(), b.objective.statistics()
        assert np.array_equal(ours.values, theirs.values)
        assert [ours.sensitivity(p) for p in (1, 2)] == [theirs.sensitivity(p) for p in (1, 2)]
        assert a.objective.relation == b.objective.relation
        noisy = ours.values + 1.0
        assert np.array_equal(ours.released_objective(noisy, 0.1).data, noisy)
        assert ours.released_objective(noisy, 0.1).sensitivity(2, a.feasible_set) == 0
    doubtful = build("case14_ieee", 3, objective="cost", beta="1% of bus")
    assert "private loads" in doubtful.agents[0].objective.uncertified


def test_noise_in_every_round_is_refused():
    case = build("case14_ieee", 3, objective="cost")
    settings = Settings(2, 1, Gaussian(1.0), 1e-5, penalty=1.0, step_size=1.0)
    with pytest.raises(InvalidInput, match="Expected a release"):
        solve(case.problem, settings, seed=0)


def test_prices_and_costs_that_do_not_fit(tmp_path):
    grid = load_case("case14_ieee")
    assert build(grid, 2, objective="cost").shed_price == 100 * largest_marginal_cost(grid)
    with pytest.raises(InvalidInput, match="shed_price beside objective='cost'"):
        build(grid, 2, shed_price=10.0)
    with pytest.raises(InvalidInput, match="shed_price"):
        build(grid, 2, objective="cost", shed_price=-1.0)
    with pytest.raises(InvalidInput, match="objective"):
        build(grid, 2, objective="price")
    with pytest.raises(InvalidInput, match="generator 2"):
        build(case_file(tmp_path), 2, objective="cost")

    def priced(cost):
        generator = grid.generator.assign(cost=[cost] * len(grid.generator))
        return dataclasses.replace(grid, generator=generator)

    with pytest.raises(InvalidInput, match="convex quadratic"):
        build(priced((-1.0, 1.0, 0.0)), 2, objective="cost")
    with pytest.raises(InvalidInput, match=r"\(gencost\) or a shed_price"):
        build(priced((0.0, 0.0, 5.0)), 2, objective="cost")
    free = build(priced((0.0, 0.0, 5.0)), 2, objective="cost", shed_price=7.0)
    assert free.agents[0].objective.tariff.price == 1.0


@pytest.mark.parametrize("objective", ["shed", "cost"])
def test_central_solution_is_below_that_of_zones_at_released_loads(objective):
    """And at true loads it is the relaxation's: no load shed, at the least cost."""
    case = build("case14_ieee", 3, objective=objective)
    z = case.central()
    assert case.served(z)["p"]["share"] == pytest.approx(1, abs=1e-8)
    if objective == "cost":
        assert case.cost(z) == pytest.approx(bound(case.grid), rel=1e-7)
        dear = build(curved("case14_ieee"), 3, objective="cost")
        assert dear.cost(dear.central()) == pytest.approx(bound(dear.grid), rel=1e-7)
    rng = np.random.default_rng(0)
    more = 0.4 if objective == "shed" else 0.0  # so much that some is shed
    released = []
    for agent in case.agents:
        reading = agent.objective.statistics()
        noise = 0.05 * rng.normal(size=len(reading.values))
        released.append(reading.released_objective(reading.values + more + noise, 0.05))
    central = case.central(released)
    for agent, x in zip(case.agents, central, strict=True):
        assert agent.feasible_set.violation(x) <= 1e-6
    copies = zip(case.agents, released, strict=True)
    zones = Problem([a.with_objective(f, a.name) for a, f in copies], case.problem.penalties)
    values = [
        sum(float(f.value(x)) for f, x in zip(released, local, strict=True))
        for local in (solve(zones, Settings(300, tolerance=1e-5)).local, central)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-3) and values[1] > 0.1


def test_the_cost_of_a_dispatch_by_hand(tmp_path):
    """A polynomial, corners and a line: 25, 30 and 10 MW."""
    case = build(case_file(tmp_path), {10: "a", 25: "a", 3: "b"})
    made = dict(zip(case.grid.generator.index, (0.5, 0.6, 0.2), strict=True))  # per unit of 50 MVA
    local = [np.zeros(len(net.names)) for net in case.networks]
    for net, z in zip(case.networks, local, strict=True):
        for k, (quantity, key) in enumerate(net.names):
            if quantity == "p":
                z[k] = made[key]
    by_hand = (0.02 * 25**2 + 10 * 25 + 1) + 400 + (30 * 10 + 7)
    assert case.cost(tuple(local)) == pytest.approx(by_hand)


def test_what_privacy_costs(tmp_path):
    """Beside the optimum at the true loads; not known where there is no power flow."""
    case = build(curved("case14"), 3, objective="cost")
    low = [0.8 * demand(case.grid, net.buses) for net in case.networks]
    best = case.price_of_privacy(case.central())
    found = case.price_of_privacy(solve_centrally(case, low))
    assert best["private"] == best["without_privacy"] == found["without_privacy"]
    assert best["private"] == pytest.approx(case.cost(case.central()), rel=0.01)
    assert found["unit"] == "$/h" and found["private"] > 1.002 * best["private"]
    assert f"without privacy {best['private']:,.2f} $/h (+" in price_in_words(found)
    shed = build("case14_ieee", 3)
    found = shed.price_of_privacy(solve_centrally(shed, low))
    assert found["unit"] == "share" and found["private"] == pytest.approx(0.8, abs=1e-3)
    assert "served 80 %, without privacy 100 %" in price_in_words(found)
    nowhere = dataclasses.replace(case.grid, bus=case.grid.bus.assign(p_demand=9.0))
    assert dataclasses.replace(case, grid=nowhere).price_of_privacy(case.central()) is None


def test_what_is_served_by_hand():
    """Of loads alone: a bus that makes power, and one with a surplus, serve no other."""
    bus = pd.DataFrame({"p_demand": [2.0, 1.0, -1.5, 1.0], "p_shed": [0.5, -0.25, 0.0, 5e-4]})
    bus[["q_demand", "q_shed"]] = [[0.0, 0.5], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]
    found = served(bus, 100.0)
    p, q = found["p"], found["q"]
    assert (p["load"], p["short"], p["surplus"]) == pytest.approx((4.0, 0.5005, 0.25))
    assert p["share"] == pytest.approx(1 - 0.5005 / 4) and p["buses"] == 1
    assert p["short_mw"] == pytest.approx(50.05) and q["surplus_mvar"] == 0
    assert q["load"] == 0 and q["share"] == 1.0 and q["buses"] == 1 and found["of_buses"] == 4
    words = dict(outcome({"answer": {"served": found}}))["Active load served"]
    assert "87.49 %" in words and "50.05 of 400 MW short, at 1 of 4 buses" in words
    bus["p_shed"] = 3.0  # more than there is: a share is no less than 0
    assert served(bus, 100.0)["p"]["share"] == 0.0
