"""The command ``tacit audit``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.console import print_table, progress_bar
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.accounting import Guarantee

Add = Callable[..., Any]
PICTURES = (".png", ".pdf", ".svg")
# Rounds, local updates and trials: about half a minute on one core for each epsilon.
EFFORT = {"digits": (4, 2, 20_000), "mnist": (2, 2, 5_000), "case14": (2, 1, 4_000)}


def add_audit(add: Add) -> None:
    audit = add(
        "audit",
        _audit,
        "An empirical lower bound on epsilon, beside the claimed one.",
        "tacit audit digits --total-epsilons 0.5 1 2 4\n"
        "  tacit audit mnist --data DIR --mechanism laplace --plot audit.png\n"
        "  tacit audit case14 --total-epsilons 4",
    )
    audit.add_argument("application", choices=tuple(EFFORT))
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
    audit.add_argument("--rounds", type=int, help="default: by application")
    audit.add_argument("--local-updates", type=int, help="default: by application")
    audit.add_argument("--trials", type=int, help="in each of the two worlds; default: likewise")
    audit.add_argument("--confidence", type=float, default=0.99)
    audit.add_argument("--seed", type=int, help="noise from this seed, then the next, ...")
    audit.add_argument("--plot", metavar="FILE", help="draw claims and bounds into FILE")


def _audit(options: argparse.Namespace) -> int:
    from tacit.accounting import rounded_up
    from tacit.audit import LIMITS, Audit, audit, paper_claim, plot
    from tacit.audit.bounds import trials_of
    from tacit.audit.report import rounded_down
    from tacit.settings import Settings

    given = (options.rounds, options.local_updates, options.trials)
    rounds, updates, trials = (
        usual if chosen is None else chosen
        for usual, chosen in zip(EFFORT[options.application], given, strict=True)
    )
    trials_of(trials)
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
            found.append(
                audit(
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
    first = found[0]
    print_table(
        f"{first.name}: {trials} trials in each world",
        ("claim", "white, free", "white, curve", "black, free", "black, curve", "verdict"),
        [
            (
                rounded_up(one.claim.epsilon, 4),
                *(rounded_down(bound) for bound in one.epsilons),
                "VIOLATED" if one.violated else "consistent",
            )
            for one in found
        ],
    )
    noise = f"{first.settings.mechanism.name} noise, {first.settings.perturbation} perturbation"
    print(f"{noise}, {options.calibration} calibration, {rounds} x {updates} updates")
    print(f"canary: {first.canary}; delta {first.claim.delta:g}")
    for one in found:
        print(f"epsilon {rounded_up(one.claim.epsilon, 4)}: {one.verdict}")
    print(
        f"Bounds of a row hold together with {100 * options.confidence:g} % confidence. White: the "
        "adversary sees every local update; black: the last model. Free: whatever the noise is; "
        f"curve: it is {first.settings.mechanism.name}."
    )
    print(LIMITS)
    if options.plot is not None:
        print(f"plot: {options.plot}")
    return int(violated)


def _worlds(options: argparse.Namespace) -> Any:
    from tacit.audit import record_worlds, zone_worlds
    from tacit.learn.data import load_digits, load_mnist

    if options.application == "case14":
        return zone_worlds("case14")
    if options.application == "digits":
        return record_worlds(load_digits(), "digits")
    if options.data is None:
        raise InvalidInput("Expected --data, the folder with the files of mnist.")
    return record_worlds(load_mnist(options.data), "mnist")
