"""Training and test data of the commands of learning: what DATA and its options name."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.cli.options import refuse
from tacit.errors import InvalidInput

NAMED = ("digits", "mnist", "femnist")
# options of a table only
TABLE = ("target", "agent_column", "classes", "range", "drop", "test_share")


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What scikit-learn says of bad data, as one of our errors."""
    try:
        yield
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"{str(error).splitlines()[0]} Nothing was fit.") from None


def load(options: argparse.Namespace, name: str) -> tuple[Any, Any, Any]:
    """Training and test data, and for a table the ranges that were applied."""
    import numpy as np

    from tacit.learn import load_digits, load_leaf, load_mnist, load_table

    if name in ("mnist", "femnist") and options.data is None:
        raise InvalidInput(f"Expected --data, the folder with the files of {name}.")
    if name in NAMED:
        refuse(options, TABLE, "for a table only")
    if name == "digits":
        refuse(options, ("data",), "for mnist and femnist only")
        return load_digits(), load_digits("test"), None
    if name == "mnist":
        return load_mnist(options.data), load_mnist(options.data, "test"), None
    if name == "femnist":
        folder = Path(options.data)
        return load_leaf(folder / "train"), load_leaf(folder / "test"), None
    if not Path(name).is_file():
        raise InvalidInput(f"Expected {', '.join(NAMED)}, or a CSV or Parquet file, got {name!r}.")
    if options.target is None:
        raise InvalidInput("Expected --target, the column with the labels of the table.")
    if not 0 < options.test_share < 1:
        raise InvalidInput(f"Expected 0 < test-share < 1, got {options.test_share}.")
    refuse(options, ("data",), "for mnist and femnist only")
    data = load_table(name, options.target, options.agent_column, options.drop)
    data, ranges = _in_ranges(data, options.range)
    order = np.random.default_rng(0).permutation(len(data))
    cut = max(1, round(options.test_share * len(data)))
    return data.part(np.sort(order[cut:])), data.part(np.sort(order[:cut])), ranges


def _in_ranges(data: Any, texts: list[str]) -> tuple[Any, Any]:
    """The table with every column mapped by its --range, and the transformer that did it."""
    import pandas as pd

    from tacit.learn import PublicRange

    ranges = {}
    for text in texts:
        column, _, interval = text.rpartition("=")
        try:
            low, high = (float(x) for x in interval.split(":"))
        except ValueError:
            raise InvalidInput(f"Expected a range COLUMN=LOW:HIGH, got {text!r}.") from None
        ranges[column] = (low, high)
    bare = [name for name in data.columns if name not in ranges]
    if bare and "*" not in ranges:
        raise InvalidInput(
            f"Expected a public --range of every column, got none of {bare[0]!r} ({len(bare)} of "
            f"{len(data.columns)} have none). '*=-1:1' takes all others as they are, clipped; "
            f"--drop {bare[0]} leaves it out. Nothing was fit."
        )
    mapping = PublicRange(ranges)
    with one_line():
        features = mapping.fit_transform(pd.DataFrame(data.features, columns=list(data.columns)))
    return replace(data, features=features), mapping
