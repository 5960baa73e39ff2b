"""The command ``tacit predict``: classify records with a model that ``tacit learn`` fitted."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys

from tacit.cli.options import Add
from tacit.errors import InvalidInput


def add_predict(add: Add) -> None:
    predict = add(
        "predict",
        _predict,
        "Classify the records of a table with a model that tacit learn fitted on a table.",
        "tacit predict churn-model new.csv --out predictions.csv",
    )
    predict.add_argument("folder", help="folder of the model")
    predict.add_argument("table", help="CSV or Parquet file with the model's columns")
    predict.add_argument("--out", help="CSV file to write (default: standard output)")


def _predict(options: argparse.Namespace) -> int:
    import pandas as pd

    from tacit.learn import load_model
    from tacit.learn.table import read_table

    model = load_model(options.folder)
    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        raise InvalidInput(f"Expected a model of a table in {options.folder}, got one of images.")
    source = read_table(options.table)
    absent = [name for name in columns if name not in source.columns]
    if absent:
        raise InvalidInput(
            f"Expected the model's columns in {options.table}, got no {absent[0]!r} "
            f"({len(absent)} of {len(columns)} are not there). Nothing was predicted."
        )
    table = pd.DataFrame(source.numbers(columns), columns=columns)
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
