"""The commands ``tacit power bound`` and ``tacit power attack``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit.cli.console import print_table, progress_bar
from tacit.cli.options import Add
from tacit.cli.power import add_grid, build_case
from tacit.errors import RUNS, count
from tacit.files import save_figure, write_atomically


def add_bound(add: Add) -> None:
    bound = add(
        "bound",
        _bound,
        "The least generation cost over the relaxation: below that of any AC power flow.",
        "tacit power bound case118 --json",
    )
    bound.add_argument("case", help="MATPOWER file (.m) or a named case such as case14")


def add_attack(add: Add) -> None:
    attack = add(
        "attack",
        _attack,
        "What an eavesdropper learns about the loads, with and without privacy.",
        "tacit power attack case14",
    )
    add_grid(attack, required=True)
    attack.add_argument(
        "--total-epsilons", type=float, nargs="+", default=[100.0, 10.0, 1.0], metavar="EPSILON"
    )
    attack.add_argument("--total-delta", type=float, default=1e-5)
    attack.add_argument("--rounds", type=int, default=50)
    attack.add_argument("--seeds", type=int, default=3)
    attack.add_argument("--out", help="folder for loads.csv and attack.png (default: case-attack)")


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
    from tacit.lab.load_recovery import attack
    from tacit.planning import least_noise
    from tacit.power import scheduled

    count("seeds", options.seeds, RUNS)
    case = build_case(options)
    problem = case.problem
    chosen = [("no privacy", Settings(options.rounds))]
    for epsilon in options.total_epsilons:
        private = Settings.for_budget(epsilon, options.total_delta, options.rounds)
        chosen.append((f"epsilon {epsilon:g}", private))
    chosen = [(label, scheduled(case, settings)) for label, settings in chosen]
    releases = [
        (f"epsilon {epsilon:g}, read once", least_noise(problem, epsilon, options.total_delta))
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
