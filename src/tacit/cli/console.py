"""What commands print: progress bars to standard error, tables and results to standard output."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tacit.errors import digits, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

EVERY = 12.0  # seconds between two lines where no bar is seen
hints: list[Callable[[], str]] = []  # what an interrupt says besides; the last one counts
# How many processes there are and which one this is, by who started them together: Open MPI; MPICH
# and Intel MPI; MVAPICH; Slurm. Known before MPI is there, and where it is not installed
LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)


def launched() -> tuple[int, int]:
    """This process's rank, and the number of ranks; 0 and 1 if it is alone."""
    for size, rank in LAUNCHERS:
        try:
            found = int(os.environ[rank]), int(os.environ[size])
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            return found
    return 0, 1


class Escaped:
    """A stream on which no text commands the terminal: all that a command prints, an error of
    another library too, may hold words of others."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream  # where rich looks

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def _console(**options: Any) -> Console:
    from rich.console import Console

    class Output(Console):
        """A closed pipe ends the command as it ends others, not as rich would."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(**options)


def progress_bar(unit: str) -> Progress:
    """A bar with the number of units done and the time left."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(unit),
        progress.TimeRemainingColumn(),
        console=_console(stderr=True),
    )


@contextmanager
def lines_now_and_then(where: Callable[[], str]) -> Iterator[None]:
    """A line to standard error every ``EVERY`` seconds, where that is no terminal: for logs."""
    began, ended = time.monotonic(), Event()

    def tell() -> None:
        while not (sys.stderr.isatty() or ended.wait(EVERY)):
            print(f"{where()}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def run_with_progress(
    label: str,
    problem: Any,
    settings: Any,
    told: Callable[[], None] = lambda: None,
    **options: Any,
) -> Any:
    """``tacit.solve`` with a progress bar; ``told`` hears of every evaluated round. ``problem`` may
    be agents on other ranks.

    The bar is there from the first evaluated round, so that a start that is refused is one line; on
    a terminal at once, as that round may take long.
    """
    from tacit.transports.solving import solve

    run: Any = partial(solve, problem)
    if hasattr(problem, "conduct"):  # ranks, which have their workers and ledgers
        run = problem.conduct
        options = {k: options[k] for k in options if k not in ("workers", "ledgers")}
    bar = progress_bar("rounds")
    task = bar.add_task(label, total=settings.rounds)
    where = f"{label}: before the first round"

    def show(progress: Any) -> None:
        nonlocal where
        told()
        bar.start()
        where = label
        if "dual_residual" in progress.row:  # a run that ends at a tolerance
            where = f"{label}, residual {progress.row['residual']:.1e}"
        bar.update(task, completed=progress.round, description=where)
        where = f"{where}: round {progress.round} of at most {settings.rounds}"

    if bar.console.is_terminal:
        bar.start()
    try:
        with lines_now_and_then(lambda: where):
            result = run(settings, callback=show, **options)
        bar.update(task, total=result.summary["round"])
        return result
    finally:
        if bar.live.is_started:
            bar.stop()


def evaluation_in(folder: Path) -> Any:
    """What was released of records that were held out, if it is there."""
    if not (folder / "evaluation.json").is_file():
        return None
    from tacit.learn import PrivateEvaluation

    return PrivateEvaluation.load(folder)


def print_result(
    result: Any,
    folder: Path,
    as_json: bool,
    about: dict[str, Any] | None = None,
    lines: Sequence[str] = (),
) -> None:
    """The last round, the privacy statement and where the files are; ``lines`` on what it is."""
    if as_json:
        vectors = {"solution": result.solution.tolist(), "ergodic": result.ergodic.tolist()}
        document = {**(about or {}), **result.to_dict(), **vectors, "folder": str(folder)}
        if (tested := evaluation_in(folder)) is not None:
            document["evaluation"] = tested.figures()
        print(json.dumps(document))
        return
    last = result.summary
    whose = "at the released data" if result.privacy.once else "(not covered: keep secret)"
    ended = []
    if result.converged is not None:
        said = "reached" if result.converged else "NOT reached"
        ended = [(f"tolerance {result.settings.tolerance:g}, relative", said)]

    def known(name: str, words: str, form: str) -> list[tuple[str, str]]:
        return [(words, format(last[name], form))] if name in last else []

    print_table(
        f"{len(result.names)} agents, {last['round']} rounds",
        ("", ""),
        [
            *known("objective", f"objective at the agents' points {whose}", ".6g"),
            *known("residual", "consensus residual", ".3g"),
            *ended,
            *known("violation", "largest violation", ".3g"),
            *spent_rows(result, last["epsilon"], last["delta"]),
        ],
    )
    if result.converged is False and result.privacy.once:
        print("With --ledgers the same release can be used again, with more rounds, at no cost.")
    for line in lines:
        print(line)
    if result.plan:
        print(result.plan)
    if result.gap is not None and not result.gap.finished:
        print(result.gap)
    if result.solution.size <= 20 and about is None:
        named = ", ".join(f"{name} {x:.5g}" for name, x in result.named.items())
        numbers = " ".join(f"{x:.5g}" for x in result.solution)
        print("solution: " + (named if result.labels else numbers))
        print("ergodic:  " + " ".join(f"{x:.5g}" for x in result.ergodic))
    print(result.privacy)
    if (tested := evaluation_in(folder)) is not None:
        print(f"Of the records kept for the test, {tested.summary()}")
    print_files(folder)


def spent_rows(result: Any, epsilon: float | None, delta: float | None) -> list[tuple[str, str]]:
    """What a run spent, as rows of a table."""
    from tacit.privacy.accounting import rounded_up

    if epsilon is None or delta is None:
        return [("noise", "none")]
    privacy, alone = result.privacy, []
    doubt = "" if privacy.certified else " (not certified)"
    if privacy.parties > 1:
        doubt = f" if at most {privacy.colluding} of {privacy.parties} collude{doubt}"
        alone = [("total epsilon whatever others do", rounded_up(privacy.alone, 4))]
    return [
        (f"total epsilon{doubt}", rounded_up(epsilon, 4)),
        *alone,
        ("total delta", digits(delta)),
        ("noise from", result.noise_source),
    ]


def print_files(folder: Path) -> None:
    """Where the files are, and the page for people, if it was drawn."""
    print(f"files: {folder}")
    if (page := folder / "report.html").is_file():
        print(f"report: {page}")


def tell(as_json: bool, document: Any, *parts: str | tuple[str, Sequence[str], Any]) -> int:
    """Print one JSON document, or lines and tables (title, header, rows); status 0."""
    if as_json:
        print(json.dumps(document))
        return 0
    for part in parts:
        if isinstance(part, str):
            print(part)
        else:
            print_table(*part)
    return 0


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text  # as it is: a name may look like rich's own marks

    table = Table(title=title, title_justify="left", show_header=any(header))
    for i, name in enumerate(header):
        # a name that is too long goes on below; it is never cut
        table.add_column(Text(name), justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    _console().print(table)
