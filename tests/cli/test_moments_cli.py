"""``tacit moments``, ``tacit regress`` and ``tacit counts``: what they print, keep and refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.cli.main import main
from tacit.learn import PrivateCounts, PrivateMoments

RULES = ["--range", "age=18:90", "--range", "cost=0:1200", "--categories", "sex=f,m"]


SECURE = ["--total-epsilon", "1", "--noise", "secure"]
WIDTHS = ["--expect", "--records", "9", "--agents", "3", "--total-epsilon", "1"]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n in (("north", 300), ("south", 500)):
        lines = ["age,sex,cost"]
        for age, sex in zip(rng.uniform(18, 90, n), rng.choice(["f", "m"], n), strict=True):
            lines.append(f"{age},{sex},{200 + 8 * age + 50 * (sex == 'f') + rng.normal(0, 20)}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return ["north.csv", "south.csv"]


def test_a_table_is_released_and_asked(tables, command):
    said = command("moments", *tables, *RULES, "--total-epsilon", "50", "--seed", "1")
    assert "files: moments" in said and "sex=f" in said
    options = ["--target", "cost", "--on", "age,sex=f"]
    said = command("regress", "moments", *options, "--json")
    document = json.loads(said)
    fit = PrivateMoments.load("moments").regress("cost", ["age", "sex=f"])
    assert document["coefficients"][1] == fit.rows()[1].to_dict()
    age, female = document["coefficients"][1:]
    assert age["low"] < 8 < age["high"] and female["low"] < 50 < female["high"]
    assert not document["doubt"] and document["records"] == 800
    said = command("regress", "moments", *options, "--level", "0.5")
    assert "50 % interval" in said and fit.summary(0.5) in said
    said = command("regress", "moments", *options, "--level", "0.5", "--json")
    assert json.loads(said)["coefficients"][1] == fit.rows(0.5)[1].to_dict()


def test_ranges_that_do_not_fit_are_told_to_the_owner_only(tables, capsys):
    """On standard error: what is printed beside it is covered."""
    narrow = ["--range", "age=18:90", "--range", "cost=0:1", "--categories", "sex=f,m"]
    assert main(["moments", *tables, *narrow, "--total-epsilon", "1"]) == 0
    said = capsys.readouterr()
    assert "keep secret): values clipped to their range: cost 800." in said.err
    assert "changed" not in said.out


def test_a_release_in_json_and_counts(tables, command):
    about = ["--total-epsilon", "20", "--seed", "2", "--json"]
    said = command("moments", *tables, *RULES, *about, "--out", "table")
    document = json.loads(said)
    assert document["agents"] == ["north", "south"] and document["certified"]
    assert document["epsilon"] <= 20 and document["rows"][0]["mean"]["name"] == "age"
    by = ["--by", "sex", "--categories", "sex=f,m", "--drop", "age", "--drop", "cost"]
    said = command("counts", *tables, *by, *about)
    document = json.loads(said)
    assert document["rows"] == PrivateCounts.load("counts").rows()
    assert [row["cell"] for row in document["rows"]] == [{"sex": "f"}, {"sex": "m"}, {}]
    assert document["rows"][-1]["count"] == pytest.approx(800, abs=5)


@pytest.mark.parametrize("kind", ["moments", "counts"])
def test_what_was_released_is_shown_again(kind, tables, command):
    by = ["--by", "sex"] if kind == "counts" else []
    said = command(kind, *tables, *RULES, *by, "--total-epsilon", "1")
    assert command("show", kind).split() == said.split()
    assert json.loads(command("show", kind, "--json"))["records"] == 800
    assert "report.html" in command("report", kind) and "sheet.pdf" in command("sheet", kind)


def test_rules_of_a_file_whose_target_is_a_column_like_others(tables, command):
    text = """target = "cost"
target_range = [0, 1200]
[ranges]
age = [18, 90]
[categories]
sex = ["f", "m"]
"""
    Path("columns.toml").write_text(text)
    about = ["--columns", "columns.toml", "--total-epsilon", "9", "--seed", "1"]
    command("moments", *tables, *about)
    command("moments", *tables, *RULES, *about[2:], "--out", "same")
    one, other = (PrivateMoments.load(folder).layout_ for folder in ("moments", "same"))
    assert sorted(one.names) == sorted(other.names) == ["age", "cost", "sex=f", "sex=m"]
    command("counts", *tables, "--by", "sex", *about)
    assert PrivateCounts.load("counts").layout_.names == ["sex=f", "sex=m"]


def test_widths_to_expect_cost_nothing(tables, command, tmp_path):
    sizes = ["--records", "5000", "--agents", "5", "--total-epsilon", "1"]
    said = command("moments", "--expect", "--columns", "12", *sizes)
    assert said.count("no interval") == 2 and "a mean: ±" in said
    independent = ["--least-eigenvalue", "1"]
    said = command("moments", "--expect", "--columns", "3", *sizes, *independent, "--json")
    assert json.loads(said)["clear"] > 1 and 0 < json.loads(said)["coefficient"] < 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(tables)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["moments", "north.csv", *RULES], "--total-epsilon"),
        (["moments", *RULES, "--total-epsilon", "1"], "DATA"),
        (["moments", "north.csv", *RULES[2:], "--total-epsilon", "1"], "'age'"),
        (["moments", "north.csv", *RULES, "--total-epsilon", "1", "--records", "3"], "--expect"),
        (["moments", "--expect", "--columns", "3", "--total-epsilon", "1"], "--records"),
        (["moments", "north.csv", "--expect", "--total-epsilon", "1"], "DATA"),
        (["moments", *WIDTHS, "--columns", "age"], "'age'"),
        (["moments", "north.csv", *RULES, "--total-epsilon", "-1"], "epsilon"),
        (["moments", "north.csv", *RULES, "--total-epsilon", "1", "--colluding", "2"], "sum"),
        (["moments", "north.csv", *RULES, *SECURE, "--seed", "2"], "seed"),
        (["counts", "north.csv", "--total-epsilon", "1"], "--by"),
        (["counts", "north.csv", "--by", "sex", "--total-epsilon", "1"], "sex=A,B"),
        (["moments", "north.csv", *RULES, "--fill", "sex=x", "--total-epsilon", "1"], "list it"),
        (["moments", "north.csv", "--range", "*=auto:0:9", "--total-epsilon", "1"], "'*'"),
        (["regress", "nowhere", "--target", "a", "--on", "b"], "moments.json"),
    ],
)
def test_what_is_refused_leaves_nothing(words, named, tables, command, tmp_path):
    with pytest.raises(AssertionError) as refusal:
        command(*words)
    first = str(refusal.value).splitlines()[0]
    assert first.startswith("tacit: Expected") and named in first
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(tables)


def test_a_release_is_not_replaced(tables, command):
    words = ["moments", "north.csv", *RULES, "--total-epsilon", "1"]
    command(*words)
    before = Path("moments/moments.json").read_bytes()
    with pytest.raises(AssertionError, match="--out"):
        command(*words)
    assert Path("moments/moments.json").read_bytes() == before
