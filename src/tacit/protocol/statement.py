"""The privacy statement of a run, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import choice
from tacit.files import typed
from tacit.html import never_raises
from tacit.privacy.accounting import epsilon_of, exact, rounded_up
from tacit.privacy.mechanisms import Mechanism, Noiseless, share_of
from tacit.privacy.secure_noise import largest_distance

# Only the user knows where such a number came from.
PUBLIC = (
    "Taken for public: all that a run takes beside the data, such as feasible sets, bounds, "
    "nominal values, penalties and settings, and the numbers of records where that change keeps "
    "them."
)


OF_SUM = "parties", "colluding", "alone"
BESIDE = "before", "after"


@dataclass(frozen=True)
class PrivacyStatement:
    """What all messages of a run together reveal about one agent's data.

    ``neighbours`` pairs each change that is hidden with the agents whose data it is about.
    ``uncertified`` says why nothing is promised, and is empty if the statement is certified.
    ``seeded``: whoever knows the seed can subtract the noise. Where neither ``seeded`` nor
    ``secure``, the noise is Threefry's from a key of the operating system.
    ``assumed``: sentences about what is taken for public (``PUBLIC``, and what a model adds).
    ``once``: every agent released noisy statistics, and the run used nothing else of its data.
    ``before``, ``after``: what every agent released beside the run, in words; the numbers are of
    all together.
    ``parties``: of a secure sum; up to ``colluding`` of them may collude with those who attack, or
    add no noise; ``alone``: ε at the same δ, whatever others do.
    """

    epsilon: float
    delta: float
    mechanism: str
    updates: int
    neighbours: tuple[tuple[str, tuple[str, ...]], ...]
    seeded: bool
    uncertified: str = ""
    secure: bool = False  # exact discrete noise from the operating system (``secure_noise.py``)
    assumed: str = ""
    once: bool = False
    before: str = ""
    parties: int = 1
    colluding: int = 0
    alone: float = 0.0
    after: str = ""

    @property
    def certified(self) -> bool:
        return not self.uncertified

    def __str__(self) -> str:
        return self.words

    @property
    def unless(self) -> str:
        """Of a secure sum what the numbers count on, and what holds else; else empty."""
        if self.parties == 1:
            return ""
        few = f"at most {self.colluding} of the {self.parties} agents collude or add no noise"
        held = f"as long as {few}, and the ciphers hold"
        return f", {held} (ε ≤ {rounded_up(self.alone, 3)} whatever others do)"

    @property
    def words(self) -> str:
        """What is hidden, from whom, ε and δ with what they rest on: a line each; then details."""
        if math.isinf(self.epsilon):
            return "Not private: the run adds no noise, and its messages reveal the data."
        if len(self.neighbours) == 1:
            change = f"{self.neighbours[0][0]} in one agent's data"
        else:
            change = "; or ".join(
                f"{what} in the data of {' or '.join(names)}" for what, names in self.neighbours
            )
        total, own = (
            f"({rounded_up(ε, 3)}, {rounded_up(self.delta, 6)})-DP"
            for ε in (self.epsilon, self.alone)
        )
        summed = self.parties > 1
        if not self.certified:
            total += f", and {own} by an agent's own noise alone" if summed else ""
            return (
                f"Not certified: {self.uncertified}\nNothing is promised. If this were covered, "
                f"{self._released} would be {total}, for {change}."
            )
        others, total = " and the other agents", f"{total} for all messages of the run together"
        if summed:
            others = ""
            total += (
                f", as long as at most {self.colluding} of the {self.parties} agents collude with "
                "whoever attacks or add no noise, and nobody breaks X25519, HKDF-SHA256 or "
                f"ChaCha20; {own} by the agent's own noise, whatever others do and without any "
                "assumption on ciphers"
            )
        given = ["what is taken for public (below) is public"] if self.assumed else []
        if self.seeded:
            given.append("the seed of the noise is secret and never used again")
        elif not self.secure:
            given.append("nobody can try 2^64 keys")
        given[:1] = [f" Assumed: {one}" for one in given[:1]]
        covered = "The solutions are covered; "
        if not self.once:
            covered += "the trace's objective and noise columns are not, and must not be published."
        elif summed:
            covered += "so is all else that is computed from the sum, at no further cost."
        else:
            covered = (
                "All else was computed from that: the solutions and the whole trace are covered, "
                "and further runs, restarts and stopping rules on the same release cost nothing."
            )
        return (
            f"Hidden: {change}.\n"
            f"From: everyone who sees all messages, the server{others} included.\n"
            f"Privacy: {total}.{'; '.join(given)}{'.' * bool(given)}\n"
            f"Details: the run released {self._released}. {covered}{self._noise}"
        )

    @property
    def _noise(self) -> str:
        """What is taken for public, and where noise comes from."""
        text = f" {self.assumed}" if self.assumed else ""
        if self.seeded:
            text += (
                " The noise is Threefry's, from a seed: the statement holds only while the seed is "
                "secret and never used again, under the same run name, on other data or settings, "
                "nor by an agent that was stopped and has no ledger or checkpoint: started again, "
                "it would repeat its noise for other requests."
            )
        elif self.secure:
            text += " The noise is discrete, exact and from the operating system's generator."
        else:
            text += (
                " The noise is Threefry's, in floating point, from a key of 64 bits that the "
                "operating system gave: the statement holds against those who cannot try 2^64 keys."
            )
        return text

    @never_raises
    def _repr_html_(self) -> str:
        from tacit.protocol.jupyter import statement_html

        return statement_html(self)

    @property
    def _released(self) -> str:
        """What was released, and with which noise."""
        if self.parties > 1:
            sent = "one sum" if self.once else f"{self.updates} sums"
            sent += f" of all agents' statistics, with {self.mechanism} noise that all add together"
        elif self.once:
            sent = f"the sufficient statistics of each agent, once, with {self.mechanism} noise"
        else:
            sent = f"{self.updates} {self.mechanism} updates per agent"
        beside = ("before", self.before), ("after", self.after)
        return sent + "".join(f", and {when} that {what}" for when, what in beside if what)

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "certified": self.certified,
            "uncertified": self.uncertified,
            "mechanism": self.mechanism,
            "updates": self.updates,
            "neighbours": [{"change": c, "agents": list(names)} for c, names in self.neighbours],
            "seeded": self.seeded,
            "secure": self.secure,
            "assumed": self.assumed,
            "once": self.once,
            **{n: said for n in BESIDE if (said := getattr(self, n))},
            **({name: getattr(self, name) for name in OF_SUM} if self.parties > 1 else {}),
            "statement": self.words,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyStatement:
        """What ``to_dict`` gave; whoever reads it from a file does so within ``reading``."""
        return typed(
            cls(
                math.inf if data["epsilon"] is None else data["epsilon"],
                data["delta"],
                choice("mechanism", data["mechanism"], ("gaussian", "laplace", "noiseless")),
                data["updates"],
                tuple((n["change"], tuple(n["agents"])) for n in data["neighbours"]),
                data["seeded"],
                data["uncertified"],
                data.get("secure", False),
                data.get("assumed", ""),
                data.get("once", False),
                **{name: data[name] for name in BESIDE if name in data},
                **{name: data[name] for name in OF_SUM if "parties" in data},
            )
        )


def promised(p: PrivacyStatement) -> bool:
    """Whether the statement promises anything: it is certified, and its numbers are numbers."""
    return p.certified and 0 <= p.epsilon < math.inf and 0 <= p.delta < 1


def not_promised(p: PrivacyStatement) -> str:
    """Why the statement promises nothing; empty if it does."""
    if math.isinf(p.epsilon):
        return "no noise was added."
    return "" if promised(p) else p.uncertified or "its epsilon or delta is no budget."


def privacy_statement(
    problem: Problem,
    settings: Settings,
    seeded: bool,
    secure: bool = False,
    updates: int | None = None,
) -> PrivacyStatement:
    """The exact composition of the TE updates that every agent makes (Section 4.3, corrected).

    ``updates`` is the number that was paid for, if not TE: a round that failed is paid again.
    Agents' data are disjoint, so one agent's record costs what that agent's messages cost.
    """
    neighbours = neighbours_of(problem)
    mechanism, updates = settings.mechanism, updates or settings.updates
    epsilon, delta, uncertified = math.inf, settings.delta, "the run adds no noise."
    if not isinstance(mechanism, Noiseless):
        total = exact(mechanism, updates, settings.delta)
        epsilon, delta = total.epsilon, total.delta
        if secure and delta > 0 and updates > settings.updates:
            # the noise makes up for the distance of as many updates as were planned
            widest = max(a.objective.statistic_size for a in problem.agents)
            distance = updates * largest_distance(mechanism, widest)
            epsilon = epsilon_of([(mechanism, updates)], delta, distance)
        uncertified = why_uncertified(problem.agents, settings)
    about = mechanism.name, updates, neighbours, seeded, uncertified, secure, PUBLIC
    return PrivacyStatement(epsilon, delta, *about)


def of_sum(
    statement: PrivacyStatement,
    parties: int,
    colluding: int,
    parts: Sequence[tuple[Mechanism, int]],
    coordinates: int,
) -> PrivacyStatement:
    """The same where parts were only added up: with ``colluding`` and the ε of one alone,
    whose noise in each of ``parts`` is a share; secure noise counts with the largest distance."""
    shares = parties - colluding
    own: list[Any] = [(share_of(mechanism, shares), n) for mechanism, n in parts]  # type: ignore[arg-type]
    distance = sum(n * largest_distance(mechanism, coordinates) for mechanism, n in own)
    alone = epsilon_of(own, statement.delta, distance if statement.secure else 0.0)
    return replace(statement, parties=parties, colluding=colluding, alone=alone)


def release_statement(
    problem: Problem,
    mechanism: Mechanism,
    delta: float,
    seeded: bool,
    secure: bool,
) -> PrivacyStatement:
    """Of one release by every agent, and all that is computed from it."""
    epsilon, uncertified, once = math.inf, "the run adds no noise.", False
    if not isinstance(mechanism, Noiseless):
        once = True
        epsilon, delta = (total := exact(mechanism, 1, delta)).epsilon, total.delta
        uncertified = next((u for a in problem.agents if (u := a.objective.uncertified)), "")
    neighbours = neighbours_of(problem)
    about = mechanism.name, 1, neighbours, seeded, uncertified, secure, PUBLIC, once
    return PrivacyStatement(epsilon, delta, *about)


def with_releases(
    run: PrivacyStatement,
    mechanism: Mechanism,
    size: int,
    releases: Sequence[tuple[Mechanism, int, int]],
    words: str,
) -> PrivacyStatement:
    """Of a run whose agents made releases before it, all in one total.

    ``mechanism`` is the run's, with ``size`` numbers in one update; each of ``releases`` has its
    own, how often it was released, and how many numbers it has; ``words`` say what it was.

    Guarantee: the run may depend on what was released (adaptive composition); the same records are
    hidden by both, if both have the same neighbours. Secure noise counts with the largest distance
    that it may have (``secure_noise.py``).
    """
    if isinstance(mechanism, Noiseless):
        return run
    if any(isinstance(noise, Noiseless) for noise, *_ in releases):
        why = "what the agents released before the run had no noise."
        return replace(run, epsilon=math.inf, uncertified=why, before=words)
    parts = [*((noise, times) for noise, times, _ in releases), (mechanism, run.updates)]
    distance = 0.0
    if run.secure:
        distance = run.updates * largest_distance(mechanism, size)
        distance += sum(times * largest_distance(noise, many) for noise, times, many in releases)
    found = replace(run, epsilon=epsilon_of(parts, run.delta, distance), before=words)
    if run.parties == 1:
        return found
    return of_sum(
        found, run.parties, run.colluding, parts, max(size, *(many for *_, many in releases))
    )


def neighbours_of(problem: Problem) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each change that is hidden, with the agents whose data it is about."""
    agents: dict[str, list[str]] = {}
    for name, agent in zip(problem.names, problem.agents, strict=True):
        agents.setdefault(agent.objective.neighbours, []).append(name)
    return tuple((change, tuple(names)) for change, names in agents.items())


def why_uncertified(agents: Sequence[LocalProblem], settings: Settings) -> str:
    """Why the accounted numbers are not proven, or nothing."""
    if settings.calibration != "certified":
        return "the noise follows the paper's calibration, whose sensitivity is not a proven bound."
    for f in (a.objective for a in agents):
        if reason := f.uncertified or f.uncertified_on(jax.default_backend()):
            return reason
    if settings.perturbation != "objective":
        return (
            "noise on the output hides an exact update, but updates are rounded or solved for up "
            "to an error that depends on the data, and a server can make that error large."
        )
    return ""
