"""What commands say while they run."""

import time

from tacit.cli import console


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(console, "EVERY", 0.02)
    where = "before"
    with console.lines_now_and_then(lambda: where):
        time.sleep(0.1)
        where = "round 2 of at most 9"
        time.sleep(0.1)
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert lines[0].startswith("before, ") and lines[-1].startswith("round 2 of at most 9, ")
    assert said.out == ""
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_and_no_lines(monkeypatch, capsys):
    monkeypatch.setattr(console, "EVERY", 0.02)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with console.lines_now_and_then(lambda: "here"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
