"""Agents on the ranks of a cluster: what the engine adds to a round, and what more ranks bring.

    make bench, or: pytest benchmarks/bench_mpi.py -o python_files='bench_*.py' -q -s

On a machine that others use, the least time of a round says more than the mean, and the time on a
core more than that on the clock: both are shown. Overhead is that of loops that take turns in one
run; speed-up and model are of the time on the cores (``mpi_rounds.Meter``).
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
from ranks import mpiexec

ROUNDS = str(Path(__file__).with_name("mpi_rounds.py"))
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


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


def test_two_ranks_on_a_large_grid():
    one, two = (on(ranks, "grid", 100, 12) for ranks in (1, 2))
    for name, found in (("one rank", one), ("two ranks", two)):
        print(name, found)
    assert one["cores"][0] >= 1.7 * two["cores"][0]
    assert one["all of rank 0 on a core"] >= 1.7 * two["all of rank 0 on a core"]


def test_a_thousand_agents():
    found = on(4, "agents", 1000, 1000, 10)
    print(found)
    assert found["cores"][0] < 1000


def test_the_model_of_costs():
    """A round takes a + (b + c·n)·P/R + (d + e·n)·P: latency, agents on R ranks, and the server.

    Fitted to five sizes on two ranks, it tells three others, one on four ranks.
    """
    fitted_to = [(10, 100), (10, 10_000), (100, 100), (100, 2000), (400, 500)]
    found = [on(2, "agents", P, n, 20) for P, n in fitted_to]
    many, size = np.array(fitted_to).T
    agents = np.array([f["agents"][0] for f in found]) / (many / 2)
    besides = np.array([f["besides"][0] for f in found])
    b, c = relative_fit(np.stack([np.ones(5), size], 1), agents)
    a, d, e = relative_fit(np.stack([np.ones(5), many, many * size], 1), besides)
    print(f"a {a:.3g} ms, b {b:.3g}, c {c:.3g}, d {d:.3g}, e {e:.3g}")
    for R, P, n in ((2, 40, 5000), (2, 10, 7840), (4, 1000, 1000)):
        measured = on(R, "agents", P, n, 10)["cores"][0]
        said = a + (b + c * n) * P / R + (d + e * n) * P
        print(f"{R} ranks, P {P}, n {n}: {measured:.2f} ms, the model says {said:.2f}")
        beyond = 1.4 if (os.cpu_count() or 1) >= R else 2.0  # ranks that share cores share caches
        assert 1 / beyond < measured / said < beyond


def relative_fit(rows, values):
    """Least squares of relative errors, coefficients not below zero."""
    return nnls(rows / values[:, None], np.ones(len(values)))[0]
