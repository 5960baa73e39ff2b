"""Columns of numbers, text and gaps, mapped by public rules, each record by itself."""

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidInput
from tacit.learn import PublicColumns
from tacit.tables import ANY, Rules

RULES = {
    "ranges": {"age": (20, 80), "*": (0.0, 10.0)},
    "categories": {"city": ["Bern", "Basel", "Zug, ZG"]},
    "fill": {"age": 50, "city": "Basel"},
}


def people():
    return pd.DataFrame(
        {
            "age": [20.0, 80, 50, np.nan, 1e300, -5],
            "city": ["Bern", " Zug, ZG ", None, "Paris", "basel", ""],
            "fee": [0, 5, 10, 5, 5, 11],
        }
    )


def test_numbers_categories_and_gaps():
    found = PublicColumns(**RULES).fit(people())
    assert found.get_feature_names_out().tolist() == [
        *("age", "city=Bern", "city=Basel", "city=Zug, ZG", "fee")
    ]
    assert found.transform(people()).tolist() == [
        [-1, 1, 0, 0, -1],
        [1, 0, 0, 1, 0],
        [0, 0, 1, 0, 1],
        [0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [-1, 0, 1, 0, 1],
    ]
    assert found.changes(people()) == {
        "clipped": {"age": 2, "fee": 1},
        "unknown": {"city": 2},
        "filled": {"age": 1, "city": 2},
    }


def test_columns_go_by_name():
    found = PublicColumns(**RULES).fit(people())
    other = people()[["fee", "city", "age"]].assign(more="x")
    np.testing.assert_array_equal(found.transform(other), found.transform(people()))
    as_dict = {name: people()[name].to_list() for name in people()}
    np.testing.assert_array_equal(found.transform(as_dict), found.transform(people()))
    with pytest.raises(InvalidInput, match="a column 'city'"):
        found.transform(people()[["fee", "age"]])


@pytest.mark.parametrize("fill", [{}, {"c": "EU"}], ids=["no fill", "fill"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "lists"])
def test_a_listed_category_is_never_a_missing_value(kind, fill, tmp_path):
    """NA is Namibia where it is on the list, ? is an answer, and both stay what they are."""
    listed = ["NA", "?", "EU", "null", "nan"]
    rules = PublicColumns({}, {"c": listed}, fill)
    table = {"c": listed, "y": [0, 1, 0, 1, 1]}
    if kind != "lists":
        path = tmp_path / f"t.{kind}"
        getattr(pd.DataFrame(table), f"to_{kind}")(path, index=False)
        table = Rules("y", ranges=ANY, categories={"c": listed}, fill=fill).records([path]).columns
    else:
        table = {"c": listed}
    np.testing.assert_array_equal(rules.fit(table).transform(table), np.eye(5))
    assert rules.changes(table) == {"clipped": {}, "unknown": {}, "filled": {}}


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.Series([1, 2, None], dtype="Int64"), [1, 2, 0]),
        (pd.Series([True, False, None], dtype="boolean"), [1, 0, 0]),
        (pd.Series([1.5, 2, None], dtype=object), [1.5, 2, 0]),
        (pd.Series([1, 2, "NA"], dtype=object), [1, 2, 0]),
        (pd.Series([1, 2, "7"], dtype=object), "something else in row 3"),
        (pd.Series(["1", "2", "٣"]), "something else in row 1"),
        (pd.Series([1, np.inf, np.nan]), "infinite one in row 2"),
        (pd.Series(pd.to_datetime(["2020", "2021", "2022"])), "something else in row 1"),
    ],
)
def test_what_a_number_is(column, words):
    rules = PublicColumns({"*": (-10, 10)}, fill={"*": 0})
    if isinstance(words, str):
        with pytest.raises(InvalidInput, match=words):
            rules.fit_transform({"x": column})
    else:
        assert (10 * rules.fit_transform({"x": column})[:, 0]).round(9).tolist() == words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges": {}}, "none of 'age' .2 of 2"),
        ({"ranges": {"*": (0, 9), "city": (0, 1)}}, "a range or categories of 'city', got both"),
        ({"ranges": {"*": (0, 9), "size": (0, 1)}}, "got one of 'size'"),
        (
            {"categories": {"town": ["a"]}},
            "categories of the columns age, city, fee, got of 'town'",
        ),
        ({"categories": {"city": "Bern"}}, "a list of categories of 'city'"),
        ({"categories": {"city": ["a", "a "]}}, "different categories of 'city'"),
        ({"categories": {"city": ["a", " "]}}, "none of them empty"),
        ({"categories": {"city": []}}, "one or more"),
        ({"categories": ["city"]}, "categories by column"),
        ({"fill": {"town": 1}}, "fill of the columns"),
        ({"fill": {"age": 81}}, "a number from 20 to 80 to fill in for 'age', got 81"),
        ({"fill": {"age": "50"}}, "a number from 20 to 80"),
        ({"fill": {"age": np.nan}}, "a number from 20 to 80"),
        ({"fill": {"city": "Paris"}}, "one of the categories of 'city' to fill in"),
        ({"fill": {"city": "Bern"}}, "no missing value in column 'age', found one in row 4"),
        ({"fill": {"age": 50}}, "no missing value in column 'city', found one in row 3"),
    ],
)
def test_rules_that_are_refused(change, words):
    with pytest.raises(InvalidInput, match=words):
        PublicColumns(**{**RULES, **change}).fit_transform(people())


def test_two_columns_of_one_name_are_refused():
    table = pd.DataFrame({"a=b": ["c"], "a": ["b=c"]})
    with pytest.raises(InvalidInput, match="'a=b=c' twice"):
        PublicColumns({}, {"a=b": ["c"], "a": ["b=c"]}).fit(table)
    with pytest.raises(InvalidInput, match="'a=b' twice"):
        PublicColumns({"a=b": (0, 1)}, {"a": ["b"]}).fit(pd.DataFrame({"a=b": [0], "a": ["b"]}))
    with pytest.raises(InvalidInput, match="got one twice"):
        PublicColumns({"*": (0, 1)}).fit(pd.DataFrame([[0, 1]], columns=["a", "a"]))


def test_of_money_the_logarithm_counts(tmp_path):
    """ln(1 + x − low), from one end of the range to the other; clipped as without it."""
    rules = PublicColumns({"pay": (1000, 101_000), "*": (0, 1)}, log=["pay"])
    table = {"pay": [0, 1000, 11_000, 101_000, 1e9], "x": [0.0, 0.25, 0.5, 0.75, 1.0]}
    found = rules.fit(table).transform(table)
    expected = 2 * np.log1p(np.array([0, 0, 1e4, 1e5, 1e5])) / np.log1p(1e5) - 1
    np.testing.assert_allclose(found[:, 0], expected)
    np.testing.assert_allclose(found[:, 1], [-1, -0.5, 0, 0.5, 1])
    assert rules.public_parameters()["log"] == ["pay"]
    assert "log" not in PublicColumns({"*": (0, 1)}).public_parameters()
    with pytest.raises(InvalidInput, match="'town'"):
        PublicColumns({"*": (0, 1)}, {"town": ["a"]}, log=["town"]).fit({"town": ["a"]})
