"""Folders of small runs of every kind, each made once, and copied to be changed."""

import io
import os
import shutil
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from grids import EVERYTHING

import tacit
from tacit.cli.main import main

JOB = """
[objective]
kind = "least-squares"
feature_norm = 2.0
target_bound = 1.5
normaliser = 60
record_bound = 40
[set]
kind = "box"
lower = -1.0
upper = 1.0
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[[agents]]
name = "north"
data = "north.csv"
target = "y"
[[agents]]
name = "south"
data = "south.csv"
target = "y"
"""
TABLE = "\n".join(["a,b,y", *(f"{a / 10},{a / 20},{a % 2}" for a in range(-10, 10))]) + "\n"
GRID = "power solve g.m --zones z.csv --total-epsilon 1 --total-delta 1e-5"
NOISY = "--noise-every-round --rounds 4"
# what makes a folder: once read, or noisy in every round; promised, or not
COMMANDS = {
    "job": "solve job.toml --publish --ledgers ledgers --workers 1",
    "noisy job": "solve noisy.toml --seed 31415926",
    "grid": f"{GRID} --publish --central --seed 31415926",
    "noisy grid": f"{GRID} {NOISY} --seed 31415926",
    "model": "learn t.csv --target y --agents 2 --total-epsilon 1 --range *=-1:1 --rounds 4 "
    "--seed 31415926",
    "uncertified grid": f"{GRID} {NOISY} --calibration paper --noise-on gradient --seed 31415926",
    "open grid": "power solve g.m --zones z.csv --no-noise",
    "open model": "learn t.csv --target y --agents 2 --no-noise --range *=-1:1 --rounds 4",
}


@contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Folders:
    """By the names in ``COMMANDS``."""

    def __init__(self, place):
        self.place, self.made, self.unmarked = place, {}, set()
        (place / "job.toml").write_text(JOB)
        noisy = JOB.replace("[[agents]]", "[algorithm]\nrounds = 4\n[[agents]]", 1)
        (place / "noisy.toml").write_text(noisy)
        for name in ("north.csv", "south.csv", "t.csv"):
            (place / name).write_text(TABLE)
        (place / "g.m").write_text(EVERYTHING)
        (place / "z.csv").write_text("bus,zone\n10,a\n25,b\n3,b\n")
        (place / "ledgers").mkdir()
        for name in ("north", "south"):
            tacit.Ledger.create(place / "ledgers" / f"{name}.db", 8.125, 1e-5).close()

    def __getitem__(self, name):
        """The folder of such a run; not to be changed."""
        if name not in self.made:
            out = self.place / name.replace(" ", "-")
            quiet = io.StringIO()  # it is no output of the test that asks first
            with inside(self.place), redirect_stdout(quiet), redirect_stderr(quiet):
                assert main([*COMMANDS[name].split(), "--out", str(out), "--json"]) == 0
                if name == "grid":
                    assert main(["power", "check", str(out), "--json"]) in (0, 1)
            self.made[name] = out
        return self.made[name]

    def copy(self, name, to):
        return shutil.copytree(self[name], to / "result")
