"""Folders to make pages of, a browser to look at them, and what it complains about."""

import json
import shutil
from functools import cache
from importlib import resources

import pytest
from folders import Folders

import tacit  # noqa: F401  # 64 bits, before any test computes

OF_CHROMIUM = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
    "--force-prefers-reduced-motion",  # no smooth scrolling
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return Folders(tmp_path_factory.mktemp("runs"))


@cache
def started():
    """A browser without a window, or None."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException

    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for word in OF_CHROMIUM:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # a driver in the path, or the one that Selenium Manager finds
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    try:
        return webdriver.Chrome(options=options, service=service)
    except WebDriverException:
        return None


def pytest_runtest_setup(item):
    """Where there is no browser, all tests that need one are one line: skipped here, not there."""
    if "browser" in item.fixturenames and started() is None:
        pytest.skip(
            "no Chromium or Chrome that can be driven: tests/report/test_browser.py did not run, "
            "so the report was not looked at"
        )


@pytest.fixture(scope="session")
def browser():
    yield started()
    started().quit()


def complaints(driver):
    """What a page complained about, or asked a host for, since it was last asked."""
    said = [entry["message"] for entry in driver.get_log("browser")]
    sent = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    ]
    return said + [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


WCAG = "wcag2a", "wcag2aa", "wcag21a", "wcag21aa"


def violations(driver, rules=WCAG):
    """Rules of accessibility that the open page breaks, by axe, with where; None: all rules."""
    script = resources.files("axe_playwright_python") / "axe.min.js"
    driver.execute_script(script.read_text())
    found = driver.execute_async_script(
        "const [rules, done] = arguments;"
        "axe.run({preload: false, ...(rules && {runOnly: rules})})"
        ".then(r => done(r.violations), error => done([{id: String(error), nodes: []}]));",
        rules,
    )
    return {v["id"]: [node["html"][:200] for node in v["nodes"]][:3] for v in found}
