"""Test error and CPU time of private linear classifiers, Tacit's beside Opacus' and diffprivlib's.

python peers.py --python PYTHON [--mnist FOLDER] [--jobs N] [--save FILE.json]  (make bench-peers)

All learn from the same records and the same rows, which public ranges and a public length prepared,
at the same total (epsilon, 1e-5), and are judged by the same test records. Tacit's parties trust
nobody, and its settings are its defaults; "trusted" means that one curator holds all records,
"alone" that every party learns from its own records only (the mean of their errors, the sum of
their times). Without a Python of the peers (``--python``) they are left out.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DELTA = 1e-5
EPSILONS = 1.0, 4.0
SEEDS = 3
PARTIES = {"digits": 10, "breast cancer": 3, "MNIST": 10, "MNIST, orientations": 10}
SLOW = "MNIST"  # sets of that name: one seed, and the first epsilon unless some are asked for


@dataclass(frozen=True)
class Split:
    """Records to learn from, whose each one is, and those to judge by."""

    X: np.ndarray
    y: np.ndarray
    owner: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def shortened(X):
    """Rows no longer than 1, each by its own numbers, in float32."""
    return (X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))).astype(np.float32)


def digits(seed):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return quarter(X / 16, y, seed)


def breast_cancer(seed):
    """Columns scaled by their ranges, which count as public."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    low, high = X.min(axis=0), X.max(axis=0)
    return quarter(2 * (X - low) / (high - low) - 1, y, seed)


def quarter(X, y, seed):
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 4])
    return X[train], y[train], X[test], y[test]


def mnist(folder, features=None):
    from tacit.learn import load_mnist

    train, test = (load_mnist(folder, part) for part in ("train", "test"))
    X, X_test = (
        part.features if features is None else features.fit_transform(part.features)
        for part in (train, test)
    )
    return X, train.labels, X_test, test.labels


def sets(folder):
    """{name: function of a seed}"""
    found = {"digits": digits, "breast cancer": breast_cancer}
    if folder is not None:
        found["MNIST"] = lambda seed: mnist(folder)
        try:
            from tacit.learn import Orientations
        except ImportError:
            print("MNIST, orientations: left out, this version has no such features", flush=True)
        else:
            found["MNIST, orientations"] = lambda seed: mnist(folder, Orientations())
    return found


def split(name, data, seed):
    X, y, X_test, y_test = data
    owner = np.random.default_rng([seed, 1]).permutation(len(y)) % PARTIES[name]
    return Split(shortened(X), y.astype(np.int64), owner, shortened(X_test), y_test)


def tacit(of, epsilon, seed, agents, **how):
    from tacit.learn import PrivateLogisticRegression

    model = PrivateLogisticRegression(
        epsilon, DELTA, classes=np.unique(of.y).tolist(), random_state=seed, **how
    )
    model.fit(of.X, of.y, agents=agents)
    assert model.privacy_.epsilon <= epsilon
    assert model.privacy_.delta <= DELTA
    return float(np.mean(model.predict(of.X_test) != of.y_test))


def summed(of, epsilon, seed):
    """Up to half of the parties may collude with the server."""
    half = len(np.unique(of.owner)) // 2
    return tacit(of, epsilon, seed, of.owner, aggregation="sum", colluding=half)


def plain(X, y, X_test, y_test):
    """Not private: C is what a quarter of the records, held back, liked best."""
    from sklearn.linear_model import LogisticRegression

    order = np.random.default_rng(0).permutation(len(y))
    held, kept = np.split(order, [len(y) // 4])
    few = kept[:10_000]

    def fit(C, rows):
        return LogisticRegression(C=C, max_iter=1000).fit(X[rows], y[rows])

    C = max((1.0, 10.0, 100.0, 1000.0), key=lambda C: fit(C, few).score(X[held], y[held]))
    return float(np.mean(fit(C, slice(None)).predict(X_test) != y_test))


def plain_alone(of):
    own = [of.owner == p for p in np.unique(of.owner)]
    return float(np.mean([plain(of.X[p], of.y[p], of.X_test, of.y_test) for p in own]))


def ours_and_plain(splits, epsilons):
    """[(method, epsilon or None, error, seconds)]"""
    results = []

    def add(method, epsilon, function, *arguments):
        start = time.process_time()
        error = function(*arguments)
        results.append((method, epsilon, error, time.process_time() - start))
        print("   ", *results[-1], flush=True)

    for agents in (splits[0].owner, None):
        add("with compilation", None, tacit, splits[0], epsilons[0], 0, agents)
    results.clear()
    for seed, of in enumerate(splits):
        for epsilon in epsilons:
            add("Tacit", epsilon, tacit, of, epsilon, seed, of.owner)
            if len(np.unique(of.owner)) > 3:
                add("Tacit, summed", epsilon, summed, of, epsilon, seed)
            add("Tacit, trusted", epsilon, tacit, of, epsilon, seed, None)
        add("not private, trusted", None, plain, of.X, of.y, of.X_test, of.y_test)
        add("not private, alone", None, plain_alone, of)
    return results


def of_peers(python, splits, epsilons, jobs):
    """The same of Opacus and diffprivlib, and what they were tuned to: (method, epsilon, it)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        arrays = {f"{k}_{i}": v for i, of in enumerate(splits) for k, v in vars(of).items()}
        classes = len(np.unique(splits[0].y))
        np.savez(file, epsilons=epsilons, seeds=len(splits), classes=classes, **arrays)
        script = Path(__file__).with_name("peer_classifiers.py")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [python, script, file, str(jobs)]
        run = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
    results, tuned = [], []
    for found in json.loads(run.stdout.splitlines()[-1]):
        method = f"{found['peer']}, {'alone' if found['alone'] else 'trusted'}"
        results.append((method, found["epsilon"], found["error"], found["seconds"]))
        if (setting := (method, found["epsilon"], found["setting"])) not in tuned:
            tuned.append(setting)
    return results, tuned


METHODS = (
    "Tacit",
    "Tacit, summed",
    "Tacit, trusted",
    "Opacus, trusted",
    "diffprivlib, trusted",
    "Opacus, alone",
    "diffprivlib, alone",
    "not private, trusted",
    "not private, alone",
)


def table(found):
    """Markdown of {data set: results}: test error, its standard deviation over seeds, CPU time."""
    columns = [(name, e) for name, results in found.items() for e in budgets(results)]
    lines = ["| | " + " | ".join(f"{name}, ε = {e:g}" for name, e in columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    for method in METHODS:
        cells = [cell(method, e, found[name]) for name, e in columns]
        if any(cells):
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def budgets(results):
    return dict.fromkeys(epsilon for _, epsilon, _, _ in results if epsilon is not None)


def cell(method, epsilon, results):
    runs = [(error, s) for m, e, error, s in results if m == method and e in (epsilon, None)]
    if not runs:
        return ""
    errors, seconds = np.array(runs).T
    spread = f" ± {100 * errors.std(ddof=1):.1f}" if len(errors) > 1 else ""
    mean = seconds.mean()
    time = f"{mean:.0f}" if mean >= 10 else f"{mean:.1g}"
    return f"{100 * errors.mean():.1f}{spread} % ({time} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="a Python that has the peers")
    parser.add_argument("--mnist", metavar="FOLDER", help="MNIST's four files")
    parser.add_argument("--sets", nargs="+", help="names of data sets, all by default")
    parser.add_argument("--epsilons", nargs="+", type=float, help="default: 1 4, on MNIST 1")
    parser.add_argument("--jobs", type=int, default=1, help="settings of peers tried at a time")
    parser.add_argument("--save", metavar="FILE.json", help="every result, and what was tuned")
    given = parser.parse_args()
    found, tuned = {}, {}
    for name, load in sets(given.mnist).items():
        if given.sets and name not in given.sets:
            continue
        slow = name.startswith(SLOW)
        epsilons = given.epsilons or EPSILONS[: 1 if slow else None]
        splits = [split(name, load(seed), seed) for seed in range(1 if slow else SEEDS)]
        print(
            f"{name}: {splits[0].X.shape} records and features, {len(splits)} seed(s)", flush=True
        )
        found[name] = ours_and_plain(splits, epsilons)
        if given.python:
            others, tuned[name] = of_peers(given.python, splits, epsilons, given.jobs)
            found[name] += others
        if given.save:
            Path(given.save).write_text(json.dumps({"results": found, "tuned": tuned}, indent=1))
    print("\n" + table(found))


if __name__ == "__main__":
    main()
