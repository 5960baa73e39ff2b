"""What lies in a run's folder: the note of how it began, and whether another run may have it."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import CorruptFile, InvalidInput

NOTE, CHECKPOINT, RESULT = "run.json", "checkpoint.npz", "result.json"
OLD_NOTES = {"job.json": "solve", "power.json": "power solve"}  # of version 0.1.0
FILES = (  # what a run writes, and would write over
    *(NOTE, *OLD_NOTES, CHECKPOINT, RESULT, "model.json", "arrays.npz", "trace.csv", "plot.png"),
    *("bus.csv", "line.csv", "generator.csv", "grid.png", "job.toml"),
)
LOST = "secure noise without ledgers cannot be continued; what was sent is spent"


@dataclass(frozen=True)
class Note:
    """What run.json says: which command with which options, and the run's name."""

    command: str
    run: str
    options: dict[str, Any]

    @property
    def resumable(self) -> bool:
        """Whether a round that is asked again gets the same answer: from a key, or a ledger."""
        return self.options.get("noise") != "secure" or self.options.get("ledgers") is not None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def read(cls, folder: Path) -> Note | None:
        """The note in a folder, also one of version 0.1.0; None if there is none."""
        name = next((n for n in (NOTE, *OLD_NOTES) if (folder / n).is_file()), None)
        if name is None:
            return None
        try:
            about = json.loads((folder / name).read_text())
            if name == "job.json":
                run = about.pop("run", Path(about["job"]).stem)
                about = {"command": "solve", "run": run, "options": about}
            elif name == "power.json":
                about.pop("out", None)
                about = {"command": "power solve", "run": "run", "options": about}
            note = cls(about["command"], about["run"], dict(about["options"]))
            if not isinstance(note.command, str) or not isinstance(note.run, str):
                raise TypeError("a command and a run are text")
            return note
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(
                f"Expected the options of a run in {folder / name}: {error!r}. Nothing was started."
            ) from None


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
    if note is not None and note.resumable:
        raise InvalidInput(
            f"An interrupted run is in {folder}: continue with tacit {note.command} --resume "
            f"{shlex.quote(str(folder))} or choose another --out. Nothing was started."
        )
    if note is not None or CHECKPOINT in found:
        why = LOST if note is not None else f"{NOTE} is missing"
        raise InvalidInput(
            f"An interrupted run is in {folder} ({why}): choose another --out. Nothing was started."
        )
    if found:
        raise InvalidInput(
            f"Expected a folder without files of a run, got {found[0]} in {folder}: choose another "
            "--out. Nothing was started."
        )
