"""What a privacy sheet is about: one agent's part in a run, from what its owner has on disk.

result folder   of a command, of a coordinator, or of ``Result.save``
kit             of a party between organisations: ``own/statement.json``, and its party file
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import CorruptFile, InvalidInput
from tacit.files import read_json, read_npz, read_toml, reading
from tacit.html import plain, several
from tacit.protocol.disclosure import level, may_have
from tacit.protocol.result import Result
from tacit.protocol.statement import PrivacyStatement, promised
from tacit.report.account import NOT_WRITTEN, PART, Account
from tacit.report.contents import Contents
from tacit.report.released import Released, rules

if TYPE_CHECKING:
    from tacit.learn.released_table import TableRelease
    from tacit.studies.party_file import Limits

FEASIBLE = ("objective", "projected-output")  # where the noise is, so that points stay in the set


@dataclass(frozen=True)
class Subject:
    """An agent, a run and a ledger. Nothing of it is uncovered: no trace, no seed, no seconds."""

    agents: tuple[str, ...]  # whose data; all of the run where none was chosen
    others: int | None  # how many other agents took part; None: not known here
    statement: PrivacyStatement  # about these agents only
    when: str  # in words
    run: str = ""  # its name in ledgers; empty: not known
    rounds: int | None = None  # messages of each agent; None: not known here
    numbers: int | None = None  # in each message, at most
    feasible: bool = True  # messages are points of a public set
    apart: bool = False  # agents were processes of different owners
    files: tuple[str, ...] = ()  # names in the folder
    trace: tuple[str, ...] = ()  # names of the columns of its trace
    account: Account | None = None
    missing: str = ""  # why there is no account
    own: bool | None = None  # it paid from that very ledger (False: from none; None: not known)
    limits: Limits | None = None  # of a party: what it agrees to in one run
    about: str = ""  # what it is of, in words: case, job or data, and the folder
    grid: bool = False  # the data are the loads of a grid
    table: str = ""  # what was released, where that is all there is: a table's moments or counts
    data: str = ""  # which columns were used, and public numbers of records, in words
    purpose: str = ""  # as whoever makes the sheet says it
    recipients: str = ""
    runs: tuple[str, ...] = ()  # of a study of several, as the ledger calls them

    @cached_property
    def paid(self) -> float | None:
        """The epsilon that the ledger paid for this run; None: not known."""
        if self.account is None:
            return 0.0
        return self.account.paid_for(self.statement, self.run, self.own, self.runs)

    @property
    def counted(self) -> bool | None:
        """Whether the ledger's total has this run in it; None: not known."""
        return None if self.paid is None else self.paid > PART * max(self.statement.epsilon, 0.0)

    @property
    def disputed(self) -> bool:
        """Whether the ledger paid more for this run than its result says: neither is trusted."""
        return self.paid is not None and self.paid * PART > max(self.statement.epsilon, 0.0)

    @property
    def epsilon(self) -> float:
        """Of this run: what its result says, or what the ledger paid if that is more."""
        return self.paid if self.disputed and self.paid is not None else self.statement.epsilon

    @classmethod
    def read(
        cls,
        folder: str | Path,
        agent: str | None = None,
        ledger: str | Path | None = None,
        party: str | Path | None = None,
    ) -> Subject:
        """``agent`` by name; ``ledger`` and ``party``: files of its own, where they are not found
        by what the run noted. Only the folder's own notes are read, and nothing is written."""
        folder, limits = Path(folder), None
        if party is not None:
            from tacit.studies.party_file import PartyFile

            file = PartyFile.load(party)
            if agent not in (None, file.agent):
                raise InvalidInput(
                    f"Expected agent {file.agent!r}, as {party} says, got {agent!r}. {NOT_WRITTEN}"
                )
            agent, ledger, limits = file.agent, ledger or file.ledger, file.limits
        kit = _kept(folder)
        released = Released.read(folder) if kit is None else None
        if released is not None:
            found, noted = _of_table(released), ""
        else:
            found, noted = _of_result(folder, agent) if kit is None else (_of_kit(kit), "")
        if ledger is not None and agent is None and len(found.agents) > 1:
            agent = Account.read(ledger).agent or ""
            if agent not in found.agents:
                raise InvalidInput(
                    f"Expected --agent NAME beside a ledger that says of no agent of this run that "
                    f"it is its own, among {len(found.agents)} agents. {NOT_WRITTEN}"
                )
        if agent is not None:
            found = _about(found, agent)
        found = _with_ledger(replace(found, limits=limits), folder, ledger, noted)
        if kit is not None and found.account is not None and found.counted is False:
            raise CorruptFile(
                f"Expected the run of {kit} in the party's own ledger, found none: whoever "
                f"made or carried the kit may have put it there. {NOT_WRITTEN}"
            )
        return found


def _kept(folder: Path) -> Path | None:
    """The statement that a party keeps, in its kit or in ``own/`` of it."""
    if folder.name == "statement.json" and folder.is_file():
        return folder
    places = (folder / "own" / "statement.json", folder / "statement.json")
    return next((path for path in places if path.is_file()), None)


def _of_kit(path: Path) -> Subject:
    shared = None  # how many coordinates of the party's point are, if that is written
    with suppress(CorruptFile), reading(solution := path.with_name("solution.npz"), "a solution"):
        shared = int((read_npz(solution)["coupling"] >= 0).sum())
    with reading(path, "the statement of a run", NOT_WRITTEN):
        data = read_json(path, "the statement of a run")
        statement, run = PrivacyStatement.from_dict(data), str(data["run"])
        used = _of_study(path.parent.parent / "study" / "study.toml")
        names = tuple(name for _, names in statement.neighbours for name in names)
        _check(statement, names)
        return Subject(
            names,
            None,
            statement,
            _dated(path),
            run,
            numbers=shared,
            apart=True,
            own=True,  # a party answers from its own ledger only
            files=_listed(path.parent),
            data=used,
            runs=tuple(map(str, data.get("runs", ()))),
        )


def _of_result(folder: Path, agent: str | None) -> tuple[Subject, str]:
    """The subject of a result folder, and the folder of ledgers that its command noted, if any."""
    contents = Contents.read(folder, NOT_WRITTEN)
    result, options = contents.result, contents.options
    with reading(folder, "a result", NOT_WRITTEN):
        _check(result.privacy, result.names)
    with reading(folder, "a result", NOT_WRITTEN, own=False):
        subject = Subject(
            result.names,
            0,
            result.privacy,
            _dated(folder / "result.json"),
            contents.run,
            _rounds(result),
            _numbers(result, agent),
            result.settings.perturbation in FEASIBLE,
            "server_seconds" in result.trace,
            _listed(folder),
            tuple(result.trace),
            own=False if options.get("ledgers", "") is None else None,
            about=_named(contents),
            grid=contents.command == "power solve" or "bus" in contents.tables,
            data=_columns_of(contents),
        )
    noted = options.get("ledgers")
    return subject, noted if isinstance(noted, str) else ""


def _of_table(released: Released) -> Subject:
    table, folder = released.table, released.folder
    what = "how many records there are in every combination of categories"
    if table.FILE == "moments.json":
        what = "sums of the columns, and of products of two"
    return Subject(
        released.names,
        0,
        released.privacy,
        _dated(folder / table.FILE),
        rounds=1,
        numbers=len(table.values_),
        files=_listed(folder),
        about=f"folder {plain(folder.resolve().name, 80)}",
        data=_columns_of_table(table),
        table=what,
    )


def _columns_of_table(table: TableRelease) -> str:
    columns = several((f"{name} ({values})" for name, values in rules(table).rows), 12, 60)
    return f"the columns {columns}; {table.records_:,} records of all agents"


def _columns_of(contents: Contents) -> str:
    """The columns of a model's rows, or of a job's, which their files name too."""
    if contents.moments is not None:
        return _columns_of_table(contents.moments)
    columns = [str(row["name"]) for row in contents.intervals.get("coefficients", ())]
    if contents.model is not None and may_have(contents.privacy, level("model.json")):
        columns = contents.model["columns"]
    if not columns:
        return ""
    target = contents.options.get("target")
    more = f"; to predict {plain(target, 40)}" if isinstance(target, str) else ""
    return f"the columns {several(columns, 12, 30)}{more}"


def _of_study(path: Path) -> str:
    """What a study, which is public, says of a party's table."""
    found = read_toml(path) if path.is_file() else {}
    if "power" in found:
        return "the active and the reactive load of every bus of the zone"
    about: dict[str, Any] = next(
        (found[name] for name in ("learn", "moments", "objective") if name in found), {}
    )
    file, words = about.get("columns"), []
    if isinstance(file, str) and Path(file).name == file and path.with_name(file).is_file():
        about = {**read_toml(path.with_name(file)), **about}
    ruled = [name for part in ("ranges", "categories") for name in about.get(part, ())]
    columns = about.get("features", found.get("columns", [name for name in ruled if name != "*"]))
    if isinstance(columns, list) and columns:
        words.append(f"the columns {several(tuple(map(str, columns)), 12, 30)}")
    for key, said in (
        *(("target", "to predict {}"), ("normaliser", "{} records of all parties")),
        ("record_bound", "at most {} of one party"),
    ):
        words += [said.format(plain(about[key], 40))] if key in about else []
    return "; ".join(words)


def _named(contents: Contents) -> str:
    """What a run without a name of its own is known by."""
    what = next(filter(None, map(contents.stem, ("case", "job", "data_set"))), "")
    folder = f"folder {plain(contents.folder.resolve().name, 80)}"
    return f"{what} ({folder})" if what else folder


def _with_ledger(subject: Subject, folder: Path, ledger: str | Path | None, noted: str) -> Subject:
    """Add the account of a ledger, by default the one that the run noted, and what that knows."""
    name, *others = subject.agents
    if ledger is None:
        if not noted:
            return replace(
                subject, missing="" if subject.own or subject.table else "the run noted none"
            )
        if others:
            return replace(subject, missing="each agent has its own: choose one with --agent")
        places = [Path(noted), folder / noted, folder / "ledgers"]
        files = [place / f"{name}.db" for place in places if Path(name).name == name]
        ledger = next((path for path in files if path.is_file()), None)
        if ledger is None:
            return replace(subject, missing="the one that paid for this run was not found")
    account, own = Account.read(ledger, name), subject.own
    if noted and Path(noted).is_absolute():
        with suppress(OSError, ValueError, RuntimeError):  # such as a name that no file can have
            own = Path(noted, f"{name}.db").resolve() == Path(ledger).resolve() or None
    subject = replace(subject, account=account, own=own)
    if (run := account.run(subject.run)) is None:
        return subject
    when = f"{run['began'][:16].replace('T', ' ')} to {run['last'][:16].replace('T', ' ')} UTC"
    if subject.rounds is None and promised(subject.statement):
        subject = replace(subject, rounds=run["rounds_answered"])
    return replace(subject, when=f"{when} (by the ledger)")


def _numbers(result: Result, agent: str | None) -> int:
    """How many numbers a message has at most: those of coupled coordinates, which duals are of;
    without duals no more than a point has, nor than are shared."""
    shared = int(result.solution.size)
    sizes = [int(λ.size) for λ in result.duals] or [min(int(z.size), shared) for z in result.local]
    named = zip(result.names, sizes, strict=True)
    return max((size for name, size in named if agent in (None, name)), default=0)


def _rounds(result: Result) -> int | None:
    """Of a run with noise in every round they are fixed before. Where a tolerance ends them, they
    follow from a release, and are covered if that is; None where nothing is promised."""
    sound = promised(result.privacy)
    if result.settings.tolerance is not None and not sound:
        return None
    if sound and result.privacy.once and len(result.trace["round"]):
        return int(result.trace["round"][-1])
    return max(result.settings.rounds, result.privacy.updates // result.settings.local_updates)


def _check(statement: PrivacyStatement, names: tuple[Any, ...]) -> None:
    """Refuse a statement that leaves out an agent: the file was changed."""
    if not names or set(names) - {name for _, agents in statement.neighbours for name in agents}:
        raise InvalidInput("its statement leaves out an agent")


def _about(subject: Subject, agent: str) -> Subject:
    """The same subject about one agent only."""
    if agent not in subject.agents:
        raise InvalidInput(
            f"Expected one of the agents {several(subject.agents)}, got {agent!r}. {NOT_WRITTEN}"
        )
    hidden = tuple((c, (agent,)) for c, names in subject.statement.neighbours if agent in names)
    others = None if subject.others is None else len(subject.agents) - 1
    statement = replace(subject.statement, neighbours=hidden)
    return replace(subject, agents=(agent,), others=others, statement=statement)


def _dated(path: Path) -> str:
    time = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return f"{time:%Y-%m-%d %H:%M} UTC (by the date of {path.name})"


def _listed(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir()))
