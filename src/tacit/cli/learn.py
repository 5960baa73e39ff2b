"""The command ``tacit learn``."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.cli.console import claim_folder, print_table, progress_bar
from tacit.cli.learn_attack import OPTIONS, add_attack, run_attack
from tacit.cli.learn_data import load, on_device, one_line, refuse
from tacit.errors import InvalidInput

Add = Callable[..., Any]


def add_learn(add: Add) -> None:
    learn = add(
        "learn",
        _learn,
        "Fit a private classifier over several agents.",
        "tacit learn digits --agents 10 --total-epsilon 2 --total-delta 1e-5\n"
        "  tacit learn mnist --data DIR --agents 10 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit learn churn.csv --target churn --classes no,yes --agent-column hospital "
        "--range age=18:90 \\\n    --range fee=0:10 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit learn attack digits --records 4 --total-epsilons 100 10 1\n"
        "  tacit learn download --data DIR",
    )
    kinds = "digits, mnist, femnist, a CSV or Parquet file; attack; download"
    learn.add_argument("data_set", metavar="DATA", help=kinds)
    add_attack(learn)
    learn.add_argument("--data", help="folder with the files of mnist or femnist")
    learn.add_argument("--target", help="column with the labels of a table")
    learn.add_argument(
        "--classes", metavar="A,B,...", help="public list of a table's labels; default: those there"
    )
    learn.add_argument("--agent-column", help="column that says whose record it is")
    learn.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW:HIGH",
        help="public range of a table's column, mapped to [-1, 1] and clipped; every column needs "
        "one, '*=LOW:HIGH' is for all others",
    )
    learn.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="a table's column not to use"
    )
    learn.add_argument("--test-share", type=float, default=0.2, help="of a table; default: 0.2")
    learn.add_argument(
        "--agents", type=int, help="number of agents, for the splits without groups; default: 10"
    )
    learn.add_argument(
        "--split",
        choices=("iid", "group", "dirichlet"),
        help="default: group for data with groups, else iid",
    )
    learn.add_argument(
        "--alpha", type=float, default=0.5, help="of the Dirichlet split; default: 0.5"
    )
    learn.add_argument("--total-epsilon", type=float, help="of the whole fit")
    learn.add_argument(
        "--total-delta",
        type=float,
        default=1e-5,
        help="of the whole fit, well below 1/records; default: 1e-5",
    )
    learn.add_argument("--no-noise", action="store_true", help="not private")
    learn.add_argument(
        "--mechanism",
        choices=("gaussian", "laplace"),
        default="gaussian",
        help="default: gaussian",
    )
    learn.add_argument("--rounds", type=int, help="default: planned from public numbers")
    learn.add_argument("--local-updates", type=int, help="default: planned (5)")
    learn.add_argument(
        "--feature-norm",
        type=float,
        default=1.0,
        help="public; longer rows are scaled down to this length; default: 1",
    )
    learn.add_argument("--bound", type=float, help="of every coefficient (a box)")
    learn.add_argument("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    learn.add_argument("--seed", type=int, help="noise from a seed, for research")
    learn.add_argument(
        "--noise",
        choices=("seeded", "secure"),
        help="as in tacit solve (default with --ledgers: secure)",
    )
    learn.add_argument("--ledgers", metavar="DIR", help="folder with AGENT.db for every agent")
    learn.add_argument("--out", help="folder (default: the data's name + -model or -attack)")
    learn.set_defaults(parser=learn)
    predict = add(
        "predict",
        _predict,
        "Classify the records of a table with a model that tacit learn fitted on a table.",
        "tacit predict churn-model new.csv --out predictions.csv",
    )
    predict.add_argument("folder", help="folder of the model")
    predict.add_argument("table", help="CSV or Parquet file with the model's columns")
    predict.add_argument("--out", help="CSV file to write (default: standard output)")


def _learn(options: argparse.Namespace) -> int:
    if options.data_set == "download":
        return _download(options)
    if options.data_set == "attack":
        return run_attack(options)
    refuse(options, ("attacked", *OPTIONS), "with attack only")
    if (options.total_epsilon is None) == (not options.no_noise):
        raise InvalidInput("Expected one of --total-epsilon and --no-noise. Nothing was fit.")
    import numpy as np
    from sklearn.pipeline import make_pipeline

    from tacit.learn import Box, PrivateLogisticRegression, save_model
    from tacit.privacy.accounting import rounded_up

    folder = Path(options.out or f"{Path(options.data_set).stem}-model")
    claim_folder(folder, "")
    train, test, ranges = load(options, options.data_set)
    agents = _agents(options, train)
    classes = None if train.columns else list(train.names)  # a table's are read off it
    if options.classes is not None:
        classes = [name.strip() for name in options.classes.split(",")]
    model = PrivateLogisticRegression(
        options.total_epsilon,
        options.total_delta,
        feature_norm=options.feature_norm,
        constraint=None if options.bound is None else Box(options.bound),
        classes=classes,
        mechanism=options.mechanism,
        rounds=options.rounds,
        local_updates=options.local_updates,
        random_state=options.seed,
        noise=options.noise,
        ledgers=options.ledgers,
    )
    labels, test_labels = (np.array(part.names)[part.labels] for part in (train, test))
    with one_line(), on_device(options.device), progress_bar("rounds") as bar:
        task = bar.add_task(Path(options.data_set).stem, total=None)
        model.fit(
            train.features,
            labels,
            agents=agents,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    result = model.result_
    save_model(model if ranges is None else make_pipeline(ranges, model), folder)
    result.save(folder)  # last: with it the folder is whole
    error = float(1 - model.score(test.features, test_labels))
    settings = result.settings
    document = {
        "test_error": error,
        "train_objective": float(result.trace["objective"][-1]),
        **{k: result.privacy.to_dict()[k] for k in ("epsilon", "delta", "certified", "statement")},
        "rounds": settings.rounds,
        "local_updates": settings.local_updates,
        "seed": options.seed,
        "agents": len(result.names),
        "records": len(train),
        "classes": model.classes_.tolist(),
        "folder": str(folder),
    }
    spent = [("noise", "none")]
    if document["epsilon"] is None:
        document["delta"] = None
    else:
        spent = [
            ("total epsilon", rounded_up(document["epsilon"], 4)),
            ("total delta", f"{document['delta']:g}"),
        ]
    if options.json:
        print(json.dumps(document))
        return 0
    print_table(
        f"{len(result.names)} agents, {len(train)} records, {len(model.classes_)} classes",
        ("", ""),
        [
            (f"test error ({len(test)} records; not covered)", f"{100 * error:.2f} %"),
            (
                "training objective (not covered: keep secret)",
                f"{document['train_objective']:.4g}",
            ),
            ("rounds, local updates", f"{settings.rounds}, {settings.local_updates}"),
            *spent,
        ],
    )
    print(result.privacy.words)
    print(f"files: {folder}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from tacit.learn import load_model
    from tacit.learn.data import numbers_of, read_table

    model = load_model(options.folder)
    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        raise InvalidInput(f"Expected a model of a table in {options.folder}, got one of images.")
    table = read_table(options.table)
    absent = [name for name in columns if name not in table]
    if absent:
        raise InvalidInput(
            f"Expected the model's columns in {options.table}, got no {absent[0]!r} "
            f"({len(absent)} of {len(columns)} are not there). Nothing was predicted."
        )
    table = table[list(columns)]
    numbers_of(table, options.table)
    found, shares = model.predict(table).tolist(), model.predict_proba(table)
    classes = model.classes_.tolist()
    if options.json:
        document = {"classes": classes, "predictions": found, "probabilities": shares.tolist()}
        print(json.dumps(document))
        if not options.out:
            return 0
    with (
        open(options.out, "w", newline="")
        if options.out
        else contextlib.nullcontext(sys.stdout) as file
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["prediction", *(f"probability of {name}" for name in classes)])
        for label, row in zip(found, shares.tolist(), strict=True):
            writer.writerow([label, *(f"{share:.6g}" for share in row)])
    return 0


def _agents(options: argparse.Namespace, train: Any) -> Any:
    """The agent of every record."""
    import numpy as np

    from tacit.learn import split

    grouped = train.groups is not None and options.agents is None
    how = options.split or ("group" if grouped else "iid")
    if options.agent_column is not None and (how != "group" or options.agents is not None):
        raise InvalidInput(
            "Expected --agent-column without --agents and --split, as it says whose record each "
            "is. Nothing was fit."
        )
    if how == "group" and options.agents is not None:
        raise InvalidInput("Expected --split group without --agents: there is one per group.")
    if how != "dirichlet":
        refuse(options, ("alpha",), "for --split dirichlet only")
    if how == "group":
        if train.groups is None:
            raise InvalidInput("Expected --agent-column, or data with groups, for --split group.")
        return train.groups
    owner = np.zeros(len(train), int)
    agents = 10 if options.agents is None else options.agents
    for p, rows in enumerate(split(train, agents, how, alpha=options.alpha)):
        owner[rows] = p
    return owner


def _download(options: argparse.Namespace) -> int:
    from tacit.learn.download import download_mnist

    if options.data is None:
        raise InvalidInput("Expected --data, the folder to put MNIST in.")
    with progress_bar("bytes") as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        folder = download_mnist(options.data, progress=show)
    print(json.dumps({"folder": str(folder)}) if options.json else f"files: {folder}")
    return 0
