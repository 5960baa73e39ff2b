"""``tacit moments``, ``tacit regress``, ``tacit counts``: one release, answers with intervals."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.cli.console import tell
from tacit.cli.learn import add_rule_options, changes_in_words, rules_of
from tacit.cli.options import Add, add_release_options, caution, refuse, run_arguments
from tacit.errors import InvalidInput

EXPECTED = ("columns", "records", "agents")  # what --expect takes in place of a table
BUDGET = "total_epsilon", "total_delta"
TARGET = ("target", "target_range", "classes")  # of rules; here a column like the others
EXAMPLES = """tacit moments north.csv south.csv --range age=18:90 --range cost=0:1200 \\
    --categories sex=f,m --total-epsilon 1 --out table
  tacit regress table --target cost --on age,sex=f
  tacit moments --expect --columns 12 --records 5000 --agents 5 --total-epsilon 1"""


def add_moments(add: Add) -> None:
    summary = "Release the moments of a table once; all regressions of it are then free."
    moments = _add(add, "moments", _moments, summary, EXAMPLES)
    widths = "widths of intervals to expect for --columns NUMBER; nothing is released"
    moments.add_argument("--expect", action="store_true", help=widths)
    for name in EXPECTED[1:]:
        moments.add_argument(f"--{name}", type=int, help=f"of --expect: how many {name}")
    least = "of --expect: least eigenvalue of the columns' correlations; default: 0.1"
    moments.add_argument("--least-eigenvalue", type=float, default=0.1, metavar="SHARE", help=least)


def add_counts(add: Add) -> None:
    summary = "Release how many records there are in every combination of categories."
    example = "tacit counts north.csv south.csv --by sex --categories sex=f,m --total-epsilon 1"
    counts = _add(add, "counts", _counts, summary, example)
    counts.add_argument("--by", metavar="A,B,...", help="columns to count by, each with categories")


def add_regress(add: Add) -> None:
    regress = add(
        "regress",
        _regress,
        "A regression of a table that tacit moments released, with intervals; it costs nothing.",
        "tacit regress table --target cost --on age,sex=f,bmi",
    )
    regress.add_argument("folder", help="folder of the table")
    regress.add_argument("--target", required=True, help="a column of the table")
    regress.add_argument("--on", metavar="A,B,...", required=True, help="columns to predict it by")
    regress.add_argument("--l2", type=float, default=0.0, help="of a ridge; default: 0")
    regress.add_argument("--level", type=float, default=0.95, help="of intervals; default: 0.95")


def _add(add: Add, name: str, command: Any, summary: str, example: str) -> Any:
    """A command that releases something of a table, with the options that all have."""
    parser = add(name, command, summary, example)
    parser.set_defaults(**dict.fromkeys(TARGET))
    kinds = "CSV or Parquet file, or several: one for each agent"
    parser.add_argument("tables", metavar="DATA", nargs="*", help=kinds)
    add_rule_options(parser.add_argument)
    parser.add_argument("--total-epsilon", type=float, help="of the release, and all that follows")
    parser.add_argument("--total-delta", type=float, default=1e-5, help="default: 1e-5")
    add_release_options(parser.add_argument)
    parser.add_argument("--out", help=f"folder of the release (default: {name})")
    return parser


def _moments(options: argparse.Namespace) -> int:
    if options.total_epsilon is None:
        raise InvalidInput("Expected --total-epsilon. Nothing was released.")
    if options.expect:
        return _expect(options)
    refuse(options, (*EXPECTED[1:], "least_eigenvalue"), "beside --expect only")
    from tacit.learn import PrivateMoments

    rules = rules_of(options).with_target_as_a_column()
    return _released(options, PrivateMoments(ranges=rules.ranges, **_how(options, rules)), rules)


def _counts(options: argparse.Namespace) -> int:
    if options.total_epsilon is None or options.by is None:
        raise InvalidInput("Expected --by and --total-epsilon. Nothing was released.")
    from tacit.learn import PrivateCounts

    rules = rules_of(options).with_target_as_a_column()
    names = tuple(options.by.split(","))
    if bare := [name for name in names if name not in rules.categories]:
        raise InvalidInput(
            f"Expected --categories {bare[0]}=A,B,..., the public list of what to count by. "
            "Nothing was read."
        )
    own = {
        key: {name: of[name] for name in names if name in of}
        for key, of in (("categories", rules.categories), ("fill", rules.fill))
    }
    rules = replace(rules, features=names, ranges={}, **own)
    return _released(options, PrivateCounts(**_how(options, rules)), rules)


def _how(options: argparse.Namespace, rules: Any) -> dict[str, Any]:
    found = run_arguments(options)
    public = {"categories": rules.categories, "fill": rules.fill}
    public["random_state"] = found.pop("seed", None)
    return {**public, **found, **{name: getattr(options, name) for name in BUDGET}}


def _released(options: argparse.Namespace, model: Any, rules: Any) -> int:
    from tacit.learn import PublicColumns
    from tacit.report.released import what_privacy_costs

    if not options.tables:
        raise InvalidInput("Expected DATA, a CSV or Parquet file. Nothing was read.")
    records = rules.records(options.tables, agent_column=options.agent_column)
    folder = Path(options.out or options.parser.prog.split()[-1])
    if os.path.lexists(folder / model.FILE):
        raise InvalidInput(
            f"Expected a new --out, got {folder}, which holds a release. Nothing was released."
        )
    caution(options.total_epsilon)
    folder.mkdir(parents=True, exist_ok=True)  # before anything is paid
    try:
        model.fit(dict(records.columns), agents=records.groups)
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise
    model.save(folder)
    rows, privacy = model.rows(), model.privacy_.to_dict()
    if model.FILE == "moments.json":
        rows = [{"mean": a.to_dict(), "deviation": b.to_dict()} for a, b in rows]
    stated = {k: privacy[k] for k in ("epsilon", "delta", "certified", "statement")}
    document = {"records": model.records_, "agents": list(model.agents_), "rows": rows}
    mapping = PublicColumns(rules.ranges, rules.categories, rules.fill).fit(records.columns)
    if found := {kind: by for kind, by in mapping.changes(records.columns).items() if by}:
        words = "; ".join(changes_in_words(found))
        print(f"tacit: what was changed (not covered: keep secret): {words}.", file=sys.stderr)
    said = model.summary(), what_privacy_costs(model), str(model.privacy_), f"files: {folder}"
    return tell(options.json, {**document, **stated, "folder": str(folder)}, *said)


def _expect(options: argparse.Namespace) -> int:
    """Planned from public numbers: nothing is read."""
    from tacit.learn.released_table import expected

    if options.tables:
        raise InvalidInput("Expected no DATA beside --expect, which reads nothing.")
    sizes = {name: getattr(options, name) for name in EXPECTED}
    if missing := [name for name, value in sizes.items() if value is None]:
        raise InvalidInput(f"Expected --{missing[0]} beside --expect.")
    if not options.columns.isdecimal():
        raise InvalidInput(
            "Expected --columns NUMBER beside --expect, where every column counts as one, got "
            f"{options.columns!r}."
        )
    sizes["columns"] = int(options.columns)
    sizes |= {name: getattr(options, name) for name in (*BUDGET, "aggregation", "colluding")}
    found = expected(**sizes, least_eigenvalue=options.least_eigenvalue)
    best = expected(**sizes, least_eigenvalue=1)

    def wide(widths: dict[str, float]) -> str:
        if widths["clear"] < 1:
            return "no interval, as the records are too few for the noise"
        return f"± {widths['coefficient']:.2g}"

    lines = (
        "95 % intervals to expect, for columns whose deviation is a fifth of their range:",
        f"  a mean: ± {100 * found['mean']:.2g} % of the column's range",
        "  a coefficient, with all other columns beside it, in deviations of the target for one of "
        "the predictor:",
        f"    of independent columns: {wide(best)}",
        f"    where correlations have a least eigenvalue of {options.least_eigenvalue:g}: "
        f"{wide(found)}",
    )
    return tell(options.json, found, *lines)


def _regress(options: argparse.Namespace) -> int:
    from tacit.learn import PrivateMoments

    table = PrivateMoments.load(options.folder)
    fit = table.regress(options.target, options.on.split(","), l2=options.l2)
    return tell(options.json, fit.to_dict(options.level), fit.summary(options.level))
