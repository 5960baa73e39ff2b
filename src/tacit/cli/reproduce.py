"""The command ``tacit reproduce``: the paper's figures, and its claims one by one."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from tacit.cli.console import hints, progress_bar, tell
from tacit.cli.options import Add, on_device
from tacit.errors import InvalidInput

POWER = ("case14", "case118")
LEARNING = ("mnist", "femnist", "hyper", "hyper-femnist")


def add_reproduce(add: Add) -> None:
    reproduce = add(
        "reproduce",
        _reproduce,
        "Make a figure of the paper again and check its claims one by one.",
        "tacit reproduce case14",
    )
    reproduce.add_argument("figure", choices=POWER + LEARNING)
    reproduce.add_argument("--out", help="folder (default: reproduce-FIGURE)")
    reproduce.add_argument("--seeds", type=int, help="runs of every curve (default: 10 or 5)")
    reproduce.add_argument("--rounds", type=int, help="default: the paper's")
    reproduce.add_argument(
        "--data", help="folder with the data (mnist, femnist, hyper, hyper-femnist)"
    )
    reproduce.add_argument(
        "--device", choices=("cpu", "gpu"), help="default: a GPU if there is one"
    )
    reproduce.add_argument("--case", help="another grid, such as a PGLib file (case14, case118)")
    reproduce.add_argument("--workers", type=int, help="processes (case14, case118)")


def _reproduce(options: argparse.Namespace) -> int:
    power = options.figure in POWER
    wrong = ("data", "device") if power else ("case", "workers")
    for name in wrong:
        if getattr(options, name) is not None:
            raise InvalidInput(f"Expected no --{name} for {options.figure}. Nothing was run.")
    if not power and options.data is None:
        raise InvalidInput(
            f"Expected --data, a folder with the files of {options.figure} (tacit learn download "
            "gets MNIST). Nothing was run."
        )
    application = import_module(f"tacit.lab.reproduce.{'power' if power else 'learning'}")
    given = {name: getattr(options, name) for name in ("seeds", "rounds", "case")}
    experiment = application.Experiment.named(
        options.figure, **{name: value for name, value in given.items() if value is not None}
    )
    folder = Path(options.out or f"reproduce-{options.figure}")
    source = options.workers if power else options.data
    with on_device(options.device), progress_bar("updates") as bar:
        task = bar.add_task(options.figure, total=None)
        hints.append(lambda: "the same command continues where this one stopped")
        tables = experiment.make(
            folder,
            source,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    claims = [(claim["claim"], claim["verdict"]) for claim in tables["claims"]]
    if power:
        variances = [dict(list(row.items())[:5]) for row in tables["table1"]]
        values = [[f"{value:.4g}" for value in row.values()] for row in variances]
        table: Any = "Table 1: variances", list(variances[0]), values
    else:
        errors = []
        for e in tables["errors"]:
            run = f"{e['algorithm']}, E = {e['local_updates']}, penalty {e['penalty']}"
            share = f"{e['test_error_percent']:.2f} %"
            errors.append((f"{run}, epsilon {e['epsilon']:g}", share))
        table = "test errors after the last round", ("", ""), errors
    return tell(
        options.json,
        {**tables, "folder": str(folder)},
        (experiment.title, ("claim", "verdict"), claims),
        table,
        f"figure, numbers and claims: {folder}",
    )
