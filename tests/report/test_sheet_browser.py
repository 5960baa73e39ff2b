"""The sheet in a browser: no request, no error, one page on paper, and nothing that axe minds."""

import base64
import dataclasses
import io
import unicodedata
from importlib import resources

import pypdf
import pytest
from selenium.webdriver.common.print_page_options import PrintOptions
from sheets import html_page, joined, noted, paid, renamed, said, solved

from tacit.protocol.disclosure import FILES
from tacit.report.sheet import sheet
from tacit.report.subject import Subject


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """An ordinary sheet, the fullest there is, and one that promises nothing."""
    place, result = tmp_path_factory.mktemp("sheets"), solved()
    names = tuple("w" * 999 + str(i) for i in range(300))
    change = "change " * 300
    full = renamed(result, *names)
    full = said(full, assumed="w " * 999, before="w " * 999, neighbours=((change, names),))
    subjects = {
        "ordinary": Subject.read(
            noted(result.save(place / "a")), "agent 1", paid(place / "a.db", charge=7)
        ),
        "full": dataclasses.replace(
            Subject.read(
                noted(full.save(place / "b"), "run " * 400),
                names[0],
                paid(place / "b.db", names[0], "run " * 400, hides=change),
            ),
            files=(*FILES, "more"),
        ),
        "nothing": Subject.read(said(result, uncertified="it is not.").save(place / "c")),
    }
    found = {kind: sheet(subject) for kind, subject in subjects.items()}
    for kind, page in found.items():
        (place / f"{kind}.html").write_text(html_page(page))
    return place, found


@pytest.fixture(params=["ordinary", "full", "nothing"])
def opened(request, browser, pages):
    place, found = pages
    if chromium := browser.capabilities["browserName"].startswith("chrom"):
        browser.get_log("browser")
    browser.get((place / f"{request.param}.html").as_uri())
    yield browser, found[request.param]
    if chromium:
        assert browser.get_log("browser") == []


def test_one_page_on_paper(opened):
    browser, page = opened
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(opened, scheme):
    browser, _ = opened
    if browser.capabilities["browserName"].startswith("chrom"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 15
    said = [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found["violations"]]
    assert said == []
    if browser.capabilities["browserName"].startswith("chrom"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
