"""Logs of a study: one JSON document per line, in the kit of whoever writes it.

What a process says about itself: stages, rounds, names, codes. No data, no messages, no noise.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

FIELDS = ("party", "run", "round", "rounds", "stage", "waiting", "seconds", "job", "code")


class JsonLines(logging.Handler):
    """Appends to a private file. A log that cannot be written stops nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "source": record.name,
            "words": record.getMessage(),
            **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
        }
        try:
            line = json.dumps(said, default=str).encode() + b"\n"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            file = os.open(self.path, flags, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            pass  # such as a full disk: what matters is in ledgers and checkpoints


def log_to(path: Path) -> logging.Logger:
    """Our logger, which writes here and nowhere else: the engine's logs hold nothing of ours."""
    logger = logging.getLogger("tacit")
    for handler in [h for h in logger.handlers if isinstance(h, JsonLines)]:
        logger.removeHandler(handler)
    logger.addHandler(JsonLines(path))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger
