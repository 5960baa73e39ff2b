"""Where a study is: the state to go on from, and a status for people and programs."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.files import write_atomically
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.messages import Facts
from tacit.reading import parse_json, read_npz, reading, typed
from tacit.studies.study import Study

FORMAT, STATE, STATUS = 1, "state.npz", "status.json"


@dataclass(frozen=True)
class State:
    """A run in progress: its name, what was agreed on, and the server's numbers after a round.

    All of it follows from public numbers and from replies; there is no key and no data in it.
    """

    folder: Path
    run: str
    agreed: dict[str, Any]
    round: int = 0
    arrays: dict[str, Vector] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)  # how often a party's round did

    @classmethod
    def begun(
        cls,
        folder: Path,
        study: Study,
        settings: Settings,
        law: tuple[Mechanism, float] | None,
        facts: Sequence[Facts],
    ) -> State:
        """The state in the folder if it is of this run, or a new one, written there.

        A run that goes on must be the one that was agreed on: what differs is named.
        """
        agreed = {
            "study": study.digest,
            "settings": settings.to_dict(),
            "reading": None if law is None else [law[0].to_dict(), law[1]],
            **{f"facts of {own.agent}": _digest(own) for own in facts},
        }
        agreed = json.loads(json.dumps(agreed))
        if (folder / STATE).exists():
            found = cls.load(folder)
            differing = [key for key in agreed if found.agreed.get(key) != agreed[key]]
            if differing:
                raise InvalidInput(
                    f"Expected to go on with run {found.run!r} in {folder}, but since it began the "
                    f"{differing[0]} changed. Give it back, or choose another --out: a new run is "
                    "charged anew. Nothing was sent."
                )
            return found
        name = study.name
        if study.rehearsal is None:  # of a rehearsal it decides the noise
            name = f"{name}-{secrets.token_hex(6)}"
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, name, agreed).after(0, {})

    def after(self, round: int, arrays: Mapping[str, Vector]) -> State:
        """The state after a round, on the disk when this returns."""
        now = replace(self, round=round, arrays=dict(arrays))
        header = {"format": FORMAT, "run": now.run, "agreed": now.agreed, "round": round}
        header["failed"] = now.failed
        content, held = io.BytesIO(), dict[str, Any](arrays)
        np.savez(content, header=np.array(json.dumps(header)), **held)
        write_atomically(self.folder / STATE, content.getvalue())
        return now

    def with_failures(self, parties: Sequence[str]) -> State:
        """These parties computed a round in vain, and will pay for it again; on the disk too."""
        failed = {name: self.failed.get(name, 0) + 1 for name in parties}
        return replace(self, failed={**self.failed, **failed}).after(self.round, self.arrays)

    @classmethod
    def load(cls, folder: Path) -> State:
        path = folder / STATE
        what = "the state of a study"
        with reading(path, what, "Nothing was sent."):
            arrays = read_npz(path, what)
            header = parse_json(str(arrays.pop("header")))
            if header["format"] != FORMAT:
                raise InvalidInput("another version")
            if header["round"] and set(arrays) != {"z", "λ", "total", "trace"}:
                raise InvalidInput("other arrays")
            about = header["run"], header["agreed"], header["round"]
            return typed(cls(folder, *about, arrays, header.get("failed", {})))

    @staticmethod
    def remove(folder: Path) -> None:
        (folder / STATE).unlink(missing_ok=True)


class Status:
    """What a study is doing, in status.json and to whoever listens: each time whole.

    stage     inviting, agreeing, reading, waiting (for replies), paused, finished, ...
    waiting   parties that have not answered yet; since when is ``since``
    """

    def __init__(
        self, folder: Path, study: str, parties: Sequence[str], report: Callable[[Status], None]
    ) -> None:
        self.folder, self.report = folder, report
        self.content: dict[str, Any] = {
            "study": study,
            "parties": list(parties),
            "stage": "inviting",
            "run": None,
            "round": 0,
            "rounds": None,
            "waiting": list(parties),
            "seconds": {},  # until each party's last answer
            "why": {},
        }
        self._asked, self._written = time.monotonic(), 0.0

    def show(
        self,
        stage: str,
        done: int | None = None,
        rounds: int | None = None,
        run: str | None = None,
        waiting: Sequence[str] | None = None,
        why: Mapping[str, str] | None = None,
        now: bool = False,
    ) -> None:
        new = now or self.content["stage"] != stage
        given = {"round": done, "rounds": rounds, "run": run}
        self.content |= {k: v for k, v in given.items() if v is not None}
        self.content |= {"stage": stage, "why": dict(why or {})}
        if waiting is not None:
            self.content["waiting"] = list(waiting)
        self._write(new)

    def asked(self, parties: Sequence[str]) -> None:
        self._asked = time.monotonic()
        self.content["waiting"] = list(parties)

    def heard(self, party: str) -> None:
        """A party's answer is there."""
        self.content["seconds"][party] = round(time.monotonic() - self._asked, 4)
        self.content["waiting"] = [name for name in self.content["waiting"] if name != party]
        self._write(False)

    def _write(self, now: bool) -> None:
        """At most twice a second, but for a new stage."""
        self.report(self)
        if not now and time.monotonic() - self._written < 0.5:
            return
        self._written = time.monotonic()
        self.content["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / STATUS, json.dumps(self.content, indent=1).encode())


def _digest(facts: Facts) -> str:
    return hashlib.sha256(facts.to_bytes()).hexdigest()
