"""What a user reads when a command cannot do what was asked: options as typed, causes in words."""

import time

import pytest

import tacit
from tacit.cli import console
from tacit.cli.main import parse
from tacit.cli.run_folder import run_folder


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
    assert words.split()[-1] in said and said.endswith(f"(tacit {command} --help)\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("solve nofile.toml", "nofile"),
        ("predict nofile t.csv", "nofile"),
        ("power solve nofile.m --no-noise", "nofile"),
        ("solve job.toml --ledgers x --seed 1", "--noise seeded"),
        ("solve job.toml --noise secure --seed 1", "seed 1"),
        ("solve --resume r --ledgers x", "--ledgers x."),
        ("solve --resume r --evaluate-every 3", "--evaluate-every 3."),
        ("learn digits --alpha 0.1 --total-epsilon 1", "--split dirichlet"),
    ],
)
def test_options_and_files_are_named_as_they_are_typed(words, said, job, refused):
    err = refused(words)
    assert said in err and err.count("\n") == 1
    assert "='" not in err and "Errno" not in err and "Error(" not in err


def test_every_missing_ledger_is_named_and_no_bar_is_drawn(job, tmp_path, refused):
    job.write_text(job.read_text().replace("seed = 3\n", ""))
    (tmp_path / "ledgers").mkdir()
    said = refused("solve job.toml --ledgers ledgers --out r")
    assert "'north', 'south'" in said and said.startswith("tacit: ") and said.count("\n") == 1
    assert not (tmp_path / "r").exists()
    tacit.Ledger.create(tmp_path / "ledgers" / "north.db", 4.0, 1e-5)
    said = refused("solve job.toml --ledgers ledgers --out r")
    assert "ledgers/south.db" in said and said.count("\n") == 1


def test_an_interrupt_before_a_run_says_that_nothing_was_started(tmp_path):
    options = parse(["solve", "job.toml", "--out", str(tmp_path / "r")])
    with run_folder("solve", options, "-result"):
        assert "nothing" in console.hints[-1]()


# --- while a command runs ---------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_now_and_then_where_there_is_no_terminal(terminal, monkeypatch, capsys):
    monkeypatch.setattr(console, "EVERY", 0.02)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    where = "before"
    with console.lines_now_and_then(lambda: where):
        time.sleep(0.1)
        where = "round 2"
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in (lines[:1] + lines[-1:])] == (
        [] if terminal else ["before", "round 2"]
    )
    time.sleep(0.05)
    assert capsys.readouterr().err == ""
