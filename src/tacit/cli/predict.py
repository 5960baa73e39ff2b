"""The command ``tacit predict``: what a model that ``tacit learn`` fitted says of records."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from typing import Any

from tacit.cli.options import Add
from tacit.errors import InvalidInput


def add_predict(add: Add) -> None:
    predict = add(
        "predict",
        _predict,
        "Predict for the records of a table with a model that tacit learn fitted on a table.",
        "tacit predict churn-model new.csv --out predictions.csv",
    )
    predict.add_argument("folder", help="folder of the model")
    predict.add_argument(
        "table", help="CSV or Parquet file with the model's columns, in any order, among others"
    )
    predict.add_argument("--id", metavar="COLUMN", help="a column to write beside the predictions")
    predict.add_argument("--out", help="CSV file to write (default: standard output)")


def _predict(options: argparse.Namespace) -> int:
    from tacit.learn import load_model

    model = load_model(options.folder)
    table, ids = _records(options, model)
    found = model.predict(table).tolist()
    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    likely = hasattr(model, "predict_proba")
    shares: list[list[float]] = model.predict_proba(table).tolist() if likely else [[]] * len(found)
    header = ["prediction", *(f"probability of {name}" for name in classes or () if likely)]
    if options.id in header:
        raise InvalidInput(
            f"Expected an --id that is not called as a column of the output, got {options.id!r}. "
            "Nothing was written."
        )
    if options.json:
        document = {"classes": classes, "predictions": found}
        document |= {"probabilities": shares} if likely else {}
        print(json.dumps(document | ({} if ids is None else {"ids": ids})))
        if not options.out:
            return 0
    with (
        open(options.out, "w", newline="")
        if options.out
        else contextlib.nullcontext(sys.stdout) as file
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*([] if ids is None else [options.id]), *header])
        for i, (label, row) in enumerate(zip(found, shares, strict=True)):
            name = [] if ids is None else [ids[i]]
            writer.writerow([*name, label, *(f"{share:.6g}" for share in row)])
    return 0


def _records(options: argparse.Namespace, model: Any) -> tuple[Any, list[str] | None]:
    """The model's columns of the table, by name, and the names of records."""
    import pandas as pd

    from tacit.learn.source import read_table

    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        raise InvalidInput(f"Expected a model of a table in {options.folder}, got one of images.")
    first = model[0] if hasattr(model, "steps") else model
    categories = getattr(first, "categories", None) or {}
    gaps = getattr(first, "fill", None) or {}
    if options.id in columns:
        raise InvalidInput(
            f"Expected an --id that the model does not learn from, got {options.id!r}. Nothing was "
            "predicted."
        )
    source = read_table(options.table, [*categories, *filter(None, [options.id])])
    absent = [name for name in columns if name not in source.columns]
    if absent:
        raise InvalidInput(
            f"Expected the model's columns in {options.table}, got no {absent[0]!r} "
            f"({len(absent)} of {len(columns)} are not there). Nothing was predicted."
        )
    if options.id is not None and options.id not in source.columns:
        raise InvalidInput(
            f"Expected a column {options.id!r} in {options.table}, got none of that name. Nothing "
            "was predicted."
        )
    numbers = [name for name in columns if name not in categories]
    table = pd.DataFrame(source.numbers(numbers, gaps), columns=numbers)
    for name in categories:
        table[name] = source.categories(name, categories[name], gaps)
    return table[list(columns)], None if options.id is None else source.written(options.id)
