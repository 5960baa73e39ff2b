"""The documentation tells the truth: its code runs, its links resolve, its lists are complete.

python blocks    of one file run in order in one namespace, in an empty folder
console blocks   every ``$ tacit ...`` line runs beside a copy of ``examples/``; the lines below it
                 must stand in the output in that order, where ``...`` stands for any text. A line
                 ``$ mpiexec -n N tacit ...`` runs on so many processes
toml blocks      must parse
bash blocks      are not run
"""

import inspect
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from ranks import mpiexec

import tacit
from tacit import errors
from tacit.admm import settings
from tacit.cli.main import main
from tacit.protocol.result import TRACE
from tacit.studies import job

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOP = [ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
DRAWN = ("results", "learn", "power")  # pages whose commands draw what others do not
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    text = page.read_text()
    for match in BLOCK.finditer(text):
        if match[1] == language:
            yield text[: match.start(2)].count("\n"), match[2]


def pages_with(language):
    return [page for page in PAGES if any(blocks(page, language))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.stem)
def test_python_blocks_run(page, folder, capsys):
    namespace = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        # blank lines in front, so that a traceback names the line of the page
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    assert any(getattr(v, "__name__", "").startswith("tacit") for v in namespace.values()) or any(
        str(getattr(v, "__module__", "")).startswith("tacit") for v in namespace.values()
    ), "the page's code uses tacit"


@pytest.mark.parametrize("page", pages_with("console"), ids=lambda page: page.stem)
def test_commands_run_and_print_what_the_page_shows(page, folder, capsys, request):
    if page.stem in DRAWN:
        request.getfixturevalue("drawn")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for _, block in blocks(page, "console"):
        assert re.match(r"\$ (mpiexec -n \d )?tacit ", block), "a console block begins so"
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            words, *shown = command.splitlines()
            arguments = shlex.split(words)
            if arguments[0] == "mpiexec":
                ranks, *of_tacit = arguments[2], *arguments[4:]
                done = mpiexec(ranks, sys.executable, "-m", "tacit", *of_tacit)
                assert done.returncode == 0, done.stderr
                output = done.stdout
            else:
                assert main(arguments[1:]) == 0
                output = capsys.readouterr().out
            output = [line.strip() for line in output.splitlines()]
            at = 0
            for line in shown:
                pattern = ".*".join(re.escape(part) for part in line.strip().split("..."))
                hits = [i for i in range(at, len(output)) if re.fullmatch(pattern, output[i])]
                assert hits, f"{words}: {line!r} is not in {output[at:]}"
                at = hits[0] + 1


@pytest.mark.parametrize("page", pages_with("toml"), ids=lambda page: page.stem)
def test_toml_blocks_parse(page):
    for _, block in blocks(page, "toml"):
        assert tomllib.loads(block), "a block that says something"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_solve_and_are_sensible(path, folder, capsys):
    """Within budget, feasible, and nearer to the non-private answer than to the start."""
    shutil.copytree(path.parent / "data", folder / "data")
    (folder / "private.toml").write_text("seed = 1\n" + path.read_text())  # a test must repeat
    assert main(["solve", "private.toml", "--out", "private"]) == 0
    text = re.sub(r'^mechanism = "gaussian"', 'mechanism = "none"', path.read_text(), flags=re.M)
    text = re.sub(r"^total_.*\n", "", text, flags=re.M)
    (folder / "none.toml").write_text(text)
    assert main(["solve", "none.toml", "--out", "none"]) == 0
    loaded = job.load_job(path)
    private, none = tacit.Result.load("private"), tacit.Result.load("none")
    budget = tomllib.loads(path.read_text())["privacy"]
    assert 0.999 * budget["total_epsilon"] <= private.privacy.epsilon <= budget["total_epsilon"]
    assert private.privacy.certified and private.privacy.seeded
    assert not none.privacy.certified
    for answer in (private.ergodic, private.solution):
        assert max(float(a.feasible_set.violation(answer)) for a in loaded.problem.agents) < 1e-6
    optimum = loaded.problem.value(none.solution)
    start = loaded.problem.value(np.zeros(loaded.problem.size))
    reached = loaded.problem.value(private.ergodic)
    assert optimum - 1e-4 < reached < (optimum + 2 * start) / 3


def anchors(page):
    """Ids of the headings, as Markdown makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_internal_links_resolve(page):
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.is_file(), f"{page.name} links to {target}"
        if page.parent == ROOT / "docs":
            assert file.is_relative_to(ROOT / "docs"), f"{target} is not part of the site"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def words(page):
    return set(re.findall(r"[\w-]+", (ROOT / "docs" / page).read_text()))


def test_the_reference_is_complete():
    known = words("files.md")
    for kinds in (job.OBJECTIVES, job.SETS):
        for kind, make in kinds.items():
            keys = set(inspect.signature(make).parameters) - job.NOT_SAID
            assert {kind, *keys} <= known, kind
    for schedule in (*settings.STEP_SIZES, *settings.PENALTIES):
        assert {schedule.kind, *inspect.signature(schedule).parameters} <= known, schedule.kind
    assert set(TRACE) <= words("results.md")
    assert set(tacit.__all__) <= words("api/index.md")
    tree = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, Exception)}
    assert tree <= words("api/index.md")
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(f": {page.name}" in navigation for page in PAGES if page.parent == ROOT / "docs")
