"""What lies in a run's folder: the note of how it began, and whether another run may have it."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.reading import read_json, reading, typed

NOTE, CHECKPOINT, RESULT = "run.json", "checkpoint.npz", "result.json"
MEAN = "mean.npz"  # what was released before the first round
OLD_NOTES = {"job.json": "solve", "power.json": "power solve"}  # of version 0.1.0
FILES = (  # what a run writes, and would write over
    *(NOTE, *OLD_NOTES, CHECKPOINT, RESULT, "model.json", "arrays.npz", "trace.csv", "plot.png"),
    *("timing.json", "figures.json", "report.html"),
    *(MEAN, "mean.json"),  # the latter of version 0.2.0
    *("bus.csv", "line.csv", "generator.csv", "grid.png", "job.toml", "release.csv", "release.npz"),
)
COMMANDS = ("solve", "power solve", "learn")
LOST = "secure noise without ledgers cannot be continued; what was sent is spent"


@dataclass(frozen=True)
class Note:
    """What run.json says: one of ``COMMANDS`` with its options, and the run's name."""

    command: str
    run: str
    options: dict[str, Any]
    once: bool = False  # whether data are read once: the checkpoint is then what was released

    @property
    def resumable(self) -> bool:
        """Whether a round that is asked again gets the same answer: from a key, or a ledger."""
        secure = self.options.get("noise") == "secure"
        return self.once or not secure or self.options.get("ledgers") is not None

    def obstacle(self, folder: Path) -> str | None:
        """Why the run in the folder cannot be continued, if so.

        Without its checkpoint the noise key is lost, and other noise on the same data is a second
        release. A ledger knows what was paid and answered under the run's name, or that nothing
        was.
        """
        if not self.resumable:
            return LOST
        if self.options.get("ledgers") is None and not (folder / CHECKPOINT).is_file():
            why = "found no checkpoint there, and no ledgers know what was spent"
            if (folder / MEAN).is_file():
                why += f"; {MEAN} was released: unless it is removed unseen, a new run adds to it"
            return why
        return None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def read(cls, folder: Path) -> Note | None:
        """The note in a folder, also one of version 0.1.0; None if there is none."""
        name = next((n for n in (NOTE, *OLD_NOTES) if (folder / n).is_file()), None)
        if name is None:
            return None
        with reading(folder / name, "the options of a run", "Nothing was started."):
            about = read_json(folder / name, "the options of a run")
            if name == "job.json":
                run = about.pop("run", Path(about["job"]).stem)
                about = {"command": "solve", "run": run, "options": about}
            elif name == "power.json":
                about.pop("out", None)
                about = {"command": "power solve", "run": "run", "options": about}
            note = cls(about["command"], about["run"], about["options"], about.get("once") is True)
            if note.command not in COMMANDS:  # it is printed, to be typed
                raise InvalidInput("no command that runs something")
            if note.command == "power solve":  # version 0.1.0 knew nothing else
                note.options.setdefault("noise_every_round", True)
            note.run.encode()
            return typed(note)


def refuse_used(folder: Path, job: Path | None = None) -> None:
    """Refuse a folder with anything of a run in it; its job may lie there already."""
    found = [name for name in FILES if os.path.lexists(folder / name)]
    if job is not None and job.resolve() == (folder / "job.toml").resolve():
        found = [name for name in found if name != "job.toml"]
    if RESULT in found:
        raise InvalidInput(
            f"{folder} holds a result, whose budget is spent; choose another --out. Budgets of "
            "several runs on the same data add up. Nothing was started."
        )
    note = Note.read(folder) if found else None
    if note is not None and note.obstacle(folder) is None:
        raise InvalidInput(
            f"An interrupted run is in {folder}: continue with tacit {note.command} --resume "
            f"{shlex.quote(str(folder))} or choose another --out. Nothing was started."
        )
    if note is not None or CHECKPOINT in found:
        why = note.obstacle(folder) if note is not None else f"{NOTE} is missing"
        raise InvalidInput(
            f"An interrupted run is in {folder} ({why}): choose another --out. Nothing was started."
        )
    if found:
        raise InvalidInput(
            f"Expected a folder without files of a run, got {found[0]} in {folder}: choose another "
            "--out. Nothing was started."
        )
