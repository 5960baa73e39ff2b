"""The AC power flow of a dispatch, against the network's own equations and MATPOWER's case."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from grids import case_file

from tacit.errors import InvalidInput, SolverFailure
from tacit.power import build, load_case, network, plot_power_flow, power_flow
from tacit.power.ac_flow import after_slack


def dispatch(grid):
    """Half of what generators can make, all voltages 1."""
    p = grid.generator[["p_min", "p_max"]].mean(axis=1)
    return p, pd.Series(1.0, grid.bus.index)


def residual(flow):
    """Power that leaves each bus, less generation, plus demand, by the relaxation's equations."""
    grid = flow.grid
    net = network(grid)
    V = dict(zip(flow.bus.index, flow.bus["voltage"] * np.exp(1j * flow.bus["angle"]), strict=True))
    products = [V[i] * np.conj(V[j]) for i, j in net.pairs]
    u = [abs(V[b]) ** 2 for b in net.extended]
    made = flow.generator.loc[net.generators]
    x = np.concatenate([u, np.real(products), np.imag(products), made["p"], made["q"]])
    demand = grid.bus.loc[net.buses, ["p_demand", "q_demand"]].to_numpy().T.ravel()
    return net.balance @ (net.image @ x) + demand, dict(zip(net.names, net.image @ x, strict=True))


@pytest.mark.parametrize("name", ["case14_ieee", "case118", "case57", "everything"])
def test_power_balances_at_every_bus(name, tmp_path):
    """Taps, shifts, shunts, iron losses and several generators at a bus, by other equations."""
    if name == "everything":
        grid = load_case(case_file(tmp_path))
        lossy = grid.line.assign(g=0.02)
        grid = dataclasses.replace(grid, line=lossy, bus=grid.bus.assign(p_demand=0.3))
    else:
        grid = load_case(name)
    p, voltage = dispatch(grid)
    p *= grid.bus["p_demand"].sum() / p.sum()
    flow = power_flow(grid, p, voltage)
    short, z = residual(flow)
    assert flow.converged and np.abs(short).max() < 1e-6
    for quantity in ("p_from", "q_from", "p_to", "q_to") if name != "everything" else ():
        ours = [z[quantity, k] for k in flow.line.index]
        assert flow.line[quantity].to_numpy() == pytest.approx(ours, abs=1e-6)
    others = flow.generator[~flow.generator["slack"]]
    assert others["p"].to_numpy() == pytest.approx(others["dispatched"].to_numpy())
    found = flow.summary()
    generated = grid.base_mva * flow.generator["p"].sum()
    assert found["slack_mw"] == pytest.approx(generated - found["dispatched_mw"])
    for end in ("from", "to"):  # a line is loaded at its worse end
        power = np.hypot(flow.line[f"p_{end}"], flow.line[f"q_{end}"])
        assert (power / flow.line["limit"] <= flow.line["loading"] * (1 + 1e-12)).all()


def test_limits_that_are_broken_are_listed():
    case = build("case14_ieee", 3, objective="cost")
    tables = case.tables(case.central())
    p, voltage = tables["generator"]["p"], tables["bus"]["voltage"]
    usual = power_flow(case.grid, p, voltage)
    assert not len(usual.overloads) and not len(usual.voltages)
    # gap 0.11%: what the relaxation leaves out is small
    assert abs(usual.summary()["slack_mw"]) < 1
    assert usual.summary()["losses_mw"] == pytest.approx(
        usual.summary()["dispatched_mw"] + usual.summary()["slack_mw"] - 259.0
    )
    line, bus = case.grid.line.copy(), case.grid.bus.copy()
    line.loc[1, "limit"], bus.loc[14, "v_max"] = 0.1, 0.95
    flow = power_flow(dataclasses.replace(case.grid, line=line, bus=bus), p, voltage)
    found = flow.summary()
    assert [row["line"] for row in found["overloads"]] == [1]
    assert found["overloads"][0]["loading"] == found["highest_loading"] > 1
    assert [row["bus"] for row in found["voltages"]] == [14]
    axes = plot_power_flow(flow).axes[0]
    assert "lines 1, voltages 1" in axes.get_title()
    assert {text.get_text() for text in axes.texts} == set(map(str, range(1, 15)))


def test_a_dispatch_that_has_no_power_flow():
    grid = load_case("case14_ieee")
    heavy = dataclasses.replace(grid, bus=grid.bus.assign(p_demand=9.0))
    flow = power_flow(heavy, *dispatch(grid))
    assert not flow.converged and set(flow.summary()) == {
        *("case", "converged", "load_mw", "dispatched_mw")
    }
    assert "no AC power flow" in plot_power_flow(flow).axes[0].get_title()


def test_dispatches_of_another_case_and_islands_without_generators():
    grid = load_case("case14_ieee")
    p, voltage = dispatch(grid)
    with pytest.raises(InvalidInput, match="each generator of pglib_opf_case14_ieee"):
        power_flow(grid, p.iloc[1:], voltage)
    with pytest.raises(InvalidInput, match="each bus of"):
        power_flow(grid, p, voltage * np.nan)
    ends = grid.line[["from_bus", "to_bus"]]
    cut = grid.line[~ends.isin([14]).any(axis=1)]
    with pytest.raises(InvalidInput, match="island of bus 14"):
        power_flow(dataclasses.replace(grid, line=cut), p, voltage)


def test_generators_that_cannot_change_their_reactive_power_make_it():
    grid = load_case("case14_ieee")
    last = grid.generator.index[-1]
    fixed = grid.generator.copy()
    fixed.loc[last, ["q_min", "q_max"]] = 0.05
    grid = dataclasses.replace(grid, generator=fixed)
    flow = power_flow(grid, *dispatch(grid))
    assert flow.converged and flow.generator.loc[last, "q"] == pytest.approx(0.05)


def test_what_a_dispatch_costs_after_slack_by_hand():
    """The slack makes up within its limits, then others by their room, then load is not served."""
    case = build("case14_ieee", 3, objective="cost")
    tables, grid = case.tables(case.central()), case.grid
    p, voltage = tables["generator"]["p"], tables["bus"]["voltage"]
    flow = power_flow(grid, p, voltage)
    slack = flow.generator.index[flow.generator["slack"]]
    by_hand = sum(
        np.polyval(grid.generator["cost"][g], made) for g, made in flow.generator["p"].items()
    )
    cost, short = after_slack(grid, p, voltage, 1000.0)
    assert cost == pytest.approx(by_hand) and short == pytest.approx(0, abs=1e-9)
    # the least cost serves the load: a dispatch without its last generator's share costs more
    assert cost == pytest.approx(case.cost(case.central()), rel=5e-3)
    less, _ = after_slack(grid, p * 0.9, voltage, 1000.0)
    assert less == pytest.approx(cost, rel=0.02)  # made up for by the slack, at its marginal cost
    # a slack without room: generator 2 has some
    limits = grid.generator.copy()
    limits.loc[slack, "p_max"] = p[slack] - 0.1
    tight = dataclasses.replace(grid, generator=limits)
    cost, short = after_slack(tight, p, voltage, 1000.0)
    room = (limits["p_max"] - p).drop(slack)
    moved = p + 0.1 * (room / room.sum()).reindex(p.index).fillna(0)
    moved[slack] = limits.loc[slack, "p_max"]
    assert short == pytest.approx(0, abs=0.02) and cost == pytest.approx(grid.cost(moved), rel=2e-3)
    # none has any: what is missing has the price of load that is not served
    limits["p_max"] = np.maximum(p - 0.02, limits["p_min"])
    cut = dataclasses.replace(grid, generator=limits)
    cost, short = after_slack(cut, p, voltage, 1000.0)
    missing = grid.base_mva * (flow.generator["p"] - limits["p_max"]).clip(lower=0).sum()
    assert short == pytest.approx(missing, rel=0.05) and short > 1
    assert cost == pytest.approx(grid.cost(p.clip(upper=limits["p_max"])) + 1000 * short)
    heavy = dataclasses.replace(grid, bus=grid.bus.assign(p_demand=9.0))
    with pytest.raises(SolverFailure, match="no AC power flow"):
        after_slack(heavy, p, voltage, 1000.0)
