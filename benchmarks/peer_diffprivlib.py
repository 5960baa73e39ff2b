"""diffprivlib's linear regression, in a Python of its own: it needs scikit-learn before 1.6.

python peer_diffprivlib.py FILE.npz    prints the test errors for the file's epsilons as JSON
"""

import json
import sys
import warnings

import numpy as np


def main():
    from diffprivlib.models import LinearRegression

    warnings.simplefilter("ignore")
    data = np.load(sys.argv[1])
    errors = []
    for epsilon in data["epsilons"]:
        model = LinearRegression(
            epsilon=float(epsilon),
            bounds_X=(-1, 1),
            bounds_y=(-1, 1),
            random_state=int(data["seed"]),
        )
        answers = np.clip(model.fit(data["X"], data["y"]).predict(data["X_test"]), -1, 1)
        errors.append(float(np.mean((answers - data["y_test"]) ** 2)))
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
