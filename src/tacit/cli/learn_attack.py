"""The command ``tacit learn attack``: what an eavesdropper recovers from one agent's messages."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit.cli.console import print_table, progress_bar
from tacit.cli.options import Add, on_device, refuse
from tacit.cli.run_folder import refuse_used
from tacit.cli.training_data import load
from tacit.errors import RUNS, InvalidInput, count
from tacit.files import save_figure


def add_attack(add: Add) -> None:
    attack = add(
        "learn attack",
        _attack,
        "What an eavesdropper recovers from an agent's messages, with and without privacy.",
        "tacit learn attack digits --records 4 --total-epsilons 100 10 1",
    )
    attack.add_argument("attacked", choices=("digits", "mnist"), help="the data")
    attack.add_argument("--data", help="folder with the files of mnist")
    attack.add_argument("--records", type=int, default=4, help="of each agent; default: 4")
    attack.add_argument("--agents", type=int, default=10, help="default: 10")
    tried = "budgets to try; default: 100 10 1"
    attack.add_argument("--total-epsilons", type=float, nargs="+", metavar="EPSILON", help=tried)
    attack.add_argument("--total-epsilon", type=float, help="one budget to try")
    attack.add_argument("--total-delta", type=float, default=1e-5, help="default: 1e-5")
    attack.add_argument("--seeds", type=int, default=3, help="runs of each; default: 3")
    attack.add_argument("--rounds", type=int, default=50, help="default: 50")
    attack.add_argument(
        "--mechanism",
        choices=("gaussian", "laplace"),
        default="gaussian",
        help="default: gaussian",
    )
    attack.add_argument("--feature-norm", type=float, default=1.0, help="public; default: 1")
    attack.add_argument("--bound", type=float, help="of every coefficient (a box)")
    attack.add_argument("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    attack.add_argument("--out", help="folder (default: the data's name + -attack)")


def _attack(options: argparse.Namespace) -> int:
    from tacit.lab.record_recovery import attack

    if not 1 <= options.records <= 8:
        raise InvalidInput(f"Expected 1 to 8 records of each agent, got {options.records}.")
    count("seeds", options.seeds, RUNS)
    budgets = options.total_epsilons or [100.0, 10.0, 1.0]
    if options.total_epsilon is not None:
        refuse(options, ("total_epsilons",), "without --total-epsilon")
        budgets = [options.total_epsilon]
    folder = Path(options.out or f"{options.attacked}-attack")
    refuse_used(folder)
    train, test, _ = load(options, options.attacked)
    with on_device(options.device), progress_bar("runs") as bar:
        task = bar.add_task("attack", total=1 + options.seeds * len(budgets))
        found = attack(
            train,
            test,
            budgets,
            options.total_delta,
            records=options.records,
            agents=options.agents,
            rounds=options.rounds,
            seeds=options.seeds,
            feature_norm=options.feature_norm,
            bound=options.bound,
            mechanism=options.mechanism,
            progress=lambda: bar.advance(task),
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(folder / "attack.png", found.plot(), dpi=130)
    if options.json:
        print(json.dumps({**found.to_dict(), "seeds": options.seeds, "folder": str(folder)}))
        return 0
    print_table(
        f"{options.attacked}: {len(found.labels)} images of agents with {options.records} each",
        ("", "error", "correlation", "labels found"),
        found.table(),
    )
    for name, one in found.found.items():
        print(f"{name}: {one.privacy.words}")
    print("Every statement is about one run. Budgets of several runs on the same data add up.")
    print(f"files: {folder}")
    return 0
