"""The folder of a run, one layout for ``tacit solve``, ``tacit power solve`` and ``tacit learn``.

docs/results.md lists its files. One run at a time has the folder, and it must hold nothing of
another run. The folder is made, and the note ``run.json`` written, before anything is spent; a
start that is refused before its first checkpoint leaves none of its files. ``--resume`` takes all
steps again: the checkpoint and the ledgers know which of them are done, and give the same answers
at no cost. A run is finished when it has a result and no checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.cli.console import hints, run_with_progress
from tacit.cli.options import as_words, caution, changed, run_arguments
from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.files import locked, read_bytes, read_json, reading, sync_folder, typed, write_atomically

NOTE, CHECKPOINT, RESULT = "run.json", "checkpoint.npz", "result.json"
MEAN = "mean.npz"  # what was released before the first round
BEFORE = (MEAN, *(f"range-{stage}.npz" for stage in (1, 2, 3)))  # by each of its releases
FILES = (RESULT, NOTE, CHECKPOINT, *BEFORE, "model.json")  # one of them is in the folder of any run
ABOUT = {"solve": "job", "power solve": "case", "learn": "data_set"}  # what a command runs
NOT_NOTED = ("command", "parser", "crew", "engine", "json", "resume", "out")
BESIDE_RESUME = ("resume", "json", "engine")  # no number depends on them
NOT_STARTED = "Nothing was started."


@dataclass(frozen=True)
class Note:
    """What run.json says: a command of ``ABOUT`` with its options, and the run's name."""

    command: str
    run: str
    options: dict[str, Any]
    once: bool = False  # whether data are released once: the checkpoint is then what was released

    @property
    def repeats(self) -> bool:
        """Whether a round that is asked again gets the same answer: from a key, or a ledger."""
        secure = self.options.get("noise") == "secure"
        return self.once or not secure or self.options.get("ledgers") is not None

    def obstacle(self, folder: Path) -> str:
        """Why the run in the folder cannot be continued, if so.

        Without its checkpoint the noise key is lost, and other noise on the same data is a second
        release. A ledger knows what was paid and answered under the run's name, or that nothing
        was.
        """
        if not self.repeats:
            return "secure noise without ledgers cannot be continued; what was sent is spent"
        if self.options.get("ledgers") is not None or (folder / CHECKPOINT).is_file():
            return ""
        kept = next((name for name in BEFORE if (folder / name).is_file()), None)
        mean = f"; {kept} was released" if kept else ""
        return f"no checkpoint is there, and no ledgers know what was spent{mean}"

    def parsed(self, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
        """The options as if they were typed: anybody may have written the note."""
        about = ABOUT[self.command], "more"
        given = {name: value for name, value in self.options.items() if value is not None}
        try:
            if not isinstance(given.get(about[0]), str) or not given.keys() <= vars(options).keys():
                raise InvalidInput("no option")
            others = [as_words(name, given[name]) for name in given if name not in about]
            more = given.get("more", [])
            files = [given[about[0]], *map(str, more if isinstance(more, list) else [more])]
            words = [*itertools.chain(*others), "--", *files]
            if b"\0" in os.fsencode(" ".join(words)):  # which nobody can type
                raise InvalidInput("no text")
            found = vars(options.parser.parse_args(words))
        except (InvalidInput, UnicodeEncodeError):
            what = f"Expected the options of tacit {self.command} in {folder / NOTE}."
            raise CorruptFile(what, NOT_STARTED) from None
        return {name: value for name, value in found.items() if name not in NOT_NOTED}

    @classmethod
    def read(cls, folder: Path) -> Note | None:
        """The note in a folder, or None."""
        if not (folder / NOTE).is_file():
            return None
        with reading(folder / NOTE, "the options of a run", NOT_STARTED):
            about = read_json(folder / NOTE, "the options of a run")
            note = cls(about["command"], about["run"], about["options"], about.get("once") is True)
            if note.command not in ABOUT:  # it is printed, to be typed
                raise InvalidInput("no command that runs something")
            note.run.encode()
            return typed(note)


def refuse_used(folder: Path) -> None:
    """Refuse a folder that a run has used."""
    found = [name for name in FILES if os.path.lexists(folder / name)]
    if not found:
        return
    what, note = f"the file {found[0]} of a run", Note.read(folder)
    if RESULT in found:
        what = "a result: its budget is spent, and those of runs on the same data add up"
    elif note is not None:
        resume = f"tacit {note.command} --resume {shlex.quote(str(folder))}"
        what = f"an unfinished run: {note.obstacle(folder) or resume}"
    raise InvalidInput(f"{folder} holds {what}. Choose another --out.", NOT_STARTED)


@contextmanager
def run_folder(
    command: str, options: argparse.Namespace, out: str
) -> Iterator[tuple[RunFolder, argparse.Namespace]]:
    """The folder of a new run, or of the one to resume, with the options of that run.

    On leaving, the run is finished; if it failed before anything was spent, no file is left of it.
    """
    given = getattr(options, ABOUT[command])
    if (given is None) == (options.resume is None):
        raise InvalidInput(f"Expected either {ABOUT[command]} or --resume DIR, one of the two.")
    path = Path(options.resume or options.out or f"{Path(given).stem}{out}")
    folder = RunFolder(command, path, options.crew)
    hints.append(folder.what_to_say)
    try:
        if given is None:
            options = folder.reopen(options)
        else:
            refuse_used(path)
        yield folder, options
        for name in (*BEFORE, CHECKPOINT):  # with which data can be told again
            (path / name).unlink(missing_ok=True)
    except BaseException as error:
        folder.failed(error)
        raise
    finally:
        folder.held.close()


class RunFolder:
    """A run's folder, from its first file to the result."""

    def __init__(self, command: str, path: Path, ranks: Any = None) -> None:
        self.command, self.path = command, path
        self.ranks = ranks  # of a cluster, where agents are not in this process
        self.checkpoint = path / CHECKPOINT
        self._note: Note | None = None
        self.held = ExitStack()
        self._made: list[Path] = []  # by this process, to remove if it is refused
        self._spent = False  # whether a round was evaluated, or something else was paid for

    @property
    def has_begun(self) -> bool:
        """Whether rounds may have been evaluated: what comes before them is not done again."""
        return self.checkpoint.exists()

    def reopen(self, options: argparse.Namespace) -> argparse.Namespace:
        """The options of the unfinished run in the folder."""
        for name, value in changed(options).items():
            if name not in BESIDE_RESUME:
                raise InvalidInput(
                    "Expected --resume without other options, as the run continues with its own; "
                    f"got {' '.join(as_words(name, value))}.",
                    NOT_STARTED,
                )
        if self.path.is_dir():
            self.lock()
        if (note := Note.read(self.path)) is None:
            what = f"Expected an unfinished run in {self.path}, found no {NOTE}."
            raise InvalidInput(what, NOT_STARTED)
        if note.command != self.command:
            self.command = note.command
            raise InvalidInput(f"Expected another command: {self._resume()}.")
        why = note.obstacle(self.path)
        if (self.path / RESULT).exists() and (why or not self.has_begun):
            raise InvalidInput(
                f"The run in {self.path} is finished: tacit show {shlex.quote(str(self.path))}."
            )
        if why:
            what = f"The run in {self.path} cannot be continued: {why}; choose another --out."
            raise InvalidInput(what, NOT_STARTED)
        noted = note.parsed(self.path, options)
        self._note = replace(note, options=noted)
        return argparse.Namespace(**{**vars(options), **noted})

    def start(
        self,
        label: str,
        options: argparse.Namespace,
        *,
        run: str = "run",
        files: Mapping[str, bytes] | None = None,
        once: bool = False,
    ) -> None:
        """Make and lock the folder, or use the one to resume. From here on something may be spent.

        ``run`` is the run's name if no ledger has to tell it from others. ``files`` are kept beside
        the note. ``once``: data are released once.
        """
        run_arguments(options)
        caution(getattr(options, "total_epsilon", None))
        contents = dict(files or {})
        if self._note is None:
            if options.ledgers is not None:
                run = f"{label}-{secrets.token_hex(6)}"  # every run is another one to a ledger
            self._made = [p for p in (self.path, *self.path.parents) if not p.exists()]
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                sync_folder(self.path.parent)
            except OSError as error:
                what = f"Expected to make the folder {self.path}: {error.strerror}."
                raise InvalidInput(what, NOT_STARTED) from None
            self.lock()
            refuse_used(self.path)  # another run may have been faster
            for name, content in contents.items():
                if (self.path / name).exists() and read_bytes(self.path / name) != content:
                    raise InvalidInput(f"{self.path} holds another {name}.", NOT_STARTED)
            noted = {k: v for k, v in vars(options).items() if k not in NOT_NOTED}
            self._note = Note(self.command, run, noted, once)
            # maybe a seed; before all others, which would say nothing without it
            contents = {NOTE: json.dumps(asdict(self._note), indent=2).encode(), **contents}
        for name in (CHECKPOINT, *BEFORE):  # of a killed process: there may be a noise key in it
            for left in self.path.glob(f"{name}.*.tmp"):
                left.unlink()
        for name, content in contents.items():
            if not (self.path / name).exists():
                self._made.insert(0, self.path / name)
                write_atomically(self.path / name, content)

    def run(
        self, label: str, problem: Any, settings: Any, options: argparse.Namespace, **others: Any
    ) -> Any:
        """``tacit.solve`` from where the run stands, with its state in this folder.

        ``settings`` may be a plan; ``others`` as in ``start``.
        """
        if not self._made:  # else the mean was released
            once = getattr(settings, "release", None) is not None
            self.start(label, options, once=once, **others)
        assert self._note is not None
        return run_with_progress(
            label,
            problem if self.ranks is None else self.ranks,
            settings,
            run=self._note.run,
            checkpoint=self.checkpoint if self._note.repeats else None,
            told=self.has_paid,
            **run_arguments(options),
        )

    def write_public(self, name: str, content: bytes) -> None:
        """A file of what the statement covers."""
        write_atomically(self.path / name, content)
        os.chmod(self.path / name, 0o644)

    def has_paid(self) -> None:
        """An agent has answered: the folder stays, whatever comes."""
        self._spent = True

    def failed(self, error: BaseException) -> None:
        """Leave no file of a start that was refused; say how to continue anything else."""
        note = self._note
        if note is None or not (self._made or self._spent):
            return
        # without a checkpoint, of which the first comes before the first round, in doubt: spent
        doubt = not note.repeats and not isinstance(error, InvalidInput)
        if not (self._spent or doubt or self.has_begun):
            self._note = None
            for made in self._made:
                with suppress(OSError):  # a folder that holds something else by now
                    made.rmdir() if made.is_dir() else made.unlink()
        elif isinstance(error, TacitError | OSError):
            said = self.what_to_say()
            error.add_note(said[0].upper() + said[1:])

    def lock(self) -> None:
        """Hold the folder until the command ends."""
        what = f"Another run is writing to {self.path}: wait or choose another --out."
        self.held.enter_context(locked(self.path, what))

    def _resume(self) -> str:
        where = "" if self.ranks is None else " --engine mpi"
        return f"tacit {self.command} --resume {shlex.quote(str(self.path))}{where}"

    def what_to_say(self) -> str:
        """How to continue, if that is possible: of an interrupt, or an error."""
        if self._note is None:
            return "nothing was started"
        if (self.path / RESULT).exists() and not self.has_begun:
            return f"the result is in {self.path}"
        why = self._note.obstacle(self.path)
        return f"the run is over: {why}" if why else f"continue with: {self._resume()}"
