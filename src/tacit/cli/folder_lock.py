"""A folder for one run at a time."""

from __future__ import annotations

import os
from pathlib import Path

from tacit.errors import InvalidInput


def locked(folder: Path) -> int | None:
    """Lock the folder until this is closed; the system unlocks it if the process dies."""
    if os.name == "nt":
        return None
    import fcntl

    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock), os.stat(folder)):
                raise BlockingIOError  # removed by a run that was refused, and made again
        except BaseException:
            os.close(lock)
            raise
    except BlockingIOError:
        raise InvalidInput(
            f"Another run is writing to {folder}: wait for it or choose another --out. Nothing was "
            "started."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"Expected to lock {folder}: {error.strerror}. Nothing was started."
        ) from None
    return lock
