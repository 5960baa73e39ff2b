"""One full-batch local update, 10 agents × 6,000 × 784 × 10 classes, beside plain NumPy.

Floor: 1.9 GFLOP in two matrix products that each read the 188 MB of features once. The peer is
what one would write by hand: for every agent two float32 matrix products and a softmax. Tacit's
time is for the whole update: server step, gradient, noise, projection, dual step. Both run in this
process, in turns, with the same number of threads; only ratios and memory are asserted.
"""

import resource
import time

import numpy as np
import pytest
from fresh import in_fresh_process

P, M, D, K = 10, 6000, 784, 10
REPEATS = 15


def data():
    rng = np.random.default_rng(0)
    for _ in range(P):
        yield rng.random((M, D), dtype=np.float32), rng.integers(0, K, M)


def numpy_update(X, Y, Z):
    gradients = []
    for x, y, z in zip(X, Y, Z, strict=True):
        p = x @ z
        p -= p.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        p -= y
        gradients.append(x.T @ p)
    return gradients


def batched():
    """The batch and its first state; raw arrays are freed as they are handed over."""
    import jax

    import tacit
    from tacit.transports.batched import BatchedAgents

    agents = [
        tacit.LocalProblem(
            tacit.SoftmaxRegression(x, y, K, feature_norm=28.0, normaliser=P * M),
            tacit.Box(-0.1, 0.1, size=D * K),
        )
        for x, y in data()
    ]
    problem = tacit.Problem(agents)
    settings = tacit.Settings(10_000, 1, tacit.Gaussian(5.0)).complete(problem)
    return BatchedAgents(problem, settings, jax.random.key(0), "bench")


def measure():
    X, Y = [], []
    for x, y in data():
        X.append(x)
        Y.append(np.eye(K, dtype=np.float32)[y])
    Z = [np.zeros((D, K), np.float32)] * P
    batch = batched()
    state = batch.start()
    weight = np.ones(1)
    times = {"numpy": [], "tacit": []}
    for _ in range(3):  # not alternating call by call: idle BLAS threads spin for a while
        for _ in range(REPEATS + 2):
            start = time.perf_counter()
            numpy_update(X, Y, Z)
            times["numpy"].append(time.perf_counter() - start)
        time.sleep(0.5)
        for t in range(1, REPEATS + 3):
            start = time.perf_counter()
            state, w, _, _ = batch.advance(state, t, t, weight)
            w.block_until_ready()
            if t > 2:
                times["tacit"].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def peak_memory():
    """Growth of the peak resident size, in multiples of the data, for a run of three rounds."""
    import tacit

    small = tacit.LocalProblem(  # what imports and the compiler cost is not the data's
        tacit.SoftmaxRegression(np.eye(3), [0, 1, 2], 3, feature_norm=1.0, normaliser=3),
        tacit.Box(-1, 1, size=9),
    )
    tacit.solve([small], tacit.Settings(3, 1, tacit.Gaussian(1.0)), seed=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = batched()
    state = batch.start()
    for t in range(1, 4):
        state, w, _, _ = batch.advance(state, t, t, np.ones(1))
    w.block_until_ready()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown * 1024 / (P * M * D * 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_local_update(threads):
    times = in_fresh_process(__name__, "measure", threads)
    ratio = times["numpy"] / times["tacit"]
    flops = 4 * P * M * D * K / times["tacit"] / 1e9
    print(
        f"\n{threads} thread(s): NumPy {times['numpy'] * 1e3:.1f} ms, "
        f"Tacit {times['tacit'] * 1e3:.1f} ms, {ratio:.2f}x faster, {flops:.0f} GFLOP/s"
    )
    assert ratio >= 1.5


def test_peak_memory():
    multiple = in_fresh_process(__name__, "peak_memory", 2)
    print(f"\npeak memory {multiple:.2f}x the data")
    assert multiple < 2.5
