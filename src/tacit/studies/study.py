"""Studies: what all parties know, in a public file and the public files that it names.

``docs/files.md`` lists its keys. What is computed is one of four kinds, told apart by their
section: [objective] with [set] (``job.py``), [power] (``grid.py``), [learn] (``classifier.py``),
[moments] (``moments.py``).
Each is a ``Kind``, which reads its section, makes an agent's problem of the agent's own data,
plans, and writes what is left of a result. No data are named in a study: a party's own file
(``party_file.py``) says where they are. Whoever holds a study knows by its ``digest`` whether
others hold the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import penalty_from, step_size_from
from tacit.errors import (
    InvalidInput,
    TacitError,
    choice,
    count,
    digits,
    positive,
    printable,
    shown,
)
from tacit.files import read_bytes, read_toml, reading, write_atomically
from tacit.objectives.objective import Records
from tacit.planning import Plan
from tacit.privacy.mechanisms import Mechanism, check_parties
from tacit.protocol.facts import NAME
from tacit.protocol.messages import Roster
from tacit.protocol.result import Result
from tacit.protocol.statement import PUBLIC, PrivacyStatement
from tacit.tables import RULES, Rules

if TYPE_CHECKING:
    from tacit.studies.party_file import PartyFile

FILE = "study.toml"
OF_SUMS = {"colluding", "identities"}
COMMON = {"name", "deadline", "evaluate_every", "rehearsal", "privacy", "algorithm"}
COMMON |= {"aggregation", *OF_SUMS}
REHEARSAL = (
    "this is a rehearsal: its noise is from a seed that the study names, and everybody can "
    "subtract it."
)
DEADLINE = 600.0  # seconds, where a study says nothing
LONGEST = 30 * 24 * 3600.0
IDENTITY = re.compile("[0-9a-f]{64}")
KINDS = {
    "objective": "job.JobKind",
    "power": "grid.GridKind",
    "learn": "classifier.ClassifierKind",
    "moments": "moments.MomentsKind",
}


class Cost(NamedTuple):
    """What a run of a study has cost, and the noise that it was paid with."""

    privacy: PrivacyStatement
    mechanism: Mechanism


@dataclass(frozen=True)
class Kind:
    """What kinds of problems differ in, and what most of them have in common.

    agents     names, in the order in which sums are taken
    files      names of the files that travel with a study
    KEYS       sections and keys beside those that all studies may have
    TAKES      which of ``target`` and ``unit`` a party's file may give
    penalties  public starting penalties of exact steps, and their groups; None: from the facts
    """

    agents: tuple[str, ...]
    files: tuple[str, ...]
    KEYS: ClassVar[tuple[str, ...]]
    TAKES: ClassVar[str] = "target"
    STAGE: ClassVar[str] = ""  # beside the study's name in that of a run; none of the first

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> Kind:
        """The kind in a study, which names no data."""
        raise NotImplementedError

    @property
    def then(self) -> tuple[tuple[Mechanism, int], ...]:
        """The noise of what is to come after the run, each with its count."""
        return ()

    def after(self, solution: Vector) -> Kind | None:
        """What is asked once the solution is known to all; None: nothing more."""
        return None

    @property
    def penalties(self) -> tuple[Vector, Vector] | None:
        return None

    def digested(self) -> Any:
        """What is in the study's digest beside its values and files."""
        return None

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        raise NotImplementedError

    def public_part(self) -> LocalProblem:
        """An agent's problem without data: what is public in it, for a secure sum."""
        raise InvalidInput(
            'Expected losses over records on one common set, as in [learn], for aggregation = "sum"'
            ", got others: their parts have no entries in common, or their sizes are not public."
        )

    def plan(self, problem: Problem) -> Plan:
        raise NotImplementedError

    def stated(self, result: Result) -> Result:
        """The result, its statement with all that this kind takes for public."""
        return result

    def total(self, own: Cost, before: Cost | None) -> PrivacyStatement:
        """Of this run and of all ``before`` it."""
        return replace(own.privacy, assumed=self.assumed(own.privacy.delta))

    def assumed(self, delta: float) -> str:
        """What a statement takes for public."""
        return PUBLIC

    def write_outcome(self, folder: Path, result: Result) -> list[str]:
        """What a coordinator can write beside ``Result.save``; names of the files."""
        return []

    def write_own(
        self, folder: Path, problem: LocalProblem, point: Vector, privacy: PrivacyStatement | None
    ) -> list[str]:
        """What a party can write of its own full local point; names of the files.

        ``solution.npz``: the point, and the global coordinate of each entry or −1.
        """
        content = io.BytesIO()
        np.savez(content, solution=np.asarray(point), coupling=np.asarray(problem.coupling))
        write_atomically(folder / "solution.npz", content.getvalue())
        return ["solution.npz"]


@dataclass(frozen=True)
class Study:
    """A study that was read, checked, and is whole.

    agents          names, in the order in which sums are taken
    digest          SHA-256 of all that is in it: two that agree hold the same study
    deadline        seconds that a round may take
    rehearsal       the seed of a rehearsal's noise; None: a real run
    roster          of a secure sum: who adds up, with their identities; None: no sum
    colluding       how many may collude
    question        a digest of all that makes agents' problems of their data (``asked``)
    contents        study.toml and the files that travel with it, by name
    folder          where it was read
    """

    name: str
    kind: Kind
    deadline: float
    evaluate_every: int
    rehearsal: int | None
    contents: Mapping[str, bytes]
    digest: str
    folder: Path
    roster: Roster | None = None
    colluding: int = 0
    question: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read ``study.toml``, or that of a folder, and the public files it names beside it."""
        path = Path(path)
        path = path / FILE if path.is_dir() else path
        with nothing_sent(f"the study {path}"):
            data = read_toml(path, "a study")
            folder = path.resolve().parent
            seed = _seed(data)
            kind = _kind(data, folder, certified=seed is None)
            for agent in kind.agents:  # which a grid's table of zones may name
                printable("the name of an agent", agent)
            contents = {name: read_public(folder, name) for name in kind.files}
            sums = _sums(data, kind)
            asked = {key: data[key] for key in kind.KEYS if key in data}
            return cls(
                printable("name", data.get("name", "study")),
                kind,
                positive("deadline", data.get("deadline", DEADLINE), (1.0, LONGEST)),
                count("evaluate_every", data.get("evaluate_every", 1)),
                seed,
                {FILE: read_bytes(path), **contents},
                _digest(data, contents, kind.digested()),
                folder,
                *sums,
                _digest(asked, contents, kind.digested()),
            )

    def after(self, solution: Vector) -> Study | None:
        """The study that follows once this one's solution is known to all; None after the last.

        Guarantee: its digest, and the question that ledgers keep its releases under, are those of
        this study and of every bit of the solution, which is a point of the feasible set.
        """
        if (kind := self.kind.after(solution)) is None:
            return None
        W = self.kind.public_part().feasible_set
        if not float(W.violation(solution)) <= W.tolerance(solution.dtype):
            raise InvalidInput(
                "Expected a solution in the feasible set to go on from, got another."
            )
        bits = np.ascontiguousarray(solution, solution.dtype.newbyteorder("<"))
        digest, question = (
            hashlib.sha256(f"{of} {bits.dtype.str} ".encode() + bits.tobytes()).hexdigest()
            for of in (self.digest, self.question)
        )
        return replace(self, kind=kind, digest=digest, question=question)

    @property
    def agents(self) -> tuple[str, ...]:
        return self.kind.agents

    def copy_to(self, folder: str | Path) -> Path:
        """Write study.toml and the files that travel with it, as they were read; its new path."""
        folder = Path(folder)
        for name, content in self.contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
            path.chmod(0o644)  # public
        return folder / FILE

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        """A party's part of the problem: the public model with the party's own data.

        Guarantee: of files, only the study's and ``party.data`` are read, and none is both: what is
        in the study, and in its digest, is known to others. What the party's data
        can change between neighbours is what ``party.limits.hides`` says, where it says so, and
        the bounds are proven, unless the party has allowed a rehearsal.
        """
        with nothing_sent(f"the study {self.name!r} and the data of {agent!r}"):
            self.refuse_file(agent, party)
            problem = self.kind.problem_of(agent, party)
            hidden, agreed = self.hidden(problem, party), party.limits.hides
            if agreed not in (None, hidden):
                raise InvalidInput(
                    f"Expected a study that hides what {party.path} says, {agreed!r}; this one "
                    f"hides {hidden!r}."
                )
            if self.rehearsal is None and (reason := problem.objective.uncertified):
                raise InvalidInput(f"Expected what is proven to be hidden, but {reason}")
        # everybody knows the noise of a rehearsal, which is that of one process
        return problem.asked_as(self.question) if self.rehearsal is None else problem

    def refuse_file(self, agent: str, party: PartyFile) -> None:
        """Refuse a party's file that is not one of this study; its data are not read."""
        with nothing_sent(f"the study {self.name!r} and the file of {agent!r}"):
            choice("agent", agent, self.agents)
            if party.agent != agent:
                raise InvalidInput(
                    f"Expected agent = {agent!r} in {party.path}, got {shown(party.agent)}."
                )
            if self.rehearsal is not None and not party.rehearsal:
                raise InvalidInput(
                    f"Expected rehearsal = true in {party.path} for a rehearsal, whose noise "
                    "everybody can subtract; got false."
                )
            public = {(self.folder / name).resolve() for name in self.contents}
            for own in (party.data, party.ledger, party.path):
                if own.resolve() in public:
                    raise InvalidInput(
                        f"Expected files of the party's own in {party.path}, got {own.name}, which "
                        "the study names as public."
                    )
            for key in ("target", "unit"):
                if getattr(party, key) is not None and key != self.kind.TAKES:
                    raise InvalidInput(
                        f"Expected no {key} in {party.path}, which this kind of study does not use."
                    )

    def hidden(self, problem: LocalProblem, party: PartyFile) -> str:
        """What ``[limits] hides`` is compared with: the relation, and how large a unit is."""
        grid: Any = getattr(self.kind, "model", None)  # which says what "per unit" is
        unit = f" of {digits(grid.grid.base_mva)} MVA" if party.unit == "MW" else ""
        return problem.objective.agreed + unit

    def plan(self, problem: Problem) -> Plan:
        """How the budget is spent, from public numbers: as one process would choose."""
        with nothing_sent(f"the study {self.name!r}"):
            if tuple(problem.names) != (self.agents if self.roster is None else (NAME,)):
                raise InvalidInput(
                    f"Expected the agents {', '.join(self.agents)} in this order, got "
                    f"{', '.join(problem.names)}."
                )
            return self.kind.plan(problem)


def _kind(data: dict[str, Any], folder: Path, certified: bool) -> Kind:
    named = [section for section in KINDS if section in data]
    if len(named) != 1:
        got = " and ".join(f"[{section}]" for section in named) or "none of them"
        raise InvalidInput(
            "Expected one of [objective] (with [set]), [power], [learn] and [moments] in a study, "
            f"got {got}."
        )
    if not isinstance(data.get("privacy"), dict):
        raise InvalidInput("Expected a section [privacy] with the budget asked for, found none.")
    _check_privacy(data["privacy"], certified)
    file, _, name = KINDS[named[0]].partition(".")
    kind: type[Kind] = getattr(import_module(f"tacit.studies.{file}"), name)
    refuse_unknown(data, COMMON | {*kind.KEYS}, f"a study with [{named[0]}]")
    return kind.read(data, folder)


def _sums(data: dict[str, Any], kind: Kind) -> tuple[Roster | None, int]:
    """Of a secure sum: who adds up, and how many of them may collude."""
    if choice("aggregation", data.get("aggregation"), (None, "sum")) is None:
        if given := sorted(OF_SUMS & set(data)):
            raise InvalidInput(f'Expected aggregation = "sum" beside {given[0]}, got none.')
        return None, 0
    colluding = check_parties(len(kind.agents), data.get("colluding"))
    if not isinstance(kind.public_part().objective, Records):
        Kind.public_part(kind)  # says so
    identities = data.get("identities", {})
    refuse_unknown(identities, {*kind.agents}, "[identities]")
    keys = []
    for name in kind.agents:
        text = identities.get(name)
        if not isinstance(text, str) or not IDENTITY.fullmatch(text):
            got = f"{len(text)} characters" if isinstance(text, str) else shown(text)
            raise InvalidInput(
                f"Expected the identity of {name!r} in [identities], 64 digits that `tacit "
                f"federation identity` shows at that party, got {got}."
            )
        keys.append(bytes.fromhex(text))
    if len(set(keys)) < len(keys):
        raise InvalidInput("Expected an identity of each party's own, got one twice.")
    return Roster(kind.agents, tuple(keys)), colluding


def _check_privacy(privacy: dict[str, Any], certified: bool) -> None:
    if privacy.get("mechanism") == "none":
        raise InvalidInput(
            'Expected noise in a study, got mechanism = "none": parties release nothing without.'
        )
    for key, proven in (("perturbation", "objective"), ("calibration", "certified")):
        if certified and privacy.get(key, proven) != proven:
            raise InvalidInput(
                f"Expected {key} = {proven!r} in a study, got {shown(privacy[key])}: its guarantee "
                "is not proven. A rehearsal may have it."
            )


def _seed(data: dict[str, Any]) -> int | None:
    if "rehearsal" not in data:
        return None
    refuse_unknown(data["rehearsal"], {"seed"}, "[rehearsal]")
    seed = data["rehearsal"].get("seed")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InvalidInput(
            f"Expected a whole number 0 <= seed < 2^63 in [rehearsal], got {shown(seed)}."
        )
    return seed


def _digest(data: dict[str, Any], contents: Mapping[str, bytes], more: Any) -> str:
    """Of the values, whatever their order in the file and the comments beside them."""
    files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    try:
        text = json.dumps(
            {"format": 1, "study": data, "files": files, "more": more},
            sort_keys=True,
            separators=(",", ":"),
        )
    except TypeError:  # TOML has dates too
        raise InvalidInput("Expected text, numbers, truth values and tables in a study.") from None
    return hashlib.sha256(text.encode()).hexdigest()


# --- descriptions in TOML, of jobs and of studies ------------------------------------------------


@contextmanager
def nothing_sent(what: str) -> Iterator[None]:
    """Every refusal here comes before any message, and says that nothing was sent.

    Guarantee: an error that none of our checks raised is told by its type alone, since its own
    words may hold what is in the data.
    """
    undone = "Nothing was sent."
    try:
        yield
    except TacitError as error:
        raise type(error)(error.args[0], undone) from None
    except ImportError:
        raise
    except Exception as error:
        why = f"got others ({type(error).__name__})."
        words = f"Expected sound values of ordinary size in {what}, {why}"
        raise InvalidInput(words, undone) from None


def refuse_unknown(data: Any, known: set[str], where: str) -> None:
    """Refuse what is no table of these keys: an unknown one is an error, never ignored."""
    if not isinstance(data, dict):
        raise InvalidInput(f"Expected a table in {where}, got {shown(data)}.")
    if unknown := sorted(set(data) - known):
        options = ", ".join(sorted(known)) or "nothing more"
        raise InvalidInput(f"Expected only {options} in {where}; got {', '.join(unknown)}.")


def agents_of(data: dict[str, Any], known: set[str]) -> dict[str, dict[str, Any]]:
    """The entries of [[agents]] by name, with these keys at most."""
    entries = data.get("agents")
    if not isinstance(entries, list) or not entries:
        raise InvalidInput("Expected at least one [[agents]], found none.")
    found: dict[str, dict[str, Any]] = {}
    for i, entry in enumerate(entries, 1):
        refuse_unknown(entry, known, "[[agents]]")
        name = printable("a name in [[agents]]", entry.get("name", f"agent {i}"))
        if name in found:
            raise InvalidInput(f"Expected agents of different names, got {name!r} twice.")
        found[name] = entry
    return found


def refuse_other_number(agent: str, found: int, said: int) -> None:
    """A party's records are as many as the study says, which is public."""
    if found != said:
        raise InvalidInput(
            f"Expected the {said} records that the study says {agent!r} has, got another number: "
            "ask for a study with the right one."
        )


def rules_in(section: dict[str, Any], folder: Path, where: str) -> tuple[Rules, tuple[str, ...]]:
    """Rules of columns, in a section or in the file that it names, which travels; and its name."""
    if "columns" not in section:
        return Rules.of(section, where), ()
    if twice := sorted({*RULES} & set(section)):
        raise InvalidInput(f"Expected {twice[0]} in {where} or in its columns, got both.")
    file = public_name(section["columns"], f"columns in {where}")
    return Rules.load(folder / file), (file,)


def spending(
    data: dict[str, Any], privacy: set[str], algorithm: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections [privacy] and [algorithm], with these keys at most and with schedules read."""
    found = data["privacy"], data.get("algorithm", {})
    refuse_unknown(found[0], privacy, "[privacy]")
    refuse_unknown(found[1], algorithm, "[algorithm]")
    others = dict(found[1])
    for key, read in (("penalty", penalty_from), ("step_size", step_size_from)):
        if key in others:
            others[key] = read(others[key])
    return dict(found[0]), others


def refuse_no_delta(privacy: dict[str, Any], key: str = "total_delta") -> None:
    """Gaussian noise needs a delta, and no default is right for all data."""
    if key not in privacy and privacy.get("mechanism") != "laplace":
        raise InvalidInput(f"Expected {key} in [privacy] for gaussian noise; not given.")


# --- files that travel with a study, beside study.toml or in folders below it ---------------------


def public_name(name: Any, key: str) -> str:
    """The name of a file that travels, with / between folders, as it is written in the study.

    Guarantee: it names a place below the study's folder on any system. So a study that a
    coordinator hands out makes a party read no file of its own.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"Expected the name of a file as {key}, got {shown(name)}.")
    parts = PurePosixPath(name).parts
    plain = not any(c in '\\:*?"<>|' or ord(c) < 32 for c in name)
    if not plain or name.startswith("/") or ".." in parts or str(PurePosixPath(*parts)) != name:
        raise InvalidInput(
            f"Expected as {key} a file that travels with the study: a plain name, such as "
            f"'set.npz', in the study's folder or below it, got {shown(name)}."
        )
    return name


def read_public(folder: Path, name: str) -> bytes:
    """What is in a file that travels; links that lead out of the folder are refused."""
    path = folder / name
    with reading(path, "a public file of the study", own=False):
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise InvalidInput(
                f"Expected {name} in the folder of the study, got a link to another place."
            )
        return read_bytes(path)
