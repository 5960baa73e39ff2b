"""Pages of folders that somebody has changed, and public ones of runs that nothing covers."""

import json
import shutil

import pytest
from test_page import charts_of, page_of, rewritten

import tacit
from tacit.report.account import accounts
from tacit.report.contents import Contents
from tacit.report.page import kind_of, lead, privacy_facts, render


def test_an_uncertified_run_has_no_gauge_and_no_settings_that_data_may_have_chosen(
    folders, tmp_path
):
    folder = folders.copy("uncertified grid", tmp_path)

    def choose(note):
        note["options"].update(penalty=123.456, step_size=0.04321, total_epsilon=7.77)

    rewritten(folder, "run.json", choose)
    public = render(Contents.read(folder).public()).decode()
    assert not [said for said in ("123.456", "0.04321", "7.77") if said in public]
    for page in (public, page_of(folder)):
        assert "gauge" not in charts_of(page) and "spent epsilon" not in page
        assert "<dt>calibration</dt>" not in page
    assert "gauge" in charts_of(page_of(folders["noisy grid"]))  # one that is certified


@pytest.mark.parametrize("epsilon, delta", [(None, 1e-5), (-1.0, 1e-5), (1.0, 2.0), (1.0, -1e-9)])
def test_numbers_that_are_no_budget_promise_nothing(folders, tmp_path, epsilon, delta):
    folder = folders.copy("noisy job", tmp_path)
    rewritten(folder, "result.json", lambda d: d["privacy"].update(epsilon=epsilon, delta=delta))
    contents = Contents.read(folder)
    assert contents.result.privacy.certified  # as the file says
    assert kind_of(contents) != "certified"
    public = contents.public()
    assert not public.result.trace and not public.result.solution.size


def test_epsilon_and_delta_are_rounded_up(folders, tmp_path):
    folder = folders.copy("job", tmp_path)
    rewritten(folder, "result.json", lambda d: d["privacy"].update(delta=1.23456431e-5))
    assert "δ ≤ 1.23457e-05" in page_of(folder)


def test_odds_are_raised_for_either_side_and_hold_for_secret_seeds_only(folders):
    said = lead(Contents.read(folders["noisy job"]))
    assert "or on its absence" in said and "while the seed is secret" in said
    assert "seed" not in lead(Contents.read(folders["job"]))


@pytest.mark.parametrize("place", ["customers/acmecorp.m", "../private/acmecorp.csv", "acmecorp.m"])
@pytest.mark.parametrize("option", ["case", "zones"])
def test_a_relative_path_is_a_path(folders, tmp_path, option, place):
    folder = folders.copy("grid", tmp_path)
    rewritten(folder, "run.json", lambda note: note["options"].update({option: place}))
    contents = Contents.read(folder)
    assert contents.options[option] == place
    assert "acmecorp" not in render(contents.public()).decode()


def test_a_case_that_everybody_knows_is_named(folders, tmp_path):
    folder = folders.copy("grid", tmp_path)
    rewritten(folder, "run.json", lambda note: note["options"].update(case="case118"))
    assert "case118" in render(Contents.read(folder).public()).decode()


def test_a_ledger_of_another_agent_says_nothing(folders, tmp_path):
    folders["job"]
    ledgers = folders.place / "ledgers"
    shutil.copy(ledgers / "south.db", tmp_path / "north.db")
    assert "another agent" in accounts(tmp_path, ["north"])["north"]
    assert accounts(ledgers, ["north"])["north"].agent == "north"
    tacit.Ledger.create(tmp_path / "new.db", 1.0, 1e-5).close()  # of nobody yet
    assert accounts(tmp_path, ["new"])["new"].agent is None


def test_names_turn_no_words_and_fill_no_page(folders, tmp_path):
    folder = folders.copy("noisy job", tmp_path)
    names = ["\u202etnega", "x" * 10**6]
    found = json.loads((folder / "result.json").read_text())
    key = next(k for k, v in found.items() if isinstance(v, list) and "north" in v)
    rewritten(folder, "result.json", lambda d: d.update({key: names}))
    facts = dict(privacy_facts(Contents.read(folder)))
    assert "\u202e" not in facts["Whose data"] and len(facts["Whose data"]) < 1000


@pytest.mark.parametrize("zone", ["</title><script>x</script>", "\"' onload='x", "<!--", "]]>"])
def test_names_on_a_map_are_text(zone, folders, tmp_path):
    folder = folders.copy("grid", tmp_path)
    table = (folder / "bus.csv").read_text()
    (folder / "bus.csv").write_text(table.replace("zone a", '"' + zone.replace('"', '""') + '"'))
    contents = Contents.read(folder)
    assert zone in contents.tables["bus"]["zone"]
    page = page_of(folder)
    drawn = charts_of(page)["map"]
    assert any(f"zone: {zone}" in title.text for title in drawn.iter("title"))
    assert not [name for element in drawn.iter() for name in element.attrib if name == "onload"]
    bare = page_of(folders["grid"])
    for element in ("<script", "</script", "<!--", "</title"):
        assert page.count(element) == bare.count(element)
