"""The model of ``tacit learn``, and the mean that its rows are centred by: a release of its own."""

from __future__ import annotations

import argparse
from typing import Any

from tacit.cli.options import refuse
from tacit.cli.run_folder import RunFolder
from tacit.cli.run_note import MEAN
from tacit.cli.training_data import given_classes, target_range
from tacit.errors import InvalidInput

# the estimator in tacit.learn, and whether it predicts a number
MODELS = {
    "logistic": ("PrivateLogisticRegression", False),
    "svm": ("PrivateLinearSVC", False),
    "huber": ("PrivateHuberRegressor", True),
    "ridge": ("PrivateRidge", True),
    "quantile": ("PrivateQuantileRegressor", True),
}


def model_of(options: argparse.Namespace, train: Any) -> Any:
    """The estimator: for a number with a public range a regressor, else a classifier."""
    import tacit.learn

    target = target_range(options)
    chosen = options.model or ("logistic" if target is None else "huber")
    name, number = MODELS[chosen]
    if number != (target is not None):
        raise InvalidInput(
            f"Expected --target-range with --model huber, ridge or quantile, and without it with "
            f"logistic or svm, got --model {chosen}. Nothing was fit."
        )
    if chosen != "quantile":
        refuse(options, ("level",), "for --model quantile only")
    if chosen != "logistic":
        refuse(options, ("slope_limit",), "for --model logistic only")
    public: dict[str, Any] = {
        "total_epsilon": options.total_epsilon,
        "total_delta": options.total_delta,
        "constraint": None if options.bound is None else tacit.learn.Box(options.bound),
        "mechanism": options.mechanism,
        "rounds": options.rounds,
        "local_updates": options.local_updates,
        "noise": options.noise,
        "ledgers": options.ledgers,
        "feature_norm": options.feature_norm,
    }
    if number:
        refuse(options, ("centring_share",), "for classifiers only")
        level = {"level": options.level} if chosen == "quantile" else {}
        return getattr(tacit.learn, name)(target_range=target, **level, **public)
    classes = None if train.columns else list(train.names)  # a table's are read off it
    if options.classes is not None:
        classes = given_classes(options)
    public["centring_share"] = _planned(options.centring_share, "--centring-share")
    if chosen == "logistic":
        public["slope_limit"] = _planned(options.slope_limit, "--slope-limit")
    if public["feature_norm"] is None:
        public["feature_norm"] = 1.0
    return getattr(tacit.learn, name)(classes=classes, **public)


def _planned(text: str | None, option: str) -> float | str | None:
    """A number, none, or nothing: then it is planned."""
    if text is None or text == "none":
        return "auto" if text is None else None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"Expected {option} as a number or none, got {text!r}.") from None


def prepared(
    model: Any,
    train: Any,
    agents: Any,
    options: argparse.Namespace,
    folder: RunFolder,
    label: str,
) -> tuple[Any, Any]:
    """What the fit solves. A mean is released in a folder that has room for all that follows, and
    kept there: a run that is continued goes on with what was released, of the same data."""
    import numpy as np

    from tacit.learn.linear import prepare
    from tacit.planning import UPDATES

    records, kept = (train.features, train.targets, agents), folder.path / MEAN
    if getattr(model, "centring_share", None) is None:
        return prepare(model, *records)
    numbers = (train.features.shape[1] + 1) * max(train.classes, 1) * len(np.unique(agents))
    noisy, free = options.total_epsilon is not None, options.ledgers is not None
    if noisy and folder.has_begun and not (free or kept.is_file()):
        raise InvalidInput(
            f"Expected {MEAN} of the run in {folder.path}, found none: another mean of the same "
            "data would be a second release. Nothing was read."
        )
    rows = 41  # of a trace with a row for a twentieth of the rounds
    if options.evaluate_every is not None:
        rows = (options.rounds or UPDATES[1]) // max(options.evaluate_every, 1) + 1
    folder.start(label, numbers, options, rows=rows)
    had = kept.exists()
    try:
        return prepare(model, *records, seed=options.seed, checkpoint=kept)
    finally:
        if kept.exists() and not had:
            folder.has_paid()
