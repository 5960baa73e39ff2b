"""What ``tacit learn`` prints of a fitted model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tacit.cli.console import print_files, print_table
from tacit.errors import digits
from tacit.reading import read_json

COEFFICIENT_COLUMNS = 20  # columns of which all coefficients are shown
SCORES = 6  # that fit side by side
CHANGES = {  # what public rules do to a value, by ``tables.CHANGES``
    "clipped": "values clipped to their range",
    "unknown": "values of no known category",
    "filled": "missing values filled in",
}


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

    result, privacy = model.result_, model.result_.privacy
    hidden = not_covered(model, train, mapped.changes)
    chosen = _chosen(model, mapped)
    scores = read_json(folder / "model.json")["scores"] if train.columns else []
    objective = float(result.trace["objective"][-1])
    error, guess, classes = (tested[name] for name in FIGURES)
    rounds, local_updates = result.summary["round"], result.settings.local_updates
    stated = {k: privacy.to_dict()[k] for k in ("epsilon", "delta", "certified", "statement")}
    if stated["epsilon"] is None:
        stated["delta"] = None
    if options.json:
        kept = {**hidden, "test_error": error, "test_error_of_a_guess": guess}
        (stated if privacy.once else kept)["train_objective"] = objective
        document = {
            **{"classes": classes, **stated, "rounds": rounds, "local_updates": local_updates},
            **{**chosen, "seed": options.seed, "agents": len(result.names)},
            "records": len(train),
            "not_covered": kept,
            "folder": str(folder),
        }
        if scores:
            document["columns"] = list(train.columns)
            document["scores"] = {_name(s): {k: s[k] for k in s if k != "class"} for s in scores}
        print(json.dumps(document))
        return
    spent, doubt = [("noise", "none")], "" if privacy.certified else " (not certified)"
    if stated["epsilon"] is not None:
        spent = [
            (f"total epsilon{doubt}", rounded_up(stated["epsilon"], 4)),
            ("total delta", digits(stated["delta"])),
            ("noise from", result.noise_source),
        ]
    errors = []
    if error is not None:
        which = "test error" if classes else "mean absolute test error"
        one, other = (f"{100 * x:.2f} %" if classes else f"{x:.4g}" for x in (error, guess))
        ignoring = "the largest class" if classes else "the middle of the range"
        errors = [
            (f"{which} ({len(test)} records; not covered)", one),
            (f"the same if all were {ignoring} (not covered)", other),
        ]
    secret = "training objective (not covered: keep secret)"
    learnt = f"{len(classes)} classes" if classes else "a number to predict"
    print_table(
        f"{len(result.names)} agents, {len(train)} records, {learnt}",
        ("", ""),
        [
            *errors,
            ("objective of what was released" if privacy.once else secret, f"{objective:.4g}"),
            *((name.replace("_", " "), _shown_choice(value)) for name, value in chosen.items()),
            ("rounds, local updates", f"{rounds}, {local_updates}"),
            *spent,
        ],
    )
    _print_coefficients(scores)
    print(in_words(hidden))
    if doubts := look(hidden, error, guess):
        print(f"Look: {'; '.join(doubts)}. (Not covered: keep secret.)")
    print(privacy.words)
    print_files(folder)


FIGURES = ("test_error", "test_error_of_a_guess", "classes")


def tested_figures(model: Any, train: Any, test: Any) -> dict[str, Any]:
    """Errors on the records that were kept for the test: the share of wrong classes, or the mean
    distance of numbers; and those of an answer that ignores the columns.

    Guarantee: none: they have no noise in them. They are for the owner's eyes, as is the file they
    are written to.
    """
    import numpy as np

    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    error = guess = None
    if test is not None and classes is not None:
        names, counts = np.unique(train.targets, return_counts=True)
        error = float(1 - model.score(test.features, test.targets))
        guess = float(np.mean(test.targets != names[counts.argmax()]))
    elif test is not None:
        low, high = model.target_range
        error = float(np.abs(model.predict(test.features) - test.targets).mean())
        guess = float(np.abs(test.targets - (low + high) / 2).mean())
    return dict(zip(FIGURES, (error, guess, classes), strict=True))


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
    n, longest = hidden["records"], hidden["longest_row"]
    said = [f"{hidden['scaled_down']} of {n} rows scaled down to {longest:.4g}"]
    if "targets_clipped" in hidden:
        said.append(f"{hidden['targets_clipped']} targets clipped to their range")
    said += changes_in_words({kind: hidden[kind] for kind in CHANGES if kind in hidden})
    return f"What was changed (not covered: keep secret): {'; '.join(said)}."


def changes_in_words(changes: dict[str, dict[str, int]]) -> list[str]:
    """How many values of which column were changed, by kind."""
    return [
        f"{CHANGES[kind]}: {', '.join(f'{shown(c)} {n}' for c, n in by_column.items()) or 'none'}"
        for kind, by_column in changes.items()
    ]


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


def _name(score: dict[str, Any]) -> str:
    """What a score of model.json is of."""
    return str(score.get("class", "prediction"))


def _print_coefficients(scores: list[dict[str, Any]]) -> None:
    """Those of model.json by column, the largest first."""
    if len(scores) > SCORES:
        print("coefficients by class and column: model.json")
    if not 0 < len(scores) <= SCORES:
        return
    by_column = {c: [s["coefficients"][c] for s in scores] for c in scores[0]["coefficients"]}
    order = sorted(by_column, key=lambda c: -max(map(abs, by_column[c])))
    rows = [(shown(c), *(f"{x:.4g}" for x in by_column[c])) for c in order[:COEFFICIENT_COLUMNS]]
    if left := len(order) - len(rows):
        rows.append((f"({left} more in model.json)", *("" for _ in scores)))
    rows.append(("(intercept)", *(f"{score['intercept']:.4g}" for score in scores)))
    names = (shown(_name(score)) for score in scores)
    print_table("coefficients, largest first", ("column", *names), rows)
