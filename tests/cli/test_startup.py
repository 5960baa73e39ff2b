"""Commands that do not compute do not wait for JAX, nor for other large packages."""

import json
import subprocess
import sys

import pytest

from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.spending import Terms

LARGE = {
    *("jax", "jaxlib", "dp_accounting", "matplotlib", "scipy.optimize", "scipy.stats", "sklearn"),
    *("jinja2", "reportlab"),
}


def loaded(arguments):
    """What a process has imported when a command is done."""
    program = (
        "import sys, json, tacit.cli.main as cli\n"
        "try: code = cli.main(sys.argv[1:])\n"
        "except SystemExit as stop: code = stop.code\n"
        "print(json.dumps([code, sorted(sys.modules)]))"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize(
    "command",
    ["", "solve", "power solve", "learn", "audit", "reproduce", "report", "sheet"],
)
def test_help_computes_nothing(command):
    assert not loaded([*command.split(), "--help"]) & {*LARGE, "numpy", "scipy"}


@pytest.mark.parametrize(
    "budget",
    [
        "--epsilon 0.1 --delta 1e-6",
        "--total-epsilon 1 --total-delta 1e-5",
        "--noise-multiplier 40 --delta 1e-5 --json",
        "--mechanism laplace --epsilon 0.01",
    ],
)
def test_accounts_of_a_formula(budget):
    assert not loaded(f"account --updates 1500 {budget}".split()) & LARGE


def test_accounts_of_laplace_noise_need_a_grid_but_not_jax():
    budget = ["--mechanism", "laplace", "--epsilon", "0.01", "--delta", "1e-6"]
    modules = loaded(["account", "--updates", "1500", *budget])
    assert "dp_accounting" in modules and "jax" not in modules


def test_ledgers(tmp_path):
    path = str(tmp_path / "agent.db")
    budget = ["--total-epsilon", "4", "--total-delta", "1e-5"]
    for command in (
        ["budget", path, *budget],  # made
        ["show", path],
        ["show", path, "--json"],
        ["backup", path, str(tmp_path / "copy.db")],
    ):
        assert not loaded(["ledger", *command]) & LARGE, command
    with Ledger(path) as ledger:
        terms = Terms("a", Gaussian(40.0), 50, 2, 1e-9, "secure", "one record", "digest")
        ledger.begin("winter", terms)
        ledger.charge("winter", 1, 5)
    for command in (["show", path], ["budget", path, *budget]):
        assert not loaded(["ledger", *command]) & LARGE, command
