"""Planted bugs, one at a time: do the tests see them?

    python tests/mutants.py                 all of them; 1 if fewer than 95 % are caught
    python tests/mutants.py --package ledger   those of one package
    python tests/mutants.py --only NAME     one of them
    python tests/mutants.py --list          names, files and tests; nothing is run

``mutants.toml`` has the bugs: a file below ``src/tacit``, a text that stands there exactly once,
what it becomes, and the tests that must then fail. All happens in temporary copies of the tree,
where the tests must pass first, without a bug. A bug is *caught* if one of its tests fails or does
not end in time, *survived* if all pass, and *invalid* if no test runs with it (a bug that no module
can be imported with shows nothing).
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md", "mkdocs.yml")
PACKAGE = Path("src/tacit")
ENOUGH = 0.95
LIMIT, BASELINE = 240, 1800  # seconds for the tests of one bug, and for all without a bug
FAILED, NO_ERROR = 1, 0  # exit statuses of pytest
RUN = """
import sys
source = sys.path[0] = sys.argv.pop(1)
import pytest
status = pytest.main(sys.argv[1:])
home = getattr(sys.modules.get("tacit"), "__file__", None)
if status < 2 and not str(home).startswith(source):
    print("not the copy was imported, but", home)
    status = 3
sys.exit(status)
"""
KEPT = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "jax")}
ALWAYS = {
    "MPLBACKEND": "Agg",
    "PYTHONDONTWRITEBYTECODE": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}


@dataclass(frozen=True)
class Mutant:
    """A planted bug."""

    name: str
    package: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def broken(self, text: str) -> str:
        """The file's text with the bug in it."""
        found = text.count(self.old)
        if found != 1 or self.new == self.old:
            raise ValueError(f"its text is in {self.file} {found} times, or it changes nothing")
        return text.replace(self.old, self.new)


def read(path: Path = LIST) -> list[Mutant]:
    """The list, checked: names differ, and every bug can be planted in the tree as it is."""
    mutants, wrong = [], []
    for package, entries in tomllib.loads(path.read_text()).items():
        for name, entry in entries.items():
            mutants.append(Mutant(name, package, **{**entry, "tests": tuple(entry["tests"])}))
            try:
                mutants[-1].broken((ROOT / PACKAGE / mutants[-1].file).read_text())
            except (OSError, ValueError) as error:
                wrong.append(f"{package}.{name}: {error}")
    twice = [name for name, n in Counter(m.name for m in mutants).items() if n > 1]
    if wrong or twice:
        raise SystemExit("\n".join([f"{path.name} does not fit the tree:", *wrong, *twice]))
    return mutants


class Copy:
    """A copy of the tree in which tests are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", ".*cache")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored)
            else:
                shutil.copy2(source, folder / name)

    def run(self, tests: Sequence[str], limit: float, *options: str) -> tuple[int | None, str]:
        """The exit status of pytest, None if it took too long, and what it printed."""
        command = [sys.executable, "-c", RUN, str(self.folder / "src"), "-q", "--tb=short"]
        command += ["-p", "no:cacheprovider", "--rootdir", str(self.folder), *options]
        child = subprocess.Popen(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=self.folder,
            env={**KEPT, **os.environ, **ALWAYS, "PYTHONPATH": str(self.folder / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)  # with all that the tests started
            return None, child.communicate()[0]
        return child.returncode, printed

    def try_out(self, mutant: Mutant) -> tuple[str, str]:
        """Plant the bug, run its tests, and take it out again."""
        path = self.folder / PACKAGE / mutant.file
        whole = path.read_text()
        path.write_text(mutant.broken(whole))
        try:
            status, printed = self.run(mutant.tests, LIMIT, "-x")
        finally:
            path.write_text(whole)
        if status in (FAILED, None):
            failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", printed, re.MULTILINE)
            return "caught", failed[1] if failed else "its tests did not end in time"
        if status == NO_ERROR:
            return "survived", ", ".join(mutant.tests)
        return "invalid", f"no test ran: {printed.strip().splitlines()[-1:]}"


def run(mutants: Sequence[Mutant], jobs: int, baseline: bool) -> Counter[str]:
    """How many of each outcome; every one is printed as it comes."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for k in range(jobs):
            (Path(folder) / str(k)).mkdir()
            copies.put(Copy(Path(folder) / str(k)))
        if baseline:
            copies.put(copy := copies.get())
            wanted = sorted({test for mutant in mutants for test in mutant.tests})
            status, printed = copy.run(wanted, BASELINE)
            if status != NO_ERROR:
                raise SystemExit(f"{printed[-3000:]}\nWithout a bug its tests do not pass.")

        def judge(mutant: Mutant) -> str:
            copy, start = copies.get(), time.monotonic()
            try:
                outcome, why = copy.try_out(mutant)
            finally:
                copies.put(copy)
            took = f"{time.monotonic() - start:6.1f} s"
            print(f"{outcome:9}{took}  {mutant.package}.{mutant.name}: {why}", flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            return Counter(pool.map(judge, mutants))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant bugs one at a time; do the tests fail?")
    parser.add_argument("--only", action="append", metavar="NAME", help="this bug alone")
    parser.add_argument("--package", action="append", metavar="NAME", help="bugs of it alone")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="bugs at the same time")
    parser.add_argument(
        "--no-baseline", action="store_true", help="take for granted that tests pass without bugs"
    )
    options = parser.parse_args(arguments)
    mutants = read()
    for wanted, known in ((options.only, "name"), (options.package, "package")):
        names = {getattr(m, known) for m in mutants}
        if unknown := set(wanted or ()) - names:
            parser.error(f"no {known} {sorted(unknown)}; there are {', '.join(sorted(names))}")
        mutants = [m for m in mutants if not wanted or getattr(m, known) in wanted]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.package}.{mutant.name} ({mutant.file}): {' '.join(mutant.tests)}")
        return 0
    found = run(mutants, options.jobs, not options.no_baseline)
    share = found["caught"] / len(mutants)
    print(f"{dict(found)}: {100 * share:.1f} % caught")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
