"""Files that travel with a study: beside study.toml, or in folders below it, and nowhere else."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from tacit.errors import InvalidInput, shown
from tacit.reading import read_bytes, reading


def public_name(name: Any, key: str) -> str:
    """The name of a file that travels, with / between folders, as it is written in the study.

    Guarantee: it names a place below the study's folder on any system. So a study that a
    coordinator hands out makes a party read no file of its own.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"Expected the name of a file as {key}, got {shown(name)}.")
    parts = PurePosixPath(name).parts
    plain = not any(c in '\\:*?"<>|' or ord(c) < 32 for c in name)
    if not plain or name.startswith("/") or ".." in parts or str(PurePosixPath(*parts)) != name:
        raise InvalidInput(
            f"Expected as {key} a file that travels with the study: a plain name, such as "
            f"'set.npz', in the study's folder or below it, got {shown(name)}."
        )
    return name


def read_public(folder: Path, name: str) -> bytes:
    """What is in a file that travels; links that lead out of the folder are refused."""
    path = folder / name
    with reading(path, "a public file of the study", own=False):
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise InvalidInput(
                f"Expected {name} in the folder of the study, got a link to another place."
            )
        return read_bytes(path)
