"""The command ``tacit audit``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.console import print_table, progress_bar
from tacit.cli.options import Add
from tacit.errors import InvalidInput, digits

if TYPE_CHECKING:
    from tacit.privacy.accounting import Guarantee
PICTURES = (".png", ".pdf", ".svg")
# Rounds, local updates and trials: about half a minute on one core for each epsilon.
EFFORT = {
    "digits": (4, 2, 20_000),
    "mnist": (2, 2, 5_000),
    "case14": (2, 1, 4_000),
    "l1-ball": (4, 2, 20_000),
    "simplex": (4, 2, 20_000),
    "least-squares": (4, 2, 20_000),
}
AGENTS = {"case14": 500}  # trials through agents, where they are slow
ONCE = 20_000  # readings without ledgers
QUADRATIC = ("case14", "l1-ball", "simplex", "least-squares")  # that can be read once


def add_audit(add: Add) -> None:
    audit = add(
        "audit",
        _audit,
        "An empirical lower bound on epsilon, beside the claimed one.",
        "tacit audit digits --total-epsilons 0.5 1 2 4\n"
        "  tacit audit mnist --data DIR --mechanism laplace --plot audit.png\n"
        "  tacit audit case14 --total-epsilons 4\n"
        "  tacit audit l1-ball --agents --hostile --float32\n"
        "  tacit audit case14 --once\n"
        "  tacit audit least-squares --once --agents\n"
        "  tacit audit server",
    )
    audit.add_argument(
        "application",
        choices=(*EFFORT, "server"),
        help="server: drive agents to the points where a record does most, for every objective",
    )
    audit.add_argument("--data", help="folder with the files of mnist")
    audit.add_argument("--total-epsilons", type=float, nargs="+", default=[1.0], metavar="EPSILON")
    audit.add_argument("--total-delta", type=float, default=1e-5)
    audit.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    audit.add_argument(
        "--perturbation",
        choices=("objective", "output", "projected-output"),
        default="objective",
    )
    audit.add_argument(
        "--calibration",
        choices=("certified", "paper"),
        default="certified",
        help="paper: the paper's sensitivities, noise and composition, which are not certified",
    )
    audit.add_argument(
        "--agents",
        action="store_true",
        help="through agents with a ledger and secure noise, one local update a round",
    )
    audit.add_argument(
        "--hostile",
        action="store_true",
        help="with --agents: a server that drives the agent far away first",
    )
    audit.add_argument(
        "--once",
        action="store_true",
        help="one reading of the data, as a release makes it; with --agents kept in a ledger",
    )
    audit.add_argument("--float32", action="store_true", help="features of 32 bits")
    audit.add_argument("--rounds", type=int, help="default: by application")
    audit.add_argument("--local-updates", type=int, help="default: by application")
    audit.add_argument("--trials", type=int, help="in each of the two worlds; default: likewise")
    audit.add_argument("--confidence", type=float, default=0.99)
    audit.add_argument("--seed", type=int, help="noise from this seed, then the next, ...")
    audit.add_argument("--plot", metavar="FILE", help="draw claims and bounds into FILE")


def _server(options: argparse.Namespace) -> int:
    """The search of ``audit.adversary`` over objectives, sets, formats and relations."""
    from tacit.lab.audit import LIMITS
    from tacit.lab.audit.adversary import Found, every_hunt, search

    hunts = list(every_hunt())
    found: list[Found] = []
    with progress_bar("agents") as bar:
        task = bar.add_task("hostile server", total=len(hunts))
        for hunt in hunts:
            found.append(search(*hunt, seed=options.seed or 0))
            bar.advance(task)
    broken = [f for f in found if not f.sound]
    if options.json:
        print(json.dumps({"found": [asdict(f) for f in found], "violated": bool(broken)}))
        return int(bool(broken))
    print_table(
        f"A hostile server: {sum(f.points for f in found)} points of {len(found)} agents",
        ("objective", "largest change / sensitivity", "largest violation / tolerance"),
        [
            (name, f"{max(f.ratio for f in mine):.4f}", f"{max(f.violation for f in mine):.3f}")
            for name in dict.fromkeys(f.objective for f in found)
            for mine in [[f for f in found if f.objective == name]]
        ],
    )
    for f in broken:
        print(f"VIOLATED: {f.objective}, {f.set}, {f.dtype}, {f.relation}: {f.ratio:.4g}")
    print(LIMITS)
    return int(bool(broken))


def _audit(options: argparse.Namespace) -> int:
    if options.application == "server":
        return _server(options)
    from tacit.admm.settings import Settings
    from tacit.lab.audit import (
        LIMITS,
        Audit,
        audit,
        audit_agents,
        audit_releases,
        hostile,
        paper_claim,
        plot,
    )
    from tacit.lab.audit.bounds import rounded_down
    from tacit.privacy.accounting import rounded_up

    given = (options.rounds, options.local_updates, options.trials)
    rounds, updates, trials = (
        usual if chosen is None else chosen
        for usual, chosen in zip(_effort(options), given, strict=True)
    )
    _check_agents(options)
    runs: Callable[..., Audit] = audit
    if options.once:
        _check_once(options, rounds, updates)
        runs = partial(audit_releases, ledgers=options.agents)
    if options.plot is not None:
        file = Path(options.plot).resolve()
        if file.suffix not in PICTURES or file.is_dir() or not file.parent.is_dir():
            raise InvalidInput(
                f"Expected --plot to name a {', '.join(PICTURES)} file in an existing folder, got "
                f"{options.plot!r}. Nothing was run."
            )
    chosen: list[tuple[Settings, Guarantee | None]] = []
    for epsilon in options.total_epsilons:
        common = (epsilon, options.total_delta, rounds, updates, options.mechanism)
        if options.calibration == "paper":
            chosen.append(paper_claim(*common, perturbation=options.perturbation))
        else:
            settings = Settings.for_budget(*common, perturbation=options.perturbation)
            chosen.append((settings, None))
    worlds = _worlds(options)
    found: list[Audit] = []
    with progress_bar("trials") as bar:
        for k, (settings, claim) in enumerate(chosen):
            label = f"epsilon {options.total_epsilons[k]:g}"
            task = bar.add_task(label, total=2 * trials)
            if options.agents and not options.once:
                plans = [hostile(worlds, settings)] if options.hostile else []
                one = audit_agents(
                    worlds,
                    settings,
                    plans,
                    trials=trials,
                    confidence=options.confidence,
                    progress=partial(bar.advance, task),
                )
                found.append(one)
                continue
            found.append(
                runs(
                    worlds,
                    settings,
                    trials=trials,
                    confidence=options.confidence,
                    claim=claim,
                    seed=None if options.seed is None else options.seed + k,
                    progress=partial(bar.advance, task),
                )
            )
    if options.plot is not None:
        plot(found).savefig(options.plot, dpi=130)
    violated = any(one.violated for one in found)
    if options.json:
        audits = [one.to_dict() for one in found]
        print(json.dumps({"audits": audits, "violated": violated, "note": LIMITS}))
        return int(violated)
    first, words = found[0], {True: "consistent", False: "too few"}
    print_table(
        f"{first.name}: {trials} trials in each world",
        ("claim", "white, free", "white, curve", "black, free", "black, curve", "verdict"),
        [
            (
                rounded_up(one.claim.epsilon, 4),
                *(rounded_down(bound) for bound in one.epsilons),
                "VIOLATED" if one.violated else words[one.refutable],
            )
            for one in found
        ],
    )
    noise = f"{first.settings.mechanism.name} noise, {first.settings.perturbation} perturbation"
    if options.once:
        print(f"{first.settings.mechanism.name} noise, one reading of the data")
    else:
        print(f"{noise}, {options.calibration} calibration, {rounds} x {updates} updates")
    if options.agents and options.once:
        print("paid for and kept in a ledger, read again after a restart; secure noise")
    elif options.agents:
        print("through agents, each with a ledger of its own; noise from the operating system")
    print(f"canary: {first.canary}; delta {digits(first.claim.delta)}")
    for one in found:
        print(f"epsilon {rounded_up(one.claim.epsilon, 4)}: {one.verdict}")
    print(
        f"Bounds of a row hold together with {100 * options.confidence:g} % confidence. White: the "
        f"adversary sees every {'reading' if options.once else 'local update'}; black: the last "
        f"model. Free: whatever the noise is; curve: it is {first.settings.mechanism.name}."
    )
    print(LIMITS)
    if options.plot is not None:
        print(f"plot: {options.plot}")
    return int(violated)


def _effort(options: argparse.Namespace) -> tuple[int, int, int]:
    rounds, updates, trials = EFFORT[options.application]
    if options.once:
        return 1, 1, 1000 if options.agents else ONCE
    if not options.agents:
        return rounds, updates, trials
    return rounds, 1, AGENTS.get(options.application, 1000)


def _check_agents(options: argparse.Namespace) -> None:
    if options.hostile and not options.agents:
        raise InvalidInput("Expected --agents with --hostile. Nothing was run.")
    if options.agents and options.seed is not None:
        raise InvalidInput(
            "Expected no --seed with --agents: their noise has none. Nothing was run."
        )
    if options.agents and (options.calibration, options.perturbation) != ("certified", "objective"):
        raise InvalidInput(
            "Expected certified calibration and perturbation objective with --agents, which have "
            "secure noise. Nothing was run."
        )
    if options.float32 and options.application == "case14":
        raise InvalidInput("Expected float64 for case14: grids have no other. Nothing was run.")


def _check_once(options: argparse.Namespace, rounds: int, updates: int) -> None:
    if options.application not in QUADRATIC:
        raise InvalidInput(
            f"Expected one of {', '.join(QUADRATIC)} with --once, got {options.application}: other "
            "objectives cannot be read once. Nothing was run."
        )
    if (rounds, updates) != (1, 1) or options.hostile:
        raise InvalidInput(
            "Expected no --rounds, --local-updates or --hostile with --once: nobody asks for "
            "anything after the one reading. Nothing was run."
        )
    if (options.calibration, options.perturbation) != ("certified", "objective"):
        raise InvalidInput(
            "Expected certified calibration and perturbation objective with --once. "
            "Nothing was run."
        )


def _worlds(options: argparse.Namespace) -> Any:
    import numpy as np

    from tacit.lab.audit import (
        ball_worlds,
        moment_worlds,
        record_worlds,
        simplex_worlds,
        zone_worlds,
    )
    from tacit.learn.data import load_digits, load_mnist

    dtype = np.float32 if options.float32 else np.float64
    if options.application == "case14":
        return zone_worlds("case14")
    if options.application == "l1-ball":
        return ball_worlds(dtype)
    if options.application == "least-squares":
        return moment_worlds(dtype)
    if options.application == "simplex":
        return simplex_worlds(dtype)
    if options.application == "digits":
        return record_worlds(load_digits(), "digits", dtype)
    if options.data is None:
        raise InvalidInput("Expected --data, the folder with the files of mnist.")
    return record_worlds(load_mnist(options.data), "mnist", dtype)
