"""Ctrl-C and termination of the command ``tacit``: one line, status 128 + signal, at any moment.

Python would raise ``KeyboardInterrupt`` wherever it happens to be: inside the import of a C
library, which may crash, or inside a callback of a compiled program, which may swallow it. Here
nothing is raised. A thread is told of the signal by the operating system, says one line and ends
the process at once, however long the main thread computes. That is safe since whatever Tacit
writes survives the loss of power: ledgers pay first, checkpoints and ``result.json`` are replaced
in one step, and ``result.json`` comes last.

This module is imported before all others and must stay light: ``_signal`` is built in, while
``signal`` takes ten times as long as all of this.
"""

from __future__ import annotations

import os
import sys
from _signal import (  # type: ignore[import-not-found]
    SIG_IGN,
    SIGINT,
    SIGTERM,
    getsignal,
    set_wakeup_fd,
    signal,
)
from _thread import start_new_thread

from tacit.cli.launched import launched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WORDS = {SIGINT: "interrupted", SIGTERM: "terminated"}
_hints: list[Callable[[], str]] = []  # what to say besides; the last one counts


def watch() -> None:
    """Answer SIGINT and SIGTERM in this process from now on, unless they are ignored."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in WORDS:
        if getsignal(number) != SIG_IGN:  # as for a job in the background
            signal(number, _nothing)
    set_wakeup_fd(tell, warn_on_full_buffer=False)
    start_new_thread(_wait, (told,))


def ignore() -> None:
    """All is done: from here on Python only clears away, and would die of a signal."""
    for number in WORDS:
        signal(number, SIG_IGN)


def hint(words: Callable[[], str]) -> None:
    """What an interrupt says from now on besides "interrupted"; asked when it comes."""
    _hints.append(words)


def line(number: int) -> str:
    """The one line."""
    try:
        more = _hints[-1]() if _hints else ""
    except OSError:
        more = ""
    several = number == SIGTERM and launched()[1] > 1
    words = WORDS[number] + (", by hand or because another rank ended" if several else "")
    return f"tacit: {words}{more and '; '}{more}"


def _nothing(number: int, frame: object) -> None:
    """In place of Python's own handler. The thread has been told."""


def _wait(told: int) -> None:
    while True:
        number = os.read(told, 1)[0]
        if number in WORDS:
            _end(number)


def _end(number: int) -> None:
    try:
        if launched()[0] == 0:  # of several, one speaks
            shown = b"\n\x1b[?25h" if os.isatty(2) else b""  # below a progress bar; cursor on
            os.write(2, shown + line(number).encode() + b"\n")
        for child in _children():
            child.kill()
    finally:
        os._exit(128 + number)


def _children() -> list[Any]:
    processes = sys.modules.get("multiprocessing")
    known = getattr(processes, "active_children", list)  # it may just be on its way in
    return list(known())
