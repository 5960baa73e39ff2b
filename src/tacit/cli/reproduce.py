"""The command ``tacit reproduce``: the paper's figures, and its claims one by one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tacit.cli.console import print_table, progress_bar
from tacit.cli.interrupts import hint
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
    reproduce.add_argument(
        "--calibration", choices=("paper", "certified"), help="case14, case118; default: paper"
    )


def _reproduce(options: argparse.Namespace) -> int:
    power = options.figure in POWER
    wrong = ("data", "device") if power else ("case", "workers", "calibration")
    for name in wrong:
        if getattr(options, name) is not None:
            raise InvalidInput(f"Expected no --{name} for {options.figure}. Nothing was run.")
    return _power(options) if power else _learning(options)


def _with_bar(label: str, work: Callable[..., Any]) -> None:
    with progress_bar("updates") as bar:
        task = bar.add_task(label, total=None)
        hint(lambda: "the same command continues where this one stopped")
        work(progress=lambda done, total: bar.update(task, completed=done, total=total))


def _learning(options: argparse.Namespace) -> int:
    from tacit.lab.reproduce.learning import Experiment, claims, final_errors, load
    from tacit.lab.reproduce.learning_runs import run_experiment

    if options.data is None:
        raise InvalidInput(
            f"Expected --data, a folder with the files of {options.figure} (tacit learn download "
            "gets MNIST). Nothing was run."
        )
    changes = {"seeds": options.seeds, "rounds": options.rounds}
    experiment = Experiment.named(
        options.figure, **{k: v for k, v in changes.items() if v is not None}
    )
    folder = Path(options.out or f"reproduce-{options.figure}")
    with on_device(options.device):
        _with_bar(options.figure, partial(run_experiment, experiment, options.data, folder))
    _, traces = load(folder)
    checked, errors = claims(experiment, traces), final_errors(traces)
    if options.json:
        print(json.dumps({"claims": checked, "errors": errors, "folder": str(folder)}))
        return 0
    print_table(
        experiment.title, ("claim", "verdict"), [(c["claim"], c["verdict"]) for c in checked]
    )
    rows = [
        (
            f"{e['algorithm']}, E = {e['local_updates']}, penalty {e['penalty']}, "
            f"epsilon {e['epsilon']:g}",
            f"{e['test_error_percent']:.2f} %",
        )
        for e in errors
    ]
    print_table("test errors after the last round", ("", ""), rows)
    print(f"figure, numbers and claims: {folder}")
    return 0


def _power(options: argparse.Namespace) -> int:
    from tacit.lab.reproduce.power import Experiment, claims, load, table1
    from tacit.lab.reproduce.power_runs import run_experiment

    changes = {"seeds": options.seeds, "rounds": options.rounds, "case": options.case}
    experiment = Experiment.named(
        options.figure,
        calibration=options.calibration or "paper",
        **{k: v for k, v in changes.items() if v is not None},
    )
    folder = Path(options.out or f"reproduce-{options.figure}")
    work = partial(run_experiment, experiment, folder, workers=options.workers)
    _with_bar(options.figure, work)
    _, traces = load(folder)
    checked, variances = claims(experiment, traces), table1(experiment)
    if options.json:
        print(json.dumps({"claims": checked, "table1": variances, "folder": str(folder)}))
        return 0
    print_table(
        experiment.title, ("claim", "verdict"), [(c["claim"], c["verdict"]) for c in checked]
    )
    print_table("Table 1: variances", list(variances[0])[:5], [_short(row) for row in variances])
    print(f"figure, numbers and claims: {folder}")
    return 0


def _short(row: dict[str, Any]) -> Sequence[str]:
    return [f"{value:.4g}" for value in list(row.values())[:5]]
