"""Cells of a CSV table: what counts as a number, and what must not be taken for the same."""

import numpy as np
import pandas as pd
import pytest

import tacit.tables
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import load_table, split
from tacit.tables import load_records, read_table


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


@pytest.mark.parametrize("cell", ["٣", "３", "1_0"])
def test_digits_of_other_scripts_are_no_features(cell, tmp_path):
    path = table_of(tmp_path / "t.csv", "a,y", "1,0", f"{cell},1")
    with pytest.raises(CorruptFile, match=r"finite number in line 3 .* 'a'"):
        load_table(path, "y")


@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_features_of_truth_values_are_one_and_zero(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(tacit.tables, "CHUNK", chunk)
    path = table_of(tmp_path / "t.csv", "a,b,y", "True,1,0", "FALSE,2,1", "false,3,1", "true,4,0")
    assert load_table(path, "y").features.T.tolist() == [[1, 0, 0, 1], [1, 2, 3, 4]]
    as_pandas = pd.read_csv(path)[["a", "b"]].to_numpy(np.float64)
    assert (load_table(path, "y").features == as_pandas).all()
    for mixed in ("True", "False", "2"), ("2", "True", "0"), ("0.5", "false"):  # each by itself
        rows = [f"{cell},{j},0" for j, cell in enumerate(mixed)]
        found = load_table(table_of(tmp_path / "mixed.csv", "a,b,y", *rows), "y").features[:, 0]
        words = {"True": 1.0, "False": 0.0, "false": 0.0}
        assert found.tolist() == [words[c] if c in words else float(c) for c in mixed]
    with pytest.raises(CorruptFile, match="finite number in line 3 "):
        load_table(table_of(tmp_path / "mixed.csv", "a,b,y", "True,0,0", "yes,1,0"), "y")


def test_agents_tables_are_matched_by_name(tmp_path):
    north = table_of(tmp_path / "north.csv", "a,c,y,id", "1,u,0,x", "2,v,1.0,y")
    south = table_of(tmp_path / "south.csv", "y,c,a", "1,w,NA", "00,u,4", "1,,5")
    pd.DataFrame({"c": ["u", None], "y": [True, False], "a": [None, 6.5]}).to_parquet(
        tmp_path / "west.parquet"
    )
    rules = {"categories": {"c": ["u", "v"]}, "gaps": ["a", "c"]}
    found = load_records([north, south], "y", drop=["id"], **rules)
    assert list(found.columns) == ["a", "c"] and found.columns["c"].tolist() == [*"uvwu", ""]
    np.testing.assert_array_equal(found.columns["a"], [1, 2, np.nan, 4, 5])
    assert found.groups.tolist() == ["north"] * 2 + ["south"] * 3
    assert found.targets.tolist() == ["0", "1", "1", "0", "1"]
    part = found.part(np.array([4, 0]))
    assert part.columns["a"].tolist() == [5, 1] and part.groups.tolist() == ["south", "north"]
    with pytest.raises(InvalidInput, match=r"one kind .*numbers in .*north.csv and truth values"):
        load_records([north, tmp_path / "west.parquet"], "y", drop=["id"], **rules)
    west = load_records([tmp_path / "west.parquet"], "y", **rules)
    np.testing.assert_array_equal(west.columns["a"], [np.nan, 6.5])
    assert west.groups is None and west.targets.tolist() == ["True", "False"]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("other.csv", "a,y,b", "1,0,2"), "got no 'c'"),
        (("other.csv", "a,y,b,c,d", "1,0,2,3,4"), "and no others, got 'd': drop it"),
        (("other.csv", "a,b,c", "1,2,3"), "a column 'y' in .*other.csv"),
        (("other.csv", "a,y,b,c"), "other.csv, got no records"),
        (("other.csv",), "other.csv, got no records"),
        (("other.csv", "a,y,b,b", "1,0,2,3"), "one twice"),
        (("other.csv", "a,y,b,c", "1,0,2,"), r"line 2 of .*other.csv, column 'c'.* --fill c=VALUE"),
        (("other.csv", "a,y,b,c", "1,0,red,3"), r"column 'b'. tacit .* --categories b=A,B"),
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
        load_records([first, other], "y", drop=["e"])  # which only one of them has
    assert "7193" not in str(caught.value)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_two_agents_cannot_have_one_table(tmp_path, link):
    first = table_of(tmp_path / "p.csv", "a,y", "1,0", "2,1")
    getattr(tmp_path / "q.csv", link)(first)
    with pytest.raises(InvalidInput, match="a data file of its own for every agent"):
        load_records([first, tmp_path / "q.csv"], "y")


def test_one_table_or_an_agent_column(tmp_path):
    paths = [table_of(tmp_path / f"{k}.csv", "a,y,who", "1,0,x", "2,1,z") for k in "pq"]
    with pytest.raises(InvalidInput, match=r"several tables, .* or an agent column"):
        load_records(paths, "y", "who")
    assert load_records(paths[:1], "y", "who").groups.tolist() == ["x", "z"]
    with pytest.raises(InvalidInput, match="a column 'x' in"):
        load_records(paths, "y", drop=["x", "who"])
    for rules in ({"categories": {"b": ["u"]}}, {"gaps": ["b"]}, {"gaps": ["y"]}):
        with pytest.raises(InvalidInput, match="of a column that is used"):
            load_records(paths, "y", drop=["who"], **rules)


@pytest.mark.parametrize("chunk", [1, 4096])
def test_numbers_with_gaps(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(tacit.tables, "CHUNK", chunk)
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
        load_records([path], "y", gaps=["*"], numeric_target=True)  # never filled in
