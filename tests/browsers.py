"""Headless browsers, where they are installed; what they complain about, and what axe does."""

import json
import shutil
from importlib import resources

OF_CHROMIUM = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
    "--force-prefers-reduced-motion",  # no smooth scrolling
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
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


def firefox():
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException

    if shutil.which("firefox") is None:
        return None
    options = webdriver.FirefoxOptions()
    options.add_argument("-headless")
    options.set_preference("ui.prefersReducedMotion", 1)
    service = webdriver.FirefoxService(executable_path=shutil.which("geckodriver"))
    try:
        return webdriver.Firefox(options=options, service=service)
    except WebDriverException:
        return None


def complaints(driver):
    """What a page complained about, or asked a host for, since it was last asked."""
    if driver.name == "firefox":  # has no logs
        return []
    said = [entry["message"] for entry in driver.get_log("browser")]
    sent = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    ]
    return said + [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def violations(driver):
    """Rules of accessibility (WCAG 2.1 AA, by axe) that the open page breaks, with where."""
    script = resources.files("axe_playwright_python") / "axe.min.js"
    driver.execute_script(script.read_text())
    found = driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run({preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
        ".then(r => done(r.violations), error => done([{id: String(error), nodes: []}]));"
    )
    return {v["id"]: [node["html"][:200] for node in v["nodes"]][:3] for v in found}
