"""Agents on the ranks of a cluster: real processes under mpiexec, more of them than cores.

A process with JAX takes two seconds of a core to start, so few of them show many things.
"""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import on_ranks
import pytest
from conftest import JOB, repeat
from ranks import mpiexec, said_by_tacit

import tacit
from tacit.cli.main import main
from tacit.studies.job import load_job
from tacit.transports import mpi

HERE = Path(__file__).parent
ROUNDS = 6


def contents(path):
    """What ``on_ranks.keep`` kept, bit for bit, and the time that the run took."""
    found = dict(np.load(path))
    about = json.loads(str(found.pop("about")))
    timing = about.pop("timing")
    return {name: (v.dtype, v.tobytes()) for name, v in found.items()} | about, timing


@pytest.mark.parametrize("size", [0, 3, 4, 5, 8])
def test_the_last_piece_of_a_parcel_is_not_full(size, monkeypatch):
    """By that whoever receives it knows that it was the last."""
    monkeypatch.setattr(mpi, "PIECE", 4)
    sent = []
    line = SimpleNamespace(Send=lambda piece, rank, tag: sent.append(bytes(piece)))
    data = bytes(range(size))
    mpi._send(line, data, 1, 0)
    assert b"".join(sent) == data
    assert all(len(piece) == 4 for piece in sent[:-1]) and len(sent[-1]) < 4


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """All runs of ``on_ranks.py`` in this process."""
    folder = tmp_path_factory.mktemp("alone")
    for name in on_ranks.RUNS:
        on_ranks.keep(on_ranks.alone(name, folder), folder / f"{name}.npz")
    return folder


@pytest.mark.parametrize("ranks", repeat([2], [3, 5]))  # with 1, 3 or 4, 7 and 10 agents
def test_the_same_bits_on_any_number_of_ranks(ranks, alone, tmp_path):
    """Pictures (10 agents), case14 (3 zones), tables; noise in every round, read once, to a
    tolerance, with ledgers; and errors of one rank on all (``on_ranks.py``)."""
    for name in ("paid", "paid-once"):
        on_ranks.ledgers_of(tmp_path, name, 7)
    done = mpiexec(ranks, sys.executable, HERE / "on_ranks.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"round (\d+) of \1, \d+ s\n", done.stderr)  # of rank 0, to a tolerance
    for name in on_ranks.RUNS:
        expected, _ = contents(alone / f"{name}.npz")
        found, timing = contents(tmp_path / f"{name}.npz")
        assert {k for k in expected | found if expected.get(k) != found.get(k)} == set(), name
    assert timing["rounds"] > 3 and len(timing["ranks"]) == ranks
    parts = sum(timing[name] for name in ("compute", "transfer", "server"))
    assert parts == pytest.approx(timing["total"], rel=1e-6)
    for name, charges in (("paid", 4), ("paid-once", 1)):
        for path in (tmp_path / f"ledgers-{name}").glob("*.db"):
            (run,) = tacit.Ledger(path).runs()
            assert run["rounds_charged"] == charges


@pytest.fixture
def job(tmp_path):
    """Six agents, each with a file and a ledger."""
    rng = np.random.default_rng(0)
    (tmp_path / "ledgers").mkdir()
    text = JOB.partition("[[agents]]")[0].replace("normaliser = 60", "normaliser = 180")
    text = text.replace("rounds = 20", f"rounds = {ROUNDS}").replace("evaluate_every = 2", "")
    for i in range(6):
        X = rng.normal(size=(30, 2))
        np.savez(tmp_path / f"data-{i}.npz", features=X, targets=X @ [0.5, -0.2])
        text += f'[[agents]]\nname = "clinic {i}"\ndata = "data-{i}.npz"\n'
        tacit.Ledger.create(tmp_path / "ledgers" / f"clinic {i}.db", 10.0, 1e-3)
    (tmp_path / "job.toml").write_text(text)
    return tmp_path / "job.toml"


def test_a_killed_rank_ends_the_run_which_goes_on_elsewhere(job, tmp_path, capfd):
    """Killed for real, in the midst of a round; the rest on other numbers of ranks. Agents are
    spread as evenly as can be; every rank opens the data and ledgers of its own; a round is charged
    once."""
    paid = ["--ledgers", tmp_path / "ledgers", "--noise", "seeded"]
    command = [sys.executable, HERE / "audited.py", tmp_path, "solve"]
    ranks, killed = repeat((2, 1), (5, 3))
    done = mpiexec(
        ranks, *command, job, *paid, "--engine", "mpi", "--out", tmp_path / "r", KILL=f"{killed} 4"
    )
    (line,) = said_by_tacit(done)
    assert done.returncode != 0 and f"--resume {tmp_path / 'r'} --engine mpi" in line
    assert re.search(f"rank {killed} .* signal 9", done.stderr.replace("\n", " "))
    for rank, own in enumerate(repeat([{0, 1, 2}, {3, 4, 5}], [{0}, {1}, {2}, {3}, {4, 5}])):
        opened = (tmp_path / f"opened-{rank}").read_text()
        for kind in (r"data-(\d).npz", r"clinic(?: |%20)(\d).db"):
            assert {int(i) for i in re.findall(kind, opened)} == own
        assert (rank == 0) == ("checkpoint.npz" in opened)
    done = mpiexec(2, *command, "--resume", tmp_path / "r", "--engine", "mpi", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["round"] == ROUNDS  # one document, of one rank
    run = json.loads((tmp_path / "r" / "run.json").read_text())["run"]
    for path in (tmp_path / "ledgers").glob("*.db"):
        assert tacit.Ledger(path).charged(run) == [(t, t) for t in range(1, ROUNDS + 1)]
    # what the undisturbed run gives, under the same name: seeded noise depends on it
    for i in range(6):
        tacit.Ledger.create(tmp_path / f"clinic {i}.db", 10.0, 1e-3)
    loaded = load_job(job)
    undisturbed = tacit.solve(
        loaded.problem, loaded.settings, seed=3, run=run, noise="seeded", ledgers=tmp_path
    )
    found = tacit.Result.load(tmp_path / "r")
    for name in ("solution", "ergodic"):
        assert getattr(found, name).tobytes() == getattr(undisturbed, name).tobytes()
    pairs = zip(found.local, undisturbed.local, strict=True)
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)
    assert all((found.trace[k] == undisturbed.trace[k]).all() for k in found.trace)


def test_a_job_adds_up_on_ranks_what_it_adds_up_in_one_process(job, tmp_path, capfd):
    text = job.read_text().replace("local_updates = 2", "")
    job.write_text(f'aggregation = "sum"\ncolluding = 3\n{text}')
    line = ["solve", str(job), "--out"]
    assert main([*line, str(tmp_path / "one")]) == 0
    ranks = sys.executable, "-m", "tacit", *line, tmp_path / "many", "--engine", "mpi"
    done = mpiexec(1, *ranks)  # on more of them: on_ranks.py
    assert done.returncode == 0, done.stderr
    one, many = (tacit.Result.load(tmp_path / name) for name in ("one", "many"))
    assert one.solution.tobytes() == many.solution.tobytes()
    assert one.privacy == many.privacy and (one.privacy.parties, one.privacy.colluding) == (6, 3)


def test_what_goes_wrong_is_said_once(job, tmp_path, capfd):
    tacit_ = [sys.executable, "-m", "tacit", "solve", job, "--out", tmp_path / "r"]
    done = mpiexec(2, *tacit_)
    assert done.returncode == 2 and len(said_by_tacit(done)) == 1 and done.stdout == ""
    assert "--engine mpi" in done.stderr
    np.savez(tmp_path / "data-5.npz", features=np.ones((3, 2)), targets=[1.0, np.nan, 0.0])
    done = mpiexec(2, *tacit_, "--engine", "mpi")
    assert main(["solve", str(job), "--out", str(tmp_path / "r")]) == done.returncode == 2
    assert said_by_tacit(done) == capfd.readouterr().err.splitlines()
    assert not (tmp_path / "r").exists() and done.stdout == ""


def test_tacit_itself_does_not_need_mpi(job, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert main(["solve", str(job), "--engine", "mpi", "--out", str(tmp_path / "r")]) == 2
    assert "pip install 'tacit[mpi]'" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
