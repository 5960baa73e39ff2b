"""Training and test data of the commands of learning: what DATA and its options name."""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.cli.options import refuse
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

    plain = Mapped((), {})

    if name in ("mnist", "femnist") and options.data is None:
        raise InvalidInput(f"Expected --data, the folder with the files of {name}.")
    if name in NAMED:
        refuse(options, TABLE, "for a table only")
        if getattr(options, "more", []):
            raise InvalidInput(f"Expected {name} alone, got {options.more[0]!r} beside it.")
    if name == "digits":
        refuse(options, ("data",), "for mnist and femnist only")
        return load_digits(), load_digits("test"), plain
    if name == "mnist":
        return load_mnist(options.data), load_mnist(options.data, "test"), plain
    if name == "femnist":
        folder = Path(options.data)
        return load_leaf(folder / "train"), load_leaf(folder / "test"), plain
    paths = [name, *options.more]
    for path in paths:
        if not Path(path).is_file():
            kinds = "a CSV or Parquet file"
            kinds = kinds if options.more else f"{', '.join(NAMED)}, or {kinds}"
            raise InvalidInput(f"Expected {kinds}, got {path!r}.")
    if options.target is None:
        raise InvalidInput("Expected --target, the column with the labels of the table.")
    if not 0 <= options.test_share < 1:
        raise InvalidInput(f"Expected 0 <= test-share < 1, got {options.test_share}.")
    refuse(options, ("data",), "for mnist and femnist only")
    return _tables(options, paths)


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
    with one_line():
        parts = [
            None
            if part is None
            else replace(
                part,
                features=step.fit_transform(part.features),
                columns=tuple(step.get_feature_names_out()) if part.columns else (),
            )
            for part in (train, test)
        ]
    return parts[0], parts[1], Mapped((*mapped.steps, step), mapped.changes)


def target_range(options: argparse.Namespace) -> tuple[float, float] | None:
    """The public range of a number to predict, if it is one."""
    if options.target_range is None:
        return None
    refuse(options, ("classes",), "without --target-range")
    return _interval(options.target_range, f"--target-range LOW:HIGH, got {options.target_range!r}")


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

    ranges, categories = _ranges(options.range), _categories(options.categories)
    fill = _fill(options.fill, categories)
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


def _ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    ranges = {}
    for text in texts:
        column, _, interval = text.rpartition("=")
        if column in ranges:
            raise InvalidInput(f"Expected one range of {column!r}, got another: {text!r}.")
        ranges[column] = _interval(interval, f"a range COLUMN=LOW:HIGH, got {text!r}")
    return ranges


def _interval(text: str, expected: str) -> tuple[float, float]:
    try:
        low, high = (float(x) for x in text.split(":"))
    except ValueError:
        raise InvalidInput(f"Expected {expected}.") from None
    return low, high


def _categories(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """Lists by column, as a line of a CSV file: a category with a comma is put in quotes."""
    from tacit.tables import public_list

    found = {}
    for text in texts:
        column, equals, line = text.partition("=")
        try:
            (cells,) = csv.reader([line], strict=True, skipinitialspace=True)
        except (ValueError, csv.Error):
            cells = []
        if not equals or not cells or column in found:
            raise InvalidInput(
                f"Expected categories COLUMN=A,B,..., once for each column, got {text!r}."
            )
        found[column] = public_list(column, cells)
    return found


def _fill(texts: list[str], categories: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if column not in categories:  # a number has no =, the name of a column may
            column, equals, value = text.rpartition("=")
        try:
            found[column] = value if column in categories else float(value)
            if not equals or not (column in categories or math.isfinite(found[column])):
                raise ValueError
        except ValueError:
            raise InvalidInput(
                "Expected a value to fill in COLUMN=VALUE, a number or one of the column's "
                f"--categories, got {text!r}."
            ) from None
    return found
