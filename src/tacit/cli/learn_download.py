"""The command ``tacit learn download``: MNIST, checked."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tacit.cli.console import progress_bar
from tacit.cli.options import Add
from tacit.errors import InvalidInput


def add_download(add: Add) -> None:
    download = add(
        "learn download",
        _download,
        "Get MNIST's files; an earlier attempt is continued.",
        "tacit learn download mnist-data",
    )
    download.add_argument("folder", nargs="?", metavar="DIR", help="folder to put the files in")
    download.add_argument("--data", metavar="DIR", help="the same")


def _download(options: argparse.Namespace) -> int:
    from tacit.learn.data import download_mnist

    if (options.folder is None) == (options.data is None):
        raise InvalidInput("Expected DIR, the folder to put MNIST in, once.")
    with progress_bar("bytes") as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        folder = download_mnist(options.folder or options.data, progress=show)
    print(json.dumps({"folder": str(folder)}) if options.json else f"files: {folder}")
    return 0
