"""What commands share: progress bars, tables, result folders. Progress goes to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tacit.accounting import rounded_up
from tacit.errors import InvalidInput


def progress_bar(unit: str) -> Progress:
    """A bar with the number of units done and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def run_with_progress(
    label: str, problem: Any, settings: Any, *, resume: str = "", **options: Any
) -> Any:
    """``tacit.solve`` with a progress bar; ``resume`` is the command to go on with after Ctrl-C."""
    from tacit.solve import solve

    with progress_bar("rounds") as bar:
        task = bar.add_task(label, total=settings.rounds)
        try:
            return solve(
                problem,
                settings,
                callback=lambda progress: bar.update(task, completed=progress.round),
                **options,
            )
        except KeyboardInterrupt:
            bar.stop()
            if resume:
                print(f"tacit: go on with: {resume}", file=sys.stderr)
            elif options.get("noise") == "secure":
                lost = "secure noise without ledgers cannot be continued; what was sent is spent"
                print(f"tacit: {lost}", file=sys.stderr)
            raise


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
    Console().print(table)
