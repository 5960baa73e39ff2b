"""MNIST's orientations in the principal directions of public pictures: errors of private fits.

    python benchmarks/public_directions.py MNIST_FOLDER [SEEDS]

Public are scikit-learn's digits, enlarged from 8 x 8 to 20 x 20 pixels in frames of 28 x 28 and
turned by six angles: 10,782 pictures, none of them MNIST's. Ten parties, total (epsilon, 1e-5).
"""

import sys
import time

import numpy as np
from scipy.ndimage import rotate, shift, zoom
from sklearn.datasets import load_digits

from tacit.learn import Orientations, PrivateLogisticRegression, PublicComponents, load_mnist

ANGLES = (-15, -9, -3, 3, 9, 15)


def public_pictures():
    found = []
    for picture in load_digits().images / 16:
        large = np.pad(np.clip(zoom(picture, 2.5), 0, 1), 4)
        middle = (np.indices(large.shape) * large).sum(axis=(1, 2)) / large.sum()
        large = np.clip(shift(large, 13.5 - middle, order=1), 0, 1)  # centred by mass, as MNIST's
        found += [rotate(large, angle, reshape=False, order=1) for angle in ANGLES]
    return np.array(found).reshape(len(found), -1)


def main(folder, seeds=3):
    train, test = load_mnist(folder), load_mnist(folder, "test")
    edges = Orientations()
    X, X_test = edges.fit_transform(train.features), edges.transform(test.features)
    step = PublicComponents(edges.transform(public_pictures()), 150).fit(X)
    sets = {"392 orientations": (X, X_test)}
    sets["150 public directions"] = step.transform(X), step.transform(X_test)
    for name, (rows, rows_test) in sets.items():
        for seed in range(seeds):
            owner = np.random.default_rng(seed).permutation(len(rows)) % 10
            for how in (None, "sum"):
                model = PrivateLogisticRegression(
                    1.0, 1e-5, classes=list(range(10)), random_state=seed, aggregation=how
                )
                start = time.time()
                model.fit(rows, train.labels, agents=owner)
                error = 100 * np.mean(model.predict(rows_test) != test.labels)
                print(f"{name}, {how or 'nobody trusted'}, seed {seed}: {error:.2f} %", end=", ")
                print(f"{time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
