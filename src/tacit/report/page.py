"""The page: one HTML file with its style, script, charts and data in it.

It asks nothing of any network, and its policy (CSP) lets a browser do nothing of the kind: a script
runs only if it has the one hash. Names from files are text, wherever they stand: the
template escapes them, and in the data no character can end the script element.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from tacit import html
from tacit.errors import InvalidInput
from tacit.files import write_atomically
from tacit.privacy.accounting import rounded_down, rounded_up
from tacit.reading import reading
from tacit.report import figures, words
from tacit.report.contents import Contents
from tacit.report.grid_map import grid_map

FILE, PUBLIC_FILE = "report.html", "report-public.html"
MARK = b'<!doctype html>\n<html lang="en" data-tacit-report="1"'  # how a report begins


def render(contents: Contents, repeat: str = "") -> bytes:
    """The page of a folder. ``repeat`` is the command that makes such a result again."""
    template, parts = _assets()
    with reading(contents.folder, "files that tacit wrote", "No report was made."):
        made = template.render(**_values(contents), **parts, repeat=repeat)
    # half of a pair of UTF-16, which a name may hold, has no other form
    page: bytes = made.encode("utf-8", "xmlcharrefreplace")
    return page


@cache
def _assets() -> tuple[Any, dict[str, str]]:
    """The template, and what is the same on every page."""
    import jinja2

    place = resources.files("tacit.report") / "assets"
    script, style = ((place / name).read_text("utf-8") for name in ("page.js", "page.css"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"up": rounded_up, "down": rounded_down, "plain": html.plain}
    template = environment.from_string((place / "page.html").read_text("utf-8"))
    return template, {"script": script, "style": style, "policy": _policy(script)}


def save(path: Path, page: bytes, public: bool = False) -> Path:
    """Write a page, whole or not at all; for its owner's eyes unless it is a public one.

    What is there already is replaced only if it is a report too.
    """
    if path.is_dir():
        raise InvalidInput(f"Expected a file as --out, got the folder {path}. No report was made.")
    if not path.parent.is_dir():
        raise InvalidInput(
            f"Expected a folder {path.parent} for the report, found none. No report was made."
        )
    if path.exists() and not path.is_file():  # such as a pipe, which would be waited for
        raise InvalidInput(f"Expected a file as --out, got {path}. No report was made.")
    if path.exists() or path.is_symlink():
        with open(path, "rb") as file:
            if file.read(len(MARK)) != MARK:
                raise InvalidInput(
                    f"Expected no file at {path}, or a report of tacit; there is another file. "
                    "It was not replaced: choose another --out."
                )
    write_atomically(path, page)
    if public:
        path.chmod(0o644)
    return path


def _values(contents: Contents) -> dict[str, Any]:
    """What the template shows."""
    result, privacy = contents.result, contents.result.privacy
    kind = words.kind_of(contents)
    tables = figures.tables(contents)
    numbers = None
    if kind != "noiseless" and not (kind == "uncertified" and contents.is_public):
        numbers = rounded_up(privacy.epsilon, 3), rounded_up(privacy.delta, 6)
    return {
        "title": words.title(contents),
        "lead": words.lead(contents),
        "kind": kind,
        "seal": words.SEALS[kind],
        "numbers": numbers,
        "public": contents.is_public,
        "left_out": contents.left_out,
        "facts": words.privacy_facts(contents),
        "statement": "" if contents.is_public and kind != "certified" else privacy.words,
        "balances": contents.balances,
        "gauge": figures.budget(contents),
        "tables": tables,
        "curves": figures.curves(contents),
        "bars": {
            name: figures.bars(tables[name], name)
            for name in ("coefficients", "solution")
            if name in tables
        },
        "map": grid_map(contents, tables),
        "outcome": words.outcome_facts(contents),
        "check": contents.check,
        "check_facts": words.check_facts(contents),
        "settings": words.settings_facts(contents),
        "free": privacy.once and bool(contents.options.get("ledgers")),
        "agents": len(result.names),
        "plan": result.plan,
        "versions": list(result.versions.items()),
        "timing": [
            (k, v) for k, v in result.timing.items() if isinstance(v, int | float) and k != "rounds"
        ],
        "seed": result.seed,
        "source": result.noise_source if not contents.is_public else "",
        "command": contents.command,
        "made_by": metadata.version("tacit"),
        "data": _in_script({"tables": tables}),
        "model": contents.model,
        "folder": "" if contents.is_public else str(contents.folder),
    }


def _in_script(data: Any) -> str:
    """JSON that can stand in a script element: ASCII only, and no <, > or &."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(script: str) -> str:
    """Nothing from anywhere; only this script. Legends have the colours of what they name."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
