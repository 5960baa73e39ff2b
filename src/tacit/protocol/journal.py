"""The journal of a run with noise in every round: one file, from which it continues bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import write_atomically
from tacit.reading import parse_json, read_npz, reading, typed

FORMAT = 4  # another one with every change of a computed bit: noise must not meet other numbers
WHAT = "a checkpoint that tacit saved"
Arrays = Mapping[str, Sequence[Vector]]  # by name, one array of each agent


@dataclass(frozen=True)
class Journal:
    """Where a run stands. What continues it asks each agent the same questions as before, which
    get the same answers, so it releases nothing new.

    agreed   what decides the answers and their noise: a run continues with the same only
    key      the root of the noise, where the coordinator's owner owns all data: a secret
    digest   of the agents' data, keyed with ``key``, and of which ledgers they have
    arrays   of the server, and for their owner of all agents, after ``round``
    failed   how often a party's round failed, and is paid for again
    """

    path: Path | None  # None: nothing is kept
    run: str
    agreed: dict[str, Any]
    key: Vector = field(default_factory=lambda: np.zeros(0, np.uint32), repr=False)
    digest: str = ""
    round: int = 0
    arrays: Arrays = field(default_factory=dict)
    trace: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    failed: dict[str, int] = field(default_factory=dict)

    def after(self, round: int, arrays: Arrays, trace: Any) -> Journal:
        """The same run, further on; in the file when this returns."""
        now = replace(self, round=round, arrays=dict(arrays), trace=np.array(trace))
        now.save()
        return now

    def with_failures(self, parties: Sequence[str]) -> Journal:
        """These parties computed a round in vain, and will pay for it again."""
        failed = {name: self.failed.get(name, 0) + 1 for name in parties}
        now = replace(self, failed={**self.failed, **failed})
        now.save()
        return now

    def save(self) -> None:
        """Replace the file in one step, readable by its owner only."""
        if self.path is None:
            return
        header = {
            "format": FORMAT,
            "run": self.run,
            "agreed": self.agreed,
            "digest": self.digest,
            "round": self.round,
            "agents": {name: len(parts) for name, parts in self.arrays.items()},
            "failed": self.failed,
        }
        arrays: dict[str, Any] = {
            f"{name}_{p}": part
            for name, parts in self.arrays.items()
            for p, part in enumerate(parts)
        }
        content = io.BytesIO()
        about = np.array(json.dumps(header))
        np.savez(content, header=about, key=self.key, trace=self.trace, **arrays)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Journal:
        with reading(path, WHAT, "Nothing was resumed."):
            data = read_npz(path, WHAT)
            header = parse_json(str(data["header"]))
            if header["format"] == FORMAT:
                arrays = {
                    name: [data[f"{name}_{p}"] for p in range(int(many))]
                    for name, many in header["agents"].items()
                }
                about = header["run"], header["agreed"], data["key"], header["digest"]
                now = header["round"], arrays, data["trace"], header["failed"]
                return typed(cls(path, *about, *now))
        raise InvalidInput(
            f"Expected a checkpoint of this version in {path}, got one of another version, which "
            "rounds differently: the same noise on other numbers could give data away. Nothing was "
            "resumed. Start anew in another folder, with another seed if there is one; what was "
            "released so far counts too."
        )

    def check(self, agreed: Mapping[str, Any], digest: Callable[[], str]) -> None:
        """Refuse to continue a different run: it would use this one's noise a second time.

        ``digest`` of the agents' data is asked for last: it reads all of them.
        """
        wanted = json.loads(json.dumps(agreed))  # as the saved values went
        differing = [k for k in {**wanted, **self.agreed} if wanted.get(k) != self.agreed.get(k)]
        if differing:
            raise InvalidInput(
                f"Expected to go on with run {self.run!r} in {self.path}, but since it began the "
                f"{', '.join(differing)} changed. Give it back, or start anew in another folder, "
                "with another seed if there is one: a new run is charged anew. Nothing was resumed."
            )
        if self.digest != digest():
            raise InvalidInput(
                "Expected the ledgers, agents, objectives, sets and data of the checkpoint, the "
                "code of functions included; they differ. Nothing was resumed."
            )

    def check_arrays(self, arrays: Arrays, rounds: int) -> None:
        """Refuse what is no state of such a run: ``arrays`` has the shapes of one."""
        sound = 0 <= self.round <= rounds and self.arrays.keys() == arrays.keys()
        for name, parts in self.arrays.items():
            sound = sound and [np.shape(x) for x in parts] == [np.shape(x) for x in arrays[name]]
            sound = sound and all(np.isfinite(x).all() for x in parts)
        if not sound:
            raise CorruptFile(
                "Expected the state of a round of the run in the checkpoint: finite arrays of the "
                "agents' sizes. Nothing was resumed."
            )
