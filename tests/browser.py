"""A headless browser, if one is installed: Chromium or Chrome, else Firefox.

It may open files and nothing else: every request to a host is an error that its log has.
"""

import json
import shutil
from importlib import resources

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run --hide-scrollbars "
    "--host-resolver-rules=MAP * ~NOTFOUND"
)


def options_of(words):
    """``QUIET`` as a list: an argument begins with two dashes, and may have blanks in it."""
    return [f"--{word.strip()}" for word in words.split("--") if word.strip()]


def started():
    """A driver, or None where no browser is installed."""
    from selenium import webdriver

    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in options_of(QUIET):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = shutil.which("chromedriver")
        return webdriver.Chrome(options, webdriver.ChromeService(driver) if driver else None)
    if shutil.which("firefox") and shutil.which("geckodriver"):
        options = webdriver.FirefoxOptions()
        options.add_argument("-headless")
        options.set_preference("network.proxy.type", 1)  # to nowhere
        options.set_preference("network.proxy.http", "0.0.0.0")
        options.set_preference("network.proxy.ssl", "0.0.0.0")
        return webdriver.Firefox(options)
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
