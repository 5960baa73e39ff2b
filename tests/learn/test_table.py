"""Cells of a CSV table: what counts as a number, and what must not be taken for the same."""

import numpy as np
import pandas as pd
import pytest

import tacit.tables
from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import load_table
from tacit.tables import read_csv


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
        ("3.0", "３.0"),
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
    path = table_of(tmp_path / "t.csv", "a,y,agent", "1,1,7", "1,1.0,7.0", "2,+2,8", "2,2e0,08")
    data = load_table(path, "y", "agent")
    assert data.names == ("1", "2") and data.groups.tolist() == ["7.0", "7.0", "8.0", "8.0"]


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
    for line, mixed in ((4, ("True", "False", "1")), (3, ("1", "True", "0")), (3, ("True", "yes"))):
        rows = [f"{cell},{j},0" for j, cell in enumerate(mixed)]
        with pytest.raises(CorruptFile, match=f"finite number in line {line} "):
            load_table(table_of(tmp_path / "mixed.csv", "a,b,y", *rows), "y")
    with pytest.raises(CorruptFile, match="finite number in line 2 "):
        read_csv(path).numbers(["a"])  # as for the data of a job
