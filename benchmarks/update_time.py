"""Microseconds of one local update on whatever device JAX has, by kind of features and neighbours.

    python benchmarks/update_time.py                                      # MNIST's size, on a GPU
    python benchmarks/update_time.py --agents 2 --records 600 --features 50 --many 4    # anywhere

Softmax regression of ``--agents`` agents with ``--records`` records each, one program for all of
them. An update is everything: gradient, noise, projection, and its share of the server's and the
dual steps, which come once in ``--local-updates``. With ``--many`` configurations the data are read
once for all, and the time is that of one. Medians over ``--repeats``, after two rounds to warm up.
"""

import argparse
import time

import jax
import numpy as np

import tacit
from tacit.transports.batched import BatchedAgents

KINDS = [("float32", n) for n in ("zero-out", "replace", "add-remove")] + [("bfloat16", "zero-out")]


def problem_of(options, kind, neighbours):
    rng = np.random.default_rng(0)
    agents = []
    for _ in range(options.agents):
        x = rng.random((options.records, options.features), dtype=np.float32)
        f = tacit.SoftmaxRegression(
            x,
            rng.integers(0, options.classes, options.records),
            options.classes,
            feature_norm=float(options.features) ** 0.5,
            normaliser=options.agents * options.records,
            neighbours=neighbours,
            record_bound=options.records + 1,
        )
        f = f.in_bfloat16() if kind == "bfloat16" else f
        agents.append(tacit.LocalProblem(f, tacit.Box(-0.1, 0.1, size=f.dimension)))
    return tacit.Problem(agents)


def microseconds(options, problem, many):
    settings = [
        tacit.Settings(10_000, options.local_updates, tacit.Gaussian(5.0 + i), step_size=0.1)
        for i in range(many)
    ]
    settings = [s.complete(problem) for s in settings]
    keys = [jax.random.key(i) for i in range(many)]
    several = list(zip(settings, keys, strict=True)) if many > 1 else ()
    batch = BatchedAgents(problem, settings[0], keys[0], "bench", several)
    state, rounds, times = batch.start(), options.rounds, []
    weights = np.ones((many, rounds) if many > 1 else rounds)
    for repeat in range(options.repeats + 2):
        first = 1 + repeat * rounds
        start = time.perf_counter()
        state, w, _, _ = batch.advance(state, first, first + rounds - 1, weights)
        w.block_until_ready()
        times.append(time.perf_counter() - start)
    return float(np.median(times[2:])) / (rounds * options.local_updates * many) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"agents": 10, "records": 6000, "features": 784, "classes": 10}
    sizes |= {"local-updates": 10, "rounds": 20, "repeats": 5, "many": 64}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}: {vars(options)}")
    many = f"{options.many} at once, each"
    print(f"{'features':9}  {'neighbours':10}  {'one, µs':>10}  {many:>18}")
    for kind, neighbours in KINDS:
        problem = problem_of(options, kind, neighbours)
        one, each = (microseconds(options, problem, many) for many in (1, options.many))
        print(f"{kind:9}  {neighbours:10}  {one:10.1f}  {each:18.1f}", flush=True)


if __name__ == "__main__":
    main()
