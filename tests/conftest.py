"""Shared by all tests: a reproducible hypothesis profile and small problems of every kind."""

import gc
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from matplotlib.figure import Figure

import tacit

# of tests/report and tests/transport: a second conftest.py hides this one: "from conftest import"
pytest_plugins = ["browsers", "loggers"]

EXHAUSTIVE = os.environ.get("TACIT_TESTS") == "all"  # make test-all
matplotlib.use("Agg")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, tests of a closed terminal would fail
settings.register_profile(
    "tacit",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if EXHAUSTIVE else 25,
)
settings.load_profile("tacit")
OPTIMISED = "test_as_users_compile.py"  # runs some tests by itself
# for processes of theirs, longest: they come first, so that none of them is left at the end
WAITING = {"transport", "test_mpi", "test_as_users_compile", "test_released_package"}
WAITING |= {"test_tutorials", "test_site", "test_interrupts", "test_reproduce"}


def pytest_configure(config):
    # what is imported, and programs that are kept, would be looked through again and again
    gc.set_threshold(500_000, 20, 20)


def pytest_xdist_auto_num_workers(config):
    return (os.cpu_count() or 1) + 1  # some tests wait for processes of theirs


@pytest.hookimpl(trylast=True)  # of what -k leaves
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not WAITING & {item.path.parent.name, item.path.stem})
    if not EXHAUSTIVE:
        later = {item for item in items if item.get_closest_marker("exhaustive")}
        later = {item for item in later if not named(item, config.args)}
        config.hook.pytest_deselected(items=list(later))
        items[:] = [item for item in items if item not in later]
    if OPTIMISED in {item.path.name for item in items} and os.environ.get("XLA_FLAGS"):
        from test_as_users_compile import TESTS

        twice = {item for item in items if item.nodeid.removeprefix("tests/").startswith(TESTS)}
        config.hook.pytest_deselected(items=list(twice))
        items[:] = [item for item in items if item not in twice]


def named(item, arguments):
    """Whether it was asked for by its own name."""
    return any("::" in a and item.nodeid.startswith(a.removeprefix("./")) for a in arguments)


def pytest_collection_finish(session):
    gc.freeze()  # all that is imported stays, and need not be looked through


def repeat(few, exhaustive):
    """How often to repeat what chance rarely changes: enough here, more in ``make test-all``."""
    return exhaustive if EXHAUSTIVE else few


def regression_data(rng, records, dimension):
    X = rng.normal(size=(records, dimension))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.clip(X @ rng.uniform(-1, 1, dimension) + 0.2 * rng.normal(size=records), -1, 1)
    return X, y


def objective_of(kind, rng, records=12, dimension=4, agents=3, ridge=0.0, normaliser=None):
    """A random objective of ``kind`` with all public bounds equal to one."""
    X, y = regression_data(rng, records, dimension)
    of_all = agents * records if normaliser is None else normaliser
    common = {"feature_norm": 1.0, "normaliser": of_all, "record_bound": records, "ridge": ridge}
    smooth = {"normaliser": of_all, "smoothness": 1.0 / agents}
    return {
        "least-squares": lambda: tacit.LeastSquares(X, y, target_bound=1.0, **common),
        "logistic": lambda: tacit.LogisticRegression(X, (y > 0).astype(int), **common),
        "softmax": lambda: tacit.SoftmaxRegression(X, rng.integers(0, 3, records), 3, **common),
        "huber": lambda: tacit.Huber(X, y, target_bound=1.0, threshold=0.3, **common),
        "hinge": lambda: tacit.Hinge(X, np.where(y > 0, 1, -1), **common),
        "quantile": lambda: tacit.Quantile(X, y, level=0.3, **common),
        "residual": lambda: tacit.Residual(X, -y, beta=0.01),
        "per-sample": lambda: tacit.PerSample(
            squared_loss, (X, y), clip=1e6, size=dimension, **smooth
        ),
    }[kind]()


OBJECTIVES = "least-squares", "logistic", "softmax", "huber", "hinge", "quantile", "residual"
OBJECTIVES += ("per-sample",)


def squared_loss(z, sample):
    x, y = sample
    return 0.5 * (x @ z - y) ** 2


def set_of(kind, n):
    """A small compact set of ``kind`` in dimension n."""
    return {**CLOSED_SETS, **SOLVER_SETS}[kind](n)


def polyhedron(n):
    matrix = np.vstack([np.ones(n), np.arange(n) - 1.0])
    return tacit.Polyhedron(matrix, np.array([0.4, 0.5]), lower=-0.5, upper=0.5)


def cone(n):
    return tacit.ConeSet(
        [tacit.Cone(np.eye(n), np.zeros(n), np.zeros(n), 0.6)], lower=-0.5, upper=0.5
    )


def of_cvxpy(n):
    import cvxpy as cp

    z = cp.Variable(n)
    return tacit.from_cvxpy(z, [cp.norm(z, 1) <= 0.9, cp.norm(z, 2) <= 0.7, z >= -0.4])


CLOSED_SETS = {
    "box": lambda n: tacit.Box(-0.4, 0.5, size=n),
    "non-negative": lambda n: tacit.NonNegative(n, upper=0.7),
    "ball": lambda n: tacit.Ball(0.0, 0.6, size=n),
    "l1-ball": lambda n: tacit.L1Ball(0.8, size=n),
    "simplex": lambda n: tacit.Simplex(n),
    "half-space": lambda n: tacit.HalfSpace(np.ones(n), 0.3, -0.5, 0.5),
    "hyperplane": lambda n: tacit.Hyperplane(np.ones(n), 0.2, -0.5, 0.5),
    "product": lambda n: tacit.Product(
        [tacit.Box(-0.3, 0.3, size=1), tacit.Ball(0.0, 0.5, size=n - 1)]
    ),
}
SOLVER_SETS = {"polyhedron": polyhedron, "cone": cone, "cvxpy": of_cvxpy}


def problem_of(objective, feasible, seed=0, agents=2, **options):
    rng = np.random.default_rng(seed)
    objectives = [objective_of(objective, rng, agents=agents, **options) for _ in range(agents)]
    return tacit.Problem(tacit.LocalProblem(f, set_of(feasible, f.dimension)) for f in objectives)


# Two agents, one in a CSV file and one in an npz file
JOB = """
seed = 3
evaluate_every = 2
[objective]
kind = "least-squares"
feature_norm = 2.0
target_bound = 1.5
normaliser = 60
[set]
kind = "polyhedron"
matrix = [[1.0, 1.0]]
offset = [1.0]
lower = -1.0
upper = 1.0
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[algorithm]
rounds = 20
local_updates = 2
[[agents]]
name = "north"
data = "north.csv"
target = "y"
[[agents]]
name = "south"
data = "south.npz"
"""


@pytest.fixture
def job(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        X = rng.normal(size=(30, 2))
        y = X @ [0.5, -0.2] + 0.1 * rng.normal(size=30)
        if name == "north":
            rows = ["a,y,b", *(f"{x[0]},{v},{x[1]}" for x, v in zip(X, y, strict=True))]
            (tmp_path / "north.csv").write_text("\n".join(rows) + "\n")
        else:
            np.savez(tmp_path / "south.npz", features=X, targets=y)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def command(capsys):
    """What a command prints, run in this process."""
    from tacit.cli.main import main

    def run(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:  # --help and --version
            code = stop.code
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """What a command that is refused says, run in this process in an empty folder."""
    from tacit.cli.main import main

    def run(words, *more):
        monkeypatch.chdir(tmp_path)
        try:
            code = main([*words.split(), *map(str, more)])
        except SystemExit as stop:  # argparse
            code = stop.code
        said = capsys.readouterr()
        assert code in (1, 2) and said.out == "" and "Traceback" not in said.err
        return said.err

    return run


def undrawn(figure, file, **options):
    """In place of ``Figure.savefig``: a picture is written but not drawn."""
    if hasattr(file, "write"):
        file.write(b"not drawn")
    else:
        Path(file).write_bytes(b"not drawn")


os.fsync = lambda opened: None  # 5 ms each: test_files.py looks when it is called, kills need none
# a picture takes 0.3 s, its panels 0.1 s, and they are seldom the point
DRAW, Figure.savefig = Figure.savefig, undrawn
PLOT, tacit.Result.plot = tacit.Result.plot, lambda self: Figure()


@contextmanager
def drawing():
    """Here pictures are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", DRAW)
        patch.setattr(tacit.Result, "plot", PLOT)
        yield


@pytest.fixture
def drawn():
    with drawing():
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)
