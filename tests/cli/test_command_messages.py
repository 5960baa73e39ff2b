"""What a user reads when a command cannot do what was asked: options as typed, causes in words."""

import json
import signal

import pytest

import tacit
from tacit.cli import interrupts
from tacit.cli.main import main, parse
from tacit.cli.run_folder import run_folder
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.spending import Terms


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("solve job.toml --nonsense 1", "solve"),
        ("power solve case14 --nonsense", "power solve"),
        ("learn attack digits --nonsense", "learn attack"),
        ("ledger show a.db b.db", "ledger show"),
    ],
)
def test_an_unknown_option_points_to_the_help_of_its_command(words, command, refused):
    said = refused(words)
    assert "unrecognized arguments: " in said and said.endswith(f"(tacit {command} --help)\n")


@pytest.mark.parametrize(
    "words",
    ["solve nofile.toml", "predict nofile t.csv", "power solve nofile.m --no-noise"],
)
def test_a_missing_file_is_named_in_words(words, refused):
    said = refused(words)
    assert "Errno" not in said and "Error(" not in said
    assert "No such file or directory" in said and "nofile" in said
    assert len(said.splitlines()) == 1


def test_every_missing_ledger_is_named_and_no_bar_is_drawn(job, tmp_path, refused):
    text = job.read_text().replace("seed = 3\n", "")
    job.write_text(text)
    (tmp_path / "ledgers").mkdir()
    said = refused("solve job.toml --ledgers ledgers --out r")
    assert "'north', 'south'" in said and said.startswith("tacit: ") and said.count("\n") == 1
    assert not (tmp_path / "r").exists()
    tacit.Ledger.create(tmp_path / "ledgers" / "north.db", 4.0, 1e-5)
    said = refused("solve job.toml --ledgers ledgers --out r")
    assert "Expected a ledger at ledgers/south.db" in said.replace(f"{tmp_path}/", "")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("solve job.toml --ledgers x --seed 1", "add --noise seeded"),
        ("solve job.toml --noise secure --seed 1", "no seed for secure noise, got seed 1"),
        ("solve job.toml --ledgers x --noise seeded --block 2", "--noise seeded and --block 2"),
        ("solve --resume r --ledgers x", "got --ledgers x."),
        ("solve --resume r --evaluate-every 3", "got --evaluate-every 3."),
        ("learn digits --alpha 0.1 --total-epsilon 1", "Expected --alpha for --split dirichlet"),
    ],
)
def test_options_are_named_as_they_are_typed(words, said, job, refused):
    err = refused(words)
    assert said in err and "='" not in err and "Nothing was" in err and err.count("\n") == 1


def test_an_interrupt_before_a_run_says_that_nothing_was_started(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "_hints", [])
    assert interrupts.line(signal.SIGINT) == "tacit: interrupted"
    options = parse(["solve", "job.toml", "--out", str(tmp_path / "r")])
    with run_folder("solve", options, "job", "-result"):
        assert interrupts.line(signal.SIGINT) == "tacit: interrupted; nothing was started"


def test_names_of_runs_are_not_cut(tmp_path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    name = "hospitals-of-the-north-0123456789ab"
    with tacit.Ledger.create(tmp_path / "a.db", 4.0, 1e-5) as ledger:
        ledger.begin(name, Terms("a", Gaussian(40.0), 50, 2, 1e-9, "secure", "one record", "x"))
        ledger.charge(name, 1, 5)
    cells = [
        line.split("│")[1].strip()
        for line in command("ledger", "show", tmp_path / "a.db").splitlines()
        if line.count("│") > 4
    ]
    assert name in "".join(cells)


def test_the_bar_ends_with_all_rounds_done(job, tmp_path, capsys):
    assert main(["solve", str(job), "--out", str(tmp_path / "r"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["summary"]["round"] == 20 and "20/20 rounds" in said.err
