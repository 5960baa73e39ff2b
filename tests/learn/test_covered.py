"""Which steps a privacy statement covers: what learns from data or mixes records is named."""

import warnings

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.utils import all_estimators, get_tags

from tacit.learn import Orientations, PublicRange, RandomFourier, Scattering, not_covered

RANGES = PublicRange({"*": (-1, 1)})
COVERED = [
    RANGES,
    Orientations(),
    Scattering(1, 2),
    RandomFourier(4),
    Normalizer(),
    Normalizer("max"),
    Binarizer(threshold=0.3),
    make_pipeline(RANGES, RandomFourier(4)),
    make_pipeline("passthrough", Normalizer()),
    FeatureUnion([("a", RandomFourier(4)), ("b", "passthrough"), ("c", "drop")]),
    ColumnTransformer([("a", RANGES, [0, 1])], remainder="passthrough"),
]


@pytest.mark.parametrize("step", COVERED, ids=range(len(COVERED)))
def test_what_is_covered_learns_nothing_and_maps_rows_by_themselves(step):
    assert not_covered([step]) == []
    data = np.random.default_rng(0).normal(size=(12, 16))
    one = step.fit(data).transform(data)
    other = step.fit(5 + 3 * data[:5]).transform(data[7:8])
    assert np.array_equal(one[7:8], other)


class Fitted(Orientations):
    """A subclass may do anything."""


NOT_COVERED = [
    (StandardScaler(), ["StandardScaler"]),
    (RBFSampler(gamma="scale"), ["RBFSampler"]),  # its gamma is the data's variance
    (FunctionTransformer(np.exp), ["FunctionTransformer"]),  # a function may look at all rows
    (Fitted(), ["Fitted"]),
    (make_pipeline(RANGES, PCA(2), Normalizer()), ["PCA"]),
    (
        FeatureUnion([("a", OneHotEncoder()), ("b", make_pipeline(SimpleImputer()))]),
        ["OneHotEncoder", "SimpleImputer"],
    ),
    (
        ColumnTransformer([("a", RANGES, [0])], remainder=StandardScaler()),
        ["StandardScaler"],
    ),
    (
        ColumnTransformer([("a", RANGES, make_column_selector("x"))]),
        ["ColumnTransformer"],
    ),
    (object(), ["object"]),
    (Orientations, ["type"]),
    ("scale", ["str"]),
]


@pytest.mark.parametrize(("step", "named"), NOT_COVERED, ids=range(len(NOT_COVERED)))
def test_what_is_not_covered_is_named(step, named):
    assert not_covered([RANGES, step]) == named
    assert not_covered([("first", RANGES), ("second", step)]) == named


@pytest.mark.exhaustive  # it imports all of scikit-learn; some of them are in NOT_COVERED
def test_of_all_transformers_of_scikit_learn_three_are_covered():
    """And these say themselves that there is nothing to fit."""
    covered = set()
    for name, kind in all_estimators("transformer"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = kind()
        except TypeError:  # it needs other steps
            continue
        if not not_covered([step]):
            assert not get_tags(step).requires_fit
            covered.add(name)
    assert covered == {"Normalizer", "Binarizer"}
