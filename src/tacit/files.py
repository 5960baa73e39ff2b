"""Files that hold secrets: for their owner's eyes from the first moment, whole, and on the disk."""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tacit.errors import InvalidInput


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
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        # such as a full disk, which names no file
        raise OSError(error.errno, f"{error.strerror}; not written", str(path)) from None
    sync_folder(path.parent)


@contextmanager
def locked(path: str | Path, refusal: str) -> Iterator[None]:
    """Hold a file or folder for this process alone; the operating system lets go if it dies."""
    if os.name == "nt":  # where no folder can be opened
        yield
        return
    import fcntl

    opened = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(opened), os.stat(path)):
                raise BlockingIOError  # removed by who held it, and made again
        except BlockingIOError:
            raise InvalidInput(refusal, "Nothing was started.") from None
        yield
    finally:
        os.close(opened)


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


def mount_points() -> set[str]:
    """Paths at which something is mounted here, files too; none where the system does not say."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as table:
            points = [line.split(" ")[4] for line in table]
    except OSError:
        return set()
    return {re.sub(r"\\([0-7]{3})", lambda c: chr(int(c[1], 8)), point) for point in points}
