"""The one reader of tables: what it takes, and what must not be taken for the same."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import tables
from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.learn import load_table, split
from tacit.tables import ANY, Rules, read_table


@pytest.fixture
def table(tmp_path):
    def write(content, text=()):
        path = tmp_path / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, text)

    return write


@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_numbers_and_text(table, monkeypatch, chunk):
    monkeypatch.setattr(tables, "CHUNK", chunk)
    content = '\ufeffa,"b, c",name\r\n1, 2.5 ,x\r\n\r\n-3e2,"4","y\ny"\r\n5,6,z'
    found = table(content, ["name", "absent"])
    assert found.columns == ("a", "b, c", "name") and len(found) == 3
    assert found.numbers(["b, c", "a"]).tolist() == [[2.5, 1], [4, -300], [6, 5]]
    assert found.written("name") == ["x", "y\ny", "z"]
    assert [found.where(i) for i in range(3)] == [
        "line 2",
        "line 5",
        "line 6",
    ]


def test_numbers_are_rounded_once(table, rng):
    """As Python reads them; pandas' own reader may be off in the last place."""
    values = rng.normal(size=1000) * 10.0 ** rng.integers(-300, 300, 1000)
    found = table("x\n" + "\n".join(map(repr, values.tolist()))).numbers(["x"])
    np.testing.assert_array_equal(found[:, 0], values)


@pytest.mark.parametrize("chunk", [1, 2, 4096])
@pytest.mark.parametrize("cell", ["", "x7193", "nan", "-Infinity", "7_193", "7193 1", "NA", "٣"])
def test_what_is_no_number_is_named_by_its_line(table, monkeypatch, chunk, cell):
    monkeypatch.setattr(tables, "CHUNK", chunk)
    found = table(f"a,b,c\n1,2,3\n4,{cell},6\n7,{cell},x\n")
    assert found.numbers(["a"])[:, 0].tolist() == [1, 4, 7]  # others may be used
    with pytest.raises(CorruptFile, match=r"line 3 of .*t.csv, column 'b'. The same in 'c'") as e:
        found.numbers(["c", "b", "a"])
    assert "7193" not in str(e.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "got no records"),
        ("a,b\n\n", "got no records"),
        ("a,b\n1,2\n1,2,7193\n", "Expected 2 cells in line 3 of .*, got 3"),
        ("a,b\n7193\n", "Expected 2 cells in line 2 of .*, got 1"),
        ("a,b,a\n1,2,3\n", "got one twice"),
        ("a, a\n1,2\n", "got one twice"),
        ('a,b\n1,"7193\n', "its quotes do not match"),
        ('a,b\n1,"71"93\n', "its quotes do not match"),
        (b"a,b\n1,\xff7193\n", "no text in UTF-8"),
    ],
)
def test_what_is_no_table(table, content, words):
    with pytest.raises(TacitError, match=words) as e:
        table(content)
    assert "7193" not in str(e.value)


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "absent.csv"):
        with pytest.raises(CorruptFile, match=str(path)):
            read_table(path)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["1", "02", "1"], ("1", "2")),
        (["0.0", "1.0", "0.0"], ("0", "1")),
        (["true", "False", "TRUE"], ("False", "True")),
        (["yes", "no", " no"], (" no", "no", "yes")),
        (["1", "a", "2.5"], ("1", "2.5", "a")),
        (["1_0", "2_0", "2_0"], ("1_0", "2_0")),
    ],
)
def test_labels_have_the_names_that_pandas_gives_them(tmp_path, labels, names):
    """Agents' ledgers and saved models go by these names."""
    path = tmp_path / "t.csv"
    path.write_text(",x,y,h\n" + "".join(f"{i},{i},{y},{y}\n" for i, y in enumerate(labels)))
    data = load_table(path, "y", "h", drop=["Unnamed: 0"])
    frame = pd.read_csv(path)
    assert data.names == names and data.columns == ("x",)
    assert data.groups.tolist() == frame["h"].astype(str).tolist()
    assert list(frame.columns) == ["Unnamed: 0", "x", "y", "h"]


@pytest.mark.parametrize("missing", ["", "NA", "null", "nan", " "])
def test_a_missing_label_is_named_by_its_line(tmp_path, missing):
    (tmp_path / "t.csv").write_text(f"x,y\n1,a\n2,{missing}\n")
    with pytest.raises(CorruptFile, match="found one in line 3, column 'y'"):
        load_table(tmp_path / "t.csv", "y")
    with pytest.raises(InvalidInput, match="a column 'z'"):
        load_table(tmp_path / "t.csv", "z")


def test_a_job_reads_csv_without_pandas(job):
    code = "import sys; sys.modules['pandas'] = None\n"
    code += (
        "from tacit.studies.job import load_job; print(len(load_job(sys.argv[1]).problem.agents))"
    )
    done = subprocess.run([sys.executable, "-c", code, job], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


# --- records ----------------------------------------------------------------------------------


def table_of(path, header, *rows):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "different",
    [
        ("9999999999999999991", "12345678901234567890"),
        ("12345678901234567890", "12345678901234567891"),
        ("9223372036854775807", "9223372036854775808"),
        ("-9223372036854775808", "-9223372036854775809"),
        ("9007199254740992.0", "9007199254740993.0"),
        ("12345678901234567890", "12345678901234567891", "0.5"),
        ("1e400", "2e400"),
        ("3", "٣"),
    ],
)
def test_what_is_written_differently_and_too_large_or_no_number_stays_apart(different, tmp_path):
    """Two agents that become one would share one budget."""
    rows = [f"0.5,{cell},{cell}" for cell in different for _ in range(2)]
    path = table_of(tmp_path / "t.csv", "a,y,agent", *rows)
    data = load_table(path, "y", "agent")
    assert sorted(data.names) == sorted(different)
    assert data.groups.tolist() == [cell for cell in different for _ in range(2)]


def test_numbers_are_the_same_however_they_are_written(tmp_path):
    rows = "1,1,7,7", "1,1.0,7.0,7", "2,+2,8,8", "2,2e0,08,08"
    path = table_of(tmp_path / "t.csv", "a,y,odd,agent", *rows)
    data = load_table(path, "y", "agent", ["odd"])
    assert data.names == ("1", "2") and data.groups.tolist() == ["7", "7", "8", "8"]
    with pytest.raises(InvalidInput, match="written in one way in column 'odd'"):
        load_table(path, "y", "odd")  # 7 is the agent 7, or 7.0 where all are numbers with points


@pytest.mark.parametrize(
    "cells", [("01", "1", "x"), ("true", "no"), ("true", "1"), ("3.0", "３.0"), ("1.0", "x")]
)
def test_a_label_that_another_record_would_rename_is_refused(cells, tmp_path):
    """01 is 1 where all are numbers, and 01 among words: so it is not taken among words."""
    path = table_of(tmp_path / "t.csv", "a,y,agent", *(f"{i},{c},q" for i, c in enumerate(cells)))
    with pytest.raises(InvalidInput, match="written in one way in column 'y'"):
        load_table(path, "y", "agent")


def test_large_floating_point_labels_are_refused(tmp_path):
    """As whole numbers of 64 bits they would all be the smallest one."""
    pd.DataFrame({"a": [0.0, 1.0], "y": [1e19, 2e19]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"labels below 2\^53"):
        load_table(tmp_path / "t.parquet", "y")


@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_features_of_truth_values_are_one_and_zero(chunk, tmp_path, monkeypatch):
    """Each by itself: also beside numbers."""
    monkeypatch.setattr(tables, "CHUNK", chunk)
    path = table_of(tmp_path / "t.csv", "a,y", "True,0", "FALSE,1", "false,1", "2,0", "0.5,1")
    assert load_table(path, "y").features[:, 0].tolist() == [1, 0, 0, 2, 0.5]
    with pytest.raises(CorruptFile, match="finite number in line 3 "):
        load_table(table_of(tmp_path / "mixed.csv", "a,b,y", "True,0,0", "yes,1,0"), "y")


def test_agents_tables_are_matched_by_name(tmp_path):
    north = table_of(tmp_path / "north.csv", "a,c,y,id", "1,u,0,x", "2,v,1.0,y")
    south = table_of(tmp_path / "south.csv", "y,c,a", "1,w,NA", "00,u,4", "1,,5")
    pd.DataFrame({"c": ["u", None], "y": [True, False], "a": [None, 6.5]}).to_parquet(
        tmp_path / "west.parquet"
    )
    rules = Rules("y", ranges=ANY, categories={"c": ["u", "v"]}, fill={"a": 1, "c": "u"})
    without = replace(rules, drop=("id",))
    found = without.records([north, south])
    assert list(found.columns) == ["a", "c"] and found.columns["c"].tolist() == [*"uvwu", ""]
    np.testing.assert_array_equal(found.columns["a"], [1, 2, np.nan, 4, 5])
    assert found.groups.tolist() == ["north"] * 2 + ["south"] * 3
    assert found.targets.tolist() == ["0", "1", "1", "0", "1"]
    part = found.part(np.array([4, 0]))
    assert part.columns["a"].tolist() == [5, 1] and part.groups.tolist() == ["south", "north"]
    with pytest.raises(InvalidInput, match=r"one kind .*numbers in .*north.csv and truth values"):
        without.records([north, tmp_path / "west.parquet"])
    west = rules.records([tmp_path / "west.parquet"])
    np.testing.assert_array_equal(west.columns["a"], [np.nan, 6.5])
    assert west.groups is None and west.targets.tolist() == ["True", "False"]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("other.csv", "a,y,b", "1,0,2"), "got no 'c'"),
        (
            ("other.csv", "a,y,b,c,d", "1,0,2,3,4"),
            "got no 'd' in .*first.csv",
        ),
        (("other.csv", "a,b,c", "1,2,3"), "a column 'y' in .*other.csv"),
        (("other.csv", "a,y,b,c"), "other.csv, got no records"),
        (("other.csv",), "other.csv, got no records"),
        (("other.csv", "a,y,b,b", "1,0,2,3"), "one twice"),
        (("other.csv", "a,y,b,c", "1,0,2,"), r"line 2 of .*other.csv, column 'c'.* --fill c=VALUE"),
        (("other.csv", "a,y,b,c", "1,0,red,3"), r"column 'b'. Text .* --categories b=A,B"),
        (("other.csv", "a,y,b,c", "1,7193 cats,2,3"), "numbers in .* and text in .*other.csv"),
        (("other.csv", "a,y,b,c", "1,,2,3"), "missing values in .*other.csv, found one in line 2"),
        (("FIRST.csv", "a,y,b,c", "1,0,2,3"), "tables of different names"),
        (("first.parquet", "a,y,b,c"), "tables of different names"),
    ],
)
def test_tables_that_do_not_go_together(tmp_path, second, words):
    first = table_of(tmp_path / "first.csv", "a,y,b,c,e", "1,0,2,3,4", "2,1,2,3,5")
    name, header, *rows = (*second, "")
    other = table_of(tmp_path / name, header, *[row for row in rows if row])
    with pytest.raises((InvalidInput, CorruptFile), match=words) as caught:
        Rules("y", drop=("e",), ranges=ANY).records([first, other])  # which only one of them has
    assert "7193" not in str(caught.value)


def test_one_table_or_an_agent_column(tmp_path):
    paths = [table_of(tmp_path / f"{k}.csv", "a,y,who", "1,0,x", "2,1,z") for k in "pq"]
    with pytest.raises(InvalidInput, match=r"a table for each agent, or an agent column"):
        Rules("y", ranges=ANY).records(paths, agent_column="who")
    one = Rules("y", ranges=ANY).records(paths[:1], agent_column="who")
    assert one.groups.tolist() == ["x", "z"]
    with pytest.raises(InvalidInput, match="a column 'x' in"):
        Rules("y", drop=("x", "who"), ranges=ANY).records(paths)
    for rules in ({"categories": {"b": ["u"]}}, {"fill": {"b": 1}}, {"fill": {"y": 1}}):
        with pytest.raises(InvalidInput, match="of a column that is used"):
            Rules("y", drop=("who",), ranges=ANY, **rules).records(paths)


@pytest.mark.parametrize("chunk", [1, 4096])
def test_numbers_with_gaps(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(tables, "CHUNK", chunk)
    path = table_of(tmp_path / "t.csv", "a,b,c", "1, NA ,1", ",True,x", "3,False,inf", "nan,,4")
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers(["a"], ["a"])[:, 0], [1, np.nan, 3, np.nan])
    np.testing.assert_array_equal(table.numbers(["b"], ["*"])[:, 0], [np.nan, 1, 0, np.nan])
    with pytest.raises(CorruptFile, match=r"line 3 .*column 'a'"):
        table.numbers(["a"], ["b"])
    with pytest.raises(CorruptFile, match=r"line 3 .*column 'c'"):
        table.numbers(["c"], ["*"])


def test_targets_that_are_numbers(tmp_path):
    path = table_of(tmp_path / "t.csv", "a,y", "1,0.5", "2,-3", "3,1e3")
    data = load_table(path, "y", numeric_target=True)
    assert data.labels.tolist() == data.targets.tolist() == [0.5, -3, 1000]
    assert data.names == () and data.classes == 0 and data.columns == ("a",)
    assert data.part(np.array([2])).targets.tolist() == [1000]
    with pytest.raises(InvalidInput, match="classes for the split"):
        split(data, 2, "dirichlet")
    table_of(path, "a,y", "1,0.5", "2,")
    with pytest.raises(CorruptFile, match=r"line 3 of .*column 'y'"):
        Rules("y", None, (0, 1), ranges=ANY, fill={"*": 0}).records([path])  # never filled in
