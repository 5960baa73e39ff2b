"""Runs on all ranks, for ``test_mpi.py``: ``python on_ranks.py FOLDER`` under mpiexec.

The same runs in one process are ``alone``.
"""

import json
import os
import sys
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import unquote

import numpy as np

import tacit
from tacit.admm.settings import Asked
from tacit.learn import load_digits, split
from tacit.power import build
from tacit.power.network import demand
from tacit.power.public_model import public_model, starting_penalties
from tacit.protocol.agent import Agent
from tacit.transports import mpi

ONCE = tacit.Settings.for_budget(1.0, 1e-5)
EVERY_ROUND = tacit.Settings.for_budget(1.0, 1e-5, rounds=4, local_updates=2)
SUMMED = tacit.Settings.for_budget(1.0, 1e-5, rounds=4)
ONCE_BUDGET = Asked(1.0, 1e-5, way="release")
SCHEDULED = tacit.Settings(3, 1, tacit.Gaussian(2.0), 1e-6, penalty=10.0, step_size=0.2)
EXACT = tacit.Settings(30, tolerance=1e-3)
EXHAUSTIVE = os.environ.get("TACIT_TESTS") == "all"


@lru_cache
def hospitals():
    rng = np.random.default_rng(5)
    return rng.uniform(-0.5, 0.5, (7, 30, 3)), rng.uniform(-1, 1, (7, 30))


@lru_cache
def pictures():
    """Digits; in ``make test`` random ones, ten records for each agent: scikit-learn takes 2 s."""
    if EXHAUSTIVE:
        data = load_digits()
        parts = split(data, 10, "iid")
        return data.features, data.labels, parts
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 0.2, (100, 64)).astype(np.float32)
    return X, rng.integers(0, 10, 100), np.arange(100).reshape(10, 10)


def digits(chosen):
    X, labels, parts = pictures()
    box, common = tacit.Box(-1.0, 1.0, size=640), {"feature_norm": 1.0, "normaliser": len(X)}
    return [
        tacit.LocalProblem(
            tacit.SoftmaxRegression(X[parts[i]], labels[parts[i]], 10, **common), box
        )
        for i in chosen
    ]


def squares(chosen):
    X, y = hospitals()
    polyhedron = tacit.Polyhedron(np.ones((1, 3)), [0.5], lower=-1.0, upper=1.0)
    common = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 210}
    return [
        tacit.LocalProblem(tacit.LeastSquares(X[i], y[i], **common), polyhedron) for i in chosen
    ]


@lru_cache
def model():
    return public_model("case14", 3)


def zones(chosen):
    found = []
    for zone in list(model().zones)[chosen.start : chosen.stop]:
        net = model().network(zone)
        found.append(model().agent(zone, net, demand(model().grid, net.buses)))
    return found


# name: agents, how many, settings, and what else solve is given
RUNS = {
    "digits": (digits, 10, EVERY_ROUND, {"seed": 1, "evaluate_every": 2}),
    "squares": (squares, 7, ONCE, {"seed": 2}),
    "exact": (squares, 7, EXACT, {"progress": True}),
    "zones": (zones, 3, SCHEDULED, {"seed": 3}),
    "zones-once": (zones, 3, ONCE, {"seed": 4}),
    # in one process without masks, on ranks with them
    "sums": (digits, 10, SUMMED, {"seed": 7, "aggregation": "sum", "colluding": 4}),
    "sum-once": (squares, 7, ONCE_BUDGET, {"seed": 8, "aggregation": "sum"}),
    "paid": (squares, 7, EVERY_ROUND, {"seed": 5, "noise": "seeded", "run": "winter"}),
    "paid-once": (squares, 7, ONCE, {"seed": 6, "noise": "seeded"}),
}
if not EXHAUSTIVE:  # paid-once and zones-once read once too; digits and paid have noisy rounds
    del RUNS["squares"], RUNS["zones"]


def ledgers_of(folder, name, agents):
    """A ledger for each agent, in a folder of its own for each run."""
    folder = Path(folder) / f"ledgers-{name}"
    folder.mkdir(parents=True)
    for i in range(agents):
        tacit.Ledger.create(folder / f"agent {i + 1}.db", 10.0, 1e-3)
    return folder


def alone(name, folder):
    """The run in one process, one agent after another."""
    make, agents, settings, others = RUNS[name]
    if "noise" in others:
        others = {**others, "ledgers": ledgers_of(folder, name, agents)}
    if settings is SCHEDULED or settings is EVERY_ROUND:
        others = {**others, "batch": False}
    problem = build("case14", 3).problem if make is zones else make(range(agents))
    return tacit.solve(problem, settings, workers=1, **others)


def keep(result, path):
    """Everything of a result, without its picture."""
    arrays = {"solution": result.solution, "ergodic": result.ergodic, **result.trace}
    for name in ("local", "duals"):
        arrays |= {f"{name}-{i}": v for i, v in enumerate(getattr(result, name))}
    about = {**result.to_dict(), "timing": result.timing}
    np.savez(path, about=json.dumps(about), **arrays)


def main(folder):
    opened = set()
    sys.addaudithook(lambda event, about: event == "sqlite3.connect" and opened.add(about[0]))
    comm = mpi.world()
    for name, (make, agents, settings, others) in RUNS.items():
        ledgers = Path(folder) / f"ledgers-{name}" if "noise" in others else None
        penalties = starting_penalties(model()) if make is zones else None
        mine = make(mpi.share(agents))
        result = mpi.solve(mine, settings, ledgers=ledgers, penalties=penalties, **others)
        assert (result is None) == (comm.rank > 0)
        if result is not None:
            keep(result, Path(folder) / f"{name}.npz")
    own = {f"agent {i + 1}.db" for i in mpi.share(7)}
    found = {Path(str(path)).name.partition("?")[0] for path in opened}
    assert {unquote(name) for name in found} - {":memory:"} == own
    # what goes wrong on the last rank is raised on all
    mine, last = squares(mpi.share(7)), comm.rank == comm.size - 1
    if last:
        mine[-1] = tacit.LocalProblem(mine[-1].objective, mine[-1].feasible_set, [0, 1, 5])
    kind, words = failure(mine)
    assert kind == "InvalidInput" and "nobody holds 3" in words, words
    mine = squares(mpi.share(7))
    kind, words = failure(mine, workers=0 if last else None)
    assert kind == "InvalidInput" and "workers=0" in words, words
    for error in (ZeroDivisionError, Panic):
        if last:
            Agent.respond = partial(failing, error)
        kind, words = failure(mine)
        assert kind == "EngineFailure" and error.__name__ in words, words


class Panic(BaseException):
    """As code in Rust has it: no ``Exception``."""


def failing(error, *_):
    raise error


def failure(agents, **others):
    try:
        mpi.solve(agents, EVERY_ROUND, seed=1, **others)
    except tacit.TacitError as error:
        return type(error).__name__, str(error)
    raise AssertionError("not refused")


if __name__ == "__main__":
    main(sys.argv[1])
