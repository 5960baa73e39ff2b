"""The page in a browser: drawn, without errors or requests, by mouse and keyboard, on paper."""

import base64
import json
import re
from importlib import resources

import numpy as np
import pytest
from conftest import repeat
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tacit.report.contents import Contents
from tacit.report.page import render

PAINTED = """return [...document.querySelectorAll(".chart")].map((box) => {
  let points = 0;
  for (const canvas of box.querySelectorAll("canvas:not(.paper)")) {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < pixels.length; i += 4) points += pixels[i] > 0;
  }
  return [box.id, points];
});"""
SHOWN = """return [...document.querySelectorAll(".chart > div")].map((tip) => [tip, tip.style])
  .filter(([tip, style]) => style.pointerEvents === "none" && style.visibility !== "hidden"
    && style.opacity !== "0").map(([tip]) => tip.innerText).join("|");"""
HOSTILE = "<img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\">"
CHARTS = {"job": 6, "grid": 6, "model": 6}  # in each page


def is_chromium(browser):
    return browser.capabilities["browserName"].startswith("chrom")


def sized(browser, width, height, phone=False):
    if is_chromium(browser):
        how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)
    else:
        browser.set_window_size(width, height)


@pytest.fixture(scope="module")
def pages(folders, tmp_path_factory):
    """Files, by kind of run; and one of an agent whose name is not kind."""
    place = tmp_path_factory.mktemp("pages")
    for kind in CHARTS:
        (place / f"{kind}.html").write_bytes(render(Contents.read(folders[kind])))
    public = Contents.read(folders["grid"]).public()
    (place / "public.html").write_bytes(render(public))
    hostile = folders.copy("job", place)
    path = hostile / "result.json"
    path.write_text(path.read_text().replace('"north"', json.dumps(HOSTILE)))
    np.savez(hostile / "release.npz", **{HOSTILE.replace("/", ""): np.ones(2)})
    (place / "hostile.html").write_bytes(render(Contents.read(hostile)))
    return place


@pytest.fixture
def opened(browser, pages):
    def get(kind, width=1200, height=900, phone=False):
        sized(browser, width, height, phone)
        if is_chromium(browser):
            browser.get_log("performance")
        browser.get((pages / f"{kind}.html").as_uri())
        WebDriverWait(browser, 20).until(
            lambda b: b.execute_script("return document.documentElement.dataset.ready")
        )
        return browser

    yield get
    if is_chromium(browser):  # of every page that a test opened
        said = [
            line for line in browser.get_log("browser") if "getImageData" not in line["message"]
        ]
        assert said == []


@pytest.mark.parametrize("kind", [*CHARTS, "public", "hostile"])
def test_it_asks_for_nothing_and_draws(kind, opened):
    browser = opened(kind)
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    if is_chromium(browser):
        events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert {re.split("[:,]", url)[0] for url in asked} <= {"file", "data"}
        assert sum(url.startswith("file") for url in asked) <= 1
    painted = dict(browser.execute_script(PAINTED))
    assert len(painted) == CHARTS.get(kind, len(painted)) and min(painted.values()) > 100, painted
    assert "owned" not in browser.title
    assert not browser.find_elements(By.CSS_SELECTOR, "main img")


def test_hovering_tells_the_numbers(opened):
    browser = opened("grid")
    chart = browser.find_element(By.ID, "trace-residual")
    assert not browser.execute_script(SHOWN)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser, duration=20).move_to_element(chart).move_by_offset(5, 5).perform()
    WebDriverWait(browser, 5).until(lambda b: "Consensus residual" in b.execute_script(SHOWN))


def test_arrow_keys_tell_them_too(opened):
    browser = opened("grid")
    box = browser.find_element(By.ID, "map")
    box.send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(browser, 5).until(lambda b: b.execute_script(SHOWN).startswith("bus "))
    first = browser.execute_script(SHOWN)
    assert "p shed" in first and "voltage" in first
    box.send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(browser, 5).until(lambda b: b.execute_script(SHOWN) not in ("", first))
    curve = browser.find_element(By.ID, "trace-residual")
    curve.send_keys(Keys.END)
    WebDriverWait(browser, 5).until(lambda b: "round" in b.execute_script(SHOWN))


def test_names_are_text(opened):
    browser = opened("hostile")
    assert HOSTILE in browser.find_element(By.CSS_SELECTOR, "#privacy .facts dd").text
    browser.find_element(By.CSS_SELECTOR, "#release summary").send_keys(Keys.ENTER)
    assert "owned" not in browser.title and not browser.find_elements(By.CSS_SELECTOR, "img")


def test_zoom(opened):
    browser = opened("job")
    button = browser.find_element(By.CSS_SELECTOR, '[data-zoom="in"][data-of="trace-residual"]')
    before = dict(browser.execute_script(PAINTED))["trace-residual"]
    button.send_keys(Keys.ENTER)
    assert WebDriverWait(browser, 5).until(
        lambda b: dict(b.execute_script(PAINTED))["trace-residual"] != before
    )
    browser.find_element(By.CSS_SELECTOR, '[data-zoom="all"][data-of="trace-residual"]').click()
    assert WebDriverWait(browser, 5).until(
        lambda b: dict(b.execute_script(PAINTED))["trace-residual"] == before
    )


def column_of(browser, name, index):
    cells = browser.find_elements(By.CSS_SELECTOR, f'[data-table="{name}"] td:nth-child({index})')
    return [float(cell.text) for cell in cells]


def test_tables_sort_by_mouse_and_by_keyboard(opened):
    browser = opened("grid")
    table = browser.find_element(By.CSS_SELECTOR, '[data-table="line"]')
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
    names = lambda: [e.text for e in browser.find_elements(By.CSS_SELECTOR, ".sortable tbody th")]  # noqa: E731
    assert names() == ["north", "south"]
    head.send_keys(Keys.ENTER)
    head.send_keys(Keys.ENTER)
    assert names() == ["south", "north"]


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
    if is_chromium(browser):  # and as the system wants it
        for scheme, wanted in (("dark", dark), ("light", light)):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.execute_script("delete document.documentElement.dataset.theme")
            assert browser.execute_script(colour) == wanted


@pytest.mark.parametrize("kind", CHARTS)
def test_a_phone_scrolls_one_way(kind, opened):
    browser = opened(kind, 360, 740, phone=True)
    for fold in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", fold)
    wide = "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    scrolled, shown = browser.execute_script(wide)
    assert scrolled <= shown and (shown == 360 or not is_chromium(browser))


def test_paper(opened):
    browser = opened("grid")
    if is_chromium(browser):
        how = {"preferCSSPageSize": True, "printBackground": True}
        made = browser.execute_cdp_cmd("Page.printToPDF", how)["data"]
    else:
        made = browser.print_page()
    content = base64.b64decode(made)
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert content.startswith(b"%PDF") and 2 <= pages <= 6
    # what was put on paper, canvas by canvas
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    painted = dict(browser.execute_script(PAINTED.replace(":not(.paper)", ".paper")))
    assert len(painted) == CHARTS["grid"] and min(painted.values()) > 100
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not browser.find_elements(By.CSS_SELECTOR, "canvas.paper")


@pytest.mark.parametrize("kind", CHARTS)
def test_accessible(kind, opened):
    """By axe, all of its rules, tables opened, light and dark (it takes seconds)."""
    few = {"job": ("light",), "grid": ("dark",)}.get(kind, ("light", "dark"))
    browser = opened(kind)
    for fold in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", fold)
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    browser.execute_script(axe)
    for theme in repeat(few, ("light", "dark")):
        browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        assert len(found["passes"]) > 20
        said = [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found["violations"]]
        assert said == [], theme
    if kind == "model":  # the control: a picture without words is found
        browser.execute_script("document.querySelector('main').append(new Image())")
        found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        assert [v["id"] for v in found["violations"]] == ["image-alt"]
