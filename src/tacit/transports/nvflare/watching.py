"""Where a study is, from what its processes have written, and from its server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tacit.errors import CorruptFile, EngineFailure
from tacit.reading import parse_json, read_text, reading
from tacit.transports.nvflare.kit import Kit
from tacit.transports.nvflare.running import status_of
from tacit.transports.nvflare.server import EngineServer, reachable

LAST = 5  # lines of a party's log


def state_of(kit: Kit) -> dict[str, Any]:
    """For people and programs: the same keys for a coordinator, and those for a party."""
    if kit.role == "party":
        return _of_party(kit)
    status, server = status_of(kit), EngineServer(kit)
    there = None
    if server.alive():
        try:
            there = server.parties()
        except EngineFailure:
            pass
        finally:
            server.close()
    finished = (kit.run / "result.json").exists()
    running = server.alive() and status.get("stage") not in (None, "finished", "paused")
    return {
        "study": kit.study,
        "stage": "finished" if finished else status.get("stage", "not begun"),
        "running": running and not finished,
        "server": f"{kit.server}{'' if server.alive() else ', not running'}",
        "there": there,
        "missing": None if there is None else [n for n in kit.agents if n not in there],
        "run": status.get("run"),
        "round": status.get("round"),
        "rounds": status.get("rounds"),
        "waiting": [] if finished else status.get("waiting", []),
        "since": status.get("since"),
        "why": status.get("why") or {},
        "result": str(kit.run) if finished else None,
    }


def _of_party(kit: Kit) -> dict[str, Any]:
    log: list[str] = []
    with suppress(CorruptFile), reading(kit.log, "a log"):
        lines = [parse_json(line) for line in read_text(kit.log).splitlines()[-LAST:]]
        log = [f"{line.get('time')} {line.get('words')}" for line in lines]
    reached = reachable(kit)
    return {
        "study": kit.study,
        "party": kit.agent,
        "server": f"{kit.server}{'' if reached else ', cannot be reached'}",
        "own part": str(kit.folder / "own") if (kit.folder / "own").is_dir() else None,
        "log": log,
    }
