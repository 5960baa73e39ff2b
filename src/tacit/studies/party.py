"""A party of a study: the only process that sees its data. Bytes in, bytes out.

    request ──▶ Party.handle ──▶ Facts, Agreed, Copied, Reply, or a Refusal in a fixed sentence

Whoever asks may be anyone: a coordinator, an engine's server, a thief of either. What may be
answered is decided here, by the party's own file, its ledger and Algorithm 1's agent.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, Refused, TacitError, printable
from tacit.files import write_atomically
from tacit.privacy.accounting import exact
from tacit.privacy.mechanisms import Mechanism, Noiseless, mechanism_from
from tacit.protocol.agent import Agent
from tacit.protocol.facts import Facts
from tacit.protocol.keys import agent_key, jax_key, root_key
from tacit.protocol.messages import Broadcast, Refusal
from tacit.protocol.public_agent import PublicAgent
from tacit.protocol.release import Reader
from tacit.protocol.released import public_part
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.limits import Disagrees, LimitedLedger
from tacit.studies.party_file import PartyFile
from tacit.studies.study import REHEARSAL, Study
from tacit.studies.study_messages import (
    Agreed,
    Answer,
    Copied,
    Invitation,
    Outcome,
    Proposal,
    Read,
    Request,
    Start,
    request_from,
)

log = logging.getLogger("tacit.party")
LONGEST_NAME = 200  # of a run
RELEASES = re.compile("release-[0-9a-f]{12}-")
# All that a party ever says in words. Numbers, names of files and reasons are in its own log.
WORDS = {
    "rounds": ("refused", "does not agree: more rounds than its limit."),
    "noise": ("refused", "does not agree: the noise is not of the kind it asks for."),
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


@dataclass
class _Run:
    """A run that the party has agreed to."""

    name: str
    size: int
    settings: Settings
    agent: Agent | PublicAgent | None  # who answers its rounds
    reader: Reader | None = None  # where data are read once
    copy: LocalProblem | None = None


class Party:
    """One organisation in one study, with its data and its ledger.

    folder   where its own part of the outcome goes; None: nowhere

    Guarantee: ``handle`` returns facts that do not depend on the data, the word that something was
    done, numbers that were paid for in the ledger and follow from noisy readings or updates within
    ``LimitedLedger``'s limits, or a refusal in one of ``WORDS``; and it never raises.
    """

    def __init__(self, study: Study, file: PartyFile, folder: Path | None = None) -> None:
        self.study, self.file, self.folder = study, file, folder
        self.name = file.agent
        self.problem = study.problem_of(file.agent, file)
        self.ledger = LimitedLedger(file, study.rehearsal is not None)
        self._run: _Run | None = None
        self._lock = threading.Lock()

    def handle(self, request: bytes) -> bytes:
        run, round, code = "", 0, "invalid"
        try:
            message = request_from(request)
            run, round = getattr(message, "run", ""), getattr(message, "round", 0)
            with self._lock:
                return self._answer(message).to_bytes()
        except Disagrees as error:
            code = error.point
            log.warning("Party %r: %s", self.name, error)
        except Refused as error:
            code = "terms" if isinstance(message, Proposal) else "refused"
            log.warning("Party %r: %s", self.name, error)
        except CorruptFile as error:
            code = "ledger" if run else "invalid"
            log.error("Party %r: %s", self.name, error)
        except LedgerFailure as error:
            code = "ledger"
            log.error("Party %r: %s", self.name, error)
        except InvalidInput as error:  # about what was proposed: no data are read for it
            code = "refused"
            log.warning("Party %r: %s", self.name, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # its words may be about the data; a solver's panic too
            code = "failed"
            log.error("Party %r: %s", self.name, type(error).__name__)
        return refusal(self.name, run, round, code).to_bytes()

    def _answer(self, message: Request) -> Answer:
        answers: dict[type[Any], Callable[[Any], Answer]] = {
            Invitation: self._facts,
            Proposal: self._agree,
            Read: self._read,
            Start: self._start,
            Broadcast: self._reply,
            Outcome: self._write,
        }
        return answers[type(message)](message)

    def _facts(self, invitation: Invitation) -> Facts:
        self._same_study(invitation.study)
        return Facts.of(self.problem, self.name, invitation.sizes)

    def _agree(self, proposal: Proposal) -> Agreed:
        self._same_study(proposal.study)
        _check_name(proposal.run)
        settings, law = _proposed(proposal)
        most = self.file.limits.rounds
        if most is not None and settings.rounds > most:
            words = f"Expected at most {most} rounds, as [limits] says, got {settings.rounds}."
            raise Disagrees("rounds", words)
        self._run = None
        about: dict[str, Any] = {"noise": "secure", "key": None, "ledger": self.ledger}
        if self.study.rehearsal is not None:
            root = jax_key(root_key(self.study.rehearsal))
            place = self.study.agents.index(self.name)
            about |= {"noise": "seeded", "key": agent_key(root, proposal.run, place)}
        if law is not None:
            seeded = self.study.rehearsal is not None
            reader = Reader(self.name, law, proposal.delta, **about, from_seed=seeded)
            # what was released before, perhaps on wider limits, is within those of today or stays
            self.ledger.compare(proposal.run, reader.terms(self.problem))
            reader.agree(self.problem)
            self._run = _Run(proposal.run, proposal.size, settings, None, reader)
        else:
            key = about.pop("key")
            run = self.problem, self.name, settings, key, proposal.run, proposal.size
            self._run = _Run(proposal.run, proposal.size, settings, Agent(*run, **about))
        log.info("Party %r agreed to run %r.", self.name, proposal.run)
        return Agreed(proposal.run)

    def _read(self, request: Read) -> Copied:
        run = self._agreed(request.run)
        if run.reader is None:
            raise Refused(f"Expected rounds of run {run.name!r}, which reads in each, got a Read.")
        release = run.reader.read(self.problem)
        law, P = run.reader.mechanism, len(self.study.agents)
        run.copy = public_part(self.problem, self.name, release, law, P)
        return Copied(run.name, float(run.copy.objective.mean_curvature))  # type: ignore[attr-defined]

    def _start(self, request: Start) -> Agreed:
        run = self._agreed(request.run)
        if run.copy is None or len(request.penalty) != run.size:
            raise Refused(f"Expected run {run.name!r} to have read its data, and its penalties.")
        penalties = request.penalty, request.group
        tolerance = run.settings.tolerance
        run.agent = PublicAgent(run.copy, self.name, run.name, penalties, tolerance=tolerance)
        return Agreed(run.name)

    def _reply(self, broadcast: Broadcast) -> Any:
        run = self._agreed(broadcast.run)
        if run.agent is None:
            raise Refused(f"Expected the start of run {run.name!r} before its rounds.")
        reply = run.agent.respond(broadcast)
        log.info("Party %r answered round %d of run %r.", self.name, broadcast.round, run.name)
        return reply

    def _write(self, outcome: Outcome) -> Agreed:
        run = self._agreed(outcome.run)
        if run.agent is None or outcome.round != run.agent.rounds_done:
            raise Refused(f"Expected the outcome of run {run.name!r} after its last round.")
        agent = run.agent
        point = agent.point if isinstance(agent, PublicAgent) else agent.average
        if self.problem.holds_everything:  # then all have the same answer
            point = outcome.solution
            if point.shape != (self.problem.dimension,) or not np.isfinite(point).all():
                raise Refused(f"Expected {self.problem.dimension} finite numbers as solution.")
        if self.folder is not None:
            said = self._statement(run)
            about = self.file, self.problem, point, said
            self.study.write_own(self.folder, self.name, *about)
            told = {"run": run.name, "study": self.study.digest, **said.to_dict()}
            write_atomically(self.folder / "statement.json", json.dumps(told, indent=2).encode())
            log.info("Run %r is finished; the party's own part is in %s.", run.name, self.folder)
        return Agreed(run.name)

    def _statement(self, run: _Run) -> PrivacyStatement:
        """What this party's own messages cost, by its own numbers."""
        f, once = self.problem.objective, run.reader is not None
        law: Mechanism = run.reader.mechanism if run.reader else run.settings.mechanism
        delta = run.reader.delta if run.reader else run.settings.delta
        rounds = [last - first + 1 for first, last in self.ledger.charged(run.name)]
        updates = 1 if once else max(run.settings.rounds, sum(rounds)) * run.settings.local_updates
        total, seeded = exact(law, updates, delta), self.study.rehearsal is not None
        hidden = ((f.neighbours, (self.name,)),)
        numbers = total.epsilon, total.delta, law.name, updates, hidden, seeded
        uncertified = REHEARSAL if seeded else f.uncertified
        assumed = self.study.kind.assumed(delta)
        return PrivacyStatement(*numbers, uncertified, not seeded, assumed, once)

    def _same_study(self, digest: str) -> None:
        if digest != self.study.digest:
            raise Disagrees(
                "study", f"Expected study {self.study.digest[:12]}, got {digest[:12]!r}."
            )

    def _agreed(self, run: str) -> _Run:
        if self._run is None or self._run.name != run:
            raise Disagrees("not agreed", "Expected a run that was agreed to, got another.")
        return self._run


def refusal(party: str, run: str, round: int, code: str) -> Refusal:
    """In one of ``WORDS``."""
    reason, words = WORDS[code]
    return Refusal(run, round, reason, f"Party {party!r} {words}")


def _check_name(run: str) -> None:
    """A name is kept in the ledger for good, where those of releases are others (``Terms``)."""
    if RELEASES.match(printable("a run's name", run, LONGEST_NAME)):
        raise InvalidInput("Expected a run's name, got that of a release. Nothing was charged.")


def _proposed(proposal: Proposal) -> tuple[Settings, Mechanism | None]:
    """The settings and, where data are read once, the noise of that."""
    try:
        settings = Settings.from_dict(json.loads(proposal.settings))
        law = mechanism_from(json.loads(proposal.reading)) if proposal.reading else None
    except TacitError:
        raise
    except Exception:  # whatever a text does when it is read
        raise InvalidInput("Expected settings as JSON, got something else.") from None
    if isinstance(law or settings.mechanism, Noiseless):
        raise Disagrees("noise", "Expected noise in a run, got none.")
    if law is not None and not isinstance(settings.mechanism, Noiseless):
        raise InvalidInput("Expected rounds without noise after one noisy reading.")
    return settings, law
