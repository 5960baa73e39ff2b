"""What commands share: progress bars, tables, result folders. Progress goes to standard error."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tacit.cli.interrupts import hint
from tacit.errors import InvalidInput


class Output(Console):
    """A closed pipe ends the command as it ends others, not as rich would."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def progress_bar(unit: str) -> Progress:
    """A bar with the number of units done and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Output(stderr=True),
    )


def run_with_progress(
    label: str, problem: Any, settings: Any, *, resume: str = "", **options: Any
) -> Any:
    """``tacit.solve`` with a progress bar; ``resume`` is the command to go on with after Ctrl-C.

    It is given the folder of the checkpoint and named if the checkpoint is really there.
    """
    from tacit.engines.one_process import solve

    hint(lambda: _how_to_go_on(options.get("checkpoint"), resume, options.get("noise")))
    with progress_bar("rounds") as bar:
        task = bar.add_task(label, total=settings.rounds)
        return solve(
            problem,
            settings,
            callback=lambda progress: bar.update(task, completed=progress.round),
            **options,
        )


def _how_to_go_on(checkpoint: Path | None, resume: str, noise: str | None) -> str:
    if checkpoint is None:
        lost = "secure noise without ledgers cannot be continued; what was sent is spent"
        return lost if noise == "secure" else ""
    if (checkpoint.parent / "result.json").exists():
        return f"the result is in {checkpoint.parent}"
    return (
        f"go on with: {resume} {shlex.quote(str(checkpoint.parent))}" if checkpoint.exists() else ""
    )


def finished(folder: Path, as_json: bool) -> bool:
    """Whether a run that was interrupted had just saved its result; then it is printed."""
    if not ((folder / "result.json").is_file() and (folder / "checkpoint.npz").is_file()):
        return False
    from tacit.admm.result import Result

    result = Result.load(folder)
    (folder / "checkpoint.npz").unlink()
    print_result(result, folder, as_json)
    return True


_LOCKS: list[int] = []  # held until the process ends


def lock_folder(folder: Path) -> None:
    """Make a folder and keep other runs out of it while this process lives."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name == "nt":
        return
    import fcntl

    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InvalidInput(
            f"Another run is writing to {folder}: wait for it or choose another --out. Nothing was "
            "started."
        ) from None
    _LOCKS.append(lock)


def claim_folder(folder: Path, resume: str) -> None:
    """Refuse a folder with a result or an interrupted run in it."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(
            f"Expected a folder as --out, got the file {folder}. Nothing was started."
        )
    if (folder / "result.json").exists():
        raise InvalidInput(
            f"{folder} holds a result, whose budget is spent; choose another --out. Budgets of "
            "several runs on the same data add up. Nothing was started."
        )
    if (folder / "checkpoint.npz").exists():
        raise InvalidInput(
            f"An interrupted run is in {folder}: go on with it ({resume}) "
            "or choose another --out. Nothing was started."
        )


def print_result(
    result: Any, folder: Path, as_json: bool, about: dict[str, Any] | None = None
) -> None:
    """The last round, the privacy statement and where the files are."""
    from tacit.privacy.accounting import rounded_up

    if as_json:
        vectors = {"solution": result.solution.tolist(), "ergodic": result.ergodic.tolist()}
        document = {**(about or {}), **result.to_dict(), **vectors, "folder": str(folder)}
        print(json.dumps(document))
        return
    last = result.summary
    spent = [("noise", "none")]
    if last["epsilon"] is not None:
        spent = [
            ("total epsilon", rounded_up(last["epsilon"], 4)),
            ("total delta", f"{last['delta']:g}"),
            ("noise from", result.noise_source),
        ]
    print_table(
        f"{len(result.names)} agents, {last['round']} rounds",
        ("", ""),
        [
            (
                "objective at the agents' points (not covered: keep secret)",
                f"{last['objective']:.6g}",
            ),
            ("consensus residual", f"{last['residual']:.3g}"),
            ("largest violation", f"{last['violation']:.3g}"),
            *spent,
        ],
    )
    if result.solution.size <= 20 and about is None:
        print("solution: " + " ".join(f"{x:.5g}" for x in result.solution))
        print("ergodic:  " + " ".join(f"{x:.5g}" for x in result.ergodic))
    print(result.privacy.words)
    print(f"files: {folder}")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", show_header=any(header))
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Output().print(table)
