"""Training and test data of the commands of learning: what DATA and its options name."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.cli.console import progress_bar
from tacit.cli.options import Add, refuse
from tacit.errors import InvalidInput

NAMED = ("digits", "mnist", "femnist")
IMAGE_MAPS = ("orientations", "scattering")
# options of a table only
TABLE = (
    *("target", "target_range", "agent_column", "classes", "range", "categories", "fill", "drop"),
    *("id", "test_share"),
)


@dataclass(frozen=True)
class Mapped:
    """How records became rows: the public maps, and how much they changed of a table, by column.

    Guarantee: none for the changes, which are exact counts: not covered, for the owner's eyes.
    """

    steps: tuple[Any, ...]
    changes: dict[str, dict[str, int]]


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What scikit-learn says of bad data, as one of our errors."""
    try:
        yield
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"{str(error).splitlines()[0]} Nothing was fit.") from None


def load(options: argparse.Namespace, name: str) -> tuple[Any, Any, Mapped]:
    """Training and test data, if there are any, and what mapped them."""
    from tacit.learn import load_digits, load_leaf, load_mnist

    if name not in ("mnist", "femnist"):
        refuse(options, ("data",), "for mnist and femnist only")
    elif options.data is None:
        raise InvalidInput(f"Expected --data, the folder with the files of {name}.")
    if name not in NAMED:
        return _tables(options, [name, *options.more])
    refuse(options, TABLE, "for a table only")
    if getattr(options, "more", []):
        raise InvalidInput(f"Expected {name} alone, got {options.more[0]!r} beside it.")
    if name == "femnist":
        parts = [load_leaf(Path(options.data) / part) for part in ("train", "test")]
    elif name == "mnist":
        parts = [load_mnist(options.data, part) for part in ("train", "test")]
    else:
        parts = [load_digits(), load_digits("test")]
    return parts[0], parts[1], Mapped((), {})


def featured(
    options: argparse.Namespace, loaded: tuple[Any, Any, Mapped]
) -> tuple[Any, Any, Mapped]:
    """The same after ``--features``: a public map of each record by itself."""
    from tacit.learn import Orientations, RandomFourier, Scattering

    train, test, mapped = loaded
    images = options.data_set in NAMED
    name = options.features or ("orientations" if images else "none")
    if name == "none":
        return loaded
    if name in IMAGE_MAPS and not images:
        raise InvalidInput(
            f"Expected --features {name} for images only, got a table. Nothing was fit."
        )
    made = {"orientations": Orientations, "scattering": Scattering, "fourier": RandomFourier}[name]
    step = made()

    def mapped_by_it(part: Any) -> Any:
        if part is None:
            return None
        features = step.fit_transform(part.features)
        columns = tuple(step.get_feature_names_out()) if part.columns else ()
        return replace(part, features=features, columns=columns)

    with one_line():
        train, test = mapped_by_it(train), mapped_by_it(test)
    return train, test, Mapped((*mapped.steps, step), mapped.changes)


def target_range(options: argparse.Namespace) -> tuple[float, float] | None:
    """The public range of a number to predict, if it is one."""
    if options.target_range is None:
        return None
    refuse(options, ("classes",), "without --target-range")
    try:
        return _interval(options.target_range)
    except ValueError:
        raise InvalidInput(
            f"Expected --target-range LOW:HIGH, got {options.target_range!r}."
        ) from None


def given_classes(options: argparse.Namespace) -> list[str] | None:
    """The public list of a table's labels, if there is one."""
    if options.classes is None:
        return None
    return [name.strip() for name in options.classes.split(",")]


def _tables(options: argparse.Namespace, paths: list[str]) -> tuple[Any, Any, Mapped]:
    """The records of one table, or of several, each the one of an agent, mapped and parted."""
    import numpy as np
    import pandas as pd

    from tacit.learn import PublicColumns, PublicRange
    from tacit.learn.data import dataset
    from tacit.tables import load_records

    for path in paths:
        if not Path(path).is_file():
            kinds = "a CSV or Parquet file"
            kinds = kinds if options.more else f"{', '.join(NAMED)}, or {kinds}"
            raise InvalidInput(f"Expected {kinds}, got {path!r}.")
    if options.target is None:
        raise InvalidInput("Expected --target, the column with the labels of the table.")
    if not 0 <= options.test_share < 1:
        raise InvalidInput(f"Expected 0 <= test-share < 1, got {options.test_share}.")
    ranges, categories, fill = _rules(options)
    records = load_records(
        paths,
        options.target,
        options.agent_column,
        options.drop if options.id is None else [*options.drop, options.id],
        categories=categories,
        gaps=fill,
        numeric_target=target_range(options) is not None,
        ranges=ranges,
        classes=given_classes(options),
    )
    mapping = PublicColumns(ranges, categories, fill).fit(records.columns)
    order = np.random.default_rng(0).permutation(len(records))
    cut = max(1, round(options.test_share * len(records))) if options.test_share else 0
    if cut == len(records):
        raise InvalidInput(
            f"Expected records beside those for the test, got {len(records)} in all and "
            f"--test-share {options.test_share:g}; 0 keeps all for learning. Nothing was fit."
        )
    train, test = records.part(np.sort(order[cut:])), records.part(np.sort(order[:cut]))
    groups: list[Any] = [part.groups for part in (records, train)]
    if options.more and (gone := sorted({*groups[0]} - {*groups[1]})):
        raise InvalidInput(
            f"Expected records of {gone[0]!r} beside those for the test, got none; --test-share 0 "
            "keeps all for learning. Nothing was fit."
        )
    names = mapping.get_feature_names_out().tolist()
    parts = [dataset(part, mapping.transform(part.columns), names) for part in (train, test)]
    transformer: Any = mapping
    if not categories and not fill:  # the same map, in a model that the first version reads too
        transformer = PublicRange(ranges).fit(pd.DataFrame(dict(records.part(order[:1]).columns)))
    mapped = Mapped((transformer,), mapping.changes(train.columns))
    return parts[0], parts[1] if cut else None, mapped


def _interval(text: str) -> tuple[float, float]:
    low, high = (float(x) for x in text.split(":"))
    return low, high


def _by_column(
    texts: list[str],
    expected: str,
    read: Callable[[str, str], Any],
    parts: Callable[[str], tuple[str, str, str]] = lambda text: text.rpartition("="),
) -> dict[str, Any]:
    """COLUMN=VALUE as often as it was given."""
    found: dict[str, Any] = {}
    for text in texts:
        column, equals, value = parts(text)
        try:
            if not equals or column in found:
                raise ValueError
            found[column] = read(column, value)
        except (ValueError, csv.Error) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"Expected {expected}, once for each column, got {text!r}."
            ) from None
    return found


def _rules(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Ranges, categories and what to fill in, by column."""
    from tacit.tables import public_list

    def category(column: str, line: str) -> tuple[str, ...]:
        """As a line of a CSV file: a category with a comma is put in quotes."""
        (cells,) = csv.reader([line], strict=True, skipinitialspace=True)
        return public_list(column, cells)

    def value(column: str, text: str) -> Any:
        if column in categories:
            return text
        if not math.isfinite(number := float(text)):
            raise ValueError
        return number

    def parts(text: str) -> tuple[str, str, str]:  # a number has no =, the name of a column may
        return text.partition("=") if text.partition("=")[0] in categories else text.rpartition("=")

    kind = "a range COLUMN=LOW:HIGH"
    ranges = _by_column(options.range, kind, lambda _, text: _interval(text))
    first = "categories COLUMN=A,B,..."
    categories = _by_column(options.categories, first, category, lambda text: text.partition("="))
    kind = "a value to fill in COLUMN=VALUE, a number or one of the column's --categories"
    return ranges, categories, _by_column(options.fill, kind, value, parts)


def add_download(add: Add) -> None:
    download = add(
        "learn download",
        _download,
        "Get MNIST's files; an earlier attempt is continued.",
        "tacit learn download mnist-data",
    )
    download.add_argument("folder", nargs="?", metavar="DIR", help="folder to put the files in")
    download.add_argument("--data", metavar="DIR", help="the same")


def _download(options: argparse.Namespace) -> int:
    from tacit.learn.data import download_mnist

    if (options.folder is None) == (options.data is None):
        raise InvalidInput("Expected DIR, the folder to put MNIST in, once.")
    with progress_bar("bytes") as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        folder = download_mnist(options.folder or options.data, progress=show)
    print(json.dumps({"folder": str(folder)}) if options.json else f"files: {folder}")
    return 0
