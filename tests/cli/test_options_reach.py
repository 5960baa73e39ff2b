"""Every option of a command that runs something arrives where it is meant to: none is left out.

Few command lines with many options each, and what every option must then have changed; one that is
in no line is an error.
"""

import math

import numpy as np
import pytest

import tacit
from tacit.cli import run_folder
from tacit.cli.main import main, parser
from tacit.errors import InvalidInput
from tacit.privacy.accounting import calibrate, exact

# of results, folders and processes: their own tests run them
ELSEWHERE = {"json", "help", "out", "resume", "engine", "ledgers", "device", "publish", "central"}
ELSEWHERE |= {"data", "more", "data_set", "case", "job", "columns", "log", "test_epsilon"}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """What ``tacit.solve`` would be given by a command; with f, W of the first agent."""
    points = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    rows = [f"{a},{b},{int(a > 0)},{'NSW'[k % 3]}" for k, (a, b) in enumerate(points)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y,who", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    found = {}

    def reached(label, problem, plan, **others):
        settings = getattr(plan, "settings", plan)
        found.update(others, problem=problem, plan=plan, settings=settings)
        raise InvalidInput("Here it would begin.")

    monkeypatch.setattr(run_folder, "run_with_progress", reached)

    def run(words):
        found.clear()
        assert main(words.split()) == 2 and found, words
        f, W = (getattr(found["problem"].agents[0], n) for n in ("objective", "feasible_set"))
        s = found["settings"]
        found.update(vars(s), f=f, W=W, kind=type(f).__name__, names=found["problem"].names)
        found["release"] = getattr(found["plan"], "release", None)
        found["stated_delta"] = getattr(found["plan"], "delta", None)
        found["noise_name"] = s.mechanism.name
        if s.mechanism.name != "noiseless":
            found["cost"] = exact(s.mechanism, s.updates, s.delta).epsilon
        return found

    return run


def named(**expected):
    """What must be so; a name of an attribute of f is written f_name."""

    def check(found):
        for name, value in expected.items():
            of_f = name.startswith("f_")
            got = getattr(found["f"], name[2:]) if of_f else found[name]
            if name in ("penalty", "step_size"):
                got = got.value
            if name == "cost":
                got = 0.999 * value <= got <= value and value
            if name == "names" and isinstance(value, int):
                got = len(got)
            assert got == (pytest.approx(value) if type(value) is float else value), name

    return check


LEARN = "learn t.csv --target y --range *=-1:1 --drop who"
ONE = "learn t.csv --target b --range a=-1:1 --drop who --drop y --total-epsilon 1"
POWER = "power solve case9 --zones 2 --total-epsilon 1 --total-delta 1e-5"
EVERY = f"{POWER} --noise-every-round"
LINES = [
    (
        f"{LEARN} --total-epsilon 3 --centring-share none",
        named(cost=3.0, delta=1e-5, names=10, kind="LogisticRegression", f_normaliser=48.0),
    ),
    (
        f"{LEARN} --total-epsilon 2 --total-delta 1e-3 --mechanism laplace --rounds 7 --bound 0.5 "
        "--local-updates 3 --feature-norm 2.5 --clip 0.25 --centring-share none --seed 5 "
        "--noise seeded --workers 2 --evaluate-every 4 --agents 3 --test-share 0.5 --split iid",
        named(
            **{"cost": 2.0, "delta": 1e-3, "rounds": 7, "local_updates": 3, "names": 3},
            **{"f_feature_norm": 2.5, "f_clip": 0.25 / math.sqrt(2), "f_sample_count": 10},
            **{"seed": 5, "noise": "seeded", "workers": 2, "evaluate_every": 4},
            **{"f_normaliser": 30.0, "f_dimension": 3, "noise_name": "laplace"},
        ),
    ),
    (
        f"{LEARN} --total-epsilon 1 --centring-share 0.1 --clip none --id b --rounds 60",
        named(f_clip=None, f_dimension=2, evaluate_every=3),
    ),
    (
        f"{LEARN.replace('--drop who', '')} --agent-column who --no-noise --classes 0,1,2 "
        "--features fourier --noise secure",
        named(names=("N", "S", "W"), kind="SoftmaxRegression", noise="secure"),
    ),
    (
        f"{LEARN} --total-epsilon 1 --model svm --categories b=x,z --fill a=0.5",
        named(kind="Hinge", f_dimension=4),
    ),
    (f"{ONE} --target-range=-1:1", named(kind="Huber", f_target_bound=1.0)),
    (
        f"{ONE} --target-range=-3:1 --model quantile --level 0.9 --feature-norm 2.5",
        named(kind="Quantile", f_level=0.9, f_feature_norm=2.5),
    ),
    (f"{ONE} --target-range=-3:1 --model ridge", named(kind="LeastSquares", f_target_bound=2.0)),
    (
        POWER,
        named(release=calibrate("laplace", 1.0, 1e-5, 1), rounds=1000, f_beta=0.01, names=2),
    ),
    (
        "power solve case9 --zones 3 --total-epsilon 2 --total-delta 1e-3 --mechanism gaussian "
        "--beta 0.05 --nominal case9 --nominal-spread 0.2 --tolerance 0.003 --rounds 9 "
        "--penalty 2.5 --seed 5 --noise seeded --workers 2 --evaluate-every 4",
        named(
            **{"release": calibrate("gaussian", 2.0, 1e-3, 1), "names": 3, "f_beta": 0.05},
            **{"kind": "ExpectedLoads", "f_spread": 0.2, "tolerance": 0.003, "rounds": 9},
            **{"penalty": 2.5, "seed": 5, "noise": "seeded", "workers": 2, "evaluate_every": 4},
        ),
    ),
    ("power solve case9 --zones 2 --total-epsilon 1", named(stated_delta=1e-5)),
    ("power solve case9 --zones 2 --total-epsilon 1 --total-delta 0", named(stated_delta=0.0)),
    (
        "power solve case9 --zones 2 --total-epsilon 1 --mechanism laplace",
        named(stated_delta=0.0, release=calibrate("laplace", 1.0, 0.0, 1)),
    ),
    (f"{POWER} --objective cost --shed-price 50", named(kind="GenerationCost")),
    ("power solve case9 --no-noise", named(release=None, tolerance=1e-6)),
    (EVERY, named(release=None, rounds=100, cost=1.0, delta=1e-5, local_updates=1)),
    (
        f"{EVERY} --rounds 9 --local-updates 2 --step-size 0.1 --penalty 2.5 --noise-on gradient "
        "--perturbation output --calibration paper --mechanism laplace",
        named(
            **{"rounds": 9, "local_updates": 2, "step_size": 0.1, "penalty": 2.5, "cost": 1.0},
            **{"f_noise_on": "gradient", "perturbation": "output", "calibration": "paper"},
            mechanism=calibrate("laplace", 1.0, 1e-5, 18),
        ),
    ),
    (
        "power solve case9 --epsilon 0.5 --delta 1e-4",
        named(mechanism=tacit.Gaussian.analytic(0.5, 1e-4), delta=1e-4),
    ),
    (
        "power solve case9 --epsilon 0.5 --mechanism laplace",
        named(mechanism=tacit.Laplace(2.0), delta=0.0),
    ),
    ("solve job.toml", named(seed=3, evaluate_every=2)),  # the job's own
    (
        "solve job.toml --seed 5 --evaluate-every 7 --noise seeded --workers 2",
        named(seed=5, evaluate_every=7, noise="seeded", workers=2),
    ),
    (
        f"{LEARN} --total-epsilon 2 --centring-share none --agents 4 --aggregation sum "
        "--colluding 2",
        named(aggregation="sum", colluding=2),
    ),
]


@pytest.mark.parametrize(("line", "check"), LINES, ids=[line for line, _ in LINES])
def test_options_reach_the_run(begun, job, line, check):
    check(begun(line))


def test_options_reach_constraints_and_splits(begun):
    """A bound, and the skew of a split: the smaller alpha, the less alike."""
    base = f"{LEARN} --total-epsilon 1 --agents 3 --rounds 2 --centring-share none"
    assert np.abs(begun(f"{base} --bound 0.5")["W"].project(np.full(3, 1e9))[:2]).max() == 0.5
    sizes = []
    for alpha in ("0.05", "50"):
        agents = begun(f"{base} --split dirichlet --alpha {alpha}")["problem"].agents
        sizes.append(max(a.objective.sample_count for a in agents))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("command", ["learn", "power solve", "solve"])
def test_every_option_is_in_a_line(command):
    words = {w for line, _ in LINES for w in line.replace("=", " ").split()} | {"--alpha"}
    group = parser(command)
    for word in command.split():
        group = next(a.choices[word] for a in group._actions if word in (a.choices or ()))
    options = {action.dest for action in group._actions}
    assert {o for o in options if f"--{o.replace('_', '-')}" not in words} <= ELSEWHERE
