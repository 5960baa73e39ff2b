"""MNIST from a public mirror: checked, and resumed where an earlier attempt broke off."""

from __future__ import annotations

import gzip
import hashlib
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tacit.errors import CorruptFile

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
# SHA-256 of the files without compression, which the mirrors do not all compress alike.
FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
PIECE = 1 << 16


def download_mnist(
    folder: str | Path,
    mirror: str = MIRROR,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Path:
    """Get what is missing of MNIST's four files into ``folder``.

    A file has its name only once its checksum is right; until then it ends in ``.part``, and the
    next attempt continues from there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, digest in FILES.items():
        path = folder / f"{name}.gz"
        if path.exists() and _digest(path) == digest:
            continue
        part = folder / f"{name}.gz.part"
        try:
            _fetch(f"{mirror}/{name}.gz", part, partial(progress, name))
        except (urllib.error.URLError, OSError) as error:
            raise CorruptFile(
                f"Expected {name}.gz from {mirror}: {error}. What arrived is kept; try again."
            ) from None
        if _digest(part) != digest:
            part.unlink()
            raise CorruptFile(
                f"Expected {name} with SHA-256 {digest[:12]}..., got other content. It was removed."
            )
        part.replace(path)
    return folder


def _fetch(url: str, part: Path, progress: Callable[[int, int], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: the checksum decides
            return
        raise
    with answer:
        if answer.status != 206:  # the server sends the whole file
            have = 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        with open(part, "ab" if have else "wb") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
                have += len(piece)
                progress(have, total)
    if total and have < total:
        raise OSError(f"the connection broke off after {have} of {total} bytes")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except (OSError, EOFError, zlib.error):
        return ""
    return digest.hexdigest()
