"""A participant: the only place where private data, a ledger and a message meet.

    request ──▶ Participant.handle ──▶ answer

How it answers a round is decided by the proposal that it agreed to: with noise in every round
(``Agent``), with its part of a sum (``Summand``), or by exact steps on what was released
(``ExactRounds``). The owner of the data, who
runs all agents alone, may also measure and keep what no message says; a participant of another
organisation refuses that, and answers errors in one of ``WORDS``.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.admm.problem import LocalProblem, objective_value
from tacit.admm.settings import ConstantPenalty, ConstantStep, Settings
from tacit.errors import (
    CorruptFile,
    InvalidInput,
    LedgerFailure,
    Refused,
    SolverFailure,
    digits,
    plain,
)
from tacit.objectives.public import PublicObjective, without_noise
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.seeded_noise import agent_key, jax_key
from tacit.protocol.agent import Agent, ExactRounds
from tacit.protocol.facts import facts_of
from tacit.protocol.journal import agent_digest
from tacit.protocol.messages import (
    Agreed,
    Answer,
    Broadcast,
    Curvature,
    Facts,
    Failure,
    Finish,
    Invite,
    Keys,
    Masked,
    Measure,
    Measured,
    Own,
    Propose,
    Refusal,
    ReleaseOnce,
    Reply,
    Request,
    Restore,
    Roster,
    Snapshot,
    Start,
    State,
    Sum,
    request_from,
)
from tacit.protocol.release import Reader, Release, public_part

log = logging.getLogger("tacit.party")
# All that a party ever says in words. Numbers, names of files and reasons are in its own log.
WORDS = {
    "rounds": ("refused", "does not agree: more rounds than its limit."),
    "noise": ("refused", "does not agree: the noise is not of the kind it asks for."),
    "sum": ("refused", "does not agree: the sum is not the one that it asks for."),
    "budget": ("refused", "does not agree: the total epsilon or delta is above its limit."),
    "terms": ("refused", "does not agree: its ledger refuses the run, or its guarantees do."),
    "study": ("refused", "holds another study."),
    "not agreed": ("refused", "has not agreed to this run."),
    "refused": ("refused", "refused the request. Nothing was computed."),
    "invalid": ("refused", "got no request that it knows. Nothing was computed."),
    "failed": ("failed", "failed. Nothing of this request was released."),
    "ledger": ("ledger", "could not pay. Nothing was released."),
    "signature": ("refused", "got a request that its coordinator did not sign."),
    "absent": ("refused", "cannot take part: its own log says why."),
}


MOST_WORDS = 600  # of a reason


class Disagrees(Refused):
    """A party's own rules forbid what was asked. ``point`` is all that it tells others."""

    def __init__(self, point: str, words: str) -> None:
        super().__init__(words)
        self.point = point


@dataclass
class Run:
    """A run that a participant has agreed to."""

    name: str
    size: int
    settings: Settings
    own: Own
    exact: bool
    reader: Reader | None = None  # where data are released once
    release: Release | None = None
    copy: LocalProblem | None = None  # of the problem, with an objective that is public
    rounds: Agent | ExactRounds | None = None  # who answers them
    epoch: int | None = None  # of keys for masks, where parts are only added up


class Rules(Protocol):
    """What an organisation agrees to: it raises ``Disagrees``, or any other error, where not."""

    def invited(self, study: str) -> LocalProblem:
        """The party's part of the study with this digest."""

    def agree(self, proposal: Propose) -> Own:
        """Where the noise of the run comes from: secure, unless the coordinator has its seed, whose
        statement is about all participants."""

    def roster(self) -> tuple[Roster, Any]:
        """Who adds up in a secure sum, and this party's own identity (an Ed25519 key)."""

    def allow(self, run: str, terms: Terms, release: str) -> None:
        """The release of this name, which may have been paid for before, perhaps by others."""

    def finish(self, participant: Participant, run: Run, outcome: Finish) -> None:
        """Keep the party's own part."""


class Participant:
    """One agent of a run, with its data and its ledger.

    index   its place among all agents, another one for each: seeded noise depends on it
    owner   whether those who ask own the data: they may ask for what is not covered, and get errors
            as they are. Else ``rules`` say what is agreed to.

    Guarantee: where ``owner`` is False, ``handle`` returns facts that do not depend on the data,
    the word that something was done, numbers that follow from noisy releases or updates which the
    ledger has paid for, or a refusal in one of ``WORDS``; and it never raises but for an interrupt.
    A request that was answered gets the same answer again: see ``Agent`` and ``Reader``.
    """

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        *,
        index: int = 0,
        ledger: Ledger | None = None,
        owner: bool = False,
        rules: Rules | None = None,
    ) -> None:
        if owner == (rules is not None) or not (owner or ledger):
            raise TypeError("expected either the owner of the data, or rules and a ledger")
        self.problem, self.name, self.index = problem, name, index
        self.ledger, self.owner, self.rules = ledger, owner, rules
        self.run: Run | None = None
        self._lock = threading.Lock()

    def handle(self, request: Request) -> Answer:
        """The answer to a request; an error is one too."""
        try:
            with self._lock:
                return self._answer(request)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a solver's panic too
            if not self.owner:
                return self._refusal(request, error)
            if isinstance(request, Broadcast) and isinstance(
                error, Refused | SolverFailure | LedgerFailure
            ):
                return Refusal.of(error, request.run, request.round)
            return Failure(error)

    def _answer(self, request: Request) -> Answer:
        match request:
            case Invite():
                return self._facts(request)
            case Propose():
                return self._agree(request)
            case Keys():
                return self._keys(request)
            case ReleaseOnce():
                return self._copy(request)
            case Start():
                return self._start(request)
            case Broadcast():
                return self._reply(request)
            case Finish():
                return self._finish(request)
            case Measure() if self.owner:
                return self._measure(request)
            case Snapshot() if self.owner:
                return self._state(request)
            case Restore() if self.owner:
                return self._restore(request)
        raise Disagrees("invalid", f"Expected a request, got {type(request).__name__}.")

    # --- before the rounds --------------------------------------------------------------------

    def _facts(self, invitation: Invite) -> Facts:
        asked = self.problem if self.rules is None else self.rules.invited(invitation.study)
        return facts_of(asked, self.name, invitation.sizes)

    def _agree(self, proposal: Propose) -> Agreed:
        """It begins again however often it is asked: ledgers know what was agreed to."""
        self.run = None  # what ``rules`` say now is of the new run alone
        own = proposal.own if self.rules is None else self.rules.agree(proposal)
        if own is None or not (self.owner or proposal.own is None):
            raise Disagrees("invalid", "Expected an owner's proposal from the owner alone.")
        if self.rules is not None:
            self.problem = self.rules.invited(proposal.study)
        key = None if own.root is None else agent_key(jax_key(own.root), proposal.run, self.index)
        about = proposal.run, proposal.size, proposal.settings, own, proposal.exact
        if proposal.summed is not None:
            told = self._agree_to_sum(proposal, proposal.summed, own, key)
            return Agreed(proposal.run, told)
        if not proposal.exact:
            agent = Agent(
                self.problem,
                self.name,
                proposal.settings,
                key,
                proposal.run,
                proposal.size,
                ledger=self.ledger,
                noise=own.noise,
            )
            self.run = Run(*about, rounds=agent)
        elif proposal.release is not None:
            mechanism, delta = proposal.release, proposal.delta
            reader = Reader(self.name, mechanism, delta, own.noise, key, self.ledger, own.from_seed)
            if own.then is not None:
                reader.afford(self.problem, own.then)
                return Agreed(proposal.run)
            if not own.resumed:
                self.problem.objective.statistics()  # refused where there is none
                if self.rules is not None:
                    terms, release = reader.terms(self.problem), reader.named(self.problem)
                    self.rules.allow(proposal.run, terms, release)
                reader.agree(self.problem)
            self.run = Run(*about, reader)
        elif self.owner:
            self.run = Run(*about)
        else:
            raise Disagrees("noise", "Expected noise in a run, got none.")
        if not self.owner:
            log.info("Party %r agreed to run %r.", self.name, proposal.run)
        return Agreed(proposal.run)

    def _agree_to_sum(self, proposal: Propose, summed: Sum, own: Own, key: Any) -> dict[str, str]:
        from tacit.protocol.masks import Epoch  # not needed where nothing is added up
        from tacit.protocol.summed import Summand

        settings, size, release = proposal.settings, proposal.size, proposal.release
        if release is not None:  # as one round
            one, size = (ConstantPenalty(1.0), ConstantStep(1.0)), 0
            settings = Settings(
                1, mechanism=release, delta=proposal.delta, penalty=one[0], step_size=one[1]
            )
        about = self.problem, self.name, settings, key, proposal.run, size, summed
        if own.then is not None:
            mechanism = settings.mechanism
            if self.ledger is not None and not self.ledger.affords((mechanism, 1), own.then):
                raise Refused(
                    f"Agent {self.name!r}: the release and the run after it would go beyond its "
                    f"budget of {digits(self.ledger.budget.epsilon)}. Nothing was charged."
                )
            return {}
        epoch = None
        if summed.masked:
            roster, identity = (Roster(summed.names), None) if self.owner else self.rules.roster()  # type: ignore[union-attr]
            epoch = Epoch(proposal.study, proposal.run, summed.epoch, roster, self.name, identity)
        how = proposal.study, epoch, release is not None
        agent = Summand(*about, *how, ledger=self.ledger, noise=own.noise)
        self.run = Run(proposal.run, size, settings, own, False, rounds=agent, epoch=summed.epoch)
        return {} if epoch is None else {self.name: epoch.public}

    def _keys(self, request: Keys) -> Agreed:
        run = self._agreed(request.run)
        epoch = getattr(run.rounds, "epoch", None)
        if epoch is None or request.epoch != run.epoch:
            raise Refused(f"Expected keys of the epoch that run {run.name!r} is in, got others.")
        try:
            if not request.sealed:
                return Agreed(run.name, epoch.meet(request.told))
            epoch.finish(request.told)
        except ValueError as error:  # of the library: no key, or one that gives every secret away
            raise Refused(f"Expected keys, got others: {error}") from None
        return Agreed(run.name)

    def _agreed(self, run: str) -> Run:
        if self.run is None or self.run.name != run:
            raise Disagrees("not agreed", "Expected a run that was agreed to, got another.")
        return self.run

    # --- exact steps on what was released -----------------------------------------------------

    def _copy(self, request: ReleaseOnce) -> Curvature | Masked:
        """Make a released objective, and say its mean curvature. Without noise the objective
        itself is taken for public: such a run is not private."""
        run, objective = self._agreed(request.run), self.problem.objective
        if run.epoch is not None:
            summand: Any = run.rounds
            part: Masked = summand.respond(Broadcast(run.name, 1, np.zeros(0)))
            return part
        if not run.exact:
            raise Refused(f"Expected rounds of run {run.name!r}, which adds noise in each.")
        if isinstance(objective, PublicObjective):
            run.copy = self.problem
        elif run.reader is None:
            run.copy = self.problem.with_objective(without_noise(objective), self.name)
        else:
            mechanism, P = run.reader.mechanism, run.own.agents
            run.copy = public_part(self.problem, self.name, self._released(run), mechanism, P)
        return Curvature(run.name, float(run.copy.objective.mean_curvature))  # type: ignore[attr-defined]

    def _released(self, run: Run) -> Release:
        """What is released in this run: once, paid for and kept."""
        assert run.reader is not None
        if run.release is None:
            run.release = run.reader.read(self.problem)
        return run.release

    def _start(self, request: Start) -> Agreed:
        run = self._agreed(request.run)
        if run.copy is None or len(request.penalty) != run.size:
            raise Refused(f"Expected run {run.name!r} to have read its data, and its penalties.")
        if request.first is not None and not self.owner:
            raise Disagrees("invalid", "Expected a first point from the owner alone.")
        penalties, tolerance = (request.penalty, request.group), run.settings.tolerance
        about = run.copy, self.name, run.name, penalties, request.first, tolerance
        run.rounds = ExactRounds(*about)
        return Agreed(run.name)

    # --- rounds -------------------------------------------------------------------------------

    def _reply(self, broadcast: Broadcast) -> Reply | Masked:
        run = self._agreed(broadcast.run)
        if run.rounds is None:
            raise Refused(f"Expected the start of run {run.name!r} before its rounds.")
        reply = run.rounds.respond(broadcast)
        if not self.owner:
            log.info("Party %r answered round %d of run %r.", self.name, broadcast.round, run.name)
        return reply

    def _finish(self, outcome: Finish) -> Agreed:
        run = self._agreed(outcome.run)
        if run.rounds is None or outcome.round != run.rounds.rounds_done:
            raise Refused(f"Expected the outcome of run {run.name!r} after its last round.")
        if self.rules is not None:
            self.rules.finish(self, run, outcome)
        if run.epoch is not None:
            part: Any = run.rounds
            part.forget()
        return Agreed(run.name)

    # --- for the owner ------------------------------------------------------------------------

    def _measure(self, request: Measure) -> Measured:
        run = self._agreed(request.run)
        agent, valued = run.rounds, self.problem.objective
        assert agent is not None
        z, noise = agent.point, 0.0
        if request.point is not None:
            z, noise = request.point, getattr(agent, "noise_magnitude", 0.0)
            valued = getattr(agent, "objective", valued)
        elif isinstance(agent, Agent):
            z, noise = agent.average, agent.noise_magnitude
        elif run.release is not None:
            assert run.copy is not None
            valued = run.copy.objective
        violation = float(self.problem.feasible_set.violation(z))
        return Measured(objective_value(valued, z), violation, noise)

    def _state(self, request: Snapshot) -> State:
        if request.key is not None:
            digest = agent_digest(self.problem, self.name, request.key)
            return State(digest=digest + (self.ledger.origin if self.ledger else b""))
        run, paid, charged = self.run, self.ledger is not None, 0
        if self.ledger is not None:
            charged = sum(last - first + 1 for first, last in self.ledger.charged(request.run))
        if run is None or run.name != request.run:
            return State(paid, charged)
        arrays: tuple[Any, ...] = ()
        if run.epoch is not None:
            return State(paid, charged)
        if isinstance(run.rounds, Agent):
            arrays = run.rounds.point, run.rounds.average, run.rounds.dual, run.rounds.pace
        elif run.rounds is not None:
            arrays = (run.rounds.point,)
        elif run.reader is not None:
            self._released(run)
        return State(paid, charged, b"", tuple(map(np.asarray, arrays)), run.release)

    def _restore(self, request: Restore) -> Agreed:
        run, release = self._agreed(request.run), request.release
        if run.epoch is not None:
            if self.ledger is None and run.rounds is not None:
                run.rounds.rounds_done = request.round
        elif isinstance(run.rounds, Agent):
            if self.ledger is None:  # else the ledger knows where the agent is
                point, average, dual, *pace = request.arrays
                run.rounds.restore(point, average, dual, request.round, *pace)
        elif release is not None:
            if request.check:
                self._check(run, release)
            run.release = release
        return Agreed(run.name)

    def _check(self, run: Run, release: Release) -> None:
        assert run.reader is not None
        statistics = self.problem.objective.statistics()
        if release.values.shape != statistics.values.shape or not release.fits(statistics):
            raise InvalidInput(
                f"Expected the problem that was released; the data, bounds or neighbours of agent "
                f"{self.name!r} are others by now. A new release needs a new charge. Nothing was "
                "computed."
            )
        if self.ledger is not None and not run.reader.holds(self.problem, release):
            raise InvalidInput(
                f"Expected the seed, the source of noise and the ledgers of the release; the "
                f"ledger of agent {self.name!r} knows nothing of it. A new release needs a "
                "checkpoint of its own. Nothing was released."
            )

    # --- for others ---------------------------------------------------------------------------

    def _refusal(self, request: Request, error: BaseException) -> Refusal:
        """In one of ``WORDS``; what they leave out is in the party's own log."""
        code, said, level = "failed", type(error).__name__, logging.ERROR
        if isinstance(error, Disagrees):
            code, said, level = error.point, str(error), logging.WARNING
        elif isinstance(error, Refused):
            code = "terms" if isinstance(request, Propose) else "refused"
            said, level = str(error), logging.WARNING
        elif isinstance(error, CorruptFile | LedgerFailure):
            code, said = "ledger", str(error)
        elif isinstance(error, InvalidInput):  # about what was proposed: no data are read for it
            code, said, level = "refused", str(error), logging.WARNING
        log.log(level, "Party %r: %s", self.name, said)
        run, round = getattr(request, "run", ""), getattr(request, "round", 0)
        told = said if code != "failed" and getattr(self.rules, "tell_why", False) else ""
        return refusal(self.name, run, round, code, told)


def refusal(party: str, run: str, round: int, code: str, why: str = "") -> Refusal:
    """In one of ``WORDS``; and why, where the party lets others know."""
    reason, words = WORDS[code]
    more = f" It says: {plain(why, '')[:MOST_WORDS]}" if why else ""
    return Refusal(run, round, reason, f"Party {party!r} {words}{more}")


def answer_bytes(participant: Participant, data: bytes) -> bytes:
    """What a participant of another organisation answers to bytes, as bytes. It never raises."""
    try:
        request = request_from(data)
    except CorruptFile as error:
        log.error("Party %r: %s", participant.name, error)
        return refusal(participant.name, "", 0, "invalid").to_bytes()
    except InvalidInput as error:  # settings that nobody can have
        log.warning("Party %r: %s", participant.name, error)
        return refusal(participant.name, "", 0, "refused").to_bytes()
    answer = participant.handle(request)
    if isinstance(answer, Failure | Measured | State):
        raise TypeError("expected a participant that is not its owner's")
    return answer.to_bytes()
