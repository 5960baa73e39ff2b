"""The one reader of CSV tables: what it takes, and what it says of the rest."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tacit import tables
from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.learn import load_table
from tacit.tables import read_table


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
@pytest.mark.parametrize("cell", ["", "x7193", "nan", "inf", "-Infinity", "7_193", "7193 1", "NA"])
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
