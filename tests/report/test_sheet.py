"""The privacy sheet: one page, twice the same words, nothing uncovered, loud where it must be."""

import base64
import dataclasses
import hashlib
import json
import re
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pytest
from conftest import repeat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sheets import (
    Page,
    about,
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
from tacit.objectives.objective import RELATIONS
from tacit.protocol.disclosure import FILES
from tacit.protocol.result import RELEASED_TRACE, SERVER_TRACE, TRACE
from tacit.report.sheet import html_page, pdf_page, sheet
from tacit.report.subject import Subject

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def result():
    return solved()


@pytest.fixture
def folder(result, tmp_path):
    return noted(result.save(tmp_path / "result"))


def words_of(page):
    """Every text of a sheet."""
    odds = [] if page.odds is None else [page.odds.note, *page.odds.header]
    rows = [] if page.odds is None else [cell for row in page.odds.rows for cell in row]
    lines = [text for s in page.sections for text in (s.title, *s.lines)]
    facts = [text for fact in page.facts for text in fact]
    return [page.title, page.verdict, *facts, *odds, *rows, *lines, page.made]


# --- the two pages ----------------------------------------------------------------------------


def test_both_pages_say_the_same(folder, tmp_path):
    page = sheet(Subject.read(folder, "agent 1", paid(tmp_path / "a.db")), NOW)
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
    text = html_page(about(folder)[2])
    page = Page(text)
    policy = text.split('Policy" content="')[1].split('"')[0]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; style-src 'sha256-" + digest)
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "style", "onclick", "onload", "srcset"}
    assert "url(" not in page.style and "@import" not in page.style and "http" not in page.words
    assert "prefers-color-scheme: dark" in page.style and "@page" in page.style


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
    text = everything(sheet(Subject.read(folder), NOW)).lower()
    # a control: the change is on it where it is promised, as the statement has it
    assert text.count("719372719") == text.count("movingby719372719") * certified
    assert ("movingby719372719" in text) == certified


def test_a_run_without_noise_promises_nothing(tmp_path):
    _, sections, page = about(solved(tacit.Settings(2)).save(tmp_path / "r"))
    assert page.verdict.startswith("NOTHING IS PROMISED: no noise was added")
    assert page.odds is None and "%" not in everything(page).replace("52%", "").replace("100%", "")
    assert sections["May be published"] == "Nothing." and "arrays.npz" in sections["Must be kept"]
    assert "private with" not in " ".join(words_of(page))


@pytest.mark.parametrize(
    "changes", [{"uncertified": "it is not."}, {"epsilon": -1.0}, {"delta": 1.0}], ids=str
)
def test_what_is_not_certified_promises_nothing(result, tmp_path, changes):
    page = about(said(result, **changes).save(tmp_path / "r"))[2]
    assert joined(page.verdict) in Page(html_page(page)).words
    assert page.verdict.startswith("NOTHING IS PROMISED: this run is not certified. ")
    assert page.odds is None and "ε" not in " ".join(words_of(page)).replace("ε counts", "")


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    "changes", [{"uncertified": "beta is a share."}, {"epsilon": np.inf}, {}], ids=str
)
def test_rounds_until_a_tolerance_are_told_only_if_covered(result, tmp_path, once, changes):
    """44 rounds, at most 1000; the control is a promise."""
    trace = {name: np.ones(44) for name in result.trace} | {"round": np.arange(1.0, 45)}
    ended = said(result, once=once, seeded=False, **changes)
    limit = tacit.Settings(1000, tolerance=1e-4)
    folder = dataclasses.replace(ended, trace=trace, settings=limit).save(tmp_path / "r")
    shared = about(folder)[1]["What was shared, and with whom"]
    assert ("44 messages" in shared) == (once and not changes)
    assert ("2^64" in shared) == (not changes)
    if changes:
        assert "1000" not in shared and "promise" not in shared and "nothing more" not in shared


# --- edges ------------------------------------------------------------------------------------


EPSILONS, DELTAS = (1e-4, 1e-300, 9.5, 1e6, 1e300, 0.0), (0.0, 1e-5, 1e-300, 0.05, 0.5)
# each of them, and both ends of either with the other's
FEW = ((1e-4, 1e-5), (1e-300, 0.05), (9.5, 1e-300), (1e6, 0.05), (1e300, 0.0), (0.0, 0.5))


@pytest.mark.parametrize(("epsilon", "delta"), repeat(FEW, [*product(EPSILONS, DELTAS)]))
def test_extreme_budgets(result, tmp_path, epsilon, delta):
    page = about(said(result, epsilon=epsilon, delta=delta).save(tmp_path / "r"))[2]
    read_pdf(pdf_page(page))
    rows = page.odds.rows
    assert rows[3][1] == {0.0: "0", 0.5: "any: nothing"}.get(delta, rows[3][1])
    if epsilon >= 9.5 or delta == 0.5:
        assert "promises next to nothing" in page.verdict
        assert float(rows[0][1].removesuffix("\u00a0%")) >= 99
    else:
        assert page.verdict.startswith("Certified: all that was shared")


NAMES = {
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
    folder = hostile.save(tmp_path / "r")
    for agent in (None, names[0]):
        page = sheet(Subject.read(folder, agent), NOW)
        text = html_page(page)
        assert joined(page.odds.rows[1][1]) in Page(text).words
        if agent is None:
            assert joined(page.odds.rows[1][1]) in read_pdf(pdf_page(page))[0]
        assert "<script" not in text and "\u202e" not in text and "49" not in page.title
        assert len(text) < 20_000
        if len(names) == 300 and agent is None:
            assert "each of 300 agents" in page.title and "and 296 others" in page.title


@pytest.mark.exhaustive  # above: names of every kind
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
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


# --- words ------------------------------------------------------------------------------------


CHANGED, ROW = "whether the data changed between two runs", "Whether any one record (one row of"
ASSUMED = {"assumed": "Taken for public: the numbers of records."}
RELATED = [({"relation": words}, [ROW, f"exactly: {words}."], []) for words in RELATIONS.values()]


@pytest.mark.parametrize(
    ("changes", "there", "not_there"),
    [
        (ASSUMED, ["who takes part. The numbers of records."], [CHANGED]),
        ({"once": True}, [CHANGED, "ε counts once for each, and δ grows by more"], []),
        *RELATED,
    ],
    ids=str,
)
def test_what_a_statement_says(result, tmp_path, changes, there, not_there):
    if relation := changes.get("relation"):
        changes = {"neighbours": ((relation, result.names),)}
    text = " ".join(words_of(about(said(result, **changes).save(tmp_path / "r"))[2]))
    assert [words for words in there if words not in text] == []
    assert [words for words in not_there if words in text] == []
    assert ("or another in its place" in text) == (relation == RELATIONS["replace"])


def test_data_used_purpose_and_recipients(result, tmp_path):
    folder = noted(result.save(tmp_path / "r"))
    facts, _, _ = about(folder)
    assert facts["Purpose"].startswith("NOT STATED") and "who see messages" in facts["Recipients"]
    assert facts["Data used"].startswith("As the run's own files say")
    columns = [f"c{k}" for k in range(14)]
    (folder / "model.json").write_text(json.dumps({"columns": columns, "scores": []}))
    subject = dataclasses.replace(
        Subject.read(folder), purpose="research\n" * 999, recipients="<b>us</b>"
    )
    facts = dict(sheet(subject, NOW).facts)
    assert facts["Data used"].endswith("c11 and 2 others")
    assert facts["Recipients"] == "<b>us</b>" and len(facts["Purpose"]) < 350
    assert "<b>us" not in html_page(sheet(subject, NOW))
    # of a run that promises nothing the model is no public file
    doubt = dataclasses.replace(
        result, privacy=dataclasses.replace(result.privacy, uncertified="planted.")
    )
    other = noted(doubt.save(tmp_path / "doubt"))
    (other / "model.json").write_text(json.dumps({"columns": columns, "scores": []}))
    assert "c11" not in about(other)[0]["Data used"]


def test_an_agent_s_sheet_hides_what_is_hidden_of_that_agent(result, tmp_path):
    """Not what is hidden of others: they may have agreed to more."""
    one, *others = result.names
    hidden = (("moving a load by 7", (one,)), ("moving a load by 9", tuple(others)))
    folder = said(result, neighbours=hidden).save(tmp_path / "r")
    for agent, there, not_there in ((one, "by 7", "by 9"), (others[0], "by 9", "by 7")):
        found = Subject.read(folder, agent)
        assert [names for _, names in found.statement.neighbours] == [(agent,)]
        text = about(folder, agent)[1]["What is hidden"]
        assert there in text and not_there not in text


@pytest.mark.parametrize(
    ("once", "columns", "open_to_all"),
    [(False, TRACE, False), (True, RELEASED_TRACE, True), (True, SERVER_TRACE, False)],
)
def test_what_may_be_handed_on(result, tmp_path, once, columns, open_to_all):
    """The table on the page about results, for files that are there."""
    subject = Subject.read(said(result, once=once).save(tmp_path / "r"))
    names = ("arrays.npz", "trace.csv", "result.json", "check.png", "my <notes>")
    names += ("sheet.html", "sheet.pdf", "sheet-Zug.html")
    page = sheet(dataclasses.replace(subject, trace=columns, files=names), NOW)
    sections = {s.title: s.lines[0] for s in page.sections}
    published, kept = sections["May be published"], sections["Must be kept"]
    assert ("trace.csv" in published) == open_to_all and ("trace.csv" in kept) != open_to_all
    assert "arrays.npz" in published and "result.json" in kept and "check.png" in kept
    assert "one file or folder more" in kept and "sheet" not in kept
    assert "notes" not in everything(page)


def test_messages_have_the_numbers_that_are_shared(result, tmp_path):
    """Points of 7 and 9 numbers, of which 2 and 4 are shared."""
    few = dataclasses.replace(
        said(result, once=True, neighbours=(("adding one", ("a", "b")),)),
        names=("a", "b"),
        local=(np.zeros(7), np.zeros(9)),
        solution=np.zeros(5),
        duals=(np.zeros(2), np.zeros(4)),
    )
    bare = dataclasses.replace(few, duals=())
    for name, saved, agent, words in (
        ("both", few, None, "of at most 4 numbers each"),
        ("one", few, "a", "of at most 2 numbers each"),
        ("bare", bare, None, "of at most 5 numbers each"),
    ):
        shared = about(saved.save(tmp_path / name), agent)[1]["What was shared, and with whom"]
        assert words in shared
        assert "that share a number, as the mean over those that share it" in shared


def test_loads_are_known_to_within_the_noise(tmp_path, result):
    change = "the active and the reactive demand of one bus, each moving by at most 0.02 per unit"
    grid = said(result, neighbours=((change, result.names),), once=True)
    folder = noted(grid.save(tmp_path / "r"))
    assert "loads" not in about(folder)[1]["What is hidden"]
    note = {"command": "power solve", "run": "run", "options": {}, "once": True}
    (folder / "run.json").write_text(json.dumps(note))
    assert "known to within the noise" in about(folder)[1]["What is hidden"]
