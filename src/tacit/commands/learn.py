"""The command ``tacit learn``."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tacit.accounting import rounded_up
from tacit.console import claim_folder, print_table, progress_bar
from tacit.errors import InvalidInput, count

Add = Callable[..., Any]
ATTACK = ("records", "total_epsilons", "seeds")  # options of the attack only
FIT = ("target", "agent_column", "range", "split", "no_noise", "local_updates", "seed")


def add_learn(add: Add) -> None:
    learn = add(
        "learn",
        _learn,
        "Fit a private classifier over several agents.",
        "tacit learn digits --agents 10 --total-epsilon 2 --total-delta 1e-5\n"
        "  tacit learn mnist --data DIR --agents 10 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit learn churn.csv --target churn --agent-column hospital --total-epsilon 1 "
        "--total-delta 1e-5\n"
        "  tacit learn attack digits --records 4 --total-epsilons 100 10 1\n"
        "  tacit learn download --data DIR",
    )
    kinds = "digits, mnist, femnist, a CSV or Parquet file; attack; download"
    learn.add_argument("data_set", metavar="DATA", help=kinds)
    learn.add_argument("attacked", nargs="?", metavar="digits|mnist", help="with attack: the data")
    learn.add_argument("--data", help="folder with the files of mnist or femnist")
    learn.add_argument("--target", help="column with the labels of a table")
    learn.add_argument("--agent-column", help="column that says whose record it is")
    learn.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW:HIGH",
        help="public range of a table's column, mapped to [-1, 1]; may be repeated",
    )
    learn.add_argument("--test-share", type=float, default=0.2, help="of a table; default: 0.2")
    learn.add_argument("--agents", type=int, help="number of agents, for the splits without groups")
    learn.add_argument("--split", choices=("iid", "group", "dirichlet"))
    learn.add_argument("--alpha", type=float, default=0.5, help="of the Dirichlet split")
    learn.add_argument("--total-epsilon", type=float)
    learn.add_argument("--total-delta", type=float, default=1e-5)
    learn.add_argument("--no-noise", action="store_true", help="not private")
    learn.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    learn.add_argument("--rounds", type=int, help="default: planned from public numbers")
    learn.add_argument("--local-updates", type=int, help="default: planned")
    learn.add_argument("--feature-norm", type=float, default=1.0, help="of the longest row")
    learn.add_argument("--bound", type=float, help="of every coefficient (a box)")
    learn.add_argument("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    learn.add_argument("--seed", type=int, help="noise from a seed, for research")
    learn.add_argument("--out", help="folder (default: the data's name + -model or -attack)")
    learn.add_argument("--records", type=int, default=4, help="attack: of each agent; default: 4")
    tried = "attack: budgets to try; default: 100 10 1"
    learn.add_argument("--total-epsilons", type=float, nargs="+", metavar="EPSILON", help=tried)
    learn.add_argument("--seeds", type=int, default=3, help="attack: runs of each; default: 3")
    learn.set_defaults(parser=learn)


@contextlib.contextmanager
def on_device(name: str | None) -> Iterator[None]:
    """Compute on the CPU or on a GPU."""
    import jax

    if name is None:
        yield
        return
    try:
        device = jax.devices(name)[0]
    except RuntimeError:
        raise InvalidInput(
            f"Expected a {name} that JAX can use, found {jax.devices()[0].platform} only. "
            "Nothing was run."
        ) from None
    with jax.default_device(device):
        yield


def _learn(options: argparse.Namespace) -> int:
    if options.data_set == "download":
        return _download(options)
    if options.data_set == "attack":
        return _attack(options)
    _refuse(options, ("attacked", *ATTACK), "with attack only")
    if (options.total_epsilon is None) == (not options.no_noise):
        raise InvalidInput("Expected one of --total-epsilon and --no-noise. Nothing was fit.")
    from tacit.learn import Box, PrivateLogisticRegression

    folder = Path(options.out or f"{Path(options.data_set).stem}-model")
    claim_folder(folder, "")
    train, test = _load(options, options.data_set)
    agents = _agents(options, train)
    model = PrivateLogisticRegression(
        options.total_epsilon,
        options.total_delta,
        feature_norm=options.feature_norm,
        constraint=None if options.bound is None else Box(options.bound),
        classes=None if train.columns else list(range(train.classes)),  # a table's are read off it
        mechanism=options.mechanism,
        rounds=options.rounds,
        local_updates=options.local_updates,
        random_state=options.seed,
    )
    with on_device(options.device), progress_bar("rounds") as bar:
        task = bar.add_task(Path(options.data_set).stem, total=None)
        model.fit(
            train.features,
            train.labels,
            agents=agents,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    result = model.result_
    result.save(folder)
    error = float(1 - model.score(test.features, test.labels))
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
        "classes": list(train.names),
        "folder": str(folder),
    }
    if options.json:
        print(json.dumps(document))
        return 0
    epsilon = "none" if document["epsilon"] is None else rounded_up(document["epsilon"], 4)
    print_table(
        f"{len(result.names)} agents, {len(train)} records, {train.classes} classes",
        ("", ""),
        [
            (f"test error ({len(test)} records; not covered)", f"{100 * error:.2f} %"),
            ("training objective (private)", f"{document['train_objective']:.4g}"),
            ("rounds, local updates", f"{settings.rounds}, {settings.local_updates}"),
            ("total epsilon", epsilon),
            ("total delta", f"{document['delta']:g}"),
        ],
    )
    print(result.privacy.words)
    print(f"files: {folder}")
    return 0


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value != options.parser.get_default(name):
            raise InvalidInput(f"Expected {name} {why}, got {name}={value!r}. Nothing was started.")


def _attack(options: argparse.Namespace) -> int:
    from tacit.learn.attack import attack

    _refuse(options, FIT, "without attack only")
    if options.attacked not in ("digits", "mnist"):
        raise InvalidInput(f"Expected attack digits or attack mnist, got {options.attacked!r}.")
    if not 1 <= options.records <= 8:
        raise InvalidInput(f"Expected 1 to 8 records of each agent, got {options.records}.")
    count("seeds", options.seeds)
    budgets = options.total_epsilons or [100.0, 10.0, 1.0]
    if options.total_epsilon is not None:
        _refuse(options, ("total_epsilons",), "without --total-epsilon")
        budgets = [options.total_epsilon]
    folder = Path(options.out or f"{options.attacked}-attack")
    claim_folder(folder, "")
    train, test = _load(options, options.attacked)
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
    found.plot().savefig(folder / "attack.png", dpi=130)
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


def _load(options: argparse.Namespace, name: str) -> tuple[Any, Any]:
    """Training and test data."""
    import numpy as np

    from tacit.learn import load_digits, load_leaf, load_mnist, load_table

    if name in ("mnist", "femnist") and options.data is None:
        raise InvalidInput(f"Expected --data, the folder with the files of {name}.")
    if name == "digits":
        return load_digits(), load_digits("test")
    if name == "mnist":
        return load_mnist(options.data), load_mnist(options.data, "test")
    if name == "femnist":
        folder = Path(options.data)
        return load_leaf(folder / "train"), load_leaf(folder / "test")
    if not Path(name).is_file():
        raise InvalidInput(
            f"Expected digits, mnist, femnist, or a CSV or Parquet file, got {name!r}."
        )
    if options.target is None:
        raise InvalidInput("Expected --target, the column with the labels of the table.")
    if not 0 < options.test_share < 1:
        raise InvalidInput(f"Expected 0 < test-share < 1, got {options.test_share}.")
    data = load_table(name, options.target, options.agent_column)
    features = _in_ranges(data, options.range)
    data = type(data)(features, data.labels, data.names, data.groups, data.columns)
    order = np.random.default_rng(0).permutation(len(data))
    cut = max(1, round(options.test_share * len(data)))
    return data.part(np.sort(order[cut:])), data.part(np.sort(order[:cut]))


def _in_ranges(data: Any, ranges: list[str]) -> Any:
    """Columns with a public range mapped to [−1, 1] and clipped; the others as they are."""
    import numpy as np

    features = data.features.copy()
    for text in ranges:
        column, _, interval = text.rpartition("=")
        try:
            low, high = (float(x) for x in interval.split(":"))
            at = data.columns.index(column)
        except ValueError:
            raise InvalidInput(
                f"Expected a range COLUMN=LOW:HIGH of one of {', '.join(data.columns)}, got "
                f"{text!r}."
            ) from None
        if not low < high:
            raise InvalidInput(f"Expected LOW < HIGH, got {text!r}.")
        features[:, at] = np.clip((2 * features[:, at] - low - high) / (high - low), -1, 1)
    return features


def _agents(options: argparse.Namespace, train: Any) -> Any:
    """The agent of every record."""
    import numpy as np

    from tacit.learn import split

    how = options.split or ("group" if train.groups is not None and not options.agents else "iid")
    if how == "group":
        if train.groups is None:
            raise InvalidInput("Expected --agent-column, or data with groups, for --split group.")
        return train.groups
    owner = np.zeros(len(train), int)
    for p, rows in enumerate(split(train, options.agents or 10, how, alpha=options.alpha)):
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
