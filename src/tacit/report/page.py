"""The page of a result: one HTML file with its words, style, script, charts and data in it.

It asks nothing of any network, and its policy (CSP) lets a browser do nothing of the kind: a script
runs only if it has the one hash. Names from files are text, wherever they stand: the
template escapes them, and in the data no character can end the script element.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import html
from tacit.errors import InvalidInput
from tacit.files import reading, write_atomically
from tacit.privacy.accounting import rounded_down, rounded_up
from tacit.protocol.statement import PrivacyStatement, not_promised
from tacit.report import figures
from tacit.report.contents import Contents
from tacit.report.odds import next_to_nothing, times

if TYPE_CHECKING:
    from tacit.report.released import Released

FILE, PUBLIC_FILE = "report.html", "report-public.html"
MARK = b'<!doctype html>\n<html lang="en" data-tacit-report="1"'  # how a report begins
MOST_BYTES = 2**22  # of a file that is looked at
MOST_NAMES, MOST_WORDS = 12, 4000
Facts = list[tuple[str, str]]
SEALS = {  # what a page says first, by the kind of its statement
    "certified": "Certified",
    "uncertified": "Not certified",
    "noiseless": "Not private",
}


def render(contents: Contents | Released, repeat: str = "") -> bytes:
    """The page of a folder. ``repeat`` is the command that makes such a result again."""
    script, run = asset("page.js"), isinstance(contents, Contents)
    with reading(contents.folder, "files that tacit wrote", "No report was made."):
        of_run = _of_run(contents) if isinstance(contents, Contents) else {}
        made = template("run.html" if run else "table.html").render(
            **_shared(contents),
            **of_run,
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
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"up": rounded_up, "down": rounded_down, "plain": html.plain}
    environment.filters |= {"cell": figures.cell, "rows": figures.rows}
    return environment.get_template(name)


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


def _shared(contents: Contents | Released) -> dict[str, Any]:
    """What is said of a run and of a released table alike."""
    privacy, kind = contents.privacy, kind_of(contents.privacy)
    numbers = None
    if kind != "noiseless" and not (kind == "uncertified" and contents.is_public):
        numbers = rounded_up(privacy.epsilon, 3), rounded_up(privacy.delta, 6)
    return {
        "title": _title(contents) if isinstance(contents, Contents) else contents.title,
        "lead": lead(privacy),
        "kind": kind,
        "seal": SEALS[kind],
        "numbers": numbers,
        "contents": contents,
        "facts": privacy_facts(contents),
        "blocks": figures.blocks(contents) if isinstance(contents, Contents) else contents.blocks,
        "made_by": metadata.version("tacit"),
    }


def _of_run(contents: Contents) -> dict[str, Any]:
    result = contents.result
    tables = figures.tables(contents)
    seconds = [(k, v) for k, v in result.timing.items() if isinstance(v, int | float)]
    return {
        "result": result,
        "budget": figures.budget(contents),
        "tables": tables,
        "most": figures.SHOWN,
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
        "free": contents.privacy.once and bool(contents.options.get("ledgers")),
        "timing": [(k, v) for k, v in seconds if k != "rounds"],
    }


# --- words ----------------------------------------------------------------------------------------


def kind_of(privacy: PrivacyStatement) -> str:
    """The kind of a privacy statement: one of ``SEALS``."""
    if math.isinf(privacy.epsilon):
        return "noiseless"
    return "uncertified" if not_promised(privacy) else "certified"


def _title(contents: Contents) -> str:
    agents, options = len(contents.result.names), contents.options
    if "bus" in contents.tables:
        case = contents.stem("case") or "A grid"
        return f"{case} in {agents} zones" if agents > 1 else case
    many = f"{agents} agents" if agents > 1 else "one agent"
    if contents.model is not None:
        target = options.get("target")
        data = html.plain(target) if isinstance(target, str) else contents.stem("data_set")
        data = "" if options.get("more") and not target else data  # one file of several
        return f"A model of {data} from {many}" if data else f"A model from {many}"
    job = contents.stem("job")
    return f"{job}: {many}" if job else f"A solution of {many}"


def lead(privacy: PrivacyStatement) -> str:
    """The first sentence of the page."""
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


def privacy_facts(contents: Contents | Released) -> Facts:
    """Whose data, the statement line by line, and what it covers and what not."""
    privacy, kind = contents.privacy, kind_of(contents.privacy)
    facts = [("Whose data", _listed(contents.names))]
    if kind != "certified":
        said = [] if contents.is_public else [("Statement", html.plain(privacy.words, MOST_WORDS))]
        return [*facts, *said, ("Covered", "nothing")]
    for line in privacy.words.split("\n"):
        name, _, words = line.partition(": ")
        facts.append((name, html.plain(words[:1].upper() + words[1:], MOST_WORDS)))
    private = list(contents.left_out)
    if privacy.once:
        same = "the same data give the same numbers"
        private.append(f"whether data changed between two runs from one ledger ({same})")
    covered = (words for words, everybody in contents.things.items() if everybody)
    return [*facts, ("Covered", "; ".join(covered)), ("Not covered", "; ".join(private))]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(html.plain(name) for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def _settings(contents: Contents) -> Facts:
    """The settings, as they were completed."""
    result, left_out = contents.result, ["format"]
    if result.privacy.once:  # of rounds that need none
        left_out += ["mechanism", "delta"]
    if kind_of(result.privacy) != "certified":  # "certified" is not so
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


# --- figures of private data, on the screen and in their owners' report: not covered --------------


def outcome(said: Mapping[str, Any]) -> Facts:
    """Errors on test records, the load that is served and its cost, and what privacy costs."""
    facts: Facts = []
    if (error := said.get("test_error")) is not None:
        share = said.get("classes") is not None
        word = "Error on test records" if share else "Mean absolute error on test records"
        facts += [
            (word, _error(error, share)),
            ("The same for a constant guess", _error(said.get("test_error_of_a_guess"), share)),
        ]
    for name, word in (("answer", "Zones together: "), ("central", "One solver: ")):
        if isinstance(found := said.get(name), dict):
            facts += _of_dispatch(found, word if "central" in said else "")
    if isinstance(found, dict) and "bound" in found:
        ac = found.get("published")
        beside = "" if ac is None else f"; PGLib's AC cost {ac:,.2f} $/h"
        facts.append(("All load served, true loads", f"at least {found['bound']:,.2f} $/h{beside}"))
    if isinstance(price := said.get("what_privacy_costs"), dict):
        facts.append(("What privacy costs", price_in_words(price)))
    if isinstance(said.get("shed_price"), int | float):
        facts.append(("Price of load that is short", f"{said['shed_price']:g} $/MWh"))
    return facts


def price_in_words(found: Mapping[str, Any]) -> str:
    """A number of a private run beside the same without privacy."""

    def said(value: Any) -> str:
        if found["unit"] == "$/h":
            return f"{value:,.2f} $/h"
        return f"{100 * value:.4g} %" if found["unit"] == "share" else f"{value:.4g}"

    private, without = found["private"], found["without_privacy"]
    more = f" ({found['by']})" if "by" in found else ""
    if found["unit"] == "$/h" and without > 0:
        more = f" ({100 * (private / without - 1):+.2g} %)"
    return f"{found['what']} {said(private)}, without privacy {said(without)}{more}"


def ac_check(found: Mapping[str, Any]) -> Facts:
    """The AC power flow of a dispatch at the true loads: ``PowerFlow.summary()``."""
    facts = [
        (name.capitalize(), f"{found[f'{name}_mw']:.6g} MW") for name in ("load", "dispatched")
    ]
    if not found["converged"]:
        return [*facts, ("AC power flow", "none was found: the dispatch cannot be used")]
    buses = ", ".join(map(str, found["slack_buses"]))
    return [
        *facts,
        (f"More at the slack bus {buses}", f"{found['slack_mw']:+.4g} MW"),
        ("Losses", f"{found['losses_mw']:.4g} MW"),
        ("Voltages", f"{found['lowest_voltage']:.4f} to {found['highest_voltage']:.4f} per unit"),
        ("Voltages beyond limits", str(len(found["voltages"]))),
        ("Highest loading of a line", f"{100 * found['highest_loading']:.4g} %"),
        ("Lines beyond limits", str(len(found["overloads"]))),
        ("Generators beyond reactive limits", str(len(found["reactive"]))),
    ]


def _error(value: Any, share: bool) -> str:
    if not isinstance(value, int | float):
        return "unknown"
    return f"{100 * value:.2f} %" if share else f"{value:.4g}"


def _of_dispatch(found: Mapping[str, Any], prefix: str) -> Facts:
    """The load that a dispatch serves, and what it costs."""
    facts: Facts = []
    served = found.get("served") or {}
    for key, kind, unit in (("p", "active", "MW"), ("q", "reactive", "MVAr")):
        if isinstance(part := served.get(key), dict):
            short, load, surplus = (
                f"{round(part[f'{name}_{unit.lower()}'], 6):,.4g}"
                for name in ("short", "load", "surplus")
            )
            words = f"{100 * part['share']:.4g} % ({short} of {load} {unit} short, at "
            words += f"{part['buses']} of {served['of_buses']} buses; surplus {surplus} {unit})"
            facts.append((f"{prefix}{kind} load served", words))
    if "objective_at_true_loads" in found and "cost" not in found:
        worth = f"{found['objective_at_true_loads']:.6g} p.u.²"
        facts.append((f"{prefix}squared load shedding", worth))
    if "cost" in found:
        facts.append((f"{prefix}generation cost", f"{found['cost']:,.2f} $/h"))
    return [(name[0].upper() + name[1:], value) for name, value in facts]
