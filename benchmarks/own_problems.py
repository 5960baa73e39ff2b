"""Losses that nobody planned for: how much of the way to the optimum an answer is short of.

    python benchmarks/own_problems.py [--seeds 30] [--problems cvar,newsvendor-100] [--json FILE]

Gap of the last consensus in % of f(start) − f*, mean over seeds and its standard error, at total
ε = 0.5, 1, 4 and 100 (δ = 1e-5), in 200 rounds; f* by CVXPY. All seeds are one program.
"""

import argparse
import json
import time

import cvxpy as cp
import jax.numpy as jnp
import numpy as np

import tacit

EPSILONS, DELTA = (0.5, 1.0, 4.0, 100.0), 1e-5


def owned(owner):
    return [np.flatnonzero(owner == p) for p in range(owner.max() + 1)]


def agents(loss, data, owner, feasible, **about):
    """One agent for each owner, of a loss of one's own."""
    common = {"normaliser": len(owner), **about}
    return [
        tacit.LocalProblem(
            tacit.PerSample(loss, tuple(part[rows] for part in data), **common), feasible
        )
        for rows in owned(owner)
    ]


def solved(objective, constraints):
    return cp.Problem(cp.Minimize(objective), constraints).solve(solver="CLARABEL")


def pinball(r, level=0.8):
    return jnp.maximum(level * r, (level - 1) * r)


def cvar(units=True):
    """Four banks' returns of eight assets: conditional value at risk of one portfolio. With
    ``units``, alpha counts in 0.3, the width of its set."""
    rng = np.random.default_rng(0)
    F, B = rng.normal(size=(4000, 2)), rng.normal(0.5, 0.3, (2, 8))
    mean = np.linspace(0.02, 0.12, 8) / 5
    R = np.clip(mean + 0.02 * (F @ B) + 0.03 * rng.normal(size=(4000, 8)), -0.2, 0.2)
    unit = 0.3 if units else 1.0

    def loss(z, record):
        alpha = unit * z[-1]
        return alpha + 10 * jnp.maximum(-(record[0] @ z[:-1]) - alpha, 0)

    W = tacit.Product([tacit.Simplex(8), tacit.Box([-0.1 / unit], [0.2 / unit])])
    clip = 3.5 if units else 15.0
    parts = agents(loss, (R,), np.arange(4000) % 4, W, clip=clip, size=9)
    z, a = cp.Variable(8), cp.Variable()
    risk = a + 10 * cp.sum(cp.pos(-R @ z - a)) / len(R)
    best = solved(risk, [z >= 0, cp.sum(z) == 1, a >= -0.1, a <= 0.2])
    return (
        parts,
        lambda u: u[-1] * unit + 10 * np.maximum(-R @ u[:-1] - unit * u[-1], 0).mean(),
        best,
    )


def newsvendor(wide):
    """Orders by five columns and a constant, in a box of ``wide`` times what the answer needs."""
    rng = np.random.default_rng(3)
    X = np.c_[rng.uniform(-1, 1, (2000, 5)), np.ones(2000)]
    y = np.clip(0.4 + X[:, :5] @ [0.2, -0.1, 0.1, 0, 0.05] + 0.1 * rng.gamma(2, 1, 2000), 0, 2)
    W = tacit.Box(-wide, wide, 6)
    clip = 0.8 * 6**0.5
    f = lambda z, r: pinball(r[1] - r[0] @ z)  # noqa: E731
    parts = agents(f, (X, y), np.arange(2000) % 5, W, clip=clip, size=6)
    u = cp.Variable(6)
    r = y - X @ u
    best = solved(cp.sum(cp.maximum(0.8 * r, -0.2 * r)) / 2000, [cp.abs(u) <= wide])
    return parts, lambda z: float(np.mean(pinball(y - X @ z))), best


def hub(wide):
    """Three coordinates in common, three of each of five agents' own."""
    rng = np.random.default_rng(7)
    X, owner = rng.uniform(-1, 1, (2000, 6)), np.arange(2000) % 5
    own = rng.uniform(-0.4, 0.4, (5, 3))
    y = X[:, :3] @ [0.3, -0.2, 0.1] + (X[:, 3:] * own[owner]).sum(1) + 0.1 * rng.normal(size=2000)
    common = {"clip": 0.8 * 3**0.5, "size": 6, "normaliser": 2000}
    loss = lambda z, r: pinball(r[1] - r[0] @ z)  # noqa: E731
    parts = [
        tacit.LocalProblem(
            tacit.PerSample(loss, (X[rows], y[rows]), **common),
            tacit.Box(-wide, wide, 6),
            coupling=[0, 1, 2, -1, -1, -1],
        )
        for rows in owned(owner)
    ]
    u, v = cp.Variable(3), cp.Variable((5, 3))
    total = 0
    for p, rows in enumerate(owned(owner)):
        r = y[rows] - X[rows, :3] @ u - X[rows, 3:] @ v[p]
        total = total + cp.sum(cp.maximum(0.8 * r, -0.2 * r)) / 2000
    best = solved(total, [cp.abs(u) <= wide, cp.abs(v) <= wide])

    def value(w, local):
        z = np.stack([np.r_[w, part[3:]] for part in local])
        return float(np.mean(pinball(y - (X * z[owner]).sum(1))))

    return parts, value, best


def insensitive():
    """Fresh: errors beyond a margin only, coefficients in an L1 ball; ten columns, three agents."""
    rng = np.random.default_rng(21)
    X = rng.uniform(-1, 1, (3000, 10))
    y = X @ np.r_[0.5, -0.4, np.zeros(8)] + 0.1 * rng.standard_t(3, 3000)
    loss = lambda z, r: jnp.maximum(jnp.abs(r[1] - r[0] @ z) - 0.05, 0)  # noqa: E731
    parts = agents(loss, (X, y), np.arange(3000) % 3, tacit.L1Ball(2.0, 10), clip=2.0, size=10)
    z = cp.Variable(10)
    best = solved(cp.sum(cp.pos(cp.abs(y - X @ z) - 0.05)) / 3000, [cp.norm1(z) <= 2])
    return parts, lambda u: np.maximum(np.abs(y - X @ u) - 0.05, 0).mean(), best


def entropic():
    """Fresh: entropic risk of a mixture of six bets, on a simplex; four agents."""
    rng = np.random.default_rng(22)
    R = np.clip(0.02 * np.arange(6) + rng.normal(size=(4000, 6)) * np.linspace(0.1, 0.6, 6), -1, 1)
    loss = lambda z, r: jnp.exp(-3 * (r[0] @ z)) / 3  # noqa: E731
    parts = agents(loss, (R,), np.arange(4000) % 4, tacit.Simplex(6), clip=5.0, size=6)
    z = cp.Variable(6)
    best = solved(cp.sum(cp.exp(-3 * (R @ z))) / 12000, [z >= 0, cp.sum(z) == 1])
    return parts, lambda u: np.exp(-3 * R @ u).mean() / 3, best


def quantiles():
    """Fresh: three quantiles of demand at once, none below the one before it; two agents."""
    rng = np.random.default_rng(23)
    y, levels = rng.gamma(3, 0.1, 2000), np.array([0.5, 0.8, 0.95])

    def loss(z, record):
        r = record[0] - jnp.cumsum(z)
        return jnp.maximum(levels * r, (levels - 1) * r).sum()

    W = tacit.Box(0.0, 2.0, 3)
    parts = agents(loss, (y,), np.arange(2000) % 2, W, clip=4.0, size=3)
    z = cp.Variable(3)
    r = [y - cp.sum(z[: i + 1]) for i in range(3)]
    each = [cp.sum(cp.maximum(q * x, (q - 1) * x)) for q, x in zip(levels, r, strict=True)]
    best = solved(sum(each) / 2000, [z >= 0, z <= 2])

    def value(u):
        r = y[:, None] - np.cumsum(u)
        return np.maximum(levels * r, (levels - 1) * r).sum(1).mean()

    return parts, value, best


PROBLEMS = {
    "cvar": cvar,
    "cvar, own units": lambda: cvar(False),
    **{f"newsvendor ±{k}": (lambda k=k: newsvendor(float(k))) for k in (1, 10, 100)},
    **{f"hub ±{k}": (lambda k=k: hub(float(k))) for k in (1, 10, 100)},
    "insensitive": insensitive,
    "entropic": entropic,
    "quantiles": quantiles,
}


def gaps(name, seeds, rounds=200, **others):
    parts, value, best = PROBLEMS[name]()
    problem = tacit.Problem(parts)
    of = value if problem.is_global else lambda w, r=None: value(w, r)
    start = [np.asarray(p.feasible_set.project(np.zeros(p.dimension))) for p in parts]
    first = of(start[0]) if problem.is_global else of(start[0][:3], start)
    row = {}
    for epsilon in EPSILONS:
        begun = time.perf_counter()
        settings = tacit.Settings.for_budget(epsilon, DELTA, rounds=rounds, **others)
        results = tacit.solve_many(problem, [settings] * seeds, list(range(seeds)))
        found = [of(r.solution) if problem.is_global else of(r.solution, r.local) for r in results]
        short = 100 * (np.array(found) - best) / (first - best)
        row[epsilon] = {
            "gap": float(short.mean()),
            "error": float(short.std(ddof=1) / seeds**0.5) if seeds > 1 else None,
            "seconds": time.perf_counter() - begun,
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--problems", default=",".join(PROBLEMS).replace("cvar, own", "cvar. own"))
    parser.add_argument("--reach", type=float)
    parser.add_argument("--json")
    options = parser.parse_args()
    others = {} if options.reach is None else {"reach": options.reach}
    table = {}
    print(f"{'':18s}" + "".join(f"{f'ε = {e:g}':>16s}" for e in EPSILONS))
    for name in options.problems.split(","):
        name = name.replace("cvar. own", "cvar, own")
        row = table[name] = gaps(name, options.seeds, **others)
        cells = "".join(f"{c['gap']:9.2f} ({c['error'] or 0:4.2f})" for c in row.values())
        print(f"{name:18s}{cells}   {sum(c['seconds'] for c in row.values()):.0f} s", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(table, file, indent=2)


if __name__ == "__main__":
    main()
