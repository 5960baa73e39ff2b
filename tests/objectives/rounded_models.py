"""Models of many records, in both formats, for the proofs about rounding."""

import numpy as np

import tacit

RECORDS, FEATURES = 1300, 23


def records(dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, FEATURES)) * 10.0 ** rng.uniform(-3, 1, (RECORDS, 1))
    return x.astype(dtype), rng.integers(0, 2, RECORDS)


LOSSES = {
    "least-squares": lambda x, y, **o: tacit.LeastSquares(x, 3.0 * y, target_bound=3.0, **o),
    "quantile": lambda x, y, **o: tacit.Quantile(x, 3.0 * y, level=0.3, **o),
    "logistic": lambda x, y, **o: tacit.LogisticRegression(x, y, **o),
    "hinge": lambda x, y, **o: tacit.Hinge(x, y, **o),
    "softmax": lambda x, y, **o: tacit.SoftmaxRegression(x, y, 4, **o),
}


def model(name, x, y, relation, **options):
    common = {"feature_norm": 2.0, "normaliser": 6000.0, "neighbours": relation, **options}
    return LOSSES[name](x, y, **common)


def problem(dtype=np.float64, sixteen=False, W=None, **options):
    x, y = records(dtype)
    f = model("logistic", x[:40], y[:40], "zero-out", **options)
    f = f.in_bfloat16() if sixteen else f
    return tacit.LocalProblem(f, W or tacit.Box(-1.0, 1.0, FEATURES), name="a")
