"""The engine's process at a party: ``python -P -m tacit.transports.nvflare.site KIT``, as ``join``
does once it has written the engine's folder."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tacit.errors import TacitError, plain
from tacit.files import open_private
from tacit.transports.nvflare.guard import guard_site
from tacit.transports.nvflare.kit import ORGANISATION, Kit

EVERY = 5.0  # seconds between lines about rounds


def main(folder: str) -> int:
    kit = Kit.load(folder).expect("party")
    with kit.held():
        return _take_part(kit)


def _take_part(kit: Kit) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    os.umask(0o077)
    ours = os.dup(1)
    _to_file(kit.engine / "output.txt")  # what the engine prints
    threading.Thread(target=_tell, args=(kit.log, ours), daemon=True).start()
    from nvflare.fuel.f3.mpm import MainProcessMonitor
    from nvflare.private.fed.app.client import client_train

    guard_site()
    options = argparse.Namespace(
        workspace=str(kit.engine),
        fed_client="fed_client.json",
        set=["secure_train=true", f"uid={kit.site}", f"org={ORGANISATION}", "config_folder=config"],
        local_rank=0,
    )
    code = MainProcessMonitor.run(client_train.main, run_dir=str(kit.engine), args=options)
    os.write(ours, b"tacit: the engine has ended; see engine/log.txt in the kit\n")
    return int(code or 1)


def _leave(number: int, frame: Any) -> None:
    """At once: what was paid for is in the ledger. The job's process sees it, and ends too."""
    os._exit(0 if number == signal.SIGTERM else 128 + number)


def _to_file(path: Path) -> None:
    with open_private(path) as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)


def _tell(log: Path, to: int) -> None:
    """The party's own log, as it grows, in words; of rounds only some."""
    place, said = log.stat().st_size if log.exists() else 0, 0.0
    while True:
        time.sleep(0.5)
        if not log.exists() or log.stat().st_size <= place:
            continue
        with open(log, "rb") as file:
            file.seek(place)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            place += len(line)
            words = plain(str(json.loads(line).get("words")), "")
            if "answered round" not in words or time.monotonic() - said > EVERY:
                said = time.monotonic() if "answered round" in words else said
                os.write(to, f"{words}\n".encode())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except TacitError as error:
        sys.exit(f"tacit: {plain(str(error))}")
