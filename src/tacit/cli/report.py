"""The commands ``tacit show`` and ``tacit report``, and the page that a run leaves."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.console import print_result, tell
from tacit.cli.options import Add, as_words
from tacit.errors import TacitError
from tacit.files import reading

if TYPE_CHECKING:
    from tacit.report.contents import Contents

# Arguments without a flag, by command, and what stands for one that was left out
ARGUMENTS = {"solve": ("job",), "power solve": ("case",), "learn": ("data_set", "more")}
LEFT_OUT = {"job": "JOB", "case": "CASE", "data_set": "DATA"}


def add_show(add: Add) -> None:
    show = add("show", _show, "Print a result folder and draw its plot again.", "tacit show result")
    show.add_argument("folder", help="result folder")


def _show(options: argparse.Namespace) -> int:
    from tacit.protocol.result import Result
    from tacit.report.released import Released, what_privacy_costs

    folder = Path(options.folder)
    if (released := Released.read(folder)) is not None:
        table = released.table
        said = table.summary(), what_privacy_costs(table), str(table.privacy_), f"files: {folder}"
        return tell(options.json, table.to_dict(), *said)
    result = Result.load(folder)
    with reading(folder, "a result that can be drawn", own=False):
        result.save_plot(folder)
    print_result(result, folder, options.json)
    return 0


def add_report(add: Add) -> None:
    report = add(
        "report",
        _report,
        "One page with all there is to know of a result: statement, budget, charts, map, tables.",
        "tacit report case14-result\n  tacit report case14-result --public --out page.html",
    )
    report.add_argument("folder", help="result folder")
    report.add_argument(
        "--public",
        action="store_true",
        help="leave out every number that the privacy statement does not cover",
    )
    report.add_argument(
        "--out", help="the page (default: report.html, or report-public.html, in the folder)"
    )


def _report(options: argparse.Namespace) -> int:
    from tacit.report.contents import Contents
    from tacit.report.page import FILE, PUBLIC_FILE, render, save
    from tacit.report.released import Released

    contents: Any = Released.read(options.folder) or Contents.read(options.folder)
    if options.public:
        contents = contents.public()
    name = PUBLIC_FILE if options.public else FILE
    path = Path(options.out) if options.out is not None else Path(options.folder) / name
    run = isinstance(contents, Contents)
    page = render(contents, repeat(contents) if run else "")
    save(path, page, options.public)
    document = {
        **{"report": str(path), "public": options.public, "bytes": len(page)},
        **{
            "certified": contents.privacy.certified,
            "left_out": list(contents.left_out) * options.public,
        },
    }
    whose = "for the owners of the data only; for others: tacit report --public"
    if options.public:
        whose = "left out, as not covered: " + "; ".join(contents.left_out)
    size = f"{max(0.1, len(page) / 1e6):.1f} MB, one file"
    return tell(options.json, document, f"report: {path} ({size})", whose)


def draw(folder: Path) -> None:
    """``report.html`` of a result that is there. What goes wrong here is a warning: the result
    is worth more than its picture."""
    from tacit.report.contents import Contents
    from tacit.report.page import FILE, render, save

    try:
        contents = Contents.read(folder)
        save(folder / FILE, render(contents, repeat(contents)))
    except Exception as error:  # whatever it is
        # other errors may show a private value
        told = isinstance(error, TacitError | OSError | ImportError)
        words = str(error) if told else type(error).__name__
        print(f"tacit: the result is there, but no report was drawn: {words}", file=sys.stderr)


def repeat(contents: Contents) -> str:
    """The command that would make such a result, or nothing: options that are not the defaults."""
    if contents.command not in ARGUMENTS:
        return ""
    from tacit.cli.main import parse

    words, about = contents.command.split(), ARGUMENTS[contents.command]
    usual = vars(parse([*words, "x"]))
    for name in about:
        value: Any = contents.options.get(name) or LEFT_OUT.get(name, [])
        words += value if isinstance(value, list) else [value]
    for name, value in contents.options.items():
        if name in usual and name not in (*about, "out") and value != usual[name]:
            words += as_words(name, value)
    return shlex.join(["tacit", *map(str, words)])
