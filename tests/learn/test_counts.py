"""One histogram over the parties: intervals of cells and of their sums."""

import math

import numpy as np
import pandas as pd
import pytest
from conftest import repeat
from scipy.stats import binom, laplace

import tacit
from tacit.errors import InvalidInput
from tacit.learn import PrivateCounts
from tacit.learn.counts import MOST_CELLS

CATEGORIES = {"sex": ["f", "m"], "stage": ["I", "II", "III"]}


def frame(n=900, seed=0):
    rng = np.random.default_rng(seed)
    stage = rng.choice(["I", "II", "III", "IV"], n, p=[0.5, 0.3, 0.15, 0.05])
    return pd.DataFrame(
        {"sex": rng.choice(["f", "m"], n), "stage": stage, "age": rng.uniform(size=n)}
    )


def test_with_next_to_no_noise_counts_are_those_of_the_table():
    table = frame()
    found = PrivateCounts(1e6, 1e-5, categories=CATEGORIES, random_state=0)
    found.fit(table, agents=table.index % 3)
    for sex in "fm":
        for stage in CATEGORIES["stage"]:
            exact = ((table.sex == sex) & (table.stage == stage)).sum()
            assert found.count(sex=sex, stage=stage)[0] == pytest.approx(exact, abs=0.01)
    assert found.count(stage="II")[0] == pytest.approx((table.stage == "II").sum(), abs=0.01)
    assert found.count()[0] == pytest.approx((table.stage != "IV").sum(), abs=0.01)
    assert [len(row["cell"]) for row in found.rows()] == [2] * 6 + [1] * 5 + [0]
    assert "sex=f, stage=I " in found.summary() and found._repr_html_()


@pytest.mark.parametrize("how", [{}, {"aggregation": "sum"}, {"total_delta": 0.05}])
def test_intervals_of_cells_and_of_their_sums_cover(how):
    """Of Laplace noise, of Gaussian, and of a secure sum; a third of the width does not."""
    table, times = frame(600), repeat(20, 400)
    exact = ((table.sex == "f").sum(), ((table.sex == "m") & (table.stage == "I")).sum())
    hits = np.zeros((2, 2))
    for seed in range(times):
        made = PrivateCounts(0.5, **{"total_delta": 1e-5, **how}, categories=CATEGORIES)
        made.random_state = seed
        made.fit(table.replace({"stage": {"IV": "I"}}), agents=table.index % 5)
        truth = exact[0], ((table.sex == "m") & table.stage.isin(["I", "IV"])).sum()
        asked = made.count(sex="f"), made.count(sex="m", stage="I")
        for j, ((value, _, _), cells) in enumerate(zip(asked, (3, 1), strict=True)):
            half, off = made.half_width(cells), abs(value - truth[j])
            hits[j] += off <= half, off <= half / 3
    low, high = binom.ppf([1e-4, 1 - 1e-4], times, 0.95)
    assert (low <= hits[:, 0]).all() and (hits[:, 0] <= high).all() and (hits[:, 1] < low).all()


def test_half_widths_are_those_of_the_noise():
    """One Laplace variable, two, and so many that they are as good as normal."""
    found = PrivateCounts(1.0, 0.0, categories=CATEGORIES, random_state=0).fit(frame(50))
    b = found.deviation_ / math.sqrt(2)
    assert found.privacy_.mechanism == "laplace" and b == pytest.approx(1.0, rel=1e-6)
    assert found.half_width() == pytest.approx(laplace.ppf(0.975), rel=2e-3)
    assert found.half_width(1, 0.5) == pytest.approx(laplace.ppf(0.75), rel=2e-3)
    assert found.half_width(10_000) == pytest.approx(1.96 * 100 * math.sqrt(2), rel=2e-3)
    two = PrivateCounts(1.0, 0.0, categories=CATEGORIES, random_state=0)
    half = two.fit(frame(50), agents=np.arange(50) % 2).half_width() / b
    assert math.exp(-half) * (1 + half / 2) == pytest.approx(0.05, rel=0.02)  # each agent's own
    replaced = PrivateCounts(1.0, 0.0, categories=CATEGORIES, neighbours="replace", random_state=0)
    assert replaced.fit(frame(50)).deviation_ == pytest.approx(2 * found.deviation_, rel=1e-6)


@pytest.mark.parametrize(
    ("categories", "named"),
    [
        (None, "categories"),
        ({"colour": ["red"]}, "'colour'"),
        ({"sex": []}, "'sex'"),
        (["sex"], "categories"),
        ({"stage": [*map(str, range(MOST_CELLS)), "I"]}, "cells"),
    ],
)
def test_tables_that_are_not_counted(categories, named):
    with pytest.raises(InvalidInput, match=named):
        PrivateCounts(1.0, categories=categories).fit(frame(9))


@pytest.mark.parametrize("asked", [{"sex": "x"}, {"colour": "red"}])
def test_cells_that_there_are_not(asked):
    found = PrivateCounts(1.0, categories=CATEGORIES, random_state=0).fit(frame(9))
    with pytest.raises(InvalidInput, match=next(iter(asked))):
        found.count(**asked)


@pytest.mark.parametrize("name", ["level", "self", "all of it"])
def test_columns_may_have_any_name(name):
    table = pd.DataFrame({name: ["a", "b", "b"]})
    found = PrivateCounts(1e6, categories={name: ["a", "b"]}, random_state=0).fit(table)
    assert [round(row["count"]) for row in found.rows()] == [1, 2, 3]
    assert f"{name}=b" in found.summary()


def test_no_interval_ends_before_it_begins():
    """Noise takes empty cells far below 0, and the sum of all above the records that there are."""
    table = pd.DataFrame({"k": ["a"] * 20})
    for seed in range(repeat(20, 200)):
        found = PrivateCounts(0.3, 0.0, categories={"k": list("abcdefgh")}, random_state=seed)
        rows = found.fit(table).rows(0.5)
        assert all(0 <= row["low"] <= row["count"] <= row["high"] <= 20 for row in rows)


def test_tables_without_records_are_refused():
    with pytest.raises(InvalidInput, match="records"):
        PrivateCounts(1.0, categories=CATEGORIES).fit(frame(0))


def test_that_two_columns_are_alike_does_not_show(tmp_path):
    tacit.Ledger.create(tmp_path / "agent 1.db", 10.0, 1e-5)
    table, found = frame().assign(smokes=lambda t: t.sex == "f"), []
    for name, known in (("sex", ["f", "m"]), ("smokes", ["True", "False"]), ("sex", ["f", "m"])):
        one = PrivateCounts(1.0, categories={name: known}, ledgers=tmp_path).fit(table)
        found.append(one.counts_)
    assert (found[0] != found[1]).any() and (found[0] == found[2]).all()
    assert len(tacit.Ledger(tmp_path / "agent 1.db").runs()) == 2
