"""``release``: one noisy reading of every agent's data, by agents in this process or on ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.objectives import public
from tacit.planning import least_noise
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms import Mechanism, Noiseless
from tacit.protocol.keys import noise_source, root_key
from tacit.protocol.release import Release
from tacit.protocol.released import Released, SavedReleases, is_without_noise, save_releases
from tacit.protocol.statement import PrivacyStatement, release_statement
from tacit.sets.powers import require_64_bits
from tacit.transports.seats import Everyone, Here, Ledgers, Seat


def release(
    problem: Problem | Iterable[LocalProblem],
    total_epsilon: float,
    total_delta: float = 0.0,
    *,
    mechanism: str | None = None,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Ledgers = None,
) -> Released:
    """Let every agent read its data once, with noise; what is computed from it costs no more.

    total_epsilon, total_delta   the budget of each agent's reading; δ = 0 with Laplace noise only
    mechanism   "gaussian" or "laplace"; by default the one that adds less noise, chosen from public
                numbers (``planning.least_noise``)
    seed        Threefry noise from this seed (research); None: from a key of the operating system
    run         a name; seeded noise differs between runs of one seed
    noise       "seeded", or "secure": exact discrete noise from the operating system, number by
                number, the default with ledgers
    ledgers     the agents' ledgers by name, or a folder with NAME.db for every agent. Each agent
                pays there once; asked again for the same data and budget, it gives what it has
                given, at no cost. Data that have changed need, and get, a charge of their own.

    Guarantee: see ``release.py``. ``Released.privacy`` covers all that is computed from it.
    """
    if isinstance(problem, Released):
        raise InvalidInput("Expected a problem of private data, got one that is released already.")
    problem = Problem.of(problem)
    noise_law = (
        least_noise(problem, total_epsilon, total_delta)
        if mechanism is None
        else calibrate(mechanism, total_epsilon, total_delta, 1)
    )
    return read(problem, noise_law, total_delta, seed, run, noise, ledgers)


def read(
    problem: Problem,
    mechanism: Mechanism,
    delta: float,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Ledgers = None,
    checkpoint: str | Path | None = None,
    then: tuple[Mechanism, int] | None = None,
) -> Released:
    """``release`` with a given law of the noise, kept in or taken from a ``checkpoint``, and only
    where ledgers would pay for what comes ``then`` too: a mechanism, and how often."""
    require_64_bits()
    source = Source(Here.of(problem, ledgers=ledgers), seed, run, noise, checkpoint)
    releases, privacy = source.releases(mechanism, delta, then)
    return Released.of(problem, releases, mechanism, privacy, seed)


def without_noise(problem: Problem) -> Released:
    """The problem itself as if it were public, for exact steps: such a run is not private."""
    copies = [
        agent.with_objective(public.without_noise(agent.objective), name)
        for name, agent in zip(problem.names, problem.agents, strict=True)
    ]
    statement = not_private(problem)
    return Released(Problem(copies, problem.penalties), (), Noiseless(), statement, None)


def not_private(problem: Problem) -> PrivacyStatement:
    """Of a run without noise."""
    return release_statement(problem, Noiseless(), 1e-6, False, False)


@dataclass(frozen=True)
class ReadingTerms:
    """How all agents read their data once: the noise, and where it comes from."""

    mechanism: Mechanism
    delta: float
    seed: int | None
    run: str
    noise: str

    @classmethod
    def of(
        cls,
        everyone: Everyone,
        mechanism: Mechanism,
        delta: float,
        seed: int | None,
        run: str,
        noise: str | None,
    ) -> ReadingTerms:
        source = noise_source(noise, everyone.open_ledgers(), seed)
        return cls(mechanism, delta, seed, run, source)

    @property
    def _terms(self) -> tuple[Any, ...]:
        root, from_seed = root_key(self.seed), self.seed is not None
        return self.mechanism, self.delta, self.noise, root, self.run, from_seed

    def read(
        self, everyone: Everyone, then: tuple[Mechanism, int] | None = None
    ) -> tuple[Release, ...]:
        """What every agent releases: all can be read and paid for, or none is."""
        if then is not None:
            everyone.each(Seat.readable, *self._terms)
            everyone.each(Seat.afford, then)
        everyone.each(Seat.agree, *self._terms)
        return tuple(everyone.each(Seat.read))

    def known(self, everyone: Everyone, releases: Sequence[Release]) -> bool:
        """Whether the ledgers, where there are any, know of these releases."""
        everyone.each(Seat.readable, *self._terms)
        return all(everyone.each(Seat.holds, own=[(release,) for release in releases]))

    def statement(self, problem: Problem) -> PrivacyStatement:
        about = self.mechanism, self.delta, self.seed is not None, self.noise == "secure"
        return release_statement(problem, *about)


class Copies(NamedTuple):
    """The public copies of a run, which agents hold: how curved they are, and what they cost."""

    curvatures: list[float]
    privacy: PrivacyStatement
    seed: int | None
    releases: Sequence[Release]  # what they were made of; none in a run without noise


@dataclass(frozen=True)
class Source:
    """Where the public copies of a run come from: what ``solve`` was given of it.

    The checkpoint of a run that reads its data once is its release, kept before anything is
    computed from it: a run that is continued does not read them again.
    """

    everyone: Everyone
    seed: int | None
    run: str | None
    noise: str | None
    checkpoint: str | Path | None

    def copies(
        self,
        released: Released | None,
        reading: tuple[Mechanism, float] | None,
        settings: Settings,
    ) -> Copies:
        """``reading``: the noise and the δ of one reading; None: a run without noise."""
        if released is not None:
            self._refuse("a released problem: its noise is drawn and paid for")
            about = released.releases, released.mechanism, released.privacy, released.seed
            return self._copied(*about)  # by the releases, should the problem be no copy
        if reading is None:
            return self._without_noise(settings)
        releases, privacy = self.releases(*reading)
        return self._copied(releases, reading[0], privacy, self.seed)

    def releases(
        self, mechanism: Mechanism, delta: float, then: tuple[Mechanism, int] | None = None
    ) -> tuple[tuple[Release, ...], PrivacyStatement]:
        """What the checkpoint keeps, or a new release that it keeps from here on; ``then``: what
        ledgers must be able to pay for after a new one."""
        about = mechanism, delta, self.seed, self.run or "run", self.noise
        if self.checkpoint is not None and Path(self.checkpoint).exists():
            return self._continued(Path(self.checkpoint), *about)
        terms = ReadingTerms.of(self.everyone, *about)
        releases = terms.read(self.everyone, then)
        privacy = terms.statement(self.everyone.problem)
        if self.checkpoint is not None:
            names = self.everyone.problem.names
            save_releases(self.checkpoint, names, releases, mechanism, privacy, self.seed)
        return releases, privacy

    def _copied(
        self,
        releases: Sequence[Release] | None,
        mechanism: Mechanism,
        privacy: PrivacyStatement,
        seed: int | None,
    ) -> Copies:
        many = len(self.everyone.problem.agents)
        own = [(release,) for release in releases] if releases else [(None,)] * many
        curvatures = self.everyone.each(Seat.copy, mechanism, many, own=own)
        return Copies(curvatures, privacy, seed, releases or ())

    def _without_noise(self, settings: Settings) -> Copies:
        if not isinstance(settings.mechanism, Noiseless):
            raise InvalidInput("Expected settings without noise for exact steps.")
        if self.noise is not None or self.everyone.has_ledgers:
            raise InvalidInput(
                "Expected neither ledgers nor a source of noise for a run without noise, which "
                "no ledger can pay for. Nothing was released."
            )
        problem = self.everyone.problem
        found = self._copied(None, Noiseless(), not_private(problem), None)
        if self.checkpoint is not None:
            if Path(self.checkpoint).exists() and not is_without_noise(self.checkpoint):
                raise InvalidInput(
                    f"Expected no checkpoint of another run in {self.checkpoint}, which would "
                    "be lost. Nothing was computed."
                )
            save_releases(self.checkpoint, problem.names, (), Noiseless(), found.privacy, None)
        return found

    def _continued(
        self,
        path: Path,
        mechanism: Mechanism,
        delta: float,
        seed: int | None,
        run: str,
        noise: str | None,
    ) -> tuple[tuple[Release, ...], PrivacyStatement]:
        """The release in the checkpoint: of this budget and noise, and known to the ledgers."""
        everyone = self.everyone
        saved = SavedReleases.load(path)
        privacy = saved.statement(everyone.problem)
        same = saved.names == everyone.problem.names and all(
            everyone.each(Seat.fits, own=[(release,) for release in saved.releases])
        )
        saved.refuse_unless(same)
        if (saved.mechanism, privacy.delta) != (mechanism, delta):
            raise InvalidInput(
                f"Expected the budget of the release in {path}, got another: a new release needs a "
                "checkpoint of its own. Nothing was released."
            )
        terms = ReadingTerms.of(everyone, mechanism, delta, seed, run, noise)
        known = terms.known(everyone, saved.releases)
        if saved.seed != seed or privacy.secure != (terms.noise == "secure") or not known:
            raise InvalidInput(
                f"Expected the seed, the source of noise and the ledgers of the release in {path}; "
                "they differ, or the ledgers know nothing of it. A new release needs a checkpoint "
                "of its own. Nothing was released."
            )
        return saved.releases, privacy

    def _refuse(self, why: str) -> None:
        given = {name: getattr(self, name) for name in ("seed", "run", "noise", "checkpoint")}
        if self.everyone.has_ledgers:
            given["ledgers"] = True
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(f"Expected no {name} for {why}; got one.")
