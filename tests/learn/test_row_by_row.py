"""What a record becomes depends on that record and public rules: for every reader and every map.

Row i is read beside records of every kind, of none of them, and of others: it stays the same, or
nothing is read at all. It finds another type for a whole column, chosen by what is in it.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from conftest import repeat
from sklearn.preprocessing import Binarizer, Normalizer

from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import (
    Orientations,
    PrivateLogisticRegression,
    PublicColumns,
    PublicComponents,
    PublicRange,
    RandomFourier,
    Scattering,
)
from tacit.learn.centring import around, scaled_down
from tacit.learn.estimators import owners
from tacit.tables import ANY, Rules, read_arrays

LARGE = 2**53  # LARGE + 1 is no floating-point number
CODES = [LARGE, LARGE + 1, LARGE + 2, "NA", "?", "True", "0.5"]
RULES = PublicColumns({"x": (-9, 9)}, {"c": CODES}, {"c": str(LARGE), "x": 0.25})
TEXT = {  # cells of a CSV table: a category, a number, a label, an agent
    "c": ["", "1.5", "text", "NA", "?", "true", "9" * 40, "1e400", str(-LARGE)],
    "x": ["", "1e300", "True", "FALSE", "NA", "-7", "9" * 30],
    "y": ["1", "01", "1.0", "2.5", "true", "text", "9" * 40],
    "g": ["3", "03", "3.0", "2.5", "TRUE", "text", "9" * 40],
}
VALUES = {  # of lists, arrays of objects and frames
    "c": [None, np.nan, 1.5, "text", True, pd.NA, 10**400, np.float32(2), LARGE + 2],
    "x": [None, np.nan, 1e300, True, np.float32(0.1), pd.NA, 10**30, -7],
}
NULLABLE = {"c": [None, 5, LARGE + 2, -LARGE], "x": [None, 7.5, 1e300], "y": [1, 2], "g": [3, 4]}


def of_csv(path, rows):
    table = path / "t.csv"
    table.write_text("\n".join(",".join(map(str, row)) for row in ["cxyg", *rows]) + "\n")
    return of_file(table)


def of_file(table):
    rules = Rules("y", ranges=ANY, categories={"c": list(map(str, CODES))}, fill={"c": "", "x": 0})
    found = rules.records([table], agent_column="g")
    mapped = RULES.fit(found.columns).transform(found.columns)
    return list(zip(map(bytes, mapped), found.targets, found.groups, strict=True))


def of_parquet(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = pa.int64(), pa.float64(), pa.int64(), pa.int32()
    columns = zip("cxyg", zip(*rows, strict=True), kinds, strict=True)
    pq.write_table(pa.table({n: pa.array(v, k) for n, v, k in columns}), path / "t.parquet")
    return of_file(path / "t.parquet")


def of_dictionary(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    c, x, y, g = zip(*rows, strict=True)
    table = {"c": pa.array(c, pa.int64()).dictionary_encode(), "x": pa.array(x, pa.float64())}
    pq.write_table(pa.table({**table, "y": pa.array(y), "g": pa.array(g)}), path / "t.parquet")
    return of_file(path / "t.parquet")


def mapped(table):
    table = {name: table[name] for name in "cx"} if isinstance(table, dict) else table
    return list(map(bytes, RULES.fit(table).transform(table)))


def columns_of(rows):
    return dict(zip("cxyg", zip(*rows, strict=True), strict=True))


def of_lists(path, rows):
    return mapped({name: list(cells) for name, cells in columns_of(rows).items()})


def of_tuples(path, rows):
    return mapped(columns_of(rows))


def of_rows(path, rows):
    rules = PublicColumns({1: (-9, 9)}, {0: CODES}, {0: str(LARGE), 1: 0.25})
    table = [[c, x] for c, x, *_ in rows]
    return list(map(bytes, rules.fit(table).transform(table)))


def of_objects(path, rows):
    cells = columns_of(rows).items()
    return mapped({name: np.array([*cell, None], object)[:-1] for name, cell in cells})


def of_frame(path, rows):
    """As pandas makes it of such cells, with whatever type it chooses."""
    try:
        table = pd.DataFrame([row[:2] for row in rows], columns=["c", "x"])
    except OverflowError:
        raise InvalidInput("pandas' own") from None
    return mapped(table)


def of_nullable(path, rows):
    c, x, *_ = zip(*rows, strict=True)
    return mapped({"c": pd.array(c, "Int64"), "x": pd.array(x, "Float64")})


def of_npz(path, rows):
    np.savez(path / "t.npz", features=np.array([[x] for _, x, *_ in rows], np.float64))
    return list(map(bytes, read_arrays(path / "t.npz", None)["features"]))


def of_job(path, rows):
    table = path / "t.csv"
    table.write_text("\n".join(f"{x},{y}" for _, x, y, _ in [("", "x", "y", ""), *rows]) + "\n")
    found = read_arrays(table, "y")
    return list(map(bytes, np.column_stack([found["features"], found["targets"]])))


READERS = {
    of_csv: TEXT,
    of_job: TEXT,
    of_parquet: NULLABLE,
    of_dictionary: NULLABLE,
    of_nullable: NULLABLE,
    of_npz: {"x": [np.nan, 1e300, -0.0]},
    **dict.fromkeys((of_lists, of_tuples, of_rows, of_objects, of_frame), VALUES),
}


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_a_reader_takes_each_record_by_itself(reader, tmp_path, rng):
    """One null made floats of all integers; a first cell made a column one of truth values."""
    others = READERS[reader]
    for kept in ((LARGE + 1, 3, 1, 3), (LARGE + 1, 0.5, 2, 4)):
        seen, read = set(), 0
        one = [(name, cell) for name, cells in others.items() for cell in cells]
        pairs = list(itertools.combinations(one, 2))
        chosen = [(), *((o,) for o in one), *(pairs[i] for i in rng.permutation(len(pairs))[:12])]
        for changes in chosen:
            more = [[*kept] for _ in range(2)]
            for row, (name, cell) in enumerate(changes):
                more[row]["cxyg".index(name)] = cell
            for rows in ([kept, *more], [more[0], kept], [*more, kept]):
                try:
                    found = reader(tmp_path, rows)
                except (InvalidInput, CorruptFile):
                    continue  # nothing is read
                seen.add(found[rows.index(kept)])
                read += 1
        assert len(seen) == 1 and read > len(chosen), (reader.__name__, kept, len(seen), read)


def test_one_null_in_a_parquet_table_changes_one_record(tmp_path):
    """Codes of 2^53 and more: as floating-point numbers all but one of 300 would change."""
    codes = [LARGE + 1 + 2 * (i % 2) for i in range(300)]
    whole, found = (
        of_parquet(tmp_path, [(code, 1.0, 1, 3) for code in table])
        for table in (codes, [None, *codes[1:]])
    )
    assert whole[1:] == found[1:] and whole[0] != found[0] and found[1][0] != found[2][0]


@pytest.mark.parametrize("second", [2.5, True, np.nan])
def test_agents_in_a_list_have_one_type(second):
    assert owners([1, 2], 2)[0].tolist() == [1, 2]
    with pytest.raises(InvalidInput, match=r"of one type|of every record"):
        owners([1, second], 2)
    with pytest.raises(InvalidInput, match="of one type"):  # "b'a'" would be called "a"
        owners([b"a", "b"], 2)


@pytest.mark.parametrize("other", [0.5, 1.0])
def test_agents_do_not_fall_together_beside_a_fraction(other):
    """A column of whole numbers becomes one of floats, where 2^53 and 2^53 + 1 are one agent."""
    apart = pd.Series([2**53 + 1, 2**53, 3])
    assert len(owners(apart, 3)[0]) == 3
    with pytest.raises(InvalidInput, match="2\\^53"):
        owners(pd.concat([apart, pd.Series([other])]), 4)


def test_labels_that_floating_point_does_not_tell_apart_are_refused(rng):
    model, X = PrivateLogisticRegression(classes=[LARGE, LARGE + 1]), rng.normal(size=(3, 2))
    with pytest.raises(InvalidInput, match=r"labels below 2\^53"):
        model.fit(X, [LARGE + 1, LARGE, 0.0 + LARGE])


IMAGES, TABLES = (333, 64), (2100, 7)
MAPS = {
    "range": (PublicRange({"*": (-1, 2)}), TABLES),
    "columns": (PublicColumns({"*": (-1, 2)}), TABLES),
    "orientations": (Orientations(), IMAGES),
    "scattering": (Scattering(), IMAGES),
    "fourier": (RandomFourier(64, seed=1), TABLES),
    "fourier of many": (RandomFourier(64, seed=1), (1100, 301)),
    "components": (
        PublicComponents(np.random.default_rng(1).normal(size=(20, 301)), 9),
        (1100, 301),
    ),
    "normaliser": (Normalizer(), (2100, 301)),
    "binariser": (Binarizer(), TABLES),
    "norm": (lambda X: scaled_down(X, 0.5), TABLES),
    "centring": (lambda X: around(scaled_down(X, 1.0), np.full(7, 0.01), 0.9), TABLES),
}


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", MAPS)
def test_a_public_map_takes_each_row_by_itself(name, kind, rng):
    """Bit for bit: where products of matrices or vector instructions went by how many rows there
    are, or by the place of a row, a neighbour would differ in more than one row."""
    made, (n, d) = MAPS[name]
    X = rng.uniform(0, 1, (n, d)).astype(kind)
    function = made if not hasattr(made, "fit") else made.fit(X).transform
    whole = np.asarray(function(X))
    for k in repeat([1, 17, n - 1], [1, 2, 3, 5, 16, 17, 100, n - 1]):
        np.testing.assert_array_equal(function(X[:k]), whole[:k])
    order = rng.permutation(n)
    np.testing.assert_array_equal(function(X[order]), whole[order])
    for other in (0.0, 1e6, 1e-30):
        changed = X.copy()
        changed[1::2] = other
        np.testing.assert_array_equal(np.asarray(function(changed))[::2], whole[::2])
