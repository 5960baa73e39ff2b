"""The process of the command ``tacit``: Ctrl-C and termination end it at once, with one line.

Python would raise ``KeyboardInterrupt`` only once a compiled program is done, or inside one of its
callbacks, which may swallow it. Here a thread hears of the signal, says one line and ends the
process. That is safe since whatever Tacit writes survives the loss of power: ledgers pay first,
checkpoints and ``result.json`` are replaced in one step, and ``result.json`` comes last.
"""

from __future__ import annotations

import gc
import os
import sys
from signal import SIG_IGN, SIGINT, SIGTERM, getsignal, set_wakeup_fd, signal
from threading import Thread

from tacit.cli.console import hints, launched

WORDS: dict[int, str] = {SIGINT: "interrupted", SIGTERM: "terminated"}
PIPE_CLOSED = 141  # as of a program that SIGPIPE ended
# Most of what a command makes are modules and programs, which stay: to look through them for
# garbage again and again took a tenth of its time.
NEW_OBJECTS = 50_000  # between two looks


def main() -> int:
    """Run the command of this process and return its status."""
    watch()
    gc.set_threshold(NEW_OBJECTS)
    from tacit.cli.main import main as run

    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except OSError as error:  # of standard output: such as | head, or a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        print(f"tacit: {error.strerror}: standard output was not all written", file=sys.stderr)
        return 1


def watch() -> None:
    """Answer SIGINT and SIGTERM in this process from now on, unless they are ignored."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in WORDS:
        if getsignal(number) != SIG_IGN:  # as for a job in the background
            signal(number, lambda *_: None)  # the thread has been told
    set_wakeup_fd(tell, warn_on_full_buffer=False)
    Thread(target=_wait, args=(told,), daemon=True).start()


def _wait(told: int) -> None:
    while (number := os.read(told, 1)[0]) not in WORDS:
        pass
    try:
        if launched()[0] == 0:  # of several, one speaks
            try:
                more = hints[-1]() if hints else ""
            except OSError:
                more = ""
            shown = "\n\x1b[?25h" if os.isatty(2) else ""  # below a progress bar; cursor on
            line = f"{shown}tacit: {WORDS[number]}{more and '; '}{more}\n"
            os.write(2, line.encode(errors="replace"))
        processes = sys.modules.get("multiprocessing")  # it may just be on its way in
        for child in getattr(processes, "active_children", list)():
            child.kill()
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
