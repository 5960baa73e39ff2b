"""Agents on the ranks of a cluster: what the engine adds to a round, and what more ranks bring.

    make bench, or: pytest benchmarks/bench_mpi.py -o python_files='bench_*.py' -q -s

On a machine that others use, the least time of a round says more than the mean: both are shown.
Ratios are of the least, of loops that take turns in one run.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
from ranks import mpiexec

ROUNDS = str(Path(__file__).with_name("mpi_rounds.py"))
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
CORES = os.cpu_count() or 1


def on(ranks, *words):
    done = mpiexec(ranks, sys.executable, ROUNDS, *words, timeout=1200, **ONE_THREAD)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("ranks", [1, 2])
def test_overhead_of_a_round(ranks):
    """P = 10, n = 7,840, trivial work: beside a bare loop on the same transport, in one run."""
    found = on(ranks, "overhead", 10, 7840, 50, 8)
    for name, (least, median) in found.items():
        print(f"{ranks} ranks, {name}: {least:.2f} ms a round, median {median:.2f}")
    assert found["engine"][0] <= 1.3 * found["loop"][0]


@pytest.mark.skipif(CORES < 2, reason="two ranks need two cores")
def test_two_ranks_on_a_large_grid():
    one, two = (on(ranks, "grid", 100, 12) for ranks in (1, 2))
    for name, found in (("one", one), ("two", two)):
        print(name, {k: found[k] for k in ("build", "round", "total")}, found["timing"])
    assert one["round"][0] >= 1.7 * two["round"][0]


def test_a_thousand_agents():
    found = on(4, "agents", 1000, 1000, 10)
    print(found)
    assert found["ms"][0] < 10_000


def test_the_model_of_costs():
    """a + b·P + c·P·n, fitted to some sizes, tells the others within a factor of two."""
    sizes = [(10, 100), (10, 10_000), (100, 100), (100, 2000), (400, 500), (40, 5000), (200, 1000)]
    found = np.array([on(2, "agents", P, n, 20)["ms"][0] for P, n in sizes])
    rows = np.array([[1.0, P, P * n] for P, n in sizes])
    fitted = np.linalg.lstsq(rows[:5] / found[:5, None], np.ones(5), rcond=None)[0]
    told = rows @ fitted
    for (P, n), measured, said in zip(sizes, found, told, strict=True):
        print(f"P {P}, n {n}: {measured:.2f} ms, the model says {said:.2f}")
    print("a, b, c:", fitted)
    assert (np.abs(np.log(told[5:] / found[5:])) < np.log(2)).all()
