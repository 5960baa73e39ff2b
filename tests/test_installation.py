"""A core-only installation names the extra to install."""

import importlib.abc
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.cli.main import EXTRAS, main

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
# each with the packages without which it cannot run
COMMANDS = {
    "learn digits --total-epsilon 1 --rounds 1": {"sklearn"},
    "learn t.csv --target y --total-epsilon 1 --range *=-1:1": {"sklearn", "pandas"},
    "learn attack digits --records 1": {"sklearn", "threadpoolctl"},
    "predict absent t.csv": {"sklearn"},
    "power solve case14 --total-epsilon 1 --total-delta 1e-5": {"pandas", "pypower", "pymetis"},
    "power solve g.m --total-epsilon 1 --total-delta 1e-5": {"matpowercaseframes"},
    "power bound case14": {"pandas", "pypower"},
    "power attack case14": {"pandas", "pypower"},
    "audit digits --trials 100": {"sklearn"},
    "audit case14 --trials 100": {"pandas", "pypower"},
    "reproduce case14": {"pandas", "pypower"},
    "demo": {"sklearn"},
}


class Blocked(importlib.abc.MetaPathFinder):
    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,y\n0.1,0\n0.2,1\n0.3,0\n0.4,1\n0.5,0\n0.6,1\n")
    Path("g.m").write_text("mpc.bus = [\n];\n")
    return tmp_path


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_is_named_with_its_extra(folder, monkeypatch, capsys, package):
    for command, needed in COMMANDS.items():
        if package not in needed:
            continue
        for name in [n for n in sys.modules if n.partition(".")[0] in (package, "tacit")]:
            if name.startswith(("tacit.lab", "tacit.learn", "tacit.power", package)):
                monkeypatch.delitem(sys.modules, name)
        for name in ("lab", "learn", "power"):  # or tacit would keep those that are imported anew
            monkeypatch.setattr(tacit, name, getattr(tacit, name))
        monkeypatch.setattr(sys, "meta_path", [Blocked({package}), *sys.meta_path])
        status = main([*command.split(), *(["--out", "o"] if command == "demo" else [])])
        monkeypatch.undo()
        monkeypatch.chdir(folder)
        said = [x for x in capsys.readouterr().err.splitlines() if x.startswith("tacit:")]
        assert status == 2 and len(said) == 1, (command, said)
        assert "pip install 'tacit[" in said[0], (command, said)


def test_a_core_only_installation_answers_in_one_line(folder):
    """All packages of all extras away, in a process of its own, every command."""
    packages = {*EXTRAS, "pandapower", "casadi"}
    code = BLOCK.format(packages=packages)
    code += "from tacit.cli.main import main\n"
    code += f"for command in {list(COMMANDS)!r}:\n    print(command, '|', main(command.split()))\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stdout.splitlines() == [f"{command} | 2" for command in COMMANDS], done
    said = [line for line in done.stderr.splitlines() if line.startswith("tacit:")]
    assert len(said) == len(COMMANDS) and "Traceback" not in done.stderr
    assert all("pip install 'tacit[" in line for line in said), said
