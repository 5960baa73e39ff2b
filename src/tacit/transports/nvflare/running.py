"""The coordinator's command: a study from wherever it stands to its result, through losses.

    server ─▶ all parties there ─▶ job ─▶ finished, or: a site was lost ─▶ once more

A job of the engine ends when one of its processes does. The study does not: its state is in the
kit and in the parties' ledgers, so another job goes on where the last one was.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import CorruptFile, EngineFailure, Refused
from tacit.reading import read_json
from tacit.transports.nvflare.kit import Kit
from tacit.transports.nvflare.server import EngineServer

log = logging.getLogger("tacit.run")
OUTCOME = "outcome.json"
LOOK = 0.5  # seconds between looks at a running job
ASK = 2.0  # seconds between questions to the server


class NotNow(Refused):
    """The study is paused: what is missing, and that nothing is lost."""


class Watch(Protocol):
    """What a run tells whoever watches it; ``tell`` takes a line, ``show`` a status."""

    def tell(self, words: str) -> None: ...
    def show(self, status: dict[str, Any]) -> None: ...


def run(kit: Kit, patience: float, watch: Watch, server: EngineServer) -> None:
    """Until the result is in the kit; ``NotNow`` or another error if it cannot be now.

    patience   seconds that a missing party is waited for
    """
    since = time.monotonic()  # of the last progress
    last = -1
    while not (kit.run / "result.json").exists():
        server.start()
        wait_for_all(kit, since + patience, watch, server)
        job = submitted(server, since + patience)
        log.info("A job was submitted.", extra={"job": job})
        outcome = attend(kit, job, watch, server)
        state = outcome["state"]
        log.info("The job has ended: %s.", state, extra={"job": job})
        if state == "paused":
            raise NotNow(outcome["words"])
        if state in ("failed", "refused"):
            raise EngineFailure(outcome["words"])
        done = status_of(kit).get("round", 0)
        if done > last:
            last, since = done, time.monotonic()
        if state != "finished":
            watch.tell(f"{outcome['words']} Going on when all are there.")
            if time.monotonic() > since + patience:
                raise NotNow(f"{outcome['words']} Nothing is lost.")


def wait_for_all(kit: Kit, end: float, watch: Watch, server: EngineServer) -> None:
    """Until every party is connected; says who is and who is not whenever that changes."""
    told: list[str] | None = None
    while True:
        try:
            there = server.parties()
        except EngineFailure:
            if server.alive() or time.monotonic() > end:
                raise
            server.start()
            continue
        missing = [name for name in kit.agents if name not in there]
        if not missing:
            return
        if told != missing:
            told = missing
            here = f"There: {', '.join(there)}. " if there else ""
            watch.tell(f"{here}Waiting for {', '.join(missing)} at {kit.server}.")
        if time.monotonic() > end:
            raise NotNow(
                f"The study is paused: {', '.join(missing)} did not come. Nothing is lost."
            )
        time.sleep(LOOK)


def submitted(server: EngineServer, end: float) -> str:
    while True:
        try:
            return server.submit()
        except EngineFailure:
            if time.monotonic() > end:
                raise
            server.start()


def attend(kit: Kit, job: str, watch: Watch, server: EngineServer) -> dict[str, Any]:
    """Show how a job goes, until it has ended; what came of it."""
    asked = time.monotonic()
    while True:
        watch.show(status_of(kit))
        if (found := outcome_of(kit, job)) is not None:
            return found
        if not server.alive():
            return {"state": "lost", "words": "The engine's server was lost."}
        if time.monotonic() - asked > ASK:
            asked = time.monotonic()
            if (ended := _ended(job, server)) is not None:
                time.sleep(LOOK)
                return outcome_of(kit, job) or ended
        time.sleep(LOOK)


def _ended(job: str, server: EngineServer) -> dict[str, Any] | None:
    """What the engine says of a job that it ended by itself."""
    try:
        state, detail = server.state(job)
        if state.startswith("FINISHED") and not detail:  # it comes a moment later
            time.sleep(LOOK)
            state, detail = server.state(job)
    except EngineFailure:
        return None  # the next look finds the server gone, or there again
    if not state.startswith("FINISHED"):
        return None
    if state == "FINISHED:FAILED_TO_RUN":
        return {"state": "refused", "words": f"The job was refused: {detail or state}."}
    return {"state": "lost", "words": "A site was lost."}


def status_of(kit: Kit) -> dict[str, Any]:
    return _read(kit.run / "status.json")


def outcome_of(kit: Kit, job: str) -> dict[str, Any] | None:
    """What came of this job, if it has ended."""
    found = _read(kit.folder / OUTCOME)
    return found if found.get("job") == job else None


def _read(path: Path) -> dict[str, Any]:
    with suppress(CorruptFile):
        return read_json(path)
    return {}
