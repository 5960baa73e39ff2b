"""What notebooks show: parsed, escaped, the object's own numbers, and loud where nothing holds."""

import dataclasses
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import problem_of
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit import html
from tacit.privacy.accounting import rounded_up
from tacit.privacy.ledger import Terms

HOSTILE = '<img src=x onerror="alert(1)">&\u202e\x00\ud800'
ALLOWED = {
    *("div", "strong", "p", "table", "thead", "tbody", "tr", "th", "td"),
}


class Page:
    """Tags that match, none but those we write, and the text of every row."""

    def __init__(self, text):
        whole = ElementTree.fromstring(f"<div>{text}</div>")
        self.rows = [["".join(cell.itertext()) for cell in row] for row in whole.iter("tr")]
        self.table = {row[0]: row[1] for row in self.rows if len(row) == 2}
        self.words = "\n".join(whole.itertext()) + "\n"
        for part in whole.iter():
            assert part.tag in ALLOWED
            assert not [a for a in part.attrib if a.startswith("on") or a == "href"]
            style = part.get("style", "")  # no colour that a dark notebook cannot show
            assert "color:" not in style.replace("currentColor", "") and "#fff" not in style


def shown(thing):
    text = thing._repr_html_()
    assert isinstance(text, str)
    text.encode()  # no lone surrogate is left
    return Page(text)


@pytest.fixture(scope="module")
def result():
    settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=6, local_updates=2)
    return tacit.solve(problem_of("logistic", "box"), settings, seed=4711)


def test_a_result_shows_its_own_numbers(result):
    page = shown(result)
    p, last = result.privacy, result.summary
    assert f"ε ≤ {rounded_up(p.epsilon, 3)}, δ ≤ {rounded_up(p.delta, 6)}" in page.words
    assert page.table["consensus residual"] == f"{last['residual']:.6g}"
    assert page.table["objective"] == f"{last['objective']:.6g} (not covered: do not publish)"
    assert "do not publish" in page.table["noise magnitude of the last round"]
    numbers = page.table[f"solution, {result.solution.size} numbers"].removesuffix(" …").split()
    np.testing.assert_allclose([float(x) for x in numbers], result.solution[:6], rtol=1e-3)
    assert "4711" not in page.words and "NOT" not in page.words
    assert "must not be published" in page.words  # the statement's own words


def test_what_is_not_certified_is_loud(result):
    doubtful = dataclasses.replace(result.privacy, uncertified="a bound is missing.")
    page = shown(dataclasses.replace(result, privacy=doubtful, converged=True))
    assert page.words.split("\n")[0].endswith("6 rounds (not covered: do not publish)")
    assert page.table["tolerance"] == "reached (not covered: do not publish)"
    assert page.words.split("\n")[1].startswith("NOT CERTIFIED, nothing is promised: a bound")
    assert page.table["consensus residual"].endswith("do not publish)")
    assert page.table["would hide"].endswith("do not publish)")
    assert "differentially private" not in page.words and "(Do not publish.)" in page.words
    assert "NOT CERTIFIED" in shown(doubtful).words
    page = shown(tacit.solve(problem_of("huber", "box"), tacit.Settings(3), seed=0))
    assert page.words.split("\n")[1].startswith("NOT PRIVATE") and "ε ≤" not in page.words
    for name, value in page.table.items():
        assert value.endswith("do not publish)") or name == "in the data of", name


def test_odd_empty_and_broken_results(result):
    def other(**changes):
        return dataclasses.replace(result, **changes)

    nothing = other(trace={}, names=(), solution=np.zeros(0), local=(), converged=False)
    assert "no rounds" in shown(nothing).words and "NOT reached" in shown(nothing).words
    values = np.array([math.nan, math.inf, 1e308, -1e308, 1.0, 0.0])
    shown(other(trace={**result.trace, "residual": values}))
    assert other(privacy=None)._repr_html_() is None  # and the notebook falls back to text
    for epsilon, delta in ((math.nan, 0.0), (-1.0, 0.0), (1.0, math.nan), (1.0, 2.0)):
        odd = dataclasses.replace(result.privacy, epsilon=epsilon, delta=delta)
        assert "NOT CERTIFIED" in shown(other(privacy=odd)).words
    edge = dataclasses.replace(result.privacy, epsilon=1.00049, delta=1.00000049e-5)
    assert "ε ≤ 1.01, δ ≤ 1.00001e-05" in shown(edge).words  # rounded up


def test_names_are_hostile(result):
    hostile = dataclasses.replace(
        result.privacy,
        neighbours=((HOSTILE, (HOSTILE,) * 300), ("x" * 5000, ("y" * 5000,))),
        assumed=HOSTILE,
        before=HOSTILE * 2000,
    )
    for thing in (hostile, dataclasses.replace(result, names=(HOSTILE,) * 300, privacy=hostile)):
        page = shown(thing)
        assert "onerror" in page.words and "\u202e" not in page.words
        assert "and 295 others" in page.words
        assert len(thing._repr_html_()) < 20_000


# --- ledgers ----------------------------------------------------------------------------------


def test_a_ledger_shows_what_is_spent(tmp_path):
    with tacit.Ledger.create(tmp_path / "<b>.db", 4.0, 1e-5) as ledger:
        assert ledger.entries == 1 and ledger.agent is None and ledger.run_names == ()
        assert shown(ledger).table["spent, all runs together"] == "0"
        terms = Terms("a", tacit.Gaussian(40.0), 50, 2, 1e-9, "secure", HOSTILE[:20], "digest")
        ledger.begin("<i>winter", terms)
        ledger.charge("<i>winter", 1, 5)
        page = shown(ledger)
        assert ledger.agent == "a" and ledger.run_names == ("<i>winter",)
        spent = rounded_up(ledger.spent.epsilon, 4)
        assert page.table["spent, all runs together"] == spent
        assert page.table["largest further Gaussian run that fits"] == f"{ledger.left:.4g}"
        listed = next(row for row in page.rows if row[0] == "<i>winter")
        assert listed[3:] == ["5 of 50 rounds", "0", spent]
        assert "do not publish" in page.words
        ledger.set_budget(0.001, 1e-5)
        assert "More is spent than the budget allows" in shown(ledger).words
        ledger._db.execute("DELETE FROM entries")
        page = shown(ledger)
        assert "Cannot be read" in page.words and "ε" not in page.words


# --- grids and estimators ---------------------------------------------------------------------


def test_a_grid_shows_its_zones_and_no_load():
    from tacit.power import build, load_case

    grid = load_case("case14")
    grid.bus["p_demand"] = 0.7193  # a load that must not be seen
    problem = build(grid, {bus: HOSTILE if bus < 7 else "b" for bus in grid.bus.index})
    page = shown(problem)
    assert "14 buses, 20 lines, 5 generators" in page.words
    assert page.table["lines between zones"].startswith(f"{len(problem.cut_lines)}, with ")
    assert sum(int(row[1]) for row in page.rows[1:] if len(row) == 3 and row[0] != "zone") == 14
    assert "7193" not in page.words and "onerror" in page.words
    relative = build("case14", 2, beta="1% of largest")
    assert "NOT CERTIFIED" in shown(relative).words
    assert shown(relative).table["hides"].endswith("(do not publish)")


@pytest.mark.parametrize("changes", [{}, {"total_epsilon": None}, {"random_state": 4711}], ids=str)
def test_a_fitted_estimator_shows_its_statement_first(changes):
    """And says so where it lists what must be kept."""
    from tacit.learn import PrivateLogisticRegression

    settings = {"total_epsilon": 1.0, "rounds": 2, "local_updates": 1, "classes": [0, 1]}
    model = PrivateLogisticRegression(**{**settings, **changes})
    assert "Privacy statement" not in model._repr_mimebundle_()["text/html"]
    model.fit(np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2)
    whole = model._repr_mimebundle_()["text/html"]
    first, _, listed = whole.partition("<style")
    assert "sk-top-container" in listed and "random_state" in listed and "4711" not in first
    assert model.privacy_._repr_html_() in first
    assert Page(first).words.startswith("Do not publish what is below: ") == bool(changes)
    model.privacy_ = "no statement"
    broken = model._repr_mimebundle_()["text/html"].partition("<style")[0]
    assert Page(broken).words.startswith("Do not publish what is below: ")


@given(st.text(max_size=300), st.integers(1, 50))
def test_plain_text_is_seen_and_short(text, most):
    found = html.plain(text, most)
    found.encode()
    assert len(found) <= most + 40 and "\n" not in found and "\u202e" not in found
    assert html.plain(found, 500) == found
