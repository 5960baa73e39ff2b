"""The command ``tacit predict``: what a model that ``tacit learn`` fitted says of records."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.cli.learn import changes_in_words
from tacit.cli.options import Add
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import lines_of, opened, reading, write_atomically

PREDICTION, PROBABILITY = "prediction", "probability of "  # columns of what is written
ADVICE = (  # about text and missing values: the model's rules cannot be changed
    "The model takes only what it was fitted to take there: give such values in {0!r}, or leave "
    "the record out. Nothing was predicted."
)


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
    predict.add_argument(
        "--out", help="CSV file to write, new or of predictions (default: standard output)"
    )


def _predict(options: argparse.Namespace) -> int:
    from tacit.learn import load_model

    if options.out:
        _refuse_other(Path(options.out))
    model = load_model(options.folder)
    table, ids = _records(options, model)
    found = model.predict(table).tolist()
    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    likely = hasattr(model, "predict_proba")
    shares: list[list[float]] = model.predict_proba(table).tolist() if likely else [[]] * len(found)
    head = [PREDICTION, *(f"{PROBABILITY}{name}" for name in classes or () if likely)]
    if options.id in head:
        raise InvalidInput(
            f"Expected an --id that is not called as a column of the output, got {options.id!r}. "
            "Nothing was written."
        )
    if changed := _changed(model, table):
        print(f"tacit: {changed}", file=sys.stderr)
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([_cell(name) for name in (*([] if ids is None else [options.id]), *head)])
    for i, (label, row) in enumerate(zip(found, shares, strict=True)):
        name = [] if ids is None else [_cell(ids[i])]
        writer.writerow([*name, _cell(label), *(f"{share:.6g}" for share in row)])
    if options.out:
        write_atomically(options.out, written.getvalue().encode())
    if options.json:
        document = {"classes": classes, "predictions": found}
        document |= {"probabilities": shares} if likely else {}
        print(json.dumps(document | ({} if ids is None else {"ids": ids})))
    elif options.out:
        print(f"files: {options.out} ({len(found)} prediction{'s' * (len(found) != 1)})")
    else:
        sys.stdout.write(written.getvalue())
    return 0


def _cell(value: Any) -> Any:
    """What a spreadsheet would take for a formula, quoted as text there; numbers stay numbers."""
    text = str(value)
    read = unicodedata.normalize("NFKC", text).lstrip(" ")  # forms of full width are formulas too
    if not read.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return value
    with suppress(ValueError):
        float(text)
        return value
    return f"'{text}"


def _changed(model: Any, table: Any) -> str:
    """What the model's public ranges, lists and values did to these records, if anything.

    Guarantee: none: exact counts of the records, for the eyes of whoever gave them.
    """
    from tacit.learn import PublicColumns, PublicRange

    first = model[0] if hasattr(model, "steps") else model
    if isinstance(first, PublicRange):  # the same map; it does not count
        first = PublicColumns(first.ranges).fit(table)
    if not isinstance(first, PublicColumns):
        return ""
    said = changes_in_words({kind: by for kind, by in first.changes(table).items() if by})
    many = int(first.changed(table).sum())
    return f"{many} of {len(table)} records changed: {'; '.join(said)}." if said else ""


def _refuse_other(path: Path) -> None:
    """Refuse to replace anything but predictions, which can be made again."""
    if not path.parent.is_dir():
        raise InvalidInput(
            f"Expected a folder {path.parent} for --out, got none. Nothing was written."
        )
    if os.path.lexists(path) and not (path.is_file() and _of_predictions(path)):
        raise InvalidInput(
            f"Expected a new file or one of predictions, got {path}. It was not replaced: choose "
            "another --out."
        )


def _of_predictions(path: Path) -> bool:
    """Whether the first line is that of a table this command wrote: perhaps names of records, then
    predictions, then probabilities."""
    try:
        with reading(path, "predictions"), opened(path) as file:
            header = next(csv.reader(lines_of(file), strict=True), [])
    except CorruptFile:
        return False
    own = header[header.index(PREDICTION) :] if PREDICTION in header[:2] else []
    return bool(own) and all(name.startswith(PROBABILITY) for name in own[1:])


def _records(options: argparse.Namespace, model: Any) -> tuple[Any, list[str] | None]:
    """The model's columns of the table, by name, and the names of records."""
    import pandas as pd

    from tacit.tables import ANY, Rules, read_table

    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        raise InvalidInput(f"Expected a model of a table in {options.folder}, got one of images.")
    if options.id in columns:
        raise InvalidInput(
            f"Expected an --id that the model does not learn from, got {options.id!r}. Nothing was "
            "predicted."
        )
    first = model[0] if hasattr(model, "steps") else model
    listed, filled = (getattr(first, name, None) or {} for name in ("categories", "fill"))
    rules = Rules(features=tuple(columns), ranges=ANY, categories=listed, fill=filled)
    table = pd.DataFrame(dict(rules.records([options.table], advice=ADVICE).columns))
    if options.id is None:
        return table, None
    source = read_table(options.table, [options.id])
    if options.id not in source.columns:
        raise InvalidInput(
            f"Expected a column {options.id!r} in {options.table}, got none of that name. Nothing "
            "was predicted."
        )
    return table, source.written(options.id)
