"""Sufficient statistics of an agent's data, released once with noise; what follows is free.

    data ─▶ Objective.statistics() ─▶ values + noise ─▶ released objective
            paid for, once          kept first        rounds, retries, stopping: post-processing

For an objective that depends on its data through a few numbers only (‖Az + d‖² through d, least
squares through X'X and X'y) every message of a run is a function of those numbers. Noise in every
round measures them again and again, and pays each time; here they are measured once.

Guarantee: a release is the mechanism on ``Statistics.values``, whose sensitivity is a proven public
bound: exactly as private as one update of the mechanism. All that follows reads the release and
public numbers only (post-processing). With a ledger the release is paid for before it is measured,
and kept before anything is computed from it; several processes, each killed at any moment, never
show more releases than were paid for: a release is round 1 of a run of one round, and
``ledger.py`` has the proof. That data have changed since they were released shows: a new release
is made then. So what is kept answers one question only (``LocalProblem.asked``): two that differ
have a release each, even where their data are the same, which would show too.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tacit._types import Array, Vector
from tacit.admm.algorithm import noisy, sample_on_host
from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import CorruptFile, InvalidInput, Refused, digits
from tacit.files import parse_json, read_npz, reading, typed, write_atomically
from tacit.privacy.accounting import rounded_up
from tacit.privacy.ledger import Ledger, Payments, Terms
from tacit.privacy.mechanisms import Mechanism, Noiseless, mechanism_from
from tacit.privacy.secure_noise import SecureNoise, secure_noise
from tacit.protocol.statement import PrivacyStatement, release_statement

if TYPE_CHECKING:
    from tacit.objectives.objective import Statistics

SEAL = 64  # bytes: a key, and the digest of what was read under that key


@dataclass(frozen=True)
class Release:
    """What one agent has released, and a seal by which it knows the data again.

    ``values`` are covered by the statement. The seal is not: it stays with the agent, and is not
    shown where a release is printed.
    """

    values: Vector = field(repr=False)
    seal: bytes = field(default=b"", repr=False)
    kept: bool = False  # whether the ledger had it: then nothing was charged

    def fits(self, statistics: Statistics) -> bool:
        """Whether it was read from these data."""
        return hmac.compare_digest(self.seal, _seal(statistics, self.seal[: SEAL // 2]))

    def to_bytes(self) -> bytes:
        return np.asarray(self.values, "<f8").tobytes()


@dataclass(frozen=True)
class Reader:
    """One agent's part of a release: which noise its statistics get, and who pays.

    mechanism  of one release            delta   at which the total is stated
    noise      "seeded" from ``key``, or "secure"
    from_seed  whether the key follows from a seed that somebody knows: what is kept of such noise
               is not given where a key of the operating system is asked for, nor the other way
    """

    name: str
    mechanism: Mechanism
    delta: float
    noise: str
    key: Array | None = field(default=None, repr=False)
    ledger: Ledger | None = None
    from_seed: bool = False

    def afford(self, problem: LocalProblem, then: tuple[Mechanism, int]) -> None:
        """See that the ledger would pay for a release of these data, where it keeps none, and for
        what is to follow: nobody would gain by the one without the other. Notes nothing."""
        if self.ledger is None:
            return
        owed = [] if self._find(self._plan(problem))[1] else [(self.mechanism, 1)]
        if not self.ledger.affords(*owed, then):
            raise Refused(
                f"Agent {self.name!r}: its release and the run after it would go beyond the budget "
                f"of {digits(self.ledger.budget.epsilon)} (spent: "
                f"{rounded_up(self.ledger.spent.epsilon, 6)}). Nothing was charged."
            )

    def agree(self, problem: LocalProblem) -> None:
        """See that the ledger would pay for a release, where none is kept; costs nothing.

        If one agent's budget is too small, none of them has paid in vain.
        """
        if self.ledger is not None:
            self._agree(problem, self._plan(problem))

    def terms(self, problem: LocalProblem) -> Terms:
        """What the release costs, whether it is kept or a new one."""
        return self._plan(problem).terms

    def named(self, problem: LocalProblem) -> str:
        """What the ledger calls the release of these data, whether it is kept or to come."""
        return self._find(self._plan(problem))[0]

    def _agree(self, problem: LocalProblem, plan: _Plan) -> None:
        assert self.ledger is not None
        if reason := problem.objective.uncertified:
            raise Refused(f"Agent {self.name!r} pays only for what is proven, but {reason}")
        run, kept = self._find(plan)
        if kept is None:
            self.ledger.begin(run, plan.terms)

    def read(self, problem: LocalProblem) -> Release:
        """The release of this agent's data: the one that is kept, or a new one that is paid for.

        Data that have changed since need, and get, a new one.
        """
        plan = self._plan(problem)
        if self.ledger is None:
            return self._measured(plan, plan.terms.release(0))  # other terms, other noise
        self._agree(problem, plan)
        while True:  # until what is kept is of these data: another process may have others
            run, kept = self._find(plan)
            release = kept or self._new(run, plan)
            if release.fits(plan.statistics):
                return release

    def holds(self, problem: LocalProblem, release: Release) -> bool:
        """Whether the ledger knows of this release: then it is paid for there."""
        kept = self._find(self._plan(problem))[1]
        return kept is not None and kept.to_bytes() == release.to_bytes()

    def _plan(self, problem: LocalProblem) -> _Plan:
        """What is to be measured, with which noise and on which terms."""
        objective, statistics = problem.objective, problem.objective.statistics()
        # the values themselves: what cannot be computed is not paid for, and each gets its noise
        Δ, size, secure = statistics.sensitivity(self.mechanism.norm), statistics.values.size, None
        if self.noise == "secure":
            secure = secure_noise(self.mechanism, Δ, size, 1, self.delta)
        mechanism = secure.mechanism if secure else self.mechanism
        distance = secure.distance if secure else 0.0
        public = ["release", self.name, self.mechanism.to_dict(), float(self.delta), float(Δ)]
        public += [size, self.noise, objective.relation, self.from_seed]
        public += [problem.asked] * bool(problem.asked)
        digest = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()
        terms = Terms(self.name, mechanism, 1, 1, distance, self.noise, objective.relation, digest)
        return _Plan(statistics, Δ, secure, terms)

    def _find(self, plan: _Plan) -> tuple[str, Release | None]:
        """The release on these terms and of these data, or the name that a new one would have."""
        for n in count(1):  # there is one for every state of the data
            run = plan.terms.release(n)
            kept = self._kept(run, plan.statistics)
            if kept is None or kept.fits(plan.statistics):
                return run, kept
        raise AssertionError("unreachable")

    def _kept(self, run: str, statistics: Statistics) -> Release | None:
        """The release that is in the ledger under this name."""
        assert self.ledger is not None
        answer = self.ledger.answer(run, 1)
        if answer is None:
            return None
        values = np.frombuffer(answer.reply, "<f8")
        if len(answer.state) != SEAL or values.shape != statistics.values.shape:
            raise CorruptFile(f"Expected a release as {run!r} in {self.ledger.path}, got none.")
        return Release(values, answer.state, True)

    def _new(self, run: str, plan: _Plan) -> Release:
        """Pay, measure, keep; what another process kept meanwhile counts instead."""
        assert self.ledger is not None
        self.ledger.begin(run, plan.terms)
        payments = Payments(self.ledger, run)
        if payments.pay(1):
            try:
                release = self._measured(plan, run)
            except Exception:
                if payments.fail(1):
                    raise
                return self._kept_of(run, plan)  # by another process: to be shown instead
            if payments.store(1, plan.terms.settings, release.to_bytes(), release.seal):
                return release
        return self._kept_of(run, plan)

    def _kept_of(self, run: str, plan: _Plan) -> Release:
        kept = self._kept(run, plan.statistics)
        assert kept is not None
        return kept

    def _measured(self, plan: _Plan, run: str) -> Release:
        """Values plus noise. Seeded noise differs with ``run``, and from that of any round."""
        values = plan.statistics.values
        if plan.secure is not None:
            grid = plan.secure.draw(1)
            found = noisy(values, grid.values[0], grid)
        else:
            assert self.key is not None
            word = np.frombuffer(hashlib.sha256(run.encode()).digest()[:4], "<u4")[0]
            key = jax.random.fold_in(self.key, word)
            Δ = np.float64(plan.sensitivity * (1 + 2 * float(np.finfo(np.float64).eps)))
            ξ = sample_on_host(key, 0, 0, values.size, Δ, np.float64, self.mechanism)
            found = noisy(values, ξ, self.mechanism)
        return Release(found, _seal(plan.statistics, os.urandom(SEAL // 2)))


def mark(releases: Iterable[Release], answer: Iterable[Vector]) -> str:
    """Of an answer that was computed from these releases and public numbers alone.

    By it a run knows what it may start from at no cost: an answer of any other data, or with other
    numbers in it, has another one. Only a function of what was released, so it is covered too.
    """
    digest = hashlib.sha256()
    for part in [*(np.frombuffer(release.to_bytes()) for release in releases), *answer]:
        digest.update(len(part).to_bytes(8, "little") + np.asarray(part, "<f8").tobytes())
    return digest.hexdigest()


class _Plan(NamedTuple):
    """What a reader is about to measure."""

    statistics: Statistics
    sensitivity: float
    secure: SecureNoise | None
    terms: Terms


def _seal(statistics: Statistics, key: bytes) -> bytes:
    """Of the data themselves, as sums over them differ in their last bits between processors, and
    of Δ: the noise on a release hides no larger change than it was made for."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    digest.update(repr([float(statistics.sensitivity(norm)) for norm in (1, 2)]).encode())
    for part in map(np.asarray, statistics.source):
        digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return key + digest.digest()


FORMAT, SAVED = 1, "a release that tacit saved"


@dataclass(frozen=True)
class Released:
    """A problem of released objectives: solve it as often as you like, at no further cost.

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
        """``problem`` with the objectives that follow from what its agents released."""
        copies = []
        for name, agent, release in zip(problem.names, problem.agents, releases, strict=True):
            copies.append(public_part(agent, name, release, mechanism, len(releases)))
        return cls(Problem(copies, problem.penalties), releases, mechanism, privacy, seed)

    def save(self, path: str | Path) -> None:
        """Keep the releases and their seals, for their owner's eyes."""
        about = self.mechanism, self.seed, self.privacy.delta, self.privacy.secure
        SavedReleases(self.problem.names, self.releases, *about).save(path)

    @classmethod
    def load(cls, path: str | Path, problem: Problem | Iterable[LocalProblem]) -> Released:
        """What ``save`` kept of a release of this problem's data; of other data it is refused.

        The statement follows from the noise and from this problem, not from words in the file.
        Whoever can write the file can still forge it: noise that was not drawn, other values.
        """
        problem = Problem.of(problem)
        saved = SavedReleases.load(path)
        privacy = saved.statement(path, problem)
        all_statistics = [a.objective.statistics() for a in problem.agents]
        same = saved.names == problem.names and all(
            release.values.shape == statistics.values.shape and release.fits(statistics)
            for release, statistics in zip(saved.releases, all_statistics, strict=True)
        )
        refuse_unless(same, path)
        return cls.of(problem, saved.releases, saved.mechanism, privacy, saved.seed)


@dataclass(frozen=True)
class SavedReleases:
    """Releases in a file; whether they are of these data is for the agents to say. A run without
    noise has none."""

    names: tuple[str, ...]
    releases: tuple[Release, ...]
    mechanism: Mechanism
    seed: int | None
    delta: float
    secure: bool

    def save(self, path: str | Path) -> None:
        arrays: dict[str, Any] = {}
        for i, release in enumerate(self.releases):
            arrays[f"values_{i}"] = release.values
            arrays[f"seal_{i}"] = np.frombuffer(release.seal, np.uint8)
        about = {
            "format": FORMAT,
            "agents": self.names,
            "mechanism": self.mechanism.to_dict(),
            "privacy": {"delta": self.delta, "secure": self.secure},
            "seed": self.seed,
        }
        content = io.BytesIO()
        np.savez(content, about=json.dumps(about), **arrays)
        write_atomically(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> SavedReleases:
        with reading(path, SAVED):
            arrays = read_npz(path, SAVED)
            about = parse_json(str(arrays["about"]))
            if about["format"] != FORMAT:
                raise InvalidInput("another version")
            mechanism, names = mechanism_from(about["mechanism"]), tuple(about["agents"])
            releases = tuple(
                Release(arrays[f"values_{i}"], arrays[f"seal_{i}"].tobytes())
                for i in range(len(names) * (not isinstance(mechanism, Noiseless)))
            )
            delta, secure = float(about["privacy"]["delta"]), about["privacy"]["secure"]
            return typed(cls(names, releases, mechanism, about["seed"], delta, secure))

    def statement(self, path: str | Path, problem: Problem) -> PrivacyStatement:
        with reading(path, SAVED):
            if isinstance(self.mechanism, Noiseless):
                raise InvalidInput("there is no noise")
            about = self.mechanism, self.delta, self.seed is not None, self.secure
            return release_statement(problem, *about)


def refuse_unless(same: bool, path: str | Path) -> None:
    """``same``: whether the problem at hand is the one that was released."""
    if not same:
        raise InvalidInput(
            f"Expected the problem that was released in {path}; its data, agents, bounds or "
            "neighbours are others by now. A new release needs a new charge. Nothing was computed."
        )


def public_part(
    agent: LocalProblem, name: str, release: Release, mechanism: Mechanism, agents: int
) -> LocalProblem:
    """An agent's part of a problem as its release tells it, one of ``agents``."""
    statistics = agent.objective.statistics()
    deviation = math.sqrt(mechanism.variance(statistics.sensitivity(mechanism.norm)))
    return agent.with_objective(
        statistics.released_objective(release.values, deviation, agents), name
    )
