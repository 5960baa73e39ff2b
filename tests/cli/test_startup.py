"""Commands that do not compute do not wait for JAX, nor for other large packages."""

import json
import subprocess
import sys

from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.mechanisms import Gaussian

LARGE = {
    *("jax", "jaxlib", "dp_accounting", "matplotlib", "scipy.stats", "sklearn"),
    *("jinja2", "reportlab"),
}


def loaded(*commands):
    """What one process has imported when these commands are done."""
    program = (
        "import sys, json, tacit.cli.main as cli\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    try: code = cli.main(command)\n"
        "    except SystemExit as stop: code = stop.code\n"
        "    assert code == 0, command\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    command = [sys.executable, "-c", program, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_computes_nothing():
    commands = ("", "solve", "power solve", "learn", "audit", "reproduce", "report", "sheet")
    helped = loaded(*([*command.split(), "--help"] for command in commands))
    assert not helped & {*LARGE, "numpy", "scipy"}


def test_accounts_and_ledgers(tmp_path):
    budgets = (
        "--epsilon 0.1 --delta 1e-6",
        "--total-epsilon 1 --total-delta 1e-5",
        "--noise-multiplier 40 --delta 1e-5 --json",
        "--mechanism laplace --epsilon 0.01",
    )
    path, new = str(tmp_path / "agent.db"), str(tmp_path / "new.db")
    budget = ["--total-epsilon", "4", "--total-delta", "1e-5"]
    with Ledger.create(path, 4.0, 1e-5) as ledger:
        terms = Terms("a", Gaussian(40.0), 50, 2, 1e-9, "secure", "one record", "digest")
        ledger.begin("winter", terms)
        ledger.charge("winter", 1, 5)
    commands = [["budget", new, *budget], ["show", new], ["show", path], ["show", path, "--json"]]
    commands += [["budget", path, *budget], ["backup", path, str(tmp_path / "copy.db")]]
    accounts = [f"account --updates 1500 {b}".split() for b in budgets]
    assert not loaded(*accounts, *(["ledger", *command] for command in commands)) & LARGE
    grid = loaded(f"account --updates 1500 {budgets[-1]} --delta 1e-6".split())
    assert "dp_accounting" in grid and "jax" not in grid
