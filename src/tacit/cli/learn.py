"""The command ``tacit learn``."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.cli.learn_model import MODELS, model_of, prepared
from tacit.cli.learn_print import print_fit, tested_figures
from tacit.cli.options import Add, add_run_options, make_absolute, on_device, refuse
from tacit.cli.ranks import build
from tacit.cli.report import draw
from tacit.cli.run_folder import RunFolder, run_folder
from tacit.cli.training_data import IMAGE_MAPS, NAMED, featured, load, one_line
from tacit.errors import InvalidInput
from tacit.files import write_atomically


def add_learn(add: Add) -> None:
    learn = add(
        "learn",
        _learn,
        "Fit a private model over several agents.",
        "tacit learn digits --agents 10 --total-epsilon 2 --total-delta 1e-5\n"
        "  tacit learn mnist --data DIR --agents 10 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit learn prices.csv --target price --target-range 0:500 --range '*=0:10' "
        "--total-epsilon 1\n"
        "  tacit learn churn.csv --target churn --classes no,yes --agent-column hospital "
        "--range age=18:90 \\\n    --range fee=0:10 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit learn north.csv south.csv west.csv --target churn --range '*=0:10' "
        "--total-epsilon 1\n"
        "  tacit learn --resume churn-model\n\n"
        "commands of their own:\n"
        "  tacit learn attack --help      what an eavesdropper recovers\n"
        "  tacit learn download --help    get MNIST",
    )
    kinds = f"{', '.join(NAMED)}, or a CSV or Parquet file, or several: one for each agent"
    learn.add_argument("data_set", metavar="DATA", nargs="?", help=kinds)
    learn.add_argument("more", metavar="DATA", nargs="*", default=[], help="other agents' files")
    learn.add_argument("--data", help="folder with the files of mnist or femnist")
    learn.add_argument("--target", help="column with the labels of a table")
    learn.add_argument(
        "--target-range",
        metavar="LOW:HIGH",
        help="public range of a target that is a number: a regression (--target-range=-5:5 if it "
        "begins with a minus)",
    )
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
        "--categories",
        action="append",
        default=[],
        metavar="COLUMN=A,B,...",
        help="public list of a column's categories, each of which becomes a column of 0 and 1; a "
        "value that is not on it is 0 in all",
    )
    learn.add_argument(
        "--fill",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="public value for what is missing in a column; '*=NUMBER' is for all of numbers",
    )
    learn.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="a table's column not to use"
    )
    learn.add_argument("--id", metavar="COLUMN", help="the same, for names of records")
    learn.add_argument(
        "--test-share", type=float, default=0.2, help="of a table, or 0; default: 0.2"
    )
    learn.add_argument(
        "--agents", type=int, help="number of agents, for the splits without groups; default: 10"
    )
    learn.add_argument(
        "--split",
        choices=("iid", "group", "dirichlet"),
        help="default: group for data with groups, else iid; dirichlet is not certified",
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
    learn.add_argument("--local-updates", type=int, help="default: planned (1)")
    learn.add_argument(
        "--features",
        choices=("none", *IMAGE_MAPS, "fourier"),
        help="public map of each record; default: orientations for images, none for tables",
    )
    learn.add_argument(
        "--model",
        choices=tuple(MODELS),
        help="default: logistic, or huber where there is a --target-range",
    )
    learn.add_argument("--level", type=float, default=0.5, help="of --model quantile; default: 0.5")
    learn.add_argument(
        "--slope-limit",
        metavar="LENGTH",
        help="most that one record pulls, of a logistic model, or none; default: planned",
    )
    learn.add_argument(
        "--centring-share",
        metavar="SHARE",
        help="of the budget, for the mean that a classifier's rows are centred by, or none; "
        "default: planned",
    )
    learn.add_argument(
        "--feature-norm",
        type=float,
        help="public; longer rows are scaled down to this length; default: 1, for a regression on "
        "d columns sqrt(d/3)",
    )
    learn.add_argument("--bound", type=float, help="of every coefficient (a box)")
    learn.add_argument("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    add_run_options(learn, "the data's name + -model", "a twentieth of the rounds")


def _learn(options: argparse.Namespace) -> int:
    if options.data_set in ("attack", "download"):
        word = options.data_set
        raise InvalidInput(
            f"Expected {word} right after learn (tacit learn {word} --help), or ./{word} for a "
            "file of that name."
        )
    if options.more and options.out is None and options.resume is None:
        first = Path(options.data_set).stem
        options.out = f"{first}-and-{len(options.more)}-more-model"
    with run_folder("learn", options, "-model") as (folder, options):
        fitted = _fit(options, folder)
    draw(folder.path)
    print_fit(options, folder.path, *fitted)
    return 0


def _fit(options: argparse.Namespace, folder: RunFolder) -> tuple[Any, Any, Any, Any, Any]:
    """The model, written to the folder, with the data it was fitted on, those for the test, what
    was changed to make them, and what the test says."""
    from sklearn.pipeline import make_pipeline

    from tacit.learn import save_model
    from tacit.learn.linear import adopt

    if (options.total_epsilon is None) == (not options.no_noise):
        raise InvalidInput("Expected one of --total-epsilon and --no-noise. Nothing was fit.")
    label = str(options.target) if options.more else Path(options.data_set).stem
    with on_device(options.device):
        train, test, mapped = featured(options, load(options, options.data_set))
        agents = _agents(options, train)
        files = () if options.data_set in NAMED else ("data_set", "more")
        make_absolute(options, files, folders=("data", "ledgers"))
        model = model_of(options, train)
        with one_line():
            problem, settings = prepared(model, train, agents, options, folder, label)
        if options.crew is not None:
            mean = getattr(model, "mean_", None)
            told = {**vars(options), "mean": None if mean is None else mean.tolist()}
            build(options.crew, "learn", argparse.Namespace(**told))
        if options.evaluate_every is None:
            options.evaluate_every = max(1, settings.rounds // 20)
        found = folder.run(label, problem, settings, options)
    if options.split == "dirichlet":
        why = "records were dealt to agents by their labels: one label moves others' records."
        found = replace(found, privacy=replace(found.privacy, uncertified=why))
    adopt(model, problem, found)
    save_model(make_pipeline(*mapped.steps, model) if mapped.steps else model, folder.path)
    model.result_.save(folder.path)
    tested = tested_figures(model, train, test)
    write_atomically(folder.path / "figures.json", json.dumps(tested, indent=1).encode())
    return model, train, test, mapped, tested


def part(options: argparse.Namespace, rank: int, ranks: int) -> Any:
    """A rank's own agents. The data are one set: every rank reads it, and keeps its agents'."""
    import numpy as np

    from tacit.learn.linear import prepare
    from tacit.transports.mpi import Part, share_of

    train, _, _ = featured(options, load(options, options.data_set))
    mean = None if options.mean is None else np.array(options.mean)
    model = model_of(options, train)
    records = train.features, train.targets, _agents(options, train)
    with one_line():
        problem, _ = prepare(model, *records, mean=mean)
    mine = share_of(len(problem.agents), rank, ranks)
    named = list(zip(problem.names, problem.agents, strict=True))
    return Part(mine.start, named[mine.start : mine.stop])


def _agents(options: argparse.Namespace, train: Any) -> Any:
    """The agent of every record."""
    import numpy as np

    from tacit.learn import split

    grouped = train.groups is not None and options.agents is None
    how = options.split or ("group" if grouped else "iid")
    if options.more and (how != "group" or options.agents is not None):
        raise InvalidInput(
            "Expected several files without --agents and --split, as each is an agent's. Nothing "
            "was fit."
        )
    if options.agent_column is not None and (how != "group" or options.agents is not None):
        raise InvalidInput(
            "Expected --agent-column without --agents and --split, as it says whose record each "
            "is. Nothing was fit."
        )
    if how == "group" and options.agents is not None:
        raise InvalidInput("Expected --split group without --agents: there is one per group.")
    if how != "dirichlet":
        refuse(options, ("alpha",), "for --split dirichlet only")
    refuse(options, ("ledgers",) * (how == "dirichlet"), "without a split that is not certified")
    if how == "group":
        if train.groups is None:
            raise InvalidInput("Expected --agent-column, or data with groups, for --split group.")
        return train.groups
    owner = np.zeros(len(train), int)
    agents = 10 if options.agents is None else options.agents
    for p, rows in enumerate(split(train, agents, how, alpha=options.alpha)):
        owner[rows] = p
    return owner
