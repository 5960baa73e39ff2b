"""The process of the command ``tacit``; interrupts are answered before anything is imported."""

from __future__ import annotations

import gc
import os
import sys

from tacit.cli.interrupts import ignore, watch

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
            ignore()
    except OSError as error:  # of standard output: such as | head, or a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        print(f"tacit: {error.strerror}: standard output was not all written", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
