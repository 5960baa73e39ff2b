"""The command ``tacit learn attack``: what an eavesdropper recovers from one agent's messages."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tacit.cli.console import claim_folder, print_table, progress_bar
from tacit.cli.learn_data import load, on_device, refuse
from tacit.errors import RUNS, InvalidInput, count
from tacit.files import save_figure

OPTIONS = ("records", "total_epsilons", "seeds")  # of the attack only
FIT = (
    "target",
    "agent_column",
    "range",
    "split",
    "no_noise",
    "local_updates",
    "seed",
    "noise",
    "ledgers",
)


def add_attack(learn: Any) -> None:
    learn.add_argument("attacked", nargs="?", metavar="digits|mnist", help="with attack: the data")
    learn.add_argument("--records", type=int, default=4, help="attack: of each agent; default: 4")
    tried = "attack: budgets to try; default: 100 10 1"
    learn.add_argument("--total-epsilons", type=float, nargs="+", metavar="EPSILON", help=tried)
    learn.add_argument("--seeds", type=int, default=3, help="attack: runs of each; default: 3")


def run_attack(options: argparse.Namespace) -> int:
    from tacit.learn.record_recovery import attack

    refuse(options, FIT, "without attack only")
    if options.attacked not in ("digits", "mnist"):
        raise InvalidInput(f"Expected attack digits or attack mnist, got {options.attacked!r}.")
    if not 1 <= options.records <= 8:
        raise InvalidInput(f"Expected 1 to 8 records of each agent, got {options.records}.")
    count("seeds", options.seeds, RUNS)
    budgets = options.total_epsilons or [100.0, 10.0, 1.0]
    if options.total_epsilon is not None:
        refuse(options, ("total_epsilons",), "without --total-epsilon")
        budgets = [options.total_epsilon]
    folder = Path(options.out or f"{options.attacked}-attack")
    claim_folder(folder, "")
    train, test, _ = load(options, options.attacked)
    with on_device(options.device), progress_bar("runs") as bar:
        task = bar.add_task("attack", total=1 + options.seeds * len(budgets))
        found = attack(
            train,
            test,
            budgets,
            options.total_delta,
            records=options.records,
            agents=10 if options.agents is None else options.agents,
            rounds=50 if options.rounds is None else options.rounds,
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
