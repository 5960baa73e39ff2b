"""Report and sheet in a browser: drawn, without errors or requests, by mouse, on paper."""

import base64
import dataclasses
import io
import json
import re
import unicodedata

import numpy as np
import pypdf
import pytest
from browsers import complaints, violations
from conftest import repeat
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.common.print_page_options import PrintOptions
from selenium.webdriver.support.ui import WebDriverWait
from sheets import html_page, joined, noted, paid, renamed, said, solved

from tacit.learn import PrivateMoments
from tacit.protocol.disclosure import FILES
from tacit.report.contents import Contents
from tacit.report.page import render
from tacit.report.released import Released
from tacit.report.sheet import sheet
from tacit.report.subject import Subject

# of every chart: how many of its marks a browser gives a place in it
PAINTED = """return [...document.querySelectorAll("svg.chart")].map((chart) => {
  const all = chart.getBoundingClientRect();
  return [chart.id, [...chart.querySelectorAll("path, rect")].filter((mark) => {
    const box = mark.getBoundingClientRect();
    return all.width > 0 && box.right >= all.left && box.left <= all.right;
  }).length];
});"""
TIP = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent;"
HOSTILE = "<img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\">"
CHARTS = {"job": 6, "grid": 5, "model": 5, "table": 1}  # in each page
SHEETS = ("ordinary sheet", "full sheet", "sheet of nothing")


@pytest.fixture(scope="module")
def pages(folders, tmp_path_factory):
    """Files, by kind of run; and one of an agent whose name is not kind."""
    place = tmp_path_factory.mktemp("pages")
    for kind in list(CHARTS)[:3]:
        (place / f"{kind}.html").write_bytes(render(Contents.read(folders[kind])))
    moments = PrivateMoments(1.0, ranges={"age": (0, 9)}, categories={"sex": ("f", "m")})
    moments.fit({"age": [*range(9)] * 40, "sex": ["f", "m", "f"] * 120}).save(place / "moments")
    (place / "table.html").write_bytes(render(Released.read(place / "moments")))
    public = Contents.read(folders["grid"]).public()
    (place / "public.html").write_bytes(render(public))
    hostile = folders.copy("job", place)
    path = hostile / "result.json"
    path.write_text(path.read_text().replace('"north"', json.dumps(HOSTILE)))
    np.savez(hostile / "release.npz", **{HOSTILE.replace("/", ""): np.ones(2)})
    (place / "hostile.html").write_bytes(render(Contents.read(hostile)))
    return place


@pytest.fixture(scope="module")
def sheets(pages):
    """An ordinary sheet, the fullest there is, and one that promises nothing."""
    place, result = pages, solved()
    names = tuple("w" * 999 + str(i) for i in range(300))
    change = "change " * 300
    full = renamed(result, *names)
    full = said(full, assumed="w " * 999, before="w " * 999, neighbours=((change, names),))
    folder = noted(full.save(place / "b"), "run " * 400)
    ledger = paid(place / "b.db", names[0], "run " * 400, hides=change)
    more = dataclasses.replace(Subject.read(folder, names[0], ledger), files=(*FILES, "more"))
    folder, ledger = noted(result.save(place / "a")), paid(place / "a.db", charge=7)
    nothing = said(result, uncertified="it is not.").save(place / "c")
    subjects = Subject.read(folder, "agent 1", ledger), more, Subject.read(nothing)
    found = dict(zip(SHEETS, map(sheet, subjects), strict=True))
    for kind, page in found.items():
        (place / f"{kind}.html").write_text(html_page(page))
    return found


@pytest.fixture
def opened(browser, pages, sheets):
    def get(kind, width=1200, height=900, phone=False):
        how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)
        complaints(browser)  # of pages before
        browser.get((pages / f"{kind}.html").as_uri())
        if kind not in SHEETS:
            WebDriverWait(browser, 20).until(
                lambda b: b.execute_script("return document.documentElement.dataset.ready")
            )
        return browser

    yield get
    assert complaints(browser) == []  # of the last page that a test opened


@pytest.mark.parametrize("kind", [*CHARTS, "public", "hostile"])
def test_it_asks_for_nothing_and_draws(kind, opened):
    browser = opened(kind)
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    painted = dict(browser.execute_script(PAINTED))
    assert len(painted) == CHARTS.get(kind, len(painted)), painted
    assert all(count > 1 for name, count in painted.items() if name != "solution-1"), painted
    for fold in browser.find_elements(By.TAG_NAME, "summary"):  # tables are filled then
        browser.execute_script("arguments[0].parentElement.open = true", fold)
    assert "owned" not in browser.title
    assert not browser.find_elements(By.CSS_SELECTOR, "main img")
    shown = browser.find_element(By.CSS_SELECTOR, "#privacy .facts dd").text
    assert (HOSTILE in shown) == (kind == "hostile")


def test_pointer_and_arrow_keys_tell_the_numbers(opened):
    """Anywhere on a curve the pointer is on what has the title of the nearest point."""
    browser = opened("grid")
    under = """const chart = document.getElementById(arguments[0]);
      chart.scrollIntoView({block: "center"});
      const box = chart.getBoundingClientRect();
      const seen = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 3);
      return seen.closest(":has(> title)").textContent;"""
    assert "Consensus residual (p.u.): " in browser.execute_script(under, "trace-residual")
    box = browser.find_element(By.ID, "map")
    for key, first in ((Keys.HOME, "line "), (Keys.END, "bus ")):
        box.send_keys(key)
        assert browser.execute_script(TIP).startswith(first)
    last = browser.execute_script(TIP)
    assert "p shed" in last and "voltage" in last
    box.send_keys(Keys.ARROW_LEFT)
    assert browser.execute_script(TIP) not in ("", last)
    box.send_keys(Keys.ESCAPE)
    assert not browser.execute_script(TIP)


def test_zoom(opened):
    browser = opened("grid")
    seen = "return document.getElementById('map').getAttribute('viewBox').split(' ').map(Number)"
    whole = browser.execute_script(seen)
    browser.find_element(By.CSS_SELECTOR, '[aria-label^="Zoom in"]').send_keys(Keys.ENTER)
    part = browser.execute_script(seen)
    assert part[2] < whole[2] and part[0] > whole[0] and part[3] / part[2] == whole[3] / whole[2]
    drag = ActionChains(browser, duration=20)
    drag.click_and_hold(browser.find_element(By.ID, "map")).move_by_offset(60, 0).release()
    drag.perform()
    assert browser.execute_script(seen)[0] < part[0] and browser.execute_script(seen)[2] == part[2]
    browser.find_element(By.CSS_SELECTOR, '[aria-label^="Show all"]').click()
    assert browser.execute_script(seen) == whole


def test_one_score_is_shown_until_another_is_chosen(opened):
    browser = opened("job")
    shown = "return [...document.querySelectorAll('.picked')].map((one) => !one.hidden)"
    assert browser.execute_script(shown) == [True, False]
    browser.find_element(By.CSS_SELECTOR, "select").send_keys(Keys.ARROW_DOWN)
    assert browser.execute_script(shown) == [False, True]


def column_of(browser, name, index):
    cells = browser.find_elements(By.CSS_SELECTOR, f"#{name}-table tbody tr > :nth-child({index})")
    return [float(cell.text) for cell in cells]


def test_tables_sort_by_mouse_and_by_keyboard(opened):
    browser = opened("grid")
    table = browser.find_element(By.CSS_SELECTOR, "#line-table table")
    fold = table.find_element(By.XPATH, "ancestor::details/summary")
    fold.send_keys(Keys.ENTER)
    WebDriverWait(browser, 5).until(lambda b: column_of(b, "line", 1))
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    names = [head.text.split(" ")[0] for head in heads]
    k = names.index("p")  # p from
    values = column_of(browser, "line", k + 1)
    button = heads[k].find_element(By.TAG_NAME, "button")
    button.click()
    assert column_of(browser, "line", k + 1) == sorted(values)
    assert heads[k].get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.SPACE)
    assert column_of(browser, "line", k + 1) == sorted(values, reverse=True)
    assert [h.get_attribute("aria-sort") for h in heads].count("descending") == 1
    heads[0].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert heads[k].get_attribute("aria-sort") == "none"
    first = column_of(browser, "line", 1)
    assert first == sorted(first)


def test_ledgers_sort(opened):
    browser = opened("job")
    head = browser.find_element(By.CSS_SELECTOR, "table.sortable thead button")
    own = "#privacy .sortable tbody th"
    names = lambda: [e.text for e in browser.find_elements(By.CSS_SELECTOR, own)]  # noqa: E731
    assert names() == ["north", "south"]
    head.send_keys(Keys.ENTER)
    head.send_keys(Keys.ENTER)
    assert names() == ["south", "north"]


def wanted(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def test_light_and_dark(opened):
    browser = opened("model")
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(colour)
    button = browser.find_element(By.ID, "theme")
    button.click()
    dark = browser.execute_script(colour)
    assert dark != light and button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.ENTER)
    assert browser.execute_script(colour) == light
    for scheme, expected in (("dark", dark), ("light", light)):  # and as the system wants it
        wanted(browser, scheme)
        browser.execute_script("delete document.documentElement.dataset.theme")
        assert browser.execute_script(colour) == expected


@pytest.mark.parametrize("kind", CHARTS)
def test_a_phone_scrolls_one_way(kind, opened):
    browser = opened(kind, 360, 740, phone=True)
    for fold in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", fold)
    wide = "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    scrolled, shown = browser.execute_script(wide)
    assert scrolled <= shown == 360


def test_paper(opened):
    browser = opened("grid")
    how = {"preferCSSPageSize": True, "printBackground": True}
    made = browser.execute_cdp_cmd("Page.printToPDF", how)["data"]
    content = base64.b64decode(made)
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert content.startswith(b"%PDF") and 2 <= pages <= 6
    text = "".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages)
    assert "round" in text  # of an axis: charts are on paper as they are on the screen


@pytest.mark.parametrize("kind", repeat(["grid"], [*CHARTS]))
def test_charts_need_no_script(kind, opened):
    browser = opened(kind)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.refresh()
        found = browser.find_elements(By.CSS_SELECTOR, "svg.chart")
        assert len(found) == CHARTS[kind] and all(chart.size["height"] > 50 for chart in found)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("kind", SHEETS)
def test_a_sheet_is_one_page_on_paper(kind, opened, sheets):
    browser, page = opened(kind), sheets[kind]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.title == page.title
    paper = PrintOptions()
    paper.set_page_size(PrintOptions.A4)
    document = pypdf.PdfReader(io.BytesIO(base64.b64decode(browser.print_page(paper))))
    assert len(document.pages) == 1
    text = plain(document.pages[0].extract_text())
    rows = () if page.odds is None else page.odds.rows
    for cell in (page.verdict, page.made, *(cell for row in rows for cell in row)):
        assert plain(cell) in text


def plain(text):
    """Without the ligatures of fonts."""
    return joined(unicodedata.normalize("NFKC", text))


@pytest.mark.parametrize("kind", [*CHARTS, *SHEETS])
def test_accessible(kind, opened):
    """By axe, all of its rules, tables opened, light and dark (it takes seconds)."""
    few = ("light", "dark")
    if kind not in ("model", "ordinary sheet"):
        few = ("light",) if kind in ("job", "full sheet") else ("dark",)
    browser = opened(kind)
    for fold in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", fold)
    for theme in repeat(few, ("light", "dark")):
        browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        if kind in SHEETS:  # which have no button
            wanted(browser, theme)
        assert violations(browser, None) == {}, theme
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    if kind == "model":  # the control: a picture without words is found
        browser.execute_script("document.querySelector('main').append(new Image())")
        assert list(violations(browser, None)) == ["image-alt"]
