"""The command ``tacit power check``: what would happen if a run's dispatch were used."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tacit.cli.console import print_table
from tacit.cli.options import Add
from tacit.cli.report import draw
from tacit.cli.run_folder import Note
from tacit.errors import InvalidInput
from tacit.files import save_figure, write_atomically
from tacit.reading import read_pandas, reading

WORDS = {"voltages": "voltages", "overloads": "lines", "reactive": "reactive power"}
MOST_ROWS = 10  # of each table on the screen; --json has all


def add_check(add: Add) -> None:
    check = add(
        "check",
        _check,
        "What would happen if a run's dispatch were used: an AC power flow at the true loads. For "
        "their owners' eyes only.",
        "tacit power check case118-result",
    )
    check.add_argument("folder", help="folder of tacit power solve")
    check.add_argument("--case", help="the case, if it lies elsewhere than when it was solved")


def _check(options: argparse.Namespace) -> int:
    """1 if there is no power flow: the dispatch cannot be used."""
    from tacit.power import load_case, plot_power_flow, power_flow

    folder = Path(options.folder)
    grid = load_case(options.case or _case_of(folder))
    p, voltage = _column(folder, "generator", "p"), _column(folder, "bus", "voltage")
    flow = power_flow(grid, p, voltage)
    save_figure(folder / "check.png", plot_power_flow(flow), dpi=130)
    found = {**flow.summary(), "not_covered": list(flow.summary()), "folder": str(folder)}
    write_atomically(folder / "check.json", json.dumps(flow.summary(), indent=1).encode())
    draw(folder)
    if options.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0 if flow.converged else 1


def _case_of(folder: Path) -> str:
    """The case that the run in the folder was about."""
    note = Note.read(folder) if folder.is_dir() else None
    case = None if note is None or note.command != "power solve" else note.options.get("case")
    if not isinstance(case, str):
        raise InvalidInput(f"Expected a folder of tacit power solve, got {folder}.")
    return case


def _column(folder: Path, table: str, column: str) -> Any:
    path = folder / f"{table}.csv"
    if not path.is_file():
        raise InvalidInput(f"Expected a finished run in {folder}, found no {path.name} there.")
    with reading(path, f"a column {column} of numbers"):
        return read_pandas(path, index_col=table)[column].astype(float)


def _print(found: dict[str, Any]) -> None:
    title = f"{found['case']}: AC power flow of this dispatch"
    print("computed from the true loads: keep secret")
    rows = [(f"{name} (MW)", f"{found[f'{name}_mw']:.6g}") for name in ("load", "dispatched")]
    if not found["converged"]:
        print_table(title, ("", ""), [*rows, ("AC power flow", "none was found")])
        return
    buses = ", ".join(map(str, found["slack_buses"]))
    beyond = {name: len(found[name]) for name in ("voltages", "overloads", "reactive")}
    lowest, highest = found["lowest_voltage"], found["highest_voltage"]
    rows += [
        (f"more at the slack bus {buses} (MW)", f"{found['slack_mw']:+.4g}"),
        ("losses (MW)", f"{found['losses_mw']:.4g}"),
        ("voltages (per unit)", f"{lowest:.4f} to {highest:.4f}"),
        ("voltages beyond limits", str(beyond["voltages"])),
        ("highest loading of a line", f"{100 * found['highest_loading']:.4g}%"),
        ("lines beyond limits", str(beyond["overloads"])),
        ("generators beyond reactive limits", str(beyond["reactive"])),
    ]
    print_table(title, ("", ""), rows)
    kinds = {
        "voltages": ("bus", "voltage", "v_min", "v_max"),
        "overloads": ("line", "from_bus", "to_bus", "loading"),
        "reactive": ("generator", "bus", "q", "q_min", "q_max"),
    }
    for name, columns in kinds.items():
        if found[name]:
            shown = [[f"{row[c]:.4g}" for c in columns] for row in found[name][:MOST_ROWS]]
            print_table(f"{WORDS[name]} beyond limits ({beyond[name]})", columns, shown)
    print(f"files: {found['folder']}/check.png")
