"""What pages complain about in a browser, and what axe does about them."""

import json
from importlib import resources


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
