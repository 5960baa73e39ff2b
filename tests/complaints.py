"""What pages complain about in a browser, and what axe does about them."""

import json
from importlib import resources


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
