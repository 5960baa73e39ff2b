"""The command ``tacit demo``: small problems beside their non-private optimum."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit.cli.console import print_table, run_with_progress
from tacit.cli.options import Add


def add_demo(add: Add) -> None:
    demo = add(
        "demo",
        _demo,
        "Solve one small private problem of each kind and plot it.",
        "tacit demo --out demo-result",
    )
    demo.add_argument("--out", default="demo-result", help="folder for results and plot")


def _demo(options: argparse.Namespace) -> int:
    from tacit.cli.demo_problems import run_demo
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
