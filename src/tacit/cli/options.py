"""Commands and their options. Those of a run are here, once, for all that run something."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tacit.errors import EPSILONS, InvalidInput, count, digits, shown

Add = Callable[..., Any]  # ``add_command`` to one of the parser's levels
BEYOND_REASON = 20.0  # an epsilon above it draws a caution
# of a run, by the names that ``tacit.solve`` has for them
RUN = ("seed", "noise", "ledgers", "workers", "evaluate_every", "aggregation", "colluding")


def add_command(commands: Any, name: str, command: Any, summary: str, example: str) -> Any:
    """A command with its help, an example, and ``--json``."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command, parser=parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser


def add_run_options(parser: Any, out: str, evaluate_every: str = "1") -> None:
    """What ``tacit solve``, ``tacit power solve`` and ``tacit learn`` share, and its defaults."""
    parser.set_defaults(crew=None)  # the ranks, where there are any (``ranks.py``)
    run = parser.add_argument_group("run")
    add_release_options(run.add_argument)
    run.add_argument(
        "--workers", type=int, help="agents at work at the same time (default: one per core)"
    )
    run.add_argument(
        "--evaluate-every",
        type=int,
        metavar="ROUNDS",
        help=f"rounds between rows of the trace, and checkpoints (default: {evaluate_every})",
    )
    run.add_argument(
        "--engine",
        choices=("process", "mpi"),
        default="process",
        help="mpi: agents on the ranks that mpiexec or srun started (default: all in this process)",
    )
    run.add_argument("--out", help=f"result folder (default: {out})")
    run.add_argument(
        "--resume", metavar="DIR", help="continue the unfinished run in DIR, with its own options"
    )


def add_release_options(option: Any) -> None:
    """Whose noise it is, who pays, and whether agents are added up."""
    option("--seed", type=int, help="noise from a seed, for research")
    option(
        "--noise",
        choices=("seeded", "secure"),
        help="secure: exact discrete noise from the operating system (default with --ledgers)",
    )
    option(
        "--ledgers",
        metavar="DIR",
        help="folder with AGENT.db: every agent pays there before it answers",
    )
    option(
        "--aggregation",
        choices=("sum",),
        help="sum: agents' messages are only added up, under masks, with the noise of one",
    )
    option(
        "--colluding",
        type=int,
        metavar="AGENTS",
        help="of a sum, that may collude or add no noise (default: just less than half)",
    )


def add_noise_options(parser: Any) -> None:
    """Where Algorithm 1 adds its noise, and what that is scaled by."""
    where = ("objective", "output", "projected-output")
    parser.add_argument("--perturbation", choices=where, default="objective")
    parser.add_argument(
        "--calibration",
        choices=("certified", "paper"),
        default="certified",
        help="paper: the paper's sensitivities, noise and composition, which are not certified",
    )


def run_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The options of a run that were given, checked, as arguments of ``tacit.solve``."""
    given = {name: value for name, value in vars(options).items() if name in RUN}
    given = {name: value for name, value in given.items() if value is not None}
    if "colluding" in given and "aggregation" not in given:
        raise InvalidInput("Expected --aggregation sum beside --colluding. Nothing was started.")
    by_itself = "secure" if "ledgers" in given else "seeded"
    if "seed" in given and given.get("noise", by_itself) == "secure":
        raise InvalidInput(
            f"Expected no seed for secure noise, got seed {shown(options.seed)}. For a seeded run "
            "with --ledgers add --noise seeded. Nothing was started."
        )
    for name in {"workers", "evaluate_every"} & set(given):
        count(name, given[name])
    if not 0 <= given.get("seed", 0) < 2**63:
        raise InvalidInput(
            f"Expected a whole number 0 <= seed < 2^63, got seed={shown(options.seed)}."
        )
    return given


def changed(options: argparse.Namespace) -> dict[str, Any]:
    """The options that differ from their defaults."""
    default = options.parser.get_default
    return {
        name: value
        for name, value in vars(options).items()
        if name not in ("command", "parser", "crew") and value != default(name)
    }


def as_words(name: str, value: Any) -> list[str]:
    """An option and its value as the words of a command line; none if it was not given."""
    flag, words = f"--{name.replace('_', '-')}", []
    for one in value if isinstance(value, list) else [value]:
        if one is True:
            words.append(flag)
        elif one is not None and one is not False:
            words += [f"{flag}={one}"] if str(one).startswith("-") else [flag, str(one)]
    return words


def refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Refuse options that do not apply. Rank 0 does so for all ranks: others have no parser."""
    if not hasattr(options, "parser"):
        return
    for name, value in changed(options).items():
        if name in names:
            given, option = " ".join(as_words(name, value)), f"--{name.replace('_', '-')}"
            raise InvalidInput(f"Expected {option} {why}, got {given}. Nothing was started.")


def refuse_to_publish(options: argparse.Namespace, plan: Any, problem: Any) -> None:
    """``--publish`` is for what was released once, under a statement that is certified."""
    if not options.publish:
        return
    if plan.release is None:
        raise InvalidInput(
            "Expected a private run of one release beside --publish: this one adds noise "
            "in every round, or none. Nothing was started."
        )
    if doubts := [a.objective.uncertified for a in problem.agents if a.objective.uncertified]:
        raise InvalidInput(
            f"Expected what is certified beside --publish, but {doubts[0]} Nothing was started."
        )


def make_absolute(
    options: argparse.Namespace, files: tuple[str, ...] = (), folders: tuple[str, ...] = ()
) -> None:
    """Paths that do not depend on where the command is run; a file may also be a case's name."""
    for name in (*files, *folders):
        value = getattr(options, name)
        if isinstance(value, list):
            setattr(options, name, [os.path.realpath(path) for path in value])
        elif value is not None and (name in folders or Path(value).is_file()):
            setattr(options, name, os.path.realpath(value))


def caution(total_epsilon: float | None) -> None:
    """One line where a budget hides little."""
    if total_epsilon is not None and BEYOND_REASON < total_epsilon <= EPSILONS[1]:
        print(
            f"tacit: Caution: a total epsilon of {digits(total_epsilon)} promises next to nothing: "
            f"an outcome may be e^{digits(total_epsilon)} times as probable with a record as "
            "without it (plus delta). Common are 0.1 to 10.",
            file=sys.stderr,
        )


@contextlib.contextmanager
def on_device(name: str | None) -> Iterator[None]:
    """Compute on the CPU or on a GPU."""
    import jax

    if name is None:
        yield
        return
    try:
        device = jax.devices(name)[0]
    except RuntimeError:
        raise InvalidInput(
            f"Expected a {name} that JAX can use, found {jax.devices()[0].platform} only.",
            "Nothing was run.",
        ) from None
    with jax.default_device(device):
        yield


def whole(text: str) -> int:
    """A whole number, also written as 1e6."""
    number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError
    return int(number)
