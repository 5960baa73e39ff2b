"""A fitted classifier as one JSON file: all that is needed to predict, and nothing else.

    columns, ranges     names of the columns; where given, their public ranges (``PublicRange``)
    classes, scores     per score: its class, intercept, and coefficients by column
    feature_norm, longest_row   a longer row is scaled down to ``longest_row``
    mean                where rows are centred (format 2): a row longer than ``feature_norm`` is
                        scaled down to it, this is taken off, and the rest gets ``longest_row``
    privacy             the statement, which covers every number here

For two classes there is one score, of the second; for more there is one per class.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from tacit.admm.statement import PrivacyStatement
from tacit.errors import CorruptFile, InvalidInput, cause
from tacit.files import write_atomically
from tacit.learn.estimator import PrivateLogisticRegression
from tacit.learn.ranges import PublicRange

FILE = "model.json"


def save_model(model: Any, folder: str | Path) -> Path:
    """Write ``model.json`` of a fitted estimator, or of a pipeline of ``PublicRange`` and one.

    The privacy statement covers what is in it; a pickle of the estimator holds more.
    """
    *before, classifier = [m for _, m in model.steps] if isinstance(model, Pipeline) else [model]
    if not isinstance(classifier, PrivateLogisticRegression) or (
        [type(step) for step in before] not in ([], [PublicRange])
    ):
        raise InvalidInput(
            "Expected PrivateLogisticRegression, or a pipeline of PublicRange and it, got "
            f"{model!r}. Nothing was saved."
        )
    check_is_fitted(classifier)
    named = getattr((before or [classifier])[0], "feature_names_in_", None)
    columns = [f"x{j}" for j in range(classifier.n_features_in_)] if named is None else [*named]
    classes = classifier.classes_.tolist()
    ranges = None
    if before:
        pairs = np.stack([before[0].low_, before[0].high_], axis=1).tolist()
        ranges = dict(zip(columns, pairs, strict=True))
    mean = getattr(classifier, "mean_", None)
    document = {
        "format": 1 if mean is None else 2,  # a reader of format 1 would not centre rows
        "columns": columns,
        "named": named is not None,
        "ranges": ranges,
        "feature_norm": float(classifier.feature_norm),
        "longest_row": float(classifier.longest_row),
        "fit_intercept": bool(classifier.fit_intercept),
        **({} if mean is None else {"mean": dict(zip(columns, mean.tolist(), strict=True))}),
        "classes": classes,
        "scores": [
            {
                "class": label,
                "intercept": float(intercept),
                "coefficients": dict(zip(columns, row.tolist(), strict=True)),
            }
            for label, intercept, row in zip(
                classes[-len(classifier.coef_) :],
                classifier.intercept_,
                classifier.coef_,
                strict=True,
            )
        ],
        "privacy": classifier.privacy_.to_dict(),
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, json.dumps(document, indent=1).encode())
    if classifier.privacy_.certified:
        os.chmod(folder / FILE, 0o644)  # what the statement covers may be read
    return folder / FILE


def load_model(folder: str | Path) -> Any:
    """The model in a folder's ``model.json``, ready to predict.

    An estimator with all but ``result_``; with ranges, a pipeline of ``PublicRange`` and it.
    """
    path = Path(folder) / FILE
    try:
        document = json.loads(path.read_text())
        if document["format"] not in (1, 2):
            raise ValueError(f"format {document['format']}")
        columns = document["columns"]
        model = PrivateLogisticRegression(
            feature_norm=document["feature_norm"],
            fit_intercept=document["fit_intercept"],
            classes=document["classes"],
        )
        model.classes_ = np.array(document["classes"])
        scores = document["scores"]
        model.coef_ = np.array([[s["coefficients"][c] for c in columns] for s in scores])
        model.intercept_ = np.array([s["intercept"] for s in scores], np.float64)
        model.privacy_ = PrivacyStatement.from_dict(document["privacy"])
        model.total_epsilon = document["privacy"]["epsilon"]
        model.total_delta = document["privacy"]["delta"]
        model.n_features_in_ = len(columns)
        if document["format"] == 2:
            model.mean_ = np.array([document["mean"][c] for c in columns], np.float64)
        if document["ranges"] is None:
            if document["named"]:
                model.feature_names_in_ = np.array(columns, object)
            return model
        names = columns if document["named"] else list(range(len(columns)))
        pairs = [tuple(document["ranges"][c]) for c in columns]
        ranges = PublicRange(dict(zip(names, pairs, strict=True)))
        ranges.low_, ranges.high_ = np.array(pairs, np.float64).T
        ranges.n_features_in_ = len(columns)
        if document["named"]:
            ranges.feature_names_in_ = np.array(columns, object)
        return make_pipeline(ranges, model)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"Expected a model that tacit saved in {path}: {cause(error)}.") from None
