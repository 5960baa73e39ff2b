"""The commands ``tacit power``: solve, bound, check, attack."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit.cli.console import lines_now_and_then, print_result, progress_bar, tell
from tacit.cli.options import (
    Add,
    add_noise_options,
    add_run_options,
    changed,
    make_absolute,
    refuse_to_publish,
)
from tacit.cli.ranks import build
from tacit.cli.report import draw
from tacit.cli.run_folder import Note, RunFolder, run_folder
from tacit.errors import RUNS, InvalidInput, count
from tacit.files import as_csv, read_json, read_pandas, reading, save_figure, write_atomically

DELTA = 1e-5  # of all that is released, for one release of the loads, where none is given
BEYOND = {  # limits that a dispatch may break, by name: what breaks them, and its columns
    "voltages": ("voltages (per unit)", ("bus", "voltage", "v_min", "v_max")),
    "overloads": ("lines", ("line", "from_bus", "to_bus", "loading")),
    "reactive": ("reactive power (per unit)", ("generator", "bus", "q", "q_min", "q_max")),
}
CASE = "MATPOWER file (.m), pandapower network (.json) or a named case such as case14"
MOST_ROWS = 10  # of each table on the screen; --json has all
OF_SOLVE = ("noise_on", "objective", "shed_price", "nominal_spread")


def add_grid(command: Any, *, required: bool) -> None:
    """Which grid, in which zones: for all commands ``tacit power``."""
    command.add_argument(
        "case",
        nargs=None if required else "?",
        help=CASE,
    )
    command.add_argument(
        "--zones",
        default="3",
        help="a number, 'area', or a CSV file with columns bus, zone (default: 3)",
    )
    command.add_argument(
        "--beta",
        default="0.01",
        help="how far a bus's demands may move: per unit, '1%% of largest' or '1%% of bus'",
    )
    command.add_argument(
        "--nominal",
        help="case with public loads: percentages refer to them, and released loads are drawn "
        "towards them",
    )


def build_case(options: argparse.Namespace) -> Any:
    """The grid of the options with all zones' problems."""
    from tacit.power import build

    return build(*_case(options), **_about(options))


def _case(options: argparse.Namespace) -> tuple[Any, Any]:
    return options.case, int(options.zones) if options.zones.isdigit() else options.zones


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Other arguments of ``tacit.power.build``."""
    named = ("beta", "nominal", *OF_SOLVE)
    return {name: getattr(options, name) for name in named if hasattr(options, name)}


def add_solve(add: Add) -> None:
    solve = add(
        "solve",
        _solve,
        "Serve a grid's load, or at least cost, privately, zone by zone.",
        "tacit power solve case14 --zones 3 --total-epsilon 1 --total-delta 1e-5\n"
        "  tacit power solve case118 --total-epsilon 1 --total-delta 1e-5 --objective cost\n"
        "  tacit power solve mygrid.m --zones zones.csv --noise-every-round --epsilon 0.1 "
        "--mechanism laplace --rounds 100 --local-updates 5",
    )
    add_grid(solve, required=False)
    solve.add_argument("--total-epsilon", type=float, help="epsilon of all that is released")
    solve.add_argument(
        "--total-delta",
        type=float,
        help="delta of all that is released; 0 for Laplace noise alone (default: 1e-5 for one "
        "release of the loads, 0 with --mechanism laplace)",
    )
    solve.add_argument("--no-noise", action="store_true", help="not private: the exact answer")
    solve.add_argument(
        "--mechanism",
        choices=("gaussian", "laplace"),
        help="default: gaussian in every round; for one release the one that adds less noise",
    )
    solve.add_argument(
        "--tolerance",
        type=float,
        help="stop when both residuals, relative to the solution, are this small "
        "(default: far below the noise, 1e-4 to 1e-2; 1e-6 without noise)",
    )
    solve.add_argument(
        "--rounds", type=int, help="most rounds (default: 1000; with noise in every round: 100)"
    )
    solve.add_argument("--penalty", type=float, help="where the penalties start (default: chosen)")
    solve.add_argument(
        "--objective",
        choices=("shed", "cost"),
        default="shed",
        help="squared load shedding, or generation cost with a price on what is short",
    )
    solve.add_argument(
        "--shed-price", type=float, help="$/MWh (default: 100 times the largest marginal cost)"
    )
    solve.add_argument(
        "--nominal-spread",
        type=float,
        help="how far loads lie from those of --nominal, as a share; public (default: estimated "
        "from what was released)",
    )
    solve.add_argument(
        "--central", action="store_true", help="also solve the whole grid in one place, to compare"
    )
    solve.add_argument(
        "--publish", action="store_true", help="also write the released loads, which are covered"
    )
    rounds = solve.add_argument_group("noise in every round (Algorithm 1 as in the paper)")
    rounds.add_argument(
        "--noise-every-round",
        action="store_true",
        help="read the loads in every round, and pay for each, instead of once",
    )
    rounds.add_argument("--epsilon", type=float, help="epsilon of one update")
    rounds.add_argument("--delta", type=float, help="delta of one gaussian update")
    rounds.add_argument("--local-updates", type=int, help="default: 1 with noise, 5 without")
    rounds.add_argument("--step-size", type=float, help="default: falls with the noise")
    rounds.add_argument("--noise-on", choices=("residual", "gradient"), default="residual")
    add_noise_options(rounds)
    add_run_options(solve, "the case's name + -result")


def _plan(options: argparse.Namespace, problem: Any) -> Any:
    """How to spend the total budget, or that of one update, or to run without noise."""
    from tacit.power.model import asked_for, planned

    return planned(problem, asked_for(changed(options), DELTA), options.nominal is not None)


def _solve(options: argparse.Namespace) -> int:
    with run_folder("power solve", options, "-result") as (folder, options):
        result, about = _run(options, folder)
    draw(folder.path)
    print_result(result, folder.path, options.json, about, _said(about))
    return 0


def part(options: argparse.Namespace, rank: int, ranks: int) -> Any:
    """A rank's own zones. Every rank reads the case file, and makes these zones' problems only."""
    from tacit.power.network import demand
    from tacit.power.public_model import public_model, starting_penalties
    from tacit.transports.mpi import Part, share_of

    model = public_model(*_case(options), **_about(options))
    mine = share_of(len(model.zones), rank, ranks)
    agents = []
    for zone in list(model.zones)[mine.start : mine.stop]:
        net = model.network(zone)
        agents.append((zone, model.agent(zone, net, demand(model.grid, net.buses))))
    return Part(mine.start, agents, about=model.grid.name, penalties=starting_penalties(model))


def _run(options: argparse.Namespace, folder: RunFolder) -> tuple[Any, dict[str, Any]]:
    """The result and what it is about, both written to the folder."""
    from tacit.power import bound, plot_grid
    from tacit.power.cost import published_cost
    from tacit.protocol.disclosure import DOCUMENTS
    from tacit.protocol.release import Released

    if options.crew is None:
        with lines_now_and_then(lambda: f"{options.case}: making the zones' problems"):
            case = build_case(options)
        name, problem = case.grid.name, case.problem
    else:  # all zones together after the run, for what is told of them
        name, problem = build(options.crew, "power solve", options)[0], options.crew.problem
    plan = _plan(options, problem)
    refuse_to_publish(options, plan, problem)
    named = ("zones",) if options.zones == "area" or options.zones.isdigit() else ()
    files = tuple(name for name in ("case", "zones", "nominal") if name not in named)
    make_absolute(options, files, folders=("ledgers",))
    result = folder.run(name, problem, plan, options)
    result.save(folder.path)
    if options.crew is not None:
        case = build_case(options)
    tables = case.tables(result.local)
    for name, table in tables.items():
        write_atomically(folder.path / f"{name}.csv", as_csv(table))
    _back(case, tables, options.case, folder.path)
    save_figure(folder.path / "grid.png", plot_grid(case, result), dpi=130)
    about = {
        "case": case.grid.name,
        "zones": {name: len(buses) for name, buses in case.zones.items()},
        "cut_lines": case.cut_lines,
        "tables": {name: t.reset_index().to_dict("list") for name, t in tables.items()},
        "answer": _measures(case, result.local),
        "what_privacy_costs": None if options.no_noise else case.price_of_privacy(result.local),
        "base_mva": case.grid.base_mva,
        "assumed": list(case.grid.assumed),
        # what reads the true loads, or holds them: whatever the statement covers, not these
        "not_covered": list(DOCUMENTS["power solve"]),
    }
    if options.objective == "cost":
        about["shed_price"] = case.shed_price
    if options.central or options.publish:
        released = None if options.no_noise else Released.load(folder.checkpoint, case.problem)
        if options.central:
            copies = released and [a.objective for a in released.problem.agents]
            about["central"] = _measures(case, case.central(copies))
            if options.objective == "cost":
                about["central"]["bound"] = bound(case.grid)
                about["central"]["published"] = published_cost(case.grid.name)
        if options.publish:
            _publish(case, released, folder)
    told = {k: v for k, v in about.items() if k not in ("tables", "cut_lines")}
    write_atomically(folder.path / "figures.json", json.dumps(told, indent=1).encode())
    return result, about


def _back(case: Any, tables: Any, source: str, folder: Path) -> None:
    """The dispatch as a MATPOWER file and, where it came from one, in a network of pandapower."""
    from tacit.power import into_pandapower, matpower
    from tacit.power.case import read_network

    made, voltage = tables["generator"], tables["bus"]["voltage"]
    text = matpower(case.grid, made["p"], made["q"], voltage)
    write_atomically(folder / "dispatch.m", text.encode())
    if source.endswith(".json"):
        net, document = read_network(source), read_json(source)
        net = into_pandapower(net, case.grid, made["p"], voltage)
        for name in ("gen", "ext_grid"):
            told = net[name].to_json(orient="split", double_precision=15)
            document["_object"][name] |= {"_object": told}
        write_atomically(folder / "dispatch.json", json.dumps(document).encode())


def _assumed(base: float, assumed: Sequence[str]) -> list[str]:
    """What stands for limits that a network left out; on a base of its own "per unit" may be kW."""
    words = f"per unit is of {base:g} MVA; {'; '.join(assumed)}"
    return [f"Not in the network, and assumed: {words}"] if assumed else []


def _measures(case: Any, local: Any) -> dict[str, Any]:
    """What a dispatch is worth at the true loads: for their owners' eyes only."""
    true = [float(a.objective.value(z)) for a, z in zip(case.agents, local, strict=True)]
    found = {"served": case.served(local), "objective_at_true_loads": sum(true)}
    if case.objective == "cost":  # in $/h, what is short at its price
        found["objective_at_true_loads"] *= case.agents[0].objective.tariff.worth
        found["cost"] = case.cost(local)
    return found


def _publish(case: Any, released: Any, folder: RunFolder) -> None:
    """The loads as they were released: bus, p and q in per unit. Covered: anyone may read it."""
    import pandas as pd

    assert released is not None
    parts = []
    for net, release in zip(case.networks, released.releases, strict=True):
        p, q = release.values.reshape(2, -1)
        parts.append(pd.DataFrame({"p_demand": p, "q_demand": q}, index=net.buses))
    table = pd.concat(parts).sort_index().rename_axis("bus")
    folder.write_public("release.csv", as_csv(table))


def _said(about: dict[str, Any]) -> list[str]:
    """What a person asks first; it reads the true loads."""
    from tacit.report.page import outcome

    return [
        *(
            _assumed(about["base_mva"], about["assumed"])
            or [f"Per unit is of {about['base_mva']:g} MVA."]
        ),
        "At the true loads (not covered: keep secret):",
        *(f"{name}: {value}" for name, value in outcome(about)),
    ]


# --- bound ----------------------------------------------------------------------------------------


def add_bound(add: Add) -> None:
    bound = add(
        "bound",
        _bound,
        "The least generation cost over the relaxation: below that of any AC power flow.",
        "tacit power bound case118 --json",
    )
    bound.add_argument("case", help=CASE)


def _bound(options: argparse.Namespace) -> int:
    from tacit.power import bound, load_case

    grid = load_case(options.case)
    objective = bound(grid)
    document = {"case": grid.name, "buses": len(grid.bus), "objective": objective}
    words = f"{grid.name}: at least {objective:.6g} $/h"
    return tell(options.json, document, words, *_assumed(grid.base_mva, grid.assumed))


# --- check ----------------------------------------------------------------------------------------


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
    note = Note.read(folder) if folder.is_dir() and not options.case else None
    noted = None if note is None or note.command != "power solve" else note.options.get("case")
    if not isinstance(case := options.case or noted, str):
        raise InvalidInput(f"Expected a folder of tacit power solve, got {folder}.")

    def column(table: str, name: str) -> Any:
        path = folder / f"{table}.csv"
        if not path.is_file():
            raise InvalidInput(f"Expected a finished run in {folder}, found no {path.name} there.")
        with reading(path, f"a column {name} of numbers"):
            return read_pandas(path, index_col=table)[name].astype(float)

    grid = load_case(case)
    flow = power_flow(grid, column("generator", "p"), column("bus", "voltage"))
    save_figure(folder / "check.png", plot_power_flow(flow), dpi=130)
    found = {**flow.summary(), "not_covered": list(flow.summary()), "folder": str(folder)}
    write_atomically(folder / "check.json", json.dumps(flow.summary(), indent=1).encode())
    draw(folder)
    tell(options.json, found, *_of_check(found))
    return 0 if flow.converged else 1


def _of_check(found: dict[str, Any]) -> Iterator[Any]:
    """What is told of it."""
    from tacit.report.page import ac_check

    yield "computed from the true loads: keep secret"
    yield f"{found['case']}: AC power flow of this dispatch", ("", ""), ac_check(found)
    for name, (what, columns) in BEYOND.items():
        if beyond := found.get(name):
            shown = [[f"{row[c]:.4g}" for c in columns] for row in beyond[:MOST_ROWS]]
            yield f"{what} beyond limits ({len(beyond)})", columns, shown
    if found["converged"]:
        yield f"files: {found['folder']}/check.png"


# --- attack ---------------------------------------------------------------------------------------


def add_attack(add: Add) -> None:
    attack = add(
        "attack",
        _attack,
        "What an eavesdropper learns about the loads, with and without privacy.",
        "tacit power attack case14",
    )
    add_grid(attack, required=True)
    attack.add_argument(
        "--total-epsilons", type=float, nargs="+", default=[100.0, 10.0, 1.0], metavar="EPSILON"
    )
    attack.add_argument("--total-delta", type=float, default=1e-5)
    attack.add_argument("--rounds", type=int, default=50)
    attack.add_argument("--seeds", type=int, default=3)
    attack.add_argument("--out", help="folder for loads.csv and attack.png (default: case-attack)")


def _attack(options: argparse.Namespace) -> int:
    from tacit.admm.settings import Settings
    from tacit.lab.load_recovery import attack
    from tacit.planning import least_noise
    from tacit.power import scheduled

    count("seeds", options.seeds, RUNS)
    case = build_case(options)
    problem = case.problem
    chosen = [("no privacy", Settings(options.rounds))]
    for epsilon in options.total_epsilons:
        private = Settings.for_budget(epsilon, options.total_delta, options.rounds)
        chosen.append((f"epsilon {epsilon:g}", private))
    chosen = [(label, scheduled(case, settings)) for label, settings in chosen]
    releases = [
        (f"epsilon {epsilon:g}, released once", least_noise(problem, epsilon, options.total_delta))
        for epsilon in options.total_epsilons
    ]
    folder = Path(options.out or f"{Path(options.case).stem}-attack")
    folder.mkdir(parents=True, exist_ok=True)
    runs = 1 + 2 * options.seeds * len(options.total_epsilons)
    with progress_bar("runs") as bar:
        task = bar.add_task("attack", total=runs)
        found = attack(
            case,
            chosen,
            releases=releases,
            seeds=options.seeds,
            progress=lambda: bar.advance(task),
        )
    write_atomically(folder / "loads.csv", found.loads.to_csv(index=False).encode())
    save_figure(folder / "attack.png", found.plot(), dpi=130)
    rows = [("guess without messages", f"{found.prior_error:.2g}", "")]
    for label in found.labels:
        floor = "" if label == "no privacy" else f"{found.floors[label]:.2g}"
        rows.append((label, f"{found.errors[label]:.2g}", floor))
    title = f"{case.grid.name}: error of the estimated loads (RMS, per unit)"
    document = {**found.to_dict(), "delta": options.total_delta, "folder": str(folder)}
    table = title, ("", "eavesdropper", "least expected"), rows
    return tell(options.json, document, table, f"files: {folder}")
