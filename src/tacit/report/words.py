"""A run in plain words: what a reader asks, as pairs of a question and its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit import html
from tacit.privacy.accounting import rounded_up
from tacit.protocol.statement import promised
from tacit.report.contents import Contents
from tacit.report.odds import exception, loss

MOST_NAMES = 12
SEALS = {  # what a page says first, by the kind of its statement
    "certified": "Certified",
    "uncertified": "Not certified",
    "noiseless": "Not private",
}
Facts = list[tuple[str, str]]


def kind_of(contents: Contents) -> str:
    """Of its statement: one of ``SEALS``."""
    privacy = contents.result.privacy
    if math.isinf(privacy.epsilon):
        return "noiseless"
    return "certified" if promised(privacy) else "uncertified"


def title(contents: Contents) -> str:
    agents, options = len(contents.result.names), contents.options
    if "bus" in contents.tables:
        case = stem(options, "case") or "A grid"
        return f"{case} in {agents} zones" if agents > 1 else case
    many = f"{agents} agents" if agents > 1 else "one agent"
    if contents.model is not None:
        target = options.get("target")
        data = html.plain(target) if isinstance(target, str) else stem(options, "data_set")
        return f"A model of {data} from {many}" if data else f"A model from {many}"
    job = stem(options, "job")
    return f"{job}: {many}" if job else f"A solution of {many}"


def stem(options: Mapping[str, Any], name: str) -> str:
    """What a file is called, unless the page must not say it."""
    value = options.get(name)
    return html.plain(Path(value).stem) if isinstance(value, str) and value != name.upper() else ""


def lead(contents: Contents) -> str:
    """The first sentence of the page."""
    privacy = contents.result.privacy
    kind = kind_of(contents)
    if kind == "noiseless":
        return "The run added no noise: its messages reveal the data. Nothing here is protected."
    if kind == "uncertified":
        why = privacy.uncertified or "its epsilon or delta is no budget."
        return f"No privacy is promised: {why}"
    # not e^ε but for a chance of δ, which is often said and is not so (``odds.py``)
    chance = exception(privacy.delta)
    most = loss(privacy.epsilon, privacy.delta, chance)
    if most > 1e4:
        return "Next to nothing is promised: see epsilon and delta below."
    times = rounded_up(math.exp(most), 3) if most < 13 else f"e^{rounded_up(most, 3)}"
    but = f", but for a chance of {rounded_up(chance, 3)} each" if chance else ""
    said = (
        "Whoever sees all that was sent can raise their odds on any one hidden change named "
        f"below, or on its absence, by at most a factor of {times}{but}."
    )
    if privacy.seeded:
        said += " This holds only while the seed is secret and never used again."
    return said


def privacy_facts(contents: Contents) -> Facts:
    """Who, what, against whom, over how many messages, what is assumed, what is not covered."""
    result, privacy = contents.result, contents.result.privacy
    kind = kind_of(contents)
    facts = [("Whose data", listed(result.names))]
    if not (contents.is_public and kind != "certified"):
        for change, names in privacy.neighbours:
            whose = "" if len(privacy.neighbours) == 1 else f" (of {listed(names)})"
            hidden = "What is hidden" if kind == "certified" else "What was meant to be hidden"
            facts.append((hidden, f"{change}{whose}"))
    if kind == "certified":
        all_messages = "everyone who sees all messages, the server and the other agents included"
        facts.append(
            ("Against whom", "everyone, the server and the other agents included")
            if privacy.once
            else ("Against whom", all_messages)
        )
    facts.append(("Over how much", _messages(contents)))
    if kind != "noiseless":
        facts.append(("The noise", _noise(contents)))
    if kind == "certified":
        facts.append(("Taken for public", _assumed(contents)))
        facts.append(("Covered", "; ".join(_covered(contents))))
        facts.append(("Not covered", "; ".join(_not_covered(contents))))
    else:
        facts.append(("Covered", "nothing"))
    return facts


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(html.plain(name) for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def _messages(contents: Contents) -> str:
    result, privacy = contents.result, contents.result.privacy
    if privacy.once:
        return (
            "one noisy reading of its data by each agent; the rounds use nothing else, and cost "
            "nothing"
        )
    before = f", and before them {privacy.before}" if privacy.before else ""
    rounds = f" in {int(result.trace['round'][-1])} rounds" if result.trace else ""
    if kind_of(contents) == "noiseless":
        return f"all messages{rounds}, without noise"
    return f"{privacy.updates} updates with {privacy.mechanism} noise by each agent{rounds}{before}"


def _noise(contents: Contents) -> str:
    privacy = contents.result.privacy
    if privacy.secure:
        return f"{privacy.mechanism}, discrete and exact, from the operating system"
    if privacy.seeded:
        return (
            f"{privacy.mechanism}, from a seed: nothing is hidden from those who know the seed, "
            "or if it is ever used again"
        )
    return f"{privacy.mechanism}, from a key of 64 bits that the operating system gave"


def _assumed(contents: Contents) -> str:
    if said := contents.result.privacy.assumed:
        return said.removeprefix("Taken for public: ")
    return "feasible sets, bounds, names, numbers of messages, and all settings of the run"


def _covered(contents: Contents) -> list[str]:
    said = ["the solutions"]
    if contents.result.privacy.once:
        said.append("what was released, and all of the trace but times")
    else:
        said.append("residual and violation in the trace")
    if "bus" in contents.tables:
        said.append("voltages, flows, loadings and generation")
    if contents.model is not None:
        said.append("the model")
    return said


def _not_covered(contents: Contents) -> list[str]:
    said = [] if contents.result.privacy.once else ["objective and noise in the trace"]
    if "bus" in contents.tables:
        said.append("demand, shed load, load served, cost, and the AC check")
    if contents.model is not None or contents.command == "learn":
        said.append("errors on test records")
    if contents.result.privacy.once:
        same = "the same data give the same numbers"
        said.append(f"whether data changed between two runs from one ledger ({same})")
    return [*said, "times", "the seed, if there was one"]


def settings_facts(contents: Contents) -> Facts:
    """The settings, as they were completed."""
    result = contents.result
    facts: Facts = []
    for name, value in result.settings.to_dict().items():
        if value is None or name == "format":
            continue
        if result.privacy.once and name in ("mechanism", "delta"):  # of rounds that need none
            continue
        if name == "calibration" and kind_of(contents) != "certified":  # "certified" is not so
            continue
        if name == "rounds" and result.settings.tolerance is not None:
            name = "rounds at most"
        if isinstance(value, dict):
            inner = [str(value["kind"])] if "kind" in value else []
            inner += [f"{k.replace('_', ' ')} {plain(v)}" for k, v in value.items() if k != "kind"]
            facts.append((name.replace("_", " "), ", ".join(inner)))
        else:
            facts.append((name.replace("_", " "), plain(value)))
    if result.converged is not None:
        facts.append(("tolerance reached", "yes" if result.converged else "no"))
    return facts


def plain(value: Any) -> str:
    """A value for people: numbers short, lists not endless."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        more = f", … ({len(value)} in all)" if len(value) > MOST_NAMES else ""
        return ", ".join(plain(v) for v in value[:MOST_NAMES]) + more
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain(v)}" for k, v in value.items())
    return str(value)


def outcome_facts(contents: Contents) -> Facts:
    """Figures that were computed from private data: for their owners' eyes."""
    said, facts = contents.figures, []
    if (error := said.get("test_error")) is not None:
        share = said.get("classes") is not None
        word = "Error on test records" if share else "Mean absolute error on test records"
        facts += [
            (word, _error(error, share)),
            ("The same for a constant guess", _error(said.get("test_error_of_a_guess"), share)),
        ]
    for name, word in (("answer", "Zones together"), ("central", "One solver")):
        found = said.get(name)
        if isinstance(found, dict):
            facts += _served(found, word, "central" in said)
    if isinstance(said.get("shed_price"), int | float):
        facts.append(("Price of load that is short", f"{said['shed_price']:g} $/MWh"))
    return facts


def _error(value: Any, share: bool) -> str:
    if not isinstance(value, int | float):
        return "unknown"
    return f"{100 * value:.2f} %" if share else f"{value:.4g}"


def _served(found: dict[str, Any], word: str, both: bool) -> Facts:
    prefix = f"{word}: " if both else ""
    facts: Facts = []
    for key, kind, unit in (("p", "active", "MW"), ("q", "reactive", "MVAr")):
        part = (found.get("served") or {}).get(key)
        if isinstance(part, dict):
            short = part.get(f"short_{unit.lower()}", math.nan)
            amount = f"{short:,.0f}" if 1e3 <= abs(short) < 1e9 else f"{short:.4g}"
            words = f"{100 * part['share']:.4g} %, {amount} {unit} short at {part['buses']} "
            facts.append((f"{prefix}{kind} load served", words + "buses"))
    if "cost" in found:
        facts.append((f"{prefix}generation cost", f"{found['cost']:,.2f} $/h"))
    return [(name[0].upper() + name[1:], value) for name, value in facts]


def check_facts(contents: Contents) -> Facts:
    """The AC power flow of the dispatch at the true loads, if ``tacit power check`` was run."""
    found = contents.check
    if not found:
        return []
    if not found.get("converged"):
        return [("AC power flow", "none was found: the dispatch cannot be used")]
    return [
        ("Slack", f"{found['slack_mw']:+.4g} MW"),
        ("Losses", f"{found['losses_mw']:.4g} MW"),
        ("Voltages", f"{found['lowest_voltage']:.4f} to {found['highest_voltage']:.4f} per unit"),
        ("Highest loading of a line", f"{100 * found['highest_loading']:.4g} %"),
        ("Voltages beyond limits", str(len(found["voltages"]))),
        ("Lines beyond limits", str(len(found["overloads"]))),
        ("Generators beyond reactive limits", str(len(found["reactive"]))),
    ]
