"""What descriptions of problems in TOML have in common: jobs, and studies between organisations.

A study is a job of which parties bring the data. What is computed is one of three kinds, told apart
by their section: [objective] with [set] (``job.py``), [power] (``grid.py``), [learn]
(``classifier.py``). Each is a class here, which reads the section, makes an agent's problem of the
agent's own data, plans, and writes what is left of a result.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.schedules import penalty_from, step_size_from
from tacit.errors import InvalidInput, TacitError, printable, shown
from tacit.files import write_atomically
from tacit.planning import Plan
from tacit.protocol.statement import PUBLIC
from tacit.reading import read_bytes, reading

if TYPE_CHECKING:
    from tacit.protocol.result import Result
    from tacit.protocol.statement import PrivacyStatement
    from tacit.studies.party_file import PartyFile


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

    @classmethod
    def read(cls, data: dict[str, Any], folder: Path) -> Kind:
        """The kind in a study, which names no data."""
        raise NotImplementedError

    @property
    def penalties(self) -> tuple[Vector, Vector] | None:
        return None

    def digested(self) -> Any:
        """What is in the study's digest beside its values and files."""
        return None

    def problem_of(self, agent: str, party: PartyFile) -> LocalProblem:
        raise NotImplementedError

    def plan(self, problem: Problem) -> Plan:
        raise NotImplementedError

    def stated(self, result: Result) -> Result:
        """The result, its statement with all that this kind takes for public."""
        return result

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


# --- keys and names -------------------------------------------------------------------------------


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


def names_of(key: str, value: Any) -> list[str]:
    """A list of different names."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(name, str) and name for name in value)
        or len(set(value)) != len(value)
    ):
        raise InvalidInput(f"Expected {key} as a list of different names, got {shown(value)}.")
    return value


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
