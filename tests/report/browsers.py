"""Folders to make pages of, and a browser to look at them."""

import shutil
from functools import cache

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
