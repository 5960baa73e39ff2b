"""The page of a result: one HTML file with its words, style, script, charts and data in it.

It asks nothing of any network, and its policy (CSP) lets a browser do nothing of the kind: a script
runs only if it has the one hash. Names from files are text, wherever they stand: the
template escapes them, and in the data no character can end the script element.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from tacit import html
from tacit.errors import InvalidInput
from tacit.files import reading, write_atomically
from tacit.privacy.accounting import rounded_down, rounded_up
from tacit.protocol.statement import not_promised
from tacit.report import figures
from tacit.report.contents import Contents
from tacit.report.odds import next_to_nothing, times
from tacit.report.outcome import Facts, ac_check, outcome

FILE, PUBLIC_FILE = "report.html", "report-public.html"
MARK = b'<!doctype html>\n<html lang="en" data-tacit-report="1"'  # how a report begins
MOST_BYTES = 2**22  # of a file that is looked at
MOST_NAMES = 12
SEALS = {  # what a page says first, by the kind of its statement
    "certified": "Certified",
    "uncertified": "Not certified",
    "noiseless": "Not private",
}


def render(contents: Contents, repeat: str = "") -> bytes:
    """The page of a folder. ``repeat`` is the command that makes such a result again."""
    script = asset("page.js")
    with reading(contents.folder, "files that tacit wrote", "No report was made."):
        made = template("page.html").render(
            **_values(contents),
            script=script,
            style=asset("page.css"),
            script_digest=digest(script),
            repeat=repeat,
        )
    # half of a pair of UTF-16, which a name may hold, has no other form
    page: bytes = made.encode("utf-8", "xmlcharrefreplace")
    return page


def asset(name: str) -> str:
    return (resources.files("tacit.report") / "assets" / name).read_text("utf-8")


@cache
def template(name: str) -> Any:
    """A template of this package; what is put in is escaped."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"up": rounded_up, "down": rounded_down, "plain": html.plain}
    return environment.from_string(asset(name))


def digest(text: str) -> str:
    """The hash of a script or style, for the policy (CSP) of a page: only it is allowed."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def save(path: Path, page: bytes, public: bool = False) -> Path:
    """Write a page, whole or not at all; for its owner's eyes unless it is a public one."""
    refuse_other_files(path, lambda found: found.startswith(MARK), "a report")
    write_atomically(path, page)
    if public:
        path.chmod(0o644)
    return path


def refuse_other_files(path: Path, ours: Callable[[bytes], bool], what: str) -> None:
    """Raise unless ``path`` is free, or a page that is ``ours`` lies there.

    A pipe is not opened, as it would be waited for.
    """
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else "its folder is not there"
        raise InvalidInput(f"Expected a file as --out, got {path}: {why}. {what} was not written.")
    if not os.path.lexists(path):
        return
    found = b""
    if path.is_file() and os.access(path, os.R_OK):
        with open(path, "rb") as file:
            found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES or not ours(found):
        raise InvalidInput(
            f"Expected no file at {path}, or {what} of tacit; there is something else. It was not "
            "replaced: choose another --out."
        )


def _values(contents: Contents) -> dict[str, Any]:
    """What the template shows."""
    result, privacy = contents.result, contents.result.privacy
    kind = kind_of(contents)
    tables = figures.tables(contents)
    numbers = None
    if kind != "noiseless" and not (kind == "uncertified" and contents.is_public):
        numbers = rounded_up(privacy.epsilon, 3), rounded_up(privacy.delta, 6)
    seconds = [(k, v) for k, v in result.timing.items() if isinstance(v, int | float)]
    return {
        "title": _title(contents),
        "lead": lead(contents),
        "kind": kind,
        "seal": SEALS[kind],
        "numbers": numbers,
        "contents": contents,
        "result": result,
        "facts": privacy_facts(contents),
        "statement": "" if contents.is_public and kind != "certified" else privacy.words,
        "gauge": figures.budget(contents),
        "tables": tables,
        "curves": figures.curves(contents),
        "bars": {
            name: figures.bars(tables[name], name)
            for name in ("coefficients", "solution")
            if name in tables
        },
        "map": figures.grid_map(contents, tables),
        "outcome": outcome(contents.figures),
        "check": ac_check(contents.check) if contents.check else [],
        "settings": _settings(contents),
        "free": privacy.once and bool(contents.options.get("ledgers")),
        "timing": [(k, v) for k, v in seconds if k != "rounds"],
        "made_by": metadata.version("tacit"),
        "data": _in_script({"tables": tables}),
    }


def _in_script(data: Any) -> str:
    """JSON that can stand in a script element: ASCII only, and no <, > or &."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# --- words ----------------------------------------------------------------------------------------


def kind_of(contents: Contents) -> str:
    """The kind of its privacy statement: one of ``SEALS``."""
    if math.isinf(contents.result.privacy.epsilon):
        return "noiseless"
    return "uncertified" if not_promised(contents.result.privacy) else "certified"


def _title(contents: Contents) -> str:
    agents, options = len(contents.result.names), contents.options
    if "bus" in contents.tables:
        case = contents.stem("case") or "A grid"
        return f"{case} in {agents} zones" if agents > 1 else case
    many = f"{agents} agents" if agents > 1 else "one agent"
    if contents.model is not None:
        target = options.get("target")
        data = html.plain(target) if isinstance(target, str) else contents.stem("data_set")
        return f"A model of {data} from {many}" if data else f"A model from {many}"
    job = contents.stem("job")
    return f"{job}: {many}" if job else f"A solution of {many}"


def lead(contents: Contents) -> str:
    """The first sentence of the page."""
    privacy = contents.result.privacy
    if math.isinf(privacy.epsilon):
        return "The run added no noise: its messages reveal the data. Nothing here is protected."
    if why := not_promised(privacy):
        return f"No privacy is promised: {why}"
    if next_to_nothing(privacy.epsilon, privacy.delta):
        return "Next to nothing is promised: see epsilon and delta below."
    said = (
        "Any finding in what was sent is at most "
        f"{times(privacy.epsilon, privacy.delta)} with a hidden change named below as without it."
    )
    if privacy.unless:
        said = f"{said[:-1]}{privacy.unless}."
    if privacy.seeded:
        said += " This holds only while the seed is secret and never used again."
    return said


def privacy_facts(contents: Contents) -> Facts:
    """Who, what, against whom, over how many messages, what is assumed, what is not covered."""
    result, privacy = contents.result, contents.result.privacy
    kind = kind_of(contents)
    facts = [("Whose data", _listed(result.names))]
    if not (contents.is_public and kind != "certified"):
        hidden = "What is hidden" if kind == "certified" else "What was meant to be hidden"
        for change, names in privacy.neighbours:
            whose = "" if len(privacy.neighbours) == 1 else f" (of {_listed(names)})"
            facts.append((hidden, f"{change}{whose}"))
    if kind == "certified":
        everyone = "everyone, the server and the other agents included"
        facts.append(("Against whom", f"everyone{privacy.unless}" if privacy.unless else everyone))
    facts.append(("Over how much", _messages(contents)))
    if kind != "noiseless":
        source = "discrete and exact, from the operating system"
        if privacy.seeded:
            source = (
                "from a seed: it hides nothing from those who know that, or if it is used again"
            )
        elif not privacy.secure:
            source = "from a key of 64 bits that the operating system gave"
        facts.append(("The noise", f"{privacy.mechanism}, {source}"))
    if kind != "certified":
        return [*facts, ("Covered", "nothing")]
    assumed = privacy.assumed.removeprefix("Taken for public: ")
    public = "feasible sets, bounds, names, numbers of messages, and all settings of the run"
    things = contents.things
    private = [words for words, everybody in things.items() if not everybody]
    if privacy.once:
        same = "the same data give the same numbers"
        private.append(f"whether data changed between two runs from one ledger ({same})")
    return [
        *facts,
        ("Taken for public", assumed or public),
        ("Covered", "; ".join(words for words, everybody in things.items() if everybody)),
        ("Not covered", "; ".join(private)),
    ]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(html.plain(name) for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def _messages(contents: Contents) -> str:
    result, privacy = contents.result, contents.result.privacy
    them = "it" if privacy.once else "them"
    before = f", and before {them} {privacy.before}" if privacy.before else ""
    if privacy.once:
        by = "of the sum of all agents' data" if privacy.unless else "by each agent"
        return f"one noisy release {by}{before}; the rounds use nothing else, and cost nothing"
    rounds = f" in {int(result.trace['round'][-1])} rounds" if result.trace else ""
    if math.isinf(privacy.epsilon):
        return f"all messages{rounds}, without noise"
    return f"{privacy.updates} updates with {privacy.mechanism} noise by each agent{rounds}{before}"


def _settings(contents: Contents) -> Facts:
    """The settings, as they were completed."""
    result, left_out = contents.result, ["format"]
    if result.privacy.once:  # of rounds that need none
        left_out += ["mechanism", "delta"]
    if kind_of(contents) != "certified":  # "certified" is not so
        left_out.append("calibration")
    facts: Facts = []
    for name, value in result.settings.to_dict().items():
        if value is None or name in left_out:
            continue
        most = " at most" if name == "rounds" and result.settings.tolerance is not None else ""
        facts.append((name.replace("_", " ") + most, _short(value)))
    if result.converged is not None:
        facts.append(("tolerance reached", _short(result.converged)))
    return facts


def _short(value: Any) -> str:
    """A value for people: numbers short, lists not endless; of a schedule its kind first."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        more = f", … ({len(value)} in all)" if len(value) > MOST_NAMES else ""
        return ", ".join(_short(v) for v in value[:MOST_NAMES]) + more
    if isinstance(value, dict):
        pairs = [f"{k.replace('_', ' ')} {_short(v)}" for k, v in value.items() if k != "kind"]
        return ", ".join([str(value["kind"]), *pairs] if "kind" in value else pairs)
    return str(value)
