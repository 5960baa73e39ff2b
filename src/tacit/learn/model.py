"""A fitted model as one JSON file: all that is needed to predict, and nothing else.

    columns, ranges     names of the columns; where given, their public ranges (``PublicRange``)
    classes, scores     per score: its class, intercept, and coefficients by column
    feature_norm, longest_row   a longer row is scaled down to ``longest_row``
    mean                where rows are centred (format 2): a row longer than ``feature_norm`` is
                        scaled down to it, this is taken off, and the rest gets ``longest_row``
    estimator           format 3: its kind, and what that kind needs besides (``KINDS``)
    steps               format 3, in place of ``ranges``: what maps a record to the columns, in
                        order, each by its kind (``STEPS``) and public parameters
    privacy             the statement, which covers every number here

For two classes there is one score, of the second; for more there is one per class; for a number
there is one, without a class. A format is the lowest that says all: what a reader does not know
would make other predictions, so it refuses higher ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer
from sklearn.utils.validation import check_is_fitted

from tacit.errors import InvalidInput, count, positive
from tacit.files import write_atomically
from tacit.learn.centring import given_mean
from tacit.learn.features import PublicRange
from tacit.protocol.statement import PrivacyStatement
from tacit.reading import read_json, reading

FILE = "model.json"
MOST_COLUMNS = 10**6  # of a step: more would only fill memory
PLAIN = "PrivateLogisticRegression"
# Estimators: module of tacit.learn, and the parameters that a kind predicts with besides classes
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    PLAIN: ("classifiers", ()),
    "PrivateLinearSVC": ("classifiers", ()),
    "PrivateRidge": ("regressors", ("target_range",)),
    "PrivateHuberRegressor": ("regressors", ("target_range",)),
    "PrivateQuantileRegressor": ("regressors", ("target_range",)),
}
# Transformers that learn nothing: module of tacit.learn
STEPS = {
    "PublicRange": "features",
    "PublicColumns": "features",
    "Orientations": "features",
    "Scattering": "features",
    "RandomFourier": "features",
}


def save_model(model: Any, folder: str | Path) -> Path:
    """Write ``model.json`` of a fitted estimator, or of a pipeline of public maps and one.

    The privacy statement covers what is in it; a pickle of the estimator holds more.
    """
    *before, last = [m for _, m in model.steps] if isinstance(model, Pipeline) else [model]
    kinds = {name: module for name, (module, _) in KINDS.items()}
    if not _one_of(kinds, last) or not all(_one_of(STEPS, step) for step in before):
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


def load_model(folder: str | Path) -> Any:
    """The model in a folder's ``model.json``, ready to predict.

    An estimator with all but ``result_``; with ranges or other steps, a pipeline of them and it.
    """
    path = Path(folder) / FILE
    with reading(path, "a model that tacit saved"):
        document = read_json(path, "a model that tacit saved")
        if document["format"] not in (1, 2, 3):
            raise ValueError(f"format {document['format']}")
        steps = _steps(document)
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
    if type(step) in (Normalizer, Binarizer) or _one_of(STEPS, step):
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


# --- as JSON, and back ------------------------------------------------------------------------


def _class(module: str, name: str) -> Any:
    return getattr(import_module(f"tacit.learn.{module}"), name)


def _one_of(modules: Mapping[str, str], what: Any) -> bool:
    """Whether its class is the one of that name here, not another."""
    name = type(what).__name__
    return name in modules and _class(modules[name], name) is type(what)


def _document(before: list[Any], last: Any) -> dict[str, Any]:
    named = getattr((before or [last])[0], "feature_names_in_", None)
    columns = _columns(before, last, named)
    kind, mean = type(last).__name__, getattr(last, "mean_", None)
    more = {name: _public(getattr(last, name)) for name in KINDS[kind][1]}
    plain = kind == PLAIN and [type(step) for step in before] in ([], [PublicRange])
    ranges = None
    if plain and before:
        pairs = np.stack([before[0].low_, before[0].high_], axis=1).tolist()
        ranges = dict(zip(columns, pairs, strict=True))
    form = 3 if not plain else 1 if mean is None else 2  # what else a lower one would forget
    centre = None if mean is None else dict(zip(columns, mean.tolist(), strict=True))
    classes = getattr(last, "classes_", None)
    scores = [
        {
            "intercept": float(intercept),
            "coefficients": dict(zip(columns, row.tolist(), strict=True)),
        }
        for intercept, row in zip(
            np.atleast_1d(last.intercept_), np.atleast_2d(last.coef_), strict=True
        )
    ]
    if classes is not None:
        labels = classes.tolist()[-len(scores) :]
        scores = [{"class": c, **score} for c, score in zip(labels, scores, strict=True)]
    return {
        "format": form,
        **({"estimator": kind, "steps": [_step(s) for s in before]} if form == 3 else {}),
        "columns": columns,
        "named": named is not None,
        **({"ranges": ranges} if form < 3 else {}),
        "feature_norm": float(getattr(last, "feature_norm_", last.feature_norm)),
        "longest_row": float(last.longest_row),
        "fit_intercept": bool(last.fit_intercept),
        **(more if form == 3 else {}),
        **({"mean": centre} if form > 1 else {}),
        **({} if classes is None else {"classes": classes.tolist()}),
        "scores": scores,
        "privacy": last.privacy_.to_dict(),
    }


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
        "parameters": {k: _public(v) for k, v in step.get_params(deep=False).items()},
    }


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


def _estimator(document: Any) -> Any:
    columns = document["columns"]
    kind = document["estimator"] if document["format"] == 3 else PLAIN
    module, more = KINDS[kind]
    made = _class(module, kind)
    given = {name: _as_given(document[name]) for name in more}
    if classes := "classes" in made._get_param_names():
        given["classes"] = document["classes"]
    model = made(
        feature_norm=document["feature_norm"],
        fit_intercept=document["fit_intercept"],
        **given,
    )
    scores = document["scores"]
    model.coef_ = np.array([[s["coefficients"][c] for c in columns] for s in scores], np.float64)
    model.intercept_ = np.array([s["intercept"] for s in scores], np.float64)
    if classes:
        model.classes_ = np.array(document["classes"])
    else:  # as scikit-learn's regressors have them
        model.coef_, model.intercept_ = model.coef_[0], float(model.intercept_[0])
    _refuse_misfits(model, scores, document)
    model.privacy_ = PrivacyStatement.from_dict(document["privacy"])
    model.total_epsilon = document["privacy"]["epsilon"]
    model.total_delta = document["privacy"]["delta"]
    model.n_features_in_ = len(columns)
    if document["format"] > 1 and document["mean"] is not None:
        model.mean_ = np.array([document["mean"][c] for c in columns], np.float64)
        given_mean(model.mean_, len(columns), model.feature_norm_)
    return model


def _refuse_misfits(model: Any, scores: list[Any], document: Any) -> None:
    """Numbers that are none, and classes, scores and columns that do not fit one another."""
    columns, outputs = document["columns"], 1
    if hasattr(model, "classes_"):
        classes, outputs = model.classes_.tolist(), model._outputs
        if not isinstance(classes, list) or len({*classes}) != len(classes) or len(classes) < 2:
            raise ValueError("classes that are no list of two or more")
    else:
        getattr(model, "_range", None)  # of a regressor: checked where it is read
    if not isinstance(columns, list) or len({*columns}) != len(columns):
        raise ValueError("columns that are no list of different names")
    shapes = [v.shape for v in (np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))]
    if len(scores) != outputs or shapes != [(outputs, len(columns)), (outputs,)]:
        raise ValueError("scores of another number")
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        raise ValueError("a coefficient that is not finite")
    positive("feature_norm", model.feature_norm)
    if not isinstance(model.fit_intercept, bool):
        raise ValueError("a fit_intercept that is neither true nor false")


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _steps(document: Any) -> list[Any]:
    """The transformers, fitted: they learn nothing, so a row of zeros will do."""
    if document["format"] < 3:
        if document["ranges"] is None:
            return []
        columns = document["columns"]
        said = {c: document["ranges"][c] for c in columns}
        if not document["named"]:
            said = {str(j): said[c] for j, c in enumerate(columns)}
        names = columns if document["named"] else None
        one: dict[str, Any] = {"kind": "PublicRange", "width": len(columns), "columns": names}
        return [_made({**one, "parameters": {"ranges": said}})]
    return [_made(step) for step in document["steps"]]


def _made(step: Any) -> Any:
    kind, names, width = step["kind"], step["columns"], step["width"]
    made = _class(STEPS[kind], kind)
    parameters = step["parameters"]
    count("width", width, MOST_COLUMNS)
    if names is None:  # columns have positions then, which JSON has as text
        parameters = {k: _by_position(v) for k, v in parameters.items()}
    elif len(names) != width:
        raise ValueError("columns of another number")
    row: Any = np.zeros((1, width))
    if names is not None:
        import pandas as pd

        row = pd.DataFrame(row, columns=names)
    return made(**parameters).fit(row)


def _by_position(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {int(k) if k.isascii() and k.isdecimal() else k: v for k, v in value.items()}
