"""The built documentation: every public name is in it, and it needs nothing but its own folder."""

import inspect
import os
import re
import subprocess
import sys
import time
import zlib
from html.parser import HTMLParser
from importlib import import_module, util
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from complaints import complaints, violations
from selenium.webdriver.support.ui import WebDriverWait
from test_api import MODULES, RECORDED

ROOT = Path(__file__).parents[1]
INNER_ROOMS = ("tacit.admm", "tacit.transports", "tacit.studies", "tacit.objectives")
INNER_ROOMS += ("tacit.privacy", "tacit.sets")
OUTER_ROOMS = ("tacit", "tacit.lab.audit", "tacit.learn", "tacit.power")
PUBLIC = {MODULES[module]: [*names] for module, names in RECORDED.items()}
PUBLIC |= {room: import_module(room).__all__ for room in (*OUTER_ROOMS, *INNER_ROOMS)}


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
        words = ("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
        built = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
        )
        done.write_text(built.stdout + built.stderr if built.returncode else "")
    assert not done.read_text(), done.read_text()
    return folder


def inventory(site):
    """The names in ``objects.inv``, which other sites link to (Sphinx's format)."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = (line.split(" ") for line in zlib.decompress(packed).decode().splitlines())
    return {name for name, role, *_ in entries if role != "py:module"}  # some have both names


def places():
    """{object: the paths under which it is public}"""
    found = {}
    for room, names in PUBLIC.items():
        for name in names:
            value = getattr(import_module(room), name)
            canonical = f"{getattr(value, '__module__', room)}.{name}"
            found.setdefault(id(value), (value, {canonical}))[1].add(f"{room}.{name}")
    return list(found.values())


def test_every_public_name_is_in_the_reference(site):
    listed = inventory(site)
    assert [paths for _, paths in places() if not paths & listed] == []
    assert {f"tacit.{name}" for name in import_module("tacit").__all__} <= listed
    assert "tacit.solve" in listed and "tacit.admm.problem.solved" not in listed  # can be seen


def test_every_public_name_has_a_docstring_of_its_own():
    callables = [(value, paths) for value, paths in places() if callable(value)]
    assert len(callables) > 130
    # a class without one would show its base's
    own = (
        vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        for value, _ in callables
    )
    assert [paths for (_, paths), text in zip(callables, own, strict=True) if not text] == []


class Links(HTMLParser):
    """What a page loads by itself, and where its anchors lead."""

    def __init__(self):
        super().__init__()
        self.loaded, self.anchors = [], []

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        if tag == "a" and has.get("href"):
            self.anchors.append(has["href"])
        elif tag == "link" and "canonical" not in has.get("rel", ""):
            self.loaded.append(has.get("href", ""))
        else:
            self.loaded += [has[name] or "" for name in ("src", "srcset", "data") if name in has]
        self.loaded += re.findall(r"url\(([^)]*)", has.get("style") or "")


def links(text):
    parser = Links()
    parser.feed(text)
    return parser


def fetched(path):
    """Addresses of other hosts that a file of the site loads."""
    text = path.read_text()
    if path.suffix == ".css":
        loaded = re.findall(r"(?:url\(|@import\s*)['\"]?([^'\")\s;]+)", text)
    else:
        styles = " ".join(re.findall(r"<style.*?</style>", text, flags=re.DOTALL))
        loaded = [*links(text).loaded, *re.findall(r"url\(['\"]?([^'\")]+)", styles)]
    return [where for where in loaded if re.match(r"(https?:)?//", where.strip())]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://unpkg.com/x"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.googleapis.com/x">'),
        ("a.html", "<img alt='' src='http://a.b/c.png'>"),
        ("a.html", "<style>p{background:url(https://a.b/c.png)}</style>"),
        ("a.html", '<p style="background:url(https://a.b/c.png)">'),
        ("a.css", "@font-face{src:url('https://a.b/c.woff2')}"),
        ("a.css", "@import 'https://a.b/c.css'"),
    ],
)
def test_what_is_fetched_would_be_seen(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert fetched(tmp_path / name)
    harmless = '<a href="https://a.b">there</a><img src="data:image/png;base64,//8="><p>http://a'
    (tmp_path / "b.html").write_text(harmless)
    assert fetched(tmp_path / "b.html") == []


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert {str(page): found for page in pages if (found := fetched(page))} == {}


def test_every_page_is_two_clicks_from_the_first_one(site):
    start = (site / "index.html").as_uri()
    distance, reached = {start: 0}, [start]
    for page in reached:
        if distance[page] == 2:
            continue
        for href in links(Path(unquote(page.removeprefix("file://"))).read_text()).anchors:
            there = urldefrag(urljoin(page, href)).url
            if there.endswith(".html") and there.startswith("file:") and there not in distance:
                distance[there] = distance[page] + 1
                reached.append(there)
    pages = {page.as_uri() for page in site.rglob("*.html") if page.name != "404.html"}
    assert pages - set(distance) == set()


def test_formulas_are_mathml(site):
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    assert sum(text.count("<math ") for text in pages.values()) > 200
    assert [page.name for page, text in pages.items() if "arithmatex" in text] == []


@pytest.mark.parametrize("tex", [r"\nonsense{x}", r"\frac{1}{", r"\begin{aligned}a&b", r"\Big\|x"])
def test_a_formula_that_is_not_understood_is_refused(tex):
    with pytest.raises(ValueError, match=r"known|Error"):
        hook("formulas").mathml(tex)


def test_what_formulas_become():
    made = hook("formulas").mathml(
        r"\begin{aligned}a&=\arg\min_z f\\b&=\frac12\end{aligned}", "block"
    )
    assert made.count("<mtr>") == 2 and "min" in made and "<mfrac>" in made
    assert 'display="block"' in made


DOCSTRING = """First line.

seed     what it is,
         over two lines
``run``  a name

Guarantee: claim, and
what it rests on.

    code   stays

A paragraph  with two blanks.
and a second line

smooth:
    a formula
"""


def test_docstrings_become_markdown():
    assert hook("docstrings").markdown(DOCSTRING).split("\n\n") == [
        "First line.",
        "`seed`\n:   what it is,\n    over two lines",
        "`run`\n:   a name",
        '!!! guarantee "Guarantee"',
        "    Claim, and\n    what it rests on.",
        "    code   stays",
        "A paragraph  with two blanks.\nand a second line",
        "    smooth:\n        a formula",
    ]


def test_columns_of_real_docstrings_are_lists(site):
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
    if driver.name != "firefox":  # other tests share it
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
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
