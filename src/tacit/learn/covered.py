"""Which steps before an estimator its privacy statement does not cover."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from tacit.learn.columns import PublicColumns
from tacit.learn.fourier import RandomFourier
from tacit.learn.orientations import Orientations
from tacit.learn.ranges import PublicRange
from tacit.learn.scattering import Scattering

# Each row by itself, by parameters alone
COVERED = (
    *(PublicRange, PublicColumns, Orientations, Scattering, RandomFourier),
    *(Normalizer, Binarizer),
)


def not_covered(steps: Iterable[Any]) -> list[str]:
    """The names of the transformers that may have learnt from the data, or may mix records.

    ``steps`` are transformers or (name, transformer) pairs, as in a pipeline.

    Guarantee: if the list is empty, every row is mapped by itself and by public parameters, so
    neighbours stay neighbours and a statement about the mapped rows is one about the rows before.
    What is not known to be so is named: everything but Tacit's own maps, scikit-learn's
    ``Normalizer`` and ``Binarizer``, a ``FunctionTransformer`` of nothing or of a NumPy function
    that is elementwise (any other function may look at all rows), "passthrough" and "drop", and
    pipelines, unions and ``ColumnTransformer``s of these with columns that are listed. A subclass
    is not known: it may do anything. That parameters are public is the user's claim, and so are the
    types of the array or table that is given (of a list NumPy would choose one by its content).
    """
    return [name for step in steps for name in _of(step[1] if isinstance(step, tuple) else step)]


def _of(step: Any) -> list[str]:
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return []
    if type(step) in COVERED:
        return []
    if type(step) is FunctionTransformer and _elementwise(step):
        return []
    if type(step) is Pipeline:
        return not_covered(step.steps)
    if type(step) is FeatureUnion:
        return not_covered(step.transformer_list)
    if type(step) is ColumnTransformer and not any(callable(c) for *_, c in step.transformers):
        return not_covered([*(t for _, t, _ in step.transformers), step.remainder])
    return [type(step).__name__]


def _elementwise(step: FunctionTransformer) -> bool:
    """A function of each number by itself: of two arguments, the second could hold data."""
    function: Any = step.func
    return function is None or (
        isinstance(function, np.ufunc)
        and function.nin == 1
        and function.signature is None
        and not step.kw_args
        and getattr(np, function.__name__, None) is function  # frompyfunc's may remember
    )
