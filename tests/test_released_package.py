"""What is released: the sdist makes the wheel, and the wheel runs without what is not asked for.

The wheel is installed beside this environment, for processes that find no package that only other
extras ask for.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tacit.cli.main import EXTRAS, main

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = PROJECT["optional-dependencies"]
VERSION = PROJECT["version"]
JOB = ROOT / "examples" / "hospitals.toml"
TABLE = "a,b,y\n" + "".join(f"{i % 7 / 7},{i % 5 / 5},{i % 2}\n" for i in range(60))
# For each extra, what a user of it does first, as arguments of tacit or as Python
TRIALS = {
    "": f"solve {JOB} --out result",
    "cvxpy": (
        "import cvxpy as cp, tacit; z = cp.Variable(2)\n"
        "allowed = tacit.from_cvxpy(z, [cp.norm(z, 2) <= 1])\n"
        "assert abs(allowed.project([3.0, 4.0]) - [0.6, 0.8]).max() < 1e-6"
    ),
    "demo": "from tacit.lab.demo_problems import diabetes; diabetes()",
    "learn": (
        "import pandas, pyarrow, threadpoolctl  # where it needs them\n"
        "import tacit.cli.learn, tacit.learn as own\n"
        "own.PrivateRidge(1, 1e-5, target_range=(0, 1)); own.load_digits()"
    ),
    "power": "import pandas, tacit.cli.power; from tacit.power import build; build('case14', 3)",
    "pglib": (
        "from tacit.power import load_case\n"
        "assert len(load_case('pglib_opf_case14_ieee').bus) == 14"
    ),
    "mpi": "import mpi4py, tacit.transports.mpi",
    "federation": "import tacit.transports.nvflare.controller, tacit.transports.nvflare.site",
}
DEVELOPMENT = {"docs", "dev"}  # not of users
COMES_WITH = {"sklearn": "scikit-learn", "psutil": "nvflare"}
NEED_EXTRAS = (
    "learn t.csv --target y --total-epsilon 1 --range *=-1:1",
    "learn attack digits --records 1",
    "predict absent t.csv",
    "power solve case14 --total-epsilon 1 --total-delta 1e-5",
    "power bound case14",
    "power attack case14",
    "audit digits --trials 100",
    "audit case14 --trials 100",
    "reproduce case14",
    "demo",
)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The sdist of this tree, and the wheel that is made from the sdist."""
    folder = tmp_path_factory.mktemp("released")
    build(ROOT, "sdist", folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    build(folder / sdist.name.removesuffix(".tar.gz"), "wheel", folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def build(tree, kind, folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


def test_the_files_of_a_release(released):
    """The sdist has what is kept in a clone and no more; the wheel all of the package."""
    with tarfile.open(released[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    kept = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if kept.returncode == 0:
        assert names - {"PKG-INFO"} <= {*kept.stdout.splitlines()}
    assert {"LICENSE", "CHANGELOG.md", "src/tacit/py.typed", "tests/conftest.py"} <= names

    names, source = set(zipfile.ZipFile(released[1]).namelist()), ROOT / "src"
    files = (path for path in source.rglob("*") if path.is_file())
    of_package = {str(p.relative_to(source)) for p in files if "__pycache__" not in p.parts}
    assert of_package <= names and "tacit/py.typed" in names
    assert all(name.startswith(("tacit/", "tacit-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_versions_agree(released):
    assert released[1].name == f"tacit-{VERSION}-py3-none-any.whl"
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{re.escape(VERSION)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M)


ABSENT = """
import os, sys
absent = os.environ["ABSENT"].split(",")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
EACH = """
import os, sitecustomize, traceback
import jax.numpy, matplotlib.figure, scipy.optimize, scipy.sparse, tacit.cli.main
assert "installed" in tacit.__file__
tacit.solve
for extra, (trial, absent) in {trials!r}.items():
    if child := os.fork():
        print(extra, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    sitecustomize.absent = absent
    try:
        exec(trial, {{}})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


@pytest.fixture
def installed(released, tmp_path):
    """Runs a command with the wheel in front of all else, and nothing but what the core needs."""
    folder = tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, released[1]], check=True)
    (folder / "sitecustomize.py").write_text(ABSENT)
    (tmp_path / "t.csv").write_text(TABLE)
    environment = {**os.environ, "PYTHONPATH": str(folder), "ABSENT": ",".join(absent_with(""))}

    def run(*words):
        about = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        return subprocess.run([str(word) for word in words], **about)

    return run


def test_extras_ask_for_what_they_import(installed, tmp_path):
    """Without any, commands name what is missing; then each extra alone. One control at the end."""
    tacit = tmp_path / "installed" / "bin" / "tacit"
    assert installed(tacit, "--version").stdout == f"tacit {VERSION}\n"
    call = "from tacit.cli.main import main; assert main({!r}.split()) == {}"
    trials = {f"tacit {line}": (call.format(line, 2), absent_with("")) for line in NEED_EXTRAS}
    for extra, trial in TRIALS.items():
        code = trial if "import " in trial else call.format(trial, 0)
        trials[extra or "core"] = code, absent_with(extra)
    trials["control"] = "import sklearn", absent_with("cvxpy")
    done = installed(sys.executable, "-c", EACH.format(trials=trials))
    ended = [f"{trial} {int(trial == 'control')}" for trial in trials]
    assert [line for line in done.stdout.splitlines() if line in ended] == ended, done.stderr
    assert (tmp_path / "result" / "result.json").is_file()
    said = re.findall(r"^tacit: .*pip install 'tacit\[", done.stderr, re.M)
    assert len(said) == len(NEED_EXTRAS), done.stderr


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch, capsys):
    def missing(options):
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")

    command = argparse.Namespace(command=missing)
    monkeypatch.setattr("tacit.cli.main.parse", lambda words: command)
    assert main(["account"]) == 2
    extra = re.search(r"pip install 'tacit\[(\w+)]'", capsys.readouterr().err)[1]
    asked = {Requirement(text).name for text in ASKED[extra]}
    assert COMES_WITH.get(package, package) in asked


def named_by(extras):
    """Distributions that these extras ask for, and those extras that they include."""
    asked = [Requirement(text) for extra in extras for text in ASKED[extra]]
    included = {extra for one in asked for extra in one.extras if one.name == "tacit"}
    names = {canonicalize_name(one.name) for one in asked} - {"tacit"}
    return names | named_by(included) if included else names


def absent_with(extra):
    """Top-level names of what only other extras ask for, or development does."""
    core = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    needed, asked = set(), [*core, *named_by([extra] if extra else [])]
    while asked:
        needed.add(name := asked.pop())
        further = map(Requirement, importlib.metadata.requires(name) or ())
        here = (r for r in further if not r.marker or r.marker.evaluate({"extra": ""}))
        asked += {canonicalize_name(one.name) for one in here} - needed
    installed, others = importlib.metadata.packages_distributions(), named_by(ASKED) - needed
    return sorted(n for n, found in installed.items() if {*map(canonicalize_name, found)} & others)


def test_extras_and_licences_are_listed():
    """Every extra has a trial, and every dependency its licence in docs/architecture.md."""
    extras = set(ASKED) - DEVELOPMENT
    assert {*TRIALS, "all"} == {"", *extras}
    assert Requirement(*ASKED["all"]).extras | {"power"} == extras - {"all"}  # pglib has power
    page = (ROOT / "docs" / "architecture.md").read_text().split("\n## Licences\n")[1]
    users = PROJECT["dependencies"] + [text for extra in extras for text in ASKED[extra]]
    direct = {canonicalize_name(Requirement(text).name) for text in users} - {"tacit"}
    assert direct == set(re.findall(r"`([a-z0-9-]+)`", page))
