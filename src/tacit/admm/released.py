"""A problem whose agents have read their data once: public copies, and what they cost."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.release import Release
from tacit.admm.statement import PrivacyStatement, neighbours_of
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import write_atomically
from tacit.privacy.mechanisms import Mechanism, mechanism_from


@dataclass(frozen=True)
class Released:
    """A problem of public copies: solve it as often as you like, at no further cost.

    problem    the same sets and couplings, with objectives that hold nothing private
    releases   what each agent has released (its seal stays with the agent)
    mechanism  of the noise on them
    privacy    the statement that covers the releases and all that is computed from them
    seed       of the noise, or None
    """

    problem: Problem
    releases: tuple[Release, ...]
    mechanism: Mechanism
    privacy: PrivacyStatement
    seed: int | None

    @classmethod
    def of(
        cls,
        problem: Problem,
        releases: tuple[Release, ...],
        mechanism: Mechanism,
        privacy: PrivacyStatement,
        seed: int | None,
    ) -> Released:
        """Public copies of the objectives of ``problem`` out of what its agents released."""
        copies = []
        for name, agent, release in zip(problem.names, problem.agents, releases, strict=True):
            reading = agent.objective.reading()
            deviation = math.sqrt(mechanism.variance(reading.sensitivity(mechanism.norm)))
            copies.append(
                agent.with_objective(
                    reading.public_copy(release.values, deviation, len(releases)), name
                )
            )
        return cls(Problem(copies, problem.penalties), releases, mechanism, privacy, seed)

    def save(self, path: str | Path) -> None:
        """Keep the releases and their seals, for their owner's eyes."""
        arrays: dict[str, Any] = {}
        for i, release in enumerate(self.releases):
            arrays[f"values_{i}"] = release.values
            arrays[f"seal_{i}"] = np.frombuffer(release.seal, np.uint8)
        about = {
            "format": 1,
            "agents": list(self.problem.names),
            "mechanism": self.mechanism.to_dict(),
            "privacy": self.privacy.to_dict(),
            "seed": self.seed,
        }
        content = io.BytesIO()
        np.savez(content, about=json.dumps(about), **arrays)
        write_atomically(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path, problem: Problem | Iterable[LocalProblem]) -> Released:
        """What ``save`` kept of a release of this problem's data; of other data it is refused."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                about = json.loads(str(arrays["about"]))
                releases = tuple(
                    Release(arrays[f"values_{i}"], arrays[f"seal_{i}"].tobytes())
                    for i in range(len(about["agents"]))
                )
            privacy = PrivacyStatement.from_dict(about["privacy"])
            mechanism = mechanism_from(about["mechanism"])
            seed, names = about["seed"], tuple(about["agents"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise CorruptFile(
                f"Expected a release that tacit saved in {path}: {error!r}."
            ) from None
        problem = Problem.of(problem)
        readings = [a.objective.reading() for a in problem.agents]
        same = (names, privacy.neighbours) == (problem.names, neighbours_of(problem)) and all(
            release.values.shape == reading.values.shape and release.fits(reading)
            for release, reading in zip(releases, readings, strict=True)
        )
        if not same:
            raise InvalidInput(
                f"Expected the problem that was released in {path}; its data, agents or what "
                "counts as neighbours are others by now. A new release needs a new charge. "
                "Nothing was computed."
            )
        return cls.of(problem, releases, mechanism, privacy, seed)
