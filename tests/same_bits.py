"""Whether two source trees compute the same bits: ``python tests/same_bits.py OLD NEW [PART ...]``.

What compiled programs compute depends on the processor, so that it cannot be kept in a file: both
trees run here, one after the other, and every array, every number of a ledger that is not a time
or a token, and every statement is compared. Parts: one, batched, exact, released, paid, resumed,
study, ranks-1, ranks-3 (under mpiexec). By default all.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PARTS = ("one", "batched", "exact", "released", "paid", "resumed", "study", "ranks-1", "ranks-3")


def squares(chosen):
    import tacit

    rng = np.random.default_rng(5)
    X, y = rng.uniform(-0.5, 0.5, (7, 30, 3)), rng.uniform(-1, 1, (7, 30))
    polyhedron = tacit.Polyhedron(np.ones((1, 3)), [0.5], lower=-1.0, upper=1.0)
    common = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 210, "record_bound": 30}
    return [
        tacit.LocalProblem(tacit.LeastSquares(X[i], y[i], **common), polyhedron) for i in chosen
    ]


def pictures(chosen, dtype=np.float32):
    import tacit

    rng = np.random.default_rng(6)
    X, y = rng.uniform(0, 0.2, (70, 12)).astype(dtype), rng.integers(0, 4, 70)
    box = tacit.Box(-1.0, 1.0, size=48)
    common = {"feature_norm": 1.0, "normaliser": 70}
    return [
        tacit.LocalProblem(tacit.SoftmaxRegression(X[i::7], y[i::7], 4, **common), box)
        for i in chosen
    ]


def zones(chosen):
    from tacit.power.network import demand
    from tacit.power.public_model import public_model

    model = public_model("case14", 3)
    found = []
    for zone in list(model.zones)[chosen.start : chosen.stop]:
        net = model.network(zone)
        found.append(model.agent(zone, net, demand(model.grid, net.buses)))
    return found


def penalties():
    from tacit.power.public_model import public_model, starting_penalties

    return starting_penalties(public_model("case14", 3))


def of_rounds(T=5, E=2, **others):
    import tacit

    return tacit.Settings.for_budget(1.0, 1e-5, rounds=T, local_updates=E, **others)


def laplace():
    import tacit

    return tacit.Settings.for_budget(2.0, 0.0, rounds=4, mechanism="laplace")


def exact():
    import tacit

    return tacit.Settings(60, tolerance=1e-4)


def once():
    import tacit

    return tacit.Settings.for_budget(1.0, 1e-5)


def said(result):
    """Of a result, what the same run has again."""
    found = {"solution": result.solution, "ergodic": result.ergodic}
    found |= {k: v for k, v in result.trace.items() if not k.endswith("_seconds")}
    for name in ("local", "duals"):
        found |= {f"{name}-{i}": v for i, v in enumerate(getattr(result, name))}
    bits = {k: [str(v.dtype), hashlib.sha256(v.tobytes()).hexdigest()] for k, v in found.items()}
    about = result.to_dict()
    for key in about["summary"].keys() & {"server_seconds", "wait_seconds"}:
        del about["summary"][key]
    return {"bits": bits, "about": about}


def in_ledger(path):
    """Entries without what is drawn or timed."""
    import sqlite3

    query = "SELECT kind, run, first, last, digest, event, reply FROM entries ORDER BY serial"
    db = sqlite3.connect(path)
    rows = [[v.hex() if isinstance(v, bytes) else v for v in row] for row in db.execute(query)]
    db.close()
    return rows


class Stop(Exception):
    pass


def stop_at(round):
    def callback(progress):
        if progress.round >= round:
            raise Stop

    return callback


def ledgers_for(folder, names, epsilon=8.0):
    import tacit

    folder.mkdir()
    for name in names:
        tacit.Ledger.create(folder / f"{name}.db", epsilon, 1e-3).close()
    return folder


def runs(part, folder, tree):
    """Name and outcome of every run of a part."""
    import tacit

    assert Path(tacit.__file__).is_relative_to(tree)

    seven = range(7)
    agents = [f"agent {i + 1}" for i in seven]
    if part in ("one", "batched"):
        batch = part == "batched"
        for every in (1, 3):
            about = {"seed": 3, "batch": batch, "evaluate_every": every}
            yield f"pictures {every}", tacit.solve(pictures(seven), of_rounds(), **about)
            yield f"laplace {every}", tacit.solve(pictures(seven), laplace(), **about)
        mixed = pictures(range(3)) + pictures(range(3, 7), np.float64)
        yield "mixed", tacit.solve(mixed, of_rounds(), seed=4, batch=batch, run="mixed")
        if not batch:
            yield "squares", tacit.solve(squares(seven), of_rounds(), seed=5)
            grid = tacit.Problem(zones(range(3)), penalties())
            yield "zones", tacit.solve(grid, of_rounds(3, 1, penalty=10.0, step_size=0.2), seed=5)
            output = of_rounds(perturbation="output", penalty=1.0, step_size=0.5)
            yield "output", tacit.solve(pictures(seven), output, seed=1, batch=False)
    if part == "exact":
        yield "squares", tacit.solve(squares(seven), exact(), evaluate_every=3)
        yield "zones", tacit.solve(tacit.Problem(zones(range(3)), penalties()), exact())
    if part == "released":
        yield "squares", tacit.solve(squares(seven), once(), seed=2)
        grid = tacit.Problem(zones(range(3)), penalties())
        yield "zones", tacit.solve(grid, once(), seed=2)
        got = tacit.release(squares(seven), 1.0, 1e-5, seed=9, run="spring")
        first = tacit.solve(got, exact())
        yield "of a release", first
        yield "warm", tacit.solve(got, tacit.Settings(80, tolerance=1e-6), start=first)
        for delta in (0, 0.0):
            pure = tacit.release(squares(seven), 1.0, delta, mechanism="laplace", seed=9)
            yield f"pure {delta!r}", tacit.solve(pure, exact())
    if part == "paid":
        for name, settings in (("rounds", of_rounds()), ("once", once()), ("pure", None)):
            there = ledgers_for(folder / name, agents)
            if settings is None:
                settings = tacit.Settings.for_budget(1.0, 0)
            about = {"seed": 5, "noise": "seeded", "run": "winter", "ledgers": there}
            for _ in range(2):
                again = tacit.solve(squares(seven), settings, **about)
                yield name, again
            for path in sorted(there.glob("*.db")):
                yield path.stem, in_ledger(path)
    if part == "resumed":
        for batch in (True, False):
            path = folder / f"{batch}.npz"
            about = {"seed": 3, "batch": batch, "checkpoint": path}
            with contextlib.suppress(Stop):
                tacit.solve(pictures(seven), of_rounds(), callback=stop_at(2), **about)
            yield f"batch={batch}", tacit.solve(pictures(seven), of_rounds(), **about)
        there = ledgers_for(folder / "paid", agents)
        about = {"seed": 3, "noise": "seeded", "run": "r", "ledgers": there}
        about |= {"evaluate_every": 2, "checkpoint": folder / "paid.npz"}
        with contextlib.suppress(Stop):
            tacit.solve(squares(seven), of_rounds(), callback=stop_at(4), **about)
        yield "paid", tacit.solve(squares(seven), of_rounds(), **about)
        about = {"seed": 3, "checkpoint": folder / "once.npz"}
        with contextlib.suppress(Stop):
            tacit.solve(squares(seven), once(), callback=stop_at(4), **about)
        yield "once", tacit.solve(squares(seven), once(), **about)
    if part == "study":
        sys.path.insert(0, str(Path(tree) / "tests" / "studies"))
        import small_study

        for kind in ("logistic", "least-squares"):
            study = small_study.write_study(folder / kind, kind)
            found, line = small_study.run(study, folder / kind)
            yield kind, found
            yield f"{kind} answers", [hashlib.sha256(a).hexdigest() for a in line.answers]
            for name in study.agents:
                yield f"{kind} {name}", in_ledger(folder / kind / f"{name}.db")
                own = folder / kind / f"own-{name}"
                told = json.loads((own / "statement.json").read_text())
                yield f"{kind} {name} says", told
        for every in (True, False):
            where = folder / f"grid-{every}"
            where.mkdir()
            study, _ = small_study.write_grid(where, every)
            found, line = small_study.run(study, where)
            yield f"grid {every}", found
            yield f"grid {every} answers", [hashlib.sha256(a).hexdigest() for a in line.answers]
    if part.startswith("ranks"):
        from tacit.transports import mpi

        mine = mpi.share(7)
        three = mpi.share(3)
        yield "pictures", mpi.solve(pictures(mine), of_rounds(), seed=3, evaluate_every=3)
        yield "squares", mpi.solve(squares(mine), of_rounds(), seed=5)
        yield "exact", mpi.solve(squares(mine), exact(), evaluate_every=3)
        yield "once", mpi.solve(squares(mine), once(), seed=2)
        about = {"seed": 2, "penalties": penalties()}
        yield "zones", mpi.solve(zones(three), once(), **about)
        there = Path(os.environ["SAME_BITS"])
        about = {"seed": 5, "noise": "seeded", "run": "winter"}
        yield "paid", mpi.solve(squares(mine), of_rounds(), ledgers=there / "rounds", **about)
        yield "paid once", mpi.solve(squares(mine), once(), ledgers=there / "once", **about)


def worker(part, tree, out):
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name, result in runs(part, Path(folder), tree):
            found.append([name, said(result) if hasattr(result, "solution") else result])
    Path(out).write_text(json.dumps(found)) if "None" not in out else None
    if part.startswith("ranks") and found[0][1] is not None:
        Path(os.environ["SAME_BITS"], "said.json").write_text(json.dumps(found))


def of_tree(part, tree):
    """What a tree says of a part."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        environment = {**os.environ, "PYTHONPATH": f"{Path(tree) / 'src'}", "SAME_BITS": folder}
        command = [sys.executable, __file__, "--worker", part, str(tree)]
        if part.startswith("ranks"):
            sys.path.insert(0, str(Path(__file__).parent / "transports"))
            from ranks import ENVIRONMENT, MPIEXEC

            make = (
                "import sys; sys.path.insert(0, sys.argv[1]); import same_bits; from pathlib "
                "import Path\nfor n in ('rounds', 'once'): same_bits.ledgers_for("
                "Path(sys.argv[2]) / n, [f'agent {i + 1}' for i in range(7)])"
            )
            where = [str(Path(__file__).parent), folder]
            subprocess.run([sys.executable, "-c", make, *where], env=environment, check=True)
            command = [str(MPIEXEC), "-n", part[-1], *command, "None"]
            subprocess.run(command, env={**environment, **ENVIRONMENT}, check=True)
        else:
            subprocess.run([*command, str(there / "said.json")], env=environment, check=True)
        found = json.loads((there / "said.json").read_text())
        for kind in ("rounds", "once"):
            for path in sorted((there / kind).glob("*.db")):
                found.append([f"{kind} {path.stem}", in_ledger(path)])
        return found


def main(old, new, *parts):
    differ = 0
    for part in parts or PARTS:
        a, b = of_tree(part, Path(old).resolve()), of_tree(part, Path(new).resolve())
        names = [name for name, _ in a]
        assert names == [name for name, _ in b] and names
        other = [f"{x[0]}: {difference(x[1], y[1])}" for x, y in zip(a, b, strict=True) if x != y]
        differ += len(other)
        print(part, f"{len(names)} the same" if not other else f"DIFFER: {other}", flush=True)
    return min(differ, 1)


def difference(a, b):
    """Where two things that were said differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return {
            k: difference(a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)
        }
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return {i: difference(x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y}
    return [str(a)[:80], str(b)[:80]]


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]))
