"""What ``tacit learn`` prints of a fitted model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tacit.cli.console import print_files, print_table
from tacit.errors import digits

COEFFICIENT_COLUMNS = 20  # columns of which all coefficients are shown
SCORES = 6  # that fit side by side


def print_fit(
    options: argparse.Namespace,
    folder: Path,
    model: Any,
    train: Any,
    test: Any,
    mapped: Any,
    tested: dict[str, Any],
) -> None:
    """``tested`` is what ``tested_figures`` found."""
    from tacit.privacy.accounting import rounded_up

    result = model.result_
    settings = result.settings
    error, guess = tested["test_error"], tested["test_error_of_a_guess"]
    rounds = result.summary["round"]
    classes = tested["classes"]
    hidden = not_covered(model, train, mapped.changes)
    chosen = _chosen(model, mapped)
    objective = {"train_objective": float(result.trace["objective"][-1])}
    kept = {**hidden, "test_error": error, "test_error_of_a_guess": guess}
    what = "objective of what was released"
    if not result.privacy.once:
        what, kept = "training objective (not covered: keep secret)", kept | objective
    document = {
        "classes": classes,
        **(objective if result.privacy.once else {}),
        **{k: result.privacy.to_dict()[k] for k in ("epsilon", "delta", "certified", "statement")},
        "rounds": rounds,
        "local_updates": settings.local_updates,
        **chosen,
        "seed": options.seed,
        "agents": len(result.names),
        "records": len(train),
        **(
            {"columns": list(train.columns), "scores": _scores(model, train)}
            if train.columns
            else {}
        ),
        "not_covered": kept,
        "folder": str(folder),
    }
    spent, doubt = [("noise", "none")], "" if result.privacy.certified else " (not certified)"
    if document["epsilon"] is None:
        document["delta"] = None
    else:
        spent = [
            (f"total epsilon{doubt}", rounded_up(document["epsilon"], 4)),
            ("total delta", digits(document["delta"])),
            ("noise from", result.noise_source),
        ]
    if options.json:
        print(json.dumps(document))
        return
    errors = []
    if error is not None and guess is not None:
        which = "test error" if classes else "mean absolute test error"
        both = [f"{100 * x:.2f} %" if classes else f"{x:.4g}" for x in (error, guess)]
        ignoring = "the largest class" if classes else "the middle of the range"
        errors = [
            (f"{which} ({len(test)} records; not covered)", both[0]),
            (f"the same if all were {ignoring} (not covered)", both[1]),
        ]
    learnt = f"{len(classes)} classes" if classes else "a number to predict"
    print_table(
        f"{len(result.names)} agents, {len(train)} records, {learnt}",
        ("", ""),
        [
            *errors,
            (what, f"{objective['train_objective']:.4g}"),
            *((name.replace("_", " "), _shown_choice(value)) for name, value in chosen.items()),
            ("rounds, local updates", f"{rounds}, {settings.local_updates}"),
            *spent,
        ],
    )
    if train.columns:
        _print_coefficients(model, train)
    print(in_words(hidden))
    if doubts := look(hidden, error, guess):
        print(f"Look: {'; '.join(doubts)}. (Not covered: keep secret.)")
    print(result.privacy.words)
    print_files(folder)


def tested_figures(model: Any, train: Any, test: Any) -> dict[str, Any]:
    """Errors on the records that were kept for the test.

    Guarantee: none: they have no noise in them. They are for the owner's eyes, as is the file they
    are written to.
    """
    return {
        "test_error": None if test is None else _error(model, test),
        "test_error_of_a_guess": None if test is None else _guess(model, train, test),
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
    }


def _chosen(model: Any, mapped: Any) -> dict[str, Any]:
    """What the budget is spent on, given or planned: public."""
    made = [type(step).__name__ for step in mapped.steps]
    found: dict[str, Any] = {
        "model": type(model).__name__,
        "features": next((n for n in made if n not in ("PublicRange", "PublicColumns")), None),
    }
    for name in ("slope_limit_", "centring_share_", "alpha_"):
        if hasattr(model, name) and (name != "centring_share_" or hasattr(model, "centring_share")):
            found[name.rstrip("_")] = getattr(model, name)
    return found


def _guess(model: Any, train: Any, test: Any) -> float:
    """The error of an answer that ignores the columns: the largest class, or the middle of the
    public range."""
    import numpy as np

    if hasattr(model, "classes_"):
        names, counts = np.unique(train.targets, return_counts=True)
        return float(np.mean(test.targets != names[counts.argmax()]))
    low, high = model.target_range
    return float(np.abs(test.targets - (low + high) / 2).mean())


def _shown_choice(value: Any) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def not_covered(model: Any, train: Any, changes: dict[str, dict[str, int]]) -> dict[str, Any]:
    """What public ranges, lists, values and the norm did to the records, counted.

    Guarantee: none: these are exact counts of private records, for the owner's eyes. No file of the
    run has them.
    """
    import numpy as np

    centred = getattr(model, "mean_", None) is not None
    norm = getattr(model, "feature_norm_", model.feature_norm)
    longest = norm if centred else model.longest_row
    with np.errstate(over="ignore"):
        rows = train.features
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    found = {
        "records": len(train),
        "longest_row": float(longest),
        "scaled_down": int(np.count_nonzero(lengths > longest * (1 + 1e-9))),
        **changes,
    }
    if (ends := getattr(model, "target_range", None)) is not None:
        outside = (train.targets < ends[0]) | (train.targets > ends[1])
        found["targets_clipped"] = int(np.count_nonzero(outside))
    return found


def in_words(hidden: dict[str, Any]) -> str:
    """One line of it."""
    n = hidden["records"]
    said = [
        f"{hidden['scaled_down']} of {n} rows scaled down to {hidden['longest_row']:.4g}",
    ]
    if "targets_clipped" in hidden:
        said.append(f"{hidden['targets_clipped']} targets clipped to their range")
    for kind, words in (
        ("clipped", "values clipped to their range"),
        ("unknown", "values of no known category"),
        ("filled", "missing values filled in"),
    ):
        if kind in hidden:
            by_column = ", ".join(f"{shown(name)} {many}" for name, many in hidden[kind].items())
            said.append(f"{words}: {by_column or 'none'}")
    return f"What was changed (not covered: keep secret): {'; '.join(said)}."


def look(hidden: dict[str, Any], error: float | None, guess: float | None) -> list[str]:
    """What is likely a mistake: nothing was learnt, or a public rule that does not fit a column.

    Guarantee: none: read off exact counts and errors, for the owner's eyes.
    """
    found, n = [], hidden["records"]
    if error is not None and guess is not None and error > guess:
        found.append("the test error is larger than that of a guess")
    for name, many in hidden.get("clipped", {}).items():
        if many == n:
            found.append(f"every value of {shown(name)} is clipped (is its --range right?)")
    for name, many in hidden.get("unknown", {}).items():
        if 2 * many > n:
            found.append(
                f"{many} of {n} values of {shown(name)} are of no known category (are its "
                "--categories written as in the table?)"
            )
    return found


def shown(name: str) -> str:
    """A name as it is, unless it would command the terminal."""
    return name if name.isprintable() else repr(name)


def _error(model: Any, test: Any) -> float:
    """The share of wrong classes, or the mean distance of numbers."""
    import numpy as np

    if hasattr(model, "classes_"):
        return float(1 - model.score(test.features, test.targets))
    return float(np.abs(model.predict(test.features) - test.targets).mean())


def _matrix(model: Any) -> tuple[Any, Any, list[str]]:
    """Coefficients (scores × columns), intercepts, and what the scores are of."""
    import numpy as np

    coefficients, intercepts = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    classes = getattr(model, "classes_", None)
    names = ["prediction"] if classes is None else classes.tolist()[-len(coefficients) :]
    return coefficients, intercepts, [str(name) for name in names]


def _scores(model: Any, train: Any) -> dict[str, Any]:
    """By class and column, as in model.json."""
    coefficients, intercepts, names = _matrix(model)
    return {
        name: {
            "intercept": float(intercept),
            "coefficients": dict(zip(train.columns, row.tolist(), strict=True)),
        }
        for name, intercept, row in zip(names, intercepts, coefficients, strict=True)
    }


def _print_coefficients(model: Any, train: Any) -> None:
    """By column, the largest first; the rest is in model.json."""
    import numpy as np

    coefficients, intercepts, names = _matrix(model)
    if len(names) > SCORES:
        print("coefficients by class and column: model.json")
        return
    order = np.argsort(-np.abs(coefficients).max(axis=0), kind="stable")[:COEFFICIENT_COLUMNS]
    left = len(train.columns) - len(order)
    rows = [(shown(train.columns[j]), *(f"{x:.4g}" for x in coefficients[:, j])) for j in order]
    more = [(f"({left} more in model.json)", *("" for _ in names))] if left else []
    constant = [("(intercept)", *(f"{x:.4g}" for x in intercepts))]
    title = "coefficients, largest first"
    print_table(title, ("column", *map(shown, names)), [*rows, *more, *constant])
