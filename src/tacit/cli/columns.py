"""The command ``tacit columns``: a first draft of the rules of a table's columns."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit.cli.console import tell
from tacit.cli.options import Add
from tacit.errors import InvalidInput
from tacit.files import write_atomically

HEAD = """\
# Rules of the columns of {name}, for tacit learn --columns and for studies.
# Everything here is public: write what is known without the data. A draft, of names alone.
{target}
# One of these two:
# classes = ["no", "yes"]      # all labels that there may be
# target_range = [0, 100]      # the target is a number in this range
drop = []                      # columns not to use, such as names of records

[ranges]                       # of numbers: column = [low, high], mapped to [-1, 1] and clipped
"""
TAIL = """
[categories]                   # of text: move a column here, as column = ["a", "b", "c"]

[fill]                         # what stands for a missing value: column = a number or a category
"""


def add_columns(add: Add) -> None:
    columns = add(
        "columns",
        _columns,
        "Draft the rules of a table's columns from their names; no record is read.",
        "tacit columns churn.csv --target churn --out columns.toml",
    )
    columns.add_argument("table", help="CSV or Parquet file")
    columns.add_argument("--target", help="the column to predict")
    columns.add_argument("--out", help="file to write, a new one (default: standard output)")


def _columns(options: argparse.Namespace) -> int:
    from tacit.tables import header

    names = header(options.table)
    if options.target is not None and options.target not in names:
        raise InvalidInput(
            f"Expected the target among the {len(names)} columns of {options.table}, got "
            f"{options.target!r}."
        )
    said = "# target = ..." if options.target is None else f"target = {_text(options.target)}"
    asked = [f"{_text(name)} = []\n" for name in names if name != options.target]
    draft = HEAD.format(name=Path(options.table).name, target=said) + "".join(asked) + TAIL
    if options.out is None:
        return tell(options.json, {"columns": names, "draft": draft}, draft.rstrip())
    if Path(options.out).exists():
        raise InvalidInput(f"Expected a new file as --out, got {options.out}. It was not replaced.")
    write_atomically(options.out, draft.encode())
    return tell(options.json, {"columns": names, "file": options.out}, f"files: {options.out}")


def _text(name: str) -> str:
    """A name as TOML has it: JSON's text is, but for one character."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
