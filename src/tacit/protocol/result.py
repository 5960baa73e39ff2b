"""What a run leaves behind: solution, trace, settings, versions and the privacy statement.

A result is a folder of plain files (no pickle):

    result.json   settings, seed, versions, names, privacy statement, summary
    arrays.npz    solution, ergodic solution, every agent's local solution
    trace.csv     one row per evaluated round
    timing.json   where the time went
    plot.png      the picture of ``Result.plot``

All but ``arrays.npz`` hold numbers that the statement does not cover: they are created for their
owner's eyes only, and never wider.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._types import Vector
from tacit.admm.adaptive import Gap
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.errors import CorruptFile, InvalidInput, digits
from tacit.files import (
    read_json,
    read_npz,
    read_rows,
    reading,
    save_figure,
    typed,
    write_atomically,
)
from tacit.html import never_raises
from tacit.privacy.accounting import rounded_up
from tacit.protocol.disclosure import TRACE as TRACE_LEVELS
from tacit.protocol.disclosure import not_covered
from tacit.protocol.statement import PrivacyStatement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 12  # of a result that is printed with them
TRACE = ("round", "objective", "residual", "noise", "violation")
RELEASED_TRACE = ("round", "objective", "residual", "dual_residual", "violation")
# of a server that sees replies only; seconds of its own, and until the last reply was there
SERVER_TRACE = ("round", "residual", "server_seconds", "wait_seconds")
RELEASED_SERVER_TRACE = ("round", "residual", "dual_residual", "server_seconds", "wait_seconds")
TRACES = (TRACE, RELEASED_TRACE, SERVER_TRACE, RELEASED_SERVER_TRACE)


@dataclass(frozen=True)
class Progress:
    """What a callback is given after each evaluated round (one entry per agent in the lists)."""

    round: int
    consensus: Vector  # w^{t+1}
    averages: list[Vector]  # z^{t+1}
    points: list[Vector]  # z^{t,E+1}
    duals: list[Vector]  # λ^{t+1}
    row: dict[str, float]  # the trace row


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of ``tacit.solve``.

    solution     global vector: mean of the last released points over the holders of each
                 coordinate (feasible if all agents share one set)
    ergodic      the same for the averages over rounds in which Section 5's theorems are stated
                 (weights 1, or t for the strongly convex step size); less noisy
    local        every agent's own last average z_p^{T+1}, private coordinates included
    trace        columns ``round``, ``objective`` Σf_p(z_p^{t+1}), ``residual`` ‖Aw − z‖,
                 ``noise`` Σ_pΣ_eΣ_i|ξ| of the round, ``violation`` (largest over the agents).
                 Objective and noise are computed from private values: see ``privacy``. Of a
                 released problem: its own objective and ``dual_residual``, both covered. Of a
                 server between organisations: what it can know (``SERVER_TRACE``)
    seed         the seed, or None: a key from the operating system (``noise_source``)
    converged    whether both residuals reached the tolerance; None where there was none
    plan         what was chosen for a budget, and why; empty where the settings said it
    duals        of exact steps: every agent's λ on its coupled coordinates, to start again from
    release      of exact steps on a release: a mark of it and of this answer (``release.mark``)
    gap          where steps adapted: a public estimate of what is left to gain, and whether the
                 noise explains it (``adaptive.Gap``); else None
    timing       where the time went (``transports/local.py``): seconds, no two runs have the same.
                 Not covered: how long a computation takes may depend on the data
    released     what every agent of one owner, or their sum, released: covered, in no file
    labels       of the coordinates of the solution, where the problem has any: see ``named``
    """

    solution: Vector
    ergodic: Vector
    local: tuple[Vector, ...]
    trace: dict[str, Vector]
    settings: Settings
    privacy: PrivacyStatement
    names: tuple[str, ...]
    seed: int | None
    versions: dict[str, str]
    converged: bool | None = None
    plan: str = ""
    duals: tuple[Vector, ...] = ()
    timing: dict[str, Any] = field(default_factory=dict)
    release: str = ""
    gap: Gap | None = None
    released: tuple[Vector, ...] = ()
    labels: tuple[str, ...] = ()

    def __repr__(self) -> str:
        n, p = len(self.names), self.privacy
        epsilon = f"epsilon <= {rounded_up(p.epsilon, 4)}, delta {digits(p.delta)}"
        label = "certified" if p.certified else "not certified"
        found = (
            f"Result({n} agent{'s' * (n != 1)}, {int(self.trace['round'][-1])} rounds, solution of "
            f"size {self.solution.size}, {'no noise' if np.isinf(p.epsilon) else epsilon}, {label}"
            f"{', tolerance NOT reached' if self.converged is False else ''})"
        )
        if 0 < len(self.labels) <= MOST_LABELS:
            found += "\n" + ", ".join(f"{name}: {x:.4g}" for name, x in self.named.items())
        return found if self.gap is None or self.gap.finished else f"{found}\n{self.gap}"

    @property
    def named(self) -> dict[str, float]:
        """The solution by its labels; a coordinate without one has its number."""
        names = self.labels or ("",) * len(self.solution)
        found = zip(names, self.solution.tolist(), strict=True)
        return {name or f"[{i}]": x for i, (name, x) in enumerate(found)}

    @never_raises
    def _repr_html_(self) -> str:
        from tacit.protocol.jupyter import result_html

        return result_html(self)

    @property
    def summary(self) -> dict[str, Any]:
        """The last row of the trace with the total budget: plain numbers."""
        last: dict[str, Any] = {name: float(column[-1]) for name, column in self.trace.items()}
        last["round"] = int(last["round"])
        return {
            **last,
            "epsilon": self.privacy.to_dict()["epsilon"],
            "delta": self.privacy.delta,
            "certified": self.privacy.certified,
            "not_covered": not_covered(self.privacy.once, self.trace, TRACE_LEVELS),
            "converged": self.converged,
            "seed": self.seed if self.seed is not None else "from the operating system",
        }

    @property
    def covered_trace(self) -> tuple[str, ...]:
        """The columns of the trace that a certified statement covers."""
        hidden = not_covered(self.privacy.once, self.trace, TRACE_LEVELS)
        return tuple(name for name in self.trace if name not in hidden)

    @property
    def noise_source(self) -> str:
        """Where the noise came from: the operating system, number by number, or a key of 64 bits.

        Threefry makes all noise of a run out of one key; its keys have no more bits than that.
        """
        if self.privacy.secure:
            return "operating system, exact (secure)"
        if self.seed is None:
            return "operating system key, Threefry"
        return f"seed {self.seed}, Threefry"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays."""
        return {
            "format": 1,
            "summary": self.summary,
            "privacy": self.privacy.to_dict(),
            "settings": self.settings.to_dict(),
            "agents": list(self.names),
            "seed": self.seed,
            "noise_source": self.noise_source,
            "converged": self.converged,
            "plan": self.plan,
            "versions": self.versions,
            **({"release": self.release} if self.release else {}),
            **({"gap": self.gap._asdict()} if self.gap else {}),
            **({"labels": list(self.labels)} if self.labels else {}),
        }

    def save(self, folder: str | Path) -> Path:
        """Write the result folder, ``result.json`` last. A result that is there is not replaced.

        The same result again is no error and changes nothing. What is left of a save that was
        interrupted is replaced.
        """
        folder = Path(folder)
        arrays, table = io.BytesIO(), io.StringIO(newline="")
        local: dict[str, Any] = {f"local_{i}": z for i, z in enumerate(self.local)}
        local |= {f"dual_{i}": λ for i, λ in enumerate(self.duals)}
        np.savez_compressed(arrays, solution=self.solution, ergodic=self.ergodic, **local)
        writer = csv.writer(table)
        writer.writerow(self.trace)
        writer.writerows(zip(*(column.tolist() for column in self.trace.values()), strict=True))
        content = {
            "arrays.npz": arrays.getvalue(),
            "trace.csv": table.getvalue().encode(),
            "result.json": json.dumps(self.to_dict(), indent=2).encode(),
        }
        if os.path.lexists(folder / "result.json"):
            if all(_holds(folder / name, value) for name, value in content.items()):
                return folder
            raise InvalidInput(
                f"Expected no result in {folder}; there is another one. Nothing was written or "
                "replaced: choose another folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "arrays.npz", content["arrays.npz"])
        if self.privacy.certified:
            os.chmod(folder / "arrays.npz", 0o644)  # what the statement covers may be read
        write_atomically(folder / "trace.csv", content["trace.csv"])
        if self.timing:  # apart from the rest, which the same run has again
            write_atomically(folder / "timing.json", json.dumps(self.timing, indent=2).encode())
        self.save_plot(folder)
        write_atomically(folder / "result.json", content["result.json"])
        return folder

    def save_plot(self, folder: str | Path) -> None:
        """Draw ``plot.png`` in a result folder, in place of one that is there."""
        save_figure(Path(folder) / "plot.png", self.plot(), dpi=120)

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a folder that ``save`` wrote."""
        folder = Path(folder)
        if not os.path.isfile(folder / "result.json"):
            raise CorruptFile(f"Expected a result folder with result.json, found none in {folder}.")
        with reading(folder, "a result that tacit saved"):
            data = read_json(folder / "result.json", "a result that tacit saved")
            arrays = read_npz(folder / "arrays.npz")
            if any(v.ndim != 1 or v.dtype.kind != "f" for v in arrays.values()):
                raise InvalidInput("arrays of other shapes")
            local = tuple(arrays[f"local_{i}"] for i in range(len(data["agents"])))
            header, *rows = read_rows(folder / "trace.csv")
            table = dict(zip(header, np.array(rows, np.float64).T, strict=True))
            names = next(known for known in TRACES if set(known) <= set(table))
            timing = folder / "timing.json"
            result = cls(
                arrays["solution"],
                arrays["ergodic"],
                local,
                {name: table[name] for name in names},
                Settings.from_dict(data["settings"]),
                PrivacyStatement.from_dict(data["privacy"]),
                tuple(data["agents"]),
                data["seed"],
                data["versions"],
                data.get("converged"),
                data.get("plan", ""),
                tuple(arrays[f"dual_{i}"] for i in range(len(local)) if "dual_0" in arrays),
                read_json(timing) if timing.is_file() else {},
                data.get("release", ""),
                Gap(**data["gap"]) if "gap" in data else None,
                labels=tuple(data.get("labels", ())),
            )
            repr(result)  # it can be shown
            return typed(result)

    def plot(self) -> Figure:
        """Objective, consensus residual, noise and violation over the rounds."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 6.5), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True)
        covered = "(at the released data)" if self.privacy.once else "(not covered)"
        titles = {
            "objective": f"objective  Σ f_p(z_p)  {covered}",
            "residual": "consensus residual  ‖Aw − z‖",
            "noise": "noise magnitude  Σ|ξ| of a round  (not covered)",
            "dual_residual": "dual residual",
            "violation": "largest constraint violation",
            "server_seconds": "seconds of the server's own",
            "wait_seconds": "seconds until the last reply",
        }
        rounds, *columns = self.trace.values()
        marker = "o" if len(rounds) == 1 else ""
        for panel in panels.flat[len(columns) :]:
            panel.set_visible(False)
        for panel, name, column in zip(panels.flat, list(self.trace)[1:], columns, strict=False):
            panel.plot(rounds, column, marker=marker, color="#1f5f8b")
            panel.set_title(titles[name], fontsize=10)
            if (column > 0).all() and column.max() / 20 > column.min():
                panel.set_yscale("log")
            panel.grid(alpha=0.3)
        for panel in panels.flat[max(0, len(columns) - 2) : len(columns)]:
            panel.set_xlabel("round")
            panel.tick_params(labelbottom=True)  # nothing is drawn below it
        p = self.privacy
        if np.isinf(p.epsilon):
            label = "no noise: not private"
        else:
            label = f"total ε = {rounded_up(p.epsilon, 4)}, δ = {digits(p.delta)}"
            label += "" if p.certified else "  (not certified)"
        figure.suptitle(f"{len(self.names)} agents, {p.mechanism}, {label}")
        return figure


def result_of(
    problem: Problem,
    settings: Settings,
    state: Mapping[str, Sequence[Vector]],
    trace: dict[str, Vector],
    privacy: PrivacyStatement,
    seed: int | None,
) -> Result:
    """The result of noise in every round that ended in ``state``: of every agent, the ``average``
    and the weighted ``total`` of averages, on all its coordinates or on those in common."""
    couplings = [np.asarray(agent.coupling) for agent in problem.agents]
    holders = Holders.of(couplings, problem.size, np.float64)

    def mean(parts: Sequence[Vector], weight: float) -> Vector:
        whole = [np.zeros(len(coupling)) for coupling in couplings]
        for values, coupling, part in zip(whole, couplings, parts, strict=True):
            values[... if len(part) == len(coupling) else coupling >= 0] = part
        found: Vector = average_over_holders(np.concatenate(whole) / weight, holders)
        return found

    return Result(
        solution=mean(state["average"], 1.0),
        ergodic=mean(state["total"], settings.averaging_weights(1, settings.rounds).sum()),
        local=tuple(state["average"]),
        trace=trace,
        settings=settings,
        privacy=privacy,
        names=problem.names,
        seed=seed,
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Versions of what computed the result."""
    packages = ("tacit", "jax", "numpy", "scipy", "clarabel", "dp-accounting")
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


@cache  # it reads and parses a file
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
