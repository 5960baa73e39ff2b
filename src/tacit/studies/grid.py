"""Studies of a grid in zones: the case is public, each party brings the loads of its own zone.

``docs/files.md`` lists the keys of [power]; [privacy] and [algorithm] have those of a job file
and the meaning they have for ``tacit power solve``: loads are released once; ``rounds`` is the
most that follow, unless [algorithm] says ``noise_every_round = true`` or [privacy] the ``epsilon``
of one update. The party's table is a CSV file with the columns bus, p and q, one line for each bus
of its zone, in the ``unit`` that the party's file says. No load of the case itself is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked
from tacit.errors import InvalidInput, choice, shown
from tacit.files import as_csv, write_atomically
from tacit.planning import Plan
from tacit.power.case import Grid, load_case, named_case
from tacit.power.model import PowerProblem, asked_for, planned
from tacit.power.network import FLOWS
from tacit.power.public_model import PublicModel, is_share, public_model, starting_penalties
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Kind, public_name, read_public, refuse_unknown, spending
from tacit.tables import read_table

SECTION = {
    *("case", "zones", "beta", "objective", "shed_price"),
    *("nominal", "nominal_spread", "noise_on"),
}
PRIVACY = {
    *("mechanism", "total_epsilon", "total_delta", "epsilon", "delta"),
    *("perturbation", "calibration"),
}
ALGORITHM = {
    *("rounds", "local_updates", "penalty", "step_size", "tolerance", "noise_every_round"),
}
LOADS = ["p_demand", "q_demand"]


@dataclass(frozen=True)
class GridKind(Kind):
    """A grid in zones without its loads, and what is asked of a run on it."""

    model: PublicModel
    asked: Asked

    KEYS = ("power",)
    TAKES = "unit"

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> GridKind:
        section = data["power"]
        refuse_unknown(section, SECTION, "[power]")
        files: list[str] = []
        case = section.get("case")
        grid = _public_grid(case, "case", folder, files)
        if files and section.get("nominal") != case and grid.bus[LOADS].to_numpy().any():
            raise InvalidInput(
                f"Expected zeros as loads (Pd, Qd) in {case}, which travels to every party, got "
                "others. Set them to 0, or give the same file as nominal if its loads are public."
            )
        zones = section.get("zones", 3)
        if isinstance(zones, str) and zones != "area":
            files.append(public_name(zones, "zones in [power]"))
            read_public(folder, zones)
            zones = folder / zones
        elif zones != "area" and type(zones) is not int:
            raise InvalidInput(
                f"Expected zones as a number, 'area' or the name of a CSV file, got {shown(zones)}."
            )
        nominal = section.get("nominal")
        model = public_model(
            dataclasses.replace(grid, bus=grid.bus.assign(p_demand=0.0, q_demand=0.0)),
            zones,
            beta=_beta(section.get("beta", 0.01), nominal is not None),
            noise_on=choice(
                "noise_on", section.get("noise_on", "residual"), ("residual", "gradient")
            ),
            nominal=None if nominal is None else _public_grid(nominal, "nominal", folder, files),
            nominal_spread=section.get("nominal_spread"),
            objective=section.get("objective", "shed"),
            shed_price=section.get("shed_price"),
        )
        privacy, algorithm = spending(data, PRIVACY, ALGORITHM)
        every = algorithm.get("noise_every_round", False)
        if not isinstance(every, bool):
            raise InvalidInput(f"Expected noise_every_round = true or false, got {shown(every)}.")
        asked = asked_for({**section, **privacy, **algorithm})
        return cls(tuple(model.zones), tuple(sorted(set(files))), model, asked)

    @property
    def penalties(self) -> tuple[Vector, Vector] | None:
        return starting_penalties(self.model)

    def digested(self) -> Any:
        """The grid and its zones: a case by name, or METIS, may differ between versions."""
        nominal = self.model.nominal
        return {
            "grid": _digest(self.model.grid),
            "nominal": None if nominal is None else _digest(nominal),
            "zones": self.model.zones,
        }

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        net = self.model.network(agent)
        return self.model.agent(agent, net, self._loads(net.buses, party))

    def _loads(self, buses: list[int], party: PartyFile) -> Vector:
        """Active, then reactive loads of these buses, in per unit, from the party's table."""
        if party.unit is None:
            raise InvalidInput(
                f"Expected unit = 'MW' (of loads in MW and MVAr) or 'per unit' in {party.path}; "
                "not given."
            )
        table = read_table(party.data, strip=True)
        if missing := [name for name in ("bus", "p", "q") if name not in table.columns]:
            raise InvalidInput(
                f"Expected the columns bus, p and q in {party.data}, found no {missing[0]!r} in "
                "the first line."
            )
        rows = table.numbers(("bus", "p", "q"))
        number, loads = rows[:, 0], rows[:, 1:]
        known = np.isin(number, buses)
        if not known.all():
            raise InvalidInput(
                f"Expected buses of {party.agent!r} in {party.data}, got another one in "
                f"{table.where(int(np.argmin(known)))}."
            )
        for bus in buses:
            if (times := int((number == bus).sum())) != 1:
                raise InvalidInput(
                    f"Expected one line for bus {bus} in {party.data} (0 where there is no load), "
                    f"got {times}."
                )
        order = [int(np.flatnonzero(number == bus)[0]) for bus in buses]
        base = self.model.grid.base_mva if party.unit == "MW" else 1.0
        return np.asarray((loads[order] / base).T.ravel())

    def plan(self, problem: Problem) -> Plan:
        return planned(problem, self.asked, self.model.nominal is not None)

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """``cut_lines.csv``: what zones agreed on, in per unit; c and s are those of Appendix D."""
        agreed = dict(zip(self.model.shared, np.asarray(result.solution).tolist(), strict=True))
        lines = sorted({key for quantity, key in self.model.shared if quantity == "p_from"})
        table = self.model.grid.line.loc[lines, ["from_bus", "to_bus", "limit"]].copy()
        for quantity in FLOWS:
            table[quantity] = [agreed[quantity, line] for line in lines]
        ends = table[["from_bus", "to_bus"]].to_numpy()
        pairs = [(int(min(pair)), int(max(pair))) for pair in ends]
        for quantity in ("c", "s"):
            table[quantity] = [agreed[quantity, pair] for pair in pairs]
        write_atomically(folder / "cut_lines.csv", as_csv(table))
        if result.privacy.certified:
            os.chmod(folder / "cut_lines.csv", 0o644)  # what the statement covers may be read
        return ["cut_lines.csv"]

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        """``bus.csv``, ``line.csv``, ``generator.csv`` of the zone, as ``PowerProblem.tables``."""
        objective: Any = problem.objective
        model, agent = self.model, problem.name
        net = model.network(agent)
        p, q = np.split(np.asarray(objective.data), 2)
        grid = dataclasses.replace(
            model.grid,
            bus=model.grid.bus.loc[net.buses].assign(p_demand=p, q_demand=q),
            line=model.grid.line.loc[net.lines],
            generator=model.grid.generator.loc[net.generators],
        )
        zone = {agent: model.zones[agent]}
        about = (model.shared, model.objective, model.shed_price)
        own = PowerProblem(grid, zone, (net,), (problem,), *about)
        tables = own.tables((np.asarray(point),))
        for name, table in tables.items():
            write_atomically(folder / f"{name}.csv", as_csv(table))
        return [f"{name}.csv" for name in tables]


def _public_grid(source: Any, key: str, folder: Path, files: list[str]) -> Grid:
    """A named case, or a file that travels; no other file is opened."""
    if not isinstance(source, str) or not source:
        got = "nothing" if source is None else shown(source)
        raise InvalidInput(f"Expected the name of a case, or of a .m file, as {key}, got {got}.")
    if source.endswith(".m"):
        files.append(public_name(source, f"{key} in [power]"))
        read_public(folder, source)
        return load_case(folder / source)
    if not re.fullmatch(r"\w+", source, re.ASCII):
        raise InvalidInput(
            f"Expected the name of a public case, such as 'case14', or of a .m file as {key}, got "
            f"{shown(source)}."
        )
    return named_case(source)


def _beta(beta: Any, nominal: bool) -> Any:
    if is_share(beta) and not nominal:
        raise InvalidInput(
            f"Expected nominal, a case with public loads, beside beta = {beta!r}: a share of the "
            "private loads would tell them."
        )
    if type(beta) not in (int, float) and not is_share(beta):
        raise InvalidInput(
            f"Expected beta as a number in per unit, '1% of largest' or '1% of bus', got "
            f"{shown(beta)}."
        )
    return beta


def _digest(grid: Grid) -> str:
    tables = (grid.bus, grid.line, grid.generator)
    text = "\n".join((f"{grid.base_mva!r}", *(table.to_csv() for table in tables)))
    return hashlib.sha256(text.encode()).hexdigest()
