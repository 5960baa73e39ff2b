"""The privacy sheet: one page, twice the same words, nothing uncovered, loud where it must be."""

import base64
import dataclasses
import hashlib
import re
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pytest
from conftest import repeat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sheets import (
    HIDES,
    Page,
    everything,
    joined,
    noted,
    paid,
    read_pdf,
    renamed,
    said,
    solved,
)

import tacit
from tacit.privacy.accounting import rounded_up
from tacit.protocol.disclosure import FILES
from tacit.protocol.result import RELEASED_TRACE, SERVER_TRACE, TRACE
from tacit.report.odds import guess, hits, percent, suspicion
from tacit.report.sheet import html_page, pdf_page, sheet
from tacit.report.subject import Subject

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def result():
    return solved()


@pytest.fixture
def folder(result, tmp_path):
    return result.save(tmp_path / "result")


def page_of(result, folder, **options):
    return sheet(Subject.read(result.save(folder), **options), NOW)


def words_of(page):
    """Every text of a sheet."""
    odds = [] if page.odds is None else [page.odds.note, *page.odds.header]
    rows = [] if page.odds is None else [cell for row in page.odds.rows for cell in row]
    lines = [text for s in page.sections for text in (s.title, *s.lines)]
    facts = [text for fact in page.facts for text in fact]
    return [page.title, page.verdict, *facts, *odds, *rows, *lines, page.made]


# --- the two pages ----------------------------------------------------------------------------


def test_both_pages_say_the_same(folder, tmp_path):
    ledger = paid(tmp_path / "a.db")
    page = sheet(Subject.read(noted(folder), "agent 1", ledger), NOW)
    html, (drawn, document) = Page(html_page(page)), read_pdf(pdf_page(page))
    for text in words_of(page):
        assert joined(text) in html.words, text
        assert joined(text) in drawn, text
    assert document.metadata.title == page.title and document.metadata.subject == page.verdict
    assert document.trailer["/Root"]["/Lang"] == "en"
    assert document.trailer["/Root"]["/ViewerPreferences"]["/DisplayDocTitle"].value is True
    width, height = document.pages[0].mediabox[2:]
    assert (round(width), round(height)) == (595, 842)  # A4


def test_the_page_fetches_and_runs_nothing(folder):
    text = html_page(sheet(Subject.read(folder), NOW))
    page = Page(text)
    policy = text.split('Policy" content="')[1].split('"')[0]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; style-src 'sha256-" + digest)
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "style", "onclick", "onload", "srcset"}
    assert "url(" not in page.style and "@import" not in page.style and "http" not in page.words
    assert "prefers-color-scheme: dark" in page.style and "@page" in page.style


def test_the_numbers_are_those_of_the_run(folder, result, tmp_path):
    ledger = paid(tmp_path / "a.db")
    with tacit.Ledger(ledger) as open_ledger:  # another run, so that totals are others
        open_ledger.begin("autumn", open_ledger.terms("winter"))
        open_ledger.charge("autumn", 1, 3)
    page = sheet(Subject.read(noted(folder), "agent 1", ledger), NOW)
    facts, p = dict(page.facts), result.privacy
    assert page.promised and facts["Whose data"] == "agent 1, with 2 other agents"
    assert facts["Budget of this run"] == f"ε ≤ {rounded_up(p.epsilon, 3)}, δ ≤ 0.00001"
    with tacit.Ledger(ledger) as open_ledger:
        spent, left = open_ledger.spent.epsilon, open_ledger.left
        assert open_ledger.head[:16] in facts["Ledger"] and "5 entries" in facts["Ledger"]
    assert facts["Spent in all runs"].startswith(f"ε ≤ {rounded_up(spent, 4)} of a limit of 4, at")
    assert facts["Spent in all runs"].endswith("in 2 runs")
    assert facts["Left"].endswith("(runs together cost less than their sum)")
    assert len(page.odds.header) == 4
    shown = float(facts["Left"].split("ε = ")[1].split()[0])
    assert 0.99 * left < shown <= left
    shared = " ".join(page.sections[0].lines)
    assert f"6 messages of at most {result.solution.size} numbers each" in shared
    assert "12 noisy updates" in shared and "points of a public feasible set" in shared
    budgets = [
        (float(rounded_up(p.epsilon, 3)), 1e-5),
        (float(rounded_up(spent, 4)), 1e-5),
        (4.0, 1e-5),
    ]
    rows = [row[1:] for row in page.odds.rows]
    assert rows[0] == tuple(percent(suspicion(0.01, *b)) for b in budgets)
    assert rows[2] == tuple(percent(suspicion(0.5, *b)) for b in budgets)
    assert rows[3] == ("≤ 0.0001",) * 3
    assert rows[4] == tuple(percent(hits(0.01, *b)) for b in budgets)
    assert rows[6] == tuple(percent(guess(*b)) for b in budgets)


def test_a_control_with_a_smaller_epsilon_has_smaller_odds(result, tmp_path):
    """So that a sheet that forgot its budget would be seen."""
    rows = []
    for i, epsilon in enumerate((0.5, 1.0)):
        page = page_of(said(result, epsilon=epsilon), tmp_path / str(i))
        rows.append([float(row[1].strip("≤ %\u00a0")) for row in page.odds.rows])
    assert all(a < b for i, (a, b) in enumerate(zip(*rows, strict=True)) if i != 3)


# --- what must not be on it -------------------------------------------------------------------


@pytest.mark.parametrize("certified", [True, False])
@pytest.mark.parametrize("once", [True, False])
def test_nothing_uncovered_is_on_it(result, tmp_path, certified, once):
    mark = 719372719.0
    trace = {name: np.full(6, mark) for name in result.trace}
    trace["round"] = np.arange(1.0, 7)
    doubt = "" if certified else "a bound is missing."
    marked = dataclasses.replace(
        said(result, once=once, uncertified=doubt, neighbours=(("moving by 719372719", ("a",)),)),
        trace=trace,
        seed=719372719,
        timing={"total": mark},
        solution=np.full(3, mark),
        local=(np.full(3, mark),),
        names=("a",),
        plan="because 719372719",
    )
    folder = noted(marked.save(tmp_path / "r"), seed=719372719, data="/719372719.csv")
    for name in ("figures.json", "check.json"):
        (folder / name).write_text('{"error": 719372719}')
    (folder / "bus.csv").write_text("bus,p_demand\n1,719372719\n")
    (folder / "719372719.csv").write_text("")
    text = everything(sheet(Subject.read(folder), NOW))
    if certified:  # a control: the change is on it, as the statement has it
        assert text.count("719372719") == text.count("movingby719372719") + text.count(
            "Movingby719372719"
        )
    else:
        assert "719372719" not in text


def test_a_run_without_noise_promises_nothing(tmp_path):
    page = page_of(solved(tacit.Settings(2)), tmp_path / "r")
    assert page.verdict.startswith("NOTHING IS PROMISED: no noise was added")
    assert page.odds is None and "%" not in everything(page).replace("52%", "").replace("100%", "")
    sections = {s.title: " ".join(s.lines) for s in page.sections}
    assert sections["May be published"] == "Nothing." and "arrays.npz" in sections["Must be kept"]
    assert "private with" not in " ".join(words_of(page))


@pytest.mark.parametrize(
    "changes",
    [
        {"uncertified": "the noise follows the paper's calibration."},
        {"epsilon": -1.0},
        {"delta": 1.0},
    ],
    ids=str,
)
def test_what_is_not_certified_promises_nothing(result, tmp_path, changes):
    page = page_of(said(result, **changes), tmp_path / "r")
    first = Page(html_page(page)).words
    assert joined(page.verdict) in first
    assert page.verdict.startswith("NOTHING IS PROMISED: this run is not certified. ")
    assert page.odds is None and "ε" not in " ".join(words_of(page)).replace("ε counts", "")


# --- edges ------------------------------------------------------------------------------------


EPSILONS, DELTAS = (1e-4, 1e-300, 9.5, 1e6, 1e300, 0.0), (0.0, 1e-5, 1e-300, 0.05, 0.5)
# each of them, and both ends of either with the other's
FEW = ((1e-4, 1e-5), (1e-300, 0.05), (9.5, 1e-300), (1e6, 0.05), (1e300, 0.0), (0.0, 0.5))


@pytest.mark.parametrize(("epsilon", "delta"), repeat(FEW, [*product(EPSILONS, DELTAS)]))
def test_extreme_budgets(result, tmp_path, epsilon, delta):
    page = page_of(said(result, epsilon=epsilon, delta=delta), tmp_path / "r")
    read_pdf(pdf_page(page))
    rows = page.odds.rows
    assert rows[3][1] == {0.0: "0", 0.5: "any: nothing"}.get(delta, rows[3][1])
    if epsilon >= 9.5 or delta == 0.5:
        assert "promises next to nothing" in page.verdict
        assert float(rows[0][1].removesuffix("\u00a0%")) >= 99
    else:
        assert page.verdict.startswith("Certified: all that was shared")


NAMES = {
    "long": ("n" * 1000,),
    "words": ("north " * 500,),
    "many": tuple(f"agent {'x' * 900} {i}" for i in range(300)),
    "markup": ('</dd><script>alert("1")</script><b>', "<!--", "{{ 7*7 }}{% raw %}", "&amp;<br/>"),
    "right to left": ("מרכז רפואי", "مستشفى الشمال", "\u202eevil\u202c"),
    "emoji": ("🏥👩‍⚕️", "\U0001f9ec" * 50),
    "controls": ("a\x00b\x1b[31m\r\n\tc", "\ud800\udfff", "\ufffe"),
    "empty": ("", " "),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_hostile_names(result, tmp_path, names):
    hostile = said(renamed(result, *names), assumed=names[0] * 20, before=names[-1] * 20)
    few = {1: names[:1], 300: (None,)}.get(len(names), (None, names[0]))
    for agent in repeat(few, (None, names[0])):
        folder = hostile.save(tmp_path / ("all" if agent is None else "one"))
        page = sheet(Subject.read(folder, agent), NOW)
        text = html_page(page)
        words = Page(text).words
        drawn, _ = read_pdf(pdf_page(page))
        assert joined(page.odds.rows[1][1]) in drawn and joined(page.odds.rows[1][1]) in words
        assert "<script" not in text and "\u202e" not in text and "49" not in page.title
        assert len(text) < 20_000
    if len(names) == 300:
        assert "each of 300 agents" in everything(sheet(Subject.read(tmp_path / "all"), NOW)) or (
            "and 296 others" in " ".join(words_of(sheet(Subject.read(tmp_path / "all"), NOW)))
        )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=repeat(5, 15))
@given(text=st.text(min_size=1, max_size=400), more=st.text(max_size=2000))
def test_any_words(result, text, more):
    p = dataclasses.replace(
        result.privacy, neighbours=((text, (text,)),), assumed=more, before=text, mechanism=text
    )
    page = sheet(Subject((text,), 3, p, more, more, 7, 9, files=(text, "trace.csv")), NOW)
    Page(html_page(page))
    read_pdf(pdf_page(page))


def test_the_text_of_the_fullest_page_can_be_read(result, tmp_path):
    """All that can be long is cut so that letters on paper stay above five points."""
    names = tuple("w" * 999 + str(i) for i in range(300))
    full = said(
        renamed(result, *names),
        assumed="w " * 5000,
        before="w " * 5000,
        neighbours=tuple((f"{i} " + "change " * 300, names) for i in range(9)),
    )
    folder = noted(full.save(tmp_path / "r"), run="run " * 400)
    subject = Subject.read(folder, names[0])
    page = sheet(dataclasses.replace(subject, files=(*FILES, "more")), NOW)
    _, document = read_pdf(pdf_page(page))
    sizes = []
    document.pages[0].extract_text(
        visitor_text=lambda text, cm, tm, font, size: (
            sizes.append(cm[0] * size * tm[0]) if text.strip() else None
        )
    )
    assert min(sizes) > 5
    printed = float(re.search(r"font-size: ([\d.]+)pt", html_page(page))[1])
    assert printed > 5


# --- ledgers ----------------------------------------------------------------------------------


def test_without_a_ledger_it_says_so(folder):
    page = sheet(Subject.read(folder), NOW)
    assert "None was read: the run noted none" in dict(page.facts)["Ledger"]
    assert "their budgets add up" in dict(page.facts)["Ledger"] and len(page.odds.header) == 2


def test_a_ledger_that_does_not_know_the_run(folder, tmp_path):
    """Its total leaves this run out: no odds are made of it."""
    page = sheet(Subject.read(noted(folder, "summer"), "agent 1", paid(tmp_path / "a.db")), NOW)
    assert "THIS RUN IS NOT IN IT" in dict(page.facts)["Ledger"] and len(page.odds.header) == 2
    other = paid(tmp_path / "b.db", hides="something else")
    page = sheet(Subject.read(noted(folder, "winter"), "agent 1", other), NOW)
    assert "THIS RUN IS NOT IN IT" in dict(page.facts)["Ledger"] and len(page.odds.header) == 2
    (folder / "run.json").unlink()
    page = sheet(Subject.read(folder, "agent 1", tmp_path / "a.db"), NOW)
    assert "not known: its name is not recorded" in dict(page.facts)["Ledger"]
    assert len(page.odds.header) == 2


def test_a_new_ledger_and_one_that_is_overspent(folder, tmp_path):
    fresh = paid(tmp_path / "fresh.db", charge=0)
    page = sheet(Subject.read(noted(folder), "agent 2", fresh), NOW)
    assert "ε ≤ 0 of a limit of 4" in dict(page.facts)["Spent in all runs"]
    assert "THIS RUN IS NOT IN IT" in dict(page.facts)["Ledger"]
    for part in (
        paid(tmp_path / "rounds.db", charge=5, noise=8.0, epsilon=9.0),
        paid(tmp_path / "noise.db", noise=60.0),
        paid(tmp_path / "delta.db", noise=60.0, at=0.01),  # at which its epsilon says less
    ):
        page = sheet(Subject.read(noted(folder), "agent 1", part), NOW)  # less than was shared
        assert "THIS RUN IS NOT IN IT" in dict(page.facts)["Ledger"] and len(page.odds.header) == 2
    over = paid(tmp_path / "over.db")
    with tacit.Ledger(over) as ledger:
        spent = ledger.spent.epsilon
    for share, beyond in ((1.0, False), (0.999, True), (0.01, True)):
        with tacit.Ledger(over) as ledger:
            ledger.set_budget(share * spent, 1e-5)
        page = sheet(Subject.read(noted(folder), "agent 1", over), NOW)
        said = dict(page.facts)["Spent in all runs"]
        assert ("MORE IS SPENT THAN THE LIMIT" in said) is beyond


def test_the_ledger_says_whose_sheet_it_is(folder, tmp_path):
    page = sheet(Subject.read(noted(folder), None, paid(tmp_path / "a.db", "agent 2")), NOW)
    assert page.title == "Privacy sheet: agent 2"


def test_where_the_noise_is_from(result, tmp_path):
    seed, key = "as long as the seed of the noise is secret", "those who cannot try 2^64 keys"
    for i, (changes, found) in enumerate(
        [
            ({"seeded": True}, (True, False)),
            ({"seeded": False}, (False, True)),
            ({"seeded": False, "secure": True}, (False, False)),
        ]
    ):
        page = page_of(said(result, **changes), tmp_path / str(i))
        kept = {s.title: s.lines[0] for s in page.sections}["Must be kept"]
        assert (seed in page.verdict, key in " ".join(words_of(page))) == found
        assert ("the seed" in kept) == found[0]


def test_what_is_assumed(result, tmp_path):
    assumed = "Taken for public: the numbers of records."
    page = page_of(said(result, assumed=assumed), tmp_path / "r")
    lines = {s.title: s.lines[0] for s in page.sections}["Taken for public"]
    assert lines.endswith("who takes part. The numbers of records.")


def test_what_may_be_handed_on(result, tmp_path):
    """The table on the page about results, for files that are there."""
    for i, (once, columns, open_to_all) in enumerate(
        [(False, TRACE, False), (True, RELEASED_TRACE, True), (True, SERVER_TRACE, False)]
    ):
        subject = Subject.read(said(result, once=once).save(tmp_path / str(i)))
        names = ("arrays.npz", "trace.csv", "result.json", "my <notes>", "sheet.pdf")
        page = sheet(dataclasses.replace(subject, trace=columns, files=names), NOW)
        lines = {s.title: s.lines[0] for s in page.sections}
        assert ("trace.csv" in lines["May be published"]) == open_to_all
        assert ("trace.csv" in lines["Must be kept"]) != open_to_all
        assert "arrays.npz" in lines["May be published"] and "result.json" in lines["Must be kept"]
        assert "one file or folder more" in lines["Must be kept"]
        assert "notes" not in everything(page) and "sheet.pdf" not in lines["Must be kept"]


def test_hides_is_what_the_statement_hides(folder):
    assert HIDES in " ".join(words_of(sheet(Subject.read(folder), NOW)))
