"""The command ``tacit show``: a result folder again."""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.cli.console import print_result
from tacit.cli.options import Add
from tacit.reading import reading


def add_show(add: Add) -> None:
    show = add("show", _show, "Print a result folder and draw its plot again.", "tacit show result")
    show.add_argument("folder", help="result folder")


def _show(options: argparse.Namespace) -> int:
    from tacit.protocol.result import Result

    folder = Path(options.folder)
    result = Result.load(folder)
    with reading(folder, "a result that can be drawn", own=False):
        result.save_plot(folder)
    print_result(result, folder, options.json)
    return 0
