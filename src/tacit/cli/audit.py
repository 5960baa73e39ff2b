"""The command ``tacit audit``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from tacit.cli.console import progress_bar, tell
from tacit.cli.options import Add, add_noise_options
from tacit.errors import InvalidInput, digits

# Rounds, local updates and trials: about half a minute on one core for each epsilon.
EFFORT = {
    "digits": (4, 2, 20_000),
    "mnist": (2, 2, 5_000),
    "case14": (2, 1, 4_000),
    "l1-ball": (4, 2, 20_000),
    "simplex": (4, 2, 20_000),
    "least-squares": (4, 2, 20_000),
}
QUADRATIC = ("case14", "l1-ball", "simplex", "least-squares")  # that can be read once


def add_audit(add: Add) -> None:
    audit = add(
        "audit",
        _audit,
        "An empirical lower bound on epsilon, beside the claimed one.",
        "tacit audit digits --total-epsilons 0.5 1 2 4\n"
        "  tacit audit mnist --data DIR --mechanism laplace\n"
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
    add_noise_options(audit)
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
        help="one release of sufficient statistics; with --agents it is kept in a ledger",
    )
    audit.add_argument("--float32", action="store_true", help="features of 32 bits")
    audit.add_argument("--rounds", type=int, help="default: by application")
    audit.add_argument("--local-updates", type=int, help="default: by application")
    audit.add_argument("--trials", type=int, help="in each of the two worlds; default: likewise")
    audit.add_argument("--confidence", type=float, default=0.99)
    audit.add_argument("--seed", type=int, help="noise from this seed, then the next, ...")


def _audit(options: argparse.Namespace) -> int:
    if options.application == "server":
        return _server(options)
    from tacit.lab.audit import LIMITS

    found = _audits(options)
    violated = any(one.violated for one in found)
    document = {"audits": [one.to_dict() for one in found], "violated": violated, "note": LIMITS}
    tell(options.json, document, *_said(options, found), LIMITS)
    return int(violated)


def _audits(options: argparse.Namespace) -> list[Any]:
    """One audit for every epsilon."""
    from tacit.admm.settings import Settings
    from tacit.lab.audit import audit, audit_agents, audit_releases, hostile, paper_claim

    rounds, updates, trials = _effort(options)
    _refuse_what_does_not_go_together(options, rounds * updates)
    chosen: list[tuple[Settings, Any]] = []
    for epsilon in options.total_epsilons:
        common = (epsilon, options.total_delta, rounds, updates, options.mechanism)
        if options.calibration == "paper":
            chosen.append(paper_claim(*common, perturbation=options.perturbation))
        else:
            private = Settings.for_budget(*common, perturbation=options.perturbation)
            chosen.append((private, None))
    worlds = _worlds(options)
    found: list[Any] = []
    with progress_bar("trials") as bar:
        for k, (settings, claim) in enumerate(chosen):
            task = bar.add_task(f"epsilon {options.total_epsilons[k]:g}", total=2 * trials)
            how: dict[str, Any] = {"trials": trials, "confidence": options.confidence}
            how["progress"] = partial(bar.advance, task)
            if options.agents and not options.once:
                plans = [hostile(worlds, settings)] if options.hostile else []
                found.append(audit_agents(worlds, settings, plans, **how))
                continue
            seed = None if options.seed is None else options.seed + k
            run = partial(audit_releases, ledgers=options.agents) if options.once else audit
            found.append(run(worlds, settings, claim=claim, seed=seed, **how))
    return found


def _effort(options: argparse.Namespace) -> tuple[int, ...]:
    """Rounds, local updates and trials: those given, else those of the application."""
    rounds, updates, trials = EFFORT[options.application]
    if options.once:
        rounds, updates, trials = 1, 1, 1000 if options.agents else 20_000
    elif options.agents:
        updates, trials = 1, 500 if options.application == "case14" else 1000
    given = (options.rounds, options.local_updates, options.trials)
    usual = (rounds, updates, trials)
    return tuple(u if g is None else g for u, g in zip(usual, given, strict=True))


def _refuse_what_does_not_go_together(options: argparse.Namespace, updates: int) -> None:
    others = (options.calibration, options.perturbation) != ("certified", "objective")
    certified = "certified calibration and perturbation objective with"
    for wrong, words in (
        (options.hostile and not options.agents, "--agents with --hostile"),
        (
            options.agents and options.seed is not None,
            "no --seed with --agents: their noise has none",
        ),
        (options.agents and others, f"{certified} --agents, which have secure noise"),
        (
            options.float32 and options.application == "case14",
            "float64 for case14: grids have no other",
        ),
        (
            options.once and options.application not in QUADRATIC,
            f"one of {', '.join(QUADRATIC)} with --once, got {options.application}: other "
            "objectives have no sufficient statistics to release",
        ),
        (
            options.once and (updates != 1 or options.hostile),
            "no --rounds, --local-updates or --hostile with --once: nothing is asked after "
            "the one release",
        ),
        (options.once and others, f"{certified} --once"),
        (
            options.application == "mnist" and options.data is None,
            "--data, the folder with the files of mnist",
        ),
    ):
        if wrong:
            raise InvalidInput(f"Expected {words}. Nothing was run.")


def _worlds(options: argparse.Namespace) -> Any:
    import numpy as np

    from tacit.lab import audit
    from tacit.learn.data import load_digits, load_mnist

    dtype = np.float32 if options.float32 else np.float64
    name = options.application
    if name == "case14":
        return audit.zone_worlds(name)
    if name in ("digits", "mnist"):
        data = load_digits() if name == "digits" else load_mnist(options.data)
        return audit.record_worlds(data, name, dtype)
    make = {"l1-ball": audit.ball_worlds, "simplex": audit.simplex_worlds}
    return make.get(name, audit.moment_worlds)(dtype)


def _said(options: argparse.Namespace, found: list[Any]) -> Iterator[Any]:
    """What is told of the audits."""
    from tacit.lab.audit.bounds import rounded_down
    from tacit.privacy.accounting import rounded_up

    first, words = found[0], {True: "consistent", False: "too few"}
    settings = first.settings
    views = ("white",) if first.black is None else ("white", "black")
    bounds = (f"{view}, {kind}" for view in views for kind in ("free", "curve"))
    header = ("claim", *bounds, "verdict")
    rows = [
        (
            rounded_up(one.claim.epsilon, 4),
            *(rounded_down(bound) for bound in one.epsilons),
            "VIOLATED" if one.violated else words[one.refutable],
        )
        for one in found
    ]
    yield f"{first.name}: {first.trials} trials in each world", header, rows
    noise = f"{settings.mechanism.name} noise"
    if options.once:
        yield f"{noise}, one release of sufficient statistics"
    else:
        kind = f"{settings.perturbation} perturbation, {settings.calibration} calibration"
        yield f"{noise}, {kind}, {settings.rounds} x {settings.local_updates} updates"
    if options.agents and options.once:
        yield "paid for and kept in a ledger, asked for again after a restart; secure noise"
    elif options.agents:
        yield "through agents, each with a ledger of its own; noise from the operating system"
    yield f"canary: {first.canary}; delta {digits(first.claim.delta)}"
    for one in found:
        yield f"epsilon {rounded_up(one.claim.epsilon, 4)}: {one.verdict}"
    seen = "release" if options.once else "local update; black: the last model"
    yield (
        f"Bounds of a row hold together with {100 * options.confidence:g} % confidence. White: the "
        f"adversary sees every {seen}. Free: whatever the noise is; curve: it is "
        f"{settings.mechanism.name}."
    )


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
    rows = [
        (name, f"{max(f.ratio for f in mine):.4f}", f"{max(f.violation for f in mine):.3f}")
        for name in dict.fromkeys(f.objective for f in found)
        for mine in [[f for f in found if f.objective == name]]
    ]
    title = f"A hostile server: {sum(f.points for f in found)} points of {len(found)} agents"
    header = ("objective", "largest change / sensitivity", "largest violation / tolerance")
    wrong = [f"{f.objective}, {f.set}, {f.dtype}, {f.relation}: {f.ratio:.4g}" for f in broken]
    document = {"found": [asdict(f) for f in found], "violated": bool(broken)}
    violated = (f"VIOLATED: {words}" for words in wrong)
    tell(options.json, document, (title, header, rows), *violated, LIMITS)
    return int(bool(broken))
