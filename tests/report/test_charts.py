"""Charts as SVG: what each says of its numbers, and that any numbers can be drawn."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_page import charts_of, page_of, titles

import tacit
from tacit import html
from tacit.report import figures
from tacit.report.contents import Contents
from tacit.report.page import render


def test_every_point_and_bar_says_its_number(folders):
    contents = Contents.read(folders["job"])
    charts = charts_of(page_of(folders["job"]))
    residual = titles(charts["trace-residual"])
    values = contents.result.trace["residual"]
    assert [float(said.rsplit(" ", 1)[1]) for said in residual] == pytest.approx(values, rel=1e-3)
    assert len(titles(charts["solution-0"])) == contents.result.solution.size


def test_the_map_of_a_grid(folders, tmp_path, monkeypatch):
    """Each bus and line with its numbers; of a large grid all of one look are one path."""
    contents = Contents.read(folders["grid"])
    bus, line = contents.tables["bus"], contents.tables["line"]
    drawn = charts_of(page_of(folders["grid"]))["map"]
    said = titles(drawn)
    assert len([t for t in said if t.startswith("bus ")]) == len(bus["bus"])
    assert len([t for t in said if t.startswith("line ")]) == len(line["line"])
    assert all("voltage (p.u.): " in t and "p shed" in t for t in said if t.startswith("bus "))
    assert len(drawn.findall(".//*[@class='cut']/*")) == (line["cut"] == "True").sum()
    public = charts_of(render(contents.public()).decode())["map"]
    assert not [t for t in titles(public) if "shed" in t or "demand" in t]
    monkeypatch.setattr(figures, "MOST_MARKS", 1)
    large = charts_of(page_of(folders["grid"]))["map"]
    assert not titles(large)
    shape = lambda found: sorted(found.get("d").replace("M", " M").split(" M"))  # noqa: E731
    both = [[m for p in m.iter() if p.get("d") for m in shape(p) if m] for m in (drawn, large)]
    assert sorted(both[0]) == sorted(both[1])  # the same marks


@given(st.lists(st.floats(), min_size=1, max_size=30))
def test_any_numbers_have_axes_and_stay_in_their_frame(values):
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return
    scale = html.Scale.of(values)
    ticks = scale.ticks()
    assert len(ticks) <= 12 and all(scale.low <= t <= scale.high for t in ticks)
    assert len(set(html.labels(ticks))) == len(ticks)
    drawn = html.curve(list(range(len(values))), values, "x", "x", "x")
    [path] = re.findall('class="line" d="([^"]*)"', drawn)
    for x, y in re.findall("[ML]([^ ]*) ([^ML]*)", path):
        assert 0 <= float(x) <= html.WIDTH and 0 <= float(y) <= html.HEIGHT
    assert drawn.count("<title>") == len(finite)
    shown = html.bars(finite, finite, "x", "x")
    assert shown.count("<title>") == len(finite) and "nan" not in shown


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-3, 11, ["-2", "0", "2", "4", "6", "8", "10"]),
        (1e-4, 1, ["0.0001", "0.001", "0.01", "0.1", "1"]),
        (7, 150, ["10", "20", "50", "100"]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    scale = html.Scale.of([low, high])
    assert scale.log == (low > 0 and high > 20 * low)
    assert html.labels(scale.ticks())[: len(ticks)] == ticks


def test_a_long_curve_keeps_its_peaks():
    values = np.sin(np.arange(20_000) / 50)
    values[12_345] = 9.0
    drawn = html.curve(range(20_000), values.tolist(), "x", "x", "x")
    assert len(drawn) < 40_000 and f" {html.TOP}" in drawn.replace(".0", "")
    said = re.findall("<title>round ([0-9]+)", drawn)
    assert len(said) == html.POINTS and {said[0], said[-1]} == {"0", "19999"}


@pytest.mark.parametrize("zone", ["</title><script>x</script>", "\"' onload='x"])
def test_names_on_a_map_are_text(zone, folders, tmp_path):
    folder = folders.copy("grid", tmp_path)
    table = (folder / "bus.csv").read_text()
    (folder / "bus.csv").write_text(table.replace("zone a", '"' + zone.replace('"', '""') + '"'))
    contents = Contents.read(folder)
    assert zone in contents.tables["bus"]["zone"]
    page = page_of(folder)
    drawn = charts_of(page)["map"]
    assert any(f"zone: {zone}" in title.text for title in drawn.iter("title"))
    assert not [name for element in drawn.iter() for name in element.attrib if name == "onload"]
    bare = page_of(folders["grid"])
    for element in ("<script", "</script", "<!--", "</title"):
        assert page.count(element) == bare.count(element)


@pytest.mark.parametrize("kind", ["job", "noisy job", "open model"])
def test_a_panel_for_every_column_of_a_trace(kind, folders, drawn):
    """In the picture of a result."""
    result = tacit.Result.load(folders[kind])
    panels = [panel for panel in result.plot().axes if panel.get_visible()]
    columns = [*result.trace.values()][1:]
    for panel, column in zip(panels, columns, strict=True):
        np.testing.assert_array_equal(panel.lines[0].get_ydata(), column)
