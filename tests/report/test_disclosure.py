"""The table of what may be published: what is written is in it, and the docs say the same."""

import csv
import json
import re
from pathlib import Path

import pytest
from folders import COMMANDS

import tacit
from tacit.protocol import disclosure, result
from tacit.protocol.disclosure import FILES, PRIVATE, level

OF_A_TRACE, OF_AN_ATTACK = ("trace.csv", "plot.png"), ("attack.png", "loads.csv")
DOCS = Path(__file__).parents[2] / "docs"


def rows_of(page, heading):
    """Of the table on a page whose header begins with these words: cells without marks."""
    text = (DOCS / page).read_text()
    table = text[text.index(f"| {heading} |") :].split("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()[2:]]
    return [[cell.strip().replace("**", "") for cell in row] for row in rows]


def test_all_columns_of_traces_are_in_it():
    assert {name for names in result.TRACES for name in names} == set(disclosure.TRACE)


def test_what_a_release_opens():
    """The trace of a run that released once, but not of a server, which has seconds in it."""
    has = {once: result.RELEASED_TRACE if once else result.TRACE for once in (True, False)}
    for name in OF_A_TRACE:
        assert level(name, having=has[True]) is disclosure.ONCE
        assert level(name, having=has[False]) is level(name, having=result.SERVER_TRACE) is PRIVATE
        assert level(name) is PRIVATE and level("no such file") is PRIVATE
        assert level(name, having=(*has[True], "no such column")) is PRIVATE


def told(cell):
    """The level that a cell of a page names first."""
    return next(of for of in reversed(disclosure.ORDER) if cell.startswith(of))


def test_the_page_about_results():
    """All rows of its two tables, and nothing that Tacit writes to a result folder left out."""
    found = {}
    for files, _, cell in rows_of("results.md", "file"):
        groups = zip(files.split(";"), cell.split(";") * 2, strict=False)
        found |= {f: told(c.strip()) for names, c in groups for f in re.findall("`(.*?)`", names)}
    for name, of in found.items():
        whole = level(name, having=result.RELEASED_TRACE) if name in OF_A_TRACE else level(name)
        assert of is whole, name
    assert set(FILES) - set(found) == {"mean.json", *OF_AN_ATTACK}
    columns = {
        n: told(c)
        for names, _, c in rows_of("results.md", "column")
        for n in re.findall("`(.*?)`", names)
    }
    assert columns == disclosure.TRACE


def parts_of(path):
    """Columns or fields of a file that has any."""
    if path.suffix == ".csv":
        return [n.removesuffix("_pu") for n in next(csv.reader(path.read_text().splitlines()))]
    return json.loads(path.read_text()) if path.suffix == ".json" else ()


@pytest.mark.parametrize("kind", COMMANDS)
def test_all_that_a_run_writes_is_in_the_table(kind, folders):
    for path in folders[kind].iterdir():
        assert path.name in FILES, path.name
        if isinstance(FILES[path.name], dict) and path.suffix in (".csv", ".json"):
            assert set(parts_of(path)) <= set(FILES[path.name]), path.name
        private = not disclosure.may_have(
            tacit.Result.load(folders[kind]).privacy, level(path.name)
        )
        assert private or path.stat().st_mode & 0o777 in (0o600, 0o644)
        assert not private or path.stat().st_mode & 0o077 == 0, path.name
