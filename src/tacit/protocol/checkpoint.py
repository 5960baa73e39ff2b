"""The state of an interrupted run, from which it continues bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.admm.problem import Problem
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import write_atomically
from tacit.reading import parse_json, read_npz, reading, typed

STATE = ("point", "average", "dual", "total")
FORMAT = 3  # another one with every change of a computed bit: noise must not meet other numbers


@dataclass(frozen=True)
class Checkpoint:
    """``state[name][p]`` is an array of agent p; ``key`` is the root of the noise: a secret.

    A resumed round asks each agent the same question as before the interruption and gets the same
    noise, so it releases nothing new.
    """

    round: int
    settings: dict[str, Any]
    run: str
    seed: int | None
    key: Vector
    digest: str  # of the agents' data, keyed with ``key``
    state: dict[str, list[Vector]]
    trace: Vector

    def at(self, round: int, state: dict[str, list[Vector]], trace: Any) -> Checkpoint:
        """The same run, further on."""
        return replace(self, round=round, state=state, trace=np.array(trace))

    def save(self, path: str | Path) -> None:
        """Replace the file in one step, readable by its owner only."""
        header = {
            "format": FORMAT,
            "round": self.round,
            "settings": self.settings,
            "run": self.run,
            "seed": self.seed,
            "digest": self.digest,
            "agents": len(self.state["point"]),
        }
        arrays: dict[str, Any] = {
            f"{name}_{p}": v for name in STATE for p, v in enumerate(self.state[name])
        }
        buffer = io.BytesIO()
        np.savez(
            buffer, header=np.array(json.dumps(header)), key=self.key, trace=self.trace, **arrays
        )
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        what = "a checkpoint that tacit saved"
        with reading(path, what, "Nothing was resumed."):
            data = read_npz(path, what)
            header = parse_json(str(data["header"]))
            agents = range(int(header["agents"]) if len(data) > len(STATE) else 0)
            found = typed(
                cls(
                    header["round"],
                    header["settings"],
                    header["run"],
                    header["seed"],
                    data["key"],
                    header["digest"],
                    {name: [data[f"{name}_{p}"] for p in agents] for name in STATE},
                    data["trace"],
                )
            )
        if header["format"] != FORMAT:
            raise InvalidInput(
                f"Expected a checkpoint of this version in {path}, got one of another version, "
                "which rounds differently: the same noise on other numbers could give data away. "
                "Nothing was resumed. Start anew in another folder, with another seed if there is "
                "one; what was released so far counts too."
            )
        return found

    def check(
        self,
        settings: dict[str, Any],
        run: str,
        seed: int | None,
        problem: Problem,
        digest: Callable[[], str],
    ) -> None:
        """Refuse to continue a different run: it would use this one's noise a second time.

        ``digest`` of the agents' data is asked for last: it reads all of them.
        """
        # through JSON and back, as the saved settings went
        if (
            self.settings != json.loads(json.dumps(settings))
            or self.run != run
            or self.seed != seed
        ):
            raise InvalidInput(
                "Expected the settings, run and seed of the checkpoint, its source of noise, "
                "ledgers or none, and version of JAX; they differ. Nothing was resumed. Start "
                "anew in another folder, with another seed if there is one."
            )
        self._check_state(problem)
        if self.digest != digest():
            raise InvalidInput(
                "Expected the agents, objectives, sets and data of the checkpoint, the code of "
                "functions included; they differ. Nothing was resumed."
            )

    def _check_state(self, problem: Problem) -> None:
        """A round of the run, and finite arrays of the agents' sizes."""
        sizes = [agent.dimension for agent in problem.agents]
        sound = 0 <= self.round <= self.settings["rounds"]
        for parts in self.state.values():
            sound = sound and [np.shape(v) for v in parts] == [(n,) for n in sizes]
            sound = sound and all(np.isfinite(v).all() for v in parts)
        if not sound:
            raise CorruptFile(
                "Expected the state of a round of the run in the checkpoint: finite arrays of the "
                "agents' sizes. Nothing was resumed."
            )
