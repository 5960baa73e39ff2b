"""A fitted model as one JSON file: all that is needed to predict, and nothing else.

    estimator           its kind
    steps               what maps a record to the columns, in order: each by its kind, its public
                        parameters, and the number and names of the columns that it takes
    columns, named      names of the estimator's columns; whether records have names of columns
    classes             of a classifier, all of them
    target_range        of a regressor: the public range of targets
    scores              per score: its class, intercept, coefficients by column, and of the length
    feature_norm, longest_row, mean   a row longer than ``feature_norm`` is scaled down to it, the
                        mean is taken off, and the rest gets ``longest_row``; without a mean a
                        longer row is scaled down to ``longest_row``
    ranges              null, or by column (low, high) within [−1, 1] that was read privately: first
                        of all these are brought to [−1, 1] and clipped (``ranges.py``)
    length              null, or R: rows are scaled down to √(d/3)·``feature_norm``, and a column
                        for their length follows the others (``centring.py``)
    privacy             the statement, which covers every number here

For two classes there is one score, of the second; for more there is one per class; for a number
there is one, without a class. Format 3 has neither of the last two. Formats 1 and 2, of logistic
regressions, have ``ranges`` in place of steps; 1 has no mean.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, Normalizer
from sklearn.utils.validation import check_is_fitted

from tacit.errors import InvalidInput, array, count, positive
from tacit.files import read_json, reading, write_atomically
from tacit.learn import classifiers, features, regressors
from tacit.protocol.statement import PrivacyStatement

FILE = "model.json"
WHAT = "a model that tacit saved"
MOST_COLUMNS = 10**6  # of a step: more would only fill memory
ESTIMATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        classifiers.PrivateLogisticRegression,
        classifiers.PrivateLinearSVC,
        regressors.PrivateRidge,
        regressors.PrivateHuberRegressor,
        regressors.PrivateQuantileRegressor,
    )
}
STEPS: dict[str, Any] = {  # they learn nothing
    kind.__name__: kind
    for kind in (
        features.PublicRange,
        features.PublicColumns,
        features.Orientations,
        features.Scattering,
        features.RandomFourier,
        features.PublicComponents,
    )
}


def save_model(model: Any, folder: str | Path) -> Path:
    """Write ``model.json`` of a fitted estimator, or of a pipeline of public maps and one.

    The privacy statement covers what is in it; a pickle of the estimator holds more.

    Returns the path of the file. Raises ``NotFittedError`` before a fit, ``InvalidInput`` for steps
    that are no public maps.
    """
    before, last = _parts(model)
    if not _has_document(before, last):
        named = not_covered(before)[:1]
        learnt = "".join(f" What {n} learnt is not covered by the statement." for n in named)
        raise InvalidInput(
            "Expected PrivateLogisticRegression or another private estimator, or a pipeline of "
            f"public maps such as PublicRange and it, got {model!r}.{learnt} Nothing was saved."
        )
    check_is_fitted(last, "privacy_")
    document = _document(before, last)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, json.dumps(document, indent=1).encode())
    if last.privacy_.certified:
        os.chmod(folder / FILE, 0o644)  # what the statement covers may be read
    return folder / FILE


def digest_of(model: Any) -> str:
    """Of all that its predictions follow from; another one each time where that is not known."""
    before, last = _parts(model)
    if _has_document(before, last):
        content = json.dumps(_document(before, last)).encode()
    else:
        try:
            content = pickle.dumps(model)
        except Exception:  # whatever is in somebody's model
            content = os.urandom(32)
    return hashlib.sha256(content).hexdigest()


def _parts(model: Any) -> tuple[list[Any], Any]:
    *before, last = [m for _, m in model.steps] if isinstance(model, Pipeline) else [model]
    return before, last


def _has_document(before: list[Any], last: Any) -> bool:
    return type(last) in ESTIMATORS.values() and {*STEPS.values()}.issuperset(map(type, before))


def load_model(folder: str | Path) -> Any:
    """The model in a folder's ``model.json``, ready to predict.

    Returns an estimator with all but ``result_``; with steps before it, a pipeline of them and it.
    Raises ``CorruptFile`` for a file that is not there, damaged, or no model.
    """
    path = Path(folder) / FILE
    with reading(path, WHAT):
        document = read_json(path, WHAT)
        if document["format"] not in (1, 2, 3, 4):
            raise ValueError(f"format {document['format']}")
        if document["format"] < 3:
            document = _as_format_3(document)
        if ("length" in document) != (document["format"] == 4):
            raise ValueError("a length in a document of another format")
        steps = [_made(step) for step in document["steps"]]
        model = _estimator(document)
        widths = [*(step.n_features_in_ for step in steps), model.n_features_in_]
        for step, width in zip(steps, widths[1:], strict=True):
            names = getattr(step, "get_feature_names_out", None)
            if names is not None and len(names()) != width:
                raise ValueError("steps that do not fit one another")
        if document["named"] and not steps:
            model.feature_names_in_ = np.array(document["columns"], object)
        return make_pipeline(*steps, model) if steps else model


# --- which steps are public -------------------------------------------------------------------


def not_covered(steps: Iterable[Any]) -> list[str]:
    """The names of the transformers that may have learnt from the data, or may mix records.

    ``steps`` are transformers or (name, transformer) pairs, as in a pipeline.

    Guarantee: if the list is empty, every row is mapped by itself and by public parameters, so
    neighbours stay neighbours and a statement about the mapped rows is one about the rows before.
    What is not known to be so is named: everything but Tacit's own maps, scikit-learn's
    ``Normalizer`` and ``Binarizer``, "passthrough" and "drop", and pipelines, unions and
    ``ColumnTransformer``s of these with columns that are listed. A subclass
    is not known: it may do anything. That parameters are public is the user's claim, and so are the
    types of the array or table that is given (of a list NumPy would choose one by its content).
    """
    return [name for step in steps for name in _of(step[1] if isinstance(step, tuple) else step)]


def _of(step: Any) -> list[str]:
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return []
    if type(step) in (Normalizer, Binarizer, *STEPS.values()):
        return []
    if type(step) is Pipeline:
        return not_covered(step.steps)
    if type(step) is FeatureUnion:
        return not_covered(step.transformer_list)
    if type(step) is ColumnTransformer and not any(callable(c) for *_, c in step.transformers):
        return not_covered([*(t for _, t, _ in step.transformers), step.remainder])
    return [type(step).__name__]


# --- as JSON, and back ------------------------------------------------------------------------


def _document(before: list[Any], last: Any) -> dict[str, Any]:
    named = getattr((before or [last])[0], "feature_names_in_", None)
    columns, mean = _columns(before, last, named), getattr(last, "mean_", None)

    def by_column(values: Any) -> dict[str, Any]:
        return dict(zip(columns, values.tolist(), strict=True))

    R, ranges = last.length_, last.ranges_
    new = {"length": R, "ranges": None if ranges is None else by_column(ranges)}
    document: dict[str, Any] = {
        "format": 3 if R is None and ranges is None else 4,  # as old as can be
        "estimator": type(last).__name__,
        "steps": [_step(step) for step in before],
        "columns": columns,
        "named": named is not None,
        "feature_norm": float(last.feature_norm_),
        "longest_row": float(last.longest_row),
        "fit_intercept": bool(last.fit_intercept),
        "mean": None if mean is None else by_column(mean),
        **({} if R is None and ranges is None else new),
    }
    intercepts, rows = np.atleast_1d(last.intercept_), np.atleast_2d(last.coef_)
    scores: list[dict[str, Any]] = [
        {"intercept": float(intercept), "coefficients": by_column(row)}
        for intercept, row in zip(intercepts, rows, strict=True)
    ]
    if R is not None:
        scores = [{**s, "length": float(c)} for s, c in zip(scores, last.length_coef_, strict=True)]
    if isinstance(last, regressors.LinearRegressor):
        document["target_range"] = list(last._range)
    else:
        document["classes"] = classes = last.classes_.tolist()
        labels = classes[-len(scores) :]
        scores = [{"class": c, **score} for c, score in zip(labels, scores, strict=True)]
    return {**document, "scores": scores, "privacy": last.privacy_.to_dict()}


def _columns(before: list[Any], last: Any, named: Any) -> list[str]:
    """Names of the estimator's columns, through all steps where they give names."""
    names = named
    for step in before:
        try:
            names = step.get_feature_names_out(names)
        except (AttributeError, NotImplementedError):
            names = None
    if names is None or len(names) != last.n_features_in_ or len({*names}) != len(names):
        return [f"x{j}" for j in range(last.n_features_in_)]
    return [str(name) for name in names]


def _step(step: Any) -> dict[str, Any]:
    check_is_fitted(step)
    named = getattr(step, "feature_names_in_", None)
    return {
        "kind": type(step).__name__,
        "width": int(step.n_features_in_),
        "columns": None if named is None else [str(name) for name in named],
        "parameters": {k: _public(v) for k, v in _parameters(step).items()},
    }


def _parameters(step: Any) -> dict[str, Any]:
    own = getattr(step, "public_parameters", None)
    found: dict[str, Any] = step.get_params(deep=False) if own is None else own()
    return found


def _public(value: Any) -> Any:
    """A public parameter as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _public(v) for key, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_public(v) for v in value]
    raise InvalidInput(
        f"Expected parameters of numbers and text, got {type(value).__name__}. Nothing was saved."
    )


def _as_format_3(document: Any) -> Any:
    """A document of format 1 or 2."""
    columns, ranges = document["columns"], document["ranges"]
    steps: list[Any] = []
    if ranges is not None:
        keys = columns if document["named"] else [str(j) for j in range(len(columns))]
        said = {key: ranges[column] for key, column in zip(keys, columns, strict=True)}
        names = columns if document["named"] else None
        step = {"kind": "PublicRange", "width": len(columns), "columns": names}
        steps = [{**step, "parameters": {"ranges": said}}]
    mean = document["mean"] if document["format"] == 2 else None
    return {**document, "estimator": "PrivateLogisticRegression", "steps": steps, "mean": mean}


def _estimator(document: Any) -> Any:
    columns, scores, given = document["columns"], document["scores"], document["privacy"]
    if not isinstance(columns, list) or len({*columns}) != len(columns):
        raise ValueError("columns that are no list of different names")
    if not isinstance(document["fit_intercept"], bool):
        raise ValueError("a fit_intercept that is neither true nor false")
    public: dict[str, Any] = {"fit_intercept": document["fit_intercept"]}
    public["feature_norm"] = positive("feature_norm", document["feature_norm"])
    kind = ESTIMATORS[document["estimator"]]
    if regressor := issubclass(kind, regressors.LinearRegressor):
        model = kind(target_range=tuple(document["target_range"]), **public)
        _ = model._range  # refuses what is no range
    else:
        classes = document["classes"]
        if not isinstance(classes, list) or len({*classes}) != len(classes) or len(classes) < 2:
            raise ValueError("classes that are no list of two or more")
        model = kind(classes=classes, **public)
        model.classes_ = np.array(classes)
    d, K = len(columns), model._outputs

    def numbers(values: Any, *shape: int) -> Any:
        """Finite ones, and as many as there are columns or scores."""
        return array("numbers", np.array(values, np.float64), shape)

    def by_column(values: Any, *shape: int) -> Any:
        return numbers([values[c] for c in columns], d, *shape)

    model.coef_ = np.array([by_column(s["coefficients"]) for s in scores])
    model.intercept_ = numbers([s["intercept"] for s in scores], K)
    if regressor:  # as scikit-learn's have them
        model.coef_, model.intercept_ = model.coef_[0], float(model.intercept_[0])
    model.privacy_ = PrivacyStatement.from_dict(given)
    model.total_epsilon, model.total_delta = given["epsilon"], given["delta"]
    model.n_features_in_, R = d, document.get("length")
    if document["format"] == 4 and document["ranges"] is not None:
        model.ranges_ = by_column(document["ranges"], 2)
        low, high = model.ranges_.T
        if not ((low >= -1) & (low < high) & (high <= 1)).all():
            raise ValueError("ranges that were not read within [-1, 1]")
    if R is not None:
        model.length_ = positive("length", R)
        model.length_coef_ = numbers([s["length"] for s in scores], K)
        if document["mean"] is None:
            raise ValueError("a length without a mean")
    if document["mean"] is not None:
        model.mean_ = by_column(document["mean"])
        if max(math.hypot(*model.mean_), R or 0.0) > model.longest_given * (1 + 1e-9):
            raise ValueError("a mean or a length that no row can have")
    return model


def _made(step: Any) -> Any:
    """A transformer, fitted: it learns nothing, so a row of zeros will do."""
    names, width = step["columns"], count("width", step["width"], MOST_COLUMNS)
    parameters, row = step["parameters"], np.zeros((1, width))
    if names is None:  # columns have positions then, which JSON has as text
        parameters = {k: _by_position(v) for k, v in parameters.items()}
    elif len(names) != width:
        raise ValueError("columns of another number")
    else:
        import pandas as pd

        row = pd.DataFrame(row, columns=names)
    return STEPS[step["kind"]](**parameters).fit(row)


def _by_position(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {int(k) if k.isascii() and k.isdecimal() else k: v for k, v in value.items()}
