"""A party's own file: which agent it is, where its data and its ledger are, and what it allows.

``docs/files.md`` lists its keys. It stays with the party: nothing in it travels, but the agent's
name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import EPSILONS, InvalidInput, choice, count, positive, probability, shown
from tacit.files import read_toml
from tacit.studies.study import nothing_sent, refuse_unknown

TEXTS = ("agent", "data", "ledger", "target", "unit", "coordinator", "identity")
LIMITS = {"total_epsilon", "total_delta", "rounds", "hides", "total_epsilon_alone", "colluding"}
FLAGS = ("rehearsal", "tell_why")
KEYS = {*TEXTS, *FLAGS, "limits"}
UNITS = ("MW", "per unit")


@dataclass(frozen=True)
class Limits:
    """What a party agrees to at most, in one run. The ledger's budget bounds all of them.

    rounds   None: any number
    hides    the change between neighbouring data that must be hidden, exactly as
             ``Objective.agreed`` says it; None: whatever the study says
    total_epsilon_alone   what all runs of the ledger may cost together whatever others do in secure
             sums; None: any
    colluding   of a secure sum: the least number of parties that may collude before it costs more
             than ``total_epsilon``; None: any
    """

    total_epsilon: float
    total_delta: float
    rounds: int | None = None
    hides: str | None = None
    total_epsilon_alone: float | None = None
    colluding: int | None = None

    def __post_init__(self) -> None:
        store = object.__setattr__
        store(self, "total_epsilon", positive("total_epsilon", self.total_epsilon, EPSILONS))
        if type(self.total_delta) not in (int, float) or self.total_delta != 0:
            store(self, "total_delta", probability("total_delta", self.total_delta))
        store(self, "total_delta", float(self.total_delta))
        if (alone := self.total_epsilon_alone) is not None:
            store(self, "total_epsilon_alone", positive("total_epsilon_alone", alone, EPSILONS))
        for key in ("rounds", "colluding"):
            if getattr(self, key) is not None:
                store(self, key, count(key, getattr(self, key)))
        if self.hides is not None and (not isinstance(self.hides, str) or not self.hides.strip()):
            raise InvalidInput(f"Expected words as hides in [limits], got {shown(self.hides)}.")


@dataclass(frozen=True)
class PartyFile:
    """A party's own file, read and checked; its data are not read yet."""

    path: Path
    agent: str
    data: Path
    ledger: Path
    limits: Limits
    target: str | None = None
    unit: str | None = None
    rehearsal: bool = False
    tell_why: bool = False  # the coordinator too, why a request was refused
    coordinator: str | None = None
    identity: Path | None = None  # the file of its private key, for secure sums

    @classmethod
    def load(cls, path: str | Path) -> PartyFile:
        with nothing_sent(f"the party file {path}"):
            path = Path(path).resolve()
            found = read_toml(path, "a party file")
            refuse_unknown(found, KEYS, f"the party file {path}")
            wanted = {"agent", "data", "ledger"} | {*TEXTS} & found.keys()
            text: dict[str, Any] = {key: _text(found, key, path) for key in TEXTS if key in wanted}
            choice("unit", text.get("unit"), (None, *UNITS))
            flags, limits = {k: found.get(k, False) for k in FLAGS}, found.get("limits")
            for key, value in flags.items():
                if not isinstance(value, bool):
                    raise InvalidInput(
                        f"Expected {key} = true or false in {path}, got {shown(value)}."
                    )
            if not isinstance(limits, dict):
                raise InvalidInput(f"Expected a section [limits] in {path}, found none.")
            refuse_unknown(limits, LIMITS, "[limits]")
            for key in ("total_epsilon", "total_delta"):
                if key not in limits:
                    raise InvalidInput(f"Expected {key} in [limits] of {path}; not given.")
            data, ledger = (path.parent / text.pop(key) for key in ("data", "ledger"))
            if "identity" in text:
                text["identity"] = path.parent / text["identity"]
            own = Limits(**limits)
            return cls(path, data=data, ledger=ledger, limits=own, **flags, **text)


def _text(found: dict[str, Any], key: str, path: Path) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        what = "nothing" if value is None else shown(value)
        raise InvalidInput(f"Expected {key} as text in {path}, got {what}.")
    return value
