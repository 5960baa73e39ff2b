"""Numbers at the edge in every numeric option, job key and constructor: one line, or an answer.

The options are found by looking into the parser, so that a new one is tried without being named
here; it needs a cheap command line in ``BASES`` if its command is new.
"""

import argparse
import signal
import time

import numpy as np
import pytest
from conftest import repeat

import tacit
from tacit.admm import settings
from tacit.cli.main import main, parser
from tacit.errors import CorruptFile
from tacit.privacy.accounting import calibrate, exact
from tacit.privacy.mechanisms import gaussian_epsilon
from tacit.studies.job import OBJECTIVES, load_job

REALS = (
    *("1e308", "5e-324", "-1", "0", "nan", "inf"),
    *repeat((), ("1e300", "1e-300", "-inf", "1e30")),
)
WHOLES = (
    *("-1", "0", str(10**18), "9" * 400, "1.5", "nan"),
    *repeat((), (str(10**9), "inf")),
)
SECONDS = 20  # of one command; most are refused at once

# Cheap runs. What a run needs is written by the fixture below.
BASES = {
    "account": "--epsilon 1 --delta 1e-5 --updates 10",
    "solve": "job.toml --ledgers ledgers --noise seeded",
    "power solve": "case9 --zones 2 --total-epsilon 1 --total-delta 1e-5 --rounds 1",
    "power attack": "case9 --zones 2 --rounds 1 --seeds 1 --total-epsilons 1",
    "ledger budget": "new.db --total-epsilon 1 --total-delta 1e-5",
    "learn": "t.csv --target y --agents 2 --total-epsilon 1 --rounds 2 --range *=-1:1",
    "learn attack": "digits --records 1 --agents 2 --rounds 1 --seeds 1 --total-epsilons 1",
    "reproduce": "case14 --case absent.m --rounds 1 --seeds 1 --workers 1",
    "reproduce mnist": "--data absent --rounds 1 --seeds 1",
    "federation run": "absent-kit",
    "moments": "t.csv --range *=-1:1 --agents 2 --total-epsilon 1",
    "counts": "t.csv --by y --categories y=0,1 --total-epsilon 1",
    "regress": "absent --target y --on a",
    "audit": "least-squares --trials 100 --rounds 1 --local-updates 1",
}
# options that exclude those of the base, or need another
OTHERS = {
    ("account", "total_epsilon"): "--total-delta 1e-5 --updates 10",
    ("account", "total_delta"): "--total-epsilon 1 --updates 10",
    ("account", "noise_multiplier"): "--delta 1e-5 --updates 10",
    ("power solve", "epsilon"): "case9 --zones 2 --delta 1e-5 --rounds 1",
    ("power solve", "delta"): "case9 --zones 2 --epsilon 1 --rounds 1",
    ("learn", "alpha"): BASES["learn"] + " --split dirichlet",
    ("learn attack", "total_epsilon"): "digits --records 1 --agents 2 --rounds 1 --seeds 1",
}
TEXTS = {  # numbers inside text
    ("power solve", "beta"): (
        "1e308",
        "-1",
        "0",
        "nan",
        "1e-300",
        "1e308% of bus",
        "0% of largest",
    ),
    ("power solve", "zones"): ("0", "1", str(10**18), "-1"),
    ("learn", "range"): ("*=-1e308:1e308", "*=nan:1", "*=0:0", "*=0:1e-300", "*=1:0", "*=0:inf"),
}


def numeric_options():
    def walk(parser, words):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, sub in action.choices.items():
                    yield from walk(sub, [*words, name])
            elif action.type is not None and action.option_strings:
                command = " ".join(words)
                base = OTHERS.get((command, action.dest), BASES[command])
                whole = action.type is not float
                yield command, base, action.option_strings[0], WHOLES if whole else REALS

    yield from walk(parser(), [])
    for (command, dest), values in TEXTS.items():
        yield command, BASES[command], f"--{dest}", values
    yield "reproduce", "mnist " + BASES["reproduce mnist"], "--rounds", WHOLES


def without(base, option):
    words = base.split()
    if option in words:
        at = words.index(option)
        del words[at : at + 2]
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges")
    rows = [f"{a / 10},{a / 20},{a % 2}" for a in range(-10, 10)]
    (folder / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (folder / "job.toml").write_text(JOB.format(**DEFAULTS))
    return folder


def in_time(seconds):
    def late(number, frame):
        raise AssertionError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)


def by_turns():
    """Budgets and bounds with all numbers, other options with every other one; else all."""
    for k, (command, base, option, values) in enumerate(numeric_options()):
        public = any(word in option for word in ("epsilon", "delta", "norm"))
        few = values if public else values[k % 2 :: 2]
        yield pytest.param(command, base, option, repeat(few, values), id=f"{command} {option}")


@pytest.mark.parametrize(("command", "base", "option", "values"), list(by_turns()))
def test_every_numeric_option(folder, monkeypatch, capsys, tmp_path, command, base, option, values):
    monkeypatch.chdir(folder)
    (folder / "ledgers").mkdir(exist_ok=True)
    for name in ("one", "0", "1", "zone 1", "zone 2"):  # agents of job, table and grid
        if not (folder / "ledgers" / f"{name}.db").exists():
            tacit.Ledger.create(folder / "ledgers" / f"{name}.db", 1e6, 1e-3)
    for k, value in enumerate(values):
        words = [*command.split(), *without(base, option), f"{option}={value}"]
        if command not in ("account", "ledger budget", "audit"):
            words += ["--out", str(tmp_path / str(k))]
        began = time.monotonic()
        in_time(SECONDS)
        try:
            status = main(words)
        except SystemExit as stop:  # argparse
            status = stop.code
        finally:
            signal.alarm(0)
        said = capsys.readouterr()
        print(f"{status} {time.monotonic() - began:.1f} s: {words}")
        errors = [line for line in said.err.splitlines() if line.startswith("tacit:")]
        assert status in ((0, 1, 2) if command == "reproduce" else (0, 2)), (words, said.err)
        assert len(errors) == (0 if status == 0 else 1), (words, said.err)
        assert "Traceback" not in said.err and len(said.err) < 2000
        assert "NaN" not in said.out and "Infinity" not in said.out, (words, said.out)


# --- jobs and constructors ----------------------------------------------------------------------

JOB = """
seed = {seed}
evaluate_every = {evaluate_every}
[objective]
kind = "least-squares"
feature_norm = {feature_norm}
target_bound = {target_bound}
normaliser = {normaliser}
record_bound = {record_bound}
ridge = {ridge}
[set]
kind = "box"
lower = {lower}
upper = {upper}
size = {size}
[privacy]
total_epsilon = {total_epsilon}
total_delta = {total_delta}
[algorithm]
rounds = {rounds}
local_updates = {local_updates}
penalty = {{ kind = "constant", value = {penalty} }}
step_size = {{ kind = "smooth", smoothness = {smoothness}, growth = {growth} }}
[[agents]]
name = "one"
data = "t.csv"
target = "y"
"""
DEFAULTS = dict.fromkeys(("seed", "evaluate_every", "local_updates"), 1)
DEFAULTS |= {"feature_norm": 2.0, "target_bound": 1.0, "normaliser": 20.0, "record_bound": 20.0}
DEFAULTS |= {"ridge": 0.1, "lower": -1.0, "upper": 1.0, "size": 2, "rounds": 2, "penalty": 1.0}
DEFAULTS |= {"total_epsilon": 1.0, "total_delta": 1e-5, "smoothness": 1.0, "growth": 0.1}


def numbers():
    return (*(float(v) for v in REALS), 10**9, 10**18, 2**70, -1, 0, True)


def toml(value):
    return str(value).lower() if isinstance(value, bool) else repr(value)


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_number_of_a_job(folder, tmp_path, key):
    (tmp_path / "t.csv").write_text((folder / "t.csv").read_text())
    answers = []
    for value in numbers():
        (tmp_path / "j.toml").write_text(JOB.format(**{**DEFAULTS, key: toml(value)}))
        in_time(SECONDS)
        try:
            job = load_job(tmp_path / "j.toml")
            if job.settings.settings.updates > 100:
                continue
            result = tacit.solve(job.problem, job.settings, seed=job.seed)
        except (tacit.InvalidInput, CorruptFile) as error:  # an integer that TOML has not
            assert len(str(error)) < 500
            continue
        finally:
            signal.alarm(0)
        answers.append(value)
        assert np.isfinite(result.solution).all() and np.isfinite(result.privacy.epsilon), value
        assert result.trace["violation"].max() <= 1e-9 * max(1, abs(value)), value
    print(key, "answers for", answers)


RECORDS = {"features": np.full((12, 4), 0.3), "feature_norm": 1.0, "normaliser": 100.0}
RECORDS |= {"record_bound": 12.0, "ridge": 0.0, "feature_norm_1": 2.0}
TARGETS = {**RECORDS, "targets": np.arange(12) % 2, "target_bound": 1.0}
LABELS = {**RECORDS, "labels": np.arange(12) % 2}
BETWEEN = {"normal": np.ones(2), "offset": 0.5, "lower": -1.0, "upper": 1.0}
CONSTRUCTORS = (  # of what a job can name, with arguments that are right
    (tacit.LeastSquares, TARGETS),
    (tacit.Huber, {**TARGETS, "threshold": 1.0}),
    (tacit.Quantile, {k: v for k, v in TARGETS.items() if k != "target_bound"} | {"level": 0.5}),
    (tacit.LogisticRegression, {**LABELS, "clip": 1.0}),
    (tacit.Hinge, LABELS),
    (tacit.SoftmaxRegression, {**LABELS, "classes": 3, "clip": 1.0}),
    (OBJECTIVES["residual"], {"matrix": np.eye(2), "data": np.zeros(2), "beta": 1.0, "moved": 1}),
    (tacit.Box, {"lower": -1.0, "upper": 1.0, "size": 3}),
    (tacit.NonNegative, {"size": 3, "upper": 1.0}),
    (tacit.Ball, {"center": 0.0, "radius": 1.0, "size": 3}),
    (tacit.L1Ball, {"center": 0.0, "radius": 1.0, "size": 3}),
    (tacit.Simplex, {"size": 3, "total": 1.0}),
    (tacit.HalfSpace, BETWEEN),
    (tacit.Hyperplane, BETWEEN),
    (tacit.Polyhedron, {"matrix": np.ones((1, 2)), "offset": [1.0], "lower": -1.0, "upper": 1.0}),
    (tacit.ConstantStep, {"value": 1.0}),
    (tacit.SmoothStep, {"smoothness": 1.0, "growth": 0.0}),
    (tacit.NonsmoothStep, {"scale": 1.0}),
    (tacit.StronglyConvexStep, {"strong_convexity": 1.0}),
    (tacit.ConstantPenalty, {"value": 1.0}),
    (
        tacit.DynamicPenalty,
        {"base": 1.0, "privacy": 1.0, "epsilon": 1.0, "period": 3, "factor": 1.2, "cap": 10.0},
    ),
    (tacit.Gaussian, {"noise_multiplier": 1.0}),
    (tacit.Laplace, {"noise_multiplier": 1.0}),
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("make", "right"), CONSTRUCTORS, ids=lambda x: getattr(x, "__name__", ""))
def test_every_number_of_a_constructor(make, right):
    make(**right)
    for name in (name for name, value in right.items() if np.ndim(value) == 0):
        for value in numbers():
            if name == "size" and isinstance(value, int) and value > 1e6:
                continue  # memory of that size: a job takes the data's
            in_time(SECONDS)
            try:
                thing = make(**{**right, name: value})
                if hasattr(thing, "sensitivity"):
                    Δ = thing.sensitivity(2, tacit.Box(-1.0, 1.0, size=thing.dimension))
                    assert 0 < Δ < np.inf, (name, value)
                if isinstance(thing, settings.Schedule):
                    tacit.Settings(10, penalty=thing, step_size=thing)
                    assert 0 < thing(10) < np.inf
            except tacit.TacitError:
                continue
            finally:
                signal.alarm(0)


def test_schedules_that_vanish_or_overflow_are_refused():
    for penalty, step in ((1e308, 1e-308), (1e-308, 1.0), (1.0, 1e308), (1e101, 1.0)):
        with pytest.raises(tacit.InvalidInput, match=r"penalty|step"):
            tacit.Settings(3, penalty=penalty, step_size=step)
    with pytest.raises(tacit.InvalidInput, match="in round 1000"):
        tacit.Settings(1000, step_size=tacit.NonsmoothStep(2e-100))
    tacit.Settings(1000, penalty=1e100, step_size=1e-100)


def test_many_laplace_updates_in_bounded_time():
    """Beyond 100,000 updates a Rényi bound: above the normal approximation, and not by much."""
    began = time.monotonic()
    for updates in (10**5, 10**6, 10**9):
        mechanism = calibrate("laplace", 1.0, 1e-5, updates)
        # Laplace noise loses at least as much as normal noise in the limit of many updates
        limit = gaussian_epsilon(np.sqrt(updates) / mechanism.noise_multiplier, 1e-5)
        assert 0.999 <= exact(mechanism, updates, 1e-5).epsilon <= 1.0 and 0.85 <= limit <= 1.001
    assert time.monotonic() - began < 30
