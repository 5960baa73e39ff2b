"""The command ``tacit demo``: small problems beside their non-private answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tacit.cli.console import progress_bar, tell
from tacit.cli.options import Add
from tacit.errors import digits


def add_demo(add: Add) -> None:
    demo = add(
        "demo",
        _demo,
        "Solve one small private problem of each kind and plot it.",
        "tacit demo --out demo-result",
    )
    demo.add_argument("--out", default="demo-result", help="folder for results and plot")


def _demo(options: argparse.Namespace) -> int:
    from tacit.lab.demo_problems import run_demo
    from tacit.privacy.accounting import rounded_up

    with progress_bar("budgets") as bar:
        tasks: dict[str, Any] = {}

        def step(name: str, done: int, of: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=of)
            bar.update(tasks[name], completed=done)

        rows = run_demo(Path(options.out), step)
    plot = str(Path(options.out) / "demo.png")
    table = (
        "Private answers beside the same model without privacy, and beside no data",
        ("problem", "private", "non-private", "without data", "violation", "epsilon", "delta"),
        [
            (
                r["problem"],
                f"{r['private']:.4f}",
                f"{r['non_private']:.4f}",
                f"{r['without_data']:.4f}",
                f"{r['violation']:.1e}",
                rounded_up(r["epsilon"], 4),
                digits(r["delta"]),
            )
            for r in rows
        ],
    )
    measures = (f"{r['problem']}: {r['measure']}; {r['what']}" for r in rows)
    document = {"problems": rows, "plot": plot}
    return tell(options.json, document, table, *measures, f"plot: {plot}")
