"""Report and sheet of released tables, and of coefficients with intervals."""

import html
import json
import re

import pytest
from folders import JOB
from sheets import about
from test_page import HOSTILE, charts_of, page_of, rewritten, titles

from tacit.cli.main import main
from tacit.learn import PrivateCounts, PrivateMoments
from tacit.learn.error_bars import FILE
from tacit.protocol.disclosure import COVERED, level
from tacit.report.contents import Contents
from tacit.report.page import render
from tacit.report.released import Released, what_privacy_costs

RECORDS = 400
FRAME = {
    "age": [18 + i % 60 for i in range(RECORDS)],
    "sex": ["f" if i % 3 else "m" for i in range(RECORDS)],
    "cost": [100 + 7 * (i % 60) + 3 * (i % 5) for i in range(RECORDS)],
}
AGENTS = ["north", "south"] * (RECORDS // 2)
CATEGORIES = {"sex": ("f", "m")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("tables")
    ranges = {"age": (18, 90), "cost": (0, 1200)}
    moments = PrivateMoments(2.0, ranges=ranges, categories=CATEGORIES, random_state=1)
    moments.fit(FRAME, agents=AGENTS).save(place / "moments")
    counts = PrivateCounts(2.0, categories=CATEGORIES, random_state=1)
    counts.fit({"sex": FRAME["sex"]}, agents=AGENTS).save(place / "counts")
    return place


@pytest.mark.parametrize(("kind", "load"), [("moments", PrivateMoments), ("counts", PrivateCounts)])
def test_a_table_has_a_page_of_what_it_released(kind, load, place, capsys):
    for more in ([], ["--public"]):
        assert main(["report", str(place / kind), "--json", *more]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["certified"] and "times" in said["left_out"]
    page, table = (place / kind / "report-public.html").read_text(), load.load(place / kind)
    for row in table.cells():
        assert all(f">{cell}<" in page for cell in row), row
    [drawn] = charts_of(page).values()
    assert (
        titles(drawn)[0] == f"{table.cells()[0][0]}: {table.cells()[0][1]} ({table.cells()[0][2]})"
    )
    assert "What privacy costs" in page and str(place) not in page
    assert str(place / kind) in (place / kind / "report.html").read_text()


def test_what_privacy_costs_is_of_the_intervals(place):
    moments, counts = PrivateMoments.load(place / "moments"), PrivateCounts.load(place / "counts")
    times = float(re.search(r"up to ([\d.]+) times", what_privacy_costs(moments))[1])
    share = max(mean.privacy for mean, _ in moments.rows())
    assert times == pytest.approx((1 - share) ** -0.5, rel=1e-2) and times > 1
    assert f"± {counts.half_width():.3g}" in what_privacy_costs(counts)


def test_an_uncertified_table_is_not_published(place, tmp_path):
    (tmp_path / "moments.json").write_text((place / "moments" / "moments.json").read_text())
    rewritten(tmp_path, "moments.json", lambda d: d["privacy"].update(certified=False))
    rewritten(tmp_path, "moments.json", lambda d: d["privacy"].update(uncertified="planted."))
    found = Released.read(tmp_path)
    assert "Means" in render(found).decode()
    page = render(found.public()).decode()
    assert "Means" not in page and "Not certified" in page and not charts_of(page)


@pytest.mark.parametrize("name", HOSTILE[:4])
def test_names_are_text(name, place, tmp_path):
    (tmp_path / "moments.json").write_text((place / "moments" / "moments.json").read_text())

    def change(document):
        document["columns"][0] = name
        document["ranges"][name] = document["ranges"].pop("age")
        document["agents"] = [name, "b"]

    rewritten(tmp_path, "moments.json", change)
    page, bare = (render(Released.read(p)).decode() for p in (tmp_path, place / "moments"))
    for element in ("<script", "</script", "<img", "<!--"):
        assert page.count(element) == bare.count(element), element


def test_a_sheet_of_a_table(place):
    facts, sections, page = about(place / "moments", "north")
    assert page.promised and facts["Whose data"] == "north, with one other agent"
    assert (
        "age (18 to 90), sex (f, m)" in facts["Data used"] and "400 records" in facts["Data used"]
    )
    assert "14 numbers" in sections["What was shared, and with whom"]
    assert sections["May be published"].startswith("moments.json")
    assert "server" not in sections["What was shared, and with whom"]
    shared = about(place / "counts")[1]["What was shared, and with whom"]
    assert "every combination of categories" in shared and "2 numbers" in shared


def test_intervals_of_a_job_are_on_its_page(folders, tmp_path):
    """Of least squares that was released once with Gaussian noise: other jobs have none."""
    assert level(FILE) is COVERED
    assert not [name for name in ("noisy job", "job") if (folders[name] / FILE).exists()]
    job = JOB.replace("[privacy]", '[privacy]\nmechanism = "gaussian"')
    (folders.place / "bars.toml").write_text(job)
    folder = tmp_path / "r"
    assert main(["solve", str(folders.place / "bars.toml"), "--out", str(folder)]) == 0
    found = json.loads((folder / FILE).read_text())
    assert [row["name"] for row in found["coefficients"]] == ["a", "b"]
    page = page_of(folder)
    assert ">Coefficients</h2>" in page and found["doubt"] and found["doubt"] in html.unescape(page)

    def known(document):
        document["doubt"] = ""
        row = {"error": 0.1, "low": -0.375, "high": 0.625, "p": 0.5, "privacy": 0.25}
        [one.update(row) for one in document["coefficients"]]

    rewritten(folder, FILE, known)
    for made in (Contents.read(folder), Contents.read(folder).public()):
        page = render(made).decode()
        assert "-0.375 to 0.625" in page and "25%" in page
        assert "whisker" in page.split("<body>")[1] and "Coefficients, with 95 %" in page
    rewritten(folder, "result.json", lambda d: d["privacy"].update(uncertified="planted."))
    assert not Contents.read(folder).public().intervals
