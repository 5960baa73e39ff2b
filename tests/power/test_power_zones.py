"""Zones: balanced, connected, or as the user says; clear errors otherwise."""

import networkx
import pytest
from grids import case_file

from tacit.errors import InvalidInput
from tacit.power import build, load_case, partition
from tacit.power.public_model import lines_between


@pytest.mark.parametrize(
    ("name", "zones"), [("case14", 3), ("case118", 3), ("case118", 10), ("case300", 8)]
)
def test_metis_zones_are_balanced_connected_and_the_same_again(name, zones):
    grid = load_case(name)
    parts = partition(grid, zones)
    sizes = [len(buses) for buses in parts.values()]
    assert len(parts) == zones and sum(sizes) == len(grid.bus)
    assert max(sizes) <= 1.35 * len(grid.bus) / zones
    assert sorted(b for buses in parts.values() for b in buses) == sorted(grid.bus.index)
    graph = networkx.Graph(zip(grid.line["from_bus"], grid.line["to_bus"], strict=True))
    assert all(networkx.is_connected(graph.subgraph(buses)) for buses in parts.values())
    assert partition(grid, zones) == parts


def test_zones_of_case14_are_the_ones_we_publish():
    parts = partition(load_case("case14"), 3)
    assert list(parts.values()) == [[1, 2, 3, 4, 5], [6, 10, 11, 12], [7, 8, 9, 13, 14]]


def test_area_column_csv_and_mapping(tmp_path):
    grid = load_case("case30")
    by_area = partition(grid, "area")
    assert len(by_area) == 3
    zone_of = {bus: name for name, buses in by_area.items() for bus in buses}
    assert all(grid.bus.loc[b, "area"] == int(name.split()[-1]) for b, name in zone_of.items())
    path = tmp_path / "zones.csv"
    lines = [f"{b}, {'north' if b < 10 else 'south'}" for b in grid.bus.index]
    path.write_text("bus,zone\n" + "\n".join(lines) + "\n")
    parts = partition(grid, path)
    assert list(parts) == ["zone north", "zone south"] and parts["zone north"] == list(range(1, 10))
    assert partition(grid, str(path)) == parts
    assert partition(grid, {b: b < 10 for b in grid.bus.index})["zone True"] == list(range(1, 10))


def test_cut_lines_have_one_end_in_the_zone(tmp_path):
    grid = load_case(case_file(tmp_path))
    assert lines_between(grid, partition(grid, {10: "a", 25: "b", 3: "b"})) == [1, 2, 5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("bus,area\n1,a\n", "a bus number and a zone in line 2"),
        ("bus,zone\n1,\n", "a bus number and a zone in line 2"),
        ("bus,zone\none,a\n", "a bus number and a zone in line 2"),
        ("bus,zone\n1,a\n1,b\n", "one zone for bus 1"),
        ("bus,zone\n1,a\n", "a zone for every bus of case9, got none for 2"),
        ("bus,zone\n" + "".join(f"{b},a\n" for b in range(1, 10)), "at least two zones"),
        ("bus,zone\n" + "".join(f"{b},{b % 2}\n" for b in range(1, 11)), "in zones, got 10"),
    ],
)
def test_bad_csv(tmp_path, content, words):
    path = tmp_path / "zones.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=words):
        partition(load_case("case9"), path)


@pytest.mark.parametrize("zones", [1, 10, 0, True, 2.5, "absent.csv"])
def test_bad_zones(zones):
    with pytest.raises(InvalidInput):
        partition(load_case("case9"), zones)


def test_islands_are_zones_of_their_own_only_if_they_border(tmp_path):
    """An island cannot agree on anything with the rest."""
    off = "\t0.02\t0.09\t0.01\t70\t0\t0\t0\t0\t"
    changes = (f"3\t9{off}1", f"3\t9{off}0"), ("\t9\t4\t99", "\t9\t1\t99")
    grid = load_case(case_file(tmp_path, *changes))
    assert 9 in grid.bus.index
    parts = partition(grid, 2)  # the island joins a zone that borders
    assert sorted(b for buses in parts.values() for b in buses) == [3, 9, 10, 25]
    assert [len(buses) for buses in parts.values()] == [2, 2]  # the smaller one
    assert lines_between(grid, parts)
    with pytest.raises(InvalidInput, match="zone b does not"):
        partition(grid, {10: "a", 25: "c", 3: "a", 9: "b"})


def test_every_one_of_parallel_cut_lines_counts(tmp_path):
    """Two lines of one direction and one of the other between the same two buses."""
    line = "\t10\t25\t0.02\t0.10\t0.04\t80\t0\t0\t0\t0\t1\t-30\t30;\n"
    grid = load_case(case_file(tmp_path, (line, line + line.replace("80", "70"))))
    ends = list(zip(grid.line["from_bus"], grid.line["to_bus"], strict=True))
    assert ends[:3] == [(10, 25), (10, 25), (25, 10)]
    case = build(grid, {10: "a", 25: "b", 3: "a"})
    assert case.cut_lines == [1, 2, 3, 4]
    # four flows of every cut line; c and s of the two pairs of buses across, whatever lines there
    assert case.problem.size == 4 * 4 + 2 * 2
    assert [int((a.coupling >= 0).sum()) for a in case.problem.agents] == [20, 20]
