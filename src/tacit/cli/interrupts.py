"""The process: Ctrl-C and termination in one line, status 128 + signal, at any moment; ranks.

Python would raise ``KeyboardInterrupt`` wherever it happens to be: inside the import of a C
library, which may crash, or inside a callback of a compiled program, which may swallow it. Here
nothing is raised. A thread is told of the signal by the operating system, says one line and ends
the process at once, however long the main thread computes. That is safe since whatever Tacit
writes survives the loss of power: ledgers pay first, checkpoints and ``result.json`` are replaced
in one step, and ``result.json`` comes last.

This module is imported before all others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from signal import SIG_IGN, SIGINT, SIGTERM, getsignal, set_wakeup_fd, signal
from threading import Thread
from typing import Any

# How many processes there are and which one this is, by who started them together: Open MPI; MPICH
# and Intel MPI; MVAPICH; Slurm. Known before MPI is there, and where it is not installed
VARIABLES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
WORDS: dict[int, str] = {SIGINT: "interrupted", SIGTERM: "terminated"}
_hints: list[Callable[[], str]] = []  # what to say besides; the last one counts


def launched() -> tuple[int, int]:
    """This process's rank, and the number of ranks; 0 and 1 if it is alone."""
    for size, rank in VARIABLES:
        try:
            found = int(os.environ[rank]), int(os.environ[size])
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            return found
    return 0, 1


def watch() -> None:
    """Answer SIGINT and SIGTERM in this process from now on, unless they are ignored."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in WORDS:
        if getsignal(number) != SIG_IGN:  # as for a job in the background
            signal(number, _nothing)
    set_wakeup_fd(tell, warn_on_full_buffer=False)
    Thread(target=_wait, args=(told,), daemon=True).start()


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
