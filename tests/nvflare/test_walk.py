"""The walk of docs/federation.md, word for word: every command, on one machine in place of four."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from processes import TACIT, Processes, free_port, until

import tacit
from tacit.cli.main import main
from tacit.privacy.ledger import Ledger
from tacit.protocol.result import Result

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "federation.md").read_text()
HOSPITALS = ("north", "south", "west")
ALONE = "1.466"  # of (1, 1e-5) with three parties, one of whom may collude


def commands(part):
    """The lines of the block that the page marks so."""
    block = re.search(rf"<!-- walk: {part} -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line) for line in block[1].splitlines()]


def with_a_sum(folder, capsys):
    """The section on secure sums: in the study and in the parties' files."""
    study, marks = (folder / "study.toml").read_text(), []
    start, end = re.findall(r"```toml\n((?:aggregation|\[identities\]).*?)```", PAGE, re.DOTALL)
    for name in HOSPITALS:
        ((_, *words),) = commands("identity")
        assert main([*(word.replace("north", name) for word in words), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        marks.append(told["fingerprint"])
        end = re.sub(
            f'("{name.capitalize()} hospital" = )"[0-9a-f]*"', rf'\1"{told["identity"]}"', end
        )
        path = folder / f"{name}.toml"
        lines = re.search(r"```toml\n(identity = .*?)```", PAGE, re.DOTALL)[1]
        own, limits = lines.replace("north", name).split("\n\n")
        path.write_text(f"{own}\n{path.read_text()}\n{limits.removeprefix('[limits]')}")
        assert (folder / f"{name}.pem").stat().st_mode & 0o777 == 0o600
    (folder / "study.toml").write_text(f"{start}\n{study}\n{end}")
    return marks


@pytest.mark.parametrize("summed", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_from_three_machines_to_a_result(tmp_path, monkeypatch, capsys, summed):
    examples = ROOT / "examples"
    (tmp_path / "study.toml").write_bytes(
        (examples / "federation" / "hospitals" / "study.toml").read_bytes()
    )
    for name, number in zip(HOSPITALS, "123", strict=True):
        file = f"hospital_{number}.csv"
        (tmp_path / file).write_bytes((examples / "data" / file).read_bytes())
        text = re.search(r"```toml\n(agent = .*?)```", PAGE, re.DOTALL)[1]
        text = text.replace("North", name.capitalize()).replace("hospital_1.csv", file)
        (tmp_path / f"{name}.toml").write_text(text.replace("north.db", f"{name}.db"))
    monkeypatch.chdir(tmp_path)
    marks = with_a_sum(tmp_path, capsys) if summed else []
    port = str(free_port())
    processes = Processes(tmp_path / "said")

    def run(name, words):
        assert words[0] == "tacit"
        words = [word.replace("8102", port) for word in words]
        return processes.start(name, TACIT[0], "-m", *words)

    def here(words):
        """In this process: commands that only write or look."""
        assert words[0] == "tacit"
        assert main([word.replace("8102", port) for word in words[1:]]) == 0

    try:
        for words in commands("coordinator"):
            here(words)
        for name in HOSPITALS:
            *before, join = [[w.replace("north", name) for w in ws] for ws in commands("party")]
            for words in before:
                here(words)
            said = capsys.readouterr().out
            assert all(mark in said for mark in marks)
            run(name, join)
        for words in commands("run"):
            assert run("run", words).wait(240) == 0, processes.said("run")
        assert "(1, 1e-05)-DP for all messages" in " ".join(processes.said("run").split())
        result = Result.load(tmp_path / "result")
        assert result.converged and result.privacy.certified and result.privacy.secure
        # as good as the same job in one process: one reading with the same noise
        once = tacit.solve(*_hospitals(examples), seed=1)
        assert np.linalg.norm(result.solution - once.solution) < 1.5
        if summed:
            assert (result.privacy.parties, result.privacy.colluding) == (3, 1)
            here(["tacit", "federation", "status", str(tmp_path / "kits" / "kit-coordinator")])
            assert f"whatever other parties do {ALONE}" in capsys.readouterr().out
        for name in HOSPITALS:
            kit = tmp_path / "kits" / f"kit-{name}-hospital"
            until(lambda kit=kit: (kit / "own" / "solution.npz").exists())
            with np.load(kit / "own" / "solution.npz") as own:
                np.testing.assert_array_equal(own["solution"], result.solution)
            (spent,) = Ledger(tmp_path / f"{name}.db").runs()
            assert spent["rounds_charged"] == 1 and spent["read_once"] is not summed
            assert summed is (round(spent["epsilon_alone"], 3) > 1.0)
            private = [p for p in kit.rglob("*.key") if p.stat().st_mode & 0o077]
            assert not private
            keys = [p for p in kit.rglob("*") if p.is_file() and b"PRIVATE KEY" in p.read_bytes()]
            assert {p.parent.name for p in keys} == {"tls", "startup"}  # no identity in a kit
    finally:
        processes.end()


def _hospitals(examples):
    from tacit.studies.job import load_job

    job = load_job(examples / "hospitals.toml")
    return job.problem, job.settings
