"""The command ``tacit learn``."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.cli.learn_print import print_fit, tested_figures
from tacit.cli.options import Add, add_run_options, make_absolute, on_device, refuse
from tacit.cli.ranks import build
from tacit.cli.report import draw
from tacit.cli.run_folder import MEAN, RunFolder, run_folder
from tacit.cli.training_data import (
    IMAGE_MAPS,
    NAMED,
    featured,
    given_classes,
    load,
    one_line,
    target_range,
)
from tacit.errors import InvalidInput
from tacit.files import write_atomically

# the estimator in tacit.learn, and whether it predicts a number
MODELS = {
    "logistic": ("PrivateLogisticRegression", False),
    "svm": ("PrivateLinearSVC", False),
    "huber": ("PrivateHuberRegressor", True),
    "ridge": ("PrivateRidge", True),
    "quantile": ("PrivateQuantileRegressor", True),
}
EXAMPLES = """tacit learn digits --agents 10 --total-epsilon 2 --total-delta 1e-5
  tacit learn mnist --data DIR --agents 10 --total-epsilon 1 --total-delta 1e-5
  tacit learn prices.csv --target price --target-range 0:500 --range '*=0:10' --total-epsilon 1
  tacit learn churn.csv --target churn --classes no,yes --agent-column hospital \\
    --range age=18:90 --range fee=0:10 --total-epsilon 1 --total-delta 1e-5
  tacit learn north.csv south.csv west.csv --target churn --range '*=0:10' --total-epsilon 1
  tacit learn --resume churn-model

commands of their own:
  tacit learn attack --help      what an eavesdropper recovers
  tacit learn download --help    get MNIST"""


def add_learn(add: Add) -> None:
    learn = add("learn", _learn, "Fit a private model over several agents.", EXAMPLES)
    option = learn.add_argument
    many: Any = {"action": "append", "default": []}
    kinds = f"{', '.join(NAMED)}, or a CSV or Parquet file, or several: one for each agent"
    option("data_set", metavar="DATA", nargs="?", help=kinds)
    option("more", metavar="DATA", nargs="*", default=[], help="other agents' files")
    option("--data", help="folder with the files of mnist or femnist")
    option("--target", help="column with the labels of a table")
    number = "public range of a target that is a number: a regression"
    minus = "--target-range=-5:5 if it begins with a minus"
    option("--target-range", metavar="LOW:HIGH", help=f"{number} ({minus})")
    labels = "public list of a table's labels; default: those there"
    option("--classes", metavar="A,B,...", help=labels)
    option("--agent-column", help="column that says whose record it is")
    ranged = "public range of a table's column, mapped to [-1, 1] and clipped"
    others = "every column needs one, '*=LOW:HIGH' is for all others"
    option("--range", **many, metavar="COLUMN=LOW:HIGH", help=f"{ranged}; {others}")
    listed = "public list of a column's categories, each of which becomes a column of 0 and 1"
    absent = "a value that is not on it is 0 in all"
    option("--categories", **many, metavar="COLUMN=A,B,...", help=f"{listed}; {absent}")
    filled = "public value for what is missing in a column; '*=NUMBER' is for all of numbers"
    option("--fill", **many, metavar="COLUMN=VALUE", help=filled)
    option("--drop", **many, metavar="COLUMN", help="a table's column not to use")
    option("--id", metavar="COLUMN", help="the same, for names of records")
    option("--test-share", type=float, default=0.2, help="of a table, or 0; default: 0.2")
    agents = "number of agents, for the splits without groups; default: 10"
    option("--agents", type=int, help=agents)
    split = "default: group for data with groups, else iid; dirichlet is not certified"
    option("--split", choices=("iid", "group", "dirichlet"), help=split)
    option("--alpha", type=float, default=0.5, help="of the Dirichlet split; default: 0.5")
    option("--total-epsilon", type=float, help="of the whole fit")
    delta = "of the whole fit, well below 1/records; default: 1e-5"
    option("--total-delta", type=float, default=1e-5, help=delta)
    option("--no-noise", action="store_true", help="not private")
    laws = ("gaussian", "laplace")
    option("--mechanism", choices=laws, default="gaussian", help="default: gaussian")
    option("--rounds", type=int, help="default: planned from public numbers")
    option("--local-updates", type=int, help="default: planned (1)")
    maps = "public map of each record; default: orientations for images, none for tables"
    option("--features", choices=("none", *IMAGE_MAPS, "fourier"), help=maps)
    model = "default: logistic, or huber where there is a --target-range"
    option("--model", choices=tuple(MODELS), help=model)
    option("--level", type=float, default=0.5, help="of --model quantile; default: 0.5")
    limit = "most that one record pulls, of a logistic model, or none; default: planned"
    option("--slope-limit", metavar="LENGTH", help=limit)
    share = "of the budget, for the mean that a classifier's rows are centred by, or none"
    option("--centring-share", metavar="SHARE", help=f"{share}; default: planned")
    longest = "public; longer rows are scaled down to this length"
    norms = "default: 1, for a regression on d columns sqrt(d/3)"
    option("--feature-norm", type=float, help=f"{longest}; {norms}")
    option("--bound", type=float, help="of every coefficient (a box)")
    option("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
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
        records = train.features, train.targets, _agents(options, train)
        files = () if options.data_set in NAMED else ("data_set", "more")
        make_absolute(options, files, folders=("data", "ledgers"))
        model = model_of(options, train)
        with one_line():
            problem, settings = prepared(model, records, options, folder, label)
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
    if how != "group" or options.agents is not None:
        for given, what in (
            (options.more, "several files without --agents and --split, as each is an agent's"),
            (
                options.agent_column is not None,
                "--agent-column without --agents and --split, as it says whose record each is",
            ),
            (how == "group", "--split group without --agents: there is one per group"),
        ):
            if given:
                raise InvalidInput(f"Expected {what}. Nothing was fit.")
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


def model_of(options: argparse.Namespace, train: Any) -> Any:
    """The estimator: for a number with a public range a regressor, else a classifier."""
    import tacit.learn

    target = target_range(options)
    chosen = options.model or ("logistic" if target is None else "huber")
    name, number = MODELS[chosen]
    if number != (target is not None):
        raise InvalidInput(
            f"Expected --target-range with --model huber, ridge or quantile, and without it with "
            f"logistic or svm, got --model {chosen}. Nothing was fit."
        )
    if chosen != "quantile":
        refuse(options, ("level",), "for --model quantile only")
    if chosen != "logistic":
        refuse(options, ("slope_limit",), "for --model logistic only")
    same = "total_epsilon", "total_delta", "mechanism", "rounds", "local_updates", "noise"
    public: dict[str, Any] = {n: getattr(options, n) for n in (*same, "ledgers", "feature_norm")}
    public["constraint"] = None if options.bound is None else tacit.learn.Box(options.bound)
    if number:
        refuse(options, ("centring_share",), "for classifiers only")
        level = {"level": options.level} if chosen == "quantile" else {}
        return getattr(tacit.learn, name)(target_range=target, **level, **public)
    classes = None if train.columns else list(train.names)  # a table's are read off it
    if options.classes is not None:
        classes = given_classes(options)
    public["centring_share"] = _planned(options.centring_share, "--centring-share")
    if chosen == "logistic":
        public["slope_limit"] = _planned(options.slope_limit, "--slope-limit")
    if public["feature_norm"] is None:
        public["feature_norm"] = 1.0
    return getattr(tacit.learn, name)(classes=classes, **public)


def _planned(text: str | None, option: str) -> float | str | None:
    """A number, none, or nothing: then it is planned."""
    if text is None or text == "none":
        return "auto" if text is None else None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"Expected {option} as a number or none, got {text!r}.") from None


def prepared(
    model: Any, records: Any, options: argparse.Namespace, folder: RunFolder, label: str
) -> tuple[Any, Any]:
    """What the fit solves. A mean is released in a folder that was made, and kept there: a run that
    is continued goes on with what was released, of the same data."""
    from tacit.learn.linear import prepare

    kept = folder.path / MEAN
    if getattr(model, "centring_share", None) is None:
        return prepare(model, *records)
    noisy, free = options.total_epsilon is not None, options.ledgers is not None
    if noisy and folder.has_begun and not (free or kept.is_file()):
        raise InvalidInput(
            f"Expected {MEAN} of the run in {folder.path}, found none: another mean of the same "
            "data would be a second release. Nothing was read."
        )
    folder.start(label, options)
    had = kept.exists()
    try:
        return prepare(model, *records, seed=options.seed, checkpoint=kept)
    finally:
        if kept.exists() and not had:
            folder.has_paid()
