"""Points that a hostile server could drive a projection to, and the sets to try them on.

``python tests/sets/hostile_points.py 1000000`` tries so many and prints the largest violations.
"""

import math
import sys

import jax
import jax.numpy as jnp
import numpy as np

import tacit

SIZE = 7
CENTER = np.array([3.0, -2.0, 0.1, 0.0, 1e-3, -0.7, 5.0])
NORMAL = np.array([1.0, -2.0, 0.5, 0.0, 1e-3, 3.0, -1e2])

SETS = {
    "box": tacit.Box(-0.1, 0.3, SIZE),
    "box with equal bounds": tacit.Box([0.1] * SIZE, [0.1, 0.2, 0.1, 1e3, 7.7, 0.1, 1e20]),
    "ball": tacit.Ball(0.0, 1.0, SIZE),
    "ball elsewhere": tacit.Ball(CENTER, 0.3),
    "small ball": tacit.Ball(0.0, 1e-20, SIZE),
    "L1 ball": tacit.L1Ball(1.0, SIZE),
    "L1 ball elsewhere": tacit.L1Ball(0.7, center=CENTER),
    "simplex": tacit.Simplex(SIZE),
    "large simplex": tacit.Simplex(SIZE, 3e7),
    "half-space": tacit.HalfSpace(NORMAL, 0.3, -1.0, 2.0),
    "half-space with few bounds": tacit.HalfSpace(np.ones(SIZE), 1.0, 0.0),
    "hyperplane": tacit.Hyperplane(NORMAL, 0.3, -1.0, 2.0),
    "hyperplane with few bounds": tacit.Hyperplane(np.arange(1.0, SIZE + 1), 1.0, 0.0),
    "product": tacit.Product([tacit.L1Ball(2.0, 3), tacit.Ball([1.0, 1.0], 0.1), tacit.Simplex(2)]),
}


def hostile_points(rng, count, dtype, size=SIZE):
    """Rows of every size: ties, last bits, subnormal, huge beside tiny, and ordinary ones."""
    info = np.finfo(dtype)
    low, high = math.log10(info.smallest_subnormal), math.log10(info.max) - 0.01
    sign = rng.choice([-1.0, 1.0], (count, size))
    each = sign * 10.0 ** rng.uniform(low, high, (count, size))
    common = 10.0 ** rng.uniform(low, high, (count, 1))
    kinds = [
        each,  # every entry of its own size
        sign * common,  # ties up to signs
        np.abs(sign) * common,  # ties
        sign * common * rng.uniform(0, 1, (count, size)),  # one size
        common * rng.choice([0.0, 1.0, -1.0], (count, size)) + rng.normal(size=(count, size)),
        rng.normal(size=(count, size)) * 10.0 ** rng.uniform(-3, 3, (count, 1)),  # ordinary
    ]
    with np.errstate(over="ignore", under="ignore"):
        points = np.choose(rng.integers(len(kinds), size=(count, 1)), kinds).astype(dtype)
    bits = points.view(np.int64 if dtype == np.float64 else np.int32)
    shifted = (bits + rng.integers(-2, 3, bits.shape, dtype=bits.dtype)).view(dtype)
    last_bits = rng.random((count, 1)) < 0.3
    points = np.where(last_bits, shifted, points)
    return np.where(np.isfinite(points), points, info.max).astype(dtype)


def hostile_weights(rng, count, size=SIZE):
    """Positive weights of all sizes, and equal ones."""
    wild = 10.0 ** rng.uniform(-300, 300, (count, size))
    mild = 10.0 ** rng.uniform(-6, 6, (count, size))
    equal = np.ones((count, size)) * 10.0 ** rng.uniform(-300, 300, (count, 1))
    return np.choose(rng.integers(3, size=(count, 1)), [wild, mild, equal])


@jax.jit
def _tried(feasible_set, points, weights):
    def one(v, c):
        z = feasible_set.project(v, c)
        norms = jnp.sqrt(jnp.sum(z.astype(jnp.float64) ** 2)), jnp.max(jnp.abs(z))
        return feasible_set.violation(z), *norms, z

    return jax.vmap(one)(points, weights)


def worst(feasible_set, rng, count, dtype):
    """The largest violation in units of eps·magnitude, and norms beside what proofs use."""
    points, weights = hostile_points(rng, count, dtype), hostile_weights(rng, count)
    violation, two, infinity, z = map(np.asarray, _tried(feasible_set, points, weights))
    unit = float(np.finfo(dtype).eps) * feasible_set.magnitude
    reach = (feasible_set.reach(2), feasible_set.reach(math.inf))
    assert z.dtype == dtype and np.isfinite(z).all(), points[~np.isfinite(z).all(axis=1)][:3]
    k = np.argmax(violation)
    longest = max(float((two / reach[0]).max()), float((infinity / reach[1]).max()))
    return float(violation[k] / unit), longest, points[k], weights[k]


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rng, batch = np.random.default_rng(0), 5_000
    each = math.ceil(wanted / (2 * len(SETS) * batch))
    done = 0
    for name, feasible_set in SETS.items():
        for dtype in (np.float32, np.float64):
            found = [worst(feasible_set, rng, batch, dtype)[:2] for _ in range(each)]
            done += each * batch
            units, longest = np.max(found, axis=0)
            print(f"{name:28} {np.dtype(dtype).name}  {units:6.2f} units  {longest:.9f} of reach")
    print(f"{done} projections")
