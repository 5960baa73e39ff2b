"""``tacit learn --engine mpi`` with a file for each party."""

import json
import sys

import pytest
from ranks import mpiexec
from test_learn_tables import FAST, RULES, parties
from two_ranks import two_ranks

__all__ = ["parties"]  # a fixture


@pytest.mark.parametrize(
    "several",
    [False, pytest.param(True, marks=pytest.mark.exhaustive)],  # engines/test_mpi.py has such too
    ids=["one process", "several"],
)
def test_parties_on_two_ranks(parties, tmp_path, command, monkeypatch, several):
    words = ("learn", *parties, "--target", "churn", *RULES, *FAST, "--json", "--out")
    options = ("r", "--engine", "mpi", "--workers", 1)
    if several:
        done = mpiexec(2, sys.executable, "-m", "tacit", *words, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        there = json.loads(done.stdout)
    else:
        two_ranks(monkeypatch)
        there = json.loads(command(*words, *options))
    here = json.loads(command(*words, "one"))
    assert there["not_covered"] == here["not_covered"] and there["agents"] == 3
    assert there["scores"]["yes"]["coefficients"] == pytest.approx(
        here["scores"]["yes"]["coefficients"], rel=1e-9
    )
