"""A problem whose agents have read their data once: public copies, and what they cost."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import write_atomically
from tacit.privacy.mechanisms import Mechanism, Noiseless, mechanism_from
from tacit.protocol.release import Release
from tacit.protocol.statement import PrivacyStatement, release_statement
from tacit.reading import parse_json, read_npz, reading, typed

FORMAT, SAVED = 1, "a release that tacit saved"


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
            copies.append(public_part(agent, name, release, mechanism, len(releases)))
        return cls(Problem(copies, problem.penalties), releases, mechanism, privacy, seed)

    def save(self, path: str | Path) -> None:
        """Keep the releases and their seals, for their owner's eyes."""
        about = self.releases, self.mechanism, self.privacy, self.seed
        save_releases(path, self.problem.names, *about)

    @classmethod
    def load(cls, path: str | Path, problem: Problem | Iterable[LocalProblem]) -> Released:
        """What ``save`` kept of a release of this problem's data; of other data it is refused.

        The statement follows from the noise and from this problem, not from words in the file.
        Whoever can write the file can still forge it: noise that was not drawn, other values.
        """
        problem = Problem.of(problem)
        saved = SavedReleases.load(path)
        privacy = saved.statement(problem)
        readings = [a.objective.reading() for a in problem.agents]
        same = saved.names == problem.names and all(
            release.values.shape == reading.values.shape and release.fits(reading)
            for release, reading in zip(saved.releases, readings, strict=True)
        )
        saved.refuse_unless(same)
        return cls.of(problem, saved.releases, saved.mechanism, privacy, saved.seed)


def save_releases(
    path: str | Path,
    names: Sequence[str],
    releases: Sequence[Release],
    mechanism: Mechanism,
    privacy: PrivacyStatement,
    seed: int | None,
) -> None:
    """Keep releases and their seals, for their owner's eyes."""
    arrays: dict[str, Any] = {}
    for i, release in enumerate(releases):
        arrays[f"values_{i}"] = release.values
        arrays[f"seal_{i}"] = np.frombuffer(release.seal, np.uint8)
    about = {
        "format": FORMAT,
        "agents": list(names),
        "mechanism": mechanism.to_dict(),
        "privacy": privacy.to_dict(),
        "seed": seed,
    }
    content = io.BytesIO()
    np.savez(content, about=json.dumps(about), **arrays)
    write_atomically(Path(path), content.getvalue())


@dataclass(frozen=True)
class SavedReleases:
    """What is in such a file; whether it is of these data is for the agents to say."""

    path: str | Path
    names: tuple[str, ...]
    releases: tuple[Release, ...]
    mechanism: Mechanism
    seed: int | None
    delta: float
    secure: bool

    @classmethod
    def load(cls, path: str | Path) -> SavedReleases:
        with _readable(path):
            arrays = read_npz(path, SAVED)
            about = _about(arrays)
            releases = tuple(
                Release(arrays[f"values_{i}"], arrays[f"seal_{i}"].tobytes())
                for i in range(len(about["agents"]))
            )
            mechanism, seed = mechanism_from(about["mechanism"]), about["seed"]
            if not (seed is None or type(seed) is int) or isinstance(mechanism, Noiseless):
                raise InvalidInput("a seed is a whole number, and there is noise")
            of, names = about["privacy"], tuple(about["agents"])
            delta, secure = float(of["delta"]), of["secure"] is True
            return typed(cls(path, names, releases, mechanism, seed, delta, secure))

    def statement(self, problem: Problem) -> PrivacyStatement:
        with _readable(self.path):
            about = self.mechanism, self.delta, self.seed is not None, self.secure
            return release_statement(problem, *about)

    def refuse_unless(self, same: bool) -> None:
        """``same``: whether the problem at hand is the one that was released."""
        if not same:
            raise InvalidInput(
                f"Expected the problem that was released in {self.path}; its data, agents, bounds "
                "or neighbours are others by now. A new release needs a new charge. Nothing was "
                "computed."
            )


def _readable(path: str | Path) -> AbstractContextManager[None]:
    return reading(path, SAVED)


def public_part(
    agent: LocalProblem, name: str, release: Release, mechanism: Mechanism, agents: int
) -> LocalProblem:
    """An agent's part of a problem as its release tells it, one of so many ``agents``."""
    reading = agent.objective.reading()
    deviation = math.sqrt(mechanism.variance(reading.sensitivity(mechanism.norm)))
    return agent.with_objective(reading.public_copy(release.values, deviation, agents), name)


def is_without_noise(path: str | Path) -> bool:
    """Whether ``save`` wrote this file for a run without noise: nothing is lost with it."""
    with suppress(CorruptFile), _readable(path):
        return isinstance(mechanism_from(_about(read_npz(path))["mechanism"]), Noiseless)
    return False


def _about(arrays: Any) -> dict[str, Any]:
    about: dict[str, Any] = parse_json(str(arrays["about"]))
    if about["format"] != FORMAT:
        raise InvalidInput("another version")
    return about
