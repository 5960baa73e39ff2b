"""The peak of a street of charging cars: python benchmarks/charging.py HOMES SEEDS

The table in docs/own-problems.md, "Charging". A seed is of the noise; the street is always the
same. Without privacy: prices from exact sums.
"""

import sys
import time

import jax
import numpy as np

import tacit

CURVATURE = 0.05
hour = np.arange(24)  # from noon on
LOAD = (
    0.65 + 0.3 * np.exp(-(((hour - 7.5) / 2.5) ** 2)) + 0.15 * np.exp(-(((hour - 19.5) / 1.5) ** 2))
)


def answer(price, home):
    return home.project(-price / CURVATURE)


def dearer(price):
    return price @ price / 2 - LOAD @ price


def street(homes):
    """What every home can draw in an hour, in kW, and what it needs, in kWh."""
    rng = np.random.default_rng(0)
    arrive = np.clip(np.round(rng.normal(7, 3.0, homes)), 1, 12)[:, None]
    leave = np.clip(np.round(rng.normal(19.5, 1.5, homes)), 16, 23)[:, None]
    return 3.7 * ((hour >= arrive) & (hour < leave)), np.clip(rng.gamma(4, 2.4, homes), 2, 14.8)


def main(homes, seeds):
    most, need = street(homes)
    sets = [
        tacit.Hyperplane(np.ones(24), n, np.zeros(24), u) for n, u in zip(need, most, strict=True)
    ]
    public = {"size": 24, "clip": 7.41, "lower": 0.0, "upper": 3.7, "normaliser": homes}
    public["smoothness"] = 1 / CURVATURE + 1
    parts = [
        tacit.LocalProblem(
            tacit.Exchange(answer, own, dearer, **public), tacit.Box(0.0, 3.0, 24), name=f"home {i}"
        )
        for i, own in enumerate(sets)
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *sets)
    plans = jax.jit(jax.vmap(answer, in_axes=(None, 0)))

    def peak(price):
        return (LOAD + np.mean(plans(price, stacked), axis=0)).max()

    before = np.cumsum(most, axis=1) - most
    at_once = np.clip(need[:, None] - before, 0, most)
    evenly = need[:, None] * (most > 0) / (most > 0).sum(axis=1, keepdims=True)
    price = np.ones(24)
    for _ in range(600):
        price = price - 0.04 * (price - LOAD - np.mean(plans(price, stacked), axis=0))
    for name, x in (("at once", at_once), ("evenly", evenly)):
        print(f"{name:<12}{(LOAD + x.mean(axis=0)).max():.2f}")
    print(f"no privacy  {peak(price):.2f}", flush=True)
    budget = tacit.Settings.for_budget(1.0, 1e-5, rounds=20)
    one, half = ({"aggregation": "sum", "colluding": c} for c in (1, None))
    for name, how in (("sum, 1", one), ("sum, half", half), ("own noise", {"batch": False})):
        found, begun = [], time.perf_counter()
        for seed in range(seeds):
            run = tacit.solve(parts, budget, seed=seed, evaluate_every=20, **how)
            found.append(peak(run.ergodic))
        each = (time.perf_counter() - begun) / seeds / 20
        print(
            f"{name:<12}{np.mean(found):.2f} ± {np.std(found):.2f}   {each:.2f} s a round",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
