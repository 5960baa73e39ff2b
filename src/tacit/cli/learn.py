"""The commands ``tacit learn``, ``tacit learn attack`` and ``tacit learn download``."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.cli.console import print_files, print_table, progress_bar, spent_rows, tell
from tacit.cli.options import Add, add_run_options, make_absolute, on_device, refuse
from tacit.cli.ranks import build
from tacit.cli.report import draw
from tacit.cli.run_folder import BEFORE, MEAN, RunFolder, refuse_used, run_folder
from tacit.errors import EPSILONS, RUNS, InvalidInput, count, positive
from tacit.files import read_json, save_figure, write_atomically

NAMED = ("digits", "mnist", "femnist")
IMAGE_MAPS = ("orientations", "scattering")
# options of a table only
TABLE = (
    *("target", "target_range", "agent_column", "classes", "range", "categories", "fill", "log"),
    *("drop", "id", "columns", "test_share"),
)
MODELS = ("logistic", "svm", "huber", "ridge", "quantile")  # of ``tacit.learn.MODELS``
EXAMPLES = """tacit learn digits --agents 10 --total-epsilon 2 --total-delta 1e-5
  tacit learn mnist --data DIR --agents 10 --total-epsilon 1 --total-delta 1e-5
  tacit learn prices.csv --target price --target-range 0:500 --range '*=0:10' --total-epsilon 1
  tacit learn churn.csv --target churn --classes no,yes --agent-column hospital \\
    --range age=18:90 --range fee=0:10 --total-epsilon 1 --total-delta 1e-5
  tacit learn north.csv south.csv west.csv --target churn --range '*=0:10' --total-epsilon 1
  tacit learn --resume churn-model

commands of their own:
  tacit learn attack --help      what an eavesdropper recovers
  tacit learn download --help    get MNIST"""


def add_learn(add: Add) -> None:
    learn = add("learn", _learn, "Fit a private model over several agents.", EXAMPLES)
    option = learn.add_argument
    kinds = f"{', '.join(NAMED)}, or a CSV or Parquet file, or several: one for each agent"
    option("data_set", metavar="DATA", nargs="?", help=kinds)
    option("more", metavar="DATA", nargs="*", default=[], help="other agents' files")
    option("--data", help="folder with the files of mnist or femnist")
    option("--target", help="column with the labels of a table")
    number = "public range of a target that is a number: a regression"
    minus = "--target-range=-5:5 if it begins with a minus"
    option("--target-range", metavar="LOW:HIGH", help=f"{number} ({minus})")
    labels = "public list of a table's labels; default: those there"
    option("--classes", metavar="A,B,...", help=labels)
    add_rule_options(option)
    published = "release the test's errors with noise, at this epsilon of the records kept for it"
    option("--test-epsilon", type=float, metavar="EPSILON", help=published)
    option("--test-share", type=float, default=0.2, help="of a table, or 0; default: 0.2")
    agents = "number of agents, for the splits without groups; default: 10"
    option("--agents", type=int, help=agents)
    split = "default: group for data with groups, else iid; dirichlet is not certified"
    option("--split", choices=("iid", "group", "dirichlet"), help=split)
    option("--alpha", type=float, default=0.5, help="of the Dirichlet split; default: 0.5")
    option("--total-epsilon", type=float, help="of the whole fit")
    delta = "of the whole fit, well below 1/records; default: 1e-5"
    option("--total-delta", type=float, default=1e-5, help=delta)
    option("--no-noise", action="store_true", help="not private")
    of_noise = ("gaussian", "laplace")
    option("--mechanism", choices=of_noise, default="gaussian", help="default: gaussian")
    option("--rounds", type=int, help="default: planned from public numbers")
    option("--local-updates", type=int, help="default: planned (1)")
    maps = "public map of each record; default: orientations for images, none for tables"
    option("--features", choices=("none", *IMAGE_MAPS, "fourier"), help=maps)
    model = "default: logistic, or huber where there is a --target-range"
    option("--model", choices=MODELS, help=model)
    option("--level", type=float, default=0.5, help="of --model quantile; default: 0.5")
    limit = "clip the per-record gradient of a logistic model, or none; default: planned"
    option("--clip", "--slope-limit", metavar="LENGTH", help=limit)
    share = "of the budget, for the mean that a classifier's rows are centred by, or none"
    option("--centring-share", metavar="SHARE", help=f"{share}; default: planned")
    longest = "public; longer rows are scaled down to this length"
    norms = "default: 1, for a regression on d columns sqrt(d/3)"
    option("--feature-norm", type=float, help=f"{longest}; {norms}")
    option("--bound", type=float, help="of every coefficient (a box)")
    option("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    add_run_options(learn, "the data's name + -model", "a twentieth of the rounds")


def add_rule_options(option: Any) -> None:
    """Whose records a table has, and the public rules of its columns."""
    many: Any = {"action": "append", "default": []}
    option("--agent-column", help="column that says whose record it is")
    ranged = (
        "public range of a table's column, mapped to [-1, 1] and clipped (auto:LOW:HIGH if wide"
    )
    ranged += ": where records lie in it is read privately)"
    others = "every column needs one, '*=LOW:HIGH' is for all others"
    option("--range", **many, metavar="COLUMN=LOW:HIGH", help=f"{ranged}; {others}")
    listed = "public list of a column's categories; each becomes a column of 0 and 1"
    absent = "a value that is not on it is 0 in all"
    option("--categories", **many, metavar="COLUMN=A,B,...", help=f"{listed}; {absent}")
    filled = "public value for what is missing in a column; '*=NUMBER' is for all of numbers"
    option("--fill", **many, metavar="COLUMN=VALUE", help=filled)
    logged = "take the logarithm ln(1 + x - LOW) of a column of numbers, such as money"
    option("--log", **many, metavar="COLUMN", help=logged)
    option("--drop", **many, metavar="COLUMN", help="a table's column not to use")
    option("--id", metavar="COLUMN", help="the same, for names of records")
    rules = "these rules of a table's columns in a file (tacit columns drafts one)"
    option("--columns", metavar="FILE", help=f"{rules}; options come before it")


def _learn(options: argparse.Namespace) -> int:
    if options.data_set in ("attack", "download"):
        word = options.data_set
        raise InvalidInput(
            f"Expected {word} right after learn (tacit learn {word} --help), or ./{word} for a "
            "file of that name."
        )
    if options.more and options.out is None and options.resume is None:
        first = Path(options.data_set).stem
        options.out = f"{first}-and-{len(options.more)}-more-model"
    with run_folder("learn", options, "-model") as (folder, options):
        model, data, tested = _fit(options, folder)
    draw(folder.path)
    _print_fit(options, folder.path, model, data, tested)
    return 0


def _fit(options: argparse.Namespace, folder: RunFolder) -> tuple[Any, Data, dict[str, Any]]:
    """The model, written to the folder, its data, and what the test says."""
    from sklearn.pipeline import make_pipeline

    from tacit.learn import save_model
    from tacit.learn.estimators import READ, adopt

    if (options.total_epsilon is None) == (not options.no_noise):
        raise InvalidInput("Expected one of --total-epsilon and --no-noise. Nothing was fit.")
    label = str(rules_of(options).target) if options.more else Path(options.data_set).stem
    with on_device(options.device):
        data = featured(options, load(options, options.data_set))
        files = () if options.data_set in NAMED else ("data_set", "more", "columns")
        records = data.train.features, data.train.targets, _agents(options, data.train)
        refuse_no_test(options, data)
        make_absolute(options, files, folders=("data", "ledgers"))
        model = model_of(options, data.train)
        with one_line():
            problem, settings = prepared(model, records, options, folder, label)
        if options.crew is not None:
            read = {name: getattr(model, name) for name in READ}
            read |= {k: v.tolist() for k, v in read.items() if hasattr(v, "tolist")}
            build(options.crew, "learn", argparse.Namespace(**vars(options), read=read))
        if options.evaluate_every is None:
            options.evaluate_every = max(1, settings.rounds // 20)
        found = folder.run(label, problem, settings, options)
    if options.split == "dirichlet":
        why = "records were dealt to agents by their labels: one label moves others' records."
        found = replace(found, privacy=replace(found.privacy, uncertified=why))
    adopt(model, problem, found)
    save_model(make_pipeline(*data.steps, model) if data.steps else model, folder.path)
    model.result_.save(folder.path)
    if hasattr(model, "bars") and model.privacy_.certified:
        bars = model.bars(data.before)
        if bars is not None:
            replace(bars, target=str(options.target)).save(folder.path)
    tested = tested_figures(model, data)
    write_atomically(folder.path / "figures.json", json.dumps(tested, indent=1).encode())
    evaluate(options, folder.path, model, data)
    return model, data, tested


def evaluate(options: argparse.Namespace, folder: Path, model: Any, data: Data) -> Any:
    """What --test-epsilon releases of the records kept for the test, or has released."""
    if options.test_epsilon is None:
        return None
    from tacit.learn import PrivateEvaluation

    if (folder / PrivateEvaluation.FILE).exists():
        return PrivateEvaluation.load(folder)
    how = {name: getattr(options, name) for name in ("noise", "ledgers")}
    budget = options.test_epsilon, options.total_delta
    found = PrivateEvaluation(*budget, model=model, random_state=options.seed, **how)
    found.fit(data.test.features, data.test.targets, data.test.groups)
    found.save(folder)
    return found


def refuse_no_test(options: argparse.Namespace, data: Data) -> None:
    """Before anything is paid."""
    if options.test_epsilon is None:
        return
    positive("test_epsilon", options.test_epsilon, EPSILONS)
    if data.test is None:
        raise InvalidInput("Expected --test-share above 0 with --test-epsilon. Nothing was fit.")
    if options.ledgers is not None and data.test.groups is None:
        raise InvalidInput(
            "Expected --agent-column or a file of each agent with --test-epsilon and --ledgers, as "
            "each pays for its own records. Nothing was fit."
        )


def part(options: argparse.Namespace, rank: int, ranks: int) -> Any:
    """A rank's own agents. The data are one set: every rank reads it, and keeps its agents'."""
    from tacit.learn.estimators import rebuilt
    from tacit.transports.mpi import Part, share_of

    train = featured(options, load(options, options.data_set)).train
    records = train.features, train.targets, _agents(options, train)
    with one_line():
        problem = rebuilt(model_of(options, train), *records, options.read)
    mine = share_of(len(problem.agents), rank, ranks)
    named = list(zip(problem.names, problem.agents, strict=True))
    return Part(mine.start, named[mine.start : mine.stop])


def _agents(options: argparse.Namespace, train: Any) -> Any:
    """The agent of every record."""
    import numpy as np

    from tacit.learn import split

    grouped = train.groups is not None and options.agents is None
    how = options.split or ("group" if grouped else "iid")
    if (how != "group" or options.agents is not None) and (options.more or options.agent_column):
        whose = "several files" if options.more else "--agent-column"
        raise InvalidInput(
            f"Expected {whose} without --agents and --split, as each record has its agent there. "
            "Nothing was fit."
        )
    if how != "dirichlet":
        refuse(options, ("alpha",), "for --split dirichlet only")
    refuse(options, ("ledgers",) * (how == "dirichlet"), "without a split that is not certified")
    if how == "group":
        if train.groups is None or options.agents is not None:
            raise InvalidInput(
                "Expected --agent-column, or data with groups, and no --agents, for --split group."
            )
        return train.groups
    owner = np.zeros(len(train), int)
    agents = 10 if options.agents is None else options.agents
    for p, rows in enumerate(split(train, agents, how, alpha=options.alpha)):
        owner[rows] = p
    return owner


def model_of(options: argparse.Namespace, train: Any) -> Any:
    """The estimator: for a number with a public range a regressor, else a classifier."""
    import tacit.learn
    from tacit.learn.estimators import RELEASED

    rules = rules_of(options)
    target = rules.target_range
    chosen = options.model or ("logistic" if target is None else "huber")
    name, number = tacit.learn.MODELS[chosen]
    if number != (target is not None):
        raise InvalidInput(
            f"Expected --target-range with --model huber, ridge or quantile, and without it with "
            f"logistic or svm, got --model {chosen}. Nothing was fit."
        )
    if chosen != "quantile":
        refuse(options, ("level",), "for --model quantile only")
    if chosen != "logistic":
        refuse(options, ("clip",), "for --model logistic only")
    same = "total_epsilon", "total_delta", "mechanism", "rounds", "local_updates", "feature_norm"
    given = *same, *RELEASED
    public: dict[str, Any] = {name: getattr(options, name) for name in given}
    public["constraint"] = None if options.bound is None else tacit.learn.Box(options.bound)
    if rules.auto:
        if options.features not in (None, "none"):
            raise InvalidInput(
                "Expected ranges LOW:HIGH with --features, got auto. Nothing was fit."
            )
        public["ranges"] = rules.read(train.columns)
    if number:
        public["narrow_target"] = rules.target in rules.auto
        refuse(options, ("centring_share",), "for classifiers only")
        level = {"level": options.level} if chosen == "quantile" else {}
        return getattr(tacit.learn, name)(target_range=target, **level, **public)
    classes = None if train.columns else list(train.names)  # a table's are read off it
    classes = classes if rules.classes is None else list(rules.classes)
    public["centring_share"] = _planned(options.centring_share, "--centring-share")
    if chosen == "logistic":
        public["clip"] = _planned(options.clip, "--clip")
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
    model: Any, records: Any, options: argparse.Namespace, folder: RunFolder, label: str
) -> tuple[Any, Any]:
    """What the fit solves. A mean is released in a folder that was made, and kept there: a run that
    is continued goes on with what was released, of the same data."""
    from tacit.learn.estimators import prepare

    centred = getattr(model, "centring_share", None) is not None
    if not centred and not model.ranges and not model.narrow_target:
        return prepare(model, *records)
    kept = folder.path / (MEAN if centred else BEFORE[-1])
    noisy = options.total_epsilon is not None
    free = options.ledgers is not None and options.aggregation is None  # no ledger has a sum
    if noisy and folder.has_begun and not (free or kept.is_file()):
        raise InvalidInput(
            f"Expected {kept.name} of the run in {folder.path}, found none: another mean or range "
            "of the same data would be a second release. Nothing was read."
        )
    folder.start(label, options)
    had = _released(folder)
    try:
        return prepare(model, *records, seed=options.seed, folder=folder.path)
    finally:
        if _released(folder) and not had:
            folder.has_paid()


def _released(folder: RunFolder) -> bool:
    return any((folder.path / name).exists() for name in BEFORE)


# --- data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Records to learn from and to test on, and how a table or images became rows.

    Guarantee: none for ``changes``, exact counts of what the maps changed, by column: they are not
    covered, for the owner's eyes.
    """

    train: Any
    test: Any = None
    steps: tuple[Any, ...] = ()  # public maps
    changes: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def before(self) -> Any:
        """The map of columns that made the rows, where no other map came after it."""
        return next((s for s in self.steps[-1:] if hasattr(s, "slopes_")), None)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What scikit-learn says of bad data, as one of our errors."""
    try:
        yield
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"{str(error).splitlines()[0]} Nothing was fit.") from None


def load(options: argparse.Namespace, name: str) -> Data:
    """What DATA and its options name."""
    from tacit.learn import load_digits, load_leaf, load_mnist

    if name not in ("mnist", "femnist"):
        refuse(options, ("data",), "for mnist and femnist only")
    elif options.data is None:
        raise InvalidInput(f"Expected --data, the folder with the files of {name}.")
    if name not in NAMED:
        return _tables(options, [name, *options.more])
    refuse(options, TABLE, "for a table only")
    if getattr(options, "more", []):
        raise InvalidInput(f"Expected {name} alone, got {options.more[0]!r} beside it.")
    if name == "femnist":
        parts = [load_leaf(Path(options.data) / part) for part in ("train", "test")]
    elif name == "mnist":
        parts = [load_mnist(options.data, part) for part in ("train", "test")]
    else:
        parts = [load_digits(), load_digits("test")]
    return Data(parts[0], parts[1])


def featured(options: argparse.Namespace, data: Data) -> Data:
    """The same after ``--features``: a public map of each record by itself."""
    from tacit.learn import Orientations, RandomFourier, Scattering

    images = options.data_set in NAMED
    name = options.features or ("orientations" if images else "none")
    if name == "none":
        return data
    if name in IMAGE_MAPS and not images:
        raise InvalidInput(
            f"Expected --features {name} for images only, got a table. Nothing was fit."
        )
    made = {"orientations": Orientations, "scattering": Scattering, "fourier": RandomFourier}[name]
    step = made()

    def mapped(part: Any) -> Any:
        features = step.fit_transform(part.features)
        columns = tuple(step.get_feature_names_out()) if part.columns else ()
        return replace(part, features=features, columns=columns)

    with one_line():
        test = None if data.test is None else mapped(data.test)
        return replace(data, train=mapped(data.train), test=test, steps=(*data.steps, step))


def _tables(options: argparse.Namespace, paths: list[str]) -> Data:
    """The records of one table, or of several, each the one of an agent, mapped and parted."""
    import numpy as np

    from tacit.learn import PublicColumns
    from tacit.learn.data import dataset

    for path in paths:
        if not Path(path).is_file():
            kinds = "a CSV or Parquet file"
            kinds = kinds if options.more else f"{', '.join(NAMED)}, or {kinds}"
            raise InvalidInput(f"Expected {kinds}, got {path!r}: there is no such file.")
    rules = rules_of(options)
    if rules.target is None:
        raise InvalidInput("Expected --target, the column with the labels of the table.")
    if not 0 <= options.test_share < 1:
        raise InvalidInput(f"Expected 0 <= test-share < 1, got {options.test_share}.")
    records = rules.records(paths, agent_column=options.agent_column)
    own = rules.ranges, rules.categories, rules.fill, rules.log or None
    mapping = PublicColumns(*own).fit(records.columns)
    order = np.random.default_rng(0).permutation(len(records))
    cut = max(1, round(options.test_share * len(records))) if options.test_share else 0
    if cut == len(records):
        raise InvalidInput(
            f"Expected records beside those for the test, got {len(records)} in all and "
            f"--test-share {options.test_share:g}; 0 keeps all for learning. Nothing was fit."
        )
    train, test = records.part(np.sort(order[cut:])), records.part(np.sort(order[:cut]))
    groups: list[Any] = [part.groups for part in (records, train)]
    if options.more and (gone := sorted({*groups[0]} - {*groups[1]})):
        raise InvalidInput(
            f"Expected records of {gone[0]!r} beside those for the test, got none; --test-share 0 "
            "keeps all for learning. Nothing was fit."
        )
    names = mapping.get_feature_names_out().tolist()
    parts = [dataset(part, mapping.transform(part.columns), names) for part in (train, test)]
    changes = mapping.changes(train.columns)
    return Data(parts[0], parts[1] if cut else None, (mapping,), changes)


def _interval(text: str) -> list[Any]:
    """LOW:HIGH, or auto:LOW:HIGH, as a file of rules has them."""
    wide, text = text.startswith("auto:"), text.removeprefix("auto:")
    low, high = (float(x) for x in text.split(":"))
    return [*["auto"] * wide, low, high]


def _by_column(
    texts: list[str],
    expected: str,
    read: Callable[[str, str], Any],
    parts: Callable[[str], tuple[str, str, str]] = lambda text: text.rpartition("="),
) -> dict[str, Any]:
    """COLUMN=VALUE as often as it was given."""
    found: dict[str, Any] = {}
    for text in texts:
        column, equals, value = parts(text)
        try:
            if not equals or column in found:
                raise ValueError
            found[column] = read(column, value)
        except (ValueError, csv.Error) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"Expected {expected}, once for each column, got {text!r}."
            ) from None
    return found


def rules_of(options: argparse.Namespace) -> Any:
    """The rules of a table's columns: those of --columns, and options before them."""
    from tacit.tables import Rules

    section = {} if options.columns is None else Rules.section(options.columns)
    Rules.of(section, str(options.columns))  # refuses what is wrong in the file

    def category(column: str, line: str) -> list[str]:
        """As a line of a CSV file: a category with a comma is put in quotes."""
        (cells,) = csv.reader([line], strict=True, skipinitialspace=True)
        return cells

    def value(column: str, text: str) -> Any:
        if column in categories:
            return text
        if not math.isfinite(number := float(text)):
            raise ValueError
        return number

    def parts(text: str) -> tuple[str, str, str]:  # a number has no =, the name of a column may
        return text.partition("=") if text.partition("=")[0] in categories else text.rpartition("=")

    if options.target is not None:
        section["target"] = options.target
    if options.target_range is not None:
        refuse(options, ("classes",), "without --target-range")
        section.pop("classes", None)
        try:
            section["target_range"] = _interval(options.target_range)
        except ValueError:
            raise InvalidInput(
                f"Expected --target-range LOW:HIGH, got {options.target_range!r}."
            ) from None
    elif options.classes is not None:
        section.pop("target_range", None)
        section["classes"] = [name.strip() for name in options.classes.split(",")]
    kind = "a range COLUMN=LOW:HIGH"
    ranges = _by_column(options.range, kind, lambda _, text: _interval(text))
    kind = "categories COLUMN=A,B,..."
    listed = _by_column(options.categories, kind, category, lambda text: text.partition("="))
    categories = {**section.get("categories", {}), **listed}
    kind = "a value to fill in COLUMN=VALUE, a number or one of the column's --categories"
    fill = _by_column(options.fill, kind, value, parts)
    drop = [*options.drop, *filter(None, [options.id])]
    section |= {
        "ranges": {**section.get("ranges", {}), **ranges},
        "categories": categories,
        "fill": {**section.get("fill", {}), **fill},
        "drop": [*(name for name in section.get("drop", ()) if name not in drop), *drop],
        "log": [*section.get("log", ()), *options.log],
    }
    return Rules.of(section, options.columns or "the options")


# --- what is printed ------------------------------------------------------------------------------

COEFFICIENT_COLUMNS, SCORES = 20, 6  # of a model whose summary is shown
CHANGES = {  # what public rules do to a value, by ``tables.CHANGES``
    "clipped": "values clipped to their range",
    "unknown": "values of no known category",
    "filled": "missing values filled in",
}


def tested_figures(model: Any, data: Data) -> dict[str, Any]:
    """Errors on the records that were kept for the test: the share of wrong classes, or the mean
    distance of numbers; those of an answer that ignores the columns, and of what a user would fit
    without privacy.

    Guarantee: none: they have no noise in them. They are for the owner's eyes, as is the file they
    are written to.
    """
    import numpy as np

    test, targets = data.test, data.train.targets
    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    keys = "test_error", "test_error_of_a_guess", "classes", "what_privacy_costs"
    if test is None:
        return dict(zip(keys, (None, None, classes, None), strict=True))

    def error(found: Any) -> float:
        if classes is None:
            return float(np.abs(np.clip(found, *model._range) - test.targets).mean())
        return float(np.mean(found != test.targets))

    names, counts = np.unique(targets, return_counts=True)
    guess = np.median(targets) if classes is None else names[counts.argmax()]
    own, price = error(model.predict(test.features)), None
    if getattr(model, "total_epsilon", None) is not None:
        with contextlib.suppress(ValueError):  # such as of one class only
            other = without_privacy(model, data)
            price = {
                "private": own,
                "what": "mean absolute error on test records"
                if classes is None
                else "error on test records",
                "unit": "" if classes is None else "share",
                "without_privacy": error(other.predict(test.features)),
                "by": f"scikit-learn's {type(other).__name__} on the same columns",
            }
    return dict(zip(keys, (own, error(guess), classes, price), strict=True))


def without_privacy(model: Any, data: Data) -> Any:
    """All agents' mapped columns in one place, fitted by scikit-learn, as it is but for 100 steps
    at most, and quantiles, which are linear programs there, on at most 10,000 records."""
    from sklearn import linear_model, svm

    name = type(model).__name__.removeprefix("Private")
    kind = getattr(linear_model, name, None) or getattr(svm, name)
    few: dict[str, Any] = {}
    if name in ("LogisticRegression", "LinearSVC", "HuberRegressor"):
        few = {"max_iter": 100}
    train, step = data.train, 1
    if name == "QuantileRegressor":
        few, step = {"quantile": model.level, "alpha": 0.0}, 1 + len(train) // 10_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 100 steps may not be all
        return kind(**few).fit(train.features[::step], train.targets[::step])


def not_covered(model: Any, data: Data) -> dict[str, Any]:
    """What public ranges, lists, values and the norm did to the records, counted.

    Guarantee: none: these are exact counts of private records, for the owner's eyes. No file of the
    run has them.
    """
    import numpy as np

    train = data.train
    centred = getattr(model, "mean_", None) is not None
    longest = model.longest_given if centred else model.longest_row
    with np.errstate(over="ignore"):
        rows = train.features
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    found = {
        "records": len(train),
        "longest_row": float(longest),
        "scaled_down": int(np.count_nonzero(lengths > longest * (1 + 1e-9))),
        **data.changes,
    }
    if hasattr(model, "target_range"):
        ends = model._range
        outside = (train.targets < ends[0]) | (train.targets > ends[1])
        found["targets_clipped"] = int(np.count_nonzero(outside))
    return found


def _print_fit(
    options: argparse.Namespace, folder: Path, model: Any, data: Data, tested: dict[str, Any]
) -> None:
    """How the budget was spent, what was learnt, and what only the owner may know of it."""
    from tacit.protocol.statement import OF_SUM

    result, privacy, train = model.result_, model.result_.privacy, data.train
    hidden = not_covered(model, data)
    scores = read_json(folder / "model.json")["scores"] if train.columns else []
    objective = float(result.trace["objective"][-1])
    error, guess, classes, price = tested.values()
    evaluation = evaluate(options, folder, model, data)
    said = "epsilon", "delta", "certified", "statement", *OF_SUM
    stated = {name: value for name, value in privacy.to_dict().items() if name in said}
    if stated["epsilon"] is None:
        stated["delta"] = None
    if options.json:
        kept = {**hidden, "test_error": error, "test_error_of_a_guess": guess}
        kept["what_privacy_costs"] = price
        (stated if privacy.once else kept)["train_objective"] = objective
        if evaluation is not None:
            stated["evaluation"] = evaluation.figures()
        document = {
            **{"classes": classes, **stated, "rounds": result.summary["round"]},
            **{"local_updates": result.settings.local_updates, **_chosen(model, data)},
            **{"seed": options.seed, "agents": len(result.names)},
            "records": len(train),
            "not_covered": kept,
            "folder": str(folder),
        }
        if scores:
            document["columns"] = list(train.columns)
            document["scores"] = {str(s.pop("class", "prediction")): s for s in scores}
        print(json.dumps(document))
        return
    from tacit.report.page import outcome

    facts = [(f"{word} (not covered)", value) for word, value in outcome(tested)]
    secret = "training objective (not covered: keep secret)"
    learnt = f"{len(classes)} classes" if classes else "a number to predict"
    print_table(
        f"{len(result.names)} agents, {len(train)} records, {learnt}",
        ("", ""),
        [
            *facts[:2],  # what privacy costs is in words, which would say how wide the table is
            ("objective of what was released" if privacy.once else secret, f"{objective:.4g}"),
            *spent_rows(result, stated["epsilon"], stated["delta"]),
        ],
    )
    if 0 < len(train.columns) <= COEFFICIENT_COLUMNS and len(scores) <= SCORES:
        print(model.summary(data.before))
    else:
        print(f"{'Coefficients by class and column: model.json. ' * bool(scores)}{result.plan}")
    longest = f"{hidden['longest_row']:.4g}"
    normal = ", as is normal" if 2 * hidden["scaled_down"] > len(train) else ""
    changed = [f"{hidden['scaled_down']} of {len(train)} rows scaled down to {longest}{normal}"]
    if "targets_clipped" in hidden:
        changed.append(f"{hidden['targets_clipped']} targets clipped to their range")
    changed += changes_in_words(data.changes)
    for word, value in facts[2:]:
        print(f"{word}: {value}.")
    print(f"What was changed (not covered: keep secret): {'; '.join(changed)}.")
    if doubts := look(hidden, error, guess, 0 if data.test is None else len(data.test)):
        print(f"Look: {'; '.join(doubts)}. (Not covered: keep secret.)")
    print(privacy)
    if evaluation is not None:
        print(f"Of the records kept for the test, {evaluation.summary()}\n{evaluation.privacy_}")
    print_files(folder)


def _chosen(model: Any, data: Data) -> dict[str, Any]:
    """What the budget is spent on, given or planned: public."""
    made = [type(step).__name__ for step in data.steps]
    found: dict[str, Any] = {
        "model": type(model).__name__,
        "features": next((n for n in made if n not in ("PublicRange", "PublicColumns")), None),
    }
    planned = [name for name in ("clip", "centring_share", "alpha") if hasattr(model, name)]
    return found | {name: getattr(model, f"{name}_") for name in planned}


def changes_in_words(changes: dict[str, dict[str, int]]) -> list[str]:
    """How many values of which column were changed, by kind."""
    return [
        f"{CHANGES[kind]}: {', '.join(f'{c} {n}' for c, n in by_column.items()) or 'none'}"
        for kind, by_column in changes.items()
    ]


def look(
    hidden: dict[str, Any], error: float | None, guess: float | None, tested: int
) -> list[str]:
    """What is likely a mistake: nothing was learnt, or a public rule that does not fit a column.

    Guarantee: none: read off exact counts and errors, for the owner's eyes.
    """
    found, n = [], hidden["records"]
    if error is not None and guess is not None:
        number = "targets_clipped" in hidden  # whose errors spread about as far as they are large
        variance = guess**2 if number else guess * (1 - guess)
        if error > guess + 2 * math.sqrt(variance / max(tested, 1)):  # not by chance
            found.append("the test error is larger than that of a guess")
    for name, many in hidden.get("clipped", {}).items():
        if many == n:
            found.append(f"every value of {name} is clipped (is its --range right?)")
    for name, many in hidden.get("unknown", {}).items():
        if 2 * many > n:
            found.append(
                f"{many} of {n} values of {name} are of no known category (are its --categories "
                "written as in the table?)"
            )
    return found


# --- commands of their own ------------------------------------------------------------------------


def add_attack(add: Add) -> None:
    attack = add(
        "learn attack",
        _attack,
        "What an eavesdropper recovers from an agent's messages, with and without privacy.",
        "tacit learn attack digits --records 4 --total-epsilons 100 10 1",
    )
    attack.add_argument("attacked", choices=("digits", "mnist"), help="the data")
    attack.add_argument("--data", help="folder with the files of mnist")
    attack.add_argument("--records", type=int, default=4, help="of each agent; default: 4")
    attack.add_argument("--agents", type=int, default=10, help="default: 10")
    tried = "budgets to try; default: 100 10 1"
    attack.add_argument("--total-epsilons", type=float, nargs="+", metavar="EPSILON", help=tried)
    attack.add_argument("--total-epsilon", type=float, help="one budget to try")
    attack.add_argument("--total-delta", type=float, default=1e-5, help="default: 1e-5")
    attack.add_argument("--seeds", type=int, default=3, help="runs of each; default: 3")
    attack.add_argument("--rounds", type=int, default=50, help="default: 50")
    attack.add_argument(
        "--mechanism",
        choices=("gaussian", "laplace"),
        default="gaussian",
        help="default: gaussian",
    )
    attack.add_argument("--feature-norm", type=float, default=1.0, help="public; default: 1")
    attack.add_argument("--device", choices=("cpu", "gpu"), help="default: a GPU if JAX sees one")
    attack.add_argument("--out", help="folder (default: the data's name + -attack)")


def _attack(options: argparse.Namespace) -> int:
    from tacit.lab.record_recovery import attack

    if not 1 <= options.records <= 8:
        raise InvalidInput(f"Expected 1 to 8 records of each agent, got {options.records}.")
    count("seeds", options.seeds, RUNS)
    budgets = options.total_epsilons or [100.0, 10.0, 1.0]
    if options.total_epsilon is not None:
        refuse(options, ("total_epsilons",), "without --total-epsilon")
        budgets = [options.total_epsilon]
    folder = Path(options.out or f"{options.attacked}-attack")
    refuse_used(folder)
    data = load(options, options.attacked)
    with on_device(options.device), progress_bar("runs") as bar:
        task = bar.add_task("attack", total=1 + options.seeds * len(budgets))
        found = attack(
            data.train,
            data.test,
            budgets,
            options.total_delta,
            records=options.records,
            agents=options.agents,
            rounds=options.rounds,
            seeds=options.seeds,
            feature_norm=options.feature_norm,
            mechanism=options.mechanism,
            progress=lambda: bar.advance(task),
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(folder / "attack.png", found.plot(), dpi=130)
    title = f"{options.attacked}: {len(found.labels)} images of agents with {options.records} each"
    return tell(
        options.json,
        {**found.to_dict(), "seeds": options.seeds, "folder": str(folder)},
        (title, ("", "error", "correlation", "labels found"), found.table()),
        *(f"{name}:\n{one.privacy}" for name, one in found.found.items()),
        "Every statement is about one run. Budgets of several runs on the same data add up.",
        f"files: {folder}",
    )


def add_download(add: Add) -> None:
    download = add(
        "learn download",
        _download,
        "Get MNIST's files; those that are there stay.",
        "tacit learn download mnist-data",
    )
    download.add_argument("folder", nargs="?", metavar="DIR", help="folder to put the files in")
    download.add_argument("--data", metavar="DIR", help="the same")


def _download(options: argparse.Namespace) -> int:
    from tacit.learn.data import download_mnist

    if (options.folder is None) == (options.data is None):
        raise InvalidInput("Expected DIR, the folder to put MNIST in, once.")
    with progress_bar("bytes") as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        folder = download_mnist(options.folder or options.data, progress=show)
    return tell(options.json, {"folder": str(folder)}, f"files: {folder}")
