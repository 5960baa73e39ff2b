"""The walk of docs/federation.md, word for word: every command, on one machine in place of four.

``make test`` makes kits and ledgers and checks them, as the page does. To join and to run are in
``make test-all``: test_between_processes.py has such processes.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from processes import TACIT, Processes, free_port, until

import tacit
from tacit.admm.result import Result
from tacit.cli.main import main, parse
from tacit.jobs.job import load_job
from tacit.privacy.ledger import Ledger

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "federation.md").read_text()
EXAMPLES = ROOT / "examples"
HOSPITALS = ("north", "south", "west")


def commands(part):
    """The lines of the block that the page marks so."""
    block = re.search(rf"<!-- walk: {part} -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line) for line in block[1].splitlines()]


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """All that the page does before it joins; then how to start a command, and those that join."""
    (tmp_path / "study.toml").write_bytes(
        (EXAMPLES / "federation" / "hospitals" / "study.toml").read_bytes()
    )
    for name, number in zip(HOSPITALS, "123", strict=True):
        file = f"hospital_{number}.csv"
        (tmp_path / file).write_bytes((EXAMPLES / "data" / file).read_bytes())
        text = re.search(r"```toml\n(agent = .*?)```", PAGE, re.DOTALL)[1]
        text = text.replace("North", name.capitalize()).replace("hospital_1.csv", file)
        (tmp_path / f"{name}.toml").write_text(text.replace("north.db", f"{name}.db"))
    monkeypatch.chdir(tmp_path)
    port, joining = str(free_port()), {}
    processes = Processes(tmp_path / "said")

    def tacit_words(words):
        assert words[0] == "tacit"
        return [word.replace("8102", port) for word in words[1:]]

    for words in commands("coordinator"):
        assert main(tacit_words(words)) == 0
    for name in HOSPITALS:
        *before, join = [[w.replace("north", name) for w in ws] for ws in commands("party")]
        for words in before:
            assert main(tacit_words(words)) == 0
        joining[name] = tacit_words(join)
    yield processes, joining, [tacit_words(words) for words in commands("run")]
    processes.end()


def test_kits_and_ledgers_are_made_and_checked(walk, tmp_path):
    _, joining, running = walk
    for words in [*joining.values(), *running]:
        parse(words)
    for name in HOSPITALS:
        assert Ledger(tmp_path / f"{name}.db").runs() == []
        kit = tmp_path / "kits" / f"kit-{name}-hospital"
        assert f"kits/{kit.name}" in joining[name]
        assert list(kit.rglob("*.key")) and not any(
            p.stat().st_mode & 0o077 for p in kit.rglob("*.key")
        )


@pytest.mark.exhaustive  # test_a_study_between_processes
def test_from_three_machines_to_a_result(walk, tmp_path):
    processes, joining, running = walk

    def run(name, words):
        return processes.start(name, TACIT[0], "-m", "tacit", *words)

    for name, words in joining.items():
        run(name, words)
    for words in running:
        assert run("run", words).wait(240) == 0, processes.said("run")
    assert "is (1, 1e-05)-DP against everyone" in " ".join(processes.said("run").split())
    result = Result.load(tmp_path / "result")
    assert result.converged and result.privacy.certified and result.privacy.secure
    # as good as the same job in one process: one reading with the same noise
    job = load_job(EXAMPLES / "hospitals.toml")
    once = tacit.solve(job.problem, job.settings, seed=1)
    assert np.linalg.norm(result.solution - once.solution) < 1.5
    for name in HOSPITALS:
        kit = tmp_path / "kits" / f"kit-{name}-hospital"
        until(lambda kit=kit: (kit / "own" / "solution.npz").exists())
        with np.load(kit / "own" / "solution.npz") as own:
            np.testing.assert_array_equal(own["solution"], result.solution)
        (spent,) = Ledger(tmp_path / f"{name}.db").runs()
        assert spent["rounds_charged"] == 1 and spent["read_once"]
