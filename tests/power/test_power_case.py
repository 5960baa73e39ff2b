"""Cases: per unit, what is in service, and one clear error for a broken file."""

import copy
import json
import pickle
import sys
import time
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from conftest import repeat
from grids import EVERYTHING, case_file
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.power import bound, build, into_pandapower, load_case, matpower, power_flow
from tacit.power.case import _read


def test_everything(tmp_path):
    grid = load_case(case_file(tmp_path))
    assert repr(grid) == "Grid(everything: 3 buses, 4 lines, 3 generators, base 50 MVA)"
    assert list(grid.bus.index) == [10, 25, 3]  # isolated bus 9 is gone
    load = grid.bus.loc[25]
    assert load[["p_demand", "q_demand", "conductance", "susceptance"]].tolist() == pytest.approx(
        [1.2, 0.4, 0.05, 0.1]
    )
    assert grid.bus["area"].tolist() == [1, 1, 2]
    assert list(grid.line.index) == [1, 2, 3, 5]  # numbers of the file; 4 off, 6 goes to bus 9
    assert list(grid.generator.index) == [1, 2, 5]
    line = grid.line
    assert line["limit"].tolist() == pytest.approx([1.6, np.inf, 1.2, 1.4])  # 0 is no limit
    assert line["tap"].tolist() == [1, 1, 0.98, 1]
    assert line["shift"].tolist() == pytest.approx([0, 0, np.deg2rad(-3), 0])
    assert line["angle_min"].tolist() == pytest.approx(
        [np.deg2rad(-30), -np.inf, -np.inf, np.deg2rad(-20)]
    )
    assert line["angle_max"].tolist() == pytest.approx(
        [np.deg2rad(30), np.inf, np.inf, np.deg2rad(40)]
    )
    assert grid.generator["p_max"].tolist() == pytest.approx([2.0, 0.8, 0.6])
    costs = grid.generator["cost"].tolist()
    assert costs[0] == pytest.approx((0.02 * 2500, 10 * 50, 1))
    assert np.array(costs[1]) == pytest.approx(np.array([(0, 0), (0.4, 200), (0.8, 600)]))
    assert costs[2] == pytest.approx((0, 30 * 50, 7))


@pytest.mark.parametrize(
    "changes",
    [
        [("\t", ", "), ("[\n", "[ % rows\n\n"), ("\n, ", "\n")],
        # no semicolons at line ends, continued lines, a byte-order mark
        [
            (";\n", "\n"),
            ("\t0.02\t0.10\t", "\t0.02 ... the line\n\t0.10\t"),
            ("func", "\ufefffunc"),
        ],
    ],
)
def test_what_matlab_allows(tmp_path, changes):
    plain = load_case(case_file(tmp_path))
    other = load_case(case_file(tmp_path, *changes))
    for table in ("bus", "line", "generator"):
        assert getattr(plain, table).equals(getattr(other, table))


def test_costs_may_be_missing(tmp_path):
    costs = EVERYTHING[EVERYTHING.index("mpc.gencost") : EVERYTHING.index("mpc.br")]
    assert bound(load_case(case_file(tmp_path, (costs, "")))) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("25\t1\t60", "25\t1\tsixty"), "numbers only in row 2 of mpc.bus of"),
        (
            ("25\t1\t60\t20", "25\t1\t60"),
            "as in row 1, got 12 in row 2 of mpc.bus",
        ),
        (
            ("10\t25\t0.02", "10\t77\t0.02"),
            "known buses in branch row 1 of everything (bus 10 and",
        ),
        (("25\t1\t60", "25\t1\tNaN"), "finite numbers in bus row 2 of everything"),
        (("25\t1\t60", "10\t1\t60"), "different bus numbers in everything, got bus 10 twice"),
        (("baseMVA = 50.0", "baseMVA = 0"), "baseMVA > 0"),
        (("mpc.gen = [", "mpc.generators = ["), "a table mpc.gen "),
        (("1.05\t0.95", "0.95\t1.05"), "finite v_min <= v_max at bus 25"),
        (("0.02\t0.10\t0.04", "0\t0\t0.04"), "an impedance at line 1"),
        (("2\t0\t0\t3\t0.02", "3\t0\t0\t3\t0.02"), "quadratic or piecewise linear cost"),
        (("\t2\t0\t0\t2\t30\t7\t0;\n", ""), "Expected 5 rows in gencost"),
        (("];\nmpc.gen = ", "\nmpc.gen = "), "mpc.bus of"),
        (
            ("10\t25\t0.02", "10\t25.5\t0.02"),
            "whole bus numbers in branch row 1 of everything (bus 10 ",
        ),
        (("0.04\t80", "0.04\t-80"), "limit >= 0 at line 1 of everything"),
        (
            ("mpc.gen =", "mpc.bus(:, 3) = 0;\nmpc.gen ="),
            "code that changes them",
        ),
        (("mpc.bus = [", "mpc.bus = 2 * ["), "Expected rows of numbers in mpc.bus of"),
        (("mpc.gen =", "mpc.dcline = [\n\t10\t3;\n];\nmpc.gen ="), "AC lines only"),
    ],
)
def test_a_broken_file_gets_one_clear_error(tmp_path, change, words):
    with pytest.raises(TacitError) as error:
        load_case(case_file(tmp_path, change))
    assert words in str(error.value), error.value


@given(st.integers(0, len(EVERYTHING.rstrip()) - 2))
def test_a_truncated_file_is_never_read_as_whole(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "cut.m"
    path.write_text(EVERYTHING[:length])
    with pytest.raises(CorruptFile, match=r"cut\.m"):
        load_case(path)


def test_what_is_no_case(tmp_path):
    (tmp_path / "binary.m").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(CorruptFile, match="text"):
        load_case(tmp_path / "binary.m")
    with pytest.raises(InvalidInput, match="case118_ieee, got 'case15'"):
        load_case("case15")
    for wrong, near in (
        ("case118ieee", "case118_ieee"),
        ("case_14", "case14"),
    ):
        with pytest.raises(InvalidInput, match=rf"got '{wrong}'\. Did you mean {near}\?"):
            load_case(wrong)
    with pytest.raises(InvalidInput, match=r"got 'my net'\.$"):
        load_case("my net")
    with pytest.raises(InvalidInput, match=r"got 'case118_\*'"):  # a name, and no pattern
        load_case("case118_*")
    with pytest.raises(InvalidInput, match="got float"):
        load_case(1.0)
    with pytest.raises(CorruptFile, match=r"absent\.m: No such file"):
        load_case(tmp_path / "absent.m")
    with pytest.raises(InvalidInput, match="the table baseMVA"):
        load_case({})


@cache
def original(name):
    import pandapower.networks

    return getattr(pandapower.networks, name)()


def pandapower(name="case9"):
    """A network to change: reading one takes half a second."""
    return copy.deepcopy(original(name))


@pytest.mark.parametrize(
    "name", repeat(["case9", "case57"], ["case9", "case14", "case30", "case57"])
)
@pytest.mark.filterwarnings("ignore")  # pandapower's own
def test_pandapower_networks_are_the_same_grids(name):
    net = pandapower(name)
    grid, same = load_case(net), load_case(name)
    assert list(grid.bus.index) == list(net.bus.index)
    assert len(grid.line) == len(same.line)
    assert grid.bus["p_demand"].tolist() == pytest.approx(same.bus["p_demand"].tolist())
    if name != "case57":  # there pandapower's generators have other limits
        assert bound(grid) == pytest.approx(bound(same), rel=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_limits_that_a_pandapower_network_leaves_out():
    """Defaults that are said, from public numbers: none of them depends on a load."""
    net = pandapower("mv_oberrhein")
    grid = load_case(net)
    assert (grid.line["g"] > 0).any() and (grid.line["tap"] != 1).any()  # iron losses are kept
    inner = grid.bus.drop(grid.generator["bus"])  # an external grid holds its voltage
    assert set(inner["v_min"]) == {0.9} and set(inner["v_max"]) == {1.1}
    assert np.isfinite(grid.line["limit"]).all()
    said = "; ".join(grid.assumed)
    assert f"min_vm_pu = 0.9 of {len(net.bus)} of {len(net.bus)} in bus" in said
    assert "upper p of 2 of 2 generators" in said and "each MWh costs 1" in said
    for _, one in grid.generator.iterrows():  # an external grid: as its lines carry, both ways
        ends = grid.line[["from_bus", "to_bus"]].eq(one["bus"]).any(axis=1)
        carried = grid.line.loc[ends, "limit"].sum()
        assert one[["p_max", "q_max"]].tolist() == pytest.approx([carried] * 2)
        assert one[["p_min", "q_min"]].tolist() == pytest.approx([-carried] * 2)
    assert "min_vm_pu" not in net.bus  # the user's own network stays as it is
    net.load["p_mw"] *= 7
    other = load_case(net)
    assert other.assumed == grid.assumed and other.generator.equals(grid.generator)
    given = pandapower()
    given.gen.loc[0, ["max_p_mw", "min_q_mvar"]] = np.nan
    grid = load_case(given)
    assert grid.assumed == (
        "upper p of 1 of 3 generators: as its lines carry",
        "lower q of 1 of 3 generators: as its lines carry",
    )
    assert grid.generator["p_max"].tolist() == pytest.approx([2.5, 2.5, 2.7])
    given.gen = given.gen.drop(columns=["min_p_mw", "max_p_mw"])
    grid = load_case(given)
    none = "lower p of 2 of 3 generators: 0, of external grids minus what its lines carry"
    assert none in grid.assumed and "min_p_mw" not in given.gen
    assert grid.generator["p_min"].tolist()[1:] == [0.0, 0.0]
    given.gen["in_service"] = False
    with pytest.raises(InvalidInput, match="optimal power flow can read"):  # with their costs
        load_case(given)
    given.poly_cost = given.poly_cost[given.poly_cost["et"] == "ext_grid"]
    given.bus.loc[1, "in_service"] = False
    given.line.loc[[2, 4], "in_service"] = False  # of bus 5, and of bus 2 behind it
    grid = load_case(given)
    assert grid.assumed[-1].endswith("as no external grid feeds them: buses 2, 5")
    assert grid.generator["element"].tolist() == ["ext_grid 0"]


@pytest.mark.filterwarnings("ignore")
def test_pandapower_networks_in_json(tmp_path, monkeypatch):
    """The same grid; nothing that a file names is imported, which pandapower's own reader does."""
    import pandapower as pp

    net = pandapower()
    pp.create_gen(net, 4, 50.0, in_service=False)
    pp.to_json(net, tmp_path / "n.json")
    grid, same = load_case(tmp_path / "n.json"), load_case(net)
    assert grid.name == "n" and grid.base_mva == same.base_mva
    for table in ("bus", "line", "generator"):
        assert getattr(grid, table).equals(getattr(same, table)), table
    assert grid.generator["element"].tolist() == ["ext_grid 0", "gen 0", "gen 1"]
    (tmp_path / "planted_code.py").write_text("class Planted:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    document = json.loads((tmp_path / "n.json").read_text())
    planted = {"_module": "planted_code", "_class": "Planted", "_object": {}}
    for place in ("controller", "std_types", "name", "mine"):
        document["_object"][place] = planted
    document |= planted | {"_object": document["_object"]}
    (tmp_path / "planted.json").write_text(json.dumps(document))
    assert load_case(tmp_path / "planted.json").bus.equals(grid.bus)
    assert "planted_code" not in sys.modules
    with suppress(Exception):  # the control
        pp.from_json(str(tmp_path / "planted.json"))
    assert sys.modules.pop("planted_code", None) is not None


@pytest.mark.filterwarnings("ignore")
def test_files_of_networks_that_are_none(tmp_path):
    import pandapower as pp

    pp.to_json(pandapower(), tmp_path / "n.json")
    text = (tmp_path / "n.json").read_text()
    deep = '{"_object": {"bus": ' + "[" * 10**5
    bus = json.loads(text)["_object"]["bus"]
    for wrong in (
        *("", "[]", "{}", '{"_object": 1}', text[:-9], deep, text.replace('"columns', '"c', 1)),
        json.dumps({"_object": {"bus": {**bus, "_object": "[]"}}}),
        json.dumps({"_object": {"bus": {**bus, "dtype": {"vn_kv": "int8"}}, "version": [1]}}),
    ):
        (tmp_path / "wrong.json").write_text(wrong)
        with pytest.raises(CorruptFile, match=r"wrong\.json"):
            load_case(tmp_path / "wrong.json")
    (tmp_path / "n.p").write_bytes(pickle.dumps(Unpickled()))
    with pytest.raises(InvalidInput, match=r"a pickle runs .*to_json"):
        load_case(tmp_path / "n.p")
    pp.create_ward(net := pandapower(), 4, 7.0, 2.0, 1.0, 1.0)
    pp.to_json(net, tmp_path / "ward.json")
    with pytest.raises(InvalidInput, match="element 'ward', which is not supported"):
        load_case(tmp_path / "ward.json")


class Unpickled:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


@pytest.mark.filterwarnings("ignore")
def test_the_way_back_into_a_pandapower_network():
    import pandapower as pp

    net = pandapower()
    net.gen = net.gen.iloc[::-1]  # elements are found by their index
    case = build(net, 3, objective="cost")
    tables = case.tables(case.central())
    made, voltage = tables["generator"]["p"], tables["bus"]["voltage"]
    back = into_pandapower(net, case.grid, made, voltage)
    assert back.gen["p_mw"].loc[[0, 1]].tolist() == pytest.approx(100 * made[[3, 2]].to_numpy())
    assert back.gen["vm_pu"].loc[[0, 1]].tolist() == pytest.approx(voltage[[1, 2]].to_numpy())
    assert net.gen["p_mw"].loc[0] == 163  # the user's own stays as it is
    pp.runpp(back)
    flow = power_flow(case.grid, made, voltage)
    assert back.res_ext_grid["p_mw"].tolist() == pytest.approx(
        [100 * flow.generator["p"][1]], rel=1e-3
    )


def test_the_way_back_to_a_matpower_file(tmp_path):
    grid = load_case(case_file(tmp_path))
    p, q = grid.generator["p_max"], grid.generator["q_min"]
    voltage = grid.bus["v_max"]
    (tmp_path / "d.m").write_text(matpower(grid, p, q, voltage))
    back = load_case(tmp_path / "d.m")
    assert back.base_mva == grid.base_mva
    for name in ("bus", "line", "generator"):
        one, other = getattr(grid, name), getattr(back, name)
        for column in one.columns.drop("cost", errors="ignore"):
            assert other[column].to_numpy() == pytest.approx(one[column].to_numpy()), column
    for one, other in zip(grid.generator["cost"], back.generator["cost"], strict=True):
        assert np.array(other) == pytest.approx(np.array(one))
    found = _read(tmp_path / "d.m")
    assert found["gen"][:, 1:3] / 50 == pytest.approx(np.column_stack([p, q]))
    assert found["bus"][:, 7] == pytest.approx(voltage.to_numpy())


def with_element(element):
    """case9 of pandapower with one more element at bus 4."""
    import pandapower as pp
    import pandas as pd

    net = pandapower()
    limits = {"min_p_mw": -7.0, "max_p_mw": 7.0, "min_q_mvar": -1.0, "max_q_mvar": 1.0}
    make = {
        "ward": lambda: pp.create_ward(net, 4, 7.0, 2.0, 1.0, 1.0),
        "dcline": lambda: pp.create_dcline(net, 4, 5, 1, 1, 1, 1.0, 1.0),
        "notes": lambda: net.update(notes=pd.DataFrame({"a": [1]})),
        "storage": lambda: pp.create_storage(net, 4, 7.0, 10, q_mvar=2.0),
        "sgen": lambda: pp.create_sgen(net, 4, -7.0, q_mvar=-2.0),
        "load": lambda: pp.create_load(net, 4, 7.0, 2.0),
        "shunt": lambda: pp.create_shunt(net, 4, 5.0, 1.0),
        "controllable storage": lambda: pp.create_storage(
            net, 4, 7.0, 10, controllable=True, **limits
        ),
        "controllable load": lambda: pp.create_load(net, 4, 7.0, controllable=True, **limits),
        "controllable sgen": lambda: pp.create_sgen(net, 4, 7.0, controllable=True, **limits),
        "constant impedance": lambda: net.load.__setitem__("const_z_percent", 50.0),
        "ward out of service": lambda: pp.create_ward(net, 4, 7, 2, 1, 1, in_service=False),
    }
    make[element]()
    return net


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("element", "words"),
    [
        ("ward", "the element 'ward', which is not supported"),
        ("dcline", "the element 'dcline', which is not supported"),
        ("notes", "the element 'notes', which is not supported"),
        ("controllable storage", "storages that are not controllable"),
        ("controllable load", "loads that are not controllable"),
        ("controllable sgen", "sgens that are not controllable"),
        ("constant impedance", "loads of constant power"),
    ],
)
def test_pandapower_sizes_that_would_be_public_or_dropped_are_refused(element, words):
    with pytest.raises(InvalidInput, match=words):
        load_case(with_element(element))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("element", ["load", "sgen", "storage", "ward out of service", "shunt"])
def test_pandapower_demands_are_private_and_nothing_else_changes(element):
    """What an element takes is in the demand of its bus alone; limits and lines stay."""
    plain, grid = (
        load_case(pandapower()),
        load_case(with_element(element)),
    )
    more = {"p_demand": 0.07, "q_demand": 0.02} if element in ("load", "sgen", "storage") else {}
    public = {"conductance": 0.01, "susceptance": -0.05} if element == "shunt" else {}
    for column in plain.bus:
        change = (grid.bus[column] - plain.bus[column]).to_dict()
        assert change.pop(4) == pytest.approx({**more, **public}.get(column, 0.0)), column
        assert list(change.values()) == pytest.approx([0.0] * 8), column
    assert grid.line.equals(plain.line) and grid.generator.equals(plain.generator)


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ("0\t40", 0.0, np.deg2rad(40)),
        ("-20\t0", np.deg2rad(-20), 0.0),
        ("0\t0", -np.inf, np.inf),
        ("-90\t10", -np.inf, np.deg2rad(10)),
    ],
)
def test_angle_limits(tmp_path, given, low, high):
    """Zero on both sides means none; on one side it is a limit."""
    line = load_case(case_file(tmp_path, ("-20\t40", given))).line.loc[5]
    assert (line["angle_min"], line["angle_max"]) == pytest.approx((low, high))


def test_empty_lines_take_no_time(tmp_path):
    """200,000 took minutes: each was looked through to the end of all."""
    path = case_file(tmp_path, text="\n" * 200_000 + EVERYTHING)
    began = time.process_time()
    assert len(load_case(path).bus) > 0
    assert time.process_time() - began < 20
