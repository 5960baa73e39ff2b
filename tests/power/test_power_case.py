"""Cases: per unit, what is in service, and one clear error for a broken file."""

import copy
import time
from functools import cache

import numpy as np
import pytest
from conftest import repeat
from grids import EVERYTHING
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.power import bound, load_case


@pytest.fixture
def everything(tmp_path):
    path = tmp_path / "everything.m"
    path.write_text(EVERYTHING)
    return path


def test_everything(everything):
    grid = load_case(everything)
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


def test_commas_and_comments_do_not_matter(tmp_path, everything):
    other = tmp_path / "commas.m"
    text = EVERYTHING.replace("\t", ", ").replace("[\n", "[ % rows\n\n").replace("\n, ", "\n")
    other.write_text(text)
    a, b = load_case(everything), load_case(other)
    assert a.bus.equals(b.bus) and a.line.equals(b.line) and a.generator.equals(b.generator)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("25\t1\t60", "25\t1\tsixty"), "numbers only in row 2 of mpc.bus (from line 5"),
        (("25\t1\t60\t20", "25\t1\t60"), "13 columns, got 12 in row 2 of mpc.bus"),
        (("10\t25\t0.02", "10\t77\t0.02"), "known buses in branch row 1 of broken (bus 10 and 77)"),
        (("25\t1\t60", "25\t1\tNaN"), "finite numbers in bus row 2 of broken"),
        (("25\t1\t60", "10\t1\t60"), "different bus numbers in broken, got bus 10 twice"),
        (("baseMVA = 50.0", "baseMVA = 0"), "baseMVA > 0"),
        (("mpc.gen = [", "mpc.generators = ["), "a table mpc.gen "),
        (("1.05\t0.95", "0.95\t1.05"), "finite v_min <= v_max at bus 25"),
        (("0.02\t0.10\t0.04", "0\t0\t0.04"), "an impedance at line 1"),
        (("2\t0\t0\t3\t0.02", "3\t0\t0\t3\t0.02"), "quadratic or piecewise linear cost"),
        (("\t2\t0\t0\t2\t30\t7\t0;\n", ""), "Expected 5 rows in gencost"),
        (("];\nmpc.gen = ", "\nmpc.gen = "), "mpc.bus (line 5 of"),
        (("0.90;\n\t9\t4", "0.90 9\t4"), "13 columns, got 26 in row 3 of mpc.bus"),
        (
            ("10\t25\t0.02", "10\t25.5\t0.02"),
            "whole bus numbers in branch row 1 of broken (bus 10 ",
        ),
        (("25\t1\t60", "25\t1\tInf"), "finite numbers in bus row 2 of broken"),
        (("0.04\t80", "0.04\t-80"), "limit >= 0 at line 1 of broken"),
    ],
)
def test_a_broken_file_gets_one_clear_error(tmp_path, change, words):
    assert change[0] in EVERYTHING
    path = tmp_path / "broken.m"
    path.write_text(EVERYTHING.replace(*change, 1))
    with pytest.raises(TacitError) as error:
        load_case(path)
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
    with pytest.raises(InvalidInput, match="got float"):
        load_case(1.0)
    with pytest.raises(CorruptFile, match=r"absent\.m: No such file"):
        load_case(tmp_path / "absent.m")
    with pytest.raises(InvalidInput, match="the table baseMVA"):
        load_case({})


def test_what_matlab_allows(tmp_path, everything):
    """No semicolons at line ends, continued lines, a byte-order mark; costs may be missing."""
    text = EVERYTHING.replace(";\n", "\n").replace(
        "\t0.02\t0.10\t", "\t0.02 ... the line\n\t0.10\t"
    )
    (tmp_path / "free.m").write_text("\ufeff" + text, encoding="utf-8")
    free = load_case(tmp_path / "free.m")
    for table in ("bus", "line", "generator"):
        assert getattr(free, table).equals(getattr(load_case(everything), table))
    without = (
        EVERYTHING[: EVERYTHING.index("mpc.gencost")] + EVERYTHING[EVERYTHING.index("mpc.br") :]
    )
    (tmp_path / "free.m").write_text(without)
    assert bound(load_case(tmp_path / "free.m")) == pytest.approx(0, abs=1e-6)


def test_variants_of_pglib_by_name():
    assert (
        load_case("case14_ieee__sad").line["angle_max"].max()
        < load_case("case14_ieee").line["angle_max"].max()
    )


def test_dc_lines_are_refused(tmp_path):
    path = tmp_path / "dc.m"
    path.write_text(EVERYTHING + "mpc.dcline = [\n\t10\t3\t1\t5;\n];\n")
    with pytest.raises(InvalidInput, match="AC lines only"):
        load_case(path)


@cache
def read_pandapower(name):
    import pandapower.networks

    return getattr(pandapower.networks, name)()


@pytest.mark.parametrize(
    "name", repeat(["case9", "case57"], ["case9", "case14", "case30", "case57"])
)
@pytest.mark.filterwarnings("ignore")  # pandapower's own
def test_pandapower_networks_are_the_same_grids(name):
    net = copy.deepcopy(read_pandapower(name))
    grid, same = load_case(net), load_case(name)
    assert list(grid.bus.index) == list(net.bus.index)
    assert len(grid.line) == len(same.line)
    assert grid.bus["p_demand"].tolist() == pytest.approx(same.bus["p_demand"].tolist())
    if name != "case57":  # there pandapower's generators have other limits
        assert bound(grid) == pytest.approx(bound(same), rel=1e-5)


def pandapower_case9():
    """Its case9, to change: reading it takes half a second."""
    return copy.deepcopy(read_pandapower("case9"))


@pytest.mark.filterwarnings("ignore")  # pandapower's own
def test_controllable_loads_would_be_public_limits():
    net = pandapower_case9()
    net.load["controllable"] = True
    with pytest.raises(InvalidInput, match="loads that are not controllable"):
        load_case(net)


def test_code_that_changes_tables_is_not_ignored(tmp_path):
    (tmp_path / "kw.m").write_text(EVERYTHING + "mpc.bus(:, [3, 4]) = mpc.bus(:, [3, 4]) / 1e3;\n")
    with pytest.raises(CorruptFile, match=r"code that changes them, which is not run, in line \d+"):
        load_case(tmp_path / "kw.m")


@pytest.mark.filterwarnings("ignore")  # pandapower's own
def test_pandapower_iron_losses_are_kept():
    import pandapower.networks

    net = pandapower.networks.mv_oberrhein()
    with pytest.raises(InvalidInput, match="pandapower network with limits"):
        load_case(net)
    net.bus["min_vm_pu"], net.bus["max_vm_pu"] = 0.9, 1.1
    grid = load_case(net)
    assert (grid.line["g"] > 0).any() and (grid.line["tap"] != 1).any()


def with_element(element):
    """case9 of pandapower with one more element at bus 4."""
    import pandapower as pp
    import pandas as pd

    net = pandapower_case9()
    limits = {"min_p_mw": -7.0, "max_p_mw": 7.0, "min_q_mvar": -1.0, "max_q_mvar": 1.0}
    make = {
        "ward": lambda: pp.create_ward(net, 4, 7.0, 2.0, 1.0, 1.0),
        "xward": lambda: pp.create_xward(net, 4, 7.0, 2.0, 1.0, 1.0, 0.1, 0.1, 1.0),
        "asymmetric_load": lambda: pp.create_asymmetric_load(net, 4, 1, 2, 4, 1, 1, 0),
        "asymmetric_sgen": lambda: pp.create_asymmetric_sgen(net, 4, 1, 2, 4, 1, 1, 0),
        "motor": lambda: pp.create_motor(net, 4, 7.0, 0.9),
        "dcline": lambda: pp.create_dcline(net, 4, 5, 1, 1, 1, 1.0, 1.0),
        "svc": lambda: pp.create_svc(net, 4, 1, -1, 1.0, 90),
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


@pytest.mark.filterwarnings("ignore")  # pandapower's own
@pytest.mark.parametrize(
    "element",
    ["ward", "xward", "asymmetric_load", "asymmetric_sgen", "motor", "dcline", "svc", "notes"],
)
def test_pandapower_elements_that_are_not_read_are_refused_by_name(element):
    with pytest.raises(InvalidInput, match=f"got the element '{element}', which is not supported"):
        load_case(with_element(element))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("element", "words"),
    [
        ("controllable storage", "storages that are not controllable"),
        ("controllable load", "loads that are not controllable"),
        ("controllable sgen", "sgens that are not controllable"),
        ("constant impedance", "loads of constant power"),
    ],
)
def test_pandapower_sizes_that_would_be_public_are_refused(element, words):
    with pytest.raises(InvalidInput, match=words):
        load_case(with_element(element))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("element", ["load", "sgen", "storage", "ward out of service", "shunt"])
def test_pandapower_demands_are_private_and_nothing_else_changes(element):
    """What an element takes is in the demand of its bus alone; limits and lines stay."""
    plain, grid = load_case(pandapower_case9()), load_case(with_element(element))
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
def test_angle_limits(everything, given, low, high):
    """Zero on both sides means none; on one side it is a limit."""
    everything.write_text(EVERYTHING.replace("-20\t40", given))
    line = load_case(everything).line.loc[5]
    assert (line["angle_min"], line["angle_max"]) == pytest.approx((low, high))


def test_empty_lines_take_no_time(tmp_path):
    """200,000 took minutes: each was looked through to the end of all."""
    (tmp_path / "g.m").write_text("\n" * 200_000 + EVERYTHING)
    began = time.process_time()
    assert len(load_case(tmp_path / "g.m").bus) > 0
    assert time.process_time() - began < 20
