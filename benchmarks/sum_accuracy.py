"""What a secure sum is worth: errors with c of P parties colluding, beside none and a curator.

python benchmarks/sum_accuracy.py [--mnist DIR] [--femnist DIR] [--seeds 5] [--only WORD]

Orientation features, delta 1e-5, everything else as planned. Digits: scikit-learn's, ten parties.
Regression: the tables of ``regression_tables.py``, RMSE over half the range, ten parties.
Prints one line a cell: set, epsilon, who is trusted, mean error and its deviation over seeds.
"""

import argparse
import time

import numpy as np

from tacit.learn import Orientations, PrivateLogisticRegression, PrivateRidge

DELTA = 1e-5
NOBODY, CURATOR = "nobody", "curator"


def mnist(folder):
    from tacit.learn import load_mnist

    parts = [load_mnist(folder, part) for part in ("train", "test")]
    maps = Orientations()
    X, X_test = (maps.fit_transform(part.features) for part in parts)
    owners = lambda seed: np.random.default_rng([seed, 1]).permutation(len(X)) % 10  # noqa: E731
    return X, parts[0].labels, owners, X_test, parts[1].labels


def digits(folder=None):
    from tacit.learn import load_digits

    train, test = load_digits(), load_digits("test")
    maps = Orientations()
    X, X_test = (maps.fit_transform(part.features) for part in (train, test))
    owners = lambda seed: np.random.default_rng([seed, 1]).permutation(len(X)) % 10  # noqa: E731
    return X, train.labels, owners, X_test, test.labels


def femnist(folder):
    from pathlib import Path

    from tacit.learn import load_leaf

    train, test = (load_leaf(Path(folder) / part) for part in ("train", "test"))
    maps = Orientations()
    X, X_test = (maps.fit_transform(part.features) for part in (train, test))
    return X, train.labels, lambda seed: train.groups, X_test, test.labels


def classifier(data, epsilon, who, seed):
    X, y, owners, X_test, y_test = data
    model = PrivateLogisticRegression(
        epsilon, DELTA, classes=np.unique(y).tolist(), random_state=seed, **how(who)
    )
    model.fit(X, y, agents=None if who == CURATOR else owners(seed))
    assert model.privacy_.epsilon <= epsilon
    return 100 * float(np.mean(model.predict(X_test) != y_test))


def how(who):
    return {"aggregation": "sum", "colluding": who} if isinstance(who, int) else {}


def regression(name, epsilon, who, seed):
    from regression_tables import split

    X, y, X_test, y_test = split(name, seed)
    owner = np.random.default_rng([seed, 1]).permutation(len(y)) % 10
    model = PrivateRidge(epsilon, DELTA, target_range=(-1, 1), random_state=seed, **how(who))
    model.fit(X, y, agents=None if who == CURATOR else owner)
    return float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))


CELLS = {
    "digits": ((1.0,), (4, 1)),
    "mnist": ((0.5, 1.0, 4.0), (4, 1)),
    "femnist": ((1.0, 4.0, 8.0), (57,)),
}


def main():
    options = argparse.ArgumentParser()
    for name in ("mnist", "femnist"):
        options.add_argument(f"--{name}")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="")
    options.add_argument("--whom", default="all", choices=("all", "sums"))
    given = options.parse_args()
    work = {"digits": digits}
    work |= {n: globals()[n] for n in ("mnist", "femnist") if getattr(given, n)}
    others = (NOBODY, CURATOR) if given.whom == "all" else ()
    for name, load in work.items():
        if given.only in name:
            data = load(getattr(given, name, None))
            epsilons, colluding = CELLS[name]
            for epsilon in epsilons:
                for who in (*colluding, *others):
                    cell(name, epsilon, who, classifier, data, given.seeds)
    if given.only in "regression":
        for name in ("diabetes", "fair", "randhie", "computers", "diamonds"):
            for who in (4, 1, *others):
                cell(name, 1.0, who, regression, name, given.seeds)


def cell(name, epsilon, who, fit, data, seeds):
    begun = time.perf_counter()
    found = [fit(data, epsilon, who, seed) for seed in range(seeds)]
    who = f"{who} colluding" if isinstance(who, int) else who
    took = (time.perf_counter() - begun) / seeds
    print(
        f"{name:10} eps {epsilon:<4g} {who:13} {np.mean(found):.4g} +- {np.std(found):.2g} "
        f"({took:.1f} s a fit)",
        flush=True,
    )


if __name__ == "__main__":
    main()
