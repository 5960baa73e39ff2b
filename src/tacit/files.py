"""Files that hold secrets: for their owner's eyes from the first moment, whole, and on the disk."""

from __future__ import annotations

import errno
import io
import os
import secrets
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

# What NumPy and JSON raise at a file that is not what it says it is: cut, changed, or made to harm
UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, MemoryError),
    *(OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error),
)


def open_private(path: str | Path) -> BinaryIO:
    """A new file to write to, mode 0600 from its creation on.

    Guarantee: whatever the umask, at no moment may anyone but the owner read what is written. What
    had the name before, a file that others may read or a link, is removed, not written to.
    """
    Path(path).unlink(missing_ok=True)
    # exclusive: nothing that someone puts there meanwhile is opened, and no link is followed
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a private file, flush it to the disk, then rename: a crash leaves the old or the new.

    The folder is flushed too, so that the new one is there after a failure of power.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open_private(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def save_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Draw first, then write a private file: a plot that fails leaves nothing."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.removeprefix("."), **options)
    write_atomically(path, drawn.getvalue())


def sync_file(path: str | Path) -> None:
    """Flush a file that is written."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: str | Path) -> None:
    """Flush the names in a folder: after this, a new file is found there in any case."""
    if os.name != "nt":  # Windows opens no folders, and has no need to
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str | Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(opened)
