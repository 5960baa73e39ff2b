"""CONTRIBUTING.md, SECURITY.md, templates and workflow say what is so, and their code runs."""

import os
import re
import tomllib
from pathlib import Path

import mutants
import numpy as np
import pytest
import yaml
from hostile_points import SIZE, worst
from test_docs import BLOCK, PAGES

import tacit

ROOT = Path(__file__).parents[1]
GUIDE, SECURITY = ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").iterdir() if path.stem != "config")
WRITTEN = [GUIDE, SECURITY, *sorted(GITHUB.rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def section(title):
    """What stands below one heading of the guide."""
    return GUIDE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_column(text):
    return set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))


# --- CONTRIBUTING.md --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """All code of the guide, run in order."""
    os.chdir(tmp_path_factory.mktemp("guide"))
    space, ran = {"__name__": "__main__"}, 0
    for found in BLOCK.finditer(text := GUIDE.read_text()):
        if found[1] == "python":
            before = "\n" * text[: found.start(2)].count("\n")  # so that a traceback names the line
            exec(compile(before + found[2], str(GUIDE), "exec"), space)
            ran += 1
    os.chdir(ROOT)
    assert ran == 2
    return space


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_set_of_the_guide_keeps_its_promise_at_hostile_points(dtype, examples):
    segment = examples["Segment"](np.linspace(-2.0, 1.0, SIZE))
    units, longest, *_ = worst(segment, np.random.default_rng(1), 500, dtype)
    unit = np.finfo(dtype).eps * segment.magnitude
    assert units <= segment.tolerance(dtype) / unit and longest <= 1
    a, b = np.linspace(-9.0, 4.0, SIZE), np.linspace(0.5, 2.0, SIZE)
    z = segment.project(a.astype(dtype), b)
    for end in (segment.tip, -segment.tip):  # the variational inequality, at the ends
        assert (b * (np.asarray(z) - a)) @ (end - np.asarray(z)) >= -1e-4


def test_the_objective_of_the_guide_is_certified_and_its_calculus_right(examples):
    assert isinstance(examples["one"], tacit.Objective)
    z, step = np.array([0.3, 0.1]), 1e-6
    numeric = [
        (examples["one"].value(z + step * e) - examples["one"].value(z - step * e)) / (2 * step)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(examples["one"].gradient(z), numeric, atol=1e-8)
    with pytest.raises(tacit.InvalidInput, match="finite"):
        examples["Anchor"](np.array([np.nan, 0.0]), 0.1)


def test_every_package_has_its_sentence_and_every_make_target():
    packages = {path.name for path in (ROOT / "src/tacit").iterdir() if any(path.glob("*.py"))}
    assert first_column(section("The packages")) == packages | {"planning.py"}
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert first_column(section("Set up")) >= {f"make {target}" for target in phony[1].split()}


# --- files that are named ---------------------------------------------------------------------

NAMED = re.compile(r"`((?:[\w.]+/)*[\w.-]+\.(?:py|toml|md|yml))`")
LEFT_BY_RUNS = {"columns.toml", "job.toml", "party.toml", "party.example.toml"}  # or by users


@pytest.fixture(scope="module")
def there():
    kept = [*ROOT.glob("*"), *GITHUB.rglob("*")]
    for part in ("src", "tests", "docs", "examples", "benchmarks"):
        kept += (ROOT / part).rglob("*")
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in kept]


def test_files_that_are_named_are_there(there):
    for path in [*PAGES, *WRITTEN, *(ROOT / "src").rglob("*.py")]:
        for name in set(NAMED.findall(path.read_text())) - LEFT_BY_RUNS:
            assert any(file.endswith(f"/{name}") for file in there), f"{path} names {name}"


# --- SECURITY.md, templates and workflow ------------------------------------------------------


def test_no_host_is_named_and_privacy_bugs_go_elsewhere():
    for path in [*WRITTEN, *FORMS]:
        assert not re.search(r"https?://|www\.|\S@\S", path.read_text()), path
    for path in FORMS:
        form = yaml.safe_load(path.read_text())
        assert path.stem == "feature" or "SECURITY.md" in form["body"][0]["attributes"]["value"]


def test_the_workflow_runs_the_whole_check_on_every_version():
    workflow = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    versions = job["strategy"]["matrix"]["python-version"]
    language = "Programming Language :: Python :: "
    assert {f"{language}{version}" for version in versions} < {*PROJECT["classifiers"]}
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    weekly = yaml.safe_load((GITHUB / "workflows/exhaustive.yml").read_text())
    (job,) = weekly["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test-all"]
    assert workflow["permissions"] == weekly["permissions"] == {"contents": "read"}


def test_planted_bugs_fit_the_tree():
    """A line that was reworded, or a test that was renamed, is corrected in the list too."""
    for bug in mutants.read():
        for test in bug.tests:
            file, _, name = test.partition("::")
            path = ROOT / "tests" / file
            assert path.exists(), f"{bug.package}.{bug.name}: {test}"
            words = f"def {name.partition('[')[0]}(" if name else ""
            assert words in path.read_text() if path.is_file() else not words, test
