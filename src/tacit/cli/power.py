"""The commands ``tacit power``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tacit.cli.console import print_result, print_table, progress_bar
from tacit.cli.options import Add, add_run_options, make_absolute, refuse
from tacit.cli.power_check import add_check
from tacit.cli.run_folder import RunFolder, run_folder
from tacit.errors import RUNS, InvalidInput, count
from tacit.files import save_figure, write_atomically

OF_ROUNDS = ("local_updates", "step_size", "noise_on", "perturbation", "calibration")


def add_power(add: Add) -> None:
    """The commands of ``tacit power``; ``add`` makes one of them."""
    solve = add(
        "solve",
        _solve,
        "Solve a grid's load shedding privately, zone by zone.",
        "tacit power solve case14 --zones 3 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit power solve mygrid.m --zones zones.csv --noise-every-round --epsilon 0.1 "
        "--mechanism laplace --rounds 100 --local-updates 5",
    )
    _grid_options(solve, required=False)
    solve.add_argument("--total-epsilon", type=float, help="epsilon of all that is released")
    solve.add_argument("--total-delta", type=float, help="delta of all that is released")
    solve.add_argument("--no-noise", action="store_true", help="not private: the exact answer")
    solve.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    solve.add_argument(
        "--tolerance",
        type=float,
        help="stop when both residuals, relative to the solution, are this small "
        "(default: 1e-4; 1e-6 without noise)",
    )
    solve.add_argument(
        "--rounds", type=int, help="at most so many (default: 1000; every round noisy: 100)"
    )
    solve.add_argument("--penalty", type=float, help="where the penalties start (default: chosen)")
    rounds = solve.add_argument_group("noise in every round (Algorithm 1 as in the paper)")
    rounds.add_argument(
        "--noise-every-round",
        action="store_true",
        help="read the loads in every round, and pay for each, instead of once",
    )
    rounds.add_argument("--epsilon", type=float, help="epsilon of one update")
    rounds.add_argument("--delta", type=float, help="delta of one gaussian update")
    rounds.add_argument("--local-updates", type=int, help="default: 1 with noise, 5 without")
    rounds.add_argument("--step-size", type=float, help="default: falls with the noise")
    rounds.add_argument("--noise-on", choices=("residual", "gradient"), default="residual")
    rounds.add_argument(
        "--perturbation",
        choices=("objective", "output", "projected-output"),
        default="objective",
    )
    rounds.add_argument(
        "--calibration",
        choices=("certified", "paper"),
        default="certified",
        help="paper: the paper's sensitivities, not certified",
    )
    add_run_options(solve, "the case's name + -result")

    bound = add(
        "bound",
        _bound,
        "The least generation cost over the relaxation: below that of any AC power flow.",
        "tacit power bound case118 --json",
    )
    bound.add_argument("case", help="MATPOWER file (.m) or a named case such as case14")

    add_check(add)

    attack = add(
        "attack",
        _attack,
        "What an eavesdropper learns about the loads, with and without privacy.",
        "tacit power attack case14",
    )
    _grid_options(attack, required=True)
    attack.add_argument(
        "--total-epsilons", type=float, nargs="+", default=[100.0, 10.0, 1.0], metavar="EPSILON"
    )
    attack.add_argument("--total-delta", type=float, default=1e-5)
    attack.add_argument("--rounds", type=int, default=50)
    attack.add_argument("--seeds", type=int, default=3)
    attack.add_argument("--out", help="folder for loads.csv and attack.png (default: case-attack)")


def _grid_options(command: Any, *, required: bool) -> None:
    command.add_argument(
        "case",
        nargs=None if required else "?",
        help="MATPOWER file (.m) or a named case such as case14",
    )
    command.add_argument(
        "--zones", default="3", help="a number, 'area', or a CSV file with columns bus, zone"
    )
    command.add_argument(
        "--beta",
        default="0.01",
        help="how far a bus's demands may move: per unit, '1%% of largest' or '1%% of bus'",
    )
    command.add_argument("--nominal", help="case whose public loads a percentage is taken of")


def _build(options: argparse.Namespace) -> Any:
    from tacit.power import build

    zones = int(options.zones) if options.zones.isdigit() else options.zones
    return build(
        options.case,
        zones,
        beta=options.beta,
        nominal=options.nominal,
        noise_on=getattr(options, "noise_on", "residual"),
    )


def _plan(options: argparse.Namespace, case: Any) -> Any:
    """How to spend the total budget, or that of one update, or to run without noise."""
    from tacit.admm.plan import MOST_ROUNDS, NOISELESS_TOLERANCE, TOLERANCE, Budget, Plan
    from tacit.admm.settings import Settings
    from tacit.power import scheduled

    given = [options.total_epsilon is not None, options.epsilon is not None, options.no_noise]
    if sum(given) != 1:
        raise InvalidInput(
            "Expected one of --total-epsilon, --epsilon (of one update) and --no-noise. "
            "Nothing was solved."
        )
    if options.epsilon is not None or options.noise_every_round:
        if options.tolerance is not None:
            raise InvalidInput(
                "Expected no --tolerance where every round adds noise: to stop when a number "
                "computed from the loads looks good would release it. Nothing was solved."
            )
        settings = scheduled(case, _every_round(options))
        return Plan(settings, None, settings.delta, "Noise in every round, as asked for.")
    refuse(
        options, OF_ROUNDS, "beside --noise-every-round: a run that reads the loads once has none"
    )
    rounds = MOST_ROUNDS if options.rounds is None else options.rounds
    others: dict[str, Any] = {"tolerance": NOISELESS_TOLERANCE if options.no_noise else TOLERANCE}
    for name in ("penalty", "tolerance"):
        if getattr(options, name) is not None:
            others[name] = getattr(options, name)
    if options.no_noise:
        return Settings(rounds, **others)
    budget = Budget(options.total_epsilon, options.total_delta or 0.0, options.mechanism, others)
    return budget.once("The loads are read once, with noise; exact steps follow.", rounds)


def _every_round(options: argparse.Namespace) -> Any:
    """Algorithm 1 as in the paper, for a total budget, for that of one update, or without noise."""
    from tacit.admm.settings import Settings
    from tacit.privacy.mechanisms import per_update

    name = options.mechanism
    others = {
        "perturbation": options.perturbation,
        "calibration": options.calibration,
        "penalty": options.penalty,
        "step_size": options.step_size,
    }
    rounds, updates = (300, 5) if options.no_noise else (100, 1)
    rounds = rounds if options.rounds is None else options.rounds
    updates = updates if options.local_updates is None else options.local_updates
    if options.no_noise:
        return Settings(rounds, updates, **others)
    if options.total_epsilon is not None:
        _check_delta(options)
        budget = options.total_epsilon, options.total_delta or 0.0
        return Settings.for_budget(*budget, rounds, updates, name, **others)
    if options.total_delta is not None:
        raise InvalidInput("Expected --delta beside --epsilon, got --total-delta.")
    delta = options.delta
    if name == "gaussian" and delta is None:
        raise InvalidInput("Expected --delta for gaussian noise of a given --epsilon.")
    delta = delta if name == "gaussian" else None
    mechanism = per_update(name, options.epsilon, delta, options.calibration)
    return Settings(rounds, updates, mechanism, options.delta or 0.0, **others)


def _check_delta(options: argparse.Namespace) -> None:
    if options.delta is not None:
        raise InvalidInput("Expected --total-delta beside --total-epsilon, got --delta.")
    if options.total_delta is None and options.mechanism == "gaussian":
        raise InvalidInput("Expected --total-delta for gaussian noise.")


def _solve(options: argparse.Namespace) -> int:
    with run_folder("power solve", options, "case", "-result") as (folder, options):
        result = folder.result()
        about: dict[str, Any] = {}
        # of a finished run its grid, if that is still there, is written and told too
        with folder.unless_finished():
            result, about = _run(options, folder)
    print_result(result, folder.path, options.json, about)
    return 0


def _run(options: argparse.Namespace, folder: RunFolder) -> tuple[Any, dict[str, Any]]:
    """The result and what it is about, both written to the folder."""
    from tacit.power import plot_grid

    case = _build(options)
    plan = _plan(options, case)
    named = ("zones",) if options.zones == "area" or options.zones.isdigit() else ()
    files = tuple(name for name in ("case", "zones", "nominal") if name not in named)
    make_absolute(options, files, folders=("ledgers",))
    result = folder.run(case.grid.name, case.problem, plan, options)
    folder.save(result)
    for name, table in case.tables(result.local).items():
        write_atomically(folder.path / f"{name}.csv", table.to_csv().encode())
    save_figure(folder.path / "grid.png", plot_grid(case, result), dpi=130)
    about = {
        "case": case.grid.name,
        "zones": {name: len(buses) for name, buses in case.zones.items()},
        "cut_lines": case.cut_lines,
    }
    return result, about


def _bound(options: argparse.Namespace) -> int:
    from tacit.power import bound, load_case

    grid = load_case(options.case)
    objective = bound(grid)
    if options.json:
        print(json.dumps({"case": grid.name, "buses": len(grid.bus), "objective": objective}))
    else:
        print(f"{grid.name}: at least {objective:.6g} $/h")
    return 0


def _attack(options: argparse.Namespace) -> int:
    from tacit.admm.settings import Settings
    from tacit.power import scheduled
    from tacit.power.load_recovery import attack
    from tacit.privacy.accounting import calibrate

    count("seeds", options.seeds, RUNS)
    case = _build(options)
    chosen = [("no privacy", Settings(options.rounds))]
    for epsilon in options.total_epsilons:
        private = Settings.for_budget(epsilon, options.total_delta, options.rounds)
        chosen.append((f"epsilon {epsilon:g}", private))
    chosen = [(label, scheduled(case, settings)) for label, settings in chosen]
    releases = [
        (f"epsilon {epsilon:g}, read once", calibrate("gaussian", epsilon, options.total_delta, 1))
        for epsilon in options.total_epsilons
    ]
    folder = Path(options.out or f"{Path(options.case).stem}-attack")
    folder.mkdir(parents=True, exist_ok=True)
    runs = 1 + 2 * options.seeds * len(options.total_epsilons)
    with progress_bar("runs") as bar:
        task = bar.add_task("attack", total=runs)
        found = attack(
            case,
            chosen,
            releases=releases,
            seeds=options.seeds,
            progress=lambda: bar.advance(task),
        )
    write_atomically(folder / "loads.csv", found.loads.to_csv(index=False).encode())
    save_figure(folder / "attack.png", found.plot(), dpi=130)
    if options.json:
        print(json.dumps({**found.to_dict(), "delta": options.total_delta, "folder": str(folder)}))
        return 0
    rows = [("guess without messages", f"{found.prior_error:.2g}", "")]
    for label in found.labels:
        floor = "" if label == "no privacy" else f"{found.floors[label]:.2g}"
        rows.append((label, f"{found.errors[label]:.2g}", floor))
    print_table(
        f"{case.grid.name}: error of the estimated loads (RMS, per unit)",
        ("", "eavesdropper", "least expected"),
        rows,
    )
    print(f"files: {folder}")
    return 0
