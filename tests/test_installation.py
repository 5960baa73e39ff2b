"""A core-only installation names the extra to install."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tacit.cli.main import EXTRAS, main

ASKED = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
ASKED = ASKED["project"]["optional-dependencies"]
COMES_WITH = {"sklearn": "scikit-learn", "psutil": "nvflare"}
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from tacit.cli.main import main
for command in {commands!r}:
    print(command, "|", main(command.split()))
"""
COMMANDS = (
    "learn digits --total-epsilon 1 --rounds 1",
    "learn t.csv --target y --total-epsilon 1 --range *=-1:1",
    "learn attack digits --records 1",
    "predict absent t.csv",
    "power solve case14 --total-epsilon 1 --total-delta 1e-5",
    "power solve g.m --total-epsilon 1 --total-delta 1e-5",
    "power bound case14",
    "power attack case14",
    "audit digits --trials 100",
    "audit case14 --trials 100",
    "reproduce case14",
    "demo",
)


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch, capsys):
    def missing(options):
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")

    command = argparse.Namespace(command=missing)
    monkeypatch.setattr("tacit.cli.main.parse", lambda words: command)
    assert main(["account"]) == 2
    extra = re.search(r"pip install 'tacit\[(\w+)]'", capsys.readouterr().err)[1]
    asked = {Requirement(text).name for text in ASKED[extra]}
    assert COMES_WITH.get(package, package) in asked


def test_a_core_only_installation_answers_in_one_line(tmp_path):
    """All packages of all extras away, in a process of its own, every command."""
    (tmp_path / "t.csv").write_text("a,y\n0.1,0\n0.2,1\n0.3,0\n0.4,1\n0.5,0\n0.6,1\n")
    (tmp_path / "g.m").write_text("mpc.bus = [\n];\n")
    code = ABSENT.format(packages={*EXTRAS, "pandapower", "casadi"}, commands=COMMANDS)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [f"{command} | 2" for command in COMMANDS], done
    said = [line for line in done.stderr.splitlines() if line.startswith("tacit:")]
    assert len(said) == len(COMMANDS) and "Traceback" not in done.stderr
    assert all("pip install 'tacit[" in line for line in said), said
