"""The folder of a run, one layout for ``tacit solve``, ``tacit power solve`` and ``tacit learn``.

    run.json         the command and its options, with which ``--resume`` continues
    job.toml         of ``tacit solve``: a copy of the job
    checkpoint.npz   as long as the run is unfinished
    mean.npz         the same, of ``tacit learn``: the release of what rows are centred by
    model.json       of ``tacit learn``, before the rest: what was paid for comes first
    arrays.npz, trace.csv, timing.json, plot.png, result.json     of every result (``Result.save``)
    bus.csv, line.csv, generator.csv, grid.png       of ``tacit power solve``
    figures.json     what the command told besides, of ``tacit power solve`` and ``tacit learn``
    report.html      the page of all this

Before anything is spent the folder is made, locked against other runs, and written to: as much as
the run will need. A start that is refused leaves nothing behind. From then on every file is whole
or not there, and the run is finished when result.json is there. A run that was killed before its
first checkpoint is continued only if ledgers know what it spent.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tacit.cli.console import run_with_progress
from tacit.cli.folder_lock import locked
from tacit.cli.interrupts import hint
from tacit.cli.options import as_typed, caution, changed, check_noted, run_arguments
from tacit.cli.run_note import CHECKPOINT, FILES, MEAN, NOTE, RESULT, Note, refuse_used
from tacit.errors import CorruptFile, InvalidInput, TacitError
from tacit.files import open_private, sync_folder, write_atomically

# left by a process that was killed
TEMPORARY = re.compile(rf"({'|'.join(map(re.escape, (*FILES, 'room')))})\.[0-9a-f]{{12}}\.tmp")
NOT_STARTED = "nothing was started"
NOT_NOTED = ("command", "parser", "crew", "engine", "json", "resume", "out")
BESIDE_RESUME = ("resume", "json", "engine")  # no number depends on them


@contextmanager
def run_folder(
    command: str, options: argparse.Namespace, about: str, out: str
) -> Iterator[tuple[RunFolder, argparse.Namespace]]:
    """The folder of a new run, or of the one to resume, with the options of that run.

    ``about`` is the option that says what to run. On leaving, the run is finished; if it failed
    before anything was spent, nothing is left of it.
    """
    hint(lambda: NOT_STARTED)
    given = getattr(options, about)
    if (given is None) == (options.resume is None):
        what = {"job": "a job file", "case": "a case", "data_set": "DATA"}[about]
        raise InvalidInput(f"Expected either {what} or --resume DIR, one of the two.")
    if given is not None:
        job = Path(given) if about == "job" else None
        folder = RunFolder(command, Path(options.out or f"{Path(given).stem}{out}"), job)
        folder.everyone = options.crew
    else:
        folder = RunFolder(command, Path(options.resume))
        folder.everyone = options.crew
        if others := [(k, v) for k, v in changed(options).items() if k not in BESIDE_RESUME]:
            name, value = others[0]
            raise InvalidInput(
                "Expected --resume without other options, as the run continues with its own; got "
                f"{as_typed(name, value)}. Nothing was started."
            )
    try:
        if given is not None:
            folder.claim()
        else:
            noted = folder.reopen(options.parser, about)
            options = argparse.Namespace(**{**vars(options), **noted})
        yield folder, options
        for name in (MEAN, CHECKPOINT):  # with which data can be told again
            (folder.path / name).unlink(missing_ok=True)
    except BaseException as error:
        folder.failed(error)
        raise
    finally:
        folder.unlock()


class RunFolder:
    """A run's folder, from claiming it to the result."""

    def __init__(self, command: str, path: Path, job: Path | None = None) -> None:
        self.command, self.path, self._job = command, path, job
        self._note: Note | None = None
        self._lock: int | None = None
        self._made: list[Path] = []  # by this process, to remove if it is refused
        self.everyone: Any = None  # the agents, where they are not in this process
        self._ledgers: list[Path] = []
        self._rounds = False  # whether one was evaluated, or something else was paid for
        self._started = False
        self._finished = False  # whether the result was there

    @property
    def _checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def has_begun(self) -> bool:
        """Whether rounds may have been evaluated: what comes before them is not done again."""
        return self._checkpoint.exists() or (self.path / RESULT).exists()

    # --- a new run, or one that is there -----------------------------------------------------

    def claim(self) -> None:
        """Refuse a folder that is in use, or holds anything of a run. Nothing is written."""
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise InvalidInput(
                f"Expected a folder as --out, got the file {self.path}. Nothing was started."
            )
        if self.path.is_dir():
            self._keep_others_out()
            refuse_used(self.path, self._job)

    def reopen(self, parser: Any, about: str) -> dict[str, Any]:
        """The options of the unfinished run in the folder; of them ``about`` must be there."""
        if self.path.is_dir():
            self._keep_others_out()
            self._note = Note.read(self.path)
        note = self._note
        if note is None:
            wanted = CHECKPOINT if not self._checkpoint.is_file() else NOTE
            raise InvalidInput(
                f"Expected an interrupted run in {self.path}, found no "
                f"{'checkpoint' if wanted == CHECKPOINT else wanted} there. Nothing was started."
            )
        if note.command != self.command:
            raise InvalidInput(
                f"Expected a run of tacit {self.command} in {self.path}; use {self._resume()}."
            )
        if (self.path / RESULT).exists() and not self._checkpoint.exists():
            raise InvalidInput(
                f"The run in {self.path} is finished: tacit show {shlex.quote(str(self.path))}."
            )
        try:
            check_noted(parser, note.options, NOT_NOTED)
            if note.options.get(about) is None:
                raise ValueError(f"no {about}")
        except ValueError as error:
            raise CorruptFile(
                f"Expected the options of tacit {note.command} in {self.path}, got {error}. "
                "Nothing was started."
            ) from None
        if not (self.path / RESULT).exists() and (why := note.obstacle(self.path)) is not None:
            raise InvalidInput(
                f"Nothing can be continued in {self.path}: {why}; choose another --out. Nothing "
                "was started."
            )
        hint(self._what_to_say)
        return note.options

    def result(self) -> Any:
        """The result, if the run was interrupted between that and the end; else None."""
        self._finished = (self.path / RESULT).exists()
        if not self._finished:
            return None
        from tacit.protocol.result import Result

        result = Result.load(self.path)
        if not (self.path / "plot.png").exists():
            result.save_plot(self.path)
        return result

    @contextmanager
    def unless_finished(self) -> Iterator[None]:
        """What a finished run can do without: it fails if data or version are others by now."""
        try:
            yield
        except TacitError as error:
            if not self._finished:
                raise
            print(f"tacit: only the result is there: {error}", file=sys.stderr)

    def start(
        self,
        label: str,
        numbers: int,
        options: argparse.Namespace,
        *,
        rows: int = 1000,
        run: str = "run",
        files: Mapping[str, bytes] | None = None,
        once: bool = False,
    ) -> None:
        """Make the folder, or use the one to resume, with room for agents of so many ``numbers``
        and so many ``rows`` of a trace. From here on something may be spent.

        ``run`` is the run's name if no ledger has to tell it from others. ``files`` are kept beside
        the note. ``once``: data are read once.
        """
        run_arguments(options)
        caution(getattr(options, "total_epsilon", None))
        # two checkpoints, of four vectors each; the result's; a model in words; a picture
        room = 2**20 + 16 * 8 * numbers + 200 * rows
        if self._note is None:
            if options.ledgers is not None:
                run = f"{label}-{secrets.token_hex(6)}"  # every run is another one to a ledger
            noted = {k: v for k, v in vars(options).items() if k not in NOT_NOTED}
            self._start(Note(self.command, run, noted, once), room, files or {})
        else:
            self._try_to_write(room)
            if not self._checkpoint.exists():
                self._keep(files or {})
        self._started = True

    def run(
        self,
        label: str,
        problem: Any,
        settings: Any,
        options: argparse.Namespace,
        **others: Any,
    ) -> Any:
        """``tacit.solve`` from where the run stands, with its state in this folder.

        ``settings`` may be a plan; ``others`` as in ``start``.
        """
        arguments = run_arguments(options)
        if self._finished:
            self._refuse_further_rounds(settings)
        if not self._started:
            others["rows"] = settings.rounds // arguments.get("evaluate_every", 1) + 1
            others["once"] = getattr(settings, "release", None) is not None
            numbers = sum(agent.dimension for agent in problem.agents)
            self.start(label, numbers, options, **others)
        assert self._note is not None
        if options.ledgers is not None:
            self._ledgers = [Path(options.ledgers) / f"{name}.db" for name in problem.names]
        return run_with_progress(
            label,
            problem if self.everyone is None else self.everyone,
            settings,
            run=self._note.run,
            checkpoint=self._checkpoint if self._note.resumable else None,
            told=self.has_paid,
            **arguments,
        )

    def _refuse_further_rounds(self, settings: Any) -> None:
        from tacit.protocol.checkpoint import Checkpoint

        exact = getattr(settings, "settings", settings).tolerance is not None  # solved again
        if not exact and Checkpoint.load(self._checkpoint).round != settings.rounds:
            raise InvalidInput(f"Expected no round after the result in {self.path}.")

    def release(self, problem: Any) -> Any:
        """What the agents released in this run."""
        from tacit.protocol.released import Released

        return Released.load(self._checkpoint, problem)

    def releases(self) -> Any:
        """The same without the problem: this run has just read or checked them."""
        from tacit.protocol.released import SavedReleases

        return SavedReleases.load(self._checkpoint).releases

    def write_public(self, name: str, content: bytes) -> None:
        """A file of what the statement covers."""
        write_atomically(self.path / name, content)
        os.chmod(self.path / name, 0o644)

    def save(self, result: Any) -> None:
        """Write the result, unless an interrupted run was as far as that."""
        if not (self.path / RESULT).exists():
            result.save(self.path)

    # --- before anything is spent ------------------------------------------------------------

    def _start(self, note: Note, room: int, files: Mapping[str, bytes]) -> None:
        try:
            for folder in reversed([p for p in (self.path, *self.path.parents) if not p.exists()]):
                with suppress(FileExistsError):
                    folder.mkdir()
                    self._made.append(folder)
                sync_folder(folder.parent)
        except OSError as error:
            raise InvalidInput(
                f"Expected to make the folder {self.path}: {error.strerror}. Nothing was started."
            ) from None
        if self._lock is None:
            self._keep_others_out()
            refuse_used(self.path, self._job)  # another run may have been faster
        self._try_to_write(room)
        hint(self._what_to_say)
        self._made += [self._checkpoint, self.path / NOTE]
        # maybe a seed; before all others, which would say nothing without it
        write_atomically(self.path / NOTE, note.to_json())
        self._made += [self.path / name for name in files if not (self.path / name).exists()]
        self._keep(files)
        self._note = note

    def _keep(self, files: Mapping[str, bytes]) -> None:
        """Write those that are not there."""
        for name, content in files.items():
            if not (self.path / name).exists():
                write_atomically(self.path / name, content)

    def _try_to_write(self, room: int) -> None:
        """Write and flush as much as the run will, and remove it again."""
        self._clear()
        probe = self.path / f"room.{secrets.token_hex(6)}.tmp"
        block = os.urandom(2**20)  # that no file system makes smaller
        try:
            with open_private(probe) as file:
                for _ in range(0, room, len(block)):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InvalidInput(
                f"Expected to write {room / 1e6:.1f} MB to {self.path}: {error.strerror}. Nothing "
                "was started."
            ) from None
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)

    def _keep_others_out(self) -> None:
        self._lock = locked(self.path)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- when it does not end well -----------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """Leave nothing of a start that was refused, and say how to continue anything else."""
        note, began = self._note, bool(self._made)
        if began and not self._spent(error):
            self._note = None
            for path in reversed(self._made):
                with suppress(OSError):  # such as a folder that holds something else by now
                    path.rmdir() if path.is_dir() else path.unlink()
        elif (began or self._rounds) and isinstance(error, TacitError | OSError) and note:
            why = note.obstacle(self.path)
            error.add_note(f"To continue: {self._resume()}" if why is None else _sentence(why))

    def _spent(self, error: BaseException) -> bool:
        """Whether an agent may have paid or answered; in doubt, yes."""
        if self._rounds or self._note is None:
            return self._rounds
        if not self._checkpoint.exists():  # it is written before the first round
            return not self._note.resumable and not isinstance(error, InvalidInput)
        if not self._ledgers or self._note.once:  # a release is there after it was paid for
            return True
        from tacit.privacy.ledger import Ledger
        from tacit.transports.seats import Seat

        try:
            if self.everyone is not None:
                return any(self.everyone.each(Seat.charged, self._note.run))
            return any(Ledger(path).charged(self._note.run) for path in self._ledgers)
        except (TacitError, OSError):
            return True

    def _clear(self) -> None:
        """Remove what a killed process was about to write: it may hold the noise key."""
        with suppress(OSError):
            for path in [p for p in self.path.iterdir() if TEMPORARY.fullmatch(p.name)]:
                path.unlink(missing_ok=True)

    def has_paid(self) -> None:
        """An agent has answered: the folder stays, whatever comes."""
        self._rounds = True

    def _resume(self) -> str:
        command = self.command if self._note is None else self._note.command
        where = "" if self.everyone is None else " --engine mpi"
        return f"tacit {command} --resume {shlex.quote(str(self.path))}{where}"

    def _what_to_say(self) -> str:
        """What an interrupt says: how to continue, if that is possible."""
        if self._note is None:
            return NOT_STARTED
        if (self.path / RESULT).exists() and not self._checkpoint.exists():
            return f"the result is in {self.path}"
        if (why := self._note.obstacle(self.path)) is None:
            return f"continue with: {self._resume()}"
        before = self._note.resumable and not self._rounds  # the first checkpoint
        return "nothing was spent; choose another --out to start anew" if before else why


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]
