"""The built documentation: every public name is in it, and it needs nothing but its own folder."""

import inspect
import os
import re
import subprocess
import sys
import time
import zlib
from importlib import import_module, util
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from browsers import complaints, violations
from selenium.webdriver.support.ui import WebDriverWait
from test_api import MODULES, RECORDED

ROOT = Path(__file__).parents[1]
PACKAGES = ("", ".lab.audit", ".learn", ".power", ".admm", ".transports", ".studies")
PACKAGES += (".objectives", ".privacy", ".sets")
PUBLIC = {MODULES[module]: [*names] for module, names in RECORDED.items()}
PUBLIC |= {name: import_module(name).__all__ for name in (f"tacit{end}" for end in PACKAGES)}


def hook(name):
    spec = util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built strictly, once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "site"
    done = folder.with_suffix(".done")
    try:
        folder.mkdir()
    except FileExistsError:  # another process builds it
        while not done.is_file():
            time.sleep(0.1)
    else:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
        about = {"cwd": ROOT, "env": {**os.environ, "NO_MKDOCS_2_WARNING": "1"}}
        built = subprocess.run([*command, folder], **about, capture_output=True, text=True)
        done.write_text(built.stdout + built.stderr if built.returncode else "")
    assert not done.read_text(), done.read_text()
    return folder


def places():
    """{object: the paths under which it is public}"""
    found = {}
    for package, names in PUBLIC.items():
        for name in names:
            value = getattr(import_module(package), name)
            canonical = f"{getattr(value, '__module__', package)}.{name}"
            found.setdefault(id(value), (value, {canonical}))[1].add(f"{package}.{name}")
    return list(found.values())


def test_every_public_name_is_in_the_reference_with_a_docstring_of_its_own(site):
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]  # as other sites link to
    entries = (line.split(" ") for line in zlib.decompress(packed).decode().splitlines())
    listed = {name for name, role, *_ in entries if role != "py:module"}  # some have both names
    assert [paths for _, paths in places() if not paths & listed] == []
    assert {f"tacit.{name}" for name in import_module("tacit").__all__} <= listed
    assert "tacit.solve" in listed and "tacit.admm.problem.solved" not in listed  # can be seen
    assert len(places()) > 130
    for value, paths in places():
        if callable(value):  # a class without one would show its base's
            own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert own, paths


LOADS = re.compile(
    r"""<(?!a\b)[^>]*\b(?:src|srcset|data|href)=["']?((?:https?:)?//[^"' >]*)"""
    r"""|(?:url\(|@import\s*)["']?((?:https?:)?//[^"')\s;]*)"""
)


def fetched(text):
    """Addresses of other hosts that a page or a style loads; a canonical link is not loaded."""
    text = re.sub(r'<link rel="?canonical[^>]*>|<code.*?</code>', "", text, flags=re.DOTALL)
    return ["".join(found) for found in LOADS.findall(text)]


FETCHING = (
    '<link rel="stylesheet" href="//fonts.googleapis.com/x">',
    '<p style="background:url(https://a.b/c.png)">',
    "@import 'https://a.b/c.css'",
)


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert {str(page): found for page in pages if (found := fetched(page.read_text()))} == {}
    assert all(fetched(text) for text in FETCHING)  # it would be seen
    assert not fetched(
        '<a href="https://a.b">t</a><img src="data:image/png;base64,//8="><p>http://a'
    )


def test_formulas_are_mathml_or_refused(site):
    made = hook("formulas").mathml(r"\begin{aligned}a&=\arg\min_z f\\b&=\frac12\end{aligned}")
    assert made.count("<mtr>") == 2 and "min" in made and "<mfrac>" in made
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert sum(text.count("<math ") for text in pages) > 200
    assert not any("arithmatex" in text for text in pages)
    for tex in (r"\nonsense{x}", r"\frac{1}{", r"\begin{aligned}a&b", r"\Big\|x"):
        with pytest.raises(ValueError, match=r"known|Error"):
            hook("formulas").mathml(tex)


def test_docstrings_become_markdown(site):
    made = hook("docstrings").markdown("First.\n\nseed     what it is,\n         over two lines\n")
    assert made == "First.\n\n`seed`\n:   what it is,\n    over two lines"
    text = (site / "api" / "problems.html").read_text()
    assert "<dt><code>evaluate_every</code></dt>" in text
    assert 'class="admonition guarantee"' in text


SEEN = """return [...document.querySelectorAll(arguments[0] + " a[href]")].filter(
    a => a.checkVisibility({visibilityProperty: true, opacityProperty: true})).map(a => a.href)"""


def visible_links(driver):
    """Pages that the open one links to, where a reader can see it."""
    sidebar = ".md-sidebar--primary"  # laid out by a script
    WebDriverWait(driver, 20).until(lambda d: len(d.execute_script(SEEN, sidebar)) > 2)
    return {urldefrag(href).url for href in driver.execute_script(SEEN, "body")}


def test_in_a_browser(site, browser):
    """From a folder: search finds, tabs and sidebars lead everywhere, nothing is asked for."""
    driver, start = browser, (site / "index.html").as_uri()
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # other tests share it
    complaints(driver)  # theirs
    driver.set_window_size(1280, 900)
    driver.get(start)
    first = visible_links(driver)
    seen = {start, *first}
    tabs = driver.find_elements("css selector", ".md-tabs__link")
    for tab in [tab.get_attribute("href") for tab in tabs]:
        driver.get(tab)
        seen |= visible_links(driver)
    pages = {page.as_uri() for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(tabs) == 4 and pages - seen == set() and pages - first != set()

    driver.execute_script("document.getElementById('__search').click()")
    driver.find_element("css selector", "[data-md-component=search-query]").send_keys("ledger")
    results = WebDriverWait(driver, 20).until(
        lambda d: d.find_elements("css selector", ".md-search-result__link")
    )
    assert any("ledger.html" in result.get_attribute("href") for result in results)
    assert complaints(driver) == []

    for page in ("index.html", "privacy.html", "api/problems.html", "tutorials/grid.html"):
        driver.set_window_size(1280, 900)
        driver.get((site / page).as_uri())
        assert violations(driver) == {}, page
        driver.set_window_size(500, 900)
        wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{page} is wider than a phone"
    assert complaints(driver) == []

    driver.get("data:text/html,<img src='https://example.org/x.png'>")
    assert complaints(driver) != []  # it would have been seen
    assert "image-alt" in violations(driver)
